"""Say inside a chart that no row of a point of a sweep is on its axis: otherwise the chart would be empty without a reason."""

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from fedcohort.report.charts.axes_and_legends import outlined
from fedcohort.report.charts.seen_ends import Edges, any_seen
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.layers import constant

__all__ = ["words_without_lines"]


def words_without_lines(
    frame: pd.DataFrame, groups: Sequence[Sequence[str]], places: Mapping[str, Edges], title: str, look: Look
) -> list[alt.Chart]:
    """A layer with the words, for each point at which no row has a mean on the axis; no layer if there is no such point.

    Args:
        frame: the lines.
        groups: the rows of each point of a sweep, which are shown together.
        places: the axes; under ``"_log"`` those that readers can make logarithmic.
        title: what the y axis shows.
        look: how charts look.
    """
    rows = [
        {"strategy": group[0], "log": int(suffix != ""), "words": f"No row has a finite {title} within this axis."}
        for group in groups
        for suffix, edges in places.items()
        if not any_seen(frame, group, edges)
    ]
    if not rows:
        return []
    chart = alt.Chart(alt.InlineData(values=rows)).transform_filter(
        "indexof(away, datum.strategy) < 0 && datum.log == 0"
    )
    middle = alt.ExprRef("width / 2"), alt.ExprRef("height / 2")
    words = chart.mark_text(color=look.soft, fontSize=look.size + 1).encode(
        constant(alt.XValue, middle[0]), constant(alt.YValue, middle[1]), text=alt.Text("words:N")
    )
    return [outlined(words, look), words]
