"""Tables that choose their columns by the width of the terminal."""

import io
import os
from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

__all__ = [
    "ROOMY",
    "WIDE",
    "Column",
    "about_hidden",
    "as_text",
    "dimmed",
    "fitting_table",
    "label_width",
    "one_line",
    "plain_table",
    "screen",
]

WIDE = 120
"""Columns where there is no terminal to ask."""


def screen() -> Console:
    """Standard output; names that users gave are never read as markup."""
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console


def as_text(renderable: RenderableType, width: int = WIDE) -> str:
    """What would be printed, without colours."""
    file = io.StringIO()
    Console(file=file, width=width, color_system=None, legacy_windows=False).print(renderable)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


class Column(NamedTuple):
    """One column: heading, cells, when it goes (the lowest rank first; None never), and how it stands."""

    heading: str
    cells: Sequence[str | Text]
    rank: int | None = None
    left: bool = False
    widest: int | None = None


def fitting_table(columns: Sequence[Column], width: int) -> tuple[Table, list[str]]:
    """A table of the columns that fit, and the headings of those that do not."""
    kept = list(columns)
    while True:
        table = plain_table(kept)
        natural = Measurement.get(ROOMY, ROOMY.options, table).maximum
        going = min((column for column in kept if column.rank is not None), key=lambda c: c.rank or 0, default=None)
        if natural <= width or going is None:
            return table, [one_line(column.heading) for column in columns if column not in kept]
        kept.remove(going)


def one_line(heading: str) -> str:
    return heading.replace("\n", " ")


def plain_table(columns: Sequence[Column]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            Text(column.heading, justify="left" if column.left else "right"),
            justify="left" if column.left else "right",
            vertical="top",
            max_width=column.widest,
            no_wrap=column.widest is None,
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
    return table


ROOMY = Console(file=io.StringIO(), width=1000)


def dimmed(*lines: str) -> list[RenderableType]:
    return [Text(line, style="dim") for line in lines if line]


def about_hidden(hidden: Sequence[str]) -> str:
    return f"Wider terminals also show: {', '.join(hidden)}." if hidden else ""


def label_width(width: int) -> int:
    return max(16, round(0.225 * width))
