"""Draw the conformal scores as functions of the softmax probability."""

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.words import formatted_values
from fedcohort.measures import conformal
from fedcohort.report.charts.axes_and_legends import SWATCH, sized
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.figure import Figure, Panel, View
from fedcohort.report.figures.layers import layered

__all__ = ["score_functions"]


THRESHOLD = 0.25
"""The threshold that the chart shows as an example."""


def score_functions(look: Look) -> Figure:
    """The conformal scores as functions of the softmax probability, and the probability where each meets the threshold."""
    f = np.linspace(0, 1, 101)
    kinds: list[conformal.Score] = ["s1", "s2", "s3"]
    parts = [pd.DataFrame({"strategy": kind, "f": f, "score": conformal.scores(f, kind)}) for kind in kinds]
    frame: pd.DataFrame = pd.concat(parts, ignore_index=True)
    meets = pd.DataFrame(
        {"strategy": kinds, "f": [conformal.probability_at(THRESHOLD, kind) for kind in kinds], "score": THRESHOLD}
    )
    x = alt.X("f:Q", title="softmax probability of the true class", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("score:Q", title="score", scale=alt.Scale(domain=[0, 1]))
    legend = alt.Legend(title=None, orient="top-right", columns=1, symbolType="stroke", symbolSize=SWATCH**2)
    colors = alt.Color("strategy:N", scale=alt.Scale(domain=list(kinds), range=look.colors(3)), legend=legend)
    dashes = alt.StrokeDash("strategy:N", scale=alt.Scale(domain=list(kinds), range=look.dashes(3)), legend=legend)
    line = alt.Chart(alt.NamedData(name="scores")).mark_line().encode(x, y, colors, dashes)
    level = alt.Chart(alt.NamedData(name="scores_met"))
    rule = level.mark_rule(strokeDash=[1, 3], color=look.soft).encode(y)
    dots = level.mark_point(opacity=1, size=40 if look.page else 24).encode(
        x, y, colors, tooltip=[alt.Tooltip("strategy:N"), alt.Tooltip("f:Q")]
    )
    chart = sized(layered(rule, line, dots), look, look.height, look.height)
    note = (
        f"A client takes part if its conformal quantile is at most the threshold, here {formatted_values.number(THRESHOLD)}. "
        "The dots are the probabilities at which each score meets the threshold."
    )
    return Figure(
        "score-functions",
        "Conformal scores",
        note,
        [View("scores", [Panel(chart)])],
        {"scores": frame, "scores_met": meets},
    )
