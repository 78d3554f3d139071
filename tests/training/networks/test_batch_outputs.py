"""What algorithms may compute of a batch: labels, and outputs of the network and of its parts."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms import Algorithm, Members, ModelState, Problem, Tensors
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.random_streams import rng
from fedcohort.engines.base import ClientError
from fedcohort.engines.device import Arithmetic
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import as_model
from fedcohort.selection import Cohort
from fedcohort.testing.base import bits

SIZES = [12, 9, 20]
MU, TAU, LR, BATCH, ROUNDS = 0.7, 0.5, 0.1, 4, 3


def network(*, dropout: float = 0.0) -> nn.Sequential:
    """A network in whose copies for training ReLU and Flatten change places; the representation is part 3."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout), nn.Linear(12, 4))
    return nn.Sequential(*layers)


def federation() -> Federation:
    draw = np.random.default_rng(0)
    count = sum(SIZES) + 10
    features = torch.from_numpy(draw.standard_normal((count, 1, 6, 6)))
    labels = torch.from_numpy(draw.integers(0, 4, count))
    train, test = Samples(features[:-10], labels[:-10]), Samples(features[-10:], labels[-10:])
    shift, scale = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    return Federation(train, np.cumsum([0, *SIZES]), test, test, tuple("abcd"), shift, scale)


class Moon(Algorithm):
    """MOON, Li et al. 2021, arXiv:2103.16257."""

    def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        losses, right = problem.backward()
        if "last" in problem.memory:
            now = problem.outputs(part="3")
            received, last = (problem.outputs(at, "3") for at in (problem.anchor, problem.memory["last"]))
            assert not received.requires_grad
            near, far = (functional.cosine_similarity(now, other) / TAU for other in (received, last))
            (MU * functional.softplus(far - near).mean()).backward()
        return losses, right

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        return {}, {"last": {name: p.detach().clone() for name, p in problem.parameters.items()}}


def played(
    algorithm: Algorithm, module: nn.Module, workers: int = 1, arithmetic: Arithmetic = "exact", **settings: Any
) -> tuple[ModelState, list[float]]:
    """The model after some rounds with all clients, and the passes of each client in each round."""
    training = Training(**{"batch_size": BATCH, "lr": LR, "momentum": 0.0, "precision": "float64", **settings})
    engine = LocalEngine(federation(), as_model(module), training, algorithm, 5, workers, arithmetic=arithmetic)
    model, passes = engine.initial_model(), list[float]()
    for t in range(1, ROUNDS + 1):
        updates = list(engine.train(model, t, Cohort(np.arange(len(SIZES))), algorithm))
        engine.commit([update.client for update in updates])
        passes += [update.passes for update in updates]
        members = Members(
            num_clients=len(SIZES), total_samples=sum(SIZES), k=len(SIZES), t=t, trainable=engine.trainable
        )
        model = algorithm.aggregate(model, updates, members)
    engine.close()
    return model, passes


def moon_by_hand(module: nn.Sequential) -> Mapping[str, Tensor]:
    """The same rounds in plain PyTorch."""
    module = module.double()
    model, last = {name: p.detach().clone() for name, p in module.named_parameters()}, dict[int, ModelState]()
    data, edges = federation().train, np.cumsum([0, *SIZES])

    def representation(features: Tensor, at: Mapping[str, Tensor]) -> Tensor:
        hidden = functional.conv2d(features, at["0.weight"], at["0.bias"])
        return functional.max_pool2d(hidden, 2).relu().flatten(1)

    for t in range(1, ROUNDS + 1):
        total = {name: torch.zeros_like(value) for name, value in model.items()}
        for client, size in enumerate(SIZES):
            own = {name: value.clone().requires_grad_() for name, value in model.items()}
            samples = np.arange(edges[client], edges[client + 1])
            order = samples[rng(5, "batches", t, client).permutation(size)]
            for index in torch.from_numpy(order).split(BATCH):
                features, labels = data.features[index], data.labels[index]
                now = representation(features, own)
                loss = functional.cross_entropy(functional.linear(now, own["5.weight"], own["5.bias"]), labels)
                if client in last:
                    others = [representation(features, at).detach() for at in (model, last[client])]
                    near, far = (functional.cosine_similarity(now, other).div(TAU).exp() for other in others)
                    loss = loss - MU * (near / (near + far)).log().mean()
                slopes = torch.autograd.grad(loss, list(own.values()))
                own = {
                    name: (p - LR * slope).detach().requires_grad_()
                    for (name, p), slope in zip(own.items(), slopes, strict=True)
                }
            last[client] = {name: p.detach() for name, p in own.items()}
            for name, p in own.items():
                total[name] += p.detach() * size / sum(SIZES)
        model = total
    return model


