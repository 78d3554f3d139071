"""Models at chance: classes without test samples do not count."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from fedcohort.study.guessing import guessing, hardly_above_chance


def measured(*classes: float) -> Any:
    """A run of which only the accuracy on each class is known."""
    return SimpleNamespace(run=SimpleNamespace(labels="classes"), class_accuracy=np.array(classes), accuracy=0.0)


def test_classes_without_test_samples_do_not_count() -> None:
    nan = float("nan")
    found = guessing([measured(1.0, 0.0, nan, nan, 0.0)])
    assert found is not None
    assert found.classes == 3
    assert guessing([measured(1.0, 0.9, nan, nan, 0.8)]) is None
    assert guessing([measured(1.0, nan, nan)]) is None


def test_all_classes_count_if_all_have_samples() -> None:
    found = guessing([measured(1.0, 0.0, 0.0, 0.0, 0.0)])
    assert found is not None
    assert found == (5, True)


def test_how_far_above_chance_a_mean_must_be() -> None:
    """Of three classes, chance is 0.333; a quarter of the excess that counts ends at 0.389, and half of it at 0.444."""
    assert guessing([measured(0.38, 0.40, 0.385)]) == (3, True)
    assert guessing([measured(0.38, 0.42, 0.40)]) == (3, False), "one seed"
    assert guessing([measured(0.46, 0.44, 0.45)]) is None
    assert guessing([measured(0.46, float("nan"), 0.44, float("nan"), 0.45)]) is None, "without samples of two classes"
    assert guessing([measured(*[mean] * 3) for mean in (0.36, 0.40, 0.44)]) == (3, False), "0.301 to 0.499"
    assert guessing([measured(*[mean] * 3) for mean in (0.395, 0.40, 0.405)]) is None, "0.388 to 0.412"


def test_accuracies_that_are_all_just_above_chance_can_be_told_from_it() -> None:
    """Means of two classes up to 0.5625 count as chance. Of 0.55, 0.56 and 0.55, the interval is 0.5533 ± 0.0143, above 0.5; of 0.48,
    0.56 and 0.52, it is 0.52 ± 0.099."""
    above, spread, flat = (
        [measured(mean, mean) for mean in means]
        for means in ((0.55, 0.56, 0.55), (0.48, 0.56, 0.52), (0.55, 0.55, 0.55))
    )
    assert guessing(above) == guessing(spread) == guessing(flat) == (2, True)
    assert [hardly_above_chance(runs) for runs in (above, spread, flat, above[:1])] == [True, False, False, False]
    assert not hardly_above_chance([measured(mean, mean) for mean in (0.8, 0.81)]), "far above chance"
