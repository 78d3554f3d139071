"""Records as they are written: what is sealed is what stands there."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.record import ClientRow, LedgerRow, Reasons, RoundRow, create_run, writing
from tests.records import decision_rows

FACTS = {"name": "a run", "label": "a row", "row": "a row", "seed": "0", "data": "", "given": ""}
"""The facts about a run that every record has."""

numbers = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 1.0, -3.0, 5e-324, 1e308, math.nan, math.inf, -math.inf]),
)


@st.composite
def rounds(draw: st.DrawFn, t: int = 1) -> RoundRow:
    """A round with whatever numbers there are."""
    number = [draw(numbers) for _ in range(12)]
    some = draw(st.lists(numbers, max_size=4))
    words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    return RoundRow(
        round=t, available=draw(st.integers(0, 2**40)), selected=len(some), trained=np.int64(3), admitted=0,  # type: ignore[arg-type]
        simulated_time=number[0], round_time=np.float64(number[1]), steps=7, local_accuracy=number[2], train_loss=number[3],
        note=draw(words),
        clients=[
            ClientRow(i, "admitted", draw(words), 5, 1, value, number[4], draw(st.integers(0, 3)), number[6], {"q": value})
            for i, value in enumerate(some)
        ],
        decisions=Reasons(
            np.arange(len(some)), [i % 2 == 0 for i in range(len(some))], np.array(some, dtype=np.float64),
            {"a": np.array(some, dtype=np.float64)} if draw(st.booleans()) else {}, np.array([9]),
        ),
        ledger=[LedgerRow(kind, 1, 2, 3, number[7], number[8], draw(words)) for kind in ("training", "Ask", "Ä")],
        wall={"total": abs(number[9])}, client_accuracy=np.array(some) if draw(st.booleans()) else None,
        validation_accuracy=number[10], class_accuracy=some,
    )  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(rounds(1), rounds(2))
def test_whatever_is_recorded_is_found_as_it_was_sealed(
    tmp_path_factory: pytest.TempPathFactory, first: RoundRow, second: RoundRow
) -> None:
    with TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as folder:
        run = create_run(Path(folder) / "run", "x = 1", FACTS)
        with writing(run) as writer:
            writer.record([first])
            writer.record([second])
        run.verify()
        rows = run.query("SELECT * FROM decisions WHERE round = 1 ORDER BY position")
        assert rows == decision_rows(1, first.decisions)
