"""Selection for a server of one's own: rounds, checks, and a state that is data."""

import copy
import dataclasses
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import fedcohort
from fedcohort import Chooser, ClientResult, UsageError
from fedcohort.chooser.argument_checks import ids_of
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.files.state_files import pack, save_state, unpack
from fedcohort.core.parameters import parameters
from fedcohort.core.random_streams import rng
from fedcohort.selection import STRATEGIES, Census, Cohort, LocalLoss, Outcome, Question, Round, Selector
from fedcohort.selection.strategies.divfl import DivFL
from fedcohort.selection.strategies.fedcbs import FedCBS
from fedcohort.selection.strategies.gpfl import GPFL
from fedcohort.selection.strategies.power_of_choice import PowerOfChoice
from fedcohort.selection.strategies.rizk import Rizk
from fedcohort.selection.strategies.tifl import TiFL
from fedcohort.selection.strategies.ucb import UCB
from fedcohort.selection.strategies.uniform import Uniform
from fedcohort.selection.strategies.utility_time import UtilityTime
from tests.experiments import small

M, K = 12, 3
SIZES = np.arange(20, 20 + M)
CENSUS = Census(
    SIZES, 3, K, histogram=np.stack([SIZES // 2, SIZES - SIZES // 2, np.zeros_like(SIZES)], axis=1), rounds=8
)


def answer(question: Question, clients: Indices) -> Values:
    """The same answer for the same client and question, in every process."""
    shape = (M,) if question.numbers == 1 else (M, question.numbers)
    return rng(0, f"answer-{question.kind}").uniform(0.1, 2, shape)[clients]


def results_of(cohort: Cohort, t: int) -> dict[int, ClientResult]:
    """The last client fails in every third round."""
    draw = rng(0, "results", t).uniform(0.1, 2, (M, 8))
    names = ("loss", "square_loss", "accuracy", "samples", "steps", "q_hat", "training_loss", "held_out_loss")
    found = {}
    for position, client in enumerate(cohort.clients.tolist()):
        reports = dict(zip(names, draw[client].tolist(), strict=True)) | {"done": 1.0}
        failure = "lost" if position == len(cohort) - 1 and t % 3 == 0 else ""
        found[client] = ClientResult(reports, 1.0 + client, draw[client], failure=failure)
    return found


def play(chooser: Chooser, rounds: int) -> list[list[int]]:
    picks = []
    for _ in range(rounds):
        cohort = chooser.select((i for i in range(M) if (i + chooser.t) % 5), ask=answer)
        results = results_of(cohort, chooser.t)
        chooser.admits(results)
        chooser.observe(
            chooser.outcome(
                results,
                accuracy=0.1 * chooser.t,
                class_accuracy=[0.5, 0.6, 0.7],
                validation_losses=[0.5, 0.6],
            )
        )
        picks.append(cohort.clients.tolist())
    return picks


@pytest.mark.parametrize("name", STRATEGIES.builtin)
def test_every_strategy_continues_from_a_saved_state(name: str, tmp_path: Path) -> None:
    make = STRATEGIES.find(name, "")
    straight = play(Chooser(make(), CENSUS, seed=4), 8)
    first = Chooser(make(), CENSUS, seed=4)
    before = play(first, 5)
    first.save(tmp_path / "chooser.safetensors")
    second = Chooser(make(), CENSUS, seed=4)
    second.restore(tmp_path / "chooser.safetensors")
    assert pack(second.state_dict()) == pack(first.state_dict())
    assert before + play(second, 3) == straight
    assert [path.name for path in tmp_path.iterdir()] == ["chooser.safetensors"]
    assert (tmp_path / "chooser.safetensors").read_bytes()[8:9] == b"{"  # the header of safetensors
    assert unpack(pack(second.state_dict()))["t"] == 8


@pytest.mark.parametrize("name", ["oort", "ucb", "flash"])
def test_a_state_in_memory_is_changed_neither_by_later_rounds_nor_by_the_choosers_that_restore_it(name: str) -> None:
    make = STRATEGIES.find(name, "")
    first, second, third = (Chooser(make(), CENSUS, seed=4) for _ in range(3))
    play(first, 3)
    state = first.state_dict()
    begun = pack(state)
    later = play(first, 3)
    second.load_state_dict(state)
    assert play(second, 3) == later
    third.load_state_dict(state)
    assert play(third, 3) == later
    assert pack(state) == begun


def test_the_first_picks_are_those_of_a_simulation(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=4, selection={"name": "uniform", "k": 3}), runs=tmp_path)
    chooser = Chooser(Uniform(), Census(run.portrait.facts["samples"], 10, 3), seed=0)
    picks = []
    for _ in range(4):
        picks.append(chooser.select(range(12)).clients.tolist())
        chooser.observe(chooser.outcome({}))
    assert picks == [clients.tolist() for clients in run.selections]


def test_the_order_of_the_available_clients_does_not_matter() -> None:
    first, second = (Chooser(PowerOfChoice(d=6), CENSUS) for _ in range(2))
    one = first.select(range(M), ask=answer)
    two = second.select(np.arange(M)[::-1], ask=answer)
    assert one.clients.tolist() == two.clients.tolist()


def test_the_ledger_bills_questions() -> None:
    chooser = Chooser(PowerOfChoice(d=6), CENSUS)
    chooser.select(range(M), ask=answer, model_bytes=100)
    (row,) = chooser.ledger.rows
    assert (row.kind, row.messages, row.bytes_down, row.bytes_up, row.passes) == ("LocalLoss", 12, 600, 24, 6.0)


class Seen(Selector):
    """Keeps the rounds and outcomes that it receives."""

    def setup(self, census: Census) -> None:
        super().setup(census)
        self.rounds: list[Round] = []
        self.outcomes: list[Outcome] = []
        self.known: list[Any] = []

    def select(self, round: Round) -> Cohort:
        self.rounds.append(round)
        self.known.append((round.clock, round.durations.copy(), round.compute_times.copy(), round.upload_times.copy()))
        return Cohort(round.available[: round.k], epochs=np.full(min(round.k, len(round.available)), 2))

    def observe(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


def test_the_strategy_sees_what_the_server_says() -> None:
    chooser = Chooser(Seen(), CENSUS)
    selector = chooser.selector
    assert isinstance(selector, Seen)
    chooser.select([5, 3, 9, 3])
    results = {
        3: ClientResult({"loss": 0.5}, 8.0),
        5: ClientResult({}, late="too slow"),
        9: ClientResult(failure="gone"),
    }
    outcome = chooser.outcome(results, duration=10.0)
    assert outcome.trained.tolist() == outcome.admitted.tolist() == [True, False, False]
    np.testing.assert_array_equal(outcome.durations, [8.0, 10.0, np.nan])
    np.testing.assert_array_equal(outcome.billed_report("loss"), [0.5, np.nan, np.nan])
    assert np.isnan(outcome.accuracy)
    chooser.observe(outcome, upload_times=[2.0, np.nan, np.nan])
    chooser.select([3, 4])
    clock, durations, compute, upload = selector.known[1]
    assert clock == 10.0
    # two epochs instead of one: half the computing is nominal work, and at least half the time that was waited for client 5
    assert (durations[3], compute[3], upload[3]) == (5.0, 3.0, 2.0)
    assert durations[5] == 5.0
    assert np.isnan(durations[[4, 9]]).all()
    assert [round_.k for round_ in selector.rounds] == [3, 2]
    assert selector.rounds[0].available.tolist() == [3, 5, 9]


class Halves(Uniform):
    """Selects the first three clients for half of the nominal epochs."""

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[:3], epochs=np.full(3, 2))


def test_known_times_are_those_of_nominal_work() -> None:
    """Half of the work took client 0 three seconds; of client 1, which is late, it is only known how long the server waited."""
    chooser = Chooser(Halves(), dataclasses.replace(CENSUS, epochs=4), k=3)
    for waited in (None, 5.0):
        chooser.select(range(M))
        late = ClientResult(late="too slow", duration=8.0)
        outcome = chooser.outcome({0: ClientResult(duration=3.0), 1: late}, duration=waited)
        assert outcome.duration == (waited or 8.0)
        chooser.observe(outcome)
        assert chooser.durations[:2].tolist() == [6.0, 8.0]
        assert np.isnan(chooser.durations[2])
    assert chooser.clock == 13.0


class StopsEarly(Uniform):
    """Selects the first four clients for at most eight epochs each, with a rule that can end them before."""

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[:4], epochs=np.full(4, 8), stop={"rule": "conformal"})


