"""The part of a page that shows a result: its table, and the sentence that says how it was made."""

from collections.abc import Callable, Mapping
from typing import Any

from results.atlas.means import Findings
from results.atlas.tables import federations as atlas_federations
from results.atlas.tables import parts as atlas_parts
from results.comparisons import ComparisonResult
from results.descriptions import DESCRIPTIONS
from results.diagnoses import diagnosis_table
from results.estimates import register
from results.flash_held_out import flash_held_out
from results.flash_study import PlantedRewards, about_choice, regret_tables, won
from results.planted import KINDS
from results.race_errors import race_tables
from results.register_table import register_table, scale
from results.result_file import names, read
from results.source_runs import SOURCE_RUNS
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
    found = {f"result {name}": writer(name) for name in sorted({*kept, *DESCRIPTIONS} - SOURCE_RUNS.keys())}
    found["small scale"] = small_scale
    return found | atlas_parts(read("atlas")["result"] if "atlas" in names() else {})


def small_scale() -> str:
    """The tables of all experiments of the sources that were run at the small scale, under the names of what they show."""
    parts = []
    for name, description in SOURCE_RUNS.items():
        if name in names():
            rows = [row for row in register() if name in row.get("see", ())]
            items = "; ".join(row["item"] for row in rows)
            at = scale(description.experiment, next(iter(description.settings.values())))
            parts.append(f"**{rows[0]['source']}: {items}**, at the {at}:\n\n{block(name)}")
    return "\n\n".join(parts)


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
    return f"{table(heads, lines)}\n\n{about_choice(result)}"


VIEWS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "register": register_table,
    "flash-planted": planted,
    "flash-regret": regret_tables,
    "flash-defaults": flash_defaults,
    "flash-held-out": flash_held_out,
    "atlas": lambda result: atlas_federations(Findings(result)),
    "race": race_tables,
    "diagnoses": diagnosis_table,
}
