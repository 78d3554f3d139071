"""Fill the tables of the documentation from the code, so that every default and every sentence has one home.

    python docs/generate.py            write what is out of date
    python docs/generate.py --check    write nothing; exit with 1 and the names of the pages that are out of date

A page keeps its prose by hand. What stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` is replaced by ``BLOCKS[NAME]()``.
"""

import argparse
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fedcohort import experiment as schema
from fedcohort.algorithms import ALGORITHMS
from fedcohort.algorithms.base import Algorithm
from fedcohort.algorithms.local import Training
from fedcohort.federation.datasets import NAMES
from fedcohort.federation.systems import Systems
from fedcohort.models import MODELS
from fedcohort.parameters import Parameter, describe
from fedcohort.plugins import Card, Table
from fedcohort.selection import STRATEGIES

DOCS = Path(__file__).parent
PAGES = ("experiment-file.md", "strategies.md")
STATUS = {
    "paper": "`paper`: as its source says",
    "code": "`code`: checked against a public implementation",
    "ours": "`ours`: our reading or design",
}


# --- pieces of Markdown --------------------------------------------------------------------------------------------------------


def prose(text: str) -> str:
    """A docstring's words as Markdown: single backticks."""
    return re.sub(r"``(.+?)``", r"`\1`", text)


def toml_value(value: Any) -> str:
    """A default as it would stand in the file."""
    return "not set" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"


def kind(words: str) -> str:
    """A type for a table cell, where a bar would end the cell: ``clip | affine`` becomes two quoted words."""
    if " | " in words:
        return ", ".join(f'`"{word}"`' for word in words.split(" | "))
    return re.sub(r"\bstr\b", "string", words.removesuffix(" or none"))


def table(rows: Iterable[Parameter], key: str = "key") -> str:
    """Parameters as a table."""
    lines = [f"| {key} | type | default | meaning |", "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| `{row.name}` | {kind(row.type)} | {toml_value(row.default)} | {prose(row.doc)} |")
    return "\n".join(lines)


def first_sentence(text: str) -> str:
    """The first paragraph of a docstring on one line."""
    return prose(" ".join(inspect.cleandoc(text).split("\n\n")[0].split()))


def explained(docstring: str) -> str:
    """A docstring as Markdown: paragraphs with formulas or numbered steps are kept as they are laid out, the others flow."""
    parts = []
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        if re.search(r"^( +\S|\d\. )", paragraph, re.MULTILINE):
            parts.append(f"```text\n{textwrap.dedent(paragraph).replace('``', '')}\n```")
        else:
            parts.append(prose(paragraph))
    return "\n\n".join(parts)


# --- the experiment file -----------------------------------------------------------------------------------------------------


def own(section: type) -> str:
    """The keys of a section that belong to it, whatever is plugged into it; not the sections inside."""
    nested = (*SECTIONS, "parameters", "partition", "variants", "sweep")
    return table(row for row in describe(section) if row.name not in nested)


def plugs(names: Table) -> str:
    """What can be plugged into a section, each with its parameters."""
    parts = []
    for name in names.builtin:
        found = names.find(name, name)
        parts.append(f"### {name}\n\n{explained(found.__doc__)}")
        if rows := describe(found):
            parts.append(table(rows))
    return "\n\n".join(parts)


def sections() -> str:
    """One line a section."""
    lines = ["| section | what it says |", "|---|---|"]
    for name, doc in SECTIONS.items():
        lines.append(f"| [`[{name}]`](#{name}) | {doc} |")
    return "\n".join(lines)


def names_of(names: Table) -> str:
    """The valid names of a plugged section, as links to the page that describes them."""
    return ", ".join(f"[`{name}`](strategies.md#{name})" for name in names.builtin)


def _says(cls: type) -> str:
    sentence = first_sentence(cls.__doc__ or "")
    return re.sub(r"^The `\[\w+\]` section: (\w)", lambda match: match[1].upper(), sentence)


SECTIONS = {
    name: _says(field.annotation)
    for name, field in schema.Experiment.model_fields.items()
    if inspect.isclass(field.annotation) and hasattr(field.annotation, "__pydantic_fields__")
}


