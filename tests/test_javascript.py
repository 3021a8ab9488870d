"""The model on the page: what the browser computes is what the package computes."""

import base64
import gzip
import hashlib
import json
import math
import re
import shutil
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import pytest
import torch
from contents import ROOT, sources
from outlines import broad_end

from annotated.data import END, PAD, START, UNK, Batch, encode_source, encode_target, pad_ids
from annotated.decoding import beam_search, length_penalty
from annotated.language_model import draw
from annotated.machinery.corpora.vocabularies import read_tokenizer
from annotated.machinery.files import resource_path
from annotated.machinery.formats.causal import load_language_model
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.recording import record_attention, switch_off, touch
from annotated.machinery.translator import Translator
from annotated.machinery.trees.linear import split_words, tree_to_line, words_to_line
from benchmarks.logs import page_names
from benchmarks.switches import KINDS
from book.charts import words

STATIC = ROOT / "book" / "static"
CAPTIONS, GENERAL, FIREFOX = "multi30k-en-de", "general-en-fr", "firefox-en-pt"
EVERYDAY = "tatoeba-en"  # a language model
PARSER, ZEBRAS = "craft-parser", "Two zebras sleep under the bridge."
live = pytest.importorskip("live", reason="needs the extra `book`")
BOX, CAT = "A man is carrying a heavy box.", "A black dog chases a white cat."
HOUSE = "The house near the river is white and very beautiful."
CHAIR = "When I saw the chair, it fell. | When I saw the car, it fell."
SITE = ROOT / "_build" / "html"
TEXTS = {page: path.read_text(encoding="utf-8") for page, path in sources().items()}
# These views need a model at once.
AT_ONCE = re.compile(
    r"```\{live\} (?!decoder|figure1|hero|parse|playground|sampler|stages|switched)"
)
PAGES = [page for page, text in TEXTS.items() if AT_ONCE.search(text)]
assert len(PAGES) > 2


def test_the_tokenizer_is_as_it_was_made() -> None:
    head, _, body = (STATIC / "tokenizers.js").read_bytes().partition(b" */\n")
    assert hashlib.sha256(body).hexdigest().encode() == head.split()[-1]
    assert b"Apache License" in (STATIC / "tokenizers.LICENSE").read_bytes()


def test_a_model_becomes_a_script_when_a_chapter_asks_for_it(tmp_path: Path) -> None:
    chapters = tmp_path / "chapters"
    chapters.mkdir()
    asked = f"# Title\n\n```{{live}} order\n:model: {CAPTIONS}\nA dog.\n```\n"
    (chapters / "one.md").write_text(asked, encoding="utf-8")
    live.write_models(chapters, tmp_path / "models")
    (script,) = (tmp_path / "models").iterdir()
    assert script.name == f"{CAPTIONS}.js"
    model = json.loads(script.read_text().partition(f'["{CAPTIONS}"] = ')[2].rstrip(";\n"))
    folder = resource_path("models") / CAPTIONS
    weights = gzip.decompress(base64.b64decode(model["weights"]))
    assert weights == (folder / "model.safetensors").read_bytes()
    assert model["config"] == json.loads((folder / "config.json").read_text())


# --------------------------------------------------------------------------- without a browser


class Scripts:
    """Functions of the scripts, called with JSON."""

    def __init__(self) -> None:
        names = (
            "elements",
            "search",
            "live",
            "decoder",
            "figure1",
            "film",
            "hero",
            "parse",
            "sampler",
            "bleu",
        )
        self.context = live.scripts(*names)
        languages = "{ ListFormat: class { format(all) { return all.join(' & '); } } }"
        self.context.eval(f"Intl = {languages}")  # QuickJS knows none

    def run(self, body: str, *given):
        """What a function body returns for arguments a, b, c and d."""
        values = ", ".join(map(json.dumps, given))
        call = f"(({', '.join('abcd'[: len(given)])}) => {{ {body} }})({values})"
        return json.loads(self.context.eval(f"JSON.stringify({call})"))

    def call(self, name: str, *given):
        return self.run(f"return {name}({', '.join('abcd'[: len(given)])})", *given)


@pytest.fixture(scope="module")
def js() -> Scripts:
    return Scripts()


def test_bleu_of_a_typed_output_is_that_of_the_standard_program(js: Scripts) -> None:
    metrics = pytest.importorskip("sacrebleu.metrics", reason="needs the extra `scores`")
    outputs = "Ein Mann fährt mit dem Rad durch eine Stadt.", "Zwei Hunde spielen im Schnee."
    references = [
        "Ein Mann fährt auf einem Fahrrad durch die Stadt.",
        "Zwei Hunde spielen im tiefen Schnee.",
    ]
    for first in outputs[0], references[0], "Ein Mann fährt.", "Rad, Rad, Rad!":
        given = [first, outputs[1]]
        found = js.run("return window.bleu.score(a, b).bleu", given, references)
        expected = metrics.BLEU(smooth_method="none").corpus_score(given, [references]).score
        assert found == pytest.approx(expected)


TREE = """const told = (node) => node.children
    ? `(${[node.label, ...node.children.map(told)].join(" ")})` : `(${node.tag} ${node.word})`;
return told(parse.read(a).tree)"""


def test_words_are_split_on_the_page_as_in_python(js: Scripts) -> None:
    pytest.importorskip("spacy", reason="needs the extra `parse`")
    for text in (
        *("The cat didn't sit.", "It's 3.5 mg, or 1,000 cells.", "“They’re well-known”, he said;"),
        *("Mice (two) can't sleep!", ZEBRAS, BOX, ""),
    ):
        assert js.call("parse.split", text) == split_words(text), text


def test_a_line_is_read_on_the_page_as_in_python(js: Scripts) -> None:
    penn = pytest.importorskip("annotated.machinery.trees.penn")
    with (resource_path("results") / "craft-test-trees.txt").open(encoding="utf-8") as lines:
        trees = list(penn.read_trees(lines, "craft-test-trees.txt"))
    told = lambda node: (
        f"({tree_to_line(node)[1:]})"
        if penn.is_tag(node)
        else f"({' '.join([node.label(), *map(told, node)])})"
    )
    for tree in trees:
        line, words = tree_to_line(tree), tree.leaves()
        assert js.run(TREE, line) == told(tree)
        found = js.call("parse.read", line)
        assert found["whole"]
        assert [one["word"] for one in found["words"]] == words_to_line(words).split()
        first, _, rest = line.partition(" ")
        for broken in rest, f"{line} {first}", line.replace("↑", "↑X", 1), f"{line} {line}":
            assert not js.call("parse.read", broken)["whole"]


def test_the_page_tells_a_tree_of_other_words_from_a_tree_of_these(js: Scripts) -> None:
    line = "↓S ↓NP →NN Mice ↑NP ↓VP →VBP sleep ↑VP ↑S"
    body = """const found = parse.read(a);
        return parse.judge(found, parse.strange(found.words, b), b)"""
    told = lambda line, *words: js.run(body, line, words)
    assert told(line, "Mice", "sleep").endswith("tree. It has the words of the sentence.")
    assert "tree. The sentence does not have “Mice”" in told(line, "Rats", "sleep")
    assert told(line, "Mice", "sleep", "well").endswith("Words of the sentence are missing.")
    assert "do not match" in told(line[:-3], "Mice", "sleep")
    # A wrong word that occurs later in the sentence does not make the words before it wrong.
    line = "↓S →TO to →VB like →TO to →VB sleep ↑S"
    assert told(line, "Mice", "like", "to", "sleep").endswith("does not have “to” there.")


