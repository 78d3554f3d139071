"""Names of classes stay within the pies."""

import re

import numpy as np
import pytest

from fedcohort.record import Portrait
from fedcohort.report.charts.classes import class_shares
from fedcohort.report.charts.shown_clients import Clients
from fedcohort.report.figures.chart_style import PAGE, Look, paper


@pytest.mark.parametrize("look", [PAGE, paper(1)])
def test_names_of_classes_end_within_the_pie(look: Look) -> None:
    """The last letters of a name beside the center were white on white."""
    facts = {"samples": np.array([50, 61]), "counts": np.array([[30, 20], [1, 60]])}
    found = Clients.of(Portrait(("healthy", "ill"), facts), 0, None)
    assert found is not None
    figure = class_shares(found, np.arange(2), look)
    assert figure is not None
    slices, texts = figure.views[1].panels[0].chart.to_dict(validate=False)["layer"]
    (condition,) = [step["calculate"] for step in texts["transform"] if step.get("as") == "named"]
    widest = re.search(r"min\(.*, ([\d.]+)\)", condition)
    assert widest is not None
    assert texts["mark"]["radius"] + float(widest[1]) / 2 <= slices["mark"]["outerRadius"]
    assert float(widest[1]) >= 28, "a name of seven letters is shown"


def test_the_legend_of_classes_stays_inside_of_a_paper_figure() -> None:
    """With names of ten letters, a fourth column was cut at the edge, and a fifth was not on the figure at all."""
    columns = {}
    for names in ("0123456789", [f"{low} to {low + 24}" for low in range(60, 300, 24)]):
        counts = np.ones((2, 10), int)
        found = Clients.of(Portrait(tuple(names), {"samples": counts.sum(axis=1), "counts": counts}), 0, None)
        assert found is not None
        figure = class_shares(found, np.arange(2), paper(1))
        assert figure is not None
        bars = figure.views[0].panels[0].chart.to_dict(validate=False)["layer"][0]
        columns[len(names[0])] = bars["encoding"]["color"]["legend"]["columns"]
    assert columns == {1: 5, 8: 2}
