"""Figures of the speed cases (``make bench-cases``) as text: one table of all processors, and a table of details for each."""

import math
import tomllib
from collections.abc import Mapping
from typing import Any

from results.result_file import RESULTS, ROOT, read
from results.tables import table

__all__ = ["described", "details_table", "speed_details", "speed_overview"]

NAME = "speed-cases"
SHARE = 0.95
"""Part of the ratio of another case that a case should reach, if it names one."""

CASES = {row["name"]: row for row in tomllib.loads((ROOT / "benchmarks/cases/cases.toml").read_text("utf-8"))["case"]}
"""The cases by name, as their file has them."""

Figures = Mapping[str, Any]
"""What was measured in one case on one processor."""
Measured = Mapping[str, Figures]
"""Figures by the name of the case, all of one processor."""


def speed_overview() -> str:
    """The table of all cases for the page on performance: their goals, and the ratios on every processor."""
    measured = _by_processor()
    lines = [
        [
            CASES[name]["title"],
            _goal(name),
            *(_overview_cell(name, found) for found in measured.values()),
            _command(name),
        ]
        for name in CASES
    ]
    return table(["case", "goal", *measured, "command"], lines)


def speed_details() -> str:
    """A table for each processor, with what was measured beside the ratios, and when."""
    parts = []
    for processor, measured in _by_processor().items():
        parts += [f"**{processor}**", details_table(measured), *_sources(measured)]
    return "\n\n".join(parts)


def details_table(measured: Measured) -> str:
    """The figures of cases that were measured on one processor, as a Markdown table."""
    heads = ["case", "bare loop, s", "`threads`", "`stacked`", "`auto`", "processor time", "bound"]
    return table(heads, [_details(name, measured[name]) for name in CASES if name in measured])


def described(name: str, figures: Figures) -> str:
    """One line about a case that was measured."""
    plans = ", ".join(f"{plan} {_ratio(name, figures, plan)}" for plan in figures["plans"])
    return f"{name}: loop {_loop(figures)}, {plans}; {figures['seconds']:.0f} s"


def _by_processor() -> dict[str, Measured]:
    """The figures that were kept; the processor with most cases comes first."""
    result = read(NAME)["result"] if (RESULTS / f"{NAME}.json").exists() else {}
    found: dict[str, dict[str, Figures]] = {}
    for name in CASES:
        for processor, figures in result.get(name, {}).items():
            found.setdefault(processor, {})[name] = figures
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def _sources(measured: Measured) -> list[str]:
    """At which commit and when each case was measured."""
    cases: dict[str, list[str]] = {}
    for name, figures in measured.items():
        cases.setdefault(f"commit `{figures['commit']}`, {figures['date']}", []).append(f"`{name}`")
    made = sorted(cases, key=lambda one: len(cases[one]), reverse=True)
    others = [f"{', '.join(cases[one])}: {one}" for one in made[1:]]
    return [f"*Measured at {'; '.join([made[0], *others])}.*"]


def _command(name: str) -> str:
    return f"`make bench-cases ONLY={name}`"


def _goal(name: str) -> str:
    case = CASES[name]
    if _is_memory(name):
        return f"≤ {case['goal']:g} of the data"
    return f"≥ {SHARE:g} of `{case['goal_of']}`" if "goal_of" in case else f"≥ {case['goal']:g} ×"


def _overview_cell(name: str, measured: Measured) -> str:
    """The ratio of the default plan, and that of ``auto`` if it takes stacks; in italics if neither reaches the goal."""
    if name not in measured:
        return "–"
    figures = measured[name]
    text = _ratio(name, figures, "threads")
    if _takes_stacks(figures):
        text += f", {figures['plans']['auto']['ratio']:.2f} × stacked"
    return _unbroken(text if _reaches_goal(name, measured) else f"*{text}*")


def _unbroken(text: str) -> str:
    """The text with no-break spaces between numbers and their signs, for narrow columns."""
    return text.replace(" ×", "\u00a0×").replace("≥ ", "≥\u00a0").replace("≤ ", "≤\u00a0")


def _takes_stacks(figures: Figures) -> bool:
    """Whether ``auto`` takes stacks."""
    return bool(figures["plans"].get("auto", {}).get("plan") == "stacked")


def _reaches_goal(name: str, measured: Measured) -> bool:
    case = CASES[name]
    if _is_memory(name):
        return bool(measured[name]["plans"]["threads"].get("memory", math.inf) <= case["goal"])
    other = case.get("goal_of")
    if other is None:
        return _best_ratio(measured[name]) >= float(case["goal"])
    return other not in measured or _best_ratio(measured[name]) >= SHARE * _best_ratio(measured[other])


def _best_ratio(figures: Figures) -> float:
    """The largest ratio of the overview; 0 if the plan failed."""
    shown = ["threads", "auto"] if _takes_stacks(figures) else ["threads"]
    return max(float(figures["plans"][plan].get("ratio", 0.0)) for plan in shown)


def _details(name: str, figures: Figures) -> list[str]:
    ratios = [_ratio(name, figures, plan) for plan in ("threads", "stacked", "auto")]
    bound = "–" if _is_memory(name) or not figures.get("bound") else f"{figures['bound']:.2f}"
    return [CASES[name]["title"], _loop(figures), *ratios, _processor_time(name, figures), bound]


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


def _processor_time(name: str, figures: Figures) -> str:
    """The ratios of processor time, in the order of the plans."""
    if _is_memory(name):
        return "–"
    rows = [figures["plans"].get(plan) for plan in ("threads", "stacked")]
    found = [f"{row['processor_ratio']:.2f} ×" if row and "processor_ratio" in row else "–" for row in rows]
    return " / ".join(found)
