"""Tables of comparisons, of the seeds of a run, and of all measures of runs."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

if TYPE_CHECKING:
    from fedcohort.study.comparison import Comparison
    from fedcohort.study.coverage import Conformal
    from fedcohort.study.results import Result
    from fedcohort.study.summary import Summary
from fedcohort.core.words import count, duration, index, percent, signed, size
from fedcohort.report.terminal.tables import WIDE, Column, about_hidden, dimmed, fitting_table, label_width

__all__ = ["comparison", "results", "summaries"]


def comparison(compared: "Comparison", width: int = WIDE) -> Group:
    """The table of a comparison, and what its numbers mean."""
    rows = [{str(key): value for key, value in row.items()} for row in compared.table.to_dict("records")]
    target = compared.target.accuracy
    goal = f"{100 * target:g} %"
    several = len({row["algorithm"] for row in rows}) > 1
    columns = [
        Column("strategy", [Text(row["label"], style="bold") for row in rows], left=True, widest=label_width(width)),
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
    table, hidden = fitting_table(columns, width)
    return Group(
        Text(compared.name, style="bold"),
        "",
        table,
        "",
        *dimmed(*_explained(compared, rows), about_hidden(hidden)),
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
    table, _ = fitting_table(columns, width)
    rounds = sorted({one.rounds for one in runs})
    return Group(
        Text.assemble((label, "bold"), f", {_ids(rounds)} rounds"),
        "",
        table,
        "",
        *dimmed(
            "Accuracies in %: on the test set; local: of the last round's clients on their training data, while they train.",
            "Jain index of who was selected: 1 is even; beside it what uniform chance gives on average.",
        ),
    )


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
    table, hidden = fitting_table(columns, width)
    return Group(
        table,
        "",
        *dimmed(
            "Accuracies, deviation, drop and forgetting in %. Chance: as many of all clients, selected uniformly in every round.",
            ""
            if any(math.isfinite(one.client_accuracy) for one in runs)
            else "Accuracy of all clients: not measured; run with measures.clients_every = 1, say.",
            about_hidden(hidden),
        ),
    )


def _beside_chance(one: "Summary", name: str) -> str:
    return f"{index(getattr(one.selected, name))} ({index(getattr(one.selected_random, name))})"
