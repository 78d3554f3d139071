"""Decisions in which all candidates have the same score, as under uniform selection: one row a round instead of one a candidate.

A round of a small network takes a millisecond, and it can have a thousand candidates. Readers get the rows that the table
``decisions`` would hold.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.record.own_columns import numbers_in
from fedcohort.record.round_rows import Reasons

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "EqualRow",
    "decision_table",
    "equal_decision",
    "every_decision",
    "number_of_decisions",
    "rows_of",
    "stored_equal_decisions",
]

EqualRow = tuple[int, bytes, int, float]
"""A row of the table ``equal_decisions``: round, ids of the candidates as little-endian int32 with the selected ones first, number of
selected ones, score."""

PART = 100_000
"""Number of rows of ``decisions`` that are read at a time."""

DecisionRow = tuple[int, int, int, int, float | None, str]
"""A row of the table ``decisions``: round, position, client, selected, score, terms."""


def equal_decision(round_: int, reasons: Reasons) -> EqualRow | None:
    """A decision as one row, if all candidates have the same finite score without terms; None for other decisions."""
    scores = reasons.scores
    if reasons.terms or len(reasons.strangers) or not len(scores) or reasons.clients.max() >= 2**31:
        return None
    score, selected = float(scores[0]) + 0.0, sum(reasons.selected)  # SQLite has no −0
    if not (abs(score) < float("inf") and (scores == score).all() and all(reasons.selected[:selected])):
        return None
    return round_, reasons.clients.astype("<i4").tobytes(), selected, score


def _candidates(clients: bytes) -> Indices:
    """The ids of the candidates in a row of ``equal_decisions``."""
    return np.frombuffer(clients, dtype="<i4").astype(np.int64)


def rows_of(equal: EqualRow) -> Iterator[DecisionRow]:
    """The rows of ``decisions`` that a row of ``equal_decisions`` stands for."""
    round_, clients, selected, score = equal
    for position, client in enumerate(_candidates(clients).tolist()):
        yield round_, position, client, int(position < selected), score, "{}"


def stored_equal_decisions(connection: sqlite3.Connection) -> list[EqualRow]:
    """The rows of ``equal_decisions``; none in databases of earlier versions, which lack the table."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'equal_decisions'").fetchone():
        return []
    return connection.execute("SELECT * FROM equal_decisions ORDER BY round").fetchall()


def every_decision(connection: sqlite3.Connection) -> Iterator[DecisionRow]:
    """All rows of both tables as rows of ``decisions``, in the order of rounds; a round has rows in one of them only."""
    equal = stored_equal_decisions(connection)
    waiting = 0
    for row in connection.execute("SELECT * FROM decisions ORDER BY round, position"):
        while waiting < len(equal) and equal[waiting][0] < row[0]:
            yield from rows_of(equal[waiting])
            waiting += 1
        yield row
    for left in equal[waiting:]:
        yield from rows_of(left)


def number_of_decisions(connection: sqlite3.Connection) -> int:
    """The number of rows of :func:`every_decision`."""
    single: int = connection.execute("SELECT COUNT(*) FROM decisions").fetchone()[0]
    return single + sum(len(_candidates(clients)) for _, clients, _, _ in stored_equal_decisions(connection))


def decision_table(
    connection: sqlite3.Connection, round: int | None = None, *, selected_only: bool = False
) -> "pd.DataFrame":
    """The table :attr:`Run.decisions <fedcohort.record.run.Run.decisions>`; only the rows of one round, or of selected clients, if
    asked for."""
    import pandas as pd

    conditions = ["selected = 1"] * selected_only + ([] if round is None else [f"round = {int(round)}"])
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    # the texts of each part become numbers before the next part is read: they take much more memory
    columns = "round, position, client, selected, score, terms"
    parts = list(_in_parts(connection, f"SELECT {columns} FROM decisions {where} ORDER BY round, position"))
    equal = [row for row in stored_equal_decisions(connection) if round is None or row[0] == round]
    parts += [_table_of(equal, selected_only)] if equal else []
    filled = [part for part in parts if len(part)] or parts[:1]
    table = pd.concat(filled, ignore_index=True)
    # a round has rows in one of the two tables only, ordered by their positions
    if not table["round"].is_monotonic_increasing:
        table = table.sort_values("round", kind="stable", ignore_index=True)
    return table.drop(columns="position")


def _in_parts(connection: sqlite3.Connection, query: str) -> Iterator["pd.DataFrame"]:
    """The rows of ``decisions`` that a query returns, as tables of :data:`PART` rows; one empty table if there are none."""
    cursor = connection.execute(query)
    rows = cursor.fetchmany(PART)
    yield _with_terms(rows)
    while rows := cursor.fetchmany(PART):
        yield _with_terms(rows)


def _with_terms(rows: list[DecisionRow]) -> "pd.DataFrame":
    """Rows of ``decisions`` as a table with one column for each term, see :func:`~fedcohort.record.own_columns.with_own_columns`."""
    import pandas as pd

    columns = {
        "round": np.array([row[0] for row in rows], dtype=np.int64),
        "position": np.array([row[1] for row in rows], dtype=np.int64),
        "client": np.array([row[2] for row in rows], dtype=np.int64),
        "selected": np.array([row[3] for row in rows], dtype=bool),
        "score": np.array([row[4] for row in rows], dtype=np.float64),
    }
    terms = [row[5] for row in rows]
    if any(text != "{}" for text in terms):
        own = numbers_in(terms, "terms")
        columns |= {f"{name}_" if name in columns else name: values for name, values in own.items()}
    return pd.DataFrame(columns)


def _table_of(equal: Sequence[EqualRow], selected_only: bool) -> "pd.DataFrame":
    """The rows of :func:`rows_of` for each of these rows, as one table."""
    import pandas as pd

    each = [_candidates(candidates)[: chosen if selected_only else None] for _, candidates, chosen, _ in equal]
    lengths = np.array([len(clients) for clients in each])
    position = np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)
    rounds, selected, scores = (np.repeat([row[i] for row in equal], lengths) for i in (0, 2, 3))
    return pd.DataFrame(
        {
            "round": rounds,
            "position": position,
            "client": np.concatenate(each),
            "selected": position < selected,
            "score": scores,
        }
    )
