"""The local training of one client: each optimiser by its formula, schedules, clipping, batches."""

import math
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms import Tensors, Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import rng
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation
from fedcohort.models import Mlp, Model
from fedcohort.selection import Cohort
from fedcohort.testing.base import SIZES, bits, small_federation
from fedcohort.training.networks.received_outputs import CHUNK
from tests.experiments import small

CLIENT, SEED = 3, 5
"""Client 3 has 23 samples: batches of 4 leave a last one of 3."""


def train(
    settings: Training,
    rounds: tuple[int, ...] = (1,),
    *,
    model: Model | None = None,
    federation: Federation | None = None,
    client: int = CLIENT,
) -> tuple[Tensors, list[Update]]:
    """The initial model, and the client's update from it in each of these rounds."""
    network, federation = model or Mlp(hidden=5), federation or small_federation()
    with closing(LocalEngine(federation, network, settings, FedAvg(), SEED, workers=1)) as engine:
        start = engine.initial_model()
        updates = [u for t in rounds for u in engine.train(start, t, Cohort(np.array([client])), FedAvg())]
    return start, updates


Step = Callable[[str, Tensor, Tensor, int], Tensor]
"""(name, value, gradient, number of the step from 1) → new value."""


def by_hand(start: Tensors, step: Step, *, t: int = 1, epochs: int, size: int) -> Tensors:
    """The same batches, gradients by torch.autograd, everything else by ``step``."""
    data, w, count = small_federation().client(CLIENT), dict(start), 0
    order = rng(SEED, "batches", t, CLIENT)
    for _ in range(epochs):
        shuffled = torch.from_numpy(order.permutation(len(data)))
        for begin in range(0, len(data), size):
            index, count = shuffled[begin : begin + size], count + 1
            v = {name: value.detach().requires_grad_() for name, value in w.items()}
            hidden = torch.relu(data.features[index].double() @ v["1.weight"].T + v["1.bias"])
            loss = functional.cross_entropy(hidden @ v["3.weight"].T + v["3.bias"], data.labels[index])
            gradients = torch.autograd.grad(loss, list(v.values()))
            w = {name: step(name, w[name], g, count) for name, g in zip(v, gradients, strict=True)}
    return w


class Sgd:
    """v ← ρv + g (+ λy); y ← y − η(v), or with Nesterov y − η(g + ρv)."""

    def __init__(self, lr: float, momentum: float = 0.0, nesterov: bool = False, decay: float = 0.0) -> None:
        self.lr, self.momentum, self.nesterov, self.decay = lr, momentum, nesterov, decay
        self.v: Tensors = {}

    def __call__(self, name: str, y: Tensor, g: Tensor, count: int) -> Tensor:
        g = g + self.decay * y
        self.v[name] = self.momentum * self.v.get(name, torch.zeros_like(y)) + g
        return y - self.lr * (g + self.momentum * self.v[name] if self.nesterov else self.v[name])


class Adam:
    """Kingma & Ba with bias correction; decay into the gradient (adam) or off the weights (adamw)."""

    def __init__(self, lr: float, decay: float = 0.0, decoupled: bool = False) -> None:
        self.lr, self.decay, self.decoupled = lr, decay, decoupled
        self.m: Tensors = {}
        self.v: Tensors = {}

    def __call__(self, name: str, y: Tensor, g: Tensor, count: int) -> Tensor:
        if self.decoupled:
            y = y - self.lr * self.decay * y
        else:
            g = g + self.decay * y
        self.m[name] = 0.9 * self.m.get(name, torch.zeros_like(y)) + 0.1 * g
        self.v[name] = 0.999 * self.v.get(name, torch.zeros_like(y)) + 0.001 * g**2
        m, v = self.m[name] / (1 - 0.9**count), self.v[name] / (1 - 0.999**count)
        return y - self.lr * m / (v.sqrt() + 1e-8)


