"""Translation by CTranslate2, an engine in C++, with our arguments, our scores and our results.

The engine's own search ranks complete outputs by a penalty other than the paper's. It is asked
for the bare probabilities of all outputs that it has completed, and these are ranked here.
"""

from tempfile import TemporaryDirectory
from typing import Any

import torch

from annotated.data import PAD, START, UNK
from annotated.decoding import length_penalty
from annotated.machinery.errors import InputError, extra
from annotated.machinery.formats.export import POSITIONS, export_model, piece_names
from annotated.machinery.translator import Translation, Translator


class EngineTranslator(Translator):
    """A translator whose search CTranslate2 does, in less time; everything else is the same.

    The engine keeps all places of its beam where ours gives one up with each complete output, so
    that a few outputs differ. It shows no attention, for which `model` is there, and obeys no
    rules (`follow`), which a parser needs.

    Args:
        translator: a loaded one.   precision: the engine's `compute_type`, such as "float32",
            "int8" (matrices in 8 bits), "float16" or "bfloat16".

    Raises: MissingExtra; InputError for a precision that is not available, and for a model that
        CTranslate2 cannot express.
    """

    def __init__(self, translator: Translator, precision: str = "float32") -> None:
        both = translator.tokenizer, translator.target_tokenizer
        super().__init__(translator.model, *both, translator.card)
        self.precision, self.folder = precision, TemporaryDirectory(prefix="annotated-")
        export_model(translator, "ctranslate2", self.folder.name)
        target, c = self.target_tokenizer or self.tokenizer, self.model.config
        self._pieces = piece_names(self.tokenizer, c.src_vocab)
        self._ids = {piece: i for i, piece in enumerate(piece_names(target, c.tgt_vocab))}
        self.to(self.device)

    def to(self, device: torch.device | str) -> "EngineTranslator":
        """Move to a device, "cpu" or "cuda"; returns this translator."""
        with extra("export"):
            import ctranslate2
        super().to(device)
        kind = self.device.type
        if kind not in ("cpu", "cuda"):
            raise InputError(f"expected cpu or cuda for CTranslate2; got {device!r}")
        known = sorted(ctranslate2.get_supported_compute_types(kind))
        if self.precision not in known:
            wrong = f"expected a precision out of {', '.join(known)} on this {kind}"
            raise InputError(f"{wrong}; got {self.precision!r:.80}")
        self.engine: Any = ctranslate2.Translator(
            self.folder.name, kind, device_index=self.device.index or 0,
            compute_type=self.precision, intra_threads=torch.get_num_threads(),
        )  # fmt: skip
        return self

    def search(  # type: ignore[override]  # `candidates` has checked the names
        self, sources: list[list[int]], beam: int = 4, alpha: float = 0.6, max_extra: int = 50,
        n_best: int = 1, offset: float = 5, max_len: int | None = None,
    ) -> list[list[Translation]]:  # fmt: skip
        """The best translations of source ids, all in one batch.

        A sentence is searched by our own search if the engine has too few positions for it, reaches
        the limit of length, or outputs an id that is no text.
        """
        options = {"alpha": alpha, "offset": offset, "n_best": n_best, "max_len": max_len}
        most = self.model.max_positions or POSITIONS
        limits = [len(ids) + max_extra if max_len is None else max_len for ids in sources]
        limits = [min(limit, most) for limit in limits]
        short = [ids for ids in sources if len(ids) <= most]
        found = iter(self.engine.translate_batch(
            # The engine adds the end symbol.
            [[self._pieces[i] for i in ids[:-1]] for ids in short],
            beam_size=beam, num_hypotheses=beam, length_penalty=0, return_scores=True,
            max_input_length=0, max_decoding_length=max(limits),
        ))  # fmt: skip
        text = (self.target_tokenizer or self.tokenizer).decode
        results = []
        for ids, limit in zip(sources, limits, strict=True):
            if len(ids) > most:
                results += super().search([ids], beam=beam, max_extra=max_extra, **options)
                continue
            row = next(found)
            outputs = [[self._ids[piece] for piece in pieces] for pieces in row.hypotheses]
            lengths = [len(output) + 1 for output in outputs]  # the end symbol counts
            if max(lengths) > limit or {PAD, START, UNK} & {i for out in outputs for i in out}:
                results += super().search([ids], beam=beam, max_extra=max_extra, **options)
                continue
            group = [
                Translation(text(output), log_prob, log_prob / length_penalty(n, alpha, offset))
                for output, n, log_prob in zip(outputs, lengths, row.scores, strict=True)
            ]
            group.sort(key=lambda found: found.score, reverse=True)
            results.append(group[:n_best])
        return results
