"""Draw which strategy performs best: accuracy over rounds, simulated time and bytes, and differences over seeds."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fedcohort import measures
from fedcohort.core.words import formatted_values
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.report.charts.averaged_points import about_points
from fedcohort.report.charts.axes_and_legends import (
    NAMED,
    as_drawn,
    crowded,
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
from fedcohort.report.charts.lost_losses import LISTED, Lost, lost_rows
from fedcohort.report.charts.low_scores import about_far_below, far_below, held_within, only_within, without_the_worst
from fedcohort.report.charts.means_and_bands import by_round, domain, has_band, on_grid, score_domain, to_ticks
from fedcohort.report.charts.strategy_lines import Axes, lines
from fedcohort.report.charts.target_marks import about_marks, about_tips, when_reached
from fedcohort.report.data.report_data import Reading, Story
from fedcohort.report.figures.chart_style import UNCLEAR, Look, tick
from fedcohort.report.figures.figure import Drawing, Figure, Panel, View
from fedcohort.report.figures.layers import INDEPENDENT_X, layered, with_properties
from fedcohort.report.figures.screen_words import CONTAINS_0, CORRECTED, EVEN_CORRECTED
from fedcohort.report.notes.cost_notes import NO_TIME, about_questions
from fedcohort.study.comparison import Comparison
from fedcohort.study.step_sizes import value_range
from fedcohort.study.targets import TO_TARGET, Target
from fedcohort.study.verdicts import CUT, LEVEL

__all__ = ["about_diverged", "accuracy", "differences", "seeds_note"]


def seeds_note(story: Story, *, band: bool) -> str:
    """Sentences about the seeds that a line is a mean over, and about its band."""
    seeds = sorted({reading.seed for _, readings in story.played for reading in readings})
    if len(seeds) == 1:
        return f"Seed {seeds[0]}."
    over = f"seeds {', '.join(map(str, seeds))}" if len(seeds) <= 5 else f"{len(seeds)} seeds"
    numbers = sorted({len(readings) for _, readings in story.played})
    if numbers == [1]:
        return f"One seed for each row, not the same one: {' or '.join(map(str, seeds))}."
    if numbers[0] < len(seeds):
        over = f"the seeds of each row, {value_range(numbers)}"
    about_band = "; the band is ± one standard deviation" if band else ""
    if band and crowded([label for label, _ in story.played], story.row_looks.groups):
        about_band = f"; bands of ± one standard deviation are left out for more than {NAMED} strategies"
    uneven = any(len({reading.num_rounds for reading in readings}) > 1 for _, readings in story.played)
    later = " Some seeds have played fewer rounds than others, so that later points are means over fewer seeds."
    return f"Mean over {over}{about_band}.{later if uneven else ''}"


def _test_accuracy(reading: Reading) -> ArrayLike:
    return reading.rounds["test_accuracy"].to_numpy(np.float64)


def _simulated_time(reading: Reading) -> ArrayLike:
    return reading.rounds["simulated_time"].to_numpy(np.float64)


def _names_of_time(rows: Sequence[tuple[str, Sequence[Reading]]]) -> tuple[str, str]:
    """What the clocks of the runs measure: the name of the view, and the title of its axis."""
    clocks = {reading.run.clock for _, readings in rows for reading in readings}
    if "wall" not in clocks:
        return "simulated time", "simulated time"
    return (
        ("wall time", "wall time, seconds") if len(clocks) == 1 else ("time", "simulated time, or seconds of wall time")
    )


def accuracy(story: Story, look: Look) -> Figure | None:
    """Test accuracy over rounds, over simulated time (wall time for runs on real machines) and over bytes."""
    rows, score = story.played, story.score
    ended = lost_rows(rows, "test_accuracy")
    until = {label: own.round for label, own in ended.items()}
    over_rounds = by_round(rows, _test_accuracy, score.limits, until)
    if over_rounds["mean"].isna().all():
        return None
    over_time = on_grid(rows, _test_accuracy, _simulated_time, score.limits, until)
    over_bytes = with_texts(
        on_grid(rows, _test_accuracy, lambda reading: reading.bytes, score.limits, until), {"x": formatted_values.size}
    )
    time_name, time_title = _names_of_time(rows)
    frames = {
        "rounds": (over_rounds, "round", ",.0f"),
        time_name: (over_time, time_title, "~s"),
        "bytes": (over_bytes, "bytes sent and received", "~s"),
    }
    labels = [label for label, _ in rows]
    drawn = [as_drawn(frame, labels, look) for frame, _, _ in frames.values()]
    values = [frame[column] for frame in drawn for column in ("mean", "low", "high")]
    span = score_domain(score, *values)
    full = names_by_label(story)
    span, cut = without_the_worst(over_rounds, span, full, score)
    targets = _targets_on_lines(story.comparison, labels)
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    marks = [_marks(story.comparison, labels, cost, span, look) for cost in TO_TARGET]
    for (name, (frame, title, x_format)), reached in zip(frames.items(), marks, strict=True):
        axes = Axes(title, f"test {score.name}", span, percent=not score.numeric, x_format=x_format, linear=True)
        key = f"accuracy_{name.split()[-1]}"
        chart, own = lines(key, frame, labels, look, axes, targets=targets, reached=reached)
        about = f"{_about_view(story, name)} {about_points(frame, full, over_rounds=name == 'rounds')}".strip()
        about += f"{_about_carried([frame])}{about_marks(reached, over_rounds)}"
        about += about_tips(own.get(f"{key}_reached", reached))
        views.append(View(name, [Panel(chart)], about.strip()))
        data |= own
    note = f"{seeds_note(story, band=has_band(over_rounds))}{cut}{about_diverged(ended, full)}"
    return Figure("accuracy", f"Test {score.name}", note, views, data)


def about_diverged(ended: Mapping[str, Lost], names: Mapping[str, str]) -> str:
    """A sentence about the lines that end because a model diverged, with a space before it; empty without any."""
    rows = [f"'{names.get(label, label)}' {lost.words}" for label, lost in ended.items()]
    if not rows:
        return ""
    return f" Lines end where a model has diverged and has no R²: {formatted_values.first_in_words(rows, LISTED)}."


def _about_view(story: Story, name: str) -> str:
    """What the caption says about the accuracy over rounds, over time, or over bytes alone."""
    if name == "rounds":
        return ""
    readings = [reading for _, readings in story.played for reading in readings]
    what = "number of bytes" if name == "bytes" else "time"
    note = f"A point is the latest {story.score.name} at that {what}."
    asked = name != "bytes" and NO_TIME in about_questions(reading.run for reading in readings)
    return f"{note} {NO_TIME}" if asked else note


def _about_carried(frames: Iterable[pd.DataFrame]) -> str:
    """A sentence about seeds that end before others of their row, with a space before it; empty if they end together."""
    if not any((frame["playing"] < frame["seeds"]).any() for frame in frames if "playing" in frame):
        return ""
    return " A seed that has played all its rounds keeps its last value: lines are thin where a seed has ended before others."


def _marks(
    compared: Comparison | None, labels: Sequence[str], cost: str, span: Sequence[float], look: Look
) -> pd.DataFrame:
    """The marks of rows that reached their target, if its line is on the chart, and not so many that they would cover each other."""
    hidden = compared is None or crowded(labels, look.rows.groups)
    marks = when_reached(compared, labels, cost) if compared is not None and not hidden else pd.DataFrame()
    if not marks.empty:
        several = not look.page and marks["level"].nunique() > 1  # papers draw one target only
        marks = marks[(span[0] < marks["level"]) & (marks["level"] <= span[1]) & ~several]
    return marks


def _targets_on_lines(compared: Comparison | None, labels: Sequence[str]) -> dict[tuple[str, ...], Target]:
    """The targets by the strategies that they are for: those of each point of a sweep, or all strategies if all have the same."""
    if compared is None:
        return {}
    if len(set(compared.targets)) == 1:
        return {tuple(labels): compared.target}
    return {
        tuple(labels[i] for i in group.rows): target
        for group, target in zip(compared.groups, compared.targets, strict=True)
    }


def differences(story: Story, look: Look) -> Figure | None:
    """The paired difference of every row to its reference, with its interval and each seed; None if none is known."""
    compared = story.comparison
    if compared is None or len(compared.rows) < 2:
        return None
    labels = [label for label, _ in story.played]
    scale = 1 if story.score.numeric else 100
    intervals, dots = _paired_differences(compared, labels, scale)
    called = [look.rows.names.get(label, label) for label in labels]
    names = {called[group.reference] for group in compared.groups if len(group.rows) > 1}
    title = f"Difference to {names.pop()}" if len(names) == 1 else "Difference to the reference"
    if intervals.empty or intervals["mean"].isna().all():
        return None
    written = partial(_written, compared)
    formats = dict.fromkeys(COLUMNS, written)
    data = {
        "differences": with_texts(intervals, formats),
        "seed_differences": with_texts(dots, {"difference": written}),
    }
    means = dict(zip(intervals["strategy"], intervals["mean"], strict=True))
    beyond = {label: written(means[label]) for label in far_below(means, story.score)}
    chart = _difference_chart(
        data, story.in_order, look, compared.score, f"{title[0].lower()}{title[1:]}", list(beyond)
    )
    chart = sized(
        chart, look, rows_height(34, intervals["strategy"], look), paper_rows_height(18, intervals["strategy"], look)
    )
    note = f"{_about_differences(intervals, look)}{about_far_below(beyond, names_by_label(story))}"
    return Figure("differences", title, note, [View("difference", [Panel(chart)])], data)


def _about_differences(intervals: pd.DataFrame, look: Look) -> str:
    """The caption: what marks and colors mean, and what is corrected."""
    if (intervals["seeds"] == 1).all():
        return (
            "Each row shares one seed with its reference. One seed gives no interval, so it is not known whether differences are "
            "due to chance. Run more seeds."
        )
    uncorrected = ", which is not corrected," if len(intervals) > 1 else ""
    cut = [measures.is_cut(*ends) for ends in intervals[["mean", "low", "high"]].itertuples(index=False)]
    ends = f", {CUT}" if any(cut) else ""
    single = (
        " Without a line: only one seed shared, which gives no interval." if (intervals["seeds"] == 1).any() else ""
    )
    colored = "Colored or black" if look.strong(list(look.rows.ranks)) else "Colored"
    tooltips = f"{CORRECTED}{_about_corrected(intervals)}" if look.page and uncorrected else ""
    return (
        f"Diamond: mean over paired seeds. Line: its 95% interval (Student's t){ends}. Circles: single seeds. {colored}: clear after "
        "correction, so that the verdict in the table is better or worse. Gray: not clear, even where the interval"
        f"{uncorrected} excludes 0.{single}{tooltips}"
    )


def _about_corrected(intervals: pd.DataFrame) -> str:
    """Why corrected intervals and verdicts can seem to disagree, if they do for any difference."""
    excludes_0 = (intervals["corrected_low"] > 0) | (intervals["corrected_high"] < 0)
    contains_0 = (intervals["corrected_low"] <= 0) & (intervals["corrected_high"] >= 0)
    clear = intervals["clear"].astype(bool)
    return EVEN_CORRECTED * bool((excludes_0 & ~clear).any()) + CONTAINS_0 * bool((contains_0 & clear).any())


def _written(compared: Comparison, difference: float) -> str:
    """A difference as text; those of accuracies are in percentage points already."""
    return compared.score.signed(difference if compared.score.numeric else difference / 100)


COLUMNS = {
    "mean": "difference",
    "low": "difference_low",
    "high": "difference_high",
    "corrected_low": "corrected_low",
    "corrected_high": "corrected_high",
}
"""Columns of the chart of differences, and those of the comparison's table that they come from."""


