"""Print all measures of runs: a column for each row, or tables by topic with a line for each row if columns do not fit."""

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedcohort.core.words import formatted_values
from fedcohort.core.words.formatted_values import (
    about_of_seeds,
    count,
    duration,
    in_words,
    index,
    number,
    of_seeds,
    percent,
    size,
    time_on,
)
from fedcohort.core.words.score_style import ScoreStyle, score_style
from fedcohort.report.notes.cost_notes import PASSES
from fedcohort.report.terminal.layout import WIDE, Column, dimmed, fitting_table, natural_width, plain_table
from fedcohort.report.terminal.measures_notes import UNKNOWN, about_targets
from fedcohort.study.chance import AS_CHANCE

if TYPE_CHECKING:
    from fedcohort.study.conformal_coverage import Conformal
    from fedcohort.study.summary import OverSeeds, Summary

__all__ = ["summaries"]

Measure = tuple[str, Callable[["Summary"], str]]
"""The name of a measure, indented if it belongs to the one above it, and its text."""

HEADING = 10
"""Width in characters at which names of measures are wrapped in headings of columns."""

MOST_TABLES = 3
"""Most tables with a column for each row, one below the other."""

NARROWEST = 24
"""Least width in characters of the names of measures beside the columns of the rows."""


def summaries(
    names: Sequence[str],
    several: "Sequence[OverSeeds]",
    sets: "Sequence[Conformal]" = (),
    width: int = WIDE,
    seeds: str = "",
    notes: Sequence[str] = (),
) -> Group:
    """All measures of runs that are known for any row, means over the seeds of each row: one column for each row.

    Names of measures and of rows are wrapped so that the columns fit into the width. If they still do not fit, there are up to
    :data:`MOST_TABLES` such tables, with some of the rows each; with more rows, a table for each topic, with one line for each row.

    Args:
        names: names of the rows.
        several: the runs of each row.
        sets: the prediction sets of each row; empty without them.
        width: width of the terminal in characters.
        seeds: the seeds in words, if all rows have the same and their names do not tell them.
        notes: sentences about the rows, which come first below the tables.
    """
    score = score_style(own.mean.labels for own in several)
    measures = _topics([own.mean for own in several], score)
    topics = _with_texts(measures, several, score)
    if sets:
        topics.append(_topic_of_sets(sets, score))
    known = [[(name, cells) for name, cells in topic if set(cells) - {UNKNOWN}] for topic in topics]
    lines = [line for topic in known for line in topic]
    tables = _tables_by_row(names, lines, width) or _tables_by_topic(names, known, width)
    ranges = [ABOUT_RANGES] if sets else []
    below = dimmed(*notes, *_about_summaries(several, score, seeds), *_about_known(measures, several), *ranges)
    return Group(*(part for table in tables for part in (table, "")), *below)


def _tables_by_row(names: Sequence[str], lines: Sequence[tuple[str, list[str]]], width: int) -> list[RenderableType]:
    """As few tables by :func:`_table_by_row` as fit, with an even number of the rows each; none if they would be too many."""
    for parts_of_rows in range(1, min(MOST_TABLES, len(names)) + 1):
        size = math.ceil(len(names) / parts_of_rows)
        starts = range(0, len(names), size)
        parts = [
            _table_by_row(
                names[start : start + size], [(name, cells[start : start + size]) for name, cells in lines], width
            )
            for start in starts
        ]
        tables: list[RenderableType] = [table for table in parts if table is not None]
        if len(tables) == len(parts):
            return tables
    return []


def _table_by_row(names: Sequence[str], lines: Sequence[tuple[str, list[str]]], width: int) -> Table | None:
    """A table with a column for each row and a line for each measure; None if it does not fit."""
    columns = [Column(name, [cells[i] for _, cells in lines]) for i, name in enumerate(names)]
    whole = plain_table([Column("measure", [name for name, _ in lines], left=True), *columns])
    if natural_width(whole) <= width:
        return whole
    wrapped = [_with_wrapped_heading(column, width if len(names) == 1 else 0) for column in columns]
    room = width - natural_width(plain_table(wrapped)) - 2
    if room < NARROWEST:
        return None
    return plain_table([Column("measure", [_wrapped(name, room) for name, _ in lines], left=True), *wrapped])


