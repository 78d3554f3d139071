"""What clients answer to a contextual bandit, against numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import Mlp
from fedcohort.selection import Context
from fedcohort.testing.base import small_federation


def probabilities(engine: LocalEngine, federation: Federation, samples: Samples) -> np.ndarray:
    model = {name: value.double().numpy() for name, value in engine.initial_model().items()}
    weights, biases = [v for v in model.values() if v.ndim == 2], [v for v in model.values() if v.ndim == 1]
    x = federation.prepare(samples.features, torch.float64).numpy()
    logits = np.maximum(x @ weights[0].T + biases[0], 0) @ weights[1].T + biases[1]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


@pytest.fixture(scope="module")
def federation() -> Federation:
    return small_federation([200, 5, 1], trouble=False)


def test_losses_on_the_two_parts(federation: Federation) -> None:
    engine = LocalEngine(federation, Mlp(hidden=8), Training(precision="float64"), FedAvg(), seed=1, workers=1)
    try:
        clients = np.array([0, 1])
        plain = engine.answer(engine.initial_model(), 1, Context(), clients)
        robust = engine.answer(
            engine.initial_model(), 1, Context(loss="robust", alpha=0.5, beta=2.0, log_zero=-3.0), clients
        )
        assert plain.shape == robust.shape == (2, 2)
        for i in clients:
            own, held = federation.client(i), federation.held_out(i)
            assert len(held)
            p, y = probabilities(engine, federation, own), own.labels.numpy()
            right = p[np.arange(len(y)), y]
            ce, entropy, reverse = -np.log(right), -(p * np.log(p)).sum(axis=1), 3.0 * (1 - right)
            q = probabilities(engine, federation, held)[np.arange(len(held)), held.labels.numpy()]
            assert plain[i] == pytest.approx([ce.mean(), -np.log(q).mean()])
            assert robust[i] == pytest.approx([(ce + 0.5 * entropy + 2.0 * reverse).mean(), -np.log(q).mean()])
    finally:
        engine.close()


def test_a_client_that_holds_nothing_out_answers_for_its_training_data(federation: Federation) -> None:
    nothing = replace(federation, held=np.zeros(3, dtype=np.int64))
    engine = LocalEngine(nothing, Mlp(hidden=8), Training(), FedAvg(), seed=1, workers=1)
    try:
        answers = engine.answer(engine.initial_model(), 1, Context(), np.arange(3))
        assert answers[:, 0].tolist() == answers[:, 1].tolist()
    finally:
        engine.close()
