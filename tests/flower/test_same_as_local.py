"""A Flower run on the same data, seeds and times has the picks of the local run.

The clients train with FedCohort's engine. With an inner strategy that merges as FedCohort's FedAvg does, everything is compared:
picks, scores, accuracies, and the bits of the final model. With Flower's own FedAvg, which merges in float32, picks and accuracies are
compared. Simulated time is compared with the virtual time of the grid, in which a reply needs as long as the simulation says.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy

import fedcohort
from fedcohort.algorithms import Members, Update
from fedcohort.algorithms.methods.fedavg import FedAvg as OurFedAvg
from fedcohort.flower import Asked, Selecting, answers
from fedcohort.flower.replies import as_state
from fedcohort.flower.wire import KEY
from fedcohort.rounds import RunState
from fedcohort.selection import Cohort
from fedcohort.testing import LoopGrid
from tests.experiments import small
from tests.repetitions import slow_unless
from tests.run_states import a_run_state

ROUNDS = 5
CASES: dict[str, dict[str, Any]] = {
    "powd": {"selection": {"name": "powd", "k": 3, "d": 6}},
    "oort": {"selection": {"name": "oort", "k": 3}},
    "ucb": {"selection": {"name": "ucb", "k": 3, "initial_rounds": 2}},
    "flash": {"selection": {"name": "flash", "k": 3}, "federation": {"clients": 12, "holdout": 0.2}},
}
REPORTS = ("loss", "square_loss", "samples", "steps", "accuracy", "training_loss", "held_out_loss")


class SameMean(FedAvg):
    """FedAvg with FedCohort's arithmetic: a running mean in float64, in the order of the replies."""

    def __init__(self, members: Members) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.members = members

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any
    ) -> Iterable[Message]:
        self.model = as_state(arrays)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord, MetricRecord]:
        updates = []
        for reply in replies:
            metrics = reply.content["metrics"]
            assert isinstance(metrics, MetricRecord)
            updates.append(Update(0, int(str(metrics["num-examples"])), 1, as_state(reply.content["arrays"])))  # type: ignore[arg-type]
        merged = OurFedAvg().aggregate(self.model, iter(updates), self.members)
        return ArrayRecord(merged), MetricRecord({"replies": len(updates)})


def client_of(context: Context) -> int:
    return int(context.node_config["partition-id"])


def app_of(run_state: RunState) -> ClientApp:
    """An app with clients that train and answer as those of the local run."""
    app, engine, algorithm = ClientApp(), run_state.engine, run_state.algorithm

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays, config = message.content["arrays"], message.content["config"]
        said = message.content.get(KEY, ConfigRecord())
        assert isinstance(arrays, ArrayRecord)
        assert isinstance(config, ConfigRecord)
        assert isinstance(said, ConfigRecord)
        told = {name: json.loads(str(value)) for name, value in said.items()}
        epochs = np.array([told.pop("epochs")]) if "epochs" in told else None
        cohort = Cohort(np.array([client_of(context)]), epochs=epochs, **told)
        (update,) = engine.train(as_state(arrays), int(str(config["server-round"])), cohort, algorithm)
        metrics: dict[str, Any] = {"num-examples": update.num_samples} | update.report
        return Message(
            RecordDict({"arrays": ArrayRecord(update.state), "metrics": MetricRecord(metrics)}), reply_to=message
        )

    def answer(asked: Asked) -> list[float]:
        client = np.array([client_of(asked.context)])
        found = engine.answer(as_state(asked.arrays), asked.round, asked.question, client, algorithm)
        return [float(x) for x in np.ravel(found)]

    def speed(asked: Asked) -> list[float]:
        return [float(x) for x in run_state.clock.expected(asked.round)[client_of(asked.context)]]

    sizes = run_state.clock.num_samples
    return answers(
        app, num_samples=lambda context: int(sizes[client_of(context)]), local_loss=answer, context=answer, speed=speed,
        reports=REPORTS, follows=("epochs", "sampling", "stop", "share", "unsent"),
    )  # fmt: skip


