"""3 Assembly (chapters/3-assembly.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from annotated.attention import Mask, subsequent_mask
from annotated.embeddings import Generator
from annotated.machinery.checks import check_mask, check_model_config, find_table
from annotated.machinery.options import LARGEST, POSITIONS, LaterOptions, option
from annotated.machinery.parts import choose_parts, part_names
from annotated.stacks import Decoder, Encoder, EncoderLayer, State


class EncoderDecoder(nn.Module):
    """The whole Transformer: encoder, decoder, embeddings and generator.

    Args:
        encoder: called with (x, src_mask).   decoder: called with (x, memory, src_mask, tgt_mask).
        src_embed, tgt_embed: ids to vectors, positions included.
        generator: decoder output to log-probabilities.

    Source: section 3, figure 1.
    """

    config: "TransformerConfig"  # set by build_model
    parts: dict[str, str]  # names of the parts that build_model was given

    def __init__(
        self, encoder: Any, decoder: Any, src_embed: Any, tgt_embed: Any, generator: Any
    ) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.src_embed, self.tgt_embed = src_embed, tgt_embed
        self.generator, self.parts = generator, {}

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Mask = None, tgt_mask: Mask = None
    ) -> Tensor:
        """Encode src, decode tgt.

        Args:
            src: ids (batch, src_len)   tgt: ids (batch, tgt_len)
            src_mask: (batch, 1, src_len); None if there is no padding.
            tgt_mask: (batch, tgt_len, tgt_len); None lets each position see those up to itself.

        Returns: (batch, tgt_len, d_model); `generator` turns it into log-probabilities.
        """
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)

    def encode(self, src: Tensor, src_mask: Mask = None) -> Tensor:
        """ids (batch, src_len) to memory (batch, src_len, d_model)."""
        src_mask = check_mask("src_mask", src_mask, len(src), 1, src.size(1))
        return self.encoder(self.embed_source(src), src_mask)

    def decode(self, memory: Tensor, src_mask: Mask, tgt: Tensor, tgt_mask: Mask = None) -> Tensor:
        """memory and ids (batch, tgt_len) to (batch, tgt_len, d_model)."""
        src_mask = check_mask("src_mask", src_mask, len(tgt), 1, memory.size(1))
        tgt_mask = check_mask("tgt_mask", tgt_mask, len(tgt), tgt.size(1), tgt.size(1))
        if tgt_mask is None:
            tgt_mask = subsequent_mask(tgt.size(1), tgt.device)
        return self.decoder(self.embed_target(tgt), memory, src_mask, tgt_mask)

    def embed_source(self, src: Tensor) -> Tensor:
        """ids (batch, src_len) to (batch, src_len, d_model), positions included."""
        return self.src_embed(src)

    def embed_target(self, tgt: Tensor, start: int = 0) -> Tensor:
        """ids (batch, len), of which the first has position `start`, to (batch, len, d_model)."""
        return self.tgt_embed(tgt, start) if start else self.tgt_embed(tgt)

    def logits(self, x: Tensor) -> Tensor:
        """(batch, len, d_model) to scores (batch, len, vocab), whose softmax `generator` takes."""
        scores = getattr(self.generator, "logits", self.generator)  # log-probabilities serve too
        return scores(x)

    @property
    def max_positions(self) -> int | None:
        """The most tokens of an input or output; None if there is no limit."""
        embeds = [*self.src_embed.modules(), *self.tgt_embed.modules()]
        limits: list[Any] = [m.max_len for m in embeds if hasattr(m, "max_len")]
        return min(limits, default=None)

    def step(self, tgt: Tensor, start: int, states: list[State], src_mask: Mask = None) -> Tensor:
        """`decode` for the newest token of each hypothesis, ids (batch, width), at a position.

        Returns: (batch, width, d_model).
        """
        x = self.embed_target(tgt.reshape(-1, 1), start).view(*tgt.shape, -1)
        return self.decoder.step(x, states, src_mask)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(LaterOptions):
    """Choices that shape a model, with the base model's values.

    Source: Table 3.
    """

    N: int = option(6, "layers in each stack", most=1000)
    d_model: int = option(512, "width of the model", most=LARGEST)
    d_ff: int = option(2048, "inner width of the feed-forward layers", most=LARGEST)
    h: int = option(8, "attention heads", most=LARGEST)
    d_k: int | None = option(None, "width of a query and key in a head; none: d_model / h")
    d_v: int | None = option(None, "width of a value in a head; none: d_model / h")
    dropout: float = option(0.1, "P_drop, after sub-layers and embeddings (section 5.4)", most=1)
    attention_dropout: float = option(0.0, "dropout of attention weights (section 6.3)", most=1)
    positions: str = option("sinusoidal", "encoding of positions (Table 3, row E)", POSITIONS)


@dataclass(frozen=True)
class TransformerConfig(ModelOptions):
    """All choices that shape a model.

    Args:
        src_vocab, tgt_vocab: number of ids on either side.
        max_len: longest input in tokens, for learned positions; 100,000 at most.
        tie_embeddings: one matrix for both embeddings and the output (section 3.4).

    Raises: InputError that names the field and the value expected.

    Source: section 3, Table 3.
    """

    src_vocab: int = option(most=LARGEST)
    tgt_vocab: int = option(most=LARGEST)
    max_len: int = option(5000, most=100_000)
    tie_embeddings: bool = option(False)

    def __post_init__(self) -> None:
        check_model_config(self)

    @classmethod
    def base(cls, vocab: int = 37000, **changes: Any) -> "TransformerConfig":
        """The base model on a shared vocabulary (Table 3, first row)."""
        shared = {"src_vocab": vocab, "tgt_vocab": vocab, "tie_embeddings": True}
        return cls(**{**shared, **changes})

    @classmethod
    def big(cls, vocab: int = 37000, **changes: Any) -> "TransformerConfig":
        """The big model on a shared vocabulary (Table 3, last row)."""
        larger = {"d_model": 1024, "d_ff": 4096, "h": 16, "dropout": 0.3}
        return cls.base(vocab, **{**larger, **changes})


class Embed(nn.Sequential):
    """Two modules, an embedding and an encoding of positions: ids to vectors."""

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """(batch, len), of which the first has position `start`, to (batch, len, d_model)."""
        embedding, encoding = self
        return encoding(embedding(ids), start) if start else encoding(embedding(ids))


def build_model(config: TransformerConfig, **parts: Callable[..., Any]) -> EncoderDecoder:
    """Build and initialize the model that a configuration describes.

    Args:
        config: the configuration; kept as `model.config`.
        parts: classes, or functions that return a module, in place of the paper's:
            attention(h, d_model, dropout), or encoder_attention, decoder_attention and
            source_attention; feed_forward(d_model, d_ff); norm(d_model);
            embedding(d_model, vocab); positions(d_model, dropout, max_len). An option of the
            configuration that differs from the paper's is passed by name. With decoder="ssru",
            only decoder_attention replaces the recurrent cell.

    Returns: the model, in training mode.

    Raises: InputError for a part of another name.

    Source: section 3; tying from section 3.4.
    """
    c, make = config, choose_parts(config, parts)
    residual = c.dropout, c.norm_first, make["norm"]
    embed = lambda vocab: Embed(make["embedding"](c.d_model, vocab), make["positions"]())
    first = EncoderLayer(c.d_model, make["encoder_attention"](), make["feed_forward"](), *residual)
    attentions = make["decoder_attention"](), make["source_attention"]()
    second = make["decoder_layer"](c.d_model, *attentions, make["feed_forward"](), *residual)
    encoder, decoder = Encoder(first, c.N), Decoder(second, c.N_decoder or c.N)
    generator = Generator(c.d_model, c.tgt_vocab, c.bias)
    model = EncoderDecoder(encoder, decoder, embed(c.src_vocab), embed(c.tgt_vocab), generator)
    model.config, model.parts = c, part_names(parts)
    if c.tie_embeddings:
        tie_embeddings(model)
    initialize(model)
    return model


def make_model(
    src_vocab: int,
    tgt_vocab: int,
    N: int = 6,
    d_model: int = 512,
    d_ff: int = 2048,
    h: int = 8,
    dropout: float = 0.1,
    **options: Any,
) -> EncoderDecoder:
    """Build a Transformer.

    Args:
        src_vocab, tgt_vocab: number of source and target ids.
        N, d_model, d_ff, h, dropout: as in Table 3.
        options: any other field of `TransformerConfig`, or a part for `build_model`; the paper's
            have tie_embeddings=True (section 3.4), which requires one vocabulary for both sides.

    Returns: the model, in training mode.

    Raises: InputError for a wrong argument, or one that does not exist.

    Source: section 3.

    >>> model = make_model(100, 100, N=2, d_model=64, d_ff=128, h=4)
    """
    sizes: dict[str, Any] = {"N": N, "d_model": d_model, "d_ff": d_ff, "h": h, "dropout": dropout}
    parts = {name: options.pop(name) for name in [*options] if callable(options[name])}
    return build_model(TransformerConfig(src_vocab, tgt_vocab, **sizes, **options), **parts)


def tie_embeddings(model: EncoderDecoder) -> None:
    """Make both embeddings and the generator share one matrix, (vocab, d_model).

    Raises: InputError if the vocabularies differ in size, or an embedding has no such matrix.
    """
    shared = model.generator.proj.weight
    for name in ("src_embed", "tgt_embed"):
        find_table(name, getattr(model, name), shared.shape).weight = shared


def initialize(model: nn.Module, value_gain: float = 1 / 4) -> None:
    """Xavier for linear maps, W^V times value_gain; N(0, 1/d_model) for embeddings.

    The first and the last are the authors', `value_gain` is our choice.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in model.modules():
        if isinstance(value := getattr(module, "w_v", None), nn.Linear):
            nn.init.xavier_uniform_(value.weight, value_gain)
        if isinstance(module, nn.Embedding):  # last, for tied matrices
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
