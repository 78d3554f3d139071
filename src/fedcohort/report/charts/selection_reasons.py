"""Draw why clients were selected: the terms of their scores, what the strategy learned, and every candidate's score."""

from dataclasses import replace

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.record import KEPT
from fedcohort.report.charts.averaged_points import each_is_mean
from fedcohort.report.charts.axes_and_legends import legend_columns, number_tooltip, round_axis, sized, whole_ticks
from fedcohort.report.charts.candidate_scores import candidates
from fedcohort.report.charts.client_reports import reported
from fedcohort.report.charts.means_and_bands import domain
from fedcohort.report.charts.norms import about_norm
from fedcohort.report.charts.score_terms import (
    GROUPS,
    about_random,
    by_block,
    named,
    random_rounds,
    term_names,
    untried,
)
from fedcohort.report.data.report_data import Reading, Story
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.figure import Figure, Panel, View
from fedcohort.report.figures.file_names import of_rows

__all__ = ["reasons"]

MOST_CANDIDATES = 400_000
"""With more recorded candidates over all rounds, only the selected clients are read and drawn."""

UNTRIED_LEFT_OUT = " Clients that had never been selected are left out: their scores are only very large numbers."

COME_FIRST = " Clients that had never been selected are left out: they come first{}, whatever their scores."
"""The same if some of them came first, which they do in rounds that are not random."""

UNSCORED_LEFT_OUT = " Clients that were selected without a score are left out."

NOTHING = " All of these are 0."

CUT = " The axis is cut: scores of the first rounds are many times larger."


def reasons(story: Story, look: Look) -> list[tuple[str, list[Figure]]]:
    """The figures of each strategy that scores its candidates, or that has reports of its own, under its label."""
    scored: list[tuple[str, list[Figure]]] = []
    only_reports: list[tuple[str, list[Figure]]] = []
    names = of_rows(story.labels, points=not look.page)
    for label, reading in story.panels:
        name = names[label]
        figures = _of_scores(name, reading, look)
        scores = bool(figures)
        figures.append(reported(name, reading, look))
        drawn = [replace(figure, shown_seeds=(reading.seed,)) for figure in figures if figure is not None]
        if drawn:
            (scored if scores else only_reports).append((label, drawn))
    return scored + only_reports


def _of_scores(row: str, reading: Reading, look: Look) -> list[Figure | None]:
    """The figures of scores and their terms; empty if the strategy recorded no terms."""
    every_candidate = reading.considered <= MOST_CANDIDATES
    frame = reading.decisions(selected_only=not every_candidate)
    names = term_names(frame)
    if not names or not np.isfinite(frame[names].to_numpy(np.float64)).any():
        return []
    state = [name for name in names if name.startswith("theta_") or _is_common(frame, name)]
    inputs = [name for name in names if name.startswith("x_")]
    terms = [name for name in names if name not in state and name not in inputs]
    return [
        _terms(row, reading, frame, [name for name in terms if name not in GROUPS], look),
        _state(row, reading, frame, state, look),
        candidates(row, reading, frame, [*terms, *inputs], look) if every_candidate else None,
    ]


def _is_common(frame: pd.DataFrame, name: str) -> bool:
    """Whether all candidates of a round have the same value of a term: then it belongs to the strategy's state, not to a client."""
    by_round = frame.groupby("round")[name]
    several = by_round.count() > 1
    return bool(several.any()) and bool((by_round.nunique()[several] <= 1).all()) and frame[name].nunique() > 1


def _terms(row: str, reading: Reading, frame: pd.DataFrame, terms: list[str], look: Look) -> Figure | None:
    """The mean terms of the selected clients' scores by round: stacked bars if they add up to the score, lines otherwise."""
    selected = frame[frame["selected"] & np.isfinite(frame["score"].to_numpy(np.float64))]
    first_time = untried(frame)[selected.index]
    came_first = not random_rounds(reading)[selected["round"][first_time]].all()
    selected = selected[~first_time.to_numpy()]
    terms = [name for name in terms if np.isfinite(selected[name].to_numpy(np.float64)).any()]
    if not terms or selected.empty:
        return None
    long, wide = by_block(reading, selected, terms)
    key, names = f"terms_{row}", [named(name) for name in terms]
    tooltip = [
        alt.Tooltip("round:Q", title="round" if wide == 1 else "from round"),
        alt.Tooltip("term:N"),
        number_tooltip("value", "number"),
    ]
    sums = _adds_up(selected, terms)
    if sums:
        panels, cut = _stacked(key, reading, long, names, look, tooltip)
    else:
        panels, cut = _single(key, reading, long, names, look, tooltip)
    best = f", but at most the {KEPT:,} with the highest scores, which are recorded"
    note = f"Mean over the selected clients of each round{best * bool(reading.rounds['selected'].max() > KEPT)}."
    note += about_norm(reading, terms)
    note += about_random(reading)
    if first_time.any():
        elsewhere = " in the other rounds" if about_random(reading) else ""
        note += COME_FIRST.format(elsewhere) if came_first else UNTRIED_LEFT_OUT
    note += UNSCORED_LEFT_OUT if np.isnan(frame.loc[frame["selected"].astype(bool), "score"]).any() else ""
    note += " The terms add up to the score." if sums else ""
    note += NOTHING if not long["value"].any() else ""
    note += f" {each_is_mean('bar' if sums else 'point', wide)}".rstrip()
    note += f" Seed {reading.seed}.{CUT if cut else ''}"
    title, views = "Scores of the selected clients, by term", [View("terms", panels)]
    return Figure(f"terms-{row}", title, note, views, {key: long}, family="terms")