def test_known_times_count_the_epochs_that_clients_used() -> None:
    """Nominal work is four epochs. Client 0 stopped after two, in 3 s; client 1 used all eight, in 6 s. Clients 2 and 3 report no
    number that can be, and count as having used all eight."""
    chooser = Chooser(StopsEarly(), dataclasses.replace(CENSUS, epochs=4), k=4)
    chooser.select(range(M))
    results = {
        0: ClientResult({"epochs": 2.0}, duration=3.0), 1: ClientResult({"epochs": 8.0}, duration=6.0),
        2: ClientResult({"epochs": 9.0}, duration=6.0), 3: ClientResult(duration=6.0),
    }  # fmt: skip
    chooser.observe(chooser.outcome(results))
    assert chooser.durations[:4].tolist() == [6.0, 3.0, 3.0, 3.0]


def test_known_times_count_the_passes_that_choose_samples() -> None:
    """An epoch whose samples are drawn by their loss takes a third longer: of 8 s, 6 s are nominal work."""
    chooser = Chooser(Rizk(importance_data=True), dataclasses.replace(CENSUS, num_parameters=2), k=3)
    clients = chooser.select(range(M)).clients.tolist()
    results = {client: ClientResult({"steps": 3.0}, 8.0, update=[1.0, 2.0]) for client in clients}
    chooser.observe(chooser.outcome(results))
    assert chooser.durations[clients].tolist() == pytest.approx([6.0] * 3)


class StopsEarlyByLoss(StopsEarly):
    """The same, with samples that are drawn by their loss."""

    def select(self, round: Round) -> Cohort:
        return dataclasses.replace(super().select(round), sampling="loss")


def test_known_times_count_the_passes_of_the_epochs_that_clients_used() -> None:
    """Nominal work is four epochs. Two epochs that take a third longer are 8/3 of them, and all eight are 32/3."""
    chooser = Chooser(StopsEarlyByLoss(), dataclasses.replace(CENSUS, epochs=4), k=4)
    chooser.select(range(M))
    results = {
        0: ClientResult({"epochs": 2.0}, duration=4.0), 1: ClientResult({"epochs": 8.0}, duration=16.0),
        2: ClientResult({"epochs": 9.0}, duration=16.0), 3: ClientResult(duration=32.0),
    }  # fmt: skip
    chooser.observe(chooser.outcome(results))
    assert chooser.durations[:4].tolist() == pytest.approx([6.0, 6.0, 6.0, 12.0])


def test_a_round_lasts_until_its_last_known_time() -> None:
    """A client whose time is not known, here the first one, does not make the round's time unknown."""
    own = Chooser(Uniform(), CENSUS, k=3)
    clients = own.select(range(M)).clients.tolist()
    results = dict(zip(clients, [ClientResult(), ClientResult(duration=5.0), ClientResult(duration=2.0)], strict=True))
    assert own.outcome(results).duration == 5.0
    assert own.outcome({client: ClientResult() for client in clients}).duration == 0.0


@pytest.mark.parametrize("deadline", [None, 190.0])
def test_with_early_stopping_the_picks_are_those_of_a_simulation(deadline: float | None, tmp_path: Path) -> None:
    """The base selects by the times of nominal work, and clients use different numbers of epochs; those of late ones are unknown."""
    settings = {"name": "conformal", "base": "eiffel", "k": K, "max_epochs": 6, "alpha_cp": 0.3}
    run = fedcohort.run(
        small(
            rounds=6, selection=settings, federation={"clients": M, "holdout": 0.2},
            systems={"latency": {"redraw": "mixed"}} | ({} if deadline is None else {"deadline": deadline}),
        ),
        runs=tmp_path,
    )  # fmt: skip
    clients, facts = run.clients, run.portrait.facts
    assert clients["epochs"].nunique() > 1
    assert ("late" in set(clients["status"])) == (deadline is not None)
    census = Census(facts["samples"], 10, K, histogram=facts["counts"], rounds=6)
    reported = ("done", "q_hat", "epochs", "loss")
    own = Chooser(STRATEGIES.find("conformal", "x")(base="eiffel", max_epochs=6, alpha_cp=0.3), census)
    for t, picked in enumerate(run.selections, start=1):
        assert sorted(own.select(range(M)).clients.tolist()) == sorted(picked)
        results = {
            int(row["client"]): ClientResult(late="too slow", duration=row["duration"])
            if row["status"] == "late"
            else ClientResult({name: row[name] for name in reported}, row["duration"])
            for row in clients[clients["round"] == t].to_dict("records")
        }
        own.admits(results)
        own.observe(own.outcome(results, duration=run.rounds["round_time"][t]))


