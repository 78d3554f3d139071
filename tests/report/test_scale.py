"""Reports of large runs: aggregated, small enough to send, and made in seconds: of the processor, so that a busy machine may wait."""

import time
from pathlib import Path

import numpy as np
import pytest

import fedcohort
from fedcohort.record import ClientRow, LedgerRow, Portrait, RoundRow, Run
from fedcohort.report.gather import find_runs, gather
from fedcohort.report.page import page, scripts
from tests.experiments import small
from tests.report.pages import Page


def large(path: Path, m: int, n: int, k: int) -> None:
    """A record as a run with m clients and n rounds of k would leave it; the numbers are drawn."""
    rng = np.random.default_rng(0)
    federation = {"clients": m, "partition": {"name": "iid", "min_size": 1}}
    experiment = small(rounds=n, selection={"name": "ucb", "k": k}, federation=federation).single(0)
    meta = {
        "name": "large",
        "label": "UCB",
        "seed": "0",
        "key": "large",
        "row": "large",
        "data": "none",
        "algorithm": "FedAvg",
    }
    run = Run.create(path, experiment.to_toml(), meta)
    facts = {
        "samples": rng.integers(10, 200, m),
        "time": rng.exponential(100, m),
        "counts": rng.integers(0, 20, (m, 10)),
    }
    with run.writing() as writer:
        writer.describe(Portrait(tuple("0123456789"), facts))
        for t in range(1, n + 1):
            chosen = rng.choice(m, k, replace=False).tolist()
            scores, inside = rng.random(m).tolist(), set(chosen)
            writer.record(
                RoundRow(
                    round=t, available=m, selected=k, trained=k, admitted=k, simulated_time=10.0 * t, round_time=10.0, steps=5 * k,
                    test_accuracy=t / (t + 50), test_loss=1.0, validation_accuracy=t / (t + 50), validation_loss=1.0,
                    local_accuracy=0.5, train_loss=1.0, class_accuracy=[t / (t + 50)] * 10, note="",
                    clients=[ClientRow(client, "admitted", num_samples=50, steps=5, duration=10.0) for client in chosen],
                    decisions=[(i, i in inside, s, {"mean_reward": s / 2, "bonus": s / 2}) for i, s in enumerate(scores)],
                    ledger=[LedgerRow("training", 2 * k, 10**6, 10**6, float(k), 1.0, "its update")], wall={"total": 1.0},
                ),
                None,
            )  # fmt: skip


@pytest.mark.slow
def test_a_thousand_clients_and_rounds(tmp_path: Path) -> None:
    large(tmp_path / "large", 1000, 1000, 100)
    scripts()
    start = time.process_time()
    text = page(gather(find_runs([tmp_path])))
    assert time.process_time() - start < 20
    assert len(text.encode()) < 10e6
    found = Page(text)
    data = found.payload["data"]
    assert len(data["accuracy_rounds"]) <= 300
    assert len(data["raster"]) <= 120 * 60
    assert "17 clients × 9 rounds" in found.prose
    assert "Each point over rounds is the mean of 4 rounds" in found.prose
    cells = data["raster"]
    shares = sum(
        cell["share"] * (min(cell["x2"], 1000.5) - cell["x"]) * (min(cell["y2"], 999.5) - cell["y"]) for cell in cells
    )
    assert shares == pytest.approx(100 * 1000, rel=1e-6), "every selection is in one cell"


@pytest.mark.slow
def test_five_strategies_over_a_hundred_rounds(tmp_path: Path) -> None:
    names = ("ucb", "oort", "powd", "select_by_loss")
    rows = [{"label": name, "selection": {"name": name}} for name in names]
    federation = {"clients": 50, "partition": {"name": "iid", "min_size": 1}}
    fedcohort.compare(
        small(rounds=100, seeds=3, variants=rows, federation=federation, selection={"k": 10}), runs=tmp_path
    )
    start = time.process_time()
    text = page(gather(find_runs([tmp_path])))
    assert time.process_time() - start < 5
    assert len(text.encode()) < 6e6
