"""Draw how often each client was selected, beside uniform chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.words import formatted_values
from fedcohort.measures import JainReference
from fedcohort.report.charts.axes_and_legends import (
    beside,
    marks,
    number_tooltip,
    of_strategy,
    panel_colors,
    panel_name,
    panels_by_point,
    sized,
    whole_ticks,
)
from fedcohort.report.charts.shown_clients import client_tooltips, name_labels, names_for_charts, with_names
from fedcohort.report.charts.shown_seeds import about_absent, about_seeds, beside_name, in_title, seeds_of
from fedcohort.report.data.report_data import Reading, Story
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.figure import Drawing, Figure, Panel, View
from fedcohort.report.figures.layers import layered
from fedcohort.study.chance import about_chance
from fedcohort.study.run_measures import evenness

__all__ = ["selections"]

SHOWN = 60
"""With up to this many clients, charts show a bar for each client; with more, a histogram."""

HEIGHT = 190

MOST_CHANCES = 4
"""Largest number of values of uniform chance in a caption."""


def selections(story: Story, look: Look) -> Figure | None:
    """How often each client was selected, beside uniform chance: one panel for each strategy.

    Panels that are shown together, those at the same point of a sweep, have the same axes and the same kind of chart.
    """
    if not story.first:
        return None
    panels, frames, chances = [], [], []
    colors = panel_colors(story, look)
    for (label, reading), color in zip(story.panels, colors, strict=True):
        together = beside(story, label)
        many, axes = max(other.num_clients for other in together) > SHOWN, _Axes.of(together)
        counts = reading.selected.times
        frames.append(_histogram(label, counts) if many else _per_client(label, reading))
        chances.append(_chance_histogram(label, reading) if many else _chance_interval(label, reading))
        each = "client" in chances[-1]
        names = names_for_charts(reading.portrait.names)
        chart = (
            _histogram_chart(label, axes, color, look) if many else _client_chart(label, each, axes, color, look, names)
        )
        title = f"{panel_name(label, look)}{beside_name(reading, story.panels)} · "
        title += f"Jain's index {formatted_values.index(evenness(counts).jain)}"
        panels.append(Panel(sized(chart, look, HEIGHT), title, strategy=label, seed=reading.seed))
    data = {
        "selections": pd.concat(frames, ignore_index=True),
        "selections_chance": pd.concat(chances, ignore_index=True),
    }
    points = panels_by_point(story, look)
    words = tuple(_about(readings, data["selections"], data["selections_chance"]) for readings in points)
    note, title = words[0] if len(words) == 1 else "", "How often each client was selected"
    numbers = "client" in data["selections"]
    note = (note + _seeds_beside_tables(story, numbers=numbers)).strip()
    at_points = words if len(words) > 1 else ()
    views, seeds = [View("selections", panels)], seeds_of(story.panels)
    return Figure("selections", title, note, views, data, at_points=at_points, shown_seeds=seeds)


def _seeds_beside_tables(story: Story, *, numbers: bool) -> str:
    """Sentences about the seeds of the panels, with a space before them; empty if all runs have the same one. ``numbers`` tells
    whether panels show numbers of clients."""
    if len({reading.seed for reading in story.everything}) < 2:
        return ""
    seeds = seeds_of(story.panels)
    others = f" {about_seeds(story, story.panels, numbers=numbers)}" if len(seeds) > 1 else about_absent(story)
    return f" Bars and indices are those of {in_title(seeds)}; tables show means over seeds.{others}"


def _about(readings: Sequence[Reading], frame: pd.DataFrame, chance: pd.DataFrame) -> str:
    """What the marks of the charts of some runs mean, and what uniform chance gives; empty without runs."""
    if not readings:
        return ""
    kinds = {reading.num_clients > SHOWN for reading in readings}
    own = frame[frame["strategy"].isin([reading.label for reading in readings])]
    alone = chance[chance["strategy"].isin([reading.label for reading in readings])]
    each = "client" in alone and bool(alone["client"].notna().any())
    about = {many: _legend(own, many, for_each=each) for many in kinds}
    words = (
        f"Up to {SHOWN} clients: {about[False]} More clients: {about[True]}" if len(about) > 1 else about.popitem()[1]
    )
    selecting = [reading for reading in readings if reading.chance.selects]
    return f"{words} {_chance_note(selecting) if selecting else 'No client was selected in any round.'}"


def _legend(frame: pd.DataFrame, many: bool, *, for_each: bool) -> str:
    """Sentences about what the marks mean; ``for_each`` tells whether clients have different chances."""
    if many:
        return "Bars: number of clients by how often they were selected. Dashed line: uniform chance."
    text = (
        "Gray, for each client: the range that contains 90% of runs under uniform chance. Line in it: the mean."
        if for_each
        else "Gray: the range that contains 90% of the clients under uniform chance. Dashed line: the mean."
    )
    if (frame["used"] < frame["times"]).any():
        text += " Pale part of a bar: rounds in which the client's update did not enter the model."
    return text


def _chance_note(readings: Sequence[Reading]) -> str:
    """The index that uniform selection gives, for each number of clients of a round: rows of a sweep can differ in it."""
    references: dict[tuple[float, int, int], list[JainReference]] = {}
    for reading in readings:
        references.setdefault(_setting(reading), []).append(reading.chance.reference)
    settings = sorted(references)
    differ, texts = [len(set(column)) > 1 for column in zip(*settings, strict=True)], []
    for k, m, n in settings[:MOST_CHANCES]:
        clients = (
            f"{formatted_values.rounds(k)} of {formatted_values.counted(m, 'client')}"
            if differ[1]
            else f"{formatted_values.rounds(k)} client{'s' * (k != 1)}"
        )
        each = f" with {clients} a round" if differ[0] or differ[1] else ""
        each += f" in {formatted_values.counted(n, 'round')}" if differ[2] else ""
        texts.append(_index_of(references[k, m, n], each))
    more = "; tables show it for each row" if len(settings) > MOST_CHANCES else ""
    among = about_chance(reading.chance for reading in readings)
    return f"Uniform chance{among} gives a Jain's index of {'; '.join(texts)}{more}."


def _index_of(references: Sequence[JainReference], each: str) -> str:
    """The mean index of runs with the same numbers of clients and rounds, and its range.

    The distributions can differ: rounds of two and of four clients select as many on average as rounds of three.

    Args:
        references: the distribution of each run.
        each: these numbers in words with a space before them; empty if all runs have the same.
    """
    ends = [formatted_values.index(value) for value in (min(references)[0], max(references)[0])]
    mean = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
    low = formatted_values.index(min(own.q05 for own in references))
    high = formatted_values.index(max(own.q95 for own in references))
    least = "at least " * (ends[0] != ends[1])
    runs = f"{low} to {high} in {least}90% of runs" if low != high else "in nearly all runs"
    return f"{mean} on average{each} ({runs})"


def _setting(reading: Reading) -> tuple[float, int, int]:
    """The mean number of selected clients with one decimal, the number of clients, and of rounds."""
    return round(float(reading.rounds["selected"].mean()), 1), reading.num_clients, reading.num_rounds


def _per_client(label: str, reading: Reading) -> pd.DataFrame:
    counts = reading.selected.times
    admitted = reading.admitted.times
    return pd.DataFrame({"strategy": label, "client": np.arange(len(counts)), "times": counts, "used": admitted})


def _histogram(label: str, counts: np.ndarray) -> pd.DataFrame:
    times, clients = np.unique(counts, return_counts=True)
    return pd.DataFrame({"strategy": label, "times": times, "clients": clients})


def _chance_interval(label: str, reading: Reading) -> pd.DataFrame:
    """The range that contains 90% of runs under uniform chance, and the mean: for each client, or once if all have the same."""
    uniform = reading.chance.uniform
    columns = {"low": uniform.quantile(0.05), "mean": uniform.expected, "high": uniform.quantile(0.95)}
    frame = pd.DataFrame(columns).round({"mean": 9})
    if len(frame.drop_duplicates()) == 1:
        return frame.iloc[:1].assign(strategy=label)
    return frame.assign(strategy=label, client=np.arange(len(frame)))


def _chance_histogram(label: str, reading: Reading) -> pd.DataFrame:
    clients = reading.chance.uniform.histogram
    share = clients.cumsum() / reading.num_clients
    first, last = np.searchsorted(share, [0.0005, 0.9995]).clip(max=len(clients) - 1).tolist()
    times = np.arange(first, last + 1)
    return pd.DataFrame({"strategy": label, "times": times, "clients": clients[times]})


@dataclass(frozen=True)
class _Axes:
    """The largest values of all panels, so that panels have the same axes: how often, and for histograms also how many clients; and
    the number of clients."""

    times: int
    clients: float
    number: int

    @classmethod
    def of(cls, readings: Sequence[Reading]) -> "_Axes":
        """The axes for the panels of these runs."""
        times, clients = 1, 1.0
        for reading in readings:
            counts, uniform = reading.selected.times, reading.chance.uniform
            times = max(times, int(counts.max()), int(uniform.quantile(0.95).max()))
            clients = max(clients, float(np.bincount(counts).max()), float(uniform.histogram.max()))
        return cls(times, clients, max(reading.num_clients for reading in readings))


def _client_chart(label: str, each: bool, axes: _Axes, color: str, look: Look, names: Sequence[str]) -> Drawing:
    """Bars of clients over uniform chance, which is that of ``each`` client, or the same for all."""
    scale = alt.Scale(domain=[0, float(axes.times)], nice=True)
    numbers = marks(axes.number, 20 if look.page else 7)
    axis: dict[str, Any] = {"labelAngle": 0}
    if names and len(numbers) == axes.number:  # there is room for all of them
        axis = {"labelAngle": -90, **name_labels(names)}
    x = alt.X("client:O", title="client", axis=alt.Axis(values=numbers, labelOverlap=True, labelFlush=False, **axis))
    band, bars = of_strategy("selections_chance", label), with_names(of_strategy("selections", label), names)
    tooltip = [
        *client_tooltips(names, "O"),
        number_tooltip("times", "count", "times selected"),
        number_tooltip("used", "count", "times admitted"),
    ]
    y_axis = alt.Axis(**whole_ticks(axes.times, 4))
    mean = band.mark_rule(color=look.ink, strokeDash=[3, 3], strokeWidth=1).encode(alt.Y("mean:Q", scale=scale))
    own: tuple[alt.X, ...] = ()
    if each:
        own = (x,)
        mean = band.mark_tick(color=look.ink, thickness=1).encode(x, alt.Y("mean:Q", scale=scale))
    return layered(
        band.mark_rect(opacity=0.14, color=look.soft).encode(
            *own, alt.Y("low:Q", scale=scale, title="times selected", axis=y_axis), y2=alt.Y2("high:Q")
        ),
        bars.mark_bar(color=color, opacity=0.35).encode(x, alt.Y("times:Q", scale=scale), tooltip=tooltip),
        bars.mark_bar(color=color).encode(x, alt.Y("used:Q", scale=scale), tooltip=tooltip),
        mean,
    )


def _histogram_chart(label: str, axes: _Axes, color: str, look: Look) -> Drawing:
    along = alt.Scale(domain=[-0.5, axes.times + 0.5], nice=False)
    x = alt.X("times:Q", title="times selected", scale=along, axis=alt.Axis(**whole_ticks(axes.times, 6)))
    y_axis, up = alt.Axis(**whole_ticks(axes.clients, 4)), alt.Scale(domain=[0, axes.clients], nice=True)
    y = alt.Y("clients:Q", title="clients", scale=up, axis=y_axis)
    tooltip = [number_tooltip("times", "count", "times selected"), number_tooltip("clients", "count")]
    bars = of_strategy("selections", label).mark_bar(color=color, clip=True)
    line = of_strategy("selections_chance", label).mark_line(
        color=look.ink, strokeWidth=1.2, strokeDash=[3, 3], clip=True
    )
    return layered(bars.encode(x, y, tooltip=tooltip), line.encode(x, y))
