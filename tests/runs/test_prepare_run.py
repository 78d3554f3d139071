"""What is refused before the first round."""

from pathlib import Path

import pytest

import fedcohort
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.core.errors import UsageError
from tests.experiments import small


def test_weights_that_the_strategy_cannot_give(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"algorithm\.weights = 'unbiased': UCB gives no inclusion"):
        fedcohort.run(small(selection="ucb", algorithm={"weights": "unbiased"}), runs=tmp_path)
    assert fedcohort.run(
        small(algorithm=FedAvg(weights="unbiased").card and {"weights": "unbiased"}), runs=tmp_path
    ).finished
