"""Whether the differences of a comparison are clear: paired permutation tests, corrected for the number of comparisons."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcohort import measures
from fedcohort.core.words import formatted_values
from fedcohort.measures.seeds import least_p_value

__all__ = [
    "ABOUT_NO_RESULT", "BASELINE", "BETTER", "CUT", "FEWEST", "HIGHER", "LEVEL", "LOWER", "NO_RESULT", "TOO_FEW",
    "UNCLEAR", "UNEVEN", "WORSE", "Verdict", "about_cut", "about_more_seeds", "about_verdicts", "comparisons",
    "corrected_for", "difference_columns", "lowest_p_holm", "lowest_p_value", "most_advised", "needed_for",
    "needed_seeds", "rounded_seeds", "seeds_to_be_clear", "verdict_heading", "verdicts", "with_intervals",
]  # fmt: skip

LEVEL = 0.05
"""A difference is clear if its corrected p-value is at most this."""

FEWEST = 3
"""Smallest number of paired seeds with a verdict."""

BASELINE, TOO_FEW, UNCLEAR, BETTER, WORSE = "baseline", "too few seeds", "not clear", "better", "worse"

HIGHER, LOWER = "higher", "lower"
"""The verdicts on clear differences where neither is better."""

NO_RESULT = "no result"
"""The verdict on rows of which a paired seed, their own or that of their reference, has no test score."""

UNEVEN = "unequal rounds"
"""The verdict on rows that cannot be compared with their reference yet, because runs are unfinished and not equally far."""


@dataclass(frozen=True)
class Verdict:
    """What the difference of a row to its reference says.

    Attributes:
        seeds: number of paired seeds.
        p_value: p-value of the paired permutation test; NaN with fewer than :data:`FEWEST` paired seeds, without a value under one of
            them, and for references.
        p_holm: the p-value, corrected by Holm for the number of rows that are compared with a reference.
        words: ``baseline`` (a reference), ``better``, ``worse`` (``higher``, ``lower`` where neither is better), ``not clear``,
            ``too few seeds``, ``no result`` if a seed has no value, or ``unequal rounds`` for rows that have not played as many
            rounds as their reference yet, or more.
    """

    seeds: int
    p_value: float
    p_holm: float
    words: str


def verdicts(
    results: Sequence[tuple[Sequence[float], Sequence[float]]],
    references: Sequence[int] = (),
    uneven: Collection[int] = (),
    planned: int = 0,
    clear: tuple[str, str] = (BETTER, WORSE),
) -> list[Verdict]:
    """A verdict for each row, in their order.

    Args:
        results: for each row, its results and those of its reference, paired over the seeds that both have.
        references: for each row, the position of its reference; a row that is its own reference is a baseline. By default, the first
            row is the reference of all.
        uneven: positions of rows that cannot be compared with their reference yet.
        planned: the number of differences to references once all runs are there, also those of rows that have not begun; 0 if no more
            runs are played. p-values are corrected for them too.
        clear: the words for clear differences, positive and negative.
    """
    baselines = {i for i, reference in enumerate(references or [0] * len(results)) if i == reference}
    enough = [i not in baselines and len(own) >= FEWEST for i, (own, _) in enumerate(results)]
    p_values = [
        measures.paired_p_value(own, first) if tested else math.nan
        for (own, first), tested in zip(results, enough, strict=True)
    ]
    unknown = {i for i, tested in enumerate(enough) if tested and math.isnan(p_values[i])}
    later = max(
        planned - sum(enough), len(set(uneven) - baselines)
    )  # they count as if their p-values were 1, as unknown ones do
    corrected = _corrected(p_values, unknown, later)
    words = dict.fromkeys(unknown, NO_RESULT) | dict.fromkeys(uneven, UNEVEN) | dict.fromkeys(baselines, BASELINE)
    return [
        Verdict(
            len(own), p_values[i], corrected[i], words.get(i) or _in_words(sum(own) - sum(first), corrected[i], clear)
        )
        for i, (own, first) in enumerate(results)
    ]


def _corrected(p_values: Sequence[float], unknown: Collection[int], later: int) -> list[float]:
    """p-values, corrected by Holm; those at the positions ``unknown``, and ``later`` more, count as if they were 1."""
    found = measures.holm([*(1.0 if i in unknown else p for i, p in enumerate(p_values)), *[1.0] * later])
    return [math.nan if i in unknown else p for i, p in enumerate(found[: len(p_values)])]


def _in_words(difference: float, p_holm: float, clear: tuple[str, str]) -> str:
    """The words of a verdict from the sign of the difference and its corrected p-value."""
    if math.isnan(p_holm):
        return TOO_FEW
    if p_holm > LEVEL:
        return UNCLEAR
    return clear[0] if difference > 0 else clear[1]


def with_intervals(rows: Iterable[Mapping[Any, Any]]) -> bool:
    """Whether any row of a comparison's table has an interval: one seed in common with the reference gives none, and neither does
    the same difference under every seed."""
    return any(row["difference_high"] - row["difference_low"] > 1e-12 for row in rows)


def verdict_heading(rows: Iterable[Mapping[Any, Any]]) -> str:
    """The heading of the column of verdicts with their p-values, which are corrected if several rows are compared."""
    return "verdict, p (Holm)" if sum(row["verdict"] != BASELINE for row in rows) > 1 else "verdict, p"


def difference_columns(
    own: Sequence[float], first: Sequence[float], limits: tuple[float, float], comparisons: int
) -> dict[str, float]:
    """The difference of a row to its reference and its intervals, by the names of the columns of a comparison's table.

    Args:
        own, first: paired results of the row and of its reference.
        limits: the smallest and the largest difference that is possible.
        comparisons: the number of differences that are tested together, which the second interval is corrected for (Bonferroni); 0 if
            this one is not tested.
    """
    names = ("difference", "difference_low", "difference_high", "corrected_low", "corrected_high")
    if not own:
        return dict.fromkeys(names, math.nan)
    mean, low, high = measures.paired_interval(own, first, limits=limits)
    ends: Sequence[float] = (math.nan, math.nan)
    if comparisons:
        ends = measures.paired_interval(own, first, 1 - LEVEL / comparisons, limits=limits)[1:]
    return dict(zip(names, (mean, low, high, *ends), strict=True))


CUT = "which ends where no larger difference is possible"
"""What is said about an interval of differences that is cut at the possible range."""


def about_cut(rows: Iterable[Mapping[Any, Any]]) -> str:
    """:data:`CUT` with a comma before it, if that is so for any row of a comparison's table; otherwise empty."""
    columns = ("difference", "difference_low", "difference_high")
    return f", {CUT}" if any(measures.is_cut(*(row[column] for column in columns)) for row in rows) else ""


