"""Runs to report on, made once: a comparison of three strategies over three seeds."""

from pathlib import Path

import pytest

import fedcohort
from fedcohort.report.data.report_data import find_runs, gather
from fedcohort.report.page import page
from tests.experiments import UCB, small

ROWS = [{"label": "UCB", "selection": UCB}, {"label": "loss", "selection": {"name": "select_by_loss"}}]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three strategies, three seeds, eight rounds, clients measured."""
    folder = tmp_path_factory.mktemp("report") / "runs"
    fedcohort.compare(small(rounds=8, seeds=3, variants=ROWS, measures={"clients_every": 2}), runs=folder)
    return folder


@pytest.fixture(scope="session")
def page_of_runs(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of these runs, as a file that no test changes."""
    path = tmp_path_factory.mktemp("page of runs") / "report.html"
    path.write_text(page(gather(find_runs([runs]))), encoding="utf-8")
    return path
