"""Draw which clients were selected in which round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.words import formatted_values
from fedcohort.report.charts.axes_and_legends import (
    marks,
    number_tooltip,
    of_strategy,
    panel_colors,
    panel_name,
    panels_by_point,
    round_axis,
    rounds_beside,
    sized,
)
from fedcohort.report.charts.shown_clients import (
    SHOWN,
    client_tooltips,
    evenly,
    name_labels,
    names_for_charts,
    with_names,
)
from fedcohort.report.charts.shown_seeds import about_seeds, beside_name, seeds_of
from fedcohort.report.data.report_data import Reading, Story, blocks
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.figure import Drawing, Figure, Panel, View
from fedcohort.report.figures.layers import decided, with_properties

__all__ = ["CELLS", "block_in_words", "client_scale", "raster"]

CELLS = (120, 60)
"""At most this many columns (rounds) and rows (clients) of cells; with more rounds or clients, a cell is a block of them."""


def block_in_words(clients: int, rounds: int) -> str:
    """The size of a block: 2 clients × 1 round."""
    return f"{clients} client{'s' * (clients > 1)} × {rounds} round{'s' * (rounds > 1)}"


def client_scale(clients: int) -> alt.Scale:
    """The scale of an axis of client numbers that runs downwards."""
    return alt.Scale(domain=[clients - 0.5, -0.5], nice=False)


def raster(story: Story, look: Look) -> Figure | None:
    """Rounds × clients: the clients that were selected in each round.

    With up to :data:`SHOWN` clients, every client has a row of its own. With more, one view shows single clients of those that were
    selected, at even intervals in order of how often (most of many clients are never selected in a short run, and their rows would be
    empty), and another one shows blocks of all clients in the same order.
    """
    if not story.first:
        return None
    many = any(reading.num_clients > SHOWN for _, reading in story.panels)
    names = {"raster_sample": "single clients", "raster": "all clients"} if many else {"raster": "raster"}
    parts = {name: _view(name, story, look) for name in names}
    seed = about_seeds(story, story.panels)
    abouts = tuple(
        " ".join(dict.fromkeys(words)) for words in zip(*(part.about for part in parts.values()), strict=True)
    )
    note = f"{seed} {abouts[0]}" if len(abouts) == 1 else seed
    views = [View(names[name], part.panels) for name, part in parts.items()]
    data = {name: part.frame for name, part in parts.items()}
    at_points = abouts if len(abouts) > 1 else ()
    title, seeds = "Selected clients by round", seeds_of(story.panels)
    return Figure("raster", title, note, views, data, at_points=at_points, shown_seeds=seeds)


@dataclass(frozen=True)
class _View:
    """The panels of a view, their table, and sentences about how to read it, for each point of a sweep."""

    panels: list[Panel]
    frame: pd.DataFrame
    about: tuple[str, ...]


@dataclass(frozen=True)
class _Grid:
    """How rounds and clients are placed: the block of each round, and for each client its row (−1 if it is not drawn).

    Attributes:
        columns: the block of each round.
        rows: the row of each client.
        wide, tall: rounds and clients of a block.
        labels: number of the first client of each row.
    """

    columns: np.ndarray
    rows: np.ndarray
    wide: int
    tall: int
    labels: np.ndarray

    @property
    def blocked(self) -> bool:
        """Whether a cell is several rounds or clients."""
        return self.wide * self.tall > 1

    @classmethod
    def of(cls, name: str, reading: Reading) -> "_Grid":
        """All clients by number if they are few; otherwise a sample of them, or blocks, by how often they were selected."""
        columns, m = blocks(reading.num_rounds, CELLS[0]), reading.num_clients
        wide = int((columns == 0).sum())
        if m <= SHOWN:
            return cls(columns, np.arange(m), wide, 1, np.arange(m))
        order = np.argsort(-reading.selected.times, kind="stable")
        rows = np.full(m, -1)
        if name == "raster_sample":
            drawn = evenly(order[: max(1, reading.selected.num_ever)], CELLS[1])
            rows[drawn] = np.arange(len(drawn))
            return cls(columns, rows, wide, 1, drawn)
        rows[order] = blocks(m, CELLS[1])
        return cls(columns, rows, wide, int((rows == 0).sum()), order)


def _view(name: str, story: Story, look: Look) -> _View:
    panels, frames = [], []
    colors = panel_colors(story, look)
    grids = [_Grid.of(name, reading) for _, reading in story.panels]
    cells = [
        _shares(reading, grid) if grid.blocked else _single(reading, grid)
        for grid, (_, reading) in zip(grids, story.panels, strict=True)
    ]
    # all panels have the same shades, so that they can be compared
    full = max((float(frame["share"].max()) for frame in cells if len(frame)), default=1.0)
    for (label, reading), color, grid, frame in zip(story.panels, colors, grids, cells, strict=True):
        top = frame["row" if "row" in frame else "client"] * grid.tall
        edges = {
            "x": frame["round"] - 0.5,
            "x2": frame["round"] + grid.wide - 0.5,
            "y": top - 0.5,
            "y2": top + grid.tall - 0.5,
        }
        frames.append(frame.assign(strategy=label, **edges))
        height = max(120, min(420, (9 if reading.num_clients <= 40 else 6) * len(set(grid.rows.tolist()) - {-1})))
        panels.append(
            Panel(
                sized(_chart(name, label, reading, grid, color, look, rounds_beside(story, label), full), look, height),
                panel_name(label, look)
                + beside_name(reading, story.panels)
                + (_share_selected(reading) if name == "raster_sample" else ""),
                strategy=label,
                seed=reading.seed,
            )
        )
    points = panels_by_point(story, look)
    return _View(
        panels, pd.concat(frames, ignore_index=True), tuple(_about(name, readings, full) for readings in points)
    )


def _share_selected(reading: Reading) -> str:
    """How many of many clients were selected at all; empty for few clients, which all have a row."""
    if reading.num_clients <= SHOWN:
        return ""
    ever = reading.selected.num_ever
    return f" · {formatted_values.count(ever)} of {formatted_values.counted(reading.num_clients, 'client')} selected"


def _about(name: str, readings: Sequence[Reading], full: float) -> str:
    """How to read the cells of the panels of some runs, and which clients are drawn; empty without runs.

    ``full`` is the share that has full color.
    """
    if not readings:
        return ""
    grids = [_Grid.of(name, reading) for reading in readings]
    grid, reading, blocked = grids[0], readings[0], any(own.blocked for own in grids)
    m = formatted_values.count(reading.num_clients)
    text = ""
    if name == "raster_sample" and reading.num_clients > SHOWN:
        every = all(own.selected.num_ever == own.num_clients for own in readings)
        which = (
            f"{len(grid.labels)} of {m}" if every else f"at most {CELLS[1]} of those that were selected in any round"
        )
        text = f"Single clients: {which}, at even intervals in order of how often they were selected, the most often selected first. "
    elif reading.num_clients > SHOWN:
        text = "All clients: in the same order. "
    if not blocked:
        return f"{text}{_about_cells(readings, grids)}"
    each = block_in_words(grid.tall, grid.wide)
    largest = f"full color is {formatted_values.part(full)}, the largest share in any panel"
    return f"{text}A cell is {each}; its shade is the share that was selected, {largest}."


def _about_cells(readings: Sequence[Reading], grids: Sequence[_Grid]) -> str:
    """What a cell of one client and one round is; about hollow cells only if there are some."""
    drawn = (_single(reading, grid)["status"] for reading, grid in zip(readings, grids, strict=True))
    if all((status == "admitted").all() for status in drawn):
        return "A cell is a client that was selected; all of these were admitted."
    return "A filled cell is a client that was admitted, a hollow one a client that was selected but not admitted."


def _single(reading: Reading, grid: _Grid) -> pd.DataFrame:
    """The selected clients of each round that are drawn, and what came of each; with the row of each unless all clients have one."""
    frame = reading.clients[["round", "client", "status"]].assign(share=1.0)
    if reading.num_clients <= SHOWN:
        return frame
    rows = grid.rows[frame["client"].to_numpy()]
    drawn: pd.DataFrame = frame.assign(row=rows)[rows >= 0]
    return drawn


def _shares(reading: Reading, grid: _Grid) -> pd.DataFrame:
    """The share of selected clients in each block of rounds and row of clients; blocks without any are left out."""
    drawn = np.flatnonzero(grid.rows >= 0)
    shares = np.zeros((grid.columns[-1] + 1, int(grid.rows.max()) + 1))
    rows = grid.rows[reading.selected.clients]
    np.add.at(shares, (grid.columns[reading.selected.rounds[rows >= 0]], rows[rows >= 0]), 1)
    cells = np.bincount(grid.columns)[:, None] * np.bincount(grid.rows[drawn])[None, :]
    t, i = np.nonzero(shares)
    frame = pd.DataFrame({"round": 1 + t * grid.wide, "row": i, "status": "selected", "share": (shares / cells)[t, i]})
    return frame.assign(client=grid.labels[i * grid.tall])


def _chart(
    name: str, label: str, reading: Reading, grid: _Grid, color: str, look: Look, rounds: int, full: float
) -> Drawing:
    number = len(grid.labels)
    by_number = reading.num_clients <= SHOWN
    labels: dict[str, Any] = {}
    if name == "raster_sample":
        labels = {"labelExpr": f"{grid.labels.tolist()}[datum.value]"}
    names = names_for_charts(reading.portrait.names)
    if by_number:
        labels = name_labels(names)
    title = "client" if by_number else "clients, most often selected first"
    axis = alt.Axis(grid=False, values=marks(number), **labels)
    y = alt.Y("y:Q", title=title, scale=client_scale(number), axis=axis)
    edges = [round_axis(rounds), y, alt.X2("x2:Q"), alt.Y2("y2:Q")]
    base = of_strategy(name, label)
    more = {"usermeta": {"clients": number, "names": names}} if by_number and look.page else {}
    if grid.blocked:
        tooltip = [
            number_tooltip("round", "count", "from round"),
            *([alt.Tooltip("client:Q")] if grid.tall == 1 else [number_tooltip("y", "count", "from place")]),
            number_tooltip("share", "share", "selected"),
        ]
        shade = alt.Opacity("share:Q", legend=None, scale=alt.Scale(domain=[0, full], range=[0.05, 1], nice=False))
        shaded: Drawing = base.mark_rect(color=color).encode(*edges, opacity=shade, tooltip=tooltip)
        return with_properties(shaded, **more)
    tooltip = [alt.Tooltip("round:Q"), *client_tooltips(names, "Q"), alt.Tooltip("status:N", title="outcome")]
    admitted = alt.FieldOneOfPredicate(field="status", oneOf=["admitted"])
    fill = decided(alt.FillValue, admitted, color, look.ground)
    thin = number > 40 or reading.num_rounds > 60
    base = with_names(base, names)
    chart: Drawing = base.mark_rect(stroke=color, strokeWidth=0.5 if thin else 1, cornerRadius=0 if thin else 1).encode(
        *edges, fill=fill, tooltip=tooltip
    )
    return with_properties(chart, **more)
