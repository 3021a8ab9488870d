"""BLEU of several kinds, chrF, perplexity, and the comparison of several systems.

A BLEU score means little without its tokenization. SacreBLEU's signature names its own, but for
text that was tokenized beforehand it contains only "tok:none". Therefore each score here also names
the text on which it was computed.
"""

import math
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from annotated.data import PAD, encode_source, encode_target, make_batch, token_batches
from annotated.machinery.checks import check_finite, each_text
from annotated.machinery.corpora.languages import language_of, two_letters
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

CHRF_TEXT = "chrF2, cased"
_SHORT = 0.9  # a smaller ratio of lengths is warned of

# Languages written without spaces, and sacreBLEU's tokenizer for each.
WITHOUT_SPACES = {"zh": "zh", **dict.fromkeys(["ja", "th", "lo", "km", "my", "bo", "dz"], "char")}


def bleu_kinds(lang: str) -> list[str]:
    """The kinds of BLEU that exist for a language: compounds are split only in German, and Moses
    tokenizes only languages with spaces.

    Raises: InputError unless a language is named by two or three letters.
    """
    if not re.fullmatch("[a-z]{2,3}", str(lang)):
        wanted = "a language of two or three letters, such as 'de' or 'deu'"
        raise InputError(f"expected {wanted}; got {lang!r:.80}")
    lang = two_letters(lang)
    if lang in WITHOUT_SPACES:
        return ["cased"]
    return [kind for kind in BLEU_KINDS if lang == "de" or kind != "compound-split"]


def tokenize_for_bleu(sentences: list[str], lang: str, kind: str) -> list[str]:
    """Prepare sentences for a kind of BLEU, which then counts the tokens between spaces.

    Only for "cased" they remain unchanged, because sacreBLEU tokenizes them itself.
    "compound-split" follows tensor2tensor's get_ende_bleu.sh: plain quotes, Moses' tokens, and
    ##AT##-##AT## for a hyphen inside a token. "lower-tokenized" follows Multi30k's own files:
    lower-cased, with normalized punctuation, then Moses' tokens. These include its escapes such as
    &quot;, and like Moses, it uses English abbreviations for a language whose own it does not know.

    Raises: InputError if the language has no such kind; MissingExtra without sacremoses.

    Source: section 6.1.
    """
    if kind not in (kinds := bleu_kinds(lang)):
        wanted = f"a kind of BLEU for {lang} out of {', '.join(kinds)}"
        raise InputError(f"expected {wanted}; got {kind!r}")
    if kind == "cased":
        return sentences
    with extra("scores"):
        from sacremoses import MosesPunctNormalizer, MosesTokenizer
    normalizer = MosesPunctNormalizer(two_letters(lang))
    tokenize = MosesTokenizer(two_letters(lang)).tokenize
    if kind == "lower-tokenized":
        sentences = [normalizer.normalize(sentence.lower()) for sentence in sentences]
    if kind == "compound-split":  # it replaces “ and ” with plain quotes, but not „
        plain = map(normalizer.replace_unicode_punct, sentences)
        sentences = [sentence.replace("„", '"') for sentence in plain]
    tokens = [tokenize(sentence, return_str=True) for sentence in sentences]
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
) -> dict[str, Any]:
    """Score translations against one reference each.

    Args:
        hypotheses, references: plain text, not tokenized.   lang: language of both.
        kind: "cased", "tokenized", "compound-split" (German) or "lower-tokenized"; a language
            without spaces, such as Chinese, has only "cased".

    Returns: score (0 to 100); sacreBLEU's signature, which names the tokenizer: 13a, zh for
        Chinese, and char for other languages without spaces, Japanese and Thai among them; the
        length relative to that of the references; and the brevity penalty that follows from it.

    Raises: InputError if the numbers of hypotheses and references differ or are zero, or for an
        unknown kind; MissingExtra if the kind needs sacremoses and it is not installed.

    Source: section 6.1.
    """
    sides = _parallel(hypotheses, references, bare=False)  # as sacreBLEU would get them
    ours, theirs = (tokenize_for_bleu(side, lang, kind) for side in sides)
    metric = _bleu_metric(lang, kind)
    found = metric.corpus_score(ours, [theirs])
    lengths = {"length_ratio": found.sys_len / max(1, found.ref_len), "brevity_penalty": found.bp}
    return {"score": found.score, "signature": str(metric.get_signature()), **lengths}


