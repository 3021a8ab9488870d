"""The command `annotated`: its options, and what becomes of errors.

Nothing here imports torch. A subcommand adds its options only when it is among the arguments,
because those of `prepare` and `train` are the fields of a dataclass in a module that needs torch.
"""

import argparse
import dataclasses
import io
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NoReturn

from annotated.machinery import commands
from annotated.machinery.errors import one_line

_MODEL = "a model of the package or of the Hub, or a folder"
_REPLACED = "one of this name is replaced"
_OUT = f"also write the scores to this JSON file; {_REPLACED}"
_NEW = "a new or an empty folder"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(one_line(message))


def build_parser(arguments: list[str]) -> argparse.ArgumentParser:
    """The parser of the command `annotated`; a subcommand among the arguments has its options."""
    parser = _Parser("annotated", description="Attention Is All You Need in code.")
    text = "if something goes wrong, show Python's traceback instead of one line"
    parser.add_argument("--debug", action="store_true", help=text)
    subcommands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (add_options, run, text) in _COMMANDS.items():
        raw = argparse.RawDescriptionHelpFormatter
        command = subcommands.add_parser(name, help=text, formatter_class=raw)
        command.description = f"{text[0].upper()}{text[1:]}."
        command.set_defaults(run=run)
        if name in arguments:
            add_options(command)
    return parser


def _add_fields(parser: argparse.ArgumentParser, config: Any, names: Collection[str] = ()) -> None:
    """Add an option for each field of a configuration dataclass, or for those named.

    An option that is not given leaves no trace in the result, so that presets can fill it in.
    """
    for field in dataclasses.fields(config):
        if names and field.name not in names:
            continue
        default, choices = field.default, field.metadata["choices"]
        kind: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if not isinstance(default, bool):
            metavar = None if choices else type(default).__name__.upper()
            kind = {"type": type(default), "choices": choices or None, "metavar": metavar}
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            dest=field.name,
            default=argparse.SUPPRESS,
            help=f"{field.metadata['help']} (default: {default})",
            **kind,
        )


def _add_search(parser: argparse.ArgumentParser, alpha: float) -> None:
    add = parser.add_argument
    add("--beam", type=int, default=4, help="hypotheses; 1 is greedy (default: %(default)s)")
    add("--alpha", type=float, default=alpha, help="length penalty (default: %(default)s)")
    add("--device", help="such as cpu or cuda (default: the GPU, if there is one)")


def _add_prepare(parser: argparse.ArgumentParser) -> None:
    from annotated.machinery.prepared import RULES
    from annotated.training import PRESETS, TrainingConfig

    add = parser.add_argument
    parser.epilog = "Prints the folder; train finds it by the same options, or by --prepared."
    preset = "the options of this run (default: multi30k-en-de, whose values are those below)"
    add("--preset", choices=PRESETS, help=preset)
    add("--out", default="", help=f"{_NEW} (default: one next to the downloads)")
    cores = min(os.cpu_count() or 1, 8)
    add("--processes", type=int, default=cores, help="default: one per core, at most 8")
    _add_fields(parser, TrainingConfig, RULES)


def _add_train(parser: argparse.ArgumentParser) -> None:
    from annotated.training import PRESETS, TrainingConfig

    parser.epilog = "Ctrl-C saves. example: annotated train --data multi30k-en-fr --out runs/en-fr"
    preset = "a whole set of options, which those given override (default: multi30k-en-de, whose "
    preset += "values are the defaults below, or with --resume the run's own)"
    parser.add_argument("--preset", choices=PRESETS, help=preset)
    parser.add_argument("--resume", action="store_true", help="continue the run in --out, if any")
    _add_fields(parser, TrainingConfig)


HOW_TO_TRANSLATE = """
examples:
  annotated translate multi30k-en-de "A dog runs." "A cat sleeps."
  annotated translate multi30k-en-de --input in.txt --output out.txt --beam 8
  annotated translate multi30k-en-de --n-best 4 "A dog runs."

Each line of input gives one line of output, in order. With --n-best, each candidate is a line of
four fields separated by tabs: the number of its sentence, counted from 1; its score; its
log-probability; the translation. The candidates of a sentence follow one another, the best first.
A blank sentence has one candidate, which is empty.
"""


