"""Models that run on a page: their scripts, and the directive that inserts them."""

from __future__ import annotations

import base64
import csv
import gzip
import html
import json
import math
import re
from functools import cache
from pathlib import Path

import quickjs
from contents import sources
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from annotated import by_hand, load_language_model, load_pretrained
from annotated.machinery.trees.linear import split_words, words_to_line
from annotated.machinery.visualization.weights import merge_words, read_attention

STATIC = Path(__file__).resolve().parent / "static"
MODELS = Path(__file__).resolve().parent.parent / "data" / "models"
TURNED = "multi30k-en-de"  # the model on which readers' parts run
RESULTS = MODELS.parent / "results"
FIRST = 0.7  # the temperature at which the sampler begins
# Heads of the captions model that the first picture offers: their names, layers and numbers.
NAMED = [("finds the word", [2, 1]), ("looks back", [0, 0]), ("rests at the end", [0, 2])]
TURN = re.compile(r"^```\{turn\} (\w+)$", re.MULTILINE)
ASKED = re.compile(r"^```\{live\} \w+\n(?:^:.*\n)*?^:model: (\S+)$", re.MULTILINE)

loaded = cache(load_pretrained)  # several places show one model

# What scripts expect of a page, and a method that QuickJS lacks.
BARE = """
globalThis.window = globalThis;
const document = { querySelectorAll: () => [] };
const at = function (i) { return this[i < 0 ? this.length + i : i]; };
for (const kind of [Array, Object.getPrototypeOf(Int8Array)]) kind.prototype.at = at;
"""
SEARCHES = """
const root = new search.Token(search.START);
for (const beam of [1, 2, 3, 4]) {
  const found = new search.Beam(root, { beam });
  while (found.canWin()) {
    for (const each of found.open) each.next ??= new Map(JSON.parse(ask(each.ids.join(" "))));
    found.extend();
  }
}
"""


class Live(SphinxDirective):
    """An element in which a reader can run a model, filled by a script of `static/`.

    The argument selects the view; the content lists example sentences.
    """

    required_arguments = 1
    has_content = True
    option_spec = {  # noqa: RUF012
        "model": directives.unchanged_required,
        "word": directives.unchanged,  # tokens from which lines are drawn first
        "wrong": directives.unchanged,  # what to strike in the first translation
    }

    def run(self) -> list[nodes.Node]:
        sentences = [line for line in self.content if line]
        if self.arguments[0] == "playground":
            return [nodes.raw("", playground_place(), format="html")]
        kinds = {"hero": hero_place, "figure1": own_place, "parse": parser_place,
                 "sampler": sampler_place}  # fmt: skip
        if place := kinds.get(self.arguments[0]):
            self.env.note_dependency(str(MODELS / self.options["model"] / "model.safetensors"))
            text = place(self.options["model"], sentences)
        else:
            text = live_place(self.arguments[0], sentences=sentences, **self.options)
        return [nodes.raw("", text, format="html")]


class Turn(SphinxDirective):
    """An element in which a reader writes a part of the Transformer, filled by `static/turn.js`.

    The argument is the name of the part in `annotated.by_hand`.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in by_hand.PARTS:
            raise self.error(f"expected one of {', '.join(by_hand.PARTS)}; got {name!r}")
        return [nodes.raw("", turn_place(name), format="html")]


def turn_place(name: str) -> str:
    """HTML that `static/turn.js` finds and fills."""
    part = by_hand.PARTS[name]
    data = {key: part[key] for key in ("task", "skeleton", "hint", "solution")}
    data["needs"] = part.get("needs", [])
    size = len(model_script(TURNED)) + len(turn_script())
    size += (STATIC / "micropython.js").stat().st_size
    data["megabytes"] = round(size / 1e6)
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    without = f"Your turn, which requires JavaScript: {html.escape(part['task'])}"
    return (
        f'<div class="turn" data-part="{name}"><noscript><p>{without}</p></noscript>'
        f'<script type="application/json">{text}</script></div>'
    )


@cache
def turn_script() -> str:
    """What a turn's worker needs, as texts: a page opened from the disk can fetch nothing."""
    parts = ("elements", "search", "transformer", "turn-worker")
    read = lambda path: path.read_text(encoding="utf-8")
    texts = {
        "scripts": "\n".join(read(STATIC / f"{name}.js") for name in parts),
        "checks": read(Path(by_hand.__file__)),
        "numbers": read(RESULTS / "by-hand.json"),
    }
    return f"(window.turn ??= {{}}).texts = {json.dumps(texts, ensure_ascii=False)};\n"


