"""Which strategies can be combined with which algorithms: all, except for the pairs that :func:`check` refuses."""

from fedcohort.algorithms import Algorithm
from fedcohort.algorithms.base import LARGE_WEIGHT_MODES, check_hooks
from fedcohort.core.errors import UsageError
from fedcohort.selection import Selector
from fedcohort.selection.strategies.all_available import All
from fedcohort.selection.strategies.uniform import Uniform

__all__ = ["NEEDED_FROM_STRATEGY", "check", "check_row"]

NEEDED_FROM_STRATEGY = {"unbiased": "inclusion", "cohort": "weights"}
"""Weight mode → the numbers that it needs from the strategy, see :attr:`fedcohort.selection.Selector.gives`."""


def check(selector: Selector, algorithm: Algorithm) -> None:
    """Refuse a strategy and an algorithm that cannot be combined, before training.

    Raises:
        UsageError: they cannot be combined; the message names the setting to change.
    """
    check_hooks(algorithm)
    if algorithm.pools and not isinstance(selector, (Uniform, All)):
        raise UsageError(
            f"selection.name: {type(selector).__name__} has no effect with {type(algorithm).__name__}, which trains one client on "
            "the data of all clients; use 'uniform' (the default) or 'all'"
        )
    needed = NEEDED_FROM_STRATEGY.get(algorithm.weights)
    if needed is not None and needed not in selector.gives:
        what = "inclusion probabilities" if needed == "inclusion" else "weights"
        raise UsageError(
            f"algorithm.weights = {algorithm.weights!r}: {type(selector).__name__} gives no {what}; use n_selected or uniform"
        )
    if algorithm.max_weight is not None and algorithm.weights not in LARGE_WEIGHT_MODES:
        raise UsageError(
            f"algorithm.max_weight = {algorithm.max_weight:g}: weights {algorithm.weights!r} are never large; "
            f"leave it out, or use {', '.join(LARGE_WEIGHT_MODES[:-1])} or {LARGE_WEIGHT_MODES[-1]}"
        )


def check_row(label: str, selector: Selector, algorithm: Algorithm) -> None:
    """Refuse a row of a comparison that :func:`check` refuses; the message names the row.

    Raises:
        UsageError: strategy and algorithm of the row cannot be combined.
    """
    try:
        check(selector, algorithm)
    except UsageError as error:
        raise UsageError(f"row {label!r}: {error}") from None
