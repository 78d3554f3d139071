"""Write figures for papers: every chart of the report, as wide as one or two columns, as PDF, SVG or PNG."""

import math
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.files.durable_files import replace_files
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.figure import Figure, Spec, View, records, spec
from fedcohort.report.figures.figure_parts import TALLEST, aligned, contents, parts
from fedcohort.report.figures.file_names import distinct, file_name

__all__ = [
    "CAPTIONS",
    "FORMATS",
    "chosen_figures",
    "composed",
    "converted",
    "draw",
    "drawn_in_parts",
    "drawn_to_width",
    "export",
]

FORMATS = ("pdf", "svg", "png")

CAPTIONS = "captions.txt"
"""The file with the captions of all figures in a folder."""

GAP = 14
"""Space between two panels, in points."""

AXIS = 34
"""Width of a panel's axis and its labels, in points."""

PADDING = 2
"""Room around a figure, in points."""

PNG = 4
"""Pixels of a PNG per point: about 300 dpi."""


def chosen_figures(figures: Iterable[Figure], names: Collection[str], argument: str) -> list[Figure]:
    """The figures that have one of ``names``; all figures if there are no names.

    Args:
        figures: the figures of some runs.
        names: names of figures.
        argument: what names them, with the sign before a value, for the message.

    Raises:
        UsageError: there is no figure of such a name.
    """
    every = list(figures)
    known = sorted({name for figure in every for name in figure.names})
    for name in names:
        if name not in known:
            raise UsageError(f"{argument}{shown(name)}: these runs have no such figure; {nearest(str(name), known)}")
    return [figure for figure in every if not names or figure.names & set(names)]


def export(
    figures: Iterable[Figure],
    folder: Path,
    format_: str,
    look: Look,
    names: Mapping[str, str] = MappingProxyType({}),
    note: str = "",
) -> list[Path]:
    """Write every view of every figure, and return the files of the figures.

    A file is named ``<figure>.<format>``, or ``<figure>-<view>.<format>`` if the figure has several views; a figure that is longer
    than a page is written in parts, ``<figure>-part-1.<format>`` and so on. The file :data:`CAPTIONS` says of each what it shows, and
    what its bands, lines and shades mean, and at its end a ``note`` about all figures, and what shortened ``names`` stand for. Either
    all files are written, or none.

    Raises:
        UsageError: the folder cannot be written.
    """
    drawn, captions = {}, []
    views = [(figure, view) for figure in figures for view in figure.views]
    for name, (figure, view) in zip(distinct(_name(*one) for one in views), views, strict=True):
        pages = _in_parts(figure, view, look)
        for number, (svg, content) in enumerate(pages, start=1):
            several = len(pages) > 1
            file = folder / f"{name}{f'-part-{number}' if several else ''}.{format_}"
            drawn[file] = converted(svg, format_)
            part = f", part {number} of {len(pages)}{content}" if several else ""
            about = [f"{file.name}\n{_title(figure, view)}{part}.", figure.note, view.note]
            captions.append(" ".join(filter(None, about)))
    if note:
        captions.append(f"All figures\n{note}")
    if names:
        captions.append("\n".join(["Shortened names", *(f"{shown}: {name}" for shown, name in names.items())]))
    text = ("\n\n".join(captions) + "\n").encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_files({**drawn, folder / CAPTIONS: text})
    except OSError as error:
        raise UsageError(f"folder = {folder}: cannot be written ({error.strerror}); give another folder") from None
    return list(drawn)


def _title(figure: Figure, view: View) -> str:
    """The title of a view."""
    return figure.title if len(figure.views) == 1 else f"{figure.title}, {view.name}"


def drawn_in_parts(figure: Figure, view: View, look: Look) -> list[str]:
    """A view as one SVG, or as several if it is longer than a page; one that cannot be split is made smaller."""
    return [svg for svg, _ in _in_parts(figure, view, look)]


def _in_parts(figure: Figure, view: View, look: Look) -> list[tuple[str, str]]:
    """The drawings of :func:`drawn_in_parts`, and which rows or panels each has."""
    specification = composed(figure, view, look)
    whole = _to_width(specification, look)
    _, height = _size(whole)
    if look.width is None or height <= TALLEST:
        return [(whole, "")]
    split = parts(composed(figure, view, look), height)
    known = contents(split)  # drawing changes the parts
    aligned(split, _beside(whole) - PADDING)
    return [(_on_a_page(_to_width(part, look)), content) for part, content in zip(split, known, strict=True)]


