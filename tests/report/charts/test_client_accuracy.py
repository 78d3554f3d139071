"""The distribution over clients: bars without a width can be seen."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedcohort.report.charts.client_accuracy import client_accuracy
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE, Look, paper
from fedcohort.report.figures.figure import Figure
from fedcohort.report.figures.paper_figures import composed, draw
from tests.experiments import UCB
from tests.records import played, written


def distribution(folder: Path, second: list[float], look: Look) -> Figure:
    """The figure of two rows; all clients of the first one have 100%."""
    runs = [
        written(
            folder / label,
            [played(1, [0], client_accuracy=np.array(values))],
            label=label,
            selection=selection,
            federation={"clients": 4},
        )
        for label, values, selection in (("uniform", [1.0] * 4, "uniform"), ("UCB", second, UCB))
    ]
    return next(figure for figure in client_accuracy(gather(runs), look) if figure.key == "client-distribution")


@pytest.mark.parametrize("look", [PAGE, paper(1)], ids=["page", "paper"])
def test_bars_without_a_width_are_upright_lines(look: Look, tmp_path: Path) -> None:
    """Where all clients have 100%, the chart was empty but for the notch, in the color of the ground."""
    figure = distribution(tmp_path, [0.2, 0.4, 0.6, 0.8], look)
    assert figure.data["clients_quantiles"]["flat"].tolist() == [True, False]
    assert "Thick upright line: a bar without a width that can be seen." in figure.note
    layers = figure.views[0].panels[0].chart.to_dict(validate=False)["layer"]
    filters = {json.dumps(layer["transform"]): layer for layer in layers if "transform" in layer}
    (upright,) = [layer for key, layer in filters.items() if '"datum.flat"' in key]
    assert "color" in upright["encoding"], "in the color of its row"
    (notch,) = [layer for key, layer in filters.items() if '"!datum.flat"' in key]
    assert notch["mark"]["color"] == look.ground


def test_captions_explain_upright_lines_only_where_there_are_some(tmp_path: Path) -> None:
    figure = distribution(tmp_path, [1.0] * 4, PAGE)
    assert "Thick upright line" in figure.note
    others = [
        written(
            tmp_path / f"other{seed}",
            [played(1, [0], client_accuracy=np.array([0.2, 0.4, 0.6, 0.8]))],
            seed=seed,
            federation={"clients": 4},
        )
        for seed in (0, 1)
    ]
    (other,) = [one for one in client_accuracy(gather(others), paper(1)) if one.key == "client-distribution"]
    assert "Thick upright line" not in other.note
    draw(composed(other, other.views[0], paper(1)), "svg")
