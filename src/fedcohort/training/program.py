"""The steps of a plain network as one program: forward pass, loss, backward pass and descent, without Python or autograd between.

A step of a small network is some dozens of short calls. Python makes each of them, autograd notes each of them, and clients that
are trained side by side take Python's lock from each other in between. For convolutions, poolings, ReLU, Flatten and linear layers in
a row the gradient of the cross-entropy is known. It is written out here, by the calls that autograd would make: not a bit differs.
The functions that are the program are in the part of Python that PyTorch runs without Python (TorchScript): clients that only descend
take the steps of an epoch in one call, the others a gradient in one. Where PyTorch has no TorchScript, Python runs the functions.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
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

    def __init__(self, module: nn.Module, layers: list[Layer], parameters: list[nn.Parameter]) -> None:
        self._parts, self._layers, self._parameters = list(module.modules()), layers, parameters
        self._values = [parameter.detach() for parameter in parameters]

    def holds(self) -> bool:
        """Whether the network is still no more than the classes of its layers: nobody has begun to look on, to change its gradients or
        forward passes, to freeze parameters, or to ask for another arithmetic."""
        own = any(
            "forward" in vars(part)
            or part._forward_hooks
            or part._forward_pre_hooks
            or part._backward_hooks
            or part._backward_pre_hooks
            for part in self._parts
        )
        changed = any(
            not p.requires_grad or p._backward_hooks or p._post_accumulate_grad_hooks for p in self._parameters
        )
        everywhere = getattr(nn.modules.module, "_has_any_global_hook", bool)()
        return not (own or changed or everywhere or torch.is_autocast_enabled("cpu"))

    def backward(self, inputs: Tensor, labels: Tensor, weights: Tensor | None, size: int) -> tuple[Tensor, Tensor]:
        """Add to every ``.grad`` the gradient of Σ weight·cross-entropy/``size``, without weights of Σ cross-entropy/``size``.

        Returns:
            the cross-entropy of each sample, and the number of right ones.
        """
        losses, hits, gradients = self._run(_gradients, inputs, labels, weights, size)
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

        Every ``.grad`` is the gradient of the last batch then.

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
        seen, hits, gradients = self._run(
            _descend, features, labels, order, size, group["lr"], *rule, velocities, fresh
        )
        for parameter, gradient in zip(self._parameters, gradients, strict=len(order) > 0):
            parameter.grad = gradient
        return seen, hits

    def _run(self, function: Callable[..., Any], *given: Any) -> Any:
        """Without autograd, and without TorchScript's own rewritings, which would change bits from the second call on."""
        compiled = _without_python().get(function)
        plainly = torch.jit.optimized_execution(False) if compiled else nullcontext()  # type: ignore[attr-defined]
        with torch.no_grad(), plainly:
            try:
                return (compiled or function)(self._layers, self._values, *given)
            except RuntimeError as error:
                # what is wrong with the inputs, Python says in its own words
                function(self._layers, self._values, *given)
                raise RuntimeError(" ".join(str(error).splitlines()[-1:])) from None


def program_of(module: nn.Module, shape: tuple[int, ...]) -> Program | None:
    """The steps of this network, if it is a row of plain layers on a CPU of which all parameters learn and on which nobody looks.

    Args:
        module: the network.
        shape: of one sample.
    """
    parameters = list(module.parameters())
    if any(parameter.device.type != "cpu" for parameter in parameters):
        return None
    numbers = {id(parameter): i for i, parameter in enumerate(parameters)}
    layers: list[Layer] = []
    used: list[int] = []
    flat = len(shape) == 1
    for part in _row(module):
        own = {name: NONE if value is None else numbers[id(value)] for name, value in part._parameters.items()}
        layer = None if part._buffers else _layer(part, own, flat)
        if layer is None:
            return None
        layers.append(layer._replace(back=bool(used)))
        used += [number for number in (layer.weight, layer.bias) if number != NONE]
        flat = flat or layer.kind == "flatten"
    if not flat or not used or sorted(used) != list(range(len(parameters))):
        return None  # outputs are not [B, K], or a parameter has not its one place
    program = Program(module, layers, parameters)
    return program if program.holds() else None


def _row(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) is nn.Sequential:
        for part in module:
            yield from _row(part)
    elif type(module) is not nn.Identity:
        yield module


