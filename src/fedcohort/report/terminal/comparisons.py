"""Print comparisons, and the seeds of a run."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedcohort.core.words import formatted_values
from fedcohort.core.words.formatted_values import (
    count,
    duration,
    index,
    number,
    number_spread,
    of_seeds,
    simulated_time,
    size,
    time_on,
)
from fedcohort.core.words.score_style import ScoreStyle, score_style
from fedcohort.report.notes.comparison_notes import notes
from fedcohort.report.notes.seed_notes import listed
from fedcohort.report.notes.worst_clients import in_comparison
from fedcohort.report.tables.compared_rows import compared_rows
from fedcohort.report.terminal.layout import (
    WIDE,
    Column,
    about_hidden,
    dimmed,
    fits,
    fitting_table,
    label_width,
)
from fedcohort.study.chance import AS_CHANCE
from fedcohort.study.targets import shown_cost
from fedcohort.study.verdicts import BASELINE, verdict_heading, with_intervals

if TYPE_CHECKING:
    from fedcohort.study.comparison import Comparison
    from fedcohort.study.health import Finding
    from fedcohort.study.measured_values import Result

__all__ = ["comparison", "ends_of_points", "results"]


def comparison(compared: "Comparison", width: int = WIDE) -> Group:
    """The table of a comparison, and notes on how to read it."""
    table = compared_rows(compared)
    rows, ends = [table[i] for i in compared.in_groups], ends_of_points(compared)
    printed, hidden = fitting_table(_columns(compared, rows, width), width, ends)
    if verdict_heading(rows) in hidden:  # an interval alone would say more than the test
        columns = _columns(compared, rows, width, below=True)
        if not fits(columns, width):
            columns = _columns(compared, rows, width, below=True, in_lines=True)
        printed, hidden = fitting_table(columns, width, ends)
    return Group(
        Text(compared.name, style="bold"),
        "",
        printed,
        "",
        *_health(compared.health),
        *dimmed(*notes(compared, rows, hidden), about_hidden(hidden)),
    )


def ends_of_points(compared: "Comparison") -> list[int]:
    """The lines of the table after which another point of a sweep begins."""
    sizes = [len(group.rows) for group in compared.groups[:-1]]
    return [end - 1 for end in itertools.accumulate(sizes)]


def _columns(
    compared: "Comparison",
    rows: Sequence[Mapping[str, Any]],
    width: int,
    *,
    below: bool = False,
    in_lines: bool = False,
) -> list[Column]:
    """The columns of a comparison; verdicts stand in a column of their own, or ``below`` the differences. For very narrow terminals,
    deviations and intervals stand ``in_lines`` of their own."""
    score = compared.score
    rounds = [
        formatted_values.rounds(shown_cost(row, "rounds_to_target"), row["reached"], row["seeds"]) for row in rows
    ]
    goal, targets = compared.goal, [score.value(row["target_accuracy"]) for row in rows]
    several = len({row["algorithm"] for row in rows}) > 1
    reached = any(row["reached"] for row in rows)  # columns without a number make room for all others
    return [
        Column("strategy", [Text(row["label"], style="bold") for row in rows], left=True, widest=label_width(width)),
        *([Column("algorithm", [row["algorithm"] for row in rows], 3, left=True)] if several else []),
        *_judged(rows, score, below=below, in_lines=in_lines),
        *_of_clients(rows, score, in_comparison(compared)),
        *(
            Column(name, [number_spread(row[name], row[f"{name}_sd"]) for row in rows], 8)
            for name in compared.own_measures
        ),
        Column("best", [score.value(row["best_accuracy"]) for row in rows], 5),
        Column("early\nstop", [score.value(row["early_stop_accuracy"]) for row in rows], 4),
        *_personal_columns(rows, score, in_comparison(compared)),
        *([Column("target", targets, 9)] if len(set(targets)) > 1 else []),
        Column(f"rounds\nto {goal}", rounds, 9 if reached else 0),
        Column(f"time\nto {goal}", _times_to_target(compared, rows), 8 if reached else 0),
        Column("Jain", [index(row["jain"]) for row in rows], 7),
        Column("bytes", [size(row["bytes"]) for row in rows], 6),
        Column("client\npasses", [count(row["client_passes"]) for row in rows], 1),
        Column("wall\ntime", [duration(row["wall_seconds"]) for row in rows], 2),
    ]


def _judged(rows: Sequence[Mapping[str, Any]], score: ScoreStyle, *, below: bool, in_lines: bool) -> Iterator[Column]:
    """The columns of the mean score, its difference to the reference, and the verdict."""
    means = score.means(rows)
    yield Column(f"test\n{score.name}", [text.replace(" ±", "\n±") for text in means] if in_lines else means)
    differences = [_difference(row, score, in_lines=in_lines) for row in rows]
    verdicts = [formatted_values.verdict(row["verdict"], row["p_holm"]) for row in rows]
    heading, verdict = "difference" + "\n[95% interval]" * with_intervals(rows), verdict_heading(rows)
    in_two_lines = verdict.replace(", p (", ",\np (")
    if below:
        cells = [Text("\n").join((each, Text(own))) for each, own in zip(differences, verdicts, strict=True)]
        yield Column(f"{heading}\n{in_two_lines if in_lines else verdict}", cells)
        return
    yield Column(heading, differences)
    if rows[1:]:
        yield Column(in_two_lines, verdicts, 50)


def _health(findings: "Sequence[Finding]") -> list[RenderableType]:
    """What is wrong with the runs, each with what to try."""
    return [*(Text(f"! {finding.sentences}", style="yellow") for finding in findings), *([""] if findings else [])]


def _of_clients(rows: Sequence[Mapping[str, Any]], score: ScoreStyle, worst: str) -> Iterator[Column]:
    """Columns for the accuracy on clients' own data, if it was measured: mean and standard deviation over clients, worst tenth."""
    if any(math.isfinite(row["client_accuracy"]) for row in rows):
        means = [score.spread(row["client_accuracy"], row["client_accuracy_sd"]) for row in rows]
        yield Column("over\nclients", means, 10)
        yield Column(worst.replace(" ", "\n"), [score.value(row["worst_client_accuracy"]) for row in rows], 10)


