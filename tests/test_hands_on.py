"""What a reader can move in the charts, without a network.

What a chart then shows is what Python computes another way. Needs `make book` before. Live models
have their own tests (test_javascript), as do the drawings of attention (test_book,
test_visualization_drawing).
"""

import math
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise

import pytest
import torch
from contents import ROOT
from torch import Tensor
from torch.nn import functional as F

from annotated.data import encode_source, encode_target
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.translator import Translator
from annotated.optimizer import rate
from book.charts import words

SITE = ROOT / "_build" / "html"
pytestmark = pytest.mark.site


def number(text: str) -> float:
    """As Vega writes it: with a true minus and commas."""
    return float(text.replace("−", "-").replace(",", ""))


PLACES = """(c) => c.type === 'range'
    ? [1, 0, 0.7, 0.25].map((part) => `${+c.min + part * (c.max - c.min)}`)
    : [...(c.options ?? c.form[c.name])].map(({ value }) => value)"""
SET = """(c, value) => {
    if (c.type === 'radio') return [...c.form[c.name]].find((r) => r.value === value).click();
    c.value = value;
    for (const kind of ['input', 'change']) c.dispatchEvent(new Event(kind, { bubbles: true }));
}"""


# The site's marks are not read out one by one. Here each gets its name, so that a test can read it.
NAMED = """{
    let embed;
    Object.defineProperty(window, 'vegaEmbed', {
        configurable: true,
        set(given) { embed = given; },
        get: () => embed && ((place, spec, options) => {
            const config = { ...spec.config, mark: { ...spec.config.mark, aria: true } };
            return embed(place, { ...spec, config }, options);
        }),
    });
}"""


class Chart:
    """A drawn chart, and those of its controls that are named; their names are what is read out."""

    def __init__(self, tab, *names: str) -> None:
        self.tab = tab
        tab.mouse.move(300, 300)  # until the reader moves, the first chart is a picture
        for self.box in tab.locator("div.chart").all():  # scrolls until the controls are there
            self.box.scroll_into_view_if_needed()
            self.box.and_(tab.locator(".drawn")).wait_for()
            self.controls = {name: self.control(name) for name in names}
            if all(control.count() for control in self.controls.values()):
                return
        raise AssertionError(f"no chart has controls {names}")

    def control(self, name: str):
        slider = self.box.get_by_role("slider", name=re.compile(rf"{re.escape(name)} −?[\d.,]+$"))
        select = self.box.get_by_role("combobox", name=name, exact=True)
        radios = self.box.locator(".vega-bind", has=self.tab.get_by_text(name, exact=True))
        return slider.or_(select).or_(radios.locator("input:checked"))

    def values(self) -> list[str]:
        """Of all controls, when the chart shows them."""
        frame = "requestAnimationFrame"
        self.tab.evaluate(f"new Promise((done) => {frame}(() => {frame}(done)))")
        return [control.input_value() for control in self.controls.values()]

    def by_hand(self, *names: str) -> Iterator[list[str]]:
        """Sets these controls (or all) in turn to their options, or to four places of a slider.

        Yields: the values of all controls after each change.
        """
        for name in names or self.controls:
            for value in self.controls[name].evaluate(PLACES):
                self.controls[name].evaluate(SET, value)
                yield self.values()

    def texts(self) -> list[str]:
        return self.box.locator("svg.marks text").all_text_contents()

    def marks(self, *fields: str, seen: str = "") -> list[dict[str, str]]:
        """What is read out of marks with these fields; `seen` selects by CSS."""
        marks = self.box.locator(f"svg.marks [aria-label]{seen}")
        rows = []
        for label in marks.evaluate_all("marks => marks.map((mark) => mark.ariaLabel)"):
            row: dict[str, str] = {}
            for part in label.split("; "):
                name, _, value = part.partition(": ")
                row.setdefault(name, value)  # what places a mark comes first, and unrounded
            if row.keys() >= set(fields):
                rows.append(row)
        return rows

    def plot(self) -> list[float]:
        """Where on the screen the axes meet what they measure: left, top, width, height."""
        plot = self.box.locator("path.background").first
        plot.scroll_into_view_if_needed()
        return plot.evaluate("""(plot) => {
            const { x, y, width, height } = plot.getBBox(), { e, f } = plot.getScreenCTM();
            return [x + e, y + f, width, height];
        }""")

    def labels(self, axis: str) -> list[str]:
        """Of an axis, in their order on the screen."""
        labels = self.box.locator(f"[aria-label^='{axis}-axis'] .role-axis-label text")
        place = f"[label.textContent, label.getBoundingClientRect().{axis.lower()}]"
        places = labels.evaluate_all(f"labels => labels.map((label) => {place})")
        return [text for text, _ in sorted(places, key=lambda each: each[1])]

    def rectangles(self) -> list[str]:
        """What the legend calls the colors of those without labels, row by row."""
        drawn = "marks => marks.map((mark) => [mark.getAttribute('fill'), mark.getAttribute('d')])"
        symbols = self.box.locator(".role-legend-symbol path").evaluate_all(drawn)
        names = self.box.locator(".role-legend-label text").all_text_contents()
        meaning = {fill: name for (fill, _), name in zip(symbols, names, strict=True)}
        paths = self.box.locator(".mark-rect.role-mark path").evaluate_all(drawn)
        place = lambda d: [*map(float, re.findall(r"-?[\d.]+(?:e-\d+)?", d)[:2])][::-1]
        return [meaning[fill] for fill, d in sorted(paths, key=lambda path: place(path[1]))]