def _bleu_metric(lang: str | None, kind: str = "cased") -> BLEU:
    if kind != "cased":
        return BLEU(tokenize="none", force=True)
    return BLEU(tokenize=WITHOUT_SPACES.get(two_letters(lang or "")))


def _interval(metric: Metric, ours: list[str], theirs: list[str]) -> list[float]:
    """The ends of a 95% confidence interval, from sacreBLEU's bootstrap."""
    found = metric.corpus_score(ours, [theirs], _samples(ours))
    return [float(found._mean - found._ci), float(found._mean + found._ci)]


class _Floats(CHRF):
    """chrF whose scores are all of Python's type, as sacreBLEU's mean of the samples needs."""

    def _compute_f_score(self, statistics: list[int]) -> float:
        return float(super()._compute_f_score(statistics))


def _samples(sentences: list[str]) -> int:
    """Number of bootstrap samples: 1,000, or fewer if they would need gigabytes."""
    return max(100, min(1000, 10_000_000 // len(sentences)))


def _all_scores(
    hypotheses: list[str], references: list[str], lang: str | None
) -> list[dict[str, Any]]:
    """One row per kind of BLEU, with the text on which it is computed, and one for chrF.

    Without a language only the scores that need none: "cased" and chrF.
    """
    ours, theirs = _parallel(hypotheses, references, bare=False)
    rows: list[dict[str, Any]] = [
        {"text": BLEU_KINDS[kind], **bleu(ours, theirs, lang or "en", kind)}
        for kind in (bleu_kinds(lang) if lang else ["cased"])
    ]
    rows[0]["interval"] = _interval(_bleu_metric(lang), ours, theirs)
    metric = CHRF()
    score = metric.corpus_score(ours, [theirs]).score
    rows.append({"text": CHRF_TEXT, "score": score, "signature": str(metric.get_signature())})
    rows[-1]["interval"] = _interval(_Floats(), ours, theirs)
    return rows


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

    Args: batch_tokens: tokens per batch on either side, padding included.

    Raises: InputError if the numbers of sources and references differ or are zero.

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
    baseline: Translator | None = None,
) -> list[dict[str, Any]]:
    """Translate a split of a corpus and compute every kind of BLEU.

    A model does not know its languages: if the languages of the corpus are exchanged, or if the
    model is a parser, only the scores reveal the mistake.

    Args:
        corpus, split, src, tgt: as for `load_pairs`.
        beam, alpha: of the search; a beam of 1 is greedy search.
        baseline: a model to compare with; the rows of cased BLEU and of chrF then have the
            difference from it, with the p-value of sacreBLEU's paired bootstrap.

    Returns: one row per kind of BLEU (compounds are split only in German) and one for chrF, all
        with the same perplexity and accuracy per word piece. The first row of BLEU and that of
        chrF have a 95% interval; the rows of BLEU have the ratio of lengths, of which a warning
        is given below 0.9, and the brevity penalty.

    Raises: InputError as `load_pairs` and `beam_search`; MissingExtra without sacremoses, before
        anything is translated.

    Source: section 6.1.
    """
    found = judge(translator, corpus, split, src, tgt, beam, alpha)
    if baseline:
        compare(judge(baseline, corpus, split, src, tgt, beam, alpha), found, tgt)
    return found.rows


class Judged(NamedTuple):
    """The rows of `evaluate`, and the sentences that they score."""

    rows: list[dict[str, Any]]
    sources: list[str]
    references: list[str]
    hypotheses: list[str]


def judge(
    translator: Translator, corpus: str, split: str, src: str, tgt: str, beam: int, alpha: float
) -> Judged:
    """As `evaluate`, with the sentences."""
    bleu_kinds(tgt)  # a wrong language is rejected before anything is translated
    with extra("scores"):
        import sacremoses  # noqa: F401
    sources, references = load_pairs(corpus, split, src, tgt, bare=False)
    hypotheses = translator.translate(sources, beam=beam, alpha=alpha, progress=True)
    found = likelihood(translator, sources, references)
    shared: dict[str, Any] = {"corpus": corpus, "split": split, "pair": f"{src}-{tgt}"}
    shared["sentences"] = len(sources)
    shared["search"] = "greedy" if beam == 1 else f"beam {beam}, alpha {alpha}"
    shared |= {"perplexity": found.perplexity, "accuracy": found.accuracy}
    rows = [shared | score for score in _all_scores(hypotheses, references, tgt)]
    if (ratio := rows[0]["length_ratio"]) < _SHORT:
        short = f"the translations have only {ratio:.3f} of the length of the references"
        cost = f"their brevity penalty is {rows[0]['brevity_penalty']:.3f}"
        advice = "a larger --alpha prefers longer ones, and more training omits fewer words"
        warnings.warn(f"{corpus} {split}: {short}; {cost}; {advice}", stacklevel=2)
    return Judged(rows, sources, references, hypotheses)


def compare(first: Judged, other: Judged, lang: str, most: int = 3) -> dict[int, float]:
    """Test whether the scores of two systems differ by more than chance.

    The other's rows of cased BLEU and of chrF receive its difference from the first and the
    p-value of sacreBLEU's paired bootstrap.

    Returns: by how much the chrF of single sentences differs, by their index: of the sentences
        that the other translates better, those that differ most, and then of the worse ones.
    """
    systems: Any = [("first", first.hypotheses), ("other", other.hypotheses)]
    metrics = {"BLEU": _bleu_metric(lang), "chrF": CHRF()}
    samples = _samples(first.references)
    _, found = PairedTest(systems, metrics, [first.references], "bs", samples)()
    del found["System"]
    pairs: Iterable[Any] = found.values()  # of each metric, the results of the two systems
    for row, (one, two) in zip((other.rows[0], other.rows[-1]), pairs, strict=True):
        row |= {"difference": two.score - one.score, "p_value": float(two.p_value)}
    chrf = lambda ours, theirs: CHRF().sentence_score(ours, [theirs]).score
    both = zip(first.references, first.hypotheses, other.hypotheses, strict=True)
    gains = [chrf(two, reference) - chrf(one, reference) for reference, one, two in both]
    order = sorted(range(len(gains)), key=gains.__getitem__)
    better = {i: gains[i] for i in order[: -most - 1 : -1] if gains[i] > 0}
    return better | {i: gains[i] for i in order[:most] if gains[i] < 0}


def score_files(output: Path, reference: Path, lang: str | None = None) -> list[dict[str, Any]]:
    """Compute every kind of BLEU for a file of translations, one sentence per line.

    Args:
        output, reference: may be compressed with gzip.
        lang: of both; by default the one that the name of a file ends in, such as ref.de.

    Returns: rows as from `evaluate`; only the scores that need no language if it is unknown.

    Raises: InputError if the files do not have the same number of lines.
    """
    hypotheses, references = read_lines(output), read_lines(reference)
    if (ours := len(hypotheses)) != (theirs := len(references)):
        wanted = f"expected as many lines in {output} as in {reference}"
        raise InputError(f"{wanted}; got {ours}, {theirs}")
    lang = lang or language_of(reference) or language_of(output)
    if lang is None:
        advice = "--lang de, or a name such as ref.de, adds the scores of tokenized text"
        warnings.warn(f"the language of {reference} is unknown; {advice}", stacklevel=2)
    shared = {"output": output.name, "reference": reference.name, "sentences": len(references)}
    return [shared | score for score in _all_scores(hypotheses, references, lang)]
