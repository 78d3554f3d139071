"""Print the differences of a comparison in one measure, such as fairness or a cost."""

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from fedcohort.core.words import formatted_values
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.report.notes.comparison_notes import about_intervals, difference_to_references
from fedcohort.report.notes.worst_clients import about_worst, numbers_of_clients
from fedcohort.report.terminal.comparisons import ends_of_points
from fedcohort.report.terminal.layout import (
    WIDE,
    Column,
    about_hidden,
    dimmed,
    fitting_table,
    label_width,
    natural_width,
    plain_table,
)
from fedcohort.study.targets import TO_TARGET
from fedcohort.study.verdicts import BASELINE, BETTER, WORSE, verdict_heading, with_intervals

if TYPE_CHECKING:
    from fedcohort.study.comparison import Comparison
    from fedcohort.study.measure_differences import MeasureDifferences

__all__ = ["measure_table"]

Values = Callable[[float], str]


def measure_table(compared: "Comparison", differences: "MeasureDifferences", width: int = WIDE) -> Group:
    """The table of the differences in a measure, and notes on how to read it."""
    all_rows = [{str(key): value for key, value in row.items()} for row in differences.table.to_dict("records")]
    rows = [all_rows[i] for i in compared.in_groups]
    columns = _columns(compared, differences.measure.form, rows, width)
    if natural_width(plain_table(columns)) > width:  # names of strategies would have a few letters a line
        columns = _columns(compared, differences.measure.form, rows, width, below=True)
    table, hidden = fitting_table(columns, width, ends_of_points(compared))
    heading = Text.assemble((differences.measure.name, "bold"), f": {_title(differences)}")
    return Group("", heading, "", table, "", *dimmed(*_notes(compared, differences, rows), about_hidden(hidden)))


def _columns(
    compared: "Comparison", form: str, rows: list[dict[str, Any]], width: int, *, below: bool = False
) -> list[Column]:
    """The columns of the table; verdicts stand in a column of their own, or ``below`` the differences."""
    clocks = [compared.rows[i].clock for i in compared.in_groups]
    styled = [(_Style(form, compared.score, clock), row) for clock, row in zip(clocks, rows, strict=True)]
    labels = [Text(row["label"], style="bold") for row in rows]
    verdicts = [formatted_values.verdict(row["verdict"], row["p_holm"]) for row in rows]
    space = "\n" if below else " "
    difference = f"difference{f'{space}[95% interval]' * with_intervals(rows)}"
    differences = [style.difference(row) for style, row in styled]
    verdict = verdict_heading(rows)
    if below:
        difference = f"{difference}\n{verdict}"
        differences = [Text("\n").join((each, Text(own))) for each, own in zip(differences, verdicts, strict=True)]
    return [
        Column("strategy", labels, left=True, widest=label_width(width)),
        Column("mean ± sd", [style.spread(row) for style, row in styled]),
        Column(difference, differences),
        *([] if below else [Column(verdict, verdicts)]),
    ]


class _Style:
    """How values and differences of a measure are written.

    Args:
        form: that of the measure.
        score: the score of the comparison.
        clock: the clock of the row.
    """

    def __init__(self, form: str, score: ScoreStyle, clock: str) -> None:
        values: dict[str, Values] = {
            "score": score.value,
            "index": formatted_values.index,
            "count": formatted_values.rounds,
            "size": formatted_values.size,
            "duration": formatted_values.duration,
            "time": lambda value: formatted_values.time_on(clock, value),
        }
        self.value = values.get(form, formatted_values.number)
        self._signed = score.signed if form == "score" else self._with_sign

    def spread(self, row: dict[str, Any]) -> str:
        """The mean over seeds, and the standard deviation."""
        mean = self.value(row["mean"])
        return f"{mean} ± {self.value(row['sd'])}" if math.isfinite(row["sd"]) else mean

    def difference(self, row: dict[str, Any]) -> Text:
        """The difference to the reference, and its interval."""
        mean, low, high = row["difference"], row["difference_low"], row["difference_high"]
        if row["verdict"] == BASELINE or not math.isfinite(mean):
            return Text("–")
        interval = f" [{self._signed(low)}, {self._signed(high)}]" if high - low > 1e-12 else ""
        color = {BETTER: "green", WORSE: "red"}.get(row["verdict"], "")
        return Text(f"{self._signed(mean)}{interval}", style=color)

    def _with_sign(self, value: float) -> str:
        size = self.value(abs(value))
        return f"{'−' if value < 0 else '+'}{size}" if value else size


def _title(differences: "MeasureDifferences") -> str:
    """The measure in words, with its unit."""
    title = differences.measure.title
    if title == differences.measure.name:  # a function of the user has no other name
        return "own measure"
    if differences.measure.form != "score":
        return title
    return title.replace("accuracy", "score") if differences.score.numeric else f"{title}, %"


def _notes(compared: "Comparison", differences: "MeasureDifferences", rows: list[dict[str, Any]]) -> Iterator[str]:
    """Notes on how to read the table; those that do not apply are empty."""
    measure = differences.measure
    if rows[1:]:
        points = compared.score.points if measure.form == "score" else ""
        interval = f" {about_intervals(rows)}".rstrip()
        better = {"higher": " Higher is better.", "lower": " Lower is better."}.get(measure.better, "")
        yield f"{difference_to_references(compared, points)}{better}{interval}"
    if "worst" in measure.name:
        yield about_worst(numbers_of_clients(compared)).strip()
    if measure.name in TO_TARGET:
        chosen = " It describes these results only: set measures.target_accuracy before you look, to test a difference."
        yield compared.about_targets + chosen * any(target.from_results for target in compared.targets)
    if measure.form == "time":
        yield compared.about_times
    if differences.about_verdicts != compared.about_verdicts:  # which stands below the table of the comparison
        yield differences.about_verdicts
    if differences.comparisons:
        yield "p is corrected for the rows, and not for the number of measures: choose measures before you look."
