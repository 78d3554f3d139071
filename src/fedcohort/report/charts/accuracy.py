"""Which strategy won: accuracy over rounds, simulated time and bytes, and the differences over seeds."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort import measures
from fedcohort.report.charts import lines
from fedcohort.report.figure import Figure, Panel, View
from fedcohort.report.gather import POINTS, Reading, Story
from fedcohort.report.look import Look

__all__ = ["accuracy", "differences", "loss", "seeds_note"]


def seeds_note(story: Story, *, band: bool) -> str:
    """Over which seeds a line is a mean, and what its band is."""
    seeds = sorted({one.seed for _, row in story.played for one in row})
    if len(seeds) == 1:
        return f"Seed {seeds[0]}."
    words = f"Mean over seeds {', '.join(map(str, seeds))}" if len(seeds) <= 5 else f"Mean over {len(seeds)} seeds"
    uneven = any(len({one.num_rounds for one in row}) > 1 for _, row in story.played)
    later = " Seeds have played different numbers of rounds: later points are means of fewer." if uneven else ""
    return f"{words}{'; the band is ± one standard deviation' if band else ''}.{later}"


def _tested(one: Reading) -> Any:
    return one.rounds["test_accuracy"]


def accuracy(story: Story, look: Look) -> Figure | None:
    """Test accuracy over rounds, over simulated time and over bytes."""
    rows = story.played
    over_rounds = lines.by_round(rows, _tested)
    if over_rounds["mean"].isna().all():
        return None
    frames = {
        "rounds": (over_rounds, "round", ",.0f"),
        "simulated time": (
            lines.on_grid(rows, _tested, lambda one: one.rounds["simulated_time"]),
            "simulated time",
            "~s",
        ),
        "bytes": (lines.on_grid(rows, _tested, lambda one: one.bytes), "bytes sent and received", "~s"),
    }
    labels = [label for label, _ in rows]
    everything = [frame[column] for frame, _, _ in frames.values() for column in ("mean", "low", "high")]
    span = lines.domain(*everything, floor=0.0, ceiling=1.0)
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    for name, (frame, title, number) in frames.items():
        chart, own = lines.lines(
            f"accuracy_{name.split()[-1]}",
            frame,
            labels,
            look,
            x=title,
            y="test accuracy",
            span=span,
            percent=True,
            x_format=number,
            target=story.comparison.target.accuracy if story.comparison else None,
        )
        views.append(View(name, [Panel(chart)]))
        data |= own
    longest = max(one.num_rounds for _, row in rows for one in row)
    note = seeds_note(story, band=lines.band(over_rounds))
    if longest > POINTS:
        note += f" Each point over rounds is the mean of {-(-longest // POINTS)} rounds."
    note += " Over time and bytes, a point is what had been reached by then; a line ends with its first seed."
    return Figure("accuracy", "Test accuracy", note, views, data)


def loss(story: Story, look: Look) -> Figure | None:
    """Training loss of the selected, and test loss."""
    labels = [label for label, _ in story.played]
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    for name, column in (("test loss", "test_loss"), ("training loss", "train_loss")):
        frame = lines.by_round(story.played, lambda one, column=column: one.rounds[column])
        if not np.isfinite(frame["mean"].to_numpy(np.float64)).any():
            continue
        span = lines.domain(frame["mean"], frame["low"], frame["high"], floor=0.0)
        chart, own = lines.lines(column, frame, labels, look, x="round", y=name, span=span)
        views.append(View(name, [Panel(chart)]))
        data |= own
    if not views:
        return None
    note = (
        seeds_note(story, band=lines.band(frame))
        + " Training loss is that of the clients that came back, on their own data."
    )
    return Figure("loss", "Loss", note, views, data)


def differences(story: Story, look: Look) -> Figure | None:
    """The paired difference of every row to the first, with its interval and each seed."""
    compared = story.comparison
    if compared is None or len(compared.rows) < 2:
        return None
    labels = [label for label, _ in story.played]
    first = {one.seed: one.accuracy for one in compared.results[compared.rows[0].label]}
    intervals, dots = [], []
    for label, row in list(zip(labels, compared.rows, strict=True))[1:]:
        own = {one.seed: one.accuracy for one in compared.results[row.label] if one.seed in first}
        if not own:
            continue
        mean, low, high = measures.paired_interval(list(own.values()), [first[seed] for seed in own])
        intervals.append(
            {"strategy": label, "mean": 100 * mean, "low": 100 * low, "high": 100 * high, "seeds": len(own)}
        )
        dots += [
            {"strategy": label, "difference": 100 * (value - first[seed]), "seed": seed} for seed, value in own.items()
        ]
    if not intervals:
        return None
    data = {"differences": pd.DataFrame(intervals), "seed_differences": pd.DataFrame(dots)}
    values = [data["differences"][c] for c in ("mean", "low", "high")]
    span = lines.domain(*values, data["seed_differences"]["difference"], [0.0])
    scale = alt.Scale(domain=span, nice=False, zero=False)
    title = "points of test accuracy"
    y = alt.Y("strategy:N", title=None, sort=labels, axis=alt.Axis(labelColor=look.ink, labelLimit=150))
    rows = lines.hideable(alt.Chart(alt.NamedData(name="differences")), look)
    seeds = lines.hideable(alt.Chart(alt.NamedData(name="seed_differences")), look)
    zero = alt.Chart(alt.InlineData(values=[{"x": 0}])).mark_rule(strokeWidth=1).encode(alt.X("x:Q", scale=scale))
    tooltip = [
        alt.Tooltip("strategy:N"),
        alt.Tooltip("mean:Q", title="mean difference", format="+.2f"),
        alt.Tooltip("low:Q", title="95 % interval, from", format="+.2f"),
        alt.Tooltip("high:Q", title="to", format="+.2f"),
        alt.Tooltip("seeds:Q", title="paired seeds"),
    ]
    x = alt.X("mean:Q", title=title, scale=scale, axis=alt.Axis(grid=True, tickCount=6))
    colour = lines.colour(labels, look, legend=False)
    layers = [
        zero,
        rows.mark_rule(strokeWidth=2.5).encode(
            alt.X("low:Q", title=title, scale=scale), y, colour, x2=alt.X2("high:Q")
        ),
        seeds.mark_point(filled=False, size=28 if look.page else 14, strokeWidth=1.2).encode(
            alt.X("difference:Q", title=title, scale=scale),
            y,
            colour,
            tooltip=[alt.Tooltip("strategy:N"), alt.Tooltip("seed:O"), alt.Tooltip("difference:Q", format="+.2f")],
        ),
        rows.mark_point(filled=True, size=90 if look.page else 36, shape="diamond", opacity=1).encode(
            x, y, colour, tooltip=tooltip
        ),
    ]
    chart = alt.layer(*layers).properties(
        width="container" if look.width is None else look.width, height=(34 if look.page else 18) * len(intervals)
    )
    several = len(intervals) > 1
    note = (
        "Diamond: mean over paired seeds; line: its 95 % interval (Student's t); circles: single "
        "seeds. An interval that crosses 0 leaves open which is better."
    )
    note += " Intervals are for one comparison each, not corrected for making several." if several else ""
    if all(one["seeds"] == 1 for one in intervals):
        note = "A single seed: there is no interval, and nothing is told apart. Run more seeds."
    return Figure("differences", f"Difference to {labels[0]}", note, [View("difference", [Panel(chart)])], data)
