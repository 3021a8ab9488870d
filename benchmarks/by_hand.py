"""Write the numbers that check a reader's own parts, taken from the translator of captions.

`annotated.by_hand` reads them. The searches get the model as a table of everything that the right
versions and the known wrong ones ask it.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch

from annotated import by_hand
from annotated.data import END, PAD, START, UNK, encode_source
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.recording import record_attention
from annotated.machinery.translator import Translator
from annotated.positional import sinusoids
from benchmarks.logs import log_program

BICYCLE, STREET = "A man is riding a bicycle.", "A view of a crowded city street."
UMBRELLAS = "The group of people are all covered by umbrellas."
WOMEN, DOGS = "Two women talk to each other while walking down the street.", "Two dogs play."
SHOWN = 6  # pieces that a step of a search may be followed by


def rounded(values: Any) -> Any:
    """Numbers with five decimals; None for -∞, which JSON cannot say."""
    if isinstance(values, torch.Tensor):
        values = values.tolist()
    if isinstance(values, list):
        return [rounded(each) for each in values]
    return None if values == -math.inf else round(values, 5)


def case(about: str, given: list, expected: Any) -> dict[str, Any]:
    return {"about": about, "given": rounded(given), "expected": rounded(expected)}


def heads(translator: Translator) -> dict[str, list[dict]]:
    """Softmax, attention, norm and kink, inside the first layer for two captions."""
    found: dict[str, list[dict]] = {"softmax": [], "attention": [], "layer_norm": [], "relu": []}
    layer = translator.model.encoder.layers[0]
    for sentence, word, place in (BICYCLE, "bicycle", 5), (STREET, "view", 1):
        src = torch.tensor(encode_source(translator.tokenizer, [sentence]))
        x = translator.model.src_embed(src)
        attention = layer.self_attn
        q, k, v = (
            w(x)[0, :, :32] for w in (attention.w_q, attention.w_k, attention.w_v)
        )  # of the first head
        scores = q[place] @ k.T / math.sqrt(32)
        name = f"“{word}” in “{sentence}”, first layer, first head"
        weights = scores.softmax(dim=-1)
        with record_attention(translator.model) as seen:
            translator.model.encode(src, None)
        torch.testing.assert_close(seen["encoder.layers.0.self_attn"][0, 0, place], weights)
        found["softmax"].append(case(f"the scores of {name}", [scores], weights))
        found["attention"].append(case(name, [q[place], k, v], weights @ v))
        total = x + attention(x, x, x)
        norm = layer.sublayer[0].norm
        parts = [total[0, place], norm.weight, norm.bias]
        name = f"“{word}” in “{sentence}”, after the first attention"
        found["layer_norm"].append(case(name, parts, norm(total)[0, place]))
        inner = layer.feed_forward.w_1(norm(total))[0, place, :64]
        name = f"the first 64 inner numbers of “{word}”"
        found["relu"].append(case(name, [inner], inner.relu()))
    return found


def small(name: str) -> list[dict]:
    """Cases that one can follow with a pencil, and those that break what is nearly right."""
    f = torch.tensor
    row = lambda *numbers: f([float(x) for x in numbers])
    norm = lambda x: torch.nn.functional.layer_norm(x, x.shape, eps=1e-5)
    attend = lambda q, k, v: (k @ q / math.sqrt(len(q))).softmax(dim=-1) @ v
    near = row(0.001, 0.002, 0.004, 0.001)
    q, k, v = (
        row(1, 2),
        f([[2.0, 0.0], [0.0, 1.0], [-1.0, 1.0]]),
        f([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0], [5.0, 5.0, 1.0]]),
    )
    scores = row(2, 1, -2.121), row(1000, 999, 990), row(-math.inf, 0.5, 1.5)
    about = "the scores 2, 1, −2.121", "the scores 1000, 999, 990", "the scores −∞, 0.5, 1.5"
    return {
        "softmax": [case(a, [s], s.softmax(dim=-1)) for a, s in zip(about, scores, strict=True)],
        "attention": [
            case("three keys of two numbers and values of three", [q, k, v], attend(q, k, v))
        ],
        "layer_norm": [
            case("the row 1, 3", [row(1, 3), row(1, 1), row(0, 0)], norm(row(1, 3))),
            case(
                "a row of nearly equal numbers",
                [near, row(1, 1, 1, 1), row(0, 0, 0, 0)],
                norm(near),
            ),
            case("the row 2, 2, 2", [row(2, 2, 2), row(1, 2, 3), row(4, 5, 6)], row(4, 5, 6)),
        ],
        "relu": [case("the row −2, 0.5, 3, −0.1", [row(-2, 0.5, 3, -0.1)], row(0, 0.5, 3, 0))],
    }[name]


def searches(translator: Translator) -> tuple[list[str], dict[str, list[dict]]]:
    """Both searches, and the pieces of their small vocabulary."""
    wanted = {
        "greedy": [(BICYCLE, [20]), (UMBRELLAS, [30]), (STREET, [3])],
        "beam": [
            (STREET, [20, 4, 0.6]),
            (UMBRELLAS, [30, 4, 0.6]),
            (WOMEN, [30, 4, 2.0]),
            (DOGS, [20, 4, 0.6]),
        ],
    }
    model, kept, small = translator.model, [START, END], True

    def asker(sentence: str, steps: dict[str, dict[str, float]]) -> Any:
        src = torch.tensor(encode_source(translator.tokenizer, [sentence]))
        memory, known = model.encode(src, None), {}
        asked = 0

        def step(ids: list[int]) -> list[float]:
            nonlocal asked
            asked += 1
            if asked > by_hand.MOST_STEPS:
                raise by_hand.Endless
            said = " ".join(map(str, ids))
            if said not in known and (len(ids) > 45 or not ids or not isinstance(ids[-1], int)):
                known[said] = [-20.0] * len(kept)
            if said not in known:
                full = [kept[i] for i in ids] if small else ids
                log = model.generator(model.decode(memory, None, torch.tensor([full]))[:, -1])[0]
                log[[START, PAD, UNK]] = -math.inf
                if small:
                    best = log[kept].topk(SHOWN)
                    pairs = zip(best.indices.tolist(), rounded(best.values), strict=True)
                    steps[said] = {str(i): x for i, x in pairs if x is not None}
                    row = [-20.0 - 0.01 * i for i in range(len(kept))]
                    for i, x in steps[said].items():
                        row[int(i)] = x
                    known[said] = row
                else:
                    kept.extend(i for i in log.topk(SHOWN).indices.tolist() if i not in kept)
                    known[said] = log.tolist()
            return known[said]

        return step

    small = False
    for name, cases in wanted.items():  # which pieces are needed
        for sentence, options in cases:
            by_hand.solution(name)(asker(sentence, {}), START, END, *options)
    small = True
    found: dict[str, list[dict]] = {name: [] for name in wanted}
    for name, cases in wanted.items():
        for sentence, options in cases:
            steps: dict[str, dict[str, float]] = {}
            right = by_hand.solution(name)(asker(sentence, steps), START, END, *options)
            for old, new, _ in by_hand.PARTS[name]["wrong"]:
                try:
                    by_hand.solution(name, old, new)(asker(sentence, steps), START, END, *options)
                except Exception:  # whatever a wrong version does
                    continue
            about = f"“{sentence}”" + (f", alpha {options[2]}" if name == "beam" else "")
            about += ", at most 3 pieces" if options[0] == 3 else ""
            given = [START, END, *options]
            found[name].append({**case(about, given, right), "steps": steps})
    names = [translator.tokenizer.id_to_token(i) for i in kept]
    by_hand.load(json.dumps({"pieces": names}))  # of which the tables use the first
    found["beam"] += tables()
    return names, found


def tables() -> list[dict]:
    """Searches that one can follow with a pencil; each refutes a beam that is nearly right."""
    two_ends = lambda log: {"0": {"1": -1.0, "2": -0.693}, "0 2": {"1": log}}
    given: dict[str, tuple[dict, list]] = {  # log-probabilities; most, width, alpha
        "a table in which the first to end keeps a place": (
            {
                "0": {"1": -0.92, "2": -1.05, "3": -1.39},
                "0 2": {"4": -0.69, "5": -0.8},
                "0 2 4": {"6": -2.3},
                "0 2 5": {"1": -0.01},
                "0 2 4 6": {"1": -2.3},
            },
            [10, 2, 3.0],
        ),
        "a table in which the best ends with the last id": (
            {"0": {"2": -0.36, "1": -1.2}, "0 2": {"3": -0.1}, "0 2 3": {"1": -0.1}},
            [3, 2, 0.6],
        ),
        "a table in which none ends": (
            {"0": {"2": -0.5, "3": -1.5}, "0 2": {"4": -0.3}, "0 3": {"5": -0.2}},
            [2, 2, 0.6],
        ),
        "a table in which the longer is a little better": (two_ends(-0.637), [10, 2, 2.0]),
        "a table in which the shorter is a little better": (two_ends(-0.707), [10, 2, 2.0]),
        "the same table, alpha 0": (two_ends(-0.707), [10, 2, 0.0]),
    }
    right, found = by_hand.solution("beam"), []
    for about, (steps, options) in given.items():
        said = right(by_hand.stepper(steps, False), START, END, *options)
        found.append({**case(about, [START, END, *options], said), "steps": steps})
    return found


@torch.no_grad()
def collect() -> dict[str, Any]:
    """All cases of all parts."""
    translator = load_pretrained("multi30k-en-de")
    cases = {
        name: [*small(name)[:1], *found, *small(name)[1:]]
        for name, found in heads(translator).items()
    }
    wave = lambda pos, width: sinusoids(pos + 1, width)[pos]
    places = [(0, 8), (1, 8), (5, 128), (40, 128)]
    about = "position {}, {} columns"
    cases["positions"] = [case(about.format(*at), list(at), wave(*at)) for at in places]
    triangle = lambda n: [[j <= i for j in range(n)] for i in range(n)]
    cases["mask"] = [
        {"about": f"{n} piece{'s' * (n > 1)}", "given": [n], "expected": triangle(n)}
        for n in (4, 1, 7)
    ]
    pieces, found = searches(translator)
    return {"pieces": pieces, "cases": {**cases, **found}}


def write(_: Path) -> str:
    return json.dumps(collect(), ensure_ascii=False, separators=(",", ":")) + "\n"


main = log_program("by_hand", __doc__, {"by-hand.json": write})

if __name__ == "__main__":
    main()
