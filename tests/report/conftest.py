"""Runs to report on, made once: a comparison of three strategies over three seeds."""

from pathlib import Path

import pytest

import fedcohort
from tests.experiments import UCB, small

ROWS = [{"label": "UCB", "selection": UCB}, {"label": "loss", "selection": {"name": "select_by_loss"}}]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three strategies, three seeds, eight rounds, clients measured."""
    folder = tmp_path_factory.mktemp("report") / "runs"
    fedcohort.compare(small(rounds=8, seeds=3, variants=ROWS, measures={"clients_every": 2}), runs=folder)
    return folder
