"""Whether a site trains what its server trains, and has the same frozen parameters.

Frozen parameters are not sent, because both build the network, such as from a file.
"""

from collections.abc import Collection

import torch
from torch import Tensor

from fedcohort.algorithms import ModelState, Tensors
from fedcohort.core.errors import UsageError

__all__ = ["check_model", "check_sums", "check_trained", "sums_of"]

TOLERANCE = 1e-4
"""Largest difference, relative to the norm of the parameter: initial weights are rounded in other ways on other processors."""
FREQUENCIES = (1.0, 2**0.5, 3**0.5)
"""Of the cosines by which the entries are weighted in sums, so that the order of the entries counts as well."""


def sums_of(frozen: ModelState) -> Tensors:
    """Norm and weighted sums of each parameter, float64 [1 + number of frequencies] by name."""
    return {name: _sums(value) for name, value in frozen.items()}


def check_sums(at_server: Tensors, frozen: ModelState, trainable: Collection[str] = ()) -> None:
    """Compare a site's parameters with the sums of the server's.

    Args:
        at_server: sums of the server's frozen parameters, by name.
        frozen: the site's frozen parameters.
        trainable: names of the parameters that the site trains.

    Raises:
        UsageError: one of them differs, is missing, or is trained at the site.
    """
    for name, theirs in at_server.items():
        if name in trainable:
            raise UsageError(
                f"model: the parameter {name!r} has requires_grad = True here and False at the server, which does not send it; build "
                "the network with the same parameters frozen at both"
            )
        own = _sums(frozen[name]) if name in frozen else torch.full_like(theirs, torch.nan)
        if not bool(((own - theirs).abs() <= TOLERANCE * theirs[0]).all()):
            raise UsageError(
                f"model: the parameter {name!r}, which has requires_grad = False and is not sent, has other values here than at the "
                "server; build the network with the same weights at both, such as those of one file"
            )


def check_trained(at_server: Collection[str], trainable: Collection[str], entries: Collection[str]) -> None:
    """Compare what a site trains with what the server takes for trained.

    Args:
        at_server: names of the parameters that the server takes for trained.
        trainable: names of the parameters that the site trains.
        entries: names of all entries of the site's network.

    Raises:
        UsageError: they differ.
    """
    for name in sorted({*at_server} ^ {*trainable}):
        if name not in entries:
            raise UsageError(
                f"model: the server trains the parameter {name!r}, which the network here does not have; build the same network at "
                "both"
            )
        here = name in trainable
        raise UsageError(
            f"model: the parameter {name!r} has requires_grad = {here} here and {not here} at the server; build the network with the "
            "same parameters frozen at both"
        )


def check_model(received: ModelState, own: ModelState) -> None:
    """Compare a model that the server sends with the network here. Compiled steps read a model without checks of their own.

    Args:
        received: the model.
        own: a model of the network here.

    Raises:
        UsageError: an entry is missing, is not of the network, or has another shape or number format.
    """
    for name in sorted({*received} | {*own}):
        server, here = (_form(model.get(name)) for model in (received, own))
        if server != here:
            raise UsageError(
                f"model: {name!r} is {server} in the model of the server, and {here} in the network here; build the same network at "
                "both"
            )


def _form(value: Tensor | None) -> str:
    """Number format and shape of an entry."""
    return "missing" if value is None else f"{value.dtype} {list(value.shape)}".removeprefix("torch.")


def _sums(value: Tensor) -> Tensor:
    exact = value.detach().cpu().flatten().double()
    places = torch.arange(1, len(exact) + 1, dtype=torch.float64)
    weighted = [exact @ (frequency * places).cos() for frequency in FREQUENCIES]
    return torch.stack([torch.linalg.vector_norm(exact), *weighted])
