"""What a run shows and decides while it trains: scores, its page, callbacks, patience, its size."""

import math
import re
import shlex
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
import sacrebleu
import torch
import yaml
from foreign_parts import Gated, RelativeBias
from huggingface_hub import metadata_save
from small_runs import exact, rows, same, tensors

import annotated
from annotated.machinery.cli.main import main
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.errors import InputError
from annotated.machinery.formats import export
from annotated.machinery.formats.export import FORMS, export_model
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.runs import report
from annotated.machinery.runs.checkpoints import (
    INTERRUPTED,
    average_checkpoints,
    list_checkpoints,
    read_config,
)
from annotated.machinery.runs.fine_tuning import fine_tuning
from annotated.machinery.runs.logs import RunLog
from annotated.machinery.runs.report import _named_data, _origin
from annotated.machinery.runs.trainer import Trainer, start_run, train
from annotated.machinery.translator import Translator
from annotated.model import build_model
from annotated.optimizer import rate
from annotated.training import TrainingConfig


class Recorder:
    """A callback that keeps what it is told."""

    def __init__(self) -> None:
        self.rows, self.evaluations, self.saved = [], [], []

    def on_log(self, row: dict) -> None:
        self.rows.append(row)

    def on_evaluate(self, row: dict, examples: list) -> None:
        self.evaluations.append((row, examples))

    def on_save(self, path: Path) -> None:
        assert path.exists()
        self.saved.append(path.name)


@pytest.mark.slow
def test_the_scores_are_those_of_the_checkpoint_and_change_nothing(config, tmp_path, capsys):
    """Against sacreBLEU on the corpus itself, translated by the model of the last checkpoint."""
    recorder = Recorder()
    folder = train(replace(config, factor=0.5, updates=100), callbacks=[recorder])
    said = capsys.readouterr().err
    without = replace(
        config, factor=0.5, updates=100, out=str(tmp_path / "without"), dev_sentences=0
    )
    train(without)
    one, two = (tensors(Path(run) / "model.safetensors") for run in (folder, without.out))
    assert same(one, two) and exact(config) == exact(without)
    assert [row["dev_bleu"] for row in rows(without)] == [""] * 20
    sources, references = load_pairs(config.data.rpartition("-en-")[0], "dev", "en", "de")
    found = load_pretrained(folder, checkpoint="last").translate(sources, beam=1)
    last = rows(config)[-1]
    bleu, chrf = (
        sacrebleu.corpus_bleu(found, [references]),
        sacrebleu.corpus_chrf(found, [references]),
    )
    assert float(last["dev_bleu"]) == pytest.approx(bleu.score, abs=0.01)
    assert float(last["dev_chrf"]) == pytest.approx(chrf.score, abs=0.01) and chrf.score > 20
    assert [str(row["update"]) for row in recorder.rows] == [row["update"] for row in rows(config)]
    assert [row["update"] for row, _ in recorder.evaluations] == [*range(10, 101, 10)]
    assert recorder.saved == [f"checkpoint-{n:08d}.safetensors" for n in range(10, 101, 10)]
    examples = recorder.evaluations[-1][1]
    assert len(examples) == 3 and {*examples} <= {*zip(sources, references, found, strict=True)}
    page = (folder / "log.html").read_text(encoding="utf-8")
    assert "refresh" not in page and not re.search("https?:|src=|<link|<img", page)
    for example in examples:
        assert example.translation in page and str(example) in said


