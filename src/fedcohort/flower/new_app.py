"""Write a complete Flower app that plays an experiment with sites as its clients."""

import re
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template

from fedcohort.core.errors import UsageError, shown

__all__ = ["new_app"]

PER_SITE = 4
"""Number of clients of each site, in the trial that the app is written for."""


def new_app(folder: str | Path, *, sites: int = 3, address: str = "127.0.0.1:8000") -> list[Path]:
    """Write an app that runs as it is, on embedded data.

    Args:
        folder: where; it must be empty, or must not exist.
        sites: number of site files.
        address: host and port of the SuperLink.

    Returns:
        The files.

    Raises:
        UsageError: the folder is not empty, or something cannot be used.
    """
    folder = Path(folder)
    if not 1 <= sites <= 100:
        raise UsageError(f"--sites = {sites}: should be from 1 to 100")
    if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}", address):
        raise UsageError(f"--address = {shown(address)}: should be HOST:PORT, such as 127.0.0.1:8000")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder}: is not empty; give a new folder")
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "app"
    name = name if name[0].isalpha() else f"app-{name}"
    package = f"{name.replace('-', '_')}_app"
    names = [f"site-{i}" for i in range(1, sites + 1)]
    words = {
        "name": name,
        "package": package,
        "flwr": version("flwr"),
        "address": address,
        "clients": str(PER_SITE * sites),
        "sites": str(sites),
        "folder": str(folder.resolve()),
        "site_names": " ".join(names),
        "register": "\n".join(f"$ flwr supernode register keys/{site}.pub here" for site in names),
    }
    contents = {
        "pyproject.toml": _filled("pyproject.toml.txt", words),
        "README.md": _filled("README.md.txt", words),
        "make-keys.sh": _filled("make-keys.sh.txt", words),
        "LICENSE": "Licensed under the Apache License, Version 2.0: https://www.apache.org/licenses/LICENSE-2.0\n",
        ".gitignore": "certificates/\nkeys/\nstate-*/\nruns/\n",
        f"{package}/__init__.py": f'"""The Flower app {name}."""\n',
        f"{package}/experiment.toml": _filled("experiment.toml.txt", words),
        f"{package}/server.py": _text("server.py.txt"),
        f"{package}/client.py": _text("client.py.txt"),
    }
    for i, site in enumerate(names):
        clients = list(range(PER_SITE * i, PER_SITE * (i + 1)))
        contents[f"{site}.toml"] = _filled("site.toml.txt", words | {"site": site, "clients": str(clients)})
    paths = []
    for place, content in contents.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        paths.append(path)
    (folder / "make-keys.sh").chmod(0o755)
    return paths


def _text(name: str) -> str:
    return (files("fedcohort.flower") / "template" / name).read_text(encoding="utf-8")


def _filled(name: str, words: dict[str, str]) -> str:
    return Template(_text(name)).substitute(words)
