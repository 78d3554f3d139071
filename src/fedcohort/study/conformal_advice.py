"""What to change if conformal participation admits no client."""

import math
from collections.abc import Sequence

import numpy as np

from fedcohort.core.words import formatted_values
from fedcohort.study.run_measures import Measured
from fedcohort.study.step_sizes import value_range

__all__ = ["conformal_advice"]


def conformal_advice(runs: Sequence[Measured]) -> str:
    """What to change if conformal participation admits no client: it depends on whether any quantile was finite, and on the rule."""
    experiment = runs[0].experiment
    calibrated = [run for run in runs if math.isfinite(_smallest(run, "q_hat"))]
    settings = {name: formatted_values.setting(value) for name, value in experiment.to_dict()["selection"].items()}
    alpha = settings.get("alpha_cp", "0.1")
    if not calibrated:
        needed = math.ceil(1 / float(alpha)) - 1
        return (
            f"raise selection.alpha_cp (at {alpha}, a client needs {needed} held-out samples), or give clients more data: a larger "
            "federation.holdout, or fewer clients"
        )
    column, what, limit, usual = "q_hat", "quantile", "theta", "0.25"
    if settings.get("rule") == "set_size":
        column, what, limit, usual = "set_size", "mean size of prediction sets", "max_size", "1.5"
    lowest = value_range(
        (_smallest(run, column) for run in calibrated), lambda value: formatted_values.number(value, 3)
    )
    by_seed = ", depending on the seed" if " to " in lowest else ""
    size = experiment.training.batch_size
    return (
        f"the smallest {what} was {lowest}{by_seed}, and selection.{limit} = {settings.get(limit, usual)}; take more steps (a smaller "
        f"training.batch_size, now {size or 'all samples'}, or more selection.max_epochs, now "
        f"{settings.get('max_epochs', '40')}), raise selection.alpha_cp (now {alpha}) or {limit}, or give clients more data"
    )


def _smallest(run: Measured, column: str) -> float:
    """The smallest finite value of a report of clients with conformal participation, over all rounds of a run; inf without any."""
    values = run.clients[column].to_numpy(np.float64) if column in run.clients else np.zeros(0)
    return float(values[np.isfinite(values)].min(initial=math.inf))
