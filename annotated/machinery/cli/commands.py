"""The subcommands of `annotated`, from their options to their output.

Importing this module must stay fast because the help needs it: the names of the package are
imported on first use, and modules that need torch inside the functions. Only incompatible options
and invalid lines are checked here; all else is checked by the functions that receive it.
"""

import argparse
import dataclasses
import io
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any, TextIO

import annotated
from annotated.machinery.corpora.texts import bounded_lines, decode_lines, read_lines
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import new_folder, output_file, reading, write_text, writing


def run_prepare(options: argparse.Namespace) -> None:
    from annotated.machinery.corpora.prepared import RULES, prepare

    given = {name: value for name, value in vars(options).items() if name in RULES}
    print(prepare(_configuration(options, given), options.out, options.processes))


def run_train(options: argparse.Namespace) -> None:
    from annotated.machinery.corpora.prepared import PreparedCorpus
    from annotated.machinery.runs.checkpoints import read_config

    fields = annotated.TrainingConfig.__dataclass_fields__
    given = {name: value for name, value in vars(options).items() if name in fields}
    if "prepared" in given and not ("data" in given or options.preset or options.resume):
        rules = PreparedCorpus.open(given["prepared"]).manifest.rules
        given = {name: value for name, value in rules.items() if value} | given
    config = _configuration(options, given)
    if options.resume and not options.preset:
        if Path(config.out, "training.json").exists():
            given = {"prepared": "", **given}  # corpus.json knows where it is
            config = dataclasses.replace(read_config(Path(config.out)), **given)
        elif "data" not in given:
            wanted = "expected --out to name a run to continue, or --preset or --data to begin one"
            raise InputError(f"{wanted}; {config.out} has no training.json")
    folder = annotated.train(config, options.resume)
    if os.environ.get("RANK", "0") == "0":  # of several processes, only one prints
        print(folder)


def _configuration(options: argparse.Namespace, given: dict[str, Any]) -> Any:
    """That of the preset, or of the trained model, with the given options."""
    from annotated.training import PRESETS

    if "from_" not in given:
        return annotated.preset(options.preset or "multi30k-en-de", **given)
    changes = {**PRESETS.get(options.preset, {}), **given}
    return annotated.fine_tuning(changes.pop("from_"), **changes)


def run_average(options: argparse.Namespace) -> None:
    from annotated.machinery.runs.checkpoints import read_config
    from annotated.machinery.runs.folder import average_run, run_lock

    folder = Path(options.folder)
    read_config(folder)  # before a lock is created in a folder that does not belong to a run
    with run_lock(folder):
        average_run(folder, options.last)
    print(folder)


def run_translate(options: argparse.Namespace) -> None:
    if options.text and options.input is not None:
        raise InputError("expected sentences or --input; got both")
    _check_output(options.output, options.input)
    sentences = _sentences(options.text, options.input)
    scored, progress = options.n_best is not None, options.progress
    if progress is None:  # only where it is visible and does not mix with the translations
        printed = options.output is None and sys.stdout is not None and sys.stdout.isatty()
        progress = sys.stderr.isatty() and not printed
    names = "beam", "alpha", "max_extra", "max_source", "batch_tokens", "chunk"
    search = {name: getattr(options, name) for name in names}
    search |= {"progress": progress, "n_best": options.n_best if scored else 1}
    if not (options.text or options.input) and sys.stdin.isatty():
        search["chunk"] = 1  # a user waits for each answer
    with _text_output(options.output) as out:
        translator = _load(options, options.model)
        groups = translator.candidates(sentences, **search)
        for number, group in enumerate(groups, start=1):
            for found in group:
                scores = [number, f"{found.score:.4f}", f"{found.log_prob:.4f}"] if scored else []
                print(*scores, _one_line(found.text), sep="\t", file=out, flush=True)


