"""Functions that run experiments: one run, all seeds, a comparison, a race, advice on a federation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedcohort.api.results import Advice, Comparison, Race, Row, Run
from fedcohort.core.errors import UsageError, shown
from fedcohort.experiment import Cell, Experiment, quickstart
from fedcohort.experiment.given_objects import Given, GivenMeasures, PublicSamples
from fedcohort.experiment.replaced_settings import with_objects
from fedcohort.federation.data.datasets import Dataset
from fedcohort.runs.play_run import Progress, run_cell
from fedcohort.study import run_comparison as comparing

if TYPE_CHECKING:
    import pandas as pd

    from fedcohort.algorithms import Algorithm
    from fedcohort.models import AnyModel
    from fedcohort.selection import Selector


__all__ = ["advise", "compare", "open_run", "race", "run", "run_seeds"]


def run(
    experiment: Experiment | None = None,
    *,
    seed: int | None = None,
    data: Dataset | None = None,
    model: "AnyModel | None" = None,
    selector: "Selector | None" = None,
    algorithm: "Algorithm | None" = None,
    partition: object = None,
    latency: object = None,
    loss: object = None,
    data_dir: str | Path | None = None,
    public: "PublicSamples | None" = None,
    measures: "GivenMeasures | None" = None,
    runs: str | Path = "runs",
    progress: Progress | bool | None = None,
    trust: bool = False,
) -> Run:
    """Run the base of an experiment (without its variants and its sweep) under one seed.

    An interrupted run resumes after its last checkpoint. A finished run is opened, not repeated. To run all seeds, use
    :func:`run_seeds`; to run the variants as well, use :func:`compare`.

    Args:
        experiment: the experiment; by default the quickstart.
        seed: the seed of this run; ``experiment.seed`` by default. The setting ``experiment.seeds`` has no effect here.
        data: a data set in place of ``experiment.data``.
        model: a model in place of ``experiment.model``: a ``torch.nn.Module``, or a function that builds one.
        selector: a strategy in place of ``experiment.selection``. The run gets a copy; ``experiment.selection.k`` still applies.
        algorithm: an algorithm in place of ``experiment.algorithm``. The run gets a copy.
        partition, latency, loss: a class or an object in place of ``federation.partition``, ``systems.latency`` or ``training.loss``.
        data_dir: a local mirror of data sets in the layout of the Hugging Face Hub.
        public: the server's public samples: a data set (the training part is used), or only samples [N, ...]; see ``[public]``.
        measures: own measures besides those of ``measures.extra``: functions of the predictions on the test set, float64
            [samples, classes], and the labels [samples], that return one number; as a list, or by name.
        runs: folder of run directories.
        progress: called after every round with the cell of the experiment and the row of the record. By default, a notebook shows a
            bar; True shows one everywhere, and False none.
        trust: resume a run directory even if its copies of plug-in files are not the files of the experiment.

    Returns:
        The finished run.

    Raises:
        UsageError: a setting, the data or the run directory cannot be used.
        KeyboardInterrupt: Ctrl-C was pressed; everything up to the last finished round is kept, and the message says how to resume.
    """
    experiment = with_objects(experiment, partition=partition, latency=latency, loss=loss)
    given = Given(data, model, selector, algorithm, data_dir, public, measures)
    seeds = [experiment.seed if seed is None else seed]
    return _run(experiment, seeds, given, runs, progress, trust)[0]


def run_seeds(
    experiment: Experiment | None = None,
    *,
    data: Dataset | None = None,
    model: "AnyModel | None" = None,
    selector: "Selector | None" = None,
    algorithm: "Algorithm | None" = None,
    partition: object = None,
    latency: object = None,
    loss: object = None,
    data_dir: str | Path | None = None,
    public: "PublicSamples | None" = None,
    measures: "GivenMeasures | None" = None,
    runs: str | Path = "runs",
    progress: Progress | bool | None = None,
    trust: bool = False,
) -> list[Run]:
    """Run the base of an experiment (without its variants and its sweep) under all its seeds, as ``fedcohort run`` does.

    There are ``experiment.seeds`` seeds: ``experiment.seed``, ``experiment.seed + 1``, … The arguments are those of :func:`run`.

    Returns:
        One finished run for each seed.

    Raises:
        UsageError: a setting, the data or a run directory cannot be used.
        KeyboardInterrupt: Ctrl-C was pressed; everything up to the last finished round is kept, and the message says how to resume.
    """
    experiment = with_objects(experiment, partition=partition, latency=latency, loss=loss)
    given = Given(data, model, selector, algorithm, data_dir, public, measures)
    return _run(experiment, experiment.all_seeds, given, runs, progress, trust)


def _run(
    experiment: Experiment,
    seeds: Sequence[int],
    given: Given,
    runs: str | Path,
    progress: Progress | bool | None,
    trust: bool,
) -> list[Run]:
    """The runs of the base under some seeds."""
    from fedcohort.report.progress_bar import shown_progress

    label = experiment.label if given.selector is None else type(given.selector).__name__
    cells = [Cell(label, seed, experiment.single(seed)) for seed in seeds]
    played = []
    with shown_progress(progress) as (called, watch):
        watch.begin(len(cells))
        for cell in cells:
            played.append(Run(run_cell(cell, given, runs=runs, progress=called, trust=trust).path))
            watch.finished(cell)
    return played


def compare(
    experiment: Experiment | None = None,
    *,
    data: Dataset | None = None,
    model: "AnyModel | None" = None,
    selector: "Selector | Mapping[str, Selector] | None" = None,
    algorithm: "Algorithm | Mapping[str, Algorithm] | None" = None,
    partition: object = None,
    latency: object = None,
    loss: object = None,
    data_dir: str | Path | None = None,
    public: "PublicSamples | None" = None,
    measures: "GivenMeasures | None" = None,
    runs: str | Path = "runs",
    progress: Progress | bool | None = None,
    jobs: int = 1,
    trust: bool = False,
    reference: str = "",
) -> Comparison:
    """Run every row of an experiment under every seed, and compare the rows. Finished runs are not repeated.

    Args:
        experiment: the base is the first row and the variants are the others, each for every point of the sweep; by default the
            quickstart comparison, which has the strategies uniform, UCB, and select-by-loss.
        data: a data set in place of ``experiment.data``, for all rows.
        model: a model in place of ``experiment.model``, for all rows; see :func:`run`.
        selector: a strategy for the base row and all variants that do not set ``selection``; or strategies by label, each of which
            adds a row: the base with this strategy.
        algorithm: an algorithm, or algorithms by label, in the same way.
        partition, latency, loss: a class or an object in place of ``federation.partition``, ``systems.latency`` or ``training.loss``,
            for all rows that do not set their own; or several by label, each of which adds a variant.
        data_dir: a local mirror of data sets in the layout of the Hugging Face Hub.
        public: the server's public samples, for all rows; see :func:`run`.
        measures: own measures besides those of ``measures.extra``, for all rows; see :func:`run`.
        runs: folder of run directories.
        progress: as for :func:`run`; with several jobs, no function is called, and the bar counts runs.
        jobs: number of runs at the same time, each in a process of its own with its share of the cores. Objects from Python are sent
            to these processes.
        trust: resume run directories even if their copies of plug-in files are not the files of the experiment.
        reference: label of the row that the others are compared with; by default the first row with uniform selection, or else the
            first row.

    Raises:
        UsageError: a setting, the data or a run directory cannot be used, or no row has the label ``reference``.
        KeyboardInterrupt: Ctrl-C was pressed; everything up to the last finished round is kept, and the message says how to resume.
    """
    from fedcohort.report.progress_bar import shown_progress

    chosen = quickstart() if experiment is None else experiment
    experiment = with_objects(chosen, partition=partition, latency=latency, loss=loss)
    given = Given(data=data, model=model, data_dir=data_dir, public=public, measures=measures)
    with shown_progress(progress) as (called, watch):
        compared = comparing.compare(
            experiment, given, selector=selector, algorithm=algorithm, runs=runs, progress=called, jobs=jobs, trust=trust,
            watch=watch, reference=reference,
        )  # fmt: skip
    rows = (
        Row(row.label, row.experiment, {seed: Run(run.path) for seed, run in row.runs.items()}) for row in compared.rows
    )
    return Comparison(compared.name, tuple(rows), reference=reference)


def race(
    experiment: Experiment | None = None,
    *,
    objective: str | Sequence[str] = "accuracy",
    margin: float | Sequence[float] | None = None,
    max_seeds: int = 30,
    max_runs: int | None = None,
    minutes: float | None = None,
    confidence: float = 0.95,
    strategies: Sequence[str] = (),
    over: Mapping[str, Sequence[object]] | None = None,
    labels: Sequence[str] = (),
    data: Dataset | None = None,
    model: "AnyModel | None" = None,
    selector: "Selector | Mapping[str, Selector] | None" = None,
    algorithm: "Algorithm | Mapping[str, Algorithm] | None" = None,
    data_dir: str | Path | None = None,
    public: "PublicSamples | None" = None,
    runs: str | Path = "runs",
    progress: Progress | Literal[False] | None = None,
    jobs: int = 1,
    trust: bool = False,
) -> Race:
    """Find the best row of an experiment with few runs; if it has one row, all strategies that it can use race.

    Args:
        experiment: its rows race: the base and the variants, each for every point of the sweep; by default the quickstart, which has
            one row.
        objective: such as ``worst_accuracy``, ``accuracy@bytes=5e6`` or ``time@accuracy=0.85``; two give a Pareto front.
        margin: the difference that does not matter, for each objective: 0.005 of an accuracy, and 5% of a cost by default.
        max_seeds, max_runs, minutes: limits of the race, which resumes with larger ones. The setting ``seeds`` has no effect.
        confidence: probability that the best row is not dropped; with two objectives, that no row is dropped although no
            other row is better.
        strategies: names of the strategies that race, in place of all.
        over: dotted key → values; every row races with each combination.
        labels: labels of the rows that race, in place of all.
        progress: called after every round with the cell of the experiment and the row of the record; a race shows no bar.
        data, model, selector, algorithm, data_dir, public, runs, jobs, trust: as for :func:`compare`, with its errors.
    """
    from fedcohort.racing.run_race import Limits, plan

    planned = plan(
        with_objects(experiment), Given(data=data, model=model, data_dir=data_dir, public=public), objective=objective, margin=margin,
        limits=Limits(max_seeds, max_runs, minutes, confidence), selector=selector, algorithm=algorithm, strategies=strategies,
        over=over, labels=labels,
    )  # fmt: skip
    return Race(**vars(planned.run(runs=runs, progress=_called(progress), jobs=jobs, trust=trust)))


def _called(progress: Progress | Literal[False] | None) -> Progress | None:
    """What a race calls after every round.

    Raises:
        UsageError: it is no function. How many runs a race needs is open, so that it has no bar.
    """
    if progress is None or progress is False:
        return None
    if not callable(progress):
        raise UsageError(
            f"progress = {shown(progress)}: a race shows no bar; give a function of a cell and a row, or None"
        )
    return progress


def advise(
    clients: "str | Path | pd.DataFrame",
    *,
    data: str = "digits",
    settings: Mapping[str, object] | None = None,
    objective: str | Sequence[str] = "accuracy",
    margin: float | Sequence[float] | None = None,
    max_seeds: int = 30,
    max_runs: int | None = None,
    minutes: float | None = None,
    confidence: float = 0.95,
    strategies: Sequence[str] = (),
    over: Mapping[str, Sequence[object]] | None = None,
    with_race: bool = True,
    data_dir: str | Path | None = None,
    runs: str | Path = "runs",
    progress: Progress | Literal[False] | None = None,
    jobs: int = 1,
) -> Advice:
    """Recommend a strategy for the clients of a table: build their twin out of public data, and race strategies on it.

    Args:
        clients: a table with one row for each client, as a CSV or Parquet file or a pandas ``DataFrame``, with the column
            ``samples``, and optionally ``client``, ``class:NAME`` for each class, ``seconds`` or ``seconds_per_sample``,
            ``communication_seconds``, and ``available``.
        data: the public data, with at least as many classes as the table.
        settings: dotted key → value: settings of the twin, such as ``{"selection.k": 5, "rounds": 50}``.
        objective, margin, max_seeds, max_runs, minutes, confidence, strategies, over: as for :func:`race`.
        with_race: whether strategies race; otherwise only the twin and its likeness are made.
        data_dir, runs, jobs: as for :func:`compare`.
        progress: as for :func:`race`.

    Raises:
        UsageError: the table, the data or an argument cannot be used.
        KeyboardInterrupt: Ctrl-C was pressed; everything up to the last finished round is kept, and the message says how to resume.
    """
    from fedcohort.experiment.nested_values import nested
    from fedcohort.federation.client_table import client_table
    from fedcohort.racing.advice import plan_advice
    from fedcohort.racing.run_race import Limits

    planned = plan_advice(
        client_table(clients), Given(data_dir=data_dir), data=data, settings=nested(settings or {}, "settings"), objective=objective,
        margin=margin, limits=Limits(max_seeds, max_runs, minutes, confidence), strategies=strategies, over=over,
    )  # fmt: skip
    made = planned.run(runs=runs, progress=_called(progress), jobs=jobs) if with_race else planned.without_race()
    raced = None if made.race is None else Race(**vars(made.race))
    return Advice(made.twin, made.likeness, raced, made.costs)


def open_run(path: str | Path) -> Run:
    """Open a run directory for reading: ``.rounds``, ``.clients``, ``.decisions``, ``.ledger`` are DataFrames.

    Raises:
        UsageError: the directory holds no run, its record has another format, or a file in it was changed or damaged.
    """
    opened = Run(path)
    opened.verify()
    return opened