def live_place(show: str, model: str, sentences: list[str], word: str = "", wrong: str = "") -> str:
    """HTML that `static/live.js` finds and fills."""
    data = {
        "show": show,
        "model": model,
        "megabytes": round(len(model_script(model)) / 1e6),
        "sentences": json.dumps(sentences, ensure_ascii=False),
        "word": word,
        "wrong": wrong,
        "result": " | ".join(loaded(model).translate(sentences[0].split(" | "))),
    }
    attributes = " ".join(f'data-{name}="{html.escape(str(text))}"' for name, text in data.items())
    without = "Here a trained model translates your sentences, which requires JavaScript."
    inside = f"<noscript><p>{without}</p></noscript>"
    known = {"decoder": lambda: followed(model, sentences[0]),
             "switchboard": lambda: switches(model), "dial": dialed}.get(show)  # fmt: skip
    if known:
        text = json.dumps(known(), separators=(",", ":"))
        text = text.replace("<", "\\u003c")  # "</s>" would be read as a tag
        inside = f'{inside}<script type="application/json">{text}</script>'
    return f'<div class="live" {attributes}>{inside}</div>'


def switches(model: str) -> dict:
    """What the log of `benchmarks.switches` has for the switchboard; means in 10,000ths."""
    log = json.loads((RESULTS / f"{model}-switches.json").read_text(encoding="utf-8"))
    columns = "kind", "layer", "head", "loss"
    rows = lambda key: [[row[name] for name in columns] for row in log[key]]
    orders = log["random"]
    return {
        "losses": rows("losses"),
        "order": rows("order"),
        "means": {row["layer"]: [round(10_000 * x) for x in row["mean"]] for row in log["means"]},
        "heldOut": log["held_out"],
        "random": [round(sum(losses) / len(orders), 4) for losses in zip(*orders, strict=True)],
    }


def dialed() -> dict:
    """The cells of memory that hold a gender, and their values after nouns of either."""
    log = json.loads((RESULTS / "gender.json").read_text(encoding="utf-8"))
    return log["dial"][0]


def scripts(*names: str) -> quickjs.Context:
    """Scripts of `static/` without a browser, on a page where they have nothing to draw."""
    context = quickjs.Context()
    context.eval(BARE)
    for name in names:
        context.eval((STATIC / f"{name}.js").read_text(encoding="utf-8"))
    return context


@cache
def followed(model: str, sentence: str) -> dict:
    """The data that searches with a beam of one to four hypotheses use, found by `search.js`.

    Returns: the pieces of the source; the names of ids; for the ids of every hypothesis that is
        extended, pairs of id and log-probability for the ten most probable next pieces, and the
        attention of the decoder to the source: the mean over the heads of its last layer.
    """
    import torch

    from annotated.data import PAD, START, UNK, encode_source
    from annotated.machinery.recording import record_attention

    translator = loaded(model)
    src = torch.tensor(encode_source(translator.tokenizer, [sentence]))
    last = f"decoder.layers.{len(translator.model.decoder.layers) - 1}.src_attn"
    hypotheses = {}

    def ask(said: str) -> str:
        """The pairs for a hypothesis, as JSON."""
        tgt = torch.tensor([[START, *map(int, said.split())]])
        with torch.no_grad(), record_attention(translator.model) as seen:
            log_probs = translator.model.generator(translator.model(src, tgt))[0, -1]
        log_probs[[START, PAD, UNK]] = -math.inf
        best = log_probs.topk(10)
        shown = (round(x, 4) for x in best.values.tolist())
        pairs = [*zip(best.indices.tolist(), shown, strict=True)]
        looks = [round(w, 3) for w in seen[last][0, :, -1].mean(dim=0).tolist()]
        hypotheses[said] = pairs, looks
        return json.dumps(pairs)

    context = scripts("search")
    context.add_callable("ask", ask)
    context.eval(SEARCHES)
    name = translator.tokenizer.id_to_token
    used = {i for pairs, _ in hypotheses.values() for i, _ in pairs}
    return {
        "source": [name(i) for i in src[0].tolist()],
        "names": {i: name(i) for i in sorted(used)},
        "hypotheses": hypotheses,
    }


