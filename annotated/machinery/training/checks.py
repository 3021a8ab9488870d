"""The folder of a run."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from annotated.training import TrainingConfig

from dataclasses import fields
from importlib.util import find_spec
from typing import Any

from annotated.machinery.corpora import parse_data
from annotated.machinery.files import fits


def check_training(config: "TrainingConfig") -> None:
    """Raise ValueError unless a configuration describes a run that can be done."""
    may_be_zero = {"d_k", "d_v", "parts", "seed", "save_updates", "save_minutes"}
    for option in fields(config):
        value, choices = getattr(config, option.name), option.metadata["choices"]
        kind = type(option.default)
        if not fits(value, kind):
            number = "a finite " if kind is float else ""
            raise ValueError(f"expected {option.name} as {number}{kind.__name__}; got {value!r}")
        if choices and value not in choices:
            raise ValueError(f"expected {option.name} out of {', '.join(choices)}; got {value!r}")
        least = 0 if option.name in may_be_zero or kind is float else 1
        if kind in (int, float) and value < least:
            raise ValueError(f"expected {option.name} of at least {least}; got {value}")
    if not 0 <= config.label_smoothing < 1:
        raise ValueError(f"expected label_smoothing in [0, 1); got {config.label_smoothing}")
    if not config.save_updates and not config.save_minutes:
        raise ValueError("expected save_updates or save_minutes above 0; got 0 for both")
    if config.tensorboard and find_spec("tensorboard") is None:
        raise ValueError(
            "expected the package tensorboard for --tensorboard: pip install tensorboard"
        )
    parse_data(config.data)


def fixed_options(config: "TrainingConfig") -> dict[str, Any]:
    """The options that a run keeps from start to end."""
    return {o.name: getattr(config, o.name) for o in fields(config) if o.metadata["fixed"]}