def needed_seeds(comparisons: int) -> int:
    """The smallest number of seeds with which one of several differences can be clear, see :func:`lowest_p_value`.

    It is 0 if no number is enough: p-values of many seeds are from drawn signs, and not below 1/10,000.
    """
    needed = math.ceil(math.log2(2 * comparisons / LEVEL))
    return needed if lowest_p_value(needed, comparisons) <= LEVEL else 0


def comparisons(rows: Iterable[Verdict], planned: int = 0) -> int:
    """The number of rows that are compared with a reference: if all have enough seeds, p is corrected for so many comparisons.

    ``planned`` is that of :func:`verdicts`.
    """
    return max(planned, sum(row.words != BASELINE for row in rows))


def corrected_for(rows: Sequence[Verdict], planned: int = 0) -> int:
    """The number of comparisons that p-values are corrected for, see :func:`verdicts`: those with a p-value, those without a result,
    and those that will have one once all runs are there; 0 as long as there is no p-value."""
    tested = sum(math.isfinite(row.p_holm) for row in rows)
    return max(planned, tested + sum(row.words in (UNEVEN, NO_RESULT) for row in rows)) if tested else 0


def needed_for(rows: Iterable[Verdict], planned: int = 0) -> int:
    """The smallest number of seeds of all rows with which one of their differences can be clear, 0 if there is none; see
    :func:`needed_seeds`."""
    return needed_seeds(max(1, comparisons(rows, planned)))


