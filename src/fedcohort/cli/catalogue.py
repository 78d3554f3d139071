"""``fedcohort strategies``: all plug-ins that an experiment can name."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from fedcohort.cli.json_schema import print_document
from fedcohort.cli.options import json_option
from fedcohort.core.errors import UsageError, nearest
from fedcohort.core.words.synonyms import ALSO_KNOWN_AS, all_meant

if TYPE_CHECKING:
    from fedcohort.core.plugins import Table

__all__ = ["strategies"]


@click.command()
@click.argument("name", required=False)
@click.option("--details", is_flag=True, help="Show all plug-ins in full, not in one line each.")
@json_option
def strategies(name: str | None, details: bool, as_json: bool) -> None:
    """List strategies, algorithms and other plug-ins, or show one.

    With NAME, plug-ins of this name are shown with their parameters, defaults, source and status, what they ask clients, what clients
    disclose, and what they cost. NAME can also be what the literature calls a plug-in, or a class of your own,
    'path/to/file.py:Class'.
    """
    from fedcohort.report import terminal

    sections = _sections(name)
    if as_json:
        print_document("strategies", {"sections": _by_key(sections)})
        return
    console = terminal.screen()
    console.print(
        terminal.plug_ins(sections) if details or name is not None else terminal.plug_in_list(sections, console.width)
    )


def _sections(name: str | None) -> dict[str, list[dict[str, object]]]:
    """The entries of each kind of plug-ins, or of those called ``name`` here, or else in papers."""
    from fedcohort.core.plugins import from_file, is_file_name
    from fedcohort.experiment import Algorithm, Choice, Selection

    if name is not None and is_file_name(name):
        plugin = from_file(name, "name")
        if not isinstance(plugin, type):
            raise UsageError(f"name = {name!r}: is a {type(plugin).__name__}; a plug-in is a class")
        return {"your own": [_entry(name, plugin)]}
    choices = sorted(Choice.__subclasses__(), key=lambda choice: (choice is not Selection, choice is not Algorithm))
    known = {known for choice in choices for known in choice.table}
    wanted = known if name is None else {name} & known or set(all_meant(name, known)) & known
    if not wanted and str(name).endswith(".py"):
        raise UsageError(f"{name}: for a class in this file, write '{name}:Class'")
    if not wanted:
        raise UsageError(f"{name}: no plug-in has this name; {nearest(str(name), known)}")
    sections = {choice.table.kind: _entries(choice.table, wanted, every=name is None) for choice in choices}
    return {kind: entries for kind, entries in sections.items() if entries}


def _by_key(sections: dict[str, list[dict[str, object]]]) -> dict[str, list[dict[str, object]]]:
    """The entries by keys without spaces, such as ``latency_law``."""
    return {kind.replace(" ", "_"): entries for kind, entries in sections.items()}


def _entries(table: "Table", wanted: Collection[str], *, every: bool) -> list[dict[str, object]]:
    """An entry for each plug-in of a table that is ``wanted``; for a broken plug-in, the error if ``every`` plug-in is shown."""
    entries = []
    for known in table:
        if known not in wanted:
            continue
        try:
            entries.append(_entry(known, table.find(known, "name")))
        except UsageError as broken:
            if not every:
                raise
            entries.append({"name": known, "summary": str(broken), "parameters": []})
    return entries


def _entry(name: str, plugin: Any) -> dict[str, Any]:
    """The name, documentation and parameters of a plug-in."""
    import dataclasses

    from fedcohort.core.parameters import describe, docstring
    from fedcohort.core.plugins import card_of

    card = card_of(plugin)
    return {
        "name": name,
        "summary": " ".join(docstring(plugin).partition("\n\n")[0].split()).replace("``", ""),
        **(dataclasses.asdict(card) if card is not None else {}),
        **({"also_known_as": list(ALSO_KNOWN_AS[name])} if card is not None and name in ALSO_KNOWN_AS else {}),
        **({"needs": sorted(plugin.needs)} if hasattr(plugin, "needs") else {}),
        "parameters": [parameter._asdict() for parameter in describe(plugin)],
    }
