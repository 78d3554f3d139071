"""A run directory, open for reading."""

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError, nearest
from fedcohort.core.states import CorruptState, load_state

if TYPE_CHECKING:
    import pandas as pd

from fedcohort.record.rows import Portrait
from fedcohort.record.tables import (
    FORMAT,
    TABLES,
    client_accuracies,
    damaged,
    file_hash,
    first_seal,
    numbers_of,
    seal_of,
    sealed_rows,
)
from fedcohort.record.writer import Writer

__all__ = ["Run", "open_run"]


class Run:
    """One run directory, open for reading; :meth:`writing` opens it for writing.

    Attributes:
        path: the directory.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._database = self.path / "run.sqlite"
        if not self._database.is_file():
            raise UsageError(f"{self.path}: not a run directory (there is no run.sqlite); `fedcohort run` makes one")
        meta = self._meta()
        if meta.get("format") != str(FORMAT):
            raise UsageError(
                f"{self.path}: written in format {meta.get('format')}, this version of FedCohort reads format {FORMAT}; "
                "use the version that wrote it, or another --runs directory"
            )

    @staticmethod
    def create(
        path: str | Path, experiment_toml: str, meta: Mapping[str, str], files: Mapping[str, bytes] | None = None
    ) -> "Run":
        """Make a new run directory, with ``files`` that the description refers to, or open the one that is there.

        Raises:
            UsageError: the directory cannot be written.
        """
        directory = Path(path)
        try:
            (directory / "checkpoint").mkdir(parents=True, exist_ok=True)
            if not (directory / "run.sqlite").exists():
                fresh = directory / f".run-{os.getpid()}.sqlite"
                fresh.unlink(missing_ok=True)
                connection = sqlite3.connect(fresh)
                with connection:
                    connection.executescript(TABLES)
                    rows = {"format": str(FORMAT), "status": "running", "experiment": experiment_toml, **meta}
                    connection.executemany("INSERT INTO meta VALUES (?, ?)", rows.items())
                connection.close()
                for name, content in (files or {}).items():
                    (directory / name).parent.mkdir(exist_ok=True)
                    (directory / name).write_bytes(content)
                (directory / "experiment.toml").write_text(experiment_toml, encoding="utf-8")
                with suppress(
                    FileExistsError
                ):  # another process was faster: its run is used; a rename would replace it
                    os.link(fresh, directory / "run.sqlite")
                fresh.unlink()
        except (OSError, sqlite3.OperationalError) as error:
            raise UsageError(f"{directory}: cannot be written ({error}); give another directory with --runs") from None
        return Run(directory)

    # reading

    @cached_property
    def experiment(self) -> Any:
        """The resolved :class:`fedcohort.Experiment`."""
        from fedcohort.experiment import load

        return load(self.path / "experiment.toml")

    @cached_property
    def described(self) -> Any:
        """The same as it is recorded, read without torch; parameters that are none are left out."""
        from fedcohort.experiment import load

        return load(self.path / "experiment.toml", recorded=True)

    @property
    def meta(self) -> dict[str, str]:
        """Label, hash, versions, status and the like."""
        return self._meta()

    @property
    def finished(self) -> bool:
        """Whether all rounds are done."""
        return self._meta()["status"] == "finished"

    @property
    def rounds(self) -> "pd.DataFrame":
        """One row a round: counts, simulated time, accuracies, losses; ``class_accuracy`` is a list."""
        frame = self._frame("SELECT * FROM rounds ORDER BY round").set_index("round")
        frame["class_accuracy"] = [numbers_of(text) for text in frame["class_accuracy"]]
        return frame

    @property
    def clients(self) -> "pd.DataFrame":
        """One row for each selected client of each round, and one column for each further number that clients reported."""
        import pandas as pd

        frame = self._frame("SELECT * FROM clients ORDER BY round, position").drop(columns="position")
        reports = pd.DataFrame([json.loads(text) for text in frame.pop("reports")], index=frame.index, dtype=float)
        return pd.concat([frame, reports], axis=1)

    @property
    def decisions(self) -> "pd.DataFrame":
        """One row for each candidate of each round: score, whether it was selected, and one column for each term of the score."""
        return self.read_decisions()

    def read_decisions(self, *, selected_only: bool = False) -> "pd.DataFrame":
        """The table :attr:`decisions`, or only its rows of selected clients: far fewer where a run has many candidates."""
        import pandas as pd

        condition = "WHERE selected = 1 " if selected_only else ""
        frame = self._frame(f"SELECT * FROM decisions {condition}ORDER BY round, position").drop(columns="position")
        terms = pd.DataFrame([json.loads(text) for text in frame.pop("terms")], index=frame.index, dtype=float)
        frame["selected"] = frame["selected"].astype(bool)
        frame["score"] = frame["score"].astype(float)
        return pd.concat([frame, terms], axis=1)

    @property
    def ledger(self) -> "pd.DataFrame":
        """Cost: one row for each kind of exchange in each round."""
        return self._frame("SELECT * FROM ledger ORDER BY round, kind")

    @property
    def client_accuracy(self) -> "pd.DataFrame":
        """Accuracy of the new model on each client's own data: a row for each measured round, a column for each client.

        Empty unless ``measures.clients_every`` asked for it; NaN for clients without such data.
        """
        import pandas as pd

        with self._reading() as connection:
            rows = client_accuracies(connection)
        values = {round_: np.frombuffer(blob, dtype="<f8") for round_, blob in rows}
        return pd.DataFrame.from_dict(values, orient="index").rename_axis(index="round", columns="client")

    @property
    def portrait(self) -> Portrait:
        """Who the clients are: samples, classes, speed, label noise."""
        with self._reading() as connection:
            rows = connection.execute("SELECT name, type, shape, data FROM portrait").fetchall()
        found = {name: (kind, shape, zlib.decompress(data)) for name, kind, shape, data in rows}
        if "classes" not in found:
            return Portrait()
        classes = tuple(json.loads(found.pop("classes")[2]))
        facts = {n: np.frombuffer(data, kind).reshape(json.loads(shape)) for n, (kind, shape, data) in found.items()}
        return Portrait(classes, facts)

    @property
    def selections(self) -> list[Indices]:
        """The clients that were selected in each round, for :mod:`fedcohort.measures`."""
        found = {t: part.to_numpy(np.int64) for t, part in self.clients.groupby("round")["client"]}
        return [found.get(t, np.zeros(0, dtype=np.int64)) for t in range(1, self.last_round + 1)]

    def rewards(self, column: str) -> Values:
        """What came of selecting clients: a column of :attr:`clients`, such as ``loss`` or ``duration``, as float64 [rounds, m].

        NaN where a client was not selected or its update did not arrive: what a server observes, for
        :func:`fedcohort.measures.hindsight_regret`.

        Raises:
            UsageError: there is no such column of numbers.
        """
        clients = self.clients
        known = [str(name) for name in clients.select_dtypes("number") if name not in ("round", "client")]
        if column not in known:
            raise UsageError(
                f"column = {column!r}: is not a number that is recorded of clients; {nearest(column, known)}"
            )
        arrived = clients[clients["status"].isin(("admitted", "declined"))]
        values = np.full((self.last_round, self.described.federation.clients), np.nan)
        values[arrived["round"] - 1, arrived["client"]] = arrived[column]
        return values

    @property
    def wall(self) -> "pd.DataFrame":
        """Seconds of the simulator by part of a round; ``total`` is the whole round; ``recording``, of the round before, is done while
        clients train, if what has to be measured is there in time."""
        return self._frame("SELECT * FROM wall ORDER BY round").set_index("round")

    @property
    def last_round(self) -> int:
        """Last committed round; 0 before the first."""
        with self._reading() as connection:
            return int(connection.execute("SELECT COALESCE(MAX(round), 0) FROM rounds").fetchone()[0])

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows of any SQL query, for those who look closer; nothing can be written this way."""
        with self._reading() as connection:
            return connection.execute(statement).fetchall()

    def digest(self) -> str:
        """A hash of every result that must not depend on when, where and how fast the run was made: all but wall times."""
        digest = hashlib.sha256()
        with self._reading() as connection:
            for query in (
                "SELECT * FROM rounds ORDER BY round",
                "SELECT * FROM clients ORDER BY round, position",
                "SELECT * FROM decisions ORDER BY round, position",
                "SELECT round, kind, messages, bytes_down, bytes_up, passes FROM ledger ORDER BY round, kind",
            ):
                for row in connection.execute(query):
                    digest.update(repr(row).encode())
            for row in client_accuracies(connection):
                digest.update(repr(row).encode())
        model = self.path / "model.safetensors"
        if model.exists():
            digest.update(model.read_bytes())
        return digest.hexdigest()[:16]

    def checkpoint(self) -> tuple[int, dict[str, Any]] | None:
        """The last checkpoint: its round and state; None before the first.

        Raises:
            UsageError: its file is missing or damaged.
        """
        with self._reading() as connection:
            row = connection.execute(
                "SELECT round, file, sha256 FROM checkpoints ORDER BY round DESC LIMIT 1"
            ).fetchone()
        if row is None:
            return None
        file = self.path / "checkpoint" / row[1]
        try:
            return int(row[0]), load_state(file, sha256=row[2])
        except (OSError, CorruptState) as error:
            raise UsageError(
                f"{file}: the checkpoint of round {row[0]} is damaged ({error}); nothing was overwritten; "
                "restore the file, or delete the run directory to start again"
            ) from None

    def verify(self) -> None:
        """Compare everything that is recorded with the hashes that were recorded beside it.

        Raises:
            UsageError: something was changed or damaged since it was written.
        """
        with self._reading() as connection:
            connection.execute("BEGIN")  # one moment, even while another process writes
            seal = first_seal(connection)
            seals = connection.execute("SELECT round, sha256 FROM seals ORDER BY round").fetchall()
            rounds = [t for (t,) in connection.execute("SELECT round FROM rounds ORDER BY round")]
            if rounds != [t for t, _ in seals]:
                raise damaged(self._database, "its rounds and their hashes do not belong together")
            for t, expected in seals:
                seal = seal_of(sealed_rows(connection, t), seal)
                if seal != expected:
                    raise damaged(self._database, f"round {t} or the description is not what was recorded")
        meta, resolved = self._meta(), self.path / "experiment.toml"
        if meta.get("status") not in ("running", "finished"):
            raise damaged(self._database, f"its status is {meta.get('status')!r}")
        if meta["status"] == "finished" and file_hash(self.path / "model.safetensors") != meta.get("model"):
            raise UsageError(
                f"{self.path / 'model.safetensors'}: is missing or not what was recorded; nothing was overwritten; restore the "
                "file, or delete the run directory to start again"
            )
        try:
            same = resolved.read_text(encoding="utf-8") == meta["experiment"]
        except (OSError, UnicodeDecodeError):
            same = False
        if not same:
            raise UsageError(
                f"{resolved}: is missing or not what was recorded; nothing was overwritten; restore the file, or delete the run "
                "directory to start again"
            )

    # writing

    @contextmanager
    def writing(self) -> Iterator["Writer"]:
        """Hold the run's lock and write to it.

        Raises:
            UsageError: another process writes this run.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / "run.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise UsageError(
                f"{self.path}: another process is writing this run; wait for it, or use another --runs directory"
            ) from None
        try:
            writer = Writer(self.path)
            try:
                yield writer
            finally:
                writer.close()
        finally:
            lock.release()

    # inside

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        connection = self._connected()
        try:
            yield connection
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise damaged(self._database, error) from None
        finally:
            connection.close()

    def _connected(self) -> sqlite3.Connection:
        """A connection that only reads, also where nothing may be written: SQLite would like to keep an index of its log there."""
        address = f"{self._database.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(address, uri=True, timeout=10)
        if not os.access(self.path, os.W_OK) and not Path(f"{self._database}-wal").exists():
            connection.close()
            connection = sqlite3.connect(f"{address}&immutable=1", uri=True)
        return connection

    def _meta(self) -> dict[str, str]:
        with self._reading() as connection:
            return dict(connection.execute("SELECT key, value FROM meta").fetchall())

    def _frame(self, query: str) -> "pd.DataFrame":
        import pandas as pd

        with self._reading() as connection:
            try:
                frame = pd.read_sql_query(query, connection)
            except pd.errors.DatabaseError as error:
                raise damaged(self._database, error) from None
            table = query.split(" FROM ")[1].split()[0]
            declared = {name: kind for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table})")}
        # a column of NULLs only would come back as objects
        return frame.astype({name: "float64" for name in frame.columns if declared.get(name) == "REAL"})


def open_run(path: str | Path) -> Run:
    """Open a run directory for reading: ``.rounds``, ``.clients``, ``.decisions``, ``.ledger`` are DataFrames.

    Raises:
        UsageError: there is no run, it is of another version, or something in it is damaged.
    """
    run = Run(path)
    run.verify()
    return run
