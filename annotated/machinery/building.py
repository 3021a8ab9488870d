"""A model from its sizes alone."""

from __future__ import annotations

from typing import Any

from annotated.model import EncoderDecoder, TransformerConfig, build_model


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

    Raises: InputError for a wrong argument, TypeError for one that does not exist.

    Source: section 3.

    >>> model = make_model(100, 100, N=2, d_model=64, d_ff=128, h=4)
    """
    sizes: dict[str, Any] = {"N": N, "d_model": d_model, "d_ff": d_ff, "h": h, "dropout": dropout}
    return build_model(TransformerConfig(src_vocab, tgt_vocab, **sizes, **options))
