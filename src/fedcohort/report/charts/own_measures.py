"""Draw own measures (``measures.extra``) over rounds."""

import numpy as np
import pandas as pd

from fedcohort.report.charts.accuracy import about_diverged, seeds_note
from fedcohort.report.charts.averaged_points import about_points
from fedcohort.report.charts.axes_and_legends import as_drawn
from fedcohort.report.charts.full_names import names_by_label
from fedcohort.report.charts.loss import about_spans
from fedcohort.report.charts.lost_losses import lost_rows
from fedcohort.report.charts.means_and_bands import ANY_NUMBER, by_round, has_band, span_of
from fedcohort.report.charts.strategy_lines import Axes, lines
from fedcohort.report.data.report_data import Reading, Story
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.figure import Figure, Panel, View

__all__ = ["own_measures"]


def own_measures(story: Story, look: Look) -> Figure | None:
    """Each own measure over rounds, one view for each; None without measures."""
    labels = [label for label, _ in story.played]
    names = story.comparison.own_measures if story.comparison else []
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    banded = False
    full = names_by_label(story)
    ended = lost_rows(story.played, "test_accuracy")
    until = {label: own.round for label, own in ended.items()}
    for i, name in enumerate(names):

        def series(reading: Reading, name: str = name) -> np.ndarray:
            return reading.rounds.get(name, pd.Series(np.nan, reading.rounds.index)).to_numpy(np.float64)

        limits = (0.0, np.inf) if story.score.numeric and name == "mae" else ANY_NUMBER
        frame = by_round(story.played, series, limits, until)
        if not np.isfinite(frame["mean"].to_numpy(np.float64)).any():
            continue
        banded = banded or has_band(frame)
        span = span_of(as_drawn(frame, labels, look))
        axes = Axes("round", name, span.ends, log=span.log, cut=span.beyond is not None)
        chart, own = lines(f"own_measure_{i}", span.without_bands(frame), labels, look, axes)
        about = f"{about_points(frame, full)}{about_spans({name: span}, full, switch=look.page)}"
        views.append(View(name, [Panel(chart)], about.strip()))
        data |= own
    if not views:
        return None
    note = f"{seeds_note(story, band=banded)} Computed from the predictions on the test set"
    if story.score.numeric:
        note += "; mae is the mean absolute error, in the units of the labels"
    return Figure("own_measures", "Other measures", f"{note}.{about_diverged(ended, full)}", views, data)
