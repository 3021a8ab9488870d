"""The command `annotated` (chapters/command-line.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

__all__ = [
    "add_fields",
    "add_sources",
    "build_parser",
    "main",
    "run_average",
    "run_data",
    "run_evaluate",
    "run_paper",
    "run_train",
    "run_translate",
]


def add_fields(parser: argparse.ArgumentParser, config: Any) -> None:
    """Give a parser an option for each field of a configuration dataclass."""
    for field in dataclasses.fields(config):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            dest=field.name,
            type=type(field.default),
            default=field.default,
            metavar=type(field.default).__name__.upper(),
            help=f"{field.metadata['help']} (default: {field.default})",
        )


def run_train(options: argparse.Namespace) -> None:
    from annotated.training import TrainingConfig, train

    chosen = {f.name: getattr(options, f.name) for f in dataclasses.fields(TrainingConfig)}
    print(train(TrainingConfig(**chosen)))


def run_translate(options: argparse.Namespace) -> None:
    from annotated.decoding import load_pretrained

    translator = load_pretrained(options.model)
    sentences = options.text or [line.rstrip("\n") for line in sys.stdin]
    for translation in translator.translate_all(sentences):
        print(translation)


def run_evaluate(options: argparse.Namespace) -> None:
    from annotated.decoding import load_pretrained
    from annotated.evaluation import evaluate
    from annotated.training import write_text

    translator = load_pretrained(options.model)
    rows = []
    for split in options.split:
        rows += evaluate(translator, options.corpus, split, options.src, options.tgt)
    for row in rows:
        print(f"{row['split']:5} {row['text']:23} {row['score']:.2f}  {row['signature']}")
    if options.out:
        write_text(Path(options.out), json.dumps(rows, indent=2, ensure_ascii=False) + "\n")


def run_data(options: argparse.Namespace) -> None:
    from annotated.data import corpora, corpus_file, find_corpus

    if options.action == "list":
        for corpus in corpora().values():
            print(f"{corpus.name:12} {' '.join(corpus.languages)}  {corpus.title}")
            print(f"{'':12} {corpus.source}; licence: {corpus.licence}")
        return
    corpus = find_corpus(options.name)
    for split in corpus.splits:
        for lang in corpus.languages:
            print(corpus_file(corpus, split, lang))


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


def run_average(options: argparse.Namespace) -> None:
    from annotated.training import average_checkpoints, write_tensors

    tensors = average_checkpoints([Path(path) for path in options.checkpoints])
    write_tensors(Path(options.out), tensors, {"format": "pt"})
    print(options.out)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command `annotated`."""
    from annotated.training import TrainingConfig

    parser = argparse.ArgumentParser(
        prog="annotated", description="Attention Is All You Need, executable."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    train = commands.add_parser("train", help="train a translation model (section 5)")
    add_fields(train, TrainingConfig)
    train.set_defaults(run=run_train)

    translate = commands.add_parser("translate", help="translate sentences, or standard input")
    translate.add_argument("model", help="a model of the package, or the folder of a run")
    translate.add_argument("text", nargs="*", help="sentences; default: lines of standard input")
    translate.set_defaults(run=run_translate)

    evaluate = commands.add_parser("evaluate", help="score a model with BLEU (section 6.1)")
    evaluate.add_argument("model", help="a model of the package, or the folder of a run")
    evaluate.add_argument("--corpus", default="multi30k", help="default: %(default)s")
    evaluate.add_argument("--split", nargs="+", default=["test"], help="default: test")
    evaluate.add_argument("--src", default="en", help="source language (default: %(default)s)")
    evaluate.add_argument("--tgt", default="de", help="target language (default: %(default)s)")
    evaluate.add_argument("--out", help="also write the scores to this JSON file")
    evaluate.set_defaults(run=run_evaluate)
    add_sources(commands)
    return parser


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
    actions.add_parser("get", help="download a corpus").add_argument("name")
    data.set_defaults(run=run_data)

    paper = commands.add_parser("paper", help="fetch, import or show the paper's own text")
    actions = paper.add_subparsers(dest="action", required=True, metavar="get|import|show")
    actions.add_parser("get", help="download it from arXiv")
    actions.add_parser("import", help="keep a copy of a PDF that you have").add_argument("file")
    actions.add_parser("show", help="print a section, such as 3.2.1").add_argument("section")
    paper.set_defaults(run=run_paper)


def main(arguments: list[str] | None = None) -> None:
    """Run the command `annotated`."""
    options = build_parser().parse_args(arguments)
    try:
        options.run(options)
    except (ValueError, OSError) as error:
        print(f"annotated: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("annotated: interrupted; `train` continues from its last checkpoint", file=sys.stderr)
        sys.exit(130)
