"""``fedcohort run``, ``compare`` and ``sweep``: play the runs that are missing, and print the results."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fedcohort.cli.chosen_experiment import experiment_of, reference_label, row_of
from fedcohort.cli.json_schema import print_document
from fedcohort.cli.options import (
    data_dir_option,
    jobs_option,
    json_option,
    live_option,
    over_option,
    partial_option,
    quiet_option,
    reference_option,
    runs_option,
    seed_option,
    set_option,
    track_option,
    trust_option,
    variant_option,
    with_options,
)
from fedcohort.cli.output import echo
from fedcohort.cli.table_files import csv_option, latex_option
from fedcohort.cli.watch_runs import watching
from fedcohort.core.errors import UsageError

if TYPE_CHECKING:
    from fedcohort.experiment import Cell, Experiment
    from fedcohort.record import Run
    from fedcohort.study.comparison import Comparison
    from fedcohort.study.health import Finding
    from fedcohort.study.measured_values import Result

__all__ = ["compare", "grid_of", "run", "sweep"]

measure_option = click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="NAME",
    help="Also print the differences in this measure, with verdicts, such as worst_client_accuracy or bytes; repeatable.",
)


@click.command()
@click.argument("file", required=False)
@with_options(
    variant_option, seed_option, set_option, runs_option, data_dir_option, trust_option, live_option, track_option, quiet_option,
    json_option,
)  # fmt: skip
def run(
    file: str | None,
    variant: str | None,
    seed: int | None,
    settings: tuple[str, ...],
    runs: str,
    data_dir: str | None,
    trust: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run one row of an experiment, under all its seeds or one.

    FILE is an experiment in TOML; without it, the quickstart is run. An interrupted run resumes after its last checkpoint, and a
    finished run is not repeated.
    """
    from fedcohort.experiment import Cell
    from fedcohort.experiment.pairings import check_row
    from fedcohort.report import terminal

    label, experiment = row_of(experiment_of(file, settings, trust), variant)
    check_row(label, experiment.selection.build(), experiment.algorithm.build())
    seeds = experiment.all_seeds if seed is None else [seed]
    cells = [Cell(label, each, experiment.single(each)) for each in seeds]
    played, notes = _played(cells, runs, data_dir, trust, quiet)
    results, findings = _results(label, experiment, played)
    if as_json:
        rows = [result.to_json() | {"note": note} for result, note in zip(results, notes, strict=True)]
        health = [finding.to_json() for finding in findings]
        named = {"name": experiment.name, "label": label, "health": health, "runs": rows}
        print_document("run", named)
        return
    screen = terminal.screen()
    screen.print(terminal.results(label, results, findings, screen.width))
    for result, note in zip(results, notes, strict=True):
        echo(f"seed {result.seed}: {result.path}" + (f"  ({note})" if note else ""))


def _played(
    cells: "Sequence[Cell]", runs: str, data_dir: str | None, trust: bool, quiet: bool
) -> "tuple[dict[int, Run], list[str]]":
    """Play cells one after another; the runs by their seeds, and notes about those that existed before."""
    from fedcohort.experiment.given_objects import Given
    from fedcohort.runs.find_run import find_run
    from fedcohort.runs.play_run import run_cell

    given, played, notes = Given(data_dir=data_dir), {}, []
    with watching(cells, quiet) as progress:
        for cell in cells:
            notes.append(_note(find_run(cell, given, runs)))
            played[cell.seed] = run_cell(cell, given, runs=runs, progress=progress, trust=trust)
    return played, notes


def _results(label: str, experiment: "Experiment", played: "dict[int, Run]") -> "tuple[list[Result], list[Finding]]":
    """The results of the runs of a row, by ascending seeds, and what a comparison says is wrong with them.

    Nothing is compared, so that findings about the number of seeds are left out.
    """
    from fedcohort.study.comparison import Comparison, Row

    compared = Comparison(experiment.name, (Row(label, experiment, played),))
    return compared.results[label], [finding for finding in compared.health if finding.kind != "few seeds"]


def _note(before: "Run | None") -> str:
    """How much of a run existed before the command."""
    if before is None:
        return ""
    if before.finished:
        return "was already finished"
    last = before.query("SELECT COALESCE(MAX(round), 0) FROM checkpoints")[0][0]
    return f"resumed after round {last}" if last else ""


