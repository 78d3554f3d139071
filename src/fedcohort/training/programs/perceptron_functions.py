"""The training of several clients of a perceptron, and the norms of their gradients, each as one function, in TorchScript.

A step of a perceptron takes a fraction of a millisecond, so every call counts. The functions here make the calls of
:mod:`fedcohort.training.programs.plain_functions` in the same order, and therefore give the same bits, with fewer calls around them:
nothing is looked up that does not change from step to step, gradients are written to the same memory in every step, and predictions
are compared with the labels once in an epoch.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from fedcohort.training.programs.forward_functions import aligned_part
from fedcohort.training.programs.optimizer_steps import begin_training, correct, take_step, write_step
from fedcohort.training.programs.plain_layers import Layer

__all__ = ["Perceptron", "descend_series", "perceptron_of", "squared_norms"]

KINDS = frozenset({"linear", "relu", "gelu", "fast gelu", "tanh", "dropout", "flatten", "contiguous"})
"""Kinds of the layers of a perceptron."""
NEVER = 2**62
"""More samples than a batch has."""


class Perceptron(NamedTuple):
    """The layers of a perceptron as lists, each with an entry for every layer."""

    kinds: list[str]
    """As for :class:`~fedcohort.training.programs.plain_layers.Layer`, without layers that do nothing here."""
    weights: list[int]
    biases: list[int]
    """Positions of a linear layer's parameters among those of the network; -1 for none."""
    many: list[int]
    """Number of samples from which oneDNN computes the products of a linear layer."""
    short: list[int]
    """Maximum number of samples for which it does not compute the gradient of the weights."""
    kept: list[float]
    """Share of the values that Dropout keeps."""
    first: int
    """Position of the first linear layer, where the backward pass ends."""


def perceptron_of(layers: list[Layer], values: list[Tensor]) -> Perceptron | None:
    """The layers of a perceptron with these parameters; None if a network is none."""
    if not {layer.kind for layer in layers} <= KINDS:
        return None
    own = [layer for layer in layers if layer.kind != "contiguous"]
    return Perceptron(
        kinds=[layer.kind for layer in own],
        weights=[layer.weight for layer in own],
        biases=[layer.bias for layer in own],
        many=[_samples_of(layer, values) for layer in own],
        short=[layer.short for layer in own],
        kept=[layer.kept for layer in own],
        first=next(i for i, layer in enumerate(own) if layer.kind == "linear"),
    )


