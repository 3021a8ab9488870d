"""6.1 Machine Translation (chapters/6-1-machine-translation.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from tqdm import tqdm

from annotated.attention import subsequent_mask
from annotated.data import END, START, Batch, encode_source, pad_ids, shipped
from annotated.model import EncoderDecoder, TransformerConfig, build_model

__all__ = ["Translator", "greedy_decode", "load_pretrained"]


@torch.no_grad()
def greedy_decode(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor | None,
    max_len: int,
    start_symbol: int,
    end_symbol: int | None = None,
) -> Tensor:
    """Take the most probable next token, again and again.

    Args:
        model: in eval mode.
        src: ids (batch, src_len)   src_mask: (batch, 1, src_len)
        max_len: length of the result at most, start symbol included.
        start_symbol: id that every result begins with.
        end_symbol: a row that has said it repeats it; search stops once all rows have.

    Returns: ids (batch, at most max_len).

    Source: section 6.1, with a beam of one.
    """
    memory = model.encode(src, src_mask)
    ys = src.new_full((src.size(0), 1), start_symbol)
    while ys.size(1) < max_len:
        out = model.decode(memory, src_mask, ys, subsequent_mask(ys.size(1)).to(src.device))
        next_word = model.generator(out[:, -1]).argmax(dim=-1)  # (batch,)
        if end_symbol is not None:
            next_word = next_word.masked_fill(ys[:, -1] == end_symbol, end_symbol)
        ys = torch.cat([ys, next_word.unsqueeze(1)], dim=1)
        if end_symbol is not None and bool((next_word == end_symbol).all()):
            break
    return ys


@dataclass
class Translator:
    """A trained model with its vocabulary.

    Args:
        model: in eval mode.   tokenizer: the shared vocabulary.
    """

    model: EncoderDecoder
    tokenizer: Tokenizer

    def translate(self, text: str) -> str:
        """Translate one sentence."""
        return self.translate_all([text])[0]

    def translate_all(
        self, sentences: list[str], batch_size: int = 64, progress: bool = False
    ) -> list[str]:
        """Translate sentences, `batch_size` at a time; `progress` shows a bar."""
        sources = encode_source(self.tokenizer, sentences)
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        results: list[str] = [""] * len(sources)
        for at in tqdm(range(0, len(order), batch_size), disable=not progress, unit="batch"):
            indices = order[at : at + batch_size]
            for i, ids in zip(indices, self.search([sources[i] for i in indices]), strict=True):
                results[i] = self.tokenizer.decode(ids)  # which leaves out special symbols
        return results

    def search(self, sources: list[list[int]]) -> list[list[int]]:
        """Target ids for source ids; an output is at most 50 longer than its input."""
        device = next(self.model.parameters()).device
        batch = Batch(pad_ids(sources).to(device))
        max_len = batch.src.size(1) + 50
        ids = greedy_decode(self.model, batch.src, batch.src_mask, max_len, START, END).tolist()
        return [row[: len(source) + 50] for row, source in zip(ids, sources, strict=True)]


def load_pretrained(name: str | Path) -> Translator:
    """Load a trained model.

    Args:
        name: of a model that comes with the package, or the folder of a run.

    Returns: a translator, on the CPU, in eval mode.

    Raises: ValueError that lists the models if there is no such name or folder.
    """
    folder = Path(name) if Path(name).is_dir() else shipped("models") / str(name)
    if not (folder / "model.safetensors").exists():
        known = sorted(path.parent.name for path in shipped("models").glob("*/model.safetensors"))
        raise ValueError(f"expected a folder or a model out of {', '.join(known)}; got {name!r}")
    config = TransformerConfig(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
    model = build_model(config).eval()
    tensors = load_file(folder / "model.safetensors")
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(tensors[key])
    return Translator(model, Tokenizer.from_file(str(folder / "tokenizer.json")))
