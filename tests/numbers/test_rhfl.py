"""RHFL (spec G10): worked values, alignment against autograd, FedAvg as a special case, and whole runs."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedcohort
from fedcohort.algorithms import Members, ModelState, Update, parameters
from fedcohort.algorithms.losses import SymmetricLearning
from fedcohort.algorithms.methods import rhfl
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.rhfl import RHFL, alignment_gradient, confidence
from fedcohort.algorithms.server_tools import ServerTools
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.experiment.given_objects import Given
from fedcohort.selection import Cohort
from fedcohort.testing.base import bits
from tests.experiments import small
from tests.golden.test_same_bits import record
from tests.numbers.test_feddf import MEMBERS, SETTING, linear, mean, small_tools
from tests.resume.test_resume import stop_after
from tests.run_states import a_run_state
from tests.tensor_operations import TensorOperations

# --- local loss, confidence and pull ---------------------------------------------------------------------------------------


def test_worked_local_loss() -> None:
    logits = torch.log(torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64))
    assert float(SymmetricLearning().samples(logits, torch.tensor([0]))) == pytest.approx(2.798770, abs=5e-7)
    assert RHFL().local_training(Training(lr=0.3)) == Training(lr=0.3, loss={"name": "sl"})


def test_worked_confidence() -> None:
    q = np.array([1, 1 / 3, 1 / 19])
    v = 1 / 2 + 0.5 * q / q.sum()
    assert v.tolist() == pytest.approx([0.860759, 0.620253, 0.518987], abs=5e-7)
    W = confidence([1.0, 1.5, 1.9], [2.0, 2.0, 2.0], beta=0.5)
    assert W.tolist() == pytest.approx((np.exp(v) / np.exp(v).sum()).tolist(), rel=1e-12)
    assert W.tolist() == pytest.approx([0.400522, 0.314903, 0.284575], abs=5e-7)


@pytest.mark.parametrize(
    ("losses", "previous"),
    [([1.0, 2.0, 3.0], [None] * 3), ([3.0, 3.0, 3.0], [2.0, 1.0, None]), ([0.0, 1.0, 1.0], [0.0, 1.0, 1.0]), ([2.0], [5.0])],
)  # fmt: skip
def test_without_progress_all_clients_have_equal_confidence(losses: Any, previous: Any) -> None:
    assert set(confidence(losses, previous, 0.5).tolist()) == {1 / len(losses)}


def test_a_rising_loss_and_a_first_round_count_as_no_progress() -> None:
    W = confidence([1.0, 1.0, 1.0], [2.0, 0.1, None], 0.5)
    assert W[1] == W[2] == pytest.approx(1 / (2 + math.exp(0.5)))


def test_pull_equals_the_gradient_of_the_divergence() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 5, 3, generator=draw, dtype=torch.float64, requires_grad=True)
    shares = torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=torch.float64)
    outputs = functional.softmax(logits, -1).detach()
    log_p = functional.log_softmax(logits, -1)
    terms = [
        shares[j] * functional.kl_div(log_p[i], outputs[j], reduction="batchmean")
        for i in range(4) for j in range(4) if j != i
    ]  # fmt: skip
    (gradient,) = torch.autograd.grad(sum(terms, torch.zeros(())), logits)
    assert torch.allclose(alignment_gradient(outputs, shares), gradient, rtol=1e-12, atol=1e-15)


def test_pull_of_identical_models_is_zero() -> None:
    outputs = functional.softmax(torch.randn(1, 7, 3, generator=torch.Generator().manual_seed(0)), -1).expand(3, 7, 3)
    assert not alignment_gradient(outputs, torch.tensor([0.5, 0.3, 0.2])).any()


@pytest.mark.parametrize("models", [1, 3, 64])
def test_the_memory_of_pulls_does_not_grow_with_the_pairs_of_models(
    models: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(0)
    outputs = functional.softmax(torch.randn(64, 4, 3, generator=draw, dtype=torch.float64), -1)
    shares = torch.rand(64, generator=draw, dtype=torch.float64)
    monkeypatch.setattr(rhfl, "PIECE", models * outputs.numel())
    with TensorOperations() as operations:
        pulls = alignment_gradient(outputs, shares)
    direct = (shares[:, None, None] * (outputs[:, None] - outputs[None])).sum(dim=1) / 4
    assert torch.allclose(pulls, direct, rtol=1e-12, atol=1e-15)
    assert operations.largest == models * outputs.numel()


# --- the server half -------------------------------------------------------------------------------------------------------


def update(client: int, state: ModelState, loss: float = 1.0) -> Update:
    return Update(client, 10 * (client + 1), 1, state, extra={"loss": {"sl": torch.tensor(loss)}})


def merge(
    algorithm: RHFL, updates: Sequence[Update], tools: ServerTools | None = None, members: Members = MEMBERS
) -> ModelState:
    algorithm.prepare(tools or small_tools())
    return algorithm.aggregate(linear(99), iter(updates), members)


THREE = [update(i, linear(i)) for i in range(3)]


def test_alignment_of_identical_models_changes_nothing() -> None:
    alike = [update(i, linear(0)) for i in range(3)]
    assert bits(merge(RHFL(align_epochs=3), alike)) == bits(linear(0))


def test_with_one_client_the_result_is_its_model() -> None:
    assert bits(merge(RHFL(), THREE[1:2])) == bits(THREE[1].state)


def test_without_an_update_model_and_losses_stay_unchanged() -> None:
    algorithm = RHFL()
    assert bits(merge(algorithm, [])) == bits(linear(99))
    assert algorithm.losses == {}


def test_without_alignment_and_progress_rhfl_equals_fedavg() -> None:
    expected = FedAvg().aggregate(linear(99), iter(THREE), MEMBERS)
    assert bits(merge(RHFL(align_epochs=0, beta=0.0), THREE)) == bits(expected)
    assert bits(merge(RHFL(align_epochs=0), THREE)) == bits(expected)  # no client has made progress in the first round


def test_confidence_enters_the_average_in_later_rounds() -> None:
    algorithm = RHFL(align_epochs=0)
    merge(algorithm, [update(i, linear(i), 2.0) for i in range(3)])
    assert algorithm.losses == {0: 2.0, 1: 2.0, 2: 2.0}
    later = [update(i, linear(i), loss) for i, loss in enumerate((1.0, 1.5, 1.9))]
    result = merge(algorithm, later)
    weights = np.array([0.400522, 0.314903, 0.284575]) * [10, 20, 30]
    relative_weights = np.array([algorithm.weighed()[i] for i in range(3)])
    assert relative_weights / relative_weights.sum() == pytest.approx(weights / weights.sum(), abs=1e-6)
    expected = sum(w * linear(i)["weight"].double() for i, w in enumerate(weights / weights.sum()))
    assert torch.allclose(result["weight"].double(), torch.as_tensor(expected), atol=1e-5)
    merge(algorithm, [update(2, linear(2), 0.5)])
    assert algorithm.losses == {0: 1.0, 1: 1.5, 2: 0.5}


def test_alignment_agrees_with_an_independent_loop() -> None:
    tools = small_tools(public=20)
    result = merge(RHFL(batch_size=8, lr=0.05), THREE, tools)
    models = [nn.Linear(2, 3) for _ in THREE]
    for model, u in zip(models, THREE, strict=True):
        model.load_state_dict(u.state)
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.05) for model in models]
    chosen = torch.from_numpy(tools.rng("public").permutation(20))
    order = chosen[torch.from_numpy(tools.rng("alignment", 1).permutation(20))]
    for index in (order[:8], order[8:16], order[16:]):
        outputs = [functional.softmax(model(tools.public[index]), -1).detach() for model in models]
        for i, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            log_p = functional.log_softmax(model(tools.public[index]), -1)
            others = [outputs[j] for j in range(3) if j != i]
            loss = sum(functional.kl_div(log_p, other, reduction="batchmean") / 3 for other in others)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[union-attr]
            optimizer.step()
    states = [
        dataclasses.replace(u, state={name: value.detach() for name, value in m.state_dict().items()})
        for u, m in zip(THREE, models, strict=True)
    ]
    expected = mean(states)
    for name, value in expected.items():
        assert torch.allclose(result[name], value, rtol=1e-4, atol=1e-5)
    assert bits(result) != bits(mean(THREE))


def test_public_size_limits_alignment_to_the_same_samples_in_every_round() -> None:
    seen: list[int] = []

    def prepared(features: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        seen.extend(features[:, 0].tolist())
        return features.to(dtype)

    tools = dataclasses.replace(small_tools(public=50), prepared=prepared)
    merge(RHFL(public_size=12, batch_size=5, align_epochs=2), THREE, tools)
    first = set(seen)
    merge(RHFL(public_size=12, batch_size=5), THREE, tools, dataclasses.replace(MEMBERS, t=2))
    assert len(first) == 12
    assert set(seen) == first


def test_a_diverging_alignment_is_discarded() -> None:
    wild = [update(i, {name: value * 1e38 for name, value in linear(i).items()}) for i in range(3)]
    result = merge(RHFL(), wild)
    assert bits(result) == bits(merge(RHFL(align_epochs=0), wild))


def test_a_client_drawn_twice_counts_twice() -> None:
    members = dataclasses.replace(MEMBERS, multiplicity={0: 2, 1: 1})
    result = merge(RHFL(align_epochs=0, weights="uniform"), THREE[:2], members=members)
    expected = (2 * THREE[0].state["weight"] + THREE[1].state["weight"]) / 3
    assert torch.allclose(result["weight"], expected, atol=1e-6)
    aligned = merge(RHFL(weights="uniform"), THREE[:2], members=members)
    assert bits(aligned) != bits(merge(RHFL(weights="uniform"), THREE[:2]))


@pytest.mark.parametrize("align_epochs", [0, 2])
def test_a_client_drawn_twice_is_as_two_clients_with_its_model_and_loss(align_epochs: int) -> None:
    """In the second round, after losses that fell: the sum over q then has that of this client twice, too."""
    results = []
    for clients, multiplicity in (([0, 1], {0: 2}), ([0, 3, 1], {})):
        algorithm = RHFL(align_epochs=align_epochs, weights="uniform", beta=2.0)
        merge(algorithm, [update(i, linear(i), 3.0) for i in (0, 1, 3)])
        later = [update(i, linear(i % 3), 2.5 if i == 1 else 1.0) for i in clients]
        results.append(merge(algorithm, later, members=dataclasses.replace(MEMBERS, multiplicity=multiplicity)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)


def test_weight_modes_that_are_no_average_are_rejected() -> None:
    with pytest.raises(UsageError, match=r"^algorithm\.weights = 'scaled': RHFL averages"):
        RHFL(weights="scaled")


# --- clients, and whole runs -----------------------------------------------------------------------------------------------


@parameters
class PlainLoss(RHFL):
    """RHFL without its loss, for the comparison with FedAvg."""

    def local_training(self, training: Training) -> Training:
        return training


def test_runs_with_plain_loss_and_without_alignment_are_bit_identical_to_fedavg(tmp_path: Path) -> None:
    experiment = small(**SETTING)
    plain = fedcohort.run(experiment, algorithm=PlainLoss(align_epochs=0, beta=0.0), runs=tmp_path)
    average = fedcohort.run(experiment, runs=tmp_path)
    assert (plain.path / "model.safetensors").read_bytes() == (average.path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("augment", ["none", "flip", "flip_shift"])
def test_clients_send_their_loss_under_the_received_model(augment: str) -> None:
    """The images are those that the client has, also if training changes them at random."""
    with a_run_state(Given(algorithm=RHFL()), **SETTING, training={"augment": augment}) as run_state:
        engine: Any = run_state.engine
        [sent] = engine.train(run_state.model, 1, Cohort(np.array([3])), run_state.algorithm)
        data = engine.federation.client(3)
        module = engine._trainers.get().module
        module.load_state_dict(run_state.model)
        with torch.no_grad():
            logits = module(engine.federation.prepare(data.features, torch.float32))
            expected = SymmetricLearning().samples(logits, data.labels).double().mean()
    assert float(sent.extra["loss"]["sl"]) == pytest.approx(float(expected), rel=1e-6)


def test_the_record_has_the_weights_of_the_admitted_models(tmp_path: Path) -> None:
    run = fedcohort.run(small(**SETTING, algorithm={"name": "rhfl", "beta": 5.0}), runs=tmp_path)
    clients = run.clients.query("status == 'admitted'")
    assert np.allclose(clients.groupby("round")["weight"].sum(), 1)
    plain = clients["num_samples"] / clients.groupby("round")["num_samples"].transform("sum")
    alike = np.isclose(clients["weight"], plain)
    assert alike[clients["round"] == 1].all()
    assert not alike.all()


def test_a_resumed_run_equals_an_uninterrupted_run(tmp_path: Path) -> None:
    experiment = small(**SETTING, algorithm="rhfl", training={"lr": 0.01})
    uninterrupted = fedcohort.run(experiment, runs=tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "b", progress=stop_after(1))
    resumed = fedcohort.run(experiment, runs=tmp_path / "b")
    assert record(resumed) == record(uninterrupted)
    assert all(math.isfinite(loss) for loss in uninterrupted.rounds["test_loss"])


def test_with_a_fresh_adam_every_batch_moves_every_parameter_by_the_learning_rate() -> None:
    """Adam's first step is lr·g/|g|, so that a parameter has moved by a whole number of lr; with moments, it has not."""
    tools, lr = small_tools(public=20), 0.05
    three = [dataclasses.replace(u, num_samples=1) for u in THREE]
    result = merge(RHFL(batch_size=8, lr=lr, align_epochs=20, fresh_adam=True, weights="uniform"), three, tools)
    kept = merge(RHFL(batch_size=8, lr=lr, align_epochs=20, weights="uniform"), three, tools)
    moved = (result["weight"] - mean(three)["weight"]) * 3 / lr  # the sum over three models
    assert torch.allclose(moved, moved.round(), atol=0.05)
    assert 1 < moved.abs().max() <= 3 * 3 * 20
    drift = (kept["weight"] - mean(three)["weight"]) * 3 / lr
    assert not torch.allclose(drift, drift.round(), atol=0.05)