SEARCH = """
const root = new search.Token(search.START), beam = new search.Beam(root, b);
let steps = 0;
for (; beam.canWin(); steps++) {
  for (const token of beam.open) {
    const over = (id) => token.length + 1 === b.limit && id !== search.END;
    token.next = new Map(a[token.id].map((log, id) => [id, over(id) ? -Infinity : log]));
  }
  beam.extend();
}
return [steps, beam.complete.map((token) => [token.ids, search.score(token, b.alpha)])];
"""


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_beam_with_room_for_all_finds_the_best_of_all_outputs(js, alpha: float) -> None:
    limit, vocab = 4, 5
    table = torch.randn(vocab, vocab).log_softmax(dim=-1)  # of the next id after each id
    scores = {}
    for length in range(1, limit + 1):
        for inner in product([i for i in range(vocab) if i != END], repeat=length - 1):
            ids = [START, *inner, END]
            total = sum(table[a, b].item() for a, b in pairwise(ids))
            scores[tuple(ids[1:])] = total / length_penalty(length, alpha)
    options = {"beam": len(scores), "alpha": alpha, "limit": limit, "nBest": len(scores)}
    steps, found = js.run(SEARCH, table.tolist(), options)
    assert {tuple(ids): score for ids, score in found} == pytest.approx(scores, abs=1e-5)
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    sooner, ((best, _), *_) = js.run(SEARCH, table.tolist(), {**options, "nBest": 1})
    assert tuple(best) == max(scores, key=scores.__getitem__) and sooner <= steps
    _, ((greedy, _),) = js.run(SEARCH, table.tolist(), {**options, "beam": 1, "nBest": 1})
    expected = [START]
    while expected[-1] != END:
        last = len(expected) == limit
        expected.append(END if last else int(table[expected[-1]].argmax()))
    assert greedy == expected[1:]


def test_the_decoder_names_and_ranks_pieces_as_python_does(js) -> None:
    pieces = ["▁The", "aw", ".", "▁(", "</s>", "▁", "▁▁x"]
    assert [js.call("elements.wordOf", piece) for piece in pieces] == words(pieces)
    logits = torch.randn(40)
    found = js.run("return [...decoder.likeliest(a)]", logits.tolist())
    expected = logits.topk(10)
    assert [i for i, _ in found] == expected.indices.tolist()
    weights = torch.rand(3, 7)
    found = js.call("elements.meanHeads", weights.flatten().tolist(), 7)
    assert found == pytest.approx(weights.mean(dim=0).tolist())


RIBBONS = """
const root = new search.Token(search.START), beam = new search.Beam(root, { beam: 4, limit: 6 });
for (; beam.canWin(); beam.extend()) {
  for (const token of beam.open) {
    const row = a[token.id].map((log, id) => (token.length === 5 && id !== search.END ? -99 : log));
    token.next = new Map(row.entries());
  }
}
const { steps } = beam, mine = decoder.bestOf(steps, 0.6), widthOf = () => 20;
const given = { steps, path: mine.path, time: b, size: 4, width: 600, widthOf };
const { columns, places, height, width } = decoder.placesOf(given);
const shown = (each) => ({ ...places.get(each), p: Math.exp(each.logProb) });
const family = (each) => ({ ...shown(each), parent: each.before && shown(each.before) });
return { columns: columns.map((column) => column.map(family)), height, width };
"""


@pytest.mark.parametrize("time", [0, 2, 5])
def test_ribbons_share_the_width_of_the_beam_and_none_lies_on_another(js, time: int) -> None:
    table = torch.randn(9, 9).log_softmax(dim=-1)
    drawn = js.run(RIBBONS, table.tolist(), time)
    assert len(drawn["columns"]) > 2
    for column in drawn["columns"]:
        all_of_it = sum(place["p"] for place in column)
        for place in column:
            assert place["tall"] == pytest.approx(max(1.5, 110 * place["p"] / all_of_it))
            if parent := place.get("parent"):  # it begins at the edge of the one before
                assert place["x"] > parent["x"] + parent["broad"]
                assert parent["y"] - 1e-6 <= place["from"]
                assert place["part"] == pytest.approx(parent["tall"] * place["p"] / parent["p"])
                assert place["from"] + place["part"] <= parent["y"] + parent["used"] + 1e-6
                assert parent["used"] <= parent["tall"] + 1e-6
        for above, below in pairwise(column):
            assert above["y"] + above["tall"] < below["y"]
        assert column[0]["y"] >= 0 and column[-1]["y"] + column[-1]["tall"] <= drawn["height"]


def test_figure_1_tells_the_largest_weights_scores_and_angles(js) -> None:
    source, target = ["A", "dog", "runs"], ["Ein", "Hund"]
    percent = (100 * torch.rand(2, 2, 3).softmax(dim=-1)).round().int()  # (layers, German, English)
    likely = [[["Ein", 7.5, 80], ["Der", 5.4, 10]], [["Hund", 6.1, 75], ["Mann", 1.2, 0]]]
    weights = {"cross": percent.tolist()}
    turned = {"decoder": [None, [12, 61], *[None] * 6]}
    data = {"source": source, "target": target, "weights": weights, "likely": likely}
    data |= {"turned": turned}
    view = {"stack": "decoder", "box": 4, "layer": 1, "pieces": 2, "marks": {"decoder": 1}}
    found = js.call("figure1.tell", view, data)
    ranked = percent[1, 1].sort(descending=True, stable=True)
    pairs = zip(ranked.indices.tolist(), ranked.values.tolist(), strict=True)
    named = ", ".join(f"“{source[i]}” {p}%" for i, p in pairs)
    assert found == f"“Hund” attends to {named}."
    lines = js.call("figure1.linesOf", view, data)
    widths = [max(1, 8 * p / 100) for q in (0, 1) for p in percent[1, q].tolist() if p > 1]
    assert [broad_end(line["d"]) for line in lines] == pytest.approx(widths, abs=0.11)
    # the marked on top
    assert ["marked" in line["class"] for line in lines] == [False] * 3 + [True] * 3
    assert "“Hund” 6.1, “Mann” 1.2" in js.call("figure1.tell", {**view, "box": 8}, data)
    assert js.call("figure1.tell", {**view, "box": 9}, data).endswith("“Hund” 75%.")
    assert js.call("figure1.tell", {**view, "box": 1}, data).endswith("“Hund” 61°, “Ein” 12°.")
    only = {**view, "box": 1, "pieces": 1}  # the second is not yet read
    assert js.call("figure1.tell", only, data).endswith("most: “Ein” 12°.")


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_figure_1_says_of_any_sentence_what_its_numbers_are(js, n: int) -> None:
    source, target = [*"abbc", ".", "end"], ["<s>", *"zywvutsr"][:n]
    written = [*target[1:], "end"]
    percent = lambda *size: (100 * torch.rand(4, *size)).round().int()
    weights = {"encoder": percent(6, 6), "decoder": percent(n, n).tril(), "cross": percent(n, 6)}
    weights = {kind: numbers.tolist() for kind, numbers in weights.items()}
    encoder = [None if box % 2 == 0 else torch.randperm(60)[:6].tolist() for box in range(18)]
    data = {"layers": 4, "source": source, "target": target, "written": written}
    data |= {"weights": weights, "turned": {"encoder": encoder}, "away": [*range(6)]}
    data |= {"lengths": [*range(10, 16)], "chances": [40] * n}
    data["likely"] = [[[piece, 2.0, 40], ["x", 1.0, 20]] for piece in written]
    stops = js.call("figure1.stopsOf", data)
    said = [stop["said"] for stop in stops]
    assert len(stops) == {1: 9, 2: 10}.get(n, 13)
    places = [tuple(stop[key] for key in ("stack", "box", "layer", "row")) for stop in stops]
    assert len(set(places)) == len(stops)  # no stop twice

    names = ["“a”", "the first “b”", "the second “b”", "“c”", "“.”", "“end”"]
    degrees = torch.tensor(encoder[1])
    most, least = int(degrees.argmax()), int(degrees.argmin())
    told = f"turns {names[most]} (length {10 + most}) by {degrees[most]}° and "
    assert told + f"{names[least]} (length {10 + least}) by only {degrees[least]}°" in said[1]
    averages = [round(sum(encoder[box]) / 6 + 1e-9) for box in (5, 3)]
    than = "more than" if averages[0] > averages[1] else "less than"
    than = "as much as" if averages[0] == averages[1] else than
    assert f"by {averages[0]}° on average, {than} attention did ({averages[1]}°)" in said[4]
    assert "“c” is now 3° away" in said[5]  # the last word

    def takes(row: list[int], names: list[str]) -> str:
        (one, i), (two, k) = sorted(((p, -i) for i, p in enumerate(row)), reverse=True)[:2]
        return f"takes most from {names[-i]} ({one}%) and {names[-k]} ({two}%)"

    assert f"“c” {takes(weights['encoder'][0][3], names)}" in said[2]
    assert takes(weights["cross"][3][0], names) in said[7]
    assert f"the end symbol has 40%. The translation is complete, after {n} pass" in said[-1]
    if n > 2:
        newest = max(range(1, n - 1), key=lambda row: weights["cross"][3][row][3])
        assert stops[10]["row"] == newest and stops[10]["pieces"] == newest + 1
        assert takes(weights["cross"][3][newest], names) in said[10]
        quoted = [f"“{piece}”" for piece in target]
        assert takes(weights["decoder"][1][newest], quoted) in said[9]
        assert said[11].startswith(f"“{written[newest]}” has 40%, its rival “x” 20%.")
    if n > 1:  # another one is likelier
        data["likely"][0] = [["x", 2.0, 55], [written[0], 1.0, 40]]
        told = js.call("figure1.stopsOf", data)[8]["said"]
        assert f"“x” has 55%, but the search writes “{written[0]}” (40%)" in told


