"""The forward pass of large convolutions in scripts (TorchScript), shared with idle threads.

A convolution treats each sample of a batch alone: every thread takes some of the samples.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from fedcohort.training.forward_functions import edges_of_parts

__all__ = ["convolution_outputs", "most_parts", "multiplications"]

WORTH = 2**22
"""Minimum number of multiplications of a part of a batch."""


def multiplications(outputs: Tensor, weight: Tensor) -> int:
    """The number of multiplications for all of these outputs of a layer."""
    return outputs.numel() * (weight.numel() // weight.size(0))


def most_parts(of_part: Callable[[int, int], Tensor], whole: Tensor, work: int) -> int:
    """The maximum number of parts into which threads may divide the samples of a call, with the same bits; 1 if that is not worth it.

    Libraries may choose another algorithm for fewer samples. Each number of samples is therefore tried.

    Args:
        of_part: makes the call for the samples from one number up to another.
        whole: the result of the call for all samples.
        work: the number of its multiplications.
    """
    same: dict[int, bool] = {}  # by the number of samples of a part
    most = min(torch.get_num_interop_threads(), len(whole), work // WORTH)
    for parts in range(2, most + 1):
        for begin, end in pairwise(edges_of_parts(len(whole), parts)):
            if end - begin not in same:
                found = of_part(begin, end)
                same[end - begin] = torch.equal(found, whole[begin:end])
        if not all(same.values()):
            return parts - 1
    return max(most, 1)


def convolution_outputs(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int, shape: list[int], layout: list[int], most: int, idle: list[Tensor],
) -> Tensor:  # fmt: skip
    """The outputs of a convolution; idle threads compute those of some samples.

    Args:
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups: as for PyTorch's ``convolution``.
        shape: the shape of the outputs.
        layout: their strides.
        most: see :func:`most_parts`.
        idle: the number of idle threads, int64 [], in a list that is empty if no other thread may be asked.
    """
    parts = min(most, 1 + int(idle[0])) if len(idle) > 0 else 1
    if parts < 2:
        found: Tensor = torch.ops.aten.convolution(
            x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )
        return found
    outputs = torch.empty_strided(shape, layout, dtype=x.dtype)
    edges = edges_of_parts(x.size(0), parts)
    calls = [
        torch.jit.fork(
            _outputs_of_part, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, outputs,
            edges[i], edges[i + 1],
        )
        for i in range(1, parts)
    ]  # fmt: skip
    _outputs_of_part(
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, outputs, edges[0], edges[1]
    )
    for call in calls:
        torch.jit.wait(call)
    return outputs


def _outputs_of_part(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int, outputs: Tensor, begin: int, end: int,
) -> Tensor:  # fmt: skip
    """Write the outputs for the samples from ``begin`` to ``end`` into ``outputs``."""
    found = torch.ops.aten.convolution(
        x[begin:end], weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )
    outputs[begin:end].copy_(found)
    return outputs
