"""The steps that stacks of layers need to copy a symbol from one to eight tokens before.

`python -m benchmarks.recall --out FILE` trains the stacks of chapters/2-background.md for at most
4,000 steps instead of 250. A row of the table has the stack, its number of layers, the distance,
the learning rate, the seed, and the steps until 95 % of a batch were right, or 4,000.
"""

from itertools import product
from pathlib import Path

import pandas as pd
import torch

from annotated.machinery.progress import progress_bar
from benchmarks.logs import make_parser, page_names, write_log

EIGHT = {  # dilations of eight convolutions, or none
    "contiguous": [1] * 8,
    "dilated": [1, 2, 4, 8] * 2,
    "self-attention": [None] * 8,
}
STACKS = {(stack, 8 * k): steps * k for k in (1, 2) for stack, steps in EIGHT.items()}
SETTINGS = {  # distances and learning rates, by the number of layers
    8: [*product((1, 5, 6, 7, 8), [3e-3]), (8, 1e-3), (8, 1e-2)],
    16: [*product((1, 8), [3e-3])],
}


def main() -> None:
    parser = make_parser("benchmarks.recall", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="CSV file to write")
    parser.add_argument("--limit", type=int, default=4000, help="most steps (default: 4,000)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    page, rows = page_names("2-background"), []
    for stack, layers in progress_bar(list(STACKS), unit=" stack"):
        for (distance, rate), seed in product(SETTINGS[layers], range(3)):
            torch.manual_seed(seed)
            mixers = [
                page["Convolution"](32, dilation=step) if step else page["SelfAttention"](32)
                for step in STACKS[stack, layers]
            ]
            learn, model = page["steps_to_learn"], page["Recall"](mixers)
            steps = learn(model, distance, limit=options.limit, rate=rate)
            rows.append((stack, layers, distance, rate, seed, steps))
    columns = ["stack", "layers", "distance", "rate", "seed", "steps"]
    write_log(options.out, pd.DataFrame(rows, columns=columns))


if __name__ == "__main__":
    main()
