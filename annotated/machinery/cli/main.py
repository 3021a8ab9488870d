"""The command `annotated`: its options, and how it reports errors.

Nothing here imports torch. A subcommand adds its options only when it is among the arguments,
because the options of `prepare` and `train` are fields of a dataclass in a module that needs torch.
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
from difflib import get_close_matches
from functools import partial
from textwrap import fill
from typing import Any, NoReturn

from annotated._version import __version__
from annotated.machinery.cli import commands
from annotated.machinery.errors import one_line

_MODEL = "a model of the package or of the Hub, or a folder with a model"
_REPLACED = "an existing file is replaced"
_RESULTS = "JSON file, new or of earlier results, which are replaced"
_OUT = f"also write the scores to this {_RESULTS}"
_NEW = "a new or empty folder"
_HUB = "a model of the Hub (OWNER/NAME or OWNER/NAME@REVISION)"
_DEVICE = "device, such as cpu or cuda (default: the GPU, if there is one)"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(one_line(message))


def build_parser(arguments: list[str]) -> argparse.ArgumentParser:
    """The parser of the command `annotated`, with options for the subcommand in the arguments."""
    parser = _Parser("annotated", description="Attention Is All You Need in code.")
    text = "on an error, show Python's traceback instead of one line"
    parser.add_argument("--debug", action="store_true", help=text)
    parser.add_argument("--version", action="version", version=f"annotated {__version__}")
    subcommands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (add_options, text) in _COMMANDS.items():
        raw, title = argparse.RawDescriptionHelpFormatter, f"{text[0].upper()}{text[1:]}."
        command = subcommands.add_parser(name, help=text, description=title, formatter_class=raw)
        command.set_defaults(run=getattr(commands, f"run_{name}"), command=command)
        if name in arguments:
            add_options(command)
    return parser


def _add_fields(parser: argparse.ArgumentParser, config: Any, names: Collection[str] = ()) -> None:
    """Add an option for each field of a configuration dataclass, or for the named fields.

    An option that is not given is absent from the result, so that presets can supply it.
    """
    from annotated.machinery.options import allowed_types, flag_of

    for field in dataclasses.fields(config):
        if names and field.name not in names:
            continue
        default, choices, text = field.default, field.metadata["choices"], field.metadata["help"]
        kind: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if not isinstance(default, bool):
            of, *_ = allowed_types(field)
            metavar = None if choices else of.__name__.upper()
            kind = {"type": of, "choices": choices or None, "metavar": metavar}
        told = "none" if default in (None, "") or (not default and "none: " in text) else default
        text += f" (default: {told})"
        kind |= {"default": argparse.SUPPRESS, "help": text}
        parser.add_argument(flag_of(field.name), dest=field.name, **kind)


def _add_search(parser: argparse.ArgumentParser, alpha: float) -> None:
    add, text = parser.add_argument, "number of hypotheses; 1 is greedy search"
    add("--beam", type=int, default=4, help=f"{text} (default: %(default)s)")
    add("--alpha", type=float, default=alpha, help="length penalty (default: %(default)s)")
    add("--device", help=_DEVICE)


def _add_model(parser: Any, text: str = _MODEL, nargs: str | None = None) -> None:
    parser.add_argument("model", nargs=nargs, help=text)
    text = "of a run, also while it trains: best (on the development set), last, or the number of "
    text += "its update (default: the average at its end if there is one, else best, else last)"
    parser.add_argument("--checkpoint", metavar="best|last|N", help=text)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    add, text = parser.add_argument, "program that searches: torch, or ctranslate2, which is faster"
    add("--engine", default="torch", help=f"{text} (extra export; default: %(default)s)")
    text = "number format of the engine, such as int8 with ctranslate2 (default: %(default)s)"
    add("--precision", default="float32", help=text)


HOW_TO_TRAIN = """
data, with the languages of source and target in two or three letters:
  multi30k-en-de            a corpus of `annotated data list`
  my/folder-en-de           train.en and train.de, dev.en and dev.de; or train.csv and dev.csv
  my/news.en,my/news.de     two files with one sentence per line; or FILE,FILE-en-de
  my/pairs.csv-en-de        a table (.csv, .tsv or .parquet) with columns en and de
  my/pairs.csv:text,german-en-de   a table with other columns
  my/pairs.tsv:1,2-en-de    a table whose first line has no names of columns