def _personal_columns(rows: Sequence[Mapping[str, Any]], score: ScoreStyle, worst: str) -> list[Column]:
    """The accuracy of personal models, if it was measured."""
    if all(math.isnan(row["personal_accuracy"]) for row in rows):
        return []
    return [
        Column("personal\nmodels", [score.value(row["personal_accuracy"]) for row in rows], 9),
        Column(f"personal,\n{worst}", [score.value(row["worst_personal_accuracy"]) for row in rows], 9),
    ]


LONG = 16
"""Number of characters from which an interval takes two lines where it has lines of its own."""


def _difference(row: Mapping[str, Any], score: ScoreStyle, *, in_lines: bool = False) -> Text:
    if row["verdict"] == BASELINE or not math.isfinite(row["difference"]):
        return Text("–")
    style = {"better": "green", "worse": "red"}.get(row["verdict"], "")
    text = score.difference(row["difference"], row["difference_low"], row["difference_high"])
    if in_lines:
        mean, _, interval = text.partition(" ")
        text = "\n".join(filter(None, (mean, interval.replace(", ", ",\n") if len(interval) > LONG else interval)))
    return Text(text, style=style)


def _times_to_target(compared: "Comparison", rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        of_seeds(time_on(compared.rows[i].clock, shown_cost(row, "time_to_target")), row["reached"], row["seeds"])
        for i, row in zip(compared.in_groups, rows, strict=True)
    ]


def results(label: str, runs: "Sequence[Result]", findings: "Sequence[Finding]" = (), width: int = WIDE) -> Group:
    """The results of a row, one line for each seed, and what is wrong with its runs."""
    score = score_style(run.labels for run in runs)
    columns = [
        Column("seed", [str(run.seed) for run in runs]),
        Column(f"final\n{score.name}", [score.value(run.accuracy) for run in runs]),
        Column(f"best\n{score.name}", [score.value(run.best_accuracy) for run in runs]),
        Column("early\nstop", [score.value(run.early_stop_accuracy) for run in runs], 4),
        Column(f"local\n{score.of_client}", [score.value(run.local_accuracy) for run in runs], 3),
        *_own_measures([run.own_measures for run in runs]),
        Column("Jain", [index(run.jain) for run in runs]),
        Column("Jain of\nchance", [index(run.jain_random) for run in runs], 2),
        Column("simulated\ntime", [simulated_time(run.simulated_time) for run in runs], 6),
        Column("bytes", [size(run.bytes) for run in runs], 5),
        Column("wall\ntime", [duration(run.wall_seconds) for run in runs], 1),
    ]
    (table, hidden), rounds = fitting_table(columns, width), sorted({run.rounds for run in runs})
    return Group(
        Text.assemble((label, "bold"), f", {listed(rounds)} round{'s' * (rounds != [1])}"),
        "",
        table,
        "",
        *_health(findings),
        *dimmed(*_about_results(score, hidden), about_hidden(hidden)),
    )


def _about_results(score: ScoreStyle, hidden: Sequence[str]) -> Iterator[str]:
    """Notes about the columns that are shown."""
    if score.numeric:
        texts = ["R² is on the test set."]
        local = "1 − mean squared error in units of the variance of all training labels."
        texts += [f"Local score: of the clients that trained last, on their own data during training, {local}"]
    else:
        texts = ["Accuracies are in %, on the test set."]
        texts += ["Local accuracy: of the clients that trained last, on their own data during training."]
    yield " ".join(texts[:1] if any(heading.startswith("local") for heading in hidden) else texts)
    chance = "" if "Jain of chance" in hidden else f" Jain of chance: its mean under {AS_CHANCE}."
    yield f"Jain: Jain's index of how often clients were selected; 1 is even.{chance}"


def _own_measures(values: Sequence[Mapping[str, float]]) -> list[Column]:
    """A column for each own measure of some runs."""
    names = dict.fromkeys(name for own in values for name in own)
    return [Column(name, [number(own.get(name, math.nan)) for own in values], 3) for name in names]
