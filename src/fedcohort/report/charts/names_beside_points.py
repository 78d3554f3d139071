"""Find places for names beside points, so that no name covers another name or a point."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

__all__ = ["BESIDE", "FAR", "LED", "WIDTHS", "Box", "name_boxes", "names_with_room", "overlap"]

WIDTHS = (200, 270, 360, 480, 640, 800)
"""The widths of a chart in pixels from which on names get other places: in wider charts, more names fit."""

PHONE_NAME = 18
"""Number of letters to which the page's script cuts names in charts that are less than the third of these widths wide."""

RADIUS = 7
"""Half the width of a point with its line, in pixels."""

BESIDE = 8
"""Distance between the middle of a point and its name, in pixels."""

FAR = 14
"""A name that is farther above or below its point is led to it by a line, in pixels."""

LED = 24
"""Distance between the middle of a point and a far name, in pixels: its line is slanted, so that it does not look like an interval."""

MOVES = tuple(sign * step for step in range(0, 141, 7) for sign in ((1, -1) if step else (1,)))
"""How far names are moved up or down, in pixels, the nearest first."""

Box = tuple[float, float, float, float]
"""Left, right, bottom and top."""


@dataclass(frozen=True)
class _Place:
    """Where a name stands: how far above its point, on which side, and the boxes that it and its line take."""

    move: float
    right: bool
    boxes: tuple[Box, ...]


def names_with_room(
    points: pd.DataFrame,
    wanted: Sequence[int],
    across: Callable[[float], float],
    span: Sequence[float],
    look: tuple[float, float],
) -> pd.DataFrame:
    """The places of names in charts of each width: one row for each name that has room there.

    Args:
        points: the points, with the columns ``strategy``, ``name``, ``at`` and ``accuracy``.
        wanted: the index of the points that should have a name, the most important first.
        across: from ``at`` to the share of the width of the chart.
        span: the range of the y axis.
        look: the size of letters, and the height of the chart, in pixels.

    Returns:
        the columns of the points, with ``name_y``, the height of the name on the y axis; ``right``, whether it stands on the right of
        its point; ``far``, whether a line leads to it; and ``least`` and ``below``, the widths for which the place is.
    """
    known = points.loc[[math.isfinite(across(at)) for at in points["at"]]]
    share = (known["accuracy"].astype(float) - span[0]) / (span[1] - span[0])
    columns = ["strategy", "name", "at", "accuracy"]
    rows = []
    for least, below in zip(WIDTHS, (*WIDTHS[1:], 100_000), strict=True):
        x = {i: across(at) * least for i, at in known["at"].items()}
        y = (share * look[1]).to_dict()
        letters = {
            i: len(name) if least >= WIDTHS[2] else min(PHONE_NAME, len(name)) for i, name in known["name"].items()
        }
        at_width = _placed(x, y, letters, [i for i in wanted if i in x], (least, look[1]), look[0])
        for i, place in at_width.items():
            name_y = span[0] + (y[i] + place.move) / look[1] * (span[1] - span[0])
            found = {
                "name_y": name_y,
                "right": place.right,
                "far": abs(place.move) > FAR,
                "least": least,
                "below": below,
            }
            rows.append({**known.loc[i, columns].to_dict(), **found})
    return pd.DataFrame(rows, columns=[*columns, "name_y", "right", "far", "least", "below"])


def _placed(
    x: Mapping[Any, float],
    y: Mapping[Any, float],
    letters: Mapping[Any, int],
    wanted: Sequence[Any],
    chart: tuple[float, float],
    size: float,
) -> dict[Any, _Place]:
    """The places of names in a chart of one width and height, of those that have room."""
    taken = {i: (x[i] - RADIUS, x[i] + RADIUS, y[i] - RADIUS, y[i] + RADIUS) for i in x}
    names: list[Box] = []
    found = {}
    for i in wanted:
        others = [box for j, box in taken.items() if j != i]
        place = _free(x[i], y[i], (0.6 * size * letters[i], 1.3 * size), chart, others, names)
        if place is not None:
            names += place.boxes
            found[i] = place
    return found


def _free(
    x: float,
    y: float,
    name: tuple[float, float],
    chart: tuple[float, float],
    points: Sequence[Box],
    names: Sequence[Box],
) -> _Place | None:
    """The nearest place for a name beside a point where it stays in the chart, and covers no other point and no other name with its
    line; None if there is none. Its own line may cross points, as intervals do."""
    for place in _places(x, y, *name):
        text = place.boxes[0]
        left, right, bottom, top = text
        inside = left >= 0 and right <= chart[0] and bottom >= 0 and top <= chart[1] + name[1] / 2
        if not inside or any(overlap(text, point) for point in points):
            continue
        if not any(overlap(box, other) for box in place.boxes for other in names):
            return place
    return None


def _places(x: float, y: float, wide: float, tall: float) -> Iterator[_Place]:
    for move in MOVES:
        for right in (True, False):
            yield _Place(move, right, name_boxes((x, y), (wide, tall), move, right=right))


def name_boxes(at: tuple[float, float], size: tuple[float, float], move: float, *, right: bool) -> tuple[Box, ...]:
    """The box of a name of this width and height that is moved up beside a point, and those of the line that leads to it if it is
    far."""
    far, sign = abs(move) > FAR, 1 if right else -1
    start = at[0] + sign * (LED if far else BESIDE) - (0 if right else size[0])
    box = (start, start + size[0], at[1] + move - size[1] / 2, at[1] + move + size[1] / 2)
    return (box, *(_leader_boxes(*at, sign * LED, move) if far else ()))


def _leader_boxes(x: float, y: float, across: float, up: float) -> Iterator[Box]:
    """The boxes that a slanted line takes, piece by piece."""
    pieces = round(abs(up) / 7)
    for i in range(pieces):
        (left, right), (bottom, top) = (
            sorted((start + length * i / pieces, start + length * (i + 1) / pieces))
            for start, length in ((x, across), (y, up))
        )
        yield left - 1, right + 1, bottom, top


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes have a part in common."""
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]
