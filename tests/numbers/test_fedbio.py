"""FedBiO (spec G9): hypergradients against finite differences, the cleaning example, FedAvg as a special case, and whole runs."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedcohort
from fedcohort.algorithms import Algorithm, Members, ModelState, Problem, Tensors, Update
from fedcohort.algorithms.methods import fedbio
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fedbio import MAX_LAMBDA, FedBiO, reweighed
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import rng
from fedcohort.core.threads import one_thread
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.data.datasets import from_arrays
from fedcohort.federation.federation import Federation, gather
from fedcohort.federation.partition import Iid, partition
from fedcohort.models import Logistic, as_model
from fedcohort.selection import Cohort
from fedcohort.testing.base import bits
from tests.experiments import small
from tests.golden.test_same_bits import record
from tests.resume.test_resume import stop_after
from tests.run_states import a_run_state

SampleLosses = Callable[[Tensors], Tensor]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """With tensors of six numbers, a second thread only costs time."""
    with one_thread():
        yield


class OneClient:
    """A :class:`Problem` defined by two functions of the parameters: the losses of the training samples, and the held-out loss."""

    def __init__(self, parameters: Tensors, losses: SampleLosses, held_out_loss: SampleLosses, t: int = 100) -> None:
        self.parameters = {name: value.clone().requires_grad_() for name, value in parameters.items()}
        self.anchor = parameters
        self.losses, self.held_out_loss = losses, held_out_loss
        self.num_samples = len(losses(parameters))
        self.batch = torch.arange(self.num_samples)
        self.labels = torch.zeros(self.num_samples)
        self.received: Mapping[str, Tensors] = {}
        self.memory: Mapping[str, Tensors] = {}
        self.training, self.t = Training(), t
        self.lr: float | Tensor = 0.1
        self.steps: int | Tensor = 0
        self.notes: dict[str, Any] = {}
        self.held_out = torch.zeros(1), torch.zeros(1, dtype=torch.int64)
        self.rng = rng(0, "a client")

    def backward(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        losses, gradient = self.losses_and_gradient(self.parameters, weights)
        for name, value in gradient.items():
            self.parameters[name].grad = value
        return losses, torch.tensor(0)

    def gradient(self, at: Tensors | None = None) -> Tensors:
        return self.losses_and_gradient(at or self.parameters)[1]

    def full_gradient(self, at: Tensors) -> Tensors:
        return self.gradient(at)

    def losses_and_gradient(self, at: Tensors, weights: Tensor | None = None) -> tuple[Tensor, Tensors]:
        point = {name: value.detach().requires_grad_() for name, value in at.items()}
        losses = self.losses(point)[self.batch]
        mean = (losses if weights is None else losses * weights).mean()
        return losses.detach(), dict(zip(point, torch.autograd.grad(mean, list(point.values())), strict=True))

    def cross_entropy_gradient(self, features: Tensor, labels: Tensor) -> Tensors:
        point = {name: value.detach().requires_grad_() for name, value in self.parameters.items()}
        gradients = torch.autograd.grad(self.held_out_loss(point), list(point.values()))
        return dict(zip(point, gradients, strict=True))

    def outputs(self, at: Tensors | None = None, part: str = "") -> Tensor:
        raise NotImplementedError

    def received_loss(self) -> float:
        return math.nan


def solve_for_u(algorithm: FedBiO, problem: OneClient, steps: int) -> Tensors:
    """u after many local steps that do not change y and λ."""
    for _ in range(steps):
        algorithm.backward(problem)
    u: Tensors = problem.notes["u"]
    return u


def hypergradient(algorithm: FedBiO, problem: OneClient, steps: int) -> Tensor:
    """∂/∂λ_j = −κσ'(λ_j)/N·⟨∇ℓ_j, u⟩, with u and the slopes from the algorithm's steps."""
    u = solve_for_u(algorithm, problem, steps)
    lam: Tensor = problem.notes["lambda"]
    slopes, _ = algorithm._differences(problem, u, algorithm._weights(lam))
    assert slopes is not None
    sigma = torch.sigmoid(lam)
    return -algorithm.kappa * sigma * (1 - sigma) * slopes / len(lam)


# --- three samples, the last one wrong -------------------------------------------------------------------------------------

T = torch.tensor([1.0, 1.2, 5.0], dtype=torch.float64)
RHO = 0.1


def optimal_y(lam: Tensor) -> float:
    """argmin_y of Σ σ(λ_j)/3·½(y − t_j)² + ρ/2·y²."""
    weights = torch.sigmoid(lam) / 3
    return float((weights * T).sum() / (weights.sum() + RHO))


def three_samples(y: float, **values: Any) -> OneClient:
    return OneClient(
        {"y": torch.tensor([y], dtype=torch.float64)},
        losses=lambda at: 0.5 * (at["y"] - T) ** 2,
        held_out_loss=lambda at: 0.5 * ((at["y"] - 1.0) ** 2).sum(),
        **values,
    )


def test_worked_hypergradient() -> None:
    problem = three_samples(optimal_y(torch.zeros(3, dtype=torch.float64)))
    assert problem.parameters["y"].item() == pytest.approx(2.0, rel=1e-12)
    algorithm = FedBiO(kappa=1.0, rho=RHO, tau_u=0.5, eta_lambda=0.0)
    result = hypergradient(algorithm, problem, 200)
    assert problem.notes["u"]["y"].item() == pytest.approx(5 / 3, rel=1e-8)
    assert result.tolist() == pytest.approx([-0.138889, -0.111111, 0.416667], abs=5e-7)


def test_hypergradient_of_three_samples_equals_finite_differences() -> None:
    algorithm, h = FedBiO(kappa=1.0, rho=RHO, tau_u=0.5, eta_lambda=0.0), 1e-5
    lam = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64)
    problem = three_samples(optimal_y(lam))
    problem.memory = {"lambda": {"lambda": lam}}
    differences = [
        (0.5 * (optimal_y(lam + h * e) - 1) ** 2 - 0.5 * (optimal_y(lam - h * e) - 1) ** 2) / (2 * h)
        for e in torch.eye(3, dtype=torch.float64)
    ]
    assert hypergradient(algorithm, problem, 300).tolist() == pytest.approx(differences, rel=1e-6)


def test_gradient_steps_remove_the_outlier() -> None:
    """y, u and λ change together from zero, with the steps .3, 1 and .5. Every λ with y* = 1 is a solution, and the steps determine
    which one is reached."""
    algorithm = FedBiO(kappa=1.0, rho=RHO, tau_u=1.0, eta_lambda=0.0)
    problem = three_samples(0.0)
    for _ in range(1500):
        u, lam = algorithm._state(problem)
        slopes, _ = algorithm._differences(problem, u, algorithm._weights(lam))
        algorithm.backward(problem)
        if slopes is not None:
            sigma = torch.sigmoid(lam)
            problem.notes["lambda"] = lam + 0.5 * sigma * (1 - sigma) * slopes / 3
        descend(problem, 0.3)
    assert problem.parameters["y"].item() == pytest.approx(1.0, abs=1e-4)
    assert torch.sigmoid(problem.notes["lambda"]).tolist() == pytest.approx([0.692, 0.614, 0.044], abs=5e-4)


def test_the_algorithms_normalized_steps_remove_the_outlier() -> None:
    """The steps of the algorithm itself change y, u and λ together."""
    algorithm = FedBiO(kappa=1.0, rho=RHO, tau_u=0.5, eta_lambda=0.01, warmup_rounds=0)
    problem = three_samples(0.0)
    for _ in range(1500):
        algorithm.backward(problem)
        descend(problem, 0.3)
    weights = torch.sigmoid(problem.notes["lambda"]).tolist()
    assert problem.parameters["y"].item() == pytest.approx(1.0, abs=0.05)
    assert weights[2] < 0.1 < 0.5 < min(weights[:2])


def descend(problem: OneClient, lr: float) -> None:
    for parameter in problem.parameters.values():
        assert parameter.grad is not None
        with torch.no_grad():
            parameter -= lr * parameter.grad


# --- a classifier ----------------------------------------------------------------------------------------------------------


def softmax_regression() -> tuple[SampleLosses, SampleLosses, Tensors]:
    draw = rng(0, "hyper-cleaning")
    x, v = (torch.from_numpy(draw.normal(size=(n, 3))) for n in (8, 6))
    labels, clean = (torch.from_numpy(draw.integers(0, 2, n)) for n in (8, 6))

    def losses(at: Tensors) -> Tensor:
        return functional.cross_entropy(x @ at["w"], labels, reduction="none")

    def held_out(at: Tensors) -> Tensor:
        return functional.cross_entropy(v @ at["w"], clean)

    return losses, held_out, {"w": torch.zeros(3, 2, dtype=torch.float64)}


def minimum(losses: SampleLosses, start: Tensors, lam: Tensor, rho: float, steps: int = 6) -> Tensors:
    """argmin_y of mean(2σ(λ)·ℓ) + ρ/2·‖y‖², by Newton's method."""

    def objective(w: Tensor) -> Tensor:
        value: Tensor = (2 * torch.sigmoid(lam) * losses({"w": w.view(3, 2)})).mean() + 0.5 * rho * w.square().sum()
        return value

    w = start["w"].flatten()
    for _ in range(steps):
        slope = torch.autograd.functional.jacobian(objective, w)
        step = torch.linalg.solve(torch.autograd.functional.hessian(objective, w), slope)
        w = w - step
    assert step.abs().max() < 1e-12
    return {"w": w.view(3, 2)}


