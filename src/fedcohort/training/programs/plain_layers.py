"""The layers of a plain network, in the form in which :mod:`fedcohort.training.programs.plain_network` uses them."""

import math
from typing import Any, NamedTuple

from torch import nn

from fedcohort.training.matrix_products import product_limit, short_batch
from fedcohort.training.programs.traced_networks import Contiguous

__all__ = ["Layer", "layers_of"]

NONE = -1
"""Stands for the position of a parameter that the layer does not have."""


class Layer(NamedTuple):
    """What a layer does, and its parameters, as their positions among the network's parameters."""

    kind: str
    """convolution, norm, pooling, average, whole average, linear, relu, gelu, fast gelu, tanh, dropout, flatten, or contiguous."""
    weight: int
    bias: int
    back: bool
    """Whether layers before it need the gradient of its inputs."""
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    """Groups of a convolution, or of a group norm."""
    ceil: bool
    padded: bool
    """Whether the mean of a window of average pooling counts the padding."""
    epsilon: float
    """ε of a group norm."""
    kept: float
    """Share of the values that Dropout keeps."""
    large: float
    """Minimum number of multiplications for which oneDNN is used, see :mod:`fedcohort.training.matrix_products`."""
    short: int
    """Maximum number of samples for which it is not used for the gradient of the weights."""


BARE = Layer("relu", NONE, NONE, True, [1, 1], [1, 1], [0, 0], [1, 1], 1, False, True, 0.0, 1.0, math.inf, 0)
"""A layer without parameters; other layers are made from it."""


_KINDS: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.Tanh: "tanh", Contiguous: "contiguous"}
_GELUS = {"none": "gelu", "tanh": "fast gelu"}
"""Kinds of GELU by the approximation that they use."""


def layers_of(row: list[nn.Module], parameters: list[nn.Parameter], *, is_flat: bool) -> list[Layer] | None:
    """What the layers of a row do, if each parameter belongs to exactly one of them and outputs are [B, K]; None otherwise.

    ``is_flat`` says whether the inputs are [B, d] instead of images.
    """
    numbers = {id(parameter): i for i, parameter in enumerate(parameters)}
    layers: list[Layer] = []
    used: list[int] = []
    for part in row:
        layer = _layer(part, numbers, is_flat)
        if layer is None:
            return None
        layers.append(layer._replace(back=bool(used)))
        used += [number for number in (layer.weight, layer.bias) if number != NONE]
        is_flat = is_flat or layer.kind == "flatten"
    if any(layer.kind == "relu" and _keeps_outputs(layers[:i]) for i, layer in enumerate(layers)):
        return None
    complete = is_flat and used and sorted(used) == list(range(len(parameters)))
    return layers if complete else None


def _keeps_outputs(before: list[Layer]) -> bool:
    """Whether the outputs of these layers, which ReLU would change in place, are kept for the backward pass of tanh."""
    own = [layer.kind for layer in before if layer.kind not in ("flatten", "contiguous", "relu", "dropout")]
    return own[-1:] == ["tanh"]


def _layer(part: nn.Module, numbers: dict[int, int], is_flat: bool) -> Layer | None:
    """The layer, or None if the program does not support it; ``numbers`` maps the ``id`` of each parameter to its position."""
    own = {name: NONE if value is None else numbers[id(value)] for name, value in part._parameters.items()}
    if part._buffers:
        return None
    if not own:
        return _layer_without_parameters(part, is_flat)
    if set(own) != {"weight", "bias"} or own["weight"] == NONE:
        return None
    bare = BARE._replace(weight=own["weight"], bias=own["bias"])
    if type(part) is nn.GroupNorm:
        return None if is_flat else _group_norm(part, bare)
    if math.prod(part.get_parameter("weight").shape[1:]) == 1:
        return None  # autograd computes products of single numbers by other calls
    if isinstance(part, nn.Linear) and is_flat and (limit := product_limit(part)) is not None:
        return bare._replace(kind="linear", large=limit, short=short_batch(part.in_features))
    if type(part) is nn.Conv2d and not is_flat and part.padding_mode == "zeros" and not isinstance(part.padding, str):
        return bare._replace(kind="convolution", groups=part.groups, **_window(part))
    return None


def _group_norm(part: nn.GroupNorm, bare: Layer) -> Layer | None:
    """The layer, if it has a weight and a bias for every channel."""
    return None if bare.bias == NONE else bare._replace(kind="norm", groups=part.num_groups, epsilon=part.eps)


def _layer_without_parameters(part: nn.Module, is_flat: bool) -> Layer | None:
    """The layer if it is an activation, Flatten, Contiguous or a pooling; None otherwise."""
    if type(part) is nn.GELU and part.approximate in _GELUS:
        return BARE._replace(kind=_GELUS[part.approximate])
    if type(part) is nn.Dropout and part.p < 1:
        return BARE._replace(kind="dropout", kept=1 - part.p)
    if type(part) in _KINDS:
        return BARE._replace(kind=_KINDS[type(part)])
    if type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1):
        return BARE._replace(kind="flatten")
    if type(part) is nn.MaxPool2d and not is_flat and not part.return_indices and isinstance(part.ceil_mode, bool):
        return BARE._replace(kind="pooling", ceil=part.ceil_mode, **_window(part))
    if type(part) is nn.AdaptiveAvgPool2d and not is_flat and part.output_size in (1, (1, 1)):
        return BARE._replace(kind="whole average")
    if type(part) is nn.AvgPool2d and not is_flat and part.divisor_override is None:
        return BARE._replace(kind="average", ceil=bool(part.ceil_mode), padded=part.count_include_pad, **_window(part))
    return None


def _window(part: nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d) -> dict[str, Any]:
    """Kernel, stride, padding and dilation, as two numbers each."""
    dilation = 1 if isinstance(part, nn.AvgPool2d) else part.dilation
    sizes = {"kernel": part.kernel_size, "stride": part.stride, "padding": part.padding, "dilation": dilation}
    return {name: list(size) if isinstance(size, tuple | list) else [int(size)] * 2 for name, size in sizes.items()}