def _on_a_page(svg: str) -> str:
    """The drawing, made smaller if it is longer than a page."""
    found = SIZE.search(svg)
    assert found is not None
    scale = min(1.0, TALLEST / float(found[2]))
    if scale == 1:
        return svg
    size = f'width="{float(found[1]) * scale:g}" height="{TALLEST:g}" viewBox='
    start = found[0][: found[0].index("width=")]
    return svg[: found.start()] + start + size + svg[found.start() + found[0].index("viewBox=") + len("viewBox=") :]


def _size(svg: str) -> tuple[float, float]:
    """Width and height of a drawing in points."""
    found = SIZE.search(svg)
    assert found is not None
    return float(found[1]), float(found[2])


def _beside(svg: str) -> float:
    """Room on the left of the chart in a drawing, for its axis and what is around it, in points."""
    return float(ORIGIN.search(svg)[1])  # type: ignore[index]


ORIGIN = re.compile(r'<g [^>]*?transform="translate\(([0-9.]+),[0-9.]+\)"')


def drawn_to_width(figure: Figure, view: View, look: Look) -> str:
    """A view as SVG, exactly as wide as the look says, however long it is."""
    return _to_width(composed(figure, view, look), look)


def _to_width(specification: Spec, look: Look) -> str:
    """A specification as SVG, exactly as wide as the look says.

    Labels and legends make a chart wider than its panels, by an amount that is known only after drawing. Therefore the chart is drawn
    again with panels that are narrower or wider by the difference; what is left of it becomes empty space on the right.
    """
    if look.width is None:
        return draw(specification, "svg").decode()
    charts = specification.get("concat", [specification])
    columns = specification.get("columns", 1)
    svg = draw(specification, "svg").decode()
    for _ in range(TRIES):
        excess = _size(svg)[0] - look.width
        if -EMPTY * look.width <= excess <= 0 or not _resize(charts, columns, excess):
            break
        svg = draw(specification, "svg").decode()
    return _exactly(svg, look.width)


TRIES = 4
"""Largest number of drawings to find the width of panels."""

EMPTY = 0.01
"""Share of the width that may stay empty on the right."""

LEAST = 40
"""Least width of a panel in points."""


def _resize(charts: Sequence[Spec], columns: int, excess: float) -> bool:
    """Make panels that have a plain width narrower by their share of ``excess`` points; whether any could be changed. Pies, and their
    legend, keep their size."""
    if any("arc" in str(chart.get("mark")) for chart in charts):
        return False
    changed = False
    for chart in charts:
        width = chart.get("width")
        if isinstance(width, int | float) and chart.get("autosize") is None:
            wanted = max(LEAST, width - math.ceil(excess / columns))
            changed = changed or wanted != width
            chart["width"] = wanted
    return changed


SIZE = re.compile(r'<svg [^>]*?width="([0-9.]+)" height="([0-9.]+)" viewBox="0 0 ([0-9.]+) ([0-9.]+)"')


def _exactly(svg: str, width: float) -> str:
    """The drawing with empty space on the right, or scaled down if it is too wide, so that it is ``width`` points wide."""
    found = SIZE.search(svg)
    assert found is not None
    own, high = float(found[1]), float(found[2])
    scale = min(1.0, width / own)
    size = f'width="{width:g}" height="{high * scale:g}" viewBox="0 0 {width / scale:g} {high:g}"'
    start, end = found[0][: found[0].index("width=")], svg.index(">", found.end()) + 1
    white = (
        f'<rect width="{width / scale:g}" height="{high:g}" fill="white"/>' if own < width else ""
    )  # viewers may be dark
    return svg[: found.start()] + start + size + svg[found.end() : end] + white + svg[end:]


def converted(svg: str, format_: str, pixels: float = PNG) -> bytes:
    """A drawing as the content of a file; a PNG has so many ``pixels`` per point.

    Raises:
        UsageError: the format is unknown.
    """
    import vl_convert

    if format_ == "svg":
        return svg.encode()
    if format_ == "pdf":
        return bytes(vl_convert.svg_to_pdf(svg))
    if format_ == "png":
        return bytes(vl_convert.svg_to_png(svg, ppi=72 * pixels))
    raise UsageError(f"--format {format_!r}: valid formats are {', '.join(FORMATS)}")


