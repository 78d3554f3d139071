"""Define how charts look: colors, dashes and fonts, for the page (light, dark and printed) and for figures in papers.

Strategies have the colors of Okabe and Ito (2008, "Color Universal Design"). Every color has a dash and a symbol of its own, so that
lines can be distinguished in grayscale, too. On the page, a color is a CSS variable: the same chart follows the reader's light or
dark mode, and prints in light mode.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "CLASSES",
    "DASHES",
    "PAGE",
    "STRATEGIES",
    "SYMBOLS",
    "WIDTHS",
    "Look",
    "RowLooks",
    "drawable",
    "paper",
    "short",
    "tick",
]

STRATEGIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#3B98CF", "#000000", "#7A5195")
"""Okabe–Ito without its yellow, which cannot be seen on white paper: ochre and violet replace it, and its sky blue is darker."""

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
"""Paul Tol's "muted" scheme for color-blind readers, with its gray as the tenth color."""

WIDTHS = {1: 252, 2: 516}
"""Width of one and of two columns of a paper in points: 3.5 and 7.17 inches, as in IEEE and ACM styles."""


@dataclass(frozen=True)
class RowLooks:
    """How rows are told apart. Only those of a sweep have names and groups.

    Attributes:
        ranks: for each label, the place of its row, or in a sweep of its strategy, which gives its color, dash and symbol.
        names: for each label, the name of its strategy, for the ends of lines.
        groups: the labels at each point of the sweep.
    """

    ranks: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[tuple[str, ...], ...] = ()


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
        """Colors of ``number`` strategies; after the last color, the first is used again, with another dash."""
        return [self.strategies[i % len(self.strategies)] for i in range(number)]

    def of_rows(self, labels: Sequence[str]) -> tuple[list[str], list[list[int]], list[str]]:
        """Colors, dashes and symbols of rows by their labels."""
        ranks = [self.rows.ranks.get(label, i) for i, label in enumerate(labels)]
        number = max(ranks, default=-1) + 1
        colors, dashes, symbols = self.colors(number), self.dashes(number), self.symbols(number)
        return [colors[i] for i in ranks], [dashes[i] for i in ranks], [symbols[i] for i in ranks]

    def parts(self, number: int) -> list[str]:
        """Colors of the parts of a bar. Neighbors differ in lightness, so that they can be distinguished in grayscale."""
        own = (self.heat, self.cold, *(self.classes[i] for i in (5, 2, 7, 1, 3, 6, 9)))
        return [own[i % len(own)] for i in range(number)]

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


def tick(number: str) -> dict[str, Any]:
    """Altair's axis settings for a d3 format.

    SI prefixes are applied to each number by itself, so that an axis does not have 0M beside 1M. ``~g`` writes plain digits, except
    for very large and very small numbers.
    """
    if number == "~g":
        extreme = "datum.value != 0 && (abs(datum.value) >= 1e6 || abs(datum.value) < 1e-4)"
        return {"labelExpr": f"{extreme} ? format(datum.value, '.2~e') : format(datum.value, ',.5~f')"}
    return {"labelExpr": f"format(datum.value, '{number}')"} if number.endswith("s") else {"format": number}


RESERVED = frozenset(
    ["constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf"]
)
"""Names that every object of JavaScript has. Vega looks names up in objects, and fails to draw a class or a term of such a name."""


def drawable(name: str) -> str:
    """The name as charts can draw it: in one line, and a reserved name gets a character without width at its end.

    Vega cannot read a text with a line separator (U+2028).
    """
    line = " ".join(name.split())
    return f"{line}\u200b" if line in RESERVED else line


NUMBER = len(" (10)")
"""Letters that a shortened name can have beyond the limit: a number, or words that make it distinct without one."""


