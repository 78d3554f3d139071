"""Lay out tables so that they fit the width of the terminal."""

import io
import math
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

__all__ = [
    "WIDE",
    "Column",
    "Screen",
    "about_hidden",
    "as_text",
    "dimmed",
    "fits",
    "fitting_table",
    "harmless",
    "label_width",
    "natural_width",
    "one_line",
    "plain_table",
    "screen",
]

NARROWEST = 12
"""A column with wrapped text is never narrower than this number of characters."""

LEAST_WIDTH = 40
"""Narrower terminals break longer lines themselves: tables would lose the names of their rows."""

WIDE = 120
"""Width in characters if the output is not a terminal."""


_STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that change the direction of writing. Rich counts them as having no width."""


_ENDS_OF_LINES = re.compile(r"(?: |\x1b\[[0-9;]*m)+(?=\n)")
"""Spaces at the ends of lines, and codes of colors between them and behind them."""


def harmless(text: str) -> str:
    """``text`` in one line, without the control characters that could steer a terminal."""
    return _STEERING.sub("", " ".join(text.split()))


class Screen(Console):
    """A console for text that others wrote, which lets the command end quietly if the program that reads its output has ended."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See :class:`rich.console.Console`. Control characters in names and notes, which could steer the terminal, are left out."""
        for segment in super().render(renderable, options):
            harmless = segment.control or _STEERING.search(segment.text) is None
            yield segment if harmless else segment._replace(text=_STEERING.sub("", segment.text))

    def print(self, *objects: Any, **options: Any) -> None:
        """See :class:`rich.console.Console`. Lines have no spaces at their ends, except beside progress, which is drawn over."""
        if self.stderr or self.legacy_windows:
            super().print(*objects, **options)
            return
        with self.capture() as printed:
            super().print(*objects, **options)
        self.file.write(_ENDS_OF_LINES.sub(lambda end: end[0].replace(" ", ""), printed.get()))
        self.file.flush()

    def on_broken_pipe(self) -> None:
        """See :class:`rich.console.Console`."""
        raise BrokenPipeError


