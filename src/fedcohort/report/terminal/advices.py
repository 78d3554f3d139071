"""Print advice on a federation: its twin, their likeness, the race, and the costs."""

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from fedcohort.core.words.formatted_values import count, counted, number, share, size
from fedcohort.racing.likeness import NOT_GIVEN, range_in_words
from fedcohort.report.terminal.layout import WIDE, Column, about_hidden, dimmed, fitting_table, label_width
from fedcohort.report.terminal.races import race_details

if TYPE_CHECKING:
    from fedcohort.racing.advice import Advice

__all__ = ["advice"]


def advice(made: "Advice", width: int = WIDE) -> Group:
    """The recommendation, the twin and its likeness, the race, the cost of a round, and what a race on a twin cannot know."""
    twin, experiment = made.twin, made.twin.experiment
    head = [Text(f"Advice for {count(len(twin.table))} clients: {twin.table.name}", style="bold"), Text()]
    if made.recommendation:
        head += [Text(f"{made.recommendation} This is the result on a twin of your federation."), Text()]
    about = (
        f"Twin, a federation like yours on public data: {counted(experiment.federation.clients, 'client')} on "
        f"{twin.data}, {experiment.selection.k} selected in each of "
        f"{counted(experiment.rounds, 'round')}, model {experiment.model.name!r}. {' '.join(twin.notes)}"
    )
    parts: list[RenderableType] = [
        *head,
        Text(about),
        Text(),
        _likeness(made, width),
        Text(),
        Text(made.about_likeness),
    ]
    if made.race is not None:
        parts += [
            Text(),
            *race_details(made.race, width),
            Text(),
            Text("Cost of a round", style="bold"),
            Text(),
            _costs(made, width),
        ]
    parts += [Text(), Text("What this cannot know", style="bold"), *[Text(f"• {one}") for one in made.unknown]]
    return Group(*parts, *dimmed(*_notes(made)))


def _likeness(made: "Advice", width: int) -> Group:
    """The table of traits."""
    traits = made.likeness
    columns = [
        Column("", [Text(trait.name, style="bold") for trait in traits], left=True, widest=13),
        Column(
            "yours:\nsmallest ·\nmedian ·\nlargest",
            [range_in_words(trait.yours) for trait in traits],
            left=True,
            widest=10,
        ),
        Column(
            "twin:\nsmallest ·\nmedian ·\nlargest",
            [range_in_words(trait.twin) for trait in traits],
            left=True,
            widest=10,
        ),
        Column("mean\ndifference", [share(trait.difference, 1) for trait in traits]),
        Column("largest\ndifference", [share(trait.largest, 1) for trait in traits], 1),
        Column("", [trait.state for trait in traits], left=True),
    ]
    table, hidden = fitting_table(columns, width)
    return Group(table, *dimmed(about_hidden(hidden)))


def _costs(made: "Advice", width: int) -> Group:
    """The table of costs."""
    costs = made.costs
    columns = [
        Column("strategy", [Text(cost.label, style="bold") for cost in costs], left=True, widest=label_width(width)),
        Column("selected", [number(cost.selected, 3) for cost in costs], 2),
        Column("sent and\nreceived", [size(cost.bytes) for cost in costs]),
        Column("in models", [number(cost.models, 3) for cost in costs], 1),
        Column("client\npasses", [number(cost.client_passes, 3) for cost in costs]),
        Column(
            "seconds" if made.twin.table.seconds is not None else "simulated\ntime",
            [number(c.simulated_time, 3) for c in costs],
        ),
        Column("numbers\ndisclosed", [number(cost.disclosed, 3) for cost in costs], 3),
    ]
    table, hidden = fitting_table(columns, width)
    return Group(table, *dimmed(about_hidden(hidden)))


def _notes(made: "Advice") -> list[str]:
    """What the tables show."""
    likeness = (
        "Likeness: each client beside its twin, under the first seed; matched: mean difference of at most 5%, "
        "roughly: at most 15%. Samples are compared as shares of all samples. Class skew is the total variation distance of a "
        "client's classes to those of all clients; its difference is that of a client's classes to those of its twin."
    )
    notes = [likeness]
    if made.twin.stands_for:
        pairs = ", ".join(f"{theirs} for {yours}" for yours, theirs in list(made.twin.stands_for.items())[:12])
        more = len(made.twin.stands_for) - 12
        notes.append(
            f"Classes of {made.twin.data} that stand for yours: {pairs}{f' and {more} more' if more > 0 else ''}."
        )
    if any(trait.name == "availability" and trait.state != NOT_GIVEN for trait in made.likeness):
        notes.append(
            "Availability of the twin: the share of rounds in which a client was available, which varies by chance."
        )
    if made.costs:
        notes.append("Disclosed: numbers that clients send besides their updates, over all clients.")
    return notes
