"""``python -m tests.campaign``: attack the package for an hour, and print what held.

Every failing case is printed with the command that repeats it alone. The exit code is 1 if something failed.
"""

import argparse
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.campaign.attack import Attack
from tests.campaign.catalogue import ATTACKS
from tests.campaign.results import ROOT, facts, merged, read, row, write
from tests.campaign.worker import Outcome, Worker

__all__ = ["attacked", "main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    given = _parser().parse_args(arguments)
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # in a background job of a shell; the attacks' commands inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="fedcohort-campaign-"))
    known, rows = facts(given.seed, given.minutes), []
    try:
        for name in given.only or ATTACKS:
            attack = ATTACKS[name]
            cases = _cases(attack, given.minutes) if given.case is None else [given.case]
            measured = attacked(attack, given.seed, iter(cases), folder / name, given.workers)
            rows.append(row(name, attack.did, attack.unit, **measured, **known))
            print(_line(rows[-1]), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(_table(rows))
    if given.write:
        write(merged(read(), [one for one in rows if one["unavailable"] is None], ATTACKS))
        update_page()
    return int(any(one["failures"] for one in rows))


def update_page() -> None:
    """Write the table of docs/reliability.md anew."""
    subprocess.run([sys.executable, str(ROOT / "docs" / "generate.py")], check=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="length on two cores; the numbers of cases follow it (default: 60)"
    )
    parser.add_argument(
        "--only", nargs="+", choices=list(ATTACKS), metavar="ATTACK", help=f"only these: {', '.join(ATTACKS)}"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all cases (default: 0)")
    parser.add_argument("--case", type=int, help="play only the case with this number, with --only and one attack")
    parser.add_argument(
        "--workers", type=int, default=min(2, os.cpu_count() or 1), help="cases at the same time (default: 2)"
    )
    parser.add_argument(
        "--write", action="store_true", help="keep the rows in results/campaign.json and docs/reliability.md"
    )
    return parser


def _cases(attack: type[Attack], minutes: float) -> Sequence[int]:
    """The numbers of the cases in a campaign of this length."""
    if minutes < 30 and attack.quick:
        return attack.quick
    return range(max(attack.least, round(attack.full * minutes / 60)))


def attacked(attack: type[Attack], seed: int, cases: Iterator[int], folder: Path, workers: int) -> dict[str, Any]:
    """Play the cases of an attack in worker processes.

    Args:
        attack: the attack.
        seed: the seed of the campaign.
        cases: the numbers of the cases.
        folder: an empty folder.
        workers: number of cases at the same time.

    Returns:
        The numbers of the row: count, failures, seconds, figures; why the attack is unavailable here.
    """
    start, count = time.monotonic(), 1 if attack.alone else workers
    outcomes: list[Outcome] = []
    teams = [Worker(folder / f"worker-{i}") for i in range(count)]

    def work(worker: Worker) -> None:
        for number in cases:
            outcome = worker.play(attack.name, seed, number, attack.limit)
            outcomes.append(outcome)
            if outcome.failure is not None:
                print(f"{attack.name}, case {number}: {outcome.failure}", flush=True)
                print(
                    f"    repeat it: python -m tests.campaign --only {attack.name} --seed {seed} --case {number}",
                    flush=True,
                )
            if outcome.unavailable is not None:
                return

    cases = _shared(cases)
    try:
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(work, teams))
    finally:
        for worker in teams:
            worker.close()
    return {
        "count": sum(outcome.count for outcome in outcomes),
        "failures": sum(outcome.failure is not None for outcome in outcomes),
        "failed": sorted(outcome.number for outcome in outcomes if outcome.failure is not None),
        "seconds": round(time.monotonic() - start, 1),
        "figures": {key: value for outcome in outcomes for key, value in outcome.figures.items()},
        "unavailable": next((outcome.unavailable for outcome in outcomes if outcome.unavailable is not None), None),
    }


def _shared(cases: Iterator[int]) -> Iterator[int]:
    """An iterator from which several threads may take."""
    from queue import SimpleQueue

    queue: SimpleQueue[int | None] = SimpleQueue()
    for number in itertools.chain(cases, itertools.repeat(None, 64)):
        queue.put(number)
    return iter(queue.get, None)


def _line(one: dict[str, Any]) -> str:
    if one["unavailable"] is not None:
        return f"{one['attack']}: not possible here: {one['unavailable']}"
    return f"{one['attack']}: {one['count']:,} {one['unit']}, {one['failures']} failures, {one['seconds']:g} s"


def _table(rows: list[dict[str, Any]]) -> str:
    """The rows as a table for the terminal."""
    from io import StringIO

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title, right in (
        ("attack", False),
        ("what was done", False),
        ("count", True),
        ("failures", True),
        ("seconds", True),
    ):
        table.add_column(title, justify="right" if right else "left")
    for one in rows:
        figures = "".join(f"\n{key}: {value}" for key, value in one["figures"].items())
        did = escape(one["did"].replace("`", "") + figures)
        if one["unavailable"] is not None:
            table.add_row(one["attack"], did, "not possible here", "", "")
        else:
            table.add_row(
                one["attack"], did, f"{one['count']:,} {one['unit']}", str(one["failures"]), f"{one['seconds']:g}"
            )
    text = StringIO()
    Console(file=text, width=shutil.get_terminal_size((120, 24)).columns).print(table)
    return text.getvalue().rstrip()


if __name__ == "__main__":
    sys.exit(main())
