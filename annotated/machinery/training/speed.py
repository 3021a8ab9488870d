"""Many processes, one run."""

import re
from dataclasses import dataclass

from annotated.model import TransformerConfig
from annotated.training import PEAK_TFLOPS


def peak_tflops(device: str) -> float | None:
    """The peak of a GPU with this name; None for one that is not in PEAK_TFLOPS.

    Slower forms of the same name (PCIe, NVL) and slices (MIG) are not there.
    """
    words = set(re.split(r"[\s-]+", device))
    if {word.upper() for word in words} & {"PCIE", "NVL", "MIG"}:
        return None
    return next((tflops for name, tflops in PEAK_TFLOPS.items() if name in words), None)


@dataclass(frozen=True)
class Speed:
    """How fast a run was, by the clock on the wall.

    Args:
        tokens: target tokens learnt from.   seconds: that went by.
        waited: those of them in which the device had nothing to do until data came.
    """

    tokens: float
    seconds: float
    waited: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Target tokens a second, waiting included."""
        return self.tokens / self.seconds

    @property
    def waiting(self) -> float:
        """Share of the time that went by in waiting for data."""
        return self.waited / self.seconds

    def utilisation(self, model: TransformerConfig, device: str, number: int = 1) -> float | None:
        """Counted operations, in relation to what the GPUs could do; None for an unknown GPU.

        Args:
            model: that learnt.   device: the name of each GPU.   number: of GPUs that the run used.
        """
        from annotated.evaluation import model_cost  # brings what scores need: slow to import

        peak = peak_tflops(device)
        return peak and self.tokens_per_second * model_cost(model) / (peak * 1e12 * number)
