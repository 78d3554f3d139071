"""The layers that a network runs, in order, found out by running a copy of it once.

While the copy runs, every function of PyTorch that it calls is seen, whether layers or the code of the network call it:
``F.relu(x)``, ``torch.relu(x)`` and ``x.relu()`` are the same. The network is a row of layers if each of its calls takes the result of
the call before, and the last result is returned. A question about values, such as ``if x.sum() > 0``, is a call that no row has. The
size of the batch is known only as the size of the batch: a network that compares it or computes with it is no row.

``torch.fx`` is not used, because during its tracing it replaces methods of ``nn.Module`` for all threads of the process.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fedcohort.core.network_copies import copy_of
from fedcohort.core.random_streams import torch_seeded
from fedcohort.training.code_reading.forward_code import only_computes
from fedcohort.training.code_reading.network_watch import HOOKS
from fedcohort.training.matrix_products import product_limit

__all__ = ["Contiguous", "is_layer", "traced_row"]

_LAYERS = (
    nn.Linear, nn.Conv2d, nn.GroupNorm, nn.ReLU, nn.GELU, nn.Tanh, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d,
    nn.Flatten, nn.Identity, nn.Dropout,
)  # fmt: skip
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.Identity, nn.Module)

SAMPLES = 2
"""Number of samples in the batch with which the copy runs."""


def is_layer(part: nn.Module) -> bool:
    """Whether a part of a network is a layer of a kind that rows may have; its settings may still not be supported."""
    return type(part) in _LAYERS or (isinstance(part, nn.Linear) and product_limit(part) is not None)


def _is_observed(parts: Iterable[nn.Module]) -> bool:
    """Whether a part has hooks, or a forward pass that was set on the instance."""
    return any("forward" in vars(part) or any(getattr(part, name) for name in HOOKS) for part in parts)


def traced_row(module: nn.Module, shape: tuple[int, ...]) -> list[nn.Module] | None:
    """The layers that the network runs in order; None if it is no row of layers.

    A layer that the network has is that layer itself; a function is a new layer that computes the same. The network, its parameters
    and random generators stay as they are.

    Args:
        module: the network, on a CPU.
        shape: shape of one sample.
    """
    if not _may_be_row(module):
        return None
    try:
        twin = copy_of(module).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        with torch_seeded(0, torch.device("cpu")):
            rows = [_Trace(twin.train(training)).row(shape) for training in (True, False)]
    except Exception:  # the network's own errors as well: the training raises them
        return None
    if rows[0] is None or rows[1] is None or _words(rows[0]) != _words(rows[1]):
        return None
    names = {part: name for name, part in twin.named_modules()}
    return [module.get_submodule(names[layer]) if layer in names else layer for layer in rows[0]]


def _may_be_row(module: nn.Module) -> bool:
    """Whether all that can be said without running a copy allows a row."""
    layers = [part for part in module.modules() if is_layer(part)]
    known = {id(parameter) for layer in layers for parameter in layer.parameters(recurse=False)}
    return (
        all(
            is_layer(p) or type(p) in _CONTAINERS or not type(p).__module__.startswith("torch.")
            for p in module.modules()
        )
        and {id(parameter) for parameter in module.parameters()} == known
        and not any(True for _ in module.buffers())
        and not _is_observed(module.modules())
        and only_computes(module)
    )


def _words(row: list[nn.Module]) -> list[str]:
    """What tells rows apart, except for Dropout, which a function is in training only."""
    always = [layer for layer in row if type(layer) not in (nn.Dropout, nn.Identity)]
    return [f"{id(layer) if layer._parameters else ''} {layer}" for layer in always]


class Contiguous(nn.Module):
    """Copies inputs to contiguous memory if they have another layout, such as channels last."""

    def forward(self, x: Tensor) -> Tensor:
        """The input itself, or a copy of it in contiguous memory."""
        return x.contiguous()


class _NoRowError(Exception):
    """The network is no row of layers."""


class _Trace(TorchFunctionMode):
    """Sees every function of PyTorch that a network calls in this thread; other threads are not affected.

    Args:
        module: the network, which belongs to the trace.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module
        self._layers: list[nn.Module] = []
        self._inside: nn.Module | None = None  # the layer that runs
        self._last: Tensor | None = None  # the result of the last call
        self._refused = False

    def row(self, shape: tuple[int, ...]) -> list[nn.Module] | None:
        """The layers for inputs of this shape."""
        dtype = next(self._module.parameters()).dtype
        inputs = torch.randn(SAMPLES, *shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
        self._last = inputs
        hooks = []
        for part in self._module.modules():
            if is_layer(part):
                hooks.append(part.register_forward_pre_hook(self._enter, with_kwargs=True))
                hooks.append(part.register_forward_hook(self._leave))
        try:
            with torch.enable_grad(), self:
                outputs = self._module(inputs)
        finally:
            for hook in hooks:
                hook.remove()
        return None if self._refused or outputs is not self._last else self._layers

    def refuse(self) -> NoReturn:
        """End the trace: the network is no row, even if it catches the error."""
        self._refused = True
        raise _NoRowError

    def _enter(self, layer: nn.Module, given: tuple[object, ...], named: dict[str, object]) -> None:
        """A layer begins to run."""
        if self._inside is not None or len(given) != 1 or named:
            self.refuse()
        self._take(given[0])
        self._inside = layer

    def _leave(self, layer: nn.Module, _: tuple[object, ...], result: object) -> None:
        """A layer has run."""
        self._inside = None
        self._give(layer, result)

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """A function of PyTorch is called."""
        named = kwargs or {}
        if self._inside is not None:
            return function(*args, **named)
        if function in _QUESTIONS:
            return self._answer(function, args, named)
        if function not in _FUNCTIONS or not args:
            self.refuse()
        before = self._take(args[0])
        shape = before.shape  # the call may change it
        result = function(*args, **named)
        layer = _FUNCTIONS[function](_Call(shape, result), *args[1:], **named)
        if layer is None:
            self.refuse()
        self._give(layer, result)
        return result

    def _take(self, inputs: object) -> Tensor:
        """Inputs of a call, which must be the result of the last one."""
        if (
            inputs is not self._last or not torch.is_grad_enabled()
        ):  # a function with a gradient of its own runs without autograd
            self.refuse()
        return cast(Tensor, inputs)

    def _give(self, layer: nn.Module, result: object) -> None:
        """The result of a call."""
        if not isinstance(result, Tensor):
            self.refuse()
        self._layers.append(layer)
        self._last = result

    def _answer(self, question: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What the network asks about a tensor other than its values."""
        (about, *of) = args
        if question not in (torch.Tensor.size, _SHAPE) or isinstance(about, nn.Parameter):
            return question(*args, **named)
        batch, *rest = about.shape
        shape = (_BatchSize(batch, self), *rest)
        of += named.values()
        return shape[of[0]] if of and of[0] is not None else shape


class _BatchSize(int):
    """The size of a batch, with which a network may do nothing but reshape."""

    _trace: _Trace

    def __new__(cls, size: int, trace: _Trace) -> "_BatchSize":
        """The size of a batch in this trace."""
        self = super().__new__(cls, size)
        self._trace = trace
        return self

    def _refuse(self, *_: object) -> NoReturn:
        self._trace.refuse()

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __hash__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _refuse
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __neg__ = _refuse
    __and__ = __or__ = __xor__ = __abs__ = __float__ = __int__ = __round__ = __divmod__ = _refuse
    __repr__ = __str__ = __format__ = _refuse


class _Call:
    """What is known of a call when its layer is built: the shape of the inputs, and the result."""

    def __init__(self, shape: torch.Size, result: Any) -> None:
        self.shape, self.result = shape, result


def _relu(_: _Call, inplace: bool = False) -> nn.Module:  # noqa: ARG001 - the result is the same
    return nn.ReLU()


def _max_pooling(
    _: _Call, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> nn.Module:  # fmt: skip
    return nn.MaxPool2d(kernel_size, stride or None, padding, dilation, return_indices, ceil_mode)


def _average_pooling(
    _: _Call, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> nn.Module:  # fmt: skip
    return nn.AvgPool2d(kernel_size, stride or None, padding, ceil_mode, count_include_pad, divisor_override)


def _adaptive_pooling(_: _Call, output_size: Any) -> nn.Module:
    return nn.AdaptiveAvgPool2d(output_size)


def _flatten(call: _Call, start_dim: int = 0, end_dim: int = -1) -> nn.Module | None:
    last = len(call.shape) - 1
    return nn.Flatten() if start_dim % (last + 1) == 1 and end_dim in (-1, last) else None


def _reshape(call: _Call, *sizes: Any, shape: Any = None) -> nn.Module | None:
    """Flatten, if the result is [B, d] and the call says so for any size of the batch."""
    given = shape if shape is not None else sizes[0] if len(sizes) == 1 else sizes
    if len(given) != 2 or tuple(call.result.shape) != (SAMPLES, math.prod(call.shape[1:])):
        return None
    batch, rest = given
    says_so = isinstance(batch, _BatchSize) or (type(batch) is int and batch == -1 and rest != -1)
    return nn.Flatten() if says_so and type(rest) is int else None


def _dropout(_: _Call, p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:  # noqa: ARG001
    return nn.Dropout(p) if training else nn.Identity()


def _gelu(_: _Call, approximate: str = "none") -> nn.Module:
    return nn.GELU(approximate)


def _tanh(_: _Call) -> nn.Module:
    return nn.Tanh()


def _contiguous(_: _Call) -> nn.Module:
    return Contiguous()


_SHAPE = Tensor.shape.__get__  # type: ignore[attr-defined]

_QUESTIONS: set[Callable[..., Any]] = {
    Tensor.size,
    _SHAPE,
    Tensor.dim,
    Tensor.ndimension,
    Tensor.ndim.__get__,  # type: ignore[attr-defined]
    Tensor.dtype.__get__,  # type: ignore[attr-defined]
    Tensor.device.__get__,
}
"""Functions that say nothing about the values of a tensor."""

_FUNCTIONS: dict[Callable[..., Any], Callable[..., nn.Module | None]] = {
    functional.relu: _relu,
    torch.relu: _relu,
    torch.relu_: _relu,
    Tensor.relu: _relu,
    Tensor.relu_: _relu,
    functional.gelu: _gelu,
    functional.tanh: _tanh,
    torch.tanh: _tanh,
    Tensor.tanh: _tanh,
    functional.max_pool2d: _max_pooling,
    torch.max_pool2d: _max_pooling,
    functional.avg_pool2d: _average_pooling,
    functional.adaptive_avg_pool2d: _adaptive_pooling,
    torch.flatten: _flatten,
    Tensor.flatten: _flatten,
    Tensor.view: _reshape,
    Tensor.reshape: _reshape,
    torch.reshape: _reshape,
    functional.dropout: _dropout,
    Tensor.contiguous: _contiguous,
}
"""The layers that compute what these functions compute."""
