"""Say in words by how much a row leads another, and whether that is clear."""

import math
from collections.abc import Sequence

from fedcohort.core import formatted_values
from fedcohort.core.score_style import ScoreStyle
from fedcohort.study.verdicts import LEVEL

__all__ = ["clearness", "differ", "difference", "too_few", "unknown"]


def unknown(*rows: tuple[str, Sequence[float]]) -> str:
    """The rows that have no score under some of the seeds that they share, with the verb; empty if all have one.

    Args:
        rows: for each of them, its name and its scores under these seeds.

    >>> unknown(("'uniform'", [0.1, math.nan, 0.3]), ("'UCB'", [0.1, 0.2, 0.3]))
    "under 1 of their 3 seeds, 'uniform' has"
    """
    lost = [name for name, scores in rows if not all(map(math.isfinite, scores))]
    pairs = list(zip(*(scores for _, scores in rows), strict=True))
    number = sum(not all(map(math.isfinite, pair)) for pair in pairs)
    verb = "has" if len(lost) == 1 else "have"
    return f"under {number} of their {len(pairs)} seeds, {formatted_values.in_words(lost)} {verb}" if lost else ""


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


def clearness(p_value: float, seeds: int, comparisons: int, alone: float, lowest: float, *, excludes_0: bool) -> str:
    """Whether a difference is clear, and why its interval may look as if it said something else.

    Args:
        p_value: its p-value, corrected for ``comparisons``.
        seeds: number of paired seeds.
        comparisons: the number of comparisons.
        alone: the p-value without a correction.
        lowest: the lowest p-value that is possible.
        excludes_0: whether its interval excludes 0.
    """
    gaussian = "it assumes Gaussian differences"
    if p_value <= LEVEL:
        stricter = "it is corrected for all comparisons at once, and p step by step (Holm)"
        reason = stricter if alone * comparisons > LEVEL else f"{gaussian}, which the test does not"
        includes = "" if excludes_0 else f": the interval includes 0, but {reason}"
        return f"The difference is clear with these seeds{includes}."
    but = f"the interval excludes 0, but {gaussian}" if excludes_0 else ""
    if lowest > LEVEL:
        limit = "p is always 1" if lowest >= 1 else f"p cannot be below {formatted_values.p_value(lowest)}"
        return f"The difference is not clear: with {seeds} seeds, {limit}, however large it is{but and f'; {but}'}."
    return f"The difference is not clear with these seeds{but and f': {but}'}."