def short(names: Sequence[str], limit: int = 28) -> list[str]:
    """Names cut to ``limit`` characters for charts, in the middle.

    Names that become equal are cut elsewhere, so that the part in which they differ stays; names that are equal all the same get a
    number.

    >>> short(["conformal participation, alpha=0.1"])
    ['conformal partici… alpha=0.1']
    >>> short(["power-of-choice, d=10, k=5, alpha=0.05, rounds=100", "power-of-choice, d=20, k=5, alpha=0.05, rounds=100"])
    ['power-of-…d=10, k=5, alpha=…', 'power-of-…d=20, k=5, alpha=…']
    >>> short(["power of choice with many candidates", "power of choice with few candidates"])
    ['power of cho…many candidates', 'power of choi…few candidates']
    >>> heads = ("power of choice with all of their data", "power of choice with a mini-batch")
    >>> short([f"{head}, alpha={alpha}, lr=0.1" for head in heads for alpha in (1, 2)])[1:3]
    ['power of …r data, alpha=2, lr=0.1', 'power of …-batch, alpha=1, lr=0.1']
    """
    texts = [" ".join(name.split()) for name in names]
    cut = _apart({text: _cut(text, limit) for text in texts}, limit)
    if len(set(cut.values())) < len(cut):
        cut |= _by_words([text for text in cut if len(text) > limit], limit + NUMBER)
    if len(set(cut.values())) < len(cut):
        cut |= _before_settings([text for text in cut if list(cut.values()).count(cut[text]) > 1], limit + NUMBER)
    times: dict[str, int] = {}
    distinct = []
    for text in texts:
        times[cut[text]] = times.get(cut[text], 0) + 1
        distinct.append(_numbered(cut[text], times[cut[text]]))
    return distinct


def _apart(cut: dict[str, str], limit: int) -> dict[str, str]:
    """What names are cut to; those that are cut to the same are cut around the place where they differ, until none are alike."""
    found = dict(cut)
    for text in dict.fromkeys(cut.values()):
        same = [name for name, other in cut.items() if other == text]
        place = _common(same)
        around = {name: _cut_around(name, min(place, len(name) - 1), limit) for name in same}
        if len(set(around.values())) > 1:
            found |= _apart(around, limit)
    return found


def _by_words(names: Sequence[str], limit: int) -> dict[str, str]:
    """Names that begin with the same word as the words in which they differ, where these are short enough."""
    found: dict[str, str] = {}
    for begin in dict.fromkeys(name.split()[0] for name in names):
        alike = [name for name in names if name.split()[0] == begin]
        words = _words_apart(alike)
        if words and max(map(len, words)) <= limit:
            found |= zip(alike, words, strict=True)
    return found


def _before_settings(names: Sequence[str], limit: int) -> dict[str, str]:
    """Names of rows of a sweep, cut before the settings of their points, where these leave room for a name."""
    parts = {name: name.partition(", ")[::2] for name in names if "=" in name.rpartition(", ")[2]}
    room = limit - max((len(f", {settings}") for _, settings in parts.values()), default=limit)
    heads = list(dict.fromkeys(head for head, _ in parts.values()))
    shown = dict(zip(heads, short(heads, room), strict=True)) if room >= 12 else {}
    return {name: f"{shown[head]}, {settings}" for name, (head, settings) in parts.items() if head in shown}


def _words_apart(names: Sequence[str]) -> list[str]:
    """The first word of each name and the words in which names differ; empty unless all have as many words."""
    words = [name.split() for name in names]
    if len({len(own) for own in words}) > 1:
        return []
    kept = [not i or len(set(column)) > 1 for i, column in enumerate(zip(*words, strict=True))]
    marked = (" ".join(word if keep else "…" for word, keep in zip(own, kept, strict=True)) for own in words)
    return [re.sub(r" ?…[ …]*", "…", text) for text in marked]


def _numbered(text: str, time: int) -> str:
    return drawable(text) if time == 1 else f"{text} ({time})"


def _common(texts: Sequence[str]) -> int:
    """The number of characters at the begin that all texts have in common."""
    shortest = min(map(len, texts))
    return next((i for i in range(shortest) if len({text[i] for text in texts}) > 1), shortest)


def _cut(text: str, limit: int) -> str:
    """The text without its middle, if it is longer than ``limit``."""
    end = int(0.4 * (limit - 1))
    return text if len(text) <= limit else f"{text[: limit - 1 - end]}…{text[-end:]}"


def _cut_around(text: str, place: int, limit: int) -> str:
    """The begin of the text and what stands at ``place``, where it differs from others."""
    if len(text) <= limit:
        return text
    begin = limit // 3
    start = max(begin, min(place - 2, len(text) - (limit - begin - 1)))
    rest = text[max(start, text.rfind(" ", start, place) + 1) :]
    begin = max(begin, limit - 1 - len(rest))
    room = limit - begin - 1
    return f"{text[:begin]}…{rest if len(rest) <= room else rest[: room - 1] + '…'}"
