"""Local losses: worked values (spec G11, S17, G10), their formulas in numpy, and training with them."""

import math
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcohort.algorithms.losses import (
    CrossEntropy,
    DoubleSoftmax,
    Loss,
    Robust,
    SymmetricCrossEntropy,
    SymmetricLearning,
)
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import rng
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import Mlp, Model
from fedcohort.selection import Cohort
from fedcohort.testing.base import small_federation
from tests.experiments import small

P = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64)
Z = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)
Y = torch.tensor([0])


def loss_of_one_sample(loss: Loss, p: Tensor = P, z: Tensor = Z) -> float:
    """The loss of a sample with label 0 and outputs ``p``, and outputs ``z`` of the received model."""
    return loss.samples(p.log(), Y, z if loss.needs_outputs else None).item()


# --- worked values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (CrossEntropy(), 0.356675),
        (SymmetricLearning(), 2.798770),
        (SymmetricCrossEntropy(alpha=0.0, beta=1.0), 1.2),
        (SymmetricCrossEntropy(alpha=0.1, beta=1.0, log_zero=math.log(1e-4)), 2.798770),
        (SymmetricCrossEntropy(), 0.1 * 0.356675 + 1.2),
        (Robust(alpha=1.0, beta=0.0), 0.356675 + 0.927095),
        (Robust(), 5.249384),
        (Robust(alpha=0.1, beta=4.0, log_zero=-4.0), 5.249384),
        (DoubleSoftmax(), math.log(sum(math.exp(p) for p in (0.7, 0.2, 0.1))) - 0.7),
    ],
)
def test_worked_loss_of_one_sample(loss: Loss, expected: float) -> None:
    assert loss_of_one_sample(loss) == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(("classes", "floor"), [(10, 1.461), (47, 2.886)])
def test_double_softmax_of_a_certain_prediction_is_its_lower_bound(classes: int, floor: float) -> None:
    sure = torch.full((1, classes), -200.0, dtype=torch.float64)
    sure[0, 0] = 200.0
    assert DoubleSoftmax().samples(sure, Y).item() == pytest.approx(math.log(math.e + classes - 1) - 1, rel=1e-12)
    assert round(DoubleSoftmax().samples(sure, Y).item(), 3) == floor


def test_at_the_received_model_the_pseudo_label_term_equals_the_entropy() -> None:
    entropy = -float((P * P.log()).sum())
    assert loss_of_one_sample(Robust(alpha=1.0, beta=0.0), z=P) - loss_of_one_sample(CrossEntropy()) == pytest.approx(
        entropy, rel=1e-12
    )


def test_loss_names_and_parameters_of_the_experiment_file() -> None:
    for name, cls in (
        ("ce", CrossEntropy), ("robust", Robust), ("sl", SymmetricLearning), ("sce", SymmetricCrossEntropy),
        ("double_softmax", DoubleSoftmax),
    ):  # fmt: skip
        assert type(Training(loss={"name": name}).build_loss()) is cls
        assert small(training={"loss": {"name": name}}).training.build_loss() == cls()
    assert small(training={"loss": {"name": "robust", "beta": 2.0}}).training.build_loss() == Robust(beta=2.0)
    with pytest.raises(UsageError, match=r"training\.loss"):
        small(training={"loss": {"name": "robust", "gamma": 2.0}})
    with pytest.raises(UsageError, match=r"training\.loss\.name = 'rubust'"):
        small(training={"loss": {"name": "rubust"}})


# --- in general ------------------------------------------------------------------------------------------------------------

LOSSES: list[Loss] = [
    CrossEntropy(),
    Robust(alpha=0.3),
    SymmetricLearning(),
    SymmetricCrossEntropy(alpha=2.0),
    DoubleSoftmax(),
]


def loss_by_formula(loss: Loss, p: np.ndarray, y: int, z: np.ndarray) -> float:
    """The loss of one sample, with one-hot labels and log 0 = A written out."""
    one_hot = np.eye(len(p))[y]
    ce = -math.log(p[y])

    def rce(log_zero: float) -> float:
        return -float(sum(p_c * (0.0 if q_c == 1 else log_zero) for p_c, q_c in zip(p, one_hot, strict=True)))

    match loss:
        case Robust():
            return ce + loss.alpha * float(-(z * np.log(p)).sum()) + loss.beta * rce(loss.log_zero)
        case SymmetricLearning():
            clamped = np.clip(one_hot, 1e-4, 1.0)  # as the code of RHFL writes it
            return 0.1 * ce + float(-(p * np.log(clamped)).sum())
        case SymmetricCrossEntropy():
            return loss.alpha * ce + loss.beta * rce(loss.log_zero)
        case DoubleSoftmax():
            return -math.log(math.exp(p[y]) / np.exp(p).sum())
    return ce


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_losses_equal_their_formulas_and_gradients_equal_finite_differences(loss: Loss) -> None:
    draw = torch.Generator().manual_seed(5)
    logits = torch.randn(8, 4, generator=draw, dtype=torch.float64) * 3
    outputs = torch.randn(8, 4, generator=draw, dtype=torch.float64).softmax(1)
    labels = torch.randint(4, (8,), generator=draw)
    z = outputs if loss.needs_outputs else None
    values = loss.samples(logits, labels, z)
    expected = [
        loss_by_formula(loss, p, int(y), q)
        for p, y, q in zip(logits.softmax(1).numpy(), labels, outputs.numpy(), strict=True)
    ]
    assert values.tolist() == pytest.approx(expected, rel=1e-10)
    assert torch.autograd.gradcheck(lambda x: loss.samples(x, labels, z), logits.requires_grad_())


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("size", [60.0, 1e4])
def test_losses_and_gradients_of_certain_wrong_predictions_are_finite(loss: Loss, size: float) -> None:
    """The probability of the label underflows to 0, and its logarithm must not be taken."""
    logits = torch.tensor([[-size, size, 0.0], [size, -size, 0.0]], requires_grad=True)
    outputs = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]) if loss.needs_outputs else None
    values = loss.samples(logits, torch.tensor([0, 0]), outputs)
    values.sum().backward()
    assert torch.isfinite(values).all()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


