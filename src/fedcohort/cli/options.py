"""Options of commands, and what their values stand for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fedcohort.cli.option_values import COUNT, POSITIVE, WHOLE, Number
from fedcohort.core.errors import UsageError
from fedcohort.core.files.paths import check_target, check_writable

__all__ = [
    "Option",
    "at_most_option",
    "client_option",
    "columns_option",
    "conformal_option",
    "data_dir_option",
    "expected_option",
    "file_name",
    "folder_option",
    "format_option",
    "jobs_option",
    "json_option",
    "live_option",
    "name_option",
    "only_option",
    "over_option",
    "page_option",
    "partial_option",
    "played_with_option",
    "port_option",
    "precision_option",
    "quiet_option",
    "reference_option",
    "remember",
    "report_option",
    "round_option",
    "rounds_option",
    "runs_option",
    "seconds_option",
    "seed_option",
    "set_option",
    "sizes_option",
    "target_option",
    "track_option",
    "trust_option",
    "until_closed_option",
    "variant_option",
    "with_options",
]

Option = Callable[[Callable[..., Any]], Callable[..., Any]]


def with_options(*options: Option) -> Option:
    """Add options to a command, in this order."""

    def decorate(function: Callable[..., object]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def remember(context: click.Context, option: click.Parameter, value: object) -> None:
    """Keep the value of an option for :func:`fedcohort.cli.watch_runs.watching`, without passing it through the command."""
    context.meta[f"fedcohort.{option.name}"] = value


def file_name(shown: str, rule: str, *endings: str) -> Callable[..., str | None]:
    """A callback for an option that names a file to write. It refuses names with other endings, and files that cannot be written.

    Args:
        shown: the option as messages name it.
        rule: why the name must have one of the endings, for the message.
        endings: the endings that the name may have; the message suggests the first one.
    """

    def checked(_context: click.Context, option: click.Parameter, name: str | None) -> str | None:
        if name is not None:
            if Path(name).suffix.lower() not in endings:
                raise UsageError(f"{shown} {name}: {rule}; give a name that ends in {endings[0]}")
            check_target(name, option.opts[0])
            check_writable(name, option.opts[0])
        return name

    return checked


_page_name = file_name("-o", "the page is HTML", ".html", ".htm")

# the experiment

set_option: Option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replace a setting of the base, such as selection.k=5; repeatable.",
)

played_with_option: Option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A --set option that the experiment file was run with; repeatable.",
)

variant_option: Option = click.option("--variant", metavar="LABEL", help="Use this row instead of the base.")

seed_option: Option = click.option(
    "--seed",
    type=COUNT,
    metavar="N",
    help="Run only this seed, instead of all seeds of the experiment.",
)

over_option: Option = click.option(
    "--over",
    multiple=True,
    metavar="KEY=[V, …]",
    help="Add a setting to the grid, such as 'selection.k=[1, 3, 6]'; repeatable.",
)

trust_option: Option = click.option(
    "--trust-plugins",
    "trust",
    is_flag=True,
    help="Run the plug-in files that came with a run directory; read them first.",
)

# where data and runs are

runs_option: Option = click.option(
    "--runs", default="runs", show_default=True, metavar="DIR", help="Folder of run directories."
)

data_dir_option: Option = click.option(
    "--data-dir",
    metavar="DIR",
    help="Local mirror of data sets in the layout of the Hugging Face Hub.  [default: $FEDCOHORT_DATA]",
)

# while runs are played

jobs_option: Option = click.option(
    "--jobs",
    type=POSITIVE,
    default=1,
    show_default=True,
    metavar="N",
    help="Number of runs at the same time, in processes that share the cores.",
)

quiet_option: Option = click.option("--quiet", "-q", is_flag=True, help="Do not show progress.")

live_option: Option = click.option(
    "--live",
    is_flag=True,
    expose_value=False,
    callback=remember,
    help="Serve a page with charts on this machine during the run.",
)

track_option: Option = click.option(
    "--track",
    multiple=True,
    expose_value=False,
    callback=remember,
    metavar="TRACKER:WHERE",
    help="Log every round to tensorboard:DIR, mlflow:URI or wandb:DIR; repeatable.",
)

# what is printed or written

json_option: Option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON document instead of a table; `fedcohort schema` describes it.",
)

partial_option: Option = click.option(
    "--partial", is_flag=True, help="Compare unfinished RUNs up to the last round that all have played."
)

page_option: Option = click.option(
    "--output", "-o", metavar="FILE.html", callback=_page_name, help="Also write a page with charts."
)

report_option: Option = click.option(
    "--output",
    "-o",
    default="report.html",
    show_default=True,
    metavar="FILE.html",
    callback=_page_name,
    help="File of the page.",
)

format_option: Option = click.option(
    "--format",
    "format_",
    type=click.Choice(["pdf", "svg", "png"]),
    default="pdf",
    show_default=True,
    help="Format of the files.",
)

folder_option: Option = click.option(
    "--output", "-o", "--out", "out", default="figures", show_default=True, metavar="DIR", help="Folder of the files."
)

columns_option: Option = click.option(
    "--columns",
    type=Number(int, "1 or 2", lambda number: number in (1, 2)),
    default=1,
    show_default=True,
    metavar="1|2",
    help="Width of a figure in columns of the paper.",
)

only_option: Option = click.option(
    "--only", multiple=True, metavar="NAME", help="Write only this figure, such as accuracy; repeatable."
)

reference_option: Option = click.option(
    "--reference",
    metavar="LABEL",
    callback=remember,
    expose_value=False,
    help="Row that the others are compared with.  [default: the first with uniform selection, or else the first]",
)

# measures and decisions of runs

target_option: Option = click.option(
    "--target",
    type=Number(float, "a test accuracy above 0 and at most 1, such as 0.8", lambda number: 0 < number <= 1),
    metavar="ACCURACY",
    help="Target test accuracy for rounds, time and bytes.",
)

conformal_option: Option = click.option(
    "--conformal",
    type=Number(float, "an error rate between 0 and 1, such as 0.1", lambda number: 0 < number < 1),
    metavar="ALPHA",
    help="Also measure prediction sets with this error rate; this loads the data again.",
)

round_option: Option = click.option(
    "--round", "round_", type=WHOLE, required=True, metavar="T", help="The round, from 1."
)

client_option: Option = click.option(
    "--client", metavar="ID", help="Explain the decision for this client: its number, from 0, or its name in the data."
)

# the live page

port_option: Option = click.option(
    "--port",
    type=Number(int, "a port from 1 to 65535, or 0 for any", lambda number: 0 <= number <= 65535),
    metavar="N",
    help="Port of the page; 0 means any.  [default: 8765 or the next free port]",
)

name_option: Option = click.option(
    "--name", metavar="NAME", help="Show this experiment first.  [default: the one that changed last]"
)

until_closed_option: Option = click.option("--until-closed", is_flag=True, hidden=True)

expected_option: Option = click.option("--expected", type=(int, int, int), hidden=True)
"""Numbers of rounds of all runs together, of runs, and of differences to references that the command that started the server is
going to make."""

at_most_option: Option = click.option("--at-most", is_flag=True, hidden=True)
"""The command plays at most ``--expected`` rounds and runs: a race ends when it is decided."""

# profiles of mini-batch sizes

sizes_option: Option = click.option(
    "--batch-size",
    "sizes",
    type=POSITIVE,
    multiple=True,
    metavar="B",
    help="A size to measure; repeatable.  [default: 8, 16, 32, 64]",
)

rounds_option: Option = click.option(
    "--rounds",
    type=COUNT,
    default=3,
    show_default=True,
    metavar="N",
    help="Rounds to play for the accuracy; 0 means none.",
)

seconds_option: Option = click.option(
    "--seconds",
    type=Number(float, "a number of seconds above 0, such as 20", lambda number: number > 0),
    default=20.0,
    show_default=True,
    metavar="S",
    help="Maximum time for the passes of one size.",
)

precision_option: Option = click.option(
    "--precision",
    type=Number(float, "a number between 0 and 1, such as 0.05", lambda number: 0 < number < 1),
    default=0.05,
    show_default=True,
    metavar="P",
    help="Half the width of the 95% interval at which measuring ends, as a share of the mean.",
)
