"""What tables and captions say about the seeds that their numbers are means over."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from fedcohort.study.step_sizes import value_range

if TYPE_CHECKING:
    from fedcohort.report.data.report_data import Reading, Story

__all__ = ["counted", "listed", "mean_over", "mean_with_deviation", "over_seeds", "own_seeds"]


def counted(story: "Story") -> "list[tuple[str, list[Reading]]]":
    """The rows with a finished round: label, and the runs that their means cover, see
    :func:`~fedcohort.study.rows.unfinished_rows.counted_runs`."""
    rows = story.comparison.counted if story.comparison is not None else []
    return [
        (label, [reading for reading in readings if reading.seed in row.runs])
        for (label, readings), row in zip(story.played, rows, strict=True)
    ]


def listed(numbers: Sequence[int]) -> str:
    """Ascending numbers as text: 0 to 4, or 0, 2, 5."""
    first, last = numbers[0], numbers[-1]
    return f"{first} to {last}" if last - first == len(numbers) - 1 > 1 else ", ".join(map(str, numbers))


def over_seeds(seeds: Collection[int], numbers: Iterable[int]) -> str:
    """What means are over, if there are several seeds.

    Args:
        seeds: the seeds of all rows.
        numbers: the number of seeds of each row.

    >>> over_seeds([0, 1, 2], [3, 3]), over_seeds([0, 1, 2], [1, 3])
    ('over 3 seeds', 'over the seeds of each row, 1 to 3')
    """
    numbers = list(numbers)
    if min(numbers) == len(seeds):
        return f"over {len(seeds)} seeds"
    return f"over the seeds of each row, {value_range(numbers)}"


def mean_over(rows: "Sequence[tuple[str, Sequence[Reading]]]") -> str:
    """The seeds that the numbers of a chart or a table are means over: one seed, all seeds, or those of each row."""
    seeds = {reading.seed for _, own in rows for reading in own}
    if len(seeds) == 1:
        return f"seed {min(seeds)}"
    numbers = [len(own) for _, own in rows]
    return f"mean {over_seeds(seeds, numbers)}" if min(numbers, default=0) < len(seeds) else "mean over seeds"


def mean_with_deviation(rows: "Sequence[tuple[str, Sequence[Reading]]]") -> str:
    """The same with the standard deviation that bars and lines show, if any row has several seeds."""
    over = mean_over(rows)
    several = any(len(own) > 1 for _, own in rows)
    return f"{over}{',' if ',' in over else ''} ± one standard deviation" if several else over


def own_seeds(rows: Sequence[Collection[int]]) -> list[str]:
    """For each row, its seeds in words; empty texts if all rows have the same."""
    if len(set(map(frozenset, rows))) < 2:
        return [""] * len(rows)
    return [f"seed{'s' * (len(own) > 1)} {listed(sorted(own))}" for own in rows]
