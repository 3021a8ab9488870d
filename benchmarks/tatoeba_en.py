"""Train the language model of *A model that speaks*: `python -m benchmarks.tatoeba_en --help`.

The paper's model without its encoder: a decoder-only model of 1.3 million weights, on the English
sentences of Tatoeba. Each ends with the end symbol, after which another begins, in random order.
The folder of the model then contains its weights, with matrices in 8 bits, its configuration, its
vocabulary, a log of the losses, and the loss on unseen sentences before and after rounding.
"""

import json
import time
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from annotated.data import encode_source, learn_vocabulary
from annotated.language_model import LanguageModel
from annotated.machinery.blockwise_loss import linear_cross_entropy
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.files import resource_path, write_tensors, write_text
from annotated.machinery.progress import progress_bar
from annotated.optimizer import rate
from benchmarks.logs import make_parser, write_log
from benchmarks.since_2017 import BATCH, PAPER, WARMUP, Text, losses, optimizers, shuffled

PEAK = 0.004  # the best rate of the paper's model in data/results/since-2017.csv
FINAL = 0.1  # share of the updates over which the weights are averaged
POINTS = 25  # of the log


def read_text() -> tuple[Text, Tokenizer]:
    """English sentences, each once, and the vocabulary that the training sentences yield."""
    splits = [
        list(dict.fromkeys(x for other in ("de", "fr")
                           for x in load_pairs("tatoeba", split, "en", other)[0]))
        for split in ("train", "dev", "test")
    ]  # fmt: skip
    held_out = {*splits[1], *splits[2]}
    splits[0] = [line for line in splits[0] if line not in held_out]
    tokenizer = learn_vocabulary("bpe", splits[0], PAPER.vocab)
    ids = [[torch.tensor(row) for row in encode_source(tokenizer, split)] for split in splits]
    return Text("sentences", ids[0], *map(shuffled, ids[1:])), tokenizer


def train(text: Text, seed: int, tokens: int) -> tuple[LanguageModel, pd.DataFrame]:
    """The mean of a model's weights over its last updates, and its log."""
    torch.manual_seed(seed)
    model, updates = LanguageModel(PAPER).train(), tokens // BATCH
    average, warmup = AveragedModel(model), round(WARMUP * updates)
    (optimizer,) = optimizers(model, muon=False)
    factor = PEAK * (PAPER.d_model * warmup) ** 0.5  # so that the largest rate is PEAK
    rows, recent, start = [], [], time.monotonic()
    bar = progress_bar(total=updates, unit="update")
    for step, (ids, following) in zip(range(1, updates + 1), text.batches(seed), strict=False):
        x, weight = model.decode(ids), model.generator.proj.weight
        loss = linear_cross_entropy(x, weight, following, -1) / ids.numel()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = rate(step, PAPER.d_model, factor, warmup)
        optimizer.step()
        optimizer.zero_grad()
        if step > (1 - FINAL) * updates:
            average.update_parameters(model)
        recent.append(loss.item())
        bar.update()
        if step % max(1, updates // POINTS) == 0 or step == updates:
            heard = losses(model, text.dev[: 8 * 1024 + 1], text.length, text.longest)
            row = {"update": step, "tokens": step * BATCH, "train_loss": sum(recent) / len(recent)}
            rows.append(
                row | {"dev_loss": heard.mean().item(), "seconds": round(time.monotonic() - start)}
            )
            recent.clear()
    bar.close()
    return average.module.eval(), pd.DataFrame(rows).round(4)


def in_eight_bits(model: nn.Module) -> dict[str, Tensor]:
    """The weights for a file, matrices as integers with their divisors; rounds the model's too."""
    kept = {}
    for name, weight in model.named_parameters():
        kept[name] = weight.detach()
        if weight.dim() == 2:
            multiplier = 127 / weight.detach().abs().max()
            kept[name] = (weight.detach() * multiplier).round().to(torch.int8)
            kept[f"{name}.multiplier"] = multiplier
            weight.data = kept[name] / multiplier
    return kept


def main(given: list[str] | None = None) -> None:
    parser = make_parser("benchmarks.tatoeba_en", __doc__, "It takes 20 minutes of one core.")
    add = parser.add_argument
    out = resource_path("models") / "tatoeba-en"
    add("--out", type=Path, default=out, help="folder, whose files are replaced (%(default)s)")
    add("--tokens", type=int, default=6_000_000, help="tokens to predict (%(default)s)")
    add("--seed", type=int, default=1, help="of order and first weights (%(default)s)")
    options = parser.parse_args(given)
    torch.set_num_threads(1)
    text, tokenizer = read_text()
    model, log = train(text, options.seed, options.tokens)
    heard = lambda: round(losses(model, text.test, text.length, text.longest).mean().item(), 4)
    result = {
        "seed": options.seed,
        "tokens": options.tokens,
        "train_sentences": len(text.train),
        "train_tokens": sum(map(len, text.train)),
        "test_loss": heard(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_tensors(options.out / "model.safetensors", in_eight_bits(model), {})
    result |= {"test_loss_8_bits": heard(), "torch": torch.__version__}
    write_text(options.out / "training.json", json.dumps(result, indent=2) + "\n")
    write_text(options.out / "config.json", json.dumps(asdict(PAPER), indent=2) + "\n")
    tokenizer.save(str(options.out / "tokenizer.json"))
    write_log(options.out / "log.csv", log)


if __name__ == "__main__":
    main()
