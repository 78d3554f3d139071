"""Print comparisons, the seeds of a run, and all measures of runs."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedcohort.core import formatted_values
from fedcohort.core.formatted_values import count, duration, index, number, number_spread, percent, size, time_on
from fedcohort.core.score_style import ScoreStyle, score_style
from fedcohort.report.terminal.comparison_notes import listed, notes
from fedcohort.report.terminal.layout import (
    WIDE,
    Column,
    about_hidden,
    dimmed,
    fitting_table,
    label_width,
    natural_width,
    one_line,
    plain_table,
)
from fedcohort.study.verdicts import BASELINE

if TYPE_CHECKING:
    from fedcohort.study.comparison import Comparison
    from fedcohort.study.conformal_coverage import Conformal
    from fedcohort.study.measured_values import Result
    from fedcohort.study.summary import OverSeeds, Summary

__all__ = ["comparison", "results", "summaries"]


def comparison(compared: "Comparison", width: int = WIDE) -> Group:
    """The table of a comparison, and notes on how to read it."""
    table = [{str(key): value for key, value in row.items()} for row in compared.table.to_dict("records")]
    rows, ends = [table[i] for i in compared.in_groups], _ends(compared)
    printed, hidden = fitting_table(_columns(compared, rows, width), width, ends)
    if one_line(VERDICT) in hidden:  # an interval alone would say more than the test
        printed, hidden = fitting_table(_columns(compared, rows, width, below=True), width, ends)
    return Group(
        Text(compared.name, style="bold"),
        "",
        printed,
        "",
        *_health(compared),
        *dimmed(*notes(compared, rows, hidden), about_hidden(hidden)),
    )


def _ends(compared: "Comparison") -> list[int]:
    """The lines of the table after which another point of a sweep begins."""
    sizes = [len(group.rows) for group in compared.groups[:-1]]
    return [end - 1 for end in itertools.accumulate(sizes)]


VERDICT = "verdict,\np (Holm)"


def _columns(
    compared: "Comparison", rows: Sequence[Mapping[str, Any]], width: int, *, below: bool = False
) -> list[Column]:
    """The columns of a comparison; verdicts stand in a column of their own, or ``below`` the differences."""
    score = compared.score
    verdicts = [formatted_values.verdict(row["verdict"], row["p_holm"]) for row in rows]
    differences = [_difference(row, score) for row in rows]
    rounds = [formatted_values.rounds(row["rounds_to_target"], row["reached"], row["seeds"]) for row in rows]
    if below:
        differences = [
            Text("\n").join((each, Text(verdict))) for each, verdict in zip(differences, verdicts, strict=True)
        ]
    goal, targets = compared.goal, [score.value(row["target_accuracy"]) for row in rows]
    several = len({row["algorithm"] for row in rows}) > 1
    return [
        Column("strategy", [Text(row["label"], style="bold") for row in rows], left=True, widest=label_width(width)),
        *([Column("algorithm", [row["algorithm"] for row in rows], 3, left=True)] if several else []),
        Column(f"test\n{score.name}", score.means(rows)),
        Column("difference\n[95% interval]" + "\nverdict, p (Holm)" * below, differences),
        *([Column(VERDICT, verdicts, 50)] if rows[1:] and not below else []),
        *_of_clients(rows, score),
        *(
            Column(name, [number_spread(row[name], row[f"{name}_sd"]) for row in rows], 8)
            for name in compared.own_measures
        ),
        Column("best", [score.value(row["best_accuracy"]) for row in rows], 5),
        Column("early\nstop", [score.value(row["early_stop_accuracy"]) for row in rows], 4),
        *_personal_columns(rows, score),
        *([Column("target", targets, 9)] if len(set(targets)) > 1 else []),
        Column(f"rounds\nto {goal}", rounds, 9),
        Column(f"time\nto {goal}", _times_to_target(compared, rows), 8),
        Column("Jain", [index(row["jain"]) for row in rows], 7),
        Column("bytes", [size(row["bytes"]) for row in rows], 6),
        Column("client\npasses", [count(row["client_passes"]) for row in rows], 1),
        Column("wall\ntime", [duration(row["wall_seconds"]) for row in rows], 2),
    ]


def _health(compared: "Comparison") -> list[RenderableType]:
    """What is wrong with the runs, each with what to try."""
    lines: list[RenderableType] = []
    for finding in compared.health:
        text = f"{finding.about}{finding.text}. Try: {finding.advice}."
        lines.append(Text(f"! {text}", style="yellow"))
    return [*lines, ""] if lines else []


def _of_clients(rows: Sequence[Mapping[str, Any]], score: ScoreStyle) -> Iterator[Column]:
    """Columns for the accuracy on clients' own data, if it was measured: mean and standard deviation over clients, worst tenth."""
    if any(math.isfinite(row["client_accuracy"]) for row in rows):
        means = [score.spread(row["client_accuracy"], row["client_accuracy_sd"]) for row in rows]
        yield Column("over\nclients", means, 10)
        yield Column("worst\ntenth", [score.value(row["worst_client_accuracy"]) for row in rows], 10)


