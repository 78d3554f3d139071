"""Check the arguments of measures: shapes, lengths, NaN."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.core.arrays import Indices, Values, as_values
from fedcohort.core.errors import UsageError, shown

__all__ = [
    "as_counts",
    "as_measured",
    "as_rewards",
    "as_series",
    "distinct_clients",
    "same_length",
]


def as_series(values: ArrayLike, name: str) -> Values:
    """A one-dimensional array that is not empty."""
    x = as_values(values)
    if x.ndim != 1 or not x.size:
        raise UsageError(f"{name} has the shape {x.shape}; it must be one-dimensional and not empty")
    return x


def as_measured(values: ArrayLike, name: str) -> Values:
    """The entries of a series that are not NaN, at least one."""
    x = as_series(values, name)
    x = x[~np.isnan(x)]
    if not x.size:
        raise UsageError(f"{name} contains only NaN; at least one entry must be measured")
    return x


def as_counts(values: ArrayLike) -> Values:
    """A series of finite numbers that are not negative."""
    x = as_series(values, "counts")
    if not ((x >= 0) & np.isfinite(x)).all():
        raise UsageError("counts must be finite and not negative")
    return x


def same_length(a: Values, a_name: str, b: Values, b_name: str) -> None:
    """Refuse two series of different lengths."""
    if len(a) != len(b):
        raise UsageError(f"{a_name} has {len(a)} entries, {b_name} {len(b)}; they must have the same number")


def as_rewards(rewards: ArrayLike, selections: Sequence[ArrayLike]) -> tuple[Values, list[Indices]]:
    """The reward matrix, and the distinct clients of each round."""
    matrix = as_values(rewards)
    if matrix.ndim != 2 or not matrix.size:
        raise UsageError(f"rewards has the shape {matrix.shape}; it must be [rounds, clients] and not empty")
    if len(selections) != len(matrix):
        raise UsageError(
            f"selections has {len(selections)} rounds, rewards {len(matrix)}; give the clients and the rewards of the same rounds"
        )
    return matrix, distinct_clients(selections, matrix.shape[1])


def distinct_clients(selections: Sequence[ArrayLike], num_clients: int) -> list[Indices]:
    """The distinct clients of each round."""
    chosen = []
    for t, given in enumerate(selections, start=1):
        ids = np.asarray(given)
        if ids.size and ids.dtype.kind in "bf":  # a mask, or numbers that would be cut off
            raise UsageError(f"selections: round {t} is {shown(given)}; give the ids of its clients, integers")
        clients = np.unique(ids.astype(np.int64))
        if len(clients) and not (clients[0] >= 0 and clients[-1] < num_clients):
            raise UsageError(f"selections: round {t} contains a client outside 0…{num_clients - 1}")
        chosen.append(clients)
    return chosen
