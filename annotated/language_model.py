"""A model that speaks (chapters/language-model.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated.attention import MultiHeadedAttention, masked_softmax
from annotated.embeddings import Embeddings, Generator
from annotated.feed_forward import ACTIVATIONS, PositionwiseFeedForward
from annotated.machinery.checks import (
    check_finite,
    check_generation,
    check_ids,
    check_language_model_config,
)
from annotated.machinery.stepping import has_step, is_watched
from annotated.model import initialize
from annotated.positional import LearnedPositionalEncoding, PositionalEncoding
from annotated.stacks import SublayerConnection

Cache = dict[nn.Module, list[Tensor]]  # keys and values (batch, kv_heads, tokens, d_k)
FUNCTIONS: dict[str, Any] = {**ACTIVATIONS, "gelu": F.gelu, "gelu_tanh": nn.GELU("tanh")}


@dataclass(frozen=True)
class LanguageModelConfig:
    """Every choice that shapes a decoder-only model; the defaults are the paper's.

    Args:
        vocab: number of ids.   N: layers.   d_model: width.   d_ff: inner width (section 3.3).
        h, kv_heads: heads of queries, and of keys and values (None: h).   d_k: width of a head.
        norm: "layer" or "rms".   epsilon: added to the variance.
        norm_first: normalize before each sub-layer.   parallel: both sub-layers read one input.
        positions: "sinusoidal", "learned" or "rope".   max_len: number of positions, in tokens.
        theta: base of RoPE's wavelengths.   rotated: share of d_k that RoPE rotates.
        rope_scaling: Llama 3's factor, low and high frequency factor, original length in tokens.
        activation: "relu", "swish", "gelu" or "gelu_tanh".   gated: multiply it by a linear map.
        qk_norm: RMSNorm of each query and key.   sink: one learned logit in each head's softmax.
        attention_bias, feed_forward_bias: in the linear maps of the two sub-layers.
        tie_embeddings: one matrix for embedding and output.   scale_embeddings: by √d_model.

    Raises: InputError that names the field and the value expected.
    """

    vocab: int
    N: int = 6
    d_model: int = 512
    d_ff: int = 2048
    h: int = 8
    kv_heads: int | None = None
    d_k: int | None = None
    norm: str = "layer"
    epsilon: float = 1e-5
    norm_first: bool = False
    parallel: bool = False
    positions: str = "sinusoidal"
    max_len: int = 5000
    theta: float = 10000.0
    rotated: float = 1.0
    rope_scaling: tuple[float, float, float, int] | None = None
    activation: str = "relu"
    gated: bool = False
    qk_norm: bool = False
    sink: bool = False
    attention_bias: bool = False
    feed_forward_bias: bool = True
    tie_embeddings: bool = True
    scale_embeddings: bool = True

    def __post_init__(self) -> None:
        check_language_model_config(self)

    @property
    def head_width(self) -> int:
        return self.d_k or self.d_model // self.h


def normalization(c: LanguageModelConfig, size: int) -> nn.Module:
    """LayerNorm, or RMSNorm, which has neither mean nor bias (arXiv:1910.07467)."""
    return (nn.RMSNorm if c.norm == "rms" else nn.LayerNorm)(size, c.epsilon)


def rotation(c: LanguageModelConfig, start: int, end: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of RoPE's angles (arXiv:2104.09864), each (end - start, rotated d_k / 2)."""
    width = int(c.rotated * c.head_width)
    frequency = c.theta ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    if c.rope_scaling:  # Llama 3 lengthens the longest wavelengths
        factor, low, high, original = c.rope_scaling
        turns = original * frequency / (2 * math.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        frequency = frequency * (kept + (1 - kept) / factor)
    angle = torch.arange(start, end, dtype=torch.float64).unsqueeze(1) * frequency
    return angle.cos(), angle.sin()


@lru_cache(maxsize=4)  # all layers use the same
def _angles(
    c: LanguageModelConfig, start: int, end: int, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """`rotation` where it is needed."""
    with torch.inference_mode(False):  # a later call may need a gradient
        cos, sin = rotation(c, start, end)
        return cos.to(device, dtype), sin.to(device, dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate component i of x (batch, h, len, d_k) with component i + half; others stay."""
    half = cos.size(-1)
    one, other, rest = x.tensor_split((half, 2 * half), dim=-1)
    return torch.cat([one * cos - other * sin, other * cos + one * sin, rest], dim=-1)


class GroupedAttention(MultiHeadedAttention):
    """Masked self-attention in which groups of queries share keys and values (arXiv:2305.13245)."""

    def __init__(self, c: LanguageModelConfig) -> None:
        nn.Module.__init__(self)  # the projections have other widths than the paper's
        d_k, narrow = c.head_width, (c.kv_heads or c.h) * c.head_width
        self.config, self.h, self.d_k, self.dropout = c, c.h, d_k, nn.Dropout(0.0)
        self.watchers = []
        self.w_q = nn.Linear(c.d_model, c.h * d_k, c.attention_bias)
        self.w_k, self.w_v = (nn.Linear(c.d_model, narrow, c.attention_bias) for _ in "kv")
        self.w_o = nn.Linear(c.h * d_k, c.d_model, c.attention_bias)
        norm = lambda: nn.RMSNorm(d_k, c.epsilon) if c.qk_norm else nn.Identity()
        self.q_norm, self.k_norm = norm(), norm()
        self.sink = nn.Parameter(torch.zeros(c.h, 1, 1)) if c.sink else None

    def keys_values(self, key: Tensor, value: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """(batch, len, d_model) to keys and values (batch, kv_heads, len, d_k)."""
        keys, values = super().keys_values(key, value)
        return self.turn(self.k_norm(keys), start), values

    def kernel(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Equation 1, after RoPE; a sink takes its share of the weights and has no value."""
        query = self.turn(self.q_norm(query), key.size(2) - query.size(2))
        if self.sink is None and not self.watchers:
            return F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True), None
        key, value = (x.repeat_interleave(self.h // x.size(1), dim=1) for x in (key, value))
        if self.sink is None:
            return super().kernel(query, key, value, mask)
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.d_k)
        sinks = self.sink.expand(len(scores), -1, scores.size(2), 1)
        mask = None if mask is None else F.pad(mask, (0, 1), value=True)
        weights = masked_softmax(torch.cat([scores, sinks], dim=-1), mask)[..., :-1]
        return weights @ value, weights

    def turn(self, x: Tensor, start: int) -> Tensor:
        """RoPE for x (batch, heads, len, d_k), whose first position is `start`."""
        if self.config.positions != "rope":
            return x
        return rotate(x, *_angles(self.config, start, start + x.size(2), x.device, x.dtype))

    def split_heads(self, x: Tensor) -> Tensor:
        """(batch, len, heads * d_k) to (batch, heads, len, d_k)."""
        return x.unflatten(-1, (-1, self.d_k)).transpose(1, 2)


class FeedForward(PositionwiseFeedForward):
    """Section 3.3 with any activation, and with a gate, as in SwiGLU (arXiv:2002.05202)."""

    def __init__(self, c: LanguageModelConfig) -> None:
        super().__init__(c.d_model, c.d_ff)
        self.w_3 = nn.Linear(c.d_model, c.d_ff) if c.gated else None
        self.function = FUNCTIONS[c.activation]
        for linear in (self.w_1, self.w_2, self.w_3):
            if linear is not None and not c.feed_forward_bias:
                linear.register_parameter("bias", None)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, len, d_model) to (batch, len, d_model)."""
        inner = self.function(self.w_1(x))  # (batch, len, d_ff)
        return self.w_2(inner if self.w_3 is None else inner * self.w_3(x))


class CausalLayer(nn.Module):
    """The paper's decoder layer without the attention to an encoder's output."""

    def __init__(self, c: LanguageModelConfig) -> None:
        super().__init__()
        self.self_attn, self.feed_forward = GroupedAttention(c), FeedForward(c)
        self.parallel, norm = c.parallel, partial(normalization, c)
        connection = lambda: SublayerConnection(c.d_model, 0, c.norm_first, norm)
        self.sublayer = nn.ModuleList(connection() for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x: (batch, len, d_model)   mask: (1, len, len)."""
        return self._connect(x, lambda x: self.self_attn(x, x, x, mask))

    def start(self, x: Tensor) -> list[Tensor]:
        """State before the first `step`; x: (batch, 0, d_model)."""
        return self.self_attn.start(x)

    def step(self, x: Tensor, state: list[Tensor], mask: Tensor | None = None) -> Tensor:
        """`forward` for the positions x (batch, new, d_model) that follow those in the state."""
        return self._connect(x, lambda x: self.self_attn.step(x, state, mask))

    def _connect(self, x: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        first, second = self.sublayer
        if self.parallel:
            return first(x, attend) + second(x, self.feed_forward) - x
        return second(first(x, attend), self.feed_forward)


class LanguageModel(nn.Module):
    """A decoder without an encoder: it predicts each token from those before it (section 3)."""

    def __init__(self, c: LanguageModelConfig) -> None:
        super().__init__()
        self.config, self.embed = c, Embeddings(c.d_model, c.vocab)
        kinds = {"sinusoidal": PositionalEncoding, "learned": LearnedPositionalEncoding}
        if c.positions in kinds:
            self.encoding = kinds[c.positions](c.d_model, 0.0, c.max_len)
        self.layers: Any = nn.ModuleList(CausalLayer(c) for _ in range(c.N))
        self.norm = normalization(c, c.d_model) if c.norm_first else nn.Identity()
        self.generator = Generator(c.d_model, c.vocab)
        if c.tie_embeddings:
            self.generator.proj.weight = self.embed.lut.weight
        initialize(self)

    def forward(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        """ids (batch, len) to logits (batch, len, vocab); a cache, {} at first, grows by len."""
        return self.generator.logits(self.decode(ids, cache))

    def decode(
        self, ids: Tensor, cache: Cache | None = None, padding: Tensor | None = None
    ) -> Tensor:
        """ids (batch, len) to (batch, len, d_model), as `forward` without the generator.

        Args: padding: (batch,), how many tokens at the start of each text only fill its row.
        """
        check_ids("ids", ids)
        start = next(iter(cache.values()))[0].size(2) if cache else 0
        end = start + ids.size(1)
        x = self.embed(ids) if self.config.scale_embeddings else self.embed.lut(ids)
        if self.config.positions != "rope" and padding is None:
            x = self.encoding(x, start)
        elif self.config.positions != "rope" and padding is not None:
            table = self.encoding(x.new_zeros(1, end, x.size(2)))[0]
            place = torch.arange(start, end, device=ids.device) - padding[:, None]
            x = x + table[place.clamp(0)]
        mask = None  # a single token sees all before it
        if ids.size(1) > 1:
            shape = 1, ids.size(1), end
            mask = torch.ones(shape, dtype=torch.bool, device=ids.device).tril(start)
        if padding is not None:
            real = (torch.arange(end, device=ids.device) >= padding[:, None]).unsqueeze(1)
            mask = real if mask is None else mask & real
        for layer in self.layers:
            if cache is not None and layer not in cache:
                cache[layer] = layer.start(x[:, :0])
            x = layer(x, mask) if cache is None else layer.step(x, cache[layer], mask)
        return self.norm(x)

    @property
    def has_step(self) -> bool:
        """Whether each layer can compute one position at a time, so that a cache can be used."""
        parts = [part for layer in self.layers for part in (layer, layer.self_attn)]
        return not is_watched(self) and all(map(has_step, parts))


def draw(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float, random: torch.Generator
) -> int:
    """One id, drawn from logits (vocab,); the limits are those of `generate`."""
    if top_k == 1:
        check_finite(logits.max())
        return int(logits.argmax())
    logits = logits.float() / temperature
    best, order = logits.topk(min(top_k or len(logits), len(logits)))
    check_finite(best[:1])
    p = best.softmax(dim=-1)
    p[p.cumsum(dim=-1) - p >= top_p] = 0.0  # the likelier ones suffice
    return int(order[p.multinomial(1, generator=random)])


@torch.inference_mode()
def generate(
    model: LanguageModel,
    prompt: Sequence[int],
    max_new_tokens: int = 100,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    stop: Collection[int] = (),
    seed: int | None = None,
) -> Iterator[int]:
    """Continue a text; each id is yielded when it is drawn.

    Args:
        prompt: ids.   max_new_tokens: most ids to add.   temperature: divides the logits.
        top_k: draw from so many of the likeliest tokens; 1 is greedy, None takes all.
        top_p: draw from the likeliest tokens that together have this probability.
        stop: ids that end the text and are not yielded.   seed: of the draws; None: a new one.

    Raises: InputError for an argument out of its range, a prompt too long for the model, and a
        model whose logits are not finite.
    """
    choices = max_new_tokens, temperature, top_k, top_p, stop, seed
    check_generation(model.config, prompt, *choices)
    random = torch.Generator(device := model.embed.lut.weight.device)
    random.seed() if seed is None else random.manual_seed(int(seed))
    new = ids = torch.tensor([[*prompt]], device=device)
    cache: Cache | None = {} if model.has_step else None
    for _ in range(max_new_tokens):
        out = model.decode(ids if cache is None else new, cache)[0, -1]
        token = draw(model.generator.logits(out), temperature, top_k, top_p, random)
        if token in stop:
            return
        new = torch.tensor([[token]], device=device)
        ids = torch.cat([ids, new], dim=1)
        yield token
