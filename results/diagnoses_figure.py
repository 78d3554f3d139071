"""The picture of the diagnoses: one panel for each strategy that learns, the promised outcome by score."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

from fedcohort.report.figures.figure import Drawing, Figure, Panel, View
from fedcohort.report.figures.layers import layered, with_properties
from results.diagnoses import BINS

if TYPE_CHECKING:
    from fedcohort.report.figures.chart_style import Look

__all__ = ["score_panels"]


def score_panels(result: Mapping[str, Any], look: "Look") -> Figure:
    """For each claim of each strategy, the mean rank of the outcome in each part of the range of scores; 0.5 is no relation."""
    frames, panels = {}, []
    for label, found in result.items():
        for i, claim in enumerate(found["claims"]):
            name = f"{label} {i}"
            points = [(part + 1, rank) for part, rank in enumerate(claim["mean_ranks"]) if rank is not None]
            frames[name] = pd.DataFrame(points, columns=["part", "rank"])
            panels.append(Panel(_panel(name, look), f"{label}: {claim['words']}"))
    note = "Mean rank of the promised outcome among the selected clients, from those with the lowest to those with the highest scores."
    return Figure("diagnoses", "Do scores predict what they promise?", note, [View("all", panels)], frames)


def _panel(name: str, look: "Look") -> Drawing:
    x = alt.X("part:Q", title="score, in quarters", axis=alt.Axis(values=list(range(1, BINS + 1)), format="d"))
    x = x.scale(domain=[0.7, BINS + 0.3], nice=False)
    y = alt.Y("rank:Q", title="mean rank", scale=alt.Scale(domain=[0.1, 0.9]), axis=alt.Axis(values=[0.1, 0.5, 0.9]))
    lines = (
        alt.Chart(alt.NamedData(name=name))
        .mark_line(point=alt.OverlayMarkDef(color=look.strategies[0]), color=look.strategies[0], clip=True)
        .encode(x, y)
    )
    middle = alt.Chart(alt.NamedData(name=name)).mark_rule(color=look.soft, strokeDash=[2, 2]).encode(y=alt.datum(0.5))
    return with_properties(layered(middle, lines), width=96, height=60)
