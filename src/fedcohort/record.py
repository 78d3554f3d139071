"""The record of a run, a directory: what happened, and where to go on.

    experiment.toml          the resolved description
    run.sqlite               one transaction a round: metrics, decisions, cost ledger, and which checkpoint belongs to them
    checkpoint/round-*.safetensors
    model.safetensors        the final model
    plug-ins/                copies of the user's own files that the description names
    run.lock                 held by the process that writes

A round is in the database completely or not at all; a process may be killed at any moment. Nothing is pickled.
"""

import hashlib
import itertools
import json
import math
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError, nearest
from fedcohort.core.states import CorruptState, load_state, save_state

if TYPE_CHECKING:
    import pandas as pd

    from fedcohort.summary import Summary

__all__ = ["FORMAT", "ClientRow", "LedgerRow", "Portrait", "Reasons", "RoundRow", "Run", "Saved", "Writer", "open_run"]

FORMAT = 2
"""Version of the directory's layout."""

KEPT = 1000
"""Candidates of one decision that are kept at most: the selected, then the best scored."""

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE rounds (
  round INTEGER PRIMARY KEY, available INTEGER, selected INTEGER, trained INTEGER, admitted INTEGER,
  simulated_time REAL, round_time REAL, steps INTEGER,
  test_accuracy REAL, test_loss REAL, validation_accuracy REAL, validation_loss REAL, local_accuracy REAL, train_loss REAL,
  class_accuracy TEXT, note TEXT
);
CREATE TABLE clients (
  round INTEGER, position INTEGER, client INTEGER, status TEXT, detail TEXT, num_samples INTEGER, steps INTEGER, duration REAL,
  weight REAL, loss REAL, accuracy REAL, reports TEXT, PRIMARY KEY (round, position)
) WITHOUT ROWID;
CREATE TABLE decisions (round INTEGER, position INTEGER, client INTEGER, selected INTEGER, score REAL, terms TEXT,
  PRIMARY KEY (round, position)) WITHOUT ROWID;
CREATE TABLE ledger (
  round INTEGER, kind TEXT, messages INTEGER, bytes_down INTEGER, bytes_up INTEGER, passes REAL, seconds REAL, discloses TEXT,
  PRIMARY KEY (round, kind)
);
CREATE TABLE wall (round INTEGER PRIMARY KEY, selection REAL, training REAL, aggregation REAL, evaluation REAL, recording REAL,
  total REAL);
