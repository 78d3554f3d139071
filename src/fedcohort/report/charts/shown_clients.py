"""Describe the clients of a federation for charts, and choose those that are drawn."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.core.words import formatted_values
from fedcohort.federation.data.array_checks import brief
from fedcohort.federation.data.numeric_labels import readable
from fedcohort.record import Portrait
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.shortened_names import short

__all__ = [
    "CLASS_LABEL",
    "SAMPLE",
    "SHOWN",
    "Clients",
    "axis_title",
    "client_axis",
    "client_tooltips",
    "drawn_clients",
    "evenly",
    "name_labels",
    "names_for_charts",
    "paper_height",
    "sample_note",
    "short_classes",
    "shown",
    "with_names",
]

SHOWN = 100
"""In federations of up to this many clients, charts show every client."""

NUMBERED = 30
"""Charts of classes order up to this many clients by number, and more by their largest class."""

SAMPLE = 60
"""In larger federations, charts with a column of classes for each client show this many clients."""

CLASS, RANGE = 16, 20
"""Largest number of characters of the name of a class, and of a range of numbers such as "105,000 to 119,300"."""


@dataclass(frozen=True)
class Clients:
    """What is known about the clients.

    Attributes:
        seed: seed of the federation; each seed gives a different federation.
        classes: names of the classes, shortened for charts.
        facts: arrays by name, as in :class:`fedcohort.record.round_rows.Portrait`.
        whole: whether all clients are known, and not only those that were selected.
        deadline: simulated time after which the server stops waiting; None if it waits for all clients.
        with_held_out: whether samples and counts include those that clients hold out, which a run's record leaves out.
        names: the clients' names in the data, by number; empty if the data do not name them.
        ranges: whether labels are numbers, so that the classes are ranges of them.
    """

    seed: int
    classes: list[str]
    facts: dict[str, np.ndarray]
    whole: bool = True
    deadline: float | None = None
    with_held_out: bool = False
    names: tuple[str, ...] = ()
    ranges: bool = False

    @staticmethod
    def of(portrait: Portrait, seed: int, deadline: float | None = None, ranges: bool = False) -> "Clients | None":
        """The clients that a run recorded; None if it recorded none."""
        if not portrait.facts:
            return None
        classes = short_classes(portrait.classes, ranges)
        return Clients(seed, classes, dict(portrait.facts), deadline=deadline, names=portrait.names, ranges=ranges)

    @property
    def about_ranges(self) -> str:
        """What the classes are if labels are numbers, as a sentence after a space; "" otherwise."""
        same = "with about as many training samples as the others"
        return f" Labels are numbers: each class here is a range of them, {same}." if self.ranges else ""

    @property
    def number(self) -> int:
        """Number of clients, m."""
        return len(self.facts["samples"])


def short_classes(names: Sequence[str], ranges: bool = False) -> list[str]:
    """The names of classes as charts have them, or of ranges of numbers.

    Args:
        names: the names in the data.
        ranges: whether labels are numbers, so that the classes are ranges of them.
    """
    return short(readable(names), RANGE) if ranges else short(names, CLASS)


def shown(clients: Clients) -> Indices:
    """The clients that charts of single clients show, int64: all, or a sample spread evenly over the clients ordered by size.

    Nothing is averaged over clients: a mean over several clients would be less skewed than any of them.
    """
    if clients.number <= SHOWN:
        return np.arange(clients.number)
    return evenly(np.argsort(clients.facts["samples"], kind="stable"), SAMPLE)


def drawn_clients(clients: Clients) -> Indices:
    """The clients of :func:`shown` as charts with many columns order them, int64: by number if they are few, else by largest class.

    Within a class, the clients with the largest share of it come first.
    """
    drawn, counts = shown(clients), clients.facts.get("counts")
    if counts is None or len(drawn) <= NUMBERED:
        return drawn
    largest, share = counts.argmax(axis=1), counts.max(axis=1) / np.maximum(counts.sum(axis=1), 1)
    ordered: Indices = drawn[np.lexsort((-share[drawn], largest[drawn]))]
    return ordered


def evenly(order: Indices, most: int) -> Indices:
    """At most ``most`` of the ordered clients, at even intervals, with the first and the last."""
    positions = np.linspace(0, len(order) - 1, min(len(order), most)).round().astype(np.int64)
    chosen: Indices = order[positions]
    return chosen


def sample_note(clients: Clients, drawn: Indices) -> str:
    """A sentence about which clients are drawn; empty if all are."""
    if len(drawn) == clients.number:
        return ""
    return (
        f" The chart shows {len(drawn)} of {formatted_values.count(clients.number)} clients, taken at even intervals in order of "
        "size, with the smallest and the largest."
    )


def client_axis(labels: Sequence[str], look: Look, title: str = "client", *, names: Sequence[str]) -> alt.X:
    """The x axis of charts with a column for each client; it labels as many clients as there is room for.

    Clients are labeled with their numbers, or with their ``names`` by number if they have some.
    """
    step = max(1, -(-len(labels) // (30 if look.page else 15)))
    axis = alt.Axis(
        values=list(labels)[::step],
        labelAngle=0 if max(map(len, names or labels)) <= 3 else -90,
        **name_labels(names),
        labelOverlap="parity",  # "greedy" leaves labels at uneven distances, and so does moving the first and the last one inwards
        labelFlush=False,
        labelSeparation=3,
    )
    return alt.X("client:N", sort=list(labels), title=title, axis=axis)


LONGEST_LABEL = 150
"""Length of the longest name of a client on the page, in pixels: the end of a shortened name, which a second cut would leave out, can
be all that tells it from another one."""

CLASS_LABEL = 120
"""Length of the longest name of a class on the page, in pixels."""


def names_for_charts(names: Sequence[str]) -> list[str]:
    """The names of clients as charts show them, shortened; none if there are more than :data:`SHOWN`, which would enlarge the page."""
    return [brief(name, 24) for name in names] if len(names) <= SHOWN else []


def called(number: str, names: Sequence[str]) -> str:
    """A Vega expression for the name of the client whose number is the expression ``number``."""
    return f"{json.dumps(list(names))}[{number}]"


def name_labels(names: Sequence[str]) -> dict[str, Any]:
    """Settings of an axis of client numbers that show the clients' names; none without names.

    Clients without a name keep their number.
    """
    if not names:
        return {}
    return {"labelExpr": f"{called('datum.value', names)} || datum.value", "labelLimit": LONGEST_LABEL}


def with_names(chart: alt.Chart, names: Sequence[str]) -> alt.Chart:
    """A chart whose data have a field ``name`` beside ``client``, for :func:`client_tooltips`; the same chart without names."""
    return chart.transform_calculate(name=called("datum.client", names)) if names else chart


def client_tooltips(names: Sequence[str], kind: str = "N") -> list[alt.Tooltip]:
    """The number of a client in the tooltip of a mark, and its name if clients have names."""
    return [alt.Tooltip(f"client:{kind}"), *([alt.Tooltip("name:N")] if names else [])]


def axis_title(clients: Clients) -> str:
    """Title of the axis of charts that draw the clients of :func:`drawn_clients`."""
    if clients.number <= NUMBERED or "counts" not in clients.facts:
        return "client" if clients.number <= SHOWN else "single clients, ordered by size"
    return f"{'clients' if clients.number <= SHOWN else 'single clients'}, ordered by largest class"


def paper_height(height: float) -> int:
    """Height in a paper of a chart that is ``height`` points high on the page."""
    return round(height * 0.45)
