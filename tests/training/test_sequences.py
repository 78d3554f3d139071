"""Sequences of tokens: training, evaluation and answers equal plain PyTorch, and plans give the same bits."""

import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedcohort
from fedcohort.algorithms.losses import CrossEntropy, Robust, local_losses
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.sample_measures import sample_losses, sample_scores, total_loss, total_score
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.random_streams import rng
from fedcohort.core.token_shape import TokenShape
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.engines.plans import choose_plan
from fedcohort.federation.federation import Federation, gather
from fedcohort.federation.partition import Iid, partition
from fedcohort.federation.position_labels import strata
from fedcohort.models import Model
from fedcohort.models.sequence_models import Lstm, Transformer
from fedcohort.selection import Cohort, GradientNorm, LocalAccuracy, LocalLoss
from fedcohort.testing.base import bits

LENGTH, TOKENS, CLASSES = 6, 9, 3
SMALL = Lstm(embedding=3, hidden=4)


def sequences(each_position: bool, samples: int = 150) -> fedcohort.Dataset:
    """Random walks over tokens; the label is the next token, or the sign of the walk."""
    draws = np.random.default_rng(0)
    steps = draws.integers(-1, 2, (samples, LENGTH + 1))
    walks = (4 + steps.cumsum(axis=1)) % TOKENS
    labels = walks[:, 1:] if each_position else np.sign(steps.sum(axis=1)) + 1
    tokens = walks[:, :LENGTH]
    return fedcohort.from_tokens((tokens[50:], labels[50:]), (tokens[:50], labels[:50]), vocabulary=TOKENS)


def federation(each_position: bool, clients: int = 4, holdout: float = 0.0) -> Federation:
    data = sequences(each_position)
    split = partition(Iid(), strata(data.train_labels), clients, 0)
    return gather(data, split, validation=0.2, seed=0, holdout=holdout)


def engine(data: Federation, model: Model = SMALL, **settings: Any) -> LocalEngine:
    training = Training(**{"batch_size": 8, "lr": 0.5, "epochs": 1, **settings.pop("training", {})})
    return LocalEngine(data, model, training, FedAvg(), 0, **{"plan": "loop", **settings})


def plain_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """PyTorch's mean cross-entropy over all labels."""
    return functional.cross_entropy(logits.transpose(1, 2) if labels.dim() == 2 else logits, labels)


@pytest.mark.parametrize("each_position", [True, False])
@pytest.mark.parametrize("model", [SMALL, Transformer(width=4, heads=2, layers=1)], ids=["lstm", "transformer"])
def test_a_client_trains_as_in_a_plain_loop(model: Model, each_position: bool) -> None:
    data = federation(each_position)
    with closing(engine(data, model, training={"momentum": 0.0})) as local:
        start = local.initial_model()
        [update] = local.train(start, 3, Cohort(np.array([2])), FedAvg())
    network = model.build(data.sample_shape, data.num_classes)
    network.load_state_dict(start)
    own = data.client(2)
    losses, right = [], 0
    for index in torch.from_numpy(rng(0, "batches", 3, 2).permutation(len(own))).split(8):
        logits = network(own.features[index])
        right += int((logits.argmax(-1) == own.labels[index]).sum())
        loss = plain_loss(logits, own.labels[index])
        losses.append(loss.item())
        for parameter, slope in zip(
            network.parameters(), torch.autograd.grad(loss, list(network.parameters())), strict=True
        ):
            parameter.data -= 0.5 * slope
    for name, value in network.state_dict().items():
        assert torch.allclose(update.state[name], value, atol=1e-5), name
    assert update.report["loss"] == pytest.approx(np.mean(losses), abs=1e-5)
    assert update.report["accuracy"] == pytest.approx(right / own.labels.numel())
    assert update.num_samples == len(own) == 25
    assert update.passes == 3, "a sequence is one sample, however many labels it has"


