"""Figures for papers: every chart of the report in the sizes of one or two columns, as PDF, SVG or PNG."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedcohort.core.errors import UsageError
from fedcohort.report.figure import Figure, View, records, spec
from fedcohort.report.look import Look

__all__ = ["FORMATS", "composed", "draw", "export"]

FORMATS = ("pdf", "svg", "png")

GAP = 14
"""Points between two panels."""

AXIS = 34
"""Points that a panel's axis takes beside it."""

PNG = 4
"""Pixels of a PNG for each point: about 300 dpi."""


def export(figures: Iterable[Figure], folder: Path, format_: str, look: Look) -> list[Path]:
    """Write every view of every figure as ``<figure>.<format>``, or ``<figure>-<view>.<format>`` where there are several.

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
                file.write_bytes(draw(composed(figure, view, look), format_))
                written.append(file)
    except OSError as error:
        raise UsageError(f"--out {folder}: cannot be written ({error.strerror}); give another folder") from None
    return written


def _slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "view"


def composed(figure: Figure, view: View, look: Look) -> dict[str, Any]:
    """Vega-Lite of a view with its data: one chart that fills the column, or panels side by side."""
    config = look.config()
    charts = [spec(panel.chart, {}) for panel in view.panels]
    found: dict[str, Any]
    if len(charts) == 1:
        found = charts[0]
        if view.panels[0].title:
            found["title"] = {"text": view.panels[0].title, "fontSize": look.size}
        if isinstance(found.get("width"), int | float) and "arc" not in str(found.get("mark")):
            found["autosize"] = {"type": "fit-x", "contains": "padding"}
    else:
        columns = _columns(charts, look)
        for chart, panel in zip(charts, view.panels, strict=True):
            if columns > 1 and look.width is not None and chart.get("width") == look.width:
                chart["width"] = (look.width - GAP * (columns - 1)) / columns - AXIS
            elif look.width is not None and chart.get("width") == look.width:
                chart["width"] = look.width - AXIS
            if panel.title:
                chart["title"] = {"text": panel.title, "fontSize": look.size}
            for key in ("$schema", "config"):
                chart.pop(key, None)
        data = {name: rows for chart in charts for name, rows in chart.pop("datasets", {}).items()}
        found = {"concat": charts, "columns": columns, "spacing": GAP, "datasets": data}
        found["$schema"] = "https://vega.github.io/schema/vega-lite/v6.json"
    found["config"], found["padding"] = config, 2
    found["datasets"] = {**found.get("datasets", {}), **{name: records(frame) for name, frame in figure.data.items()}}
    return found


def _columns(charts: Sequence[dict[str, Any]], look: Look) -> int:
    """Panels side by side: as many as stay readable."""
    room = look.width or 516
    own = charts[0].get("width")
    least = own + GAP if isinstance(own, int | float) and own != look.width else 120
    return max(1, min(len(charts), int(room // least)))


def draw(found: dict[str, Any], format_: str) -> bytes:
    """A Vega-Lite specification as a file."""
    import vl_convert

    if format_ == "svg":
        svg: str = vl_convert.vegalite_to_svg(found)
        return svg.encode()
    if format_ == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(found))
    if format_ == "png":
        return bytes(vl_convert.vegalite_to_png(found, scale=PNG))
    raise UsageError(f"--format {format_!r}: valid are {', '.join(FORMATS)}")
