"""Whether a site has the frozen parameters of its server. They are not sent, because both build the network, such as from a file."""

import torch
from torch import Tensor

from fedcohort.algorithms import ModelState, Tensors
from fedcohort.core.errors import UsageError

__all__ = ["check_frozen", "sums_of"]

TOLERANCE = 1e-5
"""Largest difference, relative to the size of the parameter: initial weights are rounded in other ways on other processors."""


def sums_of(frozen: ModelState) -> Tensors:
    """Sum and norm of each parameter, float64 [2] by name."""
    return {name: _sums(value) for name, value in frozen.items()}


def check_frozen(at_server: Tensors, frozen: ModelState) -> None:
    """Compare a site's parameters with the sums of the server's.

    Raises:
        UsageError: one of them differs, or is missing.
    """
    for name, theirs in at_server.items():
        own = _sums(frozen[name]) if name in frozen else torch.full((2,), torch.nan, dtype=torch.float64)
        size = float(theirs[1]) * max(1, frozen[name].numel() if name in frozen else 1) ** 0.5
        if not bool(((own - theirs).abs() <= TOLERANCE * size).all()):
            raise UsageError(
                f"model: the parameter {name!r}, which has requires_grad = False and is not sent, has other values here than at the "
                "server; build the network with the same weights at both, such as those of one file"
            )


def _sums(value: Tensor) -> Tensor:
    exact = value.detach().cpu().double()
    return torch.stack([exact.sum(), torch.linalg.vector_norm(exact)])
