"""Find places for the names of lines that end before others: beside their own ends, where they cover no other name and few lines."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.arrays import Values
from fedcohort.report.charts.axes_and_legends import outlined
from fedcohort.report.charts.line_ends import BESIDE, apart
from fedcohort.report.charts.names_beside_points import BESIDE as NEXT_TO
from fedcohort.report.charts.names_beside_points import FAR, LED, Box, name_boxes, overlap
from fedcohort.report.charts.seen_ends import Edges, scaled, seen_end
from fedcohort.report.figures.chart_style import Look

__all__ = ["names_beside_ends", "names_inside"]

WIDTHS = (300, 480, 720)
"""The widths of a chart in pixels from which on names get other places: in wider charts, names cover less of the axis."""

STEP = 3
"""Distance of the points of lines that names should not cover, in pixels."""

CROSSED = 15
"""A line to a name that crosses a name is as bad as a name that covers so many points of lines."""

MOVES = tuple(sign * step for step in range(0, 106, 7) for sign in ((1, -1) if step else (1,)))
"""How far names are moved up or down, in pixels, the nearest first."""


def names_beside_ends(
    frame: pd.DataFrame, ends: pd.DataFrame, edges: Mapping[str, Edges], look: Look
) -> pd.DataFrame | None:
    """The places of the names of lines that end early, in charts of each width, on linear and on logarithmic axes; None without any.

    Args:
        frame: the lines.
        ends: the names at the ends of lines, from :func:`~fedcohort.report.charts.line_ends.names_at_ends`.
        edges: the axes by the suffix of their columns, see :func:`~fedcohort.report.charts.lost_losses.last_points`.
        look: how charts look.

    Returns:
        a row for each name, with ``x`` and ``height``, the end of its line; ``place``, the height of the name; ``right``, whether it
        stands on the right of the end; ``far``, whether a line leads to it; and ``log``, ``least`` and ``below``, for which axes and
        widths the place is.
    """
    early = ends[ends["early"]]
    rows = []
    for (suffix, own_edges), (least, below) in (
        (each, widths) for each in edges.items() for widths in pairwise((*WIDTHS, 100_000))
    ):
        for _, names in early.groupby("group", sort=False):
            lines = frame[frame["strategy"].isin(ends.loc[ends["group"] == names["group"].iloc[0], "strategy"])]
            chart = _Chart(lines, own_edges, (least, look.height), look.size)
            column = f"name{suffix}" if f"name{suffix}" in names else "name"
            shown = dict(zip(names["strategy"], names[column], strict=True))
            place = {"log": int(bool(suffix)), "least": least if least > WIDTHS[0] else 0, "below": below}
            rows += [found | place for found in chart.places(shown)]
    return pd.DataFrame(rows) if rows else None


def names_inside(
    names: alt.Chart, x_scale: alt.Scale, y_scale: alt.Scale, color: alt.Color, look: Look
) -> list[alt.Chart]:
    """The names beside the ends of their lines, which have dots, and gray lines to those that had to be moved away.

    Args:
        names: a chart of the table of :func:`names_beside_ends`.
        x_scale, y_scale: the axes.
        color: the color of each strategy.
        look: how charts look.
    """
    base = names.transform_filter("datum.log == 0 && width >= datum.least && width < datum.below")
    shown = alt.OpacityValue(alt.ExprRef("named ? (inrange(datum.x, domain('x')) ? 1 : 0) : 0"))
    x, place = alt.X("x:Q", scale=x_scale), alt.Y("place:Q", scale=y_scale)
    begin, end = (alt.ExprRef(f"datum.right ? {at} : {-at}") for at in (3, LED - 3))
    far = base.transform_filter("datum.far").mark_rule(
        clip=False, color=look.soft, strokeWidth=0.8, aria=False, xOffset=begin, x2Offset=end
    )
    height = alt.Y("height:Q", scale=y_scale)
    dots = base.mark_point(filled=True, size=26, clip=False, aria=False, tooltip=None)
    layers = [
        far.encode(x, height, alt.X2("x:Q"), alt.Y2("place:Q"), opacity=shown),
        dots.encode(x, height, color, opacity=shown),
    ]
    for sign, align in ((1, "left"), (-1, "right")):
        away: dict[str, Any] = {"align": align, "dx": alt.ExprRef(f"datum.far ? {sign * LED} : {sign * NEXT_TO}")}
        side = base.transform_filter("datum.right" if sign > 0 else "!datum.right").mark_text(
            fontWeight=600, fontSize=look.size, clip=False, baseline="middle", **away
        )
        text = side.encode(x, place, text=alt.Text("label:N"), opacity=shown)
        layers += [outlined(text, look), text.encode(color=color)]
    return layers


class _Chart:
    """A chart of some lines with one width: where names are free."""

    def __init__(self, lines: pd.DataFrame, edges: Edges, size: tuple[float, float], letter: float) -> None:
        self.edges, self.size, self.letter = edges, size, letter
        self.across, self.up = scaled(log=edges.log_x), scaled(log=edges.log_y)
        known = lines[np.isfinite(lines["mean"].to_numpy(np.float64))]
        self.lines = {str(label): own for label, own in known.groupby("strategy", sort=False)}
        self.points = np.concatenate([self._dense(own) for own in self.lines.values()])
        self.names: list[Box] = []
        self.leaders: list[Box] = []

    def _pixels(self, x: Values, y: Values) -> np.ndarray:
        """Places of points in pixels from the lower left corner [n, 2]."""
        left, right = self.across(np.asarray(self.edges.x, np.float64))
        low, high = self.up(np.asarray(self.edges.y, np.float64))
        clipped = np.clip(np.asarray(y, np.float64), self.edges.y[0], self.edges.y[1])
        at = (self.across(np.asarray(x, np.float64)) - left) / (right - left) * self.size[0]
        return np.column_stack([at, (self.up(clipped) - low) / (high - low) * self.size[1]])

    def _dense(self, line: pd.DataFrame) -> np.ndarray:
        """Points of a line that are so near that a name cannot stand between them."""
        at = self._pixels(line["x"].to_numpy(np.float64), line["mean"].to_numpy(np.float64))
        x = np.arange(at[0, 0], at[-1, 0] + STEP, STEP)
        return np.concatenate([at, np.column_stack([x, np.interp(x, at[:, 0], at[:, 1])])])

    def places(self, names: Mapping[str, str]) -> Iterator[dict[str, object]]:
        """The places of names, from the last end to the first, and of lines that end together from the lowest to the highest."""
        ends = {
            label: seen_end(own["x"].to_numpy(np.float64), own["mean"].to_numpy(np.float64), self.edges)
            for label, own in self.lines.items()
            if label in names
        }
        pixels = {label: self._pixels(np.array([x]), np.array([y]))[0] for label, (x, y) in ends.items()}
        for together in self._together(pixels):
            heights = np.array([pixels[label][1] for label in together])
            apart_at = apart(heights, 1.25 * self.letter, [0.0, self.size[1]])
            for label, wanted in zip(together, apart_at.tolist(), strict=True):
                (x, height), at = ends[label], pixels[label]
                move, right = self._free(at, wanted - at[1], len(names[label]))
                low, high = self.up(np.asarray(self.edges.y, np.float64)).tolist()
                place = low + (at[1] + move) / self.size[1] * (high - low)
                yield {
                    "strategy": label,
                    "label": names[label],
                    "x": x,
                    "height": height,
                    "place": float(10**place if self.edges.log_y else place),
                    "right": right,
                    "far": abs(move) > FAR,
                }

    def _together(self, pixels: Mapping[str, np.ndarray]) -> list[list[str]]:
        """The lines that end at nearly the same x, the last first, each list from the lowest to the highest."""
        clusters: list[list[str]] = []
        for label in sorted(pixels, key=lambda label: -pixels[label][0]):
            if not clusters or pixels[clusters[-1][0]][0] - pixels[label][0] > BESIDE * self.size[0]:
                clusters.append([])
            clusters[-1].append(label)
        return [sorted(cluster, key=lambda label: pixels[label][1]) for cluster in clusters]

    def _free(self, at: np.ndarray, wanted: float, letters: int) -> tuple[float, bool]:
        """How far a name is moved up, and whether it stands on the right: the nearest place where it covers no name and fewest
        lines. ``wanted`` is where to begin."""
        wide, tall = 0.6 * self.letter * letters, 1.25 * self.letter
        best: tuple[float, bool, tuple[Box, ...]] = (wanted, True, ())
        least = math.inf
        for move, right in ((wanted + step, right) for step in MOVES for right in (True, False)):
            boxes = name_boxes((float(at[0]), float(at[1])), (wide, tall), move, right=right)
            if (covered := self._covered(boxes)) < least:
                best, least = (move, right, boxes), covered
            if not covered:
                break
        self.names += best[2][:1]
        self.leaders += best[2][1:]
        return best[:2]

    def _covered(self, boxes: Sequence[Box]) -> float:
        """How many points of lines a name would cover: more if a line to a name crosses a name, far more if names cover each other, or
        it leaves the chart."""
        left, right, bottom, top = boxes[0]
        half = (top - bottom) / 2
        outside = left < 0 or right > self.size[0] or bottom < -half or top > self.size[1] + half
        x, y = self.points.T
        points = (x > left) & (x < right) & (y > bottom) & (y < top)
        names = sum(overlap(boxes[0], other) for other in self.names)
        crossed = any(overlap(box, other) for box in boxes[1:] for other in self.names)
        crossed |= any(overlap(boxes[0], other) for other in self.leaders)
        return 1000.0 * (outside + names) + CROSSED * crossed + float(points.sum())
