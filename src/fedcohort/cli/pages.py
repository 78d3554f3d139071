"""``fedcohort report``, ``figures``, ``live`` and ``profile``: pages and charts, and the measurement of mini-batch sizes."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedcohort.cli.awaited_runs import awaited
from fedcohort.cli.chosen_experiment import experiment_of, reference_label
from fedcohort.cli.json_schema import print_document
from fedcohort.cli.options import (
    at_most_option,
    columns_option,
    data_dir_option,
    expected_option,
    folder_option,
    format_option,
    json_option,
    name_option,
    only_option,
    page_option,
    played_with_option,
    port_option,
    precision_option,
    reference_option,
    report_option,
    rounds_option,
    runs_option,
    seconds_option,
    set_option,
    sizes_option,
    trust_option,
    until_closed_option,
    with_options,
)
from fedcohort.cli.output import echo
from fedcohort.core.errors import UsageError
from fedcohort.core.files.paths import check_target, check_writable

if TYPE_CHECKING:
    from fedcohort.report.data.runs_on_disk import Found
    from fedcohort.report.figures.chart_style import Look
    from fedcohort.report.figures.figure import Figure

__all__ = ["figures", "live", "profile", "report"]


@click.command()
@click.argument("paths", nargs=-1, metavar="[RUN…]")
@with_options(report_option, reference_option, runs_option, played_with_option)
def report(paths: tuple[str, ...], output: str, runs: str, settings: tuple[str, ...]) -> None:
    """Write a page about runs: results, costs and decisions.

    The page is one file, which needs no network. RUN is a run directory, a folder of run directories, or an experiment file with
    runs in --runs; without RUN, all runs in --runs are used. Unfinished runs can be included.
    """
    from fedcohort.report.data.report_data import gather
    from fedcohort.report.data.runs_on_disk import found_and_missing
    from fedcohort.report.page import page
    from fedcohort.report.write_page import write_page

    command = "fedcohort " + shlex.join(sys.argv[1:]) if Path(sys.argv[0]).name == "fedcohort" else None
    found = found_and_missing(paths, runs, settings)
    story = gather(found.runs, reference=reference_label(), missing=found.missing, planned=found.planned)
    write_page(output, page(story, command=command))
    _say_what_lacks(found)


def _say_what_lacks(found: "Found") -> None:
    """Say on standard error which runs of experiment files have not begun, and which rows have none of their own, if there are any."""
    from fedcohort.report.data.missing_runs import in_sentences

    for sentences in filter(None, (in_sentences(found.missing), found.shared)):
        echo(f"fedcohort: {sentences}", err=True)


@click.command()
@click.argument("paths", nargs=-1, metavar="[RUN…]")
@with_options(
    format_option, folder_option, columns_option, only_option, reference_option, runs_option, played_with_option
)
def figures(
    paths: tuple[str, ...],
    format_: str,
    out: str,
    columns: int,
    only: tuple[str, ...],
    runs: str,
    settings: tuple[str, ...],
) -> None:
    """Write every chart of the report as a file for papers.

    RUN is as for `fedcohort report`, or a JSON file that `fedcohort profile --json` wrote, for the charts of batch sizes. Figures have
    the width of one or two columns, black text, and dashes and symbols besides colors.
    """
    from fedcohort.report.figures.chart_style import paper
    from fedcohort.report.figures.paper_figures import CAPTIONS, chosen_figures, export

    check_target(out, "--output")
    check_writable(out, "--output", folder=True)
    look = paper(columns)
    charts, names, note = _figures(paths, runs, settings, look)
    for file in export(chosen_figures(charts, only, "--only "), Path(out), format_, look, names, note):
        echo(str(file))
    echo(str(Path(out) / CAPTIONS))


def _figures(
    paths: Sequence[str], runs: str, settings: Sequence[str], look: "Look"
) -> "tuple[list[Figure], dict[str, str], str]":
    """The charts of runs, and those of a profile if one of the paths is a JSON file; the names that charts of runs shorten; and a note
    about all charts of runs."""
    from fedcohort.report.charts.batch_sizes import profiles
    from fedcohort.report.charts.full_names import full_names
    from fedcohort.report.data.missing_runs import in_sentences
    from fedcohort.report.data.report_data import gather
    from fedcohort.report.data.runs_on_disk import found_and_missing
    from fedcohort.report.page_sections import about_single_rows
    from fedcohort.report.page_sections import figures as figures_of_runs
    from fedcohort.study.profile.batch_size_profile import Profile

    measured = [path for path in paths if Path(path).suffix.lower() == ".json"]
    if len(measured) > 1:
        raise UsageError(f"{', '.join(measured)}: give one profile at a time; their figures have the same names")
    others = [path for path in paths if path not in measured]
    charts: list[Figure] = []
    names: dict[str, str] = {}
    note = ""
    if others or not measured:
        found = found_and_missing(others, runs, settings)
        story = gather(found.runs, reference=reference_label(), missing=found.missing, planned=found.planned)
        charts += figures_of_runs(story, look)
        names = full_names(story)
        told = [about_single_rows(story), in_sentences(found.missing, command=False), found.shared]
        note = " ".join(filter(None, told))
        _say_what_lacks(found)
    if measured:
        charts += profiles(Profile.load(measured[0]), look)
    return charts, names, note


@click.command()
@with_options(runs_option, port_option, name_option, until_closed_option, expected_option, at_most_option)
def live(
    runs: str,
    port: int | None,
    name: str | None,
    until_closed: bool,
    expected: tuple[int, int, int] | None,
    at_most: bool,
) -> None:
    """Serve the report of runs while they are played.

    The page updates itself. It can be opened on this machine only, and nothing is written. Ctrl-C ends the command.
    """
    import threading

    from fedcohort.report.live.live_progress import Planned
    from fedcohort.report.live.live_server import serve

    if Path(runs).is_file():
        raise UsageError(
            f"--runs {runs}: is a file; give the folder of the runs, and --name for those of one experiment"
        )
    server = serve(runs, port, name, planned=Planned(*expected, at_most) if expected else None)
    echo(server.address)
    sys.stdout.flush()
    if not until_closed:
        echo("Open this address in a browser on this machine. Ctrl-C ends the page.", err=True)
        if waiting := awaited(runs, name):
            echo(waiting, err=True)

    def until_input_ends() -> None:
        sys.stdin.read()
        server.finish()

    if until_closed:  # the run that started this process has ended when standard input is closed
        threading.Thread(target=until_input_ends, daemon=True).start()
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


@click.command()
@click.argument("file", required=False)
@with_options(
    sizes_option,
    rounds_option,
    seconds_option,
    precision_option,
    page_option,
    set_option,
    data_dir_option,
    trust_option,
    json_option,
)
def profile(
    file: str | None,
    sizes: tuple[int, ...],
    rounds: int,
    seconds: float,
    precision: float,
    output: str | None,
    settings: tuple[str, ...],
    data_dir: str | None,
    trust: bool,
    as_json: bool,
) -> None:
    """Measure mini-batch sizes on this machine, and recommend one.

    FILE is an experiment in TOML; without it, the quickstart is measured. Each size is measured in a fresh process: the time of a
    mini-batch of each client, samples per second, peak memory, and the accuracy after a few rounds.
    """
    from fedcohort.report import terminal
    from fedcohort.study.profile.batch_size_profile import SIZES
    from fedcohort.study.profile.batch_size_profile import profile as measure

    measured = measure(
        experiment_of(file, settings, trust), sizes=sizes or SIZES, rounds=rounds, seconds=seconds, precision=precision,
        data_dir=data_dir, progress=lambda size: echo(f"batch size {size} …", err=True),
    )  # fmt: skip
    try:
        if as_json:
            print_document("profile", measured.to_json())
        else:
            screen = terminal.screen()
            screen.print(terminal.profile(measured, screen.width))
    finally:  # also if the program that reads the table has ended
        if output is not None:
            from fedcohort.report.charts.batch_sizes import profiles
            from fedcohort.report.figures.chart_style import PAGE
            from fedcohort.report.page import gallery
            from fedcohort.report.write_page import write_page

            text = gallery(
                "Batch sizes", measured.name, measured.advice, profiles(measured, PAGE), warnings=measured.warnings
            )
            write_page(output, text, quiet=as_json)
