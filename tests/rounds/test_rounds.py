"""Single rounds: the record, the cost, failed clients, and the values that a strategy receives."""

import dataclasses
import math
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fedcohort import UsageError
from fedcohort.algorithms import Algorithm, FedProx, Members, ModelState, Problem, RunningMean, Tensors, Update, blend
from fedcohort.algorithms.updates import is_finite
from fedcohort.core.arrays import Values
from fedcohort.core.parameters import parameters
from fedcohort.core.words.report_names import disclosed
from fedcohort.experiment.given_objects import Given
from fedcohort.record import ClientRow, RoundRow
from fedcohort.rounds import RunState, play_round
from fedcohort.rounds.client_outcomes import ALWAYS, WatchedReport
from fedcohort.selection import Card, Cohort, Outcome, Round, Selector, Why
from tests.records import candidates_of
from tests.run_states import a_run_state

MLP_PARAMETERS = 64 * 64 + 64 + 64 * 10 + 10


def poison(run_state: RunState, clients: set[int], value: float = float("nan")) -> None:
    """Make these clients return an update with one entry of this value."""
    train = run_state.engine.train

    def poisoned(model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
        for update in train(model, t, cohort, algorithm):
            if update.client in clients:
                next(iter(update.state.values())).view(-1)[0] = value
            yield update

    run_state.engine.train = poisoned  # type: ignore[method-assign]


def status(row: RoundRow) -> dict[int, str]:
    return {client.client: client.status for client in row.clients}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_diverged_clients_are_recorded_and_excluded_from_the_average(value: float) -> None:
    with a_run_state(selection={"name": "all"}) as run_state, a_run_state(selection={"name": "all"}) as healthy:
        poison(run_state, {3, 7}, value)
        row = play_round(run_state, 1, test=True)
        assert {client for client, what in status(row).items() if what == "diverged"} == {3, 7}
        assert row.selected == 12
        assert row.trained == row.admitted == 10
        assert all("NaN or infinite" in client.detail for client in row.clients if client.status == "diverged")
        assert all(torch.isfinite(value).all() for value in run_state.model.values())
        expected = mean_without(healthy, {3, 7})
        assert all(torch.equal(run_state.model[name], value) for name, value in expected.items())
        assert np.isfinite(play_round(run_state, 2, test=True).test_accuracy)


def mean_without(run_state: RunState, excluded: set[int]) -> dict[str, torch.Tensor]:
    """The round's average over the other clients, by hand in float64."""
    updates = [
        u
        for u in run_state.engine.train(run_state.model, 1, Cohort(np.arange(12)), run_state.algorithm)
        if u.client not in excluded
    ]
    mean = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in run_state.model.items()}
    total = 0.0
    for update in updates:
        total += update.num_samples
        for name, value in update.state.items():
            mean[name] += (value.double() - mean[name]) * (update.num_samples / total)
    return {name: value.float() for name, value in mean.items()}


def test_when_all_clients_diverge_the_model_stays_unchanged() -> None:
    with a_run_state() as run_state:
        poison(run_state, set(range(12)))
        before = {name: value.clone() for name, value in run_state.model.items()}
        row = play_round(run_state, 1, test=True)
        assert row.admitted == 0
        assert "the model stays as it was" in row.note
        assert all(torch.equal(run_state.model[name], value) for name, value in before.items())


def test_a_round_with_one_admitted_update_does_not_say_that_none_was_admitted() -> None:
    with a_run_state(selection={"name": "all"}) as run_state:
        poison(run_state, set(range(11)))
        row = play_round(run_state, 1, test=False)
    assert row.admitted == 1
    assert "no update admitted" not in row.note


def test_a_round_without_available_clients_is_recorded_as_empty() -> None:
    with a_run_state(
        selection={"name": "ucb"}, systems={"availability": {"name": "bernoulli", "probability": 0.0}}
    ) as run_state:
        row = play_round(run_state, 1, test=True)
        assert (row.available, row.selected, row.admitted) == (0, 0, 0)
        assert row.note == "empty round: no client available"
        assert row.simulated_time == 0