def _personal_columns(rows: Sequence[Mapping[str, Any]], score: ScoreStyle) -> list[Column]:
    """The accuracy of personal models, if it was measured."""
    if not any(math.isfinite(row["personal_accuracy"]) for row in rows):
        return []
    return [
        Column("personal\nmodels", [score.value(row["personal_accuracy"]) for row in rows], 9),
        Column("personal,\nworst tenth", [score.value(row["worst_personal_accuracy"]) for row in rows], 9),
    ]


def _difference(row: Mapping[str, Any], score: ScoreStyle) -> Text:
    if row["verdict"] == BASELINE or not math.isfinite(row["difference"]):
        return Text("–")
    style = {"better": "green", "worse": "red"}.get(row["verdict"], "")
    text = f"{score.signed(row['difference'])} {score.interval(row['difference_low'], row['difference_high'])}"
    return Text(text, style=style)


def _times_to_target(compared: "Comparison", rows: Sequence[Mapping[str, Any]]) -> list[str]:
    clocks = ("wall" if row.on_wall_clock else "simulated" for row in compared.rows)
    return [time_on(clock, row["time_to_target"]) for clock, row in zip(clocks, rows, strict=True)]


def results(label: str, runs: "Sequence[Result]", width: int = WIDE) -> Group:
    """The results of a row, one line for each seed."""
    score = score_style(run.labels for run in runs)
    local = "score" if score.numeric else "accuracy"
    columns = [
        Column("seed", [str(run.seed) for run in runs]),
        Column(f"final\n{score.name}", [score.value(run.accuracy) for run in runs]),
        Column(f"best\n{score.name}", [score.value(run.best_accuracy) for run in runs]),
        Column("early\nstop", [score.value(run.early_stop_accuracy) for run in runs], 4),
        Column(f"local\n{local}", [score.value(run.local_accuracy) for run in runs], 3),
        *_own_measures([run.own_measures for run in runs]),
        Column("Jain", [index(run.jain) for run in runs]),
        Column("Jain of\nchance", [index(run.jain_random) for run in runs], 2),
        Column("simulated\ntime", [count(run.simulated_time) for run in runs], 6),
        Column("bytes", [size(run.bytes) for run in runs], 5),
        Column("wall\ntime", [duration(run.wall_seconds) for run in runs], 1),
    ]
    (table, hidden), rounds = fitting_table(columns, width), sorted({run.rounds for run in runs})
    return Group(
        Text.assemble((label, "bold"), f", {listed(rounds)} round{'s' * (rounds != [1])}"),
        "",
        table,
        "",
        *dimmed(
            _about_results(score),
            "Jain: Jain's index of how often clients were selected; 1 is even. Jain of chance: its mean under uniform selection.",
            about_hidden(hidden),
        ),
    )


def _about_results(score: ScoreStyle) -> str:
    if score.numeric:
        return (
            "R² is on the test set. Local score: of the last round's clients on their own data during training, 1 − mean squared "
            "error in units of the variance of all training labels."
        )
    return "Accuracies are in %, on the test set. Local accuracy: of the last round's clients on their own data during training."


