"""The training steps of a plain network as one program, which runs without Python or autograd between its calls.

A step of a small network consists of some dozens of short calls. Normally, Python makes each of them, autograd records each of them,
and clients that are trained at the same time compete for Python's lock. For a row of convolutions, poolings, activations, Flatten and
linear layers, the gradient of the cross-entropy is known. This module writes it out with the calls that autograd would make, so that
the bits are the same.

The functions of the program are TorchScript, the part of Python that PyTorch runs without Python. Clients that take plain SGD steps
take all steps of an epoch in one call; other clients get a gradient in one call. Where PyTorch has no TorchScript, Python runs the
functions.
"""

import copy
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms.sample_measures import sample_losses
from fedcohort.training.network_rewriting import relu_after_pooling
from fedcohort.training.network_rows import is_sequence, row_of
from fedcohort.training.optimizers import SGD, Optimizer
from fedcohort.training.plain_layers import Layer, layers_of
from fedcohort.training.traced_networks import is_observed

__all__ = ["Program", "program_of"]

_HOOKS_OF_ALL_MODULES = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
"""Dictionaries of ``torch.nn.modules.module`` with hooks that PyTorch calls for every module."""

Result = TypeVar("Result")


class Program:
    """The steps of one network, with which it shares its parameters; see :func:`program_of`."""

    def __init__(self, module: nn.Module, layers: list[Layer], parameters: list[nn.Parameter]) -> None:
        self._parts, self._layers, self._parameters = list(module.modules()), layers, parameters
        self._values = [parameter.detach() for parameter in parameters]

    def holds(self) -> bool:
        """Whether the program still computes what the network computes.

        It does not after code has registered hooks, replaced a forward pass, frozen parameters, or switched on autocast.
        """
        replaced = is_observed(self._parts)
        changed = any(
            not p.requires_grad or p._backward_hooks or p._post_accumulate_grad_hooks for p in self._parameters
        )
        everywhere = any(getattr(nn.modules.module, name) for name in _HOOKS_OF_ALL_MODULES)
        return not (replaced or changed or everywhere or torch.is_autocast_enabled("cpu"))

    def backward(self, inputs: Tensor, labels: Tensor, weights: Tensor | None, size: int) -> tuple[Tensor, Tensor]:
        """Add to every ``.grad`` the gradient of Σ weight·cross-entropy/``size``, without weights of Σ cross-entropy/``size``.

        Returns:
            the cross-entropy of each sample, and the number of correct predictions.
        """
        losses, hits, gradients = self.gradients(inputs, labels, weights, size)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad += gradient
        return losses, hits

    def gradients(
        self, inputs: Tensor, labels: Tensor, weights: Tensor | None, size: int
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """As :meth:`backward`, with the gradients in the order of the parameters as the last result."""
        return self._run(_gradients, inputs, labels, weights, size)

    def descend(
        self, features: Tensor, labels: Tensor, order: Tensor, size: int, optimizer: Optimizer
    ) -> tuple[list[Tensor], Tensor]:
        """Take an optimizer step on the mean cross-entropy of every batch of ``size`` samples, in this ``order``.

        Afterwards, every ``.grad`` is the gradient of the last batch.

        Args:
            features: standardized; images as [N, H, W, C].
            labels: int64 [N].
            order: positions, int64; the last batch may be shorter.
            size: size of a batch.
            optimizer: optimizer of the network's parameters, ``SGD`` or ``PlainSGD`` of :mod:`fedcohort.training.optimizers`.

        Returns:
            the cross-entropy of each sample before its step, and the total number of correct predictions.
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

    def _run(self, function: Callable[..., Result], *given: object) -> Result:
        """Run without autograd and without TorchScript's optimizations, which would change bits from the second call on."""
        compiled = _without_python().get(function)
        plainly = torch.jit.optimized_execution(False) if compiled else nullcontext()  # type: ignore[attr-defined]
        with torch.no_grad(), plainly:
            try:
                return (compiled or function)(self._layers, self._values, *given)
            except RuntimeError as error:
                # Python raises its own error about wrong inputs, which is easier to read than TorchScript's
                function(self._layers, self._values, *given)
                raise RuntimeError(" ".join(str(error).splitlines()[-1:])) from None


def program_of(module: nn.Module, shape: tuple[int, ...]) -> Program | None:
    """The steps of this network; None if a program cannot take them.

    The network must be a row of plain layers on a CPU, in which all parameters are trained and no layer has hooks. For a network with
    a forward pass of its own, the program must also give the same bits as autograd on random batches.

    Args:
        module: the network.
        shape: shape of one sample.
    """
    parameters = list(module.parameters())
    if any(parameter.device.type != "cpu" for parameter in parameters):
        return None
    row = row_of(module, shape)
    if row is None:
        return None
    traced = not is_sequence(module)
    layers = layers_of(relu_after_pooling(row) if traced else row, parameters, is_flat=len(shape) == 1)
    if layers is None or (traced and not _has_bits_of_autograd(module, layers, shape)):
        return None
    program = Program(module, layers, parameters)
    return program if program.holds() else None


def _has_bits_of_autograd(module: nn.Module, layers: list[Layer], shape: tuple[int, ...]) -> bool:
    """Whether these layers give a copy's losses and gradients for random batches, in training mode and in evaluation mode."""
    draw = torch.Generator().manual_seed(0)
    try:
        twin = copy.deepcopy(module)
        parameters = list(twin.parameters())
        program = Program(twin, layers, parameters)
        for training, size in ((True, 5), (False, 2)):
            sizes = (
                (*shape[1:], shape[0]) if len(shape) == 3 else shape
            )  # images as training has them, with channels last
            inputs = torch.randn(size, *sizes, dtype=parameters[0].dtype, generator=draw)
            inputs = inputs.permute(0, 3, 1, 2) if len(shape) == 3 else inputs
            with torch.enable_grad():
                outputs = twin.train(training)(inputs)
                labels = torch.randint(outputs.shape[1], (size,), generator=draw)
                losses = sample_losses(outputs, labels)
                expected = torch.autograd.grad(losses, parameters, torch.full_like(losses, 1 / size))
            found, _, gradients = program.gradients(inputs.clone(), labels, None, size)
            if not all(map(torch.equal, (losses, *expected), (found, *gradients))):
                return False
    except Exception:  # the network's own errors as well: the training raises them
        return False
    return True


# --- the program, in TorchScript -------------------------------------------------------------------------------------------


def _descend(
    layers: list[Layer], values: list[Tensor], features: Tensor, labels: Tensor, order: Tensor, size: int,
    lr: float, momentum: float, nesterov: bool, weight_decay: float, velocities: list[Tensor], fresh: bool,
) -> tuple[list[Tensor], Tensor, list[Tensor]]:  # fmt: skip
    """The steps of :meth:`Program.descend`."""
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
    """The gradient of :meth:`Program.backward`."""
    given: list[Tensor] = []  # inputs of each layer; outputs of tanh
    places: list[Tensor] = []  # where the largest number of each window of a pooling is
    x = inputs
    for layer in layers:
        given.append(x)
        if layer.kind == "pooling":
            x, place = _pooled(layer, x)
            places.append(place)
        else:
            x = _outputs(layer, values, x)
            if layer.kind == "tanh":
                given[-1] = x
    scores = torch.log_softmax(x, 1)
    losses, total = torch.ops.aten.nll_loss_forward(scores, labels, None, 0, -100)
    hits = (x.argmax(1) == labels).sum()

    slopes = torch.full_like(losses, 1 / size)
    if weights is not None:
        slopes = (torch.full_like(losses * weights, 1 / size) * weights).to(losses.dtype)
    delta = torch.ops.aten.nll_loss_backward(slopes, scores, labels, None, 0, -100, total)
    delta = torch.ops.aten._log_softmax_backward_data(delta, scores, 1, scores.dtype)
    gradients = list(values)  # every entry is replaced below
    for i in range(len(layers) - 1, -1, -1):
        layer, x = layers[i], given.pop()
        if layer.kind == "pooling":
            delta = _unpooled(layer, x, places.pop(), delta)
        elif layer.weight < 0:
            delta = _before(layer, x, delta)
        else:
            delta = _parameter_gradients(layer, values, x, delta, gradients)
        if not layer.back:
            break
    return losses, hits, gradients


def _outputs(layer: Layer, values: list[Tensor], x: Tensor) -> Tensor:
    """Outputs of a layer other than a pooling."""
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
    bias = values[layer.bias] if layer.bias >= 0 else None
    if layer.kind == "convolution":
        return torch.conv2d(x, values[layer.weight], bias, layer.stride, layer.padding, layer.dilation, layer.groups)
    return _product(x, values[layer.weight], bias, _large(layer, values, x))


def _before(layer: Layer, x: Tensor, delta: Tensor) -> Tensor:
    """The gradient of the inputs of a layer without parameters, other than a pooling; ``x`` are its inputs, or the outputs of tanh."""
    if layer.kind == "flatten":
        return delta.view(x.size())
    if layer.kind == "contiguous":
        return delta
    before: Tensor = delta
    if layer.kind == "relu":
        before = torch.ops.aten.threshold_backward(delta, x, 0)
    elif layer.kind == "tanh":
        before = torch.ops.aten.tanh_backward(delta, x)
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


@cache
def _without_python() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The program's functions in TorchScript, by their Python functions; empty where PyTorch has no TorchScript.

    For Python 3.14 and later, PyTorch does not support TorchScript any more.
    """
    if sys.version_info >= (3, 14):
        return {}
    try:
        # TorchScript's deprecation warning is not suppressed: warnings.catch_warnings would show earlier warnings a second time
        return {function: torch.jit.script(function) for function in (_gradients, _descend)}
    except Exception:
        return {}
