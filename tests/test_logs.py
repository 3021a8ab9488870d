"""The programs that write logs of data/results, on tiny models: columns, and values known apart."""

import gzip
import json
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from conftest import DE, EN
from nltk import Tree
from sacrebleu.metrics import BLEU

from annotated import load_pretrained
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.files import resource_path
from annotated.machinery.runs.trainer import train
from annotated.machinery.scoring import evaluate
from annotated.training import TrainingConfig
from benchmarks import (
    alignments,
    bleu_settings,
    change,
    fine_tuning,
    parsing,
    regularization,
    scale,
)

SMALL = {"vocab_size": 60, "N": 1, "d_model": 16, "d_ff": 32, "h": 2, "warmup": 20, "updates": 30,
         "src_tokens": 120, "tgt_tokens": 120, "save_updates": 10, "log_updates": 5}  # fmt: skip


@pytest.fixture(autouse=True)
def multi30k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers, digit by digit, as Multi30k, and as every other corpus and pair of languages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("ANNOTATED_DATA", "data")
    numbers = [str(n * n + 7) for n in range(3, 83)]
    parts = {"train": numbers[:60], "val": numbers[60:68], "test_2016_flickr": numbers[68:72]}
    Path("data/multi30k").mkdir(parents=True)
    for name, part in parts.items():
        for lang, words in ("en", EN), ("de", DE), ("fr", DE):
            lines = [" ".join(words[int(n)] for n in number).title() for number in part]
            text = "".join(f"{line}.\n" for line in lines).encode()
            Path(f"data/multi30k/{name}.{lang}.gz").write_bytes(gzip.compress(text))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"folder": tmp_path_factory.mktemp("run")}