Files may be compressed with gzip or xz. If there is no development set, a twentieth of the source
sentences, at most 1,000, is held out: always the same sentences, and each with all its pairs.

With --from, which requires --data, architecture, vocabulary and dropout are those of the model, and
other options have defaults for fine-tuning:
  {}

examples:
  annotated train --data multi30k-en-fr --out runs/en-fr
  annotated train --from runs/en-fr --data my/pairs.csv-en-fr --out runs/mine

Ctrl-C saves and stops.
With several GPUs: torchrun --standalone --nproc-per-node gpu -m annotated train
"""


def _add_prepare(parser: argparse.ArgumentParser) -> None:
    from annotated.machinery.corpora.prepared import RULES
    from annotated.training import PRESETS, TrainingConfig

    add = parser.add_argument
    parser.epilog = (
        "Prints the folder, which train finds from the same options or by --prepared.\n"
        "`annotated train --help` explains presets, and how data are named.\n"
    )
    preset = "use the options of this run (default: multi30k-en-de, whose values are shown below)"
    add("--preset", choices=PRESETS, metavar="PRESET", help=preset)
    add("--out", default="", help=f"{_NEW} (default: one next to the downloads)")
    cores = min(os.cpu_count() or 1, 8)
    add("--processes", type=int, default=cores, help="default: one per core, at most 8")
    _add_fields(parser, TrainingConfig, RULES)


def _add_train(parser: argparse.ArgumentParser) -> None:
    from annotated.machinery.options import flag_of
    from annotated.machinery.runs.fine_tuning import DEFAULTS
    from annotated.training import PRESETS, TrainingConfig

    defaults = " ".join(f"{flag_of(name)} {value}" for name, value in DEFAULTS.items())
    wrapped = fill(defaults, 90, subsequent_indent="  ", break_on_hyphens=False)
    parser.epilog = HOW_TO_TRAIN.format(wrapped)
    preset = f"a whole set of options, which those given override: {', '.join(PRESETS)} (default: "
    preset += "multi30k-en-de, whose values are the defaults below, or with --resume the run's own)"
    parser.add_argument("--preset", choices=PRESETS, metavar="PRESET", help=preset)
    parser.add_argument("--resume", action="store_true", help="continue the run in --out, if any")
    _add_fields(parser, TrainingConfig)


HOW_TO_GENERATE = """
examples:
  annotated generate tatoeba-en "I don't think"
  annotated generate HuggingFaceTB/SmolLM2-135M "The capital of France is"
  annotated generate HuggingFaceTB/SmolLM2-135M-Instruct --chat "What is attention?"
  annotated generate openai-community/gpt2 --top-k 1 "Attention is" > text.txt

The first needs no download. Supports the families Llama, SmolLM2, Qwen 3, GPT-2 and Pythia. The
text is printed as it is generated, without the prompt. A symbol of the model in the prompt, such as
<|im_end|>, is not text: it acts as that symbol, also in a user's message.
"""

HOW_TO_EVALUATE = """
example: annotated evaluate runs/first runs/second --data multi30k-en-de

Prints BLEU and chrF with sacreBLEU's signatures, 95% intervals (bootstrap), the length of the
translations relative to the references, and the brevity penalty. For each further model, also the
p-value of its differences from the first (paired bootstrap) and the sentences that differ most.
"""

HOW_TO_TRANSLATE = """
examples:
  annotated translate multi30k-en-de "A dog runs." "A cat sleeps."
  annotated translate multi30k-en-de --input in.txt --output out.txt --beam 8
  annotated translate multi30k-en-de --n-best 4 "A dog runs."

