"""The map of the atlas as a picture: the difference of each strategy to uniform selection in each federation."""

from typing import TYPE_CHECKING

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.report.figures.figure import Figure, Panel, View
from fedcohort.report.figures.layers import layered, with_properties
from fedcohort.study.verdicts import BETTER, WORSE
from results.atlas.means import OBJECTIVES, REFERENCE, Findings

if TYPE_CHECKING:
    from fedcohort.report.figures.chart_style import Look

__all__ = ["MOST", "heat_map"]

MOST = 20
"""Differences of so many points and more have full color."""


def heat_map(findings: Findings, measure: str, look: "Look") -> Figure:
    """Strategies × federations: the mean difference to uniform selection in points; a dot marks differences that are clear.

    Strategies are sorted by their mean difference over the federations, the best on top.
    """
    means = findings.means(measure)
    differences = 100 * (means - means[:, :1])
    names = findings.strategies
    order = [names[i] for i in np.argsort(-differences.mean(axis=0), kind="stable")]
    rows = []
    for f, federation in enumerate(findings.federations):
        verdicts = findings.verdicts(federation, measure)
        for i, strategy in enumerate(names):
            if strategy != REFERENCE:
                mark = {BETTER: "▲", WORSE: "▼"}.get(verdicts[strategy].words, "")
                rows.append({"federation": federation, "strategy": strategy, "points": differences[f, i], "mark": mark})
    x = alt.X("federation:N", sort=findings.federations, title=None, axis=alt.Axis(labelAngle=-40, labelLimit=140))
    y = alt.Y(
        "strategy:N", sort=[name for name in order if name != REFERENCE], title=None, axis=alt.Axis(labelLimit=140)
    )
    legend = alt.Legend(title="points to uniform selection", orient="top", gradientLength=180, titleLimit=300)
    scale = alt.Scale(domain=[-MOST, 0, MOST], range=[look.cold, "#F7F7F7", look.heat], clamp=True)
    base = alt.Chart(alt.NamedData(name="map"))
    cells = base.mark_rect(stroke=look.ground).encode(x, y, alt.Color("points:Q", scale=scale, legend=legend))
    dark = f"abs(datum.points) > {0.55 * MOST}"
    texts = base.mark_text(fontSize=6.5).encode(
        x,
        y,
        text=alt.Text("points:Q", format="+.0f"),
        color=alt.condition(dark, alt.value("#FFFFFF"), alt.value(look.ink)),
    )
    marks = base.mark_text(fontSize=6, dx=11).encode(
        x, y, text="mark:N", color=alt.condition(dark, alt.value("#FFFFFF"), alt.value(look.ink))
    )
    width = look.width or 516
    chart = with_properties(layered(cells, texts, marks), width=width, height=11 * (len(names) - 1))
    note = f"Mean difference of test accuracy at {OBJECTIVES[measure]}."
    return Figure("atlas-map", "What helps where", note, [View("map", [Panel(chart)])], {"map": pd.DataFrame(rows)})
