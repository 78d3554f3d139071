"""Answers of several clients at a time: the bits of the network's own passes over the samples of each client alone."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.core.random_streams import rng
from fedcohort.core.threads import one_thread
from fedcohort.federation.federation import Federation, Samples
from fedcohort.selection import Context, LocalAccuracy, LocalLoss, Question, UpdateNorm
from fedcohort.training.answers import answers
from fedcohort.training.client_session import Session
from fedcohort.training.evaluation import BLOCK
from fedcohort.training.matrix_products import quick_products
from fedcohort.training.programs.plain_network import program_of
from fedcohort.training.trainer import Trainer
from tests.run_states import a_run_state

TRAINED = [1, 128, 3, 200, 5, 129, 4, 4, 2, 7, 300, 17] * 2
HELD = [0, 2, 1, 150, 0, 3, 4, 1, 1, 2, 5, 129] * 2
PASSES = [
    Context(),
    Context(loss="robust"),
    LocalAccuracy(),
    LocalAccuracy(held_out=True),
    LocalLoss(),
    LocalLoss(batch=2),
]


def federation(labels: str, width: int) -> Federation:
    draw = np.random.default_rng(0)
    sizes = np.array(TRAINED) + HELD
    n = int(sizes.sum())
    features = torch.from_numpy(draw.standard_normal((n, width)).astype(np.float32))
    given = {
        "classes": draw.integers(0, 3, n),
        "numbers": draw.standard_normal(n),
        "each position": draw.integers(0, 3, (n, width)),
    }[labels]
    train = Samples(features, torch.from_numpy(given))
    shift, scale = torch.full((width,), 0.1), torch.full((width,), 0.7)
    return Federation(
        train, np.concatenate([[0], np.cumsum(sizes)]), train[:4], train[:4], ("a", "b", "c"), shift, scale, held=np.array(HELD)
    )  # fmt: skip


class EachPosition(nn.Module):
    """Three outputs for each feature of a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(x.unsqueeze(-1))
        return logits


def network(labels: str, width: int) -> nn.Module:
    if labels == "each position":
        return EachPosition().eval()
    outputs = 3 if labels == "classes" else 1
    return quick_products(nn.Sequential(nn.Linear(width, 30), nn.ReLU(), nn.Linear(30, outputs)).eval())


def alone(module: nn.Module, data: Federation, question: Question, client: int) -> list[float]:
    """The answer of a client: one pass for each block of its samples, and the sums in float64."""
    own = torch.arange(*data.span(client))
    held = torch.arange(data.span(client)[1], int(data.offsets[client + 1]))

    def passes(samples: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for block in samples.split(BLOCK) if len(samples) else ():
            part = data.train[block]
            yield module(data.prepare(part.features, torch.float32)), part.labels

    def loss(samples: Tensor, name: str = "ce") -> float:
        return sum(float(losses(*one, name).double().sum()) for one in passes(samples)) / len(samples)

    def right(samples: Tensor) -> float:
        if not len(samples):
            return float("nan")
        if data.is_numeric:
            return 1 - loss(samples)
        hits = sum(int((logits.argmax(-1) == labels).sum()) for logits, labels in passes(samples))
        return hits / data.train.labels[samples].numel()

    if isinstance(question, LocalLoss):
        order = rng(7, "question", 3, client).permutation(len(own))
        return [loss(own[torch.from_numpy(order[: question.batch])] if question.batch else own)]
    if isinstance(question, LocalAccuracy):
        return [right(held if question.held_out else own)]
    assert isinstance(question, Context)
    return [loss(own, question.loss), loss(held if len(held) else own)]


def losses(logits: Tensor, labels: Tensor, name: str) -> Tensor:
    if labels.is_floating_point():
        return (logits.squeeze(1) - labels.to(logits.dtype)).square()
    rows, classes = logits.flatten(0, -2), labels.flatten()
    ce = functional.cross_entropy(rows, classes, reduction="none")
    if name == "robust":
        second = (rows.softmax(-1) * functional.log_softmax(rows, -1)).sum(-1)
        ce = ce - 0.1 * second + 4.0 * (-4.0 * torch.expm1(-ce))
    return ce if labels.dim() == 1 else ce.view(labels.shape).mean(1)


@pytest.mark.parametrize("width", [16, 13])
@pytest.mark.parametrize(
    ("question", "labels"),
    [
        (question, labels)
        for question in PASSES
        for labels in ("classes", "numbers", "each position")
        if (question, labels) != (Context(loss="robust"), "numbers")  # a loss of classes
    ],
    ids=str,
)
def test_answers_have_the_bits_of_each_client_alone(question: Question, labels: str, width: int) -> None:
    """Also with samples of 52 bytes, which do not lie in memory as a batch of their own does."""
    torch.manual_seed(0)
    data, module = federation(labels, width), network(labels, width)
    program = program_of(module, data.sample_shape) if labels == "classes" else None
    assert (program is not None) == (labels == "classes")
    with one_thread():  # as in a run
        with torch.no_grad():
            expected = [alone(module, data, question, client) for client in range(len(TRAINED))]
        for ids in (list(range(len(TRAINED))), np.random.default_rng(1).permutation(len(TRAINED)).tolist(), [3, 4]):
            for used in {None, program}:
                found = answers(module, data, torch.float32, question, 3, ids, 7, used)
                assert np.array_equal(np.stack(found), [expected[i] for i in ids], equal_nan=True)


@pytest.mark.parametrize("question", PASSES, ids=str)
def test_the_samples_of_many_clients_are_standardized_at_once(
    question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call for each mean, and not one for each client: that takes most of the time of a question to 100,000 clients."""
    data, module, calls = federation("classes", 13), network("classes", 13), []
    prepare = Federation.prepare

    def counting(self: Federation, features: Tensor, dtype: torch.dtype) -> Tensor:
        calls.append(len(features))
        return prepare(self, features, dtype)

    monkeypatch.setattr(Federation, "prepare", counting)
    answers(module, data, torch.float32, question, 3, range(len(TRAINED)), 7, program_of(module, (13,)))
    assert len(calls) == (2 if isinstance(question, Context) else 1)


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_trial_trainings_are_those_of_each_client(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients with little work are trained several in one call, with the same bits."""
    settings: dict[str, Any] = {"model": "mlp", "algorithm": algorithm, "training": {"momentum": 0.0, "batch_size": 8}}
    one_by_one: list[int] = []
    run = Session.run

    def counted(self: Session, stop: Any) -> None:
        one_by_one.append(self.problem.client)
        run(self, stop)

    monkeypatch.setattr(Session, "run", counted)

    def asked() -> Any:
        with a_run_state(**settings) as run_state:
            everyone = np.arange(12)
            return run_state.engine.answer(run_state.model, 1, UpdateNorm(), everyone, run_state.algorithm)

    together = asked()
    assert not one_by_one
    monkeypatch.setattr(Trainer, "train_series", lambda *_: None)
    assert np.array_equal(asked(), together)
    assert sorted(one_by_one) == list(range(12))
