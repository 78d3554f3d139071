"""What questions, training and whole rounds cost, by hand."""

from collections.abc import Iterable, Iterator
from dataclasses import astuple
from typing import Any, ClassVar

import numpy as np
import pytest

from fedcohort.algorithms import FedAvg
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.tensor_sizes import num_bytes
from fedcohort.experiment.given_objects import Given
from fedcohort.record import LedgerRow
from fedcohort.rounds import play_round
from fedcohort.rounds.asking_clients import answer as answer_of_clients
from fedcohort.rounds.ledger import Ledger
from fedcohort.rounds.round_facts import members
from fedcohort.selection import Card, Cohort, LocalLoss, LossChange, Question, Round, Selector, Speed, UpdateNorm
from tests.run_states import a_run_state


def answer(question: Question, clients: Indices) -> Values:
    """Zeros, and for a training its norm 1.5 and 9 passes."""
    if isinstance(question, UpdateNorm):
        return np.tile([1.5, 9.0], (len(clients), 1))
    return np.zeros(len(clients) if question.numbers == 1 else (len(clients), question.numbers))


def costs(row: LedgerRow) -> tuple[object, ...]:
    """The kind, and messages, bytes down, bytes up and passes."""
    return astuple(row)[:5]


# --- the ledger: a model has 100 bytes, and training receives 160 --------------------------------------------------------------


def test_questions_of_one_kind_are_summed_and_their_sizes_are_those_of_their_answers() -> None:
    ledger = Ledger(100, 160)
    ask = ledger.asking(answer)
    ask(LocalLoss(), np.array([4, 2, 7]))
    ask(Speed(), np.array([1, 2]))
    ask(LocalLoss(batch=5), np.array([3]))
    assert [costs(row) for row in ledger.rows] == [
        ("Speed", 4, 0, 2 * 2 * 4, 0.0),  # two numbers, and no model
        ("LocalLoss", 2 * 4, 4 * 100, 4 * 4, 3.0),  # a mini-batch is no pass
    ]


def test_a_question_that_trains_sends_what_training_needs_and_is_not_paid_twice() -> None:
    """Clients 4 and 2 trained to answer; of the cohort, 4 has the model and what the algorithm sends, and 7 has not."""
    ledger = Ledger(100, 160)
    ledger.asking(answer)(UpdateNorm(), np.array([4, 2]))
    ledger.training(np.array([7, 4]), uploads=2, up=200, passes=18.0, seconds=0.5, discloses="its update")
    asked, training = ledger.rows
    assert costs(asked) == ("UpdateNorm", 4, 2 * 160, 2 * 2 * 4, 18.0)
    assert costs(training) == ("training", 4, 160, 200, 9.0)
    assert (training.seconds, training.discloses) == (0.5, "its update")


def test_a_client_without_an_answer_has_only_received_the_question() -> None:
    ledger = Ledger(100, 160)

    def partly(question: Question, clients: np.ndarray) -> np.ndarray:
        ledger.unanswered.add(2)
        return answer(question, clients)

    ledger.asking(partly)(UpdateNorm(), np.array([4, 2]))
    ledger.asking(answer)(LocalLoss(), np.array([4, 2]))  # this time, client 2 answers
    ledger.training(np.array([4, 2]), uploads=2, up=200, passes=18.0, seconds=0.5, discloses="its update")
    norm, loss, training = (costs(row) for row in ledger.rows)
    assert norm == ("UpdateNorm", 3, 2 * 160, 2 * 4, 9.0)
    assert loss == ("LocalLoss", 4, 2 * 100, 2 * 4, 2.0)
    assert training == ("training", 4, 160, 200, 9.0)


def test_a_training_that_took_less_than_the_answer_said_costs_nothing_more() -> None:
    ledger = Ledger(100)
    ledger.asking(answer)(UpdateNorm(), np.array([4]))
    ledger.training(np.array([4]), uploads=0, up=0, passes=6.0, seconds=0.0, discloses="")
    assert costs(ledger.rows[1]) == ("training", 1, 0, 0, 0.0)


@pytest.mark.parametrize("clients", [np.array([1.0, 2.0]), np.array([True, False]), np.array([[1, 2]]), 3])
def test_a_question_to_what_are_no_ids_is_refused(clients: Any) -> None:
    with pytest.raises(UsageError, match="must be ids of clients, integers"):
        Ledger(100).asking(answer)(LocalLoss(), clients)


@pytest.mark.parametrize(("question", "shape"), [(LocalLoss(), (0,)), (Speed(), (0, 2)), (UpdateNorm(), (0, 2))])
def test_a_question_to_no_client_has_empty_answers_and_costs_nothing(
    question: Question, shape: tuple[int, ...]
) -> None:
    ledger = Ledger(100)
    assert ledger.asking(answer)(question, np.zeros(0, dtype=np.int64)).shape == shape
    assert costs(ledger.rows[0]) == (question.kind, 0, 0, 0, 0.0)


def test_exchanges_of_one_kind_are_summed_number_by_number() -> None:
    ledger = Ledger(100)
    ledger.add("trial", messages=1, down=10, up=200, passes=0.5, seconds=1.0, discloses="a")
    ledger.add("other", messages=7, down=7, up=7, passes=7.0, seconds=7.0)
    ledger.add("trial", messages=2, down=30, up=4000, passes=3.0, seconds=0.25, discloses="b")
    assert [astuple(row) for row in ledger.rows] == [
        ("other", 7, 7, 7, 7.0, 7.0, ""),
        ("trial", 3, 40, 4200, 3.5, 1.25, "b"),
    ]


