"""Draw the test accuracy of every strategy after the last round, as bars."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.report.charts.axes_and_legends import (
    color,
    hideable,
    is_long,
    paper_rows_height,
    rows_height,
    sized,
    strategy_axis,
    text_tooltip,
    ticks_beside,
    with_texts,
)
from fedcohort.report.charts.full_names import names_by_label
from fedcohort.report.charts.low_scores import held_within, without_the_worst
from fedcohort.report.charts.means_and_bands import to_ticks
from fedcohort.report.data.report_data import Story
from fedcohort.report.figures.chart_style import Look, tick
from fedcohort.report.figures.figure import Figure, Panel, View
from fedcohort.report.figures.layers import INDEPENDENT_X, layered
from fedcohort.report.notes.seed_notes import counted, mean_with_deviation
from fedcohort.report.notes.shown_rows import about_colors
from fedcohort.report.notes.unranked_rows import about_different_seeds

__all__ = ["bars", "mean_and_deviation"]


def bars(story: Story, look: Look) -> Figure | None:
    """Final accuracy of every row with its standard deviation, for ablations in papers; None if no row has one."""
    compared = story.comparison
    if compared is None or compared.table["accuracy"].isna().all():
        return None
    rows, score = [label for label, _ in story.played], story.score
    labels = story.in_order
    table = compared.table
    frame = pd.DataFrame({"strategy": rows, "mean": table["accuracy"], "sd": table["accuracy_sd"]})
    frame = frame.assign(
        low=(frame["mean"] - frame["sd"]).clip(lower=score.limits[0]), high=(frame["mean"] + frame["sd"]).clip(upper=1)
    )
    top = max(0.0, float(np.nanmax(frame[["mean", "high"]].to_numpy(np.float64))))  # bars begin at 0
    lowest = min(0.0, float(np.nanmin(frame[["mean", "low"]].to_numpy(np.float64))))
    span = [lowest, max(min(1.0, 1.05 * top), lowest + 1e-9)]
    span, cut = without_the_worst(frame, span, names_by_label(story), score)
    ticks = ticks_beside(labels, look, 5)
    scale = alt.Scale(domain=span if look.page else to_ticks(span, ticks), nice=False)
    base = hideable(alt.Chart(alt.NamedData(name="bars")), look)
    base = held_within(base, span, "mean", "low", "high") if cut else base
    x_axis = alt.Axis(**tick("~g" if score.numeric else ".0%"), grid=True, tickCount=ticks)
    x, y = alt.X("mean:Q", title=f"test {score.name}", scale=scale, axis=x_axis), strategy_axis(labels, look)
    drawn = base.mark_bar(height=alt.RelativeBandSize(band=0.66)).encode(
        x, y, color(labels, look, legend=False), tooltip=[alt.Tooltip("strategy:N"), *mean_and_deviation(score)]
    )
    long = is_long(labels, look)
    upper = alt.Axis(**tick("~g" if score.numeric else ".0%"), orient="top", grid=False, tickCount=ticks)
    above: dict[str, Any] = {"title": f"test {score.name}", "axis": upper} if long else {}
    error = base.mark_rule(color=look.ink, strokeWidth=1.2)
    error = error.encode(alt.X("low:Q", scale=scale, **above), y, x2=alt.X2("high:Q"))
    around = base.mark_rule(color=look.ground, strokeWidth=2.8)  # so that the line can be seen on a black bar
    without_axis: dict[str, Any] = {"axis": None} if long else {}  # it would be a third one
    around = around.encode(alt.X("low:Q", scale=scale, **without_axis), y, x2=alt.X2("high:Q"))
    both = layered(drawn, *([] if look.page else [around]), error, **(INDEPENDENT_X if long else {}))
    chart = sized(both, look, rows_height(30, labels, look), paper_rows_height(16, labels, look))
    note = f"Test {score.name} {compared.when}: {mean_with_deviation(counted(story))}.{cut}"
    if seeds := about_different_seeds(compared):
        note += f" {seeds}"
    if look.strong(labels):
        note += f" {about_colors(score.name, compared)}"
    data = {"bars": with_texts(frame, {"mean": score.value, "sd": score.value})}
    return Figure("bars", f"Final {score.name}", note, [View("bars", [Panel(chart)])], data)


def mean_and_deviation(score: ScoreStyle) -> list[alt.Tooltip]:
    """Tooltips for the columns ``mean_text`` and ``sd_text``."""
    return [
        text_tooltip("mean", score.heading("mean test")),
        text_tooltip("sd", f"standard deviation{score.unit and ', %'}"),
    ]
