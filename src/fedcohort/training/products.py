"""Matrix products in single precision on a CPU, by the quicker of PyTorch's two libraries.

PyTorch multiplies float32 matrices by MKL, which keeps to 256-bit registers on processors that are not Intel's; oneDNN, which PyTorch
has for convolutions, uses all of them. On an AMD processor with AVX-512, one thread: 85 and 200 GFLOP/s.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["linear"]


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x Wᵀ [n, h] of x [n, d] and W [h, d], of any strides."""
    if x.dtype == torch.float32 and x.device.type == "cpu":
        return _single()(x, weight)
    return functional.linear(x, weight)


@cache
def _single() -> Callable[[Tensor, Tensor], Tensor]:
    """oneDNN's product, if this build of PyTorch has it under the name by which compiled models call it."""
    try:
        product = torch.ops.mkldnn._linear_pointwise

        def by_onednn(x: Tensor, weight: Tensor) -> Tensor:
            found: Tensor = product(x, weight, None, "none", [], "")
            return found

        probe = torch.linspace(-1, 1, 6).reshape(2, 3)
        if torch.allclose(by_onednn(probe, probe), probe @ probe.T):
            return by_onednn
    except (AttributeError, RuntimeError, TypeError):
        pass
    return functional.linear
