"""``fedcohort race``: find the best row of an experiment with few runs."""

import click

from fedcohort.cli.chosen_experiment import experiment_of
from fedcohort.cli.json_schema import print_document
from fedcohort.cli.options import (
    data_dir_option,
    jobs_option,
    json_option,
    live_option,
    quiet_option,
    runs_option,
    set_option,
    trust_option,
    with_options,
)
from fedcohort.cli.output import echo
from fedcohort.cli.play_runs import grid_of
from fedcohort.cli.race_options import RACE_OPTIONS, row_option
from fedcohort.cli.watch_runs import watching

__all__ = ["race"]


@click.command()
@click.argument("file", required=False)
@with_options(
    *RACE_OPTIONS, row_option, set_option, runs_option, data_dir_option, trust_option, jobs_option, live_option, quiet_option,
    json_option,
)  # fmt: skip
def race(
    file: str | None,
    objective: tuple[str, ...],
    margin: tuple[float, ...],
    strategies: tuple[str, ...],
    over: tuple[str, ...],
    labels: tuple[str, ...],
    max_seeds: int,
    max_runs: int | None,
    minutes: float | None,
    confidence: float,
    settings: tuple[str, ...],
    runs: str,
    data_dir: str | None,
    trust: bool,
    jobs: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Recommend the best row of an experiment, with few runs.

    The rows of FILE race on the same seeds: the base and its variants, or all strategies that it can use if it has one row only. A row
    that is clearly worse gets no more seeds. The same command resumes a race, and uses runs that `fedcohort compare` has made.
    """
    import logging

    from fedcohort.experiment.given_objects import Given
    from fedcohort.racing.run_race import Limits, plan
    from fedcohort.report import terminal

    experiment = experiment_of(file, settings, trust)
    planned = plan(
        experiment,
        Given(data_dir=data_dir),
        objective=objective or "accuracy",
        margin=margin or None,
        limits=Limits(max_seeds, max_runs, minutes, confidence),
        strategies=strategies,
        over=grid_of(over),
        labels=labels,
    )
    with watching(planned.cells, quiet, at_most=True, most_runs=planned.most_runs) as progress:
        if file is not None and "seeds" in experiment.model_fields_set:
            logging.getLogger("fedcohort").info(
                "seeds = %d: has no effect on a race, which plays as many seeds as it needs, and at most %d (--max-seeds)",
                experiment.seeds, max_seeds,
            )  # fmt: skip
        result = planned.run(runs=runs, progress=progress, jobs=jobs, trust=trust)
    if as_json:
        print_document("race", result.to_json())
        return
    screen = terminal.screen()
    screen.print(terminal.race(result, screen.width))
    echo(f"Runs: {runs}")
