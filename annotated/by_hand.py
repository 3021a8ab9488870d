"""The Transformer's small parts as exercises, and the check of a reader's own.

    from annotated.by_hand import check
    check("softmax", mine)

Functions get lists of floats, or torch tensors if they ask for them, and may return either. The
module is pure Python that MicroPython runs too: the book's pages check with it what readers write
in them. The numbers come from the model for captions, by `python -m benchmarks.by_hand`.
"""

import json
import math
import sys

TYPE_CHECKING = False  # MicroPython has no `typing`
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Of each part: the task; where it begins; a hint; a solution; and the parts that it calls, with
# backticks around code in words. `wrong` has typical mistakes: a text of the solution, what
# replaces it, and the help that this deserves.
PARTS: dict = {
    "softmax": {
        "task": "Turn a list of scores into weights: take the exponential of each score, and "
        "divide by their sum.",
        "skeleton": "def softmax(scores):\n    return scores\n",
        "hint": "`math.exp(1000)` is too large for a number. Subtract the largest score from all "
        "of them first. The weights stay the same, because only differences count.",
        "solution": """\
def softmax(scores):
    largest = max(scores)
    powers = [math.exp(score - largest) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]
""",
        "wrong": [
            ["math.exp(score - largest)", "score", "The scores are divided by their sum without "
             "exp. A weight may not be negative, and exp makes each score positive."],
            [" / total", "", "The exponentials are not divided by their sum. The weights have to "
             "sum to 1."],
            ["score - largest", "score", "exp of a large score is too large for a number. Subtract "
             "the largest score from all of them before exp: the weights stay the same."],
            ["math.exp(score - largest)", "2 ** (score - largest)",
             "These are powers of 2. The softmax uses powers of e: math.exp."],
            ["math.exp(score - largest)", "math.exp(largest - score)",
             "The order is turned around: the smallest score gets the largest weight. Look at the "
             "sign inside exp."],
            ["power / total", "power / len(powers)", "You divide by how many scores there are. "
             "Divide by the sum of the exponentials."],
            ["power / total", "math.log(power / total) if power else -math.inf",
             "These are the logarithms of the weights (a log-softmax). Return the weights."],
            ["sum(powers)", "math.sqrt(sum(power * power for power in powers))",
             "You divide by the vector’s norm, so the squares sum to 1. The weights themselves "
             "have to: divide by their sum."],
            ["power / total", "float(power == 1)", "The largest score gets all the weight. A "
             "softmax is softer: every score gets a share, exp(score) divided by the sum."],
            ["power / total", "round(power / total, 2)",
             "The weights are rounded. Keep all digits: the next layers need them."],
            ["power / total for power in powers", "1 / len(powers) for power in powers",
             "All weights are equal, whatever the scores are: that is a mean."],
        ],
    },
    "attention": {
        "task": "Compute attention for one query of one head. Its dot products with the keys, "
        "divided by √d_k, become weights by `softmax`; return the weighted sum of the values.",
        "skeleton": "def attention(query, keys, values):\n    return values[0]\n",
        "hint": "There is one score per key: `sum(q * k for q, k in zip(query, key)) / "
        "math.sqrt(len(query))`. `softmax(scores)` gives the weights. Number i of the result is "
        "the sum over all values of `weight * value[i]`.",
        "solution": """\
def attention(query, keys, values):
    root = math.sqrt(len(query))
    scores = [sum(q * k for q, k in zip(query, key)) / root for key in keys]
    weights = softmax(scores)
    return [sum(w * value[i] for w, value in zip(weights, values)) for i in range(len(values[0]))]
""",
        "needs": ["softmax"],
        "wrong": [
            [" / root", "", "The scores are not divided by √d_k. Large scores give nearly all the "
             "weight to one key, and the model was trained with the division."],
            ["math.sqrt(len(query))", "len(query)", "You divide by d_k itself. It has to be its "
             "square root: math.sqrt(len(query))."],
            ["len(query)", "len(keys)", "You divide by the root of the number of keys. d_k is the "
             "length of one key, and of the query: len(query)."],
            ["len(query)", "4 * len(query)", "You divide by √d_model, the root of the whole width. "
             "A head has only d_k of these columns: len(query)."],
            [" / root", " * root", "The scores are multiplied by √d_k. They have to be divided."],
            ["softmax(scores)", "scores", "The scores weigh the values as they are. They have to "
             "become weights first: softmax(scores)."],
            ["zip(weights, values)", "zip(weights, keys)", "Your weights are right, but they sum "
             "up the keys. A key only says what is found here; what is handed over is the value."],
            ["return [sum(w * value[i] for w, value in zip(weights, values)) "
             "for i in range(len(values[0]))]", "return weights",
             "These are the weights. One step is missing: multiply each value by its weight, and "
             "sum."],
            ["return [sum(w * value[i] for w, value in zip(weights, values)) "
             "for i in range(len(values[0]))]",
             "return [[w * x for x in value] for w, value in zip(weights, values)]",
             "There is still one row per key. Sum the weighted values column by column, so that "
             "one row is left."],
            ["return [sum(w * value[i] for w, value in zip(weights, values)) "
             "for i in range(len(values[0]))]", "return values[scores.index(max(scores))]",
             "You return the value of the best key only. Attention mixes all values by weight."],
            ["w * value[i] for w, value in zip(weights, values)",
             "value[i] / len(values) for value in values",
             "This is the plain mean of the values: the scores make no difference yet."],
            ["softmax(scores)", "[w / root for w in softmax([s * root for s in scores])]",
             "The division by √d_k comes after the softmax. It belongs before: it is meant to keep "
             "the scores small."],
            ["softmax(scores)", "softmax(softmax(scores))", "The softmax is taken twice, which "
             "makes all weights much too equal. Once is enough."],
            ["zip(query, key)", "zip(softmax(query), key)", "The softmax is taken of the query. "
             "It belongs on the scores, one per key."],
            ["softmax(scores)", "[s / sum(scores) for s in scores]", "The scores are divided by "
             "their sum without exp, so weights may be negative. Use softmax(scores)."],
            ["sum(q * k for q, k in zip(query, key))",
             "-sum((q - k) ** 2 for q, k in zip(query, key))",
             "You compare query and key by distance. The paper takes the dot product: multiply "
             "number by number, and sum."],
            ["sum(q * k for q, k in zip(query, key)) / root", "sum(q * k for q, k in "
             "zip(query, key)) / root / math.sqrt(sum(k * k for k in key))",
             "You divide by the length of each key too. Take the dot product alone, divided by "
             "√d_k."],
            ["sum(q * k for q, k in zip(query, key)) / root", "sum(q * k for q, k in "
             "zip(query, key)) / math.sqrt(sum(k * k for k in key) * sum(q * q for q in query))",
             "These scores are cosines. Take the dot product alone, divided by √d_k."],
            ["len(query)", "len(values[0])", "You divide by the root of the width of the values. "
             "d_k is the width of the query and of a key: len(query)."],
        ],
    },
    "mask": {
        "task": "Say which of n pieces may see which: row i has `True` in columns 0 to i and "
        "`False` after them.",
        "skeleton": "def mask(n):\n    return [[True] * n for _ in range(n)]\n",
        "hint": "There are n rows of n columns. In row i, column j stands `j <= i`.",
        "solution": "def mask(n):\n    return [[j <= i for j in range(n)] for i in range(n)]\n",
        "wrong": [
            ["j <= i", "True", "Every piece sees every other, the future too. In training the "
             "decoder would read the answer there."],
            ["j <= i", "j < i", "A piece does not see itself. The first row has no True at all, "
             "and a softmax over nothing is no number. Column i is allowed: j <= i."],
            ["j <= i", "j >= i", "The triangle is the other way up. Rows look and columns are "
             "seen, so row i may see what is written already: j <= i."],
            ["j <= i", "j > i", "True and False are exchanged. True means: may be seen. (Some "
             "libraries mark what is hidden instead.)"],
            ["j <= i", "j == i", "Every piece sees only itself. All that was written before it is "
             "allowed too: j <= i."],
            ["j <= i", "j <= i + 1", "Row i sees one piece too many: the one that it has to "
             "predict."],
            ["j <= i", "0.0 if j <= i else -math.inf", "These are the numbers that are added to "
             "scores. Here True and False are asked for: True where yours has 0."],
            ["range(n)] for i in range(n)", "range(i + 1)] for i in range(n)", "The rows end "
             "where the future begins. Each needs n columns, with False for what is hidden."],
            ["range(n)] for i in range(n)", "range(n)] for i in range(n - 1)",
             "The last row is missing: there are n of them."],
            ["[[j <= i for j in range(n)] for i in range(n)]",
             "[j <= i for j in range(n) for i in range(n)]",
             "This is one long list. A mask is a list of n rows, each a list of n."],
            ["j <= i", "j < n // 2 + 1", "All rows are alike. Row i has to depend on i: j <= i."],
            ["j <= i", "i - 1 <= j <= i", "Each piece sees itself and one before it. All that was "
             "written before it is allowed: j <= i."],
        ],
    },
    "layer_norm": {
        "task": "Give the row mean 0 and variance 1 (add 0.00001 to the variance before you take "
        "its root). Then multiply each number by its `gain` and add its `bias`.",
        "skeleton": "def layer_norm(row, gain, bias):\n    return row\n",
        "hint": "`mean = sum(row) / len(row)`, and the variance is the mean of `(x - mean) ** 2`. "
        "Divide by `math.sqrt(variance + 1e-5)`.",
        "solution": """\
def layer_norm(row, gain, bias):
    mean = sum(row) / len(row)
    variance = sum((x - mean) ** 2 for x in row) / len(row)
    root = math.sqrt(variance + 1e-5)
    return [(x - mean) / root * g + b for x, g, b in zip(row, gain, bias)]
""",
        "wrong": [
            ["return [(x - mean)", "return [x", "The mean is not subtracted from the numbers."],
            [") / len(row)\n    root", ") / (len(row) - 1)\n    root", "You divide by n − 1, as "
             "statistics does for samples. The norm divides by n. In a row of 128 every number is "
             "off by 0.4%, and nothing would have told you."],
            ["math.sqrt(variance + 1e-5)", "(variance + 1e-5)", "You divide by the variance. "
             "Divide by its square root, the standard deviation."],
            [" + 1e-5", "", "The 0.00001 is missing. Without it a row of equal numbers divides by "
             "zero, and a row of nearly equal ones becomes noise."],
            ["math.sqrt(variance + 1e-5)", "(math.sqrt(variance) + 1e-5)", "The 0.00001 is added "
             "to the root. It belongs under it, to the variance."],
            [" * g", "", "The gain is not used: multiply each number by its own."],
            [" + b ", " ", "The bias is not added."],
            ["(x - mean) / root * g + b", "((x - mean) / root + b) * g", "The bias is added before "
             "the gain multiplies. First the gain, then the bias."],
            ["zip(row, gain, bias)", "zip(row, bias, gain)", "Gain and bias are exchanged."],
            ["root * g + b for", "root * gain[0] + bias[0] for", "All numbers get the first gain "
             "and bias. Each has its own."],
            ["mean = sum(row) / len(row)", "mean = sum(row)", "The mean is a sum. Divide it by the "
             "number of values."],
            ["(x - mean) / root", "(x - mean) * root", "You multiply by the standard deviation. "
             "Divide by it."],
            ["mean = sum(row) / len(row)", "mean = 0", "The mean is nowhere subtracted (an RMS "
             "norm, which later models use). Subtract it before all else."],
            ["(x - mean) ** 2", "x ** 2", "The variance is taken around 0. Subtract the mean "
             "before squaring."],
            [") / len(row)\n    root", ")\n    root", "The variance is a sum. Divide it by the "
             "number of values."],
            ["(x - mean) ** 2", "abs(x - mean)", "You sum absolute differences. The variance is "
             "the mean of their squares."],
            ["mean = sum(row) / len(row)", "mean = sorted(row)[len(row) // 2]",
             "You subtract the median. The norm subtracts the mean."],
            ["math.sqrt(variance + 1e-5)", "(max(row) - min(row) + 1e-5)",
             "You divide by the range from smallest to largest. Divide by the standard deviation."],
            ["(x - mean) / root * g + b", "(x - mean) / root",
             "The row is normalized. Gain and bias are still to come."],
            ["(x - mean) / root * g + b", "x + (x - mean) / root * g + b",
             "The row is added to its norm. The sum with the sub-layer's input comes before the "
             "norm, and is done already."],
        ],
    },
    "positions": {
        "task": "Make the row for one position: columns 2i and 2i + 1 are the sine and the cosine "
        "of `pos / 10000 ** (2 * i / d_model)`.",
        "skeleton": "def positions(pos, d_model):\n    return [0.0] * d_model\n",
        "hint": "`for column in range(0, d_model, 2)` gives 2i. Append the sine, then the "
        "cosine of `pos / 10000 ** (column / d_model)`.",
        "solution": """\
def positions(pos, d_model):
    row = []
    for column in range(0, d_model, 2):
        angle = pos / 10000 ** (column / d_model)
        row += [math.sin(angle), math.cos(angle)]
    return row
""",
        "wrong": [
            ["return row", "return row[::2] + row[1::2]", "All sines come first, then all cosines. "
             "They alternate: sine, cosine, sine, cosine."],
            ["pos /", "(pos + 1) /", "You count positions from 1. The first is 0, so its row is 0, "
             "1, 0, 1."],
            ["column / d_model", "2 * column / d_model", "The exponent is twice too large. Perhaps "
             "your loop counts in twos already."],
            ["column / d_model", "column / 2 / d_model", "The exponent has 2i, twice the number of "
             "the pair. Yours has only the number of the pair."],
            ["[math.sin(angle), math.cos(angle)]", "[math.sin(angle), math.sin(angle)]",
             "Both columns of a pair are sines. The second is the cosine."],
            ["[math.sin(angle), math.cos(angle)]", "[math.cos(angle), math.sin(angle)]",
             "Sine and cosine are exchanged. The sine comes first."],
            ["math.cos(angle)", "math.cos(pos / 10000 ** ((column + 1) / d_model))",
             "The cosine has a frequency of its own. Sine and cosine of a pair share one angle: "
             "the exponent has 2i for both columns."],
            ["pos / 10000 ** (column / d_model)", "(pos / 10000) ** (column / d_model)",
             "The power is taken of pos too. Only 10000 is raised to it, and pos is divided by "
             "the result."],
            ["10000", "1000", "The base is 1,000. The paper has 10,000."],
            ["pos /", "pos *", "Later pairs turn faster: you multiply by 10000^(2i / d_model), or "
             "its exponent has the wrong sign. Dividing makes them turn slower."],
            ["[math.sin(angle), math.cos(angle)]", "[math.sin(angle)]",
             "There is only one number per pair. Append the cosine too."],
            ["angle = pos", "angle = math.pi / 180 * pos", "The angle is taken for degrees. "
             "math.sin wants radians, and pos is used as it is."],
            ["column / d_model)", "column)", "The exponent is not divided by d_model."],
            ["column / d_model)", "column // d_model)", "All pairs turn at the same speed. Each "
             "divides the position by its own power of 10,000. (// drops the fraction: use /.)"],
        ],
    },
    "relu": {
        "task": "Replace each negative number of the row by 0, and keep the others.",
        "skeleton": "def relu(row):\n    return row\n",
        "hint": "For one number `x` it is `max(0.0, x)`.",
        "solution": "def relu(row):\n    return [max(0.0, x) for x in row]\n",
        "wrong": [
            ["max(0.0, x)", "x", "Nothing is changed. Without the kink, two linear maps in a row "
             "are only one."],
            ["max(0.0, x)", "abs(x)", "Negative numbers become positive. They have to become 0."],
            ["max(0.0, x)", "min(0.0, x)", "The negative numbers are kept, and the others are 0: "
             "max instead of min."],
            ["max(0.0, x)", "max(0.01 * x, x)", "Negative numbers become small, not 0 (a leaky "
             "ReLU). This model was trained with 0."],
            ["max(0.0, x) for x in row", "x for x in row if x > 0", "The negative numbers are "
             "left out. They have to stay as 0, or all later columns move."],
            ["[max(0.0, x) for x in row]", "max(0.0, *row)", "This is the largest number of the "
             "row. Take max(0, x) for each number x."],
            ["max(0.0, x)", "float(x > 0)", "This says only whether a number is positive. Keep "
             "its value."],
            ["max(0.0, x)", "min(1.0, max(0.0, x))", "Numbers above 1 are cut off. Only negative "
             "ones change."],
            ["max(0.0, x)", "1 / (1 + math.exp(-x))", "This is a sigmoid, which never gets above "
             "1. The paper takes max(0, x)."],
            ["max(0.0, x)", "max(1.0, x)", "Numbers below 1 become 1. The kink is at 0."],
            ["max(0.0, x)", "math.log(1 + math.exp(x))", "This is a smooth version (softplus). The "
             "paper takes max(0, x)."],
        ],
    },
    "greedy": {
        "task": "Write the likeliest next id again and again. `step(ids)` returns the "
        "log-probability of each id that may follow `ids`, which begin with `start`. Stop after "
        "`end`, or once `most` ids are written. Return what was written: `end` included, `start` "
        "not.",
        "skeleton": "def greedy(step, start, end, most):\n    return [end]\n",
        "hint": "Keep one list that begins as `[start]`. The likeliest id is "
        "`scores.index(max(scores))`. Return the list without `start`.",
        "solution": """\
def greedy(step, start, end, most):
    ids = [start]
    while ids[-1] != end and len(ids) <= most:
        scores = step(ids)
        ids.append(scores.index(max(scores)))
    return ids[1:]
""",
        "wrong": [
            ["ids[1:]", "ids", "The start symbol is still in front. Return only what was written: "
             "ids[1:]."],
            ["ids[1:]", "[i for i in ids[1:] if i != end]", "The end symbol is missing. It was "
             "written like any other, and says that the sentence is complete."],
            ["step(ids)", "step(ids[-1:])", "The model gets only the last id. It needs all that "
             "was written, from start on."],
            ["step(ids)", "step(ids[:1])", "The model always gets the start symbol alone, so it "
             "writes the first word again and again. Give it all ids."],
            ["ids[-1] != end and ", "", "The loop goes on after the end symbol. Stop once it is "
             "written."],
            ["max(scores)", "min(scores)", "You take the least likely id. Log-probabilities are "
             "negative: the likeliest is nearest to 0."],
            ["max(scores)", "sorted(scores)[-2]", "You take the second best id each time."],
            ["len(ids) <= most", "len(ids) < most", "You stop one id too early: start does not "
             "count among the `most` that are written."],
            [" and len(ids) <= most", "", "Nothing stops the loop if the end symbol never comes. "
             "Stop once `most` ids are written."],
            ["ids.append(scores.index(max(scores)))", "ids.append(max(scores))",
             "The list gets the log-probability. Append the id that has it: "
             "scores.index(max(scores))."],
            ["return ids[1:]", "return ids[-1]", "Only the last id is returned. Return all that "
             "were written."],
            ["    return ids[1:]", "        return ids[1:]", "The return is inside the loop, so "
             "only one id is written. Indent it like `while`."],
            ["scores = step(ids)", "scores = step(ids[1:] or ids)", "The start symbol is left out "
             "after the first step. The model expects it in front of everything."],
        ],
    },
    "beam": {
        "task": "At each step keep the `width` likeliest outputs instead of one. An output that "
        "ends is set aside, and one place fewer is left for the others. Return the finished output "
        "with the best `log_prob / ((5 + length) / 6) ** alpha`. Its length counts `end` and not "
        "`start`. If none has ended after `most` ids, return the likeliest.",
        "skeleton": "def beam(step, start, end, most, width, alpha):\n    return [end]\n",
        "hint": "Keep pairs `(log_prob, ids)` in a list `alive`. Extend each by every id, sort "
        "them all and keep `width - len(done)`. Move those that end with `end` to `done`, with "
        "their score. Return the ids without `start`.",
        "solution": """\
def beam(step, start, end, most, width, alpha):
    alive, done = [(0.0, [start])], []
    while alive and len(alive[0][1]) <= most:
        longer = []
        for total, ids in alive:
            longer += [(total + log, ids + [i]) for i, log in enumerate(step(ids))]
        longer = sorted(longer, reverse=True)[:width - len(done)]
        for total, ids in longer:
            if ids[-1] == end:
                done.append((total / ((5 + len(ids) - 1) / 6) ** alpha, ids))
        alive = [(total, ids) for total, ids in longer if ids[-1] != end]
    return max(done or alive)[1][1:]
""",
        "wrong": [
            ["width - len(done)", "1", "Only one output is kept at each step: that is the greedy "
             "loop again."],
            ["width - len(done)", "width", "An output that has ended keeps its place, so fewer are "
             "left for the others: width - len(done)."],
            [" / ((5 + len(ids) - 1) / 6) ** alpha", "", "The log-probabilities are compared as "
             "they are, which favors short outputs: every id makes the sum smaller. Divide by the "
             "length penalty."],
            ["total / ((5", "total * ((5", "You multiply by the length penalty. Divide."],
            ["((5 + len(ids) - 1) / 6) ** alpha", "(len(ids) - 1)", "You divide by the length. "
             "The length penalty is ((5 + length) / 6) ** alpha."],
            ["((5 + len(ids) - 1) / 6) ** alpha", "(len(ids) - 1) ** alpha", "You divide by a "
             "power of the length alone. The length penalty is ((5 + length) / 6) ** alpha."],
            ["5 + len(ids) - 1", "5 + len(ids)", "The length is one too large: start does not "
             "count."],
            ["5 + len(ids) - 1", "5 + len(ids) - 2", "The length is one too small: end counts."],
            ["** alpha", "** (1 - alpha)", "The exponent of the length penalty is alpha itself."],
            ["max(done", "min(done", "You return the worst of the finished outputs. Scores are "
             "negative: the best is the largest."],
            ["max(done or alive)", "(done or alive)[0]", "You return the output that finished "
             "first, or stop with it. A later one may have a better score."],
            ["max(done or alive)", "max(done or alive, key=lambda one: len(one[1]))",
             "You return the longest output. Return the one with the best score."],
            ["done or alive", "done", "If none has ended after `most` ids, return the likeliest "
             "of the others."],
            ["<= most", "< most", "You stop one id too early: an output may have `most` ids "
             "without start."],
            ["total + log", "log", "Each step forgets the log-probabilities before it. Add them "
             "up along the output."],
            ["[1][1:]", "[1]", "The start symbol is still in front. Return only what was written."],
            ["[1][1:]", "[1][1:-1]", "The end symbol is missing at the end of the result."],
            ["[1][1:]", "", "You return the score too. Return only the ids."],
            ["step(ids)", "step(ids[-1:])", "The model gets only the last id. It needs the whole "
             "output, from start on."],
            ["reverse=True", "reverse=False", "You keep the least likely outputs. Sort with the "
             "largest log-probability first."],
        ],
    },
}  # fmt: skip


