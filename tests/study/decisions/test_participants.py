"""Participants beside the others: every number by an independent sum over the record."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import fedcohort
from fedcohort.record import Portrait, Run
from fedcohort.study.decisions.participants import _correlation, label_entropy, participants
from tests.experiments import small

FEDERATION = {"holdout": 0.2, "label_noise": {"name": "beta"}}
SELECTION = {"name": "conformal", "alpha_cp": 0.3, "max_epochs": 3}


def test_label_entropy() -> None:
    counts = np.array([[3, 0, 0], [2, 2, 0], [1, 2, 5], [0, 0, 0]])
    expected = [0.0, math.log(2), stats.entropy([1, 2, 5]), math.nan]
    assert label_entropy(counts) == pytest.approx(expected, nan_ok=True)


def test_two_groups_and_what_goes_with_taking_part(tmp_path: Path) -> None:
    run = fedcohort.run(small(federation=FEDERATION, selection=SELECTION, systems={"dropout": 0.2}), runs=tmp_path)
    found, facts = participants(run), run.portrait.facts
    sizes: dict[str, list[float]] = {"admitted": [], "declined": [], "failed": []}
    shares: dict[str, list[float]] = {"admitted": [], "declined": [], "failed": []}
    for client, status in zip(run.clients["client"], run.clients["status"], strict=True):
        counts = facts["counts"][client]
        sizes[status].append(counts.sum())
        shares[status].append(counts.max() / counts.sum())
    assert all(sizes.values())
    for name, status in (("participants", "admitted"), ("others", "declined")):
        assert found.loc[name, "client_rounds"] == len(sizes[status])
        assert found.loc[name, "samples"] == pytest.approx(np.mean(sizes[status]))
        assert found.loc[name, "dominant_share"] == pytest.approx(np.mean(shares[status]))
    took_part = [True] * len(sizes["admitted"]) + [False] * len(sizes["declined"])
    expected = stats.pointbiserialr(took_part, sizes["admitted"] + sizes["declined"]).statistic
    assert found.loc["correlation", "samples"] == pytest.approx(expected)
    means = run.clients.groupby("status")[["q_hat", "set_size", "epochs"]].mean()
    for column in means:
        assert found.loc["participants", str(column)] == pytest.approx(means.loc["admitted", str(column)])
    assert found["q_hat"]["participants"] <= 0.25 < found["q_hat"]["others"]
    quantiles = run.rewards("q_hat")
    assert quantiles.shape == (6, 12)
    assert np.nanmean(quantiles) == pytest.approx(run.clients["q_hat"].mean())


def test_a_number_that_no_client_reported_has_no_correlation() -> None:
    assert math.isnan(_correlation(np.full(3, np.nan), np.array([0.0, 1.0, 1.0])))


def test_everybody_took_part(tmp_path: Path) -> None:
    found = participants(fedcohort.run(small(rounds=1), runs=tmp_path))
    assert found.loc["others", "client_rounds"] == 0
    assert math.isnan(found["samples"]["correlation"])


def test_a_run_that_does_not_know_its_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fedcohort.run(small(rounds=1), runs=tmp_path)
    monkeypatch.setattr(Run, "portrait", Portrait())
    with pytest.raises(fedcohort.UsageError, match="has no class counts of its clients"):
        participants(run)
