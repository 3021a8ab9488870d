"""Measure a published language model: `python -m benchmarks.smollm2 --help`.

The measurements of SmolLM2-135M-Instruct on the pages "A model that speaks" and "What heads do":
beam search, mistakes of a loader, and the attention of heads. The passages that people wrote are
those of GUM (set ANNOTATED_DATA).
"""

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from annotated.language_model import LanguageModel
from annotated.language_model import draw as draw_id
from annotated.machinery.files import write_text
from annotated.machinery.formats.causal import TextGenerator, load_language_model
from annotated.machinery.progress import progress_bar
from annotated.machinery.recording import record_attention, switch_off, touch
from benchmarks.heads.gold import gum_files
from benchmarks.logs import as_json, make_parser

TOP_P = "temperature 0.7, top-p 0.9"
WIDTHS = 1, 4
GIVEN = 8  # tokens of each passage that the model continues
NEW = 60  # tokens of each continuation
LENGTH = 50  # random tokens, which are repeated once
TEXT = (  # written for this book, so that no training data contains it
    "The executable edition of a paper is a book whose equations are code. Whoever reads about "
    "attention can run it, change it and see what happens. The first model of this book translates "
    "captions of photographs: a man rides a bicycle, two dogs play in the snow, a girl in a red "
    "dress jumps into the water. It has two and a half million weights and was trained on one "
    "processor in an evening. Its errors are instructive. It has never seen a minister, and so it "
    "invents a word for one. A larger model that has read the web knows ministers, budgets and "
    "courts of law, and yet both consist of the same few parts. Queries meet keys, the weights of "
    "a softmax choose among values, and a small network works on each word by itself. The rest is "
    "size. What the larger model has learned stands in its matrices, and nobody can read it there "
    "directly. One can only ask it questions, or look at what its heads attend to."
)


@torch.inference_mode()
def beam_search(
    model: LanguageModel, prompt: list[int], width: int, length: int, never: set[int]
) -> tuple[list[int], float]:
    """The most probable continuation of `length` tokens that a beam of `width` finds.

    Args:
        never: ids that are never emitted, so that all continuations are equally long.

    Returns: ids, and their log-probability.
    """
    cache: Any = {}
    logits = model(torch.tensor([prompt]), cache)[:, -1]
    scores, ids = torch.zeros(1), torch.zeros(1, 0, dtype=torch.long)
    for _ in range(length):
        logits[:, list(never)] = -torch.inf
        total = scores.unsqueeze(1) + logits.log_softmax(dim=-1)  # (hypotheses, vocab)
        scores, best = total.flatten().topk(min(width, total.numel()))
        row, token = best // logits.size(1), best % logits.size(1)
        ids = torch.cat([ids[row], token.unsqueeze(1)], dim=1)
        for layer, state in cache.items():  # each hypothesis keeps its own past
            cache[layer] = [tensor[row] for tensor in state]
        logits = model(token.unsqueeze(1), cache)[:, -1]
    return ids[0].tolist(), scores[0].item()


def share_repeated(ids: list[int]) -> float:
    """Share of the groups of four tokens that occurred before in the text."""
    parts = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
    return round(1 - len(set(parts)) / len(parts), 4) if parts else 0.0


def documents() -> dict[str, list[str]]:
    """The sentences of each document of GUM, from the sixth on, without headings."""
    files = [text for split in ("train", "dev", "test") for text in gum_files(split).values()]
    parts = re.split(r"^# newdoc id = GUM_", "\n".join(files), flags=re.M)[1:]
    find = re.compile(r"^# text = (.*)", re.M).findall
    return {name: find(text)[5:] for name, text in (part.split("\n", 1) for part in sorted(parts))}


def ten_each(names: Iterable[str]) -> list[str]:
    """Ten stories and ten news articles."""
    kinds = ([n for n in sorted(names) if n.startswith(kind)] for kind in ("fiction", "news"))
    return [name for kind in kinds for name in kind[:10]]


def passages() -> list[str]:
    """The documents whose beginnings are continued."""
    texts = documents()
    return [" ".join(texts[name]) for name in ten_each(texts)]