class Verdict:
    """What a check found: true if the part is right; its text says what differs."""

    def __init__(self, right: bool, text: str, mistake: str = "") -> None:
        self.right, self.text = right, text
        self.mistake = mistake  # the line of help for a known mistake

    def __bool__(self) -> bool:
        return self.right

    def __repr__(self) -> str:
        return self.text


_numbers: dict = {}


def load(text: str) -> None:
    """Take the model's numbers from JSON; where there are no files, this comes first."""
    _numbers.update(json.loads(text))


def numbers() -> dict:
    """The cases of each part, and the pieces that ids stand for."""
    if not _numbers:
        from annotated.machinery.files import resource_path

        load((resource_path("results") / "by-hand.json").read_text(encoding="utf-8"))
    return _numbers


def check(name: str, mine: "Callable") -> Verdict:
    """Compare a reader's function with the model's numbers.

    Args:
        name: of the part, such as "attention".
        mine: the function; it may also return torch tensors, and gets them if lists fail.

    Raises: ValueError for an unknown name.
    """
    if name not in PARTS:
        raise ValueError("expected one of " + ", ".join(PARTS) + "; got " + repr(name))
    if not callable(mine):
        return Verdict(False, "Give check the function itself: check(" + repr(name) + ", mine).")
    cases = numbers()["cases"][name]
    tensors = wants_tensors(mine, cases[0])
    outcomes = [outcome(mine, case, tensors) for case in cases]
    gaps = [difference(got, case) for got, case in zip(outcomes, cases)]
    if not any(gaps):
        said = "Right: your " + name + " agrees with the model’s numbers in all "
        return Verdict(True, said + str(len(cases)) + " cases.")
    gap, about = next((gap, case["about"]) for gap, case in zip(gaps, cases) if gap)
    mistake = known_mistake(name, outcomes)
    where = "For " + about + ": " + gap
    return Verdict(False, mistake + " (" + where + ")" if mistake else where, mistake)


