"""The steps of a plain network as one program: forward pass, loss, backward pass and descent, without Python or autograd between.

A step of a small network is some dozens of short calls. Python makes each of them, autograd notes each of them, and clients that
are trained side by side take Python's lock from each other in between. For convolutions, poolings, ReLU, Flatten and linear layers in
a row the gradient of the cross-entropy is known. It is written out here, by the calls that autograd would make: not a bit differs.
All in ``_Steps`` and what it calls is in the part of Python that PyTorch runs without Python (TorchScript): clients that only
descend take their steps in one call for an epoch, the others in one for a gradient. A PyTorch that cannot do that has Python run it.
"""

import math
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.training.optimizers import SGD, Optimizer
from fedcohort.training.products import product_limit

__all__ = ["Program", "program_of"]

NONE = -1
"""In place of a parameter's number: there is none."""


class Layer(NamedTuple):
    """What a layer does, and what it has: numbers of parameters in the order of the network's."""

    kind: str
    """convolution, pooling, linear, relu or flatten."""
    weight: int
    bias: int
    back: bool
    """Whether the layers before it want to know its gradient."""
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    ceil: bool
    large: float
    """Multiplications from which on a product is for oneDNN, see :mod:`fedcohort.training.products`."""


BARE = Layer("relu", NONE, NONE, True, [1, 1], [1, 1], [0, 0], [1, 1], 1, False, math.inf)
"""A layer that has nothing."""


class Program:
    """The steps of one network, whose parameters change with it and it with them; see :func:`program_of`."""

    def __init__(self, layers: list[Layer], parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        self._written = _Steps(layers, [parameter.detach() for parameter in parameters])
        self._steps = _without_python(self._written)

    def backward(self, inputs: Tensor, labels: Tensor, weights: Tensor | None, size: int) -> tuple[Tensor, Tensor]:
        """Add to every ``.grad`` the gradient of Σ weight·cross-entropy/``size``, without weights of Σ cross-entropy/``size``.

        Returns:
            the cross-entropy of each sample, and the number of right ones.
        """
        losses, hits, gradients = self._run("gradients", inputs, labels, weights, size)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad += gradient
        return losses, hits

    def descend(
        self, features: Tensor, labels: Tensor, order: Tensor, size: int, optimizer: Optimizer
    ) -> tuple[list[Tensor], Tensor]:
        """Take a step of the optimiser on the mean cross-entropy of each batch of ``size`` of these samples in this ``order``.

        Args:
            features: as the model sees them, images with the channels last in shape [N, H, W, C].
            labels: int64 [N].
            order: positions, int64; the last batch may be shorter.
            size: of a batch.
            optimizer: of the network's parameters; :class:`SGD <fedcohort.training.optimizers.SGD>` or the plain one.

        Returns:
            the cross-entropy of each sample before each step, and the number of right ones in all.
        """
        (group,) = optimizer.param_groups
        rule, velocities, fresh = (0.0, False, 0.0), list[Tensor](), False
        if isinstance(optimizer, SGD):
            rule = optimizer.momentum, optimizer.nesterov, optimizer.weight_decay
            velocities, fresh = optimizer.velocities()
        found: tuple[list[Tensor], Tensor] = self._run(
            "descend", features, labels, order, size, group["lr"], *rule, velocities, fresh
        )
        return found

    def _run(self, name: str, *given: Any) -> Any:
        """Without autograd, and without TorchScript's own rewritings, which would change bits from the second call on."""
        with torch.no_grad(), torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            try:
                return getattr(self._steps, name)(*given)
            except RuntimeError as error:
                getattr(self._written, name)(*given)  # what is wrong with the inputs, Python says in its own words
                raise RuntimeError(str(error).splitlines()[-1]) from None


def program_of(module: nn.Module, shape: tuple[int, ...]) -> Program | None:
    """The steps of this network, if it is a row of plain layers on a CPU of which all parameters learn and which nobody looks into.

    Args:
        module: the network.
        shape: of one sample.
    """
    if any(map(_watched, module.modules())):
        return None
    parameters = list(module.parameters())
    if any(parameter.device.type != "cpu" or not parameter.requires_grad for parameter in parameters):
        return None
    numbers = {id(parameter): i for i, parameter in enumerate(parameters)}
    layers: list[Layer] = []
    used: list[int] = []
    flat = len(shape) == 1
    for part in _row(module):
        own = {name: numbers[id(p)] for name, p in part.named_parameters(recurse=False)}
        layer = _layer(part, own, flat)
        if layer is None:
            return None
        layers.append(layer._replace(back=bool(used)))
        used += own.values()
        flat = flat or layer.kind == "flatten"
    # every parameter has one place, and outputs are [B, K]
    return Program(layers, parameters) if flat and used and sorted(used) == list(range(len(parameters))) else None


def _row(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) is nn.Sequential:
        for part in module:
            yield from _row(part)
    elif type(module) is not nn.Identity:
        yield module


def _layer(part: nn.Module, own: dict[str, int], flat: bool) -> Layer | None:
    """The layer with these parameters, None if :class:`_Steps` has none like it. ``flat``: it is given [B, d], and not images."""
    bare = BARE._replace(weight=own.get("weight", NONE), bias=own.get("bias", NONE))
    if type(part) is nn.ReLU:
        return bare
    if type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1):
        return bare._replace(kind="flatten")
    if isinstance(part, nn.Linear) and flat and (limit := product_limit(part)) is not None:
        return bare._replace(kind="linear", large=limit)
    if type(part) is nn.Conv2d and not flat and part.padding_mode == "zeros" and not isinstance(part.padding, str):
        return bare._replace(kind="convolution", groups=part.groups, **_window(part))
    if type(part) is nn.MaxPool2d and not flat and not part.return_indices:
        return bare._replace(kind="pooling", ceil=part.ceil_mode, **_window(part))
    return None


