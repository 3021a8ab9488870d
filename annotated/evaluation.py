"""6.1 Machine Translation (chapters/6-1-machine-translation.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

from sacrebleu.metrics import BLEU

from annotated.data import load_pairs
from annotated.decoding import Translator

__all__ = ["bleu", "evaluate", "lower_tokenise"]


def lower_tokenise(sentences: list[str], lang: str) -> list[str]:
    """Lower-case, normalise and tokenise as Moses does, and as Multi30k's own files are.

    Args:
        lang: language of the sentences, such as "de".
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normaliser, tokeniser = MosesPunctNormalizer(lang), MosesTokenizer(lang)
    return [
        tokeniser.tokenize(normaliser.normalize(sentence.lower()), return_str=True)
        for sentence in sentences
    ]


def bleu(
    hypotheses: list[str], references: list[str], lang: str, lower_tokenised: bool = False
) -> dict[str, float | str]:
    """Score translations against one reference each.

    Args:
        lang: language of both.
        lower_tokenised: score in lower case after Moses' tokenizer; default: cased text.

    Returns: score (0 to 100) and sacreBLEU's signature.

    Raises: ValueError if there are not as many hypotheses as references.

    Source: section 6.1.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"expected {len(references)} translations; got {len(hypotheses)}")
    metric = BLEU(tokenize="none", force=True) if lower_tokenised else BLEU()
    if lower_tokenised:
        hypotheses = lower_tokenise(hypotheses, lang)
        references = lower_tokenise(references, lang)
    score = metric.corpus_score(hypotheses, [references]).score
    return {"score": score, "signature": str(metric.get_signature())}


def evaluate(
    translator: Translator, corpus: str, split: str, src: str, tgt: str
) -> list[dict[str, object]]:
    """Translate a split of a corpus and score it both ways.

    Returns: a row for the cased and one for the lower-cased, tokenized score.
    """
    sources, references = load_pairs(corpus, split, src, tgt)
    hypotheses = translator.translate_all(sources, progress=True)
    where = {"corpus": corpus, "split": split, "pair": f"{src}-{tgt}", "sentences": len(sources)}
    return [
        where
        | {"text": "lower-cased, tokenized" if lower else "cased, detokenized", "search": "greedy"}
        | bleu(hypotheses, references, tgt, lower)
        for lower in (False, True)
    ]
