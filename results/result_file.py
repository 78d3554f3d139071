"""A result file: what was measured, how it was made, and what it depends on.

A file has these keys:

    result      what was measured: plain values; in the file of the speed cases, case → processor → figures
    command     the command that makes it anew
    commit      the commit of the code, with a plus sign if files were changed since
    date, processor, versions, seconds
    depends     path → digest of every file that decides about the result: loaded modules of the package, experiment files
    confirmed   if runs were repeated with later code and gave the same: commit, date and number; `depends` is then of that code
    older       in files that are not made anew by a command of this package: why
"""

import ast
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = [
    "RESULTS",
    "ROOT",
    "changes",
    "commit",
    "depends",
    "digest",
    "names",
    "provenance",
    "read",
    "sources",
    "today",
    "write",
]

RESULTS = Path(__file__).parent
ROOT = RESULTS.parent
PACKAGES = ("torch", "numpy", "scipy")
NO_EFFECT = ("api", "chooser", "cli", "flower", "racing", "report", "testing", "study", "__init__", "__main__")
"""Packages that show, start or compare runs: a change of these does not change what a run gives. Results that use more of
:mod:`fedcohort.study` than the mean over seeds name its modules themselves."""


def names() -> list[str]:
    """The names of all results that were kept."""
    return sorted(path.stem for path in RESULTS.glob("*.json"))


def read(name: str) -> dict[str, Any]:
    """A result file."""
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return content


def write(name: str, content: Mapping[str, Any], *, compact: bool = False) -> Path:
    """Write a result file, in one step; ``compact`` writes a list of numbers on one line."""
    path = RESULTS / f"{name}.json"
    temporary = path.with_suffix(".part")
    text = json.dumps(content, indent=1, ensure_ascii=False)
    if compact:
        text = re.sub(r"\[[\s\d.,e+\-nul]*\]", lambda found: " ".join(found[0].split()), text)
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


# --- what a result was made with -----------------------------------------------------------------------------------------------


def sources() -> dict[str, str]:
    """Path → digest of every module of the package that can change a run, as it is now."""
    import fedcohort

    source = Path(fedcohort.__file__).parent
    paths = [path.relative_to(source) for path in source.rglob("*.py")]
    kept = [path for path in paths if path.parts[0].removesuffix(".py") not in NO_EFFECT]
    return {f"src/fedcohort/{path.as_posix()}": digest(source / path) for path in sorted(kept)}


def provenance(
    command: str, experiments: Iterable[str], seconds: float, made_by: str, known: Mapping[str, str]
) -> dict[str, Any]:
    """Commit, date, processor, versions, and the digests of everything that the process has loaded.

    Args:
        command: the command that makes the result.
        experiments: the files that the result depends on, besides the package.
        seconds: how long it took.
        made_by: :func:`commit` at the begin.
        known: :func:`sources` at the begin, in case a file was changed in the meantime.
    """
    import fedcohort
    from fedcohort.core.processor import processor

    versions = {"fedcohort": fedcohort.__version__, "python": platform.python_version()}
    return {
        "command": command,
        "commit": made_by,
        "date": today(),
        "processor": f"{processor()}, {len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} cores",
        "versions": versions | {name: importlib.metadata.version(name) for name in PACKAGES},
        "seconds": round(seconds, 1),
        "depends": depends(experiments, known),
    }


def today() -> str:
    """The date in UTC, as files have it."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


def depends(experiments: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """Path → digest of the modules in ``known`` that are loaded, and of other files."""
    import fedcohort

    source = Path(fedcohort.__file__).parents[1]
    files = [Path(getattr(module, "__file__", None) or "/") for module in list(sys.modules.values())]
    loaded = {f"src/{path.relative_to(source).as_posix()}" for path in files if path.is_relative_to(source)}
    found = {name: known[name] for name in loaded & known.keys()}
    return dict(sorted((found | {name: digest(ROOT / name) for name in experiments}).items()))


def digest(path: Path) -> str:
    """A short hash of what a file says: comments and docstrings do not count, nor of a result how it was made and confirmed."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        text = ast.dump(_without_docstrings(ast.parse(text)))
    elif path.suffix == ".toml":
        text = json.dumps(tomllib.loads(text), sort_keys=True, default=str)
    elif path.suffix == ".json":
        text = json.dumps(json.loads(text)["result"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without_docstrings(tree: ast.AST) -> ast.AST:
    """The tree without texts that stand alone: docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return tree


def _is_text(line: ast.AST) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


# --- whether it still holds ------------------------------------------------------------------------------------------------------


def changes(name: str) -> list[str]:
    """The files that a result depends on and that changed since it was made, or the reason why that is not known."""
    content = read(name)
    if "depends" not in content:
        return [content.get("older") or "does not say what it depends on"]
    return [
        path for path, known in content["depends"].items() if not (ROOT / path).exists() or digest(ROOT / path) != known
    ]


def _git(*arguments: str) -> str:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def commit() -> str:
    """The commit of the code, with a plus sign if source or experiment files were changed since."""
    found = _git("rev-parse", "--short=10", "HEAD") or "unknown"
    return found + ("+" if _git("status", "--porcelain", "--", "src", "experiments", "benchmarks") else "")
