"""Make the rows of the page's tables: results, cost, and how to repeat the runs."""

import itertools
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedcohort.core.words import formatted_values
from fedcohort.core.words.formatted_values import by_dotted_key, setting
from fedcohort.core.words.report_names import disclosed, exchange_in_words
from fedcohort.report.charts.cost import ledger
from fedcohort.report.data.report_data import Reading, Story
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.figures.shortened_names import short
from fedcohort.report.notes.failed_training import failed
from fedcohort.report.notes.own_versions import mark_of, unpublished
from fedcohort.report.notes.seed_notes import own_seeds
from fedcohort.report.notes.unranked_rows import unranked
from fedcohort.report.tables.best_cells import mark_best
from fedcohort.report.tables.compared_rows import compared_rows
from fedcohort.study.targets import TO_TARGET, shown_cost
from fedcohort.study.verdicts import BASELINE, NO_RESULT, UNEVEN

if TYPE_CHECKING:
    from fedcohort.experiment import Experiment
    from fedcohort.record import Run

__all__ = [
    "Cell",
    "cells",
    "chart_names",
    "failed_rows",
    "how",
    "ledger_rows",
    "result_rows",
    "strategies",
    "unfinished",
    "unmarked_rows",
]


@dataclass(frozen=True)
class Cell:
    """A table cell: the text that is shown, and the number behind it."""

    text: str
    value: float

    @property
    def raw(self) -> str:
        """The number with all its digits; empty if it is unknown or infinite."""
        return repr(float(self.value)) if math.isfinite(self.value) else ""


Format = Callable[[float], str]
"""How a column writes its numbers."""

LONGEST_LIST = 100
"""Number of lines that a page has of a list in an experiment: a list of the times of all clients can have a million."""


def cells(values: Mapping[Any, Any], formats: Mapping[str, Format]) -> dict[str, Cell]:
    """A cell for each of these columns, with its value in ``values``."""
    return {name: Cell(write(values[name]), values[name]) for name, write in formats.items()}


def strategies(story: Story) -> list[dict[str, Any]]:
    """Label, names, color, dash and point of the sweep of the rows that have a round, as in the charts."""
    if story.comparison is None:
        return []
    labels = [label for label, _ in story.played]
    colors, dashes, _ = replace(PAGE, rows=story.row_looks).of_rows(labels)
    points = {i: number for number, group in enumerate(story.comparison.groups) for i in group.rows}
    names = story.comparison.names_without_settings if story.row_looks.groups else None
    return [
        {
            "label": label,
            "name": row.label,
            "shown": names[i] if names else row.label,
            "color": colors[i],
            "dash": " ".join(map(str, dashes[i])) if dashes[i][1] else "none",
            "point": points[i],
        }
        for i, (label, row) in enumerate(zip(labels, story.comparison.rows, strict=True))
    ]


NARROW = 20
"""About the largest number of letters of names beside charts on phones."""


def chart_names(story: Story) -> dict[str, dict[str, str]]:
    """By the label of each row: its whole ``name``, what charts call it (``shown``), and what they call it on phones (``narrow``)."""
    rows = strategies(story)
    called = list(dict.fromkeys(row["shown"] for row in rows))
    narrow = dict(zip(called, short(called, NARROW), strict=True))
    names = story.row_looks.names
    return {
        row["label"]: {
            "name": row["name"],
            "shown": names.get(row["label"], row["label"]),
            "narrow": narrow[row["shown"]],
        }
        for row in rows
    }


def unfinished(story: Story) -> list[dict[str, Any]]:
    """How far the runs are that have rounds left to play; empty if the note of the comparison says it."""
    if story.note:
        return []
    return [
        {
            "label": reading.run.meta["label"],
            "seed": reading.seed,
            "round": reading.num_rounds,
            "rounds": reading.experiment.rounds,
        }
        for reading in story.unfinished
    ]


RESULTS: dict[str, Format] = {
    "bytes": formatted_values.size,
    "client_passes": formatted_values.count,
    "jain": formatted_values.index,
    "jain_random": formatted_values.index,
    "wall_seconds": formatted_values.duration,
}
"""How the columns of results are written, by their name in a comparison's table; scores are written in their own style."""

HIGHEST = ("accuracy", "best_accuracy", "early_stop_accuracy")
LOWEST = (*TO_TARGET, "bytes", "client_passes")
"""Columns of results in which the highest or the lowest mean is marked. Wall times depend on what else the machine did."""

SCORES = ("accuracy", "accuracy_sd", "best_accuracy", "early_stop_accuracy", "target_accuracy")


def result_rows(story: Story) -> list[dict[str, Any]]:
    """The rows of the table of results."""
    compared = story.comparison
    if compared is None:
        return []
    rows, seeds = [], own_seeds([row.runs for row in compared.counted])
    table, styles, unmarked = compared_rows(compared), strategies(story), unmarked_rows(story)
    for i in compared.in_groups:
        own, strategy = table[i], styles[i]
        meta = story.played[i][1][0].meta
        rows.append(
            {
                "label": strategy["label"],
                "name": own["label"],
                "point": own["point"],
                "seeds": seeds[i],
                "partial": _not_best(own, unmarked=strategy["label"] in unmarked),
                "strategy": strategy,
                "verdict": own["verdict"],
                "p_holm": Cell(formatted_values.verdict(own["verdict"], own["p_holm"]), own["p_holm"]),
                "mark": mark_of(compared.rows[i].experiment, meta),
                "status": unpublished(compared.rows[i].experiment, meta),
                "difference": Cell(
                    "–"
                    if own["verdict"] in (BASELINE, NO_RESULT, UNEVEN)
                    else compared.score.signed(own["difference"]),
                    own["difference"],
                ),
                "interval": compared.score.interval(own["difference_low"], own["difference_high"]),
                **_costs_of_target(own, compared.rows[i].clock),
                "own_measures": [
                    Cell(formatted_values.number_spread(own[name], own[f"{name}_sd"]), own[name])
                    for name in compared.own_measures
                ],
                **cells(own, RESULTS | dict.fromkeys(SCORES, compared.score.value)),
            }
        )
    mark_best(rows, HIGHEST, LOWEST)
    return rows


