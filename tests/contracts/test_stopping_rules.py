"""Every stopping rule fulfills its contract, and the check detects rules that do not."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedcohort.core.parameters import make, parameters
from fedcohort.selection import StoppingRule
from fedcohort.testing import check_stopping_rule
from fedcohort.training.stopping_rules import RULES

SETTINGS: dict[str, list[dict[str, Any]]] = {
    "conformal": [
        {"overflow": "max", "test_set": True},
        {"score": "s3", "theta": None, "set_size": 1.0},
        {"theta": None},
    ],
    "losses": [{"loss": "robust"}],
}
CASES = [(name, values) for name in RULES for values in ({}, *SETTINGS.get(name, []))]


@pytest.mark.parametrize(("name", "values"), CASES)
def test_every_stopping_rule_fulfills_the_contract(name: str, values: dict[str, Any]) -> None:
    check_stopping_rule(partial(make, RULES.find(name, "Cohort.stop"), values, "Cohort.stop"))


@pytest.mark.parametrize(("name", "values"), [("conformal", {"score": "absolute"}), ("losses", {})])
def test_rules_for_numbers_fulfill_the_contract(name: str, values: dict[str, Any]) -> None:
    check_stopping_rule(partial(make, RULES.find(name, "Cohort.stop"), values, "Cohort.stop"), numeric=True)


def own(check: Callable[[Any, Any], Any]) -> type[StoppingRule]:
    """A rule that returns this; the first argument is itself."""

    @parameters
    class Own(StoppingRule):
        """A rule."""

        def check(self, progress: Any) -> Any:
            return check(self, progress)

    return Own


_calls = itertools.count()


def lower_than_ever(self: Any, progress: Any) -> Any:
    """Compares with the lowest loss of all clients, which the class keeps."""
    lowest = getattr(type(self), "_lowest", np.inf)
    type(self)._lowest = min(lowest, progress.loss)
    return progress.loss > lowest, {"gain": lowest - progress.loss}


def rewrites(self: Any, progress: Any) -> Any:
    if progress.before:
        progress.before[-1]["gain"] = 0.0
    return False, {"gain": progress.loss}


WRONG: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda self, p: p.loss < 0.5, "check returned False; return whether to stop and the numbers to report"),
    (lambda self, p: None, "check returned None; return whether to stop"),
    (lambda self, p: (None, {}), "check returned None for whether to stop; return True or False"),
    (lambda self, p: (p.held_out()[0] > 0.5, {}), "for whether to stop; return True or False"),
    (lambda self, p: (False, {"gain": "small"}), "reports 'gain': 'small'; report numbers, by name"),
    (lambda self, p: (False, {"loss": p.loss}), "reports 'loss', which is measured for every client; use another name"),
    (lambda self, p: (p.before[-1]["gain"] < 0.1, {"gain": p.loss}), r"a client, epoch 1: raised IndexError: .*test_stopping"),
    (lambda self, p: (False, {"most": p.held_out()[0].max()}), "a client without held-out samples, epoch 1: raised ValueError: zero"),
    (lambda self, p: (False, {"tenths": float(int(10 * p.loss))}), "epoch 1 without a step: raised ValueError: cannot"),
    (lower_than_ever, "returned .* in the same training alone; compute it from progress and self only"),
    (lambda self, p: (False, {"calls": next(_calls)}), "returned .* in the same training alone"),
    (lambda self, p: (np.random.random() < 0.5, {}), r"draws from numpy\.random; draw from a generator with a seed"),  # noqa: NPY002
    (lambda self, p: (False, {"noise": np.random.default_rng().normal()}), "returned .* in the same training alone"),
    (rewrites, "epoch 2: raised TypeError: 'mappingproxy' object does not support item assignment"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "message"), WRONG)
def test_wrong_stopping_rules_are_found(check: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=rf"^Own, .*{message}"):
        check_stopping_rule(own(check))


def test_a_rule_may_keep_something_about_its_training() -> None:
    def patience(self: Any, progress: Any) -> Any:
        self._best = min(getattr(self, "_best", np.inf), progress.loss)
        return progress.loss > self._best, {"best": self._best}

    check_stopping_rule(own(patience))