def test_hypergradient_of_a_classifier_equals_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedbio, "DISTANCE", 1e-4)  # possible in double precision, which has little noise
    losses, held_out, start = softmax_regression()
    rho, h = 0.2, 1e-4
    lam = torch.linspace(-1, 1, 8, dtype=torch.float64)

    best = minimum(losses, start, lam, rho)

    def outer(lam: Tensor) -> float:
        return float(held_out(minimum(losses, best, lam, rho, steps=3)))

    differences = [(outer(lam + h * e) - outer(lam - h * e)) / (2 * h) for e in torch.eye(8, dtype=torch.float64)]
    problem = OneClient(best, losses, held_out)
    problem.memory = {"lambda": {"lambda": lam}}
    algorithm = FedBiO(rho=rho, tau_u=0.5, eta_lambda=0.0)
    assert hypergradient(algorithm, problem, 400).tolist() == pytest.approx(differences, rel=1e-5, abs=1e-9)


# --- the client's step ---------------------------------------------------------------------------------------------------------


def test_the_first_step_evaluates_the_losses_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, calls = three_samples(2.0), []
    evaluate = problem.losses_and_gradient

    def counted(*given: Any) -> tuple[Tensor, Tensors]:
        calls.append(given)
        return evaluate(*given)

    monkeypatch.setattr(problem, "losses_and_gradient", counted)
    algorithm = FedBiO(kappa=1.0, rho=RHO, tau_u=0.1)
    algorithm.backward(problem)
    assert len(calls) == 1
    assert problem.notes["u"]["y"].item() == pytest.approx(0.1)  # τ·∇f = .1·(2 − 1)
    assert problem.parameters["y"].grad is not None
    assert problem.parameters["y"].grad.item() == pytest.approx(0.5 * (2 - 2.4) + RHO * 2)
    algorithm.backward(problem)
    assert len(calls) == 4


