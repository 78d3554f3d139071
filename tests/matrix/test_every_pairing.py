"""The matrix: every strategy with every algorithm, on a federation that is not kind; and the pairs that are refused."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import fedcohort
from fedcohort.algorithms import ALGORITHMS
from fedcohort.core.errors import UsageError
from fedcohort.core.states import pack, unpack
from fedcohort.experiment.pairings import GIVEN
from fedcohort.selection import STRATEGIES
from tests.golden.test_same_bits import record
from tests.matrix.worlds import clients, hard, in_play, play, told
from tests.resume.test_resume import stop_after

EVERY = list(itertools.product(STRATEGIES.builtin, ALGORITHMS.builtin))
REFUSED = {(strategy, "centralised") for strategy in STRATEGIES.builtin if strategy not in ("uniform", "all")}
"""Nobody is selected where one client has everything."""


@pytest.fixture
def made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcohort.runs.prepare.federate", lambda experiment, *_: clients(experiment.seed))


@pytest.mark.usefixtures("made_once")
@pytest.mark.parametrize(("strategy", "algorithm"), [pair for pair in EVERY if pair not in REFUSED])
def test_three_rounds_and_a_resume(strategy: str, algorithm: str) -> None:
    experiment = hard(strategy, algorithm)
    with in_play(experiment) as game:
        rows = play(game, [1, 2])
        saved = pack(game.state_dict())
        rows += play(game, [3])
        ended = pack(game.state_dict())
    with in_play(experiment) as game:
        game.load_state_dict(unpack(saved))
        resumed = play(game, [3])
        assert pack(game.state_dict()) == ended
    assert told(resumed[0]) == told(rows[2])

    assert sum(row.admitted for row in rows) > 0
    for row in rows:
        measured = [row.test_accuracy, row.test_loss, row.validation_accuracy, row.validation_loss, row.simulated_time]
        learned = [row.train_loss, row.local_accuracy] if row.trained else []
        assert np.isfinite([*measured, *row.class_accuracy, *learned, row.round_time]).all(), row
        assert 0 <= row.test_accuracy <= 1
    assert all(bool(torch.isfinite(value).all()) for value in game.model.values() if value.is_floating_point())


@pytest.mark.parametrize(
    ("strategy", "algorithm"),
    [("uniform", name) for name in ALGORITHMS.builtin] + [(name, "scaffold") for name in STRATEGIES.builtin],
)
def test_the_record_of_a_broken_run_is_that_of_a_straight_one(strategy: str, algorithm: str, tmp_path: Path) -> None:
    """The same through files and database, once for every strategy and once for every algorithm."""
    experiment = hard(strategy, algorithm)
    straight = fedcohort.run(experiment, runs=tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "broken", progress=stop_after(2))
    resumed = fedcohort.run(experiment, runs=tmp_path / "broken")
    assert record(resumed) == record(straight)
    assert list(resumed.rounds.index) == [1, 2, 3]


@pytest.mark.parametrize(("strategy", "algorithm"), sorted(REFUSED))
def test_what_makes_no_sense_is_refused_before_anything_is_trained(
    strategy: str, algorithm: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"selection\.name: \w+ has no effect with Centralised"):
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
    with pytest.raises(UsageError, match=r"row 'pooled': selection\.name: UCB has no effect with Centralised"):
        fedcohort.compare(hard("ucb", "fedavg", variants=variants), runs=tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_cap_on_weights_that_are_never_large() -> None:
    for weights in ("n_selected", "uniform", "n_total_delta", "n_total_model"):
        experiment = hard("uniform", "fedavg", algorithm={"weights": weights, "max_weight": 0.5})
        with pytest.raises(UsageError, match=r"algorithm\.max_weight = 0\.5: weights '\w+' are never large"):
            experiment.cells()
