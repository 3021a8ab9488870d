"""The page on which models learn, in Chromium, from the disk and without a network."""

import json
import re
import shutil

import pandas as pd
import pytest
from contents import ROOT

live = pytest.importorskip("live", reason="needs the extra `book`")
STATIC, CHAPTERS = ROOT / "book" / "static", ROOT / "chapters"
RESULTS = ROOT / "data" / "results" / "playground.csv"
FIRST = RESULTS.with_name("playground-first.json")
TIMED = """
  window.draws = [];
  const ask = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (draw) =>
    ask((time) => {
      const start = performance.now();
      draw(time);
      window.draws.push(performance.now() - start);
    });
"""


@pytest.fixture(scope="module")
def playground() -> dict:
    """What the script knows of comparisons and switches."""
    context = live.scripts("elements", "playground")
    return json.loads(context.eval("JSON.stringify(window.playground)"))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    from head import POLICY, colors

    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(STATIC, folder / "_static")
    (folder / "_static" / "palette.css").write_text(colors(), encoding="utf-8")
    styles = (f'<link rel="stylesheet" href="_static/{name}.css">' for name in ("palette", "book"))
    scripts = (f'<script defer src="_static/{name}.js"></script>' for name in ("elements", "book"))
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    head = "".join(['<meta charset="utf-8">', policy, *styles, *scripts])
    row = '<section id="learned-positions"><h3>Learned positions</h3><p>Text.</p></section>'
    body = live.playground_place() + '<div class="lanes"></div>' + row
    page = f'<html lang="en"><head>{head}</head><body>{body}</body></html>'
    (folder / "page.html").write_text(page, "utf-8")
    return (folder / "page.html").as_uri()


@pytest.fixture
def tab(browser):
    """A page that fails the test if it reports anything."""
    context = browser.new_context(offline=True)
    tab = context.new_page()
    reports: list[str] = []
    tab.on("console", lambda message: reports.append(message.text))
    tab.on("pageerror", lambda error: reports.append(str(error)))
    yield tab
    context.close()
    assert not reports


def visit(tab, address: str) -> None:
    tab.goto("about:blank")
    tab.goto(address)
    tab.wait_for_selector(".playground canvas")


def wait_for(tab, said: str | re.Pattern) -> None:
    """Wait until both models say it."""
    for side in tab.locator(".runs-side section").all():
        side.filter(has_text=said).wait_for()


