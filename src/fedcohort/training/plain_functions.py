"""The functions of a plain network's program, in TorchScript: the part of Python that PyTorch runs without Python.

:mod:`fedcohort.training.plain_network` calls them. They make the calls that autograd and the optimizers would make.
"""

import torch
from torch import Tensor
from torch.nn import functional

from fedcohort.training.plain_layers import Layer

__all__ = ["descend", "descend_series", "gradients", "outputs_of_parts"]


def descend_series(
    layers: list[Layer], start: list[Tensor], trained: list[list[Tensor]], features: Tensor, labels: Tensor, order: Tensor,
    edges: list[list[int]], size: int, rule: str, rates: list[float], nesterov: bool, states: list[list[Tensor]], fresh: bool,
    shifts: list[list[Tensor]], mu: float, keep: bool,
) -> tuple[Tensor, Tensor, list[list[Tensor]]]:  # fmt: skip
    """The steps of :meth:`Program.descend_series <fedcohort.training.plain_network.Program.descend_series>`; see there and
    :func:`descend`."""
    seen: list[Tensor] = []
    right: list[Tensor] = []
    slopes: list[list[Tensor]] = []
    draws: list[torch.Generator] = []
    for i in range(len(trained)):
        values = trained[i]
        for j in range(len(values)):
            values[j].copy_(start[j])
        if rule == "adam" or rule == "adamw":
            for part in states:
                torch._foreach_zero_(part)
        hits = torch.zeros([], dtype=torch.int64)
        last: list[Tensor] = []
        for epoch in range(len(edges[i]) - 1):
            own = order[edges[i][epoch] : edges[i][epoch + 1]]
            losses, hits, last = descend(
                layers, values, features, labels, own, size, rule, rates, nesterov, states, fresh and epoch == 0,
                shifts[i], start, mu, draws,
            )  # fmt: skip
            seen.extend(losses)
        right.append(hits)
        if keep:
            slopes.append(last)
    return torch.cat(seen), torch.stack(right), slopes


def descend(
    layers: list[Layer], values: list[Tensor], features: Tensor, labels: Tensor, order: Tensor, size: int,
    rule: str, rates: list[float], nesterov: bool, states: list[list[Tensor]], fresh: bool,
    shifts: list[Tensor], anchors: list[Tensor], mu: float, draws: list[torch.Generator],
) -> tuple[list[Tensor], Tensor, list[Tensor]]:  # fmt: skip
    """The steps of :meth:`Program.descend <fedcohort.training.plain_network.Program.descend>`.

    Args:
        layers, values: the network.
        features, labels, order, size: see there.
        rule, rates, nesterov, states, fresh: what the optimizer does, see :class:`fedcohort.training.optimizers.Rule`.
        shifts: added to the gradients of every step; empty for none.
        anchors, mu: μ·(values − anchors) is added to the gradients of every step, unless μ is 0.
        draws: for every step, the generator of Dropout; empty if there is none.
    """
    seen: list[Tensor] = []
    right = torch.zeros([], dtype=torch.int64)
    last: list[Tensor] = []
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        inputs = features.index_select(0, batch)
        if inputs.dim() == 4:
            inputs = inputs.permute(0, 3, 1, 2)
        step = start // size
        own = draws[step : step + 1]
        losses, hits, last = gradients(layers, values, inputs, labels.index_select(0, batch), None, len(batch), own)
        if mu != 0:
            for i in range(len(values)):
                last[i].add_(values[i] - anchors[i], alpha=mu)
        if len(shifts) > 0:
            torch._foreach_add_(last, shifts)
        _step(values, last, rule, rates, nesterov, states, fresh and start == 0)
        seen.append(losses)
        right += hits
    return seen, right, last


def _step(
    values: list[Tensor], slopes: list[Tensor], rule: str, rates: list[float], nesterov: bool,
    states: list[list[Tensor]], first: bool,
) -> None:  # fmt: skip
    """A step of the optimizer."""
    if rule == "plain":
        torch._foreach_add_(values, slopes, alpha=-rates[0])
    elif rule == "sgd":
        torch._fused_sgd_(
            values, slopes, states[0], weight_decay=rates[1], momentum=rates[2], lr=rates[0], dampening=0.0,
            nesterov=nesterov, maximize=False, is_first_step=first,
        )  # fmt: skip
    else:
        none: list[Tensor] = []
        torch._foreach_add_(states[2], 1.0)
        if rule == "adam":
            torch._fused_adam_(
                values, slopes, states[0], states[1], none, states[2], lr=rates[0], beta1=rates[2], beta2=rates[3],
                weight_decay=rates[1], eps=rates[4], amsgrad=False, maximize=False,
            )  # fmt: skip
        else:
            torch._fused_adamw_(
                values, slopes, states[0], states[1], none, states[2], lr=rates[0], beta1=rates[2], beta2=rates[3],
                weight_decay=rates[1], eps=rates[4], amsgrad=False, maximize=False,
            )  # fmt: skip