def expect(got: "Any", expected: "Any", mistakes: "dict[str, Any] | None" = None) -> Verdict:
    """Require that a result is right but for rounding; the checks of exercises call this.

    Args: mistakes: what typical mistakes give, each under the help that it deserves.

    Raises: AssertionError, which says what differs, after the help for a mistake that gives this.
    """
    got, expected = plain(got), plain(expected)
    gap = difference(got, {"expected": expected})
    if not gap:
        return Verdict(True, "Right.")
    for help, wrong in (mistakes or {}).items():
        if close(got, plain(wrong)):
            gap = help + " (" + gap[0].upper() + gap[1:] + ")"
            break
    raise AssertionError(gap)


def solution(name: str, old: str = "", new: str = "") -> "Callable":
    """A part's solution as a function, with a piece of its text replaced."""
    space: dict = {"math": math}
    for needed in PARTS[name].get("needs", ()):
        exec(PARTS[needed]["solution"], space)
    exec(PARTS[name]["solution"].replace(old, new) if old else PARTS[name]["solution"], space)
    return space[name]


def check_text(name: str, text: str, space: dict) -> Verdict:
    """Check a part that is still text, as the book's pages do.

    Args:
        space: where it is executed. Functions that it calls and that are not there are the book's.
    """
    space["math"] = math
    for needed in PARTS[name].get("needs", ()):
        space.setdefault(needed, solution(needed))
    space.pop(name, None)
    try:
        exec(compile(text, "yours", "exec"), space)
    except Exception as error:
        return Verdict(False, told(Failed(error)))
    if name not in space:
        return Verdict(False, "There is no function with the name " + name + ".")
    return check(name, space[name])