def screen() -> Console:
    """Standard output. Names that users gave are printed as they are, never interpreted as markup."""
    console = Screen(markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    elif console.is_dumb_terminal:  # for which Rich takes 80, however wide it is
        console.size = ConsoleDimensions(*shutil.get_terminal_size())
    console.width = max(console.width, LEAST_WIDTH)
    return console


def as_text(renderable: RenderableType, width: int = WIDE) -> str:
    """What would be printed, as text without colors."""
    file = io.StringIO()
    Screen(file=file, width=width, color_system=None, legacy_windows=False).print(renderable)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


class Column(NamedTuple):
    """One column of a table.

    Attributes:
        heading: its heading; may have several lines.
        cells: its cells.
        rank: columns with the lowest rank are hidden first if the table is too wide; None for columns that are never hidden.
        left: whether cells are aligned to the left.
        widest: width in characters at which cells are wrapped; None if they are not.
    """

    heading: str
    cells: Sequence[str | Text]
    rank: int | None = None
    left: bool = False
    widest: int | None = None


def fitting_table(columns: Sequence[Column], width: int, ends: Sequence[int] = ()) -> tuple[Table, list[str]]:
    """A table of the columns that fit into ``width`` characters, with an empty line after the rows ``ends``, and the headings of the
    columns that do not fit."""
    kept = list(columns)
    while True:
        table = plain_table(kept, ends)
        removable = [column for column in kept if column.rank is not None]
        if natural_width(table) <= width or not removable:
            hidden = [one_line(column.heading) for column in columns if column not in kept]
            return plain_table(_cut(_resized(kept, width, ends), width, ends), ends), hidden
        kept.remove(min(removable, key=lambda column: column.rank or 0))


def fits(columns: Sequence[Column], width: int) -> bool:
    """Whether the columns that are never hidden fit into ``width`` characters without a cut, with names as narrow as possible."""
    kept = [column for column in columns if column.rank is None]
    narrow = [column if column.widest is None else column._replace(widest=NARROWEST) for column in kept]
    return natural_width(plain_table(narrow)) <= width


def _resized(columns: Sequence[Column], width: int, ends: Sequence[int]) -> list[Column]:
    """The columns; those with wrapped text become wider if there is room, and narrower if the table is too wide."""
    resized = list(columns)
    wrapped = [i for i, column in enumerate(columns) if column.widest is not None]
    for left, i in zip(range(len(wrapped), 0, -1), wrapped, strict=True):
        lacking = natural_width(plain_table(resized, ends)) - width
        if lacking > 0:
            now = natural_width(plain_table([columns[i]]))
            resized[i] = columns[i]._replace(widest=min(now, max(NARROWEST, now - math.ceil(lacking / left))))
        else:
            resized[i] = _widened(resized, i, width, ends)
    return resized


def _cut(columns: Sequence[Column], width: int, ends: Sequence[int]) -> list[Column]:
    """The columns; if the table is still too wide, the widest ones that are not wrapped are cut, so that names are not hidden."""
    cut = list(columns)
    lacking = natural_width(plain_table(cut, ends)) - width
    if lacking <= 0:
        return cut
    widths = [natural_width(plain_table([column])) for column in columns]
    for i in sorted(range(len(columns)), key=lambda i: -widths[i]):
        if lacking > 0 and columns[i].widest is None:
            texts = [cell.copy() if isinstance(cell, Text) else Text(cell) for cell in columns[i].cells]
            cut[i] = columns[i]._replace(
                cells=[_shortened(text, max(NARROWEST, widths[i] - lacking)) for text in texts]
            )
            lacking = natural_width(plain_table(cut, ends)) - width
    return cut


def _shortened(text: Text, widest: int) -> Text:
    """The text with each of its lines cut to ``widest`` characters."""
    lines = text.split("\n", allow_blank=True)
    for line in lines:
        line.truncate(widest, overflow="ellipsis")
    return Text("\n").join(lines)


def _widened(columns: Sequence[Column], i: int, width: int, ends: Sequence[int]) -> Column:
    """Column ``i``, as wide as its cells need and the table has room for."""
    column = columns[i]
    least = column.widest or 0
    needed = max((cell_len(str(cell)) for cell in column.cells), default=0)
    others = natural_width(plain_table(columns, ends)) - natural_width(plain_table([column]))
    for widest in range(min(needed, width - others), least, -1):
        wider = column._replace(widest=widest)
        if natural_width(plain_table([*columns[:i], wider, *columns[i + 1 :]], ends)) <= width:
            return wider
    return column


def _broken(cell: Text, widest: int) -> Text:
    """The cell with line breaks after joints of words that are longer than a line, such as ``_`` and ``/``."""
    offsets: list[int] = []
    for word in re.finditer(r"\S+", cell.plain):
        start = word.start()
        while cell_len(cell.plain[start : word.end()]) > widest:
            joints = [start + joint.end() for joint in _JOINT.finditer(cell.plain[start : word.end()])]
            fitting = [joint for joint in joints if cell_len(cell.plain[start:joint]) <= widest and joint < word.end()]
            if not fitting:
                break
            start = fitting[-1]
            offsets.append(start)
    return Text("\n").join(cell.divide(offsets)) if offsets else cell


_JOINT = re.compile(r"[_/\-,=]+")
"""Where a long name can be broken."""


def natural_width(table: Table) -> int:
    """Width of a table in characters if nothing is wrapped or cut."""
    return Measurement.get(_UNLIMITED, _UNLIMITED.options, table).maximum


def one_line(heading: str) -> str:
    """A heading without line breaks."""
    return heading.replace("\n", " ")


def plain_table(columns: Sequence[Column], ends: Sequence[int] = ()) -> Table:
    """A table of all columns, however wide it becomes, with an empty line after the rows ``ends``."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            Text(column.heading, justify="left" if column.left else "right"),
            justify="left" if column.left else "right",
            vertical="top",
            max_width=column.widest,
            no_wrap=column.widest is None,
            overflow="ellipsis" if column.widest is None else "fold",  # a name that is to be typed must be whole
        )
    for i, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        texts = [Text(cell) if isinstance(cell, str) else cell for cell in cells]
        widths = [column.widest for column in columns]
        broken = [text if widest is None else _broken(text, widest) for text, widest in zip(texts, widths, strict=True)]
        table.add_row(*broken, end_section=i in ends)
    return table


_UNLIMITED = Console(file=io.StringIO(), width=1000)
"""A console that is wide enough for every table, to measure tables on."""


def dimmed(*lines: str) -> list[RenderableType]:
    """Notes below a table; empty lines are left out."""
    return [Text(line, style="dim") for line in lines if line]


def about_hidden(hidden: Sequence[str]) -> str:
    """A note about columns that do not fit; empty if all fit."""
    separator = "; " if any("," in heading for heading in hidden) else ", "
    return f"Hidden for lack of width: {separator.join(hidden)}." if hidden else ""


def label_width(width: int) -> int:
    """Width in characters at which labels of strategies are wrapped, in a table of ``width`` characters."""
    return max(16, round(0.225 * width))
