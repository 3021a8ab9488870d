"""What chapters read of the study of heads, which `python -m benchmarks.heads MODEL` writes."""

from pathlib import Path

import pandas as pd
import torch

from annotated.machinery.files import read_json
from annotated.model import EncoderDecoder, build_model

FAR = 5, 9  # words from which an arc is long
ATTENTION_PLACES = [
    "itself", "previous word", "next word", "end", "punctuation", "same word", "elsewhere",
]  # fmt: skip


def significant(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table of a study whose gain is significant: `p_holm` is below 0.05."""
    return table[table["p_holm"] < 0.05]


def reinitialized(model: EncoderDecoder, seed: int = 0) -> EncoderDecoder:
    """An untrained model of the same shape."""
    assert model.config is not None
    torch.manual_seed(seed)
    return build_model(model.config).eval()


def read_study(path: Path) -> dict[str, pd.DataFrame]:
    """The tables of a study of `benchmarks.heads`. Raises: MissingFile or FileError."""
    found = read_json(path, "a study of heads")
    return {key: pd.DataFrame(rows) for key, rows in found.items() if isinstance(rows, list)}
