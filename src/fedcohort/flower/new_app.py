"""Write a complete Flower app that plays an experiment with sites as its clients."""

import os
import re
from contextlib import suppress
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template

import tomli_w

from fedcohort.core.errors import UsageError
from fedcohort.core.files.durable_files import is_disk_full
from fedcohort.core.files.paths import check_writable, resolved
from fedcohort.flower.addresses import port_of

__all__ = ["new_app"]

PER_SITE = 4
"""Number of clients of each site, in the trial that the app is written for."""

LONGEST_NAME = 32
"""Number of characters of the longest name that Flower takes for an app."""


def new_app(folder: str | Path, *, sites: int = 3, address: str = "127.0.0.1:8000") -> list[Path]:
    """Write an app that runs as it is, on embedded data.

    Args:
        folder: where; it must be empty, or must not exist.
        sites: number of site files.
        address: host and port of the SuperLink.

    Returns:
        The files.

    Raises:
        UsageError: the folder is not empty or cannot be written, or something cannot be used.
    """
    folder = Path(folder)
    if not 1 <= sites <= 100:
        raise UsageError(f"--sites = {sites}: should be from 1 to 100")
    port = port_of(address, "--address")
    whole = resolved(str(folder), Path.cwd())
    if not str(whole).isprintable():
        raise UsageError(f"{folder}: has characters that cannot be printed; give a folder with another name")
    check_writable(folder, "FOLDER", folder=True)
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder}: is not empty; give a new folder")
    name = re.sub(r"[^a-z0-9]+", "-", whole.name.lower()).strip("-") or "app"
    name = (name if name[0].isalpha() else f"app-{name}")[:LONGEST_NAME].rstrip("-")
    package = f"{name.replace('-', '_')}_app"
    names = [f"site-{i}" for i in range(1, sites + 1)]
    words = {
        "name": name,
        "package": package,
        "flwr": version("flwr"),
        "address": address,
        "host": address.rpartition(":")[0].strip("[]"),
        "port": port,
        "clients": str(PER_SITE * sites),
        "sites": str(sites),
        "root_certificates": tomli_w.dumps({"root-certificates": str(whole / "certificates" / "ca.crt")}).strip(),
        "site_names": " ".join(names),
        "register": "\n".join(f"$ flwr supernode register keys/{site}.pub here" for site in names),
    }
    contents = {
        "pyproject.toml": _filled("pyproject.toml.txt", words),
        "README.md": _filled("README.md.txt", words),
        "make-keys.sh": _filled("make-keys.sh.txt", words),
        "LICENSE": "Licensed under the Apache License, Version 2.0: https://www.apache.org/licenses/LICENSE-2.0\n",
        ".gitignore": "certificates/\nkeys/\nstate-*/\nruns/\nsuperlink.db*\n",
        f"{package}/__init__.py": f'"""The Flower app {name}."""\n',
        f"{package}/experiment.toml": _filled("experiment.toml.txt", words),
        f"{package}/server.py": _text("server.py.txt"),
        f"{package}/client.py": _text("client.py.txt"),
    }
    for i, site in enumerate(names):
        clients = list(range(PER_SITE * i, PER_SITE * (i + 1)))
        contents[f"{site}.toml"] = _filled("site.toml.txt", words | {"site": site, "clients": str(clients)})
    return _write_all(folder, contents)


def _write_all(folder: Path, contents: dict[str, str]) -> list[Path]:
    """Write all files into a folder, or none: what was written of them is removed if the disk is full, or if a signal arrives."""
    paths = [folder / place for place in contents]
    folders = {parent for path in paths for parent in path.parents if not os.path.lexists(parent)}
    try:
        for path, content in zip(paths, contents.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        (folder / "make-keys.sh").chmod(0o755)
    except BaseException as error:
        with suppress(OSError):
            for path in paths:
                path.unlink(missing_ok=True)
        with suppress(OSError):
            for made in sorted(folders, reverse=True):
                made.rmdir()
        if isinstance(error, OSError) and not is_disk_full(error):
            raise _unwritable(folder, error) from error
        raise
    return paths


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(f"{folder}: cannot be written ({error.strerror}); give another folder")


def _text(name: str) -> str:
    return (files("fedcohort.flower") / "template" / name).read_text(encoding="utf-8")


def _filled(name: str, words: dict[str, str]) -> str:
    return Template(_text(name)).substitute(words)