def test_the_note_names_rounds_with_fewer_than_k_available_clients() -> None:
    """R1: fewer clients are available than k."""
    rarely_available = {"availability": {"name": "bernoulli", "probability": 0.3}}
    with a_run_state(selection={"name": "uniform", "k": 4}, systems=rarely_available) as run_state:
        rows = [play_round(run_state, t, test=False) for t in range(1, 7)]
    short = [row for row in rows if row.available < 4]
    assert 0 < len(short) < len(rows)
    for row in rows:
        assert (f"short round: {row.available} of 4 available" in row.note) == (row in short and row.available > 0)
    with a_run_state(selection={"name": "all", "k": 12}, systems=rarely_available) as run_state:
        assert "short" not in play_round(run_state, 1, test=False).note
    with a_run_state(selection={"name": "uniform", "k": 10}, systems={"overcommit": 1.5}) as run_state:
        assert "short" not in play_round(run_state, 1, test=False).note, "15 are wanted, and all 12 are there"


def test_without_a_strategy_that_needs_it_validation_is_measured_only_in_rounds_with_a_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes: list[Outcome] = []
    with a_run_state() as run_state:
        monkeypatch.setattr(run_state.selector, "observe", outcomes.append)
        postponed, measured = play_round(run_state, 1, test=False), play_round(run_state, 2, test=True)
    assert math.isnan(postponed.validation_accuracy)
    assert 0 < measured.validation_accuracy < 1
    assert len(outcomes) == 2
    assert all(math.isnan(outcome.accuracy) and not len(outcome.validation_losses) for outcome in outcomes)


def test_a_strategy_that_needs_validation_gets_the_loss_of_every_validation_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes: list[Outcome] = []
    with a_run_state(selection={"name": "ucb"}) as run_state:
        monkeypatch.setattr(run_state.selector, "observe", outcomes.append)
        row = play_round(run_state, 1, test=False)
        labels = run_state.engine.federation.validation.labels  # type: ignore[attr-defined]
    (outcome,) = outcomes
    assert len(outcome.validation_losses) == len(labels)
    assert outcome.validation_losses.mean() == pytest.approx(row.validation_loss)
    right = np.exp(-outcome.validation_losses)
    assert (right > 0.5).sum() <= round(row.validation_accuracy * len(labels)) <= (right > 0.1).sum()


def test_clients_that_drop_out_are_selected_but_neither_waited_for_nor_weighted() -> None:
    with a_run_state(selection={"name": "all"}, systems={"dropout": 0.5}) as run_state:
        row = play_round(run_state, 1, test=False)
        failed = [client for client in row.clients if client.status == "failed"]
        assert 0 < len(failed) < 12
        assert all(client.detail == "dropped out before its update arrived" for client in failed)
        assert row.round_time == max(client.duration for client in row.clients if client.status == "admitted")
        assert sum(client.weight for client in row.clients) == pytest.approx(1)


def test_updates_have_their_length_in_rounds_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[Outcome] = []
    with a_run_state(selection={"name": "gpfl_select"}, systems={"dropout": 1.0}) as run_state:
        monkeypatch.setattr(run_state.selector, "observe", outcomes.append)
        play_round(run_state, 1, test=False)
    updates = outcomes[0].billed_report("update")
    np.testing.assert_array_equal(updates, np.full((len(outcomes[0].cohort), MLP_PARAMETERS), np.nan))


def test_the_ledger_counts_messages_bytes_and_passes() -> None:
    """Select-by-loss with k = 3 asks d = 6 clients and trains three (cost table 0.3)."""
    model = 4 * MLP_PARAMETERS
    with a_run_state(selection={"name": "select_by_loss"}) as run_state:
        ledger = {entry.kind: entry for entry in play_round(run_state, 1, test=False).ledger}
    asked, training = ledger["LocalLoss"], ledger["training"]
    assert (asked.messages, asked.bytes_down, asked.bytes_up, asked.passes) == (12, 6 * model, 6 * 4, 6.0)
    assert (training.messages, training.bytes_down, training.bytes_up, training.passes) == (
        6,
        3 * model,
        3 * model,
        9.0,
    )
    assert "loss of the current model" in asked.discloses