def test_the_film_weighs_boxes_as_python_does(js) -> None:
    film = json.loads((resource_path("results") / "film.json").read_text(encoding="utf-8"))
    js.context.eval(f"const shown = film.read({json.dumps(film)})")
    pairs = {int(q): ks for q, ks in film["pairs"].items()}
    boxes = list(pairs.values())
    for i in 0, len(film["frames"]) - 1:
        rows = [[*map(int, row.split())] for row in film["frames"][i]["weights"][1][2]]
        own, *others = (
            sum(rows[q][k] for q, ks in zip(pairs, boxes[n:] + boxes[:n], strict=True) for k in ks)
            / (100 * len(boxes))
            for n in range(len(boxes))
        )
        found = js.run("return film.sharesOf(shown.frames[a].weights[1][2], shown.pairs)", i)
        assert found == pytest.approx([own, min(others), max(others)])
    first, last = film["frames"][0]["update"], film["frames"][-1]["update"]
    for n in first, 100, last:  # decades are equally far apart
        x = js.run("return film.scalesOf(shown).x(a)", n)
        assert x == pytest.approx(26 + 320 * math.log(n / first) / math.log(last / first))


def test_the_first_picture_merges_pieces_as_the_package_does(js) -> None:
    from annotated.machinery.visualization.weights import AttentionWeights, merge_words

    keys = ["▁A", "▁un", "believ", "able", "▁dog", ".", "<EOS>"]
    queries = ["▁Ein", "▁Hu", "nd", "."]
    weights = torch.rand(2, 3, len(queries), len(keys)).softmax(dim=-1)
    merge = """
        const path = [{}, ...a.queries.map((_, q) => ({ id: q, q }))];
        const looks = (q) => a.weights.map((heads) => heads.flatMap((rows) => rows[q]));
        path.slice(0, -1).forEach((token, q) => { token.cross = looks(q); });
        const side = (ids) => (ids.length === a.keys.length ? a.keys : a.queries);
        const names = (ids) => ids.map((id) => side(ids)[id]);
        const model = { transformer: { N_decoder: 2, h: 3 }, names, wordGroups: live.wordGroups };
        const token = { path, ids: a.queries.map((_, q) => q) };
        return hero.inWords(token, a.keys.map((_, k) => k), model);
    """
    given = {"weights": weights.tolist(), "keys": keys, "queries": queries}
    found, expected = js.run(merge, given), merge_words(AttentionWeights(weights, queries, keys))
    assert (found["source"], found["target"]) == (expected.keys, expected.queries)
    torch.testing.assert_close(torch.tensor(found["weights"]), expected.weights)


def test_the_first_picture_s_curves_are_as_wide_as_the_weights_and_side_by_side(js) -> None:
    table = torch.rand(3, 5).softmax(dim=-1)
    table[0] = torch.tensor([0.9, 0.08, 0.01, 0.005, 0.005])
    for row, curves in zip(table.tolist(), js.call("hero.bundle", table.tolist()), strict=True):
        assert [c["k"] for c in curves] == [k for k, weight in enumerate(row) if weight >= 0.03]
        assert [c["width"] for c in curves] == pytest.approx([18 * row[c["k"]] for c in curves])
        for one, two in pairwise(curves):
            assert two["aside"] - one["aside"] == pytest.approx((one["width"] + two["width"]) / 2)
        left, right = curves[0]["aside"] - curves[0]["width"] / 2, curves[-1]["width"] / 2
        assert left == pytest.approx(-(curves[-1]["aside"] + right))
    example = {"source": ["A", "dog", "."], "target": ["Ein", "Hund"]}
    table = [[0.7, 0.26, 0.04], [0.02, 0.9, 0.08]]
    said = js.call("hero.tell", [0, 1], example, table, [2, 0])
    assert said.startswith("In layer 3, head 1,") and "“Hund” (90%) & “Ein” (26%)" in said
    sinks = js.call("hero.tellSinks", {**example, "weights": [[table]]}, table, None)
    assert "6% of the weight is on the period" in sinks


# ----------------------------------------------------------------------------- in the browser

WHO = "A man", "Two young girls", "The brown dog", "An old woman in a red hat", "Several people"
DOES = "is sitting", "look at a bicycle", "plays the guitar", "jump over something", "runs"
WHERE = "in the snow", "near a large crowd of people on the street"
SENTENCES = [" ".join(parts) + "." for parts in product(WHO, DOES, WHERE)]
HOSTILE = [
    "", " ", "  a  b ", "\t\n x", "</s>", "<s> <pad> <unk>", "a</s>b", "e\u0301", "Å ﬁ ①", "😀",
    "👩\u200d👩\u200d👧 family", "日本語のテスト", "Привет мир", "مرحبا", "ที่นี่", "\u200b",
    "\ufeffa", "a\u00a0b", "a\u2028b", "\x00a", "▁", "a▁b", "▁▁", "...", "a.b,c;d!?", "don't",
    "“quoted” — ‘x’", "$5 + 3 < 7 ^ ~ `", "x" * 300, "!" * 90, "ß İ ı", "\ud7ff\ue000", "𝔘𝔫𝔦",
    "a\r\nb", "\u3000全角", "a_b-c/d\\e", "¿¡«»", "\u0300abc", "한국어", "\U0010ffff",
    "\u0378", "a\u0345\u0301b", "\ud800 alone",
]  # fmt: skip


