"""Draw what clients reported beyond what every client reports, such as the conformal quantile q̂."""

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.record import ClientRow
from fedcohort.report.charts.averaged_points import each_is_mean
from fedcohort.report.charts.axes_and_legends import number_tooltip, round_axis, sized
from fedcohort.report.charts.means_and_bands import domain, thinned
from fedcohort.report.charts.norms import ABOUT_REPORTED
from fedcohort.report.charts.score_terms import named
from fedcohort.report.data.report_data import Reading
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.figure import Drawing, Figure, Panel, View
from fedcohort.report.figures.layers import layered

__all__ = ["reported"]

SINGLE = (30, 300)
"""Single clients are drawn with up to this many clients and rounds."""


def reported(row: str, reading: Reading, look: Look) -> Figure | None:
    """One view for each report: its mean over clients by round, and each client; None if there are no such reports.

    Args:
        row: name of the strategy in the figure's key.
        reading: the run.
        look: how charts look.
    """
    names = _names(reading.clients)
    if not names:
        return None
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    for i, name in enumerate(names):
        chart, own = _chart(f"reported_{row}_{i}", reading, name, look)
        about = ABOUT_REPORTED if name == "update_norm" else ""
        views.append(View(named(name), [Panel(sized(chart, look, 220, 120))], about))
        data |= own
    single = _draws_single_clients(reading)
    note = f"{'Thick line' if single else 'Line'}: mean over the clients that reported."
    averaged = [int(frame["averaged"].max()) for frame in data.values() if "averaged" in frame]
    note += f" {each_is_mean('of its points', max(averaged, default=1))}".rstrip()
    note += " Thin lines: single clients." if single else ""
    note += " Dashed line, for the quantile: the threshold θ." if any(key.endswith("_level") for key in data) else ""
    return Figure(
        f"reported-{row}", "What clients reported", f"{note} Seed {reading.seed}.", views, data, family="reported"
    )


def _draws_single_clients(reading: Reading) -> bool:
    return reading.num_clients <= SINGLE[0] and reading.num_rounds <= SINGLE[1]


def _names(clients: pd.DataFrame) -> list[str]:
    """Columns of reports that not every client sends, and that change over rounds."""
    common = {"round", *ClientRow.__dataclass_fields__}
    names = [str(name) for name in clients.columns if str(name) not in common]
    return [name for name in names if np.isfinite(clients[name].to_numpy(np.float64)).any() and _changes(clients, name)]


def _changes(frame: pd.DataFrame, name: str) -> bool:
    """Whether any client reports different values in different rounds. A number of samples, for example, stays the same."""
    return bool((frame.groupby("client")[name].nunique() > 1).any()) or frame["round"].nunique() == 1


def _chart(key: str, reading: Reading, name: str, look: Look) -> tuple[Drawing, dict[str, pd.DataFrame]]:
    values = reading.clients[["round", "client", name]].rename(columns={name: "value"})
    values = values[np.isfinite(values["value"].to_numpy(np.float64))]
    threshold = _threshold(reading) if name == "q_hat" else None
    levels = [] if threshold is None else [threshold["value"]]
    means = values.groupby("round")["value"].mean().reset_index()
    drawn = values if _draws_single_clients(reading) else means
    scale = alt.Scale(domain=domain(drawn["value"], [0.0], *levels), nice=False)
    x = round_axis(reading.num_rounds, "round:Q")
    y = alt.Y("value:Q", title=named(name), scale=scale, axis=alt.Axis(tickCount=5))
    data: dict[str, pd.DataFrame] = {}
    layers: list[alt.Chart] = []
    if threshold is not None:
        data[f"{key}_level"] = threshold
        level = alt.Chart(alt.NamedData(name=f"{key}_level")).mark_line(
            color=look.ink, strokeWidth=1, strokeDash=[2, 2], interpolate="step"
        )
        layers.append(level.encode(x, y))
    if _draws_single_clients(reading):
        data[key] = values
        single = alt.Chart(alt.NamedData(name=key)).mark_line(
            strokeWidth=1, opacity=0.35, color=look.heat, point=alt.OverlayMarkDef(size=14)
        )
        tooltip = [alt.Tooltip("client:O"), alt.Tooltip("round:Q"), number_tooltip("value", "number")]
        layers.append(single.encode(x, y, detail=alt.Detail("client:N"), tooltip=tooltip))
    data[f"{key}_mean"] = thinned(means)
    mean = alt.Chart(alt.NamedData(name=f"{key}_mean")).mark_line(
        color=look.cold, strokeWidth=2.5, point=alt.OverlayMarkDef(size=18, color=look.cold)
    )
    layers.append(
        mean.encode(x, y, tooltip=[number_tooltip("round", "number"), number_tooltip("value", "number", "mean")])
    )
    return layered(*layers), data


def _threshold(reading: Reading) -> pd.DataFrame | None:
    """The threshold of each round, as the round's note records it; None if no note does."""
    values = reading.rounds["note"].str.extract(r"q̂ ≤ ([0-9.e-]+)")[0].astype(float).dropna()
    return pd.DataFrame({"round": values.index, "value": values.to_numpy()}) if len(values) else None
