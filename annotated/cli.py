"""The command `annotated` (chapters/command-line.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import argparse
import dataclasses
import io
import json
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any, TextIO

__all__ = [
    "HOW_TO_TRANSLATE",
    "CommandParser",
    "add_fields",
    "add_parse",
    "add_scoring",
    "add_sources",
    "add_studies",
    "add_translate",
    "add_treebank",
    "at_terminal",
    "build_parser",
    "check_parse",
    "device_for",
    "explain",
    "let_go_of_output",
    "lines_of_input",
    "main",
    "one_line",
    "prepare_streams",
    "report",
    "report_trees",
    "run_average",
    "run_data",
    "run_evaluate",
    "run_heads",
    "run_paper",
    "run_parse",
    "run_score",
    "run_train",
    "run_translate",
    "run_treebank",
    "run_vary",
    "score_on_treebank",
    "sentences_to_read",
    "sentences_to_translate",
    "short_warnings",
    "text_output",
    "trained_on",
    "tree_picture",
]


def add_fields(parser: argparse.ArgumentParser, config: Any) -> None:
    """Give a parser an option for each field of a configuration dataclass.

    An option that is not given leaves no trace in the result, so that presets can fill it in.
    """
    for field in dataclasses.fields(config):
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


def run_train(options: argparse.Namespace) -> None:
    from annotated.training import TrainingConfig, preset, read_config, train

    names = [field.name for field in dataclasses.fields(TrainingConfig)]
    given = {name: getattr(options, name) for name in names if hasattr(options, name)}
    config = preset(options.preset or "multi30k-en-de", **given)
    if options.resume and not options.preset and (Path(config.out) / "training.json").exists():
        config = dataclasses.replace(read_config(Path(config.out)), **given)
    folder = train(config, options.resume)
    if os.environ.get("RANK", "0") == "0":  # of several processes, one speaks
        print(folder)


def trained_on(model: str) -> str:
    """The data of the run that a model comes from.

    Raises: ValueError if the folder of the model does not tell.
    """
    from annotated.training import read_config
    from annotated.translator import model_folder

    folder = model_folder(model)
    if not (folder / "training.json").exists():
        raise ValueError(f"expected --data, for {folder} has no training.json that would tell")
    return read_config(folder).data


def run_evaluate(options: argparse.Namespace) -> None:
    from annotated.data import parse_data
    from annotated.evaluation import evaluate
    from annotated.translator import load_pretrained

    asked = [parse_data(name) for name in options.data or [trained_on(options.model)]]
    translator = load_pretrained(options.model, device_for(options.device))
    rows: list[dict[str, Any]] = []
    for (corpus, src, tgt), split in product(asked, options.split):
        search = {"beam": options.beam, "alpha": options.alpha}
        rows += evaluate(translator, corpus, split, src, tgt, **search)
        told = "perplexity {perplexity:.2f} per piece, accuracy {accuracy:.1%}".format(**rows[-1])
        print(f"{corpus} {split}: {rows[-1]['search']}, {told}")
    report(rows, ["corpus", "split"], options.out)


def run_vary(options: argparse.Namespace) -> None:
    from annotated.variations import rows, vary

    changes = {} if options.updates is None else {"updates": options.updates}
    if options.precision:
        changes["precision"] = options.precision
    names = options.row or list(rows().index)
    print(vary(names, options.seed, Path(options.results), **changes).to_string(index=False))


def run_score(options: argparse.Namespace) -> None:
    from annotated.evaluation import score_files

    rows = []
    for output in options.output:
        rows += score_files(Path(output), Path(options.ref), options.lang)
    report(rows, ["output"], options.out)


def report(rows: list[dict[str, Any]], names: list[str], out: str | None) -> None:
    """Print scores, one a line, and write them as JSON."""
    from annotated.files import write_text

    for row in rows:
        name = " ".join(row[name] for name in names)
        print(f"{name:5} {row['text']:33} {row['score']:.2f}  {row['signature']}")
    if out:
        write_text(Path(out), json.dumps(rows, indent=2, ensure_ascii=False) + "\n")


def run_data(options: argparse.Namespace) -> None:
    from annotated.data import corpora, corpus_files, find_corpus

    if options.action == "get":
        for path in corpus_files(find_corpus(options.name), options.split):
            print(path, flush=True)
        return
    for corpus in corpora().values():
        known = sum(file.size or 0 for file in corpus.files.values() if file.url)
        size = f"; {known / 1e9:.1f} GB to download" if known > 1e9 else ""
        print(f"{corpus.name:12} {' '.join(corpus.languages)}  {corpus.title}")
        print(f"{'':12} splits: {' '.join(corpus.splits)}{size}")
        print(f"{'':12} {corpus.source}; licence: {corpus.licence}")


def run_paper(options: argparse.Namespace) -> None:
    from annotated.paper import find_paper, get_paper, import_paper

    if options.action == "get":
        print(get_paper())
    elif options.action == "import":
        print(import_paper(options.file))
    else:
        paper = find_paper()
        if paper is None:
            raise ValueError(
                "no paper is at hand: annotated paper get, or annotated paper import FILE"
            )
        if options.section not in paper.sections:
            raise ValueError(f"expected a section out of {', '.join(paper.sections)}")
        print("\n\n".join(paper.sections[options.section]))


def run_heads(options: argparse.Namespace) -> None:
    from annotated.files import write_text
    from annotated.heads import load_gum, study, untrained
    from annotated.translator import load_pretrained

    translator = load_pretrained(options.model)
    if options.untrained:
        translator.model = untrained(translator.model)
    tables = study(translator, load_gum("train")[::4], load_gum("dev") + load_gum("test"))
    for name, table in tables.items():
        print(f"\n{name}\n{table.round(3).to_string(index=False)}")
    if options.out:
        as_json = {"orient": "records", "double_precision": 15}  # what is missing becomes null
        rows = {name: json.loads(table.to_json(**as_json)) for name, table in tables.items()}
        about = {"model": options.model, "untrained": options.untrained}
        write_text(Path(options.out), json.dumps(about | rows, indent=1) + "\n")


def run_parse(options: argparse.Namespace) -> None:
    from annotated.files import write_text
    from annotated.parsing import bracketed, load_parser, split_words, tree_svg

    check_parse(options)
    parser = load_parser(options.model, device_for(options.device))
    search = {"beam": options.beam, "alpha": options.alpha, "hold": not options.free}
    if options.treebank:
        score_on_treebank(parser, options, search)
        return
    for number, line in enumerate(sentences_to_read(options.text), start=1):
        if len(line) > 2000:  # half a tree would be none
            raise ValueError(
                f"sentence {number}: expected at most 2,000 letters; got {len(line):,}"
            )
        words = line.split() if options.words else split_words(line)
        if not words:
            raise ValueError(f"sentence {number}: expected words; got a blank line")
        tree = parser.parse(words, **search)
        print(bracketed(tree) if options.lines else f"{tree_picture(tree)}\n")
        if options.svg:
            write_text(Path(options.svg), tree_svg(tree))


def check_parse(options: argparse.Namespace) -> None:
    """Raise ValueError for options of `parse` that do not go together."""
    from annotated.parsing import check_limit

    check_limit(options.limit)
    scoring = {name: getattr(options, name) for name in ("out", "baselines", "limit")}
    useless = [f"--{name}" for name, given in scoring.items() if given not in (None, False)]
    if useless and not options.treebank:
        raise ValueError(f"expected --treebank with {useless[0]}, which is about scores")
    if options.treebank and (options.text or options.svg):
        raise ValueError("expected either sentences to draw or --treebank to score on; got both")


def score_on_treebank(parser: Any, options: argparse.Namespace, search: dict[str, Any]) -> None:
    """Print and keep the scores of a parser, and of the baselines if they are asked for."""
    from annotated.parsing import compare_parsers, score_parser

    about = {"treebank": options.treebank, "split": options.split, **search}
    where = options.treebank, options.split, options.limit
    if options.baselines:
        rows = compare_parsers(parser, *where, **search)
    else:
        rows = score_parser(parser, *where, **search)
    report_trees(rows, about, options.out)


def report_trees(rows: list[dict[str, Any]], about: dict[str, Any], out: str | None) -> None:
    """Print scores of trees as EVALB does, and write them as JSON."""
    from annotated.files import write_text

    for row in rows:
        for name, value in row.items():
            print(f"{name:26}= {value if isinstance(value, str) else format(value, '6.5g')}")
    if out:
        write_text(Path(out), json.dumps([about | row for row in rows], indent=1) + "\n")


def run_treebank(options: argparse.Namespace) -> None:
    from annotated.parsing import read_rules, score_tree_files, write_treebank

    if options.action == "write":
        print(write_treebank(options.treebank, Path(options.folder), options.limit))
        return
    about = {"gold": options.gold, "found": options.found, "param": options.param}
    rules = read_rules(Path(options.param)) if options.param else None
    rows = score_tree_files(Path(options.gold), Path(options.found), rules)
    report_trees(rows, about, options.out)


def tree_picture(tree: Any) -> str:
    """A tree in letters and lines, for a terminal."""
    picture = io.StringIO()
    tree.pretty_print(stream=picture)
    return picture.getvalue().rstrip()


def run_average(options: argparse.Namespace) -> None:
    from annotated.files import write_tensors
    from annotated.training import average_checkpoints

    tensors = average_checkpoints([Path(path) for path in options.checkpoints])
    write_tensors(Path(options.out), tensors, {"format": "pt"})
    print(options.out)


def one_line(text: str) -> str:
    """The text without the characters at which a reader might break it in lines or fields.

    What is left of a byte that was not UTF-8, a lone surrogate, becomes �.
    """
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return " ".join(text.splitlines()).replace("\t", " ")


def sentences_to_read(text: list[str]) -> Iterable[str]:
    """The sentences of the command line, or the lines of standard input.

    Raises: ValueError if standard input is closed or, when it comes to that, cannot be read.
    """
    from annotated.data import decode_lines
    from annotated.files import InputError

    if text:
        return [one_line(line) for line in text]
    if sys.stdin is None:
        raise InputError("expected sentences, as arguments or on standard input, which is closed")
    return map(one_line, decode_lines(lines_of_input(), "standard input"))


def lines_of_input() -> Iterator[bytes]:
    """The lines of standard input, as they come."""
    from annotated.files import reading

    with reading("standard input", "sentences, one a line"):
        yield from sys.stdin.buffer


def sentences_to_translate(options: argparse.Namespace) -> Iterable[str]:
    """The sentences of the command line, or the lines of a file or of standard input."""
    from annotated.data import read_lines

    if options.text and options.input:
        raise ValueError("expected sentences or --input; got both")
    if not options.input:
        return sentences_to_read(options.text)
    return [one_line(line) for line in read_lines(Path(options.input))]


def device_for(name: str | None) -> str:
    """The device of this name; None: the GPU if there is one."""
    import torch

    return name or ("cuda" if torch.cuda.is_available() else "cpu")


def at_terminal(stream: Any) -> bool:
    """Whether somebody sits at the other end of a stream; it may be closed."""
    return stream is not None and stream.isatty()


@contextmanager
def text_output(path: str | None) -> Iterator[TextIO]:
    """A file that takes its name once it is written, or standard output; UTF-8 in either case.

    Raises: ValueError if the name is that of something else than a file, if the file cannot be
        written, or if standard output is closed.
    """
    from annotated.files import InputError, writing

    if path is None:
        if sys.stdout is None:
            raise InputError("expected --output, for standard output is closed")
        if isinstance(sys.stdout, io.TextIOWrapper):  # not so in a notebook
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
        return
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        raise InputError(f"expected the name of a file; got {path}")
    with writing(target) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        yield file


def run_translate(options: argparse.Namespace) -> None:
    from annotated.translator import load_pretrained

    sentences = sentences_to_translate(options)
    piped = not (options.text or options.input)
    progress = options.progress
    if progress is None:
        silent = options.output is not None or not at_terminal(sys.stdout)
        progress = at_terminal(sys.stderr) and silent
    names = "beam", "alpha", "max_extra", "max_source", "batch_tokens"
    search = {name: getattr(options, name) for name in names}
    with text_output(options.output) as out:
        groups = load_pretrained(options.model, device_for(options.device)).candidates(
            sentences,
            chunk=1 if piped and at_terminal(sys.stdin) else options.chunk,
            progress=progress,
            n_best=1 if options.n_best is None else options.n_best,
            **search,
        )
        for number, group in enumerate(groups, start=1):
            for found in group:
                fields = [number, f"{found.score:.4f}", f"{found.log_prob:.4f}"]
                scored = options.n_best is not None
                line = [*fields, one_line(found.text)] if scored else [one_line(found.text)]
                print(*line, sep="\t", file=out, flush=True)


class CommandParser(argparse.ArgumentParser):
    """A parser that knows --debug; so do those of its subcommands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        told = "if something goes wrong, show Python's traceback in place of one line"
        self.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=told)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command `annotated`."""
    from annotated.training import PRESETS, TrainingConfig

    parser = CommandParser(prog="annotated", description="Attention Is All You Need, executable.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

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

    add_translate(commands)
    add_scoring(commands)
    add_parse(commands)
    add_treebank(commands)
    add_studies(commands)
    add_sources(commands)
    return parser


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
    add("model", help="a model of the package, or the folder of a run")
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
    evaluate.add_argument("model", help="a model of the package, or the folder of a run")
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
    heads.add_argument("model", help="a model of the package, or the folder of a run")
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
        "average", help="average the weights of checkpoints (section 6.1)"
    )
    average.add_argument("checkpoints", nargs="+", help="checkpoint files of one run")
    average.add_argument("--out", required=True, help="safetensors file to write")
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
