"""How charts tell the rows of a comparison apart."""

from collections.abc import Sequence

from fedcohort.report.figures.chart_style import RowLooks
from fedcohort.report.figures.panel_rows import rows_with_name
from fedcohort.report.figures.shortened_names import short
from fedcohort.study.comparison import Comparison

__all__ = ["row_looks"]


def row_looks(compared: Comparison | None, labels: Sequence[str], most: int, *, finished: bool) -> RowLooks:
    """How rows are told apart: at each point of a sweep, a strategy has the same color, and its name without the settings.

    Args:
        compared: the rows; None if there are none.
        labels: their labels.
        most: with more rows at a point, charts of lines name some of them only.
        finished: whether all runs are finished. Only then, the rows that are named have colors of their own, which would otherwise
            change with every round.
    """
    named = frozenset(labels[i] for i in rows_with_name(compared, most))
    if compared is None or len(compared.groups) < 2:
        first = named if finished else frozenset()
        ordered = sorted(labels, key=lambda label: label not in first)
        return RowLooks({label: i for i, label in enumerate(ordered)}, named=named)
    names = compared.names_without_settings
    order = list(dict.fromkeys(names))
    cut = dict(zip(order, short(order), strict=True))
    return RowLooks(
        {label: order.index(name) for label, name in zip(labels, names, strict=True)},
        dict(zip(labels, (cut[name] for name in names), strict=True)),
        tuple(tuple(labels[i] for i in group.rows) for group in compared.groups),
        named,
    )
