"""Strategies under one seed meet the same world, to the last bit: partition, label noise, latencies, availability, drop-outs,
initial model, batch orders (R6). Everything is captured where it is used while the rounds are played, not computed again."""

import hashlib
import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

import fedcohort.training
from fedcohort.algorithms import Update
from fedcohort.core import streams
from fedcohort.rounds import play_round
from tests.experiments import UCB
from tests.games import a_game

ROUNDS = 4
STRATEGIES = ["all", "uniform", UCB, "powd", "select_by_loss", "utility_time", "flash"]
WORLD: dict[str, Any] = {
    "federation": {"label_noise": {"name": "beta", "a": 20.0}, "holdout": 0.2},
    "systems": {
        "latency": {"name": "shifted_exponential", "redraw": "mixed"},
        "availability": {"name": "markov", "p_on": 0.5, "p_off": 0.3},
        "network": {"name": "lognormal"},
        "dropout": 0.2,
    },
    "training": {"epochs": 2},
}


def digest(*values: Any) -> str:
    """A hash of the bits of arrays and tensors."""
    found = hashlib.sha256()
    for value in values:
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        found.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


@dataclass
class Met:
    """What a strategy met: what concerns everybody under one key, what concerns a client of a round under (key, round, client)."""

    world: dict[Any, str] = field(default_factory=dict)
    clients: dict[tuple[str, int, int], str] = field(default_factory=dict)


class Watched:
    """A generator that writes down what it shuffled."""

    def __init__(self, generator: np.random.Generator, shuffled: list[np.ndarray]) -> None:
        self._generator, self._shuffled = generator, shuffled

    def permutation(self, n: Any) -> Any:
        self._shuffled.append(self._generator.permutation(n))
        return self._shuffled[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


def watch_batches(monkeypatch: pytest.MonkeyPatch, drawn: dict[tuple[int, int], list[np.ndarray]]) -> None:
    """Wherever local training takes its randomness from, write down the orders of the samples."""

    def watching(seed: int, purpose: str, round: int = 0, client: int = 0) -> Any:
        generator = streams.rng(seed, purpose, round, client)
        return Watched(generator, drawn.setdefault((round, client), [])) if purpose == "batches" else generator

    for name in [info.name for info in pkgutil.iter_modules(fedcohort.training.__path__)]:
        module = importlib.import_module(f"fedcohort.training.{name}")
        if getattr(module, "rng", None) is streams.rng:
            monkeypatch.setattr(module, "rng", watching)


def meet(selection: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> Met:
    """Play some rounds and keep all that a strategy should have no influence on."""
    met, drawn = Met(), {}  # type: tuple[Met, dict[tuple[int, int], list[np.ndarray]]]
    with monkeypatch.context() as patch, a_game(selection=selection, seed=seed, rounds=ROUNDS, **WORLD) as game:
        watch_batches(patch, drawn)
        federation = game.engine.federation  # type: ignore[attr-defined]
        met.world["partition"] = digest(federation.offsets, federation.train.features)
        met.world["held out"] = digest(federation.held)
        met.world["noise"] = digest(federation.train.labels, federation.noise.clean, federation.noise.rates)
        met.world["server"] = digest(
            federation.validation.features,
            federation.validation.labels,
            federation.test.features,
            federation.test.labels,
        )
        met.world["initial model"] = digest(*game.model.values())
        available, settle = game.clock.available, game.clock.settle

        def watch_available(t: int) -> Any:
            found = available(t)
            met.world["available", t] = digest(found)
            met.world["latency", t] = digest(game.clock.nominal(t))
            return found

        def watch_settle(t: int, updates: Any, **values: Any) -> Iterator[Update]:
            def before() -> Iterator[Update]:
                for update in updates:
                    if t == 1:  # all start from one model: what they learn in the first round is the same bits as well
                        met.clients["update", t, update.client] = digest(*update.state.values())
                    yield update

            for update in settle(t, before(), **values):
                met.clients["time", t, update.client] = digest(update.duration)
                met.clients["lost", t, update.client] = str(update.failure)
                yield update

        game.clock.available, game.clock.settle = watch_available, watch_settle  # type: ignore[method-assign]
        for t in range(1, ROUNDS + 1):
            play_round(game, t, test=False)
    for (t, client), orders in drawn.items():
        assert len(orders) == WORLD["training"]["epochs"]
        met.clients["batches", t, client] = digest(*orders)
    return met


@pytest.fixture(scope="module")
def everything() -> tuple[Met, list[Met]]:
    """What "all" met, where every available client of every round shows; and what the others did."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        first, *others = [meet(selection, 0, monkeypatch) for selection in STRATEGIES]
    return first, others


def test_all_strategies_meet_the_same_world(everything: tuple[Met, list[Met]]) -> None:
    first, others = everything
    assert len(first.world) == 5 + 2 * ROUNDS
    for other in others:
        assert other.world == first.world


@pytest.mark.parametrize("what", ["batches", "time", "lost", "update"])
def test_a_client_does_the_same_whoever_selected_it(what: str, everything: tuple[Met, list[Met]]) -> None:
    first, others = everything
    everybody = {key: value for key, value in first.clients.items() if key[0] == what}
    for other in others:
        theirs = {key: value for key, value in other.clients.items() if key[0] == what}
        assert len(theirs) >= 3 * (1 if what == "update" else ROUNDS)
        assert theirs == {key: everybody[key] for key in theirs}
    assert any(len(other.clients) < len(first.clients) for other in others)  # they did choose


def test_another_seed_is_another_world(everything: tuple[Met, list[Met]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The hashes would notice: nothing but the test data's own order is left."""
    first, _ = everything
    other = meet("all", 1, monkeypatch)
    assert not {key for key, value in other.world.items() if value == first.world[key]}
    for what in ("batches", "time", "update"):
        same = {key for key, value in other.clients.items() if key[0] == what and first.clients.get(key) == value}
        assert not same
