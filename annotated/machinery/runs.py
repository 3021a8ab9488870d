"""Runs wanted."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from annotated.machinery.cleaning import PairReport, good_pairs
from annotated.machinery.corpora import split_parts
from annotated.machinery.files import resource_path, write_text

_OWN = Path("data/results")  # of the reader's folder


@dataclass(frozen=True)
class WantedRun:
    """A run that takes the paper's data, and mostly its hardware.

    Args:
        id: its short name.   section: of the paper, where the number stands.
        wanted: the number in words.   paper: the number.   unit: of it.
        command: what to type, from data to log.   log: its name in data/results/.
        entry: what marks the row of the log; none, if the log is one number.
        columns: of this row: the number, and what else to tell.
        within: how far from the paper's a repetition may lie.   scale: of the number in the log.
    """

    id: str
    section: str
    wanted: str
    paper: float
    unit: str
    command: str
    log: str
    entry: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ("score",)
    within: float = 0.3
    scale: float = 1

    def found(self) -> str:
        """What the log says, the reader's own before that of the package; "nobody has" without."""
        folder = _OWN if (_OWN / self.log).exists() else resource_path("results")
        try:
            log = json.loads((folder / self.log).read_text(encoding="utf-8"))
            row = (
                next(row for row in log if self.entry.items() <= row.items()) if self.entry else {}
            )
            number, *more = map(float, (row[name] for name in self.columns) if row else [log])
        except FileNotFoundError:
            return "nobody has"
        except (LookupError, AttributeError, TypeError, ValueError, StopIteration):
            return f"{self.log} is empty, damaged or not complete"
        number /= self.scale
        verdict = "holds" if abs(number - self.paper) <= self.within else "differs"
        others = zip(
            self.columns[1:], more, strict=False
        )  # of a log that is one number there are none
        told = "".join(f", {name} {value:.2f}" for name, value in others)
        return f"{verdict}: {number:.2f} {self.unit}{told}; the paper {self.paper:g}"


_TRAIN = "torchrun --standalone --nproc-per-node gpu -m annotated train"


def _translators() -> list[WantedRun]:
    """Both models of Table 2, from English to German and to French."""
    from annotated.machinery.scoring import BLEU_KINDS, table_2

    table = table_2().set_index("model")
    runs = []
    for size in ("big", "base"):
        for pair, language, text in (
            ("en-de", "German", "compound-split"),
            ("en-fr", "French", "tokenized"),
        ):
            name, score = (
                f"{size}-{pair}",
                table.loc[f"Transformer ({size})", f"BLEU {pair.upper()}"],
            )
            wanted = f"{size.title()} scores {score} BLEU from English to {language}."
            log, entry = f"{name}.json", {"split": "test", "text": BLEU_KINDS[text]}
            command = (
                f"{_TRAIN} --preset {name}\n"
                f"annotated evaluate runs/{name} --split test --out data/results/{log}"
            )
            runs.append(WantedRun(name, "6.1", wanted, score, "BLEU", command, log, entry))
    return runs


def _variations() -> list[WantedRun]:
    """Rows of Table 3: both models of Table 2, and those that small runs left open."""
    from annotated.machinery.scoring import BLEU_KINDS
    from annotated.machinery.training.table_3 import full_command
    from annotated.variations import run_folder, table_3

    entry, runs = {"split": "dev", "text": BLEU_KINDS["compound-split"]}, []
    open_rows = "A: h = 1", "D: label_smoothing = 0.0", "E: positions = learned"
    for row_name, row in table_3().loc[["base", "big", *open_rows]].iterrows():
        folder = run_folder(str(row_name))
        name = folder.removeprefix("runs/")
        log = f"{name}-dev.json"
        told = f"{row['BLEU']} BLEU on newstest2013 without averaging, at a perplexity of"
        wanted = f"{row_name} reaches {told} {row['perplexity']} a piece."
        command = (
            f"{full_command(row_name)}\n"
            f"annotated evaluate {folder} --split dev --out data/results/{log}"
        )
        given = wanted, row["BLEU"], "BLEU", command, log, entry, ("score", "perplexity")
        runs.append(WantedRun(f"{name}-dev", "6.2", *given))
    return runs


_TREES = """\
annotated treebank write PENN runs/{data}
{train}
annotated parse --model runs/{name} --treebank PENN --split test --beam 21 --free \
--out data/results/{name}.json"""
_DROPPED = " --dropout 0.2 --attention-dropout 0.2"


def _parsers() -> list[WantedRun]:
    """Both parsers of Table 4."""
    from annotated.parsing import table_4

    ours = table_4().query("parser == 'Transformer (4 layers)'").set_index("training")["F1"]
    entry, runs = {"split": "test", "sentences": "all"}, []
    for name, data, training, wanted, more in (
        (
            "parser-wsj",
            "penn",
            "WSJ only, discriminative",
            "Trained on the Journal alone",
            _DROPPED,
        ),
        ("parser-semi", "semi", "semi-supervised", "With 17 million sentences more", ""),
    ):
        command = _TREES.format(name=name, data=data, train=f"{_TRAIN} --preset {name}{more}")
        wanted = f"{wanted}, the parser reaches an F1 of {ours[training]}."
        given = (
            wanted,
            ours[training],
            "F1",
            command,
            f"{name}.json",
            entry,
            ("Bracketing FMeasure",),
        )
        runs.append(WantedRun(name, "6.3", *given))
    return runs


def count_pairs(corpus: str, src: str, tgt: str) -> int:
    """Count the training pairs of a corpus, and write the number to data/results/CORPUS-pairs.json.

    It counts the pairs that are left when bad ones are dropped, and holds few of them at a time.

    Args:
        corpus: a name of the register.   src, tgt: languages, such as "en" and "de".

    Raises: as `load_pairs`.
    """
    good = 0
    for part in split_parts(corpus, "train", src, tgt):
        good += sum(1 for _ in good_pairs(part.lines(), PairReport(part.name)))
    _OWN.mkdir(parents=True, exist_ok=True)
    write_text(_OWN / f"{corpus}-pairs.json", f"{good}\n")
    return good


def _corpora() -> list[WantedRun]:
    """The two corpora of section 5.1."""
    runs = []
    for other, language, millions, within in ("de", "German", 4.5, 0.05), ("fr", "French", 36, 0.5):
        name = f"wmt14-en-{other}"
        count = f"from annotated.machinery.runs import count_pairs; count_pairs('{name}', 'en', '{other}')"
        wanted = f"The English-{language} data are about {millions} million pairs."
        command = f'annotated data get {name} --split train\npython -c "{count}"'
        given = wanted, millions, "million pairs", command, f"{name}-pairs.json"
        runs.append(WantedRun(name, "5.1", *given, within=within, scale=1e6))
    return runs


def wanted_runs() -> list[WantedRun]:
    """All runs that wait for somebody with the paper's data, by section."""
    return [*_corpora(), *_translators(), *_variations(), *_parsers()]
