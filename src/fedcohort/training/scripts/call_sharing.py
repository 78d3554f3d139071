"""Which calls of a pass idle threads share in a script, and the lines that make them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedcohort.training.programs.divided_calls import most_parts, multiplications
from fedcohort.training.programs.shared_gradients import takes_long

__all__ = ["SharedCall", "shared_call"]

WORTH_OF_CONVOLUTION, WORTH_OF_PRODUCT, WORTH_OF_ATTENTION = 2**27, 2**23, 2**22
"""Minimum number of multiplications of a part. The outputs of a part of a convolution need memory of their own, and are copied."""
MULTIPLICATIONS_OF_GELU = 2**6
"""Number of multiplications of a product that take about as long as GELU for one number."""


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
    share = _SHARES.get(operator)
    if share is None or not named.keys() <= _NAMED:
        return None
    return share(_Call(operator, args, named, words, results))


class _Call(NamedTuple):
    """What :func:`shared_call` is given."""

    operator: Any
    args: tuple[Any, ...]
    named: dict[str, Any]
    words: list[str]
    results: Any


def _convolution(call: _Call) -> SharedCall | None:
    """A convolution, with some samples for each thread."""
    operator, (x, weight, *others), _, words, outputs = call
    transposed = others[4]
    if transposed or x.dim() != weight.dim():
        return None
    work = multiplications(outputs, weight)
    most = most_parts(
        lambda begin, end: [operator(x[begin:end], weight, *others)], [outputs], work, WORTH_OF_CONVOLUTION
    )
    layout = f"{list(outputs.shape)}, {list(outputs.stride())}"
    return SharedCall(f"convolution_outputs({', '.join(words)}, {layout}, {most}, idle)") if most > 1 else None


def _gradients(call: _Call) -> SharedCall | None:
    """The gradients of a convolution: those of the weights by another thread, those of the inputs with some samples for each."""
    operator, (delta, x, weight, *others, mask), _, words, gradients = call
    transposed = others[4]
    if not (mask[0] and mask[1]) or transposed or not takes_long(delta, weight):
        return None

    def of_part(begin: int, end: int) -> list[Tensor]:
        return [operator(delta[begin:end], x[begin:end], weight, *others, [True, False, False])[0]]

    before, own, shift = gradients
    most = most_parts(of_part, [before], multiplications(delta, weight), WORTH_OF_CONVOLUTION)
    layout = f"{list(own.stride())}, {list(before.stride())}"
    line = f"convolution_gradients({', '.join(words)}, {layout}, {most}, idle, begun)"
    return SharedCall(line, (delta, x, weight), (own,) if shift is None else (own, shift))


def _product(call: _Call) -> SharedCall | None:
    """A product of matrices, perhaps with a bias, with some rows for each thread."""
    operator, (*bias, a, b), _, words, outputs = call
    if any(one.dim() != 1 for one in bias) or not outputs.is_contiguous():
        return None
    work = outputs.numel() * b.size(0)
    most = most_parts(lambda begin, end: [operator(*bias, a[begin:end], b)], [outputs], work, WORTH_OF_PRODUCT)
    line = f"product({words[-2]}, {words[-1]}, {words[0] if bias else None}, {most}, idle)"
    return SharedCall(line) if most > 1 else None


def _linear(call: _Call) -> SharedCall | None:
    """A linear layer by oneDNN, with some samples for each thread."""
    operator, (x, weight, *others), _, words, outputs = call
    if others[1:] != ["none", [], ""] or x.dim() < 2 or not outputs.is_contiguous():
        return None
    work = multiplications(outputs, weight)
    most = most_parts(lambda begin, end: [operator(x[begin:end], weight, *others)], [outputs], work, WORTH_OF_PRODUCT)
    line = f"linear_outputs({', '.join(words[:3])}, {list(outputs.shape)}, {most}, idle)"
    return SharedCall(line) if most > 1 else None


def _gelu(call: _Call) -> SharedCall | None:
    """GELU or its gradients, with some samples for each thread. Samples have a multiple of 64 numbers, because PyTorch computes the
    last numbers of a call, less than a vector register has, in another way."""
    operator, args, named, words, results = call
    if results.dim() == 0 or results[:1].numel() % 64 != 0 or not all(one.is_contiguous() for one in args):
        return None
    work = results.numel() * MULTIPLICATIONS_OF_GELU
    most = most_parts(
        lambda begin, end: [operator(*(one[begin:end] for one in args), **named)], [results], work, WORTH_OF_PRODUCT
    )
    function = "gelu_outputs" if len(args) == 1 else "gelu_gradients"
    tensors, approximate = ", ".join(words[: len(args)]), named.get("approximate", "none")
    return SharedCall(f"{function}({tensors}, {approximate!r}, {most}, idle)") if most > 1 else None


def _attention(call: _Call) -> SharedCall | None:
    """Attention or its gradients, with some samples for each thread."""
    operator, args, named, words, results = call
    tensors = [one for one in args if isinstance(one, Tensor)]
    dropout, causal = (*args[len(tensors) :], *(0.0, False))[:2]
    if dropout != 0.0 or named.get("attn_mask") is not None:
        return None
    query, key = tensors[:2] if len(tensors) == 3 else tensors[1:3]

    def of_part(begin: int, end: int) -> list[Tensor]:
        return [*operator(*(one[begin:end] for one in tensors), dropout, causal, **named)]

    most = most_parts(of_part, results, query.numel() * key.size(2), WORTH_OF_ATTENTION)
    function = "attention_outputs" if len(tensors) == 3 else "attention_gradients"
    layouts, scale = [list(one.stride()) for one in results], named.get("scale")
    factor = None if scale is None else f'float("{scale!r}")'
    line = f"{function}({', '.join(words[: len(tensors)])}, {causal}, {factor}, {layouts}, {most}, idle)"
    return SharedCall(line) if most > 1 else None


_NAMED = {"approximate", "attn_mask", "scale"}
"""Names of arguments that may be given by name."""

_SHARES: dict[Any, Callable[[_Call], SharedCall | None]] = {
    torch.ops.aten.convolution.default: _convolution,
    torch.ops.aten.convolution_backward.default: _gradients,
    torch.ops.aten.mm.default: _product,
    torch.ops.aten.addmm.default: _product,
    torch.ops.mkldnn._linear_pointwise.default: _linear,
    torch.ops.aten.gelu.default: _gelu,
    torch.ops.aten.gelu_backward.default: _gelu,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention,
}
"""What says how a call of an operator is shared."""