@pytest.fixture(scope="module")
def tab(browser):
    """One page after the other, on a screen that can also be touched."""
    size = {"width": 1280, "height": 900}
    context = browser.new_context(viewport=size, offline=True, has_touch=True)
    context.set_default_timeout(20_000)
    context.add_init_script("localStorage.setItem('mode', 'light')")
    context.add_init_script(NAMED)
    yield context.new_page()
    context.close()


@pytest.fixture
def chart(tab):
    """Opens a page, unless it is open, at the first chart that has controls of these names."""
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("request", lambda r: problems.append(r.url) if r.url.startswith("http") else None)

    def opened(page: str, *names: str) -> Chart:
        address = (SITE / "chapters" / f"{page}.html").as_uri()
        if tab.url.partition("#")[0] != address:
            tab.goto(address)
            tab.evaluate("window.MathJax?.startup.promise.then(() => null)")  # nothing moves now
            folds = "document.querySelectorAll('.experiment')"
            tab.evaluate(f"{folds}.forEach((fold) => {{ fold.open = true; }})")
        return Chart(tab, *names)

    yield opened
    assert not problems


@cache
def translator() -> Translator:
    return load_pretrained("multi30k-en-de")


def names(tokenizer, ids: Iterable[int]) -> list[str]:
    return words([tokenizer.id_to_token(i) for i in ids])


