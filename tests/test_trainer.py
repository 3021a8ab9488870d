"""The model that learns on a page: its derivatives and updates are PyTorch's."""

import copy
import json
import math

import pytest
import torch
from contents import ROOT
from torch import Tensor, nn

from annotated.attention import MultiHeadedAttention
from annotated.embeddings import Embeddings, Generator
from annotated.feed_forward import PositionwiseFeedForward
from annotated.optimizer import paper_optimizer, rate
from annotated.positional import LearnedPositionalEncoding, PositionalEncoding
from annotated.regularization import smoothed_cross_entropy
from annotated.stacks import Encoder, EncoderLayer, SublayerConnection

live = pytest.importorskip("live", reason="needs the extra `book`")
SYMBOLS = "0123456789+ "
DEFAULTS = {"task": "reverse", "length": 8, "positions": "sinusoids", "scaled": True, "heads": 2,
            "layers": 2, "norm": "post", "residual": True, "smoothing": 0.0}  # fmt: skip
SWITCHES = [
    {},
    {"positions": "none"},
    {"positions": "learned"},
    {"scaled": False},
    {"heads": 1},
    {"heads": 4},
    {"layers": 1},
    {"layers": 4},
    {"layers": 6},
    {"norm": "pre"},
    {"residual": False},
    {"norm": "pre", "residual": False},
    {"smoothing": 0.1},
    {"length": 11},
    {"task": "copy"},
    {"task": "sort"},
    {"task": "add", "length": 9},
]
SETUP = "const { Trainer, TASKS } = makeTrainer(makeTape());"
STARTED = """
const trainer = new Trainer(given, Float64Array);
const texts = trainer.texts(4, trainer.random);
"""


@pytest.fixture(scope="module")
def context():
    context = live.scripts("derivatives", "trainer")
    context.eval(SETUP)
    return context


def ask(context, body: str, given: dict) -> dict:
    """What the body of a function returns for `given`; typed arrays as lists."""
    plain = "(_, x) => (ArrayBuffer.isView(x) ? [...x] : x)"
    call = f"JSON.stringify(((given) => {{ {body} }})({json.dumps(given)}), {plain})"
    return json.loads(context.eval(call))


class Unscaled(MultiHeadedAttention):
    """Equation 1 without its √d_k."""

    def kernel(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None):
        return super().kernel(query * math.sqrt(query.size(-1)), key, value, mask)


class Alone(SublayerConnection):
    """A sub-layer without its residual connection."""

    def forward(self, x: Tensor, sublayer) -> Tensor:
        return sublayer(self.norm(x)) if self.norm_first else self.norm(sublayer(x))


class Reference(nn.Module):
    """The same model from the package's parts."""

    def __init__(self, given: dict) -> None:
        super().__init__()
        given = {**DEFAULTS, **given}
        first = given["norm"] == "pre"
        kind = MultiHeadedAttention if given["scaled"] else Unscaled
        parts = kind(given["heads"], 32), PositionwiseFeedForward(32, 64)
        layer = EncoderLayer(32, *parts, dropout=0.0, norm_first=first)
        if not given["residual"]:
            layer.sublayer = nn.ModuleList(Alone(32, 0.0, norm_first=first) for _ in range(2))
        encoder = Encoder(layer, given["layers"])
        self.layers = copy.deepcopy(encoder.layers)
        self.norm = encoder.norm
        self.lut = nn.Embedding(len(SYMBOLS), 32)
        self.embeddings, self.generator = Embeddings(32, len(SYMBOLS)), Generator(32, len(SYMBOLS))
        self.embeddings.lut = self.lut
        self.generator.proj.weight = self.lut.weight
        places = {
            "none": nn.Identity,
            "sinusoids": lambda: PositionalEncoding(32, 0.0),
            "learned": lambda: LearnedPositionalEncoding(32, 0.0, 16),
        }
        self.positions = places[given["positions"]]()
        self.smoothing = given["smoothing"]

    def take(self, weights: dict[str, dict]) -> None:
        """The numbers of the page's model, each under its name."""
        own = dict(self.named_parameters(remove_duplicate=False))
        for name, matrix in weights.items():
            parameter = own["positions.pe" if name == "pe" else name]
            parameter.data = torch.tensor(matrix["data"]).double().view_as(parameter)
        taken = {id(own["positions.pe" if name == "pe" else name]) for name in weights}
        assert taken == {id(parameter) for parameter in self.parameters()}

    def logits(self, ids: Tensor) -> Tensor:
        x = self.positions(self.embeddings(ids))
        for layer in self.layers:
            x = layer(x)
        return self.generator.logits(self.norm(x))

    def loss(self, texts: list[str], answers: list[str]) -> Tensor:
        """Mean over symbols."""
        ids, target = (
            torch.tensor([[*map(SYMBOLS.index, t)] for t in x]) for x in (texts, answers)
        )
        loss = smoothed_cross_entropy(self.logits(ids), target, -1, self.smoothing)
        return loss / target.numel()


