"""Into how many parts the forward pass of a plain network may divide a batch, with the same bits."""

from itertools import pairwise

import torch
from torch import Tensor

from fedcohort.core.threads import one_thread
from fedcohort.training.programs.forward_functions import edges_of_parts, outputs_of_one
from fedcohort.training.programs.plain_layers import Layer

__all__ = ["divided_layers", "most_parts"]

ALONE = (
    "convolution",
    "norm",
    "pooling",
    "average",
    "whole average",
    "relu",
    "gelu",
    "fast gelu",
    "tanh",
    "contiguous",
)
"""Kinds of layers that treat each sample alone. Products of linear layers may have other bits for fewer samples, and Dropout draws
numbers for a batch."""
WORTH = 2**22
"""Minimum number of multiplications of a part."""


def divided_layers(layers: list[Layer]) -> int:
    """The number of layers at the beginning of the network that treat each sample alone; 0 if none of them is a convolution."""
    count = next((i for i, layer in enumerate(layers) if layer.kind not in ALONE), len(layers))
    return count if any(layer.kind == "convolution" for layer in layers[:count]) else 0


def most_parts(layers: list[Layer], values: list[Tensor], shape: tuple[int, ...], threads: int) -> int:
    """The maximum number of parts, at most one per thread, into which these layers may divide a batch of images; 1 if dividing it is
    not worth it.

    Libraries may choose another algorithm for fewer images, with other bits. Each size of a part is therefore tried on a random batch
    and random weights.

    Args:
        layers: see :func:`divided_layers`.
        values: the network's parameters, of which only the shapes count.
        shape: shape of the batch as it is in memory, [n, height, width, channels].
        threads: number of threads.
    """
    if not layers or threads < 2:
        return 1
    draw = torch.Generator().manual_seed(0)
    batch = torch.randn(shape, generator=draw, dtype=values[0].dtype).permute(0, 3, 1, 2)
    weights = [_random_like(value, draw) for value in values]
    same: dict[
        int, bool
    ] = {}  # by the number of images of a part, whether they have the bits that they have in the batch
    with torch.no_grad(), one_thread():
        whole, given, _ = outputs_of_one(layers, weights, batch.clone())
        most = min(threads, len(batch), _multiplications(layers, weights, [*given, whole]) // WORTH)
        for parts in range(2, most + 1):
            for size in {b - a for a, b in pairwise(edges_of_parts(len(batch), parts))} - same.keys():
                found = outputs_of_one(layers, weights, batch.clone()[-size:])[0]
                same[size] = torch.equal(whole[-size:], found)
            if not all(same.values()):
                return parts - 1
    return max(most, 1)


def _random_like(value: Tensor, draw: torch.Generator) -> Tensor:
    """Random numbers in the shape and layout of a parameter, scaled so that outputs are about as large as inputs."""
    inputs = max(1, value[0].numel())
    return torch.empty_like(value).copy_(torch.randn(value.shape, generator=draw, dtype=value.dtype) / inputs**0.5)


def _multiplications(layers: list[Layer], weights: list[Tensor], passed: list[Tensor]) -> int:
    """The number of multiplications of all convolutions; ``passed`` are the inputs of each layer, and the outputs of the last one."""
    return sum(
        passed[i + 1].numel() * weights[layer.weight][0].numel()
        for i, layer in enumerate(layers)
        if layer.kind == "convolution"
    )