OPTIMISERS: dict[str, tuple[dict[str, Any], Step]] = {
    "sgd": ({"momentum": 0.0}, Sgd(0.05)),
    "momentum": ({"momentum": 0.9}, Sgd(0.05, 0.9)),
    "the default": ({}, Sgd(0.05, 0.9)),
    "nesterov": ({"momentum": 0.8, "nesterov": True}, Sgd(0.05, 0.8, nesterov=True)),
    "sgd with decay": ({"momentum": 0.5, "weight_decay": 0.1}, Sgd(0.05, 0.5, decay=0.1)),
    "adam": ({"optimizer": "adam", "lr": 0.01}, Adam(0.01)),
    "adam with decay": ({"optimizer": "adam", "lr": 0.01, "weight_decay": 0.1}, Adam(0.01, 0.1)),
    "adamw": ({"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1}, Adam(0.01, 0.1, decoupled=True)),
}


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("size", [4, 0])
def test_optimisers_by_their_formulas(name: str, size: int) -> None:
    options, step = OPTIMISERS[name]
    start, [update] = train(Training(epochs=3, batch_size=size, precision="float64", **options))
    for state in ("m", "v"):
        if hasattr(step, state):
            setattr(step, state, {})
    expected = by_hand(start, step, epochs=3, size=size or SIZES[CLIENT])
    for key, value in expected.items():
        assert torch.allclose(update.state[key], value, rtol=1e-9, atol=1e-12), key
        assert not torch.allclose(value, start[key], rtol=1e-3)


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"optimizer": "adam"}, {"optimizer": "adamw"}])
def test_optimiser_state_is_fresh_in_every_round(options: dict[str, Any]) -> None:
    """A round's result does not depend on what was trained before it, not even by the same client."""
    _, [_, _, third] = train(Training(batch_size=4, **options), rounds=(1, 2, 3))
    _, [alone] = train(Training(batch_size=4, **options), rounds=(3,))
    assert bits(third.state) == bits(alone.state)


# --- learning rate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.1] * 7),
        ({"lr_schedule": "exponential", "lr_decay": 0.5}, [0.1 * 0.5**t for t in range(7)]),
        ({"lr_schedule": "step", "lr_decay": 0.1, "lr_every": 3}, [0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.001]),
        (
            {"lr_schedule": "cosine", "lr_every": 4},
            [0.1, 0.05 * (1 + math.sqrt(0.5)), 0.05, 0.05 * (1 - math.sqrt(0.5)), 0.0, 0.0, 0.0],
        ),
    ],
)
def test_schedules_over_rounds(options: dict[str, Any], expected: list[float]) -> None:
    settings = Training(lr=0.1, **options)
    assert [settings.lr_at(t) for t in range(1, 8)] == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("t", [1, 2, 4])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_round_is_trained_at_its_rate(t: int, optimizer: Any) -> None:
    lr = 0.02
    settings = Training(
        lr=lr,
        lr_schedule="exponential",
        lr_decay=0.5,
        batch_size=4,
        precision="float64",
        optimizer=optimizer,
        momentum=0.9,
    )
    start, [update] = train(settings, (t,))
    rate = lr * 0.5 ** (t - 1)
    expected = by_hand(start, Sgd(rate, 0.9) if optimizer == "sgd" else Adam(rate), t=t, epochs=1, size=4)
    assert all(torch.allclose(update.state[key], value, rtol=1e-9, atol=1e-12) for key, value in expected.items())


def test_at_rate_0_nothing_moves() -> None:
    start, [update] = train(Training(lr_schedule="cosine", lr_every=2, batch_size=4), (3,))
    assert bits(update.state) == bits(start)
    assert update.steps == 6


# --- clipping --------------------------------------------------------------------------------------------------------------


def norm(states: Tensors, start: Tensors) -> float:
    return math.sqrt(sum(float((states[name].double() - start[name].double()).square().sum()) for name in start))


def test_gradients_are_scaled_down_to_the_norm() -> None:
    """One full-batch step of plain SGD: the way is η·min(‖g‖, clip), in the same direction."""
    plain = Training(batch_size=0, momentum=0.0, lr=0.1, precision="float64")
    start, [free] = train(plain)
    length = norm(free.state, start) / 0.1
    for clip in (length / 3, length * 0.99, length * 1.01):
        _, [clipped] = train(Training(batch_size=0, momentum=0.0, lr=0.1, precision="float64", clip_norm=clip))
        factor = min(1.0, clip / length)
        for name, value in start.items():
            expected = value + factor * (free.state[name] - value)
            assert torch.allclose(clipped.state[name], expected, rtol=1e-5, atol=1e-9), (clip, name)
    _, [loose] = train(Training(batch_size=0, momentum=0.0, lr=0.1, precision="float64", clip_norm=length * 1.01))
    assert bits(loose.state) == bits(free.state)


def test_every_step_is_clipped() -> None:
    settings = Training(batch_size=4, epochs=2, momentum=0.0, lr=0.1, clip_norm=0.01)
    start, [update] = train(settings)
    assert 0 < norm(update.state, start) <= 0.1 * 0.01 * update.steps * (1 + 1e-4)


# --- batches ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "steps"), [(1, 23), (4, 6), (8, 3), (11, 3), (12, 2), (22, 2), (23, 1), (24, 1), (1000, 1), (0, 1)]
)
def test_the_last_short_batch_is_kept(size: int, steps: int) -> None:
    _, [update] = train(Training(batch_size=size, epochs=2))
    assert update.steps == 2 * steps
    assert update.report["samples"] == 23


