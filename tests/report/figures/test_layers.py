"""Layers of charts have the specification that Altair makes of them, byte for byte, and it is checked on request."""

import json
from pathlib import Path
from typing import Any

import altair as alt
import jsonschema
import pandas as pd
import pytest

from fedcohort.report.data.report_data import find_runs, gather
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.layers import INDEPENDENT_X, Layers, constant, decided, layered, with_properties
from fedcohort.report.figures.quick_drawing import quick_drawing
from fedcohort.report.page_sections import figures

TABLE, OTHER = alt.NamedData(name="table"), alt.NamedData(name="other")


def altairs(layers: Layers) -> str:
    """What Altair makes of the same charts."""
    return json.dumps(alt.layer(*layers.layers).properties(**layers.own).to_dict(validate=False))


def dots(data: Any, **more: Any) -> alt.Chart:
    chart: alt.Chart = alt.Chart(data).mark_point().encode(alt.X("x:Q"), alt.Y("y:Q"), **more)
    return chart


HOVER = alt.selection_point(on="pointerover", fields=["x"], name="hover")
ZOOM = alt.selection_interval(bind="scales", name="zoom")


@pytest.mark.parametrize(
    "layers",
    [
        layered(dots(TABLE), dots(TABLE)),
        layered(dots(TABLE), dots(OTHER), width=300, height=200),
        layered(dots(TABLE).add_params(ZOOM), dots(TABLE).mark_line(), dots(TABLE).add_params(HOVER)),
        layered(dots(OTHER), dots(TABLE).add_params(ZOOM), dots(TABLE).add_params(HOVER), usermeta={"tip": {"x": "x"}}),
        layered(dots(alt.InlineData(values=[{"x": 1, "y": 2}])), dots(TABLE), **INDEPENDENT_X),
        with_properties(layered(dots(TABLE), dots(OTHER), width=1), width="container", height=50),
    ],
)
def test_layers_have_altairs_specification(layers: Layers) -> None:
    assert json.dumps(layers.to_dict()) == altairs(layers)


@pytest.mark.slow
def test_every_layered_chart_of_a_comparison_has_altairs_specification(runs: Path) -> None:
    story = gather(find_runs([runs]))
    charts = [
        panel.chart
        for look in (PAGE, paper(1))
        for figure in figures(story, look)
        for view in figure.views
        for panel in view.panels
    ]
    layers = [chart for chart in charts if isinstance(chart, Layers)]
    assert len(layers) > 20
    for chart in layers:
        assert json.dumps(chart.to_dict(validate=False)) == altairs(chart)


def test_layers_are_checked_against_the_schema() -> None:
    wrong = layered(dots(TABLE), dots(OTHER).mark_line(), height="tall")
    assert wrong.to_dict(validate=False)["height"] == "tall"
    with pytest.raises(jsonschema.ValidationError, match="'tall'"):
        wrong.to_dict()


def test_properties_and_encodings_are_those_that_altair_makes() -> None:
    sized = with_properties(dots(TABLE), width=300, height="container", usermeta={"clients": 3})
    assert json.dumps(sized.to_dict()) == json.dumps(
        dots(TABLE).properties(width=300, height="container", usermeta={"clients": 3}).to_dict()
    )
    either = alt.condition("datum.front", alt.value("red"), alt.value("gray"))
    assert (
        dots(TABLE, color=decided(alt.ColorValue, "datum.front", "red", "gray")).to_dict()
        == dots(TABLE, color=either).to_dict()
    )
    assert (
        alt.Chart(TABLE).mark_rule().encode(x=constant(alt.XValue, 0)).to_dict()
        == alt.Chart(TABLE).mark_rule().encode(x=alt.value(0)).to_dict()
    )


def test_drawing_quickly_changes_nothing_else() -> None:
    """Pages neither check their charts nor let Arrow hold texts; the settings of the process that makes one stay."""
    before = pd.get_option("mode.string_storage")
    wrong: Any = "large"
    with quick_drawing():
        assert pd.get_option("mode.string_storage") == "python"
        alt.Chart(TABLE).mark_point(size=wrong)
    assert pd.get_option("mode.string_storage") == before
    with pytest.raises(alt.utils.schemapi.SchemaValidationError):
        alt.Chart(TABLE).mark_point(size=wrong)
