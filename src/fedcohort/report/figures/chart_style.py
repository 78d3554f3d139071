"""Define how charts look: colors, dashes and fonts, for the page (light, dark and printed) and for figures in papers.

Strategies have the colors of Okabe and Ito (2008, "Color Universal Design"). Every color has a dash and a symbol of its own, so that
lines can be distinguished in grayscale, too. On the page, a color is a CSS variable: the same chart follows the reader's light or
dark mode, and prints in light mode.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "CLASSES",
    "DASHES",
    "PAGE",
    "PAGE_PARTS",
    "REST",
    "STRATEGIES",
    "SYMBOLS",
    "UNCLEAR",
    "WIDTHS",
    "Look",
    "RowLooks",
    "ink_on",
    "paper",
    "tick",
]

STRATEGIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#000000", "#7A5195", "#8B4513")
"""Okabe–Ito without its yellow, which cannot be seen on white paper, and without its sky blue, which is too near to its blue where it
is dark enough for lines and names: ochre, violet and brown replace them."""

DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [12, 4], [4, 2, 1, 2], [1, 3], [6, 1])
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")

CLASSES = (
    "#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#BBBBBB",
)  # fmt: skip
"""Paul Tol's "muted" scheme for color-blind readers, with its gray as the tenth color. Pages have colors with more contrast, see
:mod:`fedcohort.report.page_assets`."""

PAGE_PARTS, PAPER_PARTS = (4, 2, 1, 3, 6, 7, 9), (5, 2, 7, 1, 3, 6, 9)
"""The colors of classes that parts of bars have, in an order in which neighbors differ in lightness."""

FURTHER = (7, 4, 0, 3, 2, 8)
"""Those of :data:`CLASSES` that differ from all colors of strategies, and can be seen as thin lines: in papers, rows have them after
the colors of strategies, so that no color is used twice."""

REST = "#B8B8B8"
"""Color of the rows that figures in papers do not name, if there are many rows: colors would be used again for several of them."""

UNCLEAR = "#8A8A8A"
"""Color of what is not clear in papers, such as differences that may be due to chance."""

WIDTHS = {1: 252, 2: 516}
"""Width of one and of two columns of a paper in points: 3.5 and 7.17 inches, as in IEEE and ACM styles."""


@dataclass(frozen=True)
class RowLooks:
    """How rows are told apart. Only those of a sweep have names and groups.

    Attributes:
        ranks: for each label, the place of its row, or in a sweep of its strategy, which gives its color, dash and symbol.
        names: for each label, the name of its strategy, for the ends of lines.
        groups: the labels at each point of the sweep.
        named: of many rows, the labels of those that charts of lines name, and draw stronger than the others; empty for few rows.
    """

    ranks: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[tuple[str, ...], ...] = ()
    named: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Look:
    """Colors by role, and sizes.

    Attributes:
        ink, soft, faint, ground: colors of text, secondary text, grid lines and background.
        heat, cold: colors of filled cells, and of values below zero.
        strategies, classes: colors of strategies and of classes.
        font, size: font family, and font size in points.
        width: width of a chart in points; None for the width of its place on the page.
        height: height of a chart in points.
        page: whether the chart is shown on a page, where readers can point at marks and hide strategies.
        rows: how the rows of a sweep are told apart.
    """

    ink: str
    soft: str
    faint: str
    ground: str
    heat: str
    cold: str
    strategies: tuple[str, ...]
    classes: tuple[str, ...]
    font: str
    size: float
    width: int | None
    height: int
    page: bool
    rows: RowLooks = field(default_factory=RowLooks)

    def colors(self, number: int) -> list[str]:
        """Colors of ``number`` strategies; after the last color, the first is used again, with another dash. Papers have more."""
        own = self.strategies if self.page else (*self.strategies, *(self.classes[i] for i in FURTHER))
        return [own[i % len(own)] for i in range(number)]

    def of_rows(
        self, labels: Sequence[str], more: Collection[str] = ()
    ) -> tuple[list[str], list[list[int]], list[str]]:
        """Colors, dashes and symbols of rows by their labels. In papers, of many rows only those that are named, and ``more`` rows,
        have their own."""
        known = {label: self.rows.ranks.get(label, i) for i, label in enumerate(labels)}
        strong = self.strong(labels, more)
        if strong and not self.rows.groups:
            known |= {label: i for i, label in enumerate(strong)}
        number = max(known.values(), default=-1) + 1
        colors, dashes, symbols = self.colors(number), self.dashes(number), self.symbols(number)
        if not strong:
            looks = {label: (colors[i], dashes[i], symbols[i]) for label, i in known.items()}
        else:
            looks = dict.fromkeys(labels, (REST, DASHES[0], SYMBOLS[0]))
            looks |= {label: (colors[(i := known[label])], dashes[i], symbols[i]) for label in strong}
        found = [looks[label] for label in labels]
        return [own[0] for own in found], [own[1] for own in found], [own[2] for own in found]

    def strong(self, labels: Sequence[str], more: Collection[str] = ()) -> list[str]:
        """In papers, of many rows those that are named, in the order of their colors, and then ``more`` rows; empty if all are."""
        if self.page or not self.rows.named:
            return []
        order = {label: (label not in self.rows.named, self.rows.ranks.get(label, i)) for i, label in enumerate(labels)}
        return sorted((label for label in labels if label in self.rows.named or label in more), key=order.__getitem__)

    def parts(self, number: int) -> list[str]:
        """Colors of the parts of a bar. Neighbors differ in lightness, so that they can be distinguished in grayscale."""
        own = (self.heat, self.cold, *(self.classes[i] for i in (PAGE_PARTS if self.page else PAPER_PARTS)))
        return [own[i % len(own)] for i in range(number)]

    def ink_on_classes(self, number: int) -> list[str]:
        """For each of the first ``number`` colors of classes, the color of text on it."""
        return [f"var(--t{i})" if self.page else ink_on(self.classes[i]) for i in range(number)]

    def dashes(self, number: int) -> list[list[int]]:
        """Dashes of ``number`` strategies."""
        return [DASHES[(i + i // len(DASHES)) % len(DASHES)] for i in range(number)]

    def symbols(self, number: int) -> list[str]:
        """Symbols of ``number`` strategies."""
        return [SYMBOLS[(i + i // len(SYMBOLS)) % len(SYMBOLS)] for i in range(number)]

    def config(self) -> dict[str, Any]:
        """The Vega-Lite configuration."""
        axis = {
            "labelColor": self.soft,
            "titleColor": self.soft,
            "domainColor": self.faint,
            "tickColor": self.faint,
            "gridColor": self.faint,
            "labelFontSize": self.size,
            "titleFontSize": self.size,
            "titleFontWeight": "normal",
            "gridWidth": 0.6,
            "domainWidth": 0.8,
            "tickWidth": 0.8,
            "tickSize": 4,
            "labelPadding": 4,
            "titlePadding": 8 if self.page else 4,
        }
        return {
            "background": None if self.page else "white",
            "font": self.font,
            "view": {"stroke": None},
            "axis": axis,
            "axisX": {"grid": False, "labelFlush": True, "labelSeparation": 4},
            "axisY": {"domain": False, "ticks": False},
            "legend": {
                "labelColor": self.ink,
                "titleColor": self.soft,
                "labelFontSize": self.size,
                "titleFontSize": self.size,
                "titleFontWeight": "normal",
                "symbolStrokeWidth": 2,
                "symbolSize": 60,
                "orient": "bottom",
                "columns": 3,
                "labelLimit": 140,
                "rowPadding": 2,
                "columnPadding": 12,
                "offset": 18 if self.page else 8,
            },
            "title": {
                "color": self.ink,
                "fontSize": self.size + 1,
                "fontWeight": 600,
                "anchor": "start",
                "offset": 6,
                "subtitleColor": self.soft,
                "subtitleFontSize": self.size,
            },
            "text": {"color": self.ink, "fontSize": self.size, "font": self.font},
            "line": {"strokeWidth": 2 if self.page else 1.4, "strokeCap": "butt", "strokeJoin": "round"},
            "rule": {"color": self.soft},
            "bar": {"color": self.heat},
            "rect": {"color": self.heat},
            "point": {"filled": True},
        }


def _variables(prefix: str, number: int) -> tuple[str, ...]:
    return tuple(f"var(--{prefix}{i})" for i in range(number))


PAGE = Look(
    ink="var(--ink)",
    soft="var(--soft)",
    faint="var(--faint)",
    ground="var(--ground)",
    heat="var(--heat)",
    cold="var(--cold)",
    strategies=_variables("s", len(STRATEGIES)),
    classes=_variables("c", len(CLASSES)),
    font="system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif",
    size=12,
    width=None,
    height=300,
    page=True,
)
"""The look of charts on the page; ``templates/page.css`` defines the variables."""


def paper(columns: int = 1) -> Look:
    """The look of charts in a two-column paper, over one or both columns."""
    return Look(
        ink="#000000",
        soft="#333333",
        faint="#D9D9D9",
        ground="#FFFFFF",
        heat="#08306B",
        cold="#B35806",
        strategies=STRATEGIES,
        classes=CLASSES,
        font="Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans Condensed', sans-serif",
        size=8,
        width=WIDTHS[columns],
        height=round(WIDTHS[columns] * (0.62 if columns == 1 else 0.42)),
        page=False,
    )


def ink_on(color: str) -> str:
    """Black or white, whichever has more contrast with a color, by the relative luminance of the Web Content Accessibility Guidelines.

    >>> ink_on("#332288"), ink_on("#DDCC77")
    ('#FFFFFF', '#000000')
    """
    shares = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#FFFFFF" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "#000000"


def tick(number: str) -> dict[str, Any]:
    """Altair's axis settings for a d3 format.

    SI prefixes are applied to each number by itself, so that an axis does not have 0M beside 1M, and not below 1: half a unit of time
    is 0.5, and not 500m. ``~g`` writes plain digits, except for very large and very small numbers.
    """
    if number == "~g":
        extreme = "datum.value != 0 && (abs(datum.value) >= 1e6 || abs(datum.value) < 1e-4)"
        return {"labelExpr": f"{extreme} ? format(datum.value, '.2~e') : format(datum.value, ',.5~f')"}
    if number.endswith("s"):
        return {"labelExpr": f"format(datum.value, abs(datum.value) < 1 ? '~g' : '{number}')"}
    return {"format": number}
