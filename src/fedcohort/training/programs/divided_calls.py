"""Calls in scripts (TorchScript) that threads divide: convolutions treat each sample alone, and products each row."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from fedcohort.training.programs.forward_functions import edges_of_parts

__all__ = ["convolution_outputs", "linear_outputs", "most_parts", "multiplications", "parts_now", "product"]


def multiplications(outputs: Tensor, weight: Tensor) -> int:
    """The number of multiplications for these outputs of a layer; ``weight`` has one entry of the first dimension per output."""
    return outputs.numel() * (weight.numel() // weight.size(0))


def most_parts(of_part: Callable[[int, int], Sequence[Tensor]], whole: Sequence[Tensor], work: int, worth: int) -> int:
    """The maximum number of parts into which threads may divide the rows of a call, with the same bits; 1 if that is not worth it.

    Libraries may choose another algorithm for fewer rows. Each number of rows is therefore tried.

    Args:
        of_part: makes the call for the rows (samples of a convolution) from one number up to another.
        whole: the results of the call for all rows.
        work: the number of its multiplications.
        worth: the minimum number of those of a part.
    """
    same: dict[int, bool] = {}  # by the number of rows of a part
    rows = len(whole[0])
    most = min(torch.get_num_interop_threads(), rows, work // worth)
    for parts in range(2, most + 1):
        for begin, end in pairwise(edges_of_parts(rows, parts)):
            if end - begin not in same:
                found = of_part(begin, end)
                same[end - begin] = all(
                    torch.equal(part, one[begin:end]) for part, one in zip(found, whole, strict=True)
                )
        if not all(same.values()):
            return parts - 1
    return max(most, 1)


def parts_now(most: int, idle: list[Tensor]) -> int:
    """Into how many parts a call is divided now."""
    return min(most, 1 + int(idle[0])) if len(idle) > 0 else 1


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
    parts = parts_now(most, idle)
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


def product(a: Tensor, b: Tensor, bias: Tensor | None, most: int, idle: list[Tensor]) -> Tensor:
    """The matrix product a·b, plus ``bias`` in each row; idle threads compute some rows. ``most`` and ``idle`` are as for
    :func:`convolution_outputs`.

    Args:
        a: [n, k].
        b: [k, m].
        bias: [m].
    """
    outputs = torch.empty([a.size(0), b.size(1)], dtype=a.dtype)
    return _in_parts(a, b, bias, outputs, parts_now(most, idle), onednn=False)


def linear_outputs(
    x: Tensor, weight: Tensor, bias: Tensor | None, shape: list[int], most: int, idle: list[Tensor]
) -> Tensor:
    """The outputs of a linear layer by oneDNN; idle threads compute those of some samples. ``most`` and ``idle`` are as for
    :func:`convolution_outputs`.

    Args:
        x: inputs, of any number of dimensions, the last of which is summed over.
        weight: [outputs, inputs].
        bias: [outputs].
        shape: the shape of the outputs.
    """
    parts = parts_now(most, idle)
    if parts < 2:
        return _by_onednn(x, weight, bias)
    return _in_parts(x, weight, bias, torch.empty(shape, dtype=x.dtype), parts, onednn=True)


def _in_parts(a: Tensor, b: Tensor, bias: Tensor | None, outputs: Tensor, parts: int, *, onednn: bool) -> Tensor:
    """Write a product into ``outputs``, with the rows of one part by each thread."""
    edges = edges_of_parts(a.size(0), parts)
    calls = [torch.jit.fork(_rows, a, b, bias, outputs, edges[i], edges[i + 1], onednn) for i in range(1, parts)]
    _rows(a, b, bias, outputs, edges[0], edges[1], onednn)
    for call in calls:
        torch.jit.wait(call)
    return outputs


def _rows(a: Tensor, b: Tensor, bias: Tensor | None, outputs: Tensor, begin: int, end: int, onednn: bool) -> Tensor:
    """Write the rows from ``begin`` to ``end`` of a product into ``outputs``."""
    if onednn:
        outputs[begin:end].copy_(_by_onednn(a[begin:end], b, bias))
    elif bias is None:
        torch.mm(a[begin:end], b, out=outputs[begin:end])
    else:
        torch.addmm(bias, a[begin:end], b, out=outputs[begin:end])
    return outputs


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The outputs of a linear layer, without an activation."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found
