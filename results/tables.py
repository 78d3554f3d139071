"""Result files as Markdown, for the pages."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["CELLS", "comparison", "findings", "intervals_without_zero", "made_with", "table"]

Row = Mapping[str, Any]


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def made_with(content: Mapping[str, Any]) -> str:
    """The sentence under a table: the command, and what it was made with."""
    if content.get("older"):
        return f"*Kept since commit `{content['commit']}` of {content['date']}. {content['older']}*"
    versions = ", ".join(
        f"{name} {number}" for name, number in content["versions"].items() if name in ("python", "torch", "numpy")
    )
    seconds = content["seconds"]
    took = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    text = f"`{content['command']}`: {took} on {content['processor']}; {versions}; commit `{content['commit']}`, {content['date']}."
    again = content.get("confirmed")
    if again:
        text += (
            f" {again['runs']} runs, repeated with commit `{again['commit']}` on {again['date']}, gave the same digits."
        )
    return f"*{text}*"


def signed(value: float, digits: int = 1) -> str:
    """A number with its sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


def _mean_sd(values: list[float]) -> str:
    sd = f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.1f}{sd}"


def _difference(row: Row) -> str:
    if row["difference"] is None or row["verdict"] == "baseline":
        return "–"
    middle, low, high = (signed(100 * row[name]) for name in ("difference", "difference_low", "difference_high"))
    return f"{middle} [{low}, {high}]"


def _to_target(row: Row, key: str, divisor: float, digits: int) -> str:
    value = row[key]
    if value is None or not math.isfinite(value):
        return "never"
    some = f" ({row['reached']}/{row['seeds']})" if row["reached"] < row["seeds"] else ""
    return f"{value / divisor:,.{digits}f}{some}"


def _quantile(value: float | None) -> str:
    return "∞" if value is None else f"{value:.3f}"


def _bytes(row: Row) -> str:
    return f"{row['bytes'] / 1e6:,.0f} MB" if row["bytes"] >= 1e7 else f"{row['bytes'] / 1e6:.1f} MB"


CELLS: dict[str, Callable[[Row], str]] = {
    "accuracy": lambda row: _mean_sd(row["accuracies"]),
    "best": lambda row: _mean_sd(row["bests"]),
    "local": lambda row: f"{100 * row['local_accuracy']:.1f}",
    "difference": _difference,
    "verdict": lambda row: row["verdict"] or "–",
    "time to target": lambda row: _to_target(row, "time_to_target", 1000, 1),
    "rounds to target": lambda row: _to_target(row, "rounds_to_target", 1, 1),
    "jain": lambda row: f"{row['jain']:.3f}",
    "passes": lambda row: f"{row['client_passes']:,.0f}",
    "bytes": _bytes,
    "first quantile": lambda row: _quantile(row["quantiles"][0]),
    "last quantile": lambda row: _quantile(row["quantiles"][-1]),
    "admitted": lambda row: f"{np.mean(row['admitted']):.1f}",
    "admitted by round": lambda row: ", ".join(f"{value:.3g}" for value in row["admitted_by_round"]) or "–",
    "class accuracy": lambda row: ", ".join(f"{100 * value:.0f}" for value in row["class_accuracy"]),
    "seconds": lambda row: ", ".join(f"{name} {value:.3g} s" for name, value in row["seconds"].items()),
}
"""How a cell of a comparison's row is written: accuracies in %, times in thousands."""


def comparison(result: Mapping[str, list[Row]], columns: Mapping[str, str]) -> str:
    """The rows of a comparison; with several settings, those of each beside each other.

    A target accuracy that was found from the rows stands in the heading as ``{target}``, the name of a setting as ``{setting}``.
    """
    heads = ["row"]
    for setting, rows in result.items():
        target = f"{100 * rows[0]['target_accuracy']:.0f}%" if rows[0]["target_accuracy"] is not None else "a target"
        heads += [head.format(target=target, setting=setting) for head in columns]
    lines = []
    for position, row in enumerate(next(iter(result.values()))):
        cells = [row["label"]]
        for rows in result.values():
            cells += [CELLS[kind](rows[position]) for kind in columns.values()]
        lines.append(cells)
    return table(heads, lines)


def findings(rows: list[Row]) -> str:
    """What a comparison shows, in sentences: the fastest rows, and the rows with intervals that exclude 0."""
    target = f"{100 * rows[0]['target_accuracy']:.0f}%"
    reached = sorted((row for row in rows if row["reached"] == row["seeds"]), key=lambda row: row["time_to_target"])
    fastest = ", ".join(f"{row['label']} ({row['time_to_target'] / 1000:,.1f})" for row in reached[:6])
    reference = next(row for row in rows if row["verdict"] == "baseline")
    compared = [row for row in rows if row["difference"] is not None and row is not reference]
    better = [row for row in compared if row["difference_low"] > 0]
    worse = [row for row in compared if row["difference_high"] < 0]
    fast = f"Fastest to {target} in every seed: {fastest}; {reference['label']} needs {reference['time_to_target'] / 1000:,.1f}."
    clear = (
        f"The interval of the difference to {reference['label']} is above 0 for {_named(better)}, and below 0 for {_named(worse)}. "
        f"Of {len(compared)} intervals, about {0.05 * len(compared):.0f} miss 0 by chance."
    )
    return f"* {fast}\n* {clear}"


def intervals_without_zero(rows: Sequence[Row]) -> str:
    """Which intervals of the difference to the reference exclude 0, in a sentence; empty without a reference."""
    references = {row["label"] for row in rows if row["verdict"] == "baseline"}
    compared = [row for row in rows if row["difference"] is not None and row["label"] not in references]
    if not compared or len(references) > 1:
        return ""
    better = [row for row in compared if row["difference_low"] > 0]
    worse = [row for row in compared if row["difference_high"] < 0]
    return (
        f"95% interval of the difference to {references.pop()}: above 0 for {_named(better)}; below 0 for {_named(worse)}; "
        f"not corrected for {len(compared)} rows."
    )


def _named(rows: list[Row]) -> str:
    ordered = sorted(rows, key=lambda row: -abs(row["difference"]))
    return ", ".join(f"{row['label']} ({signed(100 * row['difference'])})" for row in ordered) or "no row"