def test_the_time_of_an_update_with_nan_is_known() -> None:
    """It came back, unlike an update that is late: the last time counts, not the longest one."""
    chooser = Chooser(Uniform(), CENSUS, k=M)
    for duration in (7.0, 4.0):
        chooser.select(range(M))
        spoilt = ClientResult(duration=duration, update=[1.0, float("nan")])
        chooser.observe(chooser.outcome({0: spoilt, 1: ClientResult(late="too slow")}, duration=duration))
    assert chooser.durations[:2].tolist() == [4.0, 7.0]


def test_a_million_ids_are_checked_in_a_fraction_of_a_second() -> None:
    ids = np.random.default_rng(0).permutation(10**6)
    begin = time.process_time()
    found = ids_of(np.append(ids, ids[:1000]), 10**6)
    assert time.process_time() - begin < 0.4  # 0.04 s; with np.unique, 0.8 s
    assert np.array_equal(found, np.arange(10**6))
    assert ids_of([], 3).tolist() == []
    assert ids_of([2, 0, 2, 2], 3).tolist() == [0, 2]


def test_clients_without_samples_are_not_available() -> None:
    chooser = Chooser(Uniform(), Census(np.array([3, 0, 4]), 2, 2))
    assert chooser.select(range(3)).clients.tolist() == [0, 2]


def test_the_selector_that_was_given_is_not_changed() -> None:
    selector = UCB()
    play(Chooser(selector, CENSUS), 2)
    assert not hasattr(selector, "selections")


def result_of_all(result: Any) -> Outcome:
    """The outcome of a first round in which every client has this result."""
    chooser = Chooser(Uniform(), CENSUS)
    return chooser.outcome(dict.fromkeys(chooser.select(range(M)).clients.tolist(), result))


def test_updates_with_nan_did_not_train() -> None:
    outcome = result_of_all(ClientResult(duration=1.0, update=[1.0, float("nan")], reports={"loss": 2.0}))
    assert not outcome.trained.any()
    assert not outcome.admitted.any()
    assert result_of_all(ClientResult(update=[1.0, 2.0])).trained.all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Chooser("uniform", CENSUS), r"selector = 'uniform': is not a strategy"),  # type: ignore[arg-type]
        (
            lambda: Chooser(
                Uniform(),
                dataclasses.replace(CENSUS, num_samples=np.ma.masked_less_equal(SIZES, SIZES.min())),
            ),
            r"census.num_samples: \d+ values are masked; must be numbers, all of them known",
        ),
        (lambda: Chooser(Uniform(), CENSUS, -1), r"seed = -1: should be a whole number of at least 0"),
        (lambda: Chooser(Uniform(), CENSUS, k=0), "k = 0: should be a whole number of at least 1"),
        (lambda: Chooser(Uniform(), CENSUS, k=13), r"k = 13: should be at most the number of clients, 12"),
        (lambda: Chooser(FedCBS(), Census(SIZES, 3, K)), r"FedCBS needs the label counts of all clients"),
        (
            lambda: Chooser(Uniform(), CENSUS).select([12]),
            r"client 12 is not in the census; clients are numbered 0 to 11",
        ),
        (lambda: Chooser(Uniform(), CENSUS).select([0.5]), r"available = \[0.5\]: must be ids"),  # type: ignore[list-item]
        (
            lambda: Chooser(PowerOfChoice(), CENSUS).select(range(M)),
            r"PowerOfChoice asks clients for LocalLoss in round 1: give",
        ),
        (
            lambda: Chooser(PowerOfChoice(d=5), CENSUS).select(range(M), ask=lambda q, c: [1.0]),
            r"ask: returned an array of shape \[1\] for LocalLoss; must be \[5\]",
        ),
        (lambda: Chooser(Uniform(), CENSUS).outcome({}), r"no round is waiting for its outcome: call select"),
        (lambda: result_of_all(3), r"results: that of client \d+ is 3; give a ClientResult"),
        (
            lambda: result_of_all(ClientResult(duration=-1)),
            r"results: the duration of client \d+ is -1(.0)?; give finite seconds of at least 0",
        ),
        (
            lambda: Chooser(Uniform(), CENSUS).save("/no/such/folder/state"),
            r"^/no/such/folder/state: cannot be written \(No such",
        ),
    ],
)
def test_what_cannot_be_used_is_one_line(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_rounds_are_in_order() -> None:
    chooser = Chooser(Uniform(), CENSUS)
    cohort = chooser.select(range(M))
    for call in (lambda: chooser.select(range(M)), chooser.state_dict):
        with pytest.raises(UsageError, match="round 1 has no outcome yet"):
            call()
    with pytest.raises(UsageError, match="was not selected in round 1"):
        chooser.outcome({min(set(range(M)) - set(cohort.clients.tolist())): ClientResult()})
    outcome = chooser.outcome({})
    chooser.observe(outcome)
    chooser.select(range(M))
    with pytest.raises(UsageError, match="is that of round 1, not of the current round 2"):
        chooser.observe(outcome)


@pytest.mark.parametrize(
    ("selector", "message"), [(GPFL(), "has no update, but GPFL needs it"), (Rizk(), "has no update, but Rizk")]
)
def test_missing_updates_are_named(selector: Selector, message: str) -> None:
    chooser = Chooser(selector, CENSUS)
    cohort = chooser.select(range(M), ask=answer)
    with pytest.raises(UsageError, match=message):
        chooser.outcome({int(cohort.clients[0]): ClientResult({"loss": 1.0})})


def test_validation_is_required_by_strategies_that_learn_from_it() -> None:
    chooser = Chooser(UCB(), CENSUS)
    chooser.select(range(M))
    with pytest.raises(UsageError, match=r"UCB learns from a validation set: give outcome\(…, accuracy=…\)"):
        chooser.outcome({})


def test_the_accuracy_of_each_class_is_required_by_the_strategy_that_learns_from_it() -> None:
    chooser = Chooser(UtilityTime(), CENSUS)
    results = results_of(chooser.select(range(M)), 1)
    words = "UtilityTime learns from the accuracy of each class on a validation set, so give one number for each of the 3 classes"
    refuses(words, chooser.observe, chooser.outcome(results, accuracy=0.5))
    chooser.observe(chooser.outcome(results, accuracy=0.5, class_accuracy=[0.4, 0.5, 0.6]))


def test_the_norm_of_an_update_is_computed_or_reported() -> None:
    chooser = Chooser(Rizk(), CENSUS)
    first, second, third = chooser.select(range(M), ask=answer).clients.tolist()
    results = {first: ClientResult({"steps": 1.0}, update=[3.0, 4.0]), third: ClientResult(failure="x")}
    with pytest.raises(UsageError) as error:
        chooser.outcome({second: ClientResult({"steps": 1.0})})
    assert f"client {second}" in str(error.value)
    norms = chooser.outcome(results).billed_report("update_norm")
    np.testing.assert_array_equal(norms, [5.0, np.nan, np.nan])
    norms = chooser.outcome(results | {second: ClientResult({"update_norm": 7.0})}).billed_report("update_norm")
    np.testing.assert_array_equal(norms, [5.0, 7.0, np.nan])


def test_updates_have_their_length_in_rounds_without_any() -> None:
    chooser = Chooser(GPFL(), dataclasses.replace(CENSUS, num_parameters=2))
    chooser.select(range(M))
    updates = chooser.outcome({}).billed_report("update")
    np.testing.assert_array_equal(updates, np.full((K, 2), np.nan))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: Chooser(PowerOfChoice(), CENSUS), "strategy = 'Uniform', but this chooser has 'PowerOfChoice'"),
        (lambda: Chooser(Uniform(), CENSUS, 1), "seed = 0, but this chooser has 1"),
        (lambda: Chooser(Uniform(), CENSUS, k=4), "k = 3, but this chooser has 4"),
        (lambda: Chooser(Uniform(), Census(SIZES[1:], 3, K)), "clients = 12, but this chooser has 11"),
    ],
)
def test_a_state_of_another_chooser_is_refused(other: Any, message: str, tmp_path: Path) -> None:
    Chooser(Uniform(), CENSUS).save(tmp_path / "state")
    with pytest.raises(UsageError, match=message):
        other().restore(tmp_path / "state")


