"""Strategies under one seed have bit-identical conditions: partition, label noise, latencies, availability, dropouts, initial model
and batch orders (R6). The tests capture all of them where the rounds use them, and recompute none."""

import hashlib
import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

import fedcohort.training
from fedcohort.algorithms import Update
from fedcohort.core import random_streams
from fedcohort.rounds import play_round
from tests.experiments import UCB
from tests.run_states import a_run_state

ROUNDS = 4
STRATEGIES = ["all", "uniform", UCB, "powd", "select_by_loss", "utility_time", "flash"]
SETTINGS: dict[str, Any] = {
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
    sha256 = hashlib.sha256()
    for value in values:
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        sha256.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return sha256.hexdigest()


@dataclass
class Conditions:
    """Hashes of the conditions that a strategy had: those shared by all clients, and those of one client by (kind, round, client)."""

    shared: dict[Any, str] = field(default_factory=dict)
    clients: dict[tuple[str, int, int], str] = field(default_factory=dict)


class RecordingGenerator:
    """A generator that records its permutations."""

    def __init__(self, generator: np.random.Generator, permutations: list[np.ndarray]) -> None:
        self._generator, self._permutations = generator, permutations

    def permutation(self, n: Any) -> Any:
        self._permutations.append(self._generator.permutation(n))
        return self._permutations[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


def record_batch_orders(monkeypatch: pytest.MonkeyPatch, batch_orders: dict[tuple[int, int], list[np.ndarray]]) -> None:
    """Record the permutations of samples by (round, client), wherever local training draws them."""

    def recording(generator: np.random.Generator, purpose: str, round: int, client: int) -> Any:
        if purpose != "batches":
            return generator
        return RecordingGenerator(generator, batch_orders.setdefault((round, client), []))

    def recording_rng(seed: int, purpose: str, round: int = 0, client: int = 0) -> Any:
        return recording(random_streams.rng(seed, purpose, round, client), purpose, round, client)

    def recording_rngs(seed: int, purpose: str, round: int, clients: Sequence[int]) -> Iterator[Any]:
        for client, generator in zip(clients, random_streams.rngs(seed, purpose, round, clients), strict=True):
            yield recording(generator, purpose, round, client)

    for name in [info.name for info in pkgutil.iter_modules(fedcohort.training.__path__)]:
        module = importlib.import_module(f"fedcohort.training.{name}")
        if getattr(module, "rng", None) is random_streams.rng:
            monkeypatch.setattr(module, "rng", recording_rng)
        if getattr(module, "rngs", None) is random_streams.rngs:
            monkeypatch.setattr(module, "rngs", recording_rngs)


def conditions_under(selection: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> Conditions:
    """Play some rounds and record all conditions that must not depend on the strategy."""
    conditions, batch_orders = Conditions(), {}  # type: tuple[Conditions, dict[tuple[int, int], list[np.ndarray]]]
    with (
        monkeypatch.context() as patch,
        a_run_state(selection=selection, seed=seed, rounds=ROUNDS, **SETTINGS) as run_state,
    ):
        record_batch_orders(patch, batch_orders)
        federation = run_state.engine.federation  # type: ignore[attr-defined]
        conditions.shared["partition"] = digest(federation.offsets, federation.train.features)
        conditions.shared["held out"] = digest(federation.held)
        conditions.shared["noise"] = digest(federation.train.labels, federation.noise.clean, federation.noise.rates)
        conditions.shared["server"] = digest(
            federation.validation.features,
            federation.validation.labels,
            federation.test.features,
            federation.test.labels,
        )
        conditions.shared["initial model"] = digest(*run_state.model.values())
        available, settle = run_state.clock.available, run_state.clock.settle

        def recording_available(t: int) -> Any:
            clients = available(t)
            conditions.shared["available", t] = digest(clients)
            conditions.shared["latency", t] = digest(run_state.clock.nominal(t))
            return clients

        def recording_settle(t: int, updates: Any, **values: Any) -> Iterator[Update]:
            def recording_updates() -> Iterator[Update]:
                for update in updates:
                    if t == 1:  # all strategies start from one model, so the first updates must be equal too
                        conditions.clients["update", t, update.client] = digest(*update.state.values())
                    yield update

            for update in settle(t, recording_updates(), **values):
                conditions.clients["time", t, update.client] = digest(update.duration)
                conditions.clients["lost", t, update.client] = str(update.failure)
                yield update

        run_state.clock.available, run_state.clock.settle = recording_available, recording_settle  # type: ignore[method-assign]
        for t in range(1, ROUNDS + 1):
            play_round(run_state, t, test=False)
    for (t, client), permutations in batch_orders.items():
        assert len(permutations) == SETTINGS["training"]["epochs"]
        conditions.clients["batches", t, client] = digest(*permutations)
    return conditions


@pytest.fixture(scope="module")
def conditions_of_all() -> tuple[Conditions, list[Conditions]]:
    """The conditions under "all", which trains every available client in every round, and those under the other strategies."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        first, *others = [conditions_under(selection, 0, monkeypatch) for selection in STRATEGIES]
    return first, others


def test_partition_noise_latency_availability_and_initial_model_are_the_same_under_all_strategies(
    conditions_of_all: tuple[Conditions, list[Conditions]],
) -> None:
    first, others = conditions_of_all
    assert len(first.shared) == 5 + 2 * ROUNDS
    for other in others:
        assert other.shared == first.shared


@pytest.mark.parametrize("kind", ["batches", "time", "lost", "update"])
def test_batches_times_dropouts_and_updates_of_a_client_do_not_depend_on_the_strategy(
    kind: str, conditions_of_all: tuple[Conditions, list[Conditions]]
) -> None:
    first, others = conditions_of_all
    of_all_clients = {key: value for key, value in first.clients.items() if key[0] == kind}
    for other in others:
        of_selected_clients = {key: value for key, value in other.clients.items() if key[0] == kind}
        assert len(of_selected_clients) >= 3 * (1 if kind == "update" else ROUNDS)
        assert of_selected_clients == {key: of_all_clients[key] for key in of_selected_clients}
    assert any(len(other.clients) < len(first.clients) for other in others)  # some strategies left clients out


def test_another_seed_changes_all_conditions(
    conditions_of_all: tuple[Conditions, list[Conditions]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hashes detect differences: under another seed none of the shared hashes is the same."""
    first, _ = conditions_of_all
    other = conditions_under("all", 1, monkeypatch)
    assert not {key for key, value in other.shared.items() if value == first.shared[key]}
    for kind in ("batches", "time", "update"):
        same = {key for key, value in other.clients.items() if key[0] == kind and first.clients.get(key) == value}
        assert not same
