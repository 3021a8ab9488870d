"""Sentences of GUM, an English corpus with trees and coreference that people made or corrected.

GUM exists in two forms: one file per split, as Universal Dependencies publishes it, or an archive
with one file per text. The words of Reddit's users may not be distributed, so they are replaced by
blanks; such sentences are omitted.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

from conllu import TokenList, parse
from conllu.exceptions import ParseException
from conllu.parser import DEFAULT_FIELDS, parse_sentences
from spacy.tokens import Doc, Span
from spacy.vocab import Vocab

from annotated.machinery.corpora.registry import corpus_file, find_corpus, known_split, local_file
from annotated.machinery.corpora.texts import archive_texts, read_lines
from annotated.machinery.files import reading


def _misc(token: dict[str, Any], name: str) -> str:
    """The value of an attribute in the last column."""
    return (token["misc"] or {}).get(name) or ""


def _spaces(sentence: TokenList) -> list[bool]:
    """Whether a space follows each word."""
    spaces, end, after_end = [], 0, True
    for token in sentence:
        after, place = _misc(token, "SpaceAfter") != "No", token["id"]
        if isinstance(place, int):
            spaces.append(after if place > end else after_end and place == end)
        elif place and place[1] == "-":  # several words written as one, such as 3-4 don't
            end, after_end = place[2], after
    return spaces


_BRACKET = re.compile(r"\((\d+)[^()]*(\)?)|(\d+)[^()]*\)")


def _mentions(words: TokenList) -> dict[str, list[tuple[int, int]]]:
    """The first and last word of each mention, by entity; brackets open and close mentions."""
    opened, found = defaultdict(list), defaultdict(list)
    for place, token in enumerate(words):
        for bracket in _BRACKET.finditer(_misc(token, "Entity")):
            begins, at_once, ends = bracket.groups()
            if begins and at_once:
                found[begins].append((place, place))
            elif begins:
                opened[begins].append(place)
            elif opened[ends]:
                found[ends].append((opened[ends].pop(), place))
    return found


def _as_doc(sentence: TokenList, vocab: Vocab) -> Doc:
    words = sentence.filter(id=lambda place: isinstance(place, int))
    column = lambda name: [token[name] for token in words]
    heads = [head - 1 if head else i for i, head in enumerate(map(int, column("head")))]  # 0: root
    deps, pos, tags = map(column, ("deprel", "upos", "xpos"))
    doc = Doc(vocab, column("form"), _spaces(sentence), heads=heads, deps=deps, pos=pos, tags=tags)
    for entity, places in _mentions(words).items():
        doc.spans[entity] = [Span(doc, first, last + 1) for first, last in places]
    return doc


def read_conllu(text: str) -> Iterator[Doc]:
    """Sentences of a text in CoNLL-U: words, tags and heads; `spans` contains the mentions.

    conllu also accepts fewer or more than ten fields; here, a truncated line is an error.

    Raises: ValueError that names the sentence that is not in the format.
    """
    verbatim = {name: (lambda line, i: line[i]) for name in ("xpos", "feats", "head", "deps")}
    vocab = Vocab()
    for number, block in enumerate(parse_sentences(StringIO(text)), start=1):
        try:
            (sentence,) = parse(block, [*DEFAULT_FIELDS, "more"], verbatim)
            if any(tuple(token) != DEFAULT_FIELDS for token in sentence):
                raise ParseException("fewer or more")
            doc = _as_doc(sentence, vocab)
        except (ParseException, ValueError, OverflowError) as error:
            wanted = "expected lines of ten fields, separated by tabs, that make a tree"
            raise ValueError(f"sentence {number}: {wanted}; got: {error}") from None
        yield doc


def gum_files(split: str) -> dict[str, str]:
    """The files of a split of GUM, "train", "dev" or "test", in CoNLL-U, by name.

    Raises: ValueError for another split; MissingFile if GUM is not available; FileError that names
        the archive if it is damaged or incomplete.
    """
    corpus = find_corpus("gum")
    names = known_split(corpus, split)
    if archive := local_file(corpus, "gum-dep-coref.tar.xz"):
        return _archived_texts(archive, split)
    paths = [corpus_file(corpus, name) for name in names]
    return {str(path): "\n".join(read_lines(path)) for path in paths}


def load_gum(split: str) -> list[Doc]:
    """The sentences of a split of GUM.

    Raises: as `gum_files`; FileError that names the file if it is not in the format.
    """
    docs: list[Doc] = []
    for name, text in gum_files(split).items():
        with reading(name, "sentences in CoNLL-U"):
            docs += read_conllu(text)
    return [doc for doc in docs if any(token.text != "_" for token in doc)]


def _archived_texts(path: Path, split: str) -> dict[str, str]:
    """The texts that the archive's splits.md lists under the title of a split, by name."""
    found = archive_texts(path, (".conllu", "splits.md"))
    texts = {name.removeprefix("./"): text for name, text in found.items()}
    with reading(path, f"splits.md, and the texts of {split} that it lists"):
        _, *parts = re.split(r"^## (\w+)$", texts["splits.md"], flags=re.M)
        listed = dict(zip(parts[::2], parts[1::2], strict=True))[split]
        chosen = {f"dep/{name}.conllu" for name in re.findall(r"\w+_\w+", listed)}
        return {f"{path}: {name}": texts[name] for name in texts if name in chosen}