def test_a_state_of_other_settings_of_the_strategy_is_refused(tmp_path: Path) -> None:
    """Some strategies failed in a later round with an error of NumPy, and others went on with a state that did not fit."""
    saved = Chooser(TiFL(tiers=4), CENSUS)
    saved.save(tmp_path / "state")
    with pytest.raises(
        UsageError,
        match=r"^the saved state has tiers = 4 of TiFL, but this chooser has 3; give the strategy the settings that it was saved",
    ):
        Chooser(TiFL(tiers=3), CENSUS).restore(tmp_path / "state")
    refuses(
        "the saved state has policy = 'adaptive' of TiFL",
        Chooser(TiFL(tiers=4, policy="static"), CENSUS).restore,
        tmp_path / "state",
    )
    Chooser(TiFL(tiers=4), CENSUS).restore(tmp_path / "state")


def test_states_of_earlier_versions_have_no_settings() -> None:
    state = Chooser(PowerOfChoice(d=6), CENSUS).state_dict()
    own = Chooser(PowerOfChoice(d=7), CENSUS)
    refuses("the saved state has d = 6 of PowerOfChoice, but this chooser has 7", own.load_state_dict, state)
    own.load_state_dict({name: value for name, value in state.items() if name != "settings"})
    own.load_state_dict(state | {"settings": {"a parameter of an earlier version": "1"}})
    refuses("d = 'six' of PowerOfChoice", own.load_state_dict, state | {"settings": {"d": "six"}})


def test_settings_that_are_objects_are_not_compared(tmp_path: Path) -> None:
    @parameters
    class Own(Uniform):
        weights: Any = None

    for weights in (np.ones(3), {"a": 1}):
        Chooser(Own(weights=weights), CENSUS).save(tmp_path / "state")
        Chooser(Own(weights=weights), CENSUS).restore(tmp_path / "state")
    refuses(
        "the saved state has weights = {'a': 1} of Own", Chooser(Own(weights=2), CENSUS).restore, tmp_path / "state"
    )


def test_what_is_no_state_is_refused() -> None:
    own = Chooser(Uniform(), CENSUS)
    refuses("state = None: give what state_dict() returned", own.load_state_dict, None)
    as_json = own.state_dict() | {"durations": own.durations.tolist()}
    refuses("the saved state has durations = [nan", own.load_state_dict, as_json)
    for name in ("t", "clock", "durations", "compute_times", "upload_times", "state"):
        rest = {key: value for key, value in own.state_dict().items() if key != name}
        refuses(f"the saved state has no {name}; use save and restore", own.load_state_dict, rest)
        wrong = own.state_dict() | {name: np.zeros(M - 1)}
        refuses(f"the saved state has {name} = array([0.", own.load_state_dict, wrong)
    refuses("the saved state has seed = array([0.", own.load_state_dict, own.state_dict() | {"seed": np.zeros(2)})
    refuses("the saved state has t = -1, which cannot be", own.load_state_dict, own.state_dict() | {"t": -1})
    refuses("the saved state has clock = 'x', which cannot", own.load_state_dict, own.state_dict() | {"clock": "x"})
    refuses("path = None", own.restore, None)
    refuses("give select(available, ask=…)", Chooser(PowerOfChoice(d=6), CENSUS).select, range(M), ask=3)


def test_a_state_that_the_strategy_cannot_load_changes_nothing() -> None:
    class Own(Uniform):
        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            self.first = state["first"]
            self.second = state["second"]

        def setup(self, census: Census) -> None:
            super().setup(census)
            self.first = self.second = 0

    own, later = Chooser(Own(), CENSUS), Chooser(Own(), CENSUS)
    later.selector.first = 1  # type: ignore[attr-defined]
    later.observe(later.outcome({int(client): ClientResult() for client in later.select(range(M)).clients}))
    state = later.state_dict()
    del state["state"]["second"]
    before = pack(own.state_dict())
    with pytest.raises(KeyError, match="second"):
        own.load_state_dict(state)
    assert pack(own.state_dict()) == before


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"rubbish" * 10)
    with pytest.raises(UsageError, match=r"state: cannot be restored"):
        Chooser(Uniform(), CENSUS).restore(tmp_path / "state")
    with pytest.raises(UsageError, match=r"none: cannot be restored \(No such file or directory\)$"):
        Chooser(Uniform(), CENSUS).restore(tmp_path / "none")


