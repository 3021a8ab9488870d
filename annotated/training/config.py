"""5.2 Hardware and Schedule (chapters/5-2-hardware-schedule.md).
The folder of a run (chapters/checkpoints.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from typing import Any

from annotated.corpora import parse_data
from annotated.files import fits
from annotated.model import TransformerConfig

__all__ = ["PRESETS", "TrainingConfig", "check_training", "fixed_options", "model_config", "preset"]


def _option(default: Any, text: str, choices: tuple = (), fixed: bool = True) -> Any:
    """A field with the help text of its option; `fixed`: a run keeps it from start to end."""
    return field(default=default, metadata={"help": text, "choices": choices, "fixed": fixed})


@dataclass(frozen=True)
class TrainingConfig:
    """A training run; its fields are the options of `annotated train`.

    Raises: ValueError that says which field is wrong, and how.
    """

    out: str = _option("runs/multi30k-en-de", "folder of the run", fixed=False)
    data: str = _option("multi30k-en-de", "CORPUS-SRC-TGT; CORPUS is registered, or a folder")
    prepared: str = _option("", "prepared corpus, a folder; none: found, or made", fixed=False)
    weights: str = _option("", "trained model to begin with, a name or a folder; none: at random")
    vocabulary: str = _option("bpe", "kind of pieces (section 5.1)", ("bpe", "wordpiece"))
    vocab_size: int = _option(5000, "pieces in the shared vocabulary")
    vocab_pairs: int = _option(500_000, "pairs that the vocabulary is learnt from, at most")
    N: int = _option(4, "layers in each stack")
    d_model: int = _option(128, "width of the model")
    d_ff: int = _option(512, "inner width of the feed-forward layers")
    h: int = _option(4, "attention heads")
    d_k: int = _option(0, "width of a query and a key in a head; 0: d_model / h")
    d_v: int = _option(0, "width of a value in a head; 0: d_model / h")
    positions: str = _option("sinusoidal", "encoding of positions", ("sinusoidal", "learned"))
    norm_first: bool = _option(False, "normalise before each sub-layer; the paper: after it")
    bias: bool = _option(False, "in the projections and before the softmax; the paper: none")
    activation: str = _option(
        "relu", "in the feed-forward layers; the paper: relu", ("relu", "swish")
    )
    dropout: float = _option(0.3, "P_drop (section 5.4)")
    attention_dropout: float = _option(0.0, "dropout of attention weights (section 6.3)")
    label_smoothing: float = _option(0.1, "ε of label smoothing (section 5.4)")
    src_tokens: int = _option(2000, "source tokens in an update at most, padding included")
    tgt_tokens: int = _option(2000, "target tokens in an update at most, padding included")
    parts: int = _option(0, "batches that an update is cut into; 0: one for each process")
    on_bad: str = _option(
        "auto",
        "what becomes of bad training pairs; auto: as the corpus is registered, or refuse",
        ("auto", "refuse", "drop"),
    )
    max_pieces: int = _option(256, "longer training sentences are left out, and counted")
    updates: int = _option(19000, "updates of the weights in all", fixed=False)
    warmup: int = _option(2000, "updates during which the learning rate rises (equation 3)")
    factor: float = _option(1.0, "multiplies the learning rate of equation 3")
    average: int = _option(10, "checkpoints averaged at the end (section 6.1)", fixed=False)
    save_updates: int = _option(
        280, "updates between checkpoints; 0: count no updates", fixed=False
    )
    save_minutes: float = _option(0.0, "minutes between checkpoints; 0: no clock", fixed=False)
    log_updates: int = _option(70, "updates between rows of the log", fixed=False)
    precision: str = _option(
        "auto",
        "numbers in matrix products; auto: the fastest that the device is good at",
        ("auto", "float32", "bfloat16", "float16"),
        fixed=False,
    )
    compile: bool = _option(False, "torch.compile: a slow start, then faster", fixed=False)
    tensorboard: bool = _option(False, "write the log for TensorBoard too", fixed=False)
    seed: int = _option(1, "start of every random choice")

    def __post_init__(self) -> None:
        check_training(self)


def model_config(config: TrainingConfig) -> TransformerConfig:
    """The model of a run: the paper's, in the run's size, on a shared vocabulary."""
    c = config
    return TransformerConfig.base(
        c.vocab_size,
        N=c.N,
        d_model=c.d_model,
        d_ff=c.d_ff,
        h=c.h,
        d_k=c.d_k or None,
        d_v=c.d_v or None,
        dropout=c.dropout,
        attention_dropout=c.attention_dropout,
        positions=c.positions,
        max_len=max(c.max_pieces + 2, 512),  # matters to learned positions only
        norm_first=c.norm_first,
        bias=c.bias,
        activation=c.activation,
    )


_PAPER = {
    "vocab_size": 37000, "N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "dropout": 0.1,
    "src_tokens": 25000, "tgt_tokens": 25000, "parts": 8, "warmup": 4000, "updates": 100_000,
    "average": 5, "save_updates": 1500, "log_updates": 100,
}  # fmt: skip
_BIG = {
    **_PAPER, "d_model": 1024, "d_ff": 4096, "h": 16, "dropout": 0.3,
    "updates": 300_000, "average": 20, "save_updates": 600,
}  # fmt: skip
_GERMAN = {"data": "wmt14-en-de"}
_FRENCH = {"data": "wmt14-en-fr", "vocabulary": "wordpiece", "vocab_size": 32000}
_PENN = {**_PAPER, "N": 4, "d_model": 1024, "max_pieces": 1000}

_GENERAL = {
    "data": "laws+tatoeba+news+php+multi30k-en-fr", "on_bad": "drop", "vocab_size": 8000,
    "N": 6, "d_model": 192, "d_ff": 768, "h": 8, "dropout": 0.0,
    "src_tokens": 3000, "tgt_tokens": 3000, "parts": 2, "factor": 0.6, "warmup": 1500,
    "updates": 8000, "average": 5, "save_updates": 1000, "log_updates": 50,
}  # fmt: skip
_PARSER = {
    "data": "runs/craft-words-trees", "vocab_size": 6000, "max_pieces": 600, "N": 4,
    "d_model": 192, "d_ff": 768, "h": 6, "dropout": 0.2, "warmup": 1500, "updates": 24000,
    "average": 5, "save_updates": 500, "log_updates": 70,
}  # fmt: skip

PRESETS: dict[str, dict[str, Any]] = {
    "multi30k-en-de": {},
    "multi30k-en-fr": {"data": "multi30k-en-fr", "updates": 28000},
    "general-en-fr": _GENERAL,
    "craft-parser": _PARSER,
    "base-en-de": {**_PAPER, **_GERMAN},
    "base-en-fr": {**_PAPER, **_FRENCH},
    "big-en-de": {**_BIG, **_GERMAN},
    "big-en-fr": {**_BIG, **_FRENCH, "dropout": 0.1},
    "parser-wsj": {**_PENN, "data": "runs/penn-words-trees", "vocab_size": 16000},
    "parser-semi": {**_PENN, "data": "runs/semi-words-trees", "vocab_size": 32000},
}


def preset(name: str, **changes: Any) -> TrainingConfig:
    """The configuration of a name, in the folder runs/NAME unless `out` is given.

    Args:
        name: a key of PRESETS.   changes: fields that differ from it.

    Raises: ValueError that lists the names if this is none of them.

    Source: sections 5.1 to 5.4, 6.1 and 6.3, Table 3.
    """
    if name not in PRESETS:
        raise ValueError(f"expected a preset out of {', '.join(PRESETS)}; got {name!r}")
    return TrainingConfig(**{"out": f"runs/{name}", **PRESETS[name], **changes})


def check_training(config: TrainingConfig) -> None:
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
    model_config(config)


def fixed_options(config: TrainingConfig) -> dict[str, Any]:
    """The options that a run keeps from start to end."""
    return {o.name: getattr(config, o.name) for o in fields(config) if o.metadata["fixed"]}
