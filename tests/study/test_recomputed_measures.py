"""Measures of runs with absent, failed and late clients, recomputed from the database by definition, without FedCohort's code."""

import json
import math
import sqlite3
from collections import Counter
from typing import Any

import numpy as np
import pytest

import fedcohort
from fedcohort.record import Run
from fedcohort.study.summary import summary
from tests.experiments import small

M, K, DEADLINE, OVERCOMMIT, IDLE = 20, 5, 900.0, 1.3, 50.0

Table = list[dict[str, Any]]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> fedcohort.Comparison:
    experiment = small(
        rounds=12,
        federation={"clients": M, "holdout": 0.2, "partition": "iid", "label_noise": {"name": "beta", "a": 20.0}},
        systems={
            "latency": {"name": "shifted_exponential", "spread": 10.0, "redraw": "mixed"},
            "network": {"name": "lognormal", "bandwidth": 500.0},
            "availability": {"name": "markov", "p_on": 0.06, "p_off": 0.5},
            "dropout": 0.15, "deadline": DEADLINE, "overcommit": OVERCOMMIT, "idle_time": IDLE,
        },
        selection={"name": "uniform", "k": K},
        measures={"evaluate_every": 2, "clients_every": 3},
        variants=[{"label": "powd", "selection": {"name": "powd", "d": 8}}, {"label": "Oort", "selection": "oort"}],
    )  # fmt: skip
    return fedcohort.compare(experiment, runs=tmp_path_factory.mktemp("recomputed"), progress=False)


def tables(run: Run) -> dict[str, Table]:
    """The tables of the database, as they are."""
    connection = sqlite3.connect(run.path / "run.sqlite")
    connection.row_factory = sqlite3.Row
    found = {
        name: [dict(row) for row in connection.execute(f"SELECT * FROM {name} ORDER BY round")]
        for name in ("rounds", "clients", "ledger")
    }
    connection.close()
    return found


def length_of_round(selected: Table) -> float:
    """When the server ends a round: with the update that it needs last, or at the deadline if it misses some."""
    if not selected:
        return IDLE
    sent = [row["duration"] for row in selected if row["status"] != "failed"]
    in_time = sorted(time for time in sent if time <= DEADLINE)
    awaited = max(K, math.floor(len(selected) / OVERCOMMIT + 1e-9))
    if len(in_time) >= awaited:
        return in_time[awaited - 1]
    return DEADLINE if len(in_time) < len(sent) else max(in_time, default=0.0)


def test_the_cases_occur(compared: fedcohort.Comparison) -> None:
    statuses: Counter[str] = Counter()
    for row in compared.rows:
        statuses.update(each["status"] for each in tables(row.run)["clients"])
        assert row.run.rounds["available"].min() == 0
        assert row.run.rounds["available"].max() < M
    assert {"admitted", "failed", "late"} <= set(statuses)


def test_times(compared: fedcohort.Comparison) -> None:
    for row in compared.rows:
        found, now = tables(row.run), 0.0
        for each in found["rounds"]:
            now += length_of_round([client for client in found["clients"] if client["round"] == each["round"]])
            assert each["simulated_time"] == pytest.approx(now)
        assert summary(row.run).simulated_time == pytest.approx(now)


def test_evenness(compared: fedcohort.Comparison) -> None:
    for row in compared.rows:
        own, clients = summary(row.run), tables(row.run)["clients"]
        for shown, statuses in ((own.selected, None), (own.admitted, {"admitted"})):
            x = np.zeros(M)
            for each in clients:
                x[each["client"]] += statuses is None or each["status"] in statuses
            shares = x[x > 0] / x.sum()
            expected = (
                x.sum() ** 2 / (M * (x**2).sum()),
                np.abs(x[:, None] - x[None, :]).mean() / (2 * x.mean()),
                -(shares * np.log(shares)).sum(),
                (x > 0).mean(),
            )
            assert shown == pytest.approx(expected)


def test_bytes_and_passes(compared: fedcohort.Comparison) -> None:
    """Selected clients receive the model; those that are admitted send it, and what the strategy reads of all that trained. A client
    that is asked for its loss receives the model before, and again to train."""
    reads = {"uniform": 0, "powd": 0, "Oort": 2}  # Oort: number of samples that it trained on, and squared loss
    for row in compared.rows:
        found, own = tables(row.run), summary(row.run)
        model = int(row.run.meta["model bytes"])
        asked = sum(each["messages"] // 2 for each in found["ledger"] if each["kind"] == "LocalLoss")
        times = sum(each["bytes_up"] for each in found["ledger"] if each["kind"] == "Speed")
        admitted = sum(each["status"] == "admitted" for each in found["clients"])
        expected = (
            model * (len(found["clients"]) + admitted + asked) + 4 * (asked + reads[row.label] * admitted) + times
        )
        assert own.bytes == expected
        assert (asked > 0, times > 0) == (row.label == "powd", row.label == "Oort")
        epochs = sum(json.loads(each["reports"] or "{}").get("epochs", 1) for each in found["clients"])
        assert own.client_passes == pytest.approx(3 * epochs + asked)


def test_accuracies_and_costs_of_a_target(compared: fedcohort.Comparison) -> None:
    for row in compared.rows:
        found = tables(row.run)
        tested = {each["round"]: each["test_accuracy"] for each in found["rounds"] if each["test_accuracy"] is not None}
        assert sorted(tested) == [2, 4, 6, 8, 10, 12]
        target = sorted(tested.values())[3]
        own = summary(row.run, target)
        first = next(t for t, accuracy in tested.items() if accuracy >= target)
        spent = sum(each["bytes_up"] + each["bytes_down"] for each in found["ledger"] if each["round"] <= first)
        clock = next(each["simulated_time"] for each in found["rounds"] if each["round"] == first)
        assert (own.rounds_to_target, own.time_to_target, own.bytes_to_target) == (first, clock, spent)
        assert (own.accuracy, own.best_accuracy) == (tested[12], max(tested.values()))
