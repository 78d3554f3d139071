"""Find the front of the rows that a page shows: a row that its reader has hidden keeps no other row from it."""

import altair as alt

__all__ = ["BEATEN", "ON_FRONT", "front_of_shown_rows"]

ON_FRONT, BEATEN = (
    "no other row gets as much for less, or more for no more",
    "another row gets as much for less, or more for no more",
)
"""What tooltips say of rows on the front, and of others that are compared."""


def front_of_shown_rows(shown: alt.Chart) -> alt.Chart:
    """The chart with ``front`` and ``standing`` computed again from the rows that are left after its filters.

    A row is on the front if no cheaper or equally costly row is more accurate, and it is the cheapest of the rows with its accuracy.
    Rows without ``ranked`` are not compared.

    Args:
        shown: the chart of the rows, with their cost ``x``, their accuracy, and whether they are ``ranked``.
    """
    found: alt.Chart = (
        shown.transform_calculate(compared="datum.ranked ? datum.accuracy : null")
        .transform_window(highest="max(compared)", sort=[alt.SortField("x")], frame=[None, 0])
        .transform_joinaggregate(lowest="min(x)", groupby=["compared"])
        .transform_calculate(front="datum.ranked && datum.compared === datum.highest && datum.x === datum.lowest")
        .transform_calculate(standing=f"!datum.ranked ? datum.standing : datum.front ? '{ON_FRONT}' : '{BEATEN}'")
    )
    return found