def test_a_query_among_three_keys(chart) -> None:
    opened = chart("3-2-attention", "query, x", "query, y")
    corner, signed = math.sqrt(0.5), ["(−1)", "1", "0"]
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-corner, -corner]])

    switch = opened.box.get_by_role("checkbox", name="divide the scores")

    def check(x: float, y: float) -> None:
        told = "\n".join(opened.texts())
        found = re.findall(r"(?:bicycle|man|a), weight (\d\.\d\d)", told)
        values = torch.cat([torch.eye(3), torch.tensor([[-1.0], [1.0], [0.0]])], dim=1)
        scale = None if switch.is_checked() else 1.0  # None: divided by the root of d_k
        expected = F.scaled_dot_product_attention(torch.tensor([[x, y]]), keys, values, scale=scale)
        assert [*map(float, found)] == pytest.approx(expected[0, :3].tolist(), abs=0.0051)
        terms = [f"{weight} × {value}" for value, weight in zip(signed, found, strict=True)]
        assert all(term in told for term in terms)
        answer = number(re.search(r"answer (−?\d\.\d\d)", told)[1])
        assert answer == pytest.approx(float(expected[0, 3]), abs=0.0051)

    for values in opened.by_hand():
        check(*map(float, values))
    switch.check()
    check(*map(float, opened.values()))
    switch.uncheck()
    left, top, _, height = opened.plot()
    path = [(-2.0, 0.5), (0.25, 0.25), (1.5, -1.0), (0.0, 0.0)]
    one = height / 3.4  # from -1.2 to 2.2, and the same to the right
    points = [(left + one * (x + 2.2), top + one * (2.2 - y)) for x, y in path]
    for (start, end), (x, y) in zip(pairwise(points), path[1:], strict=True):
        opened.tab.mouse.move(*start)
        opened.tab.mouse.down()
        opened.tab.mouse.move(*end, steps=2)
        opened.tab.mouse.up()
        assert [float(value) for value in opened.values()] == [x, y]
        check(x, y)
    finger = opened.tab.context.new_cdp_session(opened.tab)

    def touch(*way: tuple[float, float]) -> None:
        for kind, touched in ("Start", way[:1]), *(("Move", [place]) for place in way), ("End", []):
            places = [{"x": x, "y": y} for x, y in touched]
            finger.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": places})

    touch(points[3], points[2])
    assert [float(value) for value in opened.values()] == list(path[2])
    # Elsewhere a finger moves the page.
    before = opened.tab.evaluate("scrollY")
    touch(*((points[0][0], points[0][1] - down) for down in range(0, 120, 20)))
    opened.tab.wait_for_function("before => scrollY > before + 20", arg=before)
    assert [float(value) for value in opened.values()] == list(path[2])


def test_who_may_look_at_whom(chart) -> None:
    opened = chart("3-2-attention", "Use")
    for (use,) in opened.by_hand():
        keys, queries = opened.labels("X"), opened.labels("Y")
        future = torch.nn.Transformer.generate_square_subsequent_mask(len(queries)).isinf()
        expected = [
            "padding" if "pad" in key else "future" if "decoder s" in use and late else "allowed"
            for row in future.tolist()
            for key, late in zip(keys, row, strict=False)
        ]
        assert opened.rectangles() == expected
        assert ("<s>" in keys[0]) == use.startswith("decoder")  # who writes starts with it
        assert ("<s>" in queries[0]) == ("decoder " in use or "-decoder" in use)


@torch.no_grad()
def test_what_turns_a_unit_on_and_what_it_adds(chart) -> None:
    opened = chart("3-3-feed-forward", "Unit")
    tokenizer, model = translator().tokenizer, translator().model
    layer = model.encoder.layers[0]
    (ids,) = encode_source(tokenizer, ["A man is riding a bicycle."])
    word = ids.index(tokenizer.token_to_id("▁bicycle"))
    seen: list[Tensor] = []
    hook = lambda *call: seen.append(call[2][:, word])
    hook = layer.feed_forward.w_1.register_forward_hook(hook)
    others = torch.tensor(ids).repeat(tokenizer.get_vocab_size(), 1)
    others[:, word] = torch.arange(len(others))
    for part in others.split(1000):  # every piece in the place of the bicycle
        layer(model.src_embed(part), None)
    hook.remove()
    answers = torch.cat(seen)  # (vocab, d_ff)
    rows = model.src_embed[0].lut.weight  # (vocab, d_model)
    called = names(tokenizer, range(len(rows)))
    assert opened.values() == [str(answers[ids[word]].argmax().item())]
    for (unit,) in opened.by_hand():
        answer, value = answers[:, int(unit)], layer.feed_forward.w_2.weight[:, int(unit)]
        likeness = F.cosine_similarity(rows, value, dim=-1)
        assert answer[ids[word]] > 0
        shown = {
            (dot["piece"], number(dot["answer"]), number(dot["likeness"]))
            for dot in opened.marks("piece", "answer", "likeness")
        }
        every = {
            (piece, round(x, 2) + 0.0, round(y, 2) + 0.0)  # no -0
            for piece, x, y in zip(called, answer.tolist(), likeness.tolist(), strict=True)
        }
        assert len(shown) > 150 and len(shown - every) < 5  # a hundredth is rounded otherwise
        for scores in answer, likeness:
            assert {called[i] for i in scores.topk(10).indices} <= {piece for piece, *_ in shown}


