"""The steps that stacks of layers need to copy a symbol from one to eight tokens before.

`python -m benchmarks.recall --out FILE` trains the stacks of chapters/2-background.md for at most
4,000 steps. A row of the table has the stack, its number of layers, the distance, the learning
rate, the seed, and the steps until 95 % of a batch were right, or 4,000.
"""

from itertools import product
from pathlib import Path

import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F

from annotated.machinery.progress import progress_bar
from benchmarks.logs import make_parser, page_names, write_log

PAGE = page_names("2-background")


class Recurrent(nn.Module):
    """An LSTM, which mixes each position with those before it: (batch, n, d) to the same."""

    def __init__(self, d):
        super().__init__()
        self.mix = nn.LSTM(d, d, batch_first=True)

    def forward(self, x):
        return self.mix(x)[0]


class Recall(nn.Module):
    """Symbols (batch, n) to scores (batch, 8) at the last position."""

    def __init__(self, mixers, n=9, d=32):
        super().__init__()
        self.symbol = nn.Embedding(8, d)
        self.position = nn.Parameter(torch.randn(n, d))
        self.mixers = nn.ModuleList(mixers)
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in mixers)
        self.guess = nn.Linear(d, 8)

    def forward(self, symbols):
        x = self.symbol(symbols) + self.position
        for mix, norm in zip(self.mixers, self.norms, strict=True):
            x = norm(x + mix(x).relu())
        return self.guess(x[:, -1])


LAYERS = {  # of width 32, by the number of the layer
    "contiguous": lambda i: PAGE["Convolution"](32),
    "dilated": lambda i: PAGE["Convolution"](32, dilation=2 ** (i % 4)),
    "self-attention": lambda i: PAGE["SelfAttention"](32),
    "LSTM": lambda i: Recurrent(32),
}
SETTINGS = {  # distances and learning rates, by the number of layers
    8: [*product(range(1, 9), [3e-3]), (8, 1e-3), (8, 1e-2)],
    16: [*product((1, 8), [3e-3])],
}


def steps_to_learn(model: nn.Module, distance: int, limit: int, rate: float, n: int = 9) -> int:
    """Steps of Adam until 95% of the guesses in a batch are right, or the limit."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    for step in range(1, limit + 1):
        symbols = torch.randint(8, (64, n))
        guess, right = model(symbols), symbols[:, n - 1 - distance]
        optimizer.zero_grad()
        F.cross_entropy(guess, right).backward()
        optimizer.step()
        if (guess.argmax(dim=-1) == right).float().mean() >= 0.95:
            return step
    return limit


def main() -> None:
    parser = make_parser("benchmarks.recall", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="CSV file to write")
    parser.add_argument(
        "--only", nargs="+", choices=LAYERS, default=[*LAYERS], help="stacks to train (all)"
    )
    parser.add_argument("--limit", type=int, default=4000, help="most steps (default: 4,000)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for count, stack in progress_bar([*product(SETTINGS, options.only)], unit=" stack"):
        for (distance, rate), seed in product(SETTINGS[count], range(3)):
            torch.manual_seed(seed)
            model = Recall([LAYERS[stack](i) for i in range(count)])
            steps = steps_to_learn(model, distance, options.limit, rate)
            rows.append((stack, count, distance, rate, seed, steps))
    columns = ["stack", "layers", "distance", "rate", "seed", "steps"]
    write_log(options.out, pd.DataFrame(rows, columns=columns))


if __name__ == "__main__":
    main()