Each line of input yields one line of output, in the same order. With --n-best, each candidate is
a line of four tab-separated fields: the number of its sentence, counted from 1; its score; its
log-probability; and the translation. The candidates of a sentence are printed together, best
first. A blank sentence has one candidate, which is empty.
"""


def _add_translate(parser: argparse.ArgumentParser) -> None:
    parser.epilog, add = HOW_TO_TRANSLATE, parser.add_argument
    _add_model(parser)
    add("text", nargs="*", help="sentences (default: the lines of standard input)")
    text = "file with one sentence per line, optionally compressed with gzip or xz"
    add("--input", metavar="FILE", help=text)
    text = f"output file, written when all is done; {_REPLACED} (default: standard output)"
    add("--output", metavar="FILE", help=text)
    _add_search(parser, 0.6)
    _add_engine(parser)
    ahead = "number of lines to read ahead and sort by length; 1 translates each immediately"
    for option, default, text in (
        ("--max-extra", 50, "number of tokens by which an output may exceed its input"),
        ("--max-source", 1000, "maximum tokens of an input; the rest is cut off, with a warning"),
        ("--batch-tokens", 2000, "tokens per batch, padding included"),
        ("--chunk", 1000, ahead),
    ):
        add(option, type=int, default=default, help=f"{text} (default: {default})")
    text = "print the N best translations of each sentence, with scores (see below)"
    add("--n-best", type=int, metavar="N", help=text)
    text = "show a progress bar on standard error (default: if it is a terminal)"
    add("--progress", action=argparse.BooleanOptionalAction, help=text)


def _add_generate(parser: argparse.ArgumentParser) -> None:
    parser.epilog, add = HOW_TO_GENERATE, parser.add_argument
    add("model", help=f"tatoeba-en, {_HUB}, a folder, or a GGUF file")
    text = "the text to continue (default: the whole of standard input)"
    add("text", metavar="prompt", nargs="*", help=text)
    text = "treat the text as a user's message and generate the answer"
    add("--chat", action="store_true", help=text)
    told = " (default: %(default)s)"
    add("--max-new-tokens", type=int, default=200, help=f"maximum number of new tokens{told}")
    text = "divides the logits; a low value favors the most probable tokens"
    add("--temperature", type=float, default=0.7, help=text + told)
    text = "sample from the most probable tokens with this total probability"
    add("--top-p", type=float, default=0.9, help=text + told)
    text = "sample from this many of the most probable tokens; 1 always chooses the first"
    add("--top-k", type=int, help=text)
    text = "seed of the random numbers; on one device, the same seed generates the same text"
    add("--seed", type=int, help=text)
    text = "end before this text, such as a new line; several may be given"
    add("--stop", metavar="TEXT", action="append", help=text)
    add("--device", help=_DEVICE)
    text = "of the numbers: float32, bfloat16 or float16"
    add("--dtype", default="float32", help=text + told)


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.epilog, add = HOW_TO_EVALUATE, parser.add_argument
    _add_model(parser, f"{_MODEL}; each further one is compared with the first", nargs="+")
    text = "as for train, several possible (default: the data that the first model was trained on)"
    add("--data", nargs="+", help=text)
    text = "default: test; of files all, or dev if the first model was trained on them"
    add("--split", nargs="+", help=text)
    _add_search(parser, 0.6)
    _add_engine(parser)
    add("--out", help=_OUT)


def _add_score(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    text = "translations, plain text, one sentence per line"
    add("text", metavar="output", nargs="+", help=text)
    add("--ref", required=True, help="reference, plain text, one sentence per line")
    text = "language of both, such as de or deu (default: as the files' names end, such as ref.de)"
    add("--lang", help=text)
    add("--out", help=_OUT)


def _add_parse(parser: argparse.ArgumentParser) -> None:
    parser.epilog = 'example: annotated parse "The cat sat on the mat."'
    add, flag = parser.add_argument, partial(parser.add_argument, action="store_true")
    add("text", nargs="*", help="sentences (default: the lines of standard input)")
    add("--model", default="craft-parser", help="a parser of the package, or the folder of a run")
    flag("--words", help="the sentences are already tokenized, with spaces between tokens")
    flag("--lines", help="print each tree in brackets on one line")
    text = "also draw the tree (the last if there are several) in this SVG file"
    add("--svg", metavar="FILE", help=f"{text}; {_REPLACED}")
    _add_search(parser, 0.3)
    flag("--free", help="search without constraints and repair outputs that are not trees")
    text = "score the parser on craft, wsj-sample, or the folder of a Penn Treebank"
    add("--treebank", help=text)
    add("--split", help="train, dev or test (default: dev; of wsj-sample test, its only part)")
    add("--out", help=_OUT)


def _add_treebank(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="write")
    write = actions.add_parser("write", help="write a corpus of sentences and trees for train")
    write.add_argument("treebank", help="craft, or the folder of a Penn Treebank")
    write.add_argument("folder", help=f"{_NEW} to write to; prints the value for --data of train")


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: annotated export multi30k-en-de --to onnx --out german"
    add, text = parser.add_argument, "onnx or ctranslate2 (both require the extra export)"
    _add_model(parser)
    add("--to", required=True, help=f"{text}, or huggingface")
    add("--out", required=True, metavar="FOLDER", help=_NEW)
    text = "store 16-bit instead of 32-bit numbers, which halves the size"
    add("--half", action="store_true", help=text)


def _add_import(parser: argparse.ArgumentParser) -> None:
    text = f"{_HUB}, a folder in its format, or a folder with a translator as Firefox downloads it"
    parser.add_argument("source", help=text)
    parser.add_argument("--out", required=True, metavar="FOLDER", help=_NEW)


def _add_average(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: annotated average runs/base-en-de --last 5"
    add, text = parser.add_argument, "number of checkpoints (default: as configured)"
    add("folder", help="the folder of a run; the average becomes its model")
    add("--last", type=int, default=0, help=text)


def _add_data(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|get")
    actions.add_parser("list", help="list the corpora with their sources and licenses")
    get = actions.add_parser("get", help="download a corpus; an interrupted download is resumed")
    get.add_argument("name", help="a corpus of `annotated data list`")
    text = "download only the files that these splits need (default: all)"
    get.add_argument("--split", nargs="+", default=[], help=text)


def _add_paper(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="get|import")
    actions.add_parser("get", help="download it from arXiv")
    own = actions.add_parser("import", help="store a copy of a PDF that you have")
    own.add_argument("file", help="the paper's PDF, arXiv:1706.03762v5 or v7")


_COMMANDS: dict[str, tuple[Callable[[Any], None], str]] = {  # by NAME, which `run_NAME` runs
    "translate": (_add_translate, "translate sentences, a file, or standard input"),
    "parse": (_add_parse, "print the trees of sentences, or score a parser"),
    "generate": (_add_generate, "continue a text with a language model"),
    "train": (_add_train, "train a model; also with torchrun, on several processes"),
    "prepare": (_add_prepare, "encode a corpus once, for all runs"),
    "average": (_add_average, "average a run's last checkpoints"),
    "evaluate": (_add_evaluate, "score a model, or compare several: BLEU, chrF and perplexity"),
    "score": (_add_score, "score files of translations with BLEU and chrF"),
    "treebank": (_add_treebank, "write trees to train on"),
    "export": (_add_export, "write a model in another program's format"),
    "import": (_add_import, "write a published model in our own format"),
    "data": (_add_data, "list or download corpora"),
    "paper": (_add_paper, "download or import the paper's PDF for the book"),
}


def main(arguments: list[str] | None = None) -> None:
    """Run the command `annotated`.

    An error in the input prints one line with the expected input and returns status 2; a fault in
    the program prints one line and returns status 70. With --debug, either shows its traceback.
    Ctrl-C returns status 130. If the reader of a pipe exits, as `head` does, it ends silently.
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
            ends = arguments is None  # the process; an exception in a finalizer would be printed
            signal.signal(signal.SIGINT, signal.SIG_DFL if ends else signal.default_int_handler)


