"""Draw the score of every candidate in every round, and the terms of the score."""

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core import formatted_values
from fedcohort.report.chart_style import Look
from fedcohort.report.charts.axes_and_legends import marks, number_tooltip, round_axis, sized
from fedcohort.report.charts.score_terms import named, untried
from fedcohort.report.charts.selection_raster import CELLS, block_in_words, client_scale
from fedcohort.report.charts.shown_clients import SHOWN
from fedcohort.report.figure import Drawing, Figure, Panel, View
from fedcohort.report.report_data import Reading, blocks

__all__ = ["candidates"]


def candidates(row: str, reading: Reading, frame: pd.DataFrame, terms: list[str], look: Look) -> Figure | None:
    """Rounds × clients, one view for the score and for each term: the rank of each candidate in its round.

    Args:
        row: name of the strategy in the figure's key.
        reading: the run.
        frame: every candidate of every round, from :meth:`~fedcohort.report.report_data.Reading.decisions`.
        terms: the terms to show.
        look: how charts look.
    """
    columns = blocks(reading.num_rounds, CELLS[0])
    rows = blocks(reading.num_clients, CELLS[1] if reading.num_clients > SHOWN else SHOWN)
    wide, tall = int((columns == 0).sum()), int((rows == 0).sum())
    views: list[View] = []
    shades: list[str] = []
    data: dict[str, pd.DataFrame] = {}
    for name in dict.fromkeys(("score", *terms)):
        known = frame[np.isfinite(frame[name].to_numpy(np.float64))]
        if known.empty or known[name].nunique() < 2:
            continue
        key = f"map_{row}_{len(views)}"
        cells = _cells(known, name, columns, rows)
        data[key] = cells.assign(round=1 + cells["round"] * wide, client=cells["client"] * tall)
        ends = _ends(cells, blocked=wide * tall > 1)
        chart = _chart(key, reading, wide, tall, ends, look, has_untried="state" in cells)
        shades.append(
            f"{formatted_values.share(ends[0])} (palest) to {formatted_values.share(ends[1])} for {named(name)}"
        )
        height = max(120, min(320, 11 * reading.num_clients))
        views.append(View(named(name), [Panel(sized(chart, look, height))]))
    if not views:
        return None
    shade = "Shade: rank among the candidates of the round; full color is the highest."
    about = "A dot is a client that was selected."
    if wide * tall > 1:
        shade = "Shade: rank among the candidates of the round, from 0% for the lowest to 100% for the highest."
        about = (
            f"A cell is the mean over {block_in_words(tall, wide)}. Means lie close together, so shades go from the lowest to the "
            f"highest cell: {', '.join(shades)}."
        )
    note = f"{shade} An empty cell is no candidate, or one without this value. {about} Seed {reading.seed}."
    return Figure(f"map-{row}", "Scores of all candidates by round", note, views, data)


def _ends(cells: pd.DataFrame, *, blocked: bool) -> tuple[float, float]:
    """The ranks with the lightest and the darkest shade: all ranks, or for means over blocks those of the cells."""
    if not blocked:
        return 0.0, 1.0
    low, high = float(cells["rank"].min()), float(cells["rank"].max())
    return low, max(high, low + 1e-3)


def _cells(known: pd.DataFrame, name: str, columns: np.ndarray, rows: np.ndarray) -> pd.DataFrame:
    """Mean rank, value and share of selected clients of each block of rounds and clients; blocks are numbered from 0."""
    cells = pd.DataFrame(
        {
            "round": columns[known["round"] - 1],
            "client": rows[known["client"]],
            "rank": known.groupby("round")[name].rank(pct=True),
            "value": known[name],
            "selected": known["selected"],
            "untried": untried(known) & (known[name] >= formatted_values.UNTRIED),
        }
    )
    means = cells.groupby(["round", "client"]).mean().reset_index()
    only = means.pop("untried") > 0
    if only.any():
        means["state"] = np.where(only, "untried, comes first", "")
        means.loc[only, "value"] = np.nan
    return means.round({"rank": 3, "selected": 3})  # more digits would make the page larger without being seen


def _chart(
    key: str, reading: Reading, wide: int, tall: int, ends: tuple[float, float], look: Look, *, has_untried: bool
) -> Drawing:
    axis = alt.Axis(grid=False, values=marks(reading.num_clients), labelOverlap=False)
    y = alt.Y("y:Q", title="client", scale=client_scale(reading.num_clients), axis=axis)
    base = alt.Chart(alt.NamedData(name=key))
    tooltip = [
        alt.Tooltip("round:Q"),
        alt.Tooltip("client:Q"),
        *([alt.Tooltip("shown:N", title="value")] if has_untried else [number_tooltip("value", "number")]),
        number_tooltip("rank", "share"),
        number_tooltip("selected", "share"),
    ]
    shade = alt.Opacity("rank:Q", legend=None, scale=alt.Scale(domain=list(ends), range=[0.03, 0.75]))
    edges = {"x": "datum.round - 0.5", "x2": f"datum.round + {wide - 0.5}"}
    place = {"at": "isValid(datum.at) ? datum.at : datum.client"}  # the page's script orders clients by setting "at"
    if has_untried:
        place = {"shown": f"datum.state || format(datum.value, '{formatted_values.D3_FORMATS['number']}')"} | place
    edges |= place | {"y": "datum.at - 0.5", "y2": f"datum.at + {tall - 0.5}"}
    x = round_axis(reading.num_rounds)
    cells = base.transform_calculate(**edges).mark_rect(color=look.heat)
    cells = cells.encode(x, y, alt.X2("x2:Q"), alt.Y2("y2:Q"), opacity=shade, tooltip=tooltip)
    if wide * tall > 1:
        chart: Drawing = cells
        return chart
    dots = (
        base.transform_filter("datum.selected > 0")
        .transform_calculate(**place)
        .mark_point(color=look.cold, size=22 if look.page else 8, opacity=1)
    )
    at = (alt.X("round:Q", title="round"), alt.Y("at:Q", title="client", axis=axis))
    return alt.layer(cells, dots.encode(*at, tooltip=tooltip)).properties(usermeta={"clients": reading.num_clients})
