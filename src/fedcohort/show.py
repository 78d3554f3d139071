"""What the terminal shows: tables that choose their columns by width, and the progress of runs."""

import io
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from fedcohort.experiment import Cell, Choice, Experiment
    from fedcohort.federation.datasets import Dataset
    from fedcohort.federation.partition import PartitionReport
    from fedcohort.federation.survey import Survey
    from fedcohort.record import RoundRow
    from fedcohort.runs.play import Progress as Told
    from fedcohort.study.comparison import Comparison, Result
    from fedcohort.study.coverage import Conformal
    from fedcohort.study.profiling import Profile
    from fedcohort.study.summary import Summary
    from fedcohort.study.why import Explanation

__all__ = [
    "as_json", "as_text", "comparison", "explanation", "federation_facts", "known_data", "partition", "plug_ins", "profile", "results",
    "screen", "summaries", "watching",
]  # fmt: skip

WIDE = 120
"""Columns where there is no terminal to ask."""

SHOWN_CLIENTS = 30
"""Clients that are shown one by one at most."""

LINES = 40
"""Progress lines of all runs together, about, where there is no terminal; between 1 and 10 a run."""


def screen() -> Console:
    """Standard output; names that users gave are never read as markup."""
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console


def as_text(renderable: RenderableType, width: int = WIDE) -> str:
    """What would be printed, without colours."""
    file = io.StringIO()
    Console(file=file, width=width, color_system=None, legacy_windows=False).print(renderable)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def as_json(value: Any) -> str:
    """One JSON document; NaN and ±∞ are null, paths are strings."""
    return json.dumps(_json(value), indent=2, ensure_ascii=False, allow_nan=False)


# --- numbers as words --------------------------------------------------------------------------------------------------------


def percent(fraction: float, digits: int = 1) -> str:
    """0.8123 as 81.2, – when it is unknown."""
    return f"{100 * fraction:.{digits}f}" if math.isfinite(fraction) else "–"


def signed(fraction: float) -> str:
    """0.031 as +3.1."""
    return f"{100 * fraction:+.1f}".replace("-", "−") if math.isfinite(fraction) else "–"


def count(number: float, digits: int = 0) -> str:
    """1234.5 as 1,234."""
    return f"{number:,.{digits}f}" if math.isfinite(number) else "–"


def index(value: float) -> str:
    """An index between 0 and 1."""
    return f"{value:.3f}" if math.isfinite(value) else "–"


def size(number: float) -> str:
    """1234567 as 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 99.5 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def duration(seconds: float) -> str:
    """Wall time: 3.1 s, 2:05 min, 1:02:05 h."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes}:{left:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{left:02d} h"


# --- tables ------------------------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """One column: heading, cells, when it goes (the lowest rank first; None never), and how it stands."""

    heading: str
    cells: Sequence[str | Text]
    rank: int | None = None
    left: bool = False
    widest: int | None = None


def _fitting(columns: Sequence[Column], width: int) -> tuple[Table, list[str]]:
    """A table of the columns that fit, and the headings of those that do not."""
    kept = list(columns)
    while True:
        table = _table(kept)
        natural = Measurement.get(_ROOMY, _ROOMY.options, table).maximum
        going = min((column for column in kept if column.rank is not None), key=lambda c: c.rank or 0, default=None)
        if natural <= width or going is None:
            return table, [_words(column.heading) for column in columns if column not in kept]
        kept.remove(going)


def _words(heading: str) -> str:
    return heading.replace("\n", " ")