def played(run_state: RunState, runs: Path, inner: Strategy) -> fedcohort.Run:
    """The same run in a Flower app."""
    m, clock, engine = len(run_state.clock.num_samples), run_state.clock, run_state.engine

    def seconds(position: int, message: Message) -> float:
        if message.metadata.message_type != "train":
            return 0.0
        config = message.content["config"]
        assert isinstance(config, ConfigRecord)
        return float(clock.nominal(int(str(config["server-round"])))[position])

    names = [str(client) for client in range(m)]
    order = np.random.default_rng(5).permutation(m).tolist()  # nodes are numbered in another order than clients
    where = LoopGrid(
        app_of(run_state), [{"partition-id": name} for name in names], nodes=[100 + i for i in order], seconds=seconds,
        order=lambda replies: replies[::-1],
    )  # fmt: skip

    def tested(t: int, arrays: ArrayRecord) -> MetricRecord:
        result = engine.evaluate(as_state(arrays), "test")
        return MetricRecord({"accuracy": float(result.accuracy), "loss": float(result.loss)})

    strategy = Selecting(
        inner, run_state.selector, run_state.k, min_nodes=m, runs=runs, clock=where.clock, patience=10,
        validate=lambda arrays: engine.evaluate(as_state(arrays), "validation").accuracy,
        trainable=engine.trainable, epochs=clock.epochs,
    )  # fmt: skip
    strategy.start(where, ArrayRecord(run_state.model), num_rounds=ROUNDS, evaluate_fn=tested)
    assert strategy.path is not None
    return fedcohort.open_run(strategy.path)


def by_round(run: fedcohort.Run) -> list[list[int]]:
    return [clients.tolist() for clients in run.selections]


@pytest.mark.parametrize("name", slow_unless({"powd", "flash"}.__contains__, CASES))
def test_picks_accuracies_and_the_final_model_are_those_of_the_local_run(name: str, tmp_path: Path) -> None:
    settings = {"rounds": ROUNDS, **CASES[name]}
    local = fedcohort.run(small(**settings), runs=tmp_path / "local")
    with a_run_state(**settings) as run_state:
        members = Members(12, int(run_state.clock.num_samples.sum()), 3, trainable=run_state.engine.trainable)
        same = played(run_state, tmp_path / "same", SameMean(members))
        flower = played(run_state, tmp_path / "flower", FedAvg(fraction_evaluate=0.0))
    assert by_round(same) == by_round(local)
    assert len({tuple(clients) for clients in by_round(local)}) > 1
    for column in ("test_accuracy", "test_loss", "trained", "admitted"):
        assert same.rounds[column].tolist() == local.rounds[column].tolist()
    columns = ["round", "client", "selected"]
    assert same.decisions[columns].equals(local.decisions[columns])
    # times of the grid are differences of its clock, which are rounded
    np.testing.assert_allclose(same.decisions["score"].to_numpy(), local.decisions["score"].to_numpy(), rtol=1e-9)
    assert same.clients["weight"].tolist() == pytest.approx(local.clients["weight"].tolist())
    assert same.rounds["simulated_time"].to_numpy() == pytest.approx(
        local.rounds["simulated_time"].to_numpy(), rel=1e-9
    )
    asked = [run.ledger.drop(columns="seconds").query("kind != 'training'") for run in (same, local)]
    assert asked[0].equals(asked[1])
    assert model_of(same) == model_of(local)
    assert by_round(flower) == by_round(local)
    assert flower.rounds["test_accuracy"].to_numpy() == pytest.approx(
        local.rounds["test_accuracy"].to_numpy(), abs=0.01
    )


def model_of(run: fedcohort.Run) -> dict[str, bytes]:
    from safetensors.torch import load_file

    state: dict[str, torch.Tensor] = load_file(run.path / "model.safetensors")
    return {name: value.numpy().tobytes() for name, value in sorted(state.items())}