class _StandardError:
    """Standard error; once it is closed or full, or its terminal is gone, nothing more is written.

    A command that has done its work does not fail because it cannot report it.
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
    """Exit on Ctrl-C during the import of libraries, which might swallow an exception."""
    with suppress(OSError):
        os.write(2, b"annotated: interrupted\n")
    os._exit(130)


def _parse(arguments: list[str]) -> argparse.Namespace:
    """The options of a command line; an error ends the program."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # every character can be printed
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = build_parser(arguments)
    place = arguments.index("--") + 1 if "--" in arguments else len(arguments)
    literal = [f"{_LITERAL}{word}" for word in arguments[place:]]
    options, rest = parser.parse_known_args([*arguments[:place], *literal])
    options.debug |= "--debug" in rest
    rest = [word for word in rest if word not in ("--debug", "--")]
    unknown = [word for word in rest if re.match(r"-[^\d.]", word) and " " not in word]
    if "text" in options and not unknown:
        options.text += rest  # sentences after an option are not collected by argparse
    elif rest:
        _refuse(options.command, rest, unknown)
    for name, value in vars(options).items():
        if isinstance(value, str):
            setattr(options, name, value.removeprefix(_LITERAL))
        elif isinstance(value, list):
            setattr(options, name, [word.removeprefix(_LITERAL) for word in value])
    return options


