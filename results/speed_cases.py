"""Figures of the speed cases (``make bench-cases``) as text."""

import math
import tomllib
from collections.abc import Mapping
from typing import Any

from results.result_file import RESULTS, ROOT, read
from results.tables import table

__all__ = ["described", "speed_page", "speed_table"]

NAME = "speed-cases"
SHARE = 0.95
"""Part of the ratio of another case that a case should reach, if it names one."""

CASES = {row["name"]: row for row in tomllib.loads((ROOT / "benchmarks/cases/cases.toml").read_text("utf-8"))["case"]}
"""The cases by name, as their file has them."""

Figures = Mapping[str, Any]


def speed_page() -> str:
    """The table of all cases for the page on performance, with the figures that were kept."""
    content = read(NAME) if (RESULTS / f"{NAME}.json").exists() else {"result": {}}
    rows, elsewhere = content["result"], content.get("elsewhere", {})
    parts = [speed_table(rows, every=True), *_sources(rows)]
    for processor, others in elsewhere.items():
        parts += [f"The ratios on another processor, {processor}:", _brief_table(others), *_sources(others)]
    return "\n\n".join(parts)


def _sources(rows: Mapping[str, Figures]) -> list[str]:
    """On which processor, at which commit and when each case was measured."""
    cases: dict[str, list[str]] = {}
    for name, row in rows.items():
        cases.setdefault(f"{row['processor']}, commit `{row['commit']}`, {row['date']}", []).append(f"`{name}`")
    made = sorted(cases, key=lambda one: len(cases[one]), reverse=True)
    notes = [f"*Measured on {one}.*" for one in made[:1]]
    return notes + [f"*{', '.join(cases[one])}: measured on {one}.*" for one in made[1:]]


def speed_table(rows: Mapping[str, Figures], *, every: bool = False) -> str:
    """The figures of cases as a Markdown table; with ``every``, cases that were not measured have the command that measures them."""
    heads = ["case", "bare loop, s", "`threads`", "`stacked`", "`auto`", "processor time", "bound", "goal", "command"]
    lines = [_row(name, rows) for name in CASES if every or name in rows]
    return table(heads, lines)


def _brief_table(rows: Mapping[str, Figures]) -> str:
    """The ratios of cases as a Markdown table."""
    plans = ("threads", "stacked", "auto")
    lines = [
        [CASES[name]["title"], *(_ratio(name, rows[name], plan) for plan in plans), _processor(name, rows[name])]
        for name in CASES
        if name in rows
    ]
    return table(["case", *(f"`{plan}`" for plan in plans), "processor time"], lines)


def described(name: str, figures: Figures) -> str:
    """One line about a case that was measured."""
    plans = ", ".join(f"{plan} {_ratio(name, figures, plan)}" for plan in figures["plans"])
    return f"{name}: loop {_loop(figures)}, {plans}; {figures['seconds']:.0f} s"


def _row(name: str, rows: Mapping[str, Figures]) -> list[str]:
    case, command = CASES[name], f"`make bench-cases ONLY={name}`"
    goal = f"≥ {SHARE:g} of `{case['goal_of']}`" if "goal_of" in case else f"≥ {case['goal']:g} ×"
    if _is_memory(name):
        goal = f"≤ {case['goal']:g} of the data"
    if name not in rows:
        return [case["title"], "not measured", *["–"] * 5, goal, command]
    figures = rows[name]
    ratios = [_ratio(name, figures, plan) for plan in ("threads", "stacked", "auto")]
    bound = "–" if _is_memory(name) or not figures.get("bound") else f"{figures['bound']:.2f}"
    return [case["title"], _loop(figures), *ratios, _processor(name, figures), bound, goal, command]


def _is_memory(name: str) -> bool:
    return bool(CASES[name].get("measure") == "memory")


def _loop(figures: Figures) -> str:
    loop = figures["loop"]
    return f"failed: {loop['failure']}" if "failure" in loop else f"{loop['wall']:.3g}"


def _ratio(name: str, figures: Figures, plan: str) -> str:
    """The ratio of a plan to the loop; for memory, to the data, with that of the loop."""
    found = figures["plans"].get(plan)
    if found is None:
        return "–"
    if "failure" in found:
        return f"failed: {found['failure']}"
    if _is_memory(name):
        return f"{found['memory']:.2f} of the data (loop {figures['loop'].get('memory', math.nan):.2f})"
    played = found["plan"]
    if plan == "stacked" and played != plan:
        return "refused"
    return f"{found['ratio']:.2f} ×" + (f" (`{played}`)" if plan == "auto" else "")


def _processor(name: str, figures: Figures) -> str:
    """The ratios of processor time, in the order of the plans."""
    if _is_memory(name):
        return "–"
    rows = [figures["plans"].get(plan) for plan in ("threads", "stacked")]
    found = [f"{row['processor_ratio']:.2f} ×" if row and "processor_ratio" in row else "–" for row in rows]
    return " / ".join(found)
