"""Messages about labels that are not integers: what they are, and what to do about it."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["are_whole", "for_classes", "instead_of_classes"]


def are_whole(labels: NDArray[np.generic]) -> bool:
    """Whether labels are whole numbers that are stored as floats, as pandas does in a column that had missing values.

    >>> are_whole(np.array([0.0, 1.0])), are_whole(np.array([0.5, 1.0])), are_whole(np.array([0, 1]))
    (True, False, False)
    """
    return labels.dtype.kind == "f" and bool((np.asarray(labels, np.float64) % 1 == 0).all())


def for_classes(values: NDArray[np.generic]) -> str:
    """What makes classes of the labels in a column of a table, before a semicolon; empty if they cannot be meant as classes."""
    return "for classes, use .astype(int) in a function (data.name = 'my.py:load'); " if are_whole(values) else ""


def instead_of_classes(labels: NDArray[np.generic]) -> str:
    """What labels are that are not integers [N], and what to do about it."""
    missing = int(sum(label is None for label in labels.flat)) if labels.dtype == object else 0
    if missing:
        return f"{missing} of {labels.size} are missing"
    return f"not {labels.dtype} {list(labels.shape)}{_hint(labels)}"


def _hint(labels: NDArray[np.generic]) -> str:
    """What to do about labels that are not integers [N], after a semicolon; empty if that is not known."""
    numeric = labels.dtype.kind in "biuf"
    if numeric and labels.ndim == 2 and labels.shape[1] == 1:
        return "; drop the second axis: labels[:, 0]"
    if numeric and labels.ndim == 2 and np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all():
        return "; one column for each class: labels.argmax(axis=1)"
    if labels.ndim != 1:
        return ""
    if are_whole(labels):
        return "; for classes: labels.astype(int); for regression: data.numeric = true (from_arrays: numeric=True)"
    if labels.dtype.kind == "f":
        return "; numbers for regression: data.numeric = true (from_arrays: numeric=True)"
    if labels.dtype.kind == "U" or all(isinstance(label, str) for label in labels):
        return "; number texts of both splits together: classes, labels = numpy.unique(labels, return_inverse=True)"
    return ""
