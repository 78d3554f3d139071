"""Say the result of a report in words: which strategy, how sure that is, and at what cost beside the reference."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort import measures
from fedcohort.core.arrays import Values
from fedcohort.core.words import formatted_values
from fedcohort.core.words.formatted_values import first_in_words, in_words
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.report.data.report_data import Reading, Story
from fedcohort.report.headline.headline_costs import cost_sentences
from fedcohort.report.headline.headline_doubts import (
    doubt_about,
    doubt_about_reference,
    doubts,
    doubts_about_clear_rows,
    never_trained,
    none_learned,
    unranked,
)
from fedcohort.report.headline.lead_words import clearness, differ, difference, too_few, without_difference
from fedcohort.report.notes.failed_training import problem, untrained
from fedcohort.report.notes.unranked_rows import BY_SEEDS, DIFFERENT, with_different_seeds
from fedcohort.study.comparison import Comparison
from fedcohort.study.guessing import diverged_seeds
from fedcohort.study.rows.failing_rows import seeds_in_words
from fedcohort.study.rows.references import Group
from fedcohort.study.verdicts import (
    BETTER,
    FEWEST,
    LEVEL,
    WORSE,
    about_more_seeds,
    lowest_p_holm,
    lowest_p_value,
    needed_for,
    seeds_to_be_clear,
)
from fedcohort.study.verdicts import comparisons as comparisons_of

__all__ = ["Answers", "answers"]


@dataclass(frozen=True)
class Answers:
    """The result at one point of a sweep, or of a whole comparison.

    Attributes:
        point: the point of the sweep in words; empty without several points.
        answers: questions with the sentences that answer them.
    """

    point: str
    answers: tuple[tuple[str, tuple[str, ...]], ...]


def answers(story: Story, *, going_on: bool = False) -> list[Answers]:
    """The answers for each point of a sweep, each about one federation; one entry without a sweep.

    With ``going_on``, more runs are being played, so that rows are not ranked yet.
    """
    compared = story.comparison
    if compared is None:
        waiting = "No round has been played yet. This page shows results as soon as a round is finished."
        return [Answers("", (("Result", (waiting,)),))]
    return [Answers(group.point, tuple(_of_group(story, compared, group, going_on))) for group in compared.groups]


def _of_group(story: Story, compared: Comparison, group: Group, going_on: bool) -> list[tuple[str, tuple[str, ...]]]:
    single = len(group.rows) == 1
    readings = [reading for position in group.rows for reading in story.played[position][1]]
    if early := _too_early(readings, going_on and not single):
        return [("Result" if single else "Which strategy?", (early,))]
    if single:
        return [("Result", _of_single(compared, group.rows[0], readings))]
    accuracy = _accuracies(compared)[list(group.rows)]
    best, second = (group.rows[i] for i in np.argsort(-accuracy, kind="stable")[:2].tolist())  # NaN comes last
    names = _names(compared, group)
    if math.isnan(compared.table["accuracy"][second]):
        return [("Which strategy?", (unranked(compared, group, names, best),))]
    if nothing := none_learned(compared, group, names, best):
        return [("Which strategy?", (nothing,))]
    if best in with_different_seeds(compared):
        return [
            ("Which strategy?", tuple(_beside_reference(compared, group, names))),
            ("How sure?", tuple(_leads(compared, group, names))),
        ]
    return [
        ("Which strategy?", (_highest(compared, group, best), *doubts(compared, group, names, best))),
        ("How sure?", tuple(_how_sure(compared, group, best, second))),
        ("At what cost?", tuple(_cost(story, compared, group, best, second))),
    ]


def _accuracies(compared: Comparison) -> Values:
    """The mean accuracies of all rows, float64 [rows], without errors of rounding: means of the same numbers in another order are
    equal."""
    rounded: Values = compared.table["accuracy"].to_numpy(np.float64).round(12)
    return rounded


def _too_early(readings: Sequence[Reading], going_on: bool) -> str:
    """Why nothing can be said yet; empty if runs are equally far, or finished, and no more are being played."""
    played = {reading.num_rounds for reading in readings}
    left = not all(reading.ended for reading in readings)
    if len(played) > 1 and left:
        return f"It is too early to say: the runs have played {min(played):,} to {max(played):,} rounds, and not all are finished."
    return "It is too early to say: not all runs are finished." if going_on else ""


def _names(compared: Comparison, group: Group) -> list[str]:
    """What rows are called, in quotes: at a point of a sweep without the settings, which the point names."""
    names = compared.names_without_settings if group.point else [row.label for row in compared.rows]
    return [f"'{name}'" for name in names]


def _of_single(compared: Comparison, position: int, readings: Sequence[Reading]) -> tuple[str, ...]:
    """The result of the only row of a group, and whether it is no sound one."""
    rounds, planned = (max(each) for each in zip(*((r.num_rounds, r.experiment.rounds) for r in readings), strict=True))
    so_far = "" if all(reading.ended for reading in readings) else f" of {formatted_values.count(planned)}"
    said = _diverged(compared, position, rounds) or _single(
        compared.table.iloc[position].to_dict(), rounds, so_far, compared.score
    )
    reason = problem(compared, position)
    return (said, f"This is no sound result: {reason}. See Health.") if reason else (said,)


def _diverged(compared: Comparison, position: int, rounds: int) -> str:
    """Why the only row has no test score after so many rounds, if its models diverged; empty otherwise."""
    runs = compared.measured(position)
    seeds = diverged_seeds(runs)
    if not seeds or not math.isnan(compared.table["accuracy"][position]):
        return ""
    where = f" under {seeds_in_words(seeds)} of {len(runs)}" if len(runs) > 1 else ""
    label, number = compared.rows[position].label, formatted_values.count(rounds)
    return f"'{label}' has no test {compared.score.name} in round {number}: its model diverged{where}."


def _single(row: Mapping[Any, Any], rounds: int, so_far: str, score: ScoreStyle) -> str:
    seeds = f" (mean over {row['seeds']} seeds)" if row["seeds"] > 1 else ""
    if math.isnan(row["accuracy"]):
        number = formatted_values.counted(rounds, "round")
        return f"'{row['label']}' was not tested in any of its {number}, so there is no test {score.name}."
    return (
        f"'{row['label']}' reached a test {score.name} of {score.spread(row['accuracy'], row['accuracy_sd'])}{score.unit} in round "
        f"{formatted_values.count(rounds)}{so_far}{seeds}. Its best round reached {score.value(row['best_accuracy'])}{score.unit}."
    )


def _highest(compared: Comparison, group: Group, best: int) -> str:
    """The best row, beside the reference."""
    row, names, score = compared.table.iloc[best], _names(compared, group), compared.score
    where = f"At {group.point}, " if group.point else ""
    accuracies = _accuracies(compared)
    tied = [i for i in group.rows if accuracies[i] == accuracies[best]]
    which = f"{names[best]} has" if len(tied) == 1 else f"{in_words([names[i] for i in tied])} have"
    text = f"{where}{which} the highest test {score.name} {compared.when}: {score.value(row['accuracy'])}{score.unit}"
    if group.reference in tied:
        return f"{text}. {'It' if len(tied) == 1 else names[group.reference]} is the row that the others are compared with."
    reference = float(compared.table["accuracy"][group.reference])
    reached = f"no test {score.name}" if math.isnan(reference) else f"{score.value(reference)}{score.unit}"
    return f"{text}. The reference, {names[group.reference]}, which the others are compared with, has {reached}."


def _how_sure(compared: Comparison, group: Group, best: int, second: int) -> list[str]:
    """The lead over the reference, as the table judges it, and the lead over the second best."""
    tested, names = _tested(compared, group, best, second), _names(compared, group)
    sentences = [_lead(compared, best, *each) for each in tested]
    shown = [
        number
        for other, p_value, number, _ in tested
        if math.isfinite(p_value) and differ(*compared.paired(best, other))
    ]
    if any(number > 1 for number in shown):
        sentences.append(_about_corrections(compared, group, {names[other]: number for other, _, number, _ in tested}))
    named = [best, *(other for other, *_ in tested)]
    sentences += [never_trained(names[i]) for i in named if untrained(compared, i)]
    if second not in (best, group.reference):
        sentences += doubt_about(compared, group, names, second)
    return sentences


FEW = 3
"""If no row is called the best, differences to the reference are written out for at most this many rows."""


def _beside_reference(compared: Comparison, group: Group, names: Sequence[str]) -> list[str]:
    """Why no row is called the best if seeds differ, and which rows are clearly better or worse than the reference."""
    where = f"At {group.point}, the" if group.point else "The"
    verdicts = {i: compared.verdicts[i].words for i in group.rows if i != group.reference}
    failing = [i for i, verdict in verdicts.items() if verdict in (BETTER, WORSE) and problem(compared, i)]
    clear = {
        words: [names[i] for i, verdict in verdicts.items() if verdict == words and i not in failing]
        for words in (BETTER, WORSE)
    }
    said = [
        f"{first_in_words(rows, FEW)} {'is' if len(rows) == 1 else 'are'} clearly {words} than the reference"
        for words, rows in clear.items()
        if rows
    ]
    others = "no row with a sound result" if failing else "no row"
    found = in_words(said) if said else f"{others} is clearly better or worse than the reference"
    return [
        f"{where} rows {DIFFERENT}, so that none of them is called the best.",
        BY_SEEDS,
        f"Over these seeds, {found}, {names[group.reference]}.",
        *doubts_about_clear_rows(compared, names, failing),
        *doubt_about_reference(compared, group, names),
    ]


def _leads(compared: Comparison, group: Group, names: Sequence[str]) -> list[str]:
    """The differences of rows to the reference over the seeds that both have, as the table judges them, if they are few."""
    others = [i for i in group.rows if i != group.reference]
    tested = max(1, compared.comparisons)
    sentences = ["The table of results has the difference of each row to the reference, with its verdict."]
    if len(others) <= FEW:
        sentences = [
            _lead(compared, i, group.reference, compared.verdicts[i].p_holm, tested, _lowest(compared, i))
            for i in others
        ]
        sentences += [never_trained(names[i]) for i in group.rows if untrained(compared, i)]
    return [
        *sentences,
        "If a race decided which rows got more seeds, its own result holds instead.",
    ]


def _tested(compared: Comparison, group: Group, best: int, second: int) -> list[tuple[int, float, int, float]]:
    """The rows that the best one is compared with, each with its corrected p-value, the number of comparisons, and the lowest p-value
    that is possible with so many seeds."""
    comparisons = max(1, compared.comparisons)
    if best == group.reference:  # the table compares every row with it, so its p-value holds whichever comes second
        return [(second, compared.verdicts[second].p_holm, comparisons, _lowest(compared, second))]
    tested = [(group.reference, compared.verdicts[best].p_holm, comparisons, _lowest(compared, best))]
    if second != group.reference:
        to_come = max(0, compared.planned - comparisons_of(compared.verdicts)) if len(compared.groups) == 1 else 0
        pairs = math.comb(len(group.rows) + to_come, 2)
        own, other = compared.paired(best, second)
        p_value = min(1.0, measures.paired_p_value(own, other) * pairs) if len(own) >= FEWEST else math.nan
        tested.append((second, p_value, pairs, lowest_p_value(len(own), pairs)))
    return tested


def _lowest(compared: Comparison, position: int) -> float:
    """The lowest p-value that the table can have for a row with its number of seeds."""
    return lowest_p_holm(compared.verdicts, position, compared.planned)


def _about_corrections(compared: Comparison, group: Group, numbers: Mapping[str, int]) -> str:
    """Why intervals and p-values are corrected, and at a point of a sweep for how many comparisons.

    ``numbers`` are the numbers of comparisons by the name of the row that the best one is compared with: the reference comes first.
    """
    rows = len(group.rows)
    why = f"the best of {rows} rows was chosen by its results"
    if rows == 2:
        several = len(compared.groups) > 1
        why = "differences at several points are tested" if several else "more rows are planned than have begun"
    corrected = f"The intervals and p-values here are corrected, because {why}."
    if group.point and len(set(numbers.values())) == 1:
        differences = next(iter(numbers.values()))
        corrected += f" They are for {differences} comparisons: all differences to references at all points."
    elif group.point:
        (reference, differences), (second, pairs) = numbers.items()
        corrected += (
            f" Beside {reference}, it is for all {differences} differences to references at all points; beside {second}, for the "
            f"{pairs} pairs of rows at this point."
        )
    return f"{corrected} The intervals in the table of results are not, and therefore narrower."


def _lead(compared: Comparison, best: int, other: int, p_value: float, comparisons: int, lowest: float) -> str:
    """By how much the best row leads another, paired over seeds, whether that is clear, and how many seeds would make it clear.

    Args:
        compared: the comparison.
        best, other: positions of the rows.
        p_value: the p-value of the difference, corrected for ``comparisons``; NaN with too few seeds.
        comparisons: the number of comparisons that the p-value is corrected for, and the interval, too.
        lowest: the lowest p-value that is possible with so many seeds.
    """
    names = _names(compared, _group_of(compared, best))
    first, second = names[best], names[other]
    score = compared.score
    own, others = compared.paired(best, other)
    if not own:
        return (
            f"{first} shares no seed with {second}. Therefore it is not known whether the difference is due to chance."
        )
    if compared.are_equal(best, other):
        return f"{first} and {second} are equal: the same clients in every round, and the same test {score.name} in every seed."
    if words := without_difference((first, own), (second, others), score):
        return words
    mean, low, high = measures.paired_interval(own, others, 1 - LEVEL / comparisons, limits=score.differences)
    head = difference(first, second, mean, score)
    useless = untrained(compared, best) or untrained(compared, other)
    if len(own) < FEWEST:
        enough = 0 if useless else needed_for(compared.verdicts, compared.planned)
        return f"{head}. {too_few(len(own), enough, equal=abs(mean) < 1e-12)}"
    clear, alone = p_value <= LEVEL, measures.paired_p_value(own, others)
    cut = "; the interval ends where no larger difference is possible" if measures.is_cut(mean, low, high) else ""
    excludes_0 = low > 0 or high < 0
    interval = f"{'corrected ' * (comparisons > 1)}95% interval {score.signed(low)} to {score.signed(high)}"
    alike = math.isfinite(low) and not score.interval(low, high)
    if alike:
        interval = "the same difference under every seed, which gives no interval"
    sentence = (
        f"{head} ({interval}, {len(own)} paired seeds, p = {formatted_values.p_value(p_value)}{cut}). "
        f"{clearness(p_value, len(own), comparisons, alone, lowest, excludes_0=None if alike else excludes_0)}"
    ).replace("p = <", "p < ")
    if clear or useless or best in with_different_seeds(compared):  # more seeds of these two are not what is missing
        return sentence
    needed = seeds_to_be_clear([a - b for a, b in zip(own, others, strict=True)], comparisons)
    close = "The difference is small beside its spread from seed to seed"
    return f"{sentence} {about_more_seeds(needed, len(own), 'make it clear', close)}"


def _group_of(compared: Comparison, position: int) -> Group:
    return next(group for group in compared.groups if position in group.rows)


def _cost(story: Story, compared: Comparison, group: Group, best: int, second: int) -> list[str]:
    """What the best row costs beside the reference, or beside the second best if it is the reference."""
    other = second if best == group.reference else group.reference
    names = _names(compared, group)
    return cost_sentences(story, compared, (names[best], names[other]), best, other)
