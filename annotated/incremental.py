"""6.1 Machine Translation (chapters/6-1-machine-translation.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from dataclasses import dataclass
from inspect import signature
from typing import Any

from torch import Tensor

from annotated.machinery.stepping import has_step, is_watched
from annotated.model import EncoderDecoder


@dataclass
class DecoderCache:
    """What a decoder keeps between the steps of a search.

    Args:
        model: the model.
        memory: (batch, src_len, d_model)   src_mask: (batch, 1, src_len), or None
        states: of each layer, tensors of (batch · width, …) for the hypotheses and of (batch, …)
            for the sources; None: nothing is kept, and the whole output is decoded each time.

    Source: sections 3.2.3 and 6.1.
    """

    model: EncoderDecoder
    memory: Tensor
    src_mask: Tensor | None
    states: list[tuple[list[Tensor], list[Tensor]]] | None

    @classmethod
    def start(
        cls, model: EncoderDecoder, memory: Tensor, src_mask: Tensor | None = None
    ) -> "DecoderCache":
        """The cache before the first step; arguments as above."""
        return cls(model, memory, src_mask, model.start(memory) if model_can_step(model) else None)

    def step(self, ids: Tensor, parents: Tensor | None = None) -> Tensor:
        """Decode the newest position of every hypothesis.

        Args:
            ids: all tokens so far (batch, width, len).
            parents: (batch, width), for each hypothesis the one that it continues, numbered over
                the whole batch of the step before; None: each continues itself.

        Returns: (batch, width, d_model).
        """
        width = ids.size(1)
        if self.states is None:
            memory, src_mask = self.memory.repeat_interleave(width, dim=0), self.src_mask
            if src_mask is not None:
                src_mask = src_mask.repeat_interleave(width, dim=0)
            out = self.model.decode(memory, src_mask, ids.flatten(0, 1))
            return out[:, -1].unflatten(0, (-1, width))
        if parents is not None:
            for own, _ in self.states:
                own[:] = [tensor[parents.flatten()] for tensor in own]
        return self.model.step(ids[:, :, -1], ids.size(2) - 1, self.states, self.src_mask)

    def select(self, rows: Tensor) -> None:
        """Keep these sentences; `parents` of the next step selects their hypotheses."""
        self.memory = self.memory[rows]
        self.src_mask = None if self.src_mask is None else self.src_mask[rows]
        for _, source in self.states or ():
            source[:] = [tensor[rows] for tensor in source]


def model_can_step(model: EncoderDecoder) -> bool:
    """Whether `step` may stand for `decode`: every part of the decoder has a step."""
    decoder: Any = model.decoder
    if is_watched(decoder) or is_watched(model.tgt_embed) or not has_step(decoder):
        return False
    inner = [m for layer in decoder.layers for m in (layer, layer.self_attn, layer.src_attn)]
    embed = [model.tgt_embed, *list(model.tgt_embed.children())[-1:]]  # the last adds positions
    starts = all("start" in signature(m.forward).parameters for m in embed)
    return has_step(model, "decode") and all(map(has_step, inner)) and starts
