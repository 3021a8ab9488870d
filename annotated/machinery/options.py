"""Options of models and runs, each declared once.

A field of a configuration carries its default, its help, and the values that it may have. The
command line, the checks and the saved files read them from there, so that a new option is one line:
of the paper in `ModelOptions` (section 3), and any other in `LaterOptions`.
"""

from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from annotated.feed_forward import ACTIVATIONS
from annotated.machinery.errors import InputError, check_known, check_real, check_whole

LARGEST = 10_000_000  # of widths and vocabularies
POSITIONS = "sinusoidal", "learned", "endpoint"  # the last: up to a wavelength of 10000 · 2π


def option(
    default: Any = MISSING,
    help: str = "",
    choices: tuple = (),
    least: float | None = None,
    most: float = 2**31,
    fixed: bool = True,
) -> Any:
    """A field of a configuration.

    Args:
        help: what the command line says of it.   choices: the values that it may have.
        least, most: bounds of a number; the least of a whole one is 1, and of a real one 0.
        fixed: it may not change within a run.
    """
    about = {"help": help, "choices": choices, "fixed": fixed, "least": least, "most": most}
    return field(default=default, metadata=about)


def another_default(declared: type, name: str, default: Any) -> Any:
    """An option as `declared` has it, with another default; 0 stands for none."""
    about = declared.__dataclass_fields__[name].metadata  # type: ignore[attr-defined]
    return field(default=default, metadata=about if default else {**about, "least": 0})


def flag_of(name: str) -> str:
    """The flag of an option; the name of one that Python reserves ends in an underscore."""
    return "--" + name.rstrip("_").replace("_", "-")


def check_options(config: Any) -> None:
    """Raise InputError that names the first option whose value is not allowed.

    A number of NumPy, which JSON does not know, becomes one of Python.
    """
    for each in fields(config):
        name, value, about = each.name, getattr(config, each.name), each.metadata
        kinds = allowed_types(each)
        if value is None and type(None) in kinds:
            continue
        if choices := about["choices"]:
            if value not in choices:
                wanted = " or ".join(map(repr, choices))
                raise InputError(f"expected {wanted} for {name}; got {value!r:.80}")
        elif int in kinds:
            least = 1 if about["least"] is None else about["least"]
            check_whole(name, value, least, about["most"])
            value = int(value)
        elif float in kinds:
            check_real(name, value, about["least"] or 0, about["most"])
            value = value if isinstance(value, int) else float(value)
        elif type(value) not in kinds:
            raise InputError(f"expected {name} as {kinds[0].__name__}; got {value!r:.80}")
        object.__setattr__(config, name, value)


def allowed_types(field: Any) -> tuple[type, ...]:
    """The types that a field may have; two for an annotation such as `int | None`."""
    return getattr(field.type, "__args__", (field.type,))


@dataclass(frozen=True, kw_only=True)
class LaterOptions:
    """What the paper's model does not have; the defaults are the paper's."""

    def __new__(cls, *_: Any, **given: Any) -> Any:
        for name in given:
            check_known(f"an option of {cls.__name__}", name, cls.__dataclass_fields__)
        return super().__new__(cls)

    norm_first: bool = option(False, "normalize before each sub-layer (in the paper: after it)")
    bias: bool = option(False, "bias in the projections and before the softmax; the paper has none")
    activation: str = option("relu", "activation of the feed-forward layers", tuple(ACTIVATIONS))
    norm_eps: float = option(1e-5, "constant that layer normalization adds to the variance", most=1)
    N_decoder: int | None = option(None, "layers of the decoder; none: N", most=1000)
    decoder: str = option(
        "attention",
        "attention to the output so far; ssru: a recurrent cell; ssru-without-ff: the same "
        "without a feed-forward layer",
        choices=("attention", "ssru", "ssru-without-ff"),
    )
