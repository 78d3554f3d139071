"""The reference of the command line, made from the commands themselves."""

import inspect
import json
import re
from collections.abc import Iterator

import click
import navigation

from fedcohort.cli import cli
from fedcohort.experiment import Experiment

__all__ = ["command_pages", "commands"]


def commands(command: click.Command = cli, path: str = "fedcohort") -> Iterator[tuple[str, click.Command]]:
    """All commands with their full names, in the order of the help text."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from commands(found, f"{path} {name}")


def command_pages() -> dict[str, str]:
    """The pages about the command line and its JSON output, by their names on the site."""
    found = dict(commands())
    lines = [
        "# Command line", "",
        "`fedcohort --help` lists the commands, and `fedcohort COMMAND --help` shows one of them. Exit codes: 0 for success, 2 for an",
        "error in the input, 130 if interrupted, 141 if the reader of the output stopped; `fedcohort doctor` exits with 1 if",
        "something keeps FedCohort from working.", "",
        "| command | what it does |", "|---|---|",
        *(f"| [`{path}`](#{_anchor(path)}) | {_first(command)} |" for path, command in found.items() if path != "fedcohort"),
    ]  # fmt: skip
    parts = ["\n".join(lines), *(_section(path, command) for path, command in found.items() if path != "fedcohort")]
    return {"commands": "\n\n".join(parts), **_json_page(found)}


def _anchor(path: str) -> str:
    return path.replace(" ", "-")


def _first(command: click.Command) -> str:
    return _plain((command.help or "").split("\n\n")[0])


def _plain(text: str) -> str:
    """Text for a cell of a table. Options are code: Sphinx would turn their hyphens into a dash."""
    words = " ".join(text.replace("\b", "").split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    return coded(words)


def coded(text: str) -> str:
    """The text with options such as ``--json`` as code."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"(?<![\w`-])--[a-z][a-z-]*", lambda option: f"`{option[0]}`", part) for part in parts[::2]]
    return "".join(parts)


def _section(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    usage = command.get_usage(context).removeprefix("Usage: ")
    parts = [f"## `{path}`", f"```text\n{' '.join(usage.split())}\n```", *_help(command)]
    rows = []
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            record = parameter.get_help_record(context)
            if record:
                rows.append(f"| `{_unbroken(record[0])}` | {_plain(record[1])} |")
    if rows:
        parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    if isinstance(command, click.Group):
        names = [f"{path} {name}" for name in command.list_commands(context)]
        parts.append("Commands: " + ", ".join(f"[`{name}`](#{_anchor(name)})" for name in names) + ".")
    return "\n\n".join(parts)


def _unbroken(text: str) -> str:
    return text.replace("|", "\\|")


def _help(command: click.Command) -> Iterator[str]:
    """The paragraphs of a help text. Those that click does not wrap keep their lines."""
    for paragraph in inspect.cleandoc(command.help or "").split("\f")[0].split("\n\n"):
        if paragraph.startswith("\b") or re.search(r"^ {2,}\S", paragraph, re.MULTILINE):
            yield f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```"
        else:
            yield coded(" ".join(paragraph.split()).replace("<", "&lt;").replace("*", "\\*"))


def _json_page(found: dict[str, click.Command]) -> dict[str, str]:
    """The overview of JSON output and schemas."""
    with_json = [
        f"[`{path}`](commands.md#{_anchor(path)})"
        for path, command in found.items()
        if any("--json" in option.opts for option in command.params)
    ]
    written = sorted(path.stem for path in navigation.DOCS.glob("schemas/*.md"))
    lines = [
        "# JSON schemas", "",
        f"These commands print JSON with the option `--json`: {', '.join(with_json)}. Keys and the types of their values are",
        "[stable](stability.md): later versions can add keys. [JSON output](json-output.md) lists the keys of all documents.", "",
        "## Experiment files", "",
        "An experiment file is TOML; the same keys and values can be given as JSON or as a Python object. [The experiment",
        "file](experiment-file.md) explains every key. An editor can check files against this schema:",
        "{download}`experiment.schema.json`. Parameters of strategies, algorithms and other plug-ins are checked when FedCohort",
        "reads the file, because packages can add plug-ins.",
    ]  # fmt: skip
    if written:
        lines += ["", "## Output of commands", "", *(f"- [](schemas/{name}.md)" for name in written)]
    return {"json": "\n".join(lines)}


def experiment_schema() -> str:
    """The schema of experiment files, as JSON."""
    return json.dumps(Experiment.model_json_schema(), indent=2)