def test_the_wall_time_of_training_is_no_part_of_that_of_aggregation() -> None:
    """Clients train while the server aggregates what has arrived: the parts of a round do not overlap."""
    with a_run_state() as run_state:
        train = run_state.engine.train

        def slow(model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
            for update in train(model, t, cohort, algorithm):
                time.sleep(0.1)
                yield update

        run_state.engine.train = slow  # type: ignore[method-assign]
        wall = play_round(run_state, 1, test=True).wall
    assert wall["training"] >= 0.3
    parts = ("selection", "training", "aggregation", "evaluation")
    assert wall["aggregation"] >= 0
    assert sum(wall[part] for part in parts) <= wall["total"]


@pytest.mark.parametrize("name", ["uniform", "rpowd", "ucb"])
def test_strategies_that_ask_no_question_cost_only_training(name: str) -> None:
    with a_run_state(selection={"name": name}) as run_state:
        assert [entry.kind for entry in play_round(run_state, 1, test=False).ledger] == ["training"]


def test_reported_steps_loss_and_accuracy_equal_those_of_an_independent_loop() -> None:
    """The loss is the mean over all steps, and the accuracy is that of the last epoch, by a plain loop over the same batches."""
    from fedcohort.core.random_streams import rng

    with a_run_state(selection={"name": "all"}, training={"epochs": 2, "batch_size": 10, "lr": 0.1}) as run_state:
        start = {name: value.clone() for name, value in run_state.model.items()}
        row = play_round(run_state, 1, test=False)
        client: ClientRow = row.clients[4]
        federation = run_state.engine.federation  # type: ignore[attr-defined]
        data = federation.client(client.client)
    weights = {name: value.clone().requires_grad_() for name, value in start.items()}
    velocity = {name: torch.zeros_like(value) for name, value in start.items()}
    features = ((data.features.double() - federation.shift) * federation.scale).float().flatten(1)
    order, losses, right = rng(0, "batches", 1, client.client), [], 0
    for epoch in range(2):
        shuffled = torch.from_numpy(order.permutation(len(data)))
        for begin in range(0, len(data), 10):
            index = shuffled[begin : begin + 10]
            hidden = torch.relu(features[index] @ weights["1.weight"].T + weights["1.bias"])
            logits = hidden @ weights["3.weight"].T + weights["3.bias"]
            loss = -torch.log_softmax(logits, 1)[torch.arange(len(index)), data.labels[index]].mean()
            gradients = torch.autograd.grad(loss, list(weights.values()))
            losses.append(loss.item())
            right += int((logits.argmax(1) == data.labels[index]).sum()) if epoch == 1 else 0
            with torch.no_grad():
                for (name, value), gradient in zip(weights.items(), gradients, strict=True):
                    velocity[name] = 0.9 * velocity[name] + gradient
                    value -= 0.1 * velocity[name]
    assert client.steps == 2 * -(-len(data) // 10)
    assert client.loss == pytest.approx(np.mean(losses), rel=1e-4)
    assert client.accuracy == pytest.approx(right / len(data))


def test_validation_and_test_sets_are_disjoint() -> None:
    """Strategies get rewards from the validation set only. It is a part of the data's test samples, and the rest is the test set."""
    with a_run_state() as run_state:
        federation = run_state.engine.federation  # type: ignore[attr-defined]
        assert len(federation.validation) == 40  # round(10 %) of every class
        assert len(federation.test) == 319  # the rest of 359
        rows = {tuple(row.flatten().tolist()) for row in federation.validation.features}
        shared = [row for row in federation.test.features if tuple(row.flatten().tolist()) in rows]
    assert not shared


def test_finite_values_with_an_infinite_sum_count_as_finite() -> None:
    largest = float(np.finfo(np.float32).max)
    state = {"w": torch.tensor([largest, largest, -1.0])}
    assert is_finite(Update(0, 1, 1, state))
    for broken in (float("nan"), float("inf"), -float("inf")):
        assert not is_finite(Update(0, 1, 1, {"w": torch.tensor([1.0, broken])}))
        assert not is_finite(Update(0, 1, 1, {"w": torch.tensor([broken, -broken])}))
        assert not is_finite(Update(0, 1, 1, state, extra={"c": {"w": torch.tensor([broken])}}))


# --- what a strategy receives and keeps --------------------------------------------------------------------------------------


@parameters
class ReusesItsArrays(Selector):
    """Overwrites its arrays of ids and scores after every round."""

    card: ClassVar[Card] = Card(source="a test", status="ours")

    def select(self, round: Round) -> Cohort:
        self.scores: Values = 10.0 * round.t + round.available.astype(np.float64)
        self.ids = round.available.copy()
        why = Why(self.ids, self.scores, {"twice": self.scores}, "highest id")
        return Cohort(round.available[-round.k :], why=why)

    def observe(self, outcome: Outcome) -> None:
        self.scores[:] = -1.0
        self.ids[:] = 5


def test_recorded_decisions_do_not_change_when_the_strategy_overwrites_its_arrays() -> None:
    with a_run_state(Given(selector=ReusesItsArrays())) as run_state:
        for t in (1, 2):
            rows = candidates_of(play_round(run_state, t, test=False).decisions)
            expected = [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]  # the k = 3 selected clients first, by falling score
            assert [(client, selected) for client, selected, *_ in rows] == [(i, i > 8) for i in expected]
            assert [score for *_, score, _ in rows] == [10.0 * t + i for i in expected]
            assert [terms for *_, terms in rows] == [{"twice": 10.0 * t + i} for i in expected]


@parameters
class AdmitsByReports(Selector):
    """Declines the first client, after it has read what the clients report in one of several ways."""

    card: ClassVar[Card] = Card(source="a test", status="ours")
    way: str = "none"

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: round.k])

    def admit(self, updates: Iterable[Any]) -> Iterator[Any]:
        ways: dict[str, Callable[[dict[str, float]], object]] = {
            "none": len,
            "item": lambda report: report["loss"],
            "get": lambda report: report.get("loss"),
            "all": lambda report: {**report},
            "items": lambda report: list(report.items()),
            "copy": lambda report: report.copy(),
            "union": lambda report: report | {},
        }
        for i, update in enumerate(updates):
            ways[self.way](update.report)
            if i > 0:
                yield update


