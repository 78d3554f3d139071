"""Matrix products in single precision on a CPU, by the faster of PyTorch's two libraries.

PyTorch multiplies float32 matrices by MKL, which uses only 256-bit registers on processors that are not Intel's. oneDNN, which PyTorch
uses for convolutions, uses wider ones: on an AMD processor with AVX-512, one thread reaches 200 GFLOP/s instead of 85. A layer from
4,096 numbers to 64 takes 1.0 ms instead of 1.9 ms for 64 samples, forward and backward. On Intel's processors, and on those without
AVX-512, oneDNN is not faster.
"""

import math
import re
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.core.processor import processor
from fedcohort.core.threads import one_thread

__all__ = ["linear", "product_limit", "quick_products", "short_batch"]

Network = TypeVar("Network", bound=nn.Module)

LARGE = 2**20
"""Minimum number of multiplications in a layer's product for which oneDNN is faster despite its longer call."""
LARGE_BEFORE = 2**22
"""The same on AMD's processors before :data:`FAMILY`: on family 25, model 17, MKL is faster below about this number."""
SHORT, NARROW = 64, 2048
"""Maximum number of samples, and of inputs of a layer, for which PyTorch's own product may compute the gradient of its weights faster.
Both libraries add up the samples of such a batch one after another, so the results have the same bits."""
FAMILY = 26
"""First family of AMD's processors on which oneDNN is clearly faster for short products, and for sequences of rows, as transformers
have: a gradient of the built-in transformer takes a quarter less time on family 26, and an eighth more on family 25."""
TYPICAL = 20, 200, 784
"""Samples, outputs and inputs of the layer with which a machine is measured."""
TRIES, CALLS = 8, 4
"""How often each library is measured, and how many calls are measured together."""
NARROW_REGISTERS = "DEFAULT", "AVX2"
"""PyTorch's names of processors without AVX-512. There, both libraries use the same registers."""
CLEARLY = 0.9
"""oneDNN computes the gradients of weights of short batches if it needs at most this share of PyTorch's time."""


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x Wᵀ [n, h] of x [n, d] and W [h, d], with any strides."""
    if x.dtype == torch.float32 and x.device.type == "cpu":
        return _float32_product()(x, weight, None)
    return functional.linear(x, weight)


def short_batch(inputs: int) -> int:
    """Maximum number of samples for which the gradient of the weights of a layer with so many inputs is left to PyTorch's product.

    With more than one intra-op thread, both libraries may have other bits, so that nothing that is measured may choose one.
    """
    if inputs > NARROW:
        return 0
    return 0 if torch.get_num_threads() == 1 and _quick_for_short_batches() else SHORT


def quick_products(module: Network) -> Network:
    """Let the linear layers of ``module`` multiply large matrices in single precision on a CPU by the faster library, in place.

    They stay ``nn.Linear``, with the same names, hooks and parameters; results differ by rounding. What the faster library cannot do
    is left to PyTorch: transforms of ``torch.func``, tracing, autocast, sparse and overlapping inputs.
    """
    for part in module.modules():
        if type(part) is nn.Linear and _float32_product() is not functional.linear:
            _use_quick_forward(part)
    return module


def _use_quick_forward(layer: nn.Linear) -> None:
    """Replace the layer's forward pass, and nothing else, by changing its class to a subclass.

    A new layer in its place would lose hooks and every other reference to the layer. A ``forward`` on the instance would be bound to
    this one module, so that copies of the module would run the original.
    """
    layer.__class__ = _QuickLinear


def product_limit(part: nn.Linear) -> float | None:
    """Minimum number of multiplications for which this layer uses the faster library; None for a subclass that is not ours."""
    if type(part) is _QuickLinear:
        return _large()
    return math.inf if type(part) is nn.Linear else None


class _QuickLinear(nn.Linear):
    """A linear layer that leaves large products to the faster library."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - callers may name the argument
        if input.numel() * self.out_features < _large() or not _plain(input) or self.weight.dtype != torch.float32:
            return super().forward(input)
        rows = input.flatten(0, -2)
        product = _Product.apply if torch.is_grad_enabled() else _float32_product()
        outputs: Tensor = product(rows, self.weight, self.bias)
        return outputs.view(*input.shape[:-1], -1)


def _plain(x: Tensor) -> bool:
    """Whether these are rows in single precision on the CPU, traced by autograd alone; on some processors also sequences of rows."""
    return (
        (x.dim() == 2 or (x.dim() > 2 and _quick_for_sequences()))
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and x.layout == torch.strided
        and x.is_contiguous()
        and not _transformed()
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._is_tracing()
    )


_transformed: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


class _Product(torch.autograd.Function):
    """x Wᵀ + b and its gradients; second derivatives are PyTorch's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _float32_product()(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        back, own, shift = ctx.needs_input_grad
        product = functional.linear if torch.is_grad_enabled() else linear
        of_weights = functional.linear if len(x) <= short_batch(x.shape[1]) else product
        return (
            product(delta, weight.T) if back else None,
            of_weights(delta.T, x.T) if own else None,
            delta.sum(0) if shift else None,
        )


@cache
def _large() -> int:
    """Minimum number of multiplications for which oneDNN is used on this processor.

    Neither this nor :func:`_quick_for_sequences` measures anything: all machines with the same processor compute the same bits.
    """
    return LARGE_BEFORE if 0 < _amd_family() < FAMILY else LARGE


@cache
def _quick_for_sequences() -> bool:
    """Whether oneDNN is clearly faster for sequences: on AMD's processors from :data:`FAMILY` on."""
    return _amd_family() >= FAMILY


def _amd_family() -> int:
    """Family of an AMD processor; 0 for others."""
    name = processor()
    family = re.search(r"family (\d+)", name, re.IGNORECASE)
    return int(family[1]) if family is not None and "AMD" in name else 0


@cache
def _quick_for_short_batches() -> bool:
    """Whether oneDNN computes the gradients of weights of short batches faster on this machine, with the same bits.

    It does on an AMD EPYC of family 26, and does not on one of family 25. Measuring takes some milliseconds.
    """
    samples, outputs, inputs = TYPICAL
    draw = torch.Generator().manual_seed(0)
    delta, x = torch.randn(samples, outputs, generator=draw), torch.randn(samples, inputs, generator=draw)
    products = functional.linear, _float32_product()
    with torch.no_grad(), one_thread():
        calls = [partial(product, delta.T, x.T, None) for product in products]
        gradients = [call() for call in calls]
        measured = [[_seconds(call) for call in calls] for _ in range(TRIES)]
    usual, quick = (min(times) for times in zip(*measured, strict=True))
    return torch.equal(*gradients) and quick <= CLEARLY * usual


def _seconds(call: Callable[[], Tensor]) -> float:
    """Time of :data:`CALLS` calls."""
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return time.perf_counter() - begin


@cache
def _float32_product() -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """oneDNN's product, by the operator that compiled models use; PyTorch's own product on processors on which oneDNN is not faster,
    and if this build does not have oneDNN's."""
    if "Intel" in processor() or torch.backends.cpu.get_cpu_capability() in NARROW_REGISTERS:
        return functional.linear
    try:
        product = torch.ops.mkldnn._linear_pointwise

        def by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            outputs: Tensor = product(x, weight, bias, "none", [], "")
            return outputs

        probe = torch.linspace(-1, 1, 6).reshape(2, 3)
        if torch.allclose(by_onednn(probe, probe, None), probe @ probe.T):
            return by_onednn
    except (AttributeError, RuntimeError, TypeError):
        pass
    return functional.linear
