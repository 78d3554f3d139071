"""Options that ``fedcohort race`` and ``fedcohort advise`` share."""

import click

from fedcohort.cli.option_values import POSITIVE, Number
from fedcohort.cli.options import Option, over_option

__all__ = ["RACE_OPTIONS", "row_option"]

objective_option: Option = click.option(
    "--objective",
    multiple=True,
    metavar="OBJECTIVE",
    help="What decides, such as worst_accuracy, accuracy@bytes=5e6 or time@accuracy=0.85; two give a Pareto front.  "
    "[default: accuracy]",
)

margin_option: Option = click.option(
    "--margin",
    type=Number(float, "a number above 0 and below 1, such as 0.005", lambda number: 0 < number < 1),
    multiple=True,
    metavar="D",
    help="Difference that does not matter, one for each objective.  [default: 0.005 of an accuracy, 0.05 of a cost]",
)

strategy_option: Option = click.option(
    "--strategy", "strategies", multiple=True, metavar="NAME", help="Race only these strategies; repeatable."
)

row_option: Option = click.option(
    "--row", "labels", multiple=True, metavar="LABEL", help="Race only the rows with these labels; repeatable."
)

max_seeds_option: Option = click.option(
    "--max-seeds",
    type=Number(int, "a whole number from 2 to 10,000", lambda number: 2 <= number <= 10_000),
    default=30,
    show_default=True,
    metavar="N",
    help="Largest number of seeds of a row.",
)

max_runs_option: Option = click.option(
    "--max-runs",
    type=POSITIVE,
    metavar="N",
    help="Largest number of runs, including those that exist.",
)

minutes_option: Option = click.option(
    "--minutes",
    type=Number(float, "a number of minutes above 0, such as 60", lambda number: 0 < number < float("inf")),
    metavar="M",
    help="Limit of wall time: no seed begins that would probably end later.",
)

confidence_option: Option = click.option(
    "--confidence",
    type=Number(float, "a number of at least 0.5 and below 1, such as 0.95", lambda number: 0.5 <= number < 1),
    default=0.95,
    show_default=True,
    metavar="P",
    help="Probability that the best row is not dropped; with two objectives, that no row is dropped although no other is better.",
)

RACE_OPTIONS: tuple[Option, ...] = (
    objective_option, margin_option, strategy_option, over_option, max_seeds_option, max_runs_option, minutes_option,
    confidence_option,
)  # fmt: skip
"""What decides a race, which rows race, and when it ends, in the order of the help."""