@torch.inference_mode()
def repetitions(generator: TextGenerator) -> Iterator[dict[str, Any]]:
    """The surprise of a sentence after itself, up to three times, and after as many others.

    One sentence of 10 to 25 tokens from each document that `passages` leaves out, after the one
    before it. The others are those of the next documents.
    """
    texts = documents()
    for name in ten_each(texts):
        del texts[name]
    encode = lambda text: generator.encode(f" {text}")
    fits = lambda sentence: sentence.endswith(".") and 10 <= len(encode(sentence)) <= 25
    found = {
        name: next((pair for pair in pairwise(sentences) if fits(pair[1])), None)
        for name, sentences in texts.items()
    }
    chosen = [(name, *map(encode, pair)) for name, pair in found.items() if pair]
    for place, (name, before, sentence) in enumerate(progress_bar(chosen, desc="repetitions")):
        others = [chosen[(place + k) % len(chosen)][2] for k in (1, 2, 3)]
        kinds = {"itself": [sentence] * 3, "others": others}
        row = {"document": name, "tokens": len(sentence)}
        for kind, given in kinds.items():
            prompts = ([*before, *chain(*given[:n])] for n in range(len(given) + 1))
            found_in = [log_prob(generator.model, each, sentence, set()) for each in prompts]
            row[kind] = [round(-total / len(sentence), 3) for total in found_in]
        yield row


def beams(generator: TextGenerator) -> Iterator[dict[str, Any]]:
    """Continuations of passages, also by the passages themselves: how likely, how repetitive."""
    model, never = generator.model, set(generator.stop) | {0, 1, 2}
    for passage in progress_bar(passages(), desc="beams"):
        ids = generator.encode(passage)
        prompt, written = ids[:GIVEN], ids[GIVEN : GIVEN + NEW]
        found = {"written": written, "drawn": draw(model, prompt, never)}
        found[TOP_P] = draw(model, prompt, never, 0.7, 0.9)
        found |= {f"{n}": beam_search(model, prompt, n, NEW, never)[0] for n in WIDTHS}
        for name, new in found.items():
            row = {"beginning": generator.tokenizer.decode(prompt), "how": name}
            row["per_token"] = round(log_prob(model, prompt, new, never) / len(new), 4)
            row["repeated"] = share_repeated(new)
            text = generator.tokenizer.decode(new)
            yield row | ({"text": text} if name != "written" else {})


@torch.inference_mode()
def log_prob(model: LanguageModel, prompt: list[int], ids: list[int], never: set[int]) -> float:
    """The log-probability of ids after a prompt."""
    logits = model(torch.tensor([[*prompt, *ids]]))[0, len(prompt) - 1 : -1]
    logits[:, list(never)] = -torch.inf
    return logits.log_softmax(dim=-1)[range(len(ids)), ids].sum().item()


@torch.inference_mode()
def draw(
    model: LanguageModel,
    prompt: list[int],
    never: set[int],
    temperature: float = 1.0,
    top_p: float = 1.0,
) -> list[int]:
    """A continuation of `NEW` tokens, drawn from the model's probabilities."""
    cache: Any = {}
    ids, new, chance = [], list(prompt), torch.Generator().manual_seed(0)
    for _ in range(NEW):
        logits = model(torch.tensor([new]), cache)[0, -1]
        logits[list(never)] = -torch.inf
        new = [draw_id(logits, temperature, None, top_p, chance)]
        ids += new
    return ids


@torch.inference_mode()
def mistakes(generator: TextGenerator) -> Iterator[dict[str, Any]]:
    """The effect of a loader's mistakes on the logits of a text and on its loss."""
    model, ids = generator.model, torch.tensor([generator.encode(TEXT)])
    right = model(ids)
    kinds: dict[str, Callable[[LanguageModel], None] | dict[str, Any]] = {
        "none": {},
        "keys and values given to the wrong queries": wrong_groups,
        "embeddings multiplied by √d_model": {"scale_embeddings": True},
        "pairs rotated for halves": pairs_for_halves,
        "gate and input exchanged": exchanged_gates,
        "θ = 10,000 for 100,000": {"theta": 10_000.0},
        "ε = 1e-6 for 1e-5": {"epsilon": 1e-6},
    }
    for name, change in kinds.items():
        config = model.config if callable(change) else replace(model.config, **change)
        other = LanguageModel(config).eval()
        other.load_state_dict(model.state_dict())
        if callable(change):
            change(other)
        logits = other(ids)
        loss = cross_entropy(logits[0, :-1], ids[0, 1:]).item()
        same = (logits.argmax(dim=-1) == right.argmax(dim=-1)).float().mean().item()
        yield {
            "mistake": name, "difference": round((logits - right).abs().max().item(), 4),
            "same": round(same, 4), "loss": round(loss, 4),
        }  # fmt: skip