MOST_STEPS = 400  # that a search may ask for in one case


class Endless(Exception):
    """A search that never stops."""


class Failed:
    """An exception in the reader's function."""

    def __init__(self, error: Exception) -> None:
        self.kind = type(error).__name__
        self.text = str(error)
        self.line = line_of(error)


def told(failed: Failed) -> str:
    """An exception in words."""
    if failed.kind == "Endless":
        return "the loop does not stop; " + failed.text + "."
    where = " in line " + str(failed.line) if failed.line else ""
    return failed.kind + where + (": " + failed.text if failed.text else "") + "."


def line_of(error: Exception) -> int | None:
    """The reader's line in which an exception arose, if that is known."""
    found = getattr(error, "lineno", None)  # of a SyntaxError
    if found:
        return found
    trace = getattr(error, "__traceback__", None)
    if trace is not None:
        theirs = None
        while trace:
            file = trace.tb_frame.f_code.co_filename
            theirs = theirs or (file if file != __file__ else None)
            if theirs and file == theirs:
                found = trace.tb_lineno
            trace = trace.tb_next
        return found
    if hasattr(sys, "print_exception"):  # MicroPython
        import io

        text = io.StringIO()
        sys.print_exception(error, text)
        for row in text.getvalue().split("\n"):
            if '"yours"' in row:
                found = int(row.split("line ")[1].split(",")[0])
    return found