def run_generate(options: argparse.Namespace) -> None:
    if len(options.text) > 1:
        raise InputError(f"expected one prompt, in quotes; got {len(options.text)} words or texts")
    prompt = options.text[0] if options.text else _whole_input()
    names = "temperature", "top_k", "top_p", "seed", "chat"
    choice = {name: getattr(options, name) for name in names}
    choice |= {"stop": options.stop} if options.stop else {}
    device = _device(options.device)
    with _text_output(None) as out:
        generator = annotated.load_language_model(options.model, device, options.dtype)
        for part in generator.stream(prompt, options.max_new_tokens, **choice):
            print(part, end="", file=out, flush=True)
        print(file=out)


def run_evaluate(options: argparse.Namespace) -> None:
    from annotated.machinery.corpora.registry import default_split, parse_data, split_parts
    from annotated.machinery.formats.hub import model_folder
    from annotated.machinery.runs.checkpoints import check_languages
    from annotated.machinery.runs.folder import trained_data
    from annotated.machinery.scoring import Judged, compare, judge

    names, own = options.data, not options.data
    if own:
        folder = model_folder(options.model[0])
        if not (folder / "training.json").exists():
            raise InputError(f"expected --data, because {folder} has no training.json")
        names = [trained_data(folder)]
    corpora = [parse_data(name) for name in names]
    if any(tgt == "trees" for _, _, tgt in corpora):
        raise InputError("expected a corpus of translations; score a parser by parse --treebank")
    tasks = [
        (corpus, split, *pair)
        for corpus, *pair in corpora
        for split in options.split or [default_split(corpus, own)]
    ]
    parts = [part for task in tasks for part in split_parts(*task)]
    sides = [side for part in parts for side, _ in (part.source, part.target)]
    _check_results("evaluate", options.out, *sides)
    names = options.model
    translators = [_load(options, name) for name in names]
    for name, (corpus, _, *pair) in product(names, tasks):
        check_languages(name, "-".join([corpus, *pair]))
    rows: list[dict[str, Any]] = []
    search: dict[str, Any] = {"beam": options.beam, "alpha": options.alpha}
    for task in tasks:
        first: Judged | None = None
        for name, translator in zip(names, translators, strict=True):
            found = judge(translator, *task, **search)
            different = compare(first, found, task[-1]) if first else {}
            first = first or found
            if len(names) > 1:
                found.rows[:] = [{"model": name} | row for row in found.rows]
            about = "{search}, perplexity {perplexity:.2f} per piece, accuracy {accuracy:.1%}, "
            about += "length ratio {length_ratio:.3f}, brevity penalty {brevity_penalty:.3f}"
            where = f"{name}, {task[0]}" if len(names) > 1 else task[0]
            print(f"{where} {task[1]}: {about.format(**found.rows[0])}")
            _print_bleu(found.rows, ["corpus", "split"])
            texts = {"reference": found.references, names[0]: first.hypotheses}
            for i, gain in different.items():
                print(f"sentence {i + 1}, chrF2 {gain:+.1f}: {_one_line(found.sources[i])}")
                for label, lines in (texts | {name: found.hypotheses}).items():
                    print(f"  {label}: {_one_line(lines[i])}", flush=True)
            rows += found.rows
    _write_bleu(rows, options.out)


def run_score(options: argparse.Namespace) -> None:
    from annotated.machinery.scoring import score_files

    _check_results("score", options.out, *options.text, options.ref)
    outputs, ref = map(Path, options.text), Path(options.ref)
    rows = [row for output in outputs for row in score_files(output, ref, options.lang)]
    _print_bleu(rows, ["output"])
    _write_bleu(rows, options.out)


