"""``fedcohort strategies``: everything that has a name in an experiment."""

from typing import TYPE_CHECKING, Any

import click

from fedcohort.core.errors import UsageError, nearest

if TYPE_CHECKING:
    from fedcohort.core.plugins import Table
from fedcohort.cli.options import json_option


@click.command()
@click.argument("name", required=False)
@json_option
def strategies(name: str | None, as_json: bool) -> None:
    """Show strategies, algorithms and everything else with a name.

    Each with its parameters, defaults, source, status, what it asks of clients, what they disclose and what it costs; only those
    called NAME where one is given, which may be of your own, 'path/to/file.py:Class'.
    """
    from fedcohort.core import words
    from fedcohort.core.plugins import from_file, is_file_name
    from fedcohort.experiment import Algorithm, Choice, Selection
    from fedcohort.report import terminal

    choices = sorted(Choice.__subclasses__(), key=lambda choice: (choice is not Selection, choice is not Algorithm))
    sections = {choice.table.kind: _entries(choice.table, name) for choice in choices}
    sections = {kind: entries for kind, entries in sections.items() if entries}
    if name is not None and is_file_name(name):
        found = from_file(name, "name")
        if not isinstance(found, type):
            raise UsageError(
                f"name = {name!r}: is a {type(found).__name__}; what has a name in an experiment is a class"
            )
        sections = {"your own": [_entry(name, found)]}
    if not sections:
        known = {known for choice in choices for known in choice.table}
        raise UsageError(f"{name}: nothing has this name; {nearest(str(name), known)}")
    if as_json:
        click.echo(words.as_json(sections))
    else:
        terminal.screen().print(terminal.plug_ins(sections))


def _entries(table: "Table", name: str | None) -> list[dict[str, Any]]:
    """What is known of each plug-in of a table, or of the one called ``name``; of one that is broken, what is wrong with it."""
    entries = []
    for known in table:
        if name not in (None, known):
            continue
        try:
            entries.append(_entry(known, table.find(known, "name")))
        except UsageError as broken:
            if name is not None:
                raise
            entries.append({"name": known, "summary": str(broken), "parameters": []})
    return entries


def _entry(name: str, found: Any) -> dict[str, Any]:
    import dataclasses
    import inspect

    from fedcohort.core.parameters import describe

    card = getattr(found, "card", None)
    return {
        "name": name,
        "summary": " ".join((inspect.getdoc(found) or "").partition("\n\n")[0].split()).replace("``", ""),
        **(dataclasses.asdict(card) if card is not None else {}),
        **({"needs": sorted(found.needs)} if hasattr(found, "needs") else {}),
        "parameters": [parameter._asdict() for parameter in describe(found)],
    }
