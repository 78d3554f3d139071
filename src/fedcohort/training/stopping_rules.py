"""The built-in stopping rules, and how ``Cohort.stop`` names a rule; the contract is :class:`fedcohort.selection.StoppingRule`."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.files.paths import is_file, resolved
from fedcohort.core.parameters import make, parameters
from fedcohort.core.plugins import Table, is_file_name
from fedcohort.core.user_code.unseeded_draws import is_own
from fedcohort.measures import conformal
from fedcohort.selection import Cohort, Progress, StoppingRule

__all__ = ["RULES", "ConformalRule", "LossesRule", "beside_strategy", "class_of", "rules_of"]


@parameters
class ConformalRule(StoppingRule):
    """Stop when the conformal quantile q̂, or the mean size of the prediction sets, is small enough on the held-out part.

    Reports ``q_hat`` (missing if it is infinite), ``set_size`` (mean |C(x)|), ``done`` (1 or 0) and ``calibration`` (n_c). With
    ``test_set``, it also reports ``test_set_size``, the mean |C(x)| on the server's test set.
    """

    score: conformal.AnyScore = "s1"
    """Score of a prediction: s1 = 1 − f, s2 = exp(−k1·f), s3 = 1 − 1/(1 + exp(−k2·f + b)); absolute = |y − ŷ| for numeric labels."""
    alpha: Annotated[float, Gt(0), Lt(1)] = 0.1
    """Error rate of the quantile."""
    theta: float | None = 0.25
    """Stop only when q̂ is at most this; none ignores q̂."""
    set_size: float | None = None
    """Stop only when the mean size of the prediction sets is at most this; none ignores the size."""
    overflow: conformal.Overflow = "inf"
    """Value of q̂ if there are too few calibration samples: inf, or the largest score."""
    test_set: bool = False
    """Also measure the prediction sets of each client's final model on the server's test set."""
    k1: Annotated[float, Gt(0)] = conformal.K1
    """Steepness of s2."""
    k2: Annotated[float, Gt(0)] = conformal.K2
    """Steepness of s3."""
    b: Annotated[float, Ge(0)] = conformal.B
    """Offset of s3."""

    def check(self, progress: Progress) -> tuple[bool, dict[str, float]]:
        """Without ``theta`` and ``set_size``, the rule checks only the last epoch, and no client stops early."""
        no_criterion = self.theta is None and self.set_size is None
        if no_criterion and not progress.last:
            return False, {}
        outputs, labels = progress.held_out()
        q = conformal.quantile(self._scores(outputs, labels), self.alpha, self.overflow)
        size = self._mean_size(outputs, q)
        done = not no_criterion and len(labels) > 0
        done &= self.theta is None or q <= self.theta
        done &= self.set_size is None or size <= self.set_size
        report = {"q_hat": q, "set_size": size, "done": float(done), "calibration": float(len(labels))}
        if self.test_set and (done or progress.last):
            report["test_set_size"] = self._mean_size(progress.tested()[0], q)
        return done, report

    def _scores(self, outputs: Values, labels: Values | Indices) -> Values:
        """The score of every sample."""
        if self.score == "absolute":
            return conformal.absolute_residuals(outputs, labels)
        return conformal.true_class_scores(outputs, labels, self.score, k1=self.k1, k2=self.k2, b=self.b)

    def _mean_size(self, outputs: Values, q: float) -> float:
        """Mean number of classes in a set, or the length of an interval in standard deviations of the labels."""
        if self.score == "absolute":
            return 2 * q
        sets = conformal.prediction_sets(outputs, q, self.score, k1=self.k1, k2=self.k2, b=self.b)
        return float(sets.sum(axis=1).mean()) if len(sets) else float("inf")


@parameters
class LossesRule(StoppingRule):
    """Never stop, and report two losses of the client's final model.

    Reports ``training_loss`` (the ``loss`` on its training samples) and ``held_out_loss`` (the cross-entropy on its held-out
    samples, or on its training samples if it has no others).
    """

    loss: Literal["robust", "ce"] = "ce"
    """Cross-entropy, or FLASH's robust loss with the model's own outputs as pseudo-labels."""
    alpha: Annotated[float, Ge(0)] = 0.1
    """Weight of the cross-entropy to the model's own outputs in the robust loss."""
    beta: Annotated[float, Ge(0)] = 4.0
    """Weight of the reverse cross-entropy in the robust loss."""
    log_zero: Annotated[float, Lt(0)] = -4.0
    """Value used for log 0 in the robust loss."""

    def check(self, progress: Progress) -> tuple[bool, dict[str, float]]:
        """Compute both losses after the last epoch, with two forward passes."""
        if not progress.last:
            return False, {}
        trained, held_out = progress.trained(), progress.held_out()
        if trained[1].dtype.kind == "f":  # numeric labels
            sets = {"training_loss": trained, "held_out_loss": held_out if len(held_out[1]) else trained}
            return False, {name: float(np.square(outputs[:, 0] - y).mean()) for name, (outputs, y) in sets.items()}
        surprise = -np.log(np.maximum(trained[0], 1e-12))
        losses = surprise[np.arange(len(surprise)), trained[1]]
        if self.loss == "robust":
            entropy = (trained[0] * surprise).sum(axis=1)
            losses = losses + self.alpha * entropy + self.beta * self.log_zero * np.expm1(-losses)
        probabilities, labels = held_out if len(held_out[1]) else trained
        held = -np.log(np.maximum(probabilities[np.arange(len(labels)), labels], 1e-12))
        return False, {"training_loss": float(losses.mean()), "held_out_loss": float(held.mean())}


