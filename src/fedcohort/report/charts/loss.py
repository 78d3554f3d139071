"""Draw the test loss and the training loss over rounds."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fedcohort.core.words import formatted_values
from fedcohort.report.charts.accuracy import seeds_note
from fedcohort.report.charts.averaged_points import about_points
from fedcohort.report.charts.axes_and_legends import as_drawn
from fedcohort.report.charts.full_names import names_by_label
from fedcohort.report.charts.lost_losses import LISTED, Lost, about_lost, lost_rows
from fedcohort.report.charts.means_and_bands import Span, by_round, has_band, span_of
from fedcohort.report.charts.seen_ends import Edges, any_seen, is_seen
from fedcohort.report.charts.strategy_lines import Axes, lines
from fedcohort.report.data.report_data import Story
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.figure import Figure, Panel, View

__all__ = ["about_spans", "loss"]


def loss(story: Story, look: Look) -> Figure | None:
    """Test loss, and training loss of the selected clients."""
    labels = [label for label, _ in story.played]
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    banded = False
    groups = (look.page and story.row_looks.groups) or (tuple(labels),)
    full = names_by_label(story)
    for name, column in (("test loss", "test_loss"), ("training loss", "train_loss")):
        ended = lost_rows(story.played, column)
        until = {label: own.round for label, own in ended.items()}
        frame = by_round(story.played, lambda reading, column=column: reading.rounds[column], before=until)  # type: ignore[misc]
        if not np.isfinite(frame["mean"].to_numpy(np.float64)).any():
            continue
        banded = has_band(frame)
        span = span_of(as_drawn(frame, labels, look), 0.0)
        chart, own = lines(
            column,
            span.without_bands(frame),
            labels,
            look,
            Axes("round", name, span.ends, log=span.log, cut=span.beyond is not None),
            lost=ended,
        )
        said = [_about(name, frame, span, ended, group, full, switch=look.page) for group in groups]
        views.append(_view(name, Panel(chart), about_points(frame, full), said))
        data |= own
    if not views:
        return None
    return Figure("loss", "Loss", seeds_note(story, band=banded), views, data)


TRAINING = "Training loss is the loss of the trained clients on their own data."


def _view(name: str, panel: Panel, points: str, said: Sequence[str]) -> View:
    """The view of a loss, with what is said about its points, and about the rows of each point of a sweep."""
    about = f"{TRAINING if name == 'training loss' else ''} {points}".strip()
    if len(said) > 1:
        return View(name, [panel], about, tuple(said))
    return View(name, [panel], f"{about}{said[0]}".strip())


def _about(
    name: str,
    frame: pd.DataFrame,
    span: Span,
    ended: Mapping[str, Lost],
    rows: Sequence[str],
    full: Mapping[str, str],
    *,
    switch: bool,
) -> str:
    """Sentences, with a space before them, about the lines of rows that are shown together: where they leave the axis, and end."""
    own = {label: lost for label, lost in ended.items() if label in rows}
    text = about_spans({name: span.of_rows(frame, rows)}, full, switch=switch) + about_lost({name: own}, full)
    edges = Edges([], span.ends, log_y=span.log)
    means = frame.groupby("strategy", sort=False)["mean"].last()
    last = means[means.index.isin(list(own))]
    if len(last) < len(own) or not is_seen(last.to_numpy(np.float64), edges).all():
        text += " Where a line leaves the chart before, its × stands at the edge."
    others = [label for label in rows if label in means.index and label not in own]
    above = [f"'{full.get(label, label)}'" for label in others if not any_seen(frame, [label], edges)]
    if above:
        text += f" In no round within the axis: {formatted_values.first_in_words(above, LISTED)}."
    if not any_seen(frame, rows, edges):
        text = f" Every row of this point failed: none has a finite {name} within the axis.{text}"
    return text


def about_spans(spans: Mapping[str, Span], names: Mapping[str, str], *, switch: bool) -> str:
    """Sentences, with a space before them, about measures whose axes are logarithmic or end below the largest number.

    Args:
        spans: the range of the axis of each measure.
        names: full names of rows, by the label in the charts.
        switch: whether readers can make axes logarithmic; then they do not end below the largest number.
    """
    log = [name for name, span in spans.items() if span.log]
    text = ""
    if log:
        axes = f"The axis of the {log[0]} is" if len(log) == 1 else f"The axes of {' and '.join(log)} are"
        text = f" {axes} logarithmic, since the largest numbers are many times the usual ones."
    for name, span in spans.items():
        if span.beyond is not None:
            end, top = formatted_values.number(span.ends[1], 3), formatted_values.magnitude(span.beyond)
            begin = " The linear axis" if switch and not span.log else " The axis"
            text += f"{begin} of the {name} ends at {end}, where lines leave the chart: the highest mean is {top}, "
            text += f"of '{names.get(span.highest, span.highest)}'."
    return text