def _paired_differences(compared: Comparison, labels: list[str], scale: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Differences to the reference, times ``scale``: one row for each strategy with its interval, and one for each seed."""
    intervals, dots, table = [], [], compared.table.to_dict("records")
    for i, reference in enumerate(compared.references):
        own, first = _by_seed(compared, compared.rows[i].label), _by_seed(compared, compared.rows[reference].label)
        paired = {seed: value for seed, value in own.items() if seed in first}
        if i == reference or i in compared.without_difference or not paired:
            continue
        interval = {name: scale * table[i][column] for name, column in COLUMNS.items()} | {"seeds": len(paired)}
        clear = compared.verdicts[i].p_holm <= LEVEL
        intervals.append({"strategy": labels[i], **interval, "clear": clear})
        dots += [
            {"strategy": labels[i], "difference": scale * (value - first[seed]), "seed": seed, "clear": clear}
            for seed, value in paired.items()
        ]
    return pd.DataFrame(intervals), pd.DataFrame(dots)


def _by_seed(compared: Comparison, label: str) -> dict[int, float]:
    return {result.seed: result.accuracy for result in compared.results[label]}


def _difference_chart(
    data: Mapping[str, pd.DataFrame],
    labels: list[str],
    look: Look,
    score: ScoreStyle,
    difference: str,
    beyond: Sequence[str],
) -> Drawing:
    """The chart; its axis has room for all differences but those of the rows ``beyond``."""
    inside, singles = (frame[~frame["strategy"].isin(beyond)] for frame in data.values())
    span = domain(*(inside[column] for column in ("mean", "low", "high")), singles["difference"], [0.0])
    ticks, number = ticks_beside(data["differences"]["strategy"].tolist(), look, 6), "~g" if score.numeric else ""
    span = span if look.page else to_ticks(span, ticks)
    scale = alt.Scale(domain=span, nice=False, zero=False)
    difference = "difference" if look.page else difference  # the heading of the figure names the reference
    title = f"{difference},{score.points}" if score.points else f"{difference} in test {score.name}"
    y = strategy_axis(labels, look)
    own_color = alt.ColorValue(**_color_if_clear(labels, look))
    rows = hideable(alt.Chart(alt.NamedData(name="differences")), look)
    seeds = hideable(alt.Chart(alt.NamedData(name="seed_differences")), look)
    means = intervals = rows
    if beyond:
        intervals = held_within(rows, span, "low", "high")
        means, seeds = only_within(rows, span, "mean"), only_within(seeds, span, "difference")
    long = is_long(data["differences"]["strategy"], look)
    above: dict[str, Any] = {"title": title, "axis": _axis(look, ticks, number, top=True)} if long else {}
    zero = alt.Chart(alt.InlineData(values=[{"x": 0}])).mark_rule(strokeWidth=1)
    axis = None if long else _axis(look, ticks, number)  # each layer with an axis would draw it
    several = data["differences"]["corrected_low"].notna().sum() > 1
    corrected = [text_tooltip("corrected_low", "corrected, from"), text_tooltip("corrected_high", "corrected, to")]
    tooltip = [
        alt.Tooltip("strategy:N"),
        text_tooltip("mean", "mean difference"),
        text_tooltip("low", "95% interval, from"),
        text_tooltip("high", "95% interval, to"),
        *(corrected if several else []),
        alt.Tooltip("seeds:Q", title="paired seeds"),
    ]
    of_seed = [alt.Tooltip("strategy:N"), alt.Tooltip("seed:O"), text_tooltip("difference", "difference")]
    chart: Drawing = layered(
        zero.encode(alt.X("x:Q", scale=scale, **above)),
        intervals.mark_rule(strokeWidth=2.5 if look.page else 1.2).encode(
            alt.X("low:Q", title=title, scale=scale, axis=_axis(look, ticks, number)),
            y,
            color=own_color,
            x2=alt.X2("high:Q"),
        ),
        seeds.mark_point(filled=False, size=28 if look.page else 20, strokeWidth=1.2 if look.page else 0.8).encode(
            alt.X("difference:Q", title=title, scale=scale, axis=axis), y, color=own_color, tooltip=of_seed
        ),
        means.mark_point(filled=True, size=90 if look.page else 36, shape="diamond", opacity=1).encode(
            alt.X("mean:Q", title=title, scale=scale, axis=axis),
            y,
            color=own_color,
            tooltip=tooltip,
        ),
    )
    return with_properties(chart, **INDEPENDENT_X) if long else chart


def _color_if_clear(labels: list[str], look: Look) -> Any:
    """Clear differences have the color of their row, or black in a paper figure that does not color this row. Others are gray."""
    shades, strong = look.of_rows(labels)[0], look.strong(labels)
    if strong:
        shades = [shade if label in strong else look.ink for label, shade in zip(labels, shades, strict=True)]
    own = alt.Color("strategy:N", scale=alt.Scale(domain=labels, range=shades), legend=None)
    return alt.when("datum.clear").then(own).otherwise(alt.value(look.soft if look.page else UNCLEAR))


def _axis(look: Look, ticks: int, number: str, *, top: bool = False) -> alt.Axis:
    """The axis of differences, with the d3 format ``number`` if there is one. In papers, its long title ends where the axis ends,
    since a centered one would leave the figure."""
    more: dict[str, Any] = {} if look.page else {"titleAnchor": "end"}
    more |= tick(number) if number else {}
    return alt.Axis(grid=not top, tickCount=ticks, orient="top" if top else "bottom", **more)