@torch.no_grad()
def stages_of(translator: Translator, text: str):
    """What the vectors resemble after each sub-layer, the target's ids, and names of ids."""
    model, tokenizer = translator.model, translator.tokenizer
    src = torch.tensor(encode_source(tokenizer, [text]))
    answer = torch.tensor(encode_target(tokenizer, [translator.translate(text)]))
    seen, hooks = {}, []
    boxes = ["tgt_embed"] + [f"decoder.layers.{n}.sublayer.{i}" for n in range(4) for i in range(3)]
    for name in boxes:
        keep = lambda box, given, output, name=name: seen.update({name: output})
        hooks.append(model.get_submodule(name).register_forward_hook(keep))
    model(src, answer[:, :-1])
    for hook in hooks:
        hook.remove()
    likely = {name: model.generator(x)[0].exp().topk(5) for name, x in seen.items()}
    return likely, answer, lambda i: words([tokenizer.id_to_token(i)])[0]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like that of the site, with one page that has two models."""
    from head import colors

    from book.pictures.stages import draw_stages

    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(STATIC, folder / "_static")
    places = [
        live.live_place("translator", CAPTIONS, ["A dog runs.", "A girl is reading a book."]),
        live.live_place("decoder", CAPTIONS, [BOX]),
        *(live.live_place(kind, CAPTIONS, [CAT]) for kind in ("order", "scores", "switchboard")),
        live.live_place("circuit", FIREFOX, [CHAIR]),
        live.live_place("dial", FIREFOX, [HOUSE]),
        draw_stages(*stages_of(load_pretrained(CAPTIONS), CAT)).data,
        live.live_place("stages", CAPTIONS, [CAT]),
        live.sampler_place(EVERYDAY, ["She was", "The train"]),
        live.parser_place(PARSER, [ZEBRAS]),
    ]
    (folder / "models").mkdir()
    for name in CAPTIONS, GENERAL, FIREFOX, EVERYDAY, PARSER:
        (folder / "models" / f"{name}.js").write_text(live.model_script(name), encoding="utf-8")
    (folder / "_static" / "palette.css").write_text(colors(), encoding="utf-8")
    styles = (f'<link rel="stylesheet" href="_static/{name}.css">' for name in ("palette", "book"))
    scripts = (f'<script defer src="_static/{name}.js"></script>' for name in ("elements", "book"))
    head = "".join([*styles, *scripts])
    page = f'<html lang="en"><head><meta charset="utf-8">{head}</head>'
    (folder / "page.html").write_text(f"{page}<body>{''.join(places)}</body></html>", "utf-8")
    return folder


@pytest.fixture
def tab(browser, site: Path):
    """The page, without a network; anything that it reports fails the test."""
    context = browser.new_context(offline=True)
    tab = context.new_page()
    reports: list[str] = []
    tab.on("console", lambda message: reports.append(message.text))
    tab.on("pageerror", lambda error: reports.append(str(error)))
    tab.goto((site / "page.html").as_uri())
    tab.wait_for_selector(".live form")
    yield tab
    context.close()
    assert not reports


@pytest.mark.parametrize("part", ["%", "%zz", "%E4", "a%20b%", "%FF%FE", "\\", "", "__proto__"])
def test_a_page_lives_whatever_part_of_it_is_asked_for(browser, site: Path, part: str) -> None:
    tab, reports = browser.new_page(), list[str]()
    tab.on("pageerror", lambda error: reports.append(str(error)))
    tab.goto(f"{(site / 'page.html').as_uri()}#{part}")
    tab.wait_for_selector(".live form")
    tab.evaluate("location.hash = '#%%'; location.hash = '#%C3%BC'")
    made = "const made = document.createElement('details'); document.body.append(made);"
    tab.evaluate(f"{made} made.innerHTML = '<p id=100%>'; location.hash = '#100%'")
    tab.wait_for_selector("details[open]")
    tab.close()
    assert not reports


@pytest.fixture(scope="module")
def translators() -> dict[str, Translator]:
    return {name: load_pretrained(name) for name in (CAPTIONS, GENERAL, FIREFOX, PARSER)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [CAPTIONS, GENERAL, FIREFOX])
def test_ids_and_text_are_those_of_python(tab, name: str) -> None:
    tokenizer = read_tokenizer(resource_path("models") / name / "tokenizer.json", 40_000)
    # SentencePiece's tables leave combining marks in their order, which JavaScript does not.
    texts = [t for t in HOSTILE + SENTENCES if not (name == FIREFOX and "\u0345" in t)]
    ids = encode_source(tokenizer, texts)
    run = """async ([name, texts]) => {
        const model = await window.liveModel(name);
        return JSON.parse(texts).map((text) => model.encode(text));
    }"""
    # As JSON, else a lone surrogate would not get into the browser.
    found = tab.evaluate(run, [name, json.dumps(texts)])
    assert [row["ids"] for row in found if not row["cut"]] == [row for row in ids if len(row) <= 60]
    pieces = torch.randint(4, tokenizer.get_vocab_size(), (300, 7)).tolist()
    back = """async ([name, rows]) => rows.map((await window.liveModel(name)).decode)"""
    assert tab.evaluate(back, [name, pieces]) == tokenizer.decode_batch(pieces)
    assert tab.evaluate(back, [name, [[], [3, 3]]]) == ["", ""]


READ = """async ([name, rows, options]) => {
    const { transformer } = await window.liveModel(name);
    return JSON.stringify(rows.map((ids) => {
        const search = transformer.search(ids, options);
        let step = search.next();
        while (!step.done) step = search.next();
        const { hypotheses, source } = step.value;
        const path = hypotheses[0].token.path.slice(0, -1); // the end symbol looks at nothing
        return {
            hypotheses: hypotheses.map(({ token, score }) => ({
                ids: token.path.slice(1, -1).map(({ id }) => id), log_prob: token.logProb, score,
            })),
            encoder: source.weights.map((layer) => layer.map((row) => [...row])),
            decoder: path.map(({ self }) => self.map((row) => [...row])),
            cross: path.map(({ cross }) => cross.map((row) => [...row])),
        };
    }));
}"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "many"), [(CAPTIONS, 50), (GENERAL, 10), (FIREFOX, 10)])
@pytest.mark.parametrize("beam", [1, 4])
def test_search_and_attention_are_those_of_python(tab, translators, name, many, beam) -> None:
    translator = translators[name]
    rows = encode_source(translator.tokenizer, SENTENCES[:: len(SENTENCES) // many])
    options = {"beam": beam, "nBest": beam}
    for ids, found in zip(rows, json.loads(tab.evaluate(READ, [name, rows, options])), strict=True):
        src = torch.tensor([ids])
        expected = beam_search(translator.model, src, beam=beam, n_best=beam)[0]
        assert [h["ids"] for h in found["hypotheses"]] == [h.ids for h in expected]
        for key in "log_prob", "score":
            numbers = [getattr(h, key) for h in expected]
            assert [h[key] for h in found["hypotheses"]] == pytest.approx(numbers, abs=1e-3)
        check_attention(translator.model, ids, expected[0].ids, found)


def means_of(name: str) -> dict[str, torch.Tensor]:
    means = live.switches(name)["means"]
    return {layer: torch.tensor(mean) / 10_000 for layer, mean in means.items()}


FOLLOW = """async ([name, text]) => {
    await window.loadScript("figure1.js");
    const model = await window.liveModel(name);
    const followed = await window.figure1.follow(model, model.encode(text).ids);
    return followed;
}"""


@pytest.mark.slow
@pytest.mark.parametrize("sentence", ["A man is riding a bicycle.", CAT, BOX, *SENTENCES[7::17]])
def test_figure_1_shows_of_any_sentence_what_the_page_computes(tab, sentence: str) -> None:
    page = page_names("3-model-architecture", "translator", "boxes", "layers", "names")
    found, expected = tab.evaluate(FOLLOW, [CAPTIONS, sentence]), page["picture"](sentence)
    for key in "german", "layers", "source", "target", "written":
        assert found[key] == expected[key]
    close = partial(pytest.approx, abs=1.01)  # two roundings of nearly the same number
    for stack in "encoder", "decoder":
        for row, packed in zip(found["strips"][stack], expected["strips"][stack], strict=True):
            assert row == close(list(memoryview(base64.b64decode(packed)).cast("b")))
        for row, degrees in zip(found["turned"][stack], expected["turned"][stack], strict=True):
            assert (row is None) == (degrees is None) and (row or []) == close(degrees or [])
    for key in "lengths", "away", "chances":
        assert found[key] == close(expected[key])
    for kind, layers in expected["weights"].items():
        for rows, given in zip(found["weights"][kind], layers, strict=True):
            for row, percent in zip(rows, given, strict=True):
                assert row == close(percent[: len(row)]) and sum(percent[len(row) :]) == 0
    for row, likely in zip(found["likely"], expected["likely"], strict=True):
        for (piece, score, percent), (name, *numbers) in zip(row, likely, strict=True):
            assert piece == name
            assert [score, percent] == [pytest.approx(numbers[0], abs=0.11), close(numbers[1])]


SWITCHED = """async ([name, text]) => {
    await window.loadScript("switched.js");
    const model = await window.liveModel(name);
    const found = [];
    for (const touch of window.switched.changes(model.transformer))
        found.push(await window.switched.translate(model, model.encode(text).ids, touch));
    return found;
}"""


def test_a_kind_of_box_is_switched_off_as_on_the_page(tab) -> None:
    names = "translator", "layers", "width", "off", "no_positions", "switched"
    page = page_names("3-model-architecture", *names)
    expected = [re.sub(r"\.{4,}", "…", text) for text in page["translations"](CAT)]
    assert tab.evaluate(SWITCHED, [CAPTIONS, CAT]) == expected and len(expected) == 7


def test_the_page_parses_as_python_does(tab, translators) -> None:
    from playwright.sync_api import expect

    place = tab.locator(".live[data-show=parse]")
    note, line = place.locator(".note"), place.locator("code")
    expect(note).to_contain_text("“zumoras”")
    for text in "The girl who sings has a dog.", "Mice were injected with 3.5 mg of it.", ZEBRAS:
        place.get_by_label("English").fill(text)
        place.get_by_role("button", name="Parse").click()
        expect(note).to_have_text(re.compile("tree"), timeout=60_000)
        words = words_to_line(split_words(text))
        given = {"beam": 4, "alpha": 0.3, "max_extra": 300}
        expect(line).to_have_text(translators[PARSER].translate(words, **given))
        svg = place.locator("svg.tree")
        assert svg.locator(".tree-phrase").count() == line.inner_text().count("↓")
        found = svg.locator(".tree-word, .tree-wrong").all_text_contents()
        assert " ".join(found) == re.sub(r"[↓↑→]\S+ ?", "", line.inner_text()).strip()


MEAN = """async ([name, ids, beginning, pair, layer, width, mean]) => {
    const { transformer } = await window.liveModel(name);
    const replace = (rows) => {
        for (const row of rows) for (let i = 0; i < width; i++) row[i] = mean[i] / 10_000;
    };
    const steps = transformer.contrast(ids, beginning, pair, { [`${layer}.w_o:in`]: replace });
    for (;;) {
        const { done, value } = steps.next();
        if (done) return value;
    }
}"""

PATCH = """async ([name, ids, others, beginning, pair, parts]) => {
    const { transformer } = await window.liveModel(name);
    const end = (steps) => {
        for (;;) {
            const { done, value } = steps.next();
            if (done) return value;
        }
    };
    return parts.map(([part, row, from, to]) => {
        const [kept, at] = [[], { step: 0 }];
        const keep = { [part]: (rows) => kept.push(rows.map((x) => x.slice())) };
        const clean = end(transformer.contrast(others, beginning, pair, keep));
        const take = (rows) => {
            const source = kept[at.step++];
            for (const [i, x] of rows.entries())
                if (row === null || i === row) x.set(source[i].subarray(from, to), from);
        };
        return [clean, end(transformer.contrast(ids, beginning, pair, { [part]: take }))];
    });
}"""


@pytest.mark.slow
def test_what_is_patched_has_the_effect_that_it_has_in_python(tab, translators) -> None:
    translator, page = translators[FIREFOX], page_names("who-is-it")
    sources = ["When I saw the chair, it fell.", "When I saw the car, it fell."]
    begin, words = "Quando eu vi a cadeira,", ("ela", "ele")
    rows = encode_source(translator.tokenizer, sources)
    ids = translator.tokenizer.encode(begin).ids
    pair = [translator.tokenizer.encode(word).ids[0] for word in words]
    whole, head = slice(None), slice(0, 32)
    parts = {  # the word, a head of the encoder and of the decoder, three cells of memory
        "encoder.layers.0": ([4, 0, 256], (whole, 4)),
        "encoder.layers.1.self_attn.w_o:in": ([None, 0, 32], (whole, whole, head)),
        "decoder.layers.1.src_attn.w_o:in": ([None, 192, 224], (whole, whole, slice(192, 224))),
        "decoder.layers.1.self_attn": ([None, 150, 256], (whole, whole, slice(150, 256))),
    }
    asked = [[name, *place] for name, (place, _) in parts.items()]
    found = tab.evaluate(PATCH, [FIREFOX, *rows, ids, pair, asked])
    one, other = ([text] for text in sources)
    clean = page["contrast"](translator, other, [begin], words).item()
    expected = page["patch"](
        translator,
        one,
        other,
        [begin],
        words,
        {name: [(name, *at)] for name, (_, at) in parts.items()},
    )
    for (plain, patched), value in zip(found, expected.values(), strict=True):
        assert plain == pytest.approx(clean, abs=1e-4)
        assert patched == pytest.approx(value.item(), abs=1e-4)
    assert len({round(patched, 3) for _, patched in found}) == len(parts)


def check_attention(model, src: list[int], tgt: list[int], found: dict) -> None:
    """All weights, within 1e-5."""
    batch = Batch(pad_ids([src]), pad_ids([[START, *tgt, 1]]))
    with torch.no_grad(), record_attention(model) as whole:
        model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    close = partial(torch.testing.assert_close, rtol=0, atol=1e-5)
    for n in range(len(model.encoder.layers)):
        seen = torch.tensor(found["encoder"][n])  # (len, h · len)
        seen = seen.unflatten(1, (-1, len(src))).transpose(0, 1)
        close(seen, whole[f"encoder.layers.{n}.self_attn"][0])
    for n in range(len(model.decoder.layers)):
        for place, token in enumerate(found["cross"]):
            seen = torch.tensor(token[n]).unflatten(0, (-1, len(src)))
            close(seen, whole[f"decoder.layers.{n}.src_attn"][0, :, place])
        for place, token in enumerate(found["decoder"]):
            if not token:  # a recurrent decoder
                continue
            seen = torch.tensor(token[n], dtype=torch.float32).unflatten(0, (-1, place + 1))
            close(seen, whole[f"decoder.layers.{n}.self_attn"][0, :, place, : place + 1])


# ------------------------------------------------------------------------------- on the page


def ask(place, text: str) -> None:
    """Type a sentence, and wait for the end of its translation."""
    place.locator("input[type=text]").fill(text)
    place.locator("form button").click()
    settle(place)


def settle(place) -> None:
    """Wait for the end of the last search; what an earlier one found is shown until it begins."""
    place.locator(".translation[aria-busy=false]").wait_for(state="attached", timeout=60_000)


def test_the_page_translates_and_shows_what_python_shows(tab, translators) -> None:
    place, translator = tab.locator(".live").nth(0), translators[CAPTIONS]
    text = "A young girl in a red dress is jumping into the water."
    ask(place, text)
    best, *_ = kept = next(translator.candidates([text], n_best=4))
    assert place.locator(".translation").inner_text() == best.text
    rows = [row.split("\t") for row in place.locator(".kept tbody tr").all_inner_texts()]
    assert rows == [[t.text, f"{t.log_prob:.2f}", f"{t.score:.3f}"] for t in kept]
    ids, tgt = encode_source(translator.tokenizer, [text, best.text])
    batch = Batch(pad_ids([ids]), pad_ids([[START, *tgt]]))
    with torch.no_grad(), record_attention(translator.model) as seen:
        translator.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    weights = torch.stack([seen[f"decoder.layers.{n}.src_attn"][0] for n in range(4)])
    for layer, head, expected in [
        ("4", "mean of all", weights[3].mean(dim=0)),
        ("2", "3", weights[1, 2]),
        ("mean of all", "mean of all", weights.mean(dim=(0, 1))),
    ]:
        place.get_by_label("Layer").select_option(layer)
        place.get_by_label("Head").select_option(head)
        drawn = "all => all.map((cell) => parseFloat(cell.style.getPropertyValue('--weight')))"
        cells = place.locator(".looks tbody td").evaluate_all(drawn)
        assert cells == pytest.approx((100 * expected).flatten().tolist(), abs=0.051)
    place.get_by_label("Search").select_option("greedy")
    settle(place)
    assert place.locator(".kept tbody tr").count() == 1
    assert place.locator(".translation").inner_text() == translator.translate(text, beam=1)
    (speed,) = re.findall(r"(\d+) tokens a second here", place.locator(".speed").inner_text())
    assert int(speed) > 0


@pytest.mark.slow
def test_who_types_fast_gets_the_last_sentence(tab, translators) -> None:
    place = tab.locator(".live").nth(0)
    place.locator("form button").click()
    place.locator(".examples button").nth(0).click()  # while the model is loading
    ask(place, "A dog.")
    assert place.locator(".looks").count() == 1
    text = "A man in a blue shirt is standing on a ladder."
    place.locator("input").fill("")
    place.locator("input").press_sequentially(text, delay=5)
    settle(place)
    tab.wait_for_timeout(300)  # time in which an older search could still write
    assert place.locator(".kept tbody tr").count() == 4
    assert place.locator(".translation").inner_text() == translators[CAPTIONS].translate(text)


@pytest.mark.slow
def test_any_text_gets_an_answer(tab) -> None:
    place = tab.locator(".live").nth(0)
    for text in "😀", "日本語のテスト", "</s>", "a " * 3000, "x" * 30_000:
        ask(place, text)
        cut = place.locator(".note").inner_text()
        assert ("60 pieces" in cut) == (len(text) > 1000)
    ask(place, "   ")
    assert place.locator(".translation").inner_text() == ""
    assert not place.locator(".looks").is_visible()


@pytest.mark.slow
def test_what_is_switched_off_is_missing_in_python_too(tab, translators) -> None:
    place, translator = tab.locator(".live").nth(4), translators[CAPTIONS]
    text, off = "A young girl in a red dress is jumping into the water.", {}
    ask(place, text)
    every = list(range(translator.model.config.h))
    means = means_of(CAPTIONS)
    for label, heads in {
        "Encoder, at its own words, layer 2, head 3": {"encoder.layers.1.self_attn": [2]},
        "Decoder, at what is written, layer 4": {"decoder.layers.3.self_attn": every},
        "Decoder, at the source": {f"decoder.layers.{n}.src_attn": every for n in range(4)},
    }.items():
        switch, off = place.get_by_role("button", name=label, exact=True), off | heads
        assert switch.get_attribute("aria-pressed") == "true"
        switch.click()
        settle(place)
        with switch_off(translator.model, off, means):
            assert place.locator(".translation").inner_text() == translator.translate(text)
        assert switch.get_attribute("aria-pressed") == "false"
        assert re.search(r"\d\.\d{3} nats", place.locator(".note[role=status]").inner_text())
    assert translator.translate(text) in place.inner_text()  # beside it, as a reminder
    place.get_by_role("button", name="All on").click()
    settle(place)
    assert place.locator(".translation").inner_text() == translator.translate(text)
    assert place.locator("[aria-pressed=false]").count() == 0


@pytest.mark.slow
def test_the_book_s_choice_of_heads_is_as_large_as_the_reader_s(tab, translators) -> None:
    place, translator = tab.locator(".live").nth(4), translators[CAPTIONS]
    order = live.switches(CAPTIONS)["order"]

    def check(off: dict[str, list[int]]) -> None:
        settle(place)
        with switch_off(translator.model, off, means_of(CAPTIONS)):
            assert place.locator(".translation").inner_text() == translator.translate(CAT)

    def of_book(n: int) -> dict[str, list[int]]:
        off: dict[str, list[int]] = {}
        for kind, layer, head, _ in order[:n]:
            off.setdefault(KINDS[kind].format(layer - 1), []).append(head - 1)
        return off

    ask(place, CAT)
    place.get_by_role("button", name="Decoder, at the source, layer 1", exact=True).click()
    check(mine := {"decoder.layers.0.src_attn": [0, 1, 2, 3]})
    place.get_by_role("button", name="The book’s 4 instead").click()
    check(of_book(4))
    assert place.locator("td [aria-pressed=false]").count() == 4
    place.get_by_role("button", name="Your 4 again").click()
    check(mine)
    slider = place.get_by_role("slider")
    assert slider.input_value() == "4"
    slider.press("End")
    check(of_book(len(order)))
    slider.press("ArrowLeft")
    check(of_book(len(order) - 1))
    said = place.locator(".note[role=status]").inner_text()
    assert f"{len(order) - 1} of {len(order)} heads are off" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", [CAPTIONS, FIREFOX])
def test_a_head_s_mean_has_the_effect_that_it_has_in_python(tab, translators, name: str) -> None:
    translator, layer = translators[name], "decoder.layers.1.src_attn"
    data, means = live.switches(name), means_of(name)
    ids = encode_source(translator.tokenizer, [CAT])[0]
    begin, pair = [START, 70, 80], [71, 81]
    width = translator.model.config.d_model // translator.model.config.h
    asked = [name, ids, begin[1:], pair, layer, width, data["means"][layer]]
    with torch.no_grad(), switch_off(translator.model, {layer: [0]}, means):
        out = translator.model(torch.tensor([ids]), torch.tensor([begin]))
        log_probs = translator.model.generator(out)[0, -1]
    expected = log_probs[pair[0]] - log_probs[pair[1]]
    assert tab.evaluate(MEAN, asked) == pytest.approx(expected.item(), abs=1e-4)


@pytest.mark.slow
def test_three_cells_of_memory_turn_the_adjectives(tab, translators) -> None:
    place, translator = tab.locator(".live").nth(6), translators[FIREFOX]
    cells = live.dialed()
    name, columns = f"decoder.layers.{cells['layer']}.self_attn", cells["cells"]
    feminine, masculine = (torch.tensor(cells[gender]) for gender in "fm")
    ask(place, HOUSE)
    whole = place.locator(".translation").inner_text()
    assert whole == translator.translate(HOUSE)
    slider = place.get_by_role("slider")
    for key, value in ("Home", -1.0), ("ArrowRight", -0.9), ("End", 1.0):
        slider.press(key)
        settle(place)
        values = masculine + (value + 1) / 2 * (feminine - masculine)

        def hold(x, values=values):
            x = x.clone()
            x[..., columns] = values
            return x

        with touch(translator.model, {name: hold}):
            assert place.locator(".translation").inner_text() == translator.translate(HOUSE)
        if key == "Home":
            assert whole in place.inner_text() and "branco" in place.inner_text()
    place.get_by_role("button", name="Let go").click()
    settle(place)
    assert place.locator(".translation").inner_text() == whole


@pytest.mark.slow
def test_the_map_shows_where_the_gender_of_a_noun_is(tab, translators) -> None:
    place, translator = tab.locator(".live").nth(5), translators[FIREFOX]
    one, other = CHAIR.split(" | ")
    place.get_by_role("button", name="Compare").click()
    place.get_by_text("Choose a cell").wait_for(timeout=60_000)
    whole = translator.translate([one, other], beam=1)
    assert place.locator(".translation").inner_text() == " | ".join(whole)
    rows = place.locator("tbody tr").all()
    assert len(rows) == 7 and rows[-1].locator("th").inner_text() == "embedding"
    found = [[cell.inner_text() for cell in row.get_by_role("button").all()] for row in rows]
    assert found[-1][4] == "1.00" and set(found[-1][:4] + found[-1][5:]) == {"0.00"}
    place.get_by_role("button", name="embedding, chair → car: 1.00").click()
    place.get_by_text("from the other sentence:").wait_for(timeout=60_000)
    said = place.locator("[role=status]").inner_text()
    assert said.endswith(translator.translate(other))  # all that differs was taken over
    one, other = "If the house is good, I will buy it.", "If the car is good, I will buy it."
    place.locator("input").nth(0).fill(one)
    place.locator("input").nth(1).fill(other)
    place.get_by_role("button", name="Compare").click()
    place.get_by_text("nats between").wait_for(timeout=60_000)
    place.get_by_text("Choose a cell").wait_for(timeout=60_000)
    place.get_by_role("button", name=re.compile("^layer 2, it: 1")).click()
    place.get_by_text("from the other sentence:").wait_for(timeout=60_000)
    assert place.locator("[role=status]").inner_text().endswith("comprá-lo.")
    place.locator("select").select_option("boa or bom")
    place.get_by_text("Choose a cell").wait_for(timeout=60_000)
    names = [f"encoder.layers.{n}" for n in range(5, -1, -1)] + ["src_embed"]
    places = range(len(encode_source(translator.tokenizer, [one])[0]))
    parts = {(n, i): [(name, slice(None), i)] for n, name in enumerate(names) for i in places}
    begin, words, page = ["Se a casa é"], ("boa", "bom"), page_names("who-is-it")
    clean, far = (page["contrast"](translator, [text], begin, words) for text in (one, other))
    new = page["patch"](translator, [one], [other], begin, words, parts)
    for n, row in enumerate(place.locator("tbody tr").all()):
        shown = [float(x.replace("−", "-")) for x in row.locator("td").all_inner_texts()]
        expected = [((clean - new[n, i]) / (clean - far)).item() for i in places]
        assert shown == pytest.approx(expected, abs=0.0051)
    place.locator("input").nth(1).fill("If the big car is good, I will buy it.")
    place.get_by_role("button", name="Compare").click()
    place.get_by_text("have 12 and 13 pieces").wait_for(timeout=60_000)
    assert place.locator("table").count() == 0


@pytest.mark.slow
def test_lines_of_a_sentence(tab, translators) -> None:
    from annotated.machinery.visualization.weights import merge_words, read_attention

    place = tab.locator(".live").nth(4)
    text = "The unbelievable keys, that she lost, are here."
    ask(place, text)
    words = merge_words(read_attention(translators[CAPTIONS], text)["encoder"])
    layer, origin = place.locator("select").all()
    layer.select_option("3")
    names = place.locator("svg text").all_text_contents()
    assert names[::2] == names[1::2] == [*words.queries[:-1], "end"]
    opacity = "lines => lines.map((line) => line.getAttribute('stroke-opacity'))"
    first = "[stroke='var(--head-0)']"
    lines = place.locator(f"svg line{first}").evaluate_all(opacity)
    expected = [weight for row in words.weights[2, 0].tolist() for weight in row if weight >= 0.02]
    assert [float(line) for line in lines] == pytest.approx(expected, abs=0.0051)
    origin.select_option("2 unbelievable")
    shown = place.locator(f"svg g:visible line{first}")
    assert shown.count() == sum(weight >= 0.02 for weight in words.weights[2, 0, 1].tolist())


def test_without_positions_the_order_of_the_pieces_makes_no_difference(tab) -> None:
    place, told = tab.locator(".live").nth(2), {}
    ask(place, CAT)
    for positions in "with positions", "all at position 0":
        place.get_by_label("Encoder").select_option(positions)
        for order in "as written", "backwards", "shuffled":
            place.get_by_label("Order").select_option(order)
            settle(place)
            read = place.locator(".note").last.inner_text().removeprefix("Read: ").split()
            assert sorted(read) == sorted([*CAT[:-1].split(), ".", "end"])
            told[positions, order] = place.locator(".translation").inner_text()
    assert len({text for (positions, _), text in told.items() if positions[0] == "a"}) == 1
    assert len({text for (positions, _), text in told.items() if positions[0] == "w"}) == 3


def test_scores_before_and_after_the_softmax(tab, translators) -> None:
    place, translator = tab.locator(".live").nth(3), translators[CAPTIONS]
    ask(place, CAT)
    attention = translator.model.encoder.layers[1].self_attn
    src = torch.tensor(encode_source(translator.tokenizer, [CAT]))
    d_k = attention.w_k.out_features // attention.h
    with torch.no_grad():
        states = translator.model.encoder.layers[0](translator.model.src_embed(src), None)[0]
        part = slice(2 * d_k, 3 * d_k)  # the third head; the fifth piece asks
        product = attention.w_k(states)[:, part] @ attention.w_q(states)[4, part]
    for label, option in ("Layer", "2"), ("Head", "3"), ("From", "5 a"):
        place.get_by_label(label).select_option(option)
    rows = [row.split("\t") for row in place.locator(".kept tbody tr").all_inner_texts()]
    columns = [[float(row[i].replace("−", "-")) for row in rows] for i in (1, 2, 4)]
    assert columns[0] == pytest.approx((product - product.max()).tolist(), abs=0.006)
    for found, size in (columns[1], d_k**0.5), (columns[2], 1.0):
        assert found == pytest.approx((product / size).softmax(dim=0).tolist(), abs=0.0006)


@pytest.mark.slow
def test_the_search_that_comes_with_the_page_is_that_of_python(translators) -> None:
    known, translator = live.followed(CAPTIONS, BOX), translators[CAPTIONS]
    src = torch.tensor(encode_source(translator.tokenizer, [BOX]))
    for said, (pairs, looks) in known["hypotheses"].items():
        tgt = torch.tensor([[START, *map(int, said.split())]])
        with torch.no_grad(), record_attention(translator.model) as seen:
            probs = translator.model.generator(translator.model(src, tgt))[0, -1].exp()
        probs[[START, PAD, UNK]] = 0
        assert [i for i, _ in pairs] == probs.topk(10).indices.tolist()
        found = torch.tensor([log_prob for _, log_prob in pairs]).exp()
        torch.testing.assert_close(found, probs.topk(10).values, rtol=0, atol=1e-3)
        weights = seen["decoder.layers.3.src_attn"][0, :, -1].mean(dim=0)
        torch.testing.assert_close(torch.tensor(looks), weights, rtol=0, atol=1e-3)
    for beam in 1, 2, 3, 4:
        for hypothesis in beam_search(translator.model, src, beam=beam, n_best=beam)[0]:
            ids = [*hypothesis.ids, END]
            steps = [known["hypotheses"][" ".join(map(str, ids[:n]))][0] for n in range(len(ids))]
            total = sum(dict(pairs)[i] for pairs, i in zip(steps, ids, strict=True))
            assert total == pytest.approx(hypothesis.log_prob, abs=1e-3)


def test_the_reader_decodes_beside_the_beam(tab, translators) -> None:
    from playwright.sync_api import expect

    place, translator = tab.locator(".decoder"), translators[CAPTIONS]
    told, rows = place.locator("[role=status]"), place.locator("tbody tr")
    step, back = (place.get_by_role("button", name=name, exact=True) for name in ("Step", "Back"))

    def to_the_end() -> None:
        while step.get_attribute("aria-disabled") == "false":
            before = told.inner_text()
            step.click()
            expect(told).not_to_have_text(before)

    def shown(value: float, digits: int = 3) -> str:
        return f"{value:.{digits}f}".replace("-", "−")

    def row(each) -> str:
        return f"{each.text}\t{shown(each.score)}"

    (greedy,) = next(translator.candidates([BOX], beam=1))
    best, *others = next(translator.candidates([BOX], beam=4, n_best=4))
    assert greedy.text != best.text
    to_the_end()
    assert rows.all_inner_texts() == [f"You\t{row(greedy)}", f"Beam\t{row(best)}"]
    assert told.inner_text().startswith(f"The beam wins: its score is {shown(best.score)}")
    drawn = place.locator("svg text").all_text_contents()
    assert {shown(each.score, 2) for each in (best, *others)} <= set(drawn)
    place.get_by_text("Settings").click()
    place.get_by_label("α").select_option("0")
    assert f"{shown(best.log_prob)}, yours {shown(greedy.log_prob)}" in told.inner_text()
    place.get_by_label("α").select_option("0.6")
    while back.get_attribute("aria-disabled") == "false":
        back.click()
    tokens = translator.tokenizer.encode(best.text).tokens
    for name in words(tokens[:4]):  # what greedy search misses
        place.get_by_role("button", name=re.compile(f"^{name},")).click()
    to_the_end()
    assert tab.evaluate("window.bookModels === undefined")  # all of it without the model

    for _ in range(5):
        back.click()
    choice = place.locator(".choosing button").nth(4)
    name = choice.locator(".name").inner_text()
    choice.click()
    expect(told).to_contain_text(f"you write {name}", timeout=60_000)
    to_the_end()
    first = "groups => groups.flatMap((g) => g.querySelector('text')?.textContent ?? [])"
    names = place.locator("svg .own").evaluate_all(first)
    vocab = sorted(translator.tokenizer.get_vocab().items(), key=lambda item: item[0][0] != "▁")
    spelled = {words([piece])[0]: i for piece, i in vocab}  # for two "." the bare one
    *names, last = names
    assert name in names and last.startswith("… ")  # the last word again, where the ribbon ends
    ids = [*(spelled[each] for each in names), END]
    src = torch.tensor(encode_source(translator.tokenizer, [BOX]))
    with torch.no_grad():
        out = translator.model(src, torch.tensor([[START, *ids[:-1]]]))
        log_prob = translator.model.generator(out)[0, range(len(ids)), ids].sum().item()
    yours = rows.first.inner_text().split("\t")
    score = log_prob / length_penalty(len(ids), 0.6)
    assert yours[1] == translator.tokenizer.decode(ids)
    found = [float(text.replace("−", "-")) for text in yours[2:]]
    assert found == pytest.approx([score], abs=2e-3)


def test_the_five_likeliest_pieces_of_a_cell_are_seen(tab, translators) -> None:
    from playwright.sync_api import expect

    place, form = tab.locator(".stages"), tab.locator(".live[data-show=stages]")

    def compare(likely, _, piece) -> None:
        rows = place.locator("tbody tr").all()[::-1]
        assert len(rows) == len(likely) == 13
        for row, (values, indices) in zip(rows, likely.values(), strict=True):
            shown = row.get_by_role("button").all_inner_texts()
            assert shown == [piece(i) for i in indices[:, 0].tolist()]
            row.get_by_role("button").nth(1).click()
            column = values[1].tolist(), indices[1].tolist()
            for line, p, i in zip(place.locator(".likely p").all()[1:], *column, strict=True):
                name, told = (line.locator(part).inner_text() for part in (".name", ".number"))
                assert name == piece(i)
                assert told == "< 0.1%" or float(told[:-1]) == pytest.approx(100 * p, abs=0.06)

    compare(*stages_of(translators[CAPTIONS], CAT))
    last = place.locator("tbody tr").first.get_by_role("button")
    last.nth(2).focus()
    tab.keyboard.press("ArrowDown")
    expect(place.locator("[aria-pressed=true]")).to_be_focused()
    expect(place.locator(".likely p").first).to_contain_text("layer 4, source")
    assert place.locator("button").evaluate_all("all => all.every((one) => one.offsetHeight >= 24)")
    assert tab.evaluate("window.bookModels === undefined")  # all of it without the model
    form.locator("input").fill(BOX)
    form.get_by_role("button", name="Follow it").click()
    expect(place.locator(".chart-title strong")).to_have_text(BOX, timeout=60_000)
    compare(*stages_of(translators[CAPTIONS], BOX))


SETTINGS = [(1.0, None, 1.0), (0.3, None, 1.0), (1.5, 10, 1.0), (1.0, None, 0.5), (0.7, 20, 0.9)]


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), SETTINGS)
def test_the_sampler_draws_as_the_package_does(js, temperature, top_k, top_p) -> None:
    logits = 2 * torch.randn(300)
    how = f"{{ temperature: a, topK: {top_k or 'Infinity'}, topP: b }}"
    found = js.run(f"return sampler.drawn(c, {how})", temperature, top_p, logits.tolist())
    random, counts = torch.Generator().manual_seed(0), torch.zeros(300)
    for _ in range(2000):
        counts[draw(logits, temperature, top_k, top_p, random)] += 1
    shares = torch.zeros(300)
    ids = torch.tensor(found["ids"])
    shares[ids[: len(found["shares"])]] = torch.tensor(found["shares"])
    assert ids.tolist() == logits.argsort(descending=True).tolist()
    assert counts[shares == 0].sum() == 0 and (counts[shares > 0.01] > 0).all()
    assert (counts / 2000 - shares).abs().max() < 5 * (0.25 / 2000) ** 0.5
    assert shares.sum().item() == pytest.approx(1)
    for chance in 0.0, 0.4, 0.9999:
        place = int((torch.tensor(found["shares"]).double().cumsum(0) <= chance).sum())
        assert js.run("return sampler.pick(a, b)", found, chance) == found["ids"][place]