@pytest.mark.slow
def test_the_first_run_is_solved_and_the_page_stays_quick(tab, address: str) -> None:
    tab.add_init_script(TIMED)
    visit(tab, address)
    tab.get_by_role("button", name="Play", exact=True).click()
    tab.get_by_label("Your text").fill("31415926")
    tab.locator(".seen p").first.wait_for(timeout=120_000)
    seen = tab.locator(".seen").inner_text()
    assert re.search(r"A solves the task at update \d+ of \d+", seen)
    assert "B has not solved the task" in seen
    sides = tab.locator(".runs-side section .translation")
    assert sides.nth(0).inner_text() == "31415926 → 62951413"
    assert sides.nth(1).locator("del").count() > 0
    draws = sorted(tab.evaluate("window.draws"))
    assert len(draws) > 20 and draws[len(draws) * 9 // 10] < 25  # ms, also on a busy machine


def test_one_update_after_another_and_back_to_the_first(tab, address: str) -> None:
    visit(tab, address)
    notes = tab.locator(".runs-side .name + .note")
    recorded = json.loads(FIRST.read_text(encoding="utf-8"))
    assert [note[:11] for note in notes.all_inner_texts()] == ["update 400,"] * 2  # recorded
    assert tab.get_by_text("solved at 264").count() == 1
    for update in 1, 2:
        tab.get_by_role("button", name="Step").click()
        wait_for(tab, f"update {update},")
    loss = [note.rpartition("loss")[2] for note in notes.all_inner_texts()]
    second = [f" {model['losses'][1]:.3f}" for model in recorded["models"]]
    assert [each.partition(",")[0] for each in loss] == second
    tab.get_by_role("button", name="Reset").click()
    wait_for(tab, "untrained")
    for update in 1, 2:
        tab.get_by_role("button", name="Step").click()
        wait_for(tab, f"update {update},")
    assert [note.rpartition("loss")[2] for note in notes.all_inner_texts()] == loss  # the same seed


def test_a_row_has_a_dot_for_each_seed_that_solves_it_and_opens(tab, address: str) -> None:
    visit(tab, address)
    first = tab.locator("div.lanes")
    assert first.inner_text().split("\n")[-2:] == ["Model A", "13"]
    assert first.locator("circle").count() == 13
    row = tab.locator("#learned-positions summary")
    assert row.locator("circle").count() == 20 and row.inner_text().endswith("20")
    train = tab.get_by_role("button", name="Train A and B above")
    assert not train.is_visible() and not tab.get_by_text("Text.").is_visible()
    row.get_by_role("heading", name="Learned positions").click()
    assert tab.get_by_text("Text.").is_visible()
    train.click()
    wait_for(tab, re.compile(r"update \d+, loss"))
    assert "b.positions=learned" in tab.evaluate("location.hash")


def test_the_address_keeps_all_settings(tab, address: str) -> None:
    visit(tab, address)
    chosen = {"Task": "sort", "Symbols": "10", "Seed": "3", "positions, model A": "learned",
              "heads, model A": "4", "layers, model B": "4",
              "norm, model B": "first",
              "residual, model B": "none", "warmup, model A": "none", "scale, model B": "none",
              "smoothing, model A": "0.1"}  # fmt: skip
    tab.locator(".playground summary").click()
    for name, option in chosen.items():
        tab.get_by_label(name).select_option(label=option)
    kept = tab.evaluate("location.href")
    visit(tab, kept)
    assert tab.get_by_label("Symbols").is_visible()  # the table, because many parts differ
    for name, option in chosen.items():
        found = tab.get_by_label(name).evaluate("(select) => select.selectedOptions[0].text")
        assert found == option, name


def test_a_single_part_that_differs_is_chosen_at_the_names(tab, address: str) -> None:
    visit(tab, address)
    names = tab.locator(".runs-side .name")
    assert [name.split("\n")[0].strip() for name in names.all_inner_texts()] == [
        "A, positions:", "B, positions:"
    ]  # fmt: skip
    names.nth(1).get_by_label("positions, model B").select_option(label="learned")
    wait_for(tab, "untrained")
    assert "b.positions=learned" in tab.evaluate("location.hash")
    tab.locator(".playground summary").click()
    assert tab.locator("tbody tr:visible").count() == 7


@pytest.mark.parametrize(
    "part", ["train?", "train?task=x&a.heads=99&__proto__=1", "train?seed=1e9", "%"]
)
def test_an_address_with_anything_in_it_opens(tab, address: str, part: str) -> None:
    visit(tab, f"{address}#{part}")
    assert tab.get_by_label("Task").evaluate("(select) => select.selectedIndex") >= 0


@pytest.mark.parametrize("text", ["", "abc", "1+2", "12345678901234567", "<b>"])
def test_text_that_is_none_of_the_task_is_refused(tab, address: str, text: str) -> None:
    visit(tab, address)
    tab.get_by_label("Your text").fill(text)
    assert "Type digits" in tab.locator(".playground").inner_text()
    tab.get_by_role("button", name="Step").click()
    wait_for(tab, "update 1,")


def test_each_comparison_has_a_heading_and_each_link_a_page(playground: dict) -> None:
    text = (CHAPTERS / "train-here.md").read_text(encoding="utf-8")
    slugs = [
        title.lower().replace(" ", "-") for title in re.findall(r"^### (.+)$", text, re.MULTILINE)
    ]
    assert len(playground["EXPERIMENTS"]) == 9
    assert set(playground["EXPERIMENTS"]) <= set(slugs)
    for switch in playground["SWITCHES"].values():
        page, _, part = switch["link"].partition("#")
        chapter = (CHAPTERS / page.replace(".html", ".md")).read_text(encoding="utf-8")
        titles = re.findall(r"^#+ (?:[\d.]+ )?(.+)$", chapter, re.MULTILINE)
        known = [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]
        assert not part or part in known, switch["link"]


def test_the_log_has_twenty_seeds_of_both_models(playground: dict) -> None:
    table = pd.read_csv(RESULTS)
    assert set(table["comparison"]) == set(playground["EXPERIMENTS"])
    seeds = table.groupby(["comparison", "model"])["seed"].apply(sorted)
    assert all(found == [*range(1, 21)] for found in seeds)
    for (name, model), rows in table.groupby(["comparison", "model"]):
        both, *sides = playground["EXPERIMENTS"][name]
        assert {*rows["settings"]} == {json.dumps(both | sides["AB".index(model)])}


def test_each_comparison_says_how_many_seeds_of_model_b_solve_the_task() -> None:
    table = pd.read_csv(RESULTS)
    solved = table[table["model"] == "B"].groupby("comparison")["solved"].count()
    text = (CHAPTERS / "train-here.md").read_text(encoding="utf-8")
    said = re.findall(r"^### (.+)\n\nSolved by (\d+) of 20", text, re.MULTILINE)
    assert {name.lower().replace(" ", "-"): int(n) for name, n in said} == solved.to_dict()
