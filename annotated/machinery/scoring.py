"""BLEU and perplexity."""

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from sacrebleu.metrics import BLEU

from annotated.data import PAD, encode_source, encode_target, make_batch
from annotated.machinery.corpora import load_pairs
from annotated.machinery.errors import InputError
from annotated.machinery.files import extra
from annotated.machinery.texts import read_lines
from annotated.machinery.translator import Translator, budget_batches, each_sentence

BLEU_KINDS = {
    "cased": "cased, detokenized",
    "tokenized": "cased, tokenized",
    "compound-split": "cased, tokenized, compounds split",
    "lower-tokenized": "lower-cased, tokenized",
}  # the kinds of BLEU, and the text on which each is computed


def moses_tokenise(sentences: list[str], lang: str) -> list[str]:
    """Tokenise as Moses does, its escapes such as &quot; included.

    Raises: ValueError if lang is not two letters; sacremoses would take it for English.
        ImportError without sacremoses, which the extra `scores` brings.
    """
    with extra("scores"):
        from sacremoses import MosesTokenizer
    if not re.fullmatch("[a-z]{2}", lang):
        raise ValueError(f"expected a language such as 'de'; got {lang!r}")
    tokeniser = MosesTokenizer(lang)
    return [tokeniser.tokenize(sentence, return_str=True) for sentence in sentences]


def lower_tokenise(sentences: list[str], lang: str) -> list[str]:
    """Lower-case, normalise and tokenise as Moses does, and as Multi30k's own files are.

    Args:
        lang: language of the sentences, such as "de".
    """
    with extra("scores"):
        from sacremoses import MosesPunctNormalizer
    normalise = MosesPunctNormalizer(lang).normalize
    return moses_tokenise([normalise(sentence.lower()) for sentence in sentences], lang)


def split_compounds(sentences: list[str], lang: str) -> list[str]:
    """Plain quotes, Moses' tokens, and ##AT##-##AT## for a hyphen inside a token.

    Source: the measure of section 6.1; tensor2tensor's get_ende_bleu.sh.
    """
    with extra("scores"):
        from sacremoses import MosesPunctNormalizer
    plain = MosesPunctNormalizer(lang).replace_unicode_punct  # “ ” become ", but „ stays
    quoted = [plain(sentence).replace("„", '"') for sentence in sentences]
    tokens = moses_tokenise(quoted, lang)
    return [re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line) for line in tokens]


def cut_for_bleu(sentences: list[str], lang: str, kind: str) -> list[str]:
    """Sentences in the form in which a kind of BLEU counts their words.

    Raises: ValueError if there is no such kind.
    """
    if kind not in BLEU_KINDS:
        raise ValueError(f"expected a kind of BLEU out of {', '.join(BLEU_KINDS)}; got {kind!r}")
    cut = {
        "tokenized": moses_tokenise,
        "compound-split": split_compounds,
        "lower-tokenized": lower_tokenise,
    }
    return cut[kind](sentences, lang) if kind in cut else sentences


def _check_sentences(ours: list[str], theirs: list[str]) -> None:
    """Raise ValueError unless these are two lists of equally many strings, and of some."""
    for side in ours, theirs:
        if not isinstance(side, list | tuple):
            kind = "a single string" if isinstance(side, str) else type(side).__name__
            raise InputError(f"expected lists of sentences; got {kind}")
        for _ in each_sentence(side):
            pass
    if len(ours) != len(theirs) or not ours:
        raise InputError(
            f"expected as many sentences on both sides; got {len(ours)}, {len(theirs)}"
        )


def bleu(
    hypotheses: list[str], references: list[str], lang: str, kind: str = "cased"
) -> dict[str, float | str]:
    """Score translations against one reference each.

    Args:
        hypotheses, references: plain text, not tokenised.
        lang: language of both.
        kind: a key of `BLEU_KINDS`: "cased", "tokenized", "compound-split" or "lower-tokenized".

    Returns: score (0 to 100) and sacreBLEU's signature.

    Raises: ValueError if there are not as many hypotheses as references, or none, or no such
        kind. ImportError if the kind needs sacremoses and it is not installed.

    Source: section 6.1.
    """
    _check_sentences(hypotheses, references)
    metric = BLEU() if kind == "cased" else BLEU(tokenize="none", force=True)
    ours, theirs = cut_for_bleu(hypotheses, lang, kind), cut_for_bleu(references, lang, kind)
    score = metric.corpus_score(ours, [theirs]).score
    return {"score": score, "signature": str(metric.get_signature())}


def _all_scores(
    hypotheses: list[str], references: list[str], lang: str
) -> list[dict[str, float | str]]:
    """A row for each kind of BLEU, with the text that it is computed on.

    Compounds are split in German only.
    """
    kinds = [kind for kind in BLEU_KINDS if lang == "de" or kind != "compound-split"]
    return [
        {"text": BLEU_KINDS[kind], **bleu(hypotheses, references, lang, kind)} for kind in kinds
    ]


class Likelihood(NamedTuple):
    """What a model makes of references that it is told one piece at a time.

    Args:
        nats: loss over all pieces, without smoothing. The end of a sentence is a piece.
        right: how many pieces were the model's first choice.
        pieces: how many there are.

    Source: section 6.2, Table 3 (perplexity); section 5.4 (accuracy).
    """

    nats: float
    right: int
    pieces: int

    @property
    def perplexity(self) -> float:
        """Perplexity per word piece."""
        return math.exp(self.nats / self.pieces)

    @property
    def accuracy(self) -> float:
        """Share of the pieces that were the first choice."""
        return self.right / self.pieces


