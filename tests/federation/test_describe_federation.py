"""``fedcohort data describe``: what a federation looks like before any training, and that it is what training then meets."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcohort
from fedcohort.federation.featureshift import (
    BrightnessContrast,
    DeadPixels,
    Gauss,
    NoFeatureShift,
    Rotate,
    Space,
    in_words,
)
from tests.cli.test_cli import call, refused

EVERYTHING = """
rounds = 6
seeds = 1

[federation]
clients = {clients}
holdout = 0.2
partition = {{ name = "dirichlet_client", alpha = 0.3, sizes = "lognormal", size_sigma = 0.4, min_size = 0 }}
label_noise = {{ name = "beta", a = 20.0, flip = "pairflip" }}
feature_shift = "rotate"

[systems]
dropout = 0.1
deadline = 4000.0
overcommit = 1.3
latency = {{ name = "shifted_exponential", spread = 10.0 }}
availability = "diurnal"
network = "lognormal"

[selection]
k = 6
"""


def written(tmp_path: Path, clients: int) -> Path:
    file = tmp_path / "everything.toml"
    file.write_text(EVERYTHING.format(clients=clients))
    return file


def described(*arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("data", "describe", *arguments, "--json").stdout)
    return found


def test_everything_at_once_is_what_a_run_meets(tmp_path: Path) -> None:
    file = written(tmp_path, 12)
    said = described(file)
    clients = said["clients"]
    run = fedcohort.run(fedcohort.load_experiment(file), runs=tmp_path / "runs")
    came = run.clients.query("status == 'admitted'")
    assert len(came) > 5
    for row in came.itertuples():
        client = clients[row.client]
        assert client["samples"] - client["held_out"] == row.num_samples
        assert client["time"] == pytest.approx(
            row.duration
        )  # drawn once: the time of every round, a model's bytes included
        assert 0 < client["sending"] < client["time"]
    seen = np.zeros(12)
    for t in run.clients.groupby("round")["client"]:
        seen[t[1]] += 1
    assert all(seen[row["client"]] <= round(row["presence"] * 6) for row in clients)
    assert sum(row["wrong_labels"] * row["samples"] for row in clients) == pytest.approx(0.2 * 1438, rel=0.25)
    assert {row["shift"] for row in clients} == {"0°", "90°", "180°", "270°"}


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_everything_fits_a_terminal(columns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = call("data", "describe", written(tmp_path, 12)).stdout
    assert max(map(len, text.splitlines())) <= int(columns)
    words = " ".join(text.split())
    for line in (
        "Label noise: beta(", "Feature shift: rotate(", "Latency: shifted_exponential(", "Network: lognormal(",
        "Availability: diurnal(", "Dropout: ", "Deadline 4,000: ", "Overcommitment: the server selects 1.3 clients",
        ", before label noise",
    ):  # fmt: skip
        assert line in words


def test_what_was_not_asked_for_is_not_shown() -> None:
    text = call("data", "describe").stdout
    for word in (
        "Latency",
        "Network",
        "Availability",
        "Dropout",
        "Deadline",
        "Over-commitment",
        "noise",
        "shift",
        "there",
    ):
        assert word not in text


def test_the_effective_alpha_is_that_of_the_partition_whatever_the_noise() -> None:
    plain = described("--set", "federation.partition.alpha=0.1")
    noisy = described(
        "--set", "federation.partition.alpha=0.1", "--set", 'federation.label_noise={name="constant",rate=0.5}'
    )
    assert plain["effective_alpha"] == noisy["effective_alpha"]
    assert [row["counts"] for row in plain["clients"]] != [row["counts"] for row in noisy["clients"]]


def test_a_thousand_clients(tmp_path: Path) -> None:
    said = described(written(tmp_path, 1000))
    assert len(said["clients"]) == 1000
    assert sum(row["samples"] for row in said["clients"]) == 1438
    empty = [row for row in said["clients"] if row["samples"] == 0]
    assert empty
    assert all(row["presence"] == 0 for row in empty)
    shown = call("data", "describe", written(tmp_path, 1000)).stdout
    assert "quantiles over" in shown
    assert "sending, share of time" in shown
    assert len(shown.splitlines()) < 70


def test_the_deadline_is_checked_as_a_run_would(tmp_path: Path) -> None:
    refused(
        call("data", "describe", written(tmp_path, 12), "--set", "systems.deadline=1.0"),
        "systems.deadline = 1: no client",
    )


@pytest.mark.skipif(not os.environ.get("FEDCOHORT_DATA"), reason="FEDCOHORT_DATA names no mirror")
def test_the_writers_of_femnist() -> None:
    settings = ("data.name=femnist", "federation.partition=natural", "federation.clients=101")
    said = described(*(part for setting in settings for part in ("--set", setting)))
    assert len(said["clients"]) == 101
    assert min(row["samples"] for row in said["clients"]) == 28
    assert said["dropped"] == 19
    assert said["effective_alpha"] == "inf"  # no label skew beyond chance


def test_shifts_in_words() -> None:
    space = Space((1, 4, 4), np.ones(()), 5)
    assert in_words(NoFeatureShift(), space, seed=0) == []
    assert in_words(DeadPixels(), space, seed=0) == []  # the same number at every client
    assert in_words(Gauss(sigma=1.0), space, seed=0) == ["σ 0.000", "σ 0.447", "σ 0.632", "σ 0.775", "σ 0.894"]
    assert sorted(in_words(Rotate(), space, seed=0)) == ["0°", "0°", "180°", "270°", "90°"]
    assert all(word.startswith("×") for word in in_words(BrightnessContrast(), space, seed=0))


@pytest.mark.parametrize(("noise", "known"), [("none", False), ("constant", True)])
def test_wrong_labels_are_unknown_unless_they_are_simulated(noise: str, known: bool) -> None:
    """A share of 0 for own data would say that their labels are right, which nobody knows."""
    rate = ["--set", "federation.label_noise.rate=0.5"] if known else []
    called = call("data", "describe", "--json", "--set", f"federation.label_noise.name={noise}", *rate)
    found: dict[str, Any] = json.loads(called.stdout)
    shares = [client["wrong_labels"] for client in found["clients"]]
    assert all((share is not None) == known for share in shares)
    assert all((share is not None) == known for share in found["quantiles"]["wrong_labels"].values())
    assert not known or 0.3 < sum(shares) / len(shares) < 0.7