# --- in training -----------------------------------------------------------------------------------------------------------


def trained(loss: dict[str, Any], batch_size: int = 4, epochs: int = 2) -> tuple[Any, Any, Any]:
    settings = Training(batch_size=batch_size, epochs=epochs, momentum=0.0, precision="float64", loss=loss)
    with closing(LocalEngine(small_federation(), Mlp(hidden=5), settings, FedAvg(), seed=3)) as engine:
        start = engine.initial_model()
        [update] = engine.train(start, 1, Cohort(np.array([3])), FedAvg())
    return start, update, engine.federation


@pytest.mark.parametrize("batch_size", [4, 0])
@pytest.mark.parametrize(
    "loss",
    [
        {"name": "robust", "alpha": 0.7, "beta": 0.5},
        {"name": "sl"},
        {"name": "sce", "alpha": 1.5},
        {"name": "double_softmax"},
    ],
)
def test_training_minimizes_the_loss_and_reports_the_cross_entropy(loss: dict[str, Any], batch_size: int) -> None:
    """By hand. Pseudo-labels are the outputs of the received model in all steps."""
    start, update, federation = trained(loss, batch_size)
    data, w = federation.client(3), {name: value.clone().requires_grad_() for name, value in start.items()}
    size, form = batch_size or len(data), Training(loss=loss).build_loss()
    x = data.features.double()

    def logits(weights: Any, index: Any = slice(None)) -> Tensor:
        return (
            torch.relu(x[index] @ weights["1.weight"].T + weights["1.bias"]) @ weights["3.weight"].T + weights["3.bias"]
        )

    outputs, order, reported = logits(start).softmax(1), rng(3, "batches", 1, 3), []
    for _ in range(2):
        shuffled = torch.from_numpy(order.permutation(len(data)))
        for index in shuffled.split(size):
            batch_logits = logits(w, index)
            reported.append(float(torch.nn.functional.cross_entropy(batch_logits.detach(), data.labels[index])))
            samples = form.samples(batch_logits, data.labels[index], outputs[index] if form.needs_outputs else None)
            for value, gradient in zip(w.values(), torch.autograd.grad(samples.mean(), list(w.values())), strict=True):
                value.data -= 0.05 * gradient
    for name, value in w.items():
        assert torch.allclose(update.state[name], value.detach(), rtol=1e-10, atol=1e-13), name
    assert update.report["loss"] == pytest.approx(np.mean(reported), rel=1e-10)


def test_a_loss_without_its_extra_terms_equals_the_cross_entropy() -> None:
    _, plain, _ = trained({"name": "ce"})
    for loss in ({"name": "robust", "alpha": 0.0, "beta": 0.0}, {"name": "sce", "alpha": 1.0, "beta": 0.0}):
        _, other, _ = trained(loss)
        assert all(torch.allclose(other.state[name], value, rtol=1e-12) for name, value in plain.state.items())
        assert other.report["loss"] == pytest.approx(plain.report["loss"], rel=1e-12)


class MlpWithBatchNorm(Model):
    """A perceptron with batch norm, which gives other outputs in training than in evaluation."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> Any:
        return nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, num_classes))


def test_pseudo_labels_are_computed_in_evaluation_mode_without_updating_batch_statistics() -> None:
    """One full-batch step by hand, with a large weight of the pseudo-labels; the running statistics are updated once."""
    loss = {"name": "robust", "alpha": 2.0, "beta": 0.5}
    settings = Training(batch_size=0, epochs=1, momentum=0.0, lr=0.5, precision="float64", loss=loss)
    with closing(LocalEngine(small_federation(), MlpWithBatchNorm(), settings, FedAvg(), 3, workers=1)) as engine:
        start = engine.initial_model()
        start["1.running_mean"] += 0.7  # statistics that differ from those of the client's data
        start["1.running_var"] *= 3.0
        [update] = engine.train(start, 1, Cohort(np.array([3])), FedAvg())
        data = engine.federation.client(3)
    module, form = MlpWithBatchNorm().build((6,), 3).double(), Training(loss=loss).build_loss()
    module.load_state_dict(start)
    with torch.no_grad():
        outputs = module.eval()(data.features.double()).softmax(1)
    objective = form.samples(module.train()(data.features.double()), data.labels, outputs).mean()
    parameters = dict(module.named_parameters())
    gradients = torch.autograd.grad(objective, list(parameters.values()))
    for (name, value), gradient in zip(parameters.items(), gradients, strict=True):
        expected = value.detach() - 0.5 * gradient
        assert torch.allclose(update.state[name], expected, rtol=1e-10, atol=1e-13), name
    for name, buffer in module.named_buffers():
        assert torch.allclose(update.state[name].double(), buffer.double(), rtol=1e-10), name
    assert int(update.state["1.num_batches_tracked"]) == 1
