"""A page for each strategy and each algorithm, made from its code."""

import inspect
import runpy
from collections.abc import Mapping
from typing import Any

from formulas import typeset
from navigation import DOCS
from public_names import ENTRIES, Entry

from fedcohort.algorithms import Algorithm
from fedcohort.core.parameters import describe

__all__ = ["entry_pages", "without_entries"]

GENERATE: dict[str, Any] = runpy.run_path(str(DOCS / "generate.py"))


def entry_pages(pictures: Mapping[str, str]) -> dict[str, str]:
    """The pages of all strategies and algorithms, by their names on the site.

    Args:
        pictures: the picture of each strategy and algorithm in HTML, by name; a page without one says so.
    """
    return {entry.page: _page(entry, pictures.get(entry.name)) for entry in ENTRIES.values()}


def _page(entry: Entry, picture: str | None) -> str:
    cls, module = entry.cls, inspect.getmodule(entry.cls)
    shared = {row.name for row in describe(Algorithm)} if entry.kind == "algorithm" else set()
    rows = [row for row in describe(cls) if row.name not in shared]
    section = "selection" if entry.kind == "strategy" else "algorithm"
    parts = [
        f"# {cls.__name__}: `{entry.name}`",
        GENERATE["first_sentence"](cls.__doc__),
        f'```toml\n[{section}]\nname = "{entry.name}"\n```',
        "## Card",
        GENERATE["_card"](entry.name, cls.card),
        "## How it works",
        GENERATE["explained"](module.__doc__ if module else ""),
        "The symbols are explained [on the overview](../strategies.md).",
        "## Parameters",
        GENERATE["table"](rows, "parameter") if rows else f"This {entry.kind} has no parameters of its own.",
    ]
    if shared:
        parts.append(
            "All algorithms also have the parameters of [the section `algorithm`](../experiment-file.md#algorithm)."
        )
    parts = [typeset(part) for part in parts]
    parts += [_heading_of_picture(entry), picture or "There is no picture in this build."]
    parts += ["## In Python", f"```{{eval-rst}}\n.. autoclass:: {entry.path}\n```"]
    return "\n\n".join(parts)


def _heading_of_picture(entry: Entry) -> str:
    return "## Its picks" if entry.kind == "strategy" else "## Its accuracy"


def without_entries(page: str) -> str:
    """The overview of strategies and algorithms, without their sections, which are pages on the site."""
    for block in ("strategies", "algorithms"):
        head, begin, rest = page.partition(f"<!-- begin {block} -->")
        _, end, tail = rest.partition(f"<!-- end {block} -->")
        assert begin, block
        assert end, block
        page = (
            head
            + "Each name in the table above leads to a page with the formulas, the parameters, and a picture."
            + tail
        )
    return page