@torch.no_grad()
def test_one_matrix_reads_a_token_and_scores_the_next(chart) -> None:
    opened = chart("3-4-embeddings-softmax", "Last token read")
    tokenizer, model = translator().tokenizer, translator().model
    source = torch.tensor(encode_source(tokenizer, ["A man is riding a bicycle."]))
    target = torch.tensor(encode_target(tokenizer, ["Ein Mann fährt Fahrrad."]))
    probabilities = model.generator(model(source, target[:, :-1]))[0].exp()
    likeliest, best = (each.tolist() for each in probabilities.max(dim=-1))
    read, written = names(tokenizer, target[0].tolist()), names(tokenizer, best)
    title = opened.box.locator("xpath=preceding-sibling::*[1]/strong")

    def check(step: int) -> None:
        said = f"{likeliest[step]:.0%}"
        assert title.inner_text() == (
            f"One matrix reads “{read[step]}” and makes “{written[step]}” {said} likely"
        )
        shares = [text for text in opened.texts() if re.fullmatch(r"\d+%", text)]
        assert said in shares and 97 <= sum(int(share[:-1]) for share in shares) <= 103

    for (step,) in opened.by_hand():
        check(int(step))
    opened.box.locator(".pick_marks path").first.click()
    assert opened.values() == ["0"]
    check(0)


def test_the_angle_between_the_hands_does_not_depend_on_the_position(chart) -> None:
    opened = chart("3-5-positional-encoding", "Position", "Tokens later")
    places, between = set(), {}
    for pos, offset in opened.by_hand():
        places.add(pos)
        angles = {(row["hand"], row["pair"]): row["angle"] for row in opened.marks("hand", "angle")}
        assert len(angles) == 16
        for (hand, pair), angle in angles.items():
            place = int(pos) + (int(offset) if hand == "later" else 0)
            turned = place / 10_000 ** (2 * int(pair) / 16)
            assert math.cos(math.radians(number(angle)) - turned) == pytest.approx(1, abs=1e-7)
        shaded = []
        for row in opened.marks("begin", "end"):
            wide = number(row["end"]) - number(row["begin"])
            expected = int(offset) / 10_000 ** (2 * int(row["pair"]) / 16)
            assert math.cos(wide - expected) == pytest.approx(1, abs=1e-7)
            shaded.append(f"{wide:.3f}")
        assert between.setdefault(offset, shaded) == shaded
    assert len(places) > 3 and len(between) > 3


def test_one_length_for_two_sections(chart) -> None:
    length = "Length n (words)"
    for seconds in (1, 2, 4, 8):  # a busy browser hands what is kept to another process late
        opened = chart("1-introduction", length)
        opened.controls[length].evaluate(SET, "11")  # what is set already changes nothing
        opened.controls[length].evaluate(SET, "12")
        assert opened.values() == ["12"]
        assert "last output: step 12" in opened.texts()
        opened.tab.wait_for_timeout(1000 * seconds)
        opened = chart("2-background", length)
        found, kept = opened.values(), opened.tab.evaluate("localStorage.getItem('n')")
        if found == ["12"]:
            break
    assert (found, kept) == (["12"], "12")
    assert {"12 steps", "11 steps", "4 steps", "1 step"} <= set(opened.texts())


def test_a_word_shows_its_lines_of_attention(chart) -> None:
    opened = chart("by-hand")
    word = lambda text: opened.box.locator("svg.marks text").get_by_text(text, exact=True)
    plain, followed = (word(text).get_attribute("fill") for text in ("Mann", "fährt"))
    assert plain != followed
    word("Mann").hover()
    opened.values()
    assert word("Mann").get_attribute("fill") == followed
    assert word("fährt").get_attribute("fill") == plain


