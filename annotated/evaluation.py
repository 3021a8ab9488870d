"""6.1 Machine Translation (chapters/6-1-machine-translation.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from annotated.attention import subsequent_mask
from annotated.model import TransformerConfig, build_model

TFLOPS = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}  # the paper's estimates


def training_cost(hours: float, gpus: int = 8, gpu: str = "P100") -> float:
    """Floating-point operations of a training, as the paper estimates them.

    Args:
        hours: how long it took.   gpus: on how many.   gpu: a key of `TFLOPS`.

    Raises: ValueError for another GPU.

    Source: section 6.1, footnote 5.
    """
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
            out = model(ids, ids, None, subsequent_mask(length))
            model.generator(out).sum().backward()
    return counter.get_total_flops() / length
