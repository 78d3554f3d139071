"""What goes wrong in a federation, under every algorithm: divergence, clients without a step, rounds without anybody, one client, no
validation set."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.algorithms import ALGORITHMS
from fedcohort.core.states import pack
from fedcohort.federation.datasets import from_arrays
from fedcohort.rounds import Game, play_round
from fedcohort.runs.given import Given
from fedcohort.testing.base import bits
from tests.games import a_game
from tests.golden.test_same_bits import record
from tests.matrix.worlds import ALGORITHM_VALUES, HARD, hard
from tests.resume.test_resume import stop_after
from tests.rounds.test_rounds import poison, status

FEDERATED = [name for name in ALGORITHMS.builtin if name != "centralised"]
"""Under centralised training there is one client, who is always there."""

every_algorithm = pytest.mark.parametrize("algorithm", FEDERATED)


def kind(algorithm: str, **values: Any) -> dict[str, Any]:
    """The settings of the hard federation without what is random about systems; everybody takes part."""
    own = {"name": algorithm, **ALGORITHM_VALUES.get(algorithm, {})}
    return HARD | {"systems": {}, "selection": "all", "algorithm": own} | values


def learned(game: Game) -> bytes:
    """The model, the algorithm's state and the clients'."""
    state = game.state_dict()
    return pack({name: state[name] for name in ("model", "algorithm", "engine")})


def finite(state: dict[str, torch.Tensor]) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in state.values() if value.is_floating_point())


@every_algorithm
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_diverged_clients_are_left_out_and_the_run_goes_on(algorithm: str, value: float) -> None:
    with a_game(**kind(algorithm)) as game:
        play_round(game, 1, test=False)
        poison(game, {2, 5}, value)
        row = play_round(game, 2, test=False)
        assert {client for client, what in status(row).items() if what == "diverged"} == {2, 5}
        assert row.admitted == 8
        assert finite(game.model)
        assert np.isfinite(play_round(game, 3, test=True).test_loss)


@every_algorithm
def test_when_everybody_diverges_nothing_changes(algorithm: str) -> None:
    with a_game(**kind(algorithm)) as game:
        play_round(game, 1, test=False)
        before = learned(game)
        poison(game, set(range(10)))
        row = play_round(game, 2, test=False)
        assert set(status(row).values()) == {"diverged"}
        assert learned(game) == before


@pytest.mark.parametrize("algorithm", ALGORITHMS.builtin)
def test_local_training_that_really_diverges(algorithm: str, tmp_path: Path) -> None:
    """A learning rate of 1e30: nothing that is not finite enters the model."""
    run = fedcohort.run(hard("all", algorithm, training={"lr": 1e30, "epochs": 2}), runs=tmp_path)
    assert run.finished
    assert "diverged" in set(run.clients["status"])
    checkpoint = run.checkpoint()
    assert checkpoint is not None
    assert finite(checkpoint[1]["model"])


@every_algorithm
def test_rounds_without_anybody_count_and_change_nothing(algorithm: str, tmp_path: Path) -> None:
    """R10: all clients drop out, in every round."""
    run = fedcohort.run(hard("uniform", algorithm, systems={"dropout": 1.0}), runs=tmp_path)
    assert run.rounds["admitted"].tolist() == [0, 0, 0]
    assert run.rounds["test_loss"].nunique() == 1
    assert run.rounds["note"].str.contains("the model stays as it was").all()


@every_algorithm
def test_a_round_without_anybody_leaves_the_state_of_the_others(algorithm: str) -> None:
    with a_game(**kind(algorithm)) as game:
        play_round(game, 1, test=False)
        before = learned(game)
        game.clock.available = lambda t: np.zeros(0, dtype=np.int64)  # type: ignore[method-assign]
        row = play_round(game, 2, test=False)
        assert row.note == "empty round: no client available"
        assert learned(game) == before


def tiny() -> fedcohort.Dataset:
    """20 training samples of three classes: of 12 clients, some have a single one."""
    draw = np.random.default_rng(4)
    labels, tested = np.arange(20) % 3, np.arange(30) % 3
    train, test = (draw.normal(size=(len(y), 5)) + y[:, None] for y in (labels, tested))
    return from_arrays((train.astype(np.float32), labels), (test.astype(np.float32), tested))


def with_batch_norm(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))


@every_algorithm
def test_clients_without_a_step_are_failed_and_the_others_count(algorithm: str, tmp_path: Path) -> None:
    """Batch statistics of one sample do not exist: a client with a single sample cannot make a step."""
    values = {"federation": {"clients": 12, "partition": {"name": "iid"}, "holdout": 0.2}, "model": "mlp"}
    experiment = hard("all", algorithm, systems={}, **values)
    given: dict[str, Any] = {"data": tiny(), "model": with_batch_norm}
    straight = fedcohort.run(experiment, **given, runs=tmp_path / "straight")
    failed = straight.clients.query("status == 'failed'")
    assert (failed["steps"] == 0).all()
    assert failed["detail"].str.contains("it made no step").all()
    assert 0 < len(failed) < len(straight.clients)
    assert np.isfinite(straight.rounds["test_loss"]).all()
    assert straight.rounds["test_loss"].nunique() == 3
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, **given, runs=tmp_path / "broken", progress=stop_after(1))
    assert record(fedcohort.run(experiment, **given, runs=tmp_path / "broken")) == record(straight)


@every_algorithm
def test_when_nobody_makes_a_step_the_model_stays(algorithm: str) -> None:
    federation = {"clients": 18, "partition": {"name": "iid"}, "holdout": 0.2}
    with a_game(Given(data=tiny(), model=with_batch_norm), **kind(algorithm, federation=federation)) as game:
        before = bits(game.model)
        row = play_round(game, 1, test=False)
        assert set(status(row).values()) == {"failed"}
        assert bits(game.model) == before


@pytest.mark.parametrize("algorithm", ALGORITHMS.builtin)
def test_one_client_a_round(algorithm: str, tmp_path: Path) -> None:
    """One teacher, nobody to align with, one variate: each degenerates and none of them fails."""
    run = fedcohort.run(hard("uniform", algorithm, selection={"k": 1}, systems={}), runs=tmp_path)
    assert run.rounds["admitted"].tolist() == [1, 1, 1]
    assert np.isfinite(run.rounds["test_loss"]).all()
    assert run.rounds["test_loss"].nunique() == 3


@pytest.mark.parametrize("algorithm", ALGORITHMS.builtin)
def test_without_a_validation_set(algorithm: str, tmp_path: Path) -> None:
    run = fedcohort.run(hard("uniform", algorithm, data={"validation": 0.0}), runs=tmp_path)
    assert np.isfinite(run.rounds["test_loss"]).all()
    assert run.rounds["validation_loss"].isna().all()
