"""Cards: the README.md of an exported model and of a finished run, from the templates in cards/."""

import re
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

BEAM, ALPHA = 4, 0.6  # the defaults of our search
# Elsewhere the length penalty p divides by length^p. For an output of 20 tokens, this p and our α
# prefer longer outputs equally.
POWER = ALPHA * 20 / (5 + 20)


def fill_card(template: str, values: Mapping[str, Any]) -> str:
    """The text of a template with these values."""
    text = (files(__package__) / "cards" / f"{template}.md").read_text(encoding="utf-8")
    common = {"beam": BEAM, "alpha": ALPHA, "power": POWER, "example": "A man is riding a bicycle."}
    return Template(text).substitute(common, **values)


def copied_card(card: str) -> str:
    """A card for a copy of the model, without what is true only of the folder of a run."""
    card = card.partition("\n<!-- Written by `annotated train`")[0]
    return re.sub(r"\[([^\]]*)\]\((?!https?:|#)[^)]*\)", r"\1 (not in this folder)", card)


def export_card(form: str, card: str, target: str) -> str:
    """The card of an export: that of the model, if it has one, and how the files are used.

    Args: card: of the model.   target: file of the target's tokenizer.
    """
    own, penalty = copied_card(card) or "# A translator\n", "" if form == "onnx" else "penalty"
    return own + fill_card(form, {"target": target}) + (penalty and fill_card(penalty, {}))
