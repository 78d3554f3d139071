"""Draw how well the model serves single clients and single classes."""

from collections.abc import Callable, Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from fedcohort import measures
from fedcohort.core.arrays import Values
from fedcohort.core.words.formatted_values import in_words
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.report.charts.accuracy import seeds_note
from fedcohort.report.charts.averaged_points import about_points
from fedcohort.report.charts.axes_and_legends import (
    as_drawn,
    color,
    hideable,
    number_tooltip,
    of_strategy,
    panel_name,
    round_axis,
    rounds_beside,
    rows_height,
    sized,
    strategy_axis,
    text_tooltip,
    with_texts,
)
from fedcohort.report.charts.equal_lines import about_equal, shown_together
from fedcohort.report.charts.full_names import names_by_label
from fedcohort.report.charts.means_and_bands import by_round, has_band, score_domain
from fedcohort.report.charts.shown_clients import CLASS_LABEL
from fedcohort.report.charts.shown_seeds import about_seeds, beside_name, seeds_of
from fedcohort.report.charts.strategy_lines import Axes, lines
from fedcohort.report.data.report_data import Reading, Story, blocks
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.figure import Drawing, Figure, Panel, View
from fedcohort.report.figures.layers import layered
from fedcohort.report.notes.client_samples import samples_of_clients
from fedcohort.report.notes.seed_notes import listed, over_seeds
from fedcohort.report.notes.worst_clients import about_worst, worst

__all__ = ["class_accuracy", "client_accuracy"]

Rows = Sequence[tuple[str, Sequence[Reading]]]

SINGLE = 400
"""Largest number of single clients, over all strategies and seeds, that are drawn below the quantiles."""

FLAT = 0.005
"""Share of the axis below which the middle half of the clients is an upright line: no bar could be seen."""


def client_accuracy(story: Story, look: Look) -> list[Figure]:
    """Accuracy on clients' own data: worst tenth and mean over rounds, and the distribution at the last measurement."""
    rows = _measured(story)
    labels, score = [label for label, _ in story.played], story.score
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    banded = False
    clients = [reading.clients_with_data for _, readings in rows for reading in readings]
    one = worst(clients) == "worst client"
    for key, name, reduce in (
        ("worst", "worst client" if one else "worst tenth of the clients", measures.worst_accuracy),
        ("mean", "mean of all clients", _mean),
    ):
        frame = by_round(rows, lambda reading, reduce=reduce: _over_clients(reading, reduce), score.limits)  # type: ignore[misc]
        if frame["mean"].isna().all():
            return []
        banded = has_band(frame)
        drawn = as_drawn(frame, labels, look)
        span = score_domain(score, drawn["mean"], drawn["low"], drawn["high"])
        axes = Axes("round", f"{score.of_client}, {name}", span, percent=not score.numeric, linear=True)
        chart, own = lines(f"clients_{key}", frame, labels, look, axes)
        about = f"{about_points(frame, names_by_label(story))} {about_equal(frame, shown_together(story, look))}"
        views.append(View(name, [Panel(chart)], about.strip()))
        data |= own
    samples = samples_of_clients(reading.run for _, readings in rows for reading in readings)
    named = score.of_client.capitalize()
    note = f"{named} of the global model on each client's own {samples}.{about_worst(clients)} {seeds_note(story, band=banded)}"
    over_rounds = Figure("client-accuracy", f"{named} on clients' data over rounds", note, views, data)
    distribution = _distribution(rows, story, look)
    return [over_rounds] if distribution is None else [over_rounds, distribution]


def _measured(story: Story) -> list[tuple[str, list[Reading]]]:
    """The rows with accuracies of clients, and their runs that have them."""
    rows = [
        (label, [reading for reading in readings if len(reading.client_accuracy)]) for label, readings in story.played
    ]
    return [(label, readings) for label, readings in rows if readings]


def _mean(accuracies: Values) -> float:
    return float(np.nanmean(accuracies))