@pytest.mark.parametrize(
    ("way", "read"),
    [
        ("none", []),
        ("item", ["loss"]),
        ("get", ["loss"]),
        *((way, sorted(ALWAYS)) for way in ("all", "items", "copy", "union")),
    ],
)
def test_what_decides_on_updates_is_billed_and_disclosed(way: str, read: list[str]) -> None:
    """A strategy that declined clients by their losses had "disclosed" the updates and the numbers of samples only."""
    with a_run_state(Given(selector=AdmitsByReports(way=way))) as run_state:
        (training,) = play_round(run_state, 1, test=False).ledger
    assert training.discloses == ", ".join(["its update and number of samples", *read])
    assert training.bytes_up == 2 * 4 * MLP_PARAMETERS + 3 * 4 * len(read), "the declined client sends numbers, too"


@parameters
class LeavesOut(Algorithm):
    """Clients remember that they trained; the server leaves the first update out of the model."""

    card: ClassVar[Card] = Card(source="a test", status="ours")

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        return {}, {"trained": {"in": torch.tensor(problem.t)}}

    def begin(self, model: ModelState, members: Members) -> tuple[list[int], RunningMean]:
        return [], RunningMean()

    def add(self, fold: tuple[list[int], RunningMean], update: Update, weight: float) -> None:
        fold[0].append(update.client)
        if len(fold[0]) > 1:
            fold[1].include(update, weight)

    def end(self, fold: tuple[list[int], RunningMean], model: ModelState, members: Members) -> ModelState:
        self.left_out = fold[0][0]
        return fold[1].result()

    def weighed(self) -> Mapping[int, float]:
        return {self.left_out: 0.0}


def test_a_client_whose_update_the_algorithm_leaves_out_keeps_its_old_memory() -> None:
    """It is recorded as declined, but it had its new memory."""
    with a_run_state(Given(algorithm=LeavesOut())) as run_state:
        row = play_round(run_state, 1, test=False)
        remembered = run_state.engine.state_dict()
    assert [client.status for client in row.clients] == ["declined", "admitted", "admitted"]
    assert set(remembered) == {str(client.client) for client in row.clients[1:]}


def test_a_watched_report_is_the_same_after_a_copy() -> None:
    read: set[str] = set()
    report = WatchedReport({"loss": 0.5, "steps": 2.0}, read)
    assert list(report) == ["loss", "steps"]
    assert "loss" in report
    assert read == set(), "names are no numbers"
    assert report.pop("steps") == 2.0
    assert pickle.loads(pickle.dumps(report)) == {"loss": 0.5}
    assert list(report.values()) == [0.5]
    assert read == {"loss", "steps"}


@parameters
class WritesTimes(Selector):
    """Tries to overwrite the times that the server knows."""

    card: ClassVar[Card] = Card(source="a test", status="ours")
    name: str = "durations"
    """The field of the round to overwrite."""

    def select(self, round: Round) -> Cohort:
        getattr(round, self.name)[:] = 0.0
        return Cohort(round.available[: round.k])


