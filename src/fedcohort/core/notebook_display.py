"""What notebooks display of an object: a small table as HTML, and a picture for pages that show no HTML.

Pages such as GitHub show notebooks without scripts, styles and frames. A plain table survives that, and a PNG image as well.
"""

import io
from collections.abc import Callable, Sequence
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, TypeAlias

from fedcohort.core.words.formatted_values import counted

if TYPE_CHECKING:
    from PIL import ImageFont

__all__ = ["LARGEST", "Bundle", "bundle", "html_table", "picture_of_table"]

Bundle: TypeAlias = dict[str, str | bytes]
"""Content by MIME type, as ``_repr_mimebundle_`` returns it."""

LARGEST = 300_000
"""Largest size of what is displayed of one object in bytes, as the notebook's file holds it."""

MOST_ROWS = 60
"""Number of rows of the longest table; a longer one says how many more there are."""

MOST_CHARACTERS = 120
"""Number of characters of the longest cell."""


def bundle(
    text: str, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = (),
    picture: Callable[[], bytes] | None = None,
) -> Bundle:  # fmt: skip
    """Everything that a notebook displays of an object, in at most :data:`LARGEST` bytes.

    Args:
        text: the object in one line.
        title: heading of the table.
        heads: headings of the columns; empty for a list of names and values.
        rows: cells by row.
        notes: sentences below the table.
        picture: makes a chart as PNG; by default, the picture shows the table.
    """
    rows, notes = _limited(rows, notes)
    html = html_table(title, heads, rows, notes)
    png = (picture or (lambda: picture_of_table(title, heads, rows)))()
    content: Bundle = {"text/plain": text, "text/html": html}
    if len(text) + len(html.encode()) + 4 * len(png) // 3 + 100 <= LARGEST:
        content["image/png"] = png
    return content


def _limited(rows: Sequence[Sequence[str]], notes: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """The first rows, with cells that are not too long; a note says how many rows were left out."""
    kept = [
        [cell if len(cell) <= MOST_CHARACTERS else f"{cell[: MOST_CHARACTERS - 1]}…" for cell in row] for row in rows
    ]
    more = [f"{counted(len(rows) - MOST_ROWS, 'more row')}."] if len(rows) > MOST_ROWS else []
    return kept[:MOST_ROWS], [*more, *notes]


def html_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """A table as HTML without styles and scripts: the first column is text, the others are numbers."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(
        f'<tr><th align="left">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    below = "".join(f"<p><small>{escape(note)}</small></p>" for note in notes if note)
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f"<div><p><b>{escape(title)}</b></p><table>{top}<tbody>{body}</tbody></table>{below}</div>"


@lru_cache(1)
def _font() -> "ImageFont.FreeTypeFont | ImageFont.ImageFont":
    """The font of Pillow, which has the letters and signs of tables."""
    from PIL import ImageFont

    return ImageFont.load_default(14)


_LINE = 22
"""Height of a line of the picture of a table, in pixels."""


def picture_of_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    """A table as PNG, black on white."""
    from PIL import Image, ImageDraw

    font = _font()
    lines = [list(heads)] * bool(heads) + [list(row) for row in rows]
    columns = max(map(len, lines), default=0)
    widths = [max(int(font.getlength(line[c])) for line in lines if c < len(line)) + 24 for c in range(columns)]
    size = max(sum(widths), int(font.getlength(title))) + 16, _LINE * (len(lines) + 1) + 16
    image = Image.new("L", size, 255)
    draw = ImageDraw.Draw(image)
    draw.text((8, 8), title, fill=0, font=font)
    for n, line in enumerate(lines, start=1):
        for c, cell in enumerate(line):
            draw.text(
                (8 + sum(widths[:c]), 8 + n * _LINE), cell, fill=0 if c == 0 or (heads and n == 1) else 60, font=font
            )
    content = io.BytesIO()
    image.save(content, "PNG", optimize=True)
    return content.getvalue()
