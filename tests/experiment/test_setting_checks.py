"""Settings of measures that do not fit each other."""

import warnings

import pytest

from fedcohort.experiment import Experiment


def about_patience(rounds: int, every: int, patience: int, validation: float = 0.1) -> list[str]:
    """The warnings about the patience of early stopping."""
    measures = {"evaluate_every": every, "patience": patience}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        Experiment(rounds=rounds, measures=measures, data={"name": "digits", "validation": validation})
    return [str(one.message) for one in found]


def test_early_stopping_that_waits_for_no_test_gets_a_warning() -> None:
    (message,) = about_patience(8, 3, 2)
    assert message.startswith(
        "measures.patience = 2: fewer rounds than measures.evaluate_every = 3, so that early stopping would end"
    )
    assert message.endswith("; use at least 3")


@pytest.mark.parametrize("settings", [(8, 3, 3), (3, 3, 2), (2, 300, 100), (8, 3, 2, 0.0)])
def test_other_settings_get_none(settings: tuple[int, int, int]) -> None:
    """Such as a single test in the last round, and runs without a validation set."""
    assert about_patience(*settings) == []