def hero_place(model: str, sentences: list[str]) -> str:
    """HTML that `static/hero.js` finds: translated sentences with their attention weights."""
    translator = loaded(model)
    examples = []
    for english in sentences:
        german = translator.translate(english)
        words = merge_words(read_attention(translator, english, german)["cross"])
        percent = (100 * words.weights).round().int().tolist()  # (layers, h, German, English)
        examples.append({"english": english, "german": german, "source": words.keys,
                         "target": words.queries, "weights": percent})  # fmt: skip
    given = {"examples": examples, "named": [["last layer", None], *NAMED]}
    data = json.dumps(given, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    megabytes = round(len(model_script(model)) / 1e6)
    first = {part: html.escape(examples[0][part]) for part in ("english", "german")}
    return (
        f'<div class="hero" data-model="{model}" data-megabytes="{megabytes}">'
        f"<p>A model trained with this book’s code translates “{first['english']}” as "
        f'“<span lang="de">{first["german"]}</span>” '
        '<a href="3-model-architecture.html">See it go through the model</a></p>'
        f'<script type="application/json">{data}</script></div>'
    )


def own_place(model: str, sentences: list[str]) -> str:
    """HTML that `static/figure1.js` fills with a field for the reader's own sentence."""
    megabytes = round(len(model_script(model)) / 1e6)
    return f'<div class="own" data-model="{model}" data-megabytes="{megabytes}"></div>'


def parser_place(model: str, sentences: list[str]) -> str:
    """HTML that `static/parse.js` fills: a field, and the line of the first sentence."""
    words = words_to_line(split_words(sentences[0]))
    line = loaded(model).translate(words, beam=4, alpha=0.3, max_extra=300)
    megabytes = round(len(model_script(model)) / 1e6)
    data = json.dumps({"sentence": sentences[0], "line": line}, ensure_ascii=False)
    data = data.replace("<", "\\u003c")
    return (
        f'<div class="live" data-show="parse" data-model="{model}" data-megabytes="{megabytes}">'
        f"<noscript><p>For “{html.escape(sentences[0])}” the parser "
        f"writes {html.escape(line)}; other sentences require JavaScript.</p></noscript>"
        f'<script type="application/json">{data}</script></div>'
    )


def playground_place() -> str:
    """HTML that `static/playground.js` fills: a recorded run, and when seeds solve a task."""
    data = json.loads((RESULTS / "playground-first.json").read_text(encoding="utf-8"))
    data["solved"] = {}
    with (RESULTS / "playground.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            updates = data["solved"].setdefault(row["comparison"], {"A": [], "B": []})
            updates[row["model"]] += [int(row["solved"])] if row["solved"] else []
    text = json.dumps(data, separators=(",", ":"))
    return (
        '<div class="live playground"><noscript><p>Training requires JavaScript.</p></noscript>'
        f'<script type="application/json">{text}</script></div>'
    )


def sampler_place(name: str, beginnings: list[str], rows: int = 8) -> str:
    """HTML that `static/sampler.js` fills: the likeliest tokens after the first beginning, their
    shares of the draws at its first temperature, and texts that were drawn at three."""
    import torch

    generator = load_language_model(MODELS / name)
    model, tokenizer = generator.model, generator.tokenizer
    ids = torch.tensor([generator.encode(beginnings[0])])
    with torch.no_grad():
        logits = model(ids)[0, -1]
    best, shares = logits.softmax(dim=-1).topk(rows), (logits / FIRST).softmax(dim=-1)
    shown = [(tokenizer.id_to_token(i).replace("▁", ""), round(p, 4), round(float(shares[i]), 4), i)
             for i, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)]  # fmt: skip
    rest = [round(1 - sum(row[place] for row in shown), 4) for place in (1, 2)]
    told = ", ".join(f"{name} {p:.1%}" for name, p, _, _ in shown[:3])
    shown.append((f"{model.config.vocab - rows:,} others", *rest, None))
    texts = [(t, generator.generate(beginnings[0], 60, temperature=t, seed=1))
             for t in (FIRST, 1.5, 0.5)]  # fmt: skip
    data = {"beginnings": beginnings, "rows": shown, "vocab": model.config.vocab, "texts": texts}
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    megabytes = f"{len(model_script(name)) / 1e6:.1f}"
    return (
        f'<div class="live sampler" data-show="sampler" data-model="{name}" '
        f'data-megabytes="{megabytes}"><noscript><p>After “{html.escape(beginnings[0])}” the model '
        f"expects {html.escape(told)} …; drawing from it requires JavaScript.</p></noscript>"
        f'<script type="application/json">{text}</script></div>'
    )


@cache
def model_script(name: str) -> str:
    """A trained model as a script, because a page opened from the disk can load nothing else."""
    folder = MODELS / name
    pack = lambda part: base64.b64encode(gzip.compress(part, mtime=0)).decode()
    read = lambda part: json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))
    tokenizer = json.dumps(read("tokenizer"), ensure_ascii=False, separators=(",", ":"))
    model = {"config": read("config"), "tokenizer": pack(tokenizer.encode()),
             "weights": pack((folder / "model.safetensors").read_bytes())}  # fmt: skip
    return f'(window.bookModels ??= {{}})["{name}"] = {json.dumps(model)};\n'


def write_models(chapters: Path, folder: Path) -> None:
    """Write the scripts of all models that chapters use."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [path.read_text(encoding="utf-8") for path in sources(chapters).values()]
    names = {name for text in texts for name in ASKED.findall(text)}
    if any(TURN.search(text) for text in texts):
        names.add(TURNED)
        (folder / "by-hand.js").write_text(turn_script(), encoding="utf-8")
    for name in names:
        (folder / f"{name}.js").write_text(model_script(name), encoding="utf-8")