def _name(figure: Figure, view: View) -> str:
    """The name of the file of a view, without its ending."""
    return figure.key if len(figure.views) == 1 else f"{figure.key}-{file_name(view.name, 'view')}"


def composed(figure: Figure, view: View, look: Look) -> Spec:
    """The Vega-Lite specification of a view, with its data: one chart as wide as the column, or panels side by side."""
    charts = [spec(panel.chart, {}) for panel in view.panels]
    for chart, panel in zip(charts, view.panels, strict=True):
        if panel.title:
            chart["title"] = {"text": panel.title, "fontSize": look.size}
    whole = _fitted(charts[0]) if len(charts) == 1 else _side_by_side(charts, look)
    for chart in charts:
        _wrap_title(chart, look)
    whole["config"], whole["padding"] = look.config(), PADDING
    whole["datasets"] = {**whole.get("datasets", {}), **{name: records(frame) for name, frame in figure.data.items()}}
    return whole


def _wrap_title(chart: Spec, look: Look) -> None:
    """Break a panel's title into lines that are no wider than the panel."""
    title, width = chart.get("title"), chart.get("width")
    if title and isinstance(width, int | float):
        lines = _Titles(max(12, int(width / (0.56 * look.size)))).wrap(title["text"])
        title["text"] = lines if len(lines) > 1 else title["text"]


class _Titles(textwrap.TextWrapper):
    """Breaks words that are wider than a line after an underscore if they have one."""

    def _split(self, text: str) -> list[str]:
        chunks = super()._split(text)
        return [part for chunk in chunks for part in (_PARTS.findall(chunk) if len(chunk) > self.width else [chunk])]


_PARTS = re.compile(r"[^_]*_+|[^_]+")
"""The parts of a name, each with the underscores after it."""


def _fitted(chart: Spec) -> Spec:
    """A single chart that is as wide as its column with all its labels; pies keep their size."""
    if isinstance(chart.get("width"), int | float) and "arc" not in str(chart.get("mark")):
        chart["autosize"] = {"type": "fit-x", "contains": "padding"}
    return chart


def _side_by_side(charts: Sequence[Spec], look: Look) -> Spec:
    """Panels in rows that are as wide as the look says."""
    columns = _columns(charts, look)
    width = _panel_width(columns, look)
    for chart in charts:
        if look.width is not None and chart.get("width") == look.width:
            chart["width"] = width
        for key in ("$schema", "config"):
            chart.pop(key, None)
    return {
        "concat": charts,
        "columns": columns,
        "spacing": GAP,
        "datasets": {name: rows for chart in charts for name, rows in chart.pop("datasets", {}).items()},
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
    }


def _panel_width(columns: int, look: Look) -> float:
    """Width of a panel without its axis, in points, if so many panels share a row."""
    whole = look.width or 0
    return whole - AXIS if columns == 1 else (whole - GAP * (columns - 1)) / columns - AXIS


def _columns(charts: Sequence[Spec], look: Look) -> int:
    """Number of panels side by side: as many as stay readable."""
    whole = look.width or 516
    own = charts[0].get("width")
    least = own + GAP if isinstance(own, int | float) and own != look.width else 120
    return max(1, min(len(charts), int(whole // least)))


def draw(specification: Spec, format_: str, pixels: float = PNG) -> bytes:
    """Draw a Vega-Lite specification, and return the content of the file; a PNG has so many ``pixels`` per point.

    Raises:
        UsageError: the format is unknown.
    """
    import vl_convert

    return converted(vl_convert.vegalite_to_svg(_drawable(specification)), format_, pixels)


_NOT_IN_XML = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"}
"""Control characters that an SVG cannot contain, and the visible characters that stand for them."""


def _drawable(part: Any) -> Any:
    """A part of a specification, in which names have no characters that end the program that draws."""
    if isinstance(part, str):
        return part if part.isprintable() else NONCHARACTERS.sub("\ufffd", part.translate(_NOT_IN_XML))
    if isinstance(part, Mapping):
        return {_drawable(key): _drawable(value) for key, value in part.items()}
    return [_drawable(value) for value in part] if isinstance(part, list | tuple) else part


NONCHARACTERS = re.compile("[\ud800-\udfff\ufffe\uffff]")