def wrong_groups(model: LanguageModel) -> None:
    """Query i uses key head i mod 3 instead of i // 3."""
    for layer in model.layers:
        attention: Any = layer.self_attn
        h, kv = attention.h, model.config.kv_heads or attention.h
        # Heads with equal remainders are next to each other.
        order = torch.arange(h).view(-1, kv).T.flatten()
        rows = attention.w_q.weight.view(h, -1, attention.w_q.in_features)
        columns = attention.w_o.weight.view(attention.w_o.out_features, h, -1)
        attention.w_q.weight.copy_(rows[order].flatten(0, 1))
        attention.w_o.weight.copy_(columns[:, order].flatten(1))


def pairs_for_halves(model: LanguageModel) -> None:
    """Rows of queries and keys in the order of GGUF files."""
    for layer in model.layers:
        attention: Any = layer.self_attn
        for linear in (attention.w_q, attention.w_k):
            halves = linear.weight.view(-1, 2, attention.d_k // 2, linear.in_features)
            linear.weight.copy_(halves.transpose(1, 2).reshape(linear.weight.shape))


def exchanged_gates(model: LanguageModel) -> None:
    for layer in model.layers:
        network: Any = layer.feed_forward
        network.w_1, network.w_3 = network.w_3, network.w_1


@torch.inference_mode()
def heads(generator: TextGenerator) -> dict[str, Any]:
    """The attention of each head, the lengths of the vectors, and weights to draw."""
    model, ids = generator.model, torch.tensor([generator.encode(TEXT)])
    norms, values = [], []
    lengths = {
        f"layers.{n}": lambda x: norms.append(x[0].norm(dim=-1)) for n in range(len(model.layers))
    }
    of_head = lambda v: v[0].unflatten(-1, (-1, 64)).norm(dim=-1).mean(dim=-1)
    lengths |= {f"{name}.self_attn.w_v": lambda v: values.append(of_head(v)) for name in lengths}
    with touch(model, lengths), record_attention(model) as seen:
        model(ids)
    text = torch.stack([weights[0] for weights in seen.values()])  # (layers, h, len, len)
    twice = random_twice()
    with record_attention(model) as seen:
        losses = surprise(model, twice).mean(dim=0)
    after = on_what_followed(seen)
    before = text.diagonal(-1, dim1=-2, dim2=-1).mean(dim=-1)
    first = text[:, :, 1:, 0].mean(dim=-1)
    kinds = {"induction": after, "previous": before, "first": first}
    rows = [
        {"layer": i + 1, "head": j + 1, **{kind: rounded(w[i, j], 4) for kind, w in kinds.items()}}
        for i in range(first.size(0)) for j in range(first.size(1))
    ]  # fmt: skip
    vectors = [
        {"layer": layer, "first": rounded(norm[0]), "others": rounded(norm[1:].mean()),
         "value_first": rounded(value[0]), "value_others": rounded(value[1:].mean())}
        for layer, (norm, value) in enumerate(zip(norms, values, strict=True), start=1)
    ]  # fmt: skip
    sentence = generator.encode(DRAWN)
    with record_attention(model) as seen:
        model(torch.tensor([sentence]))
    best = int(after.max(dim=1).values.argmax())
    pieces = [generator.tokenizer.decode([i]) for i in sentence]
    drawn = {"tokens": pieces, "layer": best + 1, "weights": rounded(list(seen.values())[best][0])}
    return {"heads": rows, "vectors": vectors, "repeated": rounded(losses), "drawing": drawn}


def without(generator: TextGenerator, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The loss on repeated random tokens, and on `TEXT`, if some heads give their mean output.

    The random tokens are others than those on which `heads` finds the heads that continue.

    Args:
        rows: those of `heads`. The heads that continue, and those that attend to the token before,
            are compared with as many others of the same layers, drawn ten times.

    Yields: the loss on the first copy, on the second (`again`) and on the text; except for others,
        also on `new` random tokens in place of the second, and the `weight` of the heads that
        continue on what followed. `name` is the probability that the name at the end of `DRAWN`
        goes on as before.
    """
    model, twice = generator.model, random_twice(seed=1)
    new = torch.cat([twice[:, :LENGTH], random_twice(seed=2)[:, :LENGTH]], dim=1)
    continuing = torch.tensor([row["induction"] > 0.5 for row in rows]).view(-1, model.config.h)
    text = torch.tensor([generator.encode(TEXT)])
    sentence = generator.encode(DRAWN)
    goes_on = sentence[sentence.index(sentence[-1]) + 1]
    names = [f"layers.{n}.self_attn" for n in range(len(model.layers))]
    means: dict[str, Tensor] = {}

    def average(name: str) -> Callable[[Tensor], None]:
        return lambda x: means.update({name: x[:, :LENGTH].mean(dim=(0, 1))})

    with torch.inference_mode(), touch(model, {f"{name}.w_o:in": average(name) for name in names}):
        model(twice)
    cases: list[tuple[str, dict[str, list[int]]]] = [("no head", {})]
    draws = random.Random(0)
    for kind in ("induction", "previous"):
        chosen: dict[str, list[int]] = defaultdict(list)
        for row in rows:
            if row[kind] > 0.5:
                chosen[names[row["layer"] - 1]].append(row["head"] - 1)
        cases.append((kind, chosen))
        for _ in range(10):
            others = {
                name: draws.sample(sorted({*range(model.config.h)} - {*heads}), len(heads))
                for name, heads in chosen.items()
            }
            cases.append((f"others than {kind}", others))
    for kind, off in progress_bar(cases, desc="without heads"):
        with torch.inference_mode(), switch_off(model, off, means):
            losses = surprise(model, twice)
            parts = {"first": losses[:, : LENGTH - 1], "again": losses[:, LENGTH + 5 :]}
            parts["text"] = surprise(model, text)
            parts["name"] = model(torch.tensor([sentence]))[0, -1].softmax(dim=-1)[goes_on]
            if not kind.startswith("others"):
                with record_attention(model) as seen:
                    model(twice)
                parts["new"] = surprise(model, new)[:, LENGTH + 5 :]
                parts["weight"] = on_what_followed(seen)[continuing]
        yield {"off": kind, **{name: rounded(part.mean()) for name, part in parts.items()}}


def surprise(model: LanguageModel, ids: Tensor) -> Tensor:
    """The loss of each token but the first (batch, len - 1)."""
    return cross_entropy(model(ids).transpose(1, 2)[..., :-1], ids[:, 1:], reduction="none")


def on_what_followed(seen: dict[str, Tensor]) -> Tensor:
    """Mean weight of each head on the token that came next the first time (layers, h)."""
    repeated = torch.stack([weights.mean(dim=0) for weights in seen.values()])
    return repeated.diagonal(1 - LENGTH, dim1=-2, dim2=-1)[..., 1:].mean(dim=-1)


def random_twice(seed: int = 0) -> Tensor:
    """Eight rows of random tokens (8, 2 * LENGTH), whose second half repeats the first."""
    half = torch.randint(1000, 40_000, (8, LENGTH), generator=torch.Generator().manual_seed(seed))
    return torch.cat([half, half], dim=1)


DRAWN = "Mrs. Tavistock met Mr. Quillfeather in Oldbury, and a year later Mrs. Tavistock met Mr. Qu"


def rounded(x: Tensor, places: int = 3) -> Any:
    return x.double().numpy().round(places).tolist()


def main() -> None:
    add = (parser := make_parser("benchmarks.smollm2", __doc__)).add_argument
    name = "HuggingFaceTB/SmolLM2-135M-Instruct"
    add("--model", default=name, help="a model of the Hub, a folder or a GGUF file (%(default)s)")
    add("--out", type=Path, required=True, help="JSON file to replace; takes an hour on a CPU")
    add("--threads", type=int, default=1, help="number of CPU threads (%(default)s)")
    text = "measure only this part of a file that is there; several are possible"
    parts = {each.__name__: each for each in (mistakes, beams, repetitions)}
    add("--part", action="append", choices=["without", *parts], default=[], help=text)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = load_language_model(options.model)
    if options.part:
        found = json.loads(options.out.read_text(encoding="utf-8"))
    else:
        found = {"model": Path(options.model).name, **heads(generator)}
    for name in options.part or ["without", *parts]:
        measure = parts.get(name) or (lambda generator: without(generator, found["heads"]))
        found[name] = list(measure(generator))
        write_text(options.out, as_json(found))


if __name__ == "__main__":
    main()
