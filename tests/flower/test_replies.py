"""Replies that cannot be used are failed clients, with the cause; the others are merged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict

import fedcohort
from fedcohort.flower.wire import KEY
from fedcohort.selection import Cohort, Round, Selector
from fedcohort.selection.power_of_choice import PowerOfChoice
from tests.flower.apps import grid, initial, selecting


class Everyone(Selector):
    """All available clients."""

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available)


def changed(message: Message, reply: Message, *, arrays: Any = None, metrics: Any = None) -> Message:
    """The reply with other arrays or metrics, given as functions of dictionaries."""
    old_arrays, old_metrics = reply.content["arrays"], reply.content["metrics"]
    assert isinstance(old_arrays, ArrayRecord)
    assert isinstance(old_metrics, MetricRecord)
    content = RecordDict(
        {
            "arrays": ArrayRecord(arrays(dict(old_arrays))) if arrays else old_arrays,
            "metrics": MetricRecord(metrics(dict(old_metrics))) if metrics else old_metrics,
        }
    )
    return Message(content, reply_to=message)


def silent(_message: Message, _reply: Message) -> None:
    return None


BROKEN: dict[str, tuple[Callable[[Message, Message], Any], str, str]] = {
    "NaN": (
        lambda m, r: changed(m, r, arrays=lambda a: a | {"w": Array(np.full(3, np.nan, np.float32))}),
        "diverged", "its update has NaN or infinite entries and was dropped",
    ),
    "shape": (
        lambda m, r: changed(m, r, arrays=lambda a: a | {"w": Array(np.zeros(4, np.float32))}),
        "failed", "malformed reply: array 'w' has the shape [4] instead of [3]",
    ),
    "lying shape": (
        lambda m, r: changed(
            m, r, arrays=lambda a: a | {"w": Array("float32", (3,), "numpy.ndarray", Array(np.zeros(9, np.float32)).data)}
        ),
        "failed", "malformed reply: array 'w' holds float32 [9], which is not what the model has",
    ),
    "kind": (
        lambda m, r: changed(m, r, arrays=lambda a: a | {"w": Array(np.zeros(3, np.int64))}),
        "failed", "malformed reply: array 'w' holds int64 [3], which is not what the model has",
    ),
    "no numbers": (
        lambda m, r: changed(m, r, arrays=lambda a: a | {"w": Array("float32", (3,), "numpy.ndarray", b"rubbish")}),
        "failed", "malformed reply: its arrays cannot be read (",
    ),
    "missing array": (
        lambda m, r: changed(m, r, arrays=lambda a: {"w": a["w"]}),
        "failed", "malformed reply: its arrays are not those of the model: 'b'",
    ),
    "no arrays": (
        lambda m, r: Message(RecordDict({"metrics": r.content["metrics"]}), reply_to=m),
        "failed", "malformed reply: it has 0 ArrayRecords instead of 1",
    ),
    "no metrics": (
        lambda m, r: Message(RecordDict({"arrays": r.content["arrays"]}), reply_to=m),
        "failed", "malformed reply: it has 0 MetricRecords instead of 1",
    ),
    "no weight": (
        lambda m, r: changed(m, r, metrics=lambda a: {name: x for name, x in a.items() if name != "num-examples"}),
        "failed", "malformed reply: its metric 'num-examples' is None; must be a number above 0",
    ),
    "weight of 0": (
        lambda m, r: changed(m, r, metrics=lambda a: a | {"num-examples": 0}),
        "failed", "malformed reply: its metric 'num-examples' is 0.0; must be a number above 0",
    ),
    "other metrics": (
        lambda m, r: changed(m, r, metrics=lambda a: a | {"extra": 1.0}),
        "failed", "malformed reply: its records or metrics have other names (",
    ),
    "error": (
        lambda m, r: Message(Error(2, "Traceback\nValueError: no data"), reply_to=m),
        "failed", "its ClientApp raised an error: ValueError: no data",
    ),
    "duplicate": (lambda m, r: [r, r], "failed", "duplicate: it sent 2 replies to one message"),
    "lost": (silent, "late", "no reply within 50 s"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_reply_that_cannot_be_used_is_a_failed_client_with_its_cause(case: str, tmp_path: Path) -> None:
    spoil, status, detail = BROKEN[case]

    def tamper(position: int, message: Message, reply: Message) -> Any:
        return spoil(message, reply) if position == 2 and message.metadata.message_type == "train" else reply

    models = []
    for broken in (True, False):
        where = grid(m=5, offline=() if broken else {2})
        if broken:
            where.tamper = tamper
        strategy = selecting(
            where, Everyone(), k=5 if broken else 4, runs=tmp_path / str(broken), min_nodes=5 if broken else 4
        )
        result = strategy.start(where, initial(), num_rounds=1, timeout=50)
        models.append(result.arrays["w"].numpy().tobytes())
        if broken:
            assert strategy.path is not None
            clients = fedcohort.open_run(strategy.path).clients
            row = clients[clients["client"] == 2].iloc[0]
            assert row["status"] == status
            assert row["detail"].startswith(detail)
            assert (clients["status"] == "admitted").sum() == 4
    assert models[0] == models[1]


def test_a_node_that_goes_away_in_mid_round_is_named_although_its_error_reply_is_not_its_own(tmp_path: Path) -> None:
    where = grid(m=5)

    def tamper(position: int, message: Message, reply: Message) -> Message:
        if position != 3 or message.metadata.message_type != "train":
            return reply
        error = Message(Error(5, "Node Unavailable"), reply_to=message)
        error.metadata.__dict__["_src_node_id"] = 1
        return error

    where.tamper = tamper
    strategy = selecting(where, Everyone(), k=5, runs=tmp_path)
    strategy.start(where, initial(), num_rounds=1)
    assert strategy.path is not None
    clients = fedcohort.open_run(strategy.path).clients
    assert clients.loc[clients["client"] == 3, ["status", "detail"]].to_numpy().tolist() == [
        ["failed", "its node is unreachable: Node Unavailable"]
    ]


def test_a_round_in_which_all_fail_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    where = grid(m=5, tamper=lambda p, m, r: None if m.metadata.message_type == "train" else r)
    strategy = selecting(where, Everyone(), k=5, runs=tmp_path)
    result = strategy.start(where, initial(), num_rounds=2, timeout=50)
    assert (result.arrays["w"].numpy() == 0).all()
    assert strategy.path is not None
    rounds = fedcohort.open_run(strategy.path).rounds
    assert rounds["admitted"].tolist() == [0, 0]
    assert all("no update admitted" in note for note in rounds["note"])


@pytest.mark.parametrize(
    ("spoil", "note"),
    [
        (lambda m, r: None, "gave no LocalLoss: no answer within 0.2 s"),
        (
            lambda m, r: Message(RecordDict({KEY: MetricRecord({"answer": [1.0, 2.0]})}), reply_to=m),
            "its answer is not 1 number",
        ),
        (lambda m, r: Message(RecordDict({}), reply_to=m), "its answer is not 1 number"),
        (
            lambda m, r: Message(Error(2, "ValueError: no data"), reply_to=m),
            "its ClientApp raised an error: ValueError: no data",
        ),
    ],
)
def test_an_answer_that_cannot_be_used_is_no_answer(spoil: Any, note: str, tmp_path: Path) -> None:
    def tamper(position: int, message: Message, reply: Message) -> Any:
        asks = message.metadata.message_type.startswith("query") and message.metadata.group_id
        return spoil(message, reply) if position == 4 and asks else reply

    where = grid(m=5, tamper=tamper)
    strategy = selecting(where, PowerOfChoice(d=5), k=2, runs=tmp_path)
    strategy.start(where, initial(), num_rounds=1)
    assert strategy.path is not None
    run = fedcohort.open_run(strategy.path)
    assert "client 4 gave no LocalLoss" in run.rounds["note"].iloc[0]
    assert note in run.rounds["note"].iloc[0]
    decisions = run.decisions
    scores = decisions.set_index("client")["score"]
    assert 4 not in scores.index or pd.isna(scores[4]) or not decisions.set_index("client")["selected"][4]
