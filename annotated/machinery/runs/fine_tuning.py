"""The configuration of a run that continues from a trained model."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from annotated.machinery.errors import InputError
from annotated.machinery.formats.own import Build
from annotated.machinery.formats.pretrained import read_model
from annotated.machinery.options import flag_of
from annotated.machinery.runs.checkpoints import check_languages
from annotated.model import ModelOptions
from annotated.training import TrainingConfig

# At d_model = 512, the learning rate rises to 0.0001.
DEFAULTS: dict[str, Any] = {
    "schedule": "cosine", "warmup": 100, "factor": 0.03, "updates": 1000,
    "save_updates": 100, "log_updates": 20, "average": 1,
}  # fmt: skip
_FREE = "dropout", "attention_dropout"  # no weights depend on them


def train_options(config: TrainingConfig) -> list[str]:
    """The options of `annotated train` that make this configuration."""
    usual, named, brought = TrainingConfig(), set[str](), set[str]()
    if config.from_:  # the model brings some, and others have its values as defaults
        usual, named = replace(usual, **DEFAULTS), {"data", "out", *_FREE}
        brought = {"vocab_size", *(each.name for each in fields(ModelOptions))}.difference(_FREE)
    words = []
    for option in fields(config):
        name, value, flag = option.name, getattr(config, option.name), flag_of(option.name)
        if name in named or (value != getattr(usual, name) and name not in brought):
            words += [flag] if value is True else [flag, str(value)]
    return words


def fine_tuning(
    model: str | Path, checkpoint: str | int = "", build: Build | None = None, **changes: Any
) -> TrainingConfig:
    """The configuration of a run that continues from a trained model, for `train`.

    It has the architecture and vocabulary of the model, and `DEFAULTS` of its own.

    Args:
        model, checkpoint, build: as for `load_pretrained`.
        changes: fields of `TrainingConfig`; data is required.

    Raises: InputError without data, for an option that contradicts the model, and for a model
        with more than one matrix of embeddings; otherwise as `load_pretrained`.

    >>> train(fine_tuning("multi30k-en-de", data="my/pairs.csv-en-de"))
    """
    if "data" not in changes:
        raise InputError("expected data, the sentence pairs on which to train")
    check_languages(model, changes["data"])
    translator, _ = read_model(model, checkpoint or None, build)
    config = translator.model.config
    if not config.tie_embeddings:
        wanted = "expected a model that ties its embeddings, as all of `train` do"
        raise InputError(f"{wanted}; got {model}")
    its = {each.name: getattr(config, each.name) for each in fields(ModelOptions)}
    free = {name: its.pop(name) for name in _FREE}
    its |= {"d_k": config.d_k or 0, "d_v": config.d_v or 0, "vocab_size": config.src_vocab}
    its |= {"vocabulary": type(translator.tokenizer.model).__name__.lower()}
    its |= {"max_pieces": config.max_len - 2} if config.positions == "learned" else {}
    for name, has in its.items():
        if (asked := changes.get(name, has)) != has:
            raise InputError(f"expected {name}={has}, which {model} has; got {asked!r:.80}")
    del its["vocabulary"]  # it may be of a kind that is not learned here
    its |= {"from_": str(model), "checkpoint": str(checkpoint)}
    options = {"out": f"runs/{Path(model).name}-tuned", **free, **DEFAULTS, **its, **changes}
    return TrainingConfig(**options)
