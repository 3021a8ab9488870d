"""Parts that the package does not know, each as somebody might write it, and models with them."""

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated.attention import MultiHeadedAttention, masked_softmax
from annotated.feed_forward import PositionwiseFeedForward
from annotated.model import EncoderDecoder
from annotated.positional import LearnedPositionalEncoding


class Distances(MultiHeadedAttention):
    """ALiBi (Press et al. 2022), for which the last query belongs to the last key."""

    def kernel(self, query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> tuple:
        last = key.size(-2)
        at = torch.arange(last - query.size(-2), last).unsqueeze(1)
        distances = (at - torch.arange(last)).abs()
        slopes = 0.5 ** torch.arange(self.h).view(-1, 1, 1)
        scores = query @ key.mT / math.sqrt(query.size(-1)) - slopes * distances
        weights = masked_softmax(scores, mask)
        return self.dropout(weights) @ value, weights


class Silent(MultiHeadedAttention):
    """The mean of the values, as the same for all queries, and no weights."""

    def kernel(self, query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> tuple:
        return value.mean(2, keepdim=True).expand(-1, -1, query.size(2), -1), None


class RelativeBias(MultiHeadedAttention):
    """A learned number for each distance, added to the scores."""

    def __init__(self, h: int, d_model: int, dropout: float = 0.0, reach: int = 8) -> None:
        super().__init__(h, d_model, dropout)
        self.reach, self.numbers = reach, nn.Parameter(torch.randn(h, 2 * reach + 1))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Tensor:
        q, (k, v) = self.split_heads(self.w_q(query)), self.keys_values(key, value)
        apart = torch.arange(q.size(2)).unsqueeze(1) - torch.arange(k.size(2))
        bias = self.numbers[:, apart.clamp(-self.reach, self.reach) + self.reach]
        weights = masked_softmax(q @ k.mT + bias, None if mask is None else mask.unsqueeze(-3))
        return self.w_o((weights @ v).transpose(1, 2).flatten(2))


class Rotary(MultiHeadedAttention):
    """RoPE (Su et al. 2021) of queries and keys; the values are the keys before their rotation."""

    @staticmethod
    def rotated(x: Tensor, start: int) -> Tensor:
        frequencies = 0.1 ** torch.arange(x.size(-1) // 2)
        angle = torch.arange(start, start + x.size(2)).unsqueeze(1) * frequencies
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def keys_values(self, key: Tensor, value: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        keys = self.split_heads(self.w_k(key))
        return self.rotated(keys, start), keys  # w_v is never used

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Any = None) -> Tensor:
        queries = self.split_heads(self.w_q(query))
        queries = self.rotated(queries, keys.size(2) - queries.size(2))
        mask = None if mask is None else mask.unsqueeze(-3)
        heads = F.scaled_dot_product_attention(queries, keys, values, mask)
        return self.w_o(heads.transpose(1, 2).flatten(2))


class LinearAttention(nn.Module):
    """Of Katharopoulos et al. 2020; causal where the mask is."""

    def __init__(self, h: int, d_model: int, dropout: float) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Tensor:
        shares = (F.elu(self.q(query)) + 1) @ (F.elu(self.k(key)) + 1).mT
        shares = shares if mask is None else shares * mask
        return shares @ self.v(value) / shares.sum(dim=-1, keepdim=True)


class Average(nn.Module):
    """The mean of what the mask allows; its state is the sum so far and how many."""

    def __init__(self, h: int, d_model: int, dropout: float) -> None:
        super().__init__()
        self.map = nn.Linear(d_model, d_model)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Tensor:
        shares = torch.ones(1, query.size(1), key.size(1)) * (1 if mask is None else mask)
        return self.map(shares @ value / shares.sum(dim=-1, keepdim=True))

    def start(self, memory: Tensor) -> list[Tensor]:
        return [memory.sum(1, keepdim=True), memory.new_full((len(memory), 1, 1), memory.size(1))]

    def step(self, x: Tensor, state: list[Tensor], mask: Any = None) -> Tensor:
        state[:] = [state[0] + x, state[1] + 1]
        return self.map(state[0] / state[1])


class Gated(nn.Module):
    """SwiGLU (Shazeer 2020)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(d_model, d_ff), nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Squared(PositionwiseFeedForward):
    """Of So et al. 2021."""

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(self.w_1(x).relu() ** 2)


class ScaleNorm(nn.Module):
    """Of Nguyen and Salazar 2019: one learned length."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps, self.multiplier = eps, nn.Parameter(torch.tensor(d_model**0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.multiplier * x / x.norm(dim=-1, keepdim=True).clamp(min=self.eps)


class Louder(LearnedPositionalEncoding):
    """Learned positions, and how strong they are."""

    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.strength = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return super().forward(x / self.strength, start) * self.strength


class Nowhere(nn.Dropout):
    """No positions."""

    def __init__(self, d_model: int, dropout: float, max_len: int) -> None:
        super().__init__(dropout)


class Anywhere(Nowhere):
    """No positions, so that one token after the other may come."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return super().forward(x)


class Table(nn.Module):
    """Learned positions as most write them."""

    def __init__(self, d_model: int, dropout: float, max_len: int) -> None:
        super().__init__()
        self.table, self.max_len = nn.Embedding(max_len, d_model), max_len

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table.weight[: x.size(1)]


class Buffer(nn.Module):
    """Positions that are drawn at random and stored, or computed and not stored."""

    def __init__(self, d_model: int, dropout: float, max_len: int, stored: bool = True) -> None:
        super().__init__()
        self.max_len = max_len
        table = torch.arange(max_len).unsqueeze(1) * torch.arange(1, d_model + 1)
        table = torch.randn(max_len, d_model) if stored else table.sin()
        self.register_buffer("table", table, persistent=stored)
        self.register_buffer("unused", torch.full((2, 2), -math.inf).triu(1))

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x + self.table[start : start + x.size(1)]


class Normed(nn.Module):
    """An embedding with a normalization, as BERT has it."""

    def __init__(self, d_model: int, vocab: int) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(vocab, d_model), nn.LayerNorm(d_model)

    def forward(self, ids: Tensor) -> Tensor:
        return self.norm(self.table(ids))


class Factorized(nn.Sequential):
    """Of Lan et al. 2020."""

    def __init__(self, d_model: int, vocab: int) -> None:
        super().__init__(nn.Embedding(vocab, 4), nn.Linear(4, d_model))


class TorchStack(nn.ModuleList):
    """A stack of torch's layers, called as this package calls one."""

    def __init__(self, layer: nn.Module, N: int) -> None:
        super().__init__(copy.deepcopy(layer) for _ in range(N))

    def forward(self, x: Tensor, *given: Any) -> Tensor:
        for layer in self:
            if len(given) == 1:
                masks = {} if given[0] is None else {"src_key_padding_mask": ~given[0][:, 0]}
                x = layer(x, **masks)
            else:
                memory, src_mask, tgt_mask = given
                masks = {} if src_mask is None else {"memory_key_padding_mask": ~src_mask[:, 0]}
                x = layer(x, memory, ~tgt_mask[0], **masks)
        return x


def own_places(attention: Callable) -> dict[str, Callable]:
    return {"encoder_attention": attention, "decoder_attention": attention}


PARTS: dict[str, dict[str, Any]] = {
    "an attention's kernel": own_places(Distances),
    "the same for the source": {"attention": Distances},
    "an attention's forward": {"attention": RelativeBias},
    "an attention's keys and queries": own_places(Rotary),
    "the same for the source, too": {"attention": Rotary},
    "a foreign attention": {"attention": LinearAttention},
    "a foreign attention with steps": {"decoder_attention": Average},
    "the same in all places": {"attention": Average},
    "a foreign feed-forward": {"feed_forward": Gated},
    "a feed-forward's forward": {"feed_forward": Squared},
    "torch's RMSNorm": {"norm": nn.RMSNorm},
    "torch's LayerNorm, another eps": {"norm": partial(nn.LayerNorm, eps=0.1)},
    "a foreign norm": {"norm": ScaleNorm},
    "learned positions": {"positions": Louder},
    "no positions, but distances": {"positions": Anywhere, **own_places(Distances)},
    "no positions": {"positions": Nowhere},
    "foreign positions": {"positions": Table},
    "positions in a stored buffer": {"positions": Buffer},
    "positions in a computed buffer": {"positions": partial(Buffer, stored=False)},
    "a foreign embedding, tied": {"embedding": Normed},
    "a foreign embedding": {"embedding": Normed},
    "a factorized embedding": {"embedding": Factorized},
}


def changes(model: EncoderDecoder) -> dict[str, tuple[nn.Module, str, Any]]:
    """How it is refused, and what does it: another attribute of a part that is built."""
    encoder, attention = model.encoder.layers, model.decoder.layers[0].self_attn
    kernel = partial(Distances.kernel, attention)
    return {
        "encoder.layers.1.sublayer.0.norm .* got eps=0.1":
            (encoder[1].sublayer[0], "norm", nn.LayerNorm(16, eps=0.1)),
        "decoder.layers.0.self_attn .* got Distances": (attention, "__class__", Distances),
        "decoder.layers.0.self_attn .* got another kernel": (attention, "kernel", kernel),
        "encoder.layers.0.feed_forward .* got activation=silu":
            (encoder[0].feed_forward, "activation", F.silu),
    }  # fmt: skip
