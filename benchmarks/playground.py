"""What the playground's comparisons show, each over twenty seeds.

`python -m benchmarks.playground --out FILE` trains both models of each comparison of
book/static/playground.js with Node, which has to be installed. A row of the table has the
comparison, the model (A or B), its settings where they are not the page's first, the seed, the
update at which the task counts as solved (none: empty), the mean loss of the last ten batches,
how many of their 160 answers are right, and the shares of symbols that are right in 100 new texts:
of the length of training, and of four symbols more. Models that are in FILE already are not trained
again.

`python -m benchmarks.playground --first FILE` writes what the page shows at first: of both models
of the first comparison, with seed 1, the losses of all updates and what it then makes of one text.
"""

import json
import subprocess
from pathlib import Path

import pandas as pd

from annotated.machinery.progress import progress_bar
from benchmarks.logs import make_parser, read_table, write_log

STATIC = Path(__file__).resolve().parent.parent / "book" / "static"
SCRIPTS = "elements", "derivatives", "trainer", "playground"
BARE = "globalThis.window = globalThis; const document = { querySelectorAll: () => [] };"
PREPARE = """
const { Trainer } = makeTrainer(makeTape());
const { MOST, STREAK, EXPERIMENTS } = playground;
"""
TRAIN = """
const trainer = new Trainer(given), found = [];
let streak = 0, solved = null;
while (trainer.updates < (given.updates ?? MOST)) {
  found.push(trainer.step());
  streak = found.at(-1).right === trainer.settings.batch ? streak + 1 : 0;
  if (streak === STREAK) solved ??= trainer.updates;
}
const last = found.slice(-10);
const { length } = trainer.settings;
console.log(JSON.stringify({
  solved,
  loss: last.reduce((sum, { loss }) => sum + loss / 10, 0),
  right: last.reduce((sum, { right }) => sum + right, 0),
  symbols: trainer.exam(length),
  longer: trainer.exam(length + 4),
}));
"""
FIRST = """
const text = "31415926";
const rounded = (x, digits) => Number(x.toFixed(digits));
const [both, ...sides] = Object.values(EXPERIMENTS)[0];
const models = sides.map((own) => {
  const trainer = new Trainer({ ...both, ...own, seed: 1 });
  const found = Array.from({ length: MOST }, () => trainer.step());
  const { answers, seen } = trainer.run([text]);
  return {
    losses: found.map(({ loss }) => rounded(loss, 3)),
    rights: found.map(({ right }) => right),
    answer: answers[0],
    seen: seen.map((layer) => Array.from(layer, (weight) => rounded(weight, 2))),
  };
});
console.log(JSON.stringify({ text, models }));
"""
RESULTS = "solved", "loss", "right", "symbols", "longer"
ROUNDED = {"loss": 5, "symbols": 4, "longer": 4}


def run(program: str) -> str:
    """What a program prints that may use the page's scripts."""
    parts = [(STATIC / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    text = "\n".join([BARE, *parts, PREPARE, program])
    return subprocess.run(
        ["node", "-"], input=text, check=True, capture_output=True, text=True
    ).stdout


def train(given: dict) -> dict:
    """What comes of a model with these settings."""
    found = json.loads(run(f"const given = {json.dumps(given)};{TRAIN}"))
    return {name: round(x, ROUNDED[name]) if name in ROUNDED else x for name, x in found.items()}


def main() -> None:
    parser = make_parser("benchmarks.playground", __doc__)
    files = parser.add_mutually_exclusive_group(required=True)
    files.add_argument("--out", type=Path, help="CSV file to write")
    files.add_argument("--first", type=Path, help="JSON file to write")
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds (default: 20)")
    text = "multiplies the learning rate of equation 3 (default: 1)"
    parser.add_argument("--factor", type=float, default=1, help=text)
    parser.add_argument("--updates", type=int, help="length of a run (default: the page's, 400)")
    parser.add_argument("--only", nargs="+", help="names of comparisons (default: all)")
    options = parser.parse_args()
    if options.first:
        options.first.write_text(run(FIRST), encoding="utf-8")
        return
    experiments = json.loads(run("console.log(JSON.stringify(EXPERIMENTS));"))
    rate = {"factor": options.factor} if options.factor != 1 else {}
    rate |= {"updates": options.updates} if options.updates else {}
    wanted = [
        (name, model, both | own | rate, seed)
        for name, (both, *sides) in experiments.items()
        if options.only is None or name in options.only
        for model, own in zip("AB", sides, strict=True)
        for seed in range(1, options.seeds + 1)
    ]
    known = {
        (row["settings"], row["seed"]): {name: row[name] for name in RESULTS}
        for row in read_table(options.out, ["settings", "seed", *RESULTS])
    }
    rows = []
    for name, model, given, seed in progress_bar(wanted, unit=" run"):
        settings = json.dumps(given)
        if (settings, seed) not in known:
            known[settings, seed] = train(given | {"seed": seed})
        about = {"comparison": name, "model": model, "settings": settings, "seed": seed}
        rows.append(about | known[settings, seed])
        write_log(options.out, pd.DataFrame(rows).astype({"solved": "Int64"}))


if __name__ == "__main__":
    main()