@click.command()
@click.argument("paths", nargs=-1, metavar="[FILE | RUN…]")
@with_options(
    set_option, runs_option, data_dir_option, trust_option, jobs_option, partial_option, live_option, track_option, quiet_option,
    reference_option, measure_option, latex_option, csv_option, json_option,
)  # fmt: skip
def compare(
    paths: tuple[str, ...],
    settings: tuple[str, ...],
    runs: str,
    data_dir: str | None,
    trust: bool,
    jobs: int,
    partial: bool,
    quiet: bool,
    measures: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare the rows of an experiment; run those that are missing.

    FILE is an experiment in TOML: its base and its variants are the rows. Without it, the quickstart is compared: three strategies
    on the embedded digits. Instead, you can give the directories of finished RUNs, or folders of them, which are not changed; with
    --partial, they need not be finished.
    """
    from pathlib import Path

    folders = [path for path in paths if Path(path).is_dir()]
    if not folders and len(paths) <= 1:
        if partial:
            raise UsageError(
                "--partial: missing rounds of an experiment are run; leave it out, or give run directories"
            )
        _check_exists(paths)
        experiment = experiment_of(paths[0] if paths else None, settings, trust, variants=True)
        compared = _compared(experiment, measures, runs, data_dir, trust, jobs, quiet)
        _print_comparison(compared, measures, as_json)
        return
    if len(folders) < len(paths):
        other = next(path for path in paths if path not in folders)
        raise UsageError(f"{other}: not a run directory; give one experiment file, or run directories only")
    if settings:
        raise UsageError(
            f"--set {settings[0]!r}: run directories are only read; leave it out, or give an experiment file"
        )
    from fedcohort.report.data.runs_on_disk import expanded
    from fedcohort.study.compare_existing_runs import read

    _print_comparison(read(expanded(folders), partial=partial, reference=reference_label()), measures, as_json)


@click.command()
@click.argument("file", required=False)
@with_options(
    over_option,
    set_option,
    runs_option,
    data_dir_option,
    trust_option,
    jobs_option,
    live_option,
    track_option,
    quiet_option,
    reference_option,
    measure_option,
    latex_option,
    csv_option,
    json_option,
)
def sweep(
    file: str | None,
    over: tuple[str, ...],
    settings: tuple[str, ...],
    runs: str,
    data_dir: str | None,
    trust: bool,
    jobs: int,
    quiet: bool,
    measures: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run every row of an experiment for every point of a grid.

    The grid is the [sweep] table of FILE and the settings of --over. Every row is run for every combination of values and every
    seed. Without FILE, the quickstart is used, with its three strategies.
    """
    experiment = experiment_of(file, settings, trust, variants=True)
    if over:
        experiment = experiment.with_overrides({"sweep": grid_of(over)})
    if not experiment.sweep:
        raise UsageError(
            "nothing to sweep: give --over 'selection.k=[1, 3, 6]', or a [sweep] table in an experiment file"
        )
    _print_comparison(_compared(experiment, measures, runs, data_dir, trust, jobs, quiet), measures, as_json)


def grid_of(over: Sequence[str]) -> dict[str, Any]:
    """The values of ``--over`` by dotted key."""
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


def _compared(
    experiment: "Experiment",
    measures: Sequence[str],
    runs: str,
    data_dir: str | None,
    trust: bool,
    jobs: int,
    quiet: bool,
) -> "Comparison":
    """Run the rows of an experiment that are missing, and compare all of them.

    Raises:
        UsageError: rows cannot be run, or have none of the measures.
    """
    from fedcohort.experiment.given_objects import Given
    from fedcohort.study.measure_differences import check_measures
    from fedcohort.study.run_comparison import compare

    given = Given(data_dir=data_dir)
    if jobs > 1 and click.get_current_context().meta.get("fedcohort.track"):
        raise UsageError(f"--jobs {jobs}: trackers work with one process only; leave out --track, or use --jobs 1")
    with watching(experiment.cells(), quiet) as progress:
        check_measures(measures, experiment, given)
        return compare(
            experiment,
            given,
            runs=runs,
            progress=progress,
            jobs=jobs,
            trust=trust,
            reference=reference_label(),
        )


def _print_comparison(compared: "Comparison", measures: Sequence[str], as_json: bool) -> None:
    """Print a comparison and its differences in some measures as tables, or as JSON, and write the files that --latex and --csv name.

    The files are written first, since the program that reads the table may end early; the table is also printed if they cannot be
    written.

    Raises:
        UsageError: a file cannot be written, or no run has one of the measures.
    """
    from fedcohort.report import terminal

    differences = compared.differences_in(measures)
    problems = _write_tables(compared)
    if as_json:
        of_measures = {"differences": {each.measure.name: each.to_json() for each in differences}} if measures else {}
        print_document("compare", compared.to_json() | of_measures)
    else:
        screen = terminal.screen()
        tables = [terminal.measure_table(compared, each, screen.width) for each in differences]
        screen.print(terminal.comparison(compared, screen.width), *tables, sep="\n")
        echo(compared.place)
    if problems:
        raise problems[0]


def _check_exists(paths: Sequence[str]) -> None:
    """Refuse a path of nothing, which can be meant as that of a file or of a run."""
    from pathlib import Path

    for path in paths:
        if not Path(path).exists():
            raise UsageError(f"{path}: no such experiment file (.toml) and no such run directory; give the path of one")


def _write_tables(compared: "Comparison") -> list[UsageError]:
    """Write the files that --latex and --csv name; the errors of those that cannot be written."""
    from fedcohort.report.tables.paper_tables import to_csv, to_latex

    options = click.get_current_context().meta
    problems = []
    for name, write in (("latex", to_latex), ("csv", to_csv)):
        if (file := options.get(f"fedcohort.{name}")) is not None:
            try:
                write(compared, file)
            except UsageError as error:
                problems.append(error)
    return problems