@torch.no_grad()
def likelihood(
    translator: Translator, sources: list[str], references: list[str], batch_tokens: int = 2000
) -> Likelihood:
    """Tell a model the references, one piece at a time, and see how well it expects them.

    Args:
        batch_tokens: tokens of a batch on either side, padding included.

    Returns: loss and right first choices, summed over all pieces of all references.

    Raises: ValueError if there are not as many sources as references, or none.

    Source: section 6.2, Table 3; section 5.4.
    """
    _check_sentences(sources, references)
    model, tokenizer = translator.model, translator.tokenizer
    written = translator.target_tokenizer or tokenizer
    device = next(model.parameters()).device
    src, tgt = encode_source(tokenizer, sources), encode_target(written, references)
    pairs, found = list(zip(src, tgt, strict=True)), Likelihood(0.0, 0, 0)
    for indices in budget_batches([max(map(len, pair)) for pair in pairs], batch_tokens):
        batch = make_batch([pairs[i] for i in indices], device)
        out = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        real = batch.tgt_y != PAD
        log_probs, y = model.generator(out[real]), batch.tgt_y[real]  # (pieces, vocab), (pieces)
        found = Likelihood(
            found.nats + float(F.nll_loss(log_probs, y, reduction="sum")),
            found.right + int((log_probs.argmax(dim=-1) == y).sum()),
            found.pieces + len(y),
        )
    return found


def evaluate(
    translator: Translator,
    corpus: str,
    split: str,
    src: str,
    tgt: str,
    beam: int = 4,
    alpha: float = 0.6,
) -> list[dict[str, object]]:
    """Translate a split of a corpus and score it in every way.

    Args:
        corpus, split, src, tgt: as for `load_pairs`.
        beam, alpha: of the search; beam 1 is greedy.

    Returns: a row for each kind of BLEU; compounds are split in German only. Each row has the
        perplexity and the accuracy per word piece too, which are the same for all.

    Raises: ValueError as `load_pairs` and `beam_search`. ImportError without sacremoses, before
        anything is translated.

    Source: section 6.1.
    """
    with extra("scores"):
        import sacremoses  # noqa: F401
    sources, references = load_pairs(corpus, split, src, tgt)
    hypotheses = translator.translate_all(sources, beam=beam, alpha=alpha, progress=True)
    shared = {"corpus": corpus, "split": split, "pair": f"{src}-{tgt}", "sentences": len(sources)}
    shared["search"] = "greedy" if beam == 1 else f"beam {beam}, alpha {alpha}"
    found = likelihood(translator, sources, references)
    shared |= {"perplexity": found.perplexity, "accuracy": found.accuracy}
    return [shared | score for score in _all_scores(hypotheses, references, tgt)]


def score_files(output: Path, reference: Path, lang: str) -> list[dict[str, object]]:
    """Score a file of translations in every way, one sentence a line.

    Args:
        output, reference: text files, or compressed with gzip.
        lang: language of both.

    Returns: a row for each kind of BLEU.

    Raises: ValueError if the files have not the same number of lines.
    """
    hypotheses, references = read_lines(output), read_lines(reference)
    shared = {"output": output.name, "reference": reference.name, "sentences": len(references)}
    return [shared | score for score in _all_scores(hypotheses, references, lang)]


def search_grid(
    translator: Translator,
    sources: list[str],
    references: list[str],
    lang: str,
    beams: list[int],
    alphas: list[float],
) -> list[dict[str, float]]:
    """Score a model with searches of several widths and penalties.

    Args:
        lang: of the references.   beams, alphas: every pair of them is tried.

    Returns: for each pair BLEU (lower-cased, tokenized) and the length of the output in
        words, divided by that of the references.

    Source: section 6.1.
    """
    rows = []
    words = sum(len(reference.split()) for reference in references)
    for beam in beams:
        for alpha in alphas:
            outputs = translator.translate_all(sources, beam=beam, alpha=alpha, progress=True)
            length = sum(len(output.split()) for output in outputs) / words
            score = float(bleu(outputs, references, lang, "lower-tokenized")["score"])
            rows.append({"beam": beam, "alpha": alpha, "bleu": score, "length": length})
    return rows


if TYPE_CHECKING:
    import pandas as pd

_TABLE_2 = [  # model, kind, BLEU and FLOPs: EN-DE, EN-FR
    ("ByteNet", "single", 23.75, None, None, None),
    ("Deep-Att + PosUnk", "single", None, 39.2, None, 1.0e20),
    ("GNMT + RL", "single", 24.6, 39.92, 2.3e19, 1.4e20),
    ("ConvS2S", "single", 25.16, 40.46, 9.6e18, 1.5e20),
    ("MoE", "single", 26.03, 40.56, 2.0e19, 1.2e20),
    ("Deep-Att + PosUnk", "ensemble", None, 40.4, None, 8.0e20),
    ("GNMT + RL", "ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    ("ConvS2S", "ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    ("Transformer (base)", "Transformer", 27.3, 38.1, 3.3e18, 3.3e18),
    ("Transformer (big)", "Transformer", 28.4, 41.8, 2.3e19, 2.3e19),
]


def table_2() -> "pd.DataFrame":
    """Table 2: BLEU on newstest2014, and floating-point operations of the training.

    Raises: ImportError without pandas, which the extra `viz` brings.

    Source: section 6.1, Table 2.
    """
    with extra("viz"):
        import pandas as pd
    columns = ["model", "kind", "BLEU EN-DE", "BLEU EN-FR", "FLOPs EN-DE", "FLOPs EN-FR"]
    return pd.DataFrame(_TABLE_2, columns=columns)
