"""The explanation of a round's selection."""

import math
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

if TYPE_CHECKING:
    from fedcohort.study.why import Explanation
from fedcohort.core.words import count, percent, size
from fedcohort.report.terminal.federations import SHOWN_CLIENTS
from fedcohort.report.terminal.tables import WIDE, Column, about_hidden, dimmed, fitting_table

__all__ = ["explanation"]


def explanation(found: "Explanation", width: int = WIDE) -> Group:
    """One decision: in words, the candidates, and what was asked."""
    from fedcohort.study.why import number

    shown = [one for one in found.candidates if found.client in (None, one.client)][:SHOWN_CLIENTS]
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
        Column("became", [one.status for one in shown], 60, left=True),
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
        Text.assemble((found.label, "bold"), f": round {found.round} of {found.rounds}"),
        Text(found.strategy, style="dim"),
        "",
        *map(Text, found.words()),
        "",
    ]
    hidden: list[str] = []
    if shown:
        table, hidden = fitting_table(columns, width)
        parts += [table, ""]
    if found.asked:
        parts += [fitting_table(_asked(found), width)[0], ""]
    more = len(found.candidates) - len(shown) if found.client is None else 0
    return Group(*parts, *dimmed(f"{more:,} more candidates: --json has them." if more else "", about_hidden(hidden)))


def _asked(found: "Explanation") -> list[Column]:
    return [
        Column("asked", [one.kind for one in found.asked], left=True),
        Column("messages", [count(one.messages) for one in found.asked]),
        Column("down", [size(one.bytes_down) for one in found.asked], 2),
        Column("up", [size(one.bytes_up) for one in found.asked], 3),
        Column("passes", [count(one.passes, 1) for one in found.asked], 1),
        Column("the server learned of each", [one.discloses for one in found.asked], left=True, widest=60),
    ]
