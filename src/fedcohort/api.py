"""The Python interface: functions that run, compare and open experiments, and the runs and comparisons that they return."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcohort import record
from fedcohort.core.errors import UsageError, shown
from fedcohort.experiment import Cell, Experiment, quickstart
from fedcohort.federation.datasets import Dataset
from fedcohort.racing import result
from fedcohort.runs.given_objects import Given, GivenMeasures, PublicSamples
from fedcohort.runs.play_run import Progress, run_cell
from fedcohort.study import comparison
from fedcohort.study import run_comparison as comparing

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from rich.console import Console, ConsoleOptions, RenderableType

    from fedcohort.algorithms import Algorithm
    from fedcohort.models import AnyModel
    from fedcohort.selection import Selector
    from fedcohort.study.explain_decision import Explanation
    from fedcohort.study.summary import Summary

__all__ = ["Comparison", "Race", "Row", "Run", "compare", "open_run", "race", "run", "run_seeds"]


class Run(record.Run):
    """A run directory, open for reading. A notebook displays it as a report.

    Attributes:
        path: the directory.
    """

    def summary(self, target: float | None = None) -> "Summary":
        """All measures of the run: accuracy, cost of reaching a target, fairness compared with chance, stability.

        Args:
            target: the target test accuracy for rounds, time and bytes; by default ``measures.target_accuracy``, or the best accuracy
                of the run, rounded down to two decimals.

        Raises:
            UsageError: the run has no finished round.
        """
        from fedcohort.study.summary import summary

        return summary(self, target)

    def why(self, round: int, client: int | None = None) -> "Explanation":
        """Explain the decision of a round, for the whole round or for one client, as ``fedcohort why`` does.

        Args:
            round: the round, from 1.
            client: id of a client; by default, the whole round is explained.

        Returns:
            The explanation: its note, its candidates with their scores and terms, what clients were asked, and ``to_json()``.

        Raises:
            UsageError: the run has no such round or client, or the client was not available in that round.
        """
        from fedcohort.study.explain_decision import explain

        return explain(self, round, client)

    def participants(self) -> "pd.DataFrame":
        """Compare clients that trained and were admitted with clients that trained and were not, over all rounds.

        Each pair of a client and a round in which it trained counts once.

        Returns:
            A table of means. Rows: ``participants`` (admitted), ``others``, and ``correlation``, the correlation of the number with
            having been admitted. Columns: ``client_rounds`` (number of pairs), ``samples``, ``label_entropy`` (nats),
            ``dominant_share`` (share of the largest class), ``wrong_labels`` (a share), and the numbers that clients reported
            besides loss and accuracy, such as ``q_hat``.

        Raises:
            UsageError: the record has no class counts of the clients.
        """
        from fedcohort.study.participants import participants

        return participants(self)

    def _repr_html_(self) -> str:
        """The report, in a notebook."""
        from fedcohort.report.page import framed, page
        from fedcohort.report.report_data import gather

        return framed(page(gather([self])))


@dataclass(frozen=True)
class Row(comparison.Row):
    """One row of a comparison: its label, its experiment, and its runs by seed."""

    runs: Mapping[int, Run]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(comparison.Comparison):
    """Finished runs of several strategies, side by side. Printing it shows the table; ``.table`` and ``.rounds`` are DataFrames.

    Attributes:
        name: name of the experiment.
        rows: one row for each strategy, in the order of the experiment; differences are those from the reference row.
        note: a sentence about runs that are compared before they are finished; empty for finished runs.
        reference: label of the reference row; by default the first row with uniform selection, or else the first row. In a sweep,
            each row is compared with the reference at the same point of the grid.
    """

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        from fedcohort.report import terminal

        return f"{terminal.as_text(terminal.comparison(self, 100), 100)}\n{self.place}"

    def _repr_html_(self) -> str:
        from fedcohort.report.page import framed, page
        from fedcohort.report.report_data import gather

        runs = [row.runs[seed] for row in self.rows for seed in sorted(row.runs)]
        return framed(page(gather(runs, self.name, self.reference)))

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        from rich.text import Text

        from fedcohort.report import terminal

        yield terminal.comparison(self, options.max_width)
        yield Text(self.place, overflow="fold")


class Race(result.Race):
    """The result of a race, see :func:`race`."""

    def __str__(self) -> str:
        from fedcohort.report import terminal

        return terminal.as_text(terminal.race(self, 100), 100)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        from fedcohort.report import terminal

        yield terminal.race(self, options.max_width)


def run(
    experiment: Experiment | None = None,
    *,
    seed: int | None = None,
    data: Dataset | None = None,
    model: "AnyModel | None" = None,
    selector: "Selector | None" = None,
    algorithm: "Algorithm | None" = None,
    data_dir: str | Path | None = None,
    public: "PublicSamples | None" = None,
    measures: "GivenMeasures | None" = None,
    runs: str | Path = "runs",
    progress: Progress | None = None,
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
        data_dir: a local mirror of data sets in the layout of the Hugging Face Hub.
        public: the server's public samples: a data set (the training part is used), or only samples [N, ...]; see ``[public]``.
        measures: own measures besides those of ``measures.extra``: functions of the predictions on the test set, float64
            [samples, classes], and the labels [samples], that return one number; as a list, or by name.
        runs: folder of run directories.
        progress: called after every round with the cell of the experiment and the row of the record.
        trust: resume a run directory even if its copies of plug-in files are not the files of the experiment.

    Returns:
        The finished run.

    Raises:
        UsageError: a setting, the data or the run directory cannot be used.
        Interrupted: Ctrl-C was pressed; everything up to the last finished round is kept.
    """
    experiment = _checked(experiment)
    given = Given(data, model, selector, algorithm, data_dir, public, measures)
    return _run(experiment, experiment.seed if seed is None else seed, given, runs, progress, trust)


