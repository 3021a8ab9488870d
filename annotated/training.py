"""5.2 Hardware and Schedule (chapters/5-2-hardware-schedule.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from dataclasses import dataclass, fields
from typing import Any

from torch.amp import GradScaler
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from annotated.machinery.corpora.registry import parse_data
from annotated.machinery.errors import InputError, check_known
from annotated.machinery.options import another_default, check_options, option
from annotated.model import ModelOptions, TransformerConfig


def update_weights(
    optimizer: Optimizer,
    scheduler: LRScheduler,
    scaler: GradScaler | None = None,
    clip: float = 0.0,
) -> bool:
    """Move the weights along the accumulated gradients, and reset these.

    Args: scaler: for float16.   clip: largest norm of the gradients; 0: any.

    Returns: whether the weights moved; they do not if a gradient overflows in float16.
    """
    scaler = scaler or GradScaler("cpu", enabled=False)  # does nothing
    factor = scaler.get_scale()
    if clip:
        scaler.unscale_(optimizer)
        clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    moved = bool(scaler.get_scale() >= factor)
    if moved:
        scheduler.step()
    return moved


_other = lambda name, default: another_default(ModelOptions, name, default)


@dataclass(frozen=True)
class TrainingConfig(ModelOptions):
    """A training run; its fields are the options of `annotated train`.

    Raises: InputError that names the field and the value expected.
    """

    out: str = option("runs/multi30k-en-de", "folder of the run", fixed=False)
    data: str = option("multi30k-en-de", "CORPUS-SRC-TGT; see below")
    prepared: str = option("", "folder of a prepared corpus; none: found, or made", fixed=False)
    from_: str = option(
        "", "trained model to fine-tune, as for translate; see below; none: random weights"
    )
    checkpoint: str = option("", "of the run that --from names: best, last, or an update")
    vocabulary: str = option("bpe", "kind of pieces (section 5.1)", ("bpe", "wordpiece"))
    vocab_size: int = option(5000, "pieces in the shared vocabulary")
    vocab_pairs: int = option(500_000, "maximum number of pairs for learning the vocabulary")
    N: int = _other("N", 4)
    d_model: int = _other("d_model", 128)
    d_ff: int = _other("d_ff", 512)
    h: int = _other("h", 4)
    d_k: int | None = _other("d_k", 0)
    d_v: int | None = _other("d_v", 0)
    dropout: float = _other("dropout", 0.3)
    label_smoothing: float = option(0.1, "ε of label smoothing (section 5.4)")
    src_tokens: int = option(2000, "maximum source tokens per update, including padding")
    tgt_tokens: int = option(2000, "maximum target tokens per update, including padding")
    parts: int = option(0, "micro-batches in an update; 0: one per process", least=0)
    on_bad: str = option(
        "auto", "bad training pairs; auto: as registered, or refuse", ("auto", "refuse", "drop")
    )
    max_pieces: int = option(256, "longer training sentences are left out")
    updates: int = option(19000, "total number of updates of the weights", fixed=False)
    warmup: int = option(2000, "updates during which the learning rate rises (equation 3)")
    factor: float = option(1.0, "multiplies the learning rate of equation 3")
    schedule: str = option(
        "paper",
        "learning rate after the warmup: as in equation 3, constant, or a cosine that ends at 0",
        ("paper", "constant", "cosine"),
    )
    clip: float = option(0.0, "largest norm of an update's gradients; 0: any")
    minutes: float = option(
        0.0,
        "size a new run to end after about so many minutes on this machine: updates, warmup (at "
        "the same peak of the rate), save_updates and average follow from a timing; 0: as given",
        fixed=False,
    )
    average: int = option(10, "checkpoints averaged at the end (section 6.1)", fixed=False)
    keep_best: int = option(
        0, "checkpoints with the lowest development loss to keep as well", least=0, fixed=False
    )
    patience: int = option(
        0,
        "end the run after so many evaluations without a lower development loss, and average up "
        "to its best checkpoint; 0: never",
        least=0,
        fixed=False,
    )
    dev_sentences: int = option(
        100, "development sentences translated at each checkpoint; 0: none", least=0, fixed=False
    )
    save_updates: int = option(280, "updates between checkpoints; 0: none", fixed=False, least=0)
    save_minutes: float = option(0.0, "minutes between checkpoints; 0: none", fixed=False)
    wait_minutes: float = option(
        10.0,
        "minutes after which a process that waits for another one ends the run",
        least=0.01,
        fixed=False,
    )
    log_updates: int = option(70, "updates between rows of the log", fixed=False)
    precision: str = option(
        "auto",
        "number format of matrix products; auto: the fastest that is safe on the device",
        ("auto", "float32", "bfloat16", "float16"),
        fixed=False,
    )
    compile: bool = option(False, "torch.compile, and batches of at most 24 shapes")
    tensorboard: bool = option(False, "also write the log for TensorBoard", fixed=False)
    seed: int = option(1, "seed of every random choice", least=0)

    def __post_init__(self) -> None:
        check_options(self)
        if not self.out:
            raise InputError("expected out as the name of a folder; got ''")
        if self.label_smoothing >= 1:
            raise InputError(f"expected label_smoothing in [0, 1); got {self.label_smoothing}")
        if not self.save_updates and not self.save_minutes:
            raise InputError("expected save_updates or save_minutes above 0; got 0 for both")
        parse_data(self.data)
        model_config(self)  # checks the size of the model


def model_config(config: TrainingConfig) -> TransformerConfig:
    """Configuration of a run's model: the paper's, in the run's size, with a shared vocabulary."""
    options = {each.name: getattr(config, each.name) for each in fields(ModelOptions)}
    options |= {"d_k": config.d_k or None, "d_v": config.d_v or None}
    length = max(config.max_pieces + 2, 512)  # matters to learned positions only
    return TransformerConfig.base(config.vocab_size, **options, max_len=length)


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
    "quick-en-de": {"minutes": 10.0, "schedule": "cosine", "factor": 1.25, "dropout": 0.1},
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
    """The preset with this name and these changes, in runs/NAME unless `out` is given.

    Args: name: one of `PRESETS`.   changes: fields of `TrainingConfig`.

    Source: sections 5.1 to 5.4, 6.1 and 6.3, Table 3.
    """
    check_known("a preset", name, PRESETS)
    return TrainingConfig(**{"out": f"runs/{name}", **PRESETS[name], **changes})
