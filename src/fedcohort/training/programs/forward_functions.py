"""The forward pass of a plain network's program, in TorchScript, by one thread or by several that each take a part of the batch.

:mod:`fedcohort.training.programs.plain_functions` adds the backward pass.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedcohort.training.programs.layer_functions import normalized, outputs, pooled
from fedcohort.training.programs.plain_layers import Layer

__all__ = ["Helpers", "aligned_part", "edges_of_parts", "noted_outputs", "outputs_of_one", "outputs_of_parts"]


class Helpers(NamedTuple):
    """Other threads that may take a part of the work."""

    idle: Tensor
    """How many of them are idle, int64 []; it may change at any time."""
    layers: int
    """Number of layers at the beginning of the network that can take a batch in parts, with the same bits."""
    parts: dict[int, int]
    """By the size of a batch with channels last, the maximum number of parts."""


def aligned_part(inputs: Tensor, begin: int, end: int) -> Tensor:
    """The samples between two places of a batch whose memory is aligned. They begin at a multiple of 64 bytes, as a batch of their own
    does, since the bits of products depend on that."""
    part = inputs[begin:end]
    return part.clone() if begin * inputs[:1].numel() * inputs.element_size() % 64 != 0 else part


def outputs_of_parts(layers: list[Layer], values: list[Tensor], inputs: Tensor, edges: list[int]) -> Tensor:
    """The network's outputs [n, K] on the parts of ``inputs`` between neighboring ``edges``, one part at a time."""
    parts: list[Tensor] = []
    for i in range(len(edges) - 1):
        x = aligned_part(inputs, edges[i], edges[i + 1])
        for layer in layers:
            if layer.kind == "pooling":
                x = pooled(layer, x)[0]
            elif layer.kind == "norm":
                x = normalized(layer, values, x)[0]
            else:
                x = outputs(layer, values, x)
        parts.append(x)
    return torch.cat(parts)


def noted_outputs(
    layers: list[Layer], values: list[Tensor], x: Tensor, given: list[Tensor], notes: list[Tensor],
    draws: list[torch.Generator], helpers: list[Helpers],
) -> Tensor:  # fmt: skip
    """The network's outputs; notes what the backward pass needs.

    Args:
        layers, values: the network.
        x: inputs.
        given: the inputs of each layer are added; for tanh, its outputs. Of inputs of which the backward pass needs only the shape,
            such as those of a pooling, the numbers may be missing.
        notes: where the largest number of each window of a pooling is, the statistics of group norms, and the factors of Dropout are
            added.
        draws: the generator of Dropout, or nothing.
        helpers: threads that may take parts of the batch, or nothing.
    """
    divided = 0
    if len(helpers) > 0 and len(x) in helpers[0].parts and x.is_contiguous(memory_format=torch.channels_last):
        parts = min(helpers[0].parts[len(x)], 1 + int(helpers[0].idle))
        if parts > 1:
            divided = helpers[0].layers
            x = _outputs_by_parts(layers[:divided], values, x, given, notes, parts)
    return _outputs_one_by_one(layers[divided:], values, x, given, notes, draws)


def _outputs_by_parts(
    layers: list[Layer], values: list[Tensor], x: Tensor, given: list[Tensor], notes: list[Tensor], parts: int
) -> Tensor:
    """The outputs of these layers, which treat each sample alone; other threads compute all parts of the batch but the first."""
    edges = edges_of_parts(len(x), parts)
    calls = [torch.jit.fork(outputs_of_one, layers, values, x[edges[i] : edges[i + 1]]) for i in range(1, parts)]
    found = [outputs_of_one(layers, values, x[: edges[1]])]
    for call in calls:
        found.append(torch.jit.wait(call))
    end = torch.cat([one[0] for one in found])
    given.extend(_joined_inputs(layers, x, [one[1] for one in found], end))
    for i in range(len(found[0][2])):
        notes.append(torch.cat([one[2][i] for one in found]))
    return end


def _joined_inputs(layers: list[Layer], x: Tensor, given: list[list[Tensor]], end: Tensor) -> list[Tensor]:
    """What :func:`noted_outputs` notes as the inputs of each layer.

    Args:
        layers: these layers.
        x: the inputs of the first one.
        given: the same for each part of the batch.
        end: the outputs of the last one.
    """
    joined = list(given[0])  # every entry is replaced below
    behind, has_numbers = end, True  # the outputs of layer i
    for back in range(len(layers)):
        i = len(layers) - 1 - back
        kind = layers[i].kind
        if kind in ["pooling", "average", "whole average", "contiguous"]:
            behind, has_numbers = _shape_only(given[0][i], len(x)), False
        elif not (has_numbers and kind in ["relu", "tanh"]):  # which note their outputs
            behind, has_numbers = torch.cat([one[i] for one in given]), True
        joined[i] = behind
    if layers[0].kind != "tanh":
        joined[0] = x
    return joined


def edges_of_parts(samples: int, parts: int) -> list[int]:
    """Where each part of a batch begins, and where the last one ends."""
    return [i * samples // parts for i in range(parts + 1)]


def outputs_of_one(layers: list[Layer], values: list[Tensor], x: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The outputs for one part of a batch, and what the backward pass needs, see :func:`noted_outputs`."""
    given: list[Tensor] = []
    notes: list[Tensor] = []
    draws: list[torch.Generator] = []
    end = _outputs_one_by_one(layers, values, x, given, notes, draws)
    return end, given, notes


def _shape_only(piece: Tensor, samples: int) -> Tensor:
    """Numbers that mean nothing, in the shape and layout of a piece, for so many samples."""
    sizes = list(piece.size())
    sizes[0] = samples
    return torch.empty_strided(sizes, piece.stride(), dtype=piece.dtype)


def _outputs_one_by_one(
    layers: list[Layer], values: list[Tensor], x: Tensor, given: list[Tensor], notes: list[Tensor],
    draws: list[torch.Generator],
) -> Tensor:  # fmt: skip
    """As :func:`noted_outputs`, by the calling thread alone."""
    for layer in layers:
        given.append(x)
        if layer.kind == "pooling":
            x, place = pooled(layer, x)
            notes.append(place)
        elif layer.kind == "norm":
            x, mean, deviation = normalized(layer, values, x)
            notes.append(mean)
            notes.append(deviation)
        elif layer.kind == "dropout":
            if len(draws) > 0:
                factors = torch.empty_like(x).bernoulli_(layer.kept, generator=draws[0]).div_(layer.kept)
                notes.append(factors)
                x = x * factors
        else:
            x = outputs(layer, values, x)
            if layer.kind == "tanh":
                given[-1] = x
    return x
