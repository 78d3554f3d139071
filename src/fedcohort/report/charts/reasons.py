"""Why those: what the scores of the chosen were made of, what the strategy believed, and every candidate's score round by round."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.report.charts import lines
from fedcohort.report.figure import Figure, Panel, View
from fedcohort.report.gather import Reading, Story, blocks
from fedcohort.report.look import Look

__all__ = ["reasons"]

READ = 400_000
"""Candidates that are read at most, over all rounds; with more on record, only the selected are."""

CELLS = (120, 60)
"""Rounds and clients of a map at most."""

NOT_TERMS = ("round", "client", "selected", "score")

LATE = "the first rounds' scores are of another size and go beyond the axis"


def reasons(story: Story, look: Look) -> list[tuple[str, list[Figure]]]:
    """The figures of each strategy that scores its candidates, under its name."""
    found = []
    for number, (label, one) in enumerate(story.panels):
        everybody = one.considered <= READ
        frame = one.decisions(everybody=everybody)
        names = [str(name) for name in frame.columns if name not in NOT_TERMS]
        if not names or not np.isfinite(frame[names].to_numpy(np.float64)).any():
            continue
        state = [name for name in names if name.startswith("theta_") or _common(frame, name)]
        inputs = [name for name in names if name.startswith("x_")]
        terms = [name for name in names if name not in state and name not in inputs]
        figures = [_split(number, one, frame, terms, look), _state(number, one, frame, state, look)]
        figures.append(_map(number, one, frame, [*terms, *inputs], everybody, look))
        found.append((label, [figure for figure in figures if figure is not None]))
    for number, (label, one) in enumerate(story.panels):
        told = _reported(number, one, look)
        if told is not None:
            own = next((figures for name, figures in found if name == label), None)
            if own is None:
                found.append((label, [told]))
            else:
                own.append(told)
    return [(label, figures) for label, figures in found if figures]


def _common(frame: pd.DataFrame, name: str) -> bool:
    """Whether a term is the same for all candidates of a round, in rounds with several: something that the strategy believes."""
    by_round = frame.groupby("round")[name]
    several = by_round.count() > 1
    return bool(several.any()) and bool((by_round.nunique()[several] <= 1).all()) and frame[name].nunique() > 1


NAMES = {
    "p": "share of all samples",
    "q_hat": "conformal quantile",
    "set_size": "classes in a prediction set",
    "done": "share that is done",
}
"""What is written for terms whose own name is short."""


def _words(term: str) -> str:
    name = NAMES.get(term, term.replace("_", " "))
    return f"context: {name.removeprefix('x ')}" if name.startswith("x ") else name


def _moves(frame: pd.DataFrame, name: str) -> bool:
    """Whether any client reports different values in different rounds; a number of samples, say, is no news after the first."""
    return bool((frame.groupby("client")[name].nunique() > 1).any()) or frame["round"].nunique() == 1


def _reported(number: int, one: Reading, look: Look) -> Figure | None:
    """What clients reported that not every client reports, such as the conformal quantile q̂: each client, and their mean."""
    from fedcohort.record import ClientRow

    frame = one.clients
    names = [str(name) for name in frame.columns if str(name) not in ClientRow.__dataclass_fields__ and name != "round"]
    names = [name for name in names if np.isfinite(frame[name].to_numpy(np.float64)).any() and _moves(frame, name)]
    if not names:
        return None
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    for name in names:
        values = frame[["round", "client", name]].rename(columns={name: "value"})
        values = values[np.isfinite(values["value"].to_numpy(np.float64))]
        key = f"reported_{number}_{len(views)}"
        data[f"{key}_mean"] = lines.thinned(values.groupby("round")["value"].mean().reset_index())
        x = alt.X(
            "round:Q",
            title="round",
            scale=alt.Scale(domain=[0.5, one.num_rounds + 0.5], nice=False),
            axis=alt.Axis(tickMinStep=1, tickCount=6),
        )
        y = alt.Y(
            "value:Q",
            title=_words(name),
            scale=alt.Scale(domain=lines.domain(values["value"], [0.0]), nice=False),
            axis=alt.Axis(tickCount=5),
        )
        layers: list[Any] = []
        level = _threshold(one) if name == "q_hat" else None
        if level is not None:
            data[f"{key}_level"] = level
            rule = alt.Chart(alt.NamedData(name=f"{key}_level")).mark_line(
                color=look.ink, strokeWidth=1, strokeDash=[2, 2], interpolate="step"
            )
            layers.append(rule.encode(x, y))
        if one.num_clients <= 30 and one.num_rounds <= 300:
            data[key] = values
            each = alt.Chart(alt.NamedData(name=key)).mark_line(
                strokeWidth=1, opacity=0.35, color=look.heat, point=alt.OverlayMarkDef(size=14)
            )
            layers.append(
                each.encode(
                    x,
                    y,
                    detail=alt.Detail("client:N"),
                    tooltip=[alt.Tooltip("client:O"), alt.Tooltip("round:Q"), alt.Tooltip("value:Q", format=",.4~g")],
                )
            )
        mean = alt.Chart(alt.NamedData(name=f"{key}_mean")).mark_line(
            color=look.cold, strokeWidth=2.5, point=alt.OverlayMarkDef(size=18, color=look.cold)
        )
        layers.append(
            mean.encode(x, y, tooltip=[alt.Tooltip("round:Q"), alt.Tooltip("value:Q", format=",.4~g", title="mean")])
        )
        chart = alt.layer(*layers).properties(
            width="container" if look.width is None else look.width, height=220 if look.page else 120
        )
        views.append(View(_words(name), [Panel(chart)]))
    note = "Thick: the mean over the clients that reported; thin: single clients."
    note += " Dotted: the threshold θ." if any(name.endswith("_level") for name in data) else ""
    note += f" Seed {one.seed}."
    return Figure(f"reported-{number}", "What clients reported", note, views, data)


def _threshold(one: Reading) -> pd.DataFrame | None:
    """What the quantile had to be at most, by round, as the round's note says it."""
    found = one.rounds["note"].str.extract(r"q̂ ≤ ([0-9.e-]+)")[0].astype(float).dropna()
    return pd.DataFrame({"round": found.index, "value": found.to_numpy()}) if len(found) else None


