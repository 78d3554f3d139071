"""The backward pass of large convolutions in scripts (TorchScript), shared with idle threads.

One thread computes the gradients of the weights, by the same call of PyTorch, beside those of the inputs. For these, further threads
take some of the samples.
"""

import torch
from torch import Tensor

from fedcohort.training.programs.divided_calls import multiplications
from fedcohort.training.programs.forward_functions import edges_of_parts

__all__ = ["convolution_gradients", "finish", "nothing_begun", "takes_long"]


def takes_long(delta: Tensor, weight: Tensor) -> bool:
    """Whether the gradient of a convolution's or of a linear layer's ``weight`` takes longer than asking another thread for it.

    Args:
        delta: the gradient of the layer's outputs.
        weight: its weights, with one entry of the first dimension per output.
    """
    return multiplications(delta, weight) >= 2**21


def nothing_begun() -> list[torch.jit.Future[Tensor]]:
    """A list for calls that other threads compute."""
    begun: list[torch.jit.Future[Tensor]] = []
    return begun


def convolution_gradients(
    delta: Tensor, x: Tensor, weight: Tensor, bias: list[int] | None, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int, mask: list[bool], layout: list[int], layout_before: list[int],
    most: int, idle: list[Tensor], begun: list[torch.jit.Future[Tensor]],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of the inputs, of the weights and of the bias of a convolution. If there is an idle thread, the last two have
    their values only after :func:`finish`.

    Args:
        delta, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, mask: as for PyTorch's
            ``convolution_backward``, with a ``mask`` that begins with two times true.
        layout: the strides of the gradient of the weights.
        layout_before: the strides of the gradient of the inputs.
        most: see :func:`~fedcohort.training.programs.divided_calls.most_parts`, for the gradient of the inputs.
        idle: the number of idle threads, int64 [], in a list that is empty if no other thread may be asked.
        begun: the calls that other threads compute.
    """
    if len(idle) > 0 and bool(idle[0] > 0):
        own = torch.empty_strided(weight.size(), layout, dtype=weight.dtype)
        shift = torch.empty([weight.size(0) if mask[2] else 0], dtype=weight.dtype)
        begun.append(
            torch.jit.fork(
                _own_gradients, delta, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, mask[2],
                own, shift,
            )
        )  # fmt: skip
        parts = min(most, int(idle[0]))  # one of the idle threads computes the gradients of the weights
        if parts < 2:
            before, _, _ = torch.ops.aten.convolution_backward(
                delta, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, [True, False, False]
            )  # fmt: skip
            return before, own, shift
        before = torch.empty_strided(x.size(), layout_before, dtype=x.dtype)
        edges = edges_of_parts(x.size(0), parts)
        calls = [
            torch.jit.fork(
                _gradients_of_part, delta, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, before,
                edges[i], edges[i + 1],
            )
            for i in range(1, parts)
        ]  # fmt: skip
        _gradients_of_part(
            delta, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, before, edges[0], edges[1]
        )  # fmt: skip
        for call in calls:
            torch.jit.wait(call)
        return before, own, shift
    before, own, shift = torch.ops.aten.convolution_backward(
        delta, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, mask
    )
    return before, own, shift


def _gradients_of_part(
    delta: Tensor, x: Tensor, weight: Tensor, bias: list[int] | None, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int, before: Tensor, begin: int, end: int,
) -> Tensor:  # fmt: skip
    """Write the gradients of the inputs for the samples from ``begin`` to ``end`` into ``before``."""
    found, _, _ = torch.ops.aten.convolution_backward(
        delta[begin:end], x[begin:end], weight, bias, stride, padding, dilation, transposed, output_padding, groups,
        [True, False, False],
    )  # fmt: skip
    before[begin:end].copy_(found)
    return before


def _own_gradients(
    delta: Tensor, x: Tensor, weight: Tensor, bias: list[int] | None, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int, biased: bool, own: Tensor, shift: Tensor,
) -> Tensor:  # fmt: skip
    """Write the gradients of the weights and of the bias of a convolution into ``own`` and ``shift``."""
    _, found, of_bias = torch.ops.aten.convolution_backward(
        delta, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, [False, True, biased]
    )
    own.copy_(found)
    if biased:
        shift.copy_(of_bias)
    return own


def finish(begun: list[torch.jit.Future[Tensor]]) -> None:
    """Wait until other threads have computed what they were asked for."""
    for call in begun:
        torch.jit.wait(call)
    begun.clear()