def _add_translate(parser: argparse.ArgumentParser) -> None:
    parser.epilog, add = HOW_TO_TRANSLATE, parser.add_argument
    add("model", help=_MODEL)
    add("text", nargs="*", help="sentences (default: the lines of standard input)")
    add("--input", metavar="FILE", help="file of sentences; may be compressed by gzip or xz")
    add(
        "--output",
        metavar="FILE",
        help=f"written once all is done; {_REPLACED} (default: standard output)",
    )
    _add_search(parser, 0.6)
    for option, default, text in (
        ("--max-extra", 50, "tokens by which an output may exceed its input"),
        ("--max-source", 1000, "tokens of an input; a longer one is truncated"),
        ("--batch-tokens", 2000, "tokens of a batch, padding included"),
        ("--chunk", 1000, "lines to read ahead and sort by length; 1 answers each at once"),
    ):
        add(option, type=int, default=default, help=f"{text} (default: {default})")
    add("--n-best", type=int, metavar="N", help="print the N best of each, with scores (see below)")
    bar = argparse.BooleanOptionalAction
    add("--progress", action=bar, help="show a bar on standard error (default: at a terminal)")


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", help=_MODEL)
    add("--data", nargs="+", help="CORPUS-SRC-TGT (default: what the model was trained on)")
    add("--split", nargs="+", default=["test"], help="default: test")
    _add_search(parser, 0.6)
    add("--out", help=_OUT)