CREATE TABLE client_accuracy (round INTEGER PRIMARY KEY, accuracies BLOB NOT NULL);
CREATE TABLE portrait (name TEXT PRIMARY KEY, type TEXT NOT NULL, shape TEXT NOT NULL, data BLOB NOT NULL);
CREATE TABLE seals (round INTEGER PRIMARY KEY, sha256 TEXT NOT NULL);
CREATE TABLE checkpoints (round INTEGER PRIMARY KEY, file TEXT, sha256 TEXT);
"""
"""``clients.reports`` holds what a client reported that not every client reports, as JSON; ``client_accuracy`` the accuracy of the
model on each client's data, little-endian float64 [m]; ``seals`` a hash of the rows of each round and of all before: SQLite's own
check does not see a flipped bit in a number."""

_SEALED = ("rounds", "clients", "decisions", "ledger", "wall", "client_accuracy")


# --- what is recorded of a round ---------------------------------------------------------------------------------------------


@dataclass
class ClientRow:
    """One selected client of a round.

    ``status``: admitted, declined, failed, late or diverged (see ``detail``). ``reports``: what it reported that not every client
    reports, such as ``q_hat``.
    """

    client: int
    status: str
    detail: str = ""
    num_samples: int = 0
    steps: int = 0
    duration: float = math.nan
    weight: float = 0.0
    loss: float = math.nan
    accuracy: float = math.nan
    reports: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LedgerRow:
    """Cost of one kind of exchange in a round: ``training``, or a question's name.

    Bytes are uncompressed payload; ``passes`` are forward passes over a client's training data, summed over clients; ``seconds`` is
    wall time of the simulator.
    """

    kind: str
    messages: int
    bytes_down: int
    bytes_up: int
    passes: float
    seconds: float
    discloses: str


Reason = tuple[int, bool, float, Mapping[str, float]]
"""Why a client was selected or not: its id, whether it was, its score, and what the score is made of."""


@dataclass(frozen=True, eq=False)
class Reasons:
    """The reasons of one choice as columns; iterating makes a :data:`Reason` of each candidate on record, one at a time.

    Attributes:
        clients: ids [n].
        selected: whether each was selected [n].
        scores: of each, float64 [n].
        terms: what the scores are made of, each [n].
        strangers: ids of the selected that were no candidates; they follow, without a score.
    """

    clients: Indices
    selected: Sequence[bool]
    scores: Values
    terms: Mapping[str, Values]
    strangers: Indices

    def __iter__(self) -> Iterator[Reason]:
        names, none = list(self.terms), dict[str, float]()
        columns = [values.tolist() for values in self.terms.values()]
        each = (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))
        terms = each if names else itertools.repeat(none, len(self.clients))
        yield from zip(self.clients.tolist(), self.selected, self.scores.tolist(), terms, strict=True)
        for client in self.strangers.tolist():
            yield client, True, math.nan, none


@dataclass
class RoundRow:
    """Everything that is recorded of one round, besides the checkpoint. Accuracies are fractions, losses mean cross-entropies."""

    round: int
    available: int
    selected: int
    trained: int
    admitted: int
    simulated_time: float
    round_time: float
    steps: int
    local_accuracy: float
    train_loss: float
    note: str
    clients: list[ClientRow]
    decisions: Iterable[Reason]
    ledger: list[LedgerRow]
    wall: dict[str, float] = field(default_factory=dict)
    client_accuracy: Values | None = None
    validation_accuracy: float = math.nan
    validation_loss: float = math.nan
    test_accuracy: float = math.nan
    test_loss: float = math.nan
    class_accuracy: Sequence[float] = ()

    def add_validation(self, accuracy: float, loss: float) -> None:
        """The round's model on the server's validation set."""
        self.validation_accuracy, self.validation_loss = accuracy, loss

    def add_test(self, accuracy: float, loss: float, class_accuracy: Sequence[float]) -> None:
        """The round's model on the test set."""
        self.test_accuracy, self.test_loss, self.class_accuracy = accuracy, loss, class_accuracy


class Saved(NamedTuple):
    """A checkpoint on disk: its name and the SHA-256 of its bytes. It counts once a round that names it is committed."""

    file: str
    sha256: str


@dataclass(frozen=True)
class Portrait:
    """Who the clients of a run are, for pictures of its federation.

    Attributes:
        classes: names of the K classes.
        facts: one number a client [m]: ``samples``, ``held_out``, ``wrong_labels`` (a share), ``time`` (simulated, nominal work),
            ``sending`` (the part of it that is communication), ``presence`` (share of rounds); and ``counts`` of labels [m, K]
            unless the federation is huge. Empty for runs that were recorded before this was kept.
    """

    classes: tuple[str, ...] = ()
    facts: Mapping[str, "np.ndarray"] = field(default_factory=dict)


_SCALARS = (
    "round", "available", "selected", "trained", "admitted", "simulated_time", "round_time", "steps", "test_accuracy", "test_loss",
    "validation_accuracy", "validation_loss", "local_accuracy", "train_loss",
)  # fmt: skip
_COUNTS = frozenset({"round", "available", "selected", "trained", "admitted", "steps"})
_WALL = ("selection", "training", "aggregation", "evaluation", "recording", "total")


