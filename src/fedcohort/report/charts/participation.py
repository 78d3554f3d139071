"""Who took part, and was it fair: counts against chance, Jain's index, the raster, accuracy of clients and classes."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort import measures
from fedcohort.core import streams
from fedcohort.core.arrays import Values
from fedcohort.report.charts import lines
from fedcohort.report.charts.accuracy import seeds_note
from fedcohort.report.figure import Figure, Panel, View
from fedcohort.report.gather import Reading, Story, blocks
from fedcohort.report.look import Look

__all__ = ["class_accuracy", "client_accuracy", "fairness", "participation", "raster", "selections"]

SHOWN = 60
"""Clients that are drawn one by one at most."""

CELLS = (120, 60)
"""Columns (rounds) and rows (clients) of a raster at most."""

DRAWS = 4_000_000
"""Draws × rounds × clients up to which chance is simulated for its band."""


def _panel(look: Look, height: int = 190) -> dict[str, Any]:
    return {
        "width": "container" if look.width is None else look.width,
        "height": height if look.page else round(height * 0.5),
    }


def selections(story: Story, look: Look) -> Figure | None:
    """How often each client was selected, against chance."""
    if not story.first:
        return None
    labels = [label for label, _ in story.played]
    colours, panels, frames, chances = look.colours(len(labels)), [], [], []
    many = max(one.num_clients for one in story.first) > SHOWN
    for label, one, colour in zip(labels, [one for _, one in story.panels], colours, strict=False):
        counts = one.selected.sum(axis=0)
        frames.append(
            _histogram(label, counts)
            if many
            else pd.DataFrame(
                {"strategy": label, "client": np.arange(len(counts)), "times": counts, "used": one.admitted.sum(axis=0)}
            )
        )
        chances.append(_chance(label, one, many))
        title = f"{label} · Jain {measures.jain(counts):.3f}"
        panels.append(Panel((_spread if many else _counts)(label, one, colour, look), title, strategy=label))
    data = {
        "selections": pd.concat(frames, ignore_index=True),
        "selections_chance": pd.concat(chances, ignore_index=True),
    }
    fair = measures.jain_random(story.first[0].num_clients, story.first[0].per_round, story.first[0].num_rounds)
    what = (
        "Bars: clients selected so many times; line: chance."
        if many
        else "Grey: where 90 % of the clients fall under uniform chance; dashed: its mean."
    )
    declined = not many and any((frame["used"] < frame["times"]).any() for frame in frames)
    what += " The pale part of a bar: its update was not used." if declined else ""
    first = story.first[0]
    each = f" with {first.per_round} a round" if len({one.per_round for one in story.first}) > 1 else ""
    note = (
        f"{what} Seed {first.seed}. Uniform chance gives Jain {fair.mean:.3f} on average{each} "
        f"({fair.q05:.3f} to {fair.q95:.3f} in 9 of 10 runs)."
    )
    return Figure("selections", "How often each client was selected", note, [View("selections", panels)], data)


def _chance(label: str, one: Reading, many: bool) -> pd.DataFrame:
    n, share = one.num_rounds, min(1.0, one.per_round / one.num_clients)
    law = measures.binomial(n, share)
    below = law.cumsum()

    def quantile(q: float) -> int:
        return min(int(np.searchsorted(below, q)), n)

    if many:
        times = np.arange(quantile(0.0005), quantile(0.9995) + 1)
        return pd.DataFrame({"strategy": label, "times": times, "clients": one.num_clients * law[times]})
    frame = {"low": quantile(0.05), "mean": n * share, "high": quantile(0.95)}
    return pd.DataFrame({"strategy": label, **frame}, index=[0])


def _histogram(label: str, counts: np.ndarray) -> pd.DataFrame:
    times, clients = np.unique(counts, return_counts=True)
    return pd.DataFrame({"strategy": label, "times": times, "clients": clients})


def _of(name: str, label: str) -> Any:
    return alt.Chart(alt.NamedData(name=name)).transform_filter(alt.FieldEqualPredicate(field="strategy", equal=label))


def _counts(label: str, one: Reading, colour: str, look: Look) -> Any:
    most = max(float(one.selected.sum(axis=0).max()), float(_chance(label, one, False)["high"].max()), 1.0)
    y = alt.Scale(domain=[0, most], nice=True)
    band = _of("selections_chance", label)
    m = one.num_clients
    x = alt.X(
        "client:O",
        title="client",
        axis=alt.Axis(values=lines.marks(m, 20 if look.page else 7), labelAngle=0, labelOverlap=True),
    )
    bars = _of("selections", label)
    tooltip = [
        alt.Tooltip("client:O"),
        alt.Tooltip("times:Q", title="times selected"),
        alt.Tooltip("used:Q", title="in the model"),
    ]
    return alt.layer(
        band.mark_rect(opacity=0.14, color=look.soft).encode(
            alt.Y("low:Q", scale=y, title="times selected", axis=alt.Axis(tickMinStep=1, tickCount=4)),
            y2=alt.Y2("high:Q"),
        ),
        bars.mark_bar(color=colour, opacity=0.35).encode(x, alt.Y("times:Q", scale=y), tooltip=tooltip),
        bars.mark_bar(color=colour).encode(x, alt.Y("used:Q", scale=y), tooltip=tooltip),
        band.mark_rule(color=look.ink, strokeDash=[3, 3], strokeWidth=1).encode(alt.Y("mean:Q", scale=y)),
    ).properties(**_panel(look))


def _spread(label: str, one: Reading, colour: str, look: Look) -> Any:
    x = alt.X("times:Q", title="times selected", axis=alt.Axis(tickMinStep=1, tickCount=6))
    bars = (
        _of("selections", label)
        .mark_bar(color=colour)
        .encode(x, alt.Y("clients:Q", title="clients"), tooltip=[alt.Tooltip("times:Q"), alt.Tooltip("clients:Q")])
    )
    line = (
        _of("selections_chance", label)
        .mark_line(color=look.ink, strokeWidth=1.2, strokeDash=[3, 3])
        .encode(x, alt.Y("clients:Q"))
    )
    return alt.layer(bars, line).properties(**_panel(look))


def fairness(story: Story, look: Look) -> Figure | None:
    """Jain's index of all selections so far, over rounds, with the law under chance."""
    if not story.first:
        return None
    labels = [label for label, _ in story.played]
    frame = lines.by_round(story.played, _jain)
    one = max(story.first, key=lambda run: run.num_rounds)
    reference = _jain_chance(one.num_clients, one.per_round, one.num_rounds)
    span = lines.domain(frame["mean"], reference["mean"], floor=0.0, ceiling=1.0)
    chart, data = lines.lines("jain", frame, labels, look, x="round", y="Jain's index", span=span, reference=True)
    data["jain_reference"] = reference
    banded = "band of 9 in 10 runs, and " if np.isfinite(reference["low"]).any() else ""
    note = (
        f"Of how often each client was selected so far: 1 is even. Grey: uniform chance, {banded}mean. "
        f"{seeds_note(story, band=lines.band(frame))}"
    )
    return Figure("jain", "Jain's index over rounds", note, [View("jain", [Panel(chart)])], data)


