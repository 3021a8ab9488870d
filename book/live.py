"""Models that run on the page: their scripts, and the directive that places them."""

from __future__ import annotations

import base64
import csv
import gzip
import html
import json
import re
from functools import cache
from pathlib import Path

from contents import sources
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

MODELS = Path(__file__).resolve().parent.parent / "data" / "models"
ASKED = re.compile(r"^```\{live\} \w+\n(?:^:.*\n)*?^:model: (\S+)$", re.MULTILINE)


class Live(SphinxDirective):
    """A place where a reader can run a model; `static/live.js` fills it.

    The argument selects the view; the content lists example sentences.
    """

    required_arguments = 1
    has_content = True
    option_spec = {  # noqa: RUF012
        "model": directives.unchanged_required,
        "word": directives.unchanged,  # those from which lines are drawn first
    }

    def run(self) -> list[nodes.Node]:
        sentences = [line for line in self.content if line]
        text = live_place(self.arguments[0], sentences=sentences, **self.options)
        return [nodes.raw("", text, format="html")]


def live_place(show: str, model: str, sentences: list[str], word: str = "") -> str:
    """HTML that `static/live.js` looks for."""
    data = {
        "show": show,
        "model": model,
        "megabytes": round(len(model_script(model)) / 1e6),
        "sentences": json.dumps(sentences, ensure_ascii=False),
        "word": word,
    }
    if show == "switchboard":
        with (MODELS.parent / "results" / f"{model}-switches.csv").open(encoding="utf-8") as file:
            rows = [[r["kind"], *(json.loads(r[name]) for name in ("layer", "head", "loss"))]
                    for r in csv.DictReader(file)]  # fmt: skip
        data["losses"] = json.dumps(rows)
    attributes = " ".join(f'data-{name}="{html.escape(str(text))}"' for name, text in data.items())
    without = "Here a trained model translates your sentences. It needs JavaScript."
    return f'<div class="live" {attributes}><noscript><p>{without}</p></noscript></div>'


@cache
def model_script(name: str) -> str:
    """A trained model as a script, because a page opened from the disk can load nothing else."""
    folder = MODELS / name
    model = {
        part: json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))
        for part in ("config", "tokenizer")
    }
    packed = gzip.compress((folder / "model.safetensors").read_bytes(), mtime=0)
    model["weights"] = base64.b64encode(packed).decode()
    return f'(window.bookModels ??= {{}})["{name}"] = {json.dumps(model)};\n'


def write_models(chapters: Path, folder: Path) -> None:
    """Write the scripts of all models that chapters ask for."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = (path.read_text(encoding="utf-8") for path in sources(chapters).values())
    for name in {name for text in texts for name in ASKED.findall(text)}:
        (folder / f"{name}.js").write_text(model_script(name), encoding="utf-8")
