"""The command line of the results."""

import argparse
import hashlib
import importlib.metadata
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcohort.runs.stop_after_round import Interrupted
from results.atlas.federations import FILE as FEDERATIONS
from results.atlas.play import Atlas
from results.descriptions import DESCRIPTIONS
from results.result_file import PACKAGES, ROOT, changes, commit, names, provenance, read, sources, write

__all__ = ["main"]


def make_anew(name: str, runs: Path | None) -> None:
    """Make a result, and write its file."""
    description, begin, made_by, known = DESCRIPTIONS[name], time.perf_counter(), commit(), sources()
    with tempfile.TemporaryDirectory() as folder:
        # runs of other code are not continued: their folder has another name
        kept = (
            Path(folder)
            if runs is None
            else runs / hashlib.sha256(repr(sorted(known.items())).encode()).hexdigest()[:12]
        )
        result = description.make(kept)
    facts = provenance(
        f"make results NAME={name}", description.experiments, time.perf_counter() - begin, made_by, known
    )
    path = write(name, facts | {"result": result})
    print(
        f"{path.relative_to(ROOT)}: written in {facts['seconds']:.0f} s; update the pages with python docs/generate.py"
    )


def extend(name: str, description: Atlas, minutes: float | None) -> None:
    """Add to a result that is made in parts; the file is written after each part."""
    begin, made_by, known = time.perf_counter(), commit(), sources()
    minutes = description.minutes if minutes is None else minutes
    before = read(name) if name in names() else {}
    reasons = _why_anew(name, before) if before else []
    if reasons:
        print(f"{name}: begins anew, since what it depends on has changed: {', '.join(reasons[:3])}")
        before = {}

    def save(result: Mapping[str, Any]) -> None:
        seconds = before.get("seconds", 0.0) + time.perf_counter() - begin
        facts = provenance(f"make results NAME={name}", description.experiments, seconds, made_by, known)
        facts["depends"] = dict(sorted((before.get("depends", {}) | facts["depends"]).items()))
        write(name, facts | {"result": result}, compact=True)

    try:
        save(description.extend(before.get("result", {}), minutes, save))
    except Interrupted:
        print(f"{name}: stopped; the federations that were complete before are kept")
        raise SystemExit(130) from None
    print(f"results/{name}.json: written; update the pages with python docs/generate.py")


def _why_anew(name: str, before: Mapping[str, Any]) -> list[str]:
    """Why what is kept cannot be continued: changed code, or other versions. The file of the atlas may change: each of its federations
    has a digest of its own."""
    changed = [path for path in changes(name) if path != FEDERATIONS]
    versions = {package: importlib.metadata.version(package) for package in PACKAGES}
    return changed + [package for package, version in versions.items() if before["versions"].get(package) != version]


def check() -> int:
    """Print the results that are older than a change of what they depend on; those that are kept on purpose on one line."""
    found = {name: files for name in names() if (files := changes(name))}
    kept = [name for name in found if read(name).get("older")]
    stale = {name: files for name, files in found.items() if name not in kept}
    for name, files in stale.items():
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        made = read(name)
        since = f" (made {made['date']}, commit {made['commit']})" if "date" in made else ""
        print(f"{name}{since}: {', '.join(files[:3])}{more}")
    if kept:
        print(f"kept as measured then, for the reason that their page says: {', '.join(kept)}")
    print(
        f"{len(names())} results: {len(stale)} older than what they depend on, or without saying it; {len(kept)} kept"
    )
    return int(bool(stale))


def listed() -> None:
    """Print all results, how long they take, and whether they are up to date."""
    for name in sorted({*names(), *DESCRIPTIONS}):
        known = DESCRIPTIONS.get(name)
        takes = f"about {known.minutes:g} min" if known else "kept; not made by this command"
        state = "missing" if name not in names() else "older than the code" if changes(name) else "up to date"
        print(f"{name:32} {takes:32} {state}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m results", description="Make results anew, or list those that are out of date."
    )
    parser.add_argument("names", nargs="*", help="results to make; see --list")
    parser.add_argument("--check", action="store_true", help="list results older than a change of what they depend on")
    parser.add_argument("--list", action="store_true", help="list all results")
    parser.add_argument("--runs", type=Path, help="keep the runs in this folder, and continue those of the same code")
    parser.add_argument("--minutes", type=float, help="processor time for results that are made in parts: the atlas")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.names if name not in DESCRIPTIONS]
    if unknown:
        parser.error(f"{unknown[0]}: no such result; known: {', '.join(DESCRIPTIONS)}")
    for name in chosen.names:
        description = DESCRIPTIONS[name]
        if isinstance(description, Atlas):
            extend(name, description, chosen.minutes)
        else:
            make_anew(name, chosen.runs)
    if chosen.list or not (chosen.names or chosen.check):
        listed()
    return check() if chosen.check else 0


if __name__ == "__main__":
    sys.exit(main())
