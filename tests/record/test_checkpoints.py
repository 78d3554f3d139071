"""Files of checkpoints: memories that have not changed are not written again, and a process that is killed loses nothing."""

import itertools
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import fedcohort
from fedcohort.core.files.state_files import pack, save_state
from fedcohort.record import Run, Saved, checkpoints
from fedcohort.record.checkpoints import CheckpointFiles, last_valid
from fedcohort.training.client_memories import Memories
from tests.experiments import small
from tests.golden.test_same_bits import record

SCAFFOLD: dict[str, Any] = {"algorithm": "scaffold", "training": {"momentum": 0.0}, "systems": {"dropout": 0.2}}


class KilledError(BaseException):
    """Stands for the end of a process."""


@pytest.fixture(autouse=True)
def all_memories_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "SEPARATE", 0)


class Round:
    """Rounds that give clients new memories, and checkpoints of them in a folder."""

    def __init__(self, folder: Path, memories: Memories | None = None) -> None:
        self.memories = Memories() if memories is None else memories
        self.files, self.rows = CheckpointFiles(folder), list[tuple[int, str, str]]()

    def play(self, t: int, clients: list[int], size: int = 50) -> Saved:
        number = self.memories.begin()
        for client in clients:
            self.memories.propose(number, client, {"c": {"w": torch.full((size,), float(1000 * t + client))}})
        self.memories.commit(clients)
        saved = self.files.write(t, {"model": {"w": torch.ones(3)}, "engine": self.memories.state_dict(), "clock": t})
        self.rows = [(t, *saved), *self.rows[:1]]
        self.files.clear(name for _, name, _ in self.rows)
        return saved


def test_a_round_writes_the_memories_of_its_clients_only(tmp_path: Path) -> None:
    rounds = Round(tmp_path)
    rounds.play(1, list(range(20)), size=1000)
    rounds.play(2, [3, 4], size=1000)
    written = {file.name: file.stat().st_size for file in sorted(tmp_path.glob("memories-*"))}
    assert written.keys() == {"memories-000001.safetensors", "memories-000002.safetensors"}
    assert written["memories-000001.safetensors"] >= 80_000
    assert written["memories-000002.safetensors"] <= 10_000
    rounds.play(3, [], size=1000)
    assert len(list(tmp_path.glob("memories-*"))) == 2, "nothing has changed"
    found = last_valid(rounds.rows, tmp_path)
    assert found is not None
    assert pack(found[1]) == pack({"model": {"w": torch.ones(3)}, "engine": rounds.memories.state_dict(), "clock": 3})


def test_files_stay_few_and_at_most_half_out_of_date(tmp_path: Path) -> None:
    rounds, draw = Round(tmp_path), random.Random(0)
    for t in range(1, 120):
        rounds.play(t, [draw.randrange(200)], size=100)
        assert len(list(tmp_path.glob("memories-*"))) <= checkpoints.MOST_FILES + 20
    used = sum(stamp.size for stamp in rounds.memories.state_dict().stamps.values())
    assert sum(file.stat().st_size for file in tmp_path.glob("memories-*")) <= 3 * used
    found = last_valid(rounds.rows, tmp_path)
    assert found is not None
    assert pack(found[1]["engine"]) == pack(rounds.memories.state_dict())


@pytest.mark.parametrize("seed", range(8))
def test_a_process_that_is_killed_while_it_writes_continues_with_the_same_memories(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process is killed at a random byte of a file, or before a file gets its name; the last complete checkpoint is loaded."""
    draw, complete = random.Random(seed), dict[int, bytes]()
    rows: list[tuple[int, str, str]] = []
    for _ in range(6):
        found = last_valid(rows, tmp_path)
        assert found is None or pack(found[1]["engine"]) == complete[found[0]]
        rounds = Round(tmp_path, Memories(draw.choice([0, 2**30])))
        if found is not None:
            rounds.memories.load_state_dict(found[1]["engine"])
        rounds.rows, start = rows, found[0] if found is not None else 0
        writes, last = itertools.count(), draw.randrange(1, 12)

        def write(path: Path, state: Any) -> str:
            digest = save_state(path, state)
            if next(writes) == last:  # noqa: B023 - called in this iteration only
                path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size + 1)])
                if draw.random() < 0.3:
                    path.replace(path.with_name(path.name[1:]))
                raise KilledError
            return digest

        monkeypatch.setattr(checkpoints, "save_state", write)
        with suppress(KilledError):
            for t in range(start + 1, start + 100):
                rounds.play(t, draw.sample(range(12), 3))
                rows = rounds.rows
                complete[t] = pack(rounds.memories.state_dict())
        assert next(writes) <= 13, "the process was killed"


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-1] + b"?")])
def test_a_damaged_file_with_memories_makes_the_checkpoint_invalid(damage: Any, tmp_path: Path) -> None:
    rounds = Round(tmp_path)
    rounds.play(1, [1, 2, 3])
    expected = pack(rounds.memories.state_dict())
    rounds.play(2, [1])
    damage(tmp_path / "memories-000002.safetensors")
    found = last_valid(rounds.rows, tmp_path, quiet=True)
    assert found is not None
    assert (found[0], pack(found[1]["engine"])) == (1, expected)
    damage(tmp_path / "memories-000001.safetensors")
    with pytest.raises(
        fedcohort.UsageError, match=r"round-000002\.safetensors: the checkpoint of round 2 is damaged.*emories-"
    ):
        last_valid(rounds.rows, tmp_path)


def test_small_memories_are_in_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "SEPARATE", 2**20)
    rounds = Round(tmp_path)
    rounds.play(1, [1, 2, 3])
    assert [file.name for file in tmp_path.iterdir()] == ["round-000001.safetensors"]
    rounds.play(2, [4], size=2**19)
    rounds.memories.load_state_dict({})
    rounds.play(3, [4])
    found = last_valid(rounds.rows, tmp_path)
    assert found is not None
    assert pack(found[1]["engine"]) == pack(rounds.memories.state_dict())


def stopped_after(t: int, folder: Path, monkeypatch: pytest.MonkeyPatch, **values: Any) -> Run:
    """A run that its process left after this round, as if it had been killed."""

    def progress(_: Any, row: Any) -> None:
        if row.round == t:
            raise KilledError

    with pytest.raises(KilledError):
        fedcohort.run(small(**SCAFFOLD, **values), runs=folder, progress=progress)
    [path] = folder.iterdir()
    return Run(path)


def test_a_run_with_separate_memories_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fedcohort.run(small(rounds=6, **SCAFFOLD), runs=tmp_path / "straight")
    stopped = stopped_after(3, tmp_path / "stopped", monkeypatch, rounds=6)
    assert list((stopped.path / "checkpoint").glob("memories-*"))
    resumed = fedcohort.run(small(rounds=6, **SCAFFOLD), runs=tmp_path / "stopped")
    assert record(resumed) == record(expected)
    ends = [run.checkpoint() for run in (resumed, expected)]
    assert ends[0] is not None
    assert ends[1] is not None
    assert pack(ends[0][1]) == pack(ends[1][1])


def test_runs_of_versions_that_wrote_all_memories_in_one_file_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = record(fedcohort.run(small(rounds=5, **SCAFFOLD), runs=tmp_path / "straight"))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "SEPARATE", 2**60)
        stopped = stopped_after(3, tmp_path / "stopped", monkeypatch, rounds=5)
    assert not list((stopped.path / "checkpoint").glob("memories-*"))
    assert record(fedcohort.run(small(rounds=5, **SCAFFOLD), runs=tmp_path / "stopped")) == expected
    assert list((stopped.path / "checkpoint").glob("memories-*"))
