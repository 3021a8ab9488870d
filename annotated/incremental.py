"""6.1 Machine Translation (chapters/6-1-machine-translation.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from dataclasses import dataclass

from torch import Tensor

from annotated.attention import Mask
from annotated.machinery.stepping import can_step
from annotated.model import EncoderDecoder


@dataclass
class DecoderCache:
    """What a decoder keeps between the steps of a search.

    Args:
        model: the model.
        memory: (batch, src_len, d_model)   src_mask: (batch, 1, src_len), or None

    Attributes:
        states: of each layer, tensors of (batch · width, …) for the hypotheses and of (batch, …)
            for the sources; None: nothing is kept, and the whole output is decoded each time.

    Source: sections 3.2.3 and 6.1.
    """

    model: EncoderDecoder
    memory: Tensor
    src_mask: Mask = None

    def __post_init__(self) -> None:
        """Start with what the layers keep of the memory before the first step."""
        self.states = self.model.decoder.start(self.memory) if can_step(self.model) else None

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
            rows = parents.flatten()
            for own, _ in self.states:
                own[:] = [tensor.index_select(0, rows) for tensor in own]
        return self.model.step(ids[:, :, -1], ids.size(2) - 1, self.states, self.src_mask)

    def select(self, rows: Tensor) -> None:
        """Keep these sentences; `parents` of the next step selects their hypotheses."""
        self.memory = self.memory[rows]
        self.src_mask = None if self.src_mask is None else self.src_mask[rows]
        for _, source in self.states or ():
            source[:] = [tensor[rows] for tensor in source]