def outputs_of_parts(layers: list[Layer], values: list[Tensor], inputs: Tensor, edges: list[int]) -> Tensor:
    """The network's outputs [n, K] on the parts of ``inputs`` between neighboring ``edges``, one part at a time."""
    parts: list[Tensor] = []
    for i in range(len(edges) - 1):
        x = inputs[edges[i] : edges[i + 1]]
        for layer in layers:
            if layer.kind == "pooling":
                x = _pooled(layer, x)[0]
            elif layer.kind == "norm":
                x = _normalized(layer, values, x)[0]
            else:
                x = _outputs(layer, values, x)
        parts.append(x)
    return torch.cat(parts)


def gradients(
    layers: list[Layer], values: list[Tensor], inputs: Tensor, labels: Tensor, weights: Tensor | None, size: int,
    draws: list[torch.Generator],
) -> tuple[Tensor, Tensor, list[Tensor]]:  # fmt: skip
    """The gradient of :meth:`Program.backward <fedcohort.training.plain_network.Program.backward>`; ``draws`` is empty, or the
    generator of Dropout, which otherwise does nothing."""
    given: list[Tensor] = []
    notes: list[Tensor] = []
    x = _noted_outputs(layers, values, inputs, given, notes, draws)
    scores = torch.log_softmax(x, 1)
    losses, total = torch.ops.aten.nll_loss_forward(scores, labels, None, 0, -100)
    hits = (x.argmax(1) == labels).sum()

    slopes = torch.full_like(losses, 1 / size)
    if weights is not None:
        slopes = (torch.full_like(losses * weights, 1 / size) * weights).to(losses.dtype)
    delta = torch.ops.aten.nll_loss_backward(slopes, scores, labels, None, 0, -100, total)
    delta = torch.ops.aten._log_softmax_backward_data(delta, scores, 1, scores.dtype)
    found = list(values)  # every entry is replaced below
    for i in range(len(layers) - 1, -1, -1):
        layer, x = layers[i], given.pop()
        if layer.kind == "pooling":
            delta = _unpooled(layer, x, notes.pop(), delta)
        elif layer.kind == "norm":
            deviation = notes.pop()
            delta = _before_norm(layer, values, x, notes.pop(), deviation, delta, found)
        elif layer.kind == "dropout":
            delta = delta * notes.pop() if len(draws) > 0 else delta
        elif layer.weight < 0:
            delta = _before(layer, x, delta)
        else:
            delta = _parameter_gradients(layer, values, x, delta, found)
        if not layer.back:
            break
    return losses, hits, found


def _noted_outputs(
    layers: list[Layer], values: list[Tensor], x: Tensor, given: list[Tensor], notes: list[Tensor],
    draws: list[torch.Generator],
) -> Tensor:  # fmt: skip
    """The network's outputs; notes what the backward pass needs.

    Args:
        layers, values: the network.
        x: inputs.
        given: the inputs of each layer are added; for tanh, its outputs.
        notes: where the largest number of each window of a pooling is, the statistics of group norms, and the factors of Dropout are
            added.
        draws: the generator of Dropout, or nothing.
    """
    for layer in layers:
        given.append(x)
        if layer.kind == "pooling":
            x, place = _pooled(layer, x)
            notes.append(place)
        elif layer.kind == "norm":
            x, mean, deviation = _normalized(layer, values, x)
            notes.append(mean)
            notes.append(deviation)
        elif layer.kind == "dropout":
            if len(draws) > 0:
                factors = torch.empty_like(x).bernoulli_(layer.kept, generator=draws[0]).div_(layer.kept)
                notes.append(factors)
                x = x * factors
        else:
            x = _outputs(layer, values, x)
            if layer.kind == "tanh":
                given[-1] = x
    return x


def _outputs(layer: Layer, values: list[Tensor], x: Tensor) -> Tensor:
    """Outputs of a layer other than max-pooling and a group norm; Dropout does nothing."""
    if layer.kind == "dropout":
        return x
    if layer.kind == "relu":
        return torch.relu_(x)
    if layer.kind == "flatten":
        return x.flatten(1)
    if layer.kind == "contiguous":
        return x.contiguous()
    if layer.kind == "tanh":
        return torch.tanh(x)
    if layer.kind == "gelu":
        return functional.gelu(x)
    if layer.kind == "fast gelu":
        return functional.gelu(x, approximate="tanh")
    if layer.kind == "average":
        means: Tensor = torch.ops.aten.avg_pool2d(
            x, layer.kernel, layer.stride, layer.padding, layer.ceil, layer.padded, None
        )
        return means
    if layer.kind == "whole average":
        whole: Tensor = torch.ops.aten.adaptive_avg_pool2d(x, [1, 1])
        return whole
    bias = values[layer.bias] if layer.bias >= 0 else None
    if layer.kind == "convolution":
        return torch.conv2d(x, values[layer.weight], bias, layer.stride, layer.padding, layer.dilation, layer.groups)
    return _product(x, values[layer.weight], bias, _large(layer, values, x))


