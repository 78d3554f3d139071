"""Draw how evenly clients took part over rounds: Jain's index beside uniform chance, and the number of clients per round."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fedcohort.core import random_streams
from fedcohort.core.arrays import Values
from fedcohort.report.chart_style import Look
from fedcohort.report.charts.accuracy import seeds_note
from fedcohort.report.charts.axes_and_legends import by_point
from fedcohort.report.charts.equal_lines import about_equal, shown_together
from fedcohort.report.charts.means_and_bands import SHARES, by_round, domain, has_band, thinned
from fedcohort.report.charts.strategy_lines import Axes, lines
from fedcohort.report.figure import Figure, Panel, View
from fedcohort.report.report_data import Reading, Story

__all__ = ["fairness", "participation"]

DRAWS = 4_000_000
"""Limit of draws × rounds × clients of the simulation that gives the band of uniform chance."""


def fairness(story: Story, look: Look) -> Figure | None:
    """Jain's index of all selections so far, over rounds, beside uniform chance."""
    if not story.first:
        return None
    labels = [label for label, _ in story.played]
    frame = by_round(story.played, _jain, SHARES)
    chance, about = _chance_of_points(story, look)
    several = len(about) > 1
    span = domain(frame["mean"], chance.get("mean", []), floor=0.0, ceiling=1.0)
    chart, data = lines("jain", frame, labels, look, Axes("round", "Jain's index", span), reference=len(chance) > 0)
    data |= {"jain_reference": chance} if len(chance) else {}
    note = (
        f"Jain's index of how often each client was selected so far; 1 is even.{'' if several or not about else f' {about[0]}'} "
        f"{seeds_note(story, band=has_band(frame))}"
    )
    return Figure(
        "jain",
        "Jain's index over rounds",
        note,
        [View("jain", [Panel(chart)])],
        data,
        at_points=about if several else (),
    )


def _chance_of_points(story: Story, look: Look) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Jain's index under uniform chance, a curve for each point of a sweep, and a sentence about it for each point of the page.

    Points differ in the number of clients and in how many are selected, so that each has its own curve. The page shows the one of the
    chosen point; in papers, which show all points in one chart, there is a curve only if it is the same for all of them.
    """
    kinds = _kinds(story)
    distinct = set(kinds.values())
    if not look.page and len({kind[:2] for kind in distinct}) > 1:
        return pd.DataFrame(), ()
    curves = {kind: _jain_chance(*kind) for kind in distinct}
    frames = [curves[kind].assign(strategy=label) for label, kind in kinds.items()]
    chance = pd.concat(frames if look.page else frames[:1], ignore_index=True)
    points = by_point(story, look)
    of_points = [[kind] for kind in kinds.values()] if len(points) > 1 else [list(kinds.values())]
    return chance, tuple(_about_chance(readings, own, curves) for readings, own in zip(points, of_points, strict=True))


Kind = tuple[int, int, int]
"""Number of clients, how many of them are selected in a round, and number of rounds."""


def _about_chance(readings: Sequence[Reading], kinds: Sequence[Kind], curves: Mapping[Kind, pd.DataFrame]) -> str:
    """What the gray curves of some runs are."""
    banded = any(np.isfinite(curves[kind]["low"]).any() for kind in kinds)
    band = " with the band that contains 90% of runs" if banded else ""
    several = len({reading.per_round for reading in readings}) > len({k for _, k, _ in kinds})
    each = ", for as many clients a round as the reference selects" if several else ""
    return f"Gray: mean of uniform chance{band}{each}."


def _kinds(story: Story) -> "dict[str, Kind]":
    """For the reference of each point of a sweep, by its label: number of clients, how many it selects, and number of rounds."""
    kinds = {}
    for group in story.comparison.groups if story.comparison is not None else []:
        label, readings = story.played[group.reference]
        rounds = max(reading.num_rounds for i in group.rows for reading in story.played[i][1])
        kinds[label] = readings[0].num_clients, readings[0].per_round, rounds
    return kinds


def _jain(reading: Reading) -> Values:
    counts = np.cumsum(reading.selected, axis=0, dtype=np.float64)
    total, squares = counts.sum(axis=1), (counts**2).sum(axis=1)
    index: Values = np.divide(total**2, reading.num_clients * squares, out=np.ones(len(total)), where=squares > 0)
    return index


def _jain_chance(m: int, k: int, n: int) -> pd.DataFrame:
    """Mean and 5% to 95% quantiles of Jain's index after each of n rounds, if k of m clients are selected uniformly.

    If a simulation would take too long, only the mean is given: 1/(1 + (m − k)/(kt)) after t rounds.
    """
    k, t = min(k, m), np.arange(1.0, n + 1)
    mean = 1 / (1 + (m - k) / (k * t))
    low, high = np.full(n, np.nan), np.full(n, np.nan)
    draws = min(400, DRAWS // (n * m))
    if k < m and draws >= 100:
        rng = random_streams.rng(0, "report-jain")
        counts, rows = np.zeros((draws, m)), np.arange(draws)[:, None]
        for i in range(n):
            counts[rows, np.argpartition(rng.random((draws, m)), k, axis=1)[:, :k]] += 1
            index = (k * (i + 1.0)) ** 2 / (m * (counts**2).sum(axis=1))
            low[i], high[i] = np.quantile(index, [0.05, 0.95]).tolist()
            mean[i] = index.mean()
    return thinned(pd.DataFrame({"x": t, "mean": mean, "low": low, "high": high}))


def participation(story: Story, look: Look) -> Figure | None:
    """Number of clients per round: admitted, selected, trained and available; None if the numbers never differ."""
    if not any(_varies(reading.rounds) for reading in story.first):
        return None
    labels = [label for label, _ in story.played]
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    banded = False
    for column in ("admitted", "selected", "trained", "available"):
        frame = by_round(story.played, lambda reading, column=column: reading.rounds[column])  # type: ignore[misc]
        banded = banded or has_band(frame)
        highest = float(np.nanmax(frame[["mean", "high"]].to_numpy(np.float64)))
        axes = Axes("round", f"{column} clients", [0, max(1.0, 1.05 * highest)], whole=True)
        chart, own = lines(f"clients_{column}", frame, labels, look, axes)
        views.append(View(column, [Panel(chart)], about_equal(frame, shown_together(story, look))))
        data |= own
    return Figure("participation", "Clients per round", seeds_note(story, band=banded), views, data)


def _varies(rounds: pd.DataFrame) -> bool:
    """Whether the number of clients differs between rounds, or some selected clients were not admitted."""
    not_admitted = bool((rounds["selected"] != rounds["admitted"]).any())
    return not_admitted or rounds["selected"].nunique() > 1 or rounds["available"].nunique() > 1