def _over_clients(reading: Reading, reduce: Callable[[Values], float]) -> Values:
    """One number over clients for each round [n]; NaN where the accuracy of clients was not measured."""
    frame = reading.client_accuracy
    values = np.full(reading.num_rounds, np.nan)
    for t, row in zip(frame.index.to_numpy(np.int64), frame.to_numpy(np.float64), strict=True):
        if t <= reading.num_rounds and np.isfinite(row).any():
            values[t - 1] = reduce(row)
    return values


def _distribution(rows: Rows, story: Story, look: Look) -> Figure | None:
    """Quantiles over clients for each strategy, and single clients if there are few; None if no client has a finite score."""
    labels, score = story.in_order, story.score
    measured = pd.concat(
        [_last_measured(label, reading) for label, readings in rows for reading in readings], ignore_index=True
    ).dropna()
    finite = np.isfinite(measured["accuracy"].to_numpy(np.float64))
    frame = measured[finite]
    if frame.empty:
        return None
    levels = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    quantiles = frame.groupby("strategy", sort=False)["accuracy"].quantile(levels).unstack()
    quantiles.columns = pd.Index(["q10", "q25", "q50", "q75", "q90"])
    lowest = min(0.0, float(frame["accuracy"].min())) if score.numeric else 0.0
    span = (lowest, 1.0)
    formats = {str(name): score.with_unit for name in quantiles.columns}
    quantiles["flat"] = quantiles["q75"] - quantiles["q25"] < FLAT * (span[1] - span[0])
    data = {"clients_quantiles": with_texts(quantiles.reset_index(), formats)}
    if len(frame) <= SINGLE:
        data["clients_last"] = with_texts(frame, {"accuracy": score.with_unit})
    chart = sized(
        layered(
            *_distribution_layers(
                labels, look, span, score, single="clients_last" in data, flat=bool(quantiles["flat"].any())
            )
        ),
        look,
        rows_height(40, [label for label, _ in rows], look),
        22 * len(rows),
    )
    note = (
        f"The last measured {score.of_client} of each client. Bar: the middle half of the clients. "
        "Line: 10% to 90% of the clients. Notch: median."
    )
    seeds = sorted({reading.seed for _, readings in rows for reading in readings})
    over = over_seeds(seeds, (len(readings) for _, readings in rows)).removeprefix("over ")
    together = f"The clients of {over} ({listed(seeds)}) are taken together."
    note += " Thick upright line: a bar without a width that can be seen." if quantiles["flat"].any() else ""
    note += " Short lines below: single clients." if "clients_last" in data else ""
    note += f" {together}" if len(seeds) > 1 else f" Seed {seeds[0]}."
    note += _about_diverged(measured["strategy"][~finite].value_counts(sort=False), names_by_label(story))
    return Figure("client-distribution", "Distribution over clients", note, [View("clients", [Panel(chart)])], data)


def _about_diverged(clients: "pd.Series[int]", names: Mapping[str, str]) -> str:
    """Which clients are not drawn, since the model has no finite score for them, in a sentence with a space before it; empty if all
    are.

    Args:
        clients: their numbers by the label of their row.
        names: the full name of each row.
    """
    if clients.empty:
        return ""
    rows = [f"{number:,} of {names.get(str(label), str(label))!r}" for label, number in clients.items()]
    return f" Clients whose score is −∞, because the model diverged, are not drawn: {in_words(rows)}."


def _last_measured(label: str, reading: Reading) -> pd.DataFrame:
    last = reading.client_accuracy.iloc[-1].to_numpy(np.float64)
    return pd.DataFrame({"strategy": label, "client": np.arange(len(last)), "seed": reading.seed, "accuracy": last})


