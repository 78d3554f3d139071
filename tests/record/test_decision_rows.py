"""Decisions are written column by column, as the same rows as one by one."""

import itertools
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.record import equal_decisions, own_columns
from fedcohort.record.database import _decisions
from fedcohort.record.equal_decisions import equal_decision, rows_of
from fedcohort.record.own_columns import numbers_in
from fedcohort.record.round_rows import Reasons, RoundRow
from fedcohort.record.writer import create_run, writing
from tests.records import decision_rows, reasons_of

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
    expected = decision_rows(4, reasons)
    found = _decisions(4, reasons)
    assert repr(found) == repr(expected)  # the seal is the hash of this text
    assert [type(x) for x in itertools.chain(*found)] == [type(x) for x in itertools.chain(*expected)]


@pytest.mark.parametrize("largest", [2**31 - 1, 2**31])
@pytest.mark.parametrize("score", [*ODD, 1 / 3, 0.05])
@pytest.mark.parametrize("selected", [0, 2, 5])
def test_equal_scores_are_one_row_that_stands_for_the_rows_of_single_decisions(
    score: float, selected: int, largest: int
) -> None:
    clients = np.array([30, 1, largest, 0, 2])
    chosen = [place < selected for place in range(5)]
    reasons = Reasons(clients, chosen, np.full(5, score), {}, np.zeros(0, dtype=np.int64))
    expected = decision_rows(4, reasons)
    row = equal_decision(4, reasons)
    assert (row is not None) == (np.isfinite(score) and largest < 2**31)
    assert row is None or repr(list(rows_of(row))) == repr(expected)
    assert repr(_decisions(4, reasons)) == repr(expected)  # for databases of earlier versions


def test_equal_scores_with_terms_or_strangers_stay_single_rows() -> None:
    """One row for all of them holds neither the terms nor clients without a score."""
    clients, chosen, nobody = np.array([1, 0]), [True, False], np.zeros(0, dtype=np.int64)
    for terms, strangers in (({"loss": np.array([1.0, 2.0])}, nobody), ({}, np.array([7]))):
        assert equal_decision(4, Reasons(clients, chosen, np.full(2, 0.5), terms, strangers)) is None
    assert equal_decision(4, Reasons(clients, [False, True], np.full(2, 0.5), {}, nobody)) is None, "the last one first"


def round_with(t: int, scores: list[float]) -> RoundRow:
    """A round with these scores of its candidates, of which the first one is selected."""
    number = len(scores)
    reasons = Reasons(
        np.arange(number)[::-1], [i == 0 for i in range(number)], np.array(scores), {}, np.zeros(0, dtype=np.int64)
    )
    return RoundRow(
        round=t, available=number, selected=1, trained=0, admitted=0, simulated_time=0.0, round_time=0.0, steps=0,
        local_accuracy=0.0, train_loss=0.0, note="", clients=[], decisions=reasons, ledger=[],
    )  # fmt: skip


FACTS = {"label": "x", "seed": "0", "name": "n", "row": "r", "data": "", "given": ""}
ROUNDS = [[0.5] * 3, [0.1, 0.2], [0.25] * 4, [0.3, 0.1]]


def test_readers_find_one_table_of_decisions(tmp_path: Path) -> None:
    """Rounds with equal and with different scores alternate; a database without the newer table gives the same rows and digest."""
    runs = [create_run(tmp_path / name, "x = 1", FACTS) for name in ("new", "earlier")]
    with sqlite3.connect(runs[1].path / "run.sqlite") as db:
        db.execute("DROP TABLE equal_decisions")
    for run in runs:
        with writing(run) as writer:
            writer.record([round_with(t, scores) for t, scores in enumerate(ROUNDS, start=1)])
        run.verify()
    new, earlier = runs
    assert new.query("SELECT COUNT(*) FROM decisions") == [(4,)]
    assert earlier.query("SELECT COUNT(*) FROM decisions") == [(11,)]
    pd.testing.assert_frame_equal(new.decisions, earlier.decisions)
    for selected_only in (True, False):
        tables = [run.read_decisions(selected_only=selected_only) for run in runs]
        pd.testing.assert_frame_equal(tables[0], tables[1])
        assert len(tables[0]) == (4 if selected_only else 11)
    assert list(new.decisions["client"]) == [2, 1, 0, 1, 0, 3, 2, 1, 0, 1, 0]
    assert new.number_of_decisions == earlier.number_of_decisions == 11
    assert new.digest() == earlier.digest()
    with writing(new) as writer:
        writer.rewind(2)
    assert list(new.decisions["round"]) == [1] * 3 + [2] * 2


