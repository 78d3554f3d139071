"""Say the result of a report in words: which strategy, how sure that is, and at what cost beside the reference."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort import measures
from fedcohort.core import formatted_values
from fedcohort.core.report_names import TRAINING, disclosed
from fedcohort.core.score_style import ScoreStyle
from fedcohort.report.charts.cost import ledger
from fedcohort.report.cost_notes import costs_of_questions
from fedcohort.report.report_data import Reading, Story
from fedcohort.study.comparison import Comparison
from fedcohort.study.references import Group
from fedcohort.study.verdicts import FEWEST, LEVEL, lowest_p_value, seeds_to_be_clear

__all__ = ["Answers", "answers", "headline"]

SAME = 0.02
"""Costs that differ by at most this share are called the same."""


@dataclass(frozen=True)
class Answers:
    """The result at one point of a sweep, or of a whole comparison.

    Attributes:
        point: the point of the sweep in words; empty without several points.
        answers: questions with the sentences that answer them.
    """

    point: str
    answers: tuple[tuple[str, tuple[str, ...]], ...]


def headline(story: Story) -> list[str]:
    """All sentences of the first point."""
    return [sentence for _, sentences in answers(story)[0].answers for sentence in sentences]


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
        row = compared.table.iloc[group.rows[0]].to_dict()
        return [("Result", (_single(row, max(reading.num_rounds for reading in readings), compared.score),))]
    accuracy = compared.table["accuracy"].to_numpy(np.float64)[list(group.rows)]
    best, second = (group.rows[i] for i in np.argsort(-accuracy, kind="stable")[:2].tolist())  # NaN comes last
    labels = _names(compared, group)
    if math.isnan(compared.table["accuracy"][second]):
        known = "No row has" if math.isnan(compared.table["accuracy"][best]) else f"Only {labels[best]} has"
        return [("Which strategy?", (f"{known} a test {compared.score.name}, so the rows cannot be ranked.",))]
    return [
        ("Which strategy?", (_highest(compared, group, best),)),
        ("How sure?", tuple(_how_sure(compared, group, best, second))),
        (
            "At what cost?",
            tuple(_cost(story, compared, group, best, second if best == group.reference else group.reference)),
        ),
    ]


def _too_early(readings: Sequence[Reading], going_on: bool) -> str:
    """Why nothing can be said yet; empty if runs are equally far, or finished, and no more are being played."""
    played = {reading.num_rounds for reading in readings}
    left = any(reading.num_rounds < reading.experiment.rounds and not reading.finished for reading in readings)
    if len(played) > 1 and left:
        return f"It is too early to say: the runs have played {min(played)} to {max(played)} rounds, and not all are finished."
    return "It is too early to say: not all runs are finished." if going_on else ""


def _names(compared: Comparison, group: Group) -> list[str]:
    """What rows are called, in quotes: at a point of a sweep without the settings, which the point names."""
    names = compared.names_without_settings if group.point else [row.label for row in compared.rows]
    return [f"'{name}'" for name in names]


def _single(row: Mapping[Any, Any], rounds: int, score: ScoreStyle) -> str:
    seeds = f" (mean over {row['seeds']} seeds)" if row["seeds"] > 1 else ""
    if math.isnan(row["accuracy"]):
        number = formatted_values.counted(rounds, "round")
        return f"'{row['label']}' was not tested in any of its {number}, so there is no test {score.name}."
    return (
        f"'{row['label']}' reached a test {score.name} of {score.spread(row['accuracy'], row['accuracy_sd'])}{score.unit} in round "
        f"{formatted_values.count(rounds)}{seeds}. Its best round reached {score.value(row['best_accuracy'])}{score.unit}."
    )


def _highest(compared: Comparison, group: Group, best: int) -> str:
    """The best row, beside the reference."""
    row, names, score = compared.table.iloc[best], _names(compared, group), compared.score
    where = f"At {group.point}, " if group.point else ""
    text = f"{where}{names[best]} has the highest test {score.name} after the last round: {score.value(row['accuracy'])}{score.unit}"
    if best == group.reference:
        return f"{text}. It is the row that the others are compared with."
    reference = compared.table.iloc[group.reference]
    other = f"{names[group.reference]}, which the others are compared with, has {score.value(reference['accuracy'])}{score.unit}"
    return f"{text}. The reference, {other}."


def _how_sure(compared: Comparison, group: Group, best: int, second: int) -> list[str]:
    """The lead over the reference, as the table judges it, and the lead over the second best."""
    tested, names = [], _names(compared, group)
    if best != group.reference:
        comparisons = max(1, sum(math.isfinite(other.p_holm) for other in compared.verdicts))
        tested.append((group.reference, compared.verdicts[best].p_holm, comparisons))
    if second != group.reference or best == group.reference:
        pairs = math.comb(len(group.rows), 2)
        own, other = compared.paired(best, second)
        p_value = min(1.0, measures.paired_p_value(own, other) * pairs) if len(own) >= FEWEST else math.nan
        tested.append((second, p_value, pairs))
    sentences = [_lead(compared, best, *each) for each in tested]
    if any(comparisons > 1 and math.isfinite(p_value) for _, p_value, comparisons in tested):
        sentences.append(_about_corrections(len(group.rows)))
    named = [best, *(other for other, _, _ in tested)]
    sentences += [_never_trained(names[i]) for i in named if _untrained(compared, i)]
    if _uneven(compared, group):
        sentences.append(
            "The rows have different seeds. If a race decided which rows got more, its own result holds instead."
        )
    return sentences


def _about_corrections(rows: int) -> str:
    chosen = f"the best of {rows} rows was chosen by its results"
    why = chosen if rows > 2 else "differences at several points are tested"
    corrected = f"The intervals and p-values here are corrected, because {why}."
    return f"{corrected} The intervals in the table of results are not, and therefore narrower."


def _untrained(compared: Comparison, position: int) -> bool:
    """Whether no update entered the model of a row in any round of any seed, so that more seeds would tell nothing."""
    return all((run.rounds["admitted"] == 0).all() for run in compared.rows[position].runs.values())


def _never_trained(name: str) -> str:
    return (
        f"{name} never trained: no update entered its model in any round, so that it is still the initial one. "
        "More seeds would not change that: see Health."
    )


def _uneven(compared: Comparison, group: Group) -> bool:
    """Whether rows have different seeds, so that more seeds of the two rows in question are not what is missing."""
    return len({frozenset(compared.rows[i].runs) for i in group.rows}) > 1


def _lead(compared: Comparison, best: int, other: int, p_value: float, comparisons: int) -> str:
    """By how much the best row leads another, paired over seeds, whether that is clear, and how many seeds would make it clear.

    Args:
        compared: the comparison.
        best, other: positions of the rows.
        p_value: the p-value of the difference, corrected for ``comparisons``; NaN with too few seeds.
        comparisons: the number of comparisons that the p-value is corrected for, and the interval, too.
    """
    names = _names(compared, _group_of(compared, best))
    first, second = names[best], names[other]
    score = compared.score
    own, others = compared.paired(best, other)
    if not own:
        return (
            f"{first} shares no seed with {second}. Therefore it is not known whether the difference is due to chance."
        )
    mean, low, high = measures.paired_interval(own, others, 1 - LEVEL / comparisons, limits=score.differences)
    lead = score.signed(mean)
    verb, points = ("leads", lead.lstrip("+")) if mean >= 0 or math.isnan(mean) else ("differs from", lead)
    untrained = _untrained(compared, best) or _untrained(compared, other)
    if len(own) < FEWEST:
        seeds = "one seed" if len(own) == 1 else f"{len(own)} seeds"
        return (
            f"{first} {verb} {second} by {points}{score.points}. They share only {seeds}: it is not known whether the difference "
            f"is due to chance.{'' if untrained else f' Run {FEWEST} seeds or more.'}"
        )
    clear = p_value <= LEVEL
    why = "it assumes Gaussian differences" if low > 0 or high < 0 else ""
    sentence = (
        f"{first} {verb} {second} by {points}{score.points} ({'corrected ' * (comparisons > 1)}95% interval {score.signed(low)} to "
        f"{score.signed(high)}, {len(own)} paired seeds, p = {formatted_values.p_value(p_value)}). "
        f"{_clearness(p_value, len(own), comparisons, why)}"
    ).replace("p = <", "p < ")
    return (
        sentence
        if clear or untrained or _uneven(compared, _group_of(compared, best))
        else f"{sentence} {_more_seeds([a - b for a, b in zip(own, others, strict=True)], comparisons)}"
    )


def _clearness(p_value: float, seeds: int, comparisons: int, why: str) -> str:
    """Whether a difference is clear, and if not, why it may look as if it were.

    Args:
        p_value: its p-value, corrected for ``comparisons``.
        seeds: number of paired seeds.
        comparisons: the number of comparisons.
        why: why its interval can exclude 0 all the same; empty if it does not.
    """
    if p_value <= LEVEL:
        return "The difference is clear with these seeds."
    lowest = min(lowest_p_value(seeds, comparisons), p_value)  # less than the first if other rows have more seeds
    if lowest > LEVEL:
        limit = "p is always 1" if lowest >= 1 else f"p cannot be below {formatted_values.p_value(lowest)}"
        return f"The difference is not clear: with {seeds} seeds, {limit}, however large it is."
    return f"The difference is not clear with these seeds{f': the interval excludes 0, but {why}' if why else ''}."


def _group_of(compared: Comparison, position: int) -> Group:
    return next(group for group in compared.groups if position in group.rows)


def _more_seeds(differences: Sequence[float], comparisons: int) -> str:
    """How many seeds would make a difference clear that is not clear yet."""
    needed = seeds_to_be_clear(differences, comparisons)
    if needed is None:
        return "The two are so close that even 1,000 seeds would not be likely to tell them apart."
    needed = max(needed, len(differences) + 1)
    return (
        f"About {formatted_values.count(needed)} seeds ({formatted_values.count(needed - len(differences))} more) would probably "
        "make it clear, if the difference and its spread stay as they are."
    )


def _cost(story: Story, compared: Comparison, group: Group, best: int, other: int) -> list[str]:
    """What the best row costs beside another, the reference or else the next one, and what the clients of both disclose."""
    own, beside = compared.table.iloc[best], compared.table.iloc[other]
    time = "wall time" if compared.rows[best].on_wall_clock else "simulated time"
    clock = "wall" if compared.rows[best].on_wall_clock else "simulated"
    parts = [
        ("bytes", formatted_values.size(own["bytes"]), own["bytes"], beside["bytes"]),
        (
            "client passes",
            formatted_values.count(own["client_passes"]),
            own["client_passes"],
            beside["client_passes"],
        ),
        (
            time,
            formatted_values.time_on(clock, own["simulated_time"]),
            own["simulated_time"],
            beside["simulated_time"],
        ),
    ]
    first, second = (_names(compared, group)[i] for i in (best, other))
    *words, last = (f"{_ratio(value, others)} {name} ({text})" for name, text, value, others in parts)
    sentences = [f"Beside {second}, {first} took {', '.join(words)}, and {last}."]
    sentences += costs_of_questions(
        {name: compared.rows[i].runs.values() for name, i in ((first, best), (second, other))}
    )
    return [*sentences, *_disclosure(first, _disclosed(story, best), second, _disclosed(story, other))]


def _disclosure(first: str, own: set[str], second: str, others: set[str]) -> list[str]:
    """What clients disclose with two rows, in one sentence if it is the same; nothing if it is not known."""
    if not own or not others:
        return []
    mine, theirs = (_listed(sorted(parts, key=lambda part: (part != TRAINING, part))) for parts in (own, others))
    if own == others:
        return [f"With both, a client discloses {mine}."]
    return [f"With {first}, a client discloses {mine}. With {second}, it discloses {theirs}."]


def _ratio(value: float, other: float) -> str:
    """How many times a cost is another: the same, 1.5 times the, less than a tenth of the."""
    if not (math.isfinite(value) and math.isfinite(other)) or other <= 0:
        return "an unknown multiple of the"
    if abs(value / other - 1) <= SAME:
        return "the same"
    times = formatted_values.number(value / other, 2)
    return "about the same" if times == "1" else f"{times} times the"


def _listed(parts: Sequence[str]) -> str:
    """Parts of a sentence: a; a and b; a, b, and c. Parts that contain a comma are separated by semicolons."""
    if len(parts) < 3:
        return " and ".join(parts)
    comma = ";" if any("," in part for part in parts) else ","
    return f"{f'{comma} '.join(parts[:-1])}{comma} and {parts[-1]}"


def _disclosed(story: Story, position: int) -> set[str]:
    """What the clients of a row disclose."""
    costs = ledger(story)
    own = costs[costs["strategy"] == story.played[position][0]]
    return {part for text in own["discloses"] for part in disclosed(str(text or ""))}