def _distribution_layers(
    labels: list[str], look: Look, span: tuple[float, float], score: ScoreStyle, *, single: bool, flat: bool
) -> list[alt.Chart]:
    y, own_color = strategy_axis(labels, look), color(labels, look, legend=False)
    axis = alt.Axis(format="~g" if score.numeric else ".0%", grid=True, tickCount=5)

    def at(field: str) -> alt.X:
        return alt.X(
            f"{field}:Q", scale=alt.Scale(domain=list(span)), title=f"{score.of_client} on the client's data", axis=axis
        )

    tooltip = [alt.Tooltip("strategy:N"), *(text_tooltip(f"q{q}", f"{q}% quantile") for q in (10, 25, 50, 75, 90))]
    box, thick = hideable(alt.Chart(alt.NamedData(name="clients_quantiles")), look), 12 if look.page else 7
    layers = [
        box.mark_rule(strokeWidth=1.5).encode(at("q10"), y, own_color, x2=alt.X2("q90:Q")),
        box.mark_bar(size=thick).encode(at("q25"), y, own_color, x2=alt.X2("q75:Q"), tooltip=tooltip),
        box.transform_filter("!datum.flat")
        .mark_tick(color=look.ground, thickness=2.5, size=thick)
        .encode(at("q50"), y, tooltip=tooltip),
    ]
    if flat:
        upright = box.transform_filter("datum.flat").mark_tick(thickness=4 if look.page else 2.5, size=thick, opacity=1)
        layers.append(upright.encode(at("q50"), y, own_color, tooltip=tooltip))
    if single:
        clients = hideable(alt.Chart(alt.NamedData(name="clients_last")), look)
        of_client = [alt.Tooltip("strategy:N"), alt.Tooltip("client:O"), alt.Tooltip("seed:O")]
        of_client.append(text_tooltip("accuracy", score.of_client))
        short_lines = clients.mark_tick(thickness=1, size=6, yOffset=13 if look.page else 7)
        layers.append(short_lines.encode(at("accuracy"), y, own_color, tooltip=of_client))
    return layers


def class_accuracy(story: Story, look: Look) -> Figure | None:
    """Test accuracy of each class over rounds: one panel for each strategy."""
    measured = [(label, reading) for label, reading in story.panels if np.isfinite(reading.class_accuracy).any()]
    if not measured:
        return None
    frames, panels = [], []
    for label, reading in measured:
        classes = reading.classes  # rows can have different data
        frames.append(_class_cells(label, reading, classes))
        height = min(300, max(120, 16 * len(classes)))
        chart = sized(_class_chart(label, rounds_beside(story, label), classes, look), look, height)
        title = panel_name(label, look) + beside_name(reading, measured)
        panels.append(Panel(chart, title, strategy=label, seed=reading.seed))
    seldom = any(reading.experiment.measures.evaluate_every > 1 for _, reading in measured)
    note = "Shade: test accuracy of the class; an empty cell is 0%, full color is 100%. "
    note += about_seeds(story, measured, numbers=False)
    note += " A cell covers the rounds since the last test." if seldom else ""
    data = {"class_accuracy": pd.concat(frames, ignore_index=True)}
    views, seeds = [View("classes", panels)], seeds_of(measured)
    return Figure("class-accuracy", "Accuracy of each class", note, views, data, shown_seeds=seeds)


def _class_cells(label: str, reading: Reading, classes: list[str]) -> pd.DataFrame:
    """A row for each block of tested rounds and each class: its accuracy, and ``x`` and ``x2``, the edges of its cell."""
    block = blocks(reading.num_rounds, 100)
    wide, values = int((block == 0).sum()), reading.class_accuracy
    known = np.isfinite(values)
    total = np.zeros((block[-1] + 1, values.shape[1]))
    number = total.copy()
    np.add.at(total, block, np.where(known, values, 0))
    np.add.at(number, block, known)
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
    return frame.assign(x=tested[np.searchsorted(tested, until) - 1], x2=until)


def _class_chart(label: str, rounds: int, classes: list[str], look: Look) -> Drawing:
    y = alt.Y("class:N", sort=classes, title="class", axis=alt.Axis(labelLimit=CLASS_LABEL, labelOverlap=True))
    shade = alt.Opacity("accuracy:Q", scale=alt.Scale(domain=[0, 1], range=[0.03, 1]), legend=None)
    tooltip = [alt.Tooltip("round:Q"), alt.Tooltip("class:N"), number_tooltip("accuracy", "percent")]
    cells = of_strategy("class_accuracy", label).mark_rect(color=look.heat)
    chart: Drawing = cells.encode(round_axis(rounds), y, alt.X2("x2:Q"), opacity=shade, tooltip=tooltip)
    return chart
