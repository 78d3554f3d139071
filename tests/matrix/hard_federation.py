"""A federation with many difficulties for tests of all strategies and algorithms, and how to play rounds on it without a record."""

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.record import RoundRow
from fedcohort.rounds import RunState, play_round
from fedcohort.runs.prepare_run import Federated, federate, prepare
from tests.experiments import cell, small

ALGORITHM_VALUES: dict[str, dict[str, Any]] = {
    "fedbio": {"warmup_rounds": 0},
    "feddf": {"max_batches": 6, "eval_every": 3},
    "rhfl": {"public_size": 64, "batch_size": 32},
}
"""Settings that shorten an algorithm, or skip its warm-up so that three rounds show all of it."""

STRATEGY_VALUES: dict[str, dict[str, Any]] = {
    "ucb": {"initial_rounds": 1},
    "fedcor": {"warmup": 1, "interval": 1, "first_steps": 20, "steps": 5},
    "conformal": {"on_empty": "best", "alpha_cp": 0.5, "max_epochs": 2},
}

HARD: dict[str, Any] = {
    "rounds": 3,
    "public": {"name": "holdout", "share": 0.1},
    "federation": {
        "clients": 10,
        "partition": {"name": "dirichlet_class", "alpha": 0.2},
        "label_noise": {"name": "constant", "rate": 0.15},
        "holdout": 0.2,
    },
    "systems": {"dropout": 0.2, "overcommit": 1.3, "availability": {"name": "bernoulli", "probability": 0.8}},
    "model": {"name": "mlp", "hidden": 16},
    "training": {"batch_size": 32},
    "engine": {"plan": "loop"},
}
"""Label skew, wrong labels, unavailable clients, dropout, and over-commitment, under which the slowest clients are late."""


def hard(strategy: str, rule: str, /, **values: Any) -> Experiment:
    """Three rounds with this strategy and this algorithm; ``selection`` and ``algorithm`` in ``values`` add settings."""
    pair = {
        "selection": {"name": strategy, "k": 4, **STRATEGY_VALUES.get(strategy, {})},
        "algorithm": {"name": rule, **ALGORITHM_VALUES.get(rule, {})},
    }
    own = {name: section | values.pop(name, {}) for name, section in pair.items()}
    return small(**HARD | own | values)


@cache
def federation_of(seed: int) -> Federated:
    """The clients of :data:`HARD`, which do not depend on strategy and algorithm and are therefore built only once."""
    return federate(small(**HARD, seed=seed), Given())


@contextmanager
def game_of(experiment: Experiment) -> Iterator[RunState]:
    """A run_state of the experiment, ready for its first round."""
    with prepare(cell(experiment).experiment, Given()) as (run_state, _):
        yield run_state


def play_rounds(run_state: RunState, rounds: Iterable[int]) -> list[RoundRow]:
    """Play these rounds; returns their records."""
    return [play_round(run_state, t, test=True) for t in rounds]


def without_wall_times(row: RoundRow) -> str:
    """The record of a round except wall times, as text with all digits."""
    values = dataclasses.asdict(row) | {"wall": None}
    values["ledger"] = [entry | {"seconds": None} for entry in values["ledger"]]
    return repr(values)