def _layer(part: nn.Module, own: dict[str, int], flat: bool) -> Layer | None:
    """The layer with these parameters, None if the program has none like it. ``flat``: it is given [B, d], and not images."""
    if not own:
        if type(part) is nn.ReLU:
            return BARE
        if type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1):
            return BARE._replace(kind="flatten")
        if type(part) is nn.MaxPool2d and not flat and not part.return_indices and isinstance(part.ceil_mode, bool):
            return BARE._replace(kind="pooling", ceil=part.ceil_mode, **_window(part))
    elif set(own) == {"weight", "bias"} and own["weight"] != NONE:
        bare = BARE._replace(weight=own["weight"], bias=own["bias"])
        if math.prod(part.get_parameter("weight").shape[1:]) == 1:
            return None  # autograd takes products of single numbers another way
        if isinstance(part, nn.Linear) and flat and (limit := product_limit(part)) is not None:
            return bare._replace(kind="linear", large=limit)
        if type(part) is nn.Conv2d and not flat and part.padding_mode == "zeros" and not isinstance(part.padding, str):
            return bare._replace(kind="convolution", groups=part.groups, **_window(part))
    return None


def _window(part: nn.Conv2d | nn.MaxPool2d) -> dict[str, Any]:
    sizes = {"kernel": part.kernel_size, "stride": part.stride, "padding": part.padding, "dilation": part.dilation}
    return {name: list(size) if isinstance(size, tuple | list) else [int(size)] * 2 for name, size in sizes.items()}


# --- the program, in TorchScript -------------------------------------------------------------------------------------------


def _descend(
    layers: list[Layer], values: list[Tensor], features: Tensor, labels: Tensor, order: Tensor, size: int,
    lr: float, momentum: float, nesterov: bool, weight_decay: float, velocities: list[Tensor], fresh: bool,
) -> tuple[list[Tensor], Tensor, list[Tensor]]:  # fmt: skip
    """See :class:`Program`."""
    seen: list[Tensor] = []
    right = torch.zeros([], dtype=torch.int64)
    gradients: list[Tensor] = []
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        inputs = features.index_select(0, batch)
        if inputs.dim() == 4:
            inputs = inputs.permute(0, 3, 1, 2)
        losses, hits, gradients = _gradients(layers, values, inputs, labels.index_select(0, batch), None, len(batch))
        if momentum == 0 and weight_decay == 0:
            torch._foreach_add_(values, gradients, alpha=-lr)
        else:
            torch._fused_sgd_(
                values, gradients, velocities, weight_decay=weight_decay, momentum=momentum, lr=lr,
                dampening=0.0, nesterov=nesterov, maximize=False, is_first_step=fresh and start == 0,
            )  # fmt: skip
        seen.append(losses)
        right += hits
    return seen, right, gradients


def _gradients(
    layers: list[Layer], values: list[Tensor], inputs: Tensor, labels: Tensor, weights: Tensor | None, size: int
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """See :class:`Program`."""
    given: list[Tensor] = []  # what each layer is given, and
    places: list[Tensor] = []  # where the largest in each window of a pooling is
    x = inputs
    for layer in layers:
        given.append(x)
        if layer.kind == "pooling":
            x, place = _pooled(layer, x)
            places.append(place)
        else:
            x = _outputs(layer, values, x)
    scores = torch.log_softmax(x, 1)
    losses, total = torch.ops.aten.nll_loss_forward(scores, labels, None, 0, -100)
    hits = (x.argmax(1) == labels).sum()

    slopes = torch.full_like(losses, 1 / size)
    if weights is not None:
        slopes = (torch.full_like(losses * weights, 1 / size) * weights).to(losses.dtype)
    delta = torch.ops.aten.nll_loss_backward(slopes, scores, labels, None, 0, -100, total)
    delta = torch.ops.aten._log_softmax_backward_data(delta, scores, 1, scores.dtype)
    gradients = list(values)  # every one is replaced
    for i in range(len(layers) - 1, -1, -1):
        layer, x = layers[i], given.pop()
        if layer.kind == "pooling":
            delta = _unpooled(layer, x, places.pop(), delta)
        elif layer.kind == "relu":
            delta = torch.ops.aten.threshold_backward(delta, x, 0)
        elif layer.kind == "flatten":
            delta = delta.view(x.size())
        else:
            delta = _learned(layer, values, x, delta, gradients)
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
    """Whether the layer's products are for oneDNN, as :func:`fedcohort.training.products.quick_products` has it."""
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


@cache
def _without_python() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The functions that PyTorch runs without Python; none where it has no TorchScript."""
    try:
        # its warning that nothing new comes to it is not caught: whoever catches warnings has shown again what was shown once
        return {function: torch.jit.script(function) for function in (_gradients, _descend)}
    except Exception:
        return {}
