"""Pages about numeric labels say what the classes in their charts are."""

from pathlib import Path
from typing import Any

import pytest

import fedcohort
from fedcohort.experiment.given_objects import Given
from fedcohort.report.charts.client_table import client_table
from fedcohort.report.federation_page import pictures
from fedcohort.report.page import page
from fedcohort.report.report_data import gather
from fedcohort.runs.prepare_run import look
from tests.experiments import IID, small
from tests.report.pages import Page


def test_scores_of_clients_have_three_digits(tmp_path: Path) -> None:
    """An R² of 0.656 was 0.7, as if it were a percentage."""
    run = fedcohort.run(small(rounds=1, measures={"clients_every": 1}, **IID, **DIABETES), runs=tmp_path)
    figure = client_table(gather([run]))
    assert figure is not None
    shown, own = figure.data["client_table"], run.clients.set_index("client")["accuracy"]
    assert shown.loc[own.index, "accuracy"].tolist() == own.round(3).tolist()
    assert shown["last"].tolist() == run.client_accuracy.iloc[-1].round(3).tolist()


RANGES = "Labels are numbers: each class here is a range of them, with about as many training samples as the others."

DIABETES: dict[str, Any] = {"data": {"name": "diabetes"}, "training": {"loss": "mse"}, "model": "logistic"}


@pytest.mark.parametrize(("settings", "times"), [(DIABETES, 2), ({}, 0)], ids=["numbers", "classes"])
def test_classes_of_numeric_labels_are_explained(settings: dict[str, Any], times: int, tmp_path: Path) -> None:
    """Two charts have them: the samples of each class of each client, and the shares of classes."""
    experiment = small(rounds=1, **IID, **settings)
    run = fedcohort.run(experiment, runs=tmp_path)
    assert Page(page(gather([run]))).prose.count(RANGES) == times
    dataset, survey = look(experiment, Given())
    assert Page(pictures(experiment, dataset, survey)).prose.count(RANGES) == times