def test_weights_do_not_change_during_the_warm_up() -> None:
    for t, moves in ((5, False), (6, True)):
        problem = three_samples(2.0, t=t)
        algorithm = FedBiO(warmup_rounds=5)
        for _ in range(3):
            algorithm.backward(problem)
        assert bool(problem.notes["lambda"].any()) == moves
        assert problem.notes["u"]["y"].any()


def test_weights_and_u_are_limited_and_invalid_values_are_ignored() -> None:
    far = torch.tensor([5.99, -5.99, 0.0])
    assert reweighed(far, torch.tensor([1.0, -1.0, 0.0]), 2.0, 100.0).tolist() == [MAX_LAMBDA, -MAX_LAMBDA, 0.0]
    assert reweighed(far, torch.tensor([math.nan, 1.0, 1.0]), 2.0, 0.1).tolist() == far.tolist()
    problem = three_samples(1e6)
    FedBiO(tau_u=1.0).backward(problem)
    assert problem.notes["u"]["y"].item() == pytest.approx(10.0)
    problem = three_samples(2.0)
    problem.received = {"u": {"y": torch.tensor([math.inf], dtype=torch.float64)}}
    FedBiO().backward(problem)
    assert problem.notes["u"]["y"].item() == 0.0


def test_without_held_out_samples_u_stays_unchanged() -> None:
    problem = three_samples(2.0)
    problem.held_out = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    problem.received = {"u": {"y": torch.tensor([0.5], dtype=torch.float64)}}
    algorithm = FedBiO(warmup_rounds=0)
    algorithm.backward(problem)
    sent, kept = algorithm.finish(problem)
    assert sent["u"]["y"].item() == 0.0
    assert kept["lambda"]["lambda"].all()


