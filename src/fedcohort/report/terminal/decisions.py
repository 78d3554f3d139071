"""Print the explanation of a round's selection."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from fedcohort.core.words.formatted_values import count, counted, number, size, weight_percent
from fedcohort.core.words.report_names import disclosed, exchange_in_words
from fedcohort.federation.data.array_checks import brief
from fedcohort.report.notes.cost_notes import PASSES
from fedcohort.report.terminal.decision_notes import TRAINING_SCORE, about_columns, about_messages, beside_terms
from fedcohort.report.terminal.federations import SHOWN_CLIENTS
from fedcohort.report.terminal.layout import WIDE, Column, about_hidden, dimmed, fitting_table

if TYPE_CHECKING:
    from fedcohort.study.decisions.explain_decision import Candidate, Explanation

__all__ = ["explanation"]

NOT_SELECTED = 10
"""Number of candidates that were not selected among those listed, if so many clients were selected that not all can be listed."""


def explanation(decision: "Explanation", width: int = WIDE) -> Group:
    """One decision: in words, its candidates, and the exchanges with clients."""
    shown = _shown(decision)
    terms = list(dict.fromkeys(name for candidate in shown for name in candidate.terms))
    reports = _reports([candidate.outcome for candidate in shown])
    heads = {"num_samples": "samples", "duration": "time", "weight": "weight %"}
    heads |= {"accuracy": TRAINING_SCORE} if decision.labels == "numbers" else {}
    heads = {name: beside_terms(heads.get(name, name), terms) for name in reports}
    columns = [
        Column("client", [str(candidate.client) for candidate in shown]),
        *_names(shown),
        Column("selected", ["yes" if candidate.selected else "–" for candidate in shown]),
        Column("score", [_score(candidate) for candidate in shown]),
        *(
            Column(
                name,
                [_term(candidate, name) for candidate in shown],
                50 - i,
            )
            for i, name in enumerate(terms)
        ),
        Column("outcome", [candidate.status or "–" for candidate in shown], 60, left=True),
        *(
            Column(
                heads[name],
                [
                    weight_percent(candidate.outcome.get(name, math.nan))
                    if name == "weight"
                    else number(candidate.outcome.get(name, math.nan))
                    for candidate in shown
                ],
                30 - i,
            )
            for i, name in enumerate(reports)
        ),
    ]
    parts: list[RenderableType] = [
        Text.assemble((decision.label, "bold"), f": round {decision.round:,} of {decision.rounds:,}"),
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
        exchanges, hidden_costs = fitting_table(_exchanges(decision, width), width)
        parts += [exchanges, ""]
        hidden = [*hidden, *hidden_costs]
    return Group(
        *parts,
        *dimmed(
            _about_untried(shown, random=decision.random),
            _about_others(decision, shown),
            about_columns(decision, _explained(columns, hidden)),
            about_messages(decision),
            PASSES if decision.asked and "passes" not in hidden else "",
            about_hidden(hidden),
        ),
    )


def _names(shown: "Sequence[Candidate]") -> list[Column]:
    """A column with the names of the candidates; none if the data do not name them."""
    if not any(candidate.name for candidate in shown):
        return []
    return [Column("name", [brief(candidate.name, 24) for candidate in shown], 70, left=True)]


def _shown(decision: "Explanation") -> "list[Candidate]":
    """The candidates that are listed; beside many selected ones, there are some that were not selected."""
    if decision.client is not None:
        return [candidate for candidate in decision.candidates if candidate.client == decision.client]
    selected = [candidate for candidate in decision.candidates if candidate.selected]
    others = [candidate for candidate in decision.candidates if not candidate.selected]
    first = selected[: SHOWN_CLIENTS - min(len(others), NOT_SELECTED)]
    return [*first, *others[: SHOWN_CLIENTS - len(first)]]


def _explained(columns: Sequence[Column], hidden: Sequence[str]) -> list[str]:
    """The headings of columns that are shown and have a value in some row."""
    filled = [column.heading for column in columns if any(str(cell) not in ("–", "") for cell in column.cells)]
    return [heading for heading in filled if heading not in hidden]


def _about_others(decision: "Explanation", shown: "Sequence[Candidate]") -> str:
    """How many candidates are not listed; empty if all are, or if the explanation is about one client."""
    more = len(decision.candidates) - len(shown)
    if decision.client is not None or not more:
        return ""
    selected = sum(each.selected for each in decision.candidates) - sum(each.selected for each in shown)
    of_them = f", {count(selected)} of them selected," if selected else ""
    verb = "is" if more == 1 else "are"
    return f"{counted(more, 'more candidate')}{of_them} {verb} in the output of --json."


def _score(candidate: "Candidate") -> str:
    return "untried" if candidate.untried else number(candidate.score)


def _about_untried(shown: "Sequence[Candidate]", *, random: bool) -> str:
    """A note on clients that were never selected; empty if there are none."""
    if not any(candidate.untried for candidate in shown):
        return ""
    if random:
        return (
            "Untried: the client was never selected before; its score is only a very large number. In this round, clients were "
            "selected at random, whatever their scores."
        )
    return "Untried: the client was never selected before, and comes first; its score is only a very large number."


def _term(candidate: "Candidate", name: str) -> str:
    """A term of a score; the bonus of an untried client says nothing."""
    return "–" if candidate.untried and name == "bonus" else number(candidate.terms.get(name, math.nan))


def _exchanges(decision: "Explanation", width: int) -> list[Column]:
    """The exchanges with clients; names and texts wrap, so that the costs fit beside them."""
    return [
        Column(
            "exchange",
            [exchange_in_words(exchange.kind) for exchange in decision.asked],
            left=True,
            widest=max(16, width // 4),
        ),
        Column("messages", [count(exchange.messages) for exchange in decision.asked]),
        Column("down", [size(exchange.bytes_down) for exchange in decision.asked], 2),
        Column("up", [size(exchange.bytes_up) for exchange in decision.asked], 3),
        Column("passes", [count(exchange.passes, 1) for exchange in decision.asked], 1),
        Column(
            "what a client discloses",
            [", ".join(disclosed(exchange.discloses)) or "–" for exchange in decision.asked],
            left=True,
            widest=max(20, width // 3),
        ),
    ]


def _reports(outcomes: Sequence[Mapping[str, float]]) -> list[str]:
    """The names of what happened to clients; a coefficient only if it is not the weight."""
    same = all(math.isclose(each.get("coefficient", 0.0), each.get("weight", 0.0)) for each in outcomes)
    return [
        name
        for name in dict.fromkeys(name for each in outcomes for name in each)
        if not (same and name == "coefficient")
    ]
