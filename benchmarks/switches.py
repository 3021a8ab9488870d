"""The contribution of each head of a translator: the loss without it.

`python -m benchmarks.switches MODEL SOURCE TARGET --out FILE` reads two files of lines, lets the
model predict each piece of the target sentences, and repeats this without each head, without all
heads of each layer, and without each kind of attention. A row of the table contains the kind of
attention ("encoder", "cross", "decoder"; "" for the whole model), the layer and the head (from 1;
0 for all), and the loss in nats per piece.
"""

from collections.abc import Iterator

import pandas as pd

from annotated import load_pretrained
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.progress import progress_bar
from annotated.machinery.recording import switch_off
from annotated.machinery.scoring import likelihood
from benchmarks.logs import files_parser, write_log

KINDS = {
    "encoder": "encoder.layers.{}.self_attn",
    "cross": "decoder.layers.{}.src_attn",
    "decoder": "decoder.layers.{}.self_attn",
}


def switches(model: object) -> Iterator[tuple[str, int, int, dict[str, list[int]]]]:
    """Kind, layer, head, and the heads to switch off: none, each head, each layer, each kind."""
    yield "", 0, 0, {}
    modules = dict(model.named_modules())
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
    parser = files_parser("benchmarks.switches", __doc__, "target")
    told = "maximum number of sentences (default: 1,000)"
    parser.add_argument("--most", type=int, default=1000, help=told)
    options = parser.parse_args()
    translator, rows = load_pretrained(options.model), []
    pair = [read_lines(path)[: options.most] for path in (options.source, options.target)]
    for kind, layer, head, off in progress_bar(list(switches(translator.model)), unit=" switch"):
        with switch_off(translator.model, off):
            found = likelihood(translator, *pair)
        rows.append((kind, layer, head, round(found.nats / found.pieces, 4)))
    write_log(options.out, pd.DataFrame(rows, columns=["kind", "layer", "head", "loss"]))


if __name__ == "__main__":
    main()
