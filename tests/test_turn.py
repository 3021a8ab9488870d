"""Your turn on the page: what a reader types is checked, and translates."""

import hashlib
import json
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest
import torch
from contents import ROOT

from annotated.by_hand import PARTS
from annotated.data import END, START, encode_source
from annotated.decoding import greedy_decode
from annotated.machinery.formats.pretrained import load_pretrained

STATIC = ROOT / "book" / "static"
CAPTIONS = "multi30k-en-de"
STREET = "A view of a crowded city street."
WHO = "A man", "Two young girls", "The brown dog", "A group of people", "An old woman in a red hat"
DOES = "is sitting in the snow", "look at a bicycle", "plays the guitar", "runs near the street"
SENTENCES = [f"{who} {does}." for who, does in zip(2 * WHO, cycle(DOES), strict=False)]
live = pytest.importorskip("live", reason="needs the extra `book`")


def test_micropython_is_as_it_was_made() -> None:
    head, _, body = (STATIC / "micropython.js").read_bytes().partition(b" */\n")
    assert hashlib.sha256(body).hexdigest().encode() == head.split()[-1]
    assert "MIT License" in (STATIC / "micropython.LICENSE").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like that of the site, with a page on which every part has its turn."""
    import shutil

    from head import POLICY, colors

    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(STATIC, folder / "_static")
    (folder / "models").mkdir()
    scripts = {CAPTIONS: live.model_script(CAPTIONS), "by-hand": live.turn_script()}
    for name, text in scripts.items():
        (folder / "models" / f"{name}.js").write_text(text, encoding="utf-8")
    (folder / "_static" / "palette.css").write_text(colors(), encoding="utf-8")
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    for name in "palette", "book":
        head += f'<link rel="stylesheet" href="_static/{name}.css">'
    for name in "elements", "book":
        head += f'<script defer src="_static/{name}.js"></script>'
    page = f'<html lang="en"><head><title>By hand</title>{head}</head>'
    places = "".join(map(live.turn_place, PARTS))
    (folder / "page.html").write_text(f"{page}<body>{places}</body></html>", "utf-8")
    return folder


@pytest.fixture
def tab(browser, site: Path):
    """The page, from the disk and without a network; anything that it reports fails the test."""
    context = browser.new_context(offline=True, accept_downloads=True)
    tab = context.new_page()
    reports: list[str] = []
    tab.on("console", lambda message: reports.append(message.text))
    tab.on("pageerror", lambda error: reports.append(str(error)))
    tab.goto((site / "page.html").as_uri())
    tab.wait_for_selector(".turn textarea")
    yield tab
    context.close()
    # Code may ask for all the memory there is.
    assert [text for text in reports if "Cannot enlarge memory" not in text] == []


def place(tab, name: str):
    return tab.locator(f".turn[data-part={name}]")


def run(tab, name: str, code: str) -> str:
    """Type code, run it, and give the verdict."""
    box = place(tab, name)
    box.locator("textarea").fill(code)
    box.get_by_role("button", name="Run", exact=True).click()
    status = box.locator(".verdict")
    tab.wait_for_function(
        "box => box.textContent && box.textContent !== 'Running …'", arg=status.element_handle()
    )
    return status.inner_text()


def said(tab, name: str) -> str:
    """What the translator says in the end."""
    shown = place(tab, name).locator(".translation")
    done = "box => box.textContent && box.textContent !== 'Translating …'"
    tab.wait_for_function(done, arg=shown.element_handle())
    return shown.inner_text()


def wrong(name: str, number: int) -> tuple[str, str]:
    """A typical mistake as code, and its help."""
    old, new, told = PARTS[name]["wrong"][number]
    return PARTS[name]["solution"].replace(old, new), told


@pytest.fixture(scope="module")
def translator():
    return load_pretrained(CAPTIONS)


def greedy(translator, sentence: str) -> str:
    src = torch.tensor(encode_source(translator.tokenizer, [sentence]))
    ids = greedy_decode(translator.model, src, None, src.size(1) + 51, START, END)[0].tolist()
    return translator.tokenizer.decode([i for i in ids if i > 3])


@pytest.mark.slow
def test_nothing_is_loaded_before_the_first_run_and_its_answer_comes_soon(tab) -> None:
    loaded = "[...document.scripts].map(({ src }) => src.split('/').at(-1))"
    before = tab.evaluate(loaded)
    later = {"micropython.js", "by-hand.js", "transformer.js", "tokenizers.js", f"{CAPTIONS}.js"}
    assert "turn.js" in before and not later & set(before)
    tab.evaluate("performance.mark('begin')")
    assert run(tab, "softmax", PARTS["softmax"]["solution"]).startswith("Right")
    spent = tab.evaluate("performance.now() - performance.getEntriesByName('begin')[0].startTime")
    assert spent < 4000  # two seconds on a quiet machine
    said(tab, "softmax")
    assert later <= set(tab.evaluate(loaded))


@pytest.mark.slow
def test_typed_solutions_are_right_translate_and_are_kept(tab, site, translator, tmp_path) -> None:
    for name, part in PARTS.items():
        assert run(tab, name, part["solution"]).startswith("Right")
        expected = greedy(translator, STREET)
        if name == "beam":
            expected = translator.translate([STREET])[0]
        assert said(tab, name) == expected, name
    assert len(tab.workers) == 1  # each takes much memory
    tab.reload()
    tab.wait_for_selector(".turn.right textarea")
    for name, part in PARTS.items():
        assert place(tab, name).locator("textarea").input_value() == part["solution"].rstrip()
    with tab.expect_download() as download:
        place(tab, "softmax").get_by_role("button", name="Download all").click()
    file = tmp_path / "mine.py"
    download.value.save_as(file)
    done = subprocess.run([sys.executable, "-I", file], capture_output=True, encoding="utf-8")
    assert done.stdout.count("Right") == len(PARTS), done.stderr


@pytest.mark.slow
def test_the_reader_s_functions_translate_as_the_package_does(tab, translator) -> None:
    for name, part in PARTS.items():
        if name != "beam":
            run(tab, name, part["solution"])
            said(tab, name)
    box = place(tab, "greedy")
    assert all(name in box.inner_text() for name in PARTS if name != "beam")
    for sentence in SENTENCES:
        box.locator("input").fill(sentence)
        box.get_by_role("button", name="Translate").click()
        assert said(tab, "greedy") == greedy(translator, sentence)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_typical_mistakes_get_the_same_help_as_in_python(tab, name: str) -> None:
    for number in range(len(PARTS[name]["wrong"])):
        code, told = wrong(name, number)
        assert run(tab, name, code).startswith(told), (name, number)
        place(tab, name).get_by_role("button", name="Reset").click()


@pytest.mark.slow
def test_a_wrong_part_shows_what_the_translator_then_says(tab) -> None:
    code, _ = wrong("attention", 0)  # no scale
    run(tab, "attention", code)
    found = said(tab, "attention")
    assert found.startswith("Eine Blick Blick") and "with the book’s parts: Ein" in found
    code, _ = wrong("layer_norm", 1)  # n − 1: nothing but the check would have told
    run(tab, "layer_norm", code)
    assert "the same as with the book’s parts" in said(tab, "layer_norm")
    code, _ = wrong("softmax", 5)  # turned around, and called by the book's attention
    run(tab, "softmax", code)
    assert "with the book’s parts: Ein" in said(tab, "softmax")
    place(tab, "softmax").get_by_role("button", name="A man is riding a bicycle.").click()
    assert "with the book’s parts: Ein Mann fährt" in said(tab, "softmax")


HOSTILE = {
    "an endless loop": ("while True:\n    pass\n", "stopped after 5 seconds"),
    "deep recursion": ("def f():\n    return f()\nf()\n", "recursion depth"),
    "10**9 elements": ("x = [0] * 10**9\n", "MemoryError in line 1"),
    "a division": ("x = 1\n\ny = x / 0\n", "ZeroDivisionError in line 3"),
    "a megabyte": ("for i in range(20_000):\n    print('x' * 50)\n", "no function"),
    "one long line": ("print('x' * 1_000_000)\n", "no function"),
    "js": ("import js\njs.document.body\n", "in line 2"),
    "a message": ("import js\njs.postMessage(1)\n", "no function"),
    "a growing list": ("x = []\nwhile True:\n    x.append([0] * 1000)\n", ""),
    "exit": ("import sys\nsys.exit(3)\n", "SystemExit"),
    "nesting": ("(" * 100_000, ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_code_harms_nothing(tab, kind: str) -> None:
    code, told = HOSTILE[kind]
    assert told in run(tab, "softmax", code)
    printed = place(tab, "softmax").locator(".printed")
    if printed.is_visible():
        assert 1000 < len(printed.inner_text()) < 5000
    assert run(tab, "softmax", PARTS["softmax"]["solution"]).startswith("Right")


@pytest.mark.slow
def test_keys_indent_and_leave_and_buttons_help(tab) -> None:
    box = place(tab, "relu")
    field = box.locator("textarea")
    field.fill("")
    field.press_sequentially("def relu(row):")
    field.press("Enter")
    field.press_sequentially("return 1")
    field.press("Tab")
    assert field.input_value() == "def relu(row):\n    return 1    "
    field.press("Escape")
    field.press("Tab")
    assert box.get_by_role("button", name="Run").evaluate("e => e === document.activeElement")
    box.get_by_role("button", name="Hint").click()
    assert PARTS["relu"]["hint"].replace("`", "") in box.inner_text()
    box.get_by_role("button", name="Solution").click()
    field.press("Control+Enter")
    box.locator(".verdict", has_text="Right").wait_for()
    box.get_by_role("button", name="Reset").click()
    assert field.input_value() == PARTS["relu"]["skeleton"].rstrip()
    assert not box.locator(".verdict").inner_text() and not box.locator("form").is_visible()
    assert "relu" not in json.loads(tab.evaluate("localStorage.getItem('turn') ?? '{}'"))


def test_a_directive_becomes_a_place_and_an_unknown_part_is_named(tmp_path: Path) -> None:
    from small_books import build

    texts = {"index": "# One\n\n```{turn} relu\n```\n", "two": "# Two\n\n```{turn} rely\n```\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.md").write_text(text, encoding="utf-8")
    told = build(tmp_path, lambda app: app.add_directive("turn", live.Turn))
    assert "expected one of softmax, attention" in told and "got 'rely'" in told
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert '<div class="turn" data-part="relu">' in page and "<noscript><p>Your turn" in page
    chapters = tmp_path / "chapters"
    chapters.mkdir()
    (chapters / "one.md").write_text(texts["index"], encoding="utf-8")
    live.write_models(chapters, tmp_path / "models")
    assert {path.name for path in (tmp_path / "models").iterdir()} == {
        f"{CAPTIONS}.js",
        "by-hand.js",
    }


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_page_and_every_part_has_a_name(tab, width: int) -> None:
    from axe_playwright_python.sync_playwright import Axe

    tab.set_viewport_size({"width": width, "height": 900})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    rules = {"runOnly": ["label", "button-name", "aria-allowed-attr", "aria-valid-attr-value"]}
    checked = tab.context.browser.new_context().new_page()  # axe asks for style sheets
    checked.goto(tab.url)
    checked.wait_for_selector(".turn textarea")
    assert Axe().run(checked, options=rules).violations_count == 0
    checked.context.close()


@pytest.mark.slow
def test_only_the_last_run_answers_and_a_slow_translation_is_stopped(tab) -> None:
    box = place(tab, "greedy")
    for code in PARTS["greedy"]["solution"], "while True: pass":
        box.locator("textarea").fill(code)
        box.get_by_role("button", name="Run", exact=True).click()
    head = "def greedy(step, start, end, most):\n    "
    assert "yours gives 7." in run(tab, "greedy", f"{head}return 7\n")
    said(tab, "greedy")
    late = f"n = 0\n{head}global n\n    n += 1\n    while n > 3: pass\n    return [4, 5]\n"
    assert "yours gives" in run(tab, "greedy", late)  # which takes its three cases
    assert "stopped after 10 seconds" in said(tab, "greedy")
    box.get_by_role("button", name="Translate").click()  # as after a run
    box.locator(".translation", has_text="stopped after 10 seconds").wait_for()