@pytest.fixture
def runs(made: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of three checkpoints, under every name, and in place of the models of the package."""
    names = ["en-de", "shipped-on"]
    names += [f"{name}-{tgt}" for name in ("lower", "theirs", "on") for tgt in ("de", "fr")]
    bleu_settings.main(["--texts"])
    shutil.copytree("runs/lower", "runs/tokenized")
    run = made["folder"] / "run"
    if not run.exists():
        train(TrainingConfig(out=str(run), data="runs/tokenized-en-de", average=3, **SMALL))
    for name in names:
        Path("runs", name).symlink_to(run)
    for module in alignments, bleu_settings:
        load = lambda name: load_pretrained(name if Path(name).exists() else run)
        monkeypatch.setattr(module, "load_pretrained", load)
    return Path("runs")


def stored(name: str) -> pd.DataFrame:
    return table(resource_path("results") / name)


def table(path: Path) -> pd.DataFrame:
    return pd.read_json(path) if path.suffix == ".json" else pd.read_csv(path)


def written(module, *names: str) -> list[pd.DataFrame]:
    """What a program writes; each table has the columns of the stored one."""
    module.main(["--out", "out", "--only", *names])
    found = [table(Path("out", name)) for name in names]
    for name, log in zip(names, found, strict=True):
        assert list(log.columns) == list(stored(name).columns), name
    return found


@pytest.mark.slow
def test_bleu_settings(runs: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bleu_settings, "SEARCHES", [(1, 0), (4, 0.6)])
    monkeypatch.setattr(bleu_settings, "ALPHAS", (0.6, 1.5))
    averages, search, lower, recipe = written(bleu_settings, *bleu_settings.WRITERS)
    translator = load_pretrained(runs / "en-de")  # the mean of all three checkpoints
    score = evaluate(translator, "multi30k", "dev", "en", "de")[-2]
    last = averages.iloc[-1]
    expected = pytest.approx((10, score["score"], score["perplexity"]), rel=1e-4)
    assert (last.checkpoints, last.BLEU, last.perplexity) == expected
    rows = search[search["beam"] == 4]
    found = [int(rows[str(n)].sum()) for n in range(1, 5)]
    possible = [int((rows["words"] - n).clip(lower=0).sum()) for n in range(4)]
    lengths = int(rows["words"].sum()), int(rows["reference"].sum())
    counted = BLEU.compute_bleu(found, possible, *lengths, smooth_method="exp").score
    assert counted == pytest.approx(score["score"])
    tried = lower[lower["split"] == "dev"].groupby("pair").size()
    assert tried.tolist() == [2, 2] and 6 <= len(lower) <= 8
    assert recipe["run"].unique().tolist() == ["theirs", "theirs, and on", "shipped, and on"]
    lowered = load_pairs("runs/tokenized", "dev", "en", "de")
    outputs = translator.translate(lowered[0], beam=5, alpha=1.5)
    theirs = BLEU(tokenize="none").corpus_score(outputs, [lowered[1]]).score
    assert recipe["score"][1] == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("The government and the governments", "Le gouvernement", []),  # resembles two words
        ("We go on the ration", "On y va nation", []),  # short words; another first letter
        ("provided province", "province", [(1, 0, "same")]),  # equal words come first
        ("ELEPHANT 12345", "12346 éléphant", [(0, 1, "same")]),  # a number is equal, or no link
        ("before April 1", "avant le 1 avril", [(2, 2, "number"), (1, 3, "cognate")]),
    ],
)
def test_spelling_links(source: str, target: str, expected: list[tuple[int, int, str]]):
    assert alignments.spelling_links(source.split(), target.split()) == expected


@pytest.mark.slow
def test_alignments(runs: Path, monkeypatch: pytest.MonkeyPatch):
    copied = lambda *about: [load_pairs("runs/lower", *about[1:])[0]] * 2  # each word has its place
    monkeypatch.setattr(alignments, "load_pairs", copied)
    alignments.main(["--out", "alignments.json"])
    found, known = (
        {name: pd.DataFrame(rows) for name, rows in json.loads(path.read_text()).items()}
        for path in (Path("alignments.json"), resource_path("results") / "alignments.json")
    )
    assert [*map(list, found.values())] == [*map(list, known.values())] and [*found] == [*known]
    errors = found["errors"].query("who == 'the diagonal' and kind == 'all'")
    assert errors["reader"].tolist() == ["trained", "untrained"]
    lines = [line.rstrip(".").split() for line in load_pairs("runs/lower", "test", "en", "de")[0]]
    links = sum(len(word) > 3 and line.count(word) == 1 for line in lines for word in line)
    assert errors["links"].tolist() == [links] * 2 and errors["error"].tolist() == [0, 0]


@pytest.mark.slow
def test_regularization(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(regularization, "SMALL", SMALL | {"updates": 10, "average": 1})
    monkeypatch.setattr(regularization, "BEST", 10)
    log, early = written(regularization, "regularization.csv", "regularization-early.csv")
    assert len(log) == 4 * 2 and early["update"].tolist() == [10]
    assert pd.read_csv("runs/early/log.csv")["update"].max() == 10 + 2 * SMALL["save_updates"]
    (known,) = set(pd.read_csv("runs/early/log.csv")["dev_loss"].dropna().iloc[-1:])
    assert early["perplexity"].tolist() == pytest.approx([math.exp(known)], rel=1e-3)
    for (dropout, smoothing), rows in log.groupby(["dropout", "label_smoothing"]):
        log = pd.read_csv(f"runs/{dropout}-{smoothing}/log.csv")
        assert rows["train_loss"].tolist() == log["train_loss"].tolist()
        perplexity = math.exp(log["dev_loss"].iloc[-1])
        assert rows["perplexity"].tolist() == pytest.approx([perplexity] * 2, rel=1e-3)


@pytest.mark.slow
def test_change(monkeypatch: pytest.MonkeyPatch):
    small = {key: value for key, value in SMALL.items() if key != "updates"}
    monkeypatch.setattr(change, "SMALL", small | {"average": 1, "data": "multi30k-en-de"})
    less = {"FACTORS": (0.5, 2.0), "SEEDS": (1, 2), "SHORT": 10, "LONG": 20, "LONGER": 30}
    for name, value in less.items():
        monkeypatch.setattr(change, name, value)
    (log,) = written(change, "change.csv")
    short, long = (log[log["updates"] == updates] for updates in (10, 20))
    best = short.loc[short.groupby("variant")["dev_loss"].idxmin()].set_index("variant")["factor"]
    assert len(short) == len(change.VARIANTS) * 2 and len(long) == len(change.VARIANTS) * 2
    assert {*log.loc[log["updates"] == 30, "variant"]} == {*change.COMPARED}
    assert (long["factor"] == long["variant"].map(best)).all()
    assert long["dev_loss"].nunique() == len(long)  # each part and each seed changes the run
    again = change.change(Path("runs"))  # all runs are there
    assert again["dev_loss"].tolist() == log["dev_loss"].tolist()


@pytest.mark.slow
def test_scale(monkeypatch: pytest.MonkeyPatch):
    small = {key: value for key, value in SMALL.items() if key != "updates"}
    monkeypatch.setattr(scale, "SMALL", small | {"average": 1, "data": "multi30k-en-de"})
    monkeypatch.setattr(scale, "UPDATES", 10)
    (log,) = written(scale, "scale.csv")
    assert len(log) == len(scale.RUNS) * len(scale.BUILD)
    assert log["dev_loss"].nunique() == len(log)  # each kind, rate and seed changes the run
    lengths = log.groupby("rows")["row_length"].mean()
    assert lengths["no factor, long rows"] > 3 * lengths.drop("no factor, long rows").max()
    again = scale.scale(Path("runs"))  # all runs are there
    assert again["dev_loss"].tolist() == log["dev_loss"].tolist()


def made_corpus(name: str, split: str) -> list[tuple[str, str]]:
    """Numbers, digit by digit, of other lengths in each corpus; each source has two translations,
    and some are in all splits."""
    length = ["tatoeba", "multi30k", "news"].index(name) + 2
    start = {"train": 0, "dev": 30, "test": 40}[split]
    digits = [f"{n % 10**length:0{length}}" for n in range(7, 700, 7)][start : start + 40]
    both = [tuple(" ".join(words[int(n)] for n in each) for words in (EN, DE)) for each in digits]
    return [pair for one in both for pair in (one, (one[0], "et"))]


@pytest.mark.slow
def test_fine_tuning(monkeypatch: pytest.MonkeyPatch):
    for name, value in ("AMOUNTS", (8,)), ("SEEDS", (1,)), ("TRIED", 8), ("corpus", made_corpus):
        monkeypatch.setattr(fine_tuning, name, value)
    texts = fine_tuning.Texts()
    sets = [{source for source, _ in pairs} for pairs in vars(texts).values()]
    assert len(sets) == 6 and sum(map(len, sets)) == len(set().union(*sets))  # none shares a source
    alone, mixed = (texts.sample(arm, 8, seed=1) for arm in ("fine-tuned", "mixed"))
    assert mixed[:8] == alone != texts.sample("fine-tuned", 8, seed=2)
    assert {*alone} <= {*texts.captions} and {*mixed[8:]} <= {*texts.general}
    short = {"precision": "float32", "warmup": 2, "save_updates": 4, "updates": 4}
    small = SMALL | {"dev_sentences": 0, "average": 1} | short
    for name in "GENERAL", "SCRATCH":
        monkeypatch.setattr(fine_tuning, name, small)
    for name in "SHORT", "BATCH":
        its = {key: small[key] for key in getattr(fine_tuning, name)}
        monkeypatch.setattr(fine_tuning, name, its)
    fine_tuning.main(["--out", "out", "--only", "fine-tuning.csv"])  # whose log is not made yet
    log = table(Path("out", "fine-tuning.csv"))
    assert log["arm"].tolist() == ["general", "fine-tuned", "from scratch", "mixed"]
    assert log["pairs"].tolist() == [0, 8, 8, 8] and log["captions_loss"].nunique() == 4
    tuned = load_pretrained(f"runs/fine-tuning/fine-tuned-8-1-{log['factor'][1]}")
    sources, references = (list(side) for side in zip(*texts.test, strict=True))
    score = BLEU().corpus_score(tuned.translate(sources), [references]).score
    assert log["captions_bleu"][1] == pytest.approx(score, abs=0.01)
    again = fine_tuning.fine_tune(Path("runs"))  # all runs are there
    pd.testing.assert_frame_equal(again, log)


class Flat:
    """A parser that finds all brackets of flat trees."""

    def parse_all(self, sentences: list[list[str]], **options: object) -> list[Tree]:
        return [flat(sentence) for sentence in sentences]


def flat(words: list[str]) -> Tree:
    return Tree("S", [Tree("NN", [word]) for word in words])


def test_parsing(monkeypatch: pytest.MonkeyPatch):
    trees = [flat([*"abcdefgh", str(n), "j"]) for n in range(40)]
    monkeypatch.setattr(parsing, "load_trees", lambda *_: trees[:32] if _[1] == "dev" else trees)
    monkeypatch.setattr(parsing, "load_parser", Flat)
    names = [name for name in parsing.WRITERS if name.endswith(".csv")]
    baselines, searches, lengths = written(parsing, *names)
    assert baselines["Number of sentence"].tolist() == [7] * 5
    assert searches["beam"].tolist() == sorted([1, 4, 21] * 4) * 2
    assert (searches["Bracketing FMeasure"] == 100).all()
    assert lengths.values.tolist() == [[10, 12, 40]]
    parsing.main(["--out", "out", "--only", "craft-test-trees.txt"])
    twenty = Path("out/craft-test-trees.txt").read_text().splitlines()
    assert [Tree.fromstring(line) for line in twenty] == trees[::2]