def _window(part: nn.Conv2d | nn.MaxPool2d) -> dict[str, Any]:
    sizes = {"kernel": part.kernel_size, "stride": part.stride, "padding": part.padding, "dilation": part.dilation}
    return {name: [size, size] if isinstance(size, int) else list(size) for name, size in sizes.items()}


def _watched(part: nn.Module) -> bool:
    """Whether the layer is more than its class: somebody looks on, or its forward pass is its own."""
    hooks = part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
    return bool(hooks) or "forward" in vars(part) or any(p._backward_hooks for p in part.parameters(recurse=False))


# --- the program, in TorchScript -------------------------------------------------------------------------------------------


class _Steps(nn.Module):
    layers: list[Layer]
    values: list[Tensor]

    def __init__(self, layers: list[Layer], values: list[Tensor]) -> None:
        super().__init__()
        self.layers = layers
        self.values = values

    @torch.jit.export
    def descend(
        self, features: Tensor, labels: Tensor, order: Tensor, size: int,
        lr: float, momentum: float, nesterov: bool, weight_decay: float, velocities: list[Tensor], fresh: bool,
    ) -> tuple[list[Tensor], Tensor]:  # fmt: skip
        """See :class:`Program`."""
        seen: list[Tensor] = []
        right = torch.zeros([], dtype=torch.int64)
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            inputs = features.index_select(0, batch)
            if inputs.dim() == 4:
                inputs = inputs.permute(0, 3, 1, 2)
            losses, hits, gradients = self.gradients(inputs, labels.index_select(0, batch), None, len(batch))
            if momentum == 0 and weight_decay == 0:
                torch._foreach_add_(self.values, gradients, alpha=-lr)
            else:
                torch._fused_sgd_(
                    self.values, gradients, velocities, weight_decay=weight_decay, momentum=momentum, lr=lr,
                    dampening=0.0, nesterov=nesterov, maximize=False, is_first_step=fresh and start == 0,
                )  # fmt: skip
            seen.append(losses)
            right += hits
        return seen, right

    @torch.jit.export
    def gradients(
        self, inputs: Tensor, labels: Tensor, weights: Tensor | None, size: int
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """See :class:`Program`."""
        given: list[Tensor] = []  # what each layer is given, and
        places: list[Tensor] = []  # where the largest in each window of a pooling is
        x = inputs
        for layer in self.layers:
            given.append(x)
            if layer.kind == "pooling":
                x, place = _pooled(layer, x)
                places.append(place)
            else:
                x = _outputs(layer, self.values, x)
        scores = torch.log_softmax(x, 1)
        losses, total = torch.ops.aten.nll_loss_forward(scores, labels, None, 0, -100)
        hits = (x.argmax(1) == labels).sum()

        slopes = torch.full_like(losses, 1 / size)
        if weights is not None:
            slopes = slopes * weights
        delta = torch.ops.aten.nll_loss_backward(slopes, scores, labels, None, 0, -100, total)
        delta = torch.ops.aten._log_softmax_backward_data(delta, scores, 1, scores.dtype)
        gradients = list(self.values)
        for i in range(len(self.layers) - 1, -1, -1):
            layer, x = self.layers[i], given.pop()
            if layer.kind == "pooling":
                delta = _unpooled(layer, x, places.pop(), delta)
            elif layer.kind == "relu":
                delta = torch.ops.aten.threshold_backward(delta, x, 0)
            elif layer.kind == "flatten":
                delta = delta.view(x.size())
            else:
                delta = _learned(layer, self.values, x, delta, gradients)
            if not layer.back:
                break
        return losses, hits, gradients


def _outputs(layer: Layer, values: list[Tensor], x: Tensor) -> Tensor:
    if layer.kind == "relu":
        return torch.relu_(x)
    if layer.kind == "flatten":
        return x.flatten(1)
    bias = values[layer.bias] if layer.bias >= 0 else None
    if layer.kind == "convolution":
        return torch.conv2d(x, values[layer.weight], bias, layer.stride, layer.padding, layer.dilation, layer.groups)
    return _product(x, values[layer.weight], bias, _large(layer, values, x))


def _learned(layer: Layer, values: list[Tensor], x: Tensor, delta: Tensor, gradients: list[Tensor]) -> Tensor:
    """Put the gradients of the layer's parameters into ``gradients``; returns the gradient of its inputs."""
    weight = values[layer.weight]
    if layer.kind == "convolution":
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
            delta, x, weight, [weight.size(0)], layer.stride, layer.padding, layer.dilation, False, [0, 0],
            layer.groups, [layer.back, True, layer.bias >= 0],
        )  # fmt: skip
        before, own, shift = found
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
    """Whether the layer's products are for oneDNN."""
    size = x.numel() * values[layer.weight].size(0)
    return size >= layer.large and x.dtype == torch.float32 and x.is_contiguous()


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, large: bool) -> Tensor:
    """x Wᵀ + b."""
    if large:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return found
    return functional.linear(x, weight, bias)


def _pooled(layer: Layer, x: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = torch.ops.aten.max_pool2d_with_indices(
        x, layer.kernel, layer.stride, layer.padding, layer.dilation, layer.ceil
    )
    return found


def _unpooled(layer: Layer, x: Tensor, place: Tensor, delta: Tensor) -> Tensor:
    found: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
        delta, x, layer.kernel, layer.stride, layer.padding, layer.dilation, layer.ceil, place
    )
    return found


def _without_python(steps: _Steps) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is there, and nothing new comes to it
            return torch.jit.script(steps)
    except Exception:
        return steps
