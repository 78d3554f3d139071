"""Every table and figure of the sources as Markdown: what they report, what we have, and the commands at both scales."""

import tomllib
from collections.abc import Mapping
from typing import Any

import fedcohort
from fedcohort import Experiment
from results.comparisons import ComparisonResult
from results.descriptions import DESCRIPTIONS
from results.estimates import register
from results.result_file import ROOT, names, read
from results.tables import CELLS, intervals_without_zero, table

__all__ = ["ours", "register_table", "scale"]

WITHOUT_UNIT = frozenset({"admitted by round", "jain", "seconds"})
"""Cells that are not in %."""


def register_table(hours: Mapping[str, float]) -> str:
    """The table of all rows of ``results/register.toml``.

    Args:
        hours: experiment file → processor hours on one core.
    """
    rows = []
    for row in register():
        files = [row[scale] for scale in ("paper", "small") if row.get(scale)]
        commands = [_command(file, row.get("add", ""), hours.get(file)) for file in files]
        rows.append([row["source"], row["item"], row["theirs"], ours(row, hours), "<br>".join(commands) or "–"])
    return table(["source", "table or figure", "theirs", "ours", "commands, processor time on one core"], rows)


def ours(row: Mapping[str, Any], hours: Mapping[str, float]) -> str:
    """What we have for a row: words, the figures of its results, or that it was not run."""
    made = [name for name in row.get("see", ()) if name in names()]
    words = [row.get("ours", ""), *(_measured(row, name) for name in made)]
    if made:
        words.append(row.get("differs", ""))
    return " ".join(filter(None, words)) or f"not run: needs {_hours(hours.get(row.get('paper', '')))}"


def _measured(row: Mapping[str, Any], name: str) -> str:
    """The figures of a result: its scale, the cells of the named rows, and which intervals exclude 0."""
    description, place = DESCRIPTIONS.get(name), f"(result `{name}`)"
    content = read(name)
    if "labels" not in row or not isinstance(description, ComparisonResult) or "result" not in content:
        return place
    changes = next(iter(description.settings.values()))
    found = {one["label"]: one for one in next(iter(content["result"].values()))}
    kind = row.get("cell", "accuracy")
    cells = "; ".join(f"{label}: {CELLS[kind](found[label])}" for label in row["labels"] or found)
    unit = "" if kind in WITHOUT_UNIT else ", in %"
    text = f"{scale(description.experiment, changes)}{unit}: {cells} {place}."
    return f"{text} {intervals_without_zero(list(found.values()))}".strip() if kind == "accuracy" else text


def scale(file: str, changes: Mapping[str, Any]) -> str:
    """The scale of an experiment file in words: data, network, clients, rounds and seeds."""
    experiment: Experiment = fedcohort.load_experiment(ROOT / file)
    if changes:
        experiment = experiment.with_overrides(changes)
    share = f"{100 * experiment.data.share:g}% of " if experiment.data.share < 1 else ""
    size = "small scale" if file.endswith("_small.toml") else "scale of the source"
    return (
        f"{size} ({share}`{experiment.data.name}`, `{experiment.model.name}`, {experiment.federation.clients} clients, "
        f"{experiment.rounds} rounds, {experiment.seeds} seeds)"
    )


def _command(file: str, add: str, hours: float | None) -> str:
    command = "sweep" if "sweep" in tomllib.loads((ROOT / file).read_text("utf-8")) else "compare"
    return f"`fedcohort {command} {file}{' ' + add if add else ''}`: {_hours(hours)}"


def _hours(hours: float | None) -> str:
    if hours is None:
        return "a time that was not estimated"
    if hours < 1:
        return f"{max(60 * hours, 1):.0f} min"
    return f"{hours:,.0f} h" if hours < 100 else f"{float(f'{hours:.2g}'):,.0f} h"