def run_seeds(
    experiment: Experiment | None = None,
    *,
    data: Dataset | None = None,
    model: "AnyModel | None" = None,
    selector: "Selector | None" = None,
    algorithm: "Algorithm | None" = None,
    data_dir: str | Path | None = None,
    public: "PublicSamples | None" = None,
    measures: "GivenMeasures | None" = None,
    runs: str | Path = "runs",
    progress: Progress | None = None,
    trust: bool = False,
) -> list[Run]:
    """Run the base of an experiment (without its variants and its sweep) under all its seeds, as ``fedcohort run`` does.

    There are ``experiment.seeds`` seeds: ``experiment.seed``, ``experiment.seed + 1``, … The arguments are those of :func:`run`.

    Returns:
        One finished run for each seed.

    Raises:
        UsageError: a setting, the data or a run directory cannot be used.
        Interrupted: Ctrl-C was pressed; everything up to the last finished round is kept.
    """
    experiment = _checked(experiment)
    given = Given(data, model, selector, algorithm, data_dir, public, measures)
    return [_run(experiment, seed, given, runs, progress, trust) for seed in experiment.all_seeds]


def _checked(experiment: object) -> Experiment:
    """The experiment, or the quickstart for None.

    Raises:
        UsageError: it is another object, such as the path of a file.
    """
    if experiment is None:
        return Experiment()
    if isinstance(experiment, Experiment):
        return experiment
    if isinstance(experiment, str | Path):
        hint = "read a file with fedcohort.load_experiment(path)"
    else:
        hint = "create one with fedcohort.Experiment(rounds=…, …)"
    raise UsageError(f"experiment = {shown(experiment)}: should be a fedcohort.Experiment; {hint}")


