"""Decisions are written column by column, as the same rows as one by one."""

import itertools
import sqlite3
from typing import Any

import numpy as np
import pytest

from fedcohort.record.database import TABLES, _decision, _decisions, insert_rows, seal_of
from fedcohort.record.equal_decisions import EqualDecisions
from fedcohort.record.round_rows import Reasons

ODD = [0.0, -0.0, 1.5, np.nan, np.inf, -np.inf, 1e-300, 0.1]


@pytest.mark.parametrize("strangers", [[], [9, 4]])
@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"loss": np.array(ODD)},
        {'a "name" of 5% — ä': np.array(ODD, dtype=np.float32), "count": np.arange(8), "known": np.arange(8) % 2 == 0},
    ],
)
def test_columns_give_the_rows_of_single_decisions(terms: dict[str, np.ndarray], strangers: list[int]) -> None:
    selected: list[Any] = [True, False, np.True_, False, False, True, False, False]
    clients = np.array([3, 1, 7, 0, 2, 5, 6, 8])
    reasons = Reasons(clients, selected, np.array(ODD), terms, np.array(strangers, dtype=np.int64))
    expected = [_decision(4, position, reason) for position, reason in enumerate(reasons)]
    found = _decisions(4, reasons)
    assert repr(found) == repr(expected)  # the seal is the hash of this text
    assert [type(x) for x in itertools.chain(*found)] == [type(x) for x in itertools.chain(*expected)]
    assert repr(_decisions(4, list(reasons))) == repr(expected)


class WithoutJson(sqlite3.Connection):
    """A database of an SQLite without ``json_each``."""

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        return super().execute(sql.replace("json_each", "no_json_each"), parameters)


@pytest.mark.parametrize("kind", [sqlite3.Connection, WithoutJson])
@pytest.mark.parametrize("score", [*ODD, 1 / 3, 0.05])
@pytest.mark.parametrize("selected", [0, 2, 5])
def test_equal_scores_are_written_by_one_statement(score: float, selected: int, kind: type[sqlite3.Connection]) -> None:
    clients = np.array([30, 1, 700_000_000_000, 0, 2])
    chosen = [place < selected for place in range(5)]
    reasons = Reasons(clients, chosen, np.full(5, score), {}, np.zeros(0, dtype=np.int64))
    expected = [_decision(4, position, reason) for position, reason in enumerate(reasons)]
    rows = _decisions(4, reasons)
    assert isinstance(rows, EqualDecisions) == np.isfinite(score)
    assert list(rows) == expected
    assert rows[1:] == expected[1:]
    assert seal_of({"decisions": rows}, "before") == seal_of({"decisions": expected}, "before")
    with sqlite3.connect(":memory:", factory=kind) as db:
        db.executescript(TABLES)
        insert_rows(db, {"decisions": rows})
        stored = db.execute("SELECT * FROM decisions ORDER BY position").fetchall()
    assert repr(stored) == repr(expected)
