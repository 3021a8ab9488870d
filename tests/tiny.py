"""Tiny models and a tiny vocabulary, for tests of search and of translators."""

import torch
from torch import nn

from annotated.data import END, train_bpe
from annotated.model import EncoderDecoder, make_model

V = 9
WORDS = "one two three four five six seven eight nine"
TOKENIZER = train_bpe([WORDS] * 2, 60)


def wild(vocab: int = V, seed: int = 0, **options: object) -> EncoderDecoder:
    """A tiny random model; learned positions keep it from repeating one token for ever."""
    torch.manual_seed(seed)
    shape = {"N": 2, "d_model": 16, "d_ff": 32, "h": 2, "dropout": 0.3}
    model = make_model(vocab, vocab, **shape | {"positions": "learned", "max_len": 80} | options)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(std=0.3)
    return model.eval()


def with_biases(model: EncoderDecoder) -> EncoderDecoder:
    """The same model with random biases, where it has any."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                p.normal_(std=0.3)
    return model


def never_end(module: nn.Module, inputs: object, log_probs: torch.Tensor) -> torch.Tensor:
    return log_probs.index_fill(-1, torch.tensor(END), -99.0)
