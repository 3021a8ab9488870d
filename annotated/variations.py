"""6.2 Model Variations (chapters/6-2-model-variations.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from annotated.language_model import LanguageModel, LanguageModelConfig
from annotated.machinery.errors import check_known, extra
from annotated.model import TransformerConfig, build_model

if TYPE_CHECKING:
    import pandas as pd

_BASE: dict[str, Any] = {
    "N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "d_k": 64, "d_v": 64, "dropout": 0.1,
    "label_smoothing": 0.1, "positions": "sinusoidal", "train_steps": 100_000,
}  # fmt: skip
_BIG = {"d_model": 1024, "d_ff": 4096, "h": 16, "dropout": 0.3, "train_steps": 300_000}

# What differs from base, perplexity, BLEU, parameters in millions (None: not printed).
_TABLE_3: dict[str, tuple[dict[str, Any], float, float, int | None]] = {
    "base": ({}, 4.92, 25.8, 65),
    "A: h = 1": ({"h": 1, "d_k": 512, "d_v": 512}, 5.29, 24.9, None),
    "A: h = 4": ({"h": 4, "d_k": 128, "d_v": 128}, 5.00, 25.5, None),
    "A: h = 16": ({"h": 16, "d_k": 32, "d_v": 32}, 4.91, 25.8, None),
    "A: h = 32": ({"h": 32, "d_k": 16, "d_v": 16}, 5.01, 25.4, None),
    "B: d_k = 16": ({"d_k": 16}, 5.16, 25.1, 58),
    "B: d_k = 32": ({"d_k": 32}, 5.01, 25.4, 60),
    "C: N = 2": ({"N": 2}, 6.11, 23.7, 36),
    "C: N = 4": ({"N": 4}, 5.19, 25.3, 50),
    "C: N = 8": ({"N": 8}, 4.88, 25.5, 80),
    "C: d_model = 256": ({"d_model": 256, "d_k": 32, "d_v": 32}, 5.75, 24.5, 28),
    "C: d_model = 1024": ({"d_model": 1024, "d_k": 128, "d_v": 128}, 4.66, 26.0, 168),
    "C: d_ff = 1024": ({"d_ff": 1024}, 5.12, 25.4, 53),
    "C: d_ff = 4096": ({"d_ff": 4096}, 4.75, 26.2, 90),
    "D: dropout = 0.0": ({"dropout": 0.0}, 5.77, 24.6, None),
    "D: dropout = 0.2": ({"dropout": 0.2}, 4.95, 25.5, None),
    "D: label_smoothing = 0.0": ({"label_smoothing": 0.0}, 4.67, 25.3, None),
    "D: label_smoothing = 0.2": ({"label_smoothing": 0.2}, 5.47, 25.7, None),
    "E: positions = learned": ({"positions": "learned"}, 4.92, 25.7, None),
    "big": (_BIG, 4.33, 26.4, 213),
}

_ROWS: dict[str, dict[str, Any]] = {
    name: _BASE | changes | {
        "group": name.partition(":")[0], "perplexity": perplexity, "BLEU": bleu,
        "parameters_millions": millions,
    }
    for name, (changes, perplexity, bleu, millions) in _TABLE_3.items()
}  # fmt: skip


def table_3() -> "pd.DataFrame":
    """Table 3: each row a configuration, with the published results.

    Returns: a row for each of the paper's, named by its group and its first change, such as
        "A: h = 1"; `train_steps` in updates, `perplexity` per word piece and `BLEU` on
        newstest2013, `parameters_millions` where printed.

    Raises: MissingExtra without pandas, which the extra `viz` brings.

    Source: section 6.2, Table 3.
    """
    with extra("viz"):
        import pandas as pd
    return pd.DataFrame(_ROWS.values(), index=pd.Index(_ROWS, name="row"))


SHAPE = ["N", "d_model", "d_ff", "h", "d_k", "d_v", "positions"]


def row_config(name: str, vocab: int = 37000) -> TransformerConfig:
    """The model of a row of Table 3 at full size, with `vocab` pieces in the shared vocabulary.

    Args: name: as the index of `table_3` has it, such as "base", "big" or "A: h = 1".

    Raises: InputError if there is no such row.
    """
    row = printed_row(name)
    shape = {key: row[key] for key in [*SHAPE, "dropout"]}
    return TransformerConfig.base(vocab, **shape, max_len=512)  # for learned positions only


def printed_row(name: str) -> dict[str, Any]:
    """A row as printed, by column. Raises: InputError if there is no such row."""
    check_known("a row", name, _ROWS)
    return _ROWS[name]


def run_folder(name: str) -> str:
    """The folder of a row's run at full size, runs/a-h-1 of "A: h = 1"."""
    return "runs/" + re.sub(r"[^a-z0-9]+", "-", name.lower())


def count_parameters(model: nn.Module | TransformerConfig | LanguageModelConfig) -> int:
    """Parameters of a model, or of one that is described; a tied matrix counts once."""
    with torch.device("meta"):  # tensors with a shape but no content
        if isinstance(model, TransformerConfig):
            model = build_model(model)
        elif isinstance(model, LanguageModelConfig):
            model = LanguageModel(model)
    return sum(parameter.numel() for parameter in model.parameters())
