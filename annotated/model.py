"""3 Assembly (chapters/3-assembly.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from annotated.attention import MultiHeadedAttention, subsequent_mask
from annotated.embeddings import Embeddings, Generator
from annotated.feed_forward import PositionwiseFeedForward
from annotated.machinery.checks import check_mask, check_model_config
from annotated.machinery.recurrence import make_recurrent
from annotated.positional import LearnedPositionalEncoding, PositionalEncoding
from annotated.stacks import Decoder, DecoderLayer, Encoder, EncoderLayer


class EncoderDecoder(nn.Module):
    """The whole Transformer: encoder, decoder, embeddings and generator.

    Args:
        encoder: called with (x, src_mask).
        decoder: called with (x, memory, src_mask, tgt_mask).
        src_embed, tgt_embed: ids to vectors, positions included: first embedding, then encoding.
        generator: decoder output to log-probabilities.

    Source: section 3, figure 1.
    """

    config: "TransformerConfig"  # set by build_model

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        src_embed: nn.Module,
        tgt_embed: nn.Module,
        generator: nn.Module,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.src_embed, self.tgt_embed = src_embed, tgt_embed
        self.generator = generator

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
    ) -> Tensor:
        """Encode src, decode tgt.

        Args:
            src: ids (batch, src_len)   tgt: ids (batch, tgt_len)
            src_mask: (batch, 1, src_len); None if there is no padding.
            tgt_mask: (batch, tgt_len, tgt_len); None lets each position see those up to itself.

        Returns: (batch, tgt_len, d_model); `generator` turns it into log-probabilities.
        """
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)

    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """ids (batch, src_len) to memory (batch, src_len, d_model)."""
        return self.encoder(self.src_embed(src), check_mask("src_mask", src_mask))

    def decode(
        self, memory: Tensor, src_mask: Tensor | None, tgt: Tensor, tgt_mask: Tensor | None = None
    ) -> Tensor:
        """memory and ids (batch, tgt_len) to (batch, tgt_len, d_model)."""
        src_mask = check_mask("src_mask", src_mask)
        tgt_mask = check_mask("tgt_mask", tgt_mask)
        if tgt_mask is None:
            tgt_mask = subsequent_mask(tgt.size(1), tgt.device)
        return self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask)


@dataclass(frozen=True)
class TransformerConfig:
    """All choices that shape the model, including the columns of Table 3 that do.

    Args:
        src_vocab, tgt_vocab: number of ids on either side.
        N: layers in each stack.
        d_model: width of the model.
        d_ff: inner width of the feed-forward layers.
        h: heads.
        d_k, d_v: widths in a head; None means d_model / h.
        dropout: P_drop, residual and embedding dropout (section 5.4).
        attention_dropout: dropout of the attention weights (section 6.3; none in section 5.4).
        positions: "sinusoidal" or "learned" (Table 3, row E); or "endpoint", sinusoids whose
            longest wavelength is 10000 · 2π.
        max_len: longest input in tokens, for learned positions; 100,000 at most.
        tie_embeddings: one matrix for both embeddings and the output (section 3.4).
        norm_first: normalize before each sub-layer; the paper normalizes after it.
        bias: in the projections of attention and before the softmax; the paper has none.
        activation: between the feed-forward maps: "relu", or "swish" as in some later models.
        norm_eps: constant that layer normalization adds to the variance.
        N_decoder: layers of the decoder; None means N.
        decoder: "attention" to its own output, as in the paper; "ssru", a recurrent cell in place
            of this attention; or "ssru-without-ff", the same without a feed-forward layer.

    Raises: ValueError with what was expected and what was given.

    Source: section 3, Table 3.
    """

    src_vocab: int
    tgt_vocab: int
    N: int = 6
    d_model: int = 512
    d_ff: int = 2048
    h: int = 8
    d_k: int | None = None
    d_v: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0
    positions: str = "sinusoidal"
    max_len: int = 5000
    tie_embeddings: bool = False
    norm_first: bool = False
    bias: bool = False
    activation: str = "relu"
    norm_eps: float = 1e-5
    N_decoder: int | None = None
    decoder: str = "attention"

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


def _layers(c: TransformerConfig) -> tuple[EncoderLayer, DecoderLayer]:
    """One layer of each stack."""

    def attention() -> nn.Module:
        return MultiHeadedAttention(c.h, c.d_model, c.attention_dropout, c.d_k, c.d_v, c.bias)

    def feed_forward() -> nn.Module:
        return PositionwiseFeedForward(c.d_model, c.d_ff, activation=c.activation)

    residual = c.dropout, c.norm_first
    encoder_layer = EncoderLayer(c.d_model, attention(), feed_forward(), *residual)
    decoder_layer = DecoderLayer(c.d_model, attention(), attention(), feed_forward(), *residual)
    if c.decoder != "attention":
        make_recurrent(decoder_layer, feed_forward=c.decoder == "ssru")
    return encoder_layer, decoder_layer


def _embed(c: TransformerConfig, vocab: int) -> nn.Module:
    """Ids to vectors: embedding, then positions."""
    if c.positions == "learned":
        encoding: nn.Module = LearnedPositionalEncoding(c.d_model, c.dropout, c.max_len)
    else:
        endpoint = c.positions == "endpoint"
        encoding = PositionalEncoding(c.d_model, c.dropout, c.max_len, endpoint)
    return nn.Sequential(Embeddings(c.d_model, vocab), encoding)


def build_model(config: TransformerConfig) -> EncoderDecoder:
    """Build and initialize the model that a configuration describes.

    Args:
        config: the configuration; kept as `model.config`.

    Returns: the model, in training mode.

    Source: section 3; tying from section 3.4.
    """
    c = config
    encoder_layer, decoder_layer = _layers(c)
    model = EncoderDecoder(
        Encoder(encoder_layer, c.N),
        Decoder(decoder_layer, c.N_decoder or c.N),
        _embed(c, c.src_vocab),
        _embed(c, c.tgt_vocab),
        Generator(c.d_model, c.tgt_vocab, c.bias),
    )
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = c.norm_eps
    model.config = c
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
        options: any other field of `TransformerConfig`; the paper's models have
            tie_embeddings=True (section 3.4), which requires one vocabulary for both sides.

    Returns: the model, in training mode.

    Raises: ValueError for a wrong argument, TypeError for one that does not exist.

    Source: section 3.

    >>> model = make_model(100, 100, N=2, d_model=64, d_ff=128, h=4)
    """
    config = TransformerConfig(
        src_vocab, tgt_vocab, N=N, d_model=d_model, d_ff=d_ff, h=h, dropout=dropout, **options
    )
    return build_model(config)