@pytest.mark.parametrize("name", ["durations", "compute_times", "upload_times"])
def test_a_strategy_cannot_change_the_times_that_the_server_knows(name: str) -> None:
    with a_run_state(Given(selector=WritesTimes(name=name))) as run_state:
        with pytest.raises(ValueError, match="read-only"):
            play_round(run_state, 1, test=False)
        assert np.isnan(getattr(run_state.clock, name)).all()


def test_with_over_commitment_the_server_waits_for_the_same_share_of_a_larger_cohort() -> None:
    """All 12 clients train although ⌈1.5·3⌉ = 5 would be enough: the server waits for the 12/1.5 = 8 fastest, not for three."""
    with a_run_state(selection={"name": "all", "k": 3}, systems={"overcommit": 1.5}) as run_state:
        times = np.sort(run_state.clock.nominal(1))
        row = play_round(run_state, 1, test=False)
    assert sorted(status(row).values()) == ["admitted"] * 8 + ["late"] * 4
    assert row.round_time == pytest.approx(times[7])


def test_outcomes_have_the_duration_of_the_round_and_of_each_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Durations count from the start of the round. For a late client, the duration is the time that the server waited."""
    outcomes: list[Outcome] = []
    with a_run_state(selection={"name": "uniform", "k": 3}, systems={"overcommit": 1.5}) as run_state:
        monkeypatch.setattr(run_state.selector, "observe", outcomes.append)
        rows = [play_round(run_state, t, test=False) for t in range(1, 5)]
        now = run_state.clock.now
    for row, outcome in zip(rows, outcomes, strict=True):
        times = {client.client: client.duration for client in row.clients}
        slowest = max(times[client] for client, what in status(row).items() if what == "admitted")
        assert outcome.duration == pytest.approx(slowest, rel=1e-12)
        assert row.round_time == outcome.duration
        for client, what, known in zip(status(row), status(row).values(), outcome.durations, strict=True):
            assert known == pytest.approx(slowest if what == "late" else times[client])
    assert sum(outcome.duration for outcome in outcomes) == pytest.approx(now) == rows[-1].simulated_time


def test_local_accuracy_and_loss_are_means_over_all_clients_that_trained() -> None:
    """The means include clients that the strategy declines, here those with an even id."""
    with a_run_state(selection={"name": "all"}) as run_state:
        run_state.selector.admit = lambda updates: (u for u in updates if u.client % 2)  # type: ignore[method-assign]
        row = play_round(run_state, 1, test=False)
    assert [client.status for client in row.clients] == ["declined", "admitted"] * 6
    accuracies, losses = ([getattr(client, name) for client in row.clients] for name in ("accuracy", "loss"))
    assert row.local_accuracy == pytest.approx(np.mean(accuracies))
    assert row.train_loss == pytest.approx(np.mean(losses))
    assert np.mean(accuracies) != pytest.approx(np.mean(accuracies[1::2]))
    assert np.mean(losses) != pytest.approx(np.mean(losses[1::2]))


def test_the_number_of_clients_changes_by_round() -> None:
    with a_run_state(selection={"name": "uniform", "k": 2, "k_steps": [[2, 5], [4, 1]]}) as run_state:
        rows = [play_round(run_state, t, test=False) for t in range(1, 6)]
    assert [row.selected for row in rows] == [2, 5, 5, 1, 1]
    with a_run_state(
        selection={"name": "conformal", "rule": "rank", "max_epochs": 1, "k": 2, "k_steps": [[2, 3]]},
        federation={"holdout": 0.2},
    ) as run_state:
        assert [play_round(run_state, t, test=False).admitted for t in (1, 2)] == [2, 3]


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ({"name": "fedavg"}, lambda share, part: share),
        ({"name": "fedavg", "server_lr": 0.5}, lambda share, part: 0.5 * share),
        ({"name": "fedavg", "weights": "n_total_delta"}, lambda share, part: part),
        ({"name": "scaffold", "weights": "n_selected"}, lambda share, part: share),
        ({"name": "krum", "m": 2, "weights": "n_selected"}, lambda share, part: share),
        ({"name": "krum", "m": 2, "weights": "cohort", "server_lr": 0.5}, lambda share, part: 0.5 * share),
    ],
)
def test_the_record_has_the_coefficient_of_every_update(algorithm: dict[str, object], expected: Any) -> None:
    """w' − w = Σ c_i Δ_i, computed from the updates themselves."""
    strategy = "size" if algorithm.get("weights") == "cohort" else "uniform"
    with a_run_state(selection={"name": strategy, "k": 4}, algorithm=algorithm) as run_state:
        start, kept = run_state.model, list[Update]()
        train = run_state.engine.train

        def watched(*arguments: Any) -> Iterator[Update]:
            for update in train(*arguments):
                kept.append(dataclasses.replace(update, state=dict(update.state)))
                yield update

        run_state.engine.train = watched  # type: ignore[method-assign, assignment]
        row = play_round(run_state, 1, test=False)
        total = run_state.clock.num_samples.sum()
    coefficients = {client.client: client.coefficient for client in row.clients}
    for client in row.clients:
        assert client.coefficient == pytest.approx(expected(client.weight, client.num_samples / total))
    for name, value in run_state.model.items():
        change = sum(
            coefficients[update.client] * (update.state[name].double() - start[name].double()) for update in kept
        )
        assert torch.allclose(value.double() - start[name].double(), torch.as_tensor(change), atol=1e-6)