def run_parse(options: argparse.Namespace) -> None:
    from annotated.machinery.trees.evalb import score_trees
    from annotated.machinery.trees.linear import split_words
    from annotated.machinery.trees.penn import load_trees, tree_to_brackets

    _check_results("parse", options.out)
    _check_output(options.svg)
    if options.out is not None and options.treebank is None:
        raise InputError("expected --treebank with --out, because --out receives the scores")
    if options.treebank is not None and (options.text or options.svg):
        raise InputError("expected either sentences to draw or --treebank to score on; got both")
    parser = annotated.load_parser(options.model, _device(options.device))
    search = {"beam": options.beam, "alpha": options.alpha, "hold": not options.free}
    if options.treebank is not None:
        split = options.split or ("test" if options.treebank == "wsj-sample" else "dev")
        gold = load_trees(options.treebank, split)
        found = parser.parse_all([tree.leaves() for tree in gold], progress=True, **search)
        about = {"treebank": options.treebank, "split": split, **search}
        rows = score_trees(gold, found)
        for name, value in (pair for row in rows for pair in row.items()):
            print(f"{name:26}= {value if isinstance(value, str) else format(value, '6.5g')}")
        if options.out is not None:
            write_text(options.out, json.dumps([about | row for row in rows], indent=1) + "\n")
        return
    with _text_output(None) as out:
        for number, line in enumerate(_sentences(options.text), start=1):
            if len(line) > 2000:  # a longer one would be truncated, and half a tree is not a tree
                got = f"got {len(line):,}"
                raise InputError(f"sentence {number}: expected at most 2,000 letters; {got}")
            words = line.split() if options.words else split_words(line)
            if not words:
                raise InputError(f"sentence {number}: expected words; got a blank line")
            tree = parser.parse(words, **search)
            if options.lines:
                print(tree_to_brackets(tree), file=out)
            else:
                tree.pretty_print(stream=out)
            if options.svg is not None:
                write_text(options.svg, annotated.tree_svg(tree))


def run_treebank(options: argparse.Namespace) -> None:
    from annotated.machinery.trees.linear import write_treebank

    print(write_treebank(options.treebank, options.folder))


def run_export(options: argparse.Namespace) -> None:
    from annotated.machinery.formats.export import export_model

    new_folder(options.out)
    translator = annotated.load_pretrained(options.model, checkpoint=options.checkpoint)
    export_model(translator, options.to, options.out, options.half)
    print(options.out)


def run_import(options: argparse.Namespace) -> None:
    new_folder(options.out)
    annotated.load_pretrained(options.source).save(options.out)
    print(options.out)


def run_data(options: argparse.Namespace) -> None:
    from annotated.machinery.corpora.registry import corpus_files, find_corpus

    if options.action == "get":
        for path in corpus_files(find_corpus(options.name), options.split):
            print(path, flush=True)
        return
    for corpus in annotated.known_corpora().values():
        known = sum(file.size or 0 for file in corpus.files.values() if file.url)
        size = f"; {known / 1e9:.1f} GB to download" if known > 1e9 else ""
        print(f"{corpus.name:12} {' '.join(corpus.languages)}  {corpus.title}")
        print(f"{'':12} splits: {' '.join(corpus.splits)}{size}")
        print(f"{'':12} {corpus.source}; license: {corpus.license}")


def run_paper(options: argparse.Namespace) -> None:
    from annotated.machinery.paper.quotation import get_paper, import_paper

    print(get_paper() if options.action == "get" else import_paper(options.file))


def _check_output(path: str | None, *inputs: str | Path | None) -> None:
    """Before the work starts: raise FileError if the output cannot be written or is an input."""
    if path is not None:
        output_file(path, *(each for each in inputs if each))


RESULTS = {  # some of the names in each row that a command writes
    "evaluate": {"corpus", "split", "pair", "search", "text", "score", "signature"},
    "score": {"output", "reference", "sentences", "text", "score", "signature"},
    "parse": {"treebank", "split", "beam", "alpha", "Bracketing FMeasure"},
}


