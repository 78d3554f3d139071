"""Replies that cannot be used are failed clients, with the cause; the others are merged."""

import io
import math
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedMedian

import fedcohort
from fedcohort.flower.replies import as_state, check_replies
from fedcohort.flower.roster import failure_of
from fedcohort.flower.wire import KEY
from fedcohort.selection import Cohort, Round, Selector
from fedcohort.selection.strategies.power_of_choice import PowerOfChoice
from tests.flower.apps import grid, initial, selecting

SIMULATED = (
    "<class 'ray.exceptions.RayTaskError(ClientAppException)'>:<'ray::ClientAppActor.run() (pid=1)\nValueError: no data\n\n"
    "flwr.clientapp.client_app.ClientAppException: \nException ClientAppException occurred. Message: "
)


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


def archive() -> bytes:
    """An archive with an array, in place of an array."""
    file = io.BytesIO()
    np.savez(file, np.zeros(3, np.float32))
    return file.getvalue()


def bytes_of(length: int) -> bytes:
    """The beginning of a file with so many numbers."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({length},)}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"1234"


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
    "numbers that the model's type cannot hold": (
        lambda m, r: changed(m, r, arrays=lambda a: a | {"w": Array(np.full(3, 1e300))}),
        "failed", "malformed reply: array 'w' has numbers that float32, the type of the model, cannot hold",
    ),
    "no numbers": (
        lambda m, r: changed(m, r, arrays=lambda a: a | {"w": Array("float32", (3,), "numpy.ndarray", b"rubbish")}),
        "failed", "malformed reply: its arrays cannot be read (",
    ),
    "damaged archive": (
        lambda m, r: changed(m, r, arrays=lambda a: a | {"w": Array("float32", (3,), "numpy.ndarray", b"PK\x03\x04rubbish")}),
        "failed", "malformed reply: its arrays cannot be read (",
    ),
    "archive of arrays": (
        lambda m, r: changed(m, r, arrays=lambda a: a | {"w": Array("float32", (3,), "numpy.ndarray", archive())}),
        "failed", "malformed reply: array 'w' holds a NpzFile instead of an array",
    ),
    "more numbers than there is memory": (
        lambda m, r: changed(m, r, arrays=lambda a: a | {"w": Array("float32", (3,), "numpy.ndarray", bytes_of(10**15))}),
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
    "more samples than can be counted": (
        lambda m, r: changed(m, r, metrics=lambda a: a | {"num-examples": 1e30}),
        "failed", "malformed reply: its metric 'num-examples' is 1e+30; must be at least 0 and below 9,007,199,254,740,992",
    ),
    "the largest integer": (
        lambda m, r: changed(m, r, metrics=lambda a: a | {"num-examples": 2**63 - 1}),
        "failed", "malformed reply: its metric 'num-examples' is 9.22337e+18; must be at least 0 and below 9,007,199,254,740,992",
    ),
    "negative steps": (
        lambda m, r: changed(m, r, metrics=lambda a: a | {"steps": -3}),
        "failed", "malformed reply: its metric 'steps' is -3; must be at least 0 and below 9,007,199,254,740,992",
    ),
    "more steps than can be counted": (
        lambda m, r: changed(m, r, metrics=lambda a: a | {"steps": 1e19}),
        "failed", "malformed reply: its metric 'steps' is 1e+19; must be at least 0 and below 9,007,199,254,740,992",
    ),
    "other metrics": (
        lambda m, r: changed(m, r, metrics=lambda a: a | {"extra": 1.0}),
        "failed", "malformed reply: its records or metrics have other names (",
    ),
    "a list in place of a number": (
        lambda m, r: changed(m, r, metrics=lambda a: a | {"loss": [1.0, 2.0]}),
        "failed", "malformed reply: its metrics have other lengths (accuracy: a number, ",
    ),
    "error": (
        lambda m, r: Message(Error(2, "Traceback\nValueError: no data"), reply_to=m),
        "failed", "its ClientApp raised an error: ValueError: no data",
    ),
    "duplicate": (lambda m, r: [r, r], "failed", "duplicate: it sent 2 replies to one message"),
    "lost": (silent, "late", "no reply within 50 s"),
}  # fmt: skip
if np.dtype(np.longdouble).itemsize > 8:  # on some processors, it is another name of float64
    BROKEN["numbers that torch does not know"] = (
        lambda m, r: changed(m, r, arrays=lambda a: a | {"w": Array(np.zeros(3, np.longdouble))}),
        "failed",
        f"malformed reply: array 'w' holds {np.dtype(np.longdouble)} [3], which is not what the model has",
    )


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


@pytest.mark.parametrize(("kind", "rounds", "difference"), [(">f4", 2, 0.0), ("<f8", 1, 1e-7)])
def test_a_reply_in_another_order_of_bytes_or_precision_is_merged_in_the_type_of_the_model(
    kind: str, rounds: int, difference: float
) -> None:
    models = []
    for sent in ("<f4", kind):

        def tamper(_position: int, message: Message, reply: Message, sent: str = sent) -> Message:
            if message.metadata.message_type != "train":
                return reply
            return changed(message, reply, arrays=lambda a: a | {"w": Array(a["w"].numpy().astype(sent))})

        where = grid(m=3, tamper=tamper)
        result = selecting(where, Everyone(), k=3).start(where, initial(), num_rounds=rounds)
        models.append(result.arrays["w"].numpy())
    assert [model.dtype for model in models] == [np.float32, np.float32]
    assert np.allclose(models[0], models[1], rtol=0, atol=difference)
    assert (models[0] != 0).all()


def test_arrays_that_are_no_numbers_of_torch_are_left_out_of_the_state() -> None:
    arrays = ArrayRecord(
        {"w": Array(np.ones(2)), "names": Array(np.array(["a"])), "z": Array(np.ones(2, np.complex64))}
    )
    assert list(as_state(arrays)) == ["w"]


def test_a_count_is_checked_also_if_the_inner_strategy_weighs_by_another_metric(tmp_path: Path) -> None:
    """With FedMedian, which has no weights, the number of samples is still recorded."""
    where = grid(m=3)
    where.tamper = lambda p, m, r: (
        changed(m, r, metrics=lambda a: a | {"num-examples": 1e19})
        if p == 1 and m.metadata.message_type == "train"
        else r
    )
    strategy = selecting(where, Everyone(), FedMedian(fraction_evaluate=0.0), k=3, runs=tmp_path)
    strategy.start(where, initial(), num_rounds=1)
    assert strategy.path is not None
    assert fedcohort.open_run(strategy.path).clients["status"].tolist() == ["admitted", "failed", "admitted"]


@pytest.mark.parametrize(("seconds", "status"), [(99.0, "admitted"), (5000.0, "late")])
def test_a_reply_that_needs_longer_than_the_timeout_is_late(seconds: float, status: str, tmp_path: Path) -> None:
    where = grid(m=3, seconds=lambda position, message: seconds if position == 1 else 1.0)
    strategy = selecting(where, Everyone(), k=3, runs=tmp_path)
    strategy.start(where, initial(), num_rounds=1, timeout=100)
    assert strategy.path is not None
    run = fedcohort.open_run(strategy.path)
    assert run.clients["status"].tolist() == ["admitted", status, "admitted"]
    assert run.clients["duration"].tolist() == [1.0, min(seconds, 100.0), 1.0]
    assert run.rounds["round_time"].tolist() == [min(seconds, 100.0)]
    if status == "late":
        assert run.clients["detail"].iloc[1] == "no reply within 100 s"


def test_the_timeout_is_not_named_if_only_an_outer_strategy_knows_it() -> None:
    sent = {0: Message(RecordDict({"arrays": initial()}), 1001, "train")}
    [checked] = check_replies(sent, [], initial(), None, timeout=math.inf)
    assert checked.late == "no reply"


def test_a_grid_in_this_process_waits_no_longer_than_it_is_told() -> None:
    where = grid(m=2, seconds=lambda position, message: (1.0, 50.0)[position])
    messages = [Message(RecordDict({"arrays": initial()}), node, "train") for node in where.nodes]
    assert len(list(where.send_and_receive(messages, timeout=10.0))) == 1
    assert where.clock() == 10.0
    messages = [Message(RecordDict({"arrays": initial()}), node, "train") for node in where.nodes]
    assert len(list(where.send_and_receive(messages))) == 2
    assert where.clock() == 60.0


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


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (2, "<class 'ValueError'>:<'no data'>", "its ClientApp raised an error: ValueError: no data"),
        (2, "<class 'my.app.<locals>.Own'>:<'first\nlast'>", "its ClientApp raised an error: Own: last"),
        (2, "<class 'KeyError'>:<''>", "its ClientApp raised an error: KeyError"),
        (
            2,
            f"{SIMULATED}no data\non disk'>",
            "its ClientApp raised an error: on disk",
        ),
        (
            2,
            f"{SIMULATED}no data'>",
            "its ClientApp raised an error: no data",
        ),
        (
            5,
            "Error: Node Unavailable — The destination node failed to report a heartbeat.",
            "its node is unreachable: Node Unavailable — The destination node failed to report a heartbeat",
        ),
        (2, "", "its ClientApp raised an error"),
    ],
)
def test_the_errors_that_flower_sends_are_words(code: int, reason: str, words: str) -> None:
    """These are the reasons of SuperNodes, of the simulation runtime, and of the SuperLink."""
    reply: Any = SimpleNamespace(error=Error(code, reason))
    assert failure_of(reply) == words


def test_clients_without_an_answer_for_the_same_reason_share_a_note(tmp_path: Path) -> None:
    def tamper(position: int, message: Message, reply: Message) -> Any:
        asks = message.metadata.message_type.startswith("query") and message.metadata.group_id
        return Message(Error(2, f"lost by {position % 9 // 8}"), reply_to=message) if asks else reply

    where = grid(m=9, tamper=tamper)
    strategy = selecting(where, PowerOfChoice(d=9), k=2, runs=tmp_path)
    strategy.start(where, initial(), num_rounds=1)
    assert strategy.path is not None
    note = fedcohort.open_run(strategy.path).rounds["note"].iloc[0]
    error = "gave no LocalLoss: its ClientApp raised an error: lost by"
    assert f"clients 0, 1, 2, 3, 4 and 3 more {error} 0; client 8 {error} 1" in note


def test_a_constant_with_infinite_numbers_is_no_divergence(tmp_path: Path) -> None:
    """Such as the mask of an attention, which is part of a state dictionary; a client that changes it has diverged."""
    mask, other = (Array(np.array([value, -np.inf], np.float32)) for value in (0.0, np.inf))

    def masked(position: int, message: Message, reply: Message) -> Message:
        if message.metadata.message_type != "train":
            return reply
        return changed(message, reply, arrays=lambda a: a | {"mask": other if position == 1 else mask})

    where = grid(m=4, tamper=masked)
    strategy = selecting(where, Everyone(), runs=tmp_path)
    result = strategy.start(where, ArrayRecord({**initial(), "mask": mask}), num_rounds=2)
    assert strategy.path is not None
    clients = fedcohort.open_run(strategy.path).clients
    assert clients[clients["status"] == "diverged"]["client"].tolist() == [1, 1]
    assert (clients["status"] == "admitted").sum() == 6
    assert result.arrays["mask"].numpy().tolist() == [0.0, -np.inf]
    assert (result.arrays["w"].numpy() != 0).all()