# --- the directory -------------------------------------------------------------------------------------------------------------


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
                    connection.executescript(_TABLES)
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
        frame["class_accuracy"] = [_numbers(text) for text in frame["class_accuracy"]]
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
        import pandas as pd

        frame = self._frame("SELECT * FROM decisions ORDER BY round, position").drop(columns="position")
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
            rows = _client_accuracy(connection)
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

    def summary(self, target: float | None = None) -> "Summary":
        """Every measure that the record gives, in one call: accuracy, cost of a target, fairness beside chance, stability.

        Args:
            target: the test accuracy that rounds, time and bytes are counted to; by default ``measures.target_accuracy``, or the run's
                best, rounded down to two decimals.

        Raises:
            UsageError: the run has no finished round.
        """
        from fedcohort.summary import summary

        return summary(self, target)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows of any SQL query, for those who look closer; nothing can be written this way."""
        with self._reading() as connection:
            return connection.execute(statement).fetchall()

    def _repr_html_(self) -> str:
        """The report, in a notebook."""
        from fedcohort.report.gather import gather
        from fedcohort.report.page import framed, page

        return framed(page(gather([self])))

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
            for row in _client_accuracy(connection):
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
            seal = _first_seal(connection)
            seals = connection.execute("SELECT round, sha256 FROM seals ORDER BY round").fetchall()
            rounds = [t for (t,) in connection.execute("SELECT round FROM rounds ORDER BY round")]
            if rounds != [t for t, _ in seals]:
                raise _damaged(self._database, "its rounds and their hashes do not belong together")
            for t, expected in seals:
                seal = _seal(_sealed_rows(connection, t), seal)
                if seal != expected:
                    raise _damaged(self._database, f"round {t} or the description is not what was recorded")
        meta, resolved = self._meta(), self.path / "experiment.toml"
        if meta.get("status") not in ("running", "finished"):
            raise _damaged(self._database, f"its status is {meta.get('status')!r}")
        if meta["status"] == "finished" and _file_hash(self.path / "model.safetensors") != meta.get("model"):
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
            raise _damaged(self._database, error) from None
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
                raise _damaged(self._database, error) from None
            table = query.split(" FROM ")[1].split()[0]
            declared = {name: kind for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table})")}
        # a column of NULLs only would come back as objects
        return frame.astype({name: "float64" for name in frame.columns if declared.get(name) == "REAL"})


class Writer:
    """Writes rounds; made by :meth:`Run.writing`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        database = path / "run.sqlite"
        self._connection = sqlite3.connect(database, timeout=10)
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            verdict = self._connection.execute("PRAGMA quick_check").fetchone()[0]
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise _damaged(database, error) from None
        if verdict != "ok":
            self._connection.close()
            raise _damaged(database, verdict)

    def rewind(self, last: int) -> None:
        """Forget rounds after ``last``, which had no checkpoint of their own."""
        with self._connection:
            for table in (*_SEALED, "seals"):
                self._connection.execute(f"DELETE FROM {table} WHERE round > ?", (last,))

    def save(self, round_: int, state: Mapping[str, Any]) -> Saved:
        """Write a checkpoint. It takes the place of the one before when its round is recorded."""
        name = f"round-{round_:06d}.safetensors"
        temporary = self.path / "checkpoint" / f".{name}"
        digest = save_state(temporary, state)
        temporary.rename(self.path / "checkpoint" / name)
        return Saved(name, digest)

    def record(self, row: RoundRow, saved: Saved | None = None) -> None:
        """Commit one round: metrics, decisions, ledger, and the checkpoint that belongs to it, in one transaction."""
        tables = _as_rows(row)
        with self._connection as db:
            for table, rows in tables.items():
                if rows:
                    db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
            if saved is not None:
                db.execute("DELETE FROM checkpoints")
                db.execute("INSERT INTO checkpoints VALUES (?, ?, ?)", (row.round, *saved))
            self._seal(row.round, tables)
        if saved is not None:
            for file in (self.path / "checkpoint").glob("round-*.safetensors"):
                if file.name != saved.file:
                    file.unlink(missing_ok=True)

    def describe(self, portrait: Portrait) -> None:
        """Keep who the clients are."""
        rows = [("classes", "json", "[]", zlib.compress(json.dumps(portrait.classes).encode()))]
        for name, values in portrait.facts.items():
            plain = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
            rows.append((name, plain.dtype.str, json.dumps(plain.shape), zlib.compress(plain.tobytes(), 1)))
        with self._connection as db:
            db.executemany("INSERT OR REPLACE INTO portrait VALUES (?, ?, ?, ?)", rows)

    def finish(self, model: Mapping[str, Any]) -> None:
        """Save the final model and mark the run as finished."""
        from safetensors.torch import save_file

        temporary = self.path / ".model.safetensors"
        save_file(dict(model), temporary)
        temporary.rename(self.path / "model.safetensors")
        with self._connection as db:
            digest = _file_hash(self.path / "model.safetensors")
            db.execute("INSERT OR REPLACE INTO meta VALUES ('model', ?)", (digest,))
            db.execute("UPDATE meta SET value = 'finished' WHERE key = 'status'")

    def close(self) -> None:
        """Close the database; where nobody is reading, as one file that can be read in a directory that is not writable."""
        with suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def _seal(self, round_: int, tables: Mapping[str, list[tuple[Any, ...]]]) -> None:
        """Chain a hash of the round's rows to that of the round before."""
        row = self._connection.execute(
            "SELECT sha256 FROM seals WHERE round < ? ORDER BY round DESC LIMIT 1", (round_,)
        )
        before = row.fetchone()
        seal = _seal(tables, before[0] if before else _first_seal(self._connection))
        self._connection.execute("INSERT INTO seals VALUES (?, ?)", (round_, seal))