RULES = Table(
    kind="stopping rule",
    group="fedcohort.stopping_rules",
    base="fedcohort.selection:StoppingRule",
    builtin={
        "conformal": "fedcohort.training.stopping_rules:ConformalRule",
        "losses": "fedcohort.training.stopping_rules:LossesRule",
    },
)
"""Every rule by name."""


def rules_of(stop: Mapping[str, object] | None) -> Callable[[], StoppingRule] | None:
    """Makes the rule that ``Cohort.stop`` describes, a new one at each call; None without a rule.

    Every client gets a rule of its own, because a rule of a user can keep something on ``self``: clients that shared one would stop by
    what others had done, and by the order in which threads train them.

    Raises:
        UsageError: there is no such rule, or it does not have such a setting.
    """
    if stop is None:
        return None
    settings = dict(stop)
    name = settings.pop("rule", None)
    if not isinstance(name, str):
        raise UsageError(f"Cohort.stop = {dict(stop)!r}: it does not name a rule; write {{'rule': 'conformal', …}}")
    found = RULES.find(name, "Cohort.stop.rule")

    def rule() -> StoppingRule:
        made: StoppingRule = make(found, settings, f"Cohort.stop ({name})")
        return made

    rule()  # so that a wrong setting is found before the first client trains
    return rule


def beside_strategy(cohort: Cohort, strategy: object) -> Cohort:
    """The cohort, with the whole path of a stopping rule that is in a file in the folder of the strategy's file.

    A strategy and its rule are files of one folder, and runs can begin in any. A rule that is not there is looked for in the working
    folder, as for strategies without a file.

    Args:
        cohort: the cohort, whose ``stop`` can name ``file.py:Rule``.
        strategy: the strategy.
    """
    name = (cohort.stop or {}).get("rule")
    if cohort.stop is None or not isinstance(name, str) or not is_file_name(name):
        return cohort
    file, _, rule = name.rpartition(":")
    for cls in filter(is_own, type(strategy).__mro__):
        source = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if source is not None and is_file(path := resolved(file, Path(source).absolute().parent)):
            return replace(cohort, stop={**cohort.stop, "rule": f"{path}:{rule}"})
    return cohort


def class_of(stop: Mapping[str, object] | None) -> type | None:
    """The class of the rule that ``Cohort.stop`` describes; None without a rule, and if :func:`rules_of` refuses its name."""
    name = None if stop is None else stop.get("rule")
    try:
        return RULES.find(name, "Cohort.stop.rule") if isinstance(name, str) else None
    except UsageError:
        return None