def test_the_page_draws_each_value_of_the_log(config: TrainingConfig, browser):
    """Offline; and no text of a translation is taken for markup."""
    log = RunLog(Path(config.out))
    for update, loss in (10, 4.0), (20, 2.0), (30, 3.0):
        log.add({"update": update, "train_loss": loss, "dev_loss": loss if update == 20 else ""})
    examples = [report.Example("<a>", "&", "</script><b>")]
    report.write_page(config, examples, ended=False)
    tab = browser.new_context(offline=True).new_page()
    tab.goto((Path(config.out) / "log.html").as_uri())
    assert tab.locator("td").all_text_contents()[3:] == [*examples[0]]
    assert tab.locator("h1").inner_text() == "run: 30 of 30 updates"
    assert tab.locator("meta[http-equiv=refresh]").count() == 1
    curves = [line.get_attribute("points") for line in tab.locator("svg polyline").all()]
    training, development = ([(*map(float, p.split(",")),) for p in c.split()] for c in curves)
    heights = [y for _, y in training[1:]]
    assert training[0] == training[1] and heights[0] < heights[2] < heights[1]
    assert heights[2] == pytest.approx((heights[0] + heights[1]) / 2)  # 3 is between 4 and 2
    assert development == [training[2]] * 2
    tab.context.close()


def code_in(card: str) -> str:
    return card.split("```python\n")[1].split("```")[0]


def exported(translator: Translator, folder: Path) -> list[str]:
    """The cards of copies of a model; no graph is written for ONNX, which takes seconds."""
    for form in FORMS:
        with suppress(ImportError), patch.object(export, "_export_graph"):
            export_model(translator, form, folder / form)
    translator.save(folder / "saved")
    return [path.read_text("utf-8") for path in folder.glob("*/README.md")]


def test_the_card_of_a_run_with_parts_of_ones_own_loads_it(config, monkeypatch):
    reach = partial(RelativeBias, reach=3)
    make = partial(build_model, encoder_attention=reach, feed_forward=Gated)
    folder = train(config, build=make)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "with parts of its own: encoder_attention=partial(RelativeBias, reach=3)" in card
    monkeypatch.chdir(folder)
    names = {"partial": partial, "RelativeBias": RelativeBias, "Gated": Gated}
    exec(code_in(card), names)
    with pytest.raises(InputError) as refused:
        load_pretrained(folder)
    loaded = eval(str(refused.value).partition("in Python: ")[2], names)
    text = "A dog runs."
    assert loaded.translate(text) == names["translator"].translate(text)
    loaded.save(folder / "copy")
    assert "Gated" in (folder / "copy" / "README.md").read_text("utf-8")


def test_a_card_names_the_licenses_that_are_known(config, tmp_path):
    multi30k = "for research and education (see the source)"
    assert multi30k in _named_data("multi30k-en-de")
    table = f"{tmp_path}/my.tsv:1,2"
    assert _named_data(f"{tmp_path}/my.en,{tmp_path}/my.de") == "my.en, my.de"
    assert _named_data(f"{table}+multi30k-en-de").startswith("my.tsv:1,2; Multi30k")
    told = "; from the weights of multi30k-en-de, license: research-and-education"
    assert _origin("multi30k-en-de")["origin"] == told
    folder = train(config)
    named = _origin(str(folder))["origin"]
    assert folder.name in named and str(folder.parent) not in named and str(tmp_path) not in named
    assert "whose license applies" in _origin(str(tmp_path / "gone"))["origin"]


@pytest.mark.slow
@pytest.mark.parametrize("link", ["https://example.org/license", "LICENSE"])
def test_the_metadata_of_a_tuned_model_and_its_copies_have_the_license(config, tmp_path, link: str):
    """But not the name of a file that they lack."""
    base = train(config)
    license = {"license": "other", "license_name": "a: b"}
    metadata_save(base / "README.md", license | {"license_link": link})
    out, few = str(tmp_path / "tuned"), {"updates": 10, "save_updates": 10}
    tuned = train(fine_tuning(base, data=config.data, out=out, **few))
    cards = [(tuned / "README.md").read_text("utf-8")]
    cards += exported(load_pretrained(tuned), tmp_path / "copies")
    assert len(cards) > 1 and "of the last" not in cards[0]  # but the last alone
    for card in cards:
        found = yaml.safe_load(card.split("---")[1])
        wanted = license | ({"license_link": link} if link.startswith("https") else {})
        assert found == wanted | {"language": ["en", "de"], "pipeline_tag": "translation"}