def test_two_servers_that_save_to_one_file_are_noticed(tmp_path: Path) -> None:
    file = tmp_path / "state"
    first, second, third = (Chooser(Uniform(), CENSUS) for _ in range(3))
    play(first, 2)
    first.save(file)
    second.restore(file)
    play(second, 1)
    second.save(file)
    refuses("another chooser has saved its state there since this one saved or restored it", first.save, file)
    first.save(tmp_path / "a file of its own")
    third.save(file)  # also by a server that restores nothing
    refuses("end one of the two servers, or give each a file of its own", second.save, file)
    second.restore(file)
    second.save(file)
    file.unlink()
    second.save(file)


def test_what_a_killed_save_has_left_is_removed(tmp_path: Path) -> None:
    names = [".state.12-34.0", ".state.56-78.0", ".state.bak", ".other.12-34.0"]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - 7200,) * 2)
    os.utime(tmp_path / names[1])  # perhaps another process is writing it
    Chooser(Uniform(), CENSUS).save(tmp_path / "state")
    assert {path.name for path in tmp_path.iterdir()} == {"state", *names[1:]}


def test_a_state_with_a_changed_byte_is_refused(tmp_path: Path) -> None:
    """Also in numbers, where every byte can be read. Without the hash, as in files of earlier versions, a state can be restored."""
    own, later, file = Chooser(UCB(), CENSUS), Chooser(UCB(), CENSUS), tmp_path / "state"
    own.save(file)
    whole, before = file.read_bytes(), pack(own.state_dict())
    for place in [*range(0, len(whole), 5), len(whole) - 1]:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with suppress(UsageError):
            later.restore(file)
        assert pack(later.state_dict()) == before, place
    refuses("cannot be restored (it is damaged: its content is not what was saved)", later.restore, file)
    save_state(file, own.state_dict())
    Chooser(UCB(), CENSUS).restore(file)


def test_a_question_to_clients_that_are_away_is_refused() -> None:
    class Wrong(Selector):
        def select(self, round: Round) -> Cohort:
            round.ask(LocalLoss(), np.array([11]))
            return Cohort(round.available[: round.k])

    with pytest.raises(
        UsageError, match=r"Wrong.select in round 1 asks clients \[11\] for LocalLoss, but they are not available"
    ):
        Chooser(Wrong(), CENSUS).select(range(5), ask=answer)


def test_the_public_loader_of_data_exists() -> None:
    assert callable(fedcohort.load_dataset)


def test_clients_join_between_rounds() -> None:
    from fedcohort.selection.strategies.ucb import UCB

    sizes = np.array([10, 20, 30, 0])
    chooser = Chooser(UCB(initial_rounds=1), Census(sizes, 2, 1), seed=1)
    cohort = chooser.select(range(4))
    assert 3 not in cohort.clients
    joined = Census(np.array([10, 20, 30, 40]), 2, 9)
    with pytest.raises(UsageError, match="round 1 has no outcome yet: call observe"):
        chooser.extend(joined)
    chooser.observe(chooser.outcome({int(cohort.clients[0]): ClientResult()}, accuracy=0.5))
    chooser.extend(joined)
    assert (chooser.census.k, chooser.census.num_samples[3]) == (1, 40)
    assert chooser.select([3]).clients.tolist() == [3]


class Halfway(Selector):
    """It raises an error after a part of its attributes has changed."""

    def setup(self, census: Census) -> None:
        super().setup(census)
        self.seen = np.zeros(census.num_clients)

    def extend(self, census: Census) -> None:
        super().extend(census)
        self.seen += 1
        self.joined = True
        raise ValueError("no room")

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: round.k])


def test_a_strategy_that_fails_while_clients_join_is_as_before() -> None:
    chooser = Chooser(Halfway(), Census(np.array([10, 20, 30, 0]), 2, 1), seed=1)
    before = chooser.census
    with pytest.raises(ValueError, match="no room"):
        chooser.extend(Census(np.array([10, 20, 30, 40]), 2, 1))
    assert chooser.census is before
    assert chooser.selector.census.num_samples.tolist() == [10, 20, 30, 0]
    state = chooser.selector.state_dict()
    assert {name: values.tolist() for name, values in state.items()} == {"seen": [0, 0, 0, 0]}


# --- what a server gives ------------------------------------------------------------------------------------------------------


def refuses(words: str, call: Any, *arguments: Any, **named: Any) -> None:
    """The call raises a UsageError whose message has these words."""
    with pytest.raises(UsageError) as raised:
        call(*arguments, **named)
    assert words in str(raised.value)


def test_settings_that_cannot_be_used_are_refused() -> None:
    census: Any = Census
    assert Chooser(Uniform(), CENSUS, cast("int", np.int64(3))).seed == 3
    refuses("k = 2.5: should be a whole number of at least 1", Chooser, Uniform(), CENSUS, k=2.5)
    refuses("k = '3': should be a whole number", Chooser, Uniform(), CENSUS, k="3")
    refuses("seed = -1: should be a whole number of at least 0", Chooser, Uniform(), CENSUS, -1)
    refuses("census = 3: give a fedcohort.selection.Census", Chooser, Uniform(), 3)
    refuses("census.num_samples = [1, -2]: must be whole numbers", Chooser, Uniform(), census([1, -2], 1, 1))
    refuses("census.num_samples = ['a']: must be numbers", Chooser, Uniform(), census(["a"], 1, 1))
    for samples in ([1, 2**63], [1.0, 1e30], [1.0, np.inf]):  # int64 cannot hold them
        refuses("census.num_samples = [1", Chooser, Uniform(), census(samples, 1, 1))
    wrong_settings: dict[str, Any] = {
        "num_classes": "3",
        "epochs": 0,
        "num_parameters": -1,
        "batch_size": 2.5,
        "rounds": "9",
    }
    for name, value in wrong_settings.items():
        refuses(
            f"census.{name} = {value!r}: should be a whole",
            Chooser,
            Uniform(),
            dataclasses.replace(CENSUS, **{name: value}),
        )
    wrong = Census(np.full(3, 5), 2, 1, histogram=np.zeros((2, 2), np.int64))
    refuses("census.histogram: has the shape [2, 2]; must be [3, 2]", Chooser, Uniform(), wrong)


def test_a_census_can_be_lists() -> None:
    census: Any = Census
    own = Chooser(FedCBS(), census([5, 6, 7], 2, 1, histogram=[[1, 4], [3, 3], [7, 0]]))
    assert own.select([0, 1, 2]).clients.tolist() in ([0], [1], [2])
    assert own.census.num_samples.dtype == np.int64


