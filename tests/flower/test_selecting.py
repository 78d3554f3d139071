"""The wrapper around a Flower strategy: what it wraps, what wraps it, and what must not change its choices."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    FedXgbBagging,
    Krum,
    Strategy,
)

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.flower import Selecting, answers
from fedcohort.flower.exchange import SHORTEST, exchange
from fedcohort.flower.roster import name_order
from fedcohort.flower.wire import hello_message
from fedcohort.selection import Cohort, Round, Selector
from fedcohort.selection.strategies.all_available import All
from fedcohort.selection.strategies.haccs import HACCS
from fedcohort.selection.strategies.md import MD
from fedcohort.selection.strategies.oort import Oort
from fedcohort.selection.strategies.power_of_choice import PowerOfChoice
from fedcohort.selection.strategies.round_robin import RoundRobin
from fedcohort.selection.strategies.ucb import UCB
from fedcohort.selection.strategies.uniform import Uniform
from fedcohort.selection.strategies.utility_time import UtilityTime
from fedcohort.testing import LoopGrid
from tests.flower.apps import K, M, bare_app, client_of, grid, initial, inner, picks, selecting, willing_app


def played(
    selector: Any, strategy: Strategy | None = None, rounds: int = 4, **settings: Any
) -> tuple[list[list[int]], ArrayRecord]:
    where = grid(**settings)
    result = selecting(where, selector, strategy).start(where, initial(), num_rounds=rounds)
    return picks(where), result.arrays


@pytest.mark.parametrize("selector", [PowerOfChoice(d=8), UCB(), Oort()], ids=lambda s: type(s).__name__)
def test_node_ids_and_the_order_of_replies_change_nothing(selector: Any) -> None:
    chosen, model = played(selector)
    ids = np.random.default_rng(1).permutation(10**6)[:M].tolist()
    shuffle = random.Random(3)
    other, same = played(selector, nodes=ids, order=lambda replies: shuffle.sample(replies, len(replies)))
    assert other == chosen
    assert same["w"].numpy().tobytes() == model["w"].numpy().tobytes()


class Lowest(Selector):
    """The available clients with the lowest numbers."""

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: round.k])


def test_only_strategies_that_need_label_counts_get_them() -> None:
    counts = {}
    for selector in (Uniform(), HACCS()):
        where = grid(m=8)
        strategy = selecting(where, selector)
        strategy.start(where, initial(), num_rounds=1)
        assert strategy.chooser is not None
        counts[type(selector).__name__] = strategy.chooser.census.histogram
    assert counts["Uniform"] is None
    assert counts["HACCS"] is not None
    assert counts["HACCS"][6:].tolist() == [[5, 11, 0], [5, 5, 7]]


def test_names_that_are_numbers_come_first_by_value() -> None:
    assert sorted(["b", "²", "10", "2", "a"], key=name_order) == ["2", "10", "a", "b", "²"]


def test_clients_are_numbered_by_their_names_not_by_their_nodes() -> None:
    where, backwards = grid(), grid(nodes=[5000 - i for i in range(M)])
    for one in (where, backwards):
        selecting(one, Lowest()).start(one, initial(), num_rounds=1)
        assert picks(one) == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    "strategy",
    [
        inner(fraction_train=0.1, min_train_nodes=7, min_available_nodes=9),
        FedAdam(fraction_evaluate=0.0),
        FedMedian(fraction_evaluate=0.0),
        Krum(fraction_evaluate=0.0),
        DifferentialPrivacyServerSideFixedClipping(inner(), 0.0, 100.0, K),
    ],
    ids=lambda s: type(s).__name__,
)
def test_any_strategy_can_be_inside(strategy: Strategy) -> None:
    chosen, model = played(PowerOfChoice(d=8), strategy)
    assert [len(clients) for clients in chosen] == [K] * 4
    assert {array.dtype for array in model.values()} == {"float32"}
    assert (model["w"].numpy() != 0).all()
    if isinstance(strategy, FedAvg):
        assert strategy.fraction_train in (0.1, 1.0)
        assert strategy.min_train_nodes in (7, 2)


def test_the_inner_strategy_merges_as_without_the_wrapper() -> None:
    where, alone = grid(m=K), grid(m=K)
    ours = selecting(where, Uniform(), FedAdam(fraction_evaluate=0.0)).start(where, initial(), num_rounds=3).arrays
    plain = FedAdam(fraction_evaluate=0.0).start(alone, initial(), num_rounds=3).arrays
    for name, array in plain.items():
        assert np.allclose(ours[name].numpy(), array.numpy(), atol=1e-6)


def test_differential_privacy_can_be_outside() -> None:
    where = grid()
    inside = selecting(where, PowerOfChoice(d=8))
    outside = DifferentialPrivacyServerSideFixedClipping(inside, 0.0, 1e-3, K)
    result = outside.start(where, initial(), num_rounds=3)
    assert (
        picks(where)
        == played(PowerOfChoice(d=8), DifferentialPrivacyServerSideFixedClipping(inner(), 0.0, 1e-3, K), 3)[0]
    )
    assert np.linalg.norm(result.arrays["w"].numpy()) <= 3 * 1e-3 + 1e-6


def test_a_client_drawn_twice_counts_twice() -> None:
    where = grid(m=6)
    strategy = selecting(where, MD())
    weights: list[list[float]] = []
    merge = strategy.strategy.aggregate_train

    def noting(t: int, replies: Any) -> Any:
        replies = list(replies)
        weights.append([next(iter(reply.content.metric_records.values()))["num-examples"] for reply in replies])
        return merge(t, replies)

    strategy.strategy.aggregate_train = noting  # type: ignore[method-assign, assignment]
    cohorts = []
    strategy.start(where, initial(), num_rounds=12)
    chooser = strategy.chooser
    assert chooser is not None
    again = fedcohort.Chooser(MD(), chooser.census, 0)
    for _ in range(12):
        cohorts.append(again.select(range(6)))
        again.observe(again.outcome({}))
    expected = [
        [
            float(times * (10 + client))
            for client, times in zip(c.clients.tolist(), np.asarray(c.multiplicity).tolist(), strict=True)
        ]
        for c in cohorts
    ]
    assert weights == expected
    assert any((np.asarray(c.multiplicity) > 1).any() for c in cohorts)


def test_weights_of_the_strategy_reach_the_inner_strategy_and_are_refused_without_any() -> None:
    with pytest.raises(UsageError, match=r"algorithm\.weights = 'cohort': Uniform gives no weights"):
        Selecting(inner(), Uniform(), K, weights="cohort")
    with pytest.raises(UsageError, match=r"weights = 'heavy': valid are n_selected, uniform, cohort and unbiased"):
        Selecting(inner(), Uniform(), K, weights="heavy")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Selecting("FedAvg", Uniform(), 2), r"strategy = 'FedAvg': is not a flwr.serverapp.strategy.Strategy"),  # type: ignore[arg-type]
        (lambda: Selecting(inner(), "uniform", 2), r"selector = 'uniform': is not a strategy"),  # type: ignore[arg-type]
        (lambda: Selecting(FedXgbBagging(), Uniform(), 2), "FedXgbBagging: merges trees, whose size changes"),
        (lambda: Selecting(inner(), Uniform(), 0), "k = 0: should be a whole number of at least 1"),
        (lambda: Selecting(inner(), Uniform(), 2, seed=-1), "seed = -1: should be a whole number of at least 0"),
        (lambda: Selecting(inner(), Uniform(), 2, min_nodes="8"), "min_nodes = '8': should be a whole number"),  # type: ignore[arg-type]
        (lambda: Selecting(inner(), Uniform(), 2, max_nodes="x"), "max_nodes = 'x': should be a whole number"),  # type: ignore[arg-type]
        (lambda: Selecting(inner(), Uniform(), 2, authenticated="no"), "authenticated = 'no': valid are True"),  # type: ignore[arg-type]
        (lambda: Selecting(inner(), Uniform(), 2, patience="x"), "patience = 'x': must be a number of seconds above 0"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_wrapped_is_refused(make: Callable[[], Selecting], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


@pytest.mark.parametrize(
    ("settings", "rounds", "message"),
    [
        ({"trainable": ["nope"]}, 1, r"trainable = \['nope'\]: the model has no such arrays; valid: b, w"),
        ({"runs": "/proc/x"}, 1, "runs = '/proc/x': cannot be written .*; give another folder"),
        ({}, "3", "num_rounds = '3': should be a whole number"),
    ],
)
def test_what_cannot_be_played_is_refused_before_clients_are_waited_for(
    settings: dict[str, Any], rounds: Any, message: str
) -> None:
    where = grid(m=4)
    with pytest.raises(UsageError, match=message):
        selecting(where, Uniform(), **settings).start(where, initial(), num_rounds=rounds)
    assert where.messages == []


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (None, "{'accuracy': None}"),
        ("good", "{'accuracy': 'good'}"),
        ({"accuracy": 0.5, "class_accuracy": "a"}, "{'acc"),
    ],
)
def test_a_validation_that_returns_no_number_is_refused_in_one_line(found: Any, shown: str) -> None:
    where = grid(m=4)
    with pytest.raises(UsageError, match=f"validate: returned {shown}.*; must return the accuracy, a number"):
        selecting(where, UCB(), validate=lambda arrays: found).start(where, initial(), num_rounds=1)


@pytest.mark.parametrize("found", [85, {"accuracy": 0.5, "class_accuracy": [float("nan"), 85]}])
def test_a_validation_in_percent_is_refused(found: Any) -> None:
    where = grid(m=4)
    with pytest.raises(
        UsageError, match=r"^validate: (class_)?accuracy = 85\.0: must be a number of at most 1; 90% is 0\.9$"
    ):
        selecting(where, UCB(), validate=lambda arrays: found).start(where, initial(), num_rounds=1)


@pytest.mark.parametrize("found", [0.5, {"accuracy": 0.5, "class_accuracy": [0.5]}])
def test_a_validation_without_the_accuracy_of_each_class_is_refused_if_the_strategy_needs_it(found: Any) -> None:
    where = grid(m=4)
    with pytest.raises(UsageError, match=r"^class_accuracy: has the shape .*one number for each of the 3 classes$"):
        selecting(where, UtilityTime(), validate=lambda arrays: found).start(where, initial(), num_rounds=1)


def test_a_test_accuracy_in_percent_is_refused(tmp_path: Path) -> None:
    where = grid(m=4)
    with pytest.raises(
        UsageError, match=r"^evaluate_fn: accuracy = 85\.0: must be a number of at most 1; 90% is 0\.9$"
    ):
        selecting(where, Uniform(), runs=tmp_path).start(
            where, initial(), num_rounds=2, evaluate_fn=lambda t, arrays: MetricRecord({"accuracy": 85.0})
        )


def test_a_client_app_without_answers_is_named_while_the_server_waits(caplog: pytest.LogCaptureFixture) -> None:
    where = LoopGrid(ClientApp(), [{"partition-id": i} for i in range(5)])
    strategy = Selecting(inner(), Uniform(), k=2, min_nodes=5, patience=0.01, runs=None)
    with pytest.raises(UsageError, match=r"does its ClientApp call fedcohort.flower.answers\?"):
        strategy.start(where, initial(), num_rounds=1)
    [line] = [line for line in caplog.messages if "have introduced themselves" in line]
    assert line.startswith(
        "0 of min_nodes = 5 clients have introduced themselves; waiting up to 0.01 s (patience); node "
    )
    assert line.count("does its ClientApp call fedcohort.flower.answers?") == 3


def test_too_few_clients_are_refused_after_the_patience() -> None:
    where = grid(m=3)
    with pytest.raises(UsageError, match=r"min_nodes = 4: only 3 clients introduced themselves within 0.01 s"):
        selecting(where, Uniform(), min_nodes=4, patience=0.01).start(where, initial(), num_rounds=1)
    with pytest.raises(UsageError, match=r"min_nodes = 2: only 1 client introduced itself within 0.01 s"):
        selecting(one := grid(m=1), Uniform(), min_nodes=2, patience=0.01).start(one, initial(), num_rounds=1)
    with pytest.raises(UsageError, match="k = 4: more than the 3 connected clients"):
        selecting(where, Uniform(), min_nodes=3).start(where, initial(), num_rounds=1)


def test_an_app_without_answers_is_refused_with_the_way_out() -> None:
    where = grid(bare_app())
    with pytest.raises(UsageError, match=r"does its ClientApp call fedcohort.flower.answers\?"):
        selecting(where, Uniform(), patience=0.01).start(where, initial(), num_rounds=1)


def named(names: Sequence[str]) -> Any:
    return answers(
        bare_app(), num_samples=20, name=lambda context: names[client_of(context)], local_loss=lambda asked: 1.0
    )


@pytest.mark.parametrize(
    ("selector", "with_samples", "note"),
    [
        (Uniform(), 2, "uniform; short round: 2 of 3 available"),
        (All(), 2, "all available clients"),  # which selects any number of clients
        (Uniform(), 0, "empty round: no client available"),
    ],
)
def test_clients_without_samples_are_not_available(
    selector: Selector, with_samples: int, note: str, tmp_path: Path
) -> None:
    app = answers(bare_app(), num_samples=lambda context: 20 * (client_of(context) < with_samples))
    where = grid(app, m=4)
    strategy = selecting(where, selector, k=3, runs=tmp_path)
    strategy.start(where, initial(), num_rounds=1)
    assert strategy.path is not None
    run = fedcohort.open_run(strategy.path)
    assert run.rounds[["available", "note"]].to_numpy().tolist() == [[with_samples, note]]


def test_nodes_with_the_same_name_take_no_part_and_are_named() -> None:
    where = grid(named(["a", "b", "b", "c"]), m=4)
    strategy = selecting(where, Uniform(), k=2, min_nodes=2)
    strategy.start(where, initial(), num_rounds=3)
    assert strategy.clients.roster.names == ["a", "c"]
    assert {client for clients in picks(where) for client in clients} == {0, 3}
    reasons = set(strategy.clients.roster.ignored.values())
    assert reasons == {"it calls itself 'b', as another connected node does; names must differ"}


def test_a_client_that_comes_back_at_another_node_is_the_same_client() -> None:
    where = grid(named(["a", "b", "c", "c"]), m=4, offline={3})
    strategy = selecting(where, RoundRobin(), k=3, min_nodes=3)

    def swap(t: int, arrays: ArrayRecord) -> MetricRecord | None:
        where.offline = {3} if t < 2 else {2}
        return None

    strategy.start(where, initial(), num_rounds=4, evaluate_fn=swap)
    assert picks(where) == [[0, 1, 2], [0, 1, 2], [0, 1, 3], [0, 1, 3]]


def test_a_client_that_is_back_before_its_old_node_is_gone_takes_part_again() -> None:
    """A server notices only after a while that a node is gone."""
    where = grid(named(["a", "b", "c", "c"]), m=4, offline={3})
    strategy = selecting(where, RoundRobin(), k=3, min_nodes=3)

    def swap(t: int, arrays: ArrayRecord) -> MetricRecord | None:
        where.offline = {0: {3}, 1: set()}.get(t, {2})
        return None

    strategy.start(where, initial(), num_rounds=4, evaluate_fn=swap)
    assert picks(where) == [[0, 1, 2], [0, 1, 2], [0, 1, 3], [0, 1, 3]]


def test_a_node_that_was_not_reached_is_asked_again() -> None:
    unreached = list[Message]()

    def dying(position: int, message: Message, reply: Message) -> Message:
        if position == 2 and not unreached:
            unreached.append(message)
            return Message(Error(5, "Node Unavailable"), reply_to=message)
        return reply

    where = grid(named(["a", "b", "c"]), m=3, tamper=dying)
    selecting(where, Uniform(), k=3).start(where, initial(), num_rounds=1)
    assert picks(where) == [[0, 1, 2]]
    assert unreached


@pytest.mark.parametrize("virtual", [True, False])
def test_replies_that_arrive_one_after_another_are_soon_noticed(virtual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their times are measured by this; and nothing is waited for if time is virtual."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    many = 40
    where = LoopGrid(bare_app(), [{"partition-id": i} for i in range(many)], seconds=lambda position, _: 1.0 + position)
    clock = where.clock if virtual else lambda: where.clock()
    done = exchange(where, [hello_message(node) for node in where.nodes], 100.0, clock)
    assert list(done.seconds.values()) == [1.0 + i for i in range(many)]
    assert pauses == ([] if virtual else [SHORTEST] * (many - 1))


def test_a_stranger_that_joins_later_takes_no_part() -> None:
    where = grid(named(["a", "b", "c", "d"]), m=4, offline={3})
    strategy = selecting(where, Uniform(), k=3, min_nodes=3)

    def join(t: int, arrays: ArrayRecord) -> MetricRecord | None:
        where.offline = set()
        return None

    strategy.start(where, initial(), num_rounds=2, evaluate_fn=join)
    assert picks(where) == [[0, 1, 2]] * 2
    assert strategy.clients.roster.ignored == {1004: "its client 'd' was not there when the run began"}


def test_a_second_start_is_a_run_of_its_own(tmp_path: Path) -> None:
    where = grid(m=6, offline={4, 5})
    strategy = selecting(where, RoundRobin(), min_nodes=4, k=2, runs=tmp_path)
    strategy.start(where, initial(), num_rounds=3)
    first = strategy.path
    assert strategy.clients.roster.names == ["0", "1", "2", "3"]
    where.offline = {0, 1}
    strategy.start(where, initial(), num_rounds=3)
    assert strategy.clients.roster.names == ["2", "3", "4", "5"]
    assert first is not None
    assert strategy.path is not None
    both = [fedcohort.open_run(path) for path in (first, strategy.path)]
    assert [run.finished for run in both] == [True, True]
    assert [cohort.tolist() for cohort in both[0].selections] == [cohort.tolist() for cohort in both[1].selections]


def test_a_second_start_of_the_strategy_outside_is_a_run_of_its_own(tmp_path: Path) -> None:
    where = grid(m=4)
    strategy = selecting(where, UCB(), k=2, runs=tmp_path, rounds=2)
    outside = DifferentialPrivacyServerSideFixedClipping(strategy, 0.0, 10.0, 2)
    for _ in range(2):
        outside.start(where, initial(), num_rounds=2)
    assert [fedcohort.open_run(path).finished for path in tmp_path.iterdir()] == [True, True]


def test_clients_that_are_away_are_not_selected() -> None:
    where = grid()

    def leave(t: int, arrays: ArrayRecord) -> MetricRecord | None:
        where.offline = set(range(10)) if t == 1 else set()
        return None

    selecting(where, PowerOfChoice(d=10)).start(where, initial(), num_rounds=3, evaluate_fn=leave)
    assert min(picks(where)[1]) >= 10


def test_a_round_waits_for_a_client_and_is_empty_after_the_patience(tmp_path: Path) -> None:
    where = grid()
    looks = 0

    def leave(t: int, arrays: ArrayRecord) -> MetricRecord | None:
        where.offline = set(range(M)) if t in (1, 2) else set()
        return None

    connected = where.get_node_ids

    def look() -> Any:
        nonlocal looks
        if len(where.offline) == M and strategy.chooser is not None and strategy.chooser.t == 2:
            looks += 1
            if looks == 3:
                where.offline = {0}  # all but one come back while round 3 waits
        return connected()

    where.get_node_ids = look  # type: ignore[method-assign]
    strategy = selecting(where, Uniform(), patience=0.1, runs=tmp_path)
    strategy.start(where, initial(), num_rounds=3, evaluate_fn=leave)
    assert strategy.path is not None
    rounds = fedcohort.open_run(strategy.path).rounds
    assert rounds["available"].tolist() == [M, 0, M - 1]
    assert rounds["note"].iloc[1].startswith("empty round: no client available")


def test_messages_that_a_grid_cannot_send_have_no_reply() -> None:
    where = grid(m=3)
    push = where.push_messages

    def refuse_one(messages: Any) -> Any:
        _, *others = messages
        return [None, *push(others)] if len(others) == 2 else [] if not others else push(messages)

    where.push_messages = refuse_one  # type: ignore[method-assign]
    three = [Message(RecordDict({}), node, "train") for node in where.nodes]
    done = exchange(where, iter(three), 10.0, where.clock)
    assert done.ids[0] == ""
    assert len(done.first()) == 2
    assert exchange(where, three[:1], 10.0, where.clock).ids == [""]


def test_neither_import_fedcohort_nor_a_local_run_loads_flower_or_ray(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys, fedcohort, fedcohort.flower, fedcohort.testing; fedcohort.Chooser; "
        "fedcohort.run(fedcohort.Experiment(name='x', rounds=1, seeds=1)); "
        "loaded = {'flwr', 'ray'} & {name.split('.')[0] for name in sys.modules}; assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_messages_hold_no_pickle() -> None:
    where = grid()
    seen: list[Message] = []

    def noting(position: int, message: Message, reply: Message) -> Message:
        seen.append(reply)
        return reply

    where.tamper = noting
    selecting(where, PowerOfChoice(d=8)).start(where, initial(), num_rounds=1)
    records = [r for message in [*where.messages, *seen] for r in message.content.values()]
    arrays = [a for r in records if isinstance(r, ArrayRecord) for a in r.values()]
    assert arrays
    assert {a.stype for a in arrays} == {"numpy.ndarray"}
    assert all(a.data.startswith(b"\x93NUMPY") and b"'descr': '<f4'" in a.data for a in arrays)
    texts = [str(v) for r in records if not isinstance(r, ArrayRecord) for v in r.values()]
    assert all(not isinstance(v, bytes) for r in records if not isinstance(r, ArrayRecord) for v in r.values())
    assert texts


def test_a_willing_app_is_needed_only_for_what_is_asked() -> None:
    where = grid(willing_app(speed=None, context=None))
    selecting(where, PowerOfChoice(d=8)).start(where, initial(), num_rounds=1)
    assert len(picks(where)) == 1
