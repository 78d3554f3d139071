"""Name the rows of a chart of lines that have the same numbers, so that their lines lie on each other."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedcohort.core.arrays import Values
from fedcohort.report.data.report_data import Story
from fedcohort.report.figures.chart_style import Look

__all__ = ["about_equal", "shown_together"]

MOST_NAMES = 6
"""Largest number of rows on one line that a caption names."""


MOST_SETS = 2
"""Largest number of sets of rows that a caption names, if there are many."""


def about_equal(frame: pd.DataFrame, groups: Sequence[Sequence[str]]) -> str:
    """A sentence about rows with the same numbers, as long as they go on; empty if there are none.

    Args:
        frame: a row for each point: ``strategy``, ``x`` and ``mean``.
        groups: the rows that a chart shows together, such as those at each point of a sweep; empty for all rows.
    """
    labels = list(dict.fromkeys(frame["strategy"]))
    values = frame.pivot_table(index="strategy", columns="x", values="mean", sort=False, dropna=False)
    together = [
        same
        for group in groups or (labels,)
        for _, same in sorted(_same(values, [label for label in group if label in values.index]).items())
    ]
    if not together:
        return ""
    if len(groups) > 1:
        return "Rows with the same numbers lie on each other."
    together.sort(key=len, reverse=True)
    named = [_in_quotes(same) if len(same) <= MOST_NAMES else f"{len(same)} of {len(labels)} rows" for same in together]
    more = len(together) - MOST_SETS
    others = f"; and {more} more sets of rows" if more > 1 else ""
    return f"Rows with the same numbers lie on each other: {'; '.join(named[:MOST_SETS] if others else named)}{others}."


def _in_quotes(names: Sequence[str]) -> str:
    """Two or more names in quotes, so that one with a comma does not read as two; semicolons are kept for what separates sets."""
    *first, last = [f"'{name}'" for name in names]
    return f"{', '.join(first)} and {last}"


def shown_together(story: Story, look: Look) -> Sequence[Sequence[str]]:
    """The rows that the page shows together, which are those at one point of a sweep; empty if a chart has all rows."""
    return story.row_looks.groups if look.page else ()


def _same(values: pd.DataFrame, labels: Sequence[str]) -> dict[int, list[str]]:
    """Rows with the same values, by the position of the first of them. A row that ends before another is compared up to its end."""
    lines = {label: values.loc[label].to_numpy(np.float64) for label in labels}
    found: list[list[str]] = []
    for label in sorted(labels, key=lambda label: np.isnan(lines[label]).sum()):  # the longest line first
        same = next((same for same in found if _lies_on(lines[label], lines[same[0]])), None)
        if same is None:
            found.append([label])
        else:
            same.append(label)
    together = [sorted(same, key=labels.index) for same in found if len(same) > 1]
    return {labels.index(same[0]): same for same in together}


def _lies_on(line: Values, other: Values) -> bool:
    """Whether a line lies on another one from its begin to its end."""
    known = np.isfinite(line)
    return bool(known.any() and np.array_equal(line[known], other[known]))
