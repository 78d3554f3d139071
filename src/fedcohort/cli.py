"""The commands: parse, call, print. Everything heavy is imported inside the command that needs it."""

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fedcohort.core.errors import UsageError, nearest
from fedcohort.report.commands import figures, live, page_name, profile, report

if TYPE_CHECKING:
    from fedcohort.core.plugins import Table
    from fedcohort.experiment import Cell, Experiment
    from fedcohort.runs.play import Progress
    from fedcohort.study.comparison import Comparison

__all__ = ["cli", "main"]


def main() -> None:
    """The ``fedcohort`` command."""
    warnings.showwarning = _warn
    cli(prog_name="fedcohort")


class _Wrong(click.ClickException):
    """What users can get wrong: one line on standard error."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"fedcohort: error: {self.message}", err=True)


class _Stopped(click.ClickException):
    """Ctrl-C, which nobody got wrong."""

    exit_code = 130

    def show(self, file: Any = None) -> None:
        click.echo(f"fedcohort: {self.message}", err=True)


class _Commands(click.Group):
    """Commands in the order of their definition; a :class:`UsageError` ends them in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            raise _Wrong(str(error)) from None
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:  # one line like everything else that users can get wrong
            where = error.ctx.command_path if error.ctx is not None else "fedcohort"
            raise _Wrong(f"{error.format_message().rstrip('.')}; see `{where} --help`") from None
        except KeyboardInterrupt:
            raise _Stopped("interrupted; finished rounds are kept, and the same command goes on from there") from None


