"""Read a run directory."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError, nearest
from fedcohort.core.files.paths import as_path
from fedcohort.core.given_values import whole_number
from fedcohort.core.words.score_style import score_style
from fedcohort.record.checkpoints import last_valid
from fedcohort.record.database import FORMAT, client_accuracies, numbers_of, own_measures
from fedcohort.record.equal_decisions import decision_table, number_of_decisions
from fedcohort.record.own_columns import accuracies_table, measures_table, with_own_columns, without_unknown_steps
from fedcohort.record.passed_checks import check_once
from fedcohort.record.record_form import check_logs, check_tables, naming_damage, read_table
from fedcohort.record.recorded_plugins import copied_files, recorded_plugins
from fedcohort.record.recorded_portrait import recorded_portrait
from fedcohort.record.round_rows import Portrait
from fedcohort.record.untouched_copy import check_database_exists, check_header, copy_with_log, had_log
from fedcohort.record.verification import results_digest, verify_files, verify_pages, verify_rounds

if TYPE_CHECKING:
    import pandas as pd

    from fedcohort.experiment import Experiment

__all__ = ["Run", "open_run"]


class Run:
    """A run directory, open for reading. :func:`~fedcohort.record.writer.create_run` makes one and
    :func:`~fedcohort.record.writer.writing` opens it for writing.

    Args:
        path: the directory.
        untouched: read a copy of the database if it has a log, as after a kill: SQLite would write an index of the log beside it.

    Attributes:
        path: the directory.
    """

    def __init__(self, path: str | Path, *, untouched: bool = False) -> None:
        self.path = as_path(path, "path")
        self._database = self.path / "run.sqlite"
        self._of_finished: dict[str, Any] = {}  # the facts and the last round of a finished run no longer change
        if not self._database.is_file():
            check_database_exists(self.path)
            lacks = "" if self.path.is_file() else " (there is no run.sqlite)"
            raise UsageError(f"{self.path}: not a run directory{lacks}; {self._instead()}")
        check_header(self._database)
        check_logs(self._database)
        self._copy = copy_with_log(self._database) if untouched else None
        try:
            self._check_tables()
        except UsageError:  # perhaps SQLite cannot write the index of a log, or undo what a killed process had begun
            self._copy = self._copy or copy_with_log(self._database)
            self._check_tables()
        meta = self.meta
        if meta.get("format") != str(FORMAT):
            raise UsageError(
                f"{self.path}: written in format {meta.get('format')}, but this version of FedCohort reads format {FORMAT}; "
                "use the version that wrote it, or another directory (in commands: --runs)"
            )

    def __repr__(self) -> str:
        """The directory, the row, and how far the run is; only the directory if the record cannot be read."""
        try:
            meta, last, planned = self.meta, self.last_round, self.described.rounds
            accuracy = self.query(
                "SELECT test_accuracy FROM rounds WHERE test_accuracy IS NOT NULL ORDER BY round DESC LIMIT 1"
            )
        except (UsageError, OSError):
            return f"<Run {self.path}>"
        score = score_style([self.labels])
        reached = f", test {score.name} {score.with_unit(accuracy[0][0])}" if accuracy else ""
        return f"<Run {self.path}: {meta['label']}, seed {meta['seed']}, {last} of {planned} rounds{reached}>"

    def _instead(self) -> str:
        """What to give in place of a path that is not a run directory."""
        if (self.path.parent / "run.sqlite").is_file():
            return f"give its directory, {self.path.parent}"
        runs = sorted(self.path.glob("*/run.sqlite"))
        return f"give one of the runs in it, such as {runs[0].parent}" if runs else "`fedcohort run` creates one"

    @cached_property
    def experiment(self) -> "Experiment":
        """The complete description of this run, with new instances to build; this imports its plug-ins, and torch with them.

        Raises:
            UsageError: it names plug-in files of the run directory; :attr:`described` reads it without running them.
        """
        from fedcohort.experiment import load

        if self.plug_in_files:
            raise UsageError(
                f"{self.path.name}: has plug-in files, which would be run; use run.described, or load_experiment(…, trust=True)"
            )
        return load(self.path / "experiment.toml")

    @cached_property
    def described(self) -> "Experiment":
        """The description as it is recorded; reading it imports no plug-in and not torch. Parameters that are None are missing."""
        from fedcohort.experiment import load

        return load(self.path / "experiment.toml", recorded=True)

    @property
    def meta(self) -> dict[str, str]:
        """Label, hash, versions, status and other facts about the run, by name; those of a finished run are read once."""
        meta: dict[str, str] = self._of_finished.get("meta") or dict(self.query("SELECT key, value FROM meta"))
        if meta.get("status") == "finished":
            self._of_finished["meta"] = meta
        return dict(meta)

    @property
    def labels(self) -> str:
        """``classes``, or ``numbers`` for a regression, in which the score in all columns of accuracy is R²."""
        return self.meta.get("labels", "classes")

    @property
    def clock(self) -> str:
        """The clock of the column ``simulated_time``: ``simulated``, or ``wall`` (seconds) for a run on real machines."""
        return self.meta.get("clock", "simulated")

    @property
    def plug_ins(self) -> dict[str, Any]:
        """Facts about the plug-ins of this run by section, see :func:`fedcohort.experiment.plugin_facts.plugin_facts`.

        Empty if the run was made by a version that did not record them.
        """
        return recorded_plugins(self.meta, self._database)

    @property
    def plug_in_files(self) -> dict[str, str]:
        """The users' own files that the run was made with: their copies in the run directory, and the SHA-256 of each.

        Runs of earlier versions give the first 8 digits.
        """
        return copied_files(self.meta, self._database)

    @property
    def finished(self) -> bool:
        """Whether all rounds have been played."""
        return self.meta["status"] == "finished"

    @property
    def rounds(self) -> "pd.DataFrame":
        """One row per round: counts, simulated time, accuracies, losses, and :attr:`own_measures`; ``class_accuracy`` is a list."""
        frame = self._frame("SELECT * FROM rounds ORDER BY round").set_index("round")
        frame = without_unknown_steps(frame, self.clock)
        with naming_damage(self._database):
            frame["class_accuracy"] = [numbers_of(text) for text in frame["class_accuracy"]]
        return frame.join(own) if len(own := self.own_measures) else frame

    @property
    def own_measures(self) -> "pd.DataFrame":
        """The measures of ``measures.extra``: one row per evaluated round, one column per measure; empty without own measures."""
        with self._reading() as connection:
            return measures_table(own_measures(connection))

    @property
    def clients(self) -> "pd.DataFrame":
        """One row for each selected client of each round, with one column for each further number that clients reported."""
        return self._clients("")

    def read_clients(self, round: int) -> "pd.DataFrame":
        """The rows of :attr:`clients` of one round, with the numbers that were reported in it; other rounds are not read."""
        return self._clients(f"WHERE round = {whole_number('round', round, 1)}")

    def _clients(self, where: str) -> "pd.DataFrame":
        frame = self._frame(f"SELECT * FROM clients {where} ORDER BY round, position").drop(columns="position")
        with naming_damage(self._database):
            return without_unknown_steps(with_own_columns(frame), self.clock)

    @property
    def decisions(self) -> "pd.DataFrame":
        """One row for each candidate of each round: its score, whether it was selected, and one column for each term of the score."""
        return self.read_decisions()

    def read_decisions(self, *, selected_only: bool = False, round: int | None = None) -> "pd.DataFrame":
        """The table :attr:`decisions`; ``selected_only`` reads only selected clients, and ``round`` only that round, which is faster
        if there are many candidates."""
        only = None if round is None else whole_number("round", round, 1)
        with self._reading() as connection:
            return decision_table(connection, only, selected_only=selected_only)

    @property
    def number_of_decisions(self) -> int:
        """Number of rows of the table :attr:`decisions`, which is not read for it."""
        with self._reading() as connection:
            return number_of_decisions(connection)

    @property
    def ledger(self) -> "pd.DataFrame":
        """Cost: one row for each kind of exchange in each round."""
        return self._frame("SELECT * FROM ledger ORDER BY round, kind")

    @property
    def client_accuracy(self) -> "pd.DataFrame":
        """Accuracy of the new model on each client's own data: one row per measured round, one column per client.

        The data are the client's test samples if the data set says which they are (``meta["client data"]`` is ``"test samples"``);
        they are measured whenever the test set is. Otherwise they are those of ``measures.clients_every``, without which the table
        is empty. NaN for clients without such samples.
        """
        with self._reading() as connection:
            return accuracies_table(client_accuracies(connection))

    @property
    def portrait(self) -> Portrait:
        """Facts about the clients: samples, classes, speed, label noise, names."""
        with self._reading() as connection:
            return recorded_portrait(connection)

    @property
    def selections(self) -> list[Indices]:
        """The clients that were selected in each round, for :mod:`fedcohort.measures`."""
        by_round = {t: part.to_numpy(np.int64) for t, part in self.clients.groupby("round")["client"]}
        return [by_round.get(t, np.zeros(0, dtype=np.int64)) for t in range(1, self.last_round + 1)]

    def rewards(self, column: str) -> Values:
        """A column of :attr:`clients`, such as ``loss`` or ``duration``, as a matrix, float64 [rounds, m].

        NaN where a client was not selected or its update did not arrive: these are the rewards that a server observes, for
        :func:`fedcohort.measures.hindsight_regret`.

        Raises:
            UsageError: there is no such column of numbers.
        """
        clients = self.clients
        known = [str(name) for name in clients.select_dtypes("number") if name not in ("round", "client")]
        if column not in known:
            raise UsageError(
                f"column = {column!r}: the table of clients has no such column of numbers; {nearest(column, known)}"
            )
        arrived = clients[clients["status"].isin(("admitted", "declined"))]
        values = np.full((self.last_round, self.described.federation.clients), np.nan)
        values[arrived["round"] - 1, arrived["client"]] = arrived[column]
        return values

    @property
    def wall(self) -> "pd.DataFrame":
        """Wall time of the simulator in seconds, by part of a round; ``total`` is the whole round.

        ``recording`` is the time for recording the previous round, which happens while the clients of this round train.
        """
        return self._frame("SELECT * FROM wall ORDER BY round").set_index("round")

    @property
    def last_round(self) -> int:
        """The last recorded round; 0 if there is none."""
        finished = "meta" in self._of_finished  # before the rounds are read
        last: int = self._of_finished.get("last") or self.query("SELECT COALESCE(MAX(round), 0) FROM rounds")[0][0]
        if finished:
            self._of_finished["last"] = last
        return last

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows that an SQL query returns; the query cannot change the database."""
        with self._reading() as connection:
            return connection.execute(statement).fetchall()

    def digest(self) -> str:
        """A hash of all results that must be reproducible: everything that is recorded except wall times."""
        with self._reading() as connection:
            return results_digest(connection, self.path / "model.safetensors")

    def checkpoint(self, *, quiet: bool = False) -> tuple[int, dict[str, Any]] | None:
        """The last checkpoint: its round and state; None if there is none.

        While a run is played, the last durable checkpoint stays beside later ones, which a power loss may destroy. If the last one is
        damaged, the one before is used, and the rounds after it are played again.

        Args:
            quiet: do not warn that the last one is damaged.

        Raises:
            UsageError: the files of all checkpoints are missing or damaged.
        """
        with self._reading() as connection:
            rows = connection.execute("SELECT round, file, sha256 FROM checkpoints ORDER BY round DESC").fetchall()
        return last_valid(rows, self.path / "checkpoint", quiet=quiet)

    def verify(self) -> None:
        """Compare everything that is recorded with the hashes in the record.

        Rounds in a large database that passed this before, with the same bytes, are not compared again.

        Raises:
            UsageError: something was changed or damaged after it was written.
        """
        self._of_finished.clear()
        with self._reading() as connection:
            check_once(self._database, partial(verify_rounds, connection, self._database))
        verify_files(self.path, self.meta)

    def check_pages(self) -> None:
        """Let SQLite check the structure of the database, before a run is resumed.

        Raises:
            UsageError: it is damaged.
        """
        with self._reading() as connection:
            verify_pages(connection, self._database)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        connection = self._connected()
        try:
            with naming_damage(self._database):
                yield connection
        finally:
            connection.close()

    def _connected(self) -> sqlite3.Connection:
        """A read-only connection. Where there is no log, SQLite must not create one beside a database that had one before a kill, and
        cannot in a directory without write permission."""
        if self._copy is not None:
            return sqlite3.connect(Path(self._copy.name) / self._database.name)
        no_log = not Path(f"{self._database}-wal").exists()
        fixed = "&immutable=1" if no_log and (had_log(self._database) or not os.access(self.path, os.W_OK)) else ""
        return sqlite3.connect(f"{self._database.absolute().as_uri()}?mode=ro{fixed}", uri=True, timeout=10)

    def _check_tables(self) -> None:
        """Refuse a database with triggers or views, which SQLite would run, before anything else in it is read."""
        with self._reading() as connection:
            check_tables(connection, self._database)

    def _frame(self, query: str) -> "pd.DataFrame":
        with self._reading() as connection:
            return read_table(connection, self._database, query)


def open_run(path: str | Path) -> Run:
    """Open a run directory for reading: ``.rounds``, ``.clients``, ``.decisions``, ``.ledger`` are DataFrames.

    Raises:
        UsageError: there is no run, it was written in another format, or something in it was changed or damaged.
    """
    run = Run(path)
    run.verify()
    return run