MOST_SEEDS = 1_000
"""Largest number of seeds that :func:`seeds_to_be_clear` tries."""

POWER = 0.8
"""Probability with which a difference is clear with the number of seeds of :func:`seeds_to_be_clear`."""


def seeds_to_be_clear(differences: Sequence[float], comparisons: int) -> int | None:
    """About how many seeds would make a difference clear, if its mean and its spread over seeds stay as they are.

    The smallest n with |mean| ≥ (t_{n−1, 1 − α/2} + t_{n−1, 0.8}) · sd/√n, α = :data:`LEVEL` / comparisons, the usual sample size of a
    paired t test with a power of 80%; at least :func:`needed_seeds`.

    Args:
        differences: the paired differences so far, at least :data:`FEWEST`.
        comparisons: the number of differences that are tested together.

    Returns:
        The number of seeds; None if it is above :data:`MOST_SEEDS`, if the mean is 0 or unknown, or if no number is enough.
    """
    from scipy.special import stdtrit

    mean, sd = measures.mean_sd(differences)
    least = needed_seeds(comparisons)
    if not math.isfinite(mean) or mean == 0 or not least:
        return None
    for n in range(least, MOST_SEEDS + 1):
        level = 1 - LEVEL / comparisons / 2
        if abs(mean) >= (stdtrit(n - 1, level) + stdtrit(n - 1, POWER)) * sd / math.sqrt(n):
            return n
    return None


FEW_MORE, MANY, TWICE = 10, 50, 2
"""More seeds are advised up to this many times those at hand and up to this number, or up to twice those at hand if that is more.
Beyond that, the estimate depends on a spread that a few seeds know badly, and the difference hardly matters."""


def most_advised(seeds: int) -> int:
    """The largest number of seeds that is advised beside results of this many.

    >>> most_advised(3), most_advised(8), most_advised(40)
    (30, 50, 80)
    """
    return min(FEW_MORE * seeds, max(MANY, TWICE * seeds))


def about_more_seeds(needed: int | None, seeds: int, would: str, close: str) -> str:
    """Sentences on how many seeds would tell rows apart, or that they are too close.

    Args:
        needed: the estimated number of seeds; None if it is very large.
        seeds: number of seeds at hand.
        would: what so many seeds would probably do, with its conditions.
        close: what is known about rows that would need more than :func:`most_advised` seeds, as a sentence without a full stop.
    """
    most = most_advised(seeds)
    if needed is None or needed > most:
        return f"{close}; more than {formatted_values.count(most)} seeds would be needed to tell them apart."
    total = rounded_seeds(max(needed, seeds + 1))
    return f"About {total} seeds ({total - seeds} more) would probably {would}, if differences and their spread stay as they are."


def rounded_seeds(needed: int) -> int:
    """A number of seeds, rounded up to a multiple of 5 if it is above 20: it is an estimate."""
    return needed if needed <= 20 else 5 * math.ceil(needed / 5)


def lowest_p_value(seeds: int, comparisons: int) -> float:
    """The lowest p-value that a paired permutation test of this many seeds can give, corrected for the number of comparisons.

    >>> lowest_p_value(3, 2)
    0.5
    """
    return min(1.0, comparisons * least_p_value(seeds))


def lowest_p_holm(rows: Sequence[Verdict], position: int, planned: int = 0) -> float:
    """The lowest corrected p-value that a row can have with its number of seeds, if the p-values of the other rows stay as they are.

    ``planned`` is that of :func:`verdicts`.
    """
    p_values = [row.p_value for row in rows]
    p_values[position] = lowest_p_value(rows[position].seeds, 1)
    later = corrected_for(rows, planned) - sum(math.isfinite(row.p_holm) for row in rows)
    return measures.holm([*p_values, *[1.0] * later])[position]