def test_table_1_as_curves(chart) -> None:
    opened, d, k = chart("4-why-self-attention", "Compare"), 512, 3
    formulas = {
        "work": lambda n: [n * n * d, n * d * d, k * n * d * d, k * n * d],
        "waiting": lambda n: [1, n, 1, 1],
        "distance": lambda n: [1, n, math.log(n, k), n / k],
    }
    kinds = ["self-attention", "recurrent", "convolutional", "restricted self-attention"]
    units = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    for (compared,) in opened.by_hand():
        rows = opened.marks("layer", "value", "length (tokens, log scale)")
        assert {row["layer"] for row in rows} == set(kinds) and len(rows) >= 40
        for row in rows:
            n = number(row["length (tokens, log scale)"])
            expected = formulas[compared](n)[kinds.index(row["layer"])]
            digits, unit = re.fullmatch(r"([\d.]+)(\D?)", row["value"]).groups()
            assert float(digits) * units[unit] == pytest.approx(max(1, expected), rel=0.006)
        assert ("equal at 512" in opened.texts()) == (compared == "work")


def test_larger_batches_are_padded_more(chart) -> None:
    """The shares that are written are those of the marks, and both grow."""
    opened, found = chart("5-1-data-batching", "Batch size (tokens)"), {}
    for (size,) in opened.by_hand():
        tokens, padding = (opened.marks("order", what) for what in ("tokens", "padding"))
        assert len(tokens) == 4 * 80  # two languages, in both orders
        for order in "in random order", "by similar length":
            parts = [
                sum(int(row[what]) for row in rows if row["order"] == order)
                for what, rows in (("padding", padding), ("tokens", tokens))
            ]
            share = parts[0] / sum(parts)
            assert f"{order}: {share:.0%}" in opened.texts()
            found[order, int(size)] = share
    for order in {order for order, _ in found}:
        least, *_, most = sorted(size for _, size in found)
        assert found[order, least] < found[order, most]


def test_the_highest_rate_and_the_way_to_it_with_keys_alone(chart) -> None:
    names = ["Warmup", "Width"]
    opened = chart("5-3-optimizer", *names)
    tab, reached = opened.tab, []
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to main content"
    tab.keyboard.press("Enter")
    inside = "document.activeElement.closest('.vega-bind')?.innerText ?? ''"
    for _ in range(20):
        tab.keyboard.press("Tab")
        reached += [name for name in names if tab.evaluate(inside).startswith(name)]
    assert reached == names
    for key, edge in ("Home", "min"), ("End", "max"):
        opened.controls["Warmup"].press(key)
        assert opened.values()[0] == opened.controls["Warmup"].get_attribute(edge)
    for warmup, d_model in opened.by_hand():
        (told,) = [text for text in opened.texts() if text.startswith("warmup of ")]
        steps = sorted({*range(1, 20_000, 99), int(warmup) - 1, int(warmup), int(warmup) + 1})
        rates = [rate(step, int(d_model), warmup=int(warmup)) for step in steps]
        assert number(told.split()[-1]) == pytest.approx(1e4 * max(rates), abs=0.051)
        named = "update", "learning rate × 10,000"
        point, *_ = opened.marks(*named, seen="[aria-roledescription=point]")
        assert number(point["update"]) == steps[rates.index(max(rates))]
    assert "5-3-optimizer" in tab.url  # arrows turned no page


def test_the_loss_is_least_where_the_target_is(chart) -> None:
    opened = chart("5-4-regularization", "Smoothing ε", "Tokens K")
    for epsilon, size in opened.by_hand():
        target = torch.full((1, int(size)), float(epsilon) / int(size), dtype=torch.float64)
        target[0, 0] += 1 - float(epsilon)
        (told,) = [text for text in opened.texts() if text.startswith("least at")]
        assert number(told.split()[-1]) == pytest.approx(target[0, 0].item(), abs=0.0051)
