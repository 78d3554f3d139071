"""The matrix: every strategy with every algorithm, on a federation that is not kind; and the pairs that are refused."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import fedcohort
from fedcohort.algorithms import ALGORITHMS
from fedcohort.errors import UsageError
from fedcohort.pairings import GIVEN
from fedcohort.selection import STRATEGIES
from tests.golden.test_same_bits import record
from tests.matrix.worlds import hard
from tests.resume.test_resume import stop_after

EVERY = list(itertools.product(STRATEGIES.builtin, ALGORITHMS.builtin))
REFUSED = {(strategy, "centralised") for strategy in STRATEGIES.builtin if strategy not in ("uniform", "all")}
"""Nobody is selected where one client has everything."""


@pytest.mark.parametrize(("strategy", "algorithm"), [pair for pair in EVERY if pair not in REFUSED])
def test_three_rounds_and_a_resume(strategy: str, algorithm: str, tmp_path: Path) -> None:
    experiment = hard(strategy, algorithm)
    straight = fedcohort.run(experiment, runs=tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "broken", progress=stop_after(2))
    resumed = fedcohort.run(experiment, runs=tmp_path / "broken")
    assert record(resumed) == record(straight)
    rounds = resumed.rounds
    assert list(rounds.index) == [1, 2, 3]
    assert np.isfinite(rounds.drop(columns=["class_accuracy", "note"]).to_numpy(dtype=float)).all()
    assert rounds["admitted"].sum() > 0
    assert rounds["test_accuracy"].between(0, 1).all()
    model = resumed.checkpoint()[1]["model"]  # type: ignore[index]
    assert all(bool(torch.isfinite(value).all()) for value in model.values() if value.is_floating_point())


@pytest.mark.parametrize(("strategy", "algorithm"), sorted(REFUSED))
def test_what_makes_no_sense_is_refused_before_anything_is_trained(
    strategy: str, algorithm: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"selection\.name: \w+ selects nobody under Centralised"):
        fedcohort.run(hard(strategy, algorithm), runs=tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS.builtin if name != "centralised"])
def test_the_hard_federation_is_hard(algorithm: str, tmp_path: Path) -> None:
    """Somebody is away, fails or is late: none of it is there for nothing."""
    run = fedcohort.run(hard("uniform", algorithm), runs=tmp_path)
    assert (run.rounds["available"] < 10).any()
    assert {"admitted", "failed", "late"} <= set(run.clients["status"])


# --- weight modes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", GIVEN)
@pytest.mark.parametrize("strategy", STRATEGIES.builtin)
def test_weight_modes_that_the_strategy_must_provide_for(strategy: str, weights: str, tmp_path: Path) -> None:
    experiment = hard(strategy, "fedavg", algorithm={"weights": weights})
    if GIVEN[weights] in STRATEGIES.find(strategy, "").gives:
        run = fedcohort.run(experiment, runs=tmp_path)
        assert np.isfinite(run.rounds["test_loss"]).all()
        assert run.rounds["note"].str.contains("largest weight").all()
        return
    message = rf"algorithm\.weights = '{weights}': \w+ gives no .*; use n_selected or uniform"
    with pytest.raises(UsageError, match=message):
        fedcohort.run(experiment, runs=tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("weights", ["n_total_delta", "n_total_model", "scaled", "unbiased"])
@pytest.mark.parametrize("algorithm", ALGORITHMS.builtin)
def test_weight_modes_under_every_algorithm(algorithm: str, weights: str, tmp_path: Path) -> None:
    """Ensembles are averages, and say so at once; everything else takes any mode."""
    if algorithm in ("feddf", "rhfl"):
        with pytest.raises(UsageError, match=rf"algorithm\.weights = '{weights}': \w+ averages the clients' models"):
            hard("uniform", algorithm, algorithm={"weights": weights})
        return
    run = fedcohort.run(hard("uniform", algorithm, rounds=2, algorithm={"weights": weights}), runs=tmp_path)
    assert np.isfinite(run.rounds["test_loss"]).all()


def test_a_row_that_makes_no_sense_stops_the_comparison_before_it_begins(tmp_path: Path) -> None:
    variants = [{"label": "pooled", "algorithm": "centralised"}]
    with pytest.raises(UsageError, match=r"row 'pooled': selection\.name: UCB selects nobody under Centralised"):
        fedcohort.compare(hard("ucb", "fedavg", variants=variants), runs=tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_cap_on_weights_that_are_never_large() -> None:
    for weights in ("n_selected", "uniform", "n_total_delta", "n_total_model"):
        experiment = hard("uniform", "fedavg", algorithm={"weights": weights, "max_weight": 0.5})
        with pytest.raises(UsageError, match=r"algorithm\.max_weight = 0\.5: weights '\w+' are never large"):
            experiment.cells()