def _adds_up(selected: pd.DataFrame, terms: list[str]) -> bool:
    """Whether the terms of each score add up to it."""
    scores, parts = selected["score"].to_numpy(np.float64), selected[terms].to_numpy(np.float64)
    return len(terms) > 1 and bool(np.allclose(np.nansum(parts, axis=1), scores, rtol=1e-6, atol=1e-9))


def _stacked(
    key: str, reading: Reading, long: pd.DataFrame, names: list[str], look: Look, tooltip: list[alt.Tooltip]
) -> tuple[list[Panel], bool]:
    """One panel with a bar for each round, stacked from terms; and whether its axis is cut."""
    span, cut = _span(long.groupby("round")["value"].sum().to_numpy(np.float64))
    above = np.where(long["value"] >= 0, "above", "below")
    sums = long.assign(part=above).groupby(["round", "part"])["value"].sum()
    span = domain(sums[np.abs(sums) <= 20 * max(map(abs, span))], [0.0])
    y = alt.Y(
        "value:Q", title="score", stack="zero", scale=alt.Scale(domain=span, nice=False), axis=alt.Axis(tickCount=5)
    )
    columns = _columns(names, look)
    legend = alt.Legend(title=None, orient="top", columns=columns, symbolType="square", symbolStrokeWidth=0)
    colors = alt.Color("term:N", scale=alt.Scale(domain=names, range=look.parts(len(names))), legend=legend)
    bars = alt.Chart(alt.NamedData(name=key)).mark_bar(clip=True, stroke=look.ground, strokeWidth=0.4)
    x = round_axis(reading.num_rounds, bin="binned")
    return [Panel(sized(bars.encode(x, alt.X2("x2:Q"), y, colors, tooltip=tooltip), look, 220))], cut


def _single(
    key: str, reading: Reading, long: pd.DataFrame, names: list[str], look: Look, tooltip: list[alt.Tooltip]
) -> tuple[list[Panel], bool]:
    """A panel with a line for each term; and whether any axis is cut."""
    panels, cut = [], False
    for name in names:
        span, beyond = _span(long[long["term"] == name]["value"].to_numpy(np.float64))
        cut = cut or beyond
        line = (
            alt.Chart(alt.NamedData(name=key))
            .transform_filter(alt.FieldEqualPredicate(field="term", equal=name))
            .mark_line(clip=True, color=look.heat, point=alt.OverlayMarkDef(size=20, color=look.heat))
        )
        scale = alt.Scale(domain=span, nice=False)
        y = alt.Y("value:Q", title=name, scale=scale, axis=alt.Axis(tickCount=4))
        chart = line.encode(round_axis(reading.num_rounds, "round:Q"), y, tooltip=tooltip)
        panels.append(Panel(sized(chart, look, 150, 80), name))
    return panels, cut


def _span(values: np.ndarray) -> tuple[list[float], bool]:
    """The range of an axis without a few very large values, such as bounds for clients not yet selected; and whether it cuts any."""
    values = values[np.isfinite(values)]
    typical = float(np.median(np.abs(values))) if len(values) else 1.0
    kept = values[np.abs(values) <= 20 * typical] if typical > 0 else values
    return domain(kept, [0.0]), len(kept) < len(values)


def _columns(names: list[str], look: Look) -> int:
    """Number of names of a legend in a line: as many as fit in papers; the page's script makes fewer where it has no room."""
    return len(names) if look.page else legend_columns(names, look)


def _state(row: str, reading: Reading, frame: pd.DataFrame, names: list[str], look: Look) -> Figure | None:
    """Terms that all candidates of a round have in common, such as the weights θ of a linear model, over rounds."""
    if not names:
        return None
    long, _ = by_block(reading, frame, names)
    long["term"] = long["term"].str.removeprefix("theta ")
    elements = [named(name).removeprefix("theta ") for name in names]
    is_theta = all(name.startswith("theta_") for name in names)
    legend = alt.Legend(title=None, orient="top", columns=_columns(elements, look), symbolType="stroke")
    colors = alt.Scale(domain=elements, range=look.colors(len(elements)))
    dashes = alt.Scale(domain=elements, range=look.dashes(len(elements)))
    line = alt.Chart(alt.NamedData(name=f"state_{row}")).mark_line(point=alt.OverlayMarkDef(size=18))
    chart = line.encode(
        alt.X("round:Q", title="round", axis=alt.Axis(**whole_ticks(reading.num_rounds - 1, 6))),
        alt.Y("value:Q", title="θ" if is_theta else "value", axis=alt.Axis(tickCount=5)),
        alt.Color("strategy:N", scale=colors, legend=legend),
        alt.StrokeDash("strategy:N", scale=dashes, legend=legend),
        tooltip=[alt.Tooltip("strategy:N", title="element"), alt.Tooltip("round:Q"), number_tooltip("value", "number")],
    )
    what = "The weight θ of each element of the context" if is_theta else "Values that all candidates of a round share"
    table = long.rename(columns={"term": "strategy"}).drop(columns=["x", "x2"])
    return Figure(
        f"state-{row}",
        "What the strategy learned",
        f"{what}, by round. Seed {reading.seed}.",
        [View("state", [Panel(sized(chart, look, 220))])],
        {f"state_{row}": table},
    )
