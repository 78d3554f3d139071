"""``fedcohort doctor``: what is installed, what is missing, and how to get it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from fedcohort.cli.json_schema import document
from fedcohort.cli.options import data_dir_option, json_option, with_options
from fedcohort.cli.output import echo, folded, terminal_width

if TYPE_CHECKING:
    from fedcohort.cli.installation import Installation, Package

__all__ = ["doctor"]

PROBLEM = 1
"""Exit code if something keeps FedCohort from working."""


@click.command()
@with_options(data_dir_option, json_option)
def doctor(data_dir: str | None, as_json: bool) -> None:
    """Show versions, devices, the cache, and what is missing.

    For everything that is missing, the command that installs it is shown. The exit code is 0 if FedCohort can work, and 1 if something
    keeps it from working, such as a required package that is missing or too old. Missing optional packages are no problem.
    """
    from fedcohort.cli.installation import examine

    found = examine(data_dir)
    if as_json:
        echo(_as_json(found))
    else:
        width = terminal_width()
        echo("\n".join(part for line in _lines(found) for part in folded(line, width)))
    if found.problems:
        raise SystemExit(PROBLEM)


def _lines(found: "Installation") -> Iterator[str]:
    """The facts, line by line. Nothing but the standard library is needed to print them."""
    yield from _section(
        "Versions",
        [
            ("FedCohort", found.fedcohort),
            ("Python", found.python),
            ("PyTorch", found.torch or "-"),
            ("System", found.system),
        ],
    )
    yield from _section("Required packages", [(p.name, _version_of(p)) for p in found.packages])
    yield from _section("Devices", [tuple(device.split(": ", 1)) for device in found.devices])
    yield from _section("Data", list(_places(found)))
    yield from _section("Optional packages", list(_extras(found)))
    for note in found.notes:
        yield f"Note: {note}"
    if found.notes:
        yield ""
    for text, cure in found.problems:
        yield f"Problem: {text}; {cure}"
    if not found.problems:
        yield "No problems."


def _section(title: str, rows: list[tuple[str, ...]]) -> Iterator[str]:
    """A title, one line for each row, and an empty line."""
    width = max((len(row[0]) for row in rows), default=0)
    yield title
    for name, *values in rows:
        yield f"  {name:<{width}}  {'  '.join(values)}".rstrip()
    yield ""


def _version_of(package: "Package") -> str:
    return package.version or "not installed"


def _places(found: "Installation") -> Iterator[tuple[str, str]]:
    """The cache and the data mirror."""
    if found.cache is None:
        yield "cache", "cannot be used"
    else:
        from fedcohort.core.words.formatted_values import counted, size

        folder, entries, num_bytes, free = found.cache
        yield "cache", f"{folder}: {counted(entries, 'data set')}, {size(num_bytes)}; {size(free)} free"
    if found.mirror:
        yield "mirror", f"{found.mirror}: {', '.join(found.mirrored) or 'no known data set'}"
    else:
        yield "mirror", "none; name one with FEDCOHORT_DATA or --data-dir to use data sets without the Hub"


def _extras(found: "Installation") -> Iterator[tuple[str, str]]:
    """The extras: their versions, or the command that installs them."""
    from fedcohort.cli.installation import EXTRAS, install_command

    for extra, packages in found.extras.items():
        if missing := found.missing(extra):
            state = f"{', '.join(missing)} not installed; for {EXTRAS[extra].use}: {install_command(extra)}"
        else:
            state = ", ".join(f"{package.name} {package.version}" for package in packages)
        yield extra, state


def _as_json(found: "Installation") -> str:
    """The facts as JSON."""
    try:
        from fedcohort.core.words.formatted_values import as_json
    except ImportError:  # of numpy, which is one of the problems
        import json

        return json.dumps(document("doctor", _json(found)), indent=2)
    return as_json(document("doctor", _json(found)))


def _json(found: "Installation") -> dict[str, object]:
    """The facts as plain values."""
    from fedcohort.cli.installation import EXTRAS, install_command

    return {
        "fedcohort": found.fedcohort,
        "python": found.python,
        "torch": found.torch or None,
        "system": found.system,
        "cores": found.cores,
        "packages": {p.name: {"version": p.version, "oldest": p.oldest or None} for p in found.packages},
        "devices": found.devices,
        "cache": None if found.cache is None else found.cache._asdict(),
        "mirror": {"folder": found.mirror, "data": found.mirrored} if found.mirror else None,
        "extras": {
            extra: {
                "packages": {p.name: p.version for p in packages},
                "use": EXTRAS[extra].use,
                "command": install_command(extra) if found.missing(extra) else None,
            }
            for extra, packages in found.extras.items()
        },
        "notes": found.notes,
        "problems": [problem._asdict() for problem in found.problems],
    }
