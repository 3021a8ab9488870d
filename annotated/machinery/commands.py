"""The command `annotated`. Models that leave the book. Published models."""

import argparse
import dataclasses
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, TextIO


def run_prepare(options: argparse.Namespace) -> None:
    from annotated.machinery.prepared import RULES, prepare
    from annotated.training import preset

    given = {name: getattr(options, name) for name in RULES if hasattr(options, name)}
    config = preset(options.preset or "multi30k-en-de", **given)
    print(prepare(config, options.out, options.processes))


def run_train(options: argparse.Namespace) -> None:
    from annotated.machinery.training.folder import read_config
    from annotated.machinery.training.trainer import train
    from annotated.training import TrainingConfig, preset

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
    from annotated.machinery.training.folder import read_config
    from annotated.machinery.translator import model_folder

    folder = model_folder(model)
    if not (folder / "training.json").exists():
        raise ValueError(f"expected --data, for {folder} has no training.json that would tell")
    return read_config(folder).data


def run_evaluate(options: argparse.Namespace) -> None:
    from annotated.machinery.corpora import parse_data
    from annotated.machinery.scoring import evaluate
    from annotated.machinery.translator import load_pretrained

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
    from annotated.machinery.training.table_3 import vary
    from annotated.variations import table_3

    changes = {} if options.updates is None else {"updates": options.updates}
    if options.precision:
        changes["precision"] = options.precision
    names = options.row or list(table_3().index)
    print(vary(names, options.seed, Path(options.results), **changes).to_string(index=False))


def run_score(options: argparse.Namespace) -> None:
    from annotated.machinery.scoring import score_files

    rows = []
    for output in options.output:
        rows += score_files(Path(output), Path(options.ref), options.lang)
    report(rows, ["output"], options.out)


def report(rows: list[dict[str, Any]], names: list[str], out: str | None) -> None:
    """Print scores, one a line, and write them as JSON."""
    from annotated.machinery.files import write_text

    for row in rows:
        name = " ".join(row[name] for name in names)
        print(f"{name:5} {row['text']:33} {row['score']:.2f}  {row['signature']}")
    if out:
        write_text(Path(out), json.dumps(rows, indent=2, ensure_ascii=False) + "\n")


def run_data(options: argparse.Namespace) -> None:
    from annotated.machinery.corpora import corpus_files, find_corpus, known_corpora

    if options.action == "get":
        for path in corpus_files(find_corpus(options.name), options.split):
            print(path, flush=True)
        return
    for corpus in known_corpora().values():
        known = sum(file.size or 0 for file in corpus.files.values() if file.url)
        size = f"; {known / 1e9:.1f} GB to download" if known > 1e9 else ""
        print(f"{corpus.name:12} {' '.join(corpus.languages)}  {corpus.title}")
        print(f"{'':12} splits: {' '.join(corpus.splits)}{size}")
        print(f"{'':12} {corpus.source}; licence: {corpus.licence}")


def run_paper(options: argparse.Namespace) -> None:
    from annotated.machinery.paper.quotation import find_paper, get_paper, import_paper

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
    from annotated.machinery.heads.study import gum_study, write_study
    from annotated.machinery.translator import load_pretrained

    tables = gum_study(load_pretrained(options.model), options.untrained)
    for name, table in tables.items():
        print(f"\n{name}\n{table.round(3).to_string(index=False)}")
    if options.out:
        about = {"model": options.model, "untrained": options.untrained}
        write_study(Path(options.out), tables, **about)


def run_parse(options: argparse.Namespace) -> None:
    from annotated.machinery.files import write_text
    from annotated.machinery.parsing.drawing import tree_svg
    from annotated.machinery.parsing.linear import split_words
    from annotated.machinery.parsing.trees import tree_to_brackets
    from annotated.parsing import load_parser

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
        print(tree_to_brackets(tree) if options.lines else f"{tree_picture(tree)}\n")
        if options.svg:
            write_text(Path(options.svg), tree_svg(tree))


def check_parse(options: argparse.Namespace) -> None:
    """Raise ValueError for options of `parse` that do not go together."""
    from annotated.machinery.parsing.trees import check_limit

    check_limit(options.limit)
    scoring = {name: getattr(options, name) for name in ("out", "baselines", "limit")}
    useless = [f"--{name}" for name, given in scoring.items() if given not in (None, False)]
    if useless and not options.treebank:
        raise ValueError(f"expected --treebank with {useless[0]}, which is about scores")
    if options.treebank and (options.text or options.svg):
        raise ValueError("expected either sentences to draw or --treebank to score on; got both")


