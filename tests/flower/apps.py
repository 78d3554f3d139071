"""A small Flower app for tests: linear regression on made-up data, with answers to all questions."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy

from fedcohort.flower import Asked, Selecting, answers
from fedcohort.flower.wire import KEY
from fedcohort.selection import Selector
from fedcohort.testing import LoopGrid

M, K = 20, 4
REPORTS = (
    "loss",
    "square_loss",
    "samples",
    "steps",
    "accuracy",
    "q_hat",
    "done",
    "epochs",
    "training_loss",
    "held_out_loss",
)


def initial() -> ArrayRecord:
    """The model before the first round: w = 0, b = 0."""
    return ArrayRecord({"w": Array(np.zeros(3, np.float32)), "b": Array(np.zeros(1, np.float32))})


def data_of(client: int) -> tuple[np.ndarray, np.ndarray]:
    """Features [n, 3] and targets [n] of a client; clients differ in their size and their slope."""
    draw = np.random.default_rng(client)
    features = draw.normal(size=(10 + client, 3)).astype(np.float32)
    return features, (features @ np.array([1.0, -1.0, 0.1 * client]) + 0.05 * client).astype(np.float32)


def losses(arrays: ArrayRecord, client: int) -> np.ndarray:
    """The squared error of each sample of a client."""
    features, targets = data_of(client)
    return np.square(features @ arrays["w"].numpy() + arrays["b"].numpy() - targets).astype(np.float64)


def client_of(context: Context) -> int:
    """The number of a client: the partition of its node."""
    return int(context.node_config["partition-id"])


def bare_app() -> ClientApp:
    """An app that trains and evaluates, and answers nothing yet."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays, client = message.content["arrays"], client_of(context)
        assert isinstance(arrays, ArrayRecord)
        features, targets = data_of(client)
        said = message.content.get(KEY, ConfigRecord())
        assert isinstance(said, ConfigRecord)
        steps = 2 * int(json.loads(str(said.get("epochs", "1"))))
        w, b = arrays["w"].numpy().copy(), arrays["b"].numpy().copy()
        for _ in range(steps):
            error = features @ w + b - targets
            w -= 0.1 * features.T @ error / len(targets)
            b -= 0.1 * error.mean()
        each = losses(arrays, client)
        metrics = dict.fromkeys(REPORTS, 0.5) | {
            "num-examples": len(targets), "loss": float(each.mean()), "square_loss": float(np.square(each).mean()),
            "samples": len(targets), "steps": steps, "done": float(client % 2), "epochs": steps / 2,
        }  # fmt: skip
        reply = RecordDict(
            {"arrays": ArrayRecord({"w": Array(w), "b": Array(b)}), "metrics": MetricRecord(dict(metrics))}
        )
        return Message(reply, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        arrays, client = message.content["arrays"], client_of(context)
        assert isinstance(arrays, ArrayRecord)
        metrics = {"num-examples": 10 + client, "loss": float(losses(arrays, client).mean()), "accuracy": 0.5}
        return Message(RecordDict({"metrics": MetricRecord(dict(metrics))}), reply_to=message)

    return app


def mean_loss(asked: Asked) -> float:
    return float(losses(asked.arrays, client_of(asked.context)).mean())


def two(asked: Asked) -> list[float]:
    client = client_of(asked.context)
    return [1.0 + client, 0.5]


def willing_app(**without: Any) -> ClientApp:
    """An app that answers everything; ``without=None`` leaves an answer out."""
    questions: dict[str, Any] = {
        "local_loss": mean_loss, "local_accuracy": lambda asked: 1 / (1 + mean_loss(asked)), "gradient_norm": mean_loss,
        "speed": two, "context": lambda asked: [mean_loss(asked), 2 * mean_loss(asked)], "update_norm": two,
    } | without  # fmt: skip
    given = {name: function for name, function in questions.items() if function is not None}
    return answers(
        bare_app(),
        num_samples=lambda context: 10 + client_of(context),
        histogram=lambda context: [5, 5 + client_of(context) % 7, client_of(context) - client_of(context) % 7],
        reports=REPORTS,
        follows=("epochs", "share", "unsent", "sampling", "stop"),
        **given,
    )


def grid(app: ClientApp | None = None, m: int = M, **settings: Any) -> LoopGrid:
    """A grid of ``m`` nodes."""
    return LoopGrid(app or willing_app(), [{"partition-id": i} for i in range(m)], **settings)


def validate(arrays: ArrayRecord) -> Mapping[str, Any]:
    """A validation set of two classes."""
    error = float(np.mean([losses(arrays, client).mean() for client in range(3)]))
    return {"accuracy": 1 / (1 + error), "class_accuracy": [0.5, 0.6, 0.7], "validation_losses": [error, error]}


def inner(**settings: Any) -> FedAvg:
    return FedAvg(**{"fraction_evaluate": 0.0, **settings})


def selecting(where: LoopGrid, selector: Selector, strategy: Strategy | None = None, **settings: Any) -> Selecting:
    """The wrapper under test; without a record, with the grid's clock."""
    values = {
        "k": K,
        "min_nodes": len(where.nodes),
        "patience": 0.2,
        "runs": None,
        "validate": validate,
        "clock": where.clock,
    }
    return Selecting(strategy or inner(), selector, **{**values, **settings})


def picks(where: LoopGrid) -> list[list[int]]:
    """The clients that trained in each round, by the messages that the grid carried; each list is sorted."""
    rounds: dict[int, list[int]] = {}
    for message in where.messages:
        if message.metadata.message_type == "train":
            config = message.content["config"]
            assert isinstance(config, ConfigRecord)
            t = config["server-round"]
            assert isinstance(t, int)
            rounds.setdefault(t, []).append(int(where.nodes.index(message.metadata.dst_node_id)))
    return [sorted(rounds[t]) for t in sorted(rounds)]
