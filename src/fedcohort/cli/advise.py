"""``fedcohort advise``: recommend a strategy for the clients of a table, by a race on their twin."""

import click

from fedcohort.cli.json_schema import print_document
from fedcohort.cli.options import (
    Option,
    data_dir_option,
    file_name,
    jobs_option,
    json_option,
    live_option,
    quiet_option,
    runs_option,
    set_option,
    with_options,
)
from fedcohort.cli.output import echo
from fedcohort.cli.play_runs import grid_of
from fedcohort.cli.race_options import RACE_OPTIONS
from fedcohort.cli.watch_runs import watching
from fedcohort.core.files.durable_files import write_named_file

__all__ = ["advise"]


data_option: Option = click.option(
    "--data",
    default="digits",
    show_default=True,
    metavar="NAME",
    help="Public data of the twin, with at least as many classes as the table; `fedcohort data list` lists names.",
)

save_option: Option = click.option(
    "--save",
    metavar="FILE.toml",
    callback=file_name("--save", "an experiment is a TOML file", ".toml"),
    help="Also write the twin as an experiment.",
)

no_race_option: Option = click.option(
    "--no-race", is_flag=True, help="Only show the twin and how similar it is to your clients."
)


@click.command()
@click.argument("clients", metavar="CLIENTS")
@with_options(
    data_option, *RACE_OPTIONS, set_option, save_option, no_race_option, runs_option, data_dir_option, jobs_option, live_option,
    quiet_option, json_option,
)  # fmt: skip
def advise(
    clients: str,
    data: str,
    objective: tuple[str, ...],
    margin: tuple[float, ...],
    strategies: tuple[str, ...],
    over: tuple[str, ...],
    max_seeds: int,
    max_runs: int | None,
    minutes: float | None,
    confidence: float,
    settings: tuple[str, ...],
    save: str | None,
    no_race: bool,
    runs: str,
    data_dir: str | None,
    jobs: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Recommend a strategy for the clients of a table.

    CLIENTS is a CSV or Parquet file with one row for each client: samples, and optionally client, class:NAME for each class,
    seconds or seconds_per_sample, communication_seconds, and available (share of rounds). A twin of the federation is built out of
    public data, compared with the table, and all strategies that it can use race on it. The same command resumes a race.
    """
    from fedcohort.experiment import parse_overrides
    from fedcohort.experiment.given_objects import Given
    from fedcohort.federation.client_table import client_table
    from fedcohort.racing.advice import plan_advice
    from fedcohort.racing.run_race import Limits
    from fedcohort.report import terminal

    planned = plan_advice(
        client_table(clients),
        Given(data_dir=data_dir),
        data=data,
        settings=parse_overrides(settings),
        objective=objective or "accuracy",
        margin=margin or None,
        limits=Limits(max_seeds, max_runs, minutes, confidence),
        strategies=strategies,
        over=grid_of(over),
    )
    if save is not None:
        write_named_file(save, planned.twin.experiment.to_toml(), f"--save {save}")
    if no_race:
        made = planned.without_race()
    else:
        with watching(planned.planned.cells, quiet, at_most=True, most_runs=planned.planned.most_runs) as progress:
            made = planned.run(runs=runs, progress=progress, jobs=jobs)
    if as_json:
        print_document("advise", made.to_json())
        return
    screen = terminal.screen()
    screen.print(terminal.advice(made, screen.width))
    if not no_race:
        echo(f"Runs: {runs}")
