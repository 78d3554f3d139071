"""Every strategy with every algorithm on the hard federation, and the pairs that are rejected."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import fedcohort
from fedcohort.algorithms import ALGORITHMS
from fedcohort.core.errors import UsageError
from fedcohort.core.files.state_files import pack, unpack
from fedcohort.experiment.pairings import NEEDED_FROM_STRATEGY
from fedcohort.selection import STRATEGIES
from tests.golden.test_same_bits import record
from tests.matrix.hard_federation import federation_of, game_of, hard, play_rounds, without_wall_times
from tests.repetitions import slow, slow_unless
from tests.resume.test_resume import stop_after

ALL_PAIRS = list(itertools.product(STRATEGIES.builtin, ALGORITHMS.builtin))
REFUSED = {(strategy, "centralised") for strategy in STRATEGIES.builtin if strategy not in ("uniform", "all")}
"""Centralised training has one client, so strategies cannot select."""


def is_usual(pair: tuple[str, str]) -> bool:
    """Every eighth pair is played by the usual tests: each strategy and each algorithm comes several times."""
    strategies, algorithms = list(STRATEGIES.builtin), list(ALGORITHMS.builtin)
    return (strategies.index(pair[0]) + algorithms.index(pair[1])) % 8 == 0


@pytest.fixture
def shared_federation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcohort.runs.prepare_run.federate", lambda experiment, *_: federation_of(experiment.seed))


@pytest.mark.usefixtures("shared_federation")
@pytest.mark.parametrize(
    ("strategy", "algorithm"), slow_unless(is_usual, [pair for pair in ALL_PAIRS if pair not in REFUSED])
)
def test_three_rounds_are_finite_and_a_resumed_round_is_bit_identical(strategy: str, algorithm: str) -> None:
    experiment = hard(strategy, algorithm)
    with game_of(experiment) as run_state:
        rows = play_rounds(run_state, [1, 2])
        saved = pack(run_state.state_dict())
        rows += play_rounds(run_state, [3])
        final_state = pack(run_state.state_dict())
    with game_of(experiment) as run_state:
        run_state.load_state_dict(unpack(saved))
        resumed = play_rounds(run_state, [3])
        assert pack(run_state.state_dict()) == final_state
    assert without_wall_times(resumed[0]) == without_wall_times(rows[2])

    assert sum(row.admitted for row in rows) > 0
    for row in rows:
        measured = [row.test_accuracy, row.test_loss, row.validation_accuracy, row.validation_loss, row.simulated_time]
        learned = [row.train_loss, row.local_accuracy] if row.trained else []
        assert np.isfinite([*measured, *row.class_accuracy, *learned, row.round_time]).all(), row
        assert 0 <= row.test_accuracy <= 1
    assert all(bool(torch.isfinite(value).all()) for value in run_state.model.values() if value.is_floating_point())


@pytest.mark.parametrize(
    ("strategy", "algorithm"),
    [("uniform", name) for name in ALGORITHMS.builtin]
    + [
        (name, "scaffold") if number % 6 == 0 else slow((name, "scaffold"))
        for number, name in enumerate(STRATEGIES.builtin)
    ],
)
def test_the_record_of_an_interrupted_run_equals_that_of_an_uninterrupted_run(
    strategy: str, algorithm: str, tmp_path: Path
) -> None:
    """Through files and database, once for every strategy and once for every algorithm."""
    experiment = hard(strategy, algorithm)
    uninterrupted = fedcohort.run(experiment, runs=tmp_path / "uninterrupted")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "interrupted", progress=stop_after(2))
    resumed = fedcohort.run(experiment, runs=tmp_path / "interrupted")
    assert record(resumed) == record(uninterrupted)
    assert list(resumed.rounds.index) == [1, 2, 3]


@pytest.mark.parametrize(("strategy", "algorithm"), sorted(REFUSED))
def test_invalid_pairs_are_rejected_before_training(strategy: str, algorithm: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"selection\.name: \w+ has no effect with Centralised"):
        fedcohort.run(hard(strategy, algorithm), runs=tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS.builtin if name != "centralised"])
def test_the_hard_federation_has_unavailable_failed_and_late_clients(algorithm: str, tmp_path: Path) -> None:
    """Each difficulty of the hard federation occurs under every algorithm."""
    run = fedcohort.run(hard("uniform", algorithm), runs=tmp_path)
    assert (run.rounds["available"] < 10).any()
    assert {"admitted", "failed", "late"} <= set(run.clients["status"])


# --- weight modes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", NEEDED_FROM_STRATEGY)
@pytest.mark.parametrize("strategy", STRATEGIES.builtin)
def test_weight_modes_that_need_values_of_the_strategy_work_or_are_rejected(
    strategy: str, weights: str, tmp_path: Path
) -> None:
    experiment = hard(strategy, "fedavg", algorithm={"weights": weights})
    if NEEDED_FROM_STRATEGY[weights] in STRATEGIES.find(strategy, "").gives:
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
def test_every_algorithm_accepts_a_weight_mode_or_rejects_it_at_once(
    algorithm: str, weights: str, tmp_path: Path
) -> None:
    """Ensembles average the clients' models, and medians count every client once; all other algorithms accept every mode."""
    reasons = dict.fromkeys(("feddf", "rhfl", "krum"), "averages the clients' models")
    reasons |= dict.fromkeys(("median", "trimmed_mean"), "counts every client once")
    if algorithm in reasons:
        with pytest.raises(UsageError, match=rf"algorithm\.weights = '{weights}': .* {reasons[algorithm]}"):
            hard("uniform", algorithm, algorithm={"weights": weights})
        return
    run = fedcohort.run(hard("uniform", algorithm, rounds=2, algorithm={"weights": weights}), runs=tmp_path)
    assert np.isfinite(run.rounds["test_loss"]).all()


def test_an_invalid_row_stops_a_comparison_before_the_first_run(tmp_path: Path) -> None:
    variants = [{"label": "pooled", "algorithm": "centralised"}]
    with pytest.raises(UsageError, match=r"row 'pooled': selection\.name: UCB has no effect with Centralised"):
        fedcohort.compare(hard("ucb", "fedavg", variants=variants), runs=tmp_path)
    assert not [*tmp_path.iterdir()]


def test_max_weight_is_rejected_for_weight_modes_without_large_weights() -> None:
    for weights in ("n_selected", "uniform", "n_total_delta", "n_total_model"):
        experiment = hard("uniform", "fedavg", algorithm={"weights": weights, "max_weight": 0.5})
        with pytest.raises(UsageError, match=r"algorithm\.max_weight = 0\.5: weights '\w+' are never large"):
            experiment.cells()
