"""6.1 Machine Translation (chapters/6-1-machine-translation.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from typing import TYPE_CHECKING

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from annotated.machinery.checks import check_real
from annotated.machinery.errors import check_whole, extra
from annotated.model import TransformerConfig, build_model

if TYPE_CHECKING:
    import pandas as pd

_TABLE_2 = [  # model, kind, BLEU and FLOPs: EN-DE, EN-FR
    ("ByteNet", "single", 23.75, None, None, None),
    ("Deep-Att + PosUnk", "single", None, 39.2, None, 1.0e20),
    ("GNMT + RL", "single", 24.6, 39.92, 2.3e19, 1.4e20),
    ("ConvS2S", "single", 25.16, 40.46, 9.6e18, 1.5e20),
    ("MoE", "single", 26.03, 40.56, 2.0e19, 1.2e20),
    ("Deep-Att + PosUnk", "ensemble", None, 40.4, None, 8.0e20),
    ("GNMT + RL", "ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    ("ConvS2S", "ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    ("Transformer (base)", "Transformer", 27.3, 38.1, 3.3e18, 3.3e18),
    ("Transformer (big)", "Transformer", 28.4, 41.8, 2.3e19, 2.3e19),
]


def table_2() -> "pd.DataFrame":
    """Table 2: BLEU on newstest2014, and floating-point operations of the training.

    Raises: MissingExtra without pandas, which the extra `viz` brings.

    Source: section 6.1, Table 2.
    """
    with extra("viz"):
        import pandas as pd
    columns = ["model", "kind", "BLEU EN-DE", "BLEU EN-FR", "FLOPs EN-DE", "FLOPs EN-FR"]
    return pd.DataFrame(_TABLE_2, columns=columns)


TFLOPS = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}  # the paper's estimates


def training_cost(hours: float, gpus: int = 8, gpu: str = "P100") -> float:
    """Floating-point operations of a training, as the paper estimates them.

    Args:
        hours: how long it took.   gpus: on how many.   gpu: a key of `TFLOPS`.

    Raises: ValueError for another GPU, or for less than no hours or one GPU.

    Source: section 6.1, footnote 5.
    """
    check_real("hours", hours, 0, 1e9)
    check_whole("gpus", gpus)
    if gpu not in TFLOPS:
        raise ValueError(f"expected a GPU out of {', '.join(TFLOPS)}; got {gpu!r}")
    return hours * 3600 * gpus * TFLOPS[gpu] * 1e12


def model_cost(config: TransformerConfig, length: int = 25) -> float:
    """Operations of training for one source and one target token: forward and backward.

    Args:
        config: the model.
        length: tokens of a sentence on either side; attention grows with it, the rest does not.

    Returns: floating-point operations; a multiplication and an addition are two.
    """
    counter = FlopCounterMode(display=False)
    with torch.device("meta"):  # shapes without numbers: nothing is computed or stored
        model, ids = build_model(config), torch.zeros(1, length, dtype=torch.long)
        with counter, sdpa_kernel(SDPBackend.MATH):  # attention as products that can be counted
            out = model(ids, ids)
            model.generator(out).sum().backward()
    return counter.get_total_flops() / length
