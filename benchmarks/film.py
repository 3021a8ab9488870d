"""Look at a training at some of its checkpoints: `python -m benchmarks.film --help`.

What section 5.2 shows as a film: the development loss of a run, what the model makes of a sentence,
and where the heads of its decoder look in it.
"""

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from annotated import load_pretrained
from annotated.machinery.errors import InputError
from annotated.machinery.files import write_text
from annotated.machinery.progress import progress_bar
from annotated.machinery.runs.checkpoints import average_checkpoints, list_checkpoints, read_config
from annotated.machinery.runs.logs import read_log
from annotated.machinery.visualization.weights import merge_words, read_attention
from benchmarks.logs import as_json, make_parser

FRAMES = 24
SENTENCE = "The football players are running to get the ball."  # of the test set
# Its reference translation, read word for word at every checkpoint, so that the rows of
# all pictures are the same; and which English words each German word translates.
REFERENCE = "Die Footballspieler laufen, um den Ball zu fangen."
PAIRS = {0: [0], 1: [1, 2], 2: [3, 4], 4: [5], 5: [7], 6: [8], 7: [5], 8: [6]}


def spread(updates: list[int], count: int) -> list[int]:
    """Some of the updates, evenly on a logarithmic scale, the first and the last among them."""
    places, wanted = np.log(updates), min(count, len(updates))
    for steps in itertools.count(wanted):  # until enough, because several may share a checkpoint
        even = np.linspace(places[0], places[-1], steps)[:, None]
        if len(near := set(abs(places - even).argmin(axis=1))) >= wanted:
            return [updates[i] for i in sorted(near)]


def frames(run: Path, count: int = FRAMES) -> dict[str, Any]:
    """What is to be seen at some checkpoints of a run.

    Returns: the sentence; `source` and `target`, its words and those of its translation, and the
        `pairs` of these that translate each other; and `frames`, each with its update, the
        development loss, the greedy translation, and the cross-attention: for each layer and head
        the rows of a matrix in percent, German words to English words.

    Raises: InputError for a run with fewer than two checkpoints, or without their rows in its log.
    """
    config, paths = read_config(run), list_checkpoints(run)
    if len(paths) < 2:
        raise InputError(f"expected at least 2 checkpoints in {run}; got {len(paths)}")
    known = {int(path.stem.removeprefix("checkpoint-")): path for path in paths}
    log = {int(row["update"]): row for row in read_log(run / "log.csv")}
    translator, made = load_pretrained(run), []
    for update in progress_bar(spread([*known], count), desc="checkpoints"):
        if not log.get(update, {}).get("dev_loss"):
            raise InputError(f"expected a row with dev_loss for update {update} in {run}/log.csv")
        weights = average_checkpoints([known[update]], config)
        translator.model.load_state_dict(weights, strict=False)  # tied weights have one name
        words = merge_words(read_attention(translator, SENTENCE, REFERENCE)["cross"])
        percent = (100 * words.weights).round().int().tolist()
        made.append({
            "update": update,
            "loss": float(f"{float(log[update]['dev_loss']):.4g}"),
            "translation": translator.translate(SENTENCE, beam=1),
            "weights": [[[" ".join(map(str, row)) for row in head] for head in layer]
                        for layer in percent],
        })  # fmt: skip
    return {
        "sentence": SENTENCE, "source": words.keys, "target": words.queries,
        "pairs": PAIRS, "frames": made,
    }  # fmt: skip


def main(given: list[str] | None = None) -> None:
    parser = make_parser(
        "benchmarks.film",
        __doc__,
        """\
A run is a folder of `annotated train`, with all checkpoints that were written.
That of the book is made by three commands. Each goes on where the one before it ends, and writes
fewer checkpoints:

  annotated train --out runs/film --average 100000 --precision float32 \\
      --updates 200 --save-updates 10 --log-updates 10
  annotated train --out runs/film --average 100000 --precision float32 --resume \\
      --updates 2000 --save-updates 100 --log-updates 20
  annotated train --out runs/film --average 100000 --precision float32 --resume \\
      --updates 19000 --save-updates 500 --log-updates 70
  python -m benchmarks.film runs/film --out data/results/film.json

--average 100000 keeps every checkpoint. The loss is that of the development sentences in the run's
log, measured at each checkpoint without dropout and label smoothing.""",
    )
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="folder of the run, which is only read")
    add("--out", type=Path, required=True, help="JSON file, replaced; a minute on a CPU")
    add("--frames", type=int, default=FRAMES, help="checkpoints to look at (%(default)s)")
    add("--threads", type=int, default=1, help="of the CPU (%(default)s)")
    options = parser.parse_args(given)
    if options.frames < 2:
        parser.error(f"expected at least 2 frames; got {options.frames}")
    torch.set_num_threads(options.threads)
    try:
        write_text(options.out, as_json(frames(options.run, options.frames)))
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