def _run(
    experiment: Experiment, seed: int, given: Given, runs: str | Path, progress: Progress | None, trust: bool
) -> Run:
    label = experiment.label if given.selector is None else type(given.selector).__name__
    cell = Cell(label, seed, experiment.single(seed))
    return Run(run_cell(cell, given, runs=runs, progress=progress, trust=trust).path)


def compare(
    experiment: Experiment | None = None,
    *,
    data: Dataset | None = None,
    model: "AnyModel | None" = None,
    selector: "Selector | Mapping[str, Selector] | None" = None,
    algorithm: "Algorithm | Mapping[str, Algorithm] | None" = None,
    data_dir: str | Path | None = None,
    public: "PublicSamples | None" = None,
    measures: "GivenMeasures | None" = None,
    runs: str | Path = "runs",
    progress: Progress | None = None,
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
        data_dir: a local mirror of data sets in the layout of the Hugging Face Hub.
        public: the server's public samples, for all rows; see :func:`run`.
        measures: own measures besides those of ``measures.extra``, for all rows; see :func:`run`.
        runs: folder of run directories.
        progress: called after every round; not available with several jobs.
        jobs: number of runs at the same time, each in a process of its own with its share of the cores; must be 1 if objects
            from Python replace settings.
        trust: resume run directories even if their copies of plug-in files are not the files of the experiment.
        reference: label of the row that the others are compared with; by default the first row with uniform selection, or else the
            first row.

    Raises:
        UsageError: a setting, the data or a run directory cannot be used, or no row has the label ``reference``.
        Interrupted: Ctrl-C was pressed; everything up to the last finished round is kept.
    """
    experiment = quickstart() if experiment is None else _checked(experiment)
    given = Given(data=data, model=model, data_dir=data_dir, public=public, measures=measures)
    compared = comparing.compare(
        experiment, given, selector=selector, algorithm=algorithm, runs=runs, progress=progress, jobs=jobs, trust=trust,
        reference=reference,
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
    over: Mapping[str, Sequence[Any]] | None = None,
    data: Dataset | None = None,
    model: "AnyModel | None" = None,
    selector: "Selector | Mapping[str, Selector] | None" = None,
    algorithm: "Algorithm | Mapping[str, Algorithm] | None" = None,
    data_dir: str | Path | None = None,
    public: "PublicSamples | None" = None,
    runs: str | Path = "runs",
    progress: Progress | None = None,
    jobs: int = 1,
    trust: bool = False,
) -> Race:
    """Find the best row of an experiment with few runs; if it has one row, all strategies that it can use race.

    Args:
        objective: such as ``worst_accuracy``, ``accuracy@bytes=5e6`` or ``time@accuracy=0.85``; two give a Pareto front.
        margin: the difference that does not matter, for each objective: 0.005 of an accuracy, and 5% of a cost by default.
        max_seeds, max_runs, minutes: limits of the race, which resumes with larger ones. The setting ``seeds`` has no effect.
        confidence: probability that no row is dropped although no other row is better.
        strategies: names of the strategies that race, in place of all.
        over: dotted key → values; every row races with each combination.
        data, model, selector, algorithm, data_dir, public, runs, progress, jobs, trust: as for :func:`compare`, with its errors.
    """
    from fedcohort.racing.run_race import Limits, plan

    planned = plan(
        _checked(experiment), Given(data=data, model=model, data_dir=data_dir, public=public), objective=objective, margin=margin,
        limits=Limits(max_seeds, max_runs, minutes, confidence), selector=selector, algorithm=algorithm, strategies=strategies,
        over=over,
    )  # fmt: skip
    return Race(**vars(planned.run(runs=runs, progress=progress, jobs=jobs, trust=trust)))


def open_run(path: str | Path) -> Run:
    """Open a run directory for reading: ``.rounds``, ``.clients``, ``.decisions``, ``.ledger`` are DataFrames.

    Raises:
        UsageError: the directory holds no run, its record has another format, or a file in it was changed or damaged.
    """
    opened = Run(path)
    opened.verify()
    return opened
