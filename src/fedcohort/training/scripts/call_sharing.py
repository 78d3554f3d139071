"""Which calls of a pass idle threads share in a script, and the lines that make them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedcohort.training.programs.divided_calls import most_parts, multiplications
from fedcohort.training.programs.shared_gradients import takes_long

__all__ = ["SharedCall", "shared_call"]

WORTH_OF_CONVOLUTION, WORTH_OF_PRODUCT = 2**27, 2**23
"""Minimum number of multiplications of a part. The outputs of a part of a convolution need memory of their own, and are copied."""


class SharedCall(NamedTuple):
    """A call that is shared."""

    line: str
    """The call in a script."""
    read: Sequence[Tensor] = ()
    """What another thread may be reading after it."""
    written: Sequence[Tensor] = ()
    """What another thread may be writing after it."""


def shared_call(
    operator: Any, args: tuple[Any, ...], named: dict[str, Any], words: list[str], results: Any
) -> SharedCall | None:
    """The call of which idle threads compute a part; None if there is no such part, or if it is not worth it.

    Args:
        operator: the operator of PyTorch.
        args, named: what it was given.
        words: how a script writes ``args``.
        results: what it returned.
    """
    share = None if named else _SHARES.get(operator)
    return None if share is None else share(operator, args, words, results)


def _convolution(operator: Any, args: tuple[Any, ...], words: list[str], outputs: Tensor) -> SharedCall | None:
    """A convolution, with some samples for each thread."""
    x, weight, *others = args
    transposed = others[4]
    if transposed or x.dim() != weight.dim():
        return None
    work = multiplications(outputs, weight)
    most = most_parts(lambda begin, end: operator(x[begin:end], weight, *others), outputs, work, WORTH_OF_CONVOLUTION)
    layout = f"{list(outputs.shape)}, {list(outputs.stride())}"
    return SharedCall(f"convolution_outputs({', '.join(words)}, {layout}, {most}, idle)") if most > 1 else None


def _gradients(operator: Any, args: tuple[Any, ...], words: list[str], gradients: Any) -> SharedCall | None:
    """The gradients of a convolution: those of the weights by another thread, those of the inputs with some samples for each."""
    delta, x, weight, *others, mask = args
    transposed = others[4]
    if not (mask[0] and mask[1]) or transposed or not takes_long(delta, weight):
        return None

    def of_part(begin: int, end: int) -> Tensor:
        found: Tensor = operator(delta[begin:end], x[begin:end], weight, *others, [True, False, False])[0]
        return found

    before, own, shift = gradients
    most = most_parts(of_part, before, multiplications(delta, weight), WORTH_OF_CONVOLUTION)
    layout = f"{list(own.stride())}, {list(before.stride())}"
    line = f"convolution_gradients({', '.join(words)}, {layout}, {most}, idle, begun)"
    return SharedCall(line, (delta, x, weight), (own,) if shift is None else (own, shift))


def _product(operator: Any, args: tuple[Any, ...], words: list[str], outputs: Tensor) -> SharedCall | None:
    """A product of matrices, perhaps with a bias, with some rows for each thread."""
    *bias, a, b = args
    if any(one.dim() != 1 for one in bias) or not outputs.is_contiguous():
        return None
    work = outputs.numel() * b.size(0)
    most = most_parts(lambda begin, end: operator(*bias, a[begin:end], b), outputs, work, WORTH_OF_PRODUCT)
    line = f"product({words[-2]}, {words[-1]}, {words[0] if bias else None}, {most}, idle)"
    return SharedCall(line) if most > 1 else None


def _linear(operator: Any, args: tuple[Any, ...], words: list[str], outputs: Tensor) -> SharedCall | None:
    """A linear layer by oneDNN, with some samples for each thread."""
    x, weight, *others = args
    if others[1:] != ["none", [], ""] or x.dim() < 2 or not outputs.is_contiguous():
        return None
    work = multiplications(outputs, weight)
    most = most_parts(lambda begin, end: operator(x[begin:end], weight, *others), outputs, work, WORTH_OF_PRODUCT)
    line = f"linear_outputs({', '.join(words[:3])}, {list(outputs.shape)}, {most}, idle)"
    return SharedCall(line) if most > 1 else None


_SHARES: dict[Any, Callable[[Any, tuple[Any, ...], list[str], Any], SharedCall | None]] = {
    torch.ops.aten.convolution.default: _convolution,
    torch.ops.aten.convolution_backward.default: _gradients,
    torch.ops.aten.mm.default: _product,
    torch.ops.aten.addmm.default: _product,
    torch.ops.mkldnn._linear_pointwise.default: _linear,
}
"""What says how a call of an operator is shared."""