NEXT = """async ([name, rows]) => {
    const { transformer } = await window.liveModel(name);
    const { Token, END } = window.search;
    return rows.map((ids) => {
        const token = ids.reduce((before, id) => before.follow(id, 0), new Token(END));
        return transformer.decode(token.path).map((row) => [...row]);
    });
}"""


def test_a_language_model_computes_what_the_package_does(tab) -> None:
    generator = load_language_model(EVERYDAY)
    model = generator.model
    rows = [generator.encode(text)[1:] for text in ("She was", "I don't think Tom is", "")]
    for ids, found in zip(rows, tab.evaluate(NEXT, [EVERYDAY, rows]), strict=True):
        with torch.no_grad():
            expected = model(torch.tensor([[END, *ids]]))[0].log_softmax(dim=-1)
        torch.testing.assert_close(torch.tensor(found), expected, rtol=0, atol=1e-4)
    folder = resource_path("models") / EVERYDAY
    assert len(live.model_script(EVERYDAY)) < 2e6
    told = json.loads((folder / "training.json").read_text())
    card = (folder / "README.md").read_text(encoding="utf-8")
    for loss in told["test_loss"], told["test_loss_8_bits"]:
        assert f"{loss:.3f}" in card


def test_the_sampler_cuts_draws_and_keeps_what_was_written(tab) -> None:
    from playwright.sync_api import expect

    place = tab.locator(".sampler")
    text, rows = place.locator(".translation"), place.locator(".shares > :not(.note)")
    assert place.locator("li").count() == 2  # recorded
    before = rows.all_inner_texts()
    assert tab.evaluate("window.bookModels === undefined")  # this picture needs no model
    place.get_by_label("Top-k").fill("2")
    expect(place.get_by_text("from 3 of 4,096")).to_be_visible(timeout=60_000)
    after = rows.all_inner_texts()
    assert [row.split("\n")[0] for row in after] == [row.split("\n")[0] for row in before]
    assert ["cut" in row for row in after] == [False] * 3 + [True] * 6
    place.get_by_label("Top-k").fill("0")
    for _ in range(2):  # the likeliest tokens, so both texts are the same
        place.get_by_role("button", name="Again").click()
        expect(text).to_have_attribute("aria-busy", "false", timeout=60_000)
    one, other = place.locator("li").all_inner_texts()
    assert one == other and one.startswith(text.inner_text()) and "top\u2011k\u00a01" in one
    place.get_by_label("Beginning").fill("The train")
    expect(text).to_have_text("The train")
    rows.nth(4).click()  # cut, but whoever clicks it may have it
    expect(place.get_by_text("1 token drawn")).to_be_visible()
    assert place.locator("li").count() == 2


