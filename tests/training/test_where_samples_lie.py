"""Samples that are picked out of all data by their rows give the bits that packed samples give, whatever looks at them."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from fedcohort.algorithms import Algorithm
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fedbio import FedBiO
from fedcohort.algorithms.methods.rhfl import RHFL
from fedcohort.algorithms.methods.scaffold import Scaffold
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.federation.pooled_federation import pooled
from fedcohort.models import Mlp
from fedcohort.selection import Cohort, Context, GradientNorm, LocalAccuracy, LocalLoss, UpdateNorm
from fedcohort.testing.base import HEALTHY, bits, small_federation
from fedcohort.training import client_problem as problem
from fedcohort.training import local_setup as setup
from fedcohort.training.client_report import NO_STEP
from fedcohort.training.networks import mixed_samples
from fedcohort.training.networks import received_outputs as outputs

CLIENTS = np.array(HEALTHY)
EMPTY = 5


def scattered(federation: Federation) -> Federation:
    """The same samples as rows among others, in no order."""

    def among_others(samples: Samples) -> Samples:
        rows = torch.from_numpy(np.random.default_rng(0).permutation(2 * len(samples))[: len(samples)])
        source = torch.full((2 * len(samples), *samples.features.shape[1:]), torch.nan)
        source[rows] = samples.features
        return Samples(source, samples.labels, rows)

    return dataclasses.replace(federation, train=among_others(federation.train), test=among_others(federation.test))


@contextmanager
def engines(algorithm: type[Algorithm], training: dict[str, Any], plan: Any) -> Iterator[list[LocalEngine]]:
    packed = small_federation(trouble=False)
    settings = Training(**{"batch_size": 4, "epochs": 2, **training})
    both = [
        LocalEngine(federation, Mlp(hidden=5), settings, algorithm(), 3, 2, plan=plan)
        for federation in (packed, scattered(packed))
    ]
    try:
        yield both
    finally:
        for engine in both:
            engine.close()


@pytest.mark.parametrize("at_once", [0, 2**22], ids=["batch by batch", "all samples made ready"])
@pytest.mark.parametrize(
    ("algorithm", "training", "how", "plans"),
    [
        (FedAvg, {}, {}, ("threads", "stacked")),
        (FedAvg, {"batch_size": 0, "optimizer": "adam"}, {}, ("threads", "stacked")),
        (FedAvg, {"loss": {"name": "robust"}}, {}, ("threads", "stacked")),
        (FedAvg, {}, {"sampling": "loss"}, ("threads",)),
        (RHFL, {}, {}, ("threads", "stacked")),
        (Scaffold, {"optimizer": "sgd", "momentum": 0.0}, {}, ("threads", "stacked")),
        (FedBiO, {"optimizer": "sgd", "momentum": 0.0}, {}, ("threads",)),
    ],
    ids=["plain", "full batch", "robust", "drawn by loss", "rhfl", "scaffold", "fedbio"],
)
def test_training(
    algorithm: type[Algorithm], training: dict[str, Any], how: dict[str, Any], plans: tuple[str, ...], at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(problem, "AT_ONCE", at_once)
    for module in (mixed_samples, problem, setup, outputs):
        monkeypatch.setattr(module, "CHUNK", 8)
    for plan in plans:
        with engines(algorithm, training, plan) as both:
            assert {engine.plan for engine in both} == {plan}
            start = both[0].initial_model()
            pairs = zip(*(engine.train(start, 1, Cohort(CLIENTS, **how), algorithm()) for engine in both), strict=True)
            for one, other in pairs:
                assert one.steps > 0
                assert bits(one.state) == bits(other.state)
                assert one.report == other.report


@pytest.mark.parametrize("plan", ["threads", "stacked"])
def test_no_samples_at_all(plan: str) -> None:
    """Also where the received model is asked about all of them."""
    with engines(FedAvg, {"loss": {"name": "robust"}}, plan) as both:
        for engine in both:
            (update,) = engine.train(engine.initial_model(), 1, Cohort(np.array([EMPTY])), FedAvg())
            assert update.failure == NO_STEP


@pytest.mark.parametrize(
    "question",
    [LocalLoss(), LocalLoss(batch=3), LocalAccuracy(), LocalAccuracy(held_out=True), Context(), GradientNorm(), UpdateNorm()],
    ids=repr,
)  # fmt: skip
def test_answers(question: Any) -> None:
    with engines(FedAvg, {}, "threads") as both:
        start = both[0].initial_model()
        one, other = (engine.answer(start, 1, question, CLIENTS, FedAvg()) for engine in both)
        assert np.isfinite(one).all()
        assert np.array_equal(one, other)


def test_evaluation() -> None:
    with engines(FedAvg, {}, "threads") as both:
        start = both[0].initial_model()
        one, other = (engine.evaluate(start, "test") for engine in both)
        assert np.array_equal(one.losses, other.losses)
        assert one.accuracy == other.accuracy


def test_all_in_one_place() -> None:
    packed = small_federation(trouble=False)
    together = pooled(scattered(packed))
    assert together.train.rows is not None
    for part in ("client", "held_out"):
        assert getattr(together, part)(0).features.equal(getattr(pooled(packed), part)(0).features)
        assert getattr(together, part)(0).labels.equal(getattr(pooled(packed), part)(0).labels)