# --- the server ------------------------------------------------------------------------------------------------------------

MEMBERS = Members(num_clients=10, total_samples=100, k=2)


def update_of(client: int, num_samples: int, change: float) -> Update:
    state = {"y": torch.tensor([float(client)])}
    return Update(client, num_samples, 1, state, extra={"u": {"y": torch.tensor([change])}})


def test_u_moves_by_the_weighted_mean_of_changes() -> None:
    algorithm = FedBiO()
    assert algorithm.broadcast() == {}
    model = algorithm.aggregate({"y": torch.zeros(1)}, iter([update_of(0, 10, 1.0), update_of(1, 30, 2.0)]), MEMBERS)
    assert model["y"].tolist() == [0.75]
    assert algorithm.broadcast()["u"]["y"].tolist() == [1.75]
    algorithm.aggregate(model, iter([update_of(0, 10, 2.0)]), MEMBERS)
    assert algorithm.u["y"].tolist() == [3.75]
    algorithm.aggregate(model, iter([]), MEMBERS)
    assert algorithm.u["y"].tolist() == [3.75]
    algorithm.aggregate(model, iter([update_of(0, 10, 50.0)]), MEMBERS)
    assert algorithm.u["y"].tolist() == [10.0]
    algorithm.aggregate(model, iter([update_of(0, 10, math.inf)]), MEMBERS)
    assert algorithm.u["y"].tolist() == [0.0]


# --- whole runs ------------------------------------------------------------------------------------------------------------

SETTING: dict[str, Any] = {
    "rounds": 3,
    "federation": {
        "partition": {"name": "dirichlet_class", "alpha": 0.5},
        "label_noise": {"name": "constant", "rate": 0.2},
        "holdout": 0.2,
    },
    "systems": {"dropout": 0.2},
    "training": {"lr": 0.01},
}
SHORT_FEDBIO = {"name": "fedbio", "warmup_rounds": 1}


def test_without_cleaning_a_run_is_bit_identical_to_fedavg(tmp_path: Path) -> None:
    result = {}
    for algorithm in ({"name": "fedbio", "eta_lambda": 0.0, "rho": 0.0, "warmup_rounds": 0}, {"name": "fedavg"}):
        run = fedcohort.run(small(**SETTING, algorithm=algorithm), runs=tmp_path)
        result[algorithm["name"]] = (run.path / "model.safetensors").read_bytes(), run.rounds["train_loss"].tolist()
    assert result["fedbio"] == result["fedavg"]


def test_a_resumed_run_equals_an_uninterrupted_run(tmp_path: Path) -> None:
    experiment = small(**SETTING, algorithm=SHORT_FEDBIO)
    uninterrupted = fedcohort.run(experiment, runs=tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "b", progress=stop_after(1))
    resumed = fedcohort.run(experiment, runs=tmp_path / "b")
    assert record(resumed) == record(uninterrupted)
    assert all(math.isfinite(loss) for loss in uninterrupted.rounds["test_loss"])


def test_only_admitted_clients_keep_their_weights() -> None:
    with a_run_state(Given(algorithm=FedBiO(warmup_rounds=0)), **SETTING) as run_state:
        engine, algorithm, model = run_state.engine, run_state.algorithm, run_state.model
        updates = list(engine.train(model, 1, Cohort(np.array([1, 2])), algorithm))
        engine.commit([2])
        kept = engine.state_dict()
        assert list(kept) == ["2"]
        assert kept["2"]["lambda"]["lambda"].shape == (updates[1].num_samples,)
        assert set(updates[0].extra) == {"u"}


