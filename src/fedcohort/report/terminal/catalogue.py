"""Print strategies, algorithms and everything else that an experiment names."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedcohort.core.formatted_values import setting

__all__ = ["plug_in_list", "plug_ins"]


def plug_in_list(sections: "Mapping[str, Sequence[Mapping[str, Any]]]", width: int) -> Group:
    """All plug-ins by section, one line each, of at most ``width`` characters: summaries are cut after a sentence or a word."""
    widest = max((len(entry["name"]) for entries in sections.values() for entry in entries), default=0)
    parts: list[RenderableType] = []
    for title, entries in sections.items():
        parts.append(Text(title, style="bold underline"))
        for entry in entries:
            name = Text(entry["name"].ljust(widest + 2), style="bold cyan", no_wrap=True)
            parts.append(name.append(_cut(entry["summary"], width - widest - 2), style="not bold default"))
        parts.append("")
    how = "`fedcohort strategies NAME` shows parameters, source and cost; `--details` shows them for all."
    return Group(*parts, Text(how, style="dim"))


def _cut(text: str, width: int) -> str:
    """The sentences of a text that fit into ``width`` characters; the begin of the first one, up to a word, if it does not fit."""
    sentences = [text[: i + 1] for i, letter in enumerate(text) if letter == "." and text[i + 1 : i + 2] in ("", " ")]
    fitting = [begin for begin in (*sentences, text) if len(begin) <= width]
    return fitting[-1] if fitting else f"{text[: max(1, width - 1)].rpartition(' ')[0].rstrip(',;:')}…"


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
    "ours": "our reading or design, not a published method",
}


def _plug_in(entry: Mapping[str, Any]) -> Group:
    lines: list[RenderableType] = [Text.assemble((entry["name"], "bold cyan"), "  ", entry["summary"])]
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True)
    facts.add_column()
    if "source" in entry:
        facts.add_row(Text("source", style="dim"), Text(entry["source"]))
        facts.add_row(Text("status", style="dim"), Text(f"{entry['status']}: {_STATUS[entry['status']]}"))
        for fact in ("asks", "discloses", "knows", "score", "cost", "needs"):
            if entry.get(fact):
                facts.add_row(Text(fact, style="dim"), Text(entry[fact] if fact != "needs" else ", ".join(entry[fact])))
    for parameter in entry["parameters"]:
        head = Text.assemble((parameter["name"], "green"), f" = {setting(parameter['default'])}")
        facts.add_row(head, Text.assemble(parameter["doc"].replace("``", ""), (f"  ({parameter['type']})", "dim")))
    if facts.row_count:
        lines.append(Padding(facts, (0, 0, 0, 2)))
    return Group(*lines)