def _jain(one: Reading) -> Values:
    counts = np.cumsum(one.selected, axis=0, dtype=np.float64)
    total, squares = counts.sum(axis=1), (counts**2).sum(axis=1)
    index: Values = np.divide(total**2, one.num_clients * squares, out=np.ones(len(total)), where=squares > 0)
    return index


def _jain_chance(m: int, k: int, n: int) -> pd.DataFrame:
    """Mean and 5 to 95 % of the index after each round under chance; the mean alone, 1/(1 + (m − k)/(kt)), where it is large."""
    k, t = min(k, m), np.arange(1.0, n + 1)
    mean = 1 / (1 + (m - k) / (k * t))
    low, high = np.full(n, np.nan), np.full(n, np.nan)
    draws = min(400, DRAWS // (n * m))
    if k < m and draws >= 100:
        rng = streams.rng(0, "report-jain")
        counts, rows = np.zeros((draws, m)), np.arange(draws)[:, None]
        for i in range(n):
            counts[rows, np.argpartition(rng.random((draws, m)), k, axis=1)[:, :k]] += 1
            index = (k * (i + 1.0)) ** 2 / (m * (counts**2).sum(axis=1))
            low[i], high[i] = np.quantile(index, [0.05, 0.95]).tolist()
            mean[i] = index.mean()
    return lines.thinned(pd.DataFrame({"x": t, "mean": mean, "low": low, "high": high}))


def raster(story: Story, look: Look) -> Figure | None:
    """Round × client: who was selected when; in blocks where there are many."""
    if not story.first:
        return None
    labels, panels, frames, summed = [label for label, _ in story.played], [], [], ""
    for label, one, colour in zip(labels, [one for _, one in story.panels], look.colours(len(labels)), strict=False):
        n, m = one.selected.shape
        columns, rows = blocks(n, CELLS[0]), blocks(m, CELLS[1])
        wide, tall = int((columns == 0).sum()), int((rows == 0).sum())
        if wide * tall == 1:
            frame = one.clients[["round", "client", "status"]].assign(share=1.0)
        else:
            shares = np.zeros((columns[-1] + 1, rows[-1] + 1))
            np.add.at(shares, (columns[:, None], rows[None, :]), one.selected)
            cells = np.bincount(columns)[:, None] * np.bincount(rows)[None, :]
            t, i = np.nonzero(shares)
            frame = pd.DataFrame(
                {"round": 1 + t * wide, "client": i * tall, "status": "selected", "share": (shares / cells)[t, i]}
            )
            summed = (
                f" A cell is {tall} client{'s' * (tall > 1)} × {wide} round{'s' * (wide > 1)}; "
                "its shade is the share of them that was selected."
            )
        frames.append(
            frame.assign(
                strategy=label,
                x=frame["round"] - 0.5,
                x2=frame["round"] + wide - 0.5,
                y=frame["client"] - 0.5,
                y2=frame["client"] + tall - 0.5,
            )
        )
        panels.append(Panel(_raster(label, one, colour, bool(summed), look), label, strategy=label))
    note = (
        f"A mark is a client that was selected; hollow: its update was not used. Seed {story.first[0].seed}."
        if not summed
        else f"Seed {story.first[0].seed}."
    )
    return Figure(
        "raster",
        "Who took part when",
        note + summed,
        [View("raster", panels)],
        {"raster": pd.concat(frames, ignore_index=True)},
    )


def _raster(label: str, one: Reading, colour: str, blocked: bool, look: Look) -> Any:
    x = alt.X(
        "x:Q",
        title="round",
        scale=alt.Scale(domain=[0.5, one.num_rounds + 0.5], nice=False),
        axis=alt.Axis(tickMinStep=1, tickCount=6),
    )
    y = alt.Y(
        "y:Q",
        title="client",
        scale=alt.Scale(domain=[one.num_clients - 0.5, -0.5], nice=False),
        axis=alt.Axis(grid=False, values=lines.marks(one.num_clients)),
    )
    base = _of("raster", label)
    tooltip = (
        [alt.Tooltip("round:Q"), alt.Tooltip("client:Q"), alt.Tooltip("status:N")]
        if not blocked
        else [
            alt.Tooltip("round:Q", title="from round"),
            alt.Tooltip("client:Q", title="from client"),
            alt.Tooltip("share:Q", format=".0%", title="selected"),
        ]
    )
    if blocked:
        marks = base.mark_rect(color=colour).encode(
            x,
            y,
            alt.X2("x2:Q"),
            alt.Y2("y2:Q"),
            opacity=alt.Opacity("share:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[0.05, 1])),
            tooltip=tooltip,
        )
    else:
        used = alt.FieldOneOfPredicate(field="status", oneOf=["admitted"])
        marks = base.mark_rect(stroke=colour, strokeWidth=1, cornerRadius=1).encode(
            x,
            y,
            alt.X2("x2:Q"),
            alt.Y2("y2:Q"),
            fill=alt.condition(used, alt.value(colour), alt.value(look.ground)),
            tooltip=tooltip,
        )
    return marks.properties(**_panel(look, max(120, min(300, 9 * one.num_clients))))


def client_accuracy(story: Story, look: Look) -> list[Figure]:
    """Accuracy on clients' own data: worst tenth and mean over rounds, and the distribution after the last round."""
    rows = [(label, [one for one in row if len(one.client_accuracy)]) for label, row in story.played]
    rows = [(label, row) for label, row in rows if row]
    if not rows:
        return []
    labels = [label for label, _ in story.played]
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    for key, name, reduce in (
        ("worst", "worst tenth of the clients", measures.worst_accuracy),
        ("mean", "mean of all clients", np.nanmean),
    ):
        frame = lines.by_round(rows, lambda one, reduce=reduce: _served(one, reduce))
        if frame["mean"].isna().all():
            return []
        span = lines.domain(frame["mean"], frame["low"], frame["high"], floor=0.0, ceiling=1.0)
        chart, own = lines.lines(
            f"clients_{key}", frame, labels, look, x="round", y="accuracy on own data", span=span, percent=True
        )
        views.append(View(name, [Panel(chart)]))
        data |= own
    note = "Accuracy of the global model on each client's own data. " + seeds_note(story, band=lines.band(frame))
    over = Figure("client-accuracy", "How clients are served", note, views, data)
    return [over, _distribution(rows, labels, look)]


def _served(one: Reading, reduce: Any) -> Values:
    frame = one.client_accuracy
    values = np.full(one.num_rounds, np.nan)
    for t, row in zip(frame.index.to_numpy(np.int64), frame.to_numpy(np.float64), strict=True):
        if t <= one.num_rounds and np.isfinite(row).any():
            values[t - 1] = reduce(row)
    return values


def _distribution(rows: Any, labels: list[str], look: Look) -> Figure:
    frames = []
    for label, readings in rows:
        for one in readings:
            last = one.client_accuracy.iloc[-1].to_numpy(np.float64)
            frames.append(
                pd.DataFrame({"strategy": label, "client": np.arange(len(last)), "seed": one.seed, "accuracy": last})
            )
    frame = pd.concat(frames, ignore_index=True).dropna()
    quantiles = (
        frame.groupby("strategy", sort=False)["accuracy"].quantile(np.array([0.1, 0.25, 0.5, 0.75, 0.9])).unstack()
    )
    quantiles.columns = pd.Index(["q10", "q25", "q50", "q75", "q90"])
    data = {"clients_quantiles": quantiles.reset_index()}
    y = alt.Y("strategy:N", sort=labels, title=None, axis=alt.Axis(labelColor=look.ink, labelLimit=150))
    scale = alt.Scale(domain=[0, 1])
    box, colour = (
        lines.hideable(alt.Chart(alt.NamedData(name="clients_quantiles")), look),
        lines.colour(labels, look, legend=False),
    )

    def at(field: str) -> alt.X:
        return alt.X(
            f"{field}:Q", scale=scale, title="accuracy on own data", axis=alt.Axis(format=".0%", grid=True, tickCount=5)
        )

    tooltip = [
        alt.Tooltip("strategy:N"),
        *(alt.Tooltip(f"q{q}:Q", format=".1%", title=f"{q} % quantile") for q in (10, 25, 50, 75, 90)),
    ]
    layers = [
        box.mark_rule(strokeWidth=1.5).encode(at("q10"), y, colour, x2=alt.X2("q90:Q")),
        box.mark_bar(size=12 if look.page else 7).encode(at("q25"), y, colour, x2=alt.X2("q75:Q"), tooltip=tooltip),
        box.mark_tick(color=look.ground, thickness=2.5, size=12 if look.page else 7).encode(
            at("q50"), y, tooltip=tooltip
        ),
    ]
    if len(frame) <= 400:
        data["clients_last"] = frame
        dots = lines.hideable(alt.Chart(alt.NamedData(name="clients_last")), look)
        layers.append(
            dots.mark_tick(thickness=1, size=6, yOffset=13 if look.page else 7).encode(
                at("accuracy"),
                y,
                colour,
                tooltip=[
                    alt.Tooltip("strategy:N"),
                    alt.Tooltip("client:O"),
                    alt.Tooltip("seed:O"),
                    alt.Tooltip("accuracy:Q", format=".1%"),
                ],
            )
        )
    chart = alt.layer(*layers).properties(
        width="container" if look.width is None else look.width, height=(40 if look.page else 22) * len(rows)
    )
    note = (
        "After the last measured round: the bar holds the middle half of the clients, the line "
        "10 to 90 %, the notch is the median, and below are single clients, all seeds."
    )
    return Figure("client-distribution", "Accuracy of clients", note, [View("clients", [Panel(chart)])], data)


def class_accuracy(story: Story, look: Look) -> Figure | None:
    """Test accuracy of each class over rounds."""
    found = [(label, one) for label, one in story.panels if np.isfinite(one.class_accuracy).any()]
    if not found:
        return None
    frames, panels, classes = [], [], found[0][1].classes
    for label, one in found:
        group = blocks(one.num_rounds, 100)
        wide, values = int((group == 0).sum()), one.class_accuracy
        known = np.isfinite(values)
        total = np.zeros((group[-1] + 1, values.shape[1]))
        number = total.copy()
        np.add.at(total, group, np.where(known, values, 0))
        np.add.at(number, group, known)
        mean = np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)
        t = 1 + np.arange(len(mean)) * wide
        frame = pd.DataFrame(
            {
                "strategy": label,
                "round": np.repeat(t, len(classes)),
                "class": np.tile(classes, len(t)),
                "accuracy": mean.ravel(),
            }
        ).dropna()
        until = frame["round"] + wide - 0.5
        tested = np.concatenate([[0.5], np.unique(until)])
        frames.append(frame.assign(x=tested[np.searchsorted(tested, until) - 1], x2=until))
        x = alt.X(
            "x:Q",
            title="round",
            scale=alt.Scale(domain=[0.5, one.num_rounds + 0.5], nice=False),
            axis=alt.Axis(tickMinStep=1, tickCount=6),
        )
        y = alt.Y("class:N", sort=classes, title="class", axis=alt.Axis(labelLimit=90, labelOverlap=True))
        opacity = alt.Opacity("accuracy:Q", scale=alt.Scale(domain=[0, 1], range=[0.03, 1]), legend=None)
        chart = (
            _of("class_accuracy", label)
            .mark_rect(color=look.heat)
            .encode(
                x,
                y,
                alt.X2("x2:Q"),
                opacity=opacity,
                tooltip=[alt.Tooltip("round:Q"), alt.Tooltip("class:N"), alt.Tooltip("accuracy:Q", format=".1%")],
            )
        )
        panels.append(
            Panel(chart.properties(**_panel(look, min(300, max(120, 16 * len(classes))))), label, strategy=label)
        )
    every = any(one.experiment.measures.evaluate_every > 1 for _, one in found)
    note = f"Empty is 0 %, full is 100 % of the class's test samples. Seed {found[0][1].seed}."
    note += " A cell reaches back to the test before." if every else ""
    return Figure(
        "class-accuracy",
        "Accuracy of each class",
        note,
        [View("classes", panels)],
        {"class_accuracy": pd.concat(frames, ignore_index=True)},
    )


def participation(story: Story, look: Look) -> Figure | None:
    """Clients per round: available, selected, whose update came, and who entered the model."""
    rounds = [one.rounds for one in story.first]
    varies = any(
        (r["selected"] != r["admitted"]).any() or r["selected"].nunique() > 1 or r["available"].nunique() > 1
        for r in rounds
    )
    if not rounds or not varies:
        return None
    labels = [label for label, _ in story.played]
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    banded = False
    for column, name in (
        ("admitted", "in the model"),
        ("selected", "selected"),
        ("trained", "trained"),
        ("available", "available"),
    ):
        frame = lines.by_round(story.played, lambda one, column=column: one.rounds[column])
        banded = banded or lines.band(frame)
        chart, own = lines.lines(
            f"clients_{column}",
            frame,
            labels,
            look,
            x="round",
            y=f"clients {name}",
            span=[0, max(1.0, 1.05 * float(np.nanmax(frame[["mean", "high"]].to_numpy(np.float64))))],
        )
        views.append(View(name, [Panel(chart)]))
        data |= own
    return Figure("participation", "Clients per round", seeds_note(story, band=banded), views, data)