def _rounds(one: Reading, frame: pd.DataFrame, names: list[str]) -> tuple[pd.DataFrame, int]:
    """Means of terms for blocks of rounds, in long form: ``round``, ``to``, ``term``, ``value``; and rounds of a block."""
    group = blocks(one.num_rounds, CELLS[0])
    wide = int((group == 0).sum())
    means = frame.groupby(group[frame["round"].to_numpy(np.int64) - 1])[names].mean()
    long = means.rename_axis("block").reset_index().melt("block", var_name="term", value_name="value").dropna()
    long = long.assign(round=1 + long["block"] * wide, term=long["term"].map(_words))
    return long.assign(x=long["round"] - 0.5, x2=long["round"] + wide - 0.5).drop(columns="block"), wide


def _axis(one: Reading, **more: Any) -> alt.X:
    scale = alt.Scale(domain=[0.5, one.num_rounds + 0.5], nice=False)
    return alt.X("x:Q", title="round", scale=scale, axis=alt.Axis(tickMinStep=1, tickCount=6), **more)


def _span(values: np.ndarray) -> tuple[list[float], bool]:
    """An axis that a few huge values (an upper bound for clients never seen) do not squeeze, and whether it cuts any."""
    values = values[np.isfinite(values)]
    typical = float(np.median(np.abs(values))) if len(values) else 1.0
    kept = values[np.abs(values) <= 20 * typical] if typical > 0 else values
    return lines.domain(kept, [0.0]), len(kept) < len(values)