def parameter_shapes(config: TransformerConfig) -> dict[str, torch.Size]:
    """Name and shape of each parameter; a tied matrix has one name, as in `named_parameters`."""
    with torch.device("meta"):
        return {name: p.shape for name, p in build_model(config).named_parameters()}


def tie_embeddings(model: EncoderDecoder) -> None:
    """Make both embeddings and the generator share one matrix.

    Raises: ValueError if the vocabularies differ in size.
    """
    sizes = {
        name: model.get_parameter(f"{name}_embed.0.lut.weight").size(0) for name in ("src", "tgt")
    }
    if sizes["src"] != sizes["tgt"]:
        raise ValueError(f"expected vocabularies of one size to tie; got {sizes}")
    shared = model.get_parameter("generator.proj.weight")
    model.get_submodule("src_embed.0.lut").weight = shared
    model.get_submodule("tgt_embed.0.lut").weight = shared


def initialize(model: nn.Module, value_gain: float = 1 / 4) -> None:
    """Xavier for linear maps, W^V times value_gain; N(0, 1/d_model) for embeddings. Our choice."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in model.modules():
        if isinstance(module, MultiHeadedAttention):
            nn.init.xavier_uniform_(module.w_v.weight, value_gain)
        if isinstance(module, nn.Embedding):  # last, because a tied matrix is an embedding first
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
