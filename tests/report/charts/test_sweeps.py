"""Curves over a swept number."""

import json
from pathlib import Path

from fedcohort.report.chart_style import PAGE
from fedcohort.report.charts.sweeps import studies
from fedcohort.report.report_data import gather
from tests.experiments import UCB
from tests.report.test_answers import runs_of

LONG = "a strategy with a name that is much too long for the legend of a chart, and for its lines, at any width"


def test_tooltips_have_the_full_names_of_strategies(tmp_path: Path) -> None:
    runs = [
        run
        for name in ("uniform", LONG)
        for alpha in (0.1, 1.0)
        for run in runs_of(
            tmp_path,
            f"{name}, alpha={alpha}",
            [0.5, 0.6],
            federation={"clients": 4, "partition": {"name": "dirichlet_class", "alpha": alpha, "min_size": 1}},
            selection="uniform" if name == "uniform" else UCB,
        )
    ]
    (figure,) = studies(gather(runs), PAGE)
    assert LONG not in set(figure.data["levels"]["strategy"]), "it is shortened in the legend"
    assert set(figure.data["levels"]["name"]) == {"uniform", LONG}
    drawn = json.dumps(figure.views[0].panels[0].chart.to_dict())
    assert '{"field": "name", "title": "strategy", "type": "nominal"}' in drawn