_LITERAL = "\0"  # marks the words after --, which are no options; no argument contains it


_ELSEWHERE = {  # names that other programs have for options of `annotated train`
    "--lr": "--factor", "--learning-rate": "--factor", "--batch-size": "--tgt-tokens",
    "--epochs": "--updates", "--output-dir": "--out", "--weights": "--from",
}  # fmt: skip


def _refuse(command: argparse.ArgumentParser, rest: list[str], unknown: list[str]) -> NoReturn:
    """End the program with the usage of the command and the options that may have been meant."""
    options = [name for name in command._option_string_actions if name.startswith("--")]
    meant: list[str] = []
    for word in (each.partition("=")[0] for each in unknown):
        named = [name for name in [_ELSEWHERE.get(word)] if name in options]
        meant += named or get_close_matches(word, options, n=2)
    hint = f"; did you mean {' or '.join(dict.fromkeys(meant))}?" if meant else ""
    command.error(f"unrecognized arguments: {' '.join(rest)}{hint}")


def _run(options: argparse.Namespace) -> None:
    """Run a command and report how it ended."""
    debug = options.debug
    if not debug:
        os.environ["RUST_BACKTRACE"] = "0"  # a panic of tokenizers then prints only a few lines
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
        sys.exit(141)  # as for a program that was ended by SIGPIPE
    except KeyboardInterrupt as stop:
        print(f"annotated: {one_line(stop) or 'interrupted'}", file=sys.stderr)
        sys.exit(130)
    except BaseException as error:  # a panic of tokenizers is not an Exception
        if isinstance(error, SystemExit):
            raise
        _flush_or_discard_output()
        if debug:
            raise
        status, line = _explain(error)
        print(f"annotated: {line}", file=sys.stderr)
        sys.exit(status)


def _explain(error: BaseException) -> tuple[int, str]:
    """Exit status, and the error in one line."""
    text = one_line(error) or type(error).__name__
    no_memory = re.search("out of memory|allocate memory", text, re.IGNORECASE)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and no_memory):
        less = "--parts, other commands less with a smaller --beam or --batch-tokens"
        return 2, f"out of memory; train needs less with more {less}, or try --device cpu"
    if isinstance(error, ValueError | OSError | ModuleNotFoundError):
        return 2, text
    fault = f"this is a fault in the program, not in your input ({type(error).__name__}: {text})"
    return 70, f"{fault}; --debug shows where"


def _show_warning(message: Any, category: Any, *where: Any, **more: Any) -> None:
    """Print our own warnings as one line without a location in the code, and others as usual."""
    line = f"annotated: warning: {one_line(message)}\n"
    usual = warnings.formatwarning(message, category, *where[:2])
    sys.stderr.write(line if category is UserWarning else usual)


def _flush_or_discard_output() -> None:
    """Flush the buffer; if that fails, ensure that it does not fail again when Python exits."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