@pytest.mark.parametrize("given", SWITCHES, ids=str)
def test_the_derivatives_are_those_of_pytorch(context, given: dict) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        body = f"""{STARTED}
        const answers = texts.map((text) => TASKS[trainer.settings.task](text));
        const {{ loss }} = trainer.differentiate(texts);
        return {{ texts, answers, loss, weights: trainer.weights }};"""
        page = ask(context, body, given)
        model = Reference(given)
        model.take(page["weights"])
        loss = model.loss(page["texts"], page["answers"])
        loss.backward()
    finally:
        torch.set_default_dtype(torch.float32)
    assert page["loss"] == pytest.approx(loss.item(), abs=1e-6)
    own = dict(model.named_parameters(remove_duplicate=False))
    for name, matrix in page["weights"].items():
        expected = own["positions.pe" if name == "pe" else name].grad.flatten()
        difference = (torch.tensor(matrix["grad"]) - expected).abs().max()
        assert difference < 1e-5, name
        assert expected.abs().max() > 1e-7 or "w_q" in name or "w_k" in name, name


@pytest.mark.parametrize("float64", [False, True])
def test_updates_are_those_of_adam_with_the_papers_schedule(context, float64: bool) -> None:
    body = """
    const trainer = new Trainer(given, given.float64 ? Float64Array : Float32Array);
    const { weights, texts } = trainer;
    const plain = (_, x) => (ArrayBuffer.isView(x) ? [...x] : x);
    const before = JSON.parse(JSON.stringify(weights, plain));
    const drawn = [];
    trainer.texts = (...all) => drawn[drawn.push(texts.apply(trainer, all)) - 1];
    const losses = [1, 2, 3, 4, 5].map(() => trainer.step().loss);
    return { before, drawn, losses };"""
    page = ask(context, body, {"warmup": 3, "batch": 2, "float64": float64})
    model = Reference({})
    model.take(page["before"])
    model = model.double() if float64 else model.float()
    optimizer, schedule = paper_optimizer(model, 32, warmup=3)
    losses = []
    for texts in page["drawn"]:
        loss = model.loss(texts, [text[::-1] for text in texts])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    assert page["losses"] == pytest.approx(losses, rel=1e-3)


def test_the_rate_is_that_of_equation_3_or_begins_at_its_peak(context) -> None:
    body = "const t = new Trainer(given); return [1, 50, 100, 400].map((step) => t.rate(step));"
    rises = ask(context, body, {})
    assert rises == pytest.approx([rate(i, 32, 1.0, 100) for i in (1, 50, 100, 400)])
    peak = ask(context, body, {"rises": False})
    assert peak == pytest.approx([rises[2], rises[2], rises[2], rises[3]])


@pytest.mark.parametrize(
    ("task", "text", "answer"),
    [("copy", "3141", "3141"), ("reverse", "3140", "0413"), ("sort", "3141", "1134"),
     ("add", "12+9", "  21"), ("add", "999+999", "   1998")],
)  # fmt: skip
def test_the_answer_is_as_long_as_the_text(context, task: str, text: str, answer: str) -> None:
    assert (
        ask(context, "return TASKS[given.task](given.text)", {"task": task, "text": text}) == answer
    )


def test_models_of_one_seed_begin_alike_and_read_the_same_texts(context) -> None:
    first = "trainer.weights['layers.0.self_attn.w_q.weight'].data"
    body = f"{STARTED} return {{ texts, first: {first} }};"
    one, other = (ask(context, body, given) for given in ({}, {"layers": 4, "positions": "none"}))
    assert one == other
    assert ask(context, body, {"seed": 2})["texts"] != one["texts"]


def test_the_trainer_stays_short() -> None:
    text = (ROOT / "book" / "static" / "trainer.js").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