def test_a_client_smaller_than_a_batch_does_one_short_batch() -> None:
    _, [small_batch] = train(Training(batch_size=16, momentum=0.0), client=2)
    _, [whole] = train(Training(batch_size=0, momentum=0.0), client=2)
    assert SIZES[2] < 16
    assert small_batch.steps == 1
    assert bits(small_batch.state) == bits(whole.state)


def test_every_epoch_has_an_order_of_its_own() -> None:
    def seen(epochs: int) -> list[list[int]]:
        order = rng(SEED, "batches", 1, CLIENT)
        return [order.permutation(23).tolist() for _ in range(epochs)]

    one, two = seen(2)
    assert sorted(one) == sorted(two) == list(range(23))
    assert one != two


def test_a_large_batch_is_summed_in_chunks() -> None:
    federation = small_federation([CHUNK * 2 + 17], trouble=False)
    settings = Training(batch_size=0, momentum=0.0, lr=0.1, precision="float64")
    start, [update] = train(settings, federation=federation, client=0)
    data, w = federation.client(0), {name: value.clone().requires_grad_() for name, value in start.items()}
    logits = torch.relu(data.features.double() @ w["1.weight"].T + w["1.bias"]) @ w["3.weight"].T + w["3.bias"]
    functional.cross_entropy(logits, data.labels).backward()
    for name, value in w.items():
        assert value.grad is not None
        assert torch.allclose(update.state[name], (value - 0.1 * value.grad).detach(), rtol=1e-10, atol=1e-13), name


