"""Two comparisons in one folder divide the runs between them."""

import logging
import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedcohort
from fedcohort.record import BeingWrittenError, Run, locked
from fedcohort.runs.shared_runs import in_turn
from tests.experiments import small


def compared(runs: Path, **options: Any) -> tuple[dict[str, str], list[tuple[str, int]]]:
    """Compare two rows under two seeds; the digests of the runs by their folders, and the runs in the order of their first rounds."""
    played: list[tuple[str, int]] = []

    def progress(cell: Any, row: Any) -> None:
        if row.round == 1:
            played.append((cell.label, cell.seed))

    experiment = small(rounds=2, seeds=2, variants=[{"label": "ucb", "selection": "ucb"}])
    rows = fedcohort.compare(experiment, runs=runs, progress=progress, **options).rows
    return {run.path.name: run.digest() for row in rows for run in row.runs.values()}, played


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_that_another_process_writes_comes_last(
    jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected, order = compared(tmp_path / "alone")
    first = next(iter(expected))
    other = ExitStack()
    other.enter_context(locked(tmp_path / "runs" / first))
    clock = SimpleNamespace(
        sleep=lambda _: other.close()
    )  # the other process ends; the module's own, as others sleep, too
    monkeypatch.setattr("fedcohort.runs.shared_runs.time", clock)
    with caplog.at_level(logging.INFO, logger="fedcohort"):
        found, played = compared(tmp_path / "runs", jobs=jobs)
    assert found == expected
    assert played == ([*order[1:], order[0]] if jobs == 1 else [order[0]])
    waits = [line for line in caplog.messages if "waiting" in line]
    assert waits == [f"{tmp_path / 'runs' / first}: another process is writing this run; waiting for it"]


def test_runs_that_others_write_are_waited_for_one_after_another(tmp_path: Path) -> None:
    """Two threads take the same runs; each run is played once, and both get all of them."""
    played: list[int] = []
    found: list[list[int]] = []

    def play(number: int) -> Run:
        path = tmp_path / str(number)
        with locked(path):
            if not (path / "finished").exists():
                played.append(number)
                (path / "finished").touch()
        return Run.__new__(Run)

    def work() -> None:
        found.append(sorted(number for number, _ in in_turn(range(50), play)))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [list(range(50))] * 2
    assert sorted(played) == list(range(50))


def test_the_error_of_a_single_run_names_its_folder(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(BeingWrittenError, match="another process is writing this run") as raised,
        locked(tmp_path),
    ):
        pass
    assert raised.value.path == tmp_path
