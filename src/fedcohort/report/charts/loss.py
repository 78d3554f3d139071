"""Draw the test loss and the training loss over rounds."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fedcohort.core import formatted_values
from fedcohort.report.chart_style import Look
from fedcohort.report.charts.accuracy import seeds_note
from fedcohort.report.charts.lost_losses import about_lost, lost_rows
from fedcohort.report.charts.means_and_bands import Span, by_round, has_band, span_of
from fedcohort.report.charts.strategy_lines import Axes, lines
from fedcohort.report.figure import Figure, Panel, View
from fedcohort.report.report_data import Story

__all__ = ["about_spans", "loss"]


def loss(story: Story, look: Look) -> Figure | None:
    """Test loss, and training loss of the selected clients."""
    labels = [label for label, _ in story.played]
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    banded = False
    full = {label: row.label for label, row in zip(story.labels, story.rows, strict=True)}
    for name, column in (("test loss", "test_loss"), ("training loss", "train_loss")):
        ended = lost_rows(story.played, column)
        until = {label: own.round for label, own in ended.items()}
        frame = by_round(story.played, lambda reading, column=column: reading.rounds[column], before=until)  # type: ignore[misc]
        if not np.isfinite(frame["mean"].to_numpy(np.float64)).any():
            continue
        banded = has_band(frame)
        span = span_of(frame, 0.0)
        chart, own = lines(
            column,
            span.without_bands(frame),
            labels,
            look,
            Axes("round", name, span.ends, log=span.log, cut=span.beyond is not None),
            lost=ended,
        )
        about = "Training loss is the loss of the trained clients on their own data." if column == "train_loss" else ""
        about += about_spans({name: span}, switch=look.page) + about_lost({name: ended}, full)
        views.append(View(name, [Panel(chart)], about.strip()))
        data |= own
    if not views:
        return None
    return Figure("loss", "Loss", seeds_note(story, band=banded), views, data)


def about_spans(spans: Mapping[str, Span], *, switch: bool) -> str:
    """Sentences, with a space before them, about measures whose axes are logarithmic or end below the largest number.

    With ``switch``, readers can make axes logarithmic; then they do not end below the largest number.
    """
    log = [name for name, span in spans.items() if span.log]
    text = ""
    if log:
        axes = f"The axis of the {log[0]} is" if len(log) == 1 else f"The axes of {' and '.join(log)} are"
        text = f" {axes} logarithmic, since the largest numbers are many times the usual ones."
    for name, span in spans.items():
        if span.beyond is not None:
            end, top = formatted_values.number(span.ends[1], 3), formatted_values.magnitude(span.beyond)
            begin = " Unless it is made logarithmic, the axis" if switch and not span.log else " The axis"
            text += f"{begin} of the {name} ends at {end}, where lines leave the chart: the highest mean is {top}."
    return text
