"""Attention weights of a translator for a sentence, between word pieces or words."""

from dataclasses import dataclass
from unicodedata import category

import torch
from tokenizers import Tokenizer
from torch import Tensor

from annotated.data import END, PAD, START, encode_source, make_batch
from annotated.machinery.errors import InputError
from annotated.machinery.recording import record_attention
from annotated.machinery.translator import Translator
from annotated.regularization import without_dropout


@dataclass(frozen=True)
class AttentionWeights:
    """Attention weights between tokens, in all layers and heads of a stack.

    Args:
        weights: (layers, h, len_q, len_k); each row sums to 1.
        queries: the tokens that attend.   keys: the tokens to which they attend.

    Raises: InputError if the numbers of tokens differ from those of the weights, or for a weight
        that is NaN or infinite.

    Source: section 3.2.1.
    """

    weights: Tensor
    queries: list[str]
    keys: list[str]

    def __post_init__(self) -> None:
        expected = len(self.queries), len(self.keys)
        if self.weights.dim() != 4 or expected != self.weights.shape[2:]:
            wanted = f"weights (layers, h, {expected[0]}, {expected[1]}) for these words"
            raise InputError(f"expected {wanted}; got {tuple(self.weights.shape)}")
        if not self.weights.isfinite().all():
            raise InputError("expected finite weights; got NaN or infinity among them")


def _in_words(piece: str) -> bool:
    """Whether a piece consists of letters, digits, and marks that join or modify them."""
    kinds = [category(letter) for letter in piece]
    return bool(kinds) and all(kind[0] in "LMN" or kind == "Cf" for kind in kinds)


def word_groups(names: list[str]) -> list[list[int]]:
    """Positions of the pieces of each word; punctuation marks and special tokens are words.

    >>> word_groups(["▁The", "▁l", "aw", ",", "</s>"])
    [[0], [1, 2], [3], [4]]
    """
    groups: list[list[int]] = []
    for i, name in enumerate(names):
        before = names[i - 1].strip("▁") if i else ""
        inside = _in_words(name) and _in_words(before)
        if groups and (inside or names[i - 1] == "▁"):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def readable_words(words: list[str]) -> list[str]:
    """Words without the symbol for the space before them."""
    return [word.strip("▁") or "▁" for word in words]


def merge_words(attention: AttentionWeights) -> AttentionWeights:
    """Merge word pieces into words.

    The pieces of a word share its attention, so a query is the mean over its pieces; a key is the
    sum over its pieces. The rows still sum to 1.
    """
    sides = []
    for names in attention.queries, attention.keys:
        groups = word_groups(names)
        belongs = attention.weights.new_zeros(len(groups), len(names))  # 1: a piece of the word
        for row, group in enumerate(groups):
            belongs[row, group] = 1.0
        words = ["".join(names[i] for i in group) for group in groups]
        sides.append((belongs, readable_words(words)))
    (from_words, queries), (to_words, keys) = sides
    from_words /= from_words.sum(dim=-1, keepdim=True)
    return AttentionWeights(from_words @ attention.weights @ to_words.T, queries, keys)


_NAMES = {START: "<s>", END: "<EOS>", PAD: "<pad>"}


def _piece_names(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """Pieces as text; "▁" represents a space before them."""
    names = (_NAMES.get(i) or str(tokenizer.id_to_token(i)) for i in ids)
    return [name.removesuffix(" ") for name in names]  # which marks those of the other language


@torch.no_grad()
def read_attention(
    translator: Translator, source: str, target: str | None = None, padding: int = 0
) -> dict[str, AttentionWeights]:
    """Collect all attention weights of a model for a sentence and its translation.

    In the decoder, a query is labeled with the piece that it predicts, and a key with the piece
    that is its input, the previous one.

    Args:
        target: a translation; by default the model's own.
        padding: number of padding tokens after the source.

    Returns: "encoder" and "decoder" self-attention and "cross", from decoder to encoder; the
        tokens are word pieces. A recurrent decoder has no self-attention, and "decoder" is missing.

    Source: sections 3.2.2 and 3.2.3.
    """
    target = translator.translate(source) if target is None else target
    tokenizers = translator.tokenizer, translator.target_tokenizer or translator.tokenizer
    (src,), (tgt,) = map(encode_source, tokenizers, ([source], [target]))
    src += [PAD] * padding
    model = translator.model
    batch = make_batch([(src, [START, *tgt])], translator.device)
    with without_dropout(model), record_attention(model) as seen:
        model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    src_names, tgt_names = map(_piece_names, tokenizers, (src, tgt))
    said = _piece_names(tokenizers[1], [START, *tgt[:-1]])
    kinds = {
        "encoder": ("encoder", "self_attn", src_names, src_names),
        "decoder": ("decoder", "self_attn", tgt_names, said),
        "cross": ("decoder", "src_attn", tgt_names, src_names),
    }
    found = {}
    for kind, (stack, place, *sides) in kinds.items():
        layers = [seen[name] for name in seen if name.startswith(stack) and name.endswith(place)]
        if layers:
            found[kind] = AttentionWeights(torch.cat(layers).cpu(), *sides)
    return found