def test_an_algorithm_that_is_no_weighted_mean_has_no_coefficients() -> None:
    for algorithm in ("fedadam", "median"):
        with a_run_state(selection={"name": "uniform", "k": 3}, algorithm=algorithm) as run_state:
            row = play_round(run_state, 1, test=False)
        assert all(math.isnan(client.coefficient) for client in row.clients)


@parameters
class HalfOfTheOddOnes(Algorithm):
    """Includes the updates of odd clients with half of their weight."""

    def add(self, fold: RunningMean, update: Update, weight: float) -> None:
        fold.include(update, weight / (1 + update.client % 2))


@parameters
class StaysAsItIs(Algorithm):
    """Merges nothing."""

    def aggregate(self, model: ModelState, updates: Iterable[Update], members: Members) -> ModelState:
        assert list(updates)
        return model


@parameters
class ProxWithHalfSteps(FedProx):
    """FedProx with a step of its own."""

    def step(self, model: ModelState, merged: ModelState, members: Members) -> ModelState:
        return blend(model, merged, 0.5)


@parameters
class ProxThatSaysSo(ProxWithHalfSteps):
    """The same; says which coefficients its updates have."""

    def coefficients(self, weights: Mapping[int, float]) -> Mapping[int, float]:
        return {client: 0.5 * c for client, c in super().coefficients(weights).items()}


@pytest.mark.parametrize("kind", [HalfOfTheOddOnes, StaysAsItIs, ProxWithHalfSteps])
def test_a_class_that_merges_in_its_own_way_has_no_coefficients_of_the_class_it_extends(kind: type[Algorithm]) -> None:
    with a_run_state(Given(algorithm=kind()), selection={"name": "uniform", "k": 3}) as run_state:
        row = play_round(run_state, 1, test=False)
    assert all(math.isnan(client.coefficient) for client in row.clients)


def test_a_class_that_merges_in_its_own_way_can_state_its_coefficients() -> None:
    with a_run_state(Given(algorithm=ProxThatSaysSo()), selection={"name": "uniform", "k": 3}) as run_state:
        row = play_round(run_state, 1, test=False)
    assert [client.coefficient for client in row.clients] == [0.5 * client.weight for client in row.clients]


@parameters
class SendsMore(Algorithm):
    """Says with a comma what clients disclose."""

    card: ClassVar[Card] = Card(source="a test", status="ours", discloses="its loss, and the sum of its labels")


def test_what_an_own_algorithm_discloses_stays_one_part() -> None:
    with a_run_state(Given(algorithm=SendsMore())) as run_state:
        (training,) = play_round(run_state, 1, test=False).ledger
    assert disclosed(training.discloses) == ["its update and number of samples", "its loss; and the sum of its labels"]


@parameters
class StopsByAnUnknownRule(Selector):
    """Names a stopping rule that does not exist."""

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: round.k], stop={"rule": "plateauu"})


def test_an_unknown_stopping_rule_names_the_strategy() -> None:
    words = r"^StopsByAnUnknownRule\.select in round 1: Cohort\.stop\.rule = 'plateauu': no such stopping rule; valid: "
    with (
        a_run_state(Given(selector=StopsByAnUnknownRule())) as run_state,
        pytest.raises(UsageError, match=words),
    ):
        play_round(run_state, 1, test=False)