def test_moon_is_what_plain_pytorch_computes() -> None:
    found, _ = played(Moon(), network())
    expected = moon_by_hand(network())
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-13, rtol=1e-12)
    without, _ = played(Algorithm(), network())
    assert any(float((found[name] - value).abs().max()) > 1e-4 for name, value in without.items())


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_any_number_of_threads_computes_the_same_bits(dropout: float) -> None:
    one, passes = played(Moon(), network(dropout=dropout), precision="float32")
    several, _ = played(Moon(), network(dropout=dropout), workers=3, precision="float32")
    assert bits(one) == bits(several)
    # a gradient counts as three passes, and so do outputs with one; outputs at other parameters as one
    assert passes == [3.0] * len(SIZES) + [3.0 + 3 + 1 + 1] * len(SIZES) * (ROUNDS - 1)


class Looking(Algorithm):
    """Looks at outputs, and trains as FedAvg does."""

    def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        whole, again = problem.outputs(), problem.outputs()
        assert torch.equal(whole, again)  # with the same numbers of Dropout
        assert torch.equal(whole.detach(), problem.outputs(dict(problem.parameters)))
        losses, right = problem.backward()
        same = functional.cross_entropy(whole, problem.labels, reduction="none")
        torch.testing.assert_close(losses, same.detach())
        assert len(problem.labels) == len(problem.batch)
        return losses, right


@pytest.mark.parametrize("last", [nn.BatchNorm1d(4), nn.Dropout(0.5), nn.ReLU(inplace=True)])
def test_looking_at_outputs_changes_nothing(last: nn.Module) -> None:
    """Neither the training nor the statistics of batch norm."""
    module = network(dropout=0.3).append(last)
    looked, _ = played(Looking(), module)
    usual, _ = played(Algorithm(), module)
    assert bits(looked) == bits(usual)


class Wanting(Algorithm):
    """Wants the outputs of a part; notes their shapes and smallest numbers."""

    part = ""
    seen: list[tuple[int, ...]]

    def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        outputs = problem.outputs(part=type(self).part)
        type(self).seen.append((*outputs.shape[1:], int(outputs.min() >= 0)))
        return problem.backward()


@pytest.mark.parametrize(
    ("part", "shape", "positive"),
    [("0", (3, 4, 4), 0), ("1", (3, 2, 2), 0), ("2", (3, 2, 2), 1), ("3", (12,), 1), ("", (4,), 0)],
)
def test_parts_are_those_of_the_given_network(
    part: str, shape: tuple[int, ...], positive: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if layers have changed places to be faster, and if a layer changes its input in place."""
    module = network()
    module[2] = nn.ReLU(inplace=True)
    monkeypatch.setattr(Wanting, "part", part)
    monkeypatch.setattr(Wanting, "seen", [], raising=False)
    played(Wanting(), module)
    assert set(Wanting.seen) == {(*shape, positive)}


def test_outputs_have_the_precision_of_the_parameters() -> None:
    found = list[torch.dtype]()

    class Noting(Algorithm):
        def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
            found.extend(problem.outputs(part=part).dtype for part in ("", "0", "5"))
            return problem.backward()

    played(Noting(), network(), arithmetic="bf16", precision="float32")
    assert set(found) == {torch.float32}


class Idle(nn.Module):
    """Has a part that it does not call, and one that returns a pair."""

    def __init__(self) -> None:
        super().__init__()
        self.unused, self.pair, self.head = nn.Linear(2, 2), nn.LSTM(36, 5, batch_first=True), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.pair(x.flatten(1).unsqueeze(1))[0][:, 0])
        return logits


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ("tail", r"the network has no such part; it has 'unused', 'pair', 'head'"),
        ("unused", r"this part is not called in a forward pass; name one that returns a tensor"),
        ("pair", r"this part returns a tuple; name one that returns a tensor"),
    ],
)
def test_parts_without_outputs_are_named(part: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wanting, "part", part)
    monkeypatch.setattr(Wanting, "seen", [], raising=False)
    with pytest.raises(ClientError, match=rf"client 0: problem\.outputs\(part = '{part}'\): {what}"):
        played(Wanting(), Idle())


class LooksAt(Algorithm):
    """Wants outputs at these parameters."""

    def __init__(self, at: Any) -> None:
        super().__init__()
        self._at = at

    def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        problem.outputs(self._at)
        return problem.backward()


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ({"0.wieght": torch.zeros(3, 1, 3, 3)}, "the network has no parameter '0.wieght'; did you mean '0.weight'?"),
        ({"0.weight": torch.zeros(1)}, "'0.weight' is [1]; must be a tensor [3, 1, 3, 3]"),
        ({"0.weight": 3}, "'0.weight' is 3; must be a tensor [3, 1, 3, 3]"),
        ([1], "problem.outputs(at = [1]): must be tensors by name, as problem.anchor is"),
    ],
)
def test_parameters_of_other_names_or_shapes_are_refused(at: Any, message: str) -> None:
    with pytest.raises(ClientError) as error:
        played(LooksAt(at), network())
    assert message in str(error.value)
    played(LooksAt({"0.bias": torch.zeros(3, dtype=torch.float64)}), network())