F = TypeVar("F", bound=Callable[..., Any])


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_set: Callable[[F], F] = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replace a setting of the base, such as selection.k=5; repeatable.",
)
_variant: Callable[[F], F] = click.option("--variant", metavar="LABEL", help="Take this row instead of the base.")
_runs: Callable[[F], F] = click.option(
    "--runs", default="runs", show_default=True, metavar="DIR", help="Folder of run directories."
)
_data_dir: Callable[[F], F] = click.option(
    "--data-dir",
    metavar="DIR",
    help="Local mirror of data sets in the layout of the Hugging Face Hub.  [default: $FEDCOHORT_DATA]",
)
_quiet: Callable[[F], F] = click.option("--quiet", "-q", is_flag=True, help="No progress.")


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Keep an option for :func:`_watching`, past the commands that only hand it on."""
    context.meta[f"fedcohort.{option.name}"] = value


_live: Callable[[F], F] = click.option(
    "--live",
    is_flag=True,
    expose_value=False,
    callback=_remember,
    help="Serve a page with charts on this machine while the run goes on.",
)
_track: Callable[[F], F] = click.option(
    "--track",
    multiple=True,
    expose_value=False,
    callback=_remember,
    metavar="TRACKER:WHERE",
    help="Also tell tensorboard:DIR or mlflow:URI after every round; repeatable.",
)
_jobs: Callable[[F], F] = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Runs at the same time, in processes that share the cores.",
)
_json: Callable[[F], F] = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of a table."
)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="fedcohort", message="%(prog)s %(version)s")
def cli() -> None:
    """Which clients should take part in the next federated round, and what did that choice cost and buy?"""


@cli.command()
@click.argument("file", required=False)
@_options(_variant, _set, _runs, _data_dir, _live, _track, _quiet, _json)
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
    from fedcohort.study.comparison import result

    label, experiment = _row(_experiment(file, settings), variant)
    cells = [dataclasses.replace(cell, label=label) for cell in experiment.cells()]
    given = Given(data_dir=data_dir)
    done = []
    with _watching(cells, quiet) as progress:
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


@cli.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE | RUN…")
@_options(_set, _runs, _data_dir, _jobs, _live, _track, _quiet, _json)
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
        _compare(_experiment(paths[0], settings), runs, data_dir, jobs, quiet, as_json)
        return
    if len(folders) < len(paths):
        odd = next(path for path in paths if path not in folders)
        raise UsageError(f"{odd}: not a run directory; give one experiment file, or run directories only")
    if settings:
        raise UsageError(
            f"--set {settings[0]!r}: run directories are only read; leave it out, or give an experiment file"
        )
    from fedcohort.study.comparison import read

    _print_comparison(read(folders), as_json)


@cli.command()
@click.argument("file", required=False)
@click.option(
    "--over",
    multiple=True,
    metavar="KEY=[V, …]",
    help="Add a setting to the grid, such as 'selection.k=[1, 3, 6]'; repeatable.",
)
@_options(_set, _runs, _data_dir, _jobs, _live, _track, _quiet, _json)
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
    experiment = _experiment(file, settings)
    if over:
        from fedcohort.experiment import Experiment

        grid = {**experiment.sweep, **_grid(over)}
        experiment = Experiment(**(experiment.to_dict() | {"sweep": grid}))
    if not experiment.sweep:
        raise UsageError(
            "nothing to sweep: give --over 'selection.k=[1, 3, 6]', or a [sweep] table in an experiment file"
        )
    _compare(experiment, runs, data_dir, jobs, quiet, as_json)


@cli.command("measures")
@click.argument("paths", nargs=-1, required=True, metavar="RUN…")
@click.option("--target", type=float, metavar="ACCURACY", help="Count rounds, time and bytes to this test accuracy.")
@click.option(
    "--conformal",
    type=float,
    metavar="ALPHA",
    help="Also measure prediction sets of this error rate; loads the data again.",
)
@_options(_data_dir, _json)
def measure(
    paths: tuple[str, ...], target: float | None, conformal: float | None, data_dir: str | None, as_json: bool
) -> None:
    """Show everything that run directories are judged by.

    Accuracy of classes and clients, cost of a target accuracy, fairness beside what chance gives, stability. Runs are only read.
    """
    from pathlib import Path

    from fedcohort import coverage
    from fedcohort.core import words
    from fedcohort.record import open_run
    from fedcohort.report import terminal

    runs = [open_run(path) for path in paths]
    found = [run.summary(target) for run in runs]
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


@cli.command()
@click.argument("path", metavar="RUN")
@click.option("--round", "round_", type=int, required=True, metavar="T", help="The round, from 1.")
@click.option("--client", type=int, metavar="ID", help="What it means for this client, numbered from 0.")
@_json
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


cli.add_command(report)
cli.add_command(figures)
cli.add_command(live)
cli.add_command(profile)


@cli.group()
def data() -> None:
    """Data sets, and how they are spread over clients."""


@data.command("describe")
@click.argument("file", required=False)
@click.option("--output", "-o", metavar="FILE.html", callback=page_name, help="Also write a page with pictures.")
@_options(_variant, _set, _data_dir, _json)
def describe_data(
    file: str | None,
    output: str | None,
    variant: str | None,
    settings: tuple[str, ...],
    data_dir: str | None,
    as_json: bool,
) -> None:
    """Show the clients before any training.

    FILE is an experiment in TOML; without it the quickstart's federation is shown, under its first seed.
    """
    from fedcohort.core import words
    from fedcohort.report import terminal
    from fedcohort.runs.given import Given
    from fedcohort.runs.prepare import look

    label, experiment = _row(_experiment(file, settings), variant)
    dataset, survey = look(experiment, Given(data_dir=data_dir))
    if as_json:
        click.echo(words.as_json(_partition_json(experiment, dataset, survey, terminal.quantiles(survey))))
    else:
        screen = terminal.screen()
        screen.print(terminal.partition(experiment, dataset, survey, screen.width))
    if output is not None:
        from fedcohort.report.pictures import pictures, write

        write(output, pictures(experiment, dataset, survey, label), quiet=as_json)


@data.command("list")
@_options(_data_dir, _json)
def list_data(data_dir: str | None, as_json: bool) -> None:
    """Show the data sets that have a name."""
    import os
    from pathlib import Path

    from fedcohort.core import words
    from fedcohort.federation.datasets import EMBEDDED, SOURCES
    from fedcohort.report import terminal

    mirror = data_dir or os.environ.get("FEDCOHORT_DATA")
    if mirror and not Path(mirror).is_dir():
        raise UsageError(f"{'--data-dir' if data_dir else 'FEDCOHORT_DATA'} = {mirror!r}: no such folder")
    known = [{"name": name, "from": "scikit-learn, embedded", "here": "yes"} for name in EMBEDDED]
    for name, sources in SOURCES.items():
        local = [source for source in sources if mirror and (Path(mirror) / source).is_dir()]
        where = f"mirror, {local[0]}" if local else "not in a mirror"
        known.append({"name": name, "from": f"Hugging Face Hub, {sources[-1]}", "here": where})
    if as_json:
        click.echo(words.as_json(known))
    else:
        terminal.screen().print(terminal.known_data(known))


@cli.command()
@click.argument("name", required=False)
@_json
def strategies(name: str | None, as_json: bool) -> None:
    """Show strategies, algorithms and everything else with a name.

    Each with its parameters, defaults, source, status, what it asks of clients, what they disclose and what it costs; only those
    called NAME where one is given, which may be of your own, 'path/to/file.py:Class'.
    """
    from fedcohort.core import words
    from fedcohort.core.plugins import from_file, is_file_name
    from fedcohort.experiment import Algorithm, Choice, Selection
    from fedcohort.report import terminal

    choices = sorted(Choice.__subclasses__(), key=lambda choice: (choice is not Selection, choice is not Algorithm))
    sections = {choice.table.kind: _entries(choice.table, name) for choice in choices}
    sections = {kind: entries for kind, entries in sections.items() if entries}
    if name is not None and is_file_name(name):
        found = from_file(name, "name")
        if not isinstance(found, type):
            raise UsageError(
                f"name = {name!r}: is a {type(found).__name__}; what has a name in an experiment is a class"
            )
        sections = {"your own": [_entry(name, found)]}
    if not sections:
        known = {known for choice in choices for known in choice.table}
        raise UsageError(f"{name}: nothing has this name; {nearest(str(name), known)}")
    if as_json:
        click.echo(words.as_json(sections))
    else:
        terminal.screen().print(terminal.plug_ins(sections))


# --- what the commands share -------------------------------------------------------------------------------------------------


def _experiment(file: str | None, settings: Sequence[str]) -> "Experiment":
    from fedcohort.experiment import Experiment, load, parse_overrides

    if file is not None:
        return load(file, settings)
    return Experiment().with_overrides(parse_overrides(settings))


def _row(experiment: "Experiment", variant: str | None) -> "tuple[str, Experiment]":
    """The base, or the row called ``variant``, with all seeds."""
    from fedcohort.experiment import Experiment

    plain = Experiment(**(experiment.to_dict() | {"sweep": {}}))
    rows = dict(experiment.rows()) | dict(plain.rows())
    label = plain.label if variant is None else variant
    if label not in rows:
        raise UsageError(f"--variant {label!r}: the experiment has no such row; {nearest(label, rows)}")
    return label, rows[label]


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
    from fedcohort.study.comparison import compare

    if jobs > 1 and click.get_current_context().meta.get("fedcohort.track"):
        raise UsageError(f"--jobs {jobs}: trackers are told by one process; leave out --track, or take --jobs 1")
    with _watching(experiment.cells(), quiet) as progress:
        compared = compare(experiment, data_dir=data_dir, runs=runs, progress=progress, jobs=jobs)
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


@contextmanager
def _watching(cells: "Sequence[Cell]", quiet: bool) -> "Iterator[Progress | None]":
    """Show how the runs get on; Ctrl-C ends them with exit code 130."""
    import logging

    from fedcohort.report import terminal
    from fedcohort.runs.play import Interrupted

    log = logging.getLogger("fedcohort")
    told: logging.Handler = logging.NullHandler()
    try:
        with _followed(cells), _trackers() as told_too, terminal.watching(cells, quiet=quiet) as shown:
            progress = _all_of([*([shown] if shown is not None else []), *told_too])
            if not quiet:
                told = logging.StreamHandler()  # to the standard error of now, which the bar lets through
                told.setFormatter(logging.Formatter("fedcohort: %(message)s"))
                log.setLevel(logging.INFO)
            log.addHandler(told)
            yield progress
    except Interrupted as stopped:
        raise _Stopped(str(stopped)) from None
    finally:
        log.removeHandler(told)


@contextmanager
def _followed(cells: "Sequence[Cell]") -> "Iterator[None]":
    """The live page, if ``--live`` asks for it."""
    context = click.get_current_context()
    if not context.meta.get("fedcohort.live"):
        yield
        return
    from fedcohort.report.live import beside

    with beside(context.params["runs"], cells[0].experiment.name) as address:
        click.echo(f"fedcohort: live at {address}", err=True)
        yield


@contextmanager
def _trackers() -> "Iterator[list[Any]]":
    """The trackers that ``--track`` asks for; what they buffer is written at the end."""
    asked = click.get_current_context().meta.get("fedcohort.track") or ()
    trackers = []
    if asked:
        from fedcohort.runs.trackers import tracker

        trackers = [tracker(text) for text in asked]
    try:
        yield trackers
    finally:
        for one in trackers:
            one.close()


def _all_of(watchers: "Sequence[Progress]") -> "Progress | None":
    """Tell everybody."""
    if len(watchers) < 2:
        return watchers[0] if watchers else None

    def tell(cell: "Cell", row: Any) -> None:
        for watcher in watchers:
            watcher(cell, row)

    return tell


def _entries(table: "Table", name: str | None) -> list[dict[str, Any]]:
    """What is known of each plug-in of a table, or of the one called ``name``; of one that is broken, what is wrong with it."""
    entries = []
    for known in table:
        if name not in (None, known):
            continue
        try:
            entries.append(_entry(known, table.find(known, "name")))
        except UsageError as broken:
            if name is not None:
                raise
            entries.append({"name": known, "summary": str(broken), "parameters": []})
    return entries


def _entry(name: str, found: Any) -> dict[str, Any]:
    import dataclasses
    import inspect

    from fedcohort.core.parameters import describe

    card = getattr(found, "card", None)
    return {
        "name": name,
        "summary": " ".join((inspect.getdoc(found) or "").partition("\n\n")[0].split()).replace("``", ""),
        **(dataclasses.asdict(card) if card is not None else {}),
        **({"needs": sorted(found.needs)} if hasattr(found, "needs") else {}),
        "parameters": [parameter._asdict() for parameter in describe(found)],
    }


def _partition_json(
    experiment: "Experiment", dataset: Any, survey: Any, quantiles: Mapping[str, Any]
) -> dict[str, Any]:
    description, report = experiment.to_dict(), survey.report
    section = description["federation"]["partition"]
    clients = [
        {
            "client": i,
            "samples": report.sizes[i],
            "counts": report.counts[i],
            "classes_held": report.num_classes[i],
            "largest_class": report.dominant[i] if report.dominant[i] >= 0 else None,
            "largest_class_share": report.dominant_share[i],
            "distance": report.distance[i],
            "held_out": survey.held_out[i],
            "wrong_labels": survey.wrong_labels[i],
            "time": survey.time[i],
            "sending": survey.sending[i],
            "shift": survey.shift[i] if survey.shift else None,
            "presence": survey.presence[i],
        }
        for i in range(len(report.sizes))
    ]
    return {
        "data": dataset.name,
        "classes": list(dataset.classes),
        "train_samples": dataset.num_train,
        "test_samples": len(dataset.test_labels),
        "partition": section,
        "label_noise": description["federation"]["label_noise"],
        "feature_shift": description["federation"]["feature_shift"],
        "systems": description["systems"],
        "dropped": report.dropped,
        "effective_alpha": "inf" if report.effective_alpha == math.inf else report.effective_alpha,  # null: undefined
        "seed": experiment.seed,
        "clients": clients,
        "quantiles": quantiles,
    }


def _warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    print(f"fedcohort: warning: {' '.join(str(message).split())}", file=sys.stderr)
