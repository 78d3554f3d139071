"""Use a Flower strategy that has its own idea of how many nodes take part."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy

from fedcohort.core.errors import UsageError

__all__ = [
    "all_of_them", "chain", "check_inner", "inner_numbers", "inner_state", "like", "load_inner_state", "waits_for",
    "weight_key",
]  # fmt: skip

OWN_SAMPLING = {"fraction_train": 1.0, "min_train_nodes": 0, "min_available_nodes": 0}
"""Settings of Flower's strategies that sample nodes for training, and the values under which all connected nodes train."""


def chain(strategy: Strategy) -> list[Strategy]:
    """The strategy, and the strategies that it wraps (as those of differential privacy do)."""
    found = [strategy]
    while isinstance(inner := getattr(found[-1], "strategy", None), Strategy) and inner not in found:
        found.append(inner)
    return found


def check_inner(strategy: object) -> None:
    """Refuse what cannot be wrapped.

    Raises:
        UsageError: it is not a strategy of Flower's Message API, or one whose replies are not models of a fixed shape.
    """
    if not isinstance(strategy, Strategy):
        raise UsageError(
            f"strategy = {strategy!r}: is not a flwr.serverapp.strategy.Strategy; strategies of flwr.server are not supported"
        )
    for part in chain(strategy):
        if any("FedXgb" in cls.__name__ for cls in type(part).__mro__):
            raise UsageError(
                f"{type(part).__name__}: merges trees, whose size changes, and the selection checks the shapes of models; use a "
                "strategy for models of a fixed shape"
            )


def waits_for(strategy: Strategy) -> int:
    """The number of connected nodes that the strategy waits for."""
    return max((int(getattr(part, "min_available_nodes", 0)) for part in chain(strategy)), default=0)


def weight_key(strategy: Strategy) -> str | None:
    """The name of the metric that the strategy weighs replies by; None if it has none."""
    keys = [key for part in chain(strategy) if isinstance(key := getattr(part, "weighted_by_key", None), str)]
    return keys[0] if keys else None


@contextmanager
def all_of_them(strategy: Strategy) -> Iterator[None]:
    """Let the strategy train on all nodes that it sees: how many take part is decided by the selection.

    ``fraction_train = 0``, which switches training off, is left as it is.
    """
    changed: list[tuple[Any, str, Any]] = []
    for part in chain(strategy):
        if getattr(part, "fraction_train", None) == 0:
            continue
        changed += [(part, name, getattr(part, name)) for name in OWN_SAMPLING if hasattr(part, name)]
    try:
        for part, name, _ in changed:
            setattr(part, name, OWN_SAMPLING[name])
        yield
    finally:
        for part, name, before in changed:
            setattr(part, name, before)


def like(arrays: ArrayRecord, model: ArrayRecord) -> ArrayRecord:
    """``arrays`` with the types of the model's: some strategies return float64, also for counters."""
    kept = {}
    for name, array in arrays.items():
        kind = model[name].dtype if name in model else array.dtype
        kept[name] = array if array.dtype == kind else Array(np.asarray(array.numpy()).astype(kind))
    return ArrayRecord(kept)


def inner_numbers(strategy: Strategy) -> list[dict[str, float]]:
    """The attributes of each strategy of the chain that are numbers: settings, and state such as a norm that adapts."""
    return [
        {name: value for name, value in vars(part).items() if isinstance(value, int | float)}
        for part in chain(strategy)
    ]


def inner_state(strategy: Strategy, begun: Sequence[Mapping[str, float]]) -> list[dict[str, Any]]:
    """What each strategy of the chain remembers between rounds.

    These are its attributes that are arrays, or dictionaries or lists of them, and numbers that have changed.

    Args:
        strategy: the outermost strategy.
        begun: :func:`inner_numbers` before the first round of this process.
    """
    numbers = [
        {name: value for name, value in now.items() if name not in before or value != before[name]}
        for now, before in zip(inner_numbers(strategy), begun, strict=True)
    ]
    return [
        {name: value for name, value in vars(part).items() if _is_data(value)} | changed
        for part, changed in zip(chain(strategy), numbers, strict=True)
    ]


def load_inner_state(strategy: Strategy, state: list[dict[str, Any]]) -> None:
    """Restore what :func:`inner_state` returned."""
    for part, values in zip(chain(strategy), state, strict=True):
        for name, value in values.items():
            setattr(part, name, value)


def _is_data(value: object) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(isinstance(key, str) and isinstance(x, np.ndarray) for key, x in value.items())
    if isinstance(value, list):
        return bool(value) and all(isinstance(x, np.ndarray) for x in value)
    return isinstance(value, np.ndarray)