def _own_measures(values: Sequence[Mapping[str, float]]) -> list[Column]:
    """A column for each own measure of some runs."""
    names = dict.fromkeys(name for own in values for name in own)
    return [Column(name, [number(own.get(name, math.nan)) for own in values], 3) for name in names]


def summaries(
    names: Sequence[str],
    several: "Sequence[OverSeeds]",
    sets: "Sequence[Conformal]" = (),
    width: int = WIDE,
) -> Group:
    """All measures of runs: one line for each measure, one column for each row, mean over its seeds.

    Columns that do not fit into the width follow in further tables below.

    Args:
        names: headings of the columns.
        several: the runs of each column.
        sets: the prediction sets of each column; empty without them.
        width: width of the terminal in characters.
    """
    runs = [own.mean for own in several]
    time_name, score = _name_of_time({run.clock for run in runs}), score_style(run.labels for run in runs)
    name, of_clients = score.name, "score" if score.numeric else "accuracy"
    gain_in = f",{score.points}" if score.points else ""
    rows: list[tuple[str, Callable[[Summary], str]]] = [
        (f"test {name}, last round", lambda run: score.value(run.accuracy)),
        *([] if score.numeric else [("  mean over classes", lambda run: percent(run.macro_accuracy))]),
        ("  best round", lambda run: score.value(run.best_accuracy)),
        (f"  at best validation {name}", lambda run: score.value(run.early_stop_accuracy)),
        (f"local {of_clients} of the last round's clients", lambda run: score.value(run.local_accuracy)),
        (f"{of_clients} of all clients", lambda run: score.value(run.client_accuracy)),
        ("  of the worst-served tenth", lambda run: score.value(run.worst_client_accuracy)),
        ("  standard deviation over clients", lambda run: score.value(run.client_accuracy_sd)),
        (f"{of_clients} of personal models", lambda run: score.value(run.personal_accuracy)),
        ("  of the worst tenth of the clients", lambda run: score.value(run.worst_personal_accuracy)),
        (f"  gain over the global model{gain_in}", lambda run: score.signed(run.personal_gain)),
        *(
            (name, partial(_own_measure, name=name))
            for name in dict.fromkeys(name for run in runs for name in run.own_measures)
        ),
        (f"target {name}", lambda run: score.value(run.target)),
        ("  rounds to it", lambda run: formatted_values.rounds(run.rounds_to_target)),
        (f"  {time_name} to it", lambda run: time_on(run.clock, run.time_to_target)),
        ("  bytes to it", lambda run: size(run.bytes_to_target)),
        ("rounds", lambda run: count(run.rounds)),
        (time_name, lambda run: time_on(run.clock, run.simulated_time)),
        ("bytes", lambda run: size(run.bytes)),
        ("client passes", lambda run: count(run.client_passes)),
        ("wall time", lambda run: duration(run.wall_seconds["total"])),
        *(
            (f"{name} of selections (chance)", partial(_beside_chance, name=field))
            for name, field in (
                ("Jain's index", "jain"),
                ("Gini", "gini"),
                ("entropy", "entropy"),
                ("coverage", "coverage"),
            )
        ),
        (
            "  Jain's index under chance, 5% to 95%",
            lambda run: f"{index(run.jain_random.q05)} to {index(run.jain_random.q95)}",
        ),
        ("Jain's index of admitted updates", lambda run: index(run.admitted.jain)),
        ("standard deviation over the last fifth of the rounds", lambda run: score.value(run.tail_sd, 2)),
        ("largest drop in a round", lambda run: score.value(run.largest_drop)),
        *([] if score.numeric else [("forgetting", lambda run: percent(run.forgetting))]),
    ]
    cells = [[text_of(run) for _, text_of in rows] for run in runs]
    heads = [name for name, _ in rows]
    for column, own in zip(cells, several, strict=True):
        column[0] = score.spread(own.mean.accuracy, own.accuracy_sd)
        column[heads.index("  rounds to it")] = formatted_values.rounds(
            own.mean.rounds_to_target, own.reached, own.seeds
        )
    if sets:
        heads += _names_of_sets(score)
        for column, conformal in zip(cells, sets, strict=True):
            column += _about_sets(conformal)
    columns = [Column(name, column, widest=label_width(width)) for name, column in zip(names, cells, strict=True)]
    parts: list[RenderableType] = []
    for table in _tables(Column("measure", heads, left=True), columns, width):
        parts += [table, ""]
    return Group(*parts, *dimmed(*_about_summaries(several, score)))


