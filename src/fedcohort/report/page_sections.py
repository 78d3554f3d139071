"""Arrange the figures of a report: which figures belong to which section, and in which order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcohort.report.chart_style import PAGE, Look
from fedcohort.report.charts import (
    accuracy,
    accuracy_and_cost,
    client_accuracy,
    cost,
    own_measures,
    participation,
    selection_counts,
    selection_raster,
    selection_reasons,
    sweeps,
)
from fedcohort.report.charts.federation import federation
from fedcohort.report.charts.final_accuracy import bars
from fedcohort.report.charts.score_functions import score_functions
from fedcohort.report.charts.shown_clients import Clients
from fedcohort.report.figure import Figure
from fedcohort.report.report_data import Story

__all__ = ["Part", "Section", "figures", "parts", "sections"]


@dataclass(frozen=True)
class Part:
    """Figures of a section under a heading of their own; the title is empty for figures without a heading."""

    title: str
    figures: Sequence[Figure]


@dataclass(frozen=True)
class Section:
    """One section of the report.

    Attributes:
        key: id of the section in the page.
        heading: its heading.
        parts: its figures.
        empty: what the page says if there is nothing to show.
    """

    key: str
    heading: str
    parts: Sequence[Part]
    empty: str = ""


HEADINGS = {
    "result": ("Result", "No round has been played yet."),
    "federation": ("Federation", "The runs have not recorded their clients yet."),
    "participation": ("Participation and fairness", "No round has been played yet."),
    "reasons": (
        "Reasons",
        "None of these strategies scores its candidates: all clients had the same chance, or all clients took part.",
    ),
    "cost": ("Cost", "No round has been played yet."),
    "how": ("Reproduction", ""),
}
"""Heading of each section, and what it says if there is nothing to show."""


def sections(by_section: Mapping[str, Sequence[Part]]) -> list[Section]:
    """All sections of the report, with the figures of :func:`parts`."""
    return [Section(key, heading, by_section.get(key, ()), empty) for key, (heading, empty) in HEADINGS.items()]


def parts(story: Story, look: Look = PAGE) -> dict[str, list[Part]]:
    """All figures of the report by section."""
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):  # the tests check every chart against the schema, so that readers need not wait for it
        return _parts(story, look)


def _parts(story: Story, look: Look) -> dict[str, list[Part]]:
    look = replace(look, rows=story.row_looks)
    return {
        "result": _untitled(
            accuracy.accuracy(story, look),
            accuracy.differences(story, look),
            accuracy_and_cost.accuracy_and_cost(story, look),
            accuracy.loss(story, look),
            own_measures.own_measures(story, look),
            *sweeps.studies(story, look),
        ),
        "federation": _untitled(*_federation(story, look)),
        "participation": _untitled(
            selection_counts.selections(story, look),
            participation.fairness(story, look),
            selection_raster.raster(story, look),
            participation.participation(story, look),
            *client_accuracy.client_accuracy(story, look),
            client_accuracy.class_accuracy(story, look),
        ),
        "reasons": [Part(label, own) for label, own in selection_reasons.reasons(story, look)],
        "cost": _untitled(cost.cost(story, look), cost.wall(story, look)),
    }


def _untitled(*figures: Figure | None) -> list[Part]:
    drawn = [figure for figure in figures if figure is not None]
    return [Part("", drawn)] if drawn else []


def _federation(story: Story, look: Look) -> list[Figure]:
    clients = _clients(story)
    if clients is None:
        return []
    drawn = federation(clients, look)
    return drawn if clients.whole else [figure for figure in drawn if figure.key == "sizes"]


def _clients(story: Story) -> Clients | None:
    """The clients of the first run that recorded them, or else the clients that were selected."""
    for reading in story.everything:
        if reading.portrait.facts:
            return Clients.of(reading.portrait, reading.seed, reading.experiment.systems.deadline)
    for reading in story.first:
        selected = reading.clients[reading.clients["num_samples"] > 0]
        samples = selected.groupby("client")["num_samples"].max()
        if len(samples):
            return Clients(reading.seed, [], {"samples": samples.to_numpy(np.int64)}, whole=False)
    return None


def figures(story: Story, look: Look) -> Iterator[Figure]:
    """All figures in the order of the report, and then those that only papers show."""
    for section in parts(story, look).values():
        for part in section:
            yield from part.figures
    final = bars(story, look)
    if final is not None:
        yield final
    if any(row.experiment.selection.name == "conformal" for row in story.rows):
        yield score_functions(look)