def _with_wrapped_heading(column: Column, width: int) -> Column:
    """A column with its heading in lines that are as short as its cells, or longer by what a word needs.

    A single column has room for a third of the ``width``.
    """
    longest = max(cell_len(str(part)) for part in (*column.cells, *column.heading.split()))
    heading = textwrap.wrap(column.heading, max(longest, width // 3), break_long_words=False, break_on_hyphens=False)
    return column._replace(heading="\n".join(heading))


def _wrapped(name: str, width: int) -> str:
    """The name of a measure in lines of at most ``width`` characters; lines after the first are indented further."""
    indent = " " * (len(name) - len(name.lstrip()))
    return "\n".join(textwrap.wrap(name.strip(), width, initial_indent=indent, subsequent_indent=f"{indent}    "))


def _tables_by_topic(
    names: Sequence[str], topics: "Sequence[Sequence[tuple[str, list[str]]]]", width: int
) -> Iterator[RenderableType]:
    """Tables with a line for each row, and the measures of one topic."""
    first = Column("", [Text(name, style="bold") for name in names], left=True, widest=max(20, width // 3))
    for topic in topics:
        yield from _tables(first, [_as_column(name, cells) for name, cells in topic], width)


NEVER = "∞"
"""The text of the cost of a target that was not reached."""


def _as_column(name: str, cells: Sequence[str]) -> Column:
    """A measure as a column."""
    return Column("\n".join(textwrap.wrap(name.strip(), HEADING)), cells)


def _with_texts(
    topics: Sequence[Sequence[Measure]], several: "Sequence[OverSeeds]", score: ScoreStyle
) -> list[list[tuple[str, list[str]]]]:
    """The measures of each topic with their texts for each row: the first with its deviation, others with the seeds that have them."""
    first, spreads = topics[0][0], [score.spread(own.mean.accuracy, own.accuracy_sd) for own in several]
    texts = [
        [_marked(measure, [measure[1](own.mean) for own in several], several) for measure in topic] for topic in topics
    ]
    texts[0][0] = _marked(first, spreads, several)
    return texts


def _marked(measure: Measure, texts: Sequence[str], several: "Sequence[OverSeeds]") -> tuple[str, list[str]]:
    """The name of a measure, and its texts with the number of seeds that have it, if not all do."""
    return measure[0], [of_seeds(text, *_known(measure, own)) for text, own in zip(texts, several, strict=True)]


def _known(measure: Measure, own: "OverSeeds") -> tuple[int, int]:
    """The number of seeds that have a measure, and of all. A cost of the target has a value only if the target was reached."""
    name, text_of = measure
    without = (UNKNOWN, NEVER) if name.endswith(TO_IT) else (UNKNOWN,)
    return sum(text_of(run) not in without for run in own.runs), own.seeds


TO_IT = " to it"
"""How names of costs of the target end."""

OF_ADMITTED = "Jain's index of admitted updates"
"""The name of a measure that is not known under a seed without an admitted update."""


def _topics(runs: "Sequence[Summary]", score: ScoreStyle) -> list[list[Measure]]:
    """All measures of runs, by topic."""
    name, of_clients = score.name, score.of_client
    time_name, gain_in = _name_of_time({run.clock for run in runs}), f",{score.points}" if score.points else ""
    own_names = dict.fromkeys(name for run in runs for name in run.own_measures)
    of_test: list[Measure] = [
        (f"test {name}, last round", lambda run: score.value(run.accuracy)),
        *([] if score.numeric else [("  mean over classes", lambda run: percent(run.macro_accuracy))]),
        ("  best round", lambda run: score.value(run.best_accuracy)),
        (f"  early stop, by validation {name}", lambda run: score.value(run.early_stop_accuracy)),
        (f"local {of_clients} of the clients that trained last", lambda run: score.value(run.local_accuracy)),
    ]
    clients: list[Measure] = [
        (f"{of_clients} of all clients", lambda run: score.value(run.client_accuracy)),
        ("  of the worst-served tenth", lambda run: score.value(run.worst_client_accuracy)),
        ("  standard deviation over clients", lambda run: score.value(run.client_accuracy_sd)),
        (f"{of_clients} of personal models", lambda run: score.value(run.personal_accuracy)),
        ("  of the worst tenth of the clients", lambda run: score.value(run.worst_personal_accuracy)),
        (f"  gain over the global model{gain_in}", lambda run: score.signed(run.personal_gain)),
    ]
    own: list[Measure] = [(name, partial(_own_measure, name=name)) for name in own_names]
    target: list[Measure] = [
        (f"target {name}", lambda run: score.value(run.target)),
        (f"  rounds{TO_IT}", lambda run: formatted_values.rounds(run.rounds_to_target)),
        (f"  {time_name}{TO_IT}", lambda run: time_on(run.clock, run.time_to_target)),
        (f"  bytes{TO_IT}", lambda run: size(run.bytes_to_target)),
    ]
    whole: list[Measure] = [
        ("rounds", lambda run: formatted_values.rounds(run.rounds)),
        (time_name, lambda run: time_on(run.clock, run.simulated_time)),
        ("bytes", lambda run: size(run.bytes)),
        ("client passes", lambda run: count(run.client_passes)),
        ("wall time", lambda run: duration(run.wall_seconds["total"])),
    ]
    fields = {"Jain's index": "jain", "Gini": "gini", "entropy": "entropy", "coverage": "coverage"}
    selections: list[Measure] = [
        *((f"{words} of selections (chance)", partial(_beside_chance, name=field)) for words, field in fields.items()),
        (
            "  Jain's index under chance, 5% to 95%",
            lambda run: _unless_unknown(
                run.jain_random.q05, f"{index(run.jain_random.q05)} to {index(run.jain_random.q95)}"
            ),
        ),
        (OF_ADMITTED, lambda run: index(run.admitted.jain)),
    ]
    stability: list[Measure] = [
        ("standard deviation over the last fifth of the rounds", lambda run: score.value(run.tail_sd, 2)),
        ("largest drop in a round", lambda run: score.value(run.largest_drop)),
        *([] if score.numeric else [("forgetting", lambda run: percent(run.forgetting))]),
    ]
    return [of_test, clients, own, target, whole, selections, stability]


def _tables(first: Column, columns: Sequence[Column], width: int) -> Iterator[RenderableType]:
    """Tables that begin with ``first`` and have as many of the columns as fit; one that has a single column can be too wide."""
    rest = list(columns)
    single = max((natural_width(plain_table([column])) for column in columns), default=0)
    if natural_width(plain_table([first])) + single + 2 > width:
        first = first._replace(widest=max(20, width - single - 2))
    while rest:
        number = _fitting(first, rest, width)
        tables = math.ceil(len(rest) / number)
        # a table that has a single column left would be hard to compare with the others
        even = math.ceil(len(rest) / tables)
        yield fitting_table([first, *rest[:even]], width)[0]
        rest = rest[even:]


def _fitting(first: Column, columns: Sequence[Column], width: int) -> int:
    """How many of the columns fit beside ``first``, at least one."""
    numbers = range(len(columns), 1, -1)
    return next((n for n in numbers if natural_width(plain_table([first, *columns[:n]])) <= width), 1)


_SETS = (
    "coverage of prediction sets", "  expected on average", "  of one calibration, 5% to 95%", "  mean size", "  empty",
)  # fmt: skip

_INTERVALS = ("coverage of prediction intervals", *_SETS[1:3], "  length, in units of the labels")

ABOUT_RANGES = (
    "Ranges of the coverage: for a very large test set; on a small one, it varies more. They assume that test samples are like "
    "validation samples, which are never shifted, and that the latter decided nothing about the model: a strategy that learns from "
    "the validation set decides by them."
)
"""What the ranges of the coverage of prediction sets are, and what they assume."""


def _topic_of_sets(sets: "Sequence[Conformal]", score: ScoreStyle) -> list[tuple[str, list[str]]]:
    cells = zip(*map(_about_sets, sets), strict=True)
    return [(name, list(texts)) for name, texts in zip(_INTERVALS if score.numeric else _SETS, cells, strict=True)]


def _about_sets(conformal: "Conformal") -> list[str]:
    """The measures of prediction sets, in the order of :data:`_SETS`, or of intervals, in that of :data:`_INTERVALS`."""
    ranges = [f"{percent(low)} to {percent(high)}" for low, high in (conformal.expected, conformal.likely)]
    sets = conformal.sets
    if conformal.labels == "numbers":
        return [percent(sets.coverage), *ranges, number(sets.size)]
    return [percent(sets.coverage), *ranges, count(sets.size, 2), percent(sets.empty)]


def _about_summaries(several: "Sequence[OverSeeds]", score: ScoreStyle, seeds: str) -> Iterator[str]:
    """Notes below the table of all measures."""
    runs = [own.mean for own in several]
    if any(own.seeds > 1 for own in several):
        yield f"Means over {seeds or 'seeds'}; the test {score.name} ± its standard deviation over seeds."
    elif seeds:
        yield f"{seeds[0].upper()}{seeds[1:]}."
    percents = "" if score.numeric else f"{in_words(_in_percent(several))} are in %. "
    yield f"{percents}Chance: {AS_CHANCE}."
    yield PASSES
    if not any(math.isfinite(run.client_accuracy) for run in runs):
        of_all = f"The {score.of_client} of all clients"
        yield f"{of_all} was not measured. To measure it after every round, set measures.clients_every = 1."
    yield from about_targets(several, score)


def _in_percent(several: "Sequence[OverSeeds]") -> list[str]:
    """The measures in percent that the table has, in words."""
    deviations = [x for own in several for x in (own.accuracy_sd, own.mean.tail_sd, own.mean.client_accuracy_sd)]
    known = {
        "standard deviations": deviations,
        "drop": [own.mean.largest_drop for own in several],
        "forgetting": [own.mean.forgetting for own in several],
    }
    return ["Accuracies", *(name for name, values in known.items() if any(map(math.isfinite, values)))]


def _about_known(topics: Sequence[Sequence[Measure]], several: "Sequence[OverSeeds]") -> Iterator[str]:
    """Notes about means of measures, other than costs of the target, that some seeds do not have."""
    others = [measure for topic in topics for measure in topic if not measure[0].endswith(TO_IT)]
    beside = " beside other measures" if any(0 < own.reached < own.seeds for own in several) else ""
    if marks := about_of_seeds((_known(measure, own) for measure in others for own in several), "gave a value", beside):
        yield marks
    evenness = [run.admitted.jain for own in several for run in own.runs]
    if any(map(math.isnan, evenness)) and not all(map(math.isnan, evenness)):
        yield f"{OF_ADMITTED}: not known under a seed that admitted no update."


def _name_of_time(clocks: set[str]) -> str:
    """The name of what the clocks of some runs measure."""
    if "wall" not in clocks:
        return "simulated time"
    return "wall time of rounds" if len(clocks) == 1 else "simulated time, or wall time of rounds"


def _own_measure(run: "Summary", name: str) -> str:
    return number(run.own_measures.get(name, math.nan))


def _beside_chance(run: "Summary", name: str) -> str:
    own = getattr(run.selected, name)
    return _unless_unknown(own, f"{index(own)} ({index(getattr(run.selected_random, name))})")


def _unless_unknown(value: float, text: str) -> str:
    return UNKNOWN if math.isnan(value) else text