def _tables(first: Column, columns: Sequence[Column], width: int) -> Iterator[RenderableType]:
    """Tables that begin with ``first`` and have as many of the columns as fit; one that has a single column can be too wide."""
    rest = list(columns)
    single = max((natural_width(plain_table([column])) for column in columns), default=0)
    if natural_width(plain_table([first])) + single + 1 > width:
        first = first._replace(widest=max(20, width - single - 1))
    while rest:
        number = next(
            (n for n in range(len(rest), 1, -1) if natural_width(plain_table([first, *rest[:n]])) <= width), 1
        )
        yield plain_table([first, *rest[:number]])
        rest = rest[number:]


_SETS = (
    "coverage of prediction sets", "  expected on average", "  of one calibration, 5% to 95%", "  mean size", "  empty",
)  # fmt: skip


_INTERVALS = ("coverage of prediction intervals", *_SETS[1:3], "  length, in units of the labels")


def _names_of_sets(score: ScoreStyle) -> tuple[str, ...]:
    return _INTERVALS if score.numeric else _SETS


def _about_sets(conformal: "Conformal") -> list[str]:
    """The measures of prediction sets, in the order of :data:`_SETS`, or of intervals, in that of :data:`_INTERVALS`."""
    ranges = [f"{percent(low)} to {percent(high)}" for low, high in (conformal.expected, conformal.likely)]
    sets = conformal.sets
    if conformal.labels == "numbers":
        return [percent(sets.coverage), *ranges, number(sets.size)]
    return [percent(sets.coverage), *ranges, count(sets.size, 2), percent(sets.empty)]


def _about_summaries(several: "Sequence[OverSeeds]", score: ScoreStyle) -> Iterator[str]:
    """Notes below the table of all measures."""
    runs = [own.mean for own in several]
    if any(own.seeds > 1 for own in several):
        yield "Means over seeds; the test accuracy ± its standard deviation over seeds. (2/3): 2 of 3 seeds reached the target."
    percents = "" if score.numeric else "Accuracies, standard deviation, drop and forgetting are in %. "
    yield f"{percents}Chance: uniform selection of as many clients in a round."
    if not any(math.isfinite(run.client_accuracy) for run in runs):
        of_clients = "score" if score.numeric else "accuracy"
        yield f"The {of_clients} of all clients was not measured. To measure it after every round, set measures.clients_every = 1."
    yield from _about_targets(runs, sum(own.seeds for own in several), score)


def _about_targets(runs: "Sequence[Summary]", seeds: int, score: ScoreStyle) -> Iterator[str]:
    """Notes about the target, and about runs that did not reach it."""
    known = [run for run in runs if not math.isnan(run.target)]
    if any(run.target_chosen == "results" for run in known):
        level = f"{'a level that the mean' if seeds > 1 else 'the'} best {score.name}{' of every row reaches' * (seeds > 1)}"
        yield (
            f"Target {score.name}: taken from these results, {level}, rounded down. To choose it, use --target or "
            "measures.target_accuracy."
        )
    if any(math.isinf(run.rounds_to_target) for run in known):
        yield f"∞: the run did not reach the target {score.name}."


def _name_of_time(clocks: set[str]) -> str:
    """The name of what the clocks of some runs measure."""
    if "wall" not in clocks:
        return "simulated time"
    return "wall time of rounds" if len(clocks) == 1 else "simulated time, or wall time of rounds"


def _own_measure(run: "Summary", name: str) -> str:
    return number(run.own_measures.get(name, math.nan))


def _beside_chance(run: "Summary", name: str) -> str:
    return f"{index(getattr(run.selected, name))} ({index(getattr(run.selected_random, name))})"
