"""Print the diagnosis of a run's decisions."""

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from fedcohort.core.formatted_values import count, percent, share
from fedcohort.core.score_style import score_style
from fedcohort.report.terminal.layout import Column, dimmed, plain_table

if TYPE_CHECKING:
    from fedcohort.study.diagnose_run import Diagnosis

__all__ = ["diagnosis"]


def diagnosis(found: "Diagnosis") -> Group:
    """The shares and the correlations of a run, and notes on how to read them."""
    score = score_style([found.labels])
    names = {"accuracy": "score"} if score.numeric else {}
    parts: list[RenderableType] = [
        Text.assemble((found.label, "bold"), f", seed {found.seed}: {count(found.rounds)} rounds"),
        "",
    ]
    if found.scored_rounds:
        parts.append(
            Text(
                f"In {count(found.scored_rounds)} rounds with scores, {share(found.greedy)} of the selected clients have the highest "
                f"scores; uniform selection would give {share(found.chance)}. Exploration: {share(found.exploration)}."
            )
        )
    else:
        parts.append(Text("The strategy gives no scores that choose between clients."))
    parts.append(Text(f"Clients that were selected for the first time: {share(found.new)} of all selections."))
    if found.correlations:
        columns = [
            Column("outcome", [names.get(each.outcome, each.outcome) for each in found.correlations], left=True),
            Column(
                "rank correlation\nwith the score, %",
                [percent(each.rank_correlation, 0) for each in found.correlations],
            ),
            Column("rounds", [count(each.rounds) for each in found.correlations]),
        ]
        parts += ["", plain_table(columns)]
    notes = dimmed(
        "Rank correlation (Spearman): 100 means that higher scores always go with higher outcomes, 0 no relation, −100 the opposite. "
        "It is the mean over rounds, among the selected clients. Only selected clients have outcomes, so that a strategy that selects "
        "by score shows less than the whole relation.",
        f"Gain: change of the test {score.name} in the round, compared with the mean score of the selected clients, over all rounds.",
    )
    return Group(*parts, "", *notes)
