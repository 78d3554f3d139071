"""Which strategy goes with which algorithm: every one with every one, but for what :func:`check` refuses before training."""

from fedcohort.algorithms import Algorithm
from fedcohort.algorithms.base import LARGE
from fedcohort.core.errors import UsageError
from fedcohort.selection import Selector
from fedcohort.selection.all_available import All
from fedcohort.selection.uniform import Uniform

__all__ = ["GIVEN", "check"]

GIVEN = {"unbiased": "inclusion", "cohort": "weights"}
"""Weight modes that live on what the strategy says of its cohort: see :attr:`fedcohort.selection.Selector.gives`."""


def check(selector: Selector, algorithm: Algorithm) -> None:
    """Refuse a pairing that makes no sense.

    Raises:
        UsageError: it makes none; names the parameter to change.
    """
    if algorithm.pools and not isinstance(selector, (Uniform, All)):
        raise UsageError(
            f"selection.name: {type(selector).__name__} selects nobody under {type(algorithm).__name__}, which trains one client "
            "that holds everybody's data; use 'uniform' (the default) or 'all'"
        )
    wanted = GIVEN.get(algorithm.weights)
    if wanted is not None and wanted not in selector.gives:
        what = "inclusion probabilities" if wanted == "inclusion" else "weights"
        raise UsageError(
            f"algorithm.weights = {algorithm.weights!r}: {type(selector).__name__} gives no {what}; use n_selected or uniform"
        )
    if algorithm.max_weight is not None and algorithm.weights not in LARGE:
        raise UsageError(
            f"algorithm.max_weight = {algorithm.max_weight:g}: weights {algorithm.weights!r} are never large; "
            f"leave it out, or use {', '.join(LARGE[:-1])} or {LARGE[-1]}"
        )
