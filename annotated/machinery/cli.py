"""The command `annotated`. Models that leave the book. Published models."""

import argparse
import dataclasses
import io
import os
import re
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from annotated.machinery.commands import (
    run_average,
    run_data,
    run_evaluate,
    run_export,
    run_heads,
    run_import,
    run_paper,
    run_parse,
    run_prepare,
    run_score,
    run_train,
    run_translate,
    run_treebank,
    run_vary,
)


def add_fields(parser: argparse.ArgumentParser, config: Any, names: Collection[str] = ()) -> None:
    """Give a parser an option for each field of a configuration dataclass, or for some of them.

    An option that is not given leaves no trace in the result, so that presets can fill it in.
    """
    for field in dataclasses.fields(config):
        if names and field.name not in names:
            continue
        default, choices = field.default, field.metadata["choices"]
        kind: dict[str, Any] = {"type": type(default), "choices": choices or None}
        if isinstance(default, bool):
            kind = {"action": argparse.BooleanOptionalAction}
        elif not choices:
            kind["metavar"] = type(default).__name__.upper()
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            dest=field.name,
            default=argparse.SUPPRESS,
            help=f"{field.metadata['help']} (default: {default})",
            **kind,
        )


class CommandParser(argparse.ArgumentParser):
    """A parser that knows --debug; so do those of its subcommands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        told = "if something goes wrong, show Python's traceback in place of one line"
        self.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=told)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command `annotated`."""
    parser = CommandParser(prog="annotated", description="Attention Is All You Need, executable.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_train(commands)
    add_translate(commands)
    add_scoring(commands)
    add_parse(commands)
    add_treebank(commands)
    add_studies(commands)
    add_export(commands)
    add_sources(commands)
    add_import(commands)
    return parser


HOW_TO_PREPARE = """
examples:
  annotated prepare --preset base-en-de
  annotated prepare --data texts-en-de --vocab-size 16000 --out texts/prepared

The corpus is read twice: to draw the pairs that the vocabulary is learnt from, and to encode it.
The folder is printed. `annotated train` with the same options finds it there, in whichever process;
one that was chosen with --out it finds with --prepared. A second call compares the sums of all
files, and does nothing else. If it is stopped or killed, nothing is left that could be mistaken for
the whole.
"""


def add_train(commands: Any) -> None:
    """The commands that prepare a corpus, and train on it."""
    from annotated.machinery.prepared import RULES
    from annotated.training import PRESETS, TrainingConfig

    prepare = commands.add_parser(
        "prepare",
        help="turn a corpus into numbers, once for all runs (section 5.1)",
        description="Read and clean a corpus, learn its vocabulary, encode it, and write it down.",
        epilog=HOW_TO_PREPARE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    told = "the options of this run (default: multi30k-en-de, whose values are the defaults below)"
    prepare.add_argument("--preset", choices=PRESETS, help=told)
    prepare.add_argument("--out", default="", help="where to (default: beside the downloads)")
    cores = min(os.cpu_count() or 1, 8)
    told = "encoding at once (default: one a core, at most 8)"
    prepare.add_argument("--processes", type=int, default=cores, metavar="INT", help=told)
    add_fields(prepare, TrainingConfig, RULES)
    prepare.set_defaults(run=run_prepare)

    train = commands.add_parser(
        "train",
        help="train a translation model (section 5)",
        description="Train a model, on one process or on all that torchrun starts. Ctrl-C saves.",
        epilog="example: annotated train --data multi30k-en-fr --out runs/en-fr",
    )
    train.add_argument(
        "--preset",
        choices=PRESETS,
        help="a whole set of options; those given replace it (default: multi30k-en-de, whose "
        "values are the defaults below, or with --resume the run's own)",
    )
    train.add_argument("--resume", action="store_true", help="continue the run in --out, if any")
    add_fields(train, TrainingConfig)
    train.set_defaults(run=run_train)


HOW_TO_TRANSLATE = """
examples:
  annotated translate multi30k-en-de "A dog runs." "A cat sleeps."
  annotated translate multi30k-en-de < in.txt > out.txt
  annotated translate multi30k-en-de --input in.txt --output out.txt --beam 8
  annotated translate multi30k-en-de --n-best 4 "A dog runs."

With --n-best, each candidate is a line of four fields with tabs between them: the number of
its sentence, counted from 1; its score; its log-probability; the translation. The candidates
of a sentence stand together, the best first. A blank sentence has one, which is empty.
"""


def add_translate(commands: Any) -> None:
    """The command that translates."""
    parser = commands.add_parser(
        "translate",
        help="translate sentences, a file or a pipe (section 6.1)",
        description="Translate sentences, the lines of a file, or those of standard input; in\n"
        "order, a line in, a line out.",
        epilog=HOW_TO_TRANSLATE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("model", help="a model of the package or of the Hub, or a folder")
    add("text", nargs="*", help="sentences; default: lines of standard input")
    add("--input", metavar="FILE", help="translate its lines; may be compressed by gzip or xz")
    add("--output", metavar="FILE", help="write here once all is done (default: standard output)")
    for option, default, text in (
        ("--beam", 4, "hypotheses to follow; 1 is greedy"),
        ("--alpha", 0.6, "length penalty"),
        ("--max-extra", 50, "tokens that an output may have more than its input"),
        ("--max-source", 1000, "tokens of an input; of a longer one the beginning is translated"),
        ("--batch-tokens", 2000, "tokens of a batch, padding included"),
        ("--chunk", 1000, "lines to read ahead and sort by length; 1 answers each at once"),
    ):
        kind = type(default)
        help_text = f"{text} (default: {default})"
        add(option, type=kind, default=default, metavar=kind.__name__.upper(), help=help_text)
    add("--n-best", type=int, metavar="N", help="print the N best of each, with scores (see below)")
    add("--device", help="such as cpu or cuda (default: the GPU, if there is one)")
    bar = argparse.BooleanOptionalAction
    add("--progress", action=bar, help="show a bar on standard error (default: at a terminal)")
    parser.set_defaults(run=run_translate)


def add_scoring(commands: Any) -> None:
    """The commands that measure translations."""
    evaluate = commands.add_parser(
        "evaluate", help="score a model: BLEU and perplexity (section 6.1)"
    )
    evaluate.add_argument("model", help="a model of the package or of the Hub, or a folder")
    told = "one or more CORPUS-SRC-TGT (default: what the model was trained on)"
    evaluate.add_argument("--data", nargs="+", help=told)
    evaluate.add_argument("--split", nargs="+", default=["test"], help="default: test")
    evaluate.add_argument(
        "--beam", type=int, default=4, help="hypotheses; 1 is greedy (default: 4)"
    )
    evaluate.add_argument("--alpha", type=float, default=0.6, help="length penalty (default: 0.6)")
    evaluate.add_argument(
        "--device", help="such as cpu or cuda (default: the GPU, if there is one)"
    )
    evaluate.add_argument("--out", help="also write the scores to this JSON file")
    evaluate.set_defaults(run=run_evaluate)

    score = commands.add_parser("score", help="score files of translations (section 6.1)")
    score.add_argument("output", nargs="+", help="translations, plain text, one sentence a line")
    score.add_argument("--ref", required=True, help="reference, plain text, one sentence a line")
    score.add_argument("--lang", default="de", help="language of both (default: %(default)s)")
    score.add_argument("--out", help="also write the scores to this JSON file")
    score.set_defaults(run=run_score)


def add_parse(commands: Any) -> None:
    """The command that parses."""
    parser = commands.add_parser(
        "parse",
        help="draw the tree of a sentence, or score a parser (section 6.3)",
        description="The trees of sentences; or, with --treebank, how well a parser does.",
        epilog='example: annotated parse "The cat sat on the mat."',
    )
    add = parser.add_argument
    add("text", nargs="*", help="sentences; default: lines of standard input")
    add("--model", default="craft-parser", help="a parser of the package, or the folder of a run")
    add("--words", action="store_true", help="sentences are in words already, with spaces between")
    add("--lines", action="store_true", help="print each tree in brackets, on one line")
    add("--svg", metavar="FILE", help="also draw the tree (of several, the last) in this file")
    add("--beam", type=int, default=4, help="hypotheses; the paper: 21 (default: %(default)s)")
    add("--alpha", type=float, default=0.3, help="length penalty (default: %(default)s)")
    free = "do not hold the search to trees of the sentence; what comes out is mended all the same"
    add("--free", action="store_true", help=free)
    add("--treebank", help="score on it: craft, wsj-sample, or the folder of a Penn Treebank")
    add("--split", default="dev", help="train, dev or test (default: %(default)s)")
    told = "score two simpler parsers too, a grammar and right-branching trees"
    add("--baselines", action="store_true", help=told)
    add("--limit", type=int, help="so many sentences of it, from the beginning (default: all)")
    add("--out", help="also write the scores to this JSON file")
    add("--device", help="such as cpu or cuda (default: the GPU, if there is one)")
    parser.set_defaults(run=run_parse)


def add_treebank(commands: Any) -> None:
    """The commands about trees in files."""
    told = "write trees to train on, or score them (section 6.3)"
    treebank = commands.add_parser("treebank", help=told)
    actions = treebank.add_subparsers(dest="action", required=True, metavar="write|score")
    write = actions.add_parser("write", help="as a corpus for train, sentences and trees")
    write.add_argument("treebank", help="craft, or the folder of a Penn Treebank")
    write.add_argument("folder", help="where to; --data of train is then what is printed")
    told = "so many training trees, from the beginning (default: all)"
    write.add_argument("--limit", type=int, help=told)
    score = actions.add_parser("score", help="compare two files of trees in brackets as EVALB does")
    score.add_argument("gold", help="a tree a line, or a blank line")
    score.add_argument("found", help="the same sentences, as a parser sees them")
    told = "EVALB's parameter file (DEBUG and MAX_ERROR change nothing; default: as COLLINS.prm)"
    score.add_argument("--param", metavar="FILE", help=told)
    score.add_argument("--out", help="also write the scores to this JSON file")
    treebank.set_defaults(run=run_treebank)


def add_studies(commands: Any) -> None:
    """The commands that repeat a study of the book."""
    heads = commands.add_parser(
        "heads", help="what the heads of a model do (attention visualizations)"
    )
    heads.add_argument("model", help="a model of the package or of the Hub, or a folder")
    bare = "the same model before training, as a control"
    heads.add_argument("--untrained", action="store_true", help=bare)
    heads.add_argument("--out", help="also write the tables to this JSON file")
    heads.set_defaults(run=run_heads)

    vary = commands.add_parser(
        "vary", help="train the rows of Table 3 at small scale (section 6.2)"
    )
    vary.add_argument(
        "--row", nargs="+", metavar="ROW", help="such as base or 'A: h = 1' (default: all)"
    )
    vary.add_argument(
        "--seed", nargs="+", type=int, default=[1], help="a run for each (default: 1)"
    )
    vary.add_argument("--updates", type=int, help="of each run (default: 2000)")
    vary.add_argument("--precision", help="as for train (default: auto)")
    file = "runs/variations.csv"
    vary.add_argument(
        "--results", default=file, help="file that grows by a line a run (default: %(default)s)"
    )
    vary.set_defaults(run=run_vary)


def add_sources(commands: Any) -> None:
    """The commands about files: checkpoints, corpora, and the paper."""
    average = commands.add_parser(
        "average",
        help="average the weights of checkpoints (section 6.1)",
        epilog="example: annotated average runs/base-en-de --last 5",
    )
    told = "the folder of a run, whose model becomes the mean; or checkpoint files"
    average.add_argument("checkpoints", nargs="+", metavar="RUN|FILE", help=told)
    told = "of a run: so many checkpoints (default: as many as it was told to average)"
    average.add_argument("--last", type=int, default=0, metavar="N", help=told)
    average.add_argument("--out", metavar="FILE", help="of files: where to write the mean")
    average.set_defaults(run=run_average)

    data = commands.add_parser("data", help="list or fetch corpora (section 5.1)")
    actions = data.add_subparsers(dest="action", required=True, metavar="list|get")
    actions.add_parser("list", help="what there is, with source and licence")
    get = actions.add_parser("get", help="download a corpus; a broken download is continued")
    get.add_argument("name", help="a corpus of `annotated data list`")
    get.add_argument(
        "--split", nargs="+", default=[], help="only what these splits need (default: all)"
    )
    data.set_defaults(run=run_data)

    paper = commands.add_parser("paper", help="fetch, import or show the paper's own text")
    actions = paper.add_subparsers(dest="action", required=True, metavar="get|import|show")
    actions.add_parser("get", help="download it from arXiv")
    actions.add_parser("import", help="keep a copy of a PDF that you have").add_argument("file")
    actions.add_parser("show", help="print a section, such as 3.2.1").add_argument("section")
    paper.set_defaults(run=run_paper)


def explain(error: Exception) -> tuple[int, str]:
    """Exit status, and what went wrong in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    no_memory = re.search("out of memory|allocate memory", text, re.IGNORECASE)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and no_memory):
        less = "--parts, other commands less with a smaller --beam or --batch-tokens"
        return 2, f"out of memory; train needs less with more {less}, or try --device cpu"
    if isinstance(error, ModuleNotFoundError):
        return 2, f"expected the package {error.name}; it is not installed"
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename is not None else ""
        return 2, f"{place}{error.strerror}"
    if isinstance(error, ValueError | OSError):
        return 2, text
    told = f"this should not happen, and is no mistake of yours ({type(error).__name__}: {text})"
    return 70, f"{told}; --debug shows where"


@contextmanager
def short_warnings() -> Iterator[None]:
    """Around a command: our warnings are a line, without a place in the code."""
    usual = warnings.formatwarning

    def short(message: Any, category: Any, *where: Any, **more: Any) -> str:
        if category is not UserWarning:
            return usual(message, category, *where, **more)
        return f"annotated: {' '.join(str(message).split())}\n"

    warnings.formatwarning = short
    try:
        yield
    finally:
        warnings.formatwarning = usual


def main(arguments: list[str] | None = None) -> None:
    """Run the command `annotated`."""
    prepare_streams()
    parser = build_parser()
    options, rest = parser.parse_known_args(arguments)
    if "text" in options and not any(word.startswith("-") for word in rest):
        options.text = [*options.text, *rest]  # sentences behind an option, which argparse misses
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        with nullcontext() if "debug" in options else short_warnings():
            options.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        let_go_of_output()
        sys.exit(141)  # as of a program that the signal SIGPIPE has ended
    except KeyboardInterrupt as stop:
        print(f"annotated: {str(stop) or 'interrupted'}", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        let_go_of_output()
        if "debug" in options:
            raise
        status, line = explain(error)
        print(f"annotated: {line}", file=sys.stderr)
        sys.exit(status)


def prepare_streams() -> None:
    """Let every character be printed, escaped if need be; and errors, though nobody reads them."""
    if sys.stderr is None:  # closed
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def let_go_of_output() -> None:
    """Print what is in the buffer; if it cannot be, it must not fail again when Python ends."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def add_export(commands: Any) -> None:
    """The command that writes a model for another program."""
    from annotated.machinery.export import FORMS

    export = commands.add_parser(
        "export",
        help="write a model for another program",
        description="Write a model in the format of another program "
        "(for ONNX and CTranslate2 with the extra export).",
        epilog="example: annotated export multi30k-en-de --to onnx --out german",
    )
    export.add_argument("model", help="a model of the package or of the Hub, or a folder")
    export.add_argument("--to", required=True, choices=FORMS, help="the format")
    export.add_argument("--out", required=True, metavar="FOLDER", help="a new or an empty folder")
    half = "numbers of 16 bits in place of 32, half the size"
    export.add_argument("--half", action="store_true", help=half)
    export.set_defaults(run=run_export)


def add_import(commands: Any) -> None:
    """The command that takes in a published model."""
    told = "write a published model in the book's own format"
    parser = commands.add_parser("import", help=told, description=told.capitalize() + ".")
    told = "OWNER/NAME, a model of the Hub, also OWNER/NAME@REVISION; or a folder in its format"
    parser.add_argument("source", help=told)
    parser.add_argument("--out", required=True, metavar="FOLDER", help="a new or an empty folder")
    parser.set_defaults(run=run_import)
