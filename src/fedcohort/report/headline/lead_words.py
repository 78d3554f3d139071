"""Say in words by how much a row leads another, and whether that is clear."""

import math
from collections.abc import Sequence

from fedcohort.core.words import formatted_values
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.study.verdicts import FEWEST, LEVEL

__all__ = ["clearness", "differ", "difference", "too_few", "without_difference"]


Row = tuple[str, Sequence[float]]
"""The name of a row, and its scores under the seeds that it shares with another one."""


def without_difference(row: Row, other: Row, score: ScoreStyle) -> str:
    """What is said of two rows whose difference is not known, or that have the same scores under several seeds; empty for others.

    >>> from fedcohort.core.words.score_style import R_SQUARED
    >>> without_difference(("'UCB'", [0.1, 0.2, 0.3]), ("'all'", [0.1, math.nan, 0.3]), R_SQUARED)
    "It is not known by how much 'UCB' leads 'all': under 1 of their 3 seeds, 'all' has no test R²."
    """
    (first, own), (second, others) = row, other
    lost = [name for name, scores in (row, other) if not all(map(math.isfinite, scores))]
    if lost:
        number = sum(not math.isfinite(a - b) for a, b in zip(own, others, strict=True))
        where = f"under {number} of their {len(own)} seeds" if len(own) > 1 else "under their seed"
        have = f"{formatted_values.in_words(lost)} {'has' if len(lost) == 1 else 'have'}"
        return f"It is not known by how much {first} leads {second}: {where}, {have} no test {score.name}."
    if len(own) >= FEWEST and not differ(own, others):
        return (
            f"{first} and {second} have the same test {score.name} under each of the {len(own)} seeds that both have."
        )
    return ""


def differ(own: Sequence[float], others: Sequence[float]) -> bool:
    """Whether two rows have different scores under any of the seeds that both have."""
    return any(abs(a - b) > 1e-12 for a, b in zip(own, others, strict=True))


def too_few(seeds: int, enough: int, *, equal: bool) -> str:
    """What two rows with so few common ``seeds`` do not tell, and how many are ``enough``, unless that is 0."""
    shared = "one seed" if seeds == 1 else f"{seeds} seeds"
    unknown = "one of them is better" if equal else "the difference is due to chance"
    more = f" Run {enough} seeds or more." if enough else ""
    return f"They share only {shared}: it is not known whether {unknown}.{more}"


def difference(first: str, second: str, mean: float, score: ScoreStyle) -> str:
    """By how much one row leads another, in words. If that is shown as 0, the words are that both have the same mean, or nearly."""
    lead = score.signed(mean)
    if math.isfinite(mean) and not set(lead) - set("+−0."):
        return f"{first} and {second} have {'' if abs(mean) < 1e-12 else 'nearly '}the same mean test {score.name}"
    if mean < 0:
        return f"{first} differs from {second} by {lead}{score.points}"
    return f"{first} leads {second} by {lead.lstrip('+')}{score.points}"


def clearness(
    p_value: float, seeds: int, comparisons: int, alone: float, lowest: float, *, excludes_0: bool | None
) -> str:
    """Whether a difference is clear, and why its interval may look as if it said something else.

    Args:
        p_value: its p-value, corrected for ``comparisons``.
        seeds: number of paired seeds.
        comparisons: the number of comparisons.
        alone: the p-value without a correction.
        lowest: the lowest p-value that is possible.
        excludes_0: whether its interval excludes 0; None if there is no interval.
    """
    gaussian = "it assumes Gaussian differences"
    if p_value <= LEVEL:
        stricter = "it is corrected for all comparisons at once, and p step by step (Holm)"
        reason = stricter if alone * comparisons > LEVEL else f"{gaussian}, which the test does not"
        includes = f": the interval includes 0, but {reason}" if excludes_0 is False else ""
        return f"The difference is clear with these seeds{includes}."
    but = f"the interval excludes 0, but {gaussian}" if excludes_0 else ""
    if lowest > LEVEL:
        limit = "p is always 1" if lowest >= 1 else f"p cannot be below {formatted_values.p_value(lowest)}"
        return f"The difference is not clear: with {seeds} seeds, {limit}, however large it is{but and f'; {but}'}."
    return f"The difference is not clear with these seeds{but and f': {but}'}."
