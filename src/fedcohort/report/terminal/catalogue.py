"""Print strategies, algorithms and everything else that an experiment names."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedcohort.core.plugins import Card
from fedcohort.core.words.formatted_values import setting

__all__ = ["plug_in_list", "plug_ins"]


def plug_in_list(sections: "Mapping[str, Sequence[Mapping[str, Any]]]", width: int) -> Group:
    """All plug-ins by section, on lines of at most ``width`` characters.

    Each has the sentences of its summary that fit into one line. A first sentence that does not fit goes on in a second line, because
    sentences of related strategies can differ in their last words only.
    """
    widest = max((len(entry["name"]) for entries in sections.values() for entry in entries), default=0)
    parts: list[RenderableType] = []
    for title, entries in sections.items():
        parts.append(Text(title, style="bold underline"))
        for entry in entries:
            first, *rest = _lines(entry["summary"], max(2, width - widest - 2))
            name = Text(entry["name"].ljust(widest + 2), style="bold cyan", no_wrap=True)
            parts.append(name.append(first, style="not bold default"))
            parts += [Text(" " * (widest + 2) + line, no_wrap=True) for line in rest]
        parts.append("")
    how = "`fedcohort strategies NAME` shows parameters, source and cost; `--details` shows them for all."
    return Group(*parts, Text(how, style="dim"))


def _lines(text: str, width: int) -> list[str]:
    """The sentences of a text that fit into ``width`` characters; the first one in two lines, cut after a word, if it does not fit."""
    sentences = [text[: i + 1] for i, letter in enumerate(text) if letter == "." and text[i + 1 : i + 2] in ("", " ")]
    fitting = [begin for begin in (*sentences, text) if len(begin) <= width]
    if fitting:
        return [fitting[-1]]
    return textwrap.wrap((*sentences, text)[0], width, max_lines=2, placeholder="…", break_on_hyphens=False)


def plug_ins(sections: "Mapping[str, Sequence[Mapping[str, Any]]]") -> Group:
    """All plug-ins by section, with their parameters."""
    parts: list[RenderableType] = []
    for title, entries in sections.items():
        parts += [Text(title, style="bold underline"), ""]
        for entry in entries:
            parts += [_plug_in(entry), ""]
    return Group(*parts[:-1])


_STATUS = {
    "paper": "as in its source",
    "code": "checked against a public implementation",
    "ours": "an own reading or design, not a published method",
}

_FACT = {"score": "accuracy or R²"}
"""What facts are called that have another name in the card: the score of a strategy is what ranks clients."""


def _plug_in(entry: Mapping[str, Any]) -> Group:
    lines: list[RenderableType] = [Text.assemble((entry["name"], "bold cyan"), "  ", entry["summary"])]
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True)
    facts.add_column()
    if entry.get("also_known_as"):
        facts.add_row(Text("also known as", style="dim"), Text(", ".join(entry["also_known_as"])))
    if "source" in entry:
        facts.add_row(Text("source", style="dim"), Text(entry["source"]))
        facts.add_row(Text("status", style="dim"), Text(f"{entry['status']}: {_STATUS[entry['status']]}"))
        for fact in ("asks", "discloses", "knows", "score", "cost", "needs"):
            if entry.get(fact) and (fact != "score" or entry[fact] != Card.score):
                words = entry[fact] if fact != "needs" else ", ".join(entry[fact])
                facts.add_row(Text(_FACT.get(fact, fact), style="dim"), Text(words))
    for parameter in entry["parameters"]:
        head = Text.assemble((parameter["name"], "green"), f" = {setting(parameter['default'])}")
        facts.add_row(head, Text.assemble(parameter["doc"].replace("``", ""), (f"  ({parameter['type']})", "dim")))
    if facts.row_count:
        lines.append(Padding(facts, (0, 0, 0, 2)))
    return Group(*lines)
