"""``fedcohort measures`` and ``why``: read run directories."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    pass
from fedcohort.cli.options import data_dir_option, json_option, with_options


@click.command("measures")
@click.argument("paths", nargs=-1, required=True, metavar="RUN…")
@click.option("--target", type=float, metavar="ACCURACY", help="Count rounds, time and bytes to this test accuracy.")
@click.option(
    "--conformal",
    type=float,
    metavar="ALPHA",
    help="Also measure prediction sets of this error rate; loads the data again.",
)
@with_options(data_dir_option, json_option)
def measure(
    paths: tuple[str, ...], target: float | None, conformal: float | None, data_dir: str | None, as_json: bool
) -> None:
    """Show everything that run directories are judged by.

    Accuracy of classes and clients, cost of a target accuracy, fairness beside what chance gives, stability. Runs are only read.
    """
    from pathlib import Path

    from fedcohort.core import words
    from fedcohort.record import open_run
    from fedcohort.report import terminal
    from fedcohort.study import coverage
    from fedcohort.study.summary import summary

    runs = [open_run(path) for path in paths]
    found = [summary(run, target) for run in runs]
    sets = [coverage.conformal(run, conformal, data_dir=data_dir) for run in runs] if conformal is not None else []
    if as_json:
        rows = [{"path": Path(path), **one.to_json()} for path, one in zip(paths, found, strict=True)]
        for row, one in zip(rows, sets, strict=False):
            row["conformal"] = one.to_json()
        click.echo(words.as_json(rows))
    else:
        screen = terminal.screen()
        names = [f"{run.meta['label']}, seed {run.meta['seed']}" for run in runs]
        screen.print(terminal.summaries(names, found, sets, screen.width))


@click.command()
@click.argument("path", metavar="RUN")
@click.option("--round", "round_", type=int, required=True, metavar="T", help="The round, from 1.")
@click.option("--client", type=int, metavar="ID", help="What it means for this client, numbered from 0.")
@json_option
def why(path: str, round_: int, client: int | None, as_json: bool) -> None:
    """Say why a round has the clients it has.

    The candidates, their scores and what these are made of, what became of the selected, what clients were asked, what that cost and
    what they disclosed. RUN is a run directory, and is only read.
    """
    from fedcohort.core import words
    from fedcohort.record import open_run
    from fedcohort.report import terminal
    from fedcohort.study.why import explain

    found = explain(open_run(path), round_, client)
    if as_json:
        click.echo(words.as_json(found.to_json()))
    else:
        screen = terminal.screen()
        screen.print(terminal.explanation(found, screen.width))
