"""Models at chance: classes without test samples do not count."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from fedcohort.study.guessing import guessing


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
