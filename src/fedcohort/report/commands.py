"""``fedcohort report``: parse, call, print. Everything heavy is imported inside."""

import shlex
import sys
from pathlib import Path

import click

from fedcohort.errors import UsageError

__all__ = ["report"]

_runs = click.option("--runs", default="runs", show_default=True, metavar="DIR", help="Folder of run directories.")
_set = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="The --set that an experiment file was run with; repeatable.",
)


@click.command()
@click.argument("paths", nargs=-1, metavar="RUN…")
@click.option("--output", "-o", default="report.html", show_default=True, metavar="FILE", help="The page.")
@_runs
@_set
def report(paths: tuple[str, ...], output: str, runs: str, settings: tuple[str, ...]) -> None:
    """Write one page about runs: who won, the clients, who took part and why, the cost.

    The page is one file that opens anywhere, without a network. RUN is a run directory, a folder of them, or an experiment file, whose
    runs are looked for in --runs; without RUN all runs of --runs. Runs may still be going on.
    """
    from fedcohort.report.gather import find_runs, gather
    from fedcohort.report.page import page

    command = "fedcohort " + shlex.join(sys.argv[1:]) if Path(sys.argv[0]).name == "fedcohort" else None
    text = page(gather(find_runs(paths, runs, settings)), command=command)
    file = Path(output)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {file}: cannot be written ({error.strerror}); give another file") from None
    click.echo(f"{file}: {len(text.encode()) / 1e6:.1f} MB")
