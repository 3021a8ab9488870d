"""The paper's run, from nothing to a score, rehearsed: the commands of section 5.2 as they stand
there, in the places and formats of WMT's files, on a made language and with a tiny model."""

import json
import os
import random
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from serving import tar

from annotated.machinery.scoring import BLEU_KINDS

ROOT = Path(__file__).resolve().parent.parent
PAIRS = 20_000
TINY = """--N 1 --d-model 64 --d-ff 128 --h 2 --dropout 0 --src-tokens 1600 --tgt-tokens 1600
--parts 1 --warmup 80 --updates 240 --save-updates 40 --log-updates 40"""
MORE = {"prepare": "--vocab-size 120", "train": f"--vocab-size 120 {TINY}"}
WORDS = {
    "the": "das", "a": "ein", "old": "alte", "red": "rote", "small": "kleine", "house": "Haus",
    "boat": "Boot", "horse": "Pferd", "child": "Kind", "book": "Buch", "sees": "sieht",
    "finds": "findet", "loves": "liebt", "has": "hat", "today": "heute", "well-known": "All-Tag",
}  # fmt: skip


THING = "the a", "old red small well-known", "house boat horse child book"


def sentence(chance: random.Random) -> tuple[str, str]:
    """A sentence of the made language, and its translation: word by word, the verb at the end."""
    thing = lambda: [chance.choice(group.split()) for group in THING]
    subject, verb, thing_seen = thing(), chance.choice(["sees", "finds", "loves", "has"]), thing()
    last = ["today"] * chance.randrange(2)
    english = [*subject, verb, *thing_seen, *last]
    german = [*subject, *last, *thing_seen, verb]
    return " ".join(english) + ".", " ".join(WORDS[word] for word in german) + "."


def archive(path: Path, members: dict[str, str]) -> None:
    tar(path, {name: text.encode() for name, text in members.items()}, "w:gz")


def write_corpus(folder: Path) -> None:
    """WMT's archives, as the register names them, with made sentences, and a few empty lines."""
    chance = random.Random(0)
    pairs = [sentence(chance) for _ in range(PAIRS)]
    held = [sentence(chance) for _ in range(200)]

    def both(name: str, some: list[tuple[str, str]]) -> dict[str, str]:
        sides = zip(("en", "de"), zip(*some, strict=True), strict=True)
        return {f"{name}.{lang}": "\n".join(lines) + "\n" for lang, lines in sides}

    folder.mkdir(parents=True)
    half = PAIRS // 2
    europarl = [*pairs[:half], ("", "")]  # such lines there are
    for name, member, some in (
        ("europarl-v7", "training/europarl-v7.de-en", europarl),
        ("commoncrawl", "commoncrawl.de-en", pairs[half:-1000]),
        ("nc-v9", "training/news-commentary-v9.de-en", pairs[-1000:]),
    ):
        archive(folder / f"training-parallel-{name}.tgz", both(member, some))
    marked = [tuple(f'<seg id="1">{side}</seg>' for side in pair) for pair in held[100:]]
    english, german = both("", marked).values()
    test = {"dev/newstest2014-deen-ref.en.sgm": english, "dev/newstest2014-deen-src.de.sgm": german}
    archive(folder / "dev.tgz", {**both("dev/newstest2013", held[:100]), **test})


def commands(chapter: str) -> list[list[str]]:
    """The commands of the walk-through, as words."""
    text = (ROOT / "chapters" / chapter).read_text(encoding="utf-8")
    box = (
        text.partition("### The commands for the base model")[2]
        .partition("```\n")[2]
        .partition("```")[0]
    )
    return [shlex.split(line) for line in box.strip().splitlines()]


def test_the_box_holds_five_commands():
    five = commands("5-2-hardware-schedule.md")
    assert [words[1] for words in five] == ["data", "prepare", "train", "average", "evaluate"]


@pytest.mark.slow
def test_from_nothing_to_a_score(tmp_path: Path):
    write_corpus(tmp_path / "data" / "wmt")
    places = {"ANNOTATED_DATA": tmp_path / "data", "XDG_CACHE_HOME": tmp_path / "cache"}
    environment = {**os.environ, **places, "CUDA_VISIBLE_DEVICES": ""}
    for words in commands("5-2-hardware-schedule.md"):
        words = [*words, *MORE.get(words[1], "").split()]
        since = time.perf_counter()
        place = {"cwd": tmp_path, "env": environment}
        line = [sys.executable, "-m", *words]
        done = subprocess.run(line, **place, capture_output=True, text=True, check=False)
        print(f"{time.perf_counter() - since:5.1f} s  {shlex.join(words)}")
        assert done.returncode == 0, done.stderr
    scores = json.loads((tmp_path / "data/results/base-en-de.json").read_text(encoding="utf-8"))
    score = {row["text"]: row["score"] for row in scores}
    assert score[BLEU_KINDS["compound-split"]] > 20  # untrained, it has none
    assert re.search("compounds split", done.stdout)
