"""BLEU of several kinds, and perplexity.

A BLEU score means little without its tokenization. SacreBLEU's signature names its own, but for
text that was tokenized beforehand it contains only "tok:none". Therefore each score here also names
the text on which it was computed.
"""

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from sacrebleu.metrics import BLEU

from annotated.data import PAD, encode_source, encode_target, make_batch, token_batches
from annotated.machinery.checks import check_finite, each_text
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.errors import InputError, extra
from annotated.machinery.translator import Translator
from annotated.regularization import without_dropout

BLEU_KINDS = {
    "cased": "cased, detokenized",
    "tokenized": "cased, tokenized",
    "compound-split": "cased, tokenized, compounds split",
    "lower-tokenized": "lower-cased, tokenized",
}  # the kinds of BLEU, and the text on which each is computed

# Languages written without spaces, and sacreBLEU's tokenizer for each.
WITHOUT_SPACES = {"zh": "zh", **dict.fromkeys(["ja", "th", "lo", "km", "my", "bo", "dz"], "char")}


def bleu_kinds(lang: str) -> list[str]:
    """The kinds of BLEU that exist for a language: compounds are split only in German, and Moses
    tokenizes only languages with spaces.

    Raises: InputError unless a language is named by the two letters that Moses knows.
    """
    if not re.fullmatch("[a-z]{2}", str(lang)):
        raise InputError(f"expected a language of two letters, such as 'de'; got {lang!r:.80}")
    if lang in WITHOUT_SPACES:
        return ["cased"]
    return [kind for kind in BLEU_KINDS if lang == "de" or kind != "compound-split"]


def moses_tokenize(sentences: list[str], lang: str) -> list[str]:
    """Tokenize as Moses does, including its escapes such as &quot;.

    Like Moses, it uses English abbreviations for a language whose abbreviations it does not know.

    Raises: MissingExtra without sacremoses.
    """
    with extra("scores"):
        from sacremoses import MosesTokenizer
    tokenizer = MosesTokenizer(lang)
    return [tokenizer.tokenize(sentence, return_str=True) for sentence in sentences]


def tokenize_for_bleu(sentences: list[str], lang: str, kind: str) -> list[str]:
    """Prepare sentences for a kind of BLEU, which then counts the tokens between spaces.

    Only for "cased" they remain unchanged, because sacreBLEU tokenizes them itself.
    "compound-split" follows tensor2tensor's get_ende_bleu.sh: plain quotes, Moses' tokens, and
    ##AT##-##AT## for a hyphen inside a token. "lower-tokenized" follows Multi30k's own files:
    lower-cased, with normalized punctuation, then Moses' tokens.

    Raises: ValueError if the language has no such kind; MissingExtra without sacremoses.

    Source: section 6.1.
    """
    if kind not in (kinds := bleu_kinds(lang)):
        wanted = f"a kind of BLEU for {lang} out of {', '.join(kinds)}"
        raise InputError(f"expected {wanted}; got {kind!r}")
    if kind == "cased":
        return sentences
    with extra("scores"):
        from sacremoses import MosesPunctNormalizer
    normalizer = MosesPunctNormalizer(lang)
    if kind == "lower-tokenized":
        sentences = [normalizer.normalize(sentence.lower()) for sentence in sentences]
    if kind == "compound-split":  # it replaces “ and ” with plain quotes, but not „
        plain = map(normalizer.replace_unicode_punct, sentences)
        sentences = [sentence.replace("„", '"') for sentence in plain]
    tokens = moses_tokenize(sentences, lang)
    if kind == "compound-split":
        tokens = [re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line) for line in tokens]
    return tokens


def _parallel(
    ours: Iterable[str], theirs: Iterable[str], bare: bool = True
) -> tuple[list[str], list[str]]:
    """Both as lists. Raises: InputError unless they have equally many sentences, at least one."""
    first, second = list(each_text(ours, bare)), list(each_text(theirs, bare))
    if len(first) != len(second) or not first:
        sizes = f"{len(first)}, {len(second)}"
        raise InputError(f"expected as many sentences on both sides; got {sizes}")
    return first, second


def bleu(
    hypotheses: list[str], references: list[str], lang: str, kind: str = "cased"
) -> dict[str, float | str]:
    """Score translations against one reference each.

    Args:
        hypotheses, references: plain text, not tokenized.   lang: language of both.
        kind: a key of `BLEU_KINDS`: "cased", "tokenized", "compound-split" (German) or
            "lower-tokenized"; a language without spaces, such as Chinese, has only "cased".

    Returns: score (0 to 100) and sacreBLEU's signature, which names the tokenizer: 13a, zh for
        Chinese, and char for other languages without spaces, Japanese and Thai among them.

    Raises: ValueError if the numbers of hypotheses and references differ or are zero, or for an
        unknown kind; MissingExtra if the kind needs sacremoses and it is not installed.

    Source: section 6.1.
    """
    sides = _parallel(hypotheses, references, bare=False)  # as sacreBLEU would get them
    ours, theirs = (tokenize_for_bleu(side, lang, kind) for side in sides)
    cased = kind == "cased"
    metric = BLEU(tokenize=WITHOUT_SPACES.get(lang) if cased else "none", force=not cased)
    score = metric.corpus_score(ours, [theirs]).score
    return {"score": score, "signature": str(metric.get_signature())}


