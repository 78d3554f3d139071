"""The rows of the table: what each attack did last, when, where and with which software; kept in ``results/campaign.json``."""

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "facts", "merged", "read", "row", "write"]

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "campaign.json"
PACKAGES = ("torch", "numpy", "pandas", "scipy", "scikit-learn", "safetensors", "pydantic", "click")


def facts(seed: int, minutes: float) -> dict[str, Any]:
    """What a row says about its campaign: commit, date, processor, versions, seed and length."""
    import sqlite3

    import fedcohort

    versions = {
        "fedcohort": fedcohort.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "versions": versions,
        "seed": seed,
        "minutes": minutes,
    }


def _commit() -> str:
    """The commit of the code, with a plus sign if files were changed since."""

    def git(*arguments: str) -> str:
        try:
            return subprocess.run(
                ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return ""

    commit = git("rev-parse", "--short=10", "HEAD") or "unknown"
    changed = [
        line
        for line in git("status", "--porcelain", "--untracked-files=no").splitlines()
        if "results/campaign.json" not in line
    ]
    return commit + ("+" if [line for line in changed if not line.endswith("docs/reliability.md")] else "")


def _processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def row(name: str, did: str, unit: str, **measured: Any) -> dict[str, Any]:
    """A row of the table."""
    return {"attack": name, "did": did, "unit": unit, **measured}


def read(file: Path = RESULTS) -> list[dict[str, Any]]:
    """The rows that are kept; none if there is no file."""
    return list(json.loads(file.read_text("utf-8"))["rows"]) if file.exists() else []


def merged(kept: Iterable[dict[str, Any]], new: Iterable[dict[str, Any]], order: Iterable[str]) -> list[dict[str, Any]]:
    """The kept rows, with new rows in place of those of the same attack, in this order; rows of unknown attacks are dropped."""
    rows = {one["attack"]: one for one in (*kept, *new)}
    return [rows[name] for name in order if name in rows]


def write(rows: list[dict[str, Any]], file: Path = RESULTS) -> None:
    """Write the rows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"rows": rows}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