@pytest.mark.parametrize("available", [None, 3, [[1], [2, 3]], [0.5], ["a"], [M]])
def test_available_must_be_ids(available: Any) -> None:
    refuses("available", Chooser(Uniform(), CENSUS).select, available)


def test_a_number_of_clients_is_no_list_of_ids() -> None:
    words = f"available = {M}: must be ids of clients, which are integers, such as range({M})"
    refuses(words, Chooser(Uniform(), CENSUS).select, M)


def test_names_of_clients_are_no_ids() -> None:
    words = (
        f"available = ['clinic-a', 'clinic-b']: must be ids of clients, which are integers from 0 to {M - 1}, not names"
    )
    refuses(words, Chooser(Uniform(), CENSUS).select, ["clinic-a", "clinic-b"])


@pytest.mark.parametrize("model_bytes", [None, "8", -1, 2.5, float("nan"), True])
def test_bytes_of_a_model_are_a_whole_number(model_bytes: Any) -> None:
    own = Chooser(Uniform(), CENSUS)
    refuses("model_bytes = ", own.select, range(M), model_bytes=model_bytes)
    assert own.t == 0
    own.select(range(M), model_bytes=8)


def test_only_a_census_can_extend() -> None:
    refuses("census = None: give a fedcohort.selection.Census", Chooser(Uniform(), CENSUS).extend, None)


@pytest.mark.parametrize("answers", [{"a": 1}, "abc", None, (x for x in range(6)), [1.0], [[1.0]] * 6])
def test_answers_must_be_numbers_of_each_client(answers: Any) -> None:
    own = Chooser(PowerOfChoice(d=6), CENSUS)
    refuses("LocalLoss", own.select, range(M), ask=lambda question, clients: answers)


def test_the_message_about_answers_that_are_none_says_what_to_give() -> None:
    own = Chooser(PowerOfChoice(d=6), CENSUS)
    words = "must be numbers, with NaN for a client without an answer"
    refuses(words, own.select, range(M), ask=lambda question, clients: [None] * len(clients))


def test_an_async_function_cannot_ask() -> None:
    async def ask(question: Question, clients: Indices) -> Values:
        return np.zeros(len(clients))

    own = Chooser(PowerOfChoice(d=6), CENSUS)
    with warnings.catch_warnings(action="error"):  # no coroutine is left that was never awaited
        refuses("ask: is an async function; give one that waits", own.select, range(M), ask)
    assert own.t == 0


def test_ask_cannot_change_the_clients_of_the_strategy() -> None:
    def ask(question: Question, clients: Indices) -> Values:
        values = answer(question, clients)
        clients[:] = 0
        return values

    first, second = (Chooser(PowerOfChoice(d=6), CENSUS) for _ in range(2))
    assert first.select(range(M), ask=ask).clients.tolist() == second.select(range(M), ask=answer).clients.tolist()


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (ClientResult(duration=None), "the duration of client"),  # type: ignore[arg-type]
        (ClientResult(duration=-1.0), "the duration of client"),
        (ClientResult(duration=np.inf), "give finite seconds of at least 0, or NaN"),
        (ClientResult(weight=-1.0), "the weight of client"),
        (ClientResult(weight=np.inf), "give a finite number of at least 0, or NaN"),
        (ClientResult({"loss": None}), "the report 'loss' of client"),  # type: ignore[dict-item]
        (ClientResult({"loss": "1"}), "the report 'loss' of client"),  # type: ignore[dict-item]
        (ClientResult({"loss": 10**400}), "the report 'loss' of client"),
        (ClientResult([1.0]), "results: reports of client"),  # type: ignore[arg-type]
        (ClientResult({1: 1.0}), "results: reports of client"),  # type: ignore[dict-item]
        (ClientResult(failure=True), "results: failure of client"),  # type: ignore[arg-type]
        (ClientResult(failure=ValueError("no")), "results: failure of client"),  # type: ignore[arg-type]
        (ClientResult(late=1.0), "results: late of client"),  # type: ignore[arg-type]
        (ClientResult(admitted="no"), "results: admitted of client"),  # type: ignore[arg-type]
    ],
)
def test_results_must_be_numbers(result: ClientResult, words: str) -> None:
    own = Chooser(Uniform(), CENSUS)
    client = int(own.select(range(M)).clients[0])
    refuses(words, own.outcome, {client: result})


def test_numbers_of_a_round_must_be_possible() -> None:
    own = Chooser(Uniform(), CENSUS)
    clients = own.select(range(M)).clients.tolist()
    refuses("results: client 'a' was not selected", own.outcome, {clients[0]: ClientResult(), "a": ClientResult()})
    refuses("results = [1]: give a ClientResult", own.outcome, [1])
    refuses("outcome = 5: give what outcome(…) returned", own.observe, 5)
    refuses(
        "class_accuracy: has the shape [2]; give one number for each class",
        own.outcome,
        {},
        class_accuracy=[1, 1],
    )
    refuses("class_accuracy = [90, 1, 1]: must be numbers of at most 1", own.outcome, {}, class_accuracy=[90, 1, 1])
    refuses("validation_losses = 'a': must be numbers", own.outcome, {}, validation_losses="a")
    refuses("duration = -100: must be finite seconds of at least 0", own.outcome, {}, duration=-100)
    refuses("accuracy = 90.0: must be a number of at most 1; 90% is 0.9", own.outcome, {}, accuracy=90.0)
    outcome = own.outcome({client: ClientResult(duration=1.0) for client in clients})
    refuses("upload_times: 5 s for client", own.observe, outcome, upload_times=[5.0] * K)
    refuses("upload_times: has the shape [1]", own.observe, outcome, upload_times=[0.5])
    own.observe(outcome, upload_times=[0.25] * K)
    assert own.compute_times[clients].tolist() == [0.75] * K


def with_updates(own: Chooser, update: Any) -> Outcome:
    return own.outcome(
        {client: ClientResult(duration=10.0, update=update) for client in own._current().clients.tolist()}
    )


@pytest.mark.parametrize("update", [1.0, [], "abc", [[1.0], [2.0, 3.0]]])
def test_updates_must_be_vectors(update: Any) -> None:
    own = Chooser(DivFL(), CENSUS)
    own.select(range(M), ask=answer)
    refuses("results: the update of client", with_updates, own, update)


