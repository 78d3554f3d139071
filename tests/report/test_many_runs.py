"""What reading many runs costs: connections to databases for each run, not for each pair, and none for runs that are known."""

import itertools
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.table import Table

from fedcohort.record import Run, writing
from fedcohort.report import terminal
from fedcohort.report.live import live_server
from fedcohort.report.live.live_server import Live
from fedcohort.report.live.pauses import Pauses
from fedcohort.report.notes.unranked_rows import about_planned
from fedcohort.report.terminal import layout
from fedcohort.report.terminal.layout import Column, fitting_table
from fedcohort.study.compare_existing_runs import read
from tests.records import played, written


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the database of each run directory was opened."""
    opened: Counter[str] = Counter()
    connected = Run._connected

    def counted(run: Run) -> object:
        opened[run.path.name] += 1
        return connected(run)

    monkeypatch.setattr(Run, "_connected", counted)
    return opened


def rows(folder: Path, number: int, lengths: Sequence[int] = (1,), *, finished: bool = True) -> list[Path]:
    """Runs, each of a row of its own, of one experiment; the lengths take turns."""
    paths = []
    for i in range(number):
        label, length = "uniform" if i == 0 else f"UCB {i}", lengths[i % len(lengths)]
        choice = "uniform" if i == 0 else {"name": "ucb", "c": i / 100}
        run = written(
            folder / f"{length}-{i}", [played(t, [0, 1]) for t in range(1, length + 1)], label=label, selection=choice
        )
        if finished:
            with writing(run) as writer:
                writer.finish({})
        paths.append(run.path)
    return paths


@pytest.mark.parametrize(("lengths", "finished"), [((1,), True), ((1, 2), True), ((1, 1), False)])
def test_a_comparison_opens_each_run_equally_often_however_many_rows_there_are(
    lengths: tuple[int, ...], finished: bool, tmp_path: Path, connections: Counter[str]
) -> None:
    """Each of 250 rows opened all of them: 74,000 connections."""
    paths = rows(tmp_path, 12, lengths, finished=finished)
    most = []
    for number in (4, 12):
        compared = read(paths[:number], partial=not finished)
        connections.clear()
        terminal.comparison(compared)
        assert bool(about_planned(compared)) == (lengths == (1, 2))
        most.append(max(connections.values()))
    assert most[0] == most[1]
    assert most[0] <= (12 if finished else 40)


def test_the_facts_of_a_finished_run_are_read_once(tmp_path: Path, connections: Counter[str]) -> None:
    run = written(tmp_path / "run", [played(1, [0, 1])])
    assert (run.finished, run.last_round) == (False, 1)
    with writing(run) as writer:
        writer.record([played(2, [0, 1])])
        assert run.last_round == 2
        writer.finish({})
    run.meta["status"] = "changed by a reader"
    assert (run.finished, run.last_round) == (True, 2)
    connections.clear()
    assert (run.finished, run.last_round, run.meta["label"], run.labels) == (True, 2, "uniform", "classes")
    assert not connections
    run.verify()
    assert connections["run"] == 2, "its rounds and its facts are compared anew"


def test_a_live_page_opens_finished_runs_again_only_if_they_change(tmp_path: Path, connections: Counter[str]) -> None:
    """An open page asks every two seconds; 2,000 runs took more than four seconds of processor time."""
    first, second = rows(tmp_path, 2)
    going = written(tmp_path / "going", [played(1, [0, 1])], label="going").path
    live = Live(tmp_path)
    before = live.state(None)
    connections.clear()
    assert live.state(None) == before
    assert set(connections) == {going.name}
    connections.clear()
    (first / "experiment.toml").touch()
    assert live.state(None) != before
    assert set(connections) == {going.name, first.name}
    shutil.rmtree(second)
    assert len(live.groups()[Run(first).meta["name"]]) == 2


def test_a_table_that_fits_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every column of it was measured, and the whole table for each: a third of the time of a comparison of 250 rows."""
    measured: list[Table] = []
    natural_width = layout.natural_width

    def counted(table: Table) -> int:
        measured.append(table)
        return natural_width(table)

    monkeypatch.setattr(layout, "natural_width", counted)
    columns = [Column(f"heading {i}", ["cell"] * 3) for i in range(8)]
    fitting_table(columns, 200)
    assert len(measured) == 2


def test_a_page_that_took_long_is_not_made_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of 20,000 rounds takes five seconds, and was made again two seconds later for as long as it was open."""
    going = written(tmp_path / "going", [played(1, [0, 1])], rounds=9)
    now, processor = [0.0], itertools.count(step=5.0)
    live = Live(tmp_path)
    live.pauses = Pauses(lambda: now[0])
    monkeypatch.setattr(
        live_server, "time", SimpleNamespace(thread_time=lambda: next(processor), monotonic=time.monotonic)
    )

    def news(seconds: float, page: bool = True) -> bool:
        """Whether an open page is told the last round, this long after the last page; it then gets it."""
        now[0] += seconds
        told, latest = live.state(None)["version"], live.latest(None)
        if told == latest and page:
            assert f'data-live="{latest}"' in live.page(None)
        return told == latest

    assert news(2)
    for t, seconds, expected in [(2, 2, True), (3, 2, False), (4, 17, False), (5, 2, True), (6, 2, False)]:
        with writing(going) as writer:
            writer.record([played(t, [0, 1])])
        assert news(seconds) == expected, t
    assert f'data-live="{live.latest(None)}"' in live.page(None), "a reader who loads the page gets the last round"
    with writing(going) as writer:
        writer.record([played(7, [0, 1])])
    assert not news(2)
    live.pauses.end()
    assert news(0)