def _not_best(row: Mapping[Any, Any], *, unmarked: bool) -> Sequence[str]:
    """Columns in which a row is not marked as the best: all if it is never marked; costs of a target that some seeds did not reach,
    which are too low to be compared."""
    if unmarked:
        return (*HIGHEST, *LOWEST)
    return TO_TARGET if row["reached"] < row["seeds"] else ()


def _costs_of_target(row: Mapping[Any, Any], clock: str) -> dict[str, Cell]:
    """The cells of the costs of the target; each is marked if not all seeds reached it."""
    rounds, time, size = (shown_cost(row, name) for name in TO_TARGET)
    texts = formatted_values.rounds(rounds), formatted_values.time_on(clock, time), formatted_values.size(size)
    return {
        name: Cell(formatted_values.of_seeds(text, row["reached"], row["seeds"]), row[name])
        for name, text in zip(TO_TARGET, texts, strict=True)
    }


def failed_rows(story: Story) -> set[str]:
    """The labels of the rows in which training failed: none of them is marked as the best of a column."""
    if story.comparison is None:
        return set()
    return {label for (label, _), lost in zip(story.played, failed(story.comparison), strict=True) if lost}


def unmarked_rows(story: Story) -> set[str]:
    """The labels of the rows that are not marked as the best of a column: those in which training failed, and those that are not
    ranked: a run that has played fewer rounds has a lower accuracy and lower costs, and means over different seeds can differ by their
    seeds alone."""
    positions = unranked(story.comparison) if story.comparison is not None else frozenset()
    return failed_rows(story) | {story.played[i][0] for i in positions}


COSTS: dict[str, Format] = {
    "messages": formatted_values.count,
    "bytes_down": formatted_values.size,
    "bytes_up": formatted_values.size,
    "passes": formatted_values.count,
    "seconds": formatted_values.duration,
}
"""How the columns of the cost ledger are written."""


def ledger_rows(story: Story) -> list[dict[str, Any]]:
    """The rows of the table of costs: one for each strategy and kind of exchange."""
    by_label = {strategy["label"]: strategy for strategy in strategies(story)}
    return [
        {
            "strategy": by_label[row["strategy"]],
            "kind": row["kind"],
            "exchange": exchange_in_words(str(row["kind"])),
            "discloses": ", ".join(disclosed(str(row["discloses"] or ""))) or "–",
            **cells(row, COSTS),
        }
        for row in ledger(story).to_dict("records")
    ]


def how(story: Story) -> list[dict[str, Any]]:
    """How the runs of each row were made: experiment, versions, seeds, and the commands that repeat them."""
    experiments = [row.experiment for row in story.rows]
    return [
        _row_of_how(row.label, row.experiment, readings) | {"differs": _differing(experiments[0], row.experiment)}
        for row, readings in zip(story.rows, story.readings, strict=True)
    ]


def _differing(first: "Experiment", other: "Experiment") -> str:
    """The settings of an experiment that differ from those of the first row; those of another plug-in are not compared one by one."""
    before, here = (by_dotted_key(experiment.to_dict()) for experiment in (first, other))
    changed = [f"{key} = {setting(value)}" for key, value in here.items() if key not in before or before[key] != value]
    tables = {key.removesuffix("name") for key in before if key.endswith(".name") and before[key] != here.get(key)}
    gone = [key for key in before if key not in here and not key.startswith(tuple(tables))]
    return ", ".join([*changed, *(f"no {key}" for key in gone)])


def _command(run: "Run") -> str:
    """The command that repeats a run; code in the run directory runs only with consent."""
    file = shlex.quote(str(run.path / "experiment.toml"))
    return f"fedcohort run {file}{' --trust-plugins' * bool(run.plug_in_files)}"


def _row_of_how(label: str, experiment: "Experiment", readings: Sequence[Reading]) -> dict[str, Any]:
    first = readings[0]
    text = (first.run.path / "experiment.toml").read_text(encoding="utf-8")
    return {
        "name": label,
        "toml": _with_short_lists(text),
        "seeds": ", ".join(str(reading.seed) for reading in readings),
        "versions": {key: first.meta[key] for key in ("fedcohort", "python", "torch", "numpy") if key in first.meta},
        "commands": [_command(reading.run) for reading in readings],
        "data": first.meta.get("data", "")[:12],
        "public": first.meta.get("public", "none"),
        "keys": [reading.meta.get("key", "") for reading in readings],
        "status": unpublished(experiment, first.meta),
        "handed": any(line.startswith("# ") and "handed over in Python" in line for line in text.splitlines()),
    }


def _with_short_lists(toml: str) -> str:
    """An experiment for reading: of long lists, only the first lines."""
    shown: list[str] = []
    for in_list, lines in itertools.groupby(toml.splitlines(), lambda line: line.startswith("    ")):
        own = list(lines)
        if in_list and (left_out := len(own) - LONGEST_LIST) > 0:
            more = formatted_values.counted(left_out, "more line")
            own[LONGEST_LIST:] = [f"    # … {more} in experiment.toml of the run"]
        shown += own
    return "\n".join([*shown, ""])