def open_run(path: str | Path) -> Run:
    """Open a run directory for reading: ``.rounds``, ``.clients``, ``.decisions``, ``.ledger`` are DataFrames.

    Raises:
        UsageError: there is no run, it is of another version, or something in it is damaged.
    """
    run = Run(path)
    run.verify()
    return run


def _file_hash(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _first_seal(connection: sqlite3.Connection) -> str:
    """The hash that the first round is chained to: of all that is fixed when a run is made."""
    fixed = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    fixed += connection.execute(
        "SELECT key, value FROM meta WHERE key NOT IN ('status', 'model') ORDER BY key"
    ).fetchall()
    fixed += connection.execute("SELECT * FROM portrait ORDER BY name").fetchall()
    return hashlib.sha256(repr(fixed).encode()).hexdigest()


def _sealed_rows(connection: sqlite3.Connection, round_: int) -> dict[str, list[tuple[Any, ...]]]:
    """What is recorded of a round, by table."""
    query = "SELECT * FROM {} WHERE round = ? ORDER BY 1, 2"
    return {table: connection.execute(query.format(table), (round_,)).fetchall() for table in _SEALED}


def _seal(tables: Mapping[str, list[tuple[Any, ...]]], before: str) -> str:
    """A hash of a round's rows and of all before."""
    rows = "".join(repr(row) for table in _SEALED for row in tables[table])
    return hashlib.sha256((before + rows).encode()).hexdigest()


def _as_rows(row: RoundRow) -> dict[str, list[tuple[Any, ...]]]:
    """A round by table, each number as SQLite will give it back, so that its hash can be taken before."""
    t = row.round
    scalars = [int(getattr(row, name)) if name in _COUNTS else _real(getattr(row, name)) for name in _SCALARS]
    tables: dict[str, list[tuple[Any, ...]]] = {
        "rounds": [(*scalars, json.dumps([_plain(x) for x in row.class_accuracy]), row.note)],
        "clients": [
            (t, i, int(c.client), c.status, c.detail, int(c.num_samples), int(c.steps), _real(c.duration), _real(c.weight),
             _real(c.loss), _real(c.accuracy), json.dumps({k: _plain(v) for k, v in c.reports.items()}) if c.reports else "{}")
            for i, c in enumerate(row.clients)
        ],
        "decisions": [
            (t, i, int(client), int(selected), _known(score), json.dumps({k: _known(v) for k, v in terms.items()}) if terms else "{}")
            for i, (client, selected, score, terms) in enumerate(row.decisions)
        ],
        "ledger": sorted(
            (t, e.kind, int(e.messages), int(e.bytes_down), int(e.bytes_up), _real(e.passes), _real(e.seconds),
             e.discloses)
            for e in row.ledger
        ),
        "wall": [(t, *(_real(row.wall.get(part, 0.0)) for part in _WALL))],
        "client_accuracy": [],
    }  # fmt: skip
    if row.client_accuracy is not None:
        tables["client_accuracy"] = [(t, np.asarray(row.client_accuracy, dtype="<f8").tobytes())]
    return tables


def _client_accuracy(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
    return connection.execute("SELECT round, accuracies FROM client_accuracy ORDER BY round").fetchall()


def _damaged(database: Path, error: object) -> UsageError:
    return UsageError(
        f"{database}: the run's database is damaged or not one ({error}); nothing was overwritten; "
        "restore the file, or delete the run directory to start again"
    )


def _plain(value: Any) -> Any:
    """A number as SQLite and JSON keep it: NaN and ±∞ as null."""
    number = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, float):
        return number
    return number + 0.0 if math.isfinite(number) else None  # SQLite has no −0


def _real(value: Any) -> float | None:
    """The same for a column of reals, whatever kind of number it is given."""
    number: float | None = _plain(float(value))
    return number


def _known(value: float) -> float | None:
    """A score as SQLite keeps it: NaN as null, but ±∞ as it is, which is how strategies say first and last."""
    return None if math.isnan(value) else float(value) + 0.0


def _numbers(text: str) -> list[float]:
    return [math.nan if value is None else float(value) for value in json.loads(text)]
