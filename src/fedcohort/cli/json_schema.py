"""``fedcohort schema``, and the documents that ``--json`` prints: each has its name and a version, and a JSON Schema."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import click

from fedcohort.cli.json_formats import DOCUMENTS, RECORDS, VERSION
from fedcohort.cli.json_formats_of_data import RECORDS_OF_DATA
from fedcohort.cli.output import echo
from fedcohort.core.errors import UsageError, nearest

__all__ = ["Key", "document", "json_schema", "keys_of", "print_document", "schema"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

ALL_RECORDS = RECORDS | RECORDS_OF_DATA

PLAIN = {"text": "string", "integer": "integer", "number": "number", "flag": "boolean"}
"""Types of JSON by the words of the formats."""

LINE = re.compile(r"(?P<name>[\w*]+): (?P<type>\S+) - (?P<meaning>.+)")


class Key(NamedTuple):
    """A key of a record: its name (``*`` for all others), its type, and its meaning."""

    name: str
    type: str
    meaning: str


def document(name: str, values: Mapping[str, object]) -> dict[str, Any]:
    """The document of a command: the values after ``format``, the name of the format, and ``version``."""
    return {"format": f"fedcohort.{name}", "version": VERSION, **values}


def print_document(name: str, values: Mapping[str, object]) -> None:
    """Print the document of a command as JSON; see :func:`document`."""
    from fedcohort.core.words.formatted_values import as_json

    echo(as_json(document(name, values)))


def keys_of(record: str) -> Iterator[Key]:
    """The keys of a record, in order."""
    for line in ALL_RECORDS[record].strip().splitlines():
        if line.startswith("+"):
            yield from keys_of(line[1:])
            continue
        found = LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"{record}: {line!r} is not 'key: type - meaning'")
        yield Key(**found.groupdict())


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a document."""
    whole = _record(name)
    head = {
        "format": {"const": f"fedcohort.{name}", "description": "Name of the format."},
        "version": {"const": VERSION, "description": "Version of the format."},
    }
    used = sorted(set(_records_in(name)) - {name})
    return {
        "$schema": DIALECT,
        "title": f"fedcohort.{name}",
        "description": DOCUMENTS[name],
        **whole,
        "properties": head | whole["properties"],
        "required": ["format", "version"],
        "$defs": {record: _record(record) for record in used},
    }


def _record(name: str) -> dict[str, Any]:
    keys = list(keys_of(name))
    others = [key for key in keys if key.name == "*"]
    properties = {key.name: _type(key.type) | {"description": key.meaning} for key in keys if key.name != "*"}
    more = {"additionalProperties": _type(others[0].type)} if others else {}
    return {"type": "object", "properties": properties, **more}


def _type(words: str) -> dict[str, Any]:
    """The schema of a type."""
    if words.endswith("?"):
        inner = _type(words[:-1])
        return (
            {"anyOf": [inner, {"type": "null"}]} if "type" not in inner else inner | {"type": [inner["type"], "null"]}
        )
    if words.startswith("["):
        return {"type": "array", "items": _type(words[1:-1])}
    if words.startswith("{"):
        return {"type": "object", "additionalProperties": _type(words[1:-1])}
    if words == "any":
        return {}
    return {"type": PLAIN[words]} if words in PLAIN else {"$ref": f"#/$defs/{words}"}


def _records_in(name: str) -> Iterator[str]:
    """The record and all records in it."""
    yield name
    for key in keys_of(name):
        inner = key.type.strip("[]{}?")
        if inner in ALL_RECORDS:
            yield from _records_in(inner)


def _list_documents() -> None:
    """Print the documents, each with its meaning, in lines that fit the terminal."""
    from textwrap import fill

    from fedcohort.report.terminal import screen

    indent, width = max(map(len, DOCUMENTS)) + 2, max(screen().width, 50)
    for name, meaning in DOCUMENTS.items():
        echo(
            fill(
                meaning,
                width,
                initial_indent=name.ljust(indent),
                subsequent_indent=" " * indent,
                break_long_words=False,
            )
        )


@click.command()
@click.argument("name", required=False)
def schema(name: str | None) -> None:
    """Print the JSON Schema of what a command prints with --json.

    NAME is that of a document, such as `compare` or `data-list`; without it, the documents are listed. That of `sweep` is `compare`.
    """
    if name is None:
        _list_documents()
        return
    name = "compare" if name == "sweep" else name
    if name not in DOCUMENTS:
        raise UsageError(f"{name}: no document has this name; {nearest(name, DOCUMENTS)}")
    echo(json.dumps(json_schema(name), indent=2, ensure_ascii=False))