def _split(number: int, one: Reading, frame: pd.DataFrame, terms: list[str], look: Look) -> Figure | None:
    chosen = frame[frame["selected"] & np.isfinite(frame["score"].to_numpy(np.float64))]
    terms = [name for name in terms if np.isfinite(chosen[name].to_numpy(np.float64)).any()]
    if not terms or chosen.empty:
        return None
    long, wide = _rounds(one, chosen, terms)
    key = f"terms_{number}"
    scores, parts = chosen["score"].to_numpy(np.float64), chosen[terms].to_numpy(np.float64)
    adds_up = len(terms) > 1 and bool(np.allclose(np.nansum(parts, axis=1), scores, rtol=1e-6, atol=1e-9))
    each = f" Each bar is the mean of {wide} rounds." if wide > 1 else ""
    tooltip = [
        alt.Tooltip("round:Q", title="round" if wide == 1 else "from round"),
        alt.Tooltip("term:N"),
        alt.Tooltip("value:Q", format=",.4~g"),
    ]
    names = [_words(name) for name in terms]
    if adds_up:
        span, cut = _span(long.groupby("round")["value"].sum().to_numpy(np.float64))
        sums = long.assign(part=np.where(long["value"] >= 0, "up", "down")).groupby(["round", "part"])["value"].sum()
        reach = sums[np.abs(sums) <= 20 * max(map(abs, span))]
        span = lines.domain(reach, [0.0])
        chart = (
            alt.Chart(alt.NamedData(name=key))
            .mark_bar(clip=True, stroke=look.ground, strokeWidth=0.4)
            .encode(
                _axis(one, bin="binned"),
                alt.X2("x2:Q"),
                alt.Y(
                    "value:Q",
                    title="score",
                    stack="zero",
                    scale=alt.Scale(domain=span, nice=False),
                    axis=alt.Axis(tickCount=5),
                ),
                alt.Color(
                    "term:N",
                    scale=alt.Scale(domain=names, range=look.parts(len(names))),
                    legend=alt.Legend(title=None, orient="top", symbolType="square", symbolStrokeWidth=0),
                ),
                tooltip=tooltip,
            )
            .properties(width="container" if look.width is None else look.width, height=220 if look.page else 110)
        )
        panels = [Panel(chart)]
        note = f"Mean over the chosen of each round: the terms add up to the score.{each} Seed {one.seed}."
    else:
        panels, cut = [], False
        for name in names:
            values = long[long["term"] == name]["value"].to_numpy(np.float64)
            span, beyond = _span(values)
            cut = cut or beyond
            chart = (
                alt.Chart(alt.NamedData(name=key))
                .transform_filter(alt.FieldEqualPredicate(field="term", equal=name))
                .mark_line(clip=True, color=look.heat, point=alt.OverlayMarkDef(size=20, color=look.heat))
                .encode(
                    alt.X(
                        "round:Q",
                        title="round",
                        scale=alt.Scale(domain=[0.5, one.num_rounds + 0.5], nice=False),
                        axis=alt.Axis(tickMinStep=1, tickCount=6),
                    ),
                    alt.Y("value:Q", title=name, scale=alt.Scale(domain=span, nice=False), axis=alt.Axis(tickCount=4)),
                    tooltip=tooltip,
                )
                .properties(width="container" if look.width is None else look.width, height=150 if look.page else 80)
            )
            panels.append(Panel(chart, name))
        note = f"Mean over the chosen of each round.{each} Seed {one.seed}."
    note += f" The axis is cut: {LATE}." if cut else ""
    return Figure(f"terms-{number}", "Scores of the chosen, by term", note, [View("terms", panels)], {key: long})


def _state(number: int, one: Reading, frame: pd.DataFrame, names: list[str], look: Look) -> Figure | None:
    if not names:
        return None
    long, _ = _rounds(one, frame, names)
    long["term"] = long["term"].str.removeprefix("theta ")
    words = [_words(name).removeprefix("theta ") for name in names]
    is_theta = all(name.startswith("theta_") for name in names)
    title = "θ" if is_theta else "value"
    frame = long.rename(columns={"term": "strategy"}).drop(columns=["x", "x2"])
    x = alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1, tickCount=6))
    base = alt.Chart(alt.NamedData(name=f"state_{number}"))
    scale = alt.Scale(domain=words, range=look.colours(len(words)))
    legend = alt.Legend(title=None, orient="top", symbolType="stroke")
    dashes = alt.Scale(domain=words, range=look.dashes(len(words)))
    chart = (
        base.mark_line(point=alt.OverlayMarkDef(size=18))
        .encode(
            x,
            alt.Y("value:Q", title=title, axis=alt.Axis(tickCount=5)),
            alt.Color("strategy:N", scale=scale, legend=legend),
            alt.StrokeDash("strategy:N", scale=dashes, legend=legend),
            tooltip=[
                alt.Tooltip("strategy:N", title="element"),
                alt.Tooltip("round:Q"),
                alt.Tooltip("value:Q", format=",.4~g"),
            ],
        )
        .properties(width="container" if look.width is None else look.width, height=220 if look.page else 110)
    )
    what = (
        "The weight θ of each element of the context" if is_theta else "What is the same for all candidates of a round"
    )
    return Figure(
        f"state-{number}",
        "What the strategy believed",
        f"{what}, round by round. Seed {one.seed}.",
        [View("state", [Panel(chart)])],
        {f"state_{number}": frame},
    )


