"""The part of a page that shows a result: its table, and the sentence that says how it was made."""

from collections.abc import Callable, Mapping
from typing import Any

from results.atlas.means import Findings
from results.atlas.tables import federations as atlas_federations
from results.atlas.tables import parts as atlas_parts
from results.comparisons import ComparisonResult
from results.descriptions import DESCRIPTIONS
from results.estimates import register
from results.flash_study import PlantedRewards, won
from results.planted import KINDS
from results.result_file import ROOT, names, read
from results.tables import CELLS, comparison, findings, made_with, table

__all__ = ["block", "blocks"]


def block(name: str) -> str:
    """The table of a result and the sentence under it."""
    if name not in names():
        text = register_table({}) + "\n\n" if name == "register" else ""
        return f"{text}*Not made yet: `make results NAME={name}` takes about {DESCRIPTIONS[name].minutes:g} minutes.*"
    content = read(name)
    return f"{_table(name, content)}\n\n{made_with(content)}"


def blocks() -> dict[str, Callable[[], str]]:
    """Name of the generated block of a page → what writes it, for every result that this package knows how to show."""

    def writer(name: str) -> Callable[[], str]:
        return lambda: block(name)

    kept = [name for name in names() if "table" in read(name)]
    found = {f"result {name}": writer(name) for name in sorted({*kept, *DESCRIPTIONS})}
    return found | atlas_parts(read("atlas")["result"] if "atlas" in names() else {})


def _table(name: str, content: Mapping[str, Any]) -> str:
    if "table" in content:
        return table(content["table"]["columns"], content["table"]["rows"])
    description = DESCRIPTIONS[name]
    if isinstance(description, ComparisonResult):
        text = comparison(content["result"], description.columns)
        if description.findings:
            text += "".join(f"\n\n{findings(rows)}" for rows in content["result"].values())
        return text
    return VIEWS[name](content["result"])


def planted(result: Mapping[str, Any]) -> str:
    """What each setting wins on planted federations: the share of the possible gain over chance."""
    heads = ["strategy", *KINDS]
    rows = []
    for label in PlantedRewards().rows():
        found = result[label]
        shares = [100 * won(found[kind], kind) for kind in KINDS]
        rows.append([label, *(f"{share:.0f}%".replace("-", "−") for share in shares)])
    return table(heads, rows)


def flash_defaults(result: Mapping[str, Any]) -> str:
    """Accuracy, and time to the target relative to uniform selection, of each setting on each federation."""
    heads = ["strategy"]
    for name, rows in result.items():
        heads += [name.removeprefix("flash-"), "to uniform", f"time to {100 * rows[0]['target_accuracy']:.0f}%", "Jain"]
    lines = []
    for position, row in enumerate(next(iter(result.values()))):
        cells = [row["label"]]
        for rows in result.values():
            cells += [CELLS[kind](rows[position]) for kind in ("accuracy", "difference", "time to target", "jain")]
        lines.append(cells)
    return table(heads, lines)


def register_table(result: Mapping[str, float]) -> str:
    """Every table and figure of the sources: theirs, ours or that it was not run, and the commands at both scales."""
    rows = []
    for row in register():
        paper, small, add = row.get("paper", ""), row.get("small", ""), row.get("add", "")
        ours = row["ours"] or f"not run: needs {_hours(result.get(paper))}"
        if row.get("see") in names():
            ours += f" (result `{row['see']}`)"
        commands = [_command(file, add, result.get(file)) for file in (paper, small) if file]
        rows.append([row["source"], row["item"], row["theirs"], ours, "<br>".join(commands) or "–"])
    return table(["source", "table or figure", "theirs", "ours", "commands, processor time on one core"], rows)


def _command(file: str, add: str, hours: float | None) -> str:
    command = "sweep" if "[sweep]" in (ROOT / file).read_text("utf-8") else "compare"
    return f"`fedcohort {command} {file}{' ' + add if add else ''}`: {_hours(hours)}"


def _hours(hours: float | None) -> str:
    if hours is None:
        return "a time that was not estimated"
    if hours < 1:
        return f"{max(60 * hours, 1):.0f} min"
    return f"{hours:,.0f} h" if hours < 100 else f"{float(f'{hours:.2g}'):,.0f} h"


VIEWS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "register": register_table,
    "flash-planted": planted,
    "flash-defaults": flash_defaults,
    "atlas": lambda result: atlas_federations(Findings(result)),
}