# --- whole rounds --------------------------------------------------------------------------------------------------------------


def test_what_the_algorithm_sends_besides_the_model_is_sent_for_training_only() -> None:
    """From the second round on, Scaffold sends a control variate of the model's size in both directions, which takes its time."""
    bandwidth = 100.0
    network = {"name": "lognormal", "bandwidth": bandwidth, "sigma": 0.0}
    with a_run_state(
        selection={"name": "select_by_loss"}, algorithm="scaffold", systems={"network": network}
    ) as run_state:
        play_round(run_state, 1, test=False)
        row, model = play_round(run_state, 2, test=False), num_bytes([run_state.model])
        sending = run_state.clock.upload_times
    asked, training = row.ledger
    assert (asked.kind, asked.bytes_down) == ("LocalLoss", 6 * model)
    assert (training.bytes_down, training.bytes_up) == (3 * 2 * model, 3 * 2 * model)
    trained = [client.client for client in row.clients]
    assert sending[trained].tolist() == pytest.approx([4 * model / bandwidth] * 3)


def test_histograms_are_sent_once_before_the_first_round() -> None:
    with a_run_state(selection={"name": "fedcbs"}) as run_state:
        kinds = [[row.kind for row in play_round(run_state, t, test=False).ledger] for t in (1, 2)]
    assert (len(kinds[0]), kinds[1]) == (2, ["training"])


def test_a_trial_round_costs_its_training_and_a_second_model_for_the_clients_that_are_asked() -> None:
    """Three clients train for one epoch and send updates; ten are asked. Scaffold sends as much again in its second round."""
    with a_run_state(algorithm="scaffold") as run_state:
        play_round(run_state, 1, test=False)
        model = num_bytes([run_state.model])
        ledger = Ledger(model, 2 * model)
        change = answer_of_clients(run_state, 2, np.arange(12), ledger, LossChange((1, 4, 7)), np.arange(10))
    assert [costs(row) for row in ledger.rows] == [
        ("LossChange", 2 * 3 + 10, 3 * 2 * model + 10 * model, 3 * 2 * model, 3 * 3.0)
    ]
    assert change[[1, 4, 7]].mean() < 0, "the loss of clients that train becomes lower"


def test_algorithms_know_all_samples_and_the_numbers_of_the_cohort() -> None:
    cohort = Cohort(
        np.array([7, 2]), multiplicity=np.array([1, 3]), inclusion=np.array([0.5, 0.25]), weights=np.array([0.1, 0.7])
    )
    with a_run_state() as run_state:
        sizes = run_state.clock.num_samples
        found = members(cohort, sizes, 5, 4, run_state.engine.trainable)
    assert (found.num_clients, found.total_samples, found.k, found.t) == (12, sizes.sum(), 5, 4)
    assert found.multiplicity == {7: 1, 2: 3}
    assert found.inclusion == {7: 0.5, 2: 0.25}
    assert found.weights == {7: 0.1, 2: 0.7}


def test_after_a_part_of_an_update_the_server_knows_the_time_for_a_whole_one() -> None:
    """Clients leave out half of the tensors of their updates; strategies compare times of complete models."""
    selection = {"name": "pyramidfl", "k": 4, "drop_low": 0.5, "drop_high": 0.5, "adaptive_epochs": False}
    network = {"name": "lognormal", "bandwidth": 100.0, "sigma": 0.0}
    with a_run_state(selection=selection, systems={"network": network}) as run_state:
        row, model = play_round(run_state, 1, test=False), num_bytes([run_state.model])
        sending = run_state.clock.upload_times
    (training,) = row.ledger
    assert 0 < training.bytes_up < 4 * model
    assert sending[[client.client for client in row.clients]].tolist() == pytest.approx([2 * model / 100] * 4)


def test_steps_of_clients_that_were_late_count() -> None:
    with a_run_state(selection={"name": "uniform", "k": 3}, systems={"overcommit": 1.5}) as run_state:
        row, sizes = play_round(run_state, 1, test=False), run_state.clock.num_samples
    assert sum(client.status == "late" for client in row.clients) == 2
    assert row.steps == sum(-(-int(sizes[client.client]) // 16) for client in row.clients)  # one epoch in batches of 16


@parameters
class WeighsByPlace(Selector):
    """Selects four clients, declines the last one, and gives the others the weights 1, 0 and 3."""

    card: ClassVar[Card] = Card(source="a test", status="ours")
    gives: ClassVar[frozenset[str]] = frozenset({"weights"})

    def select(self, round: Round) -> Cohort:
        return Cohort(np.array([2, 5, 7, 9]), weights=np.array([1.0, 0.0, 3.0, 1.0]))

    def admit(self, updates: Iterable[Any]) -> Iterator[Any]:
        return (update for update in updates if update.client != 9)


def test_only_clients_whose_updates_enter_the_model_remember_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    committed: list[list[int]] = []
    given = Given(selector=WeighsByPlace(), algorithm=FedAvg(weights="cohort"))
    with a_run_state(given, selection={"name": "uniform", "k": 4}) as run_state:
        monkeypatch.setattr(run_state.engine, "commit", lambda clients: committed.append(list(clients)))
        row = play_round(run_state, 1, test=False)
    assert committed == [[2, 7]]
    assert [client.status for client in row.clients] == ["admitted", "declined", "admitted", "declined"]
    assert [client.weight for client in row.clients] == [0.25, 0.0, 0.75, 0.0]