def _before(layer: Layer, x: Tensor, delta: Tensor) -> Tensor:
    """The gradient of the inputs of a layer without parameters except max-pooling; ``x`` are its inputs, or the outputs of tanh."""
    if layer.kind == "flatten":
        return delta.view(x.size())
    if layer.kind == "contiguous":
        return delta
    before: Tensor = delta
    if layer.kind == "relu":
        before = torch.ops.aten.threshold_backward(delta, x, 0)
    elif layer.kind == "tanh":
        before = torch.ops.aten.tanh_backward(delta, x)
    elif layer.kind == "average":
        before = torch.ops.aten.avg_pool2d_backward(
            delta, x, layer.kernel, layer.stride, layer.padding, layer.ceil, layer.padded, None
        )
    elif layer.kind == "whole average":
        before = delta.expand(x.size()) / (x.size(2) * x.size(3))
    elif layer.kind == "gelu":
        before = torch.ops.aten.gelu_backward(delta, x)
    else:
        before = torch.ops.aten.gelu_backward(delta, x, approximate="tanh")
    return before


def _parameter_gradients(
    layer: Layer, values: list[Tensor], x: Tensor, delta: Tensor, gradients: list[Tensor]
) -> Tensor:
    """Put the gradients of the layer's parameters into ``gradients``; returns the gradient of its inputs."""
    weight = values[layer.weight]
    if layer.kind == "convolution":
        results: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
            delta, x, weight, [weight.size(0)], layer.stride, layer.padding, layer.dilation, False, [0, 0],
            layer.groups, [layer.back, True, layer.bias >= 0],
        )  # fmt: skip
        before, own, shift = results
    else:
        large = _large(layer, values, x)
        own = _product(delta.t(), x.t(), None, large)
        shift = delta.sum(0)
        before = _product(delta, weight.t(), None, large) if layer.back else delta
    if own.stride() != weight.stride():
        own = torch.empty_like(weight).copy_(own)
    gradients[layer.weight] = own
    if layer.bias >= 0:
        gradients[layer.bias] = shift
    return before


def _large(layer: Layer, values: list[Tensor], x: Tensor) -> bool:
    """Whether oneDNN computes the layer's products, by the rule of :func:`fedcohort.training.matrix_products.quick_products`."""
    size = x.numel() * values[layer.weight].size(0)
    return size >= layer.large and x.dtype == torch.float32 and x.is_contiguous()


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, large: bool) -> Tensor:
    """x Wᵀ + b."""
    if large:
        outputs: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return outputs
    return functional.linear(x, weight, bias)


def _normalized(layer: Layer, values: list[Tensor], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs of a group norm, and the mean and the inverse deviation of each group."""
    outputs_and_statistics: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_group_norm(
        x, values[layer.weight], values[layer.bias], x.size(0), x.size(1), x.size(2) * x.size(3), layer.groups,
        layer.epsilon,
    )  # fmt: skip
    return outputs_and_statistics


def _before_norm(
    layer: Layer, values: list[Tensor], x: Tensor, mean: Tensor, deviation: Tensor, delta: Tensor, gradients: list[Tensor]
) -> Tensor:  # fmt: skip
    """Put the gradients of a group norm's parameters into ``gradients``; returns the gradient of its inputs."""
    if delta.stride() != x.stride():
        delta = torch.empty_like(x).copy_(delta)
    results: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_group_norm_backward(
        delta, x, mean, deviation, values[layer.weight], x.size(0), x.size(1), x.size(2) * x.size(3), layer.groups,
        [layer.back, True, True],
    )  # fmt: skip
    before, own, shift = results
    gradients[layer.weight] = own
    gradients[layer.bias] = shift
    return before


def _pooled(layer: Layer, x: Tensor) -> tuple[Tensor, Tensor]:
    """The maximum of each window of a pooling, and its place."""
    maxima_and_places: tuple[Tensor, Tensor] = torch.ops.aten.max_pool2d_with_indices(
        x, layer.kernel, layer.stride, layer.padding, layer.dilation, layer.ceil
    )
    return maxima_and_places


def _unpooled(layer: Layer, x: Tensor, place: Tensor, delta: Tensor) -> Tensor:
    """The gradient of the inputs of a pooling."""
    before: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
        delta, x, layer.kernel, layer.stride, layer.padding, layer.dilation, layer.ceil, place
    )
    return before