# --- strategies and algorithms -------------------------------------------------------------------------------------------------


def overview(names: Table) -> str:
    """One line a name."""
    lines = ["| name | what it does | source | status |", "|---|---|---|---|"]
    for name in names.builtin:
        cls = names.find(name, name)
        lines.append(f"| [`{name}`](#{name}) | {first_sentence(cls.__doc__)} | {cls.card.source} | `{cls.card.status}` |")
    return "\n".join(lines)


def catalogue(names: Table, shared: type | None = None) -> str:
    """A section a name; names of one module share its explanation. Parameters of ``shared`` are left to their own table."""
    everywhere = {row.name for row in describe(shared)} if shared else set()
    parts, first_of = [], {}
    for name in names.builtin:
        cls = names.find(name, name)
        module = inspect.getmodule(cls)
        first = first_of.setdefault(module, name)
        parts.append(f"### `{name}`\n\n{first_sentence(cls.__doc__)}")
        parts.append(explained(module.__doc__) if first == name else f"The formulas stand under [`{first}`](#{first}).")
        parts.append(_card(cls.card))
        rows = [row for row in describe(cls) if row.name not in everywhere]
        parts.append(table(rows, "parameter") if rows else "It has no parameters" + (" of its own." if shared else "."))
    return "\n\n".join(parts)


def _card(card: Card) -> str:
    lines = [
        f"* Source: {card.source}",
        f"* Status: {STATUS[card.status]}",
        f"* Asks clients for: {card.asks}",
        f"* Discloses of a client, beyond its update: {card.discloses}",
        f"* Server work per round: {card.cost}",
    ]
    return "\n".join(lines)


# --- pages ---------------------------------------------------------------------------------------------------------------------

BLOCKS: dict[str, Callable[[], str]] = {
    "sections": sections,
    "top": lambda: own(schema.Experiment),
    "data": lambda: own(schema.Data),
    "datasets": lambda: ", ".join(f"`{name}`" for name in NAMES),
    "federation": lambda: own(schema.FederationSection),
    "partitions": lambda: plugs(schema.Partition.table),
    "systems": lambda: table(describe(Systems)),
    "models": lambda: plugs(MODELS),
    "training": lambda: table(describe(Training)),
    "algorithm names": lambda: names_of(ALGORITHMS),
    "algorithm": lambda: table(describe(Algorithm)),
    "selection names": lambda: names_of(STRATEGIES),
    "selection": lambda: table(row for row in describe(schema.Selection) if row.name == "k"),
    "engine": lambda: own(schema.Engine),
    "measures": lambda: own(schema.Measures),
    "complete": lambda: f"```toml\n{schema.Experiment().to_toml().strip()}\n```",
    "strategy overview": lambda: overview(STRATEGIES),
    "strategies": lambda: catalogue(STRATEGIES),
    "algorithm overview": lambda: overview(ALGORITHMS),
    "algorithms": lambda: catalogue(ALGORITHMS, Algorithm),
    "weights": lambda: table(describe(Algorithm), "parameter"),
}


def fill(page: str) -> str:
    """A page's text with every block as the code has it now."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in BLOCKS:
            raise SystemExit(f"there is no block {name!r}; known: {', '.join(BLOCKS)}")
        return f"<!-- begin {name} -->\n{BLOCKS[name]()}\n<!-- end {name} -->"

    return re.sub(r"<!-- begin (?P<name>[\w ]+) -->.*?<!-- end (?P=name) -->", block, page, flags=re.DOTALL)


def stale() -> dict[Path, str]:
    """The pages that are out of date, each with the text that it should have."""
    pages = {DOCS / name: (DOCS / name).read_text(encoding="utf-8") for name in PAGES}
    filled = {path: fill(text) for path, text in pages.items()}
    return {path: text for path, text in filled.items() if text != pages[path]}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Fill the tables of the documentation from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a page is out of date")
    check = parser.parse_args().check
    found = stale()
    for path, text in found.items():
        print(f"{path.name}: {'out of date; run python docs/generate.py' if check else 'written'}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return int(check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
