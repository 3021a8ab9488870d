"""The contribution of each head of a translator: the loss without it.

`python -m benchmarks.switches MODEL SOURCE TARGET --out FILE` reads two files of lines, lets the
model predict each piece of the target sentences, and repeats this without each head, without all
heads of each layer, and without each kind of attention. A row of the table contains the kind of
attention ("encoder", "cross", "decoder"; "" for the whole model), the layer and the head (from 1;
0 for all), and the loss in nats per piece.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from annotated import load_pretrained
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.files import write_text
from annotated.machinery.progress import progress_bar
from annotated.machinery.recording import switch_off
from annotated.machinery.scoring import likelihood

KINDS = {
    "encoder": "encoder.layers.{}.self_attn",
    "cross": "decoder.layers.{}.src_attn",
    "decoder": "decoder.layers.{}.self_attn",
}


def switches(model: object) -> Iterator[tuple[str, int, int, dict[str, list[int]]]]:
    """Kind, layer, head, and the heads to switch off: none, each head, each layer, each kind."""
    yield "", 0, 0, {}
    modules = dict(model.named_modules())  # type: ignore[attr-defined]
    for kind, pattern in KINDS.items():
        names = (pattern.format(n) for n in range(len(modules)))
        every = {name: list(range(modules[name].h)) for name in names
                 if hasattr(modules.get(name), "h")}  # fmt: skip
        if every:  # a recurrent decoder has no such attention
            yield kind, 0, 0, every
        for layer, name in enumerate(every, start=1):
            yield kind, layer, 0, {name: every[name]}
            for head in every[name]:
                yield kind, layer, head + 1, {name: [head]}


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="a model of the package, or a folder")
    parser.add_argument("source", type=Path, help="file with one sentence per line")
    parser.add_argument("target", type=Path, help="file with their translations")
    parser.add_argument(
        "--most", type=int, default=1000, help="maximum number of sentences (default: 1,000)"
    )
    parser.add_argument("--out", type=Path, required=True, help="CSV file to write")
    options = parser.parse_args()
    translator = load_pretrained(options.model)
    pair = [read_lines(path)[: options.most] for path in (options.source, options.target)]
    rows = []
    for kind, layer, head, off in progress_bar(list(switches(translator.model)), unit=" switch"):
        with switch_off(translator.model, off):
            found = likelihood(translator, *pair)
        rows.append((kind, layer, head, round(found.nats / found.pieces, 4)))
    table = pd.DataFrame(rows, columns=["kind", "layer", "head", "loss"])
    write_text(options.out, table.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()
