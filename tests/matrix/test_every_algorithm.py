"""Properties of every algorithm: server damping, the bytes that a round sends, and trial rounds that change no state."""

from typing import Any

import numpy as np
import pytest
from torch import nn

from fedcohort.algorithms import ALGORITHMS, blend
from fedcohort.experiment.given_objects import Given
from fedcohort.rounds import play_round
from fedcohort.rounds.asking_clients import answer
from fedcohort.rounds.ledger import Ledger
from fedcohort.selection import LossChange
from fedcohort.testing.base import bits
from tests.matrix.test_edges import calm, every_algorithm, learned_state
from tests.run_states import a_run_state

OPTIMISERS = {"fedavgm", "fedadagrad", "fedadam", "fedyogi"}
"""Algorithms that use ``server_lr`` as the step size of a server optimizer instead of damping."""


def with_batch_norm(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS.builtin if name not in OPTIMISERS])
def test_server_damping_blends_parameters_and_buffers_with_the_previous_model(algorithm: str) -> None:
    results = {}
    for s in (1.0, 0.3):
        values = calm(algorithm)
        values["algorithm"] = values["algorithm"] | {"server_lr": s}
        with a_run_state(Given(model=with_batch_norm), **values) as run_state:
            start = run_state.model
            play_round(run_state, 1, test=False)
            results[s] = run_state.model
    assert bits(results[0.3]) == bits(blend(start, results[1.0], 0.3))
    for name in ("1.weight", "2.running_mean", "2.running_var"):
        assert not (results[0.3][name] == results[1.0][name]).all(), name


SECOND_VECTOR = {"scaffold", "fedbio"}
"""Algorithms that send a second vector of P values in both directions: control variates, or u."""
ONE_NUMBER = {"fednova", "rhfl"}
"""Algorithms in which clients send one more number: ‖a_i‖₁, or the loss of the received model."""


@pytest.mark.parametrize("algorithm", ALGORITHMS.builtin)
def test_a_round_sends_the_documented_number_of_bytes(algorithm: str) -> None:
    with a_run_state(**calm(algorithm)) as run_state:
        model = sum(value.nbytes for value in run_state.model.values())
        play_round(run_state, 1, test=False)
        row = play_round(run_state, 2, test=False)
    [training] = [line for line in row.ledger if line.kind == "training"]
    models = 2 if algorithm in SECOND_VECTOR else 1
    assert row.selected == row.trained == (1 if algorithm == "centralised" else 10)
    assert row.admitted == (1 if algorithm == "krum" else row.selected)
    assert training.bytes_down == row.selected * models * model
    assert training.bytes_up == row.selected * (models * model + 8 * (algorithm in ONE_NUMBER))


@every_algorithm
def test_a_trial_round_changes_no_state(algorithm: str) -> None:
    """FedCor trains clients on trial: no control variate, momentum or loss is kept, and the next round is as without a trial."""
    values: dict[str, Any] = calm(algorithm)
    results = []
    for with_trial in (False, True):
        with a_run_state(**values) as run_state:
            play_round(run_state, 1, test=False)
            if with_trial:
                before = learned_state(run_state)
                change = answer(run_state, 2, np.arange(12), Ledger(1, 1), LossChange((1, 4, 7)), np.arange(10))
                assert np.isfinite(change).all()
                assert change.any()
                assert learned_state(run_state) == before
            play_round(run_state, 2, test=False)
            results.append(learned_state(run_state))
    assert results[0] == results[1]
