"""The calls of single layers of a plain network, in TorchScript: forward, and backward as autograd makes them.

:mod:`fedcohort.training.programs.plain_functions` puts them together.
"""

import torch
from torch import Tensor
from torch.nn import functional

from fedcohort.training.programs.plain_layers import Layer

__all__ = [
    "before",
    "before_norm",
    "layer_gradients",
    "normalized",
    "outputs",
    "pooled",
    "unpooled",
]


def outputs(layer: Layer, values: list[Tensor], x: Tensor) -> Tensor:
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


def before(layer: Layer, x: Tensor, delta: Tensor) -> Tensor:
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


def layer_gradients(
    layer: Layer, values: list[Tensor], x: Tensor, delta: Tensor, back: bool, own: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a convolution or of a linear layer.

    Returns:
        with ``back``, the gradient of the inputs; with ``own``, those of the weights, in their layout, and of the bias.
    """
    weight = values[layer.weight]
    inner, outer, shift = delta, weight, weight
    if layer.kind == "convolution":
        results: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
            delta, x, weight, [weight.size(0)], layer.stride, layer.padding, layer.dilation, False, [0, 0],
            layer.groups, [back, own, own and layer.bias >= 0],
        )  # fmt: skip
        inner, outer, shift = results
    else:
        large = _large(layer, values, x)
        if own:
            outer = _times(delta.t(), x, large and len(x) > layer.short)
            shift = delta.sum(0)
        if back:
            inner = _times(delta, weight, large)
    if own and outer.stride() != weight.stride():
        outer = torch.empty_like(weight).copy_(outer)
    return inner, outer, shift


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


def _times(x: Tensor, y: Tensor, large: bool) -> Tensor:
    """The product of two matrices; ``large`` as for :func:`_product`, with the same bits."""
    return _product(x, y.t(), None, True) if large else torch.mm(x, y)


def normalized(layer: Layer, values: list[Tensor], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs of a group norm, and the mean and the inverse deviation of each group."""
    outputs_and_statistics: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_group_norm(
        x, values[layer.weight], values[layer.bias], x.size(0), x.size(1), x.size(2) * x.size(3), layer.groups,
        layer.epsilon,
    )  # fmt: skip
    return outputs_and_statistics


def before_norm(
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


def pooled(layer: Layer, x: Tensor) -> tuple[Tensor, Tensor]:
    """The maximum of each window of a pooling, and its place."""
    maxima_and_places: tuple[Tensor, Tensor] = torch.ops.aten.max_pool2d_with_indices(
        x, layer.kernel, layer.stride, layer.padding, layer.dilation, layer.ceil
    )
    return maxima_and_places


def unpooled(layer: Layer, x: Tensor, place: Tensor, delta: Tensor) -> Tensor:
    """The gradient of the inputs of a pooling."""
    before: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
        delta, x, layer.kernel, layer.stride, layer.padding, layer.dilation, layer.ceil, place
    )
    return before
