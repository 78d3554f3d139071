"""What the best row of a comparison costs beside another one, in sentences, and what clients disclose with both."""

import math

from fedcohort.core.words import formatted_values
from fedcohort.core.words.formatted_values import in_words
from fedcohort.core.words.report_names import TRAINING, disclosed
from fedcohort.report.charts.cost import ledger
from fedcohort.report.data.report_data import Story
from fedcohort.report.notes.cost_notes import costs_of_questions
from fedcohort.study.comparison import Comparison

__all__ = ["cost_sentences"]

SAME = 0.02
"""Costs that differ by at most this share are called about the same."""


def cost_sentences(story: Story, compared: Comparison, names: tuple[str, str], best: int, other: int) -> list[str]:
    """What the best row costs beside another, the reference or else the next one, and what the clients of both disclose.

    Args:
        story: the runs.
        compared: their comparison.
        names: what the two rows are called.
        best, other: their positions.
    """
    own, beside = compared.table.iloc[best], compared.table.iloc[other]
    clock = compared.rows[best].clock
    parts = [
        ("bytes", "bytes", formatted_values.size(own["bytes"])),
        ("client_passes", "client passes", formatted_values.count(own["client_passes"])),
        ("simulated_time", f"{clock} time", formatted_values.time_on(clock, own["simulated_time"])),
    ]
    first, second = names
    took = in_words([f"{_ratio(own[key], beside[key])} {name} ({text})" for key, name, text in parts])
    sentences = [f"Beside {second}, {first} took {took}."]
    sentences += costs_of_questions(
        {name: compared.rows[i].runs.values() for name, i in ((first, best), (second, other))}
    )
    return [*sentences, *_disclosure(first, _disclosed(story, best), second, _disclosed(story, other))]


def _disclosure(first: str, own: set[str], second: str, others: set[str]) -> list[str]:
    """What clients disclose with two rows, in one sentence if it is the same; nothing if it is not known."""
    if not own or not others:
        return []
    mine, theirs = (in_words(sorted(parts, key=lambda part: (part != TRAINING, part))) for parts in (own, others))
    if own == others:
        return [f"With both, a client discloses {mine}."]
    return [f"With {first}, a client discloses {mine}. With {second}, it discloses {theirs}."]


def _ratio(value: float, other: float) -> str:
    """How many times a cost is another: the same, about the same, 1.5 times the."""
    if not (math.isfinite(value) and math.isfinite(other)) or other <= 0:
        return "an unknown multiple of the"
    if value == other:
        return "the same"
    times = formatted_values.number(value / other, 2)
    near = abs(value / other - 1) <= SAME or times == "1"
    return "about the same" if near else f"{times} times the"


def _disclosed(story: Story, position: int) -> set[str]:
    """What the clients of a row disclose."""
    costs = ledger(story)
    own = costs[costs["strategy"] == story.played[position][0]]
    return {part for text in own["discloses"] for part in disclosed(str(text or ""))}