def test_updates_have_one_length_and_can_be_tensors() -> None:
    own = Chooser(DivFL(), CENSUS)
    for update in (torch.ones(3, requires_grad=True), np.ones(3)):
        own.select(range(M), ask=answer)
        own.observe(with_updates(own, update))
    own.select(range(M), ask=answer)
    refuses("must have 3 numbers, as those before", with_updates, own, np.ones(4))


def test_an_update_of_another_length_is_refused_and_later_ones_are_not() -> None:
    """The first client of the first round sends the wrong length, before the server knows the right one."""
    own = Chooser(DivFL(), CENSUS)
    clients = own.select(range(M), ask=answer).clients.tolist()
    lengths = dict(zip(clients, (5, 3, 3), strict=True))
    mixed = {client: ClientResult(update=np.ones(length)) for client, length in lengths.items()}
    refuses("must have 5 numbers, as those before", own.outcome, mixed)
    own.outcome({clients[0]: mixed[clients[0]]})  # the server sees in time that it was wrong
    del mixed[clients[0]]
    own.observe(own.outcome(mixed))
    own.select(range(M), ask=answer)
    refuses("must have 3 numbers, as those before", with_updates, own, np.ones(5))


def test_a_client_is_not_late_and_failed() -> None:
    own = Chooser(Uniform(), CENSUS)
    client = int(own.select(range(M)).clients[0])
    words = f"client {client} has failure = 'lost' and late = 'slow'; give the reason as one of them"
    refuses(words, own.outcome, {client: ClientResult(failure="lost", late="slow")})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trained": np.ones(4, bool)}, "outcome.trained = "),
        ({"admitted": np.ones(3)}, "must be an array [3], True or False for each client of the cohort"),
        ({"durations": np.ones(2)}, "must be an array [3], seconds for each client of the cohort"),
        ({"durations": [1.0, 2.0, 3.0]}, "outcome.durations = "),
        ({"duration": -1.0}, "outcome.duration = -1.0: must be finite seconds"),
    ],
)
def test_an_outcome_of_the_server_has_one_value_for_each_client(change: dict[str, Any], words: str) -> None:
    own = Chooser(PowerOfChoice(d=6), CENSUS)
    cohort = own.select(range(M), ask=answer)
    whole: dict[str, Any] = {
        "trained": np.ones(K, bool),
        "admitted": np.ones(K, bool),
        "durations": np.ones(K),
        "duration": 1.0,
    }
    refuses(words, own.observe, Outcome(t=1, cohort=cohort, reports={}, **(whole | change)))
    own.observe(Outcome(t=1, cohort=cohort, reports={}, **whole))
    assert own.clock == 1.0


def test_the_label_counts_are_billed_once() -> None:
    own = Chooser(FedCBS(), CENSUS)
    for expected in (["Histogram"], []):
        own.select(range(M), ask=answer)
        assert [row.kind for row in own.ledger.rows] == expected
        own.observe(own.outcome({}))


def test_an_observation_that_fails_changes_nothing() -> None:
    class Fails(PowerOfChoice):
        def observe(self, outcome: Outcome) -> None:
            super().observe(outcome)
            if outcome.t == 2 and outcome.duration > 1:
                raise ValueError("a bug")

    own = Chooser(Fails(d=6), CENSUS)
    for duration in (1.0, 5.0):
        own.select(range(M), ask=answer)
        outcome = own.outcome(results_of(own._current(), own.t), duration=duration)
        if duration == 5.0:
            with pytest.raises(ValueError, match="a bug"):
                own.observe(outcome)
            assert own.clock == 1.0
            outcome = own.outcome(results_of(own._current(), own.t), duration=1.0)
        own.observe(outcome)
    assert own.clock == 2.0


@pytest.mark.parametrize("strategy", ["oort", "pyramidfl", "rizk"])
def test_numbers_that_cannot_be_are_no_reports_and_print_no_warning(strategy: str) -> None:
    own = Chooser(STRATEGIES.find(strategy, "selection.name")(), CENSUS)
    wrong = {"samples": 20, "square_loss": -1.0, "steps": 1e-300, "update_norm": 1e300}
    for _ in range(2):
        clients = own.select(range(M), ask=answer).clients.tolist()
        results = {client: ClientResult(wrong, 1.0, np.ones(8)) for client in clients}
        results[clients[0]] = ClientResult(
            {"samples": 20, "square_loss": 1.0, "steps": 2, "update_norm": 1.0}, 1.0, np.ones(8)
        )
        with warnings.catch_warnings(action="error"):
            own.observe(own.outcome(results))
    assert len(own.select(range(M), ask=answer)) == K


READS = ("rpowd", "oort", "haccs", "eiffel", "stratified")


@pytest.mark.parametrize("strategy", READS)
def test_reports_that_a_strategy_reads_are_required(strategy: str) -> None:
    own = Chooser(STRATEGIES.find(strategy, "selection.name")(), CENSUS)
    cohort = own.select(range(M), ask=answer)
    before = copy.deepcopy(own.selector.state_dict())
    outcome = own.outcome({client: ClientResult(duration=1.0) for client in cohort.clients.tolist()}, accuracy=0.5)
    with pytest.raises(
        UsageError, match=r"reads the report '[a-z_]+', and no client sent it in round 1; give ClientResult"
    ) as raised:
        own.observe(outcome)
    assert type(own.selector).__name__ in str(raised.value)
    assert pack({"state": own.selector.state_dict()}) == pack({"state": before})
    unknown = dict.fromkeys(("loss", "square_loss", "samples", "steps", "accuracy", "done", "q_hat"), np.nan)
    own.observe(own.outcome({client: ClientResult(unknown, 1.0) for client in cohort.clients.tolist()}, accuracy=0.5))


def test_a_strategy_that_decides_is_asked_which_updates_enter_the_model() -> None:
    """Three of five clients are done; the server need not say that the others are left out."""
    own = Chooser(STRATEGIES.find("conformal", "selection.name")(), CENSUS)
    clients = own.select(range(M)).clients.tolist()
    results = {
        client: ClientResult({"done": float(i < 3), "q_hat": 0.1 * i}, 1.0) for i, client in enumerate(clients[:5])
    }
    refuses("Conformal decides which updates enter the model: call chooser.admits(results) first", own.outcome, results)
    refuses("was not selected", own.admits, {M: ClientResult()})
    assert own.admits(results) == clients[:3]
    outcome = own.outcome(results)
    assert outcome.trained.tolist() == [True] * 5 + [False] * (M - 5)
    assert outcome.admitted.tolist() == [True] * 3 + [False] * (M - 3)
    own.observe(outcome)
    own.select(range(M))
    refuses("call chooser.admits(results) first", own.outcome, results)  # in every round
    own.observe(own.outcome({}))


