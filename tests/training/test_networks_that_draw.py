"""Models that draw random numbers in training: the same bits twice, resumed, on any number of threads, whatever was drawn before."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedcohort
from fedcohort.algorithms import Algorithm, Problem, Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import Model, as_model
from fedcohort.selection import Cohort
from fedcohort.testing.base import HEALTHY, bits, small_federation
from fedcohort.training.networks.random_layers import TRIES, draws_at_random
from fedcohort.training.networks.received_outputs import CHUNK
from tests.experiments import small
from tests.golden.test_same_bits import record
from tests.resume.test_resume import stop_after


class Written(nn.Module):
    """Dropout that no list of layers knows."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(self.inside(x), 0.5, training=self.training)


@parameters
class Chancy(Model):
    """A perceptron that forgets half of what it sees."""

    kind: str = "dropout"
    """Where it draws."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> Any:
        first = nn.Linear(int(np.prod(shape)), 12)
        middle = {
            "dropout": [first, nn.ReLU(), nn.Dropout(0.5)],
            "rrelu": [first, nn.RReLU()],
            "written": [Written(first), nn.ReLU()],
            "batch norm": [first, nn.BatchNorm1d(12), nn.ReLU(), nn.AlphaDropout(0.3)],
        }[self.kind]
        return nn.Sequential(nn.Flatten(), *middle, nn.Linear(12, num_classes))


KINDS = ["dropout", "rrelu", "written", "batch norm"]
SETTINGS = Training(batch_size=4, epochs=2)


def trained(model: Model, workers: int, *, t: int = 1, clients: Any = HEALTHY) -> list[Update]:
    torch.rand(17)  # wherever torch's generator stands
    engine = LocalEngine(small_federation(), model, SETTINGS, FedAvg(), 3, workers)
    with closing(engine):
        assert engine.draws
        return list(engine.train(engine.initial_model(), t, Cohort(np.array(clients)), FedAvg()))


@pytest.mark.parametrize("kind", KINDS)
def test_neither_threads_nor_what_was_drawn_before_matters(kind: str) -> None:
    model = Chancy(kind=kind)
    alone = trained(model, 1)
    for workers in (1, 2, 5):
        other = trained(model, workers)
        assert [bits(u.state) for u in other] == [bits(u.state) for u in alone]
        assert [u.report for u in other] == [u.report for u in alone]
    backwards = trained(model, 3, clients=HEALTHY[::-1])
    assert [bits(u.state) for u in backwards[::-1]] == [bits(u.state) for u in alone]


def test_torchs_generator_is_put_back() -> None:
    engine = LocalEngine(small_federation(), Chancy(), SETTINGS, FedAvg(), 3, 2)
    with closing(engine):
        before = torch.get_rng_state()
        list(engine.train(engine.initial_model(), 1, Cohort(np.array(HEALTHY)), FedAvg()))
        assert torch.equal(torch.get_rng_state(), before)


def test_a_run_goes_on_to_the_same_bits_under_every_plan(tmp_path: Path) -> None:
    def play(where: str, plan: str, workers: int, **more: Any) -> Any:
        engine = {"plan": plan, "workers": workers}
        experiment = small(rounds=3, selection={"k": 5}, engine=engine)
        return fedcohort.run(experiment, model=Chancy(), runs=tmp_path / where, **more)

    straight = record(play("straight", "threads", 3))
    assert record(play("loop", "loop", 0)) == straight
    with pytest.raises(KeyboardInterrupt):
        play("broken", "threads", 2, progress=stop_after(1))
    assert record(play("broken", "threads", 4)) == straight


@pytest.mark.parametrize("algorithm", ["feddf", "fedbio", "scaffold"])
def test_algorithms_that_run_the_model_elsewhere(algorithm: str, tmp_path: Path) -> None:
    """FedDF's student is trained on the server, the others look at a batch more than once."""
    own: dict[str, dict[str, Any]] = {
        "feddf": {"max_batches": 5}, "fedbio": {"warmup_rounds": 0}, "scaffold": {"option": "I"},
    }  # fmt: skip
    values = {"rounds": 2, "public": {"name": "holdout", "share": 0.1}, "federation": {"holdout": 0.2}}
    experiment = small(**values, algorithm={"name": algorithm, **own[algorithm]}, training={"lr": 0.01})
    found = []
    for name in ("a", "b"):
        torch.rand(5)
        found.append(record(fedcohort.run(experiment, model=Chancy(), runs=tmp_path / name)))
    assert found[0] == found[1]


