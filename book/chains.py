"""How long the chain of operations is that have to wait for one another."""

import re

from torch import Tensor


def longest_chain(output: Tensor) -> int:
    """Number of operations on the longest path to `output` through the graph of autograd.

    Every tensor remembers the operation that made it, and every operation remembers the operations
    that it waited for. Products, sums, quotients, convolutions, tanh and softmax count as one each;
    operations that only select, reshape or stack do not count. The layer has to be written out: a
    library's recurrent layer, such as `nn.RNN`, hides all its steps inside one operation.

    Args:
        output: the result of an operation on tensors that require a gradient.

    Source: section 4, second column of Table 1.

    >>> longest_chain(layer(x))
    """
    computes = re.compile("(Addmm|Bmm|Mm|Mv|Convolution|Add|Mul|Div|Tanh|Softmax)Backward")
    length: dict[object, int] = {None: 0}
    waiting: list = [output.grad_fn]
    while waiting:  # an explicit stack, because the graph is deeper than Python may recurse
        node = waiting[-1]
        before = [earlier for earlier, _ in node.next_functions]
        unknown = [earlier for earlier in before if earlier not in length]
        if unknown:
            waiting.extend(unknown)
        else:
            chain = max((length[earlier] for earlier in before), default=0)
            length[waiting.pop()] = chain + bool(computes.match(node.name()))
    return length[output.grad_fn]