def arguments(case: dict, tensors: bool) -> "list[Any]":
    """Fresh arguments of a case: lists, or tensors; a search gets its `step` first."""
    given = [as_numbers(each) for each in case["given"]]
    if tensors:
        torch = sys.modules["torch"]
        given = [torch.tensor(each) if isinstance(each, list) else each for each in given]
    if "steps" in case:
        given.insert(0, stepper(case["steps"], tensors))  # MicroPython has no [*given]
    return given


def as_numbers(given: "Any") -> "Any":
    """A copy in which None is -∞, which JSON cannot say."""
    if isinstance(given, list):
        return [as_numbers(each) for each in given]
    return -math.inf if given is None else given


def stepper(steps: dict, tensors: bool) -> "Callable":
    """The model's answers from a table: {"0 17": {"3": -0.1}}; ids that it lacks are unlikely."""
    asked = [0]

    def step(ids: "Any") -> "Any":
        asked[0] += 1
        if asked[0] > MOST_STEPS:
            raise Endless("step was called more than " + str(MOST_STEPS) + " times")
        said = [int(i) for i in plain(ids)]
        row = [-20.0 - 0.01 * i for i in range(len(numbers()["pieces"]))]
        while said and " ".join(map(str, said)) not in steps:
            said = said[1:] if len(said) > 1 and said[0] else said[:-1]
        for i, log in steps.get(" ".join(map(str, said)), {"1": -0.5}).items():
            row[int(i)] = log
        return sys.modules["torch"].tensor(row) if tensors else row

    return step


