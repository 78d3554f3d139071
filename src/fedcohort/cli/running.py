"""``fedcohort run``, ``compare`` and ``sweep``: play what is missing, then print the results."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fedcohort.core.errors import UsageError

if TYPE_CHECKING:
    from fedcohort.experiment import Experiment
    from fedcohort.study.comparison import Comparison
from fedcohort.cli.options import (
    data_dir_option,
    experiment_of,
    jobs_option,
    json_option,
    live_option,
    quiet_option,
    row_of,
    runs_option,
    set_option,
    track_option,
    variant_option,
    with_options,
)
from fedcohort.cli.watching import watching

__all__ = ["run", "sweep"]


@click.command()
@click.argument("file", required=False)
@with_options(
    variant_option, set_option, runs_option, data_dir_option, live_option, track_option, quiet_option, json_option
)
def run(
    file: str | None,
    variant: str | None,
    settings: tuple[str, ...],
    runs: str,
    data_dir: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run one row of an experiment under all its seeds.

    FILE is an experiment in TOML; without it the quickstart is run. A run that was interrupted goes on after its last round, and one
    that is finished is not repeated.
    """
    import dataclasses

    from fedcohort.core import words
    from fedcohort.report import terminal
    from fedcohort.runs.find import find_run
    from fedcohort.runs.given import Given
    from fedcohort.runs.play import run_cell
    from fedcohort.study.results import result

    label, experiment = row_of(experiment_of(file, settings), variant)
    cells = [dataclasses.replace(cell, label=label) for cell in experiment.cells()]
    given = Given(data_dir=data_dir)
    done = []
    with watching(cells, quiet) as progress:
        for cell in cells:
            before = find_run(cell, given, runs)
            finished, last = (before.finished, before.last_round) if before is not None else (False, 0)
            note = "was finished already" if finished else f"went on after round {last}" if last else ""
            done.append((result(run_cell(cell, given, runs=runs, progress=progress)), note))
    if as_json:
        rows = [one.to_json() | {"note": note} for one, note in done]
        click.echo(words.as_json({"name": experiment.name, "label": label, "runs": rows}))
    else:
        screen = terminal.screen()
        screen.print(terminal.results(label, [one for one, _ in done], screen.width))
        for one, note in done:
            click.echo(f"seed {one.seed}: {one.path}" + (f"  ({note})" if note else ""))


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE | RUN…")
@with_options(
    set_option, runs_option, data_dir_option, jobs_option, live_option, track_option, quiet_option, json_option
)
def compare(
    paths: tuple[str, ...],
    settings: tuple[str, ...],
    runs: str,
    data_dir: str | None,
    jobs: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compare the rows of an experiment; run what is missing.

    FILE is an experiment in TOML: its base and its variants are the rows. Or give the directories of finished RUNs, which are only
    read.
    """
    from pathlib import Path

    folders = [path for path in paths if Path(path).is_dir()]
    if not folders and len(paths) == 1:
        _compare(experiment_of(paths[0], settings), runs, data_dir, jobs, quiet, as_json)
        return
    if len(folders) < len(paths):
        odd = next(path for path in paths if path not in folders)
        raise UsageError(f"{odd}: not a run directory; give one experiment file, or run directories only")
    if settings:
        raise UsageError(
            f"--set {settings[0]!r}: run directories are only read; leave it out, or give an experiment file"
        )
    from fedcohort.study.side_by_side import read

    _print_comparison(read(folders), as_json)


@click.command()
@click.argument("file", required=False)
@click.option(
    "--over",
    multiple=True,
    metavar="KEY=[V, …]",
    help="Add a setting to the grid, such as 'selection.k=[1, 3, 6]'; repeatable.",
)
@with_options(
    set_option, runs_option, data_dir_option, jobs_option, live_option, track_option, quiet_option, json_option
)
def sweep(
    file: str | None,
    over: tuple[str, ...],
    settings: tuple[str, ...],
    runs: str,
    data_dir: str | None,
    jobs: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run every row of an experiment for every point of its grid.

    The grid is the [sweep] table of FILE and what --over adds; every row is run for every combination, under every seed. Without FILE
    the quickstart is swept.
    """
    experiment = experiment_of(file, settings)
    if over:
        from fedcohort.experiment import Experiment

        grid = {**experiment.sweep, **_grid(over)}
        experiment = Experiment(**(experiment.to_dict() | {"sweep": grid}))
    if not experiment.sweep:
        raise UsageError(
            "nothing to sweep: give --over 'selection.k=[1, 3, 6]', or a [sweep] table in an experiment file"
        )
    _compare(experiment, runs, data_dir, jobs, quiet, as_json)


def _grid(over: Sequence[str]) -> dict[str, Any]:
    from fedcohort.experiment import parse_overrides

    grid: dict[str, Any] = {}
    for text in over:
        values: Any = parse_overrides([text], "--over", "selection.k=[1, 3, 6]")
        key = text.partition("=")[0].strip()
        for part in key.split("."):
            values = values[part]
        if not isinstance(values, list):
            raise UsageError(f"--over {text!r}: give a list of values, such as 'selection.k=[1, 3, 6]'")
        grid[key] = values
    return grid


def _compare(experiment: "Experiment", runs: str, data_dir: str | None, jobs: int, quiet: bool, as_json: bool) -> None:
    from fedcohort.runs.given import Given
    from fedcohort.study.compare import compare

    if jobs > 1 and click.get_current_context().meta.get("fedcohort.track"):
        raise UsageError(f"--jobs {jobs}: trackers are told by one process; leave out --track, or take --jobs 1")
    with watching(experiment.cells(), quiet) as progress:
        compared = compare(experiment, Given(data_dir=data_dir), runs=runs, progress=progress, jobs=jobs)
    _print_comparison(compared, as_json)


def _print_comparison(compared: "Comparison", as_json: bool) -> None:
    from fedcohort.core import words
    from fedcohort.report import terminal

    if as_json:
        click.echo(words.as_json(compared.to_json()))
    else:
        screen = terminal.screen()
        screen.print(terminal.comparison(compared, screen.width))
        click.echo(compared.place)
