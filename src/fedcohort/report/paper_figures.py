"""Write figures for papers: every chart of the report, as wide as one or two columns, as PDF, SVG or PNG."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedcohort.core.durable_files import replace_file
from fedcohort.core.errors import UsageError
from fedcohort.report.chart_style import Look
from fedcohort.report.figure import Figure, Spec, View, records, spec

__all__ = ["FORMATS", "composed", "draw", "export"]

FORMATS = ("pdf", "svg", "png")

GAP = 14
"""Space between two panels, in points."""

AXIS = 34
"""Width of a panel's axis and its labels, in points."""

PNG = 4
"""Pixels of a PNG per point: about 300 dpi."""


def export(figures: Iterable[Figure], folder: Path, format_: str, look: Look) -> list[Path]:
    """Write every view of every figure, and return the files.

    A file is named ``<figure>.<format>``, or ``<figure>-<view>.<format>`` if the figure has several views.

    Raises:
        UsageError: the folder cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            for view in figure.views:
                name = figure.key if len(figure.views) == 1 else f"{figure.key}-{_slug(view.name)}"
                file = folder / f"{name}.{format_}"
                replace_file(file, draw(composed(figure, view, look), format_))
                written.append(file)
    except OSError as error:
        raise UsageError(f"--out {folder}: cannot be written ({error.strerror}); give another folder") from None
    return written


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "view"


def composed(figure: Figure, view: View, look: Look) -> Spec:
    """The Vega-Lite specification of a view, with its data: one chart as wide as the column, or panels side by side."""
    charts = [spec(panel.chart, {}) for panel in view.panels]
    for chart, panel in zip(charts, view.panels, strict=True):
        if panel.title:
            chart["title"] = {"text": panel.title, "fontSize": look.size}
    whole = _fitted(charts[0]) if len(charts) == 1 else _side_by_side(charts, look)
    whole["config"], whole["padding"] = look.config(), 2
    whole["datasets"] = {**whole.get("datasets", {}), **{name: records(frame) for name, frame in figure.data.items()}}
    return whole


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

    if format_ == "svg":
        svg: str = vl_convert.vegalite_to_svg(specification)
        return svg.encode()
    if format_ == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(specification))
    if format_ == "png":
        return bytes(vl_convert.vegalite_to_png(specification, scale=pixels))
    raise UsageError(f"--format {format_!r}: valid formats are {', '.join(FORMATS)}")
