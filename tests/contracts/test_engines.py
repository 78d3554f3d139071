"""Both engines fulfill the contract, and whole runs on them are bit-identical."""

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedcohort.algorithms import Algorithm, ModelState, Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.files.state_files import pack, unpack
from fedcohort.engines.base import ClientError, Later
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.experiment.given_objects import Given
from fedcohort.models import Logistic
from fedcohort.record import RoundRow
from fedcohort.rounds import RunState, play_round
from fedcohort.selection import Cohort, Question
from fedcohort.testing import check_engine
from fedcohort.testing.base import BROKEN, HEALTHY, ControlVariates, bits, small_federation
from fedcohort.training.evaluation import Evaluation
from tests.engines.process_engine import Pool, ProcessEngine
from tests.experiments import small
from tests.repetitions import slow_after
from tests.run_states import a_run_state
from tests.training.test_networks_that_draw import Chancy

SELECTIONS: list[dict[str, Any]] = [
    {"name": "uniform"},
    {"name": "ucb", "initial_rounds": 1},
    {"name": "select_by_loss"},
    {"name": "cpowd"},
    {"name": "utility_time"},
    {"name": "pyramidfl", "k": 4},
    {"name": "conformal", "base": "uniform", "alpha_cp": 0.3, "theta": 0.5, "max_epochs": 4},
    {"name": "ocs"},
    {"name": "feel"},
    {"name": "flash"},
    {"name": "flash", "eval_point": "local", "head": "lin_ucb"},
    {"name": "fedcor", "warmup": 1, "interval": 1, "first_steps": 3, "steps": 3},
]
SYSTEMS = {"dropout": 0.25}
ROUNDS = 4


def test_the_local_engine_fulfills_the_contract() -> None:
    check_engine(LocalEngine)


@pytest.mark.slow
def test_the_process_engine_fulfills_the_contract(pool: Pool) -> None:
    check_engine(partial(ProcessEngine, pool=pool))


