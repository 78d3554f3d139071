"""How often clients were selected, and which rows have selected the same ones, without reading the tables of clients."""

from pathlib import Path

import numpy as np
import pytest

import fedcohort
from fedcohort.record import ClientRow, RoundRow
from fedcohort.record import Run as RecordedRun
from fedcohort.study.compare_existing_runs import FirstRounds
from fedcohort.study.rows.equal_rows import equal_rows
from fedcohort.study.run_measures import Measured, evenness
from tests.records import played, written

STATUSES = ("admitted", "declined", "failed", "late", "diverged")


def of_clients(t: int, clients: list[int], draw: np.random.Generator) -> RoundRow:
    """A round with random statuses."""
    statuses = draw.choice(STATUSES, len(clients)).tolist()
    return played(t, [ClientRow(client, status) for client, status in zip(clients, statuses, strict=True)])


def test_counts_are_those_of_the_table_of_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    rounds = [of_clients(t, draw.choice(12, draw.integers(0, 6), replace=False).tolist(), draw) for t in range(1, 31)]
    whole = written(tmp_path / "run", rounds)
    for run in (whole, FirstRounds(whole, 11)):
        clients = run.clients
        counts = np.bincount(clients["client"], minlength=12)
        admitted = np.bincount(clients.loc[clients["status"] == "admitted", "client"], minlength=12)
        ordered = sorted(zip(clients["round"].tolist(), clients["client"].tolist(), strict=True))
        with monkeypatch.context() as patch:
            patch.setattr(RecordedRun, "clients", property(lambda _: pytest.fail("the table is read")))
            found = Measured(whole if run is whole else FirstRounds(whole, 11))
            assert found.selected == evenness(counts)
            assert found.admitted == evenness(admitted)
            assert found.diverged == (clients["status"] == "diverged").sum()
            assert found.updates == clients["status"].isin(("admitted", "declined", "diverged")).sum()
            assert list(map(tuple, found.selected_clients().tolist())) == ordered


def test_clients_are_only_compared_of_rows_with_the_same_accuracies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str, clients: list[list[int]], accuracy: float = 0.5) -> fedcohort.Run:
        rounds = [played(t, own, test_accuracy=accuracy) for t, own in enumerate(clients, start=1)]
        return written(tmp_path / name, rounds)

    records = [
        run("first", [[3, 1], [2]]),
        run("other accuracy", [[3, 1], [2]], 0.25),
        run("other clients", [[3, 1], [1]]),
        run("another order", [[1, 3], [2]]),
        run("other rounds", [[3], [1, 2]]),
        run("other clients too", [[1, 3], [1]]),
    ]
    read = []

    def selected(measured: Measured) -> np.ndarray:
        read.append(measured.run.path.name)
        return reading(measured)

    reading = Measured.selected_clients
    monkeypatch.setattr(Measured, "selected_clients", selected)
    assert equal_rows([[Measured(one)] for one in records]) == [[0, 3], [2, 5]]
    assert "other accuracy" not in read