@pytest.mark.parametrize("each_position", [True, False])
def test_evaluation_and_answers_count_every_label(each_position: bool) -> None:
    data = federation(each_position, holdout=0.2)
    with closing(engine(data)) as local:
        model = local.initial_model()
        found = local.evaluate(model, "test")
        loss, accuracy, norm = (
            local.answer(model, 1, question, np.arange(4))
            for question in (LocalLoss(), LocalAccuracy(held_out=True), GradientNorm())
        )
    network = SMALL.build(data.sample_shape, data.num_classes)
    network.load_state_dict(model)
    logits, labels = network(data.test.features), data.test.labels
    predicted = logits.argmax(-1)
    assert found.loss == pytest.approx(plain_loss(logits, labels).item(), abs=1e-6)
    assert found.accuracy == pytest.approx(float((predicted == labels).double().mean()))
    assert found.total.sum() == labels.numel() == 40 * (LENGTH if each_position else 1)
    assert found.total.tolist() == torch.bincount(labels.flatten(), minlength=data.num_classes).tolist()
    assert found.right.tolist() == [int(((predicted == c) & (labels == c)).sum()) for c in range(data.num_classes)]
    assert len(found.losses) == len(data.test) == 40
    assert found.losses.mean() == pytest.approx(found.loss)
    for client in range(4):
        own, held = data.client(client), data.held_out(client)
        mean = plain_loss(network(own.features), own.labels)
        assert loss[client] == pytest.approx(mean.item(), abs=1e-6)
        slopes = torch.autograd.grad(mean, list(network.parameters()))
        assert norm[client] == pytest.approx(float(sum(s.square().sum() for s in slopes)) ** 0.5, abs=1e-5)
        right = (network(held.features).argmax(-1) == held.labels).double().mean()
        assert accuracy[client] == pytest.approx(float(right))


def test_losses_of_sequences_are_means_over_their_tokens() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(5, LENGTH, TOKENS, generator=generator)
    labels = torch.randint(TOKENS, (5, LENGTH), generator=generator)
    outputs = torch.randn(5, LENGTH, TOKENS, generator=generator).softmax(-1)
    for loss in (CrossEntropy(), Robust()):
        each = [loss.samples(logits[i], labels[i], outputs[i]).mean() for i in range(5)]
        assert torch.allclose(local_losses(loss, logits, labels, outputs), torch.stack(each))
        assert torch.equal(
            local_losses(loss, logits[:, 0], labels[:, 0], outputs[:, 0]),
            loss.samples(logits[:, 0], labels[:, 0], outputs[:, 0]),
        )
    assert torch.allclose(sample_losses(logits, labels), local_losses(CrossEntropy(), logits, labels))
    assert torch.allclose(total_loss(logits, labels), sample_losses(logits, labels).sum())
    assert sample_scores(logits, labels).tolist() == (logits.argmax(-1) == labels).double().mean(1).tolist()
    assert sample_scores(logits[:, 0], labels[:, 0]).tolist() == (logits[:, 0].argmax(-1) == labels[:, 0]).tolist()
    assert int(total_score(logits, labels)) == int((logits.argmax(-1) == labels).sum())


@pytest.mark.parametrize("each_position", [True, False])
@pytest.mark.parametrize("drop", [0.0, 0.4])
@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_threads_and_loop_have_the_same_bits(kind: str, drop: float, each_position: bool) -> None:
    model: Model = Lstm(embedding=4, hidden=8, layers=2, dropout=drop)
    if kind == "transformer":
        model = Transformer(width=8, heads=2, layers=1, dropout=drop)
    data, results = federation(each_position), []
    for plan, workers in (("loop", 1), ("threads", 3)):
        with closing(engine(data, model, plan=plan, workers=workers, training={"optimizer": "adam"})) as local:
            assert local.draws == (drop > 0)
            start = local.initial_model()
            updates = list(local.train(start, 1, Cohort(np.arange(4)), FedAvg()))
            asked = local.answer(start, 1, LocalLoss(), np.arange(4))
            evaluated = local.evaluate(updates[0].state, "test")
            results.append(([bits(update.state) for update in updates], asked.tobytes(), evaluated.losses.tobytes()))
    assert results[0] == results[1]


