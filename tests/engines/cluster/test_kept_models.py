"""Models that stay on the host that trained them: single ones, and those of a stack that are not computed one by one."""

from collections.abc import Mapping

import pytest
import torch

from fedcohort.algorithms import ModelState, Update
from fedcohort.engines.cluster.kept_models import KeptStack, KeptStates


class Group:
    """A stack of models with the values 10, 11, 12 at positions 0, 1 and 2."""

    size, num_bytes, mixed_with = 3, 4, 0

    def state_of(self, position: int) -> ModelState:
        return {"w": torch.tensor([10.0 + position])}

    def is_finite(self, position: int) -> bool:
        return position >= 0

    def mean(self, weights: Mapping[int, float]) -> ModelState:
        total = sum((10.0 + position) * weight for position, weight in weights.items())
        return {"w": torch.tensor([total / sum(weights.values())])}


def test_the_mean_of_single_models_is_weighted() -> None:
    kept = KeptStates([{"w": torch.tensor([value])} for value in (1.0, 2.0, 6.0)])
    assert kept.state_of(2)["w"].item() == 6
    assert kept.mean({0: 1.0, 2: 3.0})["w"].item() == pytest.approx((1 + 3 * 6) / 4)


def test_a_stack_finds_models_by_the_positions_of_their_clients() -> None:
    group = Group()
    kept = KeptStack.of([Update.among(group, position, 5 + position, 9, 3) for position in (2, 0)])
    assert kept is not None
    assert [kept.state_of(i)["w"].item() for i in (0, 1)] == [12, 10]
    assert kept.mean({0: 3.0, 1: 1.0})["w"].item() == pytest.approx((3 * 12 + 10) / 4)


def test_models_of_several_stacks_or_computed_ones_are_no_stack() -> None:
    group, other = Group(), Group()
    one, two = Update.among(group, 0, 5, 9, 3), Update.among(group, 1, 6, 9, 3)
    assert KeptStack.of([]) is None
    assert KeptStack.of([one, Update.among(other, 0, 7, 9, 3)]) is None
    assert KeptStack.of([one, Update(8, 9, 3, {"w": torch.zeros(1)})]) is None
    assert KeptStack.of([one, two]) is not None
    assert KeptStack.of([one]) is not None
    assert two.state["w"].item() == 11  # computed now
    assert KeptStack.of([one, two]) is None