def test_a_model_that_is_not_there_is_told_of(browser, site: Path, tmp_path: Path) -> None:
    shutil.copytree(site, tmp_path, ignore=shutil.ignore_patterns("models"), dirs_exist_ok=True)
    tab = browser.new_page()
    tab.goto((tmp_path / "page.html").as_uri())
    place = tab.locator(".live").first
    ask(place, "A dog runs.")
    assert f"{CAPTIONS}.js" in place.locator(".note").inner_text()
    shutil.copytree(site / "models", tmp_path / "models")
    ask(place, "A dog runs.")
    assert place.locator(".translation").inner_text()
    tab.close()


@pytest.mark.site
@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_the_site_loads_a_model_when_asked_and_stays_accessible(browser, page) -> None:
    from axe_playwright_python.sync_playwright import Axe

    for width, theme in (1280, "light"), (390, "dark"):
        tab = browser.new_context(viewport={"width": width, "height": 900}, offline=True).new_page()
        asked, reports = [], []
        tab.on("request", lambda request, asked=asked: asked.append(request.url))
        tab.on("pageerror", lambda error, reports=reports: reports.append(str(error)))
        tab.add_init_script(f"localStorage.setItem('mode', '{theme}')")
        tab.goto((SITE / "chapters" / f"{page}.html").as_uri())
        folds = "document.querySelectorAll('.experiment')"
        tab.evaluate(f"{folds}.forEach((fold) => {{ fold.open = true; }})")
        place = tab.locator(".live").first
        place.locator("form").wait_for()
        tab.wait_for_timeout(500)
        later = "/models/", "transformer.js", "tokenizers.js"  # at the click, and not before
        assert asked and not [url for url in asked if any(part in url for part in later)]
        before = len(asked)
        place.locator("form button").press("Enter")  # a click may miss: above it charts are drawn
        box = place.and_(tab.locator("[aria-busy=false]"))  # two sentences: the whole box
        ended = place.locator(".translation[aria-busy=false]").or_(box)
        ended.wait_for(state="attached", timeout=60_000)
        assert place.locator(".translation").inner_text()
        assert all(any(part in url for url in asked[before:]) for part in later)
        assert not any(url.startswith("http") for url in asked) and not reports
        # What is not looked at is walked through all the same: let it be short.
        large = "document.querySelectorAll('pre, .chart svg')"
        tab.evaluate(f"for (const e of {large}) e.innerHTML = ''")
        found = Axe().run(tab, context={"include": [[".live"]]}).response["violations"]
        assert not [each["help"] for each in found if each["impact"] in ("serious", "critical")]
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        tab.context.close()