class Normed(Model):
    """A perceptron with batch norm."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> Any:
        return nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, num_classes))


@pytest.mark.parametrize(
    ("client", "size", "steps"), [(3, 11, 2), (3, 22, 1), (3, 4, 6), (2, 4, 1), (2, 1, 0), (6, 29, 1)]
)
def test_batch_norm_leaves_out_batches_of_one(client: int, size: int, steps: int) -> None:
    """Client 3 has 23 samples, client 2 five, client 6 thirty."""
    start, [update] = train(Training(batch_size=size), model=Normed(), client=client)
    assert update.steps == steps
    assert int(update.state["1.num_batches_tracked"]) == steps
    assert (bits(update.state) == bits(start)) == (steps == 0)
    assert all(math.isfinite(value) for value in update.report.values())


def test_squared_losses_are_those_of_the_first_epoch_also_where_a_batch_is_left_out() -> None:
    """23 samples in batches of 11 leave out one of them: 22 squared losses count, and none of the second epoch."""
    settings: dict[str, Any] = {"batch_size": 11, "lr": 0.5, "precision": "float64"}
    start, [one] = train(Training(epochs=1, **settings), model=Normed())
    _, [two] = train(Training(epochs=2, **settings), model=Normed())
    assert (one.steps, two.steps) == (2, 4)
    assert two.report["square_loss"] == one.report["square_loss"]
    assert two.report["loss"] != pytest.approx(one.report["loss"])
    data, module = small_federation().client(CLIENT), Normed().build((6,), 3).double()
    module.load_state_dict(start)
    optimizer, squares = torch.optim.SGD(module.parameters(), 0.5, momentum=0.9), list[float]()
    order = torch.from_numpy(rng(SEED, "batches", 1, CLIENT).permutation(len(data)))
    for index in (order[:11], order[11:22]):
        losses = functional.cross_entropy(module(data.features[index].double()), data.labels[index], reduction="none")
        squares += losses.detach().square().tolist()
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
    assert two.report["square_loss"] == pytest.approx(np.mean(squares), rel=1e-9)


@pytest.mark.parametrize("epochs", [1, 2])
def test_reports_are_about_the_samples_that_were_trained_on(epochs: int) -> None:
    """23 samples in batches of 11 leave out one of them in each epoch."""
    _, [update] = train(Training(batch_size=11, epochs=epochs), model=Normed())
    order = rng(SEED, "batches", 1, CLIENT)
    assert update.report["samples"] == len({i for _ in range(epochs) for i in order.permutation(23)[:22].tolist()})
    right = update.report["accuracy"] * 22
    assert right == pytest.approx(round(right), abs=1e-9)
    assert round(right) not in (0, 22)


def test_batches_of_one_are_used_without_batch_norm() -> None:
    _, [update] = train(Training(batch_size=22))
    assert update.steps == 2


# --- settings that are refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("epochs", 0), ("batch_size", -1), ("optimizer", "lion"), ("lr", 0.0), ("lr", float("nan")), ("momentum", 1.0),
        ("momentum", -0.1), ("weight_decay", -1.0), ("lr_decay", 0.0), ("lr_decay", 1.5), ("lr_every", 0),
        ("clip_norm", -1.0), ("lr_schedule", "linear"), ("precision", "float16"),
    ],
)  # fmt: skip
def test_values_that_cannot_be(key: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"^training\.{key} = "):
        small(training={key: value})


def test_nesterov_needs_momentum() -> None:
    with pytest.raises(UsageError, match="nesterov = true needs a momentum above 0"):
        small(training={"nesterov": True, "momentum": 0.0})
    assert small(training={"nesterov": True}).training.nesterov


# --- batches by loss ---------------------------------------------------------------------------------------------------------


def by_loss(settings: Training, t: int = 1, sampling: Any = "loss") -> tuple[Tensors, Update]:
    engine = LocalEngine(small_federation(), Mlp(hidden=5), settings, FedAvg(), SEED, 1)
    with closing(engine):
        model = engine.initial_model()
        return model, next(iter(engine.train(model, t, Cohort(np.array([CLIENT]), sampling=sampling), FedAvg())))


@pytest.mark.parametrize("sampling", ["loss", "loss_unbiased"])
def test_batches_by_loss_are_those_of_an_independent_loop(sampling: str) -> None:
    """Two epochs of draws ∝ the loss of the model as it is then, plain SGD, in double precision."""
    settings = Training(batch_size=4, epochs=2, lr=0.1, momentum=0.0, precision="float64")
    model, update = by_loss(settings, sampling=sampling)
    data, order = small_federation().client(CLIENT), rng(SEED, "batches", 1, CLIENT)
    w = {name: value.clone().requires_grad_() for name, value in model.items()}

    def losses(index: Tensor) -> Tensor:
        hidden = torch.relu(data.features[index].double() @ w["1.weight"].T + w["1.bias"])
        return functional.cross_entropy(hidden @ w["3.weight"].T + w["3.bias"], data.labels[index], reduction="none")

    squares: dict[int, float] = {}
    everything, trained_on = torch.arange(len(data)), set[int]()
    for epoch in range(2):
        now = losses(everything).detach().numpy()
        drawn = torch.from_numpy(order.choice(len(data), len(data), p=now / now.sum()))
        weights = torch.from_numpy(now.mean() / now) if sampling == "loss_unbiased" else torch.ones(len(data))
        trained_on |= set(drawn.tolist())
        for batch in drawn.split(4):
            found = losses(batch)
            for sample, loss in zip(batch.tolist(), found.tolist(), strict=True):
                if epoch == 0:
                    squares.setdefault(sample, loss**2)
            gradients = torch.autograd.grad((found * weights[batch]).mean(), list(w.values()))
            with torch.no_grad():
                for value, gradient in zip(w.values(), gradients, strict=True):
                    value -= 0.1 * gradient
    for name, value in w.items():
        torch.testing.assert_close(update.state[name], value.detach(), rtol=1e-9, atol=1e-12)
    assert update.report["samples"] == len(trained_on) < len(data)
    assert update.report["square_loss"] == pytest.approx(np.mean(list(squares.values())))
    assert update.passes == pytest.approx(2 * 4)  # a forward pass more in each of two epochs
    assert update.work == pytest.approx(4 / 3)


def test_samples_with_more_loss_are_drawn_more_often() -> None:
    """So the mean loss of what is trained on is higher than over all samples."""
    settings = Training(batch_size=0, epochs=30, lr=0.5, momentum=0.0, precision="float64")
    _, shuffled = train(settings)
    _, update = by_loss(settings)
    assert update.report["loss"] > shuffled[0].report["loss"]


def test_reweighted_batches_by_loss_have_the_mean_of_the_gradient() -> None:
    """The updates of 400 rounds of one full-batch step each, against the step along the gradient; without the weights they differ."""
    settings = Training(batch_size=0, epochs=1, lr=1.0, momentum=0.0, precision="float64")
    model, whole = train(settings)

    def off(sampling: str) -> float:
        engine = LocalEngine(small_federation(), Mlp(hidden=5), settings, FedAvg(), SEED, 1)
        cohort = Cohort(np.array([CLIENT]), sampling=sampling)  # type: ignore[arg-type]
        with closing(engine):
            steps = np.array(
                [
                    torch.cat(
                        [v.ravel() for v in next(iter(engine.train(model, t, cohort, FedAvg()))).state.values()]
                    ).numpy()
                    for t in range(1, 401)
                ]
            )
        straight = torch.cat([value.ravel() for value in whole[0].state.values()]).numpy()
        moves = steps.std(axis=0) > 1e-9
        errors = (steps.mean(axis=0) - straight)[moves] / (steps.std(axis=0)[moves] / np.sqrt(400))
        return float(np.abs(errors).max())

    assert off("loss_unbiased") < 6
    assert off("loss") > 10
