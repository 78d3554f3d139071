"""The page, the terminal and LaTeX say in the same words on which samples of the clients their accuracy was measured."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcohort.report.charts.client_accuracy import client_accuracy
from fedcohort.report.charts.client_table import client_table
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.notes.comparison_notes import about_clients
from fedcohort.study.compare_existing_runs import read
from tests.records import played, written

TEST = {"client data": "test samples"}


@pytest.mark.parametrize(
    ("facts", "holdouts", "samples"),
    [
        (({}, {}), (0.0, 0.0), "training samples"),
        (({}, {}), (0.2, 0.5), "held-out samples"),
        (({}, {}), (0.0, 0.2), "data"),
        ((TEST, TEST), (0.0, 0.2), "test samples"),
        ((TEST, {}), (0.0, 0.0), "data"),
        (({"plan": "server"}, {"plan": "server"}), (0.0, 0.0), "data"),
    ],
)
def test_every_place_says_the_same(
    facts: tuple[dict[str, str], ...], holdouts: tuple[float, ...], samples: str, tmp_path: Path
) -> None:
    rows = [played(1, [0], client_accuracy=np.array([0.2, 0.4, 0.6, 0.8]))]
    runs = [
        written(tmp_path / label, rows, label=label, facts=own, federation=federation, selection=label)
        for label, own, federation in zip(
            ("uniform", "round_robin"), facts, [{"clients": 4, "holdout": each} for each in holdouts], strict=True
        )
    ]
    story = gather(runs)
    figure = next(each for each in client_accuracy(story, PAGE) if each.key == "client-accuracy")
    assert f"on each client's own {samples}." in figure.note
    table = client_table(story)
    assert table is not None
    assert f"on the client's {samples} when it was last measured" in table.note
    compared = read([run.path for run in runs], partial=True)
    table_rows: Any = compared.table.to_dict("records")
    assert f"on each client's own {samples}, mean" in about_clients(compared, table_rows)
