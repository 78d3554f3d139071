"""Draw the score of every candidate in every round, and the terms of the score."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.arrays import Indices
from fedcohort.core.words import formatted_values
from fedcohort.record import KEPT
from fedcohort.report.charts.axes_and_legends import marks, number_tooltip, round_axis, sized
from fedcohort.report.charts.norms import about_norm
from fedcohort.report.charts.score_terms import about_random, named, random_rounds, untried
from fedcohort.report.charts.selection_raster import CELLS, block_in_words, client_scale
from fedcohort.report.charts.shown_clients import (
    SHOWN,
    client_tooltips,
    evenly,
    name_labels,
    names_for_charts,
    with_names,
)
from fedcohort.report.data.report_data import Reading, blocks
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.figure import Drawing, Figure, Panel, View
from fedcohort.report.figures.layers import layered

__all__ = ["candidates"]


def candidates(row: str, reading: Reading, frame: pd.DataFrame, terms: list[str], look: Look) -> Figure | None:
    """Rounds × clients, one view for the score and for each term: the rank of each candidate in its round.

    With more than :data:`SHOWN` clients, those of a sample have a row each: a mean over several clients is near one half, whatever the
    strategy does.

    Args:
        row: name of the strategy in the figure's key.
        reading: the run.
        frame: every candidate of every round, from :meth:`~fedcohort.report.data.reading.Reading.decisions`.
        terms: the terms to show.
        look: how charts look.
    """
    columns = blocks(reading.num_rounds, CELLS[0])
    wide = int((columns == 0).sum())
    drawn = _drawn(reading, frame)
    views: list[View] = []
    shades: list[str] = []
    data: dict[str, pd.DataFrame] = {}
    circled: list[bool] = []
    same = _equal_to_score(frame, terms)
    for name in dict.fromkeys(name for name in ("score", *terms) if name not in same):
        known = frame[np.isfinite(frame[name].to_numpy(np.float64))]
        if known.empty or known[name].nunique() < 2:
            continue
        key = f"map_{row}_{len(views)}"
        cells = _cells(known, name, columns, drawn, reading)
        if cells.empty:
            continue
        data[key] = cells.assign(round=1 + cells["round"] * wide)
        ends = _ends(cells, blocked=wide > 1)
        without = _without(frame, name, cells, columns, drawn, reading.num_clients)
        circled.append(len(without) > 0)
        if circled[-1]:
            data[f"{key}_without"] = without.assign(round=1 + without["round"] * wide)
        chart = _chart(key, reading, wide, drawn, ends, look, has_untried="state" in cells, circled=circled[-1])
        shades.append(
            f"{formatted_values.share(ends[0])} (palest) to {formatted_values.share(ends[1])} for {named(name)}"
        )
        height = max(120, min(320, 11 * len(drawn)))
        views.append(View(named(name), [Panel(sized(chart, look, height))]))
    if not views:
        return None
    shade = "Shade: rank among the candidates of the round; full color is the highest."
    about = "A dot is a client that was selected."
    if wide > 1:
        shade = "Shade: rank among the candidates of the round, from 0% for the lowest to 100% for the highest."
        about = f"A cell is the mean over {block_in_words(1, wide)}; shades go from the lowest to the highest: {', '.join(shades)}."
    about_all, views = _about_circles(views, circled, wide)
    about += about_all
    if len(drawn) < reading.num_clients:
        about += f" {_sampled(drawn, frame, reading)}"
    chance = f"{about_random(reading)}{_about_ties(frame, reading)}"
    about = f"{_about_equal(same)}{about}{about_norm(reading, terms)}"
    empty = f"An empty cell is no candidate, or one without this value.{_about_unrecorded(frame, reading)}"
    note = f"{shade} {empty} {about}{chance} Seed {reading.seed}."
    title = (
        "Scores of all candidates by round" if len(drawn) == reading.num_clients else "Scores of candidates by round"
    )
    return Figure(f"map-{row}", title, note, views, data, family="map")


def _about_unrecorded(frame: pd.DataFrame, reading: Reading) -> str:
    """A sentence about the candidates that the record leaves out, with a space before it; empty if it has all."""
    if frame.groupby("round").size().max() < KEPT or reading.rounds["available"].max() <= KEPT:
        return ""
    also = ", even if it was selected" * bool(reading.rounds["selected"].max() > KEPT)
    return f" Of a round with more candidates, the record keeps {KEPT:,}, selected ones first; any other is an empty cell{also}."


def _about_circles(views: list[View], circled: list[bool], wide: int) -> tuple[str, list[View]]:
    """What a circle is, for the caption if all views have some; otherwise, the views that have some say it."""
    about = f"A circle is a client that was selected without this value{' in these rounds' * (wide > 1)}."
    if all(circled):
        return f" {about}", views
    return "", [replace(view, note=about * own) for view, own in zip(views, circled, strict=True)]


def _about_ties(frame: pd.DataFrame, reading: Reading) -> str:
    """A sentence about rounds in which only some of the clients with the same score were selected, with a space before it."""
    scored = frame[frame["score"].notna()]
    selected = scored["selected"].astype(bool)
    lowest = scored[selected].groupby("round")["score"].min()
    highest = scored[~selected].groupby("round")["score"].max()
    ranked = scored.groupby("round")["score"].nunique() > 1
    common = lowest.index.intersection(highest.index)
    tied = common[(ranked[common] & (lowest[common] == highest[common])).to_numpy()]
    rounds = int((~random_rounds(reading)[tied.to_numpy(np.int64)]).sum())
    if not rounds:
        return ""
    return f" In {formatted_values.counted(rounds, 'round')}, chance decided between clients with the same score."


def _equal_to_score(frame: pd.DataFrame, terms: Sequence[str]) -> list[str]:
    """The terms that have the same finite values as the score, so that their maps would look the same."""
    finite = frame[["score", *terms]].where(np.isfinite(frame[["score", *terms]].to_numpy(np.float64)))
    return [name for name in terms if name != "score" and finite[name].equals(finite["score"])]


def _about_equal(names: Sequence[str]) -> str:
    """A sentence, with a space after it, about the terms that are the score; empty without one."""
    return f"The score is the {formatted_values.in_words([named(name) for name in names])}. " * bool(names)


def _drawn(reading: Reading, frame: pd.DataFrame) -> Indices:
    """The clients that have a row, int64: all by number if they are few, and otherwise a sample of those that were candidates."""
    if reading.num_clients <= SHOWN:
        return np.arange(reading.num_clients)
    were = np.unique(frame["client"].to_numpy(np.int64))
    times = reading.selected.times[were]
    return evenly(were[np.argsort(-times, kind="stable")], CELLS[1])


def _sampled(drawn: Indices, frame: pd.DataFrame, reading: Reading) -> str:
    """A sentence about which clients have a row."""
    candidates = frame["client"].nunique()
    recorded = "recorded as candidates" if _about_unrecorded(frame, reading) else "candidates"
    which = " clients" if candidates == reading.num_clients else f" clients that were {recorded}"
    return (
        f"Single clients: {len(drawn)} of {formatted_values.count(candidates)}{which}, at even intervals in order of how often they "
        "were selected, the most often selected first."
    )


def _ends(cells: pd.DataFrame, *, blocked: bool) -> tuple[float, float]:
    """The ranks with the lightest and the darkest shade: all ranks, or for means over blocks those of the cells."""
    if not blocked:
        return 0.0, 1.0
    low, high = float(cells["rank"].min()), float(cells["rank"].max())
    return low, max(high, low + 1e-3)


def _cells(known: pd.DataFrame, name: str, columns: np.ndarray, drawn: Indices, reading: Reading) -> pd.DataFrame:
    """Mean rank, value and share of selected clients of the drawn clients in each block of rounds; blocks are numbered from 0.

    If not all clients are drawn, ``place`` is the row of a client.
    """
    ranks = known.groupby("round")[name].rank(pct=True)
    shown = known["client"].isin(drawn)
    known = known[shown]
    never = untried(known) & (known[name] >= formatted_values.UNTRIED)
    cells = pd.DataFrame(
        {
            "round": columns[known["round"] - 1],
            "client": known["client"],
            "rank": ranks[shown],
            "value": known[name],
            "selected": known["selected"],
            "untried": never,
            "first": never & ~random_rounds(reading)[known["round"]].to_numpy(),
        }
    )
    means = cells.groupby(["round", "client"]).mean().reset_index()
    if len(drawn) < reading.num_clients:
        means["place"] = means["client"].map({client: place for place, client in enumerate(drawn.tolist())})
    only, first = means.pop("untried") > 0, means.pop("first") > 0
    if only.any():
        means["state"] = np.select([first, only], ["untried, comes first", "untried, in a random round"], "")
        means.loc[only, "value"] = np.nan
    return means.round({"rank": 3, "selected": 3})  # more digits would make the page larger without being seen


def _without(
    frame: pd.DataFrame, name: str, cells: pd.DataFrame, columns: np.ndarray, drawn: Indices, clients: int
) -> pd.DataFrame:
    """The drawn clients that were selected without a value, and have no cell in that block of rounds; blocks are numbered from 0."""
    lacking = (
        frame["selected"].astype(bool) & ~np.isfinite(frame[name].to_numpy(np.float64)) & frame["client"].isin(drawn)
    )
    own = frame.loc[lacking, ["round", "client"]]
    own = own.assign(round=columns[own["round"].to_numpy(np.int64) - 1]).drop_duplicates()
    known = set(zip(cells["round"].tolist(), cells["client"].tolist(), strict=True))
    empty = [place not in known for place in zip(own["round"].tolist(), own["client"].tolist(), strict=True)]
    own = pd.DataFrame(own.loc[np.array(empty, dtype=bool)]).reset_index(drop=True)
    if len(drawn) < clients:
        own["place"] = own["client"].map({client: place for place, client in enumerate(drawn.tolist())})
    return own


def _chart(
    key: str,
    reading: Reading,
    wide: int,
    drawn: Indices,
    ends: tuple[float, float],
    look: Look,
    *,
    has_untried: bool,
    circled: bool,
) -> Drawing:
    whole = len(drawn) == reading.num_clients
    names = names_for_charts(reading.portrait.names)
    labels: dict[str, Any] = name_labels(names) if whole else {"labelExpr": f"{drawn.tolist()}[datum.value]"}
    axis = alt.Axis(grid=False, values=marks(len(drawn)), labelOverlap=False, **labels)
    title = "client" if whole else "clients, most often selected first"
    y = alt.Y("y:Q", title=title, scale=client_scale(len(drawn)), axis=axis)
    base = with_names(alt.Chart(alt.NamedData(name=key)), names)
    tooltip = [
        number_tooltip("round", "count", "from round" if wide > 1 else "round"),
        *client_tooltips(names, "Q"),
        *([alt.Tooltip("shown:N", title="value")] if has_untried else [number_tooltip("value", "number")]),
        number_tooltip("rank", "share"),
        number_tooltip("selected", "share") if wide > 1 else alt.Tooltip("chosen:N", title="selected"),
    ]
    shade = alt.Opacity("rank:Q", legend=None, scale=alt.Scale(domain=list(ends), range=[0.03, 0.75]))
    edges = {"x": "datum.round - 0.5", "x2": f"datum.round + {wide - 0.5}"}
    by = "client" if whole else "place"
    place = {"at": f"isValid(datum.at) ? datum.at : datum.{by}"}  # the page's script orders clients by setting "at"
    if has_untried:
        place = {"shown": f"datum.state || format(datum.value, '{formatted_values.D3_FORMATS['number']}')"} | place
    place |= {} if wide > 1 else {"chosen": "datum.selected > 0 ? 'yes' : 'no'"}
    edges |= place | {"y": "datum.at - 0.5", "y2": "datum.at + 0.5"}
    x = round_axis(reading.num_rounds)
    cells = base.transform_calculate(**edges).mark_rect(color=look.heat)
    cells = cells.encode(x, y, alt.X2("x2:Q"), alt.Y2("y2:Q"), opacity=shade, tooltip=tooltip)
    at = (alt.X("round:Q", title="round"), alt.Y("at:Q", title=title, axis=axis))
    circles: list[alt.Chart] = []
    if circled:
        empty = with_names(alt.Chart(alt.NamedData(name=f"{key}_without")), names).transform_calculate(
            at=place["at"], middle=f"datum.round + {(wide - 1) / 2}"
        )
        ring = empty.mark_point(color=look.cold, filled=False, size=22 if look.page else 8, strokeWidth=1, opacity=1)
        circles = [ring.encode(alt.X("middle:Q", title="round"), at[1], tooltip=tooltip[: 3 if names else 2])]
    if wide > 1:
        chart: Drawing = layered(cells, *circles) if circles else cells
        return chart
    dots = (
        base.transform_filter("datum.selected > 0")
        .transform_calculate(**place)
        .mark_point(color=look.cold, size=22 if look.page else 8, opacity=1)
    )
    more = {"usermeta": {"clients": reading.num_clients, "names": names}} if whole else {}
    return layered(cells, dots.encode(*at, tooltip=tooltip), *circles, **more)