def about_verdicts(rows: Sequence[Verdict], planned: int = 0, no_result: str = "") -> str:
    """Sentences on how verdicts are made, and on what too few seeds cannot show; empty if no row is compared. ``planned`` is that of
    :func:`verdicts`; ``no_result`` is said about rows without a result, by default :data:`ABOUT_NO_RESULT`."""
    uneven = any(row.words == UNEVEN for row in rows)
    about_rounds = [ABOUT_UNEVEN] if uneven else []
    unknown = [no_result or ABOUT_NO_RESULT] if any(row.words == NO_RESULT for row in rows) else []
    return " ".join([*about_rounds, *_about_compared(rows, planned), *unknown])


ABOUT_UNEVEN = (
    "Unequal rounds: the row and its reference have not played the same number of rounds, because not all of their runs are "
    "finished. As long as that is so, the row has no difference and no verdict."
)


ABOUT_NO_RESULT = (
    "No result: under a seed, the row or its reference has no test score, because its model diverged or was not tested. It has no "
    "verdict, but counts as a comparison."
)


def _about_compared(rows: Sequence[Verdict], planned: int) -> list[str]:
    """Sentences about the rows that are compared with a reference."""
    compared = [row for row in rows if row.words not in (BASELINE, UNEVEN)]
    if not compared:
        return []
    tested = [row for row in compared if row.words not in (TOO_FEW, NO_RESULT)]
    unknown = sum(row.words == NO_RESULT for row in compared)
    if unknown == len(compared):
        return []
    number, needed = comparisons(rows, planned), needed_for(rows, planned)
    if not tested:
        about = (
            f"No verdict: fewer than {FEWEST} seeds in common with the reference cannot tell a difference from chance. "
            f"Use {FEWEST} or more; with {_number(number)}, {_clear_from(needed)}."
        )
        return [about]
    corrected = corrected_for(rows, planned)
    by_holm = _by_holm(corrected, corrected - len(tested) - unknown)
    note = f"Verdict: permutation test of the paired differences, two-sided{by_holm}; better or worse if p is at most {LEVEL:g}."
    most = max(row.seeds for row in tested)
    lowest = lowest_p_value(most, corrected)
    if lowest > LEVEL:
        of_all = f" if all rows have them, which makes {_number(number)}" if corrected < number else ""
        limit = "is always 1" if lowest >= 1 else f"cannot be below {formatted_values.p_value(lowest)}"
        note += f" With {most} seeds, p {limit}; {_clear_from(needed)}{of_all}."
    else:
        note += _about_fewer_seeds(rows, planned)
    return [note]


def _clear_from(needed: int) -> str:
    """From how many seeds on a difference can be clear, in words."""
    return (
        f"a difference can be clear from {needed} seeds on" if needed else "no number of seeds makes a difference clear"
    )


def _by_holm(corrected: int, coming: int) -> str:
    """For how many comparisons p-values are corrected, of which some are still to come, in words with a comma; empty for one."""
    to_come = f", {coming} of them to come" if coming > 0 else ""
    return f", p corrected by Holm for {_number(corrected)}{to_come}" if corrected > 1 else ""


def _about_fewer_seeds(rows: Sequence[Verdict], planned: int) -> str:
    """A sentence, with a space before it, on rows that have too few seeds for a clear difference, unlike others; empty without any."""
    few = {
        row.seeds for i, row in enumerate(rows) if math.isfinite(row.p_holm) and lowest_p_holm(rows, i, planned) > LEVEL
    }
    return f" Rows with at most {max(few)} seeds cannot be clear, however large their differences are." if few else ""


def _number(comparisons: int) -> str:
    return formatted_values.counted(comparisons, "comparison")
