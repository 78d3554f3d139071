"""Draw how evenly clients took part over rounds: Jain's index beside uniform chance, and the number of clients per round."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedcohort.report.charts.accuracy import seeds_note
from fedcohort.report.charts.averaged_points import about_points
from fedcohort.report.charts.axes_and_legends import as_drawn, by_point
from fedcohort.report.charts.equal_lines import about_equal, shown_together
from fedcohort.report.charts.full_names import names_by_label
from fedcohort.report.charts.means_and_bands import SHARES, by_round, domain, has_band, thinned
from fedcohort.report.charts.strategy_lines import Axes, lines
from fedcohort.report.data.report_data import Reading, Story
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.figure import Figure, Panel, View
from fedcohort.study.chance import about_chance

__all__ = ["fairness", "participation"]

NUMBERS = (0.0, np.inf)
"""Limits of numbers of clients."""


def fairness(story: Story, look: Look) -> Figure | None:
    """Jain's index of all selections so far, over rounds, beside uniform chance; None if no client was selected in any round."""
    labels = [label for label, _ in story.played]
    frame = by_round(story.played, lambda reading: reading.selected.jain(), SHARES)
    if not story.first or frame.empty:
        return None
    chance, about = _chance_of_points(story, look)
    several = len(about) > 1
    drawn = as_drawn(frame, labels, look)
    values = [curves[column] for curves in (drawn, chance) if len(curves) for column in ("mean", "low", "high")]
    span = domain(*values, floor=0.0, ceiling=1.0)
    axes = Axes("round", "Jain's index", span, linear=True)
    chart, data = lines("jain", frame, labels, look, axes, reference=len(chance) > 0)
    data |= {"jain_reference": chance} if len(chance) else {}
    note = (
        f"Jain's index of how often each client was selected so far; 1 is even.{'' if several or not about else f' {about[0]}'} "
        f"{seeds_note(story, band=has_band(frame))}"
    )
    return Figure(
        "jain",
        "Jain's index over rounds",
        note,
        [View("jain", [Panel(chart)], _about_lines(story, frame, look))],
        data,
        at_points=about if several else (),
    )


def _about_lines(story: Story, frame: pd.DataFrame, look: Look) -> str:
    """Sentences about the points of the lines, and about lines that lie on each other."""
    equal = about_equal(frame, shown_together(story, look))
    return f"{about_points(frame, names_by_label(story))} {equal}".strip()


def _chance_of_points(story: Story, look: Look) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Jain's index under uniform chance, a curve for each point of a sweep, and a sentence about it for each point of the page.

    Points differ in the number of clients, in which of them are available, and in how many are selected, so that each has its own
    curve. The page shows the one of the chosen point; in papers, which show all points in one chart, there is a curve only if it is
    the same for all of them.
    """
    references = _references(story)
    curves = {label: _jain_chance(readings) for label, readings in references.items()}
    first, *others = curves.values() or [pd.DataFrame()]
    if not look.page and not all(first.equals(other) for other in others):
        return pd.DataFrame(), ()
    frames = [curve.assign(strategy=label) for label, curve in curves.items()]
    chance = pd.concat(frames if look.page else frames[:1], ignore_index=True)
    points = by_point(story, look)
    of_points = [[own] for own in references.values()] if len(points) > 1 else [list(references.values())]
    return chance, tuple(_about_chance(readings, own) for readings, own in zip(points, of_points, strict=True))


def _about_chance(readings: Sequence[Reading], references: Sequence[Sequence[Reading]]) -> str:
    """What the gray curves beside some runs are, which are those of references."""
    several = len({_per_round(reading) for reading in readings}) > len({_per_round(own[0]) for own in references})
    each = ", for as many clients a round as the reference selects" if several else ""
    among = about_chance(reading.chance for own in references for reading in own)
    among += "," if among else ""
    return (
        f"Thin dotted line in a gray band: mean of uniform chance{among} with the band that contains 90% of runs{each}."
    )


def _per_round(reading: Reading) -> int:
    """Mean number of selected clients in a round, rounded."""
    return round(float(reading.rounds["selected"].mean()))


def _references(story: Story) -> dict[str, list[Reading]]:
    """The runs of the reference of each point of a sweep, by its label."""
    groups = story.comparison.groups if story.comparison is not None else []
    return dict(story.played[group.reference] for group in groups)


def _jain_chance(readings: Sequence[Reading]) -> pd.DataFrame:
    """Mean and 5% to 95% quantiles of Jain's index under uniform chance after each round, from the first selection on: means over the
    seeds of a row."""
    longest = max(reading.num_rounds for reading in readings)
    paths = np.full((len(readings), longest, 4), np.nan)
    for path, reading in zip(paths, readings, strict=True):
        begun = reading.rounds["selected"].to_numpy(np.int64).cumsum() > 0
        path[: reading.num_rounds][begun] = reading.chance.uniform.jain[begun]
    known = np.isfinite(paths[:, :, 0]).any(axis=0)
    mean, low, _, high = np.nanmean(paths[:, known], axis=0).T
    return thinned(pd.DataFrame({"x": np.arange(1.0, longest + 1)[known], "mean": mean, "low": low, "high": high}))


def participation(story: Story, look: Look) -> Figure | None:
    """Number of clients per round: admitted, selected, trained and available; None if the numbers never differ."""
    if not any(_varies(reading.rounds) for reading in story.first):
        return None
    labels = [label for label, _ in story.played]
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    banded = False
    for column in ("admitted", "selected", "trained", "available"):
        frame = by_round(story.played, lambda reading, column=column: reading.rounds[column], NUMBERS)  # type: ignore[misc]
        frame = frame.assign(high=frame["high"].clip(upper=frame["strategy"].map(_most(story, column))))
        banded = banded or has_band(frame)
        highest = float(np.nanmax(frame[["mean", "high"]].to_numpy(np.float64)))
        axes = Axes("round", f"{column} clients", [0, max(1.0, 1.05 * highest)], whole=True)
        chart, own = lines(f"clients_{column}", frame, labels, look, axes)
        views.append(View(column, [Panel(chart)], _about_lines(story, frame, look)))
        data |= own
    return Figure(
        "participation", "Clients per round", f"{seeds_note(story, band=banded)}{_without_data(story)}", views, data
    )


def _most(story: Story, column: str) -> dict[str, int]:
    """For each row, the largest number of clients that a round can have, at which its band ends."""
    return {label: max(_most_in_a_run(reading, column) for reading in readings) for label, readings in story.played}


def _most_in_a_run(reading: Reading, column: str) -> int:
    """All clients can be available, and k be selected, or as many as there were, if the server selects more."""
    if column == "available":
        return reading.num_clients
    selection = reading.experiment.selection
    return max(selection.k, *(k for _, k in selection.k_steps), int(reading.rounds[column].max()))


def _without_data(story: Story) -> str:
    """A sentence about clients without data, with a space before it; empty if all have some."""
    empty = any((reading.portrait.facts.get("samples", np.ones(1)) == 0).any() for reading in story.first)
    return " Clients without data do not count as available: they cannot be selected." if empty else ""


def _varies(rounds: pd.DataFrame) -> bool:
    """Whether the number of clients differs between rounds, or some selected clients were not admitted."""
    not_admitted = bool((rounds["selected"] != rounds["admitted"]).any())
    return not_admitted or rounds["selected"].nunique() > 1 or rounds["available"].nunique() > 1
