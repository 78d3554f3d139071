"""What holds under every algorithm when nothing goes wrong: damping on top, what a round costs on the wire, trials without a trace."""

from typing import Any

import numpy as np
import pytest
from torch import nn

from fedcohort.algorithms import ALGORITHMS, blend
from fedcohort.rounds import play_round
from fedcohort.rounds.ledger import Ledger
from fedcohort.rounds.questions import answer
from fedcohort.runs.given import Given
from fedcohort.selection import LossChange
from fedcohort.testing.base import bits
from tests.games import a_game
from tests.matrix.test_edges import every_algorithm, kind, learned

OPTIMISERS = {"fedavgm", "fedadagrad", "fedadam", "fedyogi"}
"""Their ``server_lr`` is a step of their own."""


def normed(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS.builtin if name not in OPTIMISERS])
def test_damping_goes_on_top_and_takes_buffers_along(algorithm: str) -> None:
    ends = {}
    for s in (1.0, 0.3):
        values = kind(algorithm)
        values["algorithm"] = values["algorithm"] | {"server_lr": s}
        with a_game(Given(model=normed), **values) as game:
            start = game.model
            play_round(game, 1, test=False)
            ends[s] = game.model
    assert bits(ends[0.3]) == bits(blend(start, ends[1.0], 0.3))
    for name in ("1.weight", "2.running_mean", "2.running_var"):
        assert not (ends[0.3][name] == ends[1.0][name]).all(), name


BOTH_WAYS = {"scaffold", "fedbio"}
"""2P down and 2P up: control variates; u."""
ONE_NUMBER = {"fednova", "rhfl"}
"""One number more up: ‖a_i‖₁; the loss of the received model."""


@pytest.mark.parametrize("algorithm", ALGORITHMS.builtin)
def test_what_a_round_sends(algorithm: str) -> None:
    with a_game(**kind(algorithm)) as game:
        model = sum(value.nbytes for value in game.model.values())
        play_round(game, 1, test=False)
        row = play_round(game, 2, test=False)
    [training] = [line for line in row.ledger if line.kind == "training"]
    models = 2 if algorithm in BOTH_WAYS else 1
    assert row.selected == row.admitted == (1 if algorithm == "centralised" else 10)
    assert training.bytes_down == row.selected * models * model
    assert training.bytes_up == row.selected * (models * model + 8 * (algorithm in ONE_NUMBER))


@every_algorithm
def test_a_round_on_trial_leaves_no_trace(algorithm: str) -> None:
    """FedCor's throw-away rounds: no control variate, no momentum, no loss is remembered, and the round that follows is the same."""
    values: dict[str, Any] = kind(algorithm)
    ends = []
    for trial in (False, True):
        with a_game(**values) as game:
            play_round(game, 1, test=False)
            if trial:
                before = learned(game)
                change = answer(game, 2, np.arange(12), Ledger(1, 1), LossChange((1, 4, 7)), np.arange(10))
                assert np.isfinite(change).all()
                assert change.any()
                assert learned(game) == before
            play_round(game, 2, test=False)
            ends.append(learned(game))
    assert ends[0] == ends[1]