def test_the_table_does_not_depend_on_how_many_rows_are_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The texts of all terms together took 3 GB for 5,000 rounds with 1,000 candidates."""
    run = create_run(tmp_path / "run", "x = 1", FACTS)
    rounds = [round_with(t, scores) for t, scores in enumerate([*ROUNDS, [0.7, 0.2, 0.4]], start=1)]
    rounds[-1].decisions = reasons_of(
        [(4, True, 0.7, {"loss": 0.5, "age": 0.2}), (1, False, 0.2, {"loss": 0.2}), (0, False, 0.4, {})]
    )
    with writing(run) as writer:
        writer.record(rounds)
    whole = run.decisions
    assert list(whole.columns) == ["round", "client", "selected", "score", "loss", "age"]
    lengths = []
    parts = equal_decisions._in_parts

    def counted(*given: Any) -> Any:
        for part in parts(*given):
            lengths.append(len(part))
            yield part

    monkeypatch.setattr(equal_decisions, "_in_parts", counted)
    monkeypatch.setattr(equal_decisions, "PART", 2)
    pd.testing.assert_frame_equal(run.decisions, whole)
    assert lengths == [2, 2, 2, 1]


def test_one_round_is_read_alone(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", "x = 1", FACTS)
    with writing(run) as writer:
        writer.record([round_with(t, scores) for t, scores in enumerate(ROUNDS, start=1)])
    for t in range(1, 5):
        own = run.decisions.query(f"round == {t}").reset_index(drop=True)
        pd.testing.assert_frame_equal(run.read_decisions(round=t), own)
        chosen = own[own["selected"]].reset_index(drop=True)
        pd.testing.assert_frame_equal(run.read_decisions(round=t, selected_only=True), chosen)


@pytest.mark.parametrize("round", ["x", 1.7, 0, True])
def test_what_is_no_round_is_refused(round: Any, tmp_path: Path) -> None:
    """The database was said to be damaged, or the rows of round 1 came for 1.7."""
    run = create_run(tmp_path / "run", "x = 1", FACTS)
    message = rf"^round = {round!r}: should be a whole number of at least 1$"
    with pytest.raises(UsageError, match=message):
        run.read_clients(round)
    with pytest.raises(UsageError, match=message):
        run.read_decisions(round=round)


def test_texts_that_are_parsed_together_give_the_numbers_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bits of a table of dictionaries, in the order in which names come first, and NaN where a text has no such number."""
    texts = ['{"a": 0.1, "b": null}', '{"b": 1e-300, "a": 3}', "{}", '{"c": Infinity}', '{"a": NaN, "c": -0.0}'] * 3
    expected = pd.DataFrame([json.loads(text) for text in texts], dtype=float)
    for parsed in (1, 2, 4, 100):
        monkeypatch.setattr(own_columns, "PARSED", parsed)
        found = numbers_in(texts, "terms")
        assert list(found) == list(expected)
        assert all(found[name].tobytes() == expected[name].to_numpy().tobytes() for name in ("b", "c"))
        assert np.array_equal(found["a"], expected["a"], equal_nan=True)
    assert numbers_in([], "terms") == {}


@pytest.mark.parametrize(
    "texts",
    [
        ["[]", "{}"],
        ["1", "{}"],
        ['{"a": 1}, {"a": 2}'],
        ['{"a": 1}, {"a": 2}', '{"a": 1', '"b": 2}'],
        ['{"a": [{}', "{}]}", "{}, {}"],
        ['{"a": "}', '{"}', "{}, {}"],
        ['{"a": {}}'],
        ['{"a": "x"}'],
        ["", ""],
    ],
)
def test_texts_that_are_no_objects_of_numbers_are_refused(texts: list[str]) -> None:
    """Even if they are such objects when they are put together."""
    with pytest.raises((ValueError, TypeError)):
        numbers_in(texts, "terms")