def _add_score(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("output", nargs="+", help="translations, plain text, one sentence per line")
    add("--ref", required=True, help="reference, plain text, one sentence per line")
    add("--lang", default="de", help="language of both (default: %(default)s)")
    add("--out", help=_OUT)


def _add_parse(parser: argparse.ArgumentParser) -> None:
    parser.epilog = 'example: annotated parse "The cat sat on the mat."'
    add = parser.add_argument
    add("text", nargs="*", help="sentences (default: the lines of standard input)")
    add("--model", default="craft-parser", help="a parser of the package, or the folder of a run")
    add("--words", action="store_true", help="sentences are tokenized already, at their spaces")
    add("--lines", action="store_true", help="print each tree in brackets, on one line")
    add(
        "--svg",
        metavar="FILE",
        help=f"also draw the tree (of several, the last) in this file; {_REPLACED}",
    )
    _add_search(parser, 0.3)
    add("--free", action="store_true", help="search freely and repair what is not a tree")
    add("--treebank", help="score on it: craft, wsj-sample, or the folder of a Penn Treebank")
    add("--split", default="dev", help="train, dev or test (default: %(default)s)")
    add("--out", help=_OUT)


def _add_treebank(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="write")
    write = actions.add_parser("write", help="write a corpus for train, sentences and trees")
    write.add_argument("treebank", help="craft, or the folder of a Penn Treebank")
    write.add_argument("folder", help=f"{_NEW} to write to; the output is the --data of train")


def _add_heads(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", help=_MODEL)
    add("--untrained", action="store_true", help="the same model before training, as a control")
    add("--out", help=f"also write the tables to this JSON file; {_REPLACED}")


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: annotated export multi30k-en-de --to onnx --out german"
    add = parser.add_argument
    add("model", help=_MODEL)
    add("--to", required=True, help="onnx or ctranslate2 (both with the extra export), huggingface")
    add("--out", required=True, metavar="FOLDER", help=_NEW)
    add("--half", action="store_true", help="16-bit numbers instead of 32-bit ones: half the size")


def _add_import(parser: argparse.ArgumentParser) -> None:
    text = "OWNER/NAME, a model of the Hub, also OWNER/NAME@REVISION; or a folder in its format "
    text += "or with a translator as Firefox downloads it"
    parser.add_argument("source", help=text)
    parser.add_argument("--out", required=True, metavar="FOLDER", help=_NEW)


def _add_average(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: annotated average runs/base-en-de --last 5"
    parser.add_argument("folder", help="the folder of a run, whose model becomes the mean")
    parser.add_argument("--last", type=int, default=0, help="checkpoints (default: as configured)")


def _add_data(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|get")
    actions.add_parser("list", help="list the corpora, with source and license")
    get = actions.add_parser("get", help="download a corpus; a broken download is continued")
    get.add_argument("name", help="a corpus of `annotated data list`")
    get.add_argument("--split", nargs="+", default=[], help="only what these need (default: all)")


def _add_paper(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="get|import")
    actions.add_parser("get", help="download it from arXiv")
    actions.add_parser("import", help="keep a copy of a PDF that you have").add_argument("file")


_COMMANDS: dict[str, tuple[Callable[[Any], None], Callable[[Any], None], str]] = {
    "prepare": (_add_prepare, commands.run_prepare, "encode a corpus once for all runs"),
    "train": (_add_train, commands.run_train, "train a model, on all processes of torchrun"),
    "translate": (_add_translate, commands.run_translate, "translate sentences, a file or a pipe"),
    "evaluate": (_add_evaluate, commands.run_evaluate, "score a model: BLEU and perplexity"),
    "score": (_add_score, commands.run_score, "score files of translations with BLEU"),
    "parse": (_add_parse, commands.run_parse, "print trees of sentences, or score a parser"),
    "treebank": (_add_treebank, commands.run_treebank, "write trees to train on"),
    "heads": (_add_heads, commands.run_heads, "measure what a model's heads attend to"),
    "export": (_add_export, commands.run_export, "write a model in another program's format"),
    "import": (_add_import, commands.run_import, "write a published model in our own format"),
    "average": (_add_average, commands.run_average, "average a run's last checkpoints"),
    "data": (_add_data, commands.run_data, "list or download corpora"),
    "paper": (_add_paper, commands.run_paper, "download or import the paper for the book"),
}


def main(arguments: list[str] | None = None) -> None:
    """Run the command `annotated`.

    A mistake in the input ends in one line that says what was expected, and status 2; a fault of
    ours in one line and status 70. With --debug either shows its traceback. Ctrl-C ends in
    status 130. A reader that goes away, such as `head`, ends the command silently.
    """
    stderr, sys.stderr = sys.stderr, _StandardError(sys.stderr)
    main_thread = threading.current_thread() is threading.main_thread()
    early = main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if early:
        signal.signal(signal.SIGINT, _leave)
    try:
        _run(_parse(sys.argv[1:] if arguments is None else arguments))
    finally:
        sys.stderr = stderr
        if early:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class _StandardError:
    """Standard error; when it is closed or full, or its terminal is gone, nothing more is written.

    What a command has done does not become undone because nobody can be told.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream or open(os.devnull, "w")  # noqa: SIM115

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        try:
            self.stream.write(text)
            self.stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        return len(text)


def _leave(*signal_and_frame: Any) -> None:
    """End at Ctrl-C while libraries are imported, in which an exception would get lost."""
    with suppress(OSError):
        os.write(2, b"annotated: interrupted\n")
    os._exit(130)


def _parse(arguments: list[str]) -> argparse.Namespace:
    """The options of a command line; an error ends the program."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # every character can be printed
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = build_parser(arguments)
    options, rest = parser.parse_known_args(arguments)
    place = rest.index("--") if "--" in rest else len(rest)
    rest, literal = rest[:place], rest[place + 1 :]
    options.debug |= "--debug" in rest
    rest = [word for word in rest if word != "--debug"]
    if "text" in options and not any(word.startswith("-") for word in rest):
        options.text += [*rest, *literal]  # sentences after an option, which argparse misses
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def _run(options: argparse.Namespace) -> None:
    """Run a command, and explain how it ended."""
    debug = options.debug
    if not debug:
        os.environ["RUST_BACKTRACE"] = "0"  # a panic of tokenizers prints few lines
    try:
        if options.run not in (commands.run_data, commands.run_paper):
            import annotated.machinery.translator  # noqa: F401  # with torch, which takes a second
        if signal.getsignal(signal.SIGINT) is _leave:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with warnings.catch_warnings():
            if not debug:
                warnings.showwarning = _show_warning
            options.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _flush_or_discard_output()
        sys.exit(141)  # as a program that the signal SIGPIPE has ended
    except KeyboardInterrupt as stop:
        print(f"annotated: {one_line(stop) or 'interrupted'}", file=sys.stderr)
        sys.exit(130)
    except BaseException as error:  # of tokenizers, a panic is no Exception
        if isinstance(error, SystemExit):
            raise
        _flush_or_discard_output()
        if debug:
            raise
        status, line = _explain(error)
        print(f"annotated: {line}", file=sys.stderr)
        sys.exit(status)


def _explain(error: BaseException) -> tuple[int, str]:
    """Exit status, and what went wrong in one line."""
    text = one_line(error) or type(error).__name__
    no_memory = re.search("out of memory|allocate memory", text, re.IGNORECASE)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and no_memory):
        less = "--parts, other commands less with a smaller --beam or --batch-tokens"
        return 2, f"out of memory; train needs less with more {less}, or try --device cpu"
    if isinstance(error, ValueError | OSError | ModuleNotFoundError):
        return 2, text
    fault = f"this should not happen, and is no mistake of yours ({type(error).__name__}: {text})"
    return 70, f"{fault}; --debug shows where"


def _show_warning(message: Any, category: Any, *where: Any, **more: Any) -> None:
    """Print a warning of ours as one line, without a place in the code, and others as usual."""
    line = f"annotated: {one_line(message)}\n"
    usual = warnings.formatwarning(message, category, *where[:2])
    sys.stderr.write(line if category is UserWarning else usual)


def _flush_or_discard_output() -> None:
    """Print the rest of the buffer; if that fails, it must not fail again when Python ends."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
