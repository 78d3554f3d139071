"""Print the explanation of a round's selection."""

import math
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

if TYPE_CHECKING:
    from fedcohort.study.why import Explanation
from fedcohort.core.words import count, number, percent, size
from fedcohort.report.terminal.federations import SHOWN_CLIENTS
from fedcohort.report.terminal.tables import WIDE, Column, about_hidden, dimmed, fitting_table

__all__ = ["explanation"]


def explanation(decision: "Explanation", width: int = WIDE) -> Group:
    """One decision: in words, its candidates, and the exchanges with clients."""
    shown = [one for one in decision.candidates if decision.client in (None, one.client)][:SHOWN_CLIENTS]
    terms = list(dict.fromkeys(name for one in shown for name in one.terms))
    reports = list(dict.fromkeys(name for one in shown for name in one.outcome))
    heads = {"num_samples": "samples", "duration": "time", "weight": "weight %"}
    columns = [
        Column("client", [str(one.client) for one in shown]),
        Column("selected", ["yes" if one.selected else "–" for one in shown]),
        Column("score", [number(one.score) for one in shown]),
        *(
            Column(name, [number(one.terms.get(name, math.nan)) for one in shown], 50 - i)
            for i, name in enumerate(terms)
        ),
        Column("outcome", [one.status for one in shown], 60, left=True),
        *(
            Column(
                heads.get(name, name),
                [
                    percent(one.outcome.get(name, math.nan))
                    if name == "weight"
                    else number(one.outcome.get(name, math.nan))
                    for one in shown
                ],
                30 - i,
            )
            for i, name in enumerate(reports)
        ),
    ]
    parts: list[RenderableType] = [
        Text.assemble((decision.label, "bold"), f": round {decision.round} of {decision.rounds}"),
        Text(decision.strategy, style="dim"),
        "",
        *map(Text, decision.words()),
        "",
    ]
    hidden: list[str] = []
    if shown:
        table, hidden = fitting_table(columns, width)
        parts += [table, ""]
    if decision.asked:
        parts += [fitting_table(_exchanges(decision), width)[0], ""]
    more = len(decision.candidates) - len(shown) if decision.client is None else 0
    return Group(
        *parts,
        *dimmed(f"{count(more)} more candidates are in the output of --json." if more else "", about_hidden(hidden)),
    )


def _exchanges(decision: "Explanation") -> list[Column]:
    return [
        Column("exchange", [one.kind for one in decision.asked], left=True),
        Column("messages", [count(one.messages) for one in decision.asked]),
        Column("down", [size(one.bytes_down) for one in decision.asked], 2),
        Column("up", [size(one.bytes_up) for one in decision.asked], 3),
        Column("passes", [count(one.passes, 1) for one in decision.asked], 1),
        Column("what a client discloses", [one.discloses for one in decision.asked], left=True, widest=60),
    ]