class TrainsAllClientsFirst(LocalEngine):
    def train(self, model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
        yield from list(super().train(model, t, cohort, algorithm))


class YieldsUpdatesInReverse(LocalEngine):
    def train(self, model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
        yield from reversed(list(super().train(model, t, cohort, algorithm)))


class CommitsAllProposedMemories(LocalEngine):
    def commit(self, admitted: Iterable[int]) -> None:
        super().commit(self.memories.proposed)


class LoadsNoState(LocalEngine):
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


class HidesTheFailedClient(LocalEngine):
    def answer(
        self, model: ModelState, t: int, question: Question, clients: Indices, algorithm: Algorithm | None = None
    ) -> Values:
        try:
            return super().answer(model, t, question, clients, algorithm)
        except ClientError as error:
            raise RuntimeError("a client failed") from error


class QuestionsChangeMemories(LocalEngine):
    def answer(
        self, model: ModelState, t: int, question: Question, clients: Indices, algorithm: Algorithm | None = None
    ) -> Values:
        if question.trains:
            assert algorithm is not None
            list(self.train(model, t, Cohort(clients), algorithm))
            self.commit(clients.tolist())
        return super().answer(model, t, question, clients, algorithm)


class EvaluatesTheWrongSplit(LocalEngine):
    def evaluate(self, model: ModelState, split: str) -> Evaluation:
        return super().evaluate(model, "validation")


@dataclass
class LateEvaluation:
    """An evaluation of the model that ``model`` returns when the result is read; it never reports that it is done."""

    engine: LocalEngine
    model: Callable[[], ModelState]
    split: str
    predictions: bool

    def __call__(self) -> Evaluation:
        return LocalEngine.evaluate_beside(self.engine, self.model(), self.split, predictions=self.predictions)()

    def done(self) -> bool:
        return False


class EvaluatesTheLatestModel(LocalEngine):
    latest: ModelState

    def evaluate_beside(self, model: ModelState, split: str, *, predictions: bool = False) -> Later:
        self.latest = model
        return LateEvaluation(self, lambda: self.latest, split, predictions)


class CallsMeanwhileFromAnotherThread(LocalEngine):
    def train(self, model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
        elsewhere = threading.Thread(target=self.meanwhile)
        elsewhere.start()
        elsewhere.join()
        yield from super().train(model, t, cohort, algorithm)


class NeverReportsDone(LocalEngine):
    def evaluate_beside(self, model: ModelState, split: str, *, predictions: bool = False) -> Later:
        return LateEvaluation(self, lambda: model, split, predictions)


class CannotBeClosedTwice(LocalEngine):
    def close(self) -> None:
        if getattr(self, "closed", False):
            raise RuntimeError("closed already")
        self.closed = True
        super().close()


@pytest.mark.parametrize(
    ("engine", "complaint"),
    slow_after(
        2,
        [
            (TrainsAllClientsFirst, "150 of 150 clients were trained before the second update"),
            (YieldsUpdatesInReverse, "updates: differs from the local engine"),
            (CommitsAllProposedMemories, "updates: differs from the local engine"),
            (LoadsNoState, "a memory was lost or changed"),
            (
                HidesTheFailedClient,
                "answer: client 9 raises an error, but the engine raised RuntimeError, not ClientError",
            ),
            (QuestionsChangeMemories, "differs from the local engine"),
            (EvaluatesTheWrongSplit, "test: differs from the local engine"),
            (EvaluatesTheLatestModel, "evaluate_beside: differs from evaluate"),
            (
                CallsMeanwhileFromAnotherThread,
                "meanwhile: called by a thread other than the one that reads the updates",
            ),
            (NeverReportsDone, "evaluate_beside: gave its result, but says that it is not done"),
            (CannotBeClosedTwice, "raised RuntimeError: closed already"),
        ],
    ),
)
def test_the_check_reports_the_broken_rule(engine: type[LocalEngine], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_engine(engine)


@contextmanager
def game_on(pool: Pool | None, algorithm: Algorithm | None = None, **values: Any) -> Iterator[RunState]:
    """The small experiment on the process engine, or on the local one."""
    with a_run_state(Given(algorithm=algorithm), **values) as run_state:
        if pool is None:
            yield run_state
            return
        experiment, local = small(**values), run_state.engine
        assert isinstance(local, LocalEngine)
        engine = ProcessEngine(
            local.federation,
            experiment.model.build(),
            experiment.training,
            run_state.algorithm,
            run_state.seed,
            2,
            pool=pool,
        )
        with closing(engine):
            run_state.engine = engine
            run_state.model = engine.initial_model()
            yield run_state
            run_state.engine = local


def without_wall_times(row: RoundRow) -> str:
    """The record of a round except wall times, as text, in which NaN equals NaN."""
    ledger = [dataclasses.replace(line, seconds=0.0) for line in row.ledger]
    return repr(dataclasses.replace(row, wall={}, ledger=ledger))


def play_rounds(run_state: RunState, rounds: range) -> list[RoundRow]:
    return [play_round(run_state, t, test=t % 2 == 0) for t in rounds]


@pytest.mark.parametrize("model", slow_after(1, ["mlp", "cnn_a"]))
@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda selection: selection["name"])
def test_a_run_is_bit_identical_on_both_engines(selection: dict[str, Any], model: str, pool: Pool) -> None:
    values: dict[str, Any] = {
        "selection": selection,
        "model": model,
        "systems": SYSTEMS,
        "federation": {"holdout": 0.2},
    }
    with game_on(None, **values) as here, game_on(pool, **values) as there:
        for t in range(1, ROUNDS + 1):
            assert without_wall_times(play_round(there, t, test=True)) == without_wall_times(
                play_round(here, t, test=True)
            )
            assert bits(there.model) == bits(here.model)
        assert pack(there.state_dict()) == pack(here.state_dict())


@pytest.mark.parametrize("algorithm", [FedAvg(), ControlVariates()], ids=["fedavg", "scaffold"])
def test_training_with_dropout_is_bit_identical_on_both_engines(algorithm: Algorithm, pool: Pool) -> None:
    """The draws of dropout depend on client, round and step, not on the process."""
    model, clients, settings = Chancy(), Cohort(np.array(HEALTHY)), Training(batch_size=4)
    with (
        closing(LocalEngine(small_federation(), model, settings, algorithm, 3, 3)) as here,
        closing(ProcessEngine(small_federation(), model, settings, algorithm, 3, 2, pool=pool)) as there,
    ):
        start = here.initial_model()
        for t in (1, 2):
            one, other = (
                [bits(update.state) for update in engine.train(start, t, clients, algorithm)]
                for engine in (here, there)
            )
            assert one == other
            here.commit(HEALTHY)
            there.commit(HEALTHY)


def test_client_memory_survives_dropouts_and_a_change_of_engine(pool: Pool) -> None:
    values = {"selection": {"name": "uniform", "k": 5}, "systems": SYSTEMS, "training": {"lr": 0.01}}
    with game_on(None, ControlVariates(), **values) as uninterrupted:
        rows = play_rounds(uninterrupted, range(1, 7))
    failed = {client.client for row in rows for client in row.clients if client.status == "failed"}
    admitted = {client.client for row in rows for client in row.clients if client.status == "admitted"}
    assert failed, "the test needs clients that drop out"
    assert {int(client) for client in uninterrupted.engine.state_dict()} == admitted

    moved: list[RoundRow] = []
    state: dict[str, Any] = {}
    for processes, rounds in ((pool, range(1, 3)), (None, range(3, 5)), (pool, range(5, 7))):
        with game_on(processes, ControlVariates(), **values) as run_state:
            if state:
                run_state.load_state_dict(state)
            moved += play_rounds(run_state, rounds)
            state = unpack(pack(run_state.state_dict()))
    assert [without_wall_times(row) for row in moved] == [without_wall_times(row) for row in rows]
    assert bits(run_state.model) == bits(uninterrupted.model)
    assert bits(state["engine"]) == bits(uninterrupted.engine.state_dict())
    assert bits(state["algorithm"]["c"]) == bits(uninterrupted.state_dict()["algorithm"]["c"])


def test_an_error_in_another_process_includes_the_clients_traceback(pool: Pool) -> None:
    engine = ProcessEngine(small_federation(), Logistic(), Training(), FedAvg(), 0, 1, pool=pool)
    with closing(engine), pytest.raises(ClientError, match=rf"^client {BROKEN}: IndexError: ") as caught:
        list(engine.train(engine.initial_model(), 1, Cohort(np.array([BROKEN])), FedAvg()))
    assert "in train\n" in str(caught.value.__cause__)