def test_a_finished_run_has_a_card_that_says_how_to_make_it_again(config, monkeypatch):
    """And one that the user has written stays."""
    folder = train(replace(config, dropout=0.2))
    card, asked = (folder / "README.md").read_text(encoding="utf-8"), list[TrainingConfig]()
    (command,) = re.findall("`annotated (train .*)`", card)
    monkeypatch.setattr(annotated, "train", lambda c, *_: asked.append(c), raising=False)
    main(shlex.split(command))
    assert asked == [read_config(folder)]
    size = sum(p.numel() for p in load_pretrained(folder).model.parameters())
    assert f"{size:,} parameters" in card and rows(config)[-1]["dev_bleu"] in card
    assert "tok:13a" in card and "the mean of the last 2 checkpoints" in card
    monkeypatch.chdir(folder)
    exec(code_in(card))
    for copy in exported(load_pretrained(folder), folder / "copies"):
        assert str(folder.parent) in card and str(folder.parent) not in copy
        assert "Written by" not in copy and f"{size:,} parameters" in copy
    (folder / "README.md").write_text("mine")
    monkeypatch.undo()
    main(["average", str(folder)])
    assert (folder / "README.md").read_text() == "mine"


def test_tensorboard_receives_numbers_and_translations(config: TrainingConfig):
    log = RunLog(Path(config.out))
    log.board = Mock()
    log.add({"update": 7, "epoch": 1, "dev_bleu": 3.5}, "a → b")
    log.board.add_scalar.assert_called_once_with("dev_bleu", 3.5, 7)
    log.board.add_text.assert_called_once_with("translations", "a → b", 7)


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The development losses of a run to come."""
    coming = [3.0, 1.0, 2.0, 2.5, 1.5, 1.0, 0.5, 0.4]
    monkeypatch.setattr(Trainer, "dev_loss", lambda trainer: coming.pop(0))
    return coming


@pytest.mark.parametrize(
    ("options", "last", "kept"),
    [
        ({}, 40, [35, 40]), ({"keep_best": 1}, 40, [35, 40]),
        ({"keep_best": 2, "updates": 25}, 25, [10, 20, 25]),
        ({"keep_best": 3, "updates": 30}, 30, [10, 25, 30]),
        ({"patience": 3}, 25, [10, 20, 25]), ({"patience": 5}, 35, [10, 30, 35]),
        ({"patience": 6}, 40, [35, 40]),
    ],
)  # fmt: skip
def test_the_best_are_kept_and_a_run_ends_when_it_no_longer_improves(
    config: TrainingConfig, losses: list[float], options: dict, last: int, kept: list[int], capsys
):
    if options == {"patience": 5}:
        losses[5:] = [1.0, 1.0, 1.0]  # an equal loss is no improvement
    run = replace(config, save_updates=5, **{"updates": 40} | options)
    folder = train(run)
    assert int(rows(run)[-1]["update"]) == last
    assert [int(path.stem[11:]) for path in list_checkpoints(folder)] == kept
    before, ended = (folder / "model.safetensors").read_bytes(), last < run.updates
    assert ("no lower development loss" in capsys.readouterr().err) == ended
    best = {3: 10, 5: 10, 6: 40}.get(run.patience, last)
    paths = [path for path in list_checkpoints(folder) if int(path.stem[11:]) <= best]
    mean = average_checkpoints(paths[-run.average :])
    for name, x in tensors(folder / "model.safetensors").items():
        assert torch.equal(torch.from_numpy(x), mean[name].half())
    assert "refresh" not in (folder / "log.html").read_text(encoding="utf-8")
    train(run, resume=True)  # it has ended, and remains as it is
    assert int(rows(run)[-1]["update"]) == last
    assert (folder / "model.safetensors").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("event", ["on_log", "on_evaluate", "on_save"])
def test_the_exception_of_a_callback_ends_a_run_that_has_been_saved(config, tmp_path, event: str):
    train(config)
    other = replace(config, out=str(tmp_path / "other"))
    calls = iter([None, None, KeyError("mine")] if event == "on_log" else [KeyError("mine")])
    with pytest.raises(KeyError, match="mine"):
        train(other, callbacks=[Recorder(), Mock(spec=[event], **{f"{event}.side_effect": calls})])
    at = 15 if event == "on_log" else 10
    assert (Path(other.out) / INTERRUPTED).exists() == (event == "on_log")
    assert start_run(other, resume=True).progress.update == at
    train(other, resume=True)
    assert exact(config) == exact(other)


def test_a_callback_without_a_known_method_is_refused(config: TrainingConfig):
    with pytest.raises(InputError, match="on_log"):
        train(config, callbacks=[print])
    assert not Path(config.out).exists()


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_other_schedules_rise_to_the_peak_of_equation_3(config: TrainingConfig, schedule: str):
    config = replace(config, schedule=schedule, warmup=10, log_updates=1)
    train(replace(config, updates=20))
    train(config, resume=True)
    peak = rate(10, 16, 1.0, 10)
    for row in rows(config)[20 * (schedule == "cosine") :]:  # the first end was another's
        step, used = int(row["update"]), float(row["learning_rate"])
        falls = (1 + math.cos(math.pi * (step - 10) / 21)) / 2 if schedule == "cosine" else 1.0
        assert used == pytest.approx(peak * min(step / 10, 1.0) * (falls if step > 10 else 1.0))


def test_the_gradients_are_clipped_to_the_norm(config: TrainingConfig):
    """Two runs on the same batch: one's gradients are the other's, times one number."""
    free, held = start_run(config), start_run(replace(config, out=f"{config.out}-2", clip=0.01))
    gradients = []
    for trainer in free, held:
        parameters = [*trainer.model.parameters()]
        keep = lambda *_, p=parameters: gradients.append(torch.cat([x.grad.flatten() for x in p]))
        trainer.optimizer.register_step_pre_hook(keep)
        trainer.train_step(next(trainer.stream.updates(0, 0)))
    assert float(gradients[0].norm()) > 0.1 and float(gradients[1].norm()) == pytest.approx(0.01)
    torch.testing.assert_close(gradients[1], gradients[0] * 0.01 / gradients[0].norm())


@pytest.mark.slow
def test_minutes_size_a_run(config: TrainingConfig, monkeypatch, tmp_path, capsys):
    """An update takes 50 ms at least, and an evaluation 200, in 12 seconds."""
    step, evaluate = Trainer.train_step, Trainer.evaluate

    def slowly(real, seconds: float):
        return lambda *arguments: time.sleep(seconds) or real(*arguments)

    monkeypatch.setattr(Trainer, "train_step", slowly(step, 0.05))
    monkeypatch.setattr(Trainer, "evaluate", slowly(evaluate, 0.2))
    sized = replace(config, minutes=0.2, warmup=1000, average=9)
    trainer = start_run(sized)
    found, untouched = trainer.config, Trainer(config, trainer.stream.pairs, trainer.dev_pairs)
    evaluations = -(-found.updates // found.save_updates)
    assert 20 < found.updates < (12 - 0.2 * evaluations) / 0.05
    assert 1 <= evaluations <= 6 and found.average == -(-evaluations // 4)
    assert found.warmup == -(-found.updates // 5)
    peaks = (rate(one.warmup, 16, one.factor, one.warmup) for one in (sized, found))
    assert next(peaks) == pytest.approx(next(peaks))
    assert f"{found.updates} updates" in capsys.readouterr().err and trainer.progress.update == 0
    for one, two in zip(trainer.model.parameters(), untouched.model.parameters(), strict=True):
        assert torch.equal(one, two)
    assert read_config(Path(config.out)) == found
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    trainer.fit()
    assert start_run(sized, resume=True).config == found  # not sized again
