"""Notes on how to read a comparison: what scores and differences are, the target, times, and what chance gives."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedcohort.core.words.formatted_values import first_in_words, in_words, index
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.record.personal_results import personal_data
from fedcohort.report.notes.client_samples import samples_of_clients
from fedcohort.report.notes.cost_notes import PASSES, about_questions
from fedcohort.report.notes.failed_training import about_judged
from fedcohort.report.notes.own_versions import about_own_versions
from fedcohort.report.notes.seed_notes import listed, over_seeds
from fedcohort.report.notes.unranked_rows import about_different_seeds, about_planned
from fedcohort.report.notes.worst_clients import about_diverged, about_worst, in_comparison, numbers_of_clients
from fedcohort.study.rows.references import clients_data_and_systems
from fedcohort.study.targets import about_cost_marks
from fedcohort.study.verdicts import BASELINE, UNCLEAR, about_cut, with_intervals

if TYPE_CHECKING:
    from fedcohort.study.comparison import Comparison, Row

__all__ = [
    "about_clients",
    "about_error",
    "about_federations",
    "about_intervals",
    "about_personal",
    "about_references",
    "difference_to_references",
    "notes",
]


def notes(compared: "Comparison", rows: Sequence[Mapping[str, Any]], hidden: Collection[str] = ()) -> list[str]:
    """The notes below the table of a comparison; those that do not apply are empty.

    Args:
        compared: the comparison.
        rows: the rows of its table, in the order in which they are printed.
        hidden: headings of columns that do not fit; notes about them only are empty.
    """
    goal = f"to {compared.goal}"
    of_target = {f"rounds {goal}", f"time {goal}"} | ({"target"} if len(set(compared.targets)) > 1 else set())
    without_time = f"time {goal}" in hidden
    return [
        compared.note,
        compared.about_counted,
        about_federations(compared),
        about_planned(compared),
        _about_accuracy(compared),
        about_clients(compared, rows, hidden),
        compared.about_verdicts,
        about_judged(compared),
        "" if "mae" in hidden else about_error(compared.own_measures, compared.score),
        "" if of_target <= set(hidden) else compared.about_targets + about_cost_marks(rows),
        " ".join(
            [
                *([] if without_time else [compared.about_times]),
                *([] if "Jain" in hidden else [_about_chance(rows, compared.about_chance)]),
            ]
        ),
        ""
        if {"personal models", f"personal, {in_comparison(compared)}"} <= set(hidden)
        else about_personal(compared, rows),
        about_own_versions(compared),
        *_about_algorithms(compared),
        about_questions(
            (run for row in compared.rows for run in row.runs.values()),
            size="bytes" not in hidden,
            time=not without_time,
        ),
        "" if "client passes" in hidden else PASSES,
    ]


SHOWN = 3
"""Largest number of rows that a sentence names."""


def _fingerprints(row: "Row") -> dict[int, tuple[str, str]]:
    """What the records say of the clients and their data, by seed: files, and data that were given in Python, can differ under the
    same settings. Public samples from elsewhere, which stand after a plus sign, are left out. Of runs on real machines, the clients
    count, whose data the record does not have."""
    return {
        seed: (
            run.clock,
            run.meta.get("data", "").partition("+")[0] if run.clock == "simulated" else run.meta.get("clients", ""),
        )
        for seed, run in row.runs.items()
    }


def _differ(facts: dict[int, tuple[str, str]], others: dict[int, tuple[str, str]]) -> bool:
    """Whether two rows have other clients or data under a seed."""
    return any(facts[seed] != others[seed] for seed in facts.keys() & others.keys())


def about_federations(compared: "Comparison") -> str:
    """A sentence about rows with other clients, data or systems than their reference, which is no reason to call a strategy better;
    empty without such rows."""
    own = [clients_data_and_systems(row.experiment) for row in compared.rows]
    facts = [_fingerprints(row) for row in compared.rows]
    other = [
        repr(compared.rows[i].label)
        for i, j in enumerate(compared.references)
        if own[i] != own[j] or _differ(facts[i], facts[j])
    ]
    if not other:
        return ""
    verb = "differs" if len(other) == 1 else "differ"
    return (
        f"{first_in_words(other, SHOWN)} {verb} from the reference in clients, data or systems: the difference is not due to the "
        "strategy alone."
    )


def about_clients(compared: "Comparison", rows: Sequence[Mapping[str, Any]], hidden: Collection[str] = ()) -> str:
    """What the columns of the accuracy over clients are, in sentences; empty if it was not measured, or both are ``hidden``."""
    lowest = in_comparison(compared)
    without = "over clients" in hidden, lowest in hidden
    if all(without) or not any(math.isfinite(row["client_accuracy"]) for row in rows):
        return ""
    name = compared.score.of_client
    samples = samples_of_clients(run for row in compared.rows for run in row.runs.values())
    own = f"{name} on each client's own {samples}"
    about = (
        "mean of the 10% of the clients with the lowest"
        if lowest == "worst tenth"
        else "that of the client with the lowest"
    )
    rest = _about_scores(compared.score)
    if not without[1]:
        rest = about_worst(numbers_of_clients(compared)) + rest
    if without[0]:
        return f"{lowest.capitalize()}: {about} {own}.{rest}"
    ends = "" if without[1] else f"; {lowest}: {about} {name}"
    return f"Over clients: {own}, mean ± standard deviation over clients{ends}.{rest}"


def about_error(measures: Collection[str], score: ScoreStyle) -> str:
    """What the column ``mae`` is if labels are numbers; empty for classes, where it can only be a measure of the user."""
    if not score.numeric or "mae" not in measures:
        return ""
    return "mae: mean absolute error on the test set, in the units of the labels."


def _about_scores(score: ScoreStyle) -> str:
    """What the score of a client is if labels are numbers, with a space before it; empty for classes."""
    if not score.numeric:
        return ""
    return " Score of a client: 1 − mean squared error in units of the variance of all training labels."


def _about_accuracy(compared: "Comparison") -> str:
    seeds, score = compared.seeds, compared.score
    after = f"Test {score.name} {compared.when}{score.in_unit}"
    if len(seeds) == 1:
        return f"{after}, seed {seeds[0]}. One seed gives no standard deviation and no interval."
    over = f"{over_seeds(seeds, (len(row.runs) for row in compared.rows))} ({listed(seeds)})"
    sentences = [
        f"{after}: mean ± standard deviation {over}.",
        about_different_seeds(compared),
        about_references(compared),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def about_references(compared: "Comparison") -> str:
    """What differences are taken to, in a sentence; empty if no rows are compared."""
    waiting = compared.without_difference
    several = [group for group in compared.groups if len(group.rows) > 1 and group.reference not in waiting]
    if not several and waiting:
        return ""
    if not several:
        return (
            "No two rows are about the same clients and data, so there are no differences." if compared.rows[1:] else ""
        )
    return f"{difference_to_references(compared, compared.score.points)} {about_intervals(compared.table.to_dict('records'))}".rstrip()


def difference_to_references(compared: "Comparison", unit: str) -> str:
    """What differences are taken to, in a sentence.

    Args:
        compared: a comparison with at least two rows.
        unit: unit of the differences, with a space before it; empty for none.
    """
    waiting = compared.without_difference
    several = [group for group in compared.groups if len(group.rows) > 1 and group.reference not in waiting]
    labels = compared.names_without_settings if len(compared.groups) > 1 else [row.label for row in compared.rows]
    names = list(dict.fromkeys(labels[group.reference] for group in several or compared.groups))
    where = " with the same settings" if len(compared.groups) > 1 else ""
    return f"Difference to {' or '.join(map(repr, names[:3]))}{where}{' in' if unit else ''}{unit}, paired over seeds."


def about_intervals(rows: Sequence[Mapping[Any, Any]]) -> str:
    """What the intervals of differences are, why some are missing, and why they can say more than the verdicts.

    Args:
        rows: rows of a table with the columns of differences.
    """
    compared = [row for row in rows if row["verdict"] != BASELINE]
    shown = [row for row in compared if with_intervals([row])]
    constant = NO_SPREAD if any(map(_is_constant, compared)) else ""
    if not shown:  # no row may have a difference, because models diverged
        return "One seed gives no interval." if any(row["paired_seeds"] == 1 for row in compared) else constant
    cut = about_cut(shown)
    about = f"Its 95% interval (Student's t){cut}{',' if cut else ''} is not corrected for multiple comparisons"
    if len(compared) == 1:
        about = f"Its 95% interval is that of Student's t{cut}"
    if any(row["verdict"] == UNCLEAR and not row["difference_low"] <= 0 <= row["difference_high"] for row in shown):
        about += f": it can exclude 0 although the verdict is {UNCLEAR}"
    return f"{about}. {constant}".rstrip()


NO_SPREAD = "The same difference under every seed gives no interval."
"""What is said about differences without an interval, since they have no spread."""


def _is_constant(row: Mapping[Any, Any]) -> bool:
    """Whether a difference other than 0 is the same under all of several seeds."""
    return math.isfinite(row["difference_low"]) and not with_intervals([row]) and abs(row["difference"]) > 1e-12


def _about_chance(rows: Sequence[Mapping[str, Any]], among: str) -> str:
    """What uniform selection gives, and among which clients if not among all."""
    labels_by_chance: dict[str, list[str]] = {}
    for row in rows:
        if math.isnan(row["jain_random"]):  # no client was selected
            continue
        labels_by_chance.setdefault(index(row["jain_random"]), []).append(row["label"])
    if not labels_by_chance:
        return ""
    usual = max(labels_by_chance, key=lambda chance: len(labels_by_chance[chance]))
    others = [
        f"{in_words(list(map(repr, labels))) if len(labels) <= SHOWN else f'{len(labels)} other rows'} {chance}"
        for chance, labels in labels_by_chance.items()
        if chance != usual
    ]
    all_chances = f"{usual} ({', '.join(others)})" if others else usual
    return f"Jain's index: 1 is even; uniform chance gives {all_chances} on average{among}."


def about_personal(compared: "Comparison", rows: Sequence[Mapping[str, Any]]) -> str:
    """What personal models are, in sentences; empty if they were not measured."""
    if all(math.isnan(row["personal_accuracy"]) for row in rows):
        return ""
    worst = in_comparison(compared)
    epochs = sorted({row.experiment.measures.personal_epochs for row in compared.rows} - {0})
    often = " or ".join(map(str, epochs))
    return (
        f"Personal models: {compared.score.of_client}{compared.score.in_unit} on each client's "
        f"{personal_data(run for row in compared.rows for run in row.runs.values())} after {often} local "
        f"{'epoch' if often == '1' else 'epochs'}, mean over clients and {'mean ' * (worst == 'worst tenth')}of the {worst}."
        f"{about_diverged(row['worst_personal_accuracy'] for row in rows)}"
    )


def _about_algorithms(compared: "Comparison") -> Iterator[str]:
    """Notes on algorithms that were combined with a local optimizer that their source does not have."""
    labels_by_algorithm: dict[str, list[str]] = {}
    for row in compared.rows:
        algorithm = next(iter(row.runs.values())).meta.get("algorithm", "")
        if algorithm.endswith("(ours)"):
            labels_by_algorithm.setdefault(algorithm, []).append(repr(row.label))
    for algorithm, labels in labels_by_algorithm.items():
        yield f"{algorithm}: {', '.join(labels)}. The algorithm's source has no such local optimizer."