def _samples_of(layer: Layer, values: list[Tensor]) -> int:
    """Number of samples from which oneDNN computes the products of a layer."""
    if layer.kind != "linear" or layer.large >= NEVER or values[layer.weight].dtype != torch.float32:
        return NEVER
    return -(-int(layer.large) // values[layer.weight].numel())


def descend_series(
    network: Perceptron, start: list[Tensor], trained: list[list[Tensor]], features: Tensor, labels: Tensor, order: Tensor,
    edges: list[list[int]], size: int, rule: str, rates: list[float], nesterov: bool, states: list[list[Tensor]], fresh: bool,
    shifts: list[list[Tensor]], mu: float, clip: float, draws: list[list[torch.Generator]], keep: bool,
) -> tuple[Tensor, Tensor, list[list[Tensor]]]:  # fmt: skip
    """The steps of :meth:`Program.descend_series <fedcohort.training.programs.plain_network.Program.descend_series>`; see there and
    :func:`fedcohort.training.programs.plain_functions.descend`."""
    seen: list[Tensor] = []
    right: list[Tensor] = []
    kept: list[list[Tensor]] = []
    even = torch.full([size], 1 / size, dtype=start[0].dtype)
    slopes = _memory_like(start)
    for i in range(len(trained)):
        if keep:
            slopes = _memory_like(start)
            kept.append(slopes)
        hits = _descend(
            network, start, trained[i], features, labels, order, edges[i], even, rule, rates, nesterov, states, fresh,
            shifts[i], mu, clip, draws[i], slopes, seen,
        )  # fmt: skip
        right.append(hits)
    return torch.cat(seen), torch.stack(right), kept


def squared_norms(
    network: Perceptron, values: list[Tensor], inputs: Tensor, labels: Tensor, edges: list[list[int]], draws: list[torch.Generator]
) -> list[float]:  # fmt: skip
    """The numbers of :meth:`Program.squared_norms <fedcohort.training.programs.plain_network.Program.squared_norms>`; ``draws`` is
    empty."""
    found: list[float] = []
    slopes, ones = _memory_like(values), torch.ones([len(inputs)], dtype=values[0].dtype)
    total = [torch.empty_like(value, dtype=torch.float64) for value in values]
    for own in edges:
        for i in range(len(own) - 1):
            begin, end = own[i], own[i + 1]
            part = aligned_part(inputs, begin, end)
            _gradients(network, values, part, labels[begin:end], ones[: end - begin], draws, slopes)
            for k, slope in enumerate(slopes):
                if i == 0:
                    total[k].copy_(slope)
                else:
                    total[k] += slope
        square = 0.0
        for summed in total:
            square += float(summed.square_().sum())
        found.append(square)
    return found


def _descend(
    network: Perceptron, start: list[Tensor], values: list[Tensor], features: Tensor, labels: Tensor, order: Tensor,
    edges: list[int], even: Tensor, rule: str, rates: list[float], nesterov: bool, states: list[list[Tensor]], fresh: bool,
    shifts: list[Tensor], mu: float, clip: float, draws: list[torch.Generator], slopes: list[Tensor], seen: list[Tensor],
) -> Tensor:  # fmt: skip
    """The steps of one client, with batches of as many samples as ``even`` has; returns the number of correct predictions in its last
    epoch. Writes its parameters to ``values`` and its last gradients to ``slopes``; adds the losses of its steps to ``seen``."""
    hits = torch.zeros([], dtype=torch.int64)
    now, step, size = begin_training(values, start, rule, states), 0, len(even)
    for epoch in range(len(edges) - 1):
        inputs, targets = _between(features, labels, order, edges[epoch], edges[epoch + 1])
        shown: list[Tensor] = []
        for begin in range(0, len(targets), size):
            losses, outputs = _gradients(
                network, now, _batch(inputs, begin, size), targets[begin : begin + size], even, draws[step : step + 1], slopes
            )  # fmt: skip
            correct(slopes, now, shifts, start, mu, clip)
            if step == 0 and rule == "plain":
                write_step(values, start, slopes, rates[0])
            else:
                take_step(values, slopes, rule, rates, nesterov, states, fresh and step == 0)
            now = values
            step += 1
            seen.append(losses)
            shown.append(outputs)
        if epoch == len(edges) - 2:
            hits = (torch.cat(shown).argmax(1) == targets).sum()
    return hits


def _memory_like(values: list[Tensor]) -> list[Tensor]:
    """Uninitialized memory for a gradient of each parameter."""
    return [torch.empty_like(value) for value in values]


def _between(features: Tensor, labels: Tensor, order: Tensor, begin: int, end: int) -> tuple[Tensor, Tensor]:
    """The samples of an epoch in the order of its steps: those between two places of this order."""
    if len(order) == 0:
        return features[begin:end], labels[begin:end]
    own = order[begin:end]
    return features.index_select(0, own), labels.index_select(0, own)


def _batch(features: Tensor, begin: int, size: int) -> Tensor:
    """The batch that begins at ``begin``. It begins at a multiple of 64 bytes, since the bits of products depend on that."""
    inputs = features[begin : begin + size]
    if features[:1].numel() % 16 != 0:
        inputs = inputs.clone()
    return inputs.permute(0, 3, 1, 2) if inputs.dim() == 4 else inputs


def _gradients(
    network: Perceptron, values: list[Tensor], x: Tensor, labels: Tensor, even: Tensor, draws: list[torch.Generator],
    slopes: list[Tensor],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Write the gradients of the mean cross-entropy of a batch to ``slopes``.

    Args:
        network, values: the network.
        x, labels: the batch.
        even: one over the size of a full batch, for each of its samples.
        draws: the generator of Dropout; empty if there is none.
        slopes: memory for the gradient of each parameter.

    Returns:
        the cross-entropy of each sample, and the outputs.
    """
    given: list[Tensor] = []
    factors: list[Tensor] = []
    outputs = _outputs(network, values, x, draws, given, factors)
    if len(labels) < len(even):
        even = torch.full_like(even[: len(labels)], 1 / len(labels))
    scores = torch.log_softmax(outputs, 1)
    losses, total = torch.ops.aten.nll_loss_forward(scores, labels, None, 0, -100)
    delta = torch.ops.aten.nll_loss_backward(even, scores, labels, None, 0, -100, total)
    delta = torch.ops.aten._log_softmax_backward_data(delta, scores, 1, scores.dtype)
    kinds, first = network.kinds, network.first
    for i in range(len(kinds) - 1, first - 1, -1):
        kind = kinds[i]
        if kind == "linear":
            delta = _before_linear(network, values, i, given[i], delta, slopes)
        elif kind == "relu":
            delta = torch.ops.aten.threshold_backward(delta, given[i], 0)
        elif kind == "tanh":
            delta = torch.ops.aten.tanh_backward(delta, given[i])
        elif kind == "gelu":
            delta = torch.ops.aten.gelu_backward(delta, given[i])
        elif kind == "fast gelu":
            delta = torch.ops.aten.gelu_backward(delta, given[i], approximate="tanh")
        elif kind == "dropout" and len(draws) > 0:
            delta = delta * factors.pop()
    return losses, outputs


def _outputs(
    network: Perceptron, values: list[Tensor], x: Tensor, draws: list[torch.Generator], given: list[Tensor], factors: list[Tensor]
) -> Tensor:  # fmt: skip
    """The outputs of a network; adds what the backward pass needs: the inputs of each layer, or the outputs of ReLU and tanh, and the
    factors of Dropout."""
    for i, kind in enumerate(network.kinds):
        given.append(x)
        if kind == "linear":
            x = _linear(network, values, i, x)
        elif kind == "relu":
            x = torch.relu_(x)
        elif kind == "tanh":
            x = torch.tanh(x)
            given[-1] = x
        elif kind == "gelu":
            x = functional.gelu(x)
        elif kind == "fast gelu":
            x = functional.gelu(x, approximate="tanh")
        elif kind == "flatten":
            x = x.flatten(1)
        elif len(draws) > 0:
            factors.append(torch.empty_like(x).bernoulli_(network.kept[i], generator=draws[0]).div_(network.kept[i]))
            x = x * factors[-1]
    return x


def _linear(network: Perceptron, values: list[Tensor], i: int, x: Tensor) -> Tensor:
    """The outputs of a linear layer."""
    bias = values[network.biases[i]] if network.biases[i] >= 0 else None
    if len(x) >= network.many[i]:
        outputs: Tensor = torch.ops.mkldnn._linear_pointwise(x, values[network.weights[i]], bias, "none", [], "")
        return outputs
    return functional.linear(x, values[network.weights[i]], bias)


def _before_linear(
    network: Perceptron, values: list[Tensor], i: int, x: Tensor, delta: Tensor, slopes: list[Tensor]
) -> Tensor:  # fmt: skip
    """Write the gradients of a linear layer's parameters to ``slopes``; returns the gradient of its inputs, unless it is the first."""
    weight, large = network.weights[i], len(x) >= network.many[i]
    if large and len(x) > network.short[i]:
        slopes[weight] = torch.ops.mkldnn._linear_pointwise(delta.t(), x.t(), None, "none", [], "")
    else:
        torch.mm(delta.t(), x, out=slopes[weight])
    if network.biases[i] >= 0:
        torch.sum(delta, [0], out=slopes[network.biases[i]])
    if i == network.first:
        return delta
    if large:
        before: Tensor = torch.ops.mkldnn._linear_pointwise(delta, values[weight].t(), None, "none", [], "")
        return before
    return torch.mm(delta, values[weight])
