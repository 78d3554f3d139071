"""The contract suite compares what an algorithm says of its corrections with what it does."""

import pytest

from fedcohort.algorithms import Correction, FedNova, FedProx, Problem, Scaffold
from fedcohort.algorithms.base import adds_correction
from fedcohort.testing import check_algorithm
from fedcohort.testing.algorithms import _check_correction
from fedcohort.testing.base import ControlVariates


class Twice(FedProx):
    """Says twice of what it does."""

    def correction(self, problem: Problem) -> Correction:
        return Correction(proximal=2 * super().correction(problem).proximal)


def test_a_wrong_correction_is_found() -> None:
    with pytest.raises(AssertionError, match=r"Twice\.correction, round 1, client \d+: state"):
        _check_correction(lambda: Twice(mu=0.5))


@pytest.mark.parametrize("kind", [FedProx, FedNova, Scaffold])
def test_built_in_corrections_are_right(kind: type) -> None:
    assert adds_correction(kind())
    _check_correction(kind)


@pytest.mark.slow
def test_algorithms_with_a_correction_fulfill_the_contract() -> None:
    check_algorithm(lambda: FedProx(mu=0.5))


def test_corrections_of_own_code_are_not_replaced() -> None:
    assert not adds_correction(ControlVariates())

    class Own(FedProx):
        def correct(self, problem: Problem, gradients: dict) -> None:  # type: ignore[type-arg]
            gradients.clear()

    assert not adds_correction(Own())
    changed = FedProx()
    vars(changed)["correct"] = lambda *_: None
    assert not adds_correction(changed)