def _all_scores(
    hypotheses: list[str], references: list[str], lang: str
) -> list[dict[str, float | str]]:
    """One row per kind of BLEU, with the text on which it is computed."""
    return [
        {"text": BLEU_KINDS[kind], **bleu(hypotheses, references, lang, kind)}
        for kind in bleu_kinds(lang)
    ]


class Likelihood(NamedTuple):
    """Measures of how well a model predicts references, one piece at a time.

    Source: section 6.2, Table 3 (perplexity); section 5.4 (accuracy).
    """

    nats: float  # loss summed over all pieces, without smoothing
    right: int  # number of pieces to which the model gave the highest probability
    pieces: int  # number of all pieces; the end of a sentence is one

    @property
    def perplexity(self) -> float:
        """Perplexity per word piece; infinite if it is larger than any floating-point number."""
        try:
            return math.exp(self.nats / self.pieces)
        except OverflowError:
            return math.inf

    @property
    def accuracy(self) -> float:
        """Share of the pieces that the model predicted correctly."""
        return self.right / self.pieces


@torch.no_grad()
def likelihood(
    translator: Translator, sources: list[str], references: list[str], batch_tokens: int = 2000
) -> Likelihood:
    """Let a model predict each piece of the references from the pieces before it.

    Args:
        batch_tokens: tokens per batch on either side, padding included.

    Raises: ValueError if the numbers of sources and references differ or are zero.

    Source: section 6.2, Table 3; section 5.4.
    """
    sources, references = _parallel(sources, references)
    model, tokenizer = translator.model, translator.tokenizer
    src = encode_source(tokenizer, sources)
    tgt = encode_target(translator.target_tokenizer or tokenizer, references)
    pairs, found = list(zip(src, tgt, strict=True)), Likelihood(0.0, 0, 0)
    lengths = [(len(one), len(other)) for one, other in pairs]
    most = max(batch_tokens, *map(max, lengths))
    for indices in token_batches(lengths, most, most):
        batch = make_batch([pairs[i] for i in indices], translator.device)
        real = batch.tgt_y != PAD
        with without_dropout(model):
            out = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
            log_probs, y = model.generator(out[real]), batch.tgt_y[real]  # (pieces, vocab)
        check_finite(log_probs.amax(dim=-1))
        nats = found.nats + float(F.nll_loss(log_probs, y, reduction="sum"))
        right = found.right + int((log_probs.argmax(dim=-1) == y).sum())
        found = Likelihood(nats, right, found.pieces + len(y))
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
    """Translate a split of a corpus and compute every kind of BLEU.

    A model does not know its languages: if the languages of the corpus are exchanged, or if the
    model is a parser, only the scores reveal the mistake.

    Args:
        corpus, split, src, tgt: as for `load_pairs`.
        beam, alpha: of the search; a beam of 1 is greedy search.

    Returns: one row per kind of BLEU (compounds are split only in German), all with the same
        perplexity and accuracy per word piece.

    Raises: ValueError as `load_pairs` and `beam_search`; MissingExtra without sacremoses, before
        anything is translated.

    Source: section 6.1.
    """
    bleu_kinds(tgt)  # a wrong language is rejected before anything is translated
    with extra("scores"):
        import sacremoses  # noqa: F401
    sources, references = load_pairs(corpus, split, src, tgt, bare=False)
    hypotheses = translator.translate(sources, beam=beam, alpha=alpha, progress=True)
    found = likelihood(translator, sources, references)
    shared = {"corpus": corpus, "split": split, "pair": f"{src}-{tgt}", "sentences": len(sources)}
    shared["search"] = "greedy" if beam == 1 else f"beam {beam}, alpha {alpha}"
    shared |= {"perplexity": found.perplexity, "accuracy": found.accuracy}
    return [shared | score for score in _all_scores(hypotheses, references, tgt)]


def score_files(output: Path, reference: Path, lang: str) -> list[dict[str, object]]:
    """Compute every kind of BLEU for a file of translations, one sentence per line.

    Both files may be compressed with gzip.

    Returns: one row per kind of BLEU.

    Raises: ValueError if the files do not have the same number of lines.
    """
    hypotheses, references = read_lines(output), read_lines(reference)
    if (ours := len(hypotheses)) != (theirs := len(references)):
        wanted = f"expected as many lines in {output} as in {reference}"
        raise InputError(f"{wanted}; got {ours}, {theirs}")
    shared = {"output": output.name, "reference": reference.name, "sentences": len(references)}
    return [shared | score for score in _all_scores(hypotheses, references, lang)]
