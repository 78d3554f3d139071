"""The rows of a comparison's table as dictionaries, with what tables show beside its columns."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcohort.study.comparison import Comparison

__all__ = ["compared_rows"]


def compared_rows(compared: "Comparison") -> list[dict[str, Any]]:
    """The rows of :attr:`Comparison.table`, in its order, each with ``tested``: whether a model of any of its runs was tested.

    A model that diverged was tested, although a regression has no R² then.
    """
    tested = [
        any(run.tested or run.without_score.any() for run in compared.measured(i)) for i in range(len(compared.rows))
    ]
    return [
        {str(key): value for key, value in row.items()} | {"tested": known}
        for row, known in zip(compared.table.to_dict("records"), tested, strict=True)
    ]
