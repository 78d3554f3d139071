"""Options that several commands share."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fedcohort.core.errors import UsageError, nearest

if TYPE_CHECKING:
    from fedcohort.experiment import Experiment

__all__ = [
    "data_dir_option",
    "experiment_of",
    "jobs_option",
    "json_option",
    "live_option",
    "quiet_option",
    "row_of",
    "runs_option",
    "set_option",
    "track_option",
    "variant_option",
    "with_options",
]

F = TypeVar("F", bound=Callable[..., Any])


def with_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


set_option: Callable[[F], F] = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replace a setting of the base, such as selection.k=5; repeatable.",
)


variant_option: Callable[[F], F] = click.option("--variant", metavar="LABEL", help="Take this row instead of the base.")


runs_option: Callable[[F], F] = click.option(
    "--runs", default="runs", show_default=True, metavar="DIR", help="Folder of run directories."
)


data_dir_option: Callable[[F], F] = click.option(
    "--data-dir",
    metavar="DIR",
    help="Local mirror of data sets in the layout of the Hugging Face Hub.  [default: $FEDCOHORT_DATA]",
)


quiet_option: Callable[[F], F] = click.option("--quiet", "-q", is_flag=True, help="No progress.")


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Keep an option for :func:`watching`, past the commands that only hand it on."""
    context.meta[f"fedcohort.{option.name}"] = value


live_option: Callable[[F], F] = click.option(
    "--live",
    is_flag=True,
    expose_value=False,
    callback=_remember,
    help="Serve a page with charts on this machine while the run goes on.",
)


track_option: Callable[[F], F] = click.option(
    "--track",
    multiple=True,
    expose_value=False,
    callback=_remember,
    metavar="TRACKER:WHERE",
    help="Also tell tensorboard:DIR or mlflow:URI after every round; repeatable.",
)


jobs_option: Callable[[F], F] = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Runs at the same time, in processes that share the cores.",
)


json_option: Callable[[F], F] = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of a table."
)


def experiment_of(file: str | None, settings: Sequence[str]) -> "Experiment":
    from fedcohort.experiment import Experiment, load, parse_overrides

    if file is not None:
        return load(file, settings)
    return Experiment().with_overrides(parse_overrides(settings))


def row_of(experiment: "Experiment", variant: str | None) -> "tuple[str, Experiment]":
    """The base, or the row called ``variant``, with all seeds."""
    from fedcohort.experiment import Experiment

    plain = Experiment(**(experiment.to_dict() | {"sweep": {}}))
    rows = dict(experiment.rows()) | dict(plain.rows())
    label = plain.label if variant is None else variant
    if label not in rows:
        raise UsageError(f"--variant {label!r}: the experiment has no such row; {nearest(label, rows)}")
    return label, rows[label]


played_with_option: Callable[[F], F] = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="The --set that an experiment file was run with; repeatable.",
)


def page_name(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    """A page's file as it was given, if its name says what it is.

    Raises:
        UsageError: it promises a picture, or nothing.
    """
    if name is not None and Path(name).suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o {name}: the page is HTML; give a name that ends in .html")
    return name
