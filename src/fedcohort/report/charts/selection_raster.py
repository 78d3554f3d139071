"""Draw which clients were selected in which round."""

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.report.chart_style import Look
from fedcohort.report.charts.axes_and_legends import marks, number_tooltip, of_strategy, round_axis, sized
from fedcohort.report.figure import Drawing, Figure, Panel, View
from fedcohort.report.report_data import Reading, Story, blocks

__all__ = ["CELLS", "client_scale", "raster"]

CELLS = (120, 60)
"""At most this many columns (rounds) and rows (clients) of cells; with more rounds or clients, a cell is a block of them."""


def client_scale(clients: int) -> alt.Scale:
    """The scale of an axis of client numbers that runs downwards."""
    return alt.Scale(domain=[clients - 0.5, -0.5], nice=False)


def raster(story: Story, look: Look) -> Figure | None:
    """Rounds × clients: the clients that were selected in each round, or shares of them in blocks."""
    if not story.first:
        return None
    panels, frames, about_blocks = [], [], ""
    colors = look.of_rows([label for label, _ in story.panels])[0]
    for (label, reading), color in zip(story.panels, colors, strict=True):
        columns, rows = blocks(reading.num_rounds, CELLS[0]), blocks(reading.num_clients, CELLS[1])
        wide, tall = int((columns == 0).sum()), int((rows == 0).sum())
        if wide * tall == 1:
            frame = reading.clients[["round", "client", "status"]].assign(share=1.0)
        else:
            frame = _shares(reading, columns, rows)
            about_blocks = (
                f" A cell is {tall} client{'s' * (tall > 1)} × {wide} round{'s' * (wide > 1)}. "
                "Its shade is the share that was selected."
            )
        edges = {
            "x": frame["round"] - 0.5,
            "x2": frame["round"] + wide - 0.5,
            "y": frame["client"] - 0.5,
            "y2": frame["client"] + tall - 0.5,
        }
        frames.append(frame.assign(strategy=label, **edges))
        height = max(120, min(300, 9 * reading.num_clients))
        chart = _chart(label, reading, color, bool(about_blocks), look)
        panels.append(Panel(sized(chart, look, height), label, strategy=label))
    about_marks = (
        " A filled cell is a client that was admitted, a hollow one a client that was selected but not admitted."
    )
    note = f"Seed {story.first[0].seed}.{about_blocks or about_marks}"
    data = {"raster": pd.concat(frames, ignore_index=True)}
    return Figure("raster", "Selected clients by round", note, [View("raster", panels)], data)


def _shares(reading: Reading, columns: np.ndarray, rows: np.ndarray) -> pd.DataFrame:
    """The share of selected clients in each block of rounds and clients; blocks without any are left out."""
    wide, tall = int((columns == 0).sum()), int((rows == 0).sum())
    shares = np.zeros((columns[-1] + 1, rows[-1] + 1))
    np.add.at(shares, (columns[:, None], rows[None, :]), reading.selected)
    cells = np.bincount(columns)[:, None] * np.bincount(rows)[None, :]
    t, i = np.nonzero(shares)
    return pd.DataFrame(
        {"round": 1 + t * wide, "client": i * tall, "status": "selected", "share": (shares / cells)[t, i]}
    )


def _chart(label: str, reading: Reading, color: str, blocked: bool, look: Look) -> Drawing:
    axis = alt.Axis(grid=False, values=marks(reading.num_clients))
    y = alt.Y("y:Q", title="client", scale=client_scale(reading.num_clients), axis=axis)
    edges = [round_axis(reading.num_rounds), y, alt.X2("x2:Q"), alt.Y2("y2:Q")]
    base = of_strategy("raster", label)
    if blocked:
        tooltip = [
            number_tooltip("round", "count", "from round"),
            number_tooltip("client", "count", "from client"),
            number_tooltip("share", "share", "selected"),
        ]
        scale = alt.Scale(domain=[0, 1], range=[0.05, 1])
        shade = alt.Opacity("share:Q", legend=None, scale=scale)
        shaded: Drawing = base.mark_rect(color=color).encode(*edges, opacity=shade, tooltip=tooltip)
        return shaded
    admitted = alt.FieldOneOfPredicate(field="status", oneOf=["admitted"])
    fill = alt.condition(admitted, alt.value(color), alt.value(look.ground))
    tooltip = [alt.Tooltip("round:Q"), alt.Tooltip("client:Q"), alt.Tooltip("status:N", title="outcome")]
    chart: Drawing = base.mark_rect(stroke=color, strokeWidth=1, cornerRadius=1).encode(
        *edges, fill=fill, tooltip=tooltip
    )
    return chart