def score_on_treebank(parser: Any, options: argparse.Namespace, search: dict[str, Any]) -> None:
    """Print and keep the scores of a parser, and of the baselines if they are asked for."""
    from annotated.machinery.parsing.baselines import compare_parsers
    from annotated.machinery.parsing.scoring import score_parser

    about = {"treebank": options.treebank, "split": options.split, **search}
    where = options.treebank, options.split, options.limit
    if options.baselines:
        rows = compare_parsers(parser, *where, **search)
    else:
        rows = score_parser(parser, *where, **search)
    report_trees(rows, about, options.out)


def report_trees(rows: list[dict[str, Any]], about: dict[str, Any], out: str | None) -> None:
    """Print scores of trees as EVALB does, and write them as JSON."""
    from annotated.machinery.files import write_text

    for row in rows:
        for name, value in row.items():
            print(f"{name:26}= {value if isinstance(value, str) else format(value, '6.5g')}")
    if out:
        write_text(Path(out), json.dumps([about | row for row in rows], indent=1) + "\n")


def run_treebank(options: argparse.Namespace) -> None:
    from annotated.machinery.parsing.evalb import read_evalb_params, score_tree_files
    from annotated.machinery.parsing.linear import write_treebank

    if options.action == "write":
        print(write_treebank(options.treebank, Path(options.folder), options.limit))
        return
    about = {"gold": options.gold, "found": options.found, "param": options.param}
    params = read_evalb_params(Path(options.param)) if options.param else None
    rows = score_tree_files(Path(options.gold), Path(options.found), params)
    report_trees(rows, about, options.out)


def tree_picture(tree: Any) -> str:
    """A tree in letters and lines, for a terminal."""
    picture = io.StringIO()
    tree.pretty_print(stream=picture)
    return picture.getvalue().rstrip()


def run_average(options: argparse.Namespace) -> None:
    from annotated.machinery.errors import InputError
    from annotated.machinery.files import write_tensors
    from annotated.machinery.training.checkpoints import average_checkpoints
    from annotated.machinery.training.folder import average_run

    first, *more = paths = [Path(path) for path in options.checkpoints]
    if first.is_dir():
        if more or options.out:
            raise InputError("expected the folder of one run, without --out: its model is replaced")
        average_run(first, options.last)
        print(first)
    elif options.out and not options.last:
        write_tensors(Path(options.out), average_checkpoints(paths), {"format": "pt"})
        print(options.out)
    else:
        raise InputError("expected --out FILE with checkpoint files, or the folder of a run")


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
    from annotated.machinery.errors import InputError
    from annotated.machinery.texts import decode_lines

    if text:
        return [one_line(line) for line in text]
    if sys.stdin is None:
        raise InputError("expected sentences, as arguments or on standard input, which is closed")
    return map(one_line, decode_lines(lines_of_input(), "standard input"))


def lines_of_input() -> Iterator[bytes]:
    """The lines of standard input, as they come."""
    from annotated.machinery.files import reading

    with reading("standard input", "sentences, one a line"):
        yield from sys.stdin.buffer


def sentences_to_translate(options: argparse.Namespace) -> Iterable[str]:
    """The sentences of the command line, or the lines of a file or of standard input."""
    from annotated.machinery.texts import read_lines

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
    from annotated.machinery.errors import InputError
    from annotated.machinery.files import writing

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
    from annotated.machinery.translator import load_pretrained

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


def run_export(options: argparse.Namespace) -> None:
    from annotated.machinery.export import export_model
    from annotated.machinery.translator import load_pretrained

    export_model(load_pretrained(options.model), options.to, Path(options.out), options.half)
    print(options.out)


def run_import(options: argparse.Namespace) -> None:
    from annotated.machinery.files import write_text, writing_new_folder
    from annotated.machinery.training.checkpoints import save_model
    from annotated.machinery.translator import load_pretrained, model_folder
    from annotated.machinery.vocabularies import write_tokenizers

    with writing_new_folder(Path(options.out)) as out:
        translator = load_pretrained(options.source)
        write_tokenizers(out, translator.tokenizer, translator.target_tokenizer)
        card = model_folder(options.source) / "README.md"
        if card.is_file():
            write_text(out / card.name, card.read_text(encoding="utf-8", errors="replace"))
        weights = translator.model.state_dict()
        half = all(bool((x.half() == x).all()) for x in weights.values())  # as it was published
        save_model(out, weights, translator.model.config, half)
    print(options.out)
