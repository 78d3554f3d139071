"""What functions that run experiments return: runs, comparisons, races and advice that show themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedcohort import record
from fedcohort.racing import advice, result
from fedcohort.study import comparison

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from rich.console import Console, ConsoleOptions, RenderableType

    from fedcohort.core.notebook_display import Bundle
    from fedcohort.report.notebook import Page
    from fedcohort.study.decisions.explain_decision import Explanation
    from fedcohort.study.summary import Summary


__all__ = ["Advice", "Comparison", "Race", "Row", "Run"]


class Run(record.Run):
    """A run directory, open for reading. A notebook displays its results and a chart; :meth:`report` gives the whole page.

    The guide "Compare strategies, and query the runs" lists the columns of :attr:`rounds`, :attr:`clients` and :attr:`ledger`.

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

    @property
    def client_names(self) -> tuple[str, ...]:
        """The clients' names in the data, by number; empty if the data do not name them.

        ``run.clients["client"].map(dict(enumerate(run.client_names)))`` are the names in a table of :class:`Run`.
        """
        return self.portrait.names

    def why(self, round: int, client: int | str | None = None) -> "Explanation":
        """Explain the decision of a round, for the whole round or for one client, as ``fedcohort why`` does.

        Args:
            round: the round, from 1.
            client: id of a client, or its name in the data; by default, the whole round is explained.

        Returns:
            The explanation: its note, its candidates with their scores and terms, what clients were asked, and ``to_json()``.

        Raises:
            UsageError: the run has no such round or client, or the client was not available in that round.
        """
        from fedcohort.study.decisions.explain_decision import explain

        return explain(self, round, client)

    @property
    def personal_accuracy(self) -> "pd.DataFrame":
        """Accuracy on each client's test samples, or on its held-out ones, before and after local epochs: one row per measured round.

        ``meta["personal data"]`` says which: ``test samples``, ``held-out samples``, or ``left-out training samples`` if the
        clients have none of both: a fifth of their samples, on which the global model has trained.

        The columns have two levels: ``before`` (the global model) or ``after`` (the client's personal model), and the client. Empty
        without ``measures.personal_epochs``; NaN for clients without such samples.
        """
        from fedcohort.record.personal_results import personal_accuracy

        return personal_accuracy(self)

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
        from fedcohort.study.decisions.participants import participants

        return participants(self)

    def report(self) -> "Page":
        """The report page, as ``fedcohort report`` writes it: a notebook displays it, and ``str()`` gives its HTML."""
        from fedcohort.report.notebook import report

        return report([self])

    def _repr_mimebundle_(self, **_: object) -> "Bundle":
        """What a notebook displays: a small table, and the chart of the accuracy."""
        from fedcohort.report.notebook import run_in_notebook

        return run_in_notebook(self)


@dataclass(frozen=True)
class Row(comparison.Row):
    """One row of a comparison: its label, its experiment, and its runs by seed."""

    runs: Mapping[int, Run]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(comparison.Comparison):
    """Finished runs of several strategies, side by side. Printing it shows the table; ``.table`` and ``.rounds`` are DataFrames.

    A notebook displays the table and a chart; :meth:`report` gives the whole page.

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

    def report(self) -> "Page":
        """The report page, as ``fedcohort report`` writes it: a notebook displays it, and ``str()`` gives its HTML."""
        from fedcohort.report.notebook import report

        return report(self._all_runs(), self.name, self.reference, self.note)

    def _all_runs(self) -> list[Run]:
        """Every run once; rows with the same settings share runs."""
        return list({row.runs[seed].path: row.runs[seed] for row in self.rows for seed in sorted(row.runs)}.values())

    def figures(
        self, folder: str | Path = "figures", *, suffix: str = "pdf", columns: int = 1, only: Sequence[str] = ()
    ) -> list[Path]:
        """Write the charts of the report as files for a paper, as ``fedcohort figures`` does, and return the files.

        Args:
            folder: where the files are written.
            suffix: ``pdf``, ``svg`` or ``png``.
            columns: number of columns of the paper that a figure is wide, 1 or 2.
            only: keys of charts, such as ``accuracy``; by default, all are written.

        Raises:
            UsageError: an argument is not valid, or the folder cannot be written.
        """
        from fedcohort.core.files.paths import as_path
        from fedcohort.report.data.report_data import gather
        from fedcohort.report.notebook import export_figures

        story = gather(self._all_runs(), self.name, self.reference, note=self.note)
        return export_figures(story, as_path(folder, "folder"), suffix, columns, only)

    def to_csv(self, file: str | Path | None = None) -> str:
        """The table as CSV: a header with the names of the columns of :attr:`table`, all digits, and empty fields for unknown values.

        A text that begins with ``=``, ``+``, ``-`` or ``@``, such as a label, has an apostrophe before it, because spreadsheets would
        take it for a formula.

        Args:
            file: also write it to this file.

        Raises:
            UsageError: the file cannot be written.
        """
        from fedcohort.core.files.paths import as_path
        from fedcohort.report.tables.paper_tables import to_csv

        return to_csv(self, None if file is None else as_path(file, "file"))

    def to_latex(self, file: str | Path | None = None) -> str:
        """The table for a paper: a ``table`` environment with caption and label, for the packages ``booktabs`` and ``graphicx``.

        The numbers are those that the terminal prints. Labels are escaped. A table that is wider than the text is scaled down.

        Args:
            file: also write it to this file.

        Raises:
            UsageError: the file cannot be written.
        """
        from fedcohort.core.files.paths import as_path
        from fedcohort.report.tables.paper_tables import to_latex

        return to_latex(self, None if file is None else as_path(file, "file"))

    def _repr_mimebundle_(self, **_: object) -> "Bundle":
        """What a notebook displays: the table, and the chart of the accuracy."""
        from fedcohort.report.notebook import comparison_in_notebook

        return comparison_in_notebook(self)

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


class Advice(advice.Advice):
    """What a race on the twin of a federation recommends, see :func:`advise`."""

    def __str__(self) -> str:
        from fedcohort.report import terminal

        return terminal.as_text(terminal.advice(self, 100), 100)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        from fedcohort.report import terminal

        yield terminal.advice(self, options.max_width)
