"""Edge cases under every algorithm: divergence, clients without a training step, rounds without clients, one client, and no validation
set."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.algorithms import ALGORITHMS
from fedcohort.core.files.state_files import pack
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.data.datasets import from_arrays
from fedcohort.rounds import RunState, play_round
from fedcohort.testing.base import bits
from tests.golden.test_same_bits import record
from tests.matrix.hard_federation import ALGORITHM_VALUES, HARD, hard
from tests.repetitions import slow_after
from tests.resume.test_resume import stop_after
from tests.rounds.test_rounds import poison, status
from tests.run_states import a_run_state

FEDERATED = [name for name in ALGORITHMS.builtin if name != "centralised"]
"""All algorithms except centralized training, which has a single client that is always available."""

every_algorithm = pytest.mark.parametrize("algorithm", FEDERATED)


def calm(algorithm: str, **values: Any) -> dict[str, Any]:
    """The settings of the hard federation without unavailable, failing or late clients; all clients take part in every round."""
    own = {"name": algorithm, **ALGORITHM_VALUES.get(algorithm, {})}
    return HARD | {"systems": {}, "selection": "all", "algorithm": own} | values


def learned_state(run_state: RunState) -> bytes:
    """The model, the algorithm's state and the clients' memories, as bytes."""
    state = run_state.state_dict()
    return pack({name: state[name] for name in ("model", "algorithm", "engine")})


def finite(state: dict[str, torch.Tensor]) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in state.values() if value.is_floating_point())


@every_algorithm
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_diverged_clients_are_excluded_and_the_run_continues(algorithm: str, value: float) -> None:
    with a_run_state(**calm(algorithm)) as run_state:
        play_round(run_state, 1, test=False)
        poison(run_state, {2, 5}, value)
        row = play_round(run_state, 2, test=False)
        assert {client for client, what in status(row).items() if what == "diverged"} == {2, 5}
        assert (row.trained, row.admitted) == (8, 1 if algorithm == "krum" else 8)
        assert finite(run_state.model)
        assert np.isfinite(play_round(run_state, 3, test=True).test_loss)


@every_algorithm
def test_when_all_clients_diverge_no_state_changes(algorithm: str) -> None:
    with a_run_state(**calm(algorithm)) as run_state:
        play_round(run_state, 1, test=False)
        before = learned_state(run_state)
        poison(run_state, set(range(10)))
        row = play_round(run_state, 2, test=False)
        assert set(status(row).values()) == {"diverged"}
        assert learned_state(run_state) == before


@pytest.mark.parametrize("algorithm", ALGORITHMS.builtin)
def test_no_infinite_value_enters_the_model_when_local_training_diverges(algorithm: str, tmp_path: Path) -> None:
    """The learning rate is 1e30."""
    run = fedcohort.run(hard("all", algorithm, training={"lr": 1e30, "epochs": 2}), runs=tmp_path)
    assert run.finished
    assert "diverged" in set(run.clients["status"])
    checkpoint = run.checkpoint()
    assert checkpoint is not None
    assert finite(checkpoint[1]["model"])


@every_algorithm
def test_rounds_without_an_admitted_client_are_recorded_and_leave_the_model_unchanged(
    algorithm: str, tmp_path: Path
) -> None:
    """R10: all clients drop out in every round."""
    run = fedcohort.run(hard("uniform", algorithm, systems={"dropout": 1.0}), runs=tmp_path)
    assert run.rounds["admitted"].tolist() == [0, 0, 0]
    assert run.rounds["test_loss"].nunique() == 1
    assert run.rounds["note"].str.contains("the model stays as it was").all()


@every_algorithm
def test_a_round_without_available_clients_changes_no_state(algorithm: str) -> None:
    with a_run_state(**calm(algorithm)) as run_state:
        play_round(run_state, 1, test=False)
        before = learned_state(run_state)
        run_state.clock.available = lambda t: np.zeros(0, dtype=np.int64)  # type: ignore[method-assign]
        row = play_round(run_state, 2, test=False)
        assert row.note == "empty round: no client available"
        assert learned_state(run_state) == before


def tiny_data() -> fedcohort.Dataset:
    """20 training samples of three classes; with 12 clients, some have a single sample."""
    draw = np.random.default_rng(4)
    labels, tested = np.arange(20) % 3, np.arange(30) % 3
    train, test = (draw.normal(size=(len(y), 5)) + y[:, None] for y in (labels, tested))
    return from_arrays((train.astype(np.float32), labels), (test.astype(np.float32), tested))


def with_batch_norm(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))


@pytest.mark.parametrize("algorithm", slow_after(4, FEDERATED))
def test_clients_without_a_training_step_fail_and_the_other_clients_are_admitted(
    algorithm: str, tmp_path: Path
) -> None:
    """Batch norm needs at least two samples, so a client with a single sample cannot make a step."""
    values = {"federation": {"clients": 12, "partition": {"name": "iid"}, "holdout": 0.2}, "model": "mlp"}
    experiment = hard("all", algorithm, systems={}, **values)
    given: dict[str, Any] = {"data": tiny_data(), "model": with_batch_norm}
    uninterrupted = fedcohort.run(experiment, **given, runs=tmp_path / "uninterrupted")
    failed = uninterrupted.clients.query("status == 'failed'")
    assert (failed["steps"] == 0).all()
    assert failed["detail"].str.contains("it made no step").all()
    assert 0 < len(failed) < len(uninterrupted.clients)
    assert np.isfinite(uninterrupted.rounds["test_loss"]).all()
    assert uninterrupted.rounds["test_loss"].nunique() == 3
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, **given, runs=tmp_path / "interrupted", progress=stop_after(1))
    assert record(fedcohort.run(experiment, **given, runs=tmp_path / "interrupted")) == record(uninterrupted)


@every_algorithm
def test_when_no_client_makes_a_step_the_model_stays_unchanged(algorithm: str) -> None:
    federation = {"clients": 18, "partition": {"name": "iid"}, "holdout": 0.2}
    with a_run_state(
        Given(data=tiny_data(), model=with_batch_norm), **calm(algorithm, federation=federation)
    ) as run_state:
        before = bits(run_state.model)
        row = play_round(run_state, 1, test=False)
        assert set(status(row).values()) == {"failed"}
        assert bits(run_state.model) == before


@pytest.mark.parametrize("algorithm", ALGORITHMS.builtin)
def test_every_algorithm_works_with_one_client_per_round(algorithm: str, tmp_path: Path) -> None:
    """With one client FedDF has one teacher, RHFL has no other client to align with, and SCAFFOLD has one variate; none may fail."""
    run = fedcohort.run(hard("uniform", algorithm, selection={"k": 1}, systems={}), runs=tmp_path)
    assert run.rounds["admitted"].tolist() == [1, 1, 1]
    assert np.isfinite(run.rounds["test_loss"]).all()
    assert run.rounds["test_loss"].nunique() == 3


@pytest.mark.parametrize("algorithm", ALGORITHMS.builtin)
def test_every_algorithm_works_without_a_validation_set(algorithm: str, tmp_path: Path) -> None:
    run = fedcohort.run(hard("uniform", algorithm, data={"validation": 0.0}), runs=tmp_path)
    assert np.isfinite(run.rounds["test_loss"]).all()
    assert run.rounds["validation_loss"].isna().all()