def wants_tensors(mine: "Callable", case: dict) -> bool:
    """Whether a function rejects lists, and torch is there."""
    if "torch" not in sys.modules:
        return False
    got = outcome(mine, case, False)
    if not isinstance(got, Failed) or got.kind not in ("TypeError", "AttributeError"):
        return False
    again = outcome(mine, case, True)
    return not isinstance(again, Failed) or again.kind not in ("TypeError", "AttributeError")


def outcome(mine: "Callable", case: dict, tensors: bool) -> "Any":
    """What a function returns for a case, as plain lists and numbers; or its exception."""
    try:
        return plain(mine(*arguments(case, tensors)))
    except Exception as error:
        return Failed(error)


def plain(value: "Any") -> "Any":
    """Lists in place of tensors, arrays, tuples and other sequences."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (int, float, str, dict, type(None))):
        return value
    try:
        each = iter(value)
    except TypeError:
        return value
    return [plain(one) for one in each]


def close(one: "Any", other: "Any") -> bool:
    """Whether two results are the same but for rounding."""
    if isinstance(one, Failed) or isinstance(other, Failed):
        both = isinstance(one, Failed) and isinstance(other, Failed)
        return both and one.kind == other.kind
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(close(a, b) for a, b in zip(one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        if not (math.isfinite(one) and math.isfinite(other)):
            return one == other or (one != one and other != other)
        return abs(one - other) <= 1e-4 * (1 + abs(other))
    return one is other


def known_mistake(name: str, outcomes: list) -> str:
    """The help for the typical mistake that gives the same results, or nothing."""
    cases = numbers()["cases"][name]
    if all(isinstance(got, Failed) for got in outcomes):
        return ""  # any other function may fail in the same way
    for old, new, help in PARTS[name]["wrong"]:
        wrong = solution(name, old, new)
        if all(close(got, outcome(wrong, case, False)) for got, case in zip(outcomes, cases)):
            return help
    return ""


def difference(got: "Any", case: dict) -> str:
    """How a result differs from what is expected, or nothing."""
    expected = as_numbers(case["expected"])
    if isinstance(got, Failed):
        return told(got)
    if close(got, expected):
        return ""
    if got is None:
        return "the function returns nothing. Is there a `return` that is reached?"
    if "steps" in case:
        return (
            "expected “"
            + spelled(expected)
            + "”; yours gives "
            + ("“" + spelled(got) + "”." if isinstance(got, list) else repr(got)[:60] + ".")
        )
    if shape(got) != shape(expected):
        return "expected " + shape(expected) + "; yours gives " + shape(got) + "."
    if not isinstance(expected, list):
        return "expected " + figure(expected) + "; yours gives " + figure(got) + "."
    if isinstance(expected[0], list):
        return rows_differ(got, expected)
    return numbers_differ(got, expected)


def shape(value: "Any") -> str:
    """A value's form in words."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, (int, float)):
        return "one number"
    if not isinstance(value, list):
        return "a " + type(value).__name__
    if value and isinstance(value[0], list):
        widths = sorted({len(row) for row in value if isinstance(row, list)})
        wide = " to ".join(str(n) for n in sorted({widths[0], widths[-1]}))
        return str(len(value)) + " rows of " + wide
    return "a list of " + str(len(value))