def test_other_strategies_let_every_update_in() -> None:
    own = Chooser(Uniform(), CENSUS)
    clients = own.select(range(M)).clients.tolist()
    results = {clients[0]: ClientResult(), clients[1]: ClientResult(failure="lost")}
    assert own.admits(results) == clients[:1]


def test_saving_from_several_threads(tmp_path: Path) -> None:
    own = Chooser(Uniform(), CENSUS)
    with ThreadPoolExecutor(4) as threads:
        for saved in [threads.submit(own.save, tmp_path / "chooser.safetensors") for _ in range(100)]:
            saved.result()
    own.restore(tmp_path / "chooser.safetensors")
    assert [file.name for file in tmp_path.iterdir()] == ["chooser.safetensors"]


@pytest.mark.parametrize(
    ("name", "values", "failing"),
    [
        ("flash", {"head": "neural"}, 1),
        ("flash", {"head": "restless"}, 1),
        ("tifl", {"interval": 1}, 2),
        ("conformal", {"base": {"name": "flash", "head": "neural"}}, 1),
    ],
)
def test_a_question_that_fails_changes_nothing(name: str, values: dict[str, Any], failing: int) -> None:
    """In rounds 1, 4 and 7, this question raises an error at first, and the server begins the round again."""
    make, failures = STRATEGIES.find(name, "selection.name"), []

    def begin(own: Chooser, present: list[int]) -> Cohort:
        questions = []

        def gone(question: Question, clients: Indices) -> Values:
            questions.append(question)
            if len(questions) == failing:
                failures.append(question)
                raise ConnectionError
            return answer(question, clients)

        if own.t % 3 == 0:
            try:
                return own.select(present, ask=gone)
            except ConnectionError:
                pass
        return own.select(present, ask=answer)

    never, sometimes = (Chooser(make(**values), CENSUS, seed=4) for _ in range(2))
    for _ in range(9):
        present = [i for i in range(M) if (i + never.t) % 5]
        cohort, again = never.select(present, ask=answer), begin(sometimes, present)
        assert again.clients.tolist() == cohort.clients.tolist()
        for own in (never, sometimes):
            results = results_of(cohort, own.t)
            own.admits(results)
            own.observe(own.outcome(results))
        assert pack(sometimes.state_dict()) == pack(never.state_dict())
    assert failures


def test_one_call_at_a_time(tmp_path: Path) -> None:
    """Calls from within a question, which are like those of another thread, are refused; the round goes on."""
    own = Chooser(STRATEGIES.find("flash", "selection.name")(), CENSUS)
    before, refused = own.state_dict(), []

    def ask(question: Question, clients: Indices) -> Values:
        for call in (
            lambda: own.select(range(M), ask=answer),
            lambda: own.save(tmp_path / "chooser.safetensors"),
            lambda: own.load_state_dict(before),
            lambda: own.extend(CENSUS),
        ):
            refuses("the strategy is at work in round 1: wait until select(…) or observe(…) has returned", call)
            refused.append(call)
        return answer(question, clients)

    cohort = own.select(range(M), ask=ask)
    assert len(refused) == 4
    assert not list(tmp_path.iterdir())
    assert cohort.clients.tolist() == Chooser(own.strategy, CENSUS).select(range(M), ask=answer).clients.tolist()
    own.observe(own.outcome({}))
    own.load_state_dict(before)
    assert own.select(range(M), ask=answer).clients.tolist() == cohort.clients.tolist()


def test_a_round_that_begins_while_the_clients_are_listed_is_not_lost() -> None:
    """The round of another thread begins after the first look at the chooser, and before the strategy selects."""
    own = Chooser(Uniform(), CENSUS)
    begun = []

    def available() -> Iterator[int]:
        begun.append(own.select(range(M)))
        yield from range(M)

    refuses("round 1 has no outcome yet: call observe(outcome) before the next select(…)", own.select, available())
    assert own.t == 1
    own.observe(own.outcome({client: ClientResult() for client in begun[0].clients.tolist()}))


def test_a_copy_of_a_chooser_goes_on_by_itself() -> None:
    own = Chooser(Uniform(), CENSUS)
    other = copy.deepcopy(own)
    assert own.select(range(M)).clients.tolist() == other.select(range(M)).clients.tolist()


def test_a_message_about_clients_that_were_not_selected_has_the_right_number() -> None:
    own = Chooser(Uniform(), CENSUS)
    clients = own.select(range(M)).clients.tolist()
    cohort = f"{clients[0]}, {clients[1]} and {clients[2]}"
    refuses(f"results: client 99 was not selected in round 1; give results of clients of its cohort: {cohort}", own.outcome,
            {99: ClientResult()})  # fmt: skip
    refuses("results: client '1' was not selected", own.outcome, {"1": ClientResult()})
    refuses("results: clients 98 and 99 were not selected", own.outcome, {99: ClientResult(), 98: ClientResult()})
    refuses("results: clients 90, 91, 92, 93 and 94 and more were not selected", own.outcome,
            {client: ClientResult() for client in range(90, 99)})  # fmt: skip


@pytest.mark.parametrize("k", [-1, 0])
def test_the_least_k_that_a_message_names_is_accepted(k: int) -> None:
    refuses(f"k = {k}: should be a whole number of at least 1", Chooser, Uniform(), CENSUS, k=k)
    assert Chooser(Uniform(), CENSUS, k=1).select(range(M)).clients.shape == (1,)


def test_numbers_of_samples_are_one_for_each_client() -> None:
    wanted = "must be whole numbers of at least 0 and below 9,007,199,254,740,992, one for each client"
    refuses(wanted, Chooser, Uniform(), dataclasses.replace(CENSUS, num_samples=np.ones((3, 2), int)))


def test_a_report_with_a_misspelt_name_is_mentioned() -> None:
    own = Chooser(Uniform(), CENSUS)
    clients = own.select(range(M)).clients.tolist()
    outcome = own.outcome({client: ClientResult({"loss": 1.0}) for client in clients})
    with pytest.warns(UserWarning, match=r"^billed_report\('los'\): no client reports it; did you mean 'loss'\?$"):
        assert np.isnan(outcome.billed_report("los")).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(outcome.billed_report("gain")).all(), "a stopping rule may report it in another round"
        assert outcome.billed_report("loss").tolist() == [1.0] * 3