def _table(columns: Sequence[Column]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            Text(column.heading, justify="left" if column.left else "right"),
            justify="left" if column.left else "right",
            vertical="top",
            max_width=column.widest,
            no_wrap=column.widest is None,
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
    return table


_ROOMY = Console(file=io.StringIO(), width=1000)


def _notes(*lines: str) -> list[RenderableType]:
    return [Text(line, style="dim") for line in lines if line]


def _wider(hidden: Sequence[str]) -> str:
    return f"Wider terminals also show: {', '.join(hidden)}." if hidden else ""


def _label_width(width: int) -> int:
    return max(16, round(0.225 * width))


# --- a comparison ------------------------------------------------------------------------------------------------------------


def comparison(compared: "Comparison", width: int = WIDE) -> Group:
    """The table of a comparison, and what its numbers mean."""
    rows = [{str(key): value for key, value in row.items()} for row in compared.table.to_dict("records")]
    target = compared.target.accuracy
    goal = f"{100 * target:g} %"
    several = len({row["algorithm"] for row in rows}) > 1
    columns = [
        Column("strategy", [Text(row["label"], style="bold") for row in rows], left=True, widest=_label_width(width)),
        *([Column("algorithm", [row["algorithm"] for row in rows], 2, left=True)] if several else []),
        Column("test\naccuracy", [_spread(row["accuracy"], row["accuracy_sd"]) for row in rows]),
        Column("difference\n[95 % interval]", [_difference(row, i == 0) for i, row in enumerate(rows)]),
        Column("best", [percent(row["best_accuracy"]) for row in rows], 4),
        Column("early\nstop", [percent(row["early_stop_accuracy"]) for row in rows], 3),
        Column(f"rounds\nto {goal}", [_reached(row) for row in rows], 9),
        Column(f"time\nto {goal}", [count(row["time_to_target"]) for row in rows], 8),
        Column("Jain", [index(row["jain"]) for row in rows], 7),
        Column("bytes", [size(row["bytes"]) for row in rows], 6),
        Column("client\npasses", [count(row["client_passes"]) for row in rows], 1),
        Column("wall\ntime", [duration(row["wall_seconds"]) for row in rows], 5),
    ]
    table, hidden = _fitting(columns, width)
    return Group(
        Text(compared.name, style="bold"),
        "",
        table,
        "",
        *_notes(*_explained(compared, rows), _wider(hidden)),
    )


def _explained(compared: "Comparison", rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    seeds = compared.seeds
    if len(seeds) > 1:
        yield (
            f"Test accuracy after the last round, in %: mean ± standard deviation over {len(seeds)} seeds "
            f"({_ids(seeds)}). Difference to {rows[0]['label']!r}, paired over seeds."
        )
    else:
        yield (
            f"Test accuracy after the last round, in %, seed {seeds[0]}. One seed has no spread and no interval: "
            "take seeds = 3 or more to tell strategies apart."
        )
    partly = next((row for row in rows if 0 < row["reached"] < row["seeds"]), None)
    never = any(row["reached"] == 0 for row in rows)
    share = f"({partly['reached']}/{partly['seeds']})" if partly is not None else ""
    means = (
        f" {share}: only {share[1:-1].replace('/', ' of ')} seeds reached it, and the mean is theirs." if share else ""
    )
    means += " –: no seed reached it." if never else ""
    yield f"Target accuracy {100 * compared.target.accuracy:g} %: {compared.target.chosen}.{means}"
    chance: dict[str, list[str]] = {}
    for row in rows:
        chance.setdefault(index(row["jain_random"]), []).append(row["label"])
    usual = max(chance, key=lambda value: len(chance[value]))
    others = [f"{' and '.join(map(repr, labels))} {value}" for value, labels in chance.items() if value != usual]
    per = f"{usual} ({', '.join(others)})" if others else usual
    yield (
        "Time is simulated; 1 is the least time per sample of a round's work. "
        f"Jain: 1 is even; uniform chance gives {per} on average."
    )
    ours: dict[str, list[str]] = {}
    for one in compared.rows:
        title = next(iter(one.runs.values())).meta.get("algorithm", "")
        if title.endswith("(ours)"):
            ours.setdefault(title, []).append(repr(one.label))
    for title, labels in ours.items():
        yield f"{title}: {', '.join(labels)}. The algorithm's source has no such local optimiser."
    for label, results in compared.results.items():
        dropped = sum(one.diverged for one in results)
        if dropped:
            updates = sum(one.updates for one in results)
            yield f"{label!r}: {dropped} of {updates} updates had NaN or infinite entries and were dropped."


def _spread(mean: float, sd: float) -> str:
    return f"{percent(mean)} ± {percent(sd)}" if math.isfinite(sd) else percent(mean)


def _difference(row: Mapping[str, Any], first: bool) -> Text:
    if first or not math.isfinite(row["difference"]):
        return Text("–")
    low, high = row["difference_low"], row["difference_high"]
    interval = f"[{signed(low)}, {signed(high)}]" if math.isfinite(low) else "[–]"
    style = "green" if low > 0 else "red" if high < 0 else ""
    return Text(f"{signed(row['difference'])} {interval}", style=style)


def _reached(row: Mapping[str, Any]) -> str:
    mean = row["rounds_to_target"]
    rounds = count(mean, 0 if mean >= 9.95 or mean % 1 == 0 else 1)
    return f"{rounds} ({row['reached']}/{row['seeds']})" if 0 < row["reached"] < row["seeds"] else rounds


def _ids(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    return f"{first} to {last}" if last - first == len(numbers) - 1 > 1 else ", ".join(map(str, numbers))


# --- the results of one row --------------------------------------------------------------------------------------------------


def results(label: str, runs: "Sequence[Result]", width: int = WIDE) -> Group:
    """What each seed came to."""
    columns = [
        Column("seed", [str(one.seed) for one in runs]),
        Column("final\naccuracy", [percent(one.accuracy) for one in runs]),
        Column("best\naccuracy", [percent(one.best_accuracy) for one in runs]),
        Column("early\nstop", [percent(one.early_stop_accuracy) for one in runs], 1),
        Column("local\naccuracy", [percent(one.local_accuracy) for one in runs]),
        Column("Jain", [index(one.jain) for one in runs]),
        Column("Jain of\nchance", [index(one.jain_random) for one in runs]),
        Column("simulated\ntime", [count(one.simulated_time) for one in runs]),
        Column("bytes", [size(one.bytes) for one in runs], 2),
        Column("wall\ntime", [duration(one.wall_seconds) for one in runs]),
    ]
    table, _ = _fitting(columns, width)
    rounds = sorted({one.rounds for one in runs})
    return Group(
        Text.assemble((label, "bold"), f", {_ids(rounds)} rounds"),
        "",
        table,
        "",
        *_notes(
            "Accuracies in %: on the test set; local: of the last round's clients on their training data, while they train.",
            "Jain index of who was selected: 1 is even; beside it what uniform chance gives on average.",
        ),
    )


# --- all measures of runs ----------------------------------------------------------------------------------------------------


def summaries(
    names: Sequence[str], runs: "Sequence[Summary]", sets: "Sequence[Conformal]" = (), width: int = WIDE
) -> Group:
    """One line a measure, one column a run."""
    rows: list[tuple[str, Callable[[Summary], str]]] = [
        ("test accuracy, last round", lambda one: percent(one.accuracy)),
        ("  mean over classes", lambda one: percent(one.macro_accuracy)),
        ("  best round", lambda one: percent(one.best_accuracy)),
        ("  at best validation accuracy", lambda one: percent(one.early_stop_accuracy)),
        ("accuracy of the last round's clients", lambda one: percent(one.local_accuracy)),
        ("accuracy of all clients", lambda one: percent(one.client_accuracy)),
        ("  of the worst-served tenth", lambda one: percent(one.worst_client_accuracy)),
        ("target accuracy", lambda one: percent(one.target)),
        ("  rounds to it", lambda one: count(one.rounds_to_target)),
        ("  simulated time to it", lambda one: count(one.time_to_target)),
        ("  bytes to it", lambda one: size(one.bytes_to_target) if math.isfinite(one.bytes_to_target) else "–"),
        ("rounds", lambda one: count(one.rounds)),
        ("simulated time", lambda one: count(one.simulated_time)),
        ("bytes", lambda one: size(one.bytes)),
        ("client passes", lambda one: count(one.client_passes)),
        ("wall time", lambda one: duration(one.wall_seconds["total"])),
        *(
            (f"{word} of who was selected (chance)", partial(_beside_chance, name=word.lower()))
            for word in ("Jain", "Gini", "Entropy", "Coverage")
        ),
        ("  Jain under chance, 5 to 95 %", lambda one: f"{index(one.jain_random.q05)} to {index(one.jain_random.q95)}"),
        ("Jain of who was admitted", lambda one: index(one.admitted.jain)),
        ("deviation over the last fifth", lambda one: percent(one.tail_sd, 2)),
        ("largest drop in a round", lambda one: percent(one.largest_drop)),
        ("forgetting", lambda one: percent(one.forgetting)),
    ]
    cells = [[tell(one) for _, tell in rows] for one in runs]
    heads = [name for name, _ in rows]
    if sets:
        heads += ["coverage of prediction sets", "  expected on average", "  of one calibration, 5 to 95 %"]
        heads += ["  mean size", "  empty"]
        for column, one in zip(cells, sets, strict=True):
            ranges = [f"{percent(low)} to {percent(high)}" for low, high in (one.expected, one.likely)]
            column += [percent(one.sets.coverage), *ranges]
            column += [f"{one.sets.size:.2f}", percent(one.sets.empty)]
    columns = [Column("measure", heads, left=True)]
    for i, (name, column) in enumerate(zip(names, cells, strict=True)):
        columns.append(Column(name, column, len(cells) - i if i else None))
    table, hidden = _fitting(columns, width)
    return Group(
        table,
        "",
        *_notes(
            "Accuracies, deviation, drop and forgetting in %. Chance: as many of all clients, selected uniformly in every round.",
            ""
            if any(math.isfinite(one.client_accuracy) for one in runs)
            else "Accuracy of all clients: not measured; run with measures.clients_every = 1, say.",
            _wider(hidden),
        ),
    )


def _beside_chance(one: "Summary", name: str) -> str:
    return f"{index(getattr(one.selected, name))} ({index(getattr(one.selected_random, name))})"


# --- why these clients -------------------------------------------------------------------------------------------------------


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
        table, hidden = _fitting(columns, width)
        parts += [table, ""]
    if found.asked:
        parts += [_fitting(_asked(found), width)[0], ""]
    more = len(found.candidates) - len(shown) if found.client is None else 0
    return Group(*parts, *_notes(f"{more:,} more candidates: --json has them." if more else "", _wider(hidden)))


def _asked(found: "Explanation") -> list[Column]:
    return [
        Column("asked", [one.kind for one in found.asked], left=True),
        Column("messages", [count(one.messages) for one in found.asked]),
        Column("down", [size(one.bytes_down) for one in found.asked], 2),
        Column("up", [size(one.bytes_up) for one in found.asked], 3),
        Column("passes", [count(one.passes, 1) for one in found.asked], 1),
        Column("the server learned of each", [one.discloses for one in found.asked], left=True, widest=60),
    ]


# --- a partition -------------------------------------------------------------------------------------------------------------


def partition(experiment: "Experiment", data: "Dataset", survey: "Survey", width: int = WIDE) -> Group:
    """Who holds what: clients × classes for the first clients, and quantiles over all where there are more."""
    report = survey.report
    m, shown = len(report.sizes), min(len(report.sizes), SHOWN_CLIENTS)
    chosen = experiment.federation.partition
    changes = (
        ("Label noise", experiment.federation.label_noise),
        ("Feature shift", experiment.federation.feature_shift),
    )
    parts: list[RenderableType] = [
        Text.assemble(
            (data.name, "bold"),
            f": {data.num_train:,} training and {len(data.test_labels):,} test samples, {data.num_classes} classes",
        ),
        Text(f"{m:,} clients by {_called(chosen)}, seed {experiment.seed}"),
        *[Text(f"{what}: {_called(c)}") for what, c in changes if c.name != "none"],
        *map(Text, _systems(experiment, survey)),
        Text(
            f"Label skew like that of a Dirichlet law with alpha (total) {_alpha(report.effective_alpha)}"
            + (", before label noise" if survey.wrong_labels.any() else "")
        ),
        "",
    ]
    if m > shown:
        parts += [_quantiles(survey), "", Text(f"The first {shown} of {m:,} clients:"), ""]
    table, hidden = _matrix(data, survey, shown, width)
    parts += [table, ""]
    named = any(name != str(i) for i, name in enumerate(data.classes))
    notes = [
        ""
        if "distance" in hidden
        else "distance: total variation between the client's class mixture and everybody's, from 0 (the same) to 1.",
        f"{report.dropped:,} training samples belong to no client." if report.dropped else "",
        "Counts are of the labels that the clients have, wrong ones included." if survey.wrong_labels.any() else "",
        "time: simulated, for one round of nominal work, whatever its number of epochs; at least 1 per sample.",
        "Classes: " + ", ".join(f"{i} {name}" for i, name in enumerate(data.classes)) if named else "",
        _wider(hidden),
    ]
    return Group(*parts, *_notes(*notes))


def federation_facts(experiment: "Experiment", data: "Dataset", survey: "Survey") -> list[tuple[str, str]]:
    """How a federation was made and what came of it, in words: what pictures do not say."""
    report, federation, systems = survey.report, experiment.federation, experiment.systems
    left = f", {report.dropped:,} training samples belong to no client" if report.dropped else ""
    noise = "none" if federation.label_noise.name == "none" else _called(federation.label_noise)
    distances = report.distance[np.isfinite(report.distance)]
    facts = [
        ("Data", f"{data.name}: {data.num_train:,} training and {len(data.test_labels):,} test samples, {data.num_classes} classes"),
        ("Partition", f"{_called(federation.partition)}, seed {experiment.seed}{left}"),
        ("Label skew", f"like a Dirichlet law with alpha (total) {_alpha(report.effective_alpha)}"
         + (", before label noise" if survey.wrong_labels.any() else "")),
    ]  # fmt: skip
    if len(distances):
        low, middle, high = np.quantile(distances, (0, 0.5, 1))
        spread = f"{low:.2f} to {high:.2f}, median {middle:.2f}"
        facts.append(("Distance", f"{spread}: total variation to everybody's class mixture, 0 is the same mixture"))
    facts.append(("Label noise", noise))
    facts.append(
        ("Feature shift", "none" if federation.feature_shift.name == "none" else _called(federation.feature_shift))
    )
    held_out = f"{survey.held_out.sum():,} samples, share {federation.holdout:g} of each client's"
    facts.append(("Held out by clients", held_out if federation.holdout else "nothing"))
    facts += [(what.capitalize(), _called(getattr(systems, what))) for what in ("latency", "network", "availability")]
    return facts + [(name, words) for name, _, words in _waiting(experiment, survey)]


def _systems(experiment: "Experiment", survey: "Survey") -> Iterator[str]:
    """What makes clients slow, absent or late, as far as it was asked for."""
    systems, plain = experiment.systems, type(experiment)().systems
    for what in ("latency", "network", "availability"):
        choice = getattr(systems, what)
        if choice != getattr(plain, what):
            yield f"{what.capitalize()}: {_called(choice)}"
    for name, mark, words in _waiting(experiment, survey):
        yield f"{name}{mark}{words}"


def _waiting(experiment: "Experiment", survey: "Survey") -> Iterator[tuple[str, str, str]]:
    """Who fails, and for whom the server waits: a name, what stands after it in a sentence, and words."""
    systems = experiment.systems
    if systems.dropout:
        yield "Drop-out", ": ", f"a selected client fails with probability {systems.dropout:g}"
    if systems.deadline is not None:
        with_data = survey.time[survey.report.sizes > 0]
        late = int((with_data > systems.deadline).sum())
        words = f"{late:,} of {len(with_data):,} clients need longer for nominal work in round 1"
        yield "Deadline", " ", f"{systems.deadline:g}: {words}"
    if systems.overcommit > 1:
        yield "Over-commitment", ": ", f"{systems.overcommit:g} clients are invited for each that is waited for"


def _called(choice: "Choice") -> str:
    words = ", ".join(f"{key} = {_value(value)}" for key, value in choice.parameters.items())
    return f"{choice.name}({words})" if words else choice.name


def _alpha(value: float) -> str:
    if math.isnan(value):
        return "–"
    return "∞: no more than a random split has" if math.isinf(value) else f"{value:.2g}"


def _matrix(data: "Dataset", survey: "Survey", shown: int, width: int) -> tuple[Table, list[str]]:
    report = survey.report
    counts = report.counts[:shown]
    traits = _traits(survey, shown)
    first = Column("client", [*map(str, range(shown)), Text("all", style="bold")])
    samples = Column("samples", [*(f"{n:,}" for n in report.sizes[:shown]), f"{report.sizes.sum():,}"])
    largest = Column("largest\nclass", [*(_dominant(data, report, i) for i in range(shown)), ""], left=True)
    distance = Column("distance", [*(f"{d:.2f}" if math.isfinite(d) else "–" for d in report.distance[:shown]), ""], 2)
    held = Column("classes\nheld", [*(str(n) for n in report.num_classes[:shown]), ""], 1)
    classes = [
        Column(str(c), [*(_held(counts[i, c], c == report.dominant[i]) for i in range(shown)), f"{total:,}"])
        for c, total in enumerate(report.counts.sum(axis=0))
    ]
    for kept in ([largest, distance, held, *traits], [largest, distance, *traits], [largest, *traits], traits, []):
        table = _table([first, *classes, samples, *kept])
        if Measurement.get(_ROOMY, _ROOMY.options, table).maximum <= width:
            return table, [
                _words(column.heading) for column in (largest, distance, held, *traits) if column not in kept
            ]
    mixtures = [*(_mixture(data, counts[i]) for i in range(shown)), ""]
    mixture = Column("largest classes", mixtures, left=True, widest=width // 2)
    return _fitting([first, mixture, samples, *traits, held, distance], width)


def _traits(survey: "Survey", shown: int) -> list[Column]:
    """Columns for what makes clients differ besides their classes, as far as anything does."""
    columns = [Column("time", [*(count(float(value)) for value in survey.time[:shown]), ""], 3)]
    if survey.wrong_labels.any():
        columns.append(
            Column("wrong\nlabels", [*(f"{100 * rate:.0f} %" for rate in survey.wrong_labels[:shown]), ""], 5)
        )
    if survey.held_out.any():
        columns.append(Column("held\nout", [*(f"{n:,}" for n in survey.held_out[:shown]), ""], 2))
    if (survey.presence < 1).any():
        columns.append(Column("there", [*(f"{100 * share:.0f} %" for share in survey.presence[:shown]), ""], 4))
    if survey.shift:
        columns.append(Column("shift", [*survey.shift[:shown], ""], 2, left=True))
    return columns


def _held(number: int, dominant: bool) -> Text:
    return Text("·", style="dim") if number == 0 else Text(f"{number:,}", style="bold" if dominant else "")


def _dominant(data: "Dataset", report: "PartitionReport", client: int) -> str:
    c = int(report.dominant[client])
    return "–" if c < 0 else f"{data.classes[c]} {percent(float(report.dominant_share[client]), 0)} %"


def _mixture(data: "Dataset", counts: "np.ndarray[Any, Any]", most: int = 3) -> str:
    order = [int(c) for c in np.argsort(-counts, kind="stable") if counts[c]]
    shares = [counts[c] / counts.sum() for c in order[:most]]
    words = [
        f"{data.classes[c]} {percent(share, 0) if share >= 0.005 else '<1'} %"
        for c, share in zip(order, shares, strict=False)
    ]
    return ", ".join([*words, *([f"{len(order) - most} more"] if len(order) > most else [])]) or "–"


QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def quantiles(survey: "Survey") -> dict[str, dict[str, float]]:
    """Of all clients: samples, classes held, share of the largest class, distance, time and so on, by level (:data:`QUANTILES`)."""
    report = survey.report
    rows = {
        "samples": report.sizes,
        "classes held": report.num_classes,
        "largest class, share": report.dominant_share,
        "distance": report.distance,
        "time": survey.time,
        "sending, share of time": survey.sending / np.where(survey.time > 0, survey.time, np.nan),
        "wrong labels, share": survey.wrong_labels,
        "presence": survey.presence,
    }
    levels = [f"{q:g}" for q in QUANTILES]
    return {
        name: dict(
            zip(levels, np.nanquantile(values.astype(float), QUANTILES, method="inverted_cdf").tolist(), strict=True)
        )
        for name, values in rows.items()
    }


def _quantiles(survey: "Survey") -> Table:
    rows = quantiles(survey)
    heads = ["least", *(f"{100 * q:g} %" for q in QUANTILES[1:-1]), "most"]
    columns = [Column(f"quantiles over\n{len(survey.time):,} clients", list(rows), left=True)]
    for i, head in enumerate(heads):
        values = {name: list(by_level.values())[i] for name, by_level in rows.items()}
        cells = [count(v) if name in ("samples", "classes held", "time") else f"{v:.2f}" for name, v in values.items()]
        columns.append(Column(head, cells))
    return _table(columns)


def known_data(known: Sequence[Mapping[str, str]]) -> Group:
    """Names of data sets, and where they come from."""
    columns = [
        Column("name", [Text(one["name"], style="bold") for one in known], left=True),
        Column("from", [one["from"] for one in known], left=True),
        Column("here", [one["here"] for one in known], left=True),
    ]
    return Group(
        _table(columns),
        "",
        *_notes(
            "Also: any image classification data set of the Hub by its id, owner/name; a folder train/<class>/*.png; "
            "arrays from Python (fedcohort.from_arrays).",
            "A local mirror in the layout of the Hub is looked into first: --data-dir, or the variable FEDCOHORT_DATA.",
        ),
    )


# --- batch sizes -------------------------------------------------------------------------------------------------------------


def profile(found: "Profile", width: int = WIDE) -> Group:
    """Batch sizes side by side, and the recommended ones."""
    sizes = found.sizes
    columns = [
        Column("batch\nsize", [Text(str(one.batch_size), style="bold") for one in sizes]),
        Column(
            "mini-batch,\nms", [f"{1e3 * one.batch_seconds:.3g} ± {1e3 * one.batch_seconds_sd:.2g}" for one in sizes]
        ),
        Column(
            "samples\nper second", [f"{one.samples_per_second:,.0f} ± {percent(one.precision, 0)} %" for one in sizes]
        ),
        Column("peak\nmemory", [size(one.memory) for one in sizes]),
        Column("± over\nclients", [size(one.memory_sd) if math.isfinite(one.memory_sd) else "–" for one in sizes], 1),
        Column("before\ntraining", [size(one.memory_before) for one in sizes], 1),
        Column("test\naccuracy", [percent(one.accuracy) for one in sizes]),
        Column("accuracy\nof clients", [percent(one.client_accuracy) for one in sizes], 2),
        Column("passes", [str(one.passes) for one in sizes], 0),
    ]
    table, hidden = _fitting(columns, width)
    loose = [str(one.batch_size) for one in sizes if not one.tight]
    return Group(
        Text(found.name, style="bold"), "", table, "",
        *[Text.assemble((f"{one.batch_size}", "bold"), f" by {one.rule}: {one.reason}") for one in found.recommendations], "",
        *_notes(
            f"Memory: {'allocated on the device' if sizes[0].where == 'device' else 'resident, of a fresh process'}.",
            f"Accuracies in %, after {found.rounds} rounds." if found.rounds else "",
            f"Not as tight as asked for: {', '.join(loose)}. Give more --seconds, or a machine that is less busy." if loose else "",
            _wider(hidden),
        ),
    )  # fmt: skip


# --- strategies, algorithms, partitions, models ------------------------------------------------------------------------------


def plug_ins(sections: "Mapping[str, Sequence[Mapping[str, Any]]]") -> Group:
    """Everything that can be named in an experiment, with its parameters."""
    parts: list[RenderableType] = []
    for title, entries in sections.items():
        parts += [Text(title, style="bold underline"), ""]
        for entry in entries:
            parts += [_plug_in(entry), ""]
    return Group(*parts[:-1])


_STATUS = {
    "paper": "as in its source",
    "code": "checked against a public implementation",
    "ours": "our reading or design, not a published method",
}


def _plug_in(entry: Mapping[str, Any]) -> Group:
    lines: list[RenderableType] = [Text.assemble((entry["name"], "bold cyan"), "  ", entry["summary"])]
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True)
    facts.add_column()
    if "source" in entry:
        facts.add_row(Text("source", style="dim"), Text(entry["source"]))
        facts.add_row(Text("status", style="dim"), Text(f"{entry['status']}: {_STATUS[entry['status']]}"))
        for fact in ("asks", "discloses", "knows", "cost", "needs"):
            if entry.get(fact):
                facts.add_row(Text(fact, style="dim"), Text(entry[fact] if fact != "needs" else ", ".join(entry[fact])))
    for parameter in entry["parameters"]:
        head = Text.assemble((parameter["name"], "green"), f" = {_value(parameter['default'])}")
        facts.add_row(head, Text.assemble(parameter["doc"].replace("``", ""), (f"  ({parameter['type']})", "dim")))
    if facts.row_count:
        lines.append(Padding(facts, (0, 0, 0, 2)))
    return Group(*lines)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if value != int(value) else f"{value:.1f}"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# --- progress ----------------------------------------------------------------------------------------------------------------


@contextmanager
def watching(cells: "Sequence[Cell]", *, quiet: bool) -> "Iterator[Told | None]":
    """What to call after every round: a bar on a terminal, a few plain lines for each run elsewhere; always on standard error."""
    if quiet:
        yield None
        return
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    if not sys.stderr.isatty() or console.is_dumb_terminal:
        yield _Lines(cells)
        return
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[facts]}", markup=False),
        console=console,
        transient=True,
        expand=True,
    ) as bar:
        yield _Bar(cells, bar)


class _Course:
    """How far all runs together are. They are played in the order of ``cells``; those finished before are passed over."""

    def __init__(self, cells: "Sequence[Cell]", clock: Callable[[], float] = time.monotonic) -> None:
        self._number = {(cell.label, cell.seed): i for i, cell in enumerate(cells)}
        self._before = np.cumsum([0, *(cell.experiment.rounds for cell in cells)])
        self._clock, self._first, self._played = clock, math.nan, 0
        self._accuracy = math.nan
        self.runs, self.total = len(cells), int(self._before[-1])

    def step(self, cell: "Cell", row: "RoundRow") -> "_Step":
        """Count one round."""
        number = self._number[cell.label, cell.seed]
        self._played += 1
        now = self._clock()
        if self._played == 1:
            self._first = now  # importing and loading, before it, say nothing about the rounds to come
        if row.round == 1 or math.isfinite(row.test_accuracy):
            self._accuracy = row.test_accuracy
        done = int(self._before[number]) + row.round
        pace = (now - self._first) / (self._played - 1) if self._played > 1 else math.nan
        return _Step(number + 1, done, self._accuracy, pace * (self.total - done))


class _Step(NamedTuple):
    run: int
    done: int
    accuracy: float
    seconds_left: float


class _Bar:
    def __init__(self, cells: "Sequence[Cell]", bar: Progress) -> None:
        self._course, self._bar = _Course(cells), bar
        self._task = bar.add_task("preparing", total=self._course.total, facts="")

    def __call__(self, cell: "Cell", row: "RoundRow") -> None:
        step = self._course.step(cell, row)
        wide = self._bar.console.width >= 100
        room = max(12, self._bar.console.width // 4) if wide else 12
        label = cell.label if len(cell.label) <= room else f"{cell.label[: room - 1]}…"
        facts = [
            f"round {row.round}/{cell.experiment.rounds}",
            f"test {percent(step.accuracy)} %",
            f"sim. time {count(row.simulated_time)}" if wide else f"sim {count(row.simulated_time)}",
            f"{_clock(step.seconds_left)} left",
        ]
        if wide and self._course.runs > 1:
            facts.insert(0, f"run {step.run}/{self._course.runs}")
        self._bar.update(
            self._task, completed=step.done, description=f"{label}, seed {cell.seed}", facts=" · ".join(facts)
        )


class _Lines:
    def __init__(self, cells: "Sequence[Cell]") -> None:
        self._course = _Course(cells)
        self._per_run = min(max(LINES // len(cells), 1), 10)

    def __call__(self, cell: "Cell", row: "RoundRow") -> None:
        step, rounds = self._course.step(cell, row), cell.experiment.rounds
        if row.round % math.ceil(rounds / self._per_run) and row.round != rounds:
            return
        print(
            f"[{step.run}/{self._course.runs}] {cell.label}, seed {cell.seed}: round {row.round} of {rounds}, test accuracy "
            f"{percent(step.accuracy)} %, simulated time {count(row.simulated_time)}, {_clock(step.seconds_left)} left",
            file=sys.stderr,
            flush=True,
        )


def _clock(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "–"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{left:02d}" if minutes >= 60 else f"{minutes}:{left:02d}"


def _json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
