"""6.1 Machine Translation (chapters/6-1-machine-translation.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from annotated.language_model import LanguageModel, LanguageModelConfig
from annotated.machinery.errors import check_known, check_real, check_whole, extra
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
    """Table 2: BLEU on newstest2014, and the FLOPs of training.

    Raises: MissingExtra without pandas, of the extra `viz`.

    Source: section 6.1, Table 2.
    """
    with extra("viz"):
        import pandas as pd
    columns = ["model", "kind", "BLEU EN-DE", "BLEU EN-FR", "FLOPs EN-DE", "FLOPs EN-FR"]
    return pd.DataFrame(_TABLE_2, columns=columns)


TFLOPS = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}  # the paper's estimates


def training_cost(hours: float, gpus: int = 8, gpu: str = "P100") -> float:
    """FLOPs of a training, as the paper estimates them.

    Args: hours: duration of the training.   gpus: number of GPUs.   gpu: one of `TFLOPS`.

    Raises: InputError for another GPU, negative hours, or fewer than one GPU.

    Source: section 6.1, footnote 5.
    """
    check_real("hours", hours, 0, 1e9)
    check_whole("gpus", gpus)
    check_known("a GPU", gpu, TFLOPS)
    return hours * 3600 * gpus * TFLOPS[gpu] * 1e12


def model_cost(config: TransformerConfig | LanguageModelConfig, length: int = 25) -> float:
    """FLOPs of training per source and target token: forward and backward.

    Args:
        config: the model; a language model has no source, and one token counts.
        length: tokens of a sentence on either side; only the cost of attention depends on it.

    Returns: FLOPs; a multiplication and an addition count as two.
    """
    counter = FlopCounterMode(display=False)
    with torch.device("meta"):  # shapes without numbers: nothing is computed or stored
        ids = torch.zeros(1, length, dtype=torch.long)
        if isinstance(config, TransformerConfig):
            model = build_model(config)
            run = lambda: model.generator(model(ids, ids))
        else:
            run = partial(LanguageModel(config), ids)
        with counter, sdpa_kernel(SDPBackend.MATH):  # attention as products that can be counted
            run().sum().backward()
    return counter.get_total_flops() / length
