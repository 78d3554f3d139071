"""Everything runs on a GPU with the CPU's picks and, to rounding, its numbers; exact arithmetic gives the same bits twice.

Skipped where torch sees no GPU. :mod:`tests.engines.pretend` checks there what does not depend on the hardware.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedcohort
from fedcohort.algorithms import ALGORITHMS
from fedcohort.selection import STRATEGIES
from fedcohort.training import local_setup
from fedcohort.training.scripts.recorded_passes import record_pass
from tests.engines.pretend_cases import differences, images
from tests.experiments import UCB, small
from tests.golden.test_same_bits import record

EXACT = {"batch_size": 32, "precision": "float64"}
"""In float64, rounding is far below what the comparison allows, so that only a mistake can exceed it."""

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.mark.parametrize("plan", ["threads", "stacked"])
@pytest.mark.parametrize("algorithm", ALGORITHMS.builtin)
def test_every_algorithm_agrees_with_the_cpu(algorithm: str, plan: str) -> None:
    assert not differences("uniform", algorithm, device="cuda", engine={"plan": plan, "workers": 2}, training=EXACT)


@pytest.mark.parametrize("strategy", STRATEGIES.builtin)
def test_every_strategy_picks_the_clients_that_it_picks_on_the_cpu(strategy: str) -> None:
    assert not differences(strategy, "fedavg", device="cuda", training=EXACT)


@pytest.mark.parametrize("plan", ["threads", "stacked"])
@pytest.mark.parametrize("batch", [8, 0])
def test_convolutions_agree_with_the_cpu(plan: str, batch: int) -> None:
    training = EXACT | {"batch_size": batch, "momentum": 0.9}
    assert not differences("uniform", "fedprox", device="cuda", model=images, engine={"plan": plan}, training=training)


def test_a_run_goes_on_from_its_checkpoint() -> None:
    assert not differences("ocs", "scaffold", again=True, device="cuda")


@pytest.mark.parametrize("plan", ["loop", "threads", "stacked"])
@pytest.mark.parametrize("model", ["mlp", "cnn_a"])
def test_exact_arithmetic_gives_the_same_bits_twice(model: str, plan: str, tmp_path: Path) -> None:
    experiment = small(rounds=3, model=model, selection=UCB, engine={"device": "cuda", "plan": plan})
    first = fedcohort.run(experiment, runs=tmp_path / "a")
    assert record(first) == record(fedcohort.run(experiment, runs=tmp_path / "b"))


@pytest.mark.parametrize("model", ["mlp", "cnn_a"])
def test_any_number_of_threads_gives_the_same_bits(model: str, tmp_path: Path) -> None:
    def run(name: str, **engine: Any) -> dict[str, Any]:
        experiment = small(rounds=3, model=model, engine={"device": "cuda", **engine})
        return record(fedcohort.run(experiment, runs=tmp_path / name))

    assert run("a", plan="loop") == run("b", plan="threads", workers=2) == run("c", plan="threads", workers=5)


def with_group_norm(shape: tuple[int, ...], classes: int) -> nn.Module:
    convolutions = nn.Conv2d(shape[0], 16, 3), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 8, 3), nn.ReLU()
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(128, classes))


@pytest.mark.parametrize("arithmetic", ["tf32", "bf16"])
@pytest.mark.parametrize("plan", ["threads", "stacked"])
@pytest.mark.parametrize("model", ["cnn_a", with_group_norm], ids=["cnn_a", "group norm"])
def test_faster_arithmetic_learns_the_same_in_a_round(model: Any, arithmetic: str, plan: str, tmp_path: Path) -> None:
    losses = []
    named, given = ({}, {"model": model}) if callable(model) else ({"model": model}, {})
    for kind in ("exact", arithmetic):
        engine = {"device": "cuda", "plan": plan, "arithmetic": kind}
        run = fedcohort.run(small(rounds=1, engine=engine, **named), runs=tmp_path / kind, **given)
        losses.append(run.rounds.test_loss.iloc[-1])
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_dropout_and_batch_norm_train(tmp_path: Path) -> None:
    network = with_batch_norm(dropout=0.3)
    experiment = small(rounds=6, engine={"device": "cuda"})
    first, second = (fedcohort.run(experiment, model=network, runs=tmp_path / name) for name in "ab")
    assert record(first) == record(second)
    assert first.rounds.test_loss.iloc[-1] < first.rounds.test_loss.iloc[0]


def with_batch_norm(dropout: float) -> Callable[[tuple[int, ...], int], nn.Module]:
    def build(shape: tuple[int, ...], classes: int) -> nn.Module:
        last = nn.Dropout(dropout) if dropout else nn.Identity()
        parts = nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), last
        return nn.Sequential(*parts, nn.Linear(32, classes))

    return build


class Counting(nn.Module):
    """A network that counts its passes and changes after five."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.body, self.passes = nn.Sequential(nn.Flatten(), nn.Linear(64, classes)), 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += self.training
        outputs: Tensor = self.body(x)
        return outputs if self.passes < 5 else -outputs


class Deciding(nn.Module):
    """A network that reads its activations to decide how to go on."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.body(x)
        return outputs if float(outputs[0, 0]) > 0 else 2 * outputs


def recorded(monkeypatch: pytest.MonkeyPatch, *, allowed: bool) -> list[bool]:
    """For every network of the runs that follow: whether its pass is recorded; none is if that is not ``allowed``."""
    found: list[bool] = []

    def noted(*args: Any) -> Any:
        result = record_pass(*args) if allowed else None
        found.append(result is not None)
        return result

    monkeypatch.setattr(local_setup, "record_pass", noted)
    return found


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fednova", "fedprox"])
@pytest.mark.parametrize("model", ["mlp", "cnn_a", with_batch_norm(dropout=0)], ids=["mlp", "cnn_a", "batch norm"])
def test_recorded_passes_have_the_bits_of_autograd(
    model: Any, algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = []
    for allowed in (False, True):
        with monkeypatch.context() as patch:
            networks = recorded(patch, allowed=allowed)
            training = {"batch_size": 10, "epochs": 2, "momentum": 0.9, "clip_norm": 1.0}
            named, given = ({}, {"model": model}) if callable(model) else ({"model": model}, {})
            experiment = small(rounds=3, algorithm=algorithm, training=training, engine={"device": "cuda"}, **named)
            records.append(record(fedcohort.run(experiment, runs=tmp_path / str(allowed), **given)))
        assert networks
        assert all(found is allowed for found in networks)
    assert records[0] == records[1]


@pytest.mark.parametrize("model", [Counting, Deciding])
def test_networks_whose_passes_differ_are_not_recorded(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = recorded(monkeypatch, allowed=True)
    fedcohort.run(small(rounds=2, engine={"device": "cuda"}), model=model, runs=tmp_path)
    assert networks
    assert not any(networks)
