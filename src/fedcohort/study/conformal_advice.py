"""What to change if conformal participation admits no client."""

import math
from collections.abc import Sequence

import numpy as np

from fedcohort.core import formatted_values
from fedcohort.study.run_measures import Measured
from fedcohort.study.step_sizes import value_range

__all__ = ["conformal_advice"]


def conformal_advice(runs: Sequence[Measured]) -> str:
    """What to change if conformal participation admits no client: it depends on whether any quantile was finite."""
    experiment = runs[0].experiment
    lowest = [quantile for quantile in map(_smallest_quantile, runs) if math.isfinite(quantile)]
    settings = {name: formatted_values.setting(value) for name, value in experiment.to_dict()["selection"].items()}
    alpha, theta = settings.get("alpha_cp", "0.1"), settings.get("theta", "0.25")
    if not lowest:
        needed = math.ceil(1 / float(alpha)) - 1
        return (
            f"raise selection.alpha_cp (at {alpha}, a client needs {needed} held-out samples), or give clients more data: a larger "
            "federation.holdout, or fewer clients"
        )
    quantiles = value_range(lowest, lambda value: formatted_values.number(value, 3))
    by_seed = ", depending on the seed" if " to " in quantiles else ""
    return (
        f"the smallest quantile was {quantiles}{by_seed}, and selection.theta = {theta}; take more steps (a smaller "
        f"training.batch_size, now {experiment.training.batch_size}, or more selection.max_epochs, now "
        f"{settings.get('max_epochs', '40')}), raise selection.alpha_cp (now {alpha}) or theta, or give clients more data"
    )


def _smallest_quantile(run: Measured) -> float:
    """The smallest finite quantile of a run with conformal participation, over all its rounds; inf without any."""
    values = run.clients["q_hat"].to_numpy(np.float64) if "q_hat" in run.clients else np.zeros(0)
    return float(values[np.isfinite(values)].min(initial=math.inf))