def _check_results(command: str, path: str | None, *inputs: str | Path) -> None:
    """As `_check_output`, for a JSON file, which replaces results of this command and no others."""
    _check_output(path, *inputs)
    if path is None or not os.path.exists(path) or not os.path.getsize(path):
        return
    there: Any = None
    with suppress(ValueError, RecursionError):
        there = json.loads(Path(path).read_bytes())
    rows = there if isinstance(there, list) else [there]
    if not (rows and all(isinstance(row, dict) and row.keys() >= RESULTS[command] for row in rows)):
        wanted = f"expected the name of a new file, or of earlier results of `annotated {command}`"
        raise FileError(f"{wanted}; got {path!r}: another file, which would be lost")


def _print_bleu(rows: list[dict[str, Any]], names: list[str]) -> None:
    """Print scores, one per line."""
    for row in rows:
        name = " ".join(row[name] for name in names)
        low, high = row.get("interval", (0, 0))
        score = f"{row['score']:.2f} ± {(high - low) / 2:.2f}" if high else f"{row['score']:.2f}"
        if "p_value" in row:
            score += f" ({row['difference']:+.2f}, p = {row['p_value']:.3f})"
        print(f"{name:5} {row['text']:33} {score}  {row['signature']}", flush=True)


def _write_bleu(rows: list[dict[str, Any]], out: str | None) -> None:
    """Write scores as JSON, which has no infinite numbers: such a perplexity becomes null."""
    if out is not None:
        rows = [{k: None if v == math.inf else v for k, v in row.items()} for row in rows]
        write_text(out, json.dumps(rows, indent=2, ensure_ascii=False) + "\n")


def _one_line(text: str) -> str:
    """The text without characters that a program might interpret as ends of lines or fields.

    `str.splitlines` recognizes nine in addition to the line feed; each becomes a space, in the
    input and in the output, so that line 1,000 of the output belongs to line 1,000 of the input.
    """
    return " ".join(text.splitlines()).replace("\t", " ")


def _sentences(text: list[str], file: str | None = None) -> Iterable[str]:
    """The sentences of the command line, or the lines of a file or of standard input.

    A file is read completely, so that an error in it is found before the work begins; standard
    input, which may be endless, is read line by line as needed.
    """

    def standard_input() -> Iterator[str]:
        with reading("standard input", "sentences, one per line"):
            lines = bounded_lines(sys.stdin.buffer, "standard input")
            yield from map(_one_line, decode_lines(lines, "standard input"))

    if text or file is not None:
        lines = text if file is None else read_lines(Path(file))
        return [_one_line(line) for line in lines]
    _require_input("sentences")
    return standard_input()


def _whole_input() -> str:
    """The text of standard input as it is, without a byte order mark and its last line end."""
    _require_input("a prompt")
    with reading("standard input", "a prompt"):
        data = sys.stdin.buffer.read(_LONGEST_PROMPT + 1)
        if len(data) > _LONGEST_PROMPT:
            raise ValueError(f"more than {_LONGEST_PROMPT:,} bytes")
        return data.decode("utf-8-sig").removesuffix(os.linesep)


_LONGEST_PROMPT = 1 << 26  # bytes, which no model reads; standard input may be endless


def _require_input(wanted: str) -> None:
    if sys.stdin is None:
        raise InputError(f"expected {wanted}, as arguments or on standard input, which is closed")


def _load(options: argparse.Namespace, name: str) -> Any:
    """The translator of this name for a command that has options of the engine."""
    device, engine = _device(options.device), options.engine
    more = {"precision": options.precision, "checkpoint": options.checkpoint}
    return annotated.load_pretrained(name, device, engine, **more)


def _device(name: str | None) -> str:
    """The device of this name; for None the GPU, if there is one."""
    import torch

    return name or ("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def _text_output(path: str | None) -> Iterator[TextIO]:
    """A file that receives its name once it is complete, or standard output; always UTF-8."""
    if path is None:
        if sys.stdout is None:
            raise InputError("expected an open standard output; it is closed")
        if isinstance(sys.stdout, io.TextIOWrapper):  # not so in a notebook
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
        return
    with writing(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        yield file
