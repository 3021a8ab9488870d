"""The steps that stacks of layers need to copy a symbol from one to eight tokens before.

`python -m benchmarks.recall --out FILE` trains the stacks of chapters/2-background.md for at most
4,000 steps. A row of the table has the stack, its number of layers, the distance, the learning
rate, the seed, and the steps until 95 % of a batch were right, or 4,000.

With `--marked`, a stack learns all distances together: in each example the symbol to copy is
drawn anew and marked, and positions have no vectors. A distance is learned at the first step after
which 95 % of 64 new examples are right. Contiguous convolutions learn with eight layers and again
with sixteen, all other stacks with eight.
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
    """Mixes each position with those before it: (batch, n, d) to the same."""

    def __init__(self, d, kind=nn.LSTM):
        super().__init__()
        self.mix = kind(d, d, batch_first=True)

    def forward(self, x):
        return self.mix(x)[0]


class Gated(nn.Module):
    """A contiguous convolution with ConvS2S's gates: (batch, n, d) to the same."""

    def __init__(self, d):
        super().__init__()
        self.mix = nn.Conv1d(d, 2 * d, 3, padding=1)

    def forward(self, x):
        return F.glu(self.mix(x.transpose(1, 2)), dim=1).transpose(1, 2)


class Recall(nn.Module):
    """Symbols (batch, n) to scores (batch, 8) at the last position.

    Args: marked: a vector is added at the position to copy, instead of one at each position.
    """

    def __init__(self, mixers, n=9, d=32, marked=False):
        super().__init__()
        self.symbol = nn.Embedding(8, d)
        self.position = nn.Parameter(torch.randn(d) if marked else torch.randn(n, d))
        self.mixers = nn.ModuleList(mixers)
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in mixers)
        self.guess = nn.Linear(d, 8)

    def forward(self, symbols, marks=None):
        x = self.symbol(symbols) + self.position * (1 if marks is None else marks.unsqueeze(-1))
        for mix, norm in zip(self.mixers, self.norms, strict=True):
            x = norm(x + mix(x).relu())
        return self.guess(x[:, -1])


LAYERS = {  # of width 32, by the number of the layer
    "contiguous": lambda i: PAGE["Convolution"](32),
    "dilated": lambda i: PAGE["Convolution"](32, dilation=2 ** (i % 4)),
    "self-attention": lambda i: PAGE["SelfAttention"](32),
    "LSTM": lambda i: Recurrent(32),
    "recurrent": lambda i: Recurrent(32, nn.RNN),
    "gated": lambda i: Gated(32),
}
ONLY_MARKED = "recurrent", "gated"
DEEP = "contiguous"  # this stack learns all distances with sixteen layers too
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


def steps_to_learn_marked(model: nn.Module, limit: int, rate: float, n: int = 9) -> list[int]:
    """For each distance from 1 to n - 1, the steps after which 95% of 64 guesses are right."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    learned = [limit] * (n - 1)

    def answer(distances):
        symbols, marked = torch.randint(8, (len(distances), n)), n - 1 - distances
        return model(symbols, F.one_hot(marked, n)), symbols[torch.arange(len(symbols)), marked]

    for step in range(1, limit + 1):
        guess, right = answer(torch.randint(1, n, (64,)))
        optimizer.zero_grad()
        F.cross_entropy(guess, right).backward()
        optimizer.step()
        with torch.no_grad():
            guess, right = answer(torch.arange(1, n).repeat(64))
        shares = (guess.argmax(dim=-1) == right).float().view(64, n - 1).mean(dim=0).tolist()
        learned = [
            min(at, step) if share >= 0.95 else at
            for at, share in zip(learned, shares, strict=True)
        ]
        if max(learned) < limit:
            break
    return learned


def main() -> None:
    parser = make_parser("benchmarks.recall", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="CSV file to write")
    parser.add_argument(
        "--only", nargs="+", choices=LAYERS, default=[*LAYERS], help="stacks to train (all)"
    )
    parser.add_argument("--marked", action="store_true", help="learn all distances together")
    parser.add_argument("--limit", type=int, default=4000, help="most steps (default: 4,000)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    if options.marked:
        stacks = [(name, 8) for name in options.only] + [(DEEP, 16)] * (DEEP in options.only)
        for (stack, count), seed in progress_bar([*product(stacks, range(10, 15))], unit=" stack"):
            torch.manual_seed(seed)  # other seeds than those with which the task was chosen
            model = Recall([LAYERS[stack](i) for i in range(count)], marked=True)
            learned = steps_to_learn_marked(model, options.limit, 3e-3)
            rows += [(stack, count, D, 3e-3, seed, steps) for D, steps in enumerate(learned, 1)]
    apart = [] if options.marked else [name for name in options.only if name not in ONLY_MARKED]
    for count, stack in progress_bar([*product(SETTINGS, apart)], unit=" stack"):
        for (distance, rate), seed in product(SETTINGS[count], range(3)):
            torch.manual_seed(seed)
            model = Recall([LAYERS[stack](i) for i in range(count)])
            steps = steps_to_learn(model, distance, options.limit, rate)
            rows.append((stack, count, distance, rate, seed, steps))
    columns = ["stack", "layers", "distance", "rate", "seed", "steps"]
    write_log(options.out, pd.DataFrame(rows, columns=columns))


if __name__ == "__main__":
    main()