def _map(
    number: int, one: Reading, frame: pd.DataFrame, terms: list[str], everybody: bool, look: Look
) -> Figure | None:
    """Client × round, one view for the score and for each term: how high among the candidates of the round."""
    columns, rows = blocks(one.num_rounds, CELLS[0]), blocks(one.num_clients, CELLS[1])
    wide, tall = int((columns == 0).sum()), int((rows == 0).sum())
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    names = ["score", *terms] if terms != ["score"] else ["score"]
    if not everybody:
        return None
    for name in names:
        known = frame[np.isfinite(frame[name].to_numpy(np.float64))]
        if known.empty or known[name].nunique() < 2:
            continue
        rank = known.groupby("round")[name].rank(pct=True)
        cells = (
            pd.DataFrame(
                {
                    "round": columns[known["round"] - 1],
                    "client": rows[known["client"]],
                    "rank": rank,
                    "value": known[name],
                    "selected": known["selected"],
                }
            )
            .groupby(["round", "client"])
            .mean()
            .reset_index()
        )
        cells = cells.assign(round=1 + cells["round"] * wide, client=cells["client"] * tall)
        cells = cells.round({"rank": 3, "selected": 3})  # a shade and a share: the page stays small
        key = f"map_{number}_{len(views)}"
        data[key] = cells
        views.append(View(_words(name), [Panel(_cells(key, one, wide, tall, look))]))
    if not views:
        return None
    summed = "" if wide * tall == 1 else f" A cell is the mean over {tall} clients × {wide} rounds."
    note = (
        "Shade: the rank among the round's candidates, full colour is highest; a dot is a client that "
        f"was selected.{summed} Seed {one.seed}."
    )
    return Figure(f"map-{number}", "Every candidate, round by round", note, views, data)


def _cells(key: str, one: Reading, wide: int, tall: int, look: Look) -> Any:
    axis = alt.Axis(grid=False, values=lines.marks(one.num_clients), labelOverlap=False)
    y = alt.Y(
        "y:Q",
        title="client",
        scale=alt.Scale(domain=[one.num_clients - 0.5, -0.5], nice=False),
        axis=axis,
    )
    base = alt.Chart(alt.NamedData(name=key))
    tooltip = [
        alt.Tooltip("round:Q"),
        alt.Tooltip("client:Q"),
        alt.Tooltip("value:Q", format=",.4~g"),
        alt.Tooltip("rank:Q", format=".0%", title="rank"),
        alt.Tooltip("selected:Q", format=".0%"),
    ]
    opacity = alt.Opacity("rank:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[0.03, 0.75]))
    edges = {"x": "datum.round - 0.5", "x2": f"datum.round + {wide - 0.5}"}
    edges |= {"y": "datum.client - 0.5", "y2": f"datum.client + {tall - 0.5}"}
    cells = (
        base.transform_calculate(**edges)
        .mark_rect(color=look.heat)
        .encode(_axis(one), y, alt.X2("x2:Q"), alt.Y2("y2:Q"), opacity=opacity, tooltip=tooltip)
    )
    height = max(120, min(320, 11 * one.num_clients))
    size: dict[str, Any] = {
        "width": "container" if look.width is None else look.width,
        "height": height if look.page else round(height * 0.5),
    }
    if wide * tall > 1:
        return cells.properties(**size)
    dots = (
        base.transform_filter("datum.selected > 0")
        .mark_point(color=look.cold, size=22 if look.page else 8, opacity=1)
        .encode(alt.X("round:Q", title="round"), alt.Y("client:Q", title="client", axis=axis), tooltip=tooltip)
    )
    return alt.layer(cells, dots).properties(**size)