def test_fedbio_without_a_held_out_part_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"^federation\.holdout = 0: 'fedbio' needs a held-out part"):
        Experiment(algorithm="fedbio")


def test_clean_val_sends_clean_samples_of_the_server_to_all_clients(tmp_path: Path) -> None:
    values = SETTING | {"rounds": 2}
    with a_run_state(Given(algorithm=FedBiO(clean_val=16)), **values) as run_state:
        clean = run_state.algorithm.broadcast()["clean"]
        assert clean["features"].shape == (16, 1, 8, 8)
        assert clean["labels"].shape == (16,)
        [without_clean_samples] = run_state.engine.train(run_state.model, 1, Cohort(np.array([1])), FedBiO())
        [with_clean_samples] = run_state.engine.train(run_state.model, 1, Cohort(np.array([1])), run_state.algorithm)
        assert bits(without_clean_samples.extra["u"]) != bits(with_clean_samples.extra["u"])
    with pytest.raises(UsageError, match=r"^algorithm\.clean_val = 999: the server's validation set has \d+ samples"):
        fedcohort.run(small(**values), algorithm=FedBiO(clean_val=999), runs=tmp_path)


def cleaning_federation(num_clients: int = 2) -> tuple[Federation, np.ndarray]:
    """Two well separated classes, with about 30% wrong labels in each client's training part and clean held-out parts."""
    draw = rng(0, "cleaning")
    labels = draw.integers(0, 2, 300)
    features = draw.normal(size=(300, 5)) + 3.0 * np.eye(2, 5)[labels]
    data = from_arrays((features[:200], labels[:200]), (features[200:], labels[200:]))
    fed = gather(data, partition(Iid(), data.train_labels, num_clients, 0), validation=0.2, seed=0, holdout=0.25)
    wrong = np.zeros(len(fed.train), dtype=bool)
    for client in range(num_clients):
        start, size = fed.offsets[client], fed.num_samples[client]
        wrong[start : start + size] = draw.random(size) < 0.3
    fed.train.labels[torch.from_numpy(wrong)] ^= 1
    return fed, wrong


def test_wrong_labels_lose_weight() -> None:
    fed, wrong = cleaning_federation()
    algorithm = FedBiO(warmup_rounds=5, tau_u=0.1)
    engine = LocalEngine(fed, Logistic(), Training(lr=0.05, momentum=0.0, batch_size=25), algorithm, 0, workers=1)
    model: ModelState = engine.initial_model()
    members = Members(num_clients=2, total_samples=int(fed.num_samples.sum()), k=2)
    for t in range(1, 41):
        updates = engine.train(model, t, Cohort(np.arange(2)), algorithm)
        model = algorithm.aggregate(model, updates, members)
        engine.commit([0, 1])
    kept = engine.state_dict()
    engine.close()
    for client in range(2):
        lam = kept[str(client)]["lambda"]["lambda"].numpy()
        bad = wrong[fed.offsets[client] : fed.offsets[client] + len(lam)]
        assert lam[bad].mean() < -1 < 0.5 < lam[~bad].mean()


def test_extra_evaluations_leave_batch_statistics_unchanged() -> None:
    """With batch norm, too, FedBiO without cleaning equals FedAvg."""
    fed, _ = cleaning_federation()
    model = as_model(lambda shape, classes: nn.Sequential(nn.BatchNorm1d(shape[0]), nn.Linear(shape[0], classes)))
    result = []
    algorithms: Sequence[Algorithm] = (FedAvg(), FedBiO(eta_lambda=0.0, rho=0.0))
    for algorithm in algorithms:
        with closing(LocalEngine(fed, model, Training(batch_size=8), algorithm, 0, workers=1)) as engine:
            [update] = engine.train(engine.initial_model(), 1, Cohort(np.array([0])), algorithm)
        assert int(update.state["0.num_batches_tracked"]) == update.steps > 5
        result.append(bits(update.state))
    assert result[0] == result[1]


def test_the_fake_client_has_all_members_of_a_problem() -> None:
    problem: Problem = three_samples(1.0)
    assert problem.num_samples == 3
    members = {*Problem.__annotations__, *(name for name in vars(Problem) if not name.startswith("_"))}
    assert len(members) > 10
    assert [name for name in sorted(members) if not hasattr(problem, name)] == []
