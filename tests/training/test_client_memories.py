"""The store of clients' memories: committed or forgotten, in memory or in the file, always the same content."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.files.state_files import pack, unpack
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import Mlp
from fedcohort.selection import Cohort
from fedcohort.testing.base import ControlVariates, bits, members_of, small_federation
from fedcohort.training import client_memories as module
from fedcohort.training.client_memories import Memories, Memory

LIMITS = [0, 1000, 2**30]
"""All in the file, some, none."""


def a_memory(number: float, size: int = 30) -> Memory:
    """Several groups, formats and shapes, one of them empty."""
    return {
        "c": {"w": torch.full((size, 2), number), "b": torch.full((3,), -number, dtype=torch.float64)},
        "round": {"last": torch.tensor(int(number)), "none": torch.empty(0), "on": torch.tensor([True, False])},
    }


def same(found: Memory, expected: Memory) -> bool:
    return pack({"": found}) == pack({"": expected})


@pytest.mark.parametrize("limit", LIMITS)
def test_only_what_is_committed_is_kept(limit: int) -> None:
    store = Memories(limit)
    assert store.get(3) == {}
    round = store.begin()
    for client in range(6):
        store.propose(round, client, a_memory(client))
    assert store.get(2) == {}
    assert store.proposed == list(range(6))
    store.commit([1, 4, 77])
    assert [client for client in range(6) if store.get(client)] == [1, 4]
    assert same(store.get(4), a_memory(4))
    assert store.proposed == []
    round = store.begin()
    store.propose(round, 4, a_memory(40))
    store.propose(round, 5, a_memory(50))
    assert same(store.get(4), a_memory(4))
    store.commit([5])
    assert same(store.get(4), a_memory(4))
    assert same(store.get(5), a_memory(50))


@pytest.mark.parametrize("limit", LIMITS)
def test_an_abandoned_round_that_still_runs_cannot_propose(limit: int) -> None:
    store = Memories(limit)
    abandoned, current = store.begin(), store.begin()
    store.propose(abandoned, 1, a_memory(1))
    store.propose(current, 2, a_memory(2))
    store.commit([1, 2])
    assert store.get(1) == {}
    assert same(store.get(2), a_memory(2))


def test_beyond_the_limit_it_lies_in_a_file_and_places_are_used_again(tmp_path: Path) -> None:
    size = sum(t.numel() * t.element_size() for group in a_memory(1).values() for t in group.values())
    store = Memories(2 * size, tmp_path)
    for again in range(20):
        round = store.begin()
        for client in range(8):
            store.propose(round, client, a_memory(100 * again + client))
        assert store.num_bytes <= 2 * size
        store.commit(range(again % 3, 8))
    assert list(tmp_path.iterdir()) == [], "the file has no name"
    assert store._end <= 16 * (size + 5 * 64)
    assert same(store.get(7), a_memory(1907))
    assert same(store.get(0), a_memory(1800))
    store.load_state_dict({})
    assert (store.get(7), store.num_bytes, store.state_dict()) == ({}, 0, {})


def test_what_was_handed_out_stays_when_the_file_grows_and_others_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GROWTH", (64, 4096))
    store = Memories(0)
    store.propose(store.begin(), 0, a_memory(7))
    store.commit([0])
    held = store.get(0)
    for again in range(30):
        round = store.begin()
        for client in range(1, 5):
            store.propose(round, client, a_memory(again, size=30 + 7 * again))
        store.commit([1, 2])
        assert same(held, a_memory(7))
        assert same(store.get(1), a_memory(again, size=30 + 7 * again))
        assert same(store.get(0), a_memory(7))


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("other", LIMITS)
def test_the_state_goes_from_one_store_to_another(limit: int, other: int) -> None:
    store = Memories(limit)
    round = store.begin()
    for client in range(9):
        store.propose(round, client, a_memory(client))
    store.commit([8, 2, 5, 3, 7])
    fresh = Memories(other)
    round = fresh.begin()
    fresh.propose(round, 1, a_memory(1))
    fresh.load_state_dict(unpack(pack(store.state_dict())))
    fresh.commit([1])
    assert sorted(fresh.state_dict()) == ["2", "3", "5", "7", "8"]
    assert all(same(fresh.get(client), a_memory(client)) for client in (2, 3, 5, 7, 8))


def test_threads_propose_at_the_same_time() -> None:
    store = Memories(5000)
    round = store.begin()

    def work(clients: range) -> None:
        for client in clients:
            store.propose(round, client, a_memory(client))
            store.get(client)

    threads = [threading.Thread(target=work, args=(range(first, 400, 8),)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.commit(range(400))
    assert all(same(store.get(client), a_memory(client)) for client in range(400))


def test_no_place_for_the_file_is_an_error_that_says_so(tmp_path: Path) -> None:
    store = Memories(0, tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"nowhere: no space for .* GiB of client memories .*TMPDIR"):
        store.propose(store.begin(), 1, a_memory(1))


def test_a_run_does_not_depend_on_where_memories_lie() -> None:
    def play(limit: int) -> tuple[bytes, bytes]:
        algorithm: Any = ControlVariates()
        engine = LocalEngine(
            small_federation(), Mlp(hidden=8), Training(batch_size=4), algorithm, 3, 2, Memories(limit)
        )
        model, clients = engine.initial_model(), [6, 0, 3, 1]
        for t in range(1, 5):
            updates = engine.train(model, t, Cohort(np.array(clients)), algorithm)
            model = algorithm.aggregate(model, updates, members_of(clients))
            engine.commit(clients[t % 2 :])
        memories = pack(dict(sorted(engine.state_dict().items())))
        engine.close()
        return bits(model), memories

    assert play(0) == play(500) == play(2**30)
