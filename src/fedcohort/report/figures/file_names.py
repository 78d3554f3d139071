"""Names of files from the texts that people read: of rows, of points of a sweep, and of views of a figure."""

import re
from collections.abc import Iterable, Sequence

__all__ = ["distinct", "file_name", "of_rows"]

NEGATIVE = re.compile(r"(?<![^\s=,(\[])[-−](?=[.\d])")
"""The sign of a negative number."""

BETWEEN = re.compile(r"[^a-z0-9.]+|(?<!\d)\.+|\.+(?!\d)")
"""What becomes a hyphen: everything but letters, digits, and the points inside numbers."""


def file_name(text: str, empty: str = "") -> str:
    """A text as a part of a file name: lower-case letters, digits, hyphens, and points in numbers; ``empty`` if none of them is left.

    >>> file_name("UCB, alpha=0.1")
    'ucb-alpha-0.1'
    >>> file_name("lr=-0.5")
    'lr-minus-0.5'
    """
    return BETWEEN.sub("-", NEGATIVE.sub(" minus ", text).lower()).strip("-") or empty


def distinct(names: Iterable[str]) -> list[str]:
    """The names, with a number behind those that an earlier one has.

    >>> distinct(["sizes", "speed", "sizes", "sizes-2"])
    ['sizes', 'speed', 'sizes-2', 'sizes-2-2']
    """
    taken: set[str] = set()
    found = []
    for name in names:
        own, number = name, 2
        while own in taken:
            own, number = f"{name}-{number}", number + 1
        taken.add(own)
        found.append(own)
    return found


def of_rows(labels: Sequence[str], points: bool) -> dict[str, str]:
    """By the label of each row, a name that can be part of the name of a figure, distinct.

    Args:
        labels: the labels of all rows.
        points: whether numbers keep their points, as in names of files; ids in a page have hyphens.
    """
    names = (file_name(label, "row") for label in labels)
    return dict(zip(labels, distinct(name if points else name.replace(".", "-") for name in names), strict=True))