def spelled(ids: list) -> str:
    """Pieces as text."""
    pieces = numbers()["pieces"]
    known = [pieces[i] if isinstance(i, int) and 0 <= i < len(pieces) else "?" for i in ids[:24]]
    return "".join(known).replace("▁", " ").strip() + (" …" if len(ids) > 24 else "")


def rows_differ(got: list, expected: list) -> str:
    """The first row that differs."""
    row = [close(a, b) for a, b in zip(got, expected)].index(False)
    if not isinstance(expected[row][0], bool):
        gap = difference(got[row], {"expected": expected[row]})
        return "in row " + str(row) + ": " + gap
    found, wanted = [" ".join(str(x) for x in rows[row]) for rows in (got, expected)]
    return "row " + str(row) + ", counted from 0, should be " + wanted + "; yours is " + found + "."


def numbers_differ(got: list, expected: list) -> str:
    """How many numbers of a row differ, the first of them, and what they have in common."""
    wrong = [i for i, (a, b) in enumerate(zip(got, expected)) if not close(a, b)]
    bad = [i for i, a in enumerate(got) if not isinstance(a, (int, float))]
    if bad:
        return "number " + str(bad[0]) + ", counted from 0, is " + shape(got[bad[0]]) + "."
    first, many = wrong[0], len(wrong)
    texts = (first,) + apart(expected[first], got[first])
    said = "number %d, counted from 0, should be %s and is %s" % texts
    if not all(math.isfinite(a) for a in got):
        return said + "; yours has infinite numbers, or some that are none (nan)."
    gap = max(abs(a - b) for a, b in zip(got, expected))
    some = (many, len(got), "differs" if many == 1 else "differ", figure(gap))
    said += "; %d of %d %s, by at most %s" % some
    ratios = [a / b for a, b in zip(got, expected) if abs(b) > 1e-3]
    gaps = [a - b for a, b in zip(got, expected)]
    if ratios and max(ratios) - min(ratios) < 0.01 * abs(ratios[0]) and abs(ratios[0] - 1) > 0.01:
        said += ". Each of yours is " + figure(ratios[0]) + " times the right one"
    elif max(gaps) - min(gaps) < 1e-3:
        said += ". Each of yours is off by " + figure(gaps[0])
    elif close(sorted(got), sorted(expected)):
        said += ". The numbers are right, but not their order"
    return said + "."


def figure(number: float) -> str:
    """A number with about three figures."""
    return "%.3g" % number if abs(number) < 1000 else "%.0f" % number


def apart(one: float, other: float) -> "tuple[str, str]":
    """Two numbers with as many figures as it takes to tell them apart, at least three."""
    texts = figure(one), figure(other)
    for figures in range(4, 17):
        if texts[0] == texts[1]:
            texts = ("%.*g" % (figures, one), "%.*g" % (figures, other))
    return texts