def test_the_dropped_outputs_depend_on_round_and_client() -> None:
    data = federation(each_position=True)
    model = Lstm(embedding=4, hidden=8, dropout=0.5)
    with closing(engine(data, model)) as local:
        start = local.initial_model()
        first, again, later = (
            [bits(update.state) for update in local.train(start, t, Cohort(np.arange(2)), FedAvg())] for t in (1, 1, 2)
        )
    assert first == again
    assert first[0] != first[1]
    assert first[0] != later[0]


def test_stacks_are_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path))
    data = federation(each_position=True)
    expected = "engine.plan = 'stacked': samples are sequences of tokens; clients are trained by threads"
    with pytest.warns(UserWarning, match=expected), closing(engine(data, plan="stacked", workers=2)) as local:
        assert local.plan == "threads"
    choice = choose_plan(data, SMALL, Training(), FedAvg(), 0, 1, 2)
    assert "clients cannot be stacked: samples are sequences of tokens" in str(choice)


def test_tokens_reach_the_network_as_integers() -> None:
    seen: list[torch.Tensor] = []

    class Watches(Model):
        def build(self, shape: tuple[int, ...], num_classes: int) -> nn.Module:
            assert isinstance(shape, TokenShape)
            assert (shape.vocabulary, shape.each_position, num_classes) == (TOKENS, True, TOKENS)
            network = SMALL.build(shape, num_classes)
            network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
            return network

    data = federation(each_position=True)
    with closing(engine(data, Watches())) as local, warnings.catch_warnings():
        warnings.simplefilter("error")
        model = local.initial_model()
        list(local.train(model, 1, Cohort(np.arange(2)), FedAvg()))
        local.evaluate(model, "test")
        local.answer(model, 1, LocalLoss(), np.arange(2))
    assert {tokens.dtype for tokens in seen} == {torch.int64}
    assert all(tokens.max() < TOKENS for tokens in seen)


SETTINGS: dict[str, dict[str, Any]] = {
    "robust loss": {"training": {"loss": {"name": "robust"}, "batch_size": 8}},
    "fedbio": {"algorithm": "fedbio", "federation": {"holdout": 0.3}},
    "scaffold": {"algorithm": "scaffold"},
    "adaptive fedprox": {"algorithm": {"name": "fedprox", "dynamic": True}},
    "conformal": {"selection": {"name": "conformal", "base": "uniform"}, "federation": {"holdout": 0.3}},
    "samples by loss": {"selection": {"name": "pyramidfl"}},
    "histograms": {"selection": {"name": "haccs"}},
    "cohorts by class": {"selection": {"name": "fedcbs"}},
    "flash": {"selection": {"name": "flash"}, "federation": {"holdout": 0.2}},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_other_methods_train_on_labels_of_positions(name: str, tmp_path: Path) -> None:
    settings = SETTINGS[name]
    experiment = fedcohort.Experiment(
        **{
            "rounds": 2,
            "model": {"name": "lstm", "embedding": 3, "hidden": 4},
            **settings,
            "federation": {"clients": 4, "partition": "iid", **settings.get("federation", {})},
        }
    )
    run = fedcohort.run(experiment, data=sequences(each_position=True), runs=tmp_path)
    assert np.isfinite(run.rounds[["test_loss", "validation_loss"]].to_numpy()).all()
    assert (run.clients["status"].isin(["admitted", "declined"])).all()
    reports = run.clients["loss"].to_numpy()
    assert (reports > 0).all()
    assert (reports < 3 * np.log(TOKENS)).all(), "means over tokens, not sums"
