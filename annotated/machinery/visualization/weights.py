"""Drawing attention."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from annotated.data import END, PAD, START, Batch, encode_source, pad_ids
from annotated.machinery.translator import Translator


@dataclass(frozen=True)
class Attention:
    """How strongly tokens look at tokens, in all layers and heads of a stack.

    Args:
        weights: (layers, h, len_q, len_k); a row sums to 1.
        queries: the tokens that look.   keys: the tokens that are looked at.

    Raises: ValueError if the numbers of tokens are not those of the weights.

    Source: section 3.2.1.
    """

    weights: Tensor
    queries: list[str]
    keys: list[str]

    def __post_init__(self) -> None:
        expected = len(self.queries), len(self.keys)
        if self.weights.dim() != 4 or expected != self.weights.shape[2:]:
            raise ValueError(
                f"expected weights (layers, h, {expected[0]}, {expected[1]}) for so many words; "
                f"got {tuple(self.weights.shape)}"
            )


def word_groups(names: list[str]) -> list[list[int]]:
    """Positions of the pieces of each word; a punctuation mark and a special token are words.

    >>> word_groups(["▁The", "▁l", "aw", ",", "</s>"])
    [[0], [1, 2], [3], [4]]
    """
    groups: list[list[int]] = []
    for i, name in enumerate(names):
        before = names[i - 1].strip("▁") if i else ""
        inside = name.isalnum() and before.isalnum()
        if groups and (inside or names[i - 1] == "▁"):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def readable_words(words: list[str]) -> list[str]:
    """Words without the mark of the space before them."""
    return [word.strip("▁") or "▁" for word in words]


def merge_words(attention: Attention) -> Attention:
    """From pieces to words: from a word the mean over its pieces, to a word the sum."""
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
    return Attention(from_words @ attention.weights @ to_words.T, queries, keys)


def drop_tokens(attention: Attention, *tokens: str) -> Attention:
    """Without some tokens, as those that look and as those that are looked at.

    Args:
        tokens: their names, such as "<EOS>" and "<pad>".

    Returns: rows sum to 1 less what these tokens were given.
    """
    rows = [i for i, token in enumerate(attention.queries) if token not in tokens]
    columns = [i for i, token in enumerate(attention.keys) if token not in tokens]
    return Attention(
        attention.weights[:, :, rows][..., columns],
        [attention.queries[i] for i in rows],
        [attention.keys[i] for i in columns],
    )


_NAMES = {START: "<s>", END: "<EOS>", PAD: "<pad>"}


def _piece_names(translator: Translator, ids: list[int]) -> list[str]:
    """Pieces as text; "▁" stands for a space before them."""
    names = (_NAMES.get(i) or str(translator.tokenizer.id_to_token(i)) for i in ids)
    return [name.removesuffix(" ") for name in names]  # which marks those of the other language


@torch.no_grad()
def read_attention(
    translator: Translator, source: str, target: str | None = None, padding: int = 0
) -> dict[str, Attention]:
    """Let a model read a pair of sentences, and collect all of its attention weights.

    Args:
        target: a translation; the model's own if there is none.
        padding: number of padding tokens after the source.

    Returns: "encoder" and "decoder" self-attention and "cross", from decoder to encoder; the
        tokens are word pieces.

    Source: sections 3.2.2 and 3.2.3.
    """
    target = translator.translate(source) if target is None else target
    (src,) = encode_source(translator.tokenizer, [source])
    (tgt,) = encode_source(translator.target_tokenizer or translator.tokenizer, [target])
    src, read = src + [PAD] * padding, [START, *tgt[:-1]]
    model = translator.model.eval()
    device = next(model.parameters()).device
    batch = Batch(pad_ids([src]).to(device), pad_ids([[START, *tgt]]).to(device))
    model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    encoder: Any = model.encoder.layers
    decoder: Any = model.decoder.layers
    found = {
        "encoder": ([layer.self_attn for layer in encoder], src, src),
        "decoder": ([layer.self_attn for layer in decoder], tgt, read),
        "cross": ([layer.src_attn for layer in decoder], tgt, src),
    }
    return {
        kind: Attention(
            torch.cat([module.attn for module in modules]).cpu(),  # (layers, h, len_q, len_k)
            _piece_names(translator, queries),
            _piece_names(translator, keys),
        )
        for kind, (modules, queries, keys) in found.items()
    }