class Noting(nn.Module):
    """Writes down what it draws in training."""

    seen: ClassVar[list[float]] = []

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x)
        if self.training:
            drawn = torch.rand(1)
            self.seen.append(float(drawn))
            outputs = outputs * (1 + 0.1 * drawn)
        return outputs


@pytest.fixture
def noted() -> Iterator[list[float]]:
    Noting.seen.clear()
    yield Noting.seen
    Noting.seen.clear()


def test_every_step_client_and_round_has_draws_of_its_own(noted: list[float]) -> None:
    network = as_model(Noting)
    drawn: list[float] = []
    for t in (1, 2):
        for client in HEALTHY[:3]:
            noted.clear()
            [update] = trained(network, 1, t=t, clients=[client])
            assert len(noted) == update.steps + TRIES
            drawn += noted[TRIES:]
    assert len(set(drawn)) == len(drawn)


def test_so_has_every_piece_of_a_large_batch(noted: list[float]) -> None:
    federation = small_federation([2 * CHUNK + 3], trouble=False)
    with closing(LocalEngine(federation, as_model(Noting), Training(batch_size=0), FedAvg(), 3, 1)) as engine:
        noted.clear()
        list(engine.train(engine.initial_model(), 1, Cohort(np.array([0])), FedAvg()))
    assert len(set(noted)) == len(noted) == 3


class Twice(FedAvg):
    """Looks at every batch again, where the model stands."""

    differences: ClassVar[list[float]] = []

    def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        losses, right = problem.backward()
        own = {name: p.grad for name, p in problem.parameters.items()}
        again, gradient = problem.losses_and_gradient({n: p.detach() for n, p in problem.parameters.items()})
        self.differences.append(float((again - losses).abs().max()))
        self.differences.extend(float((gradient[name] - g).abs().max()) for name, g in own.items() if g is not None)
        return losses, right


def test_who_looks_at_a_batch_twice_meets_the_same_draws() -> None:
    """Or FedBiO's differences along a direction would be those of two masks."""
    algorithm: Algorithm = Twice()
    with closing(LocalEngine(small_federation(), Chancy(), SETTINGS, algorithm, 3, 2)) as engine:
        list(engine.train(engine.initial_model(), 1, Cohort(np.array(HEALTHY)), algorithm))
    assert len(Twice.differences) > 50
    assert max(Twice.differences) < 1e-5


# --- finding out -------------------------------------------------------------------------------------------------------------


def test_what_draws_is_found_and_left_as_it_was() -> None:
    inputs = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for kind in KINDS:
        module = Chancy(kind=kind).build((1, 8, 8), 3).train()
        before, generator = bits(module.state_dict()), torch.get_rng_state()
        assert draws_at_random(module, inputs)
        assert bits(module.state_dict()) == before
        assert module.training
        assert torch.equal(torch.get_rng_state(), generator)
    for name in ("mlp", "cnn_a", "resnet18"):
        found: Any = fedcohort.models.MODELS.find(name, "model.name")()
        assert not draws_at_random(found.build((1, 8, 8), 3), inputs)
    assert not draws_at_random(nn.Linear(5, 3), inputs), "its error is told when it trains"


class Careless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(self.layer(x.flatten(1)), 0.5)


def test_a_model_that_draws_when_it_is_tested_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"^model: draws random numbers in evaluation mode too.*training=self\.training"
    ):
        fedcohort.run(small(), model=Careless, runs=tmp_path)
    assert not [*tmp_path.iterdir()]


class Beside(nn.Module):
    """Draws nothing; meanwhile somebody else draws so many numbers, one more entry of ``drawn`` each time."""

    drawn: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        torch.randn(self.drawn.pop(0) if self.drawn else 0)
        return self.layer(x)


@pytest.mark.parametrize(
    ("drawn", "may"),
    [
        ([], False),
        ([3], False),
        ([3, 5, 0, 7, 0], False),
        ([*range(3, 3 + TRIES)] * 2, True),
        ([*[3] * (TRIES - 1), *range(5, 6 + TRIES)], True),
    ],
)
def test_who_draws_beside_is_not_taken_for_the_model(drawn: list[int], may: bool) -> None:
    """Where it cannot be told, threads take turns, and nobody is refused."""
    Beside.drawn = drawn.copy()
    assert draws_at_random(Beside(), torch.ones(1, 4)) is may


def test_a_busy_thread_elsewhere_does_no_harm(tmp_path: Path) -> None:
    ends = threading.Event()

    def draw() -> None:
        while not ends.is_set():
            torch.randn(100)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        run = fedcohort.run(small(rounds=1), runs=tmp_path)
    finally:
        ends.set()
        thread.join()
    assert len(run.rounds) == 1
