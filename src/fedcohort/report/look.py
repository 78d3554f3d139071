"""How charts look: one set of colours, dashes and letters for the page (light, dark and printed) and for figures in papers.

Strategies have the colours of Okabe and Ito (2008, "Color Universal Design"), and every colour goes with a dash and a symbol of its
own, so that a line is known in grey, too. On the page a colour is a CSS variable: the same chart follows the reader's light or dark
mode, and prints in the light one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["CLASSES", "DASHES", "PAGE", "STRATEGIES", "SYMBOLS", "WIDTHS", "Look", "paper", "short", "tick"]

STRATEGIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#3B98CF", "#000000", "#7A5195")
"""Okabe–Ito without its yellow, which white paper swallows: an ochre and a violet stand in, and its sky blue is darker."""

DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [12, 4], [4, 2, 1, 2], [1, 3], [6, 1])
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")

CLASSES = (
    "#332288",
    "#88CCEE",
    "#44AA99",
    "#117733",
    "#999933",
    "#DDCC77",
    "#CC6677",
    "#882255",
    "#AA4499",
    "#BBBBBB",
)
"""Paul Tol's "muted" scheme for colour-blind readers, with its grey as the tenth."""

WIDTHS = {1: 252, 2: 516}
"""Points of one and of two columns of a paper: 3.5 and 7.17 inches, as in IEEE and ACM styles."""


@dataclass(frozen=True)
class Look:
    """Colours by role, and sizes.

    Attributes:
        ink, soft, faint, ground: text, secondary text, grid lines, background.
        heat, cold: the colour of filled cells, and that of values below zero.
        strategies, classes: colours that tell things apart.
        font, size: letters.
        width: of a chart in points; None is as wide as its place on the page.
        height: of a chart in points.
        page: whether readers can point at things.
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

    def colours(self, number: int) -> list[str]:
        """Colours of that many strategies; they begin again after the last, with other dashes."""
        return [self.strategies[i % len(self.strategies)] for i in range(number)]

    def parts(self, number: int) -> list[str]:
        """Colours of the parts of a bar: neighbours differ in lightness, so that they are told apart in grey."""
        own = (self.heat, self.cold, *(self.classes[i] for i in (5, 2, 7, 1, 3, 6, 9)))
        return [own[i % len(own)] for i in range(number)]

    def dashes(self, number: int) -> list[list[int]]:
        """Dashes of that many strategies."""
        return [DASHES[(i + i // len(DASHES)) % len(DASHES)] for i in range(number)]

    def symbols(self, number: int) -> list[str]:
        """Symbols of that many strategies."""
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
"""On the page; the variables stand in ``templates/page.css``."""


def paper(columns: int = 1) -> Look:
    """In a paper of two columns, over one or both of them."""
    return Look(
        ink="#000000",
        soft="#333333",
        faint="#D9D9D9",
        ground="#FFFFFF",
        heat="#08306B",
        cold="#B35806",
        strategies=STRATEGIES,
        classes=CLASSES,
        font="Helvetica, Arial, 'Liberation Sans', sans-serif",
        size=8,
        width=WIDTHS[columns],
        height=round(WIDTHS[columns] * (0.62 if columns == 1 else 0.42)),
        page=False,
    )


def tick(number: str) -> dict[str, Any]:
    """How an axis writes numbers; d3's SI prefixes one by one, without 0M beside 1M."""
    if number == "~g":  # plain digits, but for the very large and the very small
        odd = "datum.value != 0 && (abs(datum.value) >= 1e6 || abs(datum.value) < 1e-4)"
        return {"labelExpr": f"{odd} ? format(datum.value, '.2~e') : format(datum.value, ',.5~f')"}
    return {"labelExpr": f"format(datum.value, '{number}')"} if number.endswith("s") else {"format": number}


def short(names: Sequence[str], limit: int = 28) -> list[str]:
    """Names cut to ``limit`` characters for charts, still distinct."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        words = " ".join(name.split())
        cut = words if len(words) <= limit else f"{words[: limit - 1]}…"
        seen[cut] = seen.get(cut, 0) + 1
        found.append(cut if seen[cut] == 1 else f"{cut} ({seen[cut]})")
    return found
