"""Print the result of a race."""

import math
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from fedcohort import measures
from fedcohort.core.words.formatted_values import count, percent
from fedcohort.report.terminal.layout import WIDE, Column, about_hidden, dimmed, fitting_table, label_width

if TYPE_CHECKING:
    from fedcohort.racing.objectives import Objective
    from fedcohort.racing.result import Race
    from fedcohort.racing.row_results import RacedRow

__all__ = ["race", "race_details"]


NARROW = 90
"""In terminals with fewer columns, the interval of a difference stands below it, and heads are broken into lines."""


def race(result: "Race", width: int = WIDE) -> Group:
    """The recommendation, the table of the rows, and notes on how to read it."""
    return Group(Text(result.name, style="bold"), "", Text(result.recommendation), "", *race_details(result, width))


def race_details(result: "Race", width: int) -> list[RenderableType]:
    """The table of the rows, and notes on how to read it."""
    rows, single = result.rows, len(result.objectives) == 1
    objective = result.objectives[0]
    differences = [_difference(row, objective) for row in rows]
    joint = "\n" if width < NARROW and single else " "
    if width < NARROW:
        differences = [difference.replace(" [", "\n[") for difference in differences]
    columns = [
        Column("strategy", [Text(row.label, style="bold") for row in rows], left=True, widest=label_width(width)),
        Column("seeds", [str(row.seeds) for row in rows], 3),
        *(
            Column(f"mean{joint}{each.heading}".replace("@", "\n@"), [_mean(row, each, i) for row in rows])
            for i, each in enumerate(result.objectives)
        ),
        *([Column("difference\n[any time]", differences, 4)] if single else []),
        Column("state", [row.words for row in rows], left=True, widest=max(24, width // 4) if width >= NARROW else 16),
        *(
            [Column("reached", [f"{row.reached}/{row.seeds}" for row in rows], 2)]
            if any(each.about_target for each in result.objectives)
            else []
        ),
    ]
    table, hidden = fitting_table(columns, width)
    notes = [
        result.about_confidence,
        _about_objectives(result, shown="difference [any time]" not in hidden),
        result.about_limits,
        result.about_equal_rows,
        result.about_cost,
        _about_skipped(result),
        about_hidden(hidden),
    ]
    return [table, "", *dimmed(*notes)]


def _mean(row: "RacedRow", objective: "Objective", number: int) -> str:
    """The mean of an objective, with its standard deviation if it is an accuracy."""
    if objective.is_cost:
        return objective.shown(row.means[number])
    return objective.style.spread(*measures.mean_sd(row.scores[number]))


def _difference(row: "RacedRow", objective: "Objective") -> str:
    """The difference to the recommended row and its interval; – if the interval has no end yet."""
    if row.difference != row.difference:
        return "–"
    return f"{objective.shown_difference(row.difference)} {_interval(row, objective)}"


def _interval(row: "RacedRow", objective: "Objective") -> str:
    """The interval of a difference, as the table shows it."""
    low, high = row.low, row.high
    if objective.is_cost:
        low, high = high, low  # less cost is a higher score
    return f"[{', '.join(objective.shown_difference(end).rstrip('%') for end in (low, high))}]"


def _about_objectives(result: "Race", *, shown: bool) -> str:
    """What the means are, and the differences if they are shown."""
    sentences = []
    for objective in result.objectives:
        if objective.is_cost:
            sentence = f"{objective.words.capitalize()}: {objective.about_mean}"
            margin = f"{percent(objective.margin, 0)}%"
        else:
            words, style = objective.words, objective.style
            sentence = f"{words[0].upper()}{words[1:]}{style.in_unit}: {objective.about_mean}"
            margin = f"{style.value(objective.margin)}{' points' * (not style.numeric)}"
        sentences.append(f"{sentence}; a difference of {margin} does not matter.")
    sentences += dict.fromkeys(filter(None, (objective.about_target for objective in result.objectives)))
    sentences += _about_worst(result)
    if len(result.objectives) == 1 and shown:
        sentences.append(result.about_differences)
        if unknown := [row for row in result.rows if math.isinf(row.low) and math.isinf(row.high)]:
            sentences.append(f"{_interval(unknown[0], result.objectives[0])}: too few seeds for an interval.")
    return " ".join(sentences)


def _about_worst(result: "Race") -> list[str]:
    """Sentences about the lowest scores that count, if a run has one."""
    scores = [
        [score for row in result.rows for score in row.scores[number]] for number in range(len(result.objectives))
    ]
    found = [objective.about_worst(own) for objective, own in zip(result.objectives, scores, strict=True)]
    return list(filter(None, found))


def _about_skipped(result: "Race") -> str:
    if not result.skipped:
        return ""
    names = ", ".join(result.skipped)
    first, reason = next(iter(result.skipped.items()))
    return f"Not in the race, {count(len(result.skipped))}: {names}. {first}: {reason}."
