"""The workload of every contender: the same shapes, the same weights, the same batches."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from annotated.data import END, PAD, START, UNK, pad_ids
from annotated.model import EncoderDecoder, TransformerConfig, build_model

FORBIDDEN = -100.0  # added to the logits of symbols that a search must not choose


@dataclass
class Workload:
    """The tasks, which are small enough for two CPU cores."""

    vocab: int = 8000
    N: int = 4
    d_model: int = 256
    d_ff: int = 1024
    h: int = 8
    dropout: float = 0.1
    smoothing: float = 0.1
    train_batch: tuple[int, int] = (32, 24)  # number of sentences, tokens in the longest
    shortest: int = 22  # tokens in the shortest: about as much padding as in batches by length
    decode_batch: tuple[int, int] = (16, 24)
    captions: int = 400  # of the task engine
    steps: int = 40  # tokens that a search writes
    beam: int = 4
    device: str = "cpu"

    def __post_init__(self) -> None:
        random = torch.Generator().manual_seed(0)

        def sentences(count: int, longest: int, shortest: int, start: list[int]) -> Tensor:
            """Ids (count, longest), with END and padding, and `start` before them."""
            lengths = torch.randint(shortest, longest + 1, (count,), generator=random).tolist()
            lengths[0] = longest
            words = (torch.randint(4, self.vocab, (n - 1,), generator=random) for n in lengths)
            return pad_ids([[*start, *ids.tolist(), END] for ids in words]).to(self.device)

        self.source = sentences(*self.train_batch, self.shortest, [])
        self.target = sentences(*self.train_batch, self.shortest, [START])
        self.to_translate = sentences(*self.decode_batch, self.decode_batch[1], [])

    def numbers(self) -> dict[str, Any]:
        """The sizes, as recorded in the results."""
        padding = (self.target[:, 1:] == PAD).float().mean().item()
        return asdict(self) | {"padding": round(padding, 4)}

    def reference(self) -> EncoderDecoder:
        """Our model, whose weights the others copy."""
        torch.manual_seed(0)
        shape = {"N": self.N, "d_model": self.d_model, "d_ff": self.d_ff, "h": self.h}
        return build_model(TransformerConfig.base(self.vocab, dropout=self.dropout, **shape))

    def bias(self) -> Tensor:
        """Bias for the logits of a search: no output ends early, so that all do the same work."""
        bias = torch.zeros(self.vocab)
        bias[[START, END, PAD, UNK]] = FORBIDDEN
        return bias
