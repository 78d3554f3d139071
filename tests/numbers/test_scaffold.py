"""SCAFFOLD: worked values (spec G6), a second implementation directly from the paper, and clients that fail."""

import copy
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import fedcohort
from fedcohort.algorithms import Algorithm, Members, ModelState, Tensors, Update, WeightMode
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.scaffold import Scaffold
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.random_streams import rng
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import Mlp
from fedcohort.rounds import RunState, play_round
from fedcohort.selection import Cohort
from fedcohort.testing.base import bits, members_of, small_federation
from tests.experiments import small
from tests.golden.test_same_bits import record
from tests.numbers.local_problems import PLAIN, Gradient, OneNumber, number, play_rounds, train_locally
from tests.repetitions import slow_after
from tests.resume.test_resume import stop_after
from tests.run_states import a_run_state

TWO: list[Gradient] = [lambda x: x - 1, lambda x: 4 * (x + 3)]
"""F₁ = ½(x − 1)², F₂ = 2(x + 3)²: the optimum of their sum is −2.2."""
MOMENTUM, ADAM = Training(momentum=0.9, lr=0.02), Training(optimizer="adam", lr=0.02)

# --- the worked example ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["II", "I"])
def test_scaffold_reaches_the_optimum_and_fedavg_does_not(option: Any) -> None:
    assert number(play_rounds(Scaffold(option=option), TWO, 500, steps=(5, 5))[0]) == pytest.approx(-2.2, abs=1e-9)
    assert number(play_rounds(FedAvg(), TWO, 500, steps=(5, 5))[0]) == pytest.approx(-1.391579, abs=1e-6)


def test_the_correction_is_in_the_order_of_the_parameters() -> None:
    """Programs add it to gradients by position; c and c_i may come in another order, for instance from another process."""
    start = {"weight": torch.tensor([0.0, 0.0]), "bias": torch.tensor([0.0])}
    c = {"bias": torch.tensor([4.0]), "weight": torch.tensor([1.0, 2.0])}
    own = {"bias": torch.tensor([1.0]), "weight": torch.tensor([3.0, 5.0])}
    problem = OneNumber(lambda x: x, start, start, received={"c": c}, memory={"c": own})
    correction = Scaffold().correction(problem)
    assert correction is not None
    assert {name: shift.tolist() for name, shift in correction.shift.items()} == {"weight": [-2, -3], "bias": [3]}
    assert list(correction.shift) == list(start)


def test_scaffold_with_momentum_reaches_the_optimum() -> None:
    assert number(play_rounds(Scaffold(), TWO, 800, steps=(5, 5), training=MOMENTUM)[0]) == pytest.approx(
        -2.2, abs=1e-8
    )


def test_scaffold_with_half_of_the_clients_per_round_reaches_the_optimum() -> None:
    model, _ = play_rounds(Scaffold(), TWO, 1500, steps=(5, 5), cohort=lambda t: [t % 2])
    assert number(model) == pytest.approx(-2.2, abs=1e-6)


@pytest.mark.parametrize("training", [PLAIN, MOMENTUM, ADAM], ids=["plain", "momentum", "adam"])
def test_the_first_round_equals_fedavg_with_equal_weights(training: Training) -> None:
    first, _ = play_rounds(Scaffold(), TWO, 1, steps=(5, 2), training=training)
    assert torch.equal(
        first["x"], play_rounds(FedAvg(weights="uniform"), TWO, 1, steps=(5, 2), training=training)[0]["x"]
    )


@pytest.mark.parametrize("training", [PLAIN, MOMENTUM, ADAM], ids=["plain", "momentum", "adam"])
@pytest.mark.parametrize("option", ["II", "I"])
@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_when_all_clients_train_the_server_variate_is_the_mean_of_the_client_variates(
    training: Training, option: Any, rounds: int
) -> None:
    algorithm = Scaffold(option=option)
    _, memories = play_rounds(algorithm, TWO, rounds, steps=(5, 3), training=training)
    mean = sum(memory["c"]["x"] for memory in memories.values()) / 2
    assert torch.allclose(algorithm.c["x"], torch.as_tensor(mean), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("c_decay", [1.0, 0.5])
def test_when_some_clients_train_the_server_variate_is_the_mean_of_the_client_variates(c_decay: float) -> None:
    """Clients that were never selected count as 0."""
    five: list[Gradient] = [lambda x, i=i: (1 + i) * (x - i) for i in range(5)]  # type: ignore[misc]
    algorithm = Scaffold(c_decay=c_decay)
    _, memories = play_rounds(algorithm, five, 9, steps=[3] * 5, cohort=lambda t: [t % 4, (t + 1) % 4])
    assert memories[4] == {}
    mean = sum((memories[i]["c"]["x"] for i in range(4)), torch.zeros(1)) / 5
    assert torch.allclose(algorithm.c["x"], mean, rtol=1e-12, atol=1e-14)


# --- the client half -------------------------------------------------------------------------------------------------------


def a_problem(training: Training = PLAIN, **more: Any) -> OneNumber:
    """F₂ from x = .5 with c = .7 and c_i = −.4."""
    w = torch.tensor([0.5], dtype=torch.float64)
    given = {"received": {"c": {"x": torch.full_like(w, 0.7)}}, "memory": {"c": {"x": torch.full_like(w, -0.4)}}}
    return OneNumber(TWO[1], {"x": w.clone()}, {"x": w}, **{**given, "training": training, "lr": training.lr, **more})


def new_variate(algorithm: Scaffold, problem: OneNumber, steps: int) -> float:
    train_locally(algorithm, problem, steps)
    _, memory = algorithm.finish(problem)
    return memory["c"]["x"].item()


@pytest.mark.parametrize("lr", [0.2, 0.003])
def test_option_II_is_the_mean_of_the_uncorrected_gradients(lr: float) -> None:
    x, gradients = 0.5, []
    for _ in range(4):
        gradients.append(4 * (x + 3))
        x -= lr * (gradients[-1] - (-0.4) + 0.7)
    problem = a_problem(Training(momentum=0.0, lr=lr))
    assert new_variate(Scaffold(), problem, 4) == pytest.approx(np.mean(gradients), rel=1e-12)
    assert problem.parameters["x"].item() == pytest.approx(x, rel=1e-14)


def test_option_I_is_the_gradient_of_the_received_model() -> None:
    for training in (PLAIN, MOMENTUM, ADAM):
        assert new_variate(Scaffold(option="I"), a_problem(training), 4) == 4 * 3.5


@pytest.mark.parametrize("name", ["momentum", "nesterov", "adam", "adamw"])
def test_other_optimizers_step_by_corrected_gradients_and_variates_average_uncorrected_ones(name: str) -> None:
    options: dict[str, dict[str, Any]] = {
        "momentum": {"momentum": 0.8}, "nesterov": {"momentum": 0.8, "nesterov": True},
        "adam": {"optimizer": "adam"}, "adamw": {"optimizer": "adamw", "weight_decay": 0.1},
    }  # fmt: skip
    training = Training(lr=0.03, **options[name])
    x, gradients = torch.tensor([0.5], dtype=torch.float64), []
    optimizer: torch.optim.Optimizer
    if name in ("momentum", "nesterov"):
        optimizer = torch.optim.SGD([x], 0.03, momentum=0.8, nesterov=name == "nesterov")
    else:
        optimizer = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name](
            [x], 0.03, weight_decay=training.weight_decay
        )
    for _ in range(6):
        gradients.append(4 * (x.item() + 3))
        x.grad = torch.tensor([gradients[-1] + 0.4 + 0.7], dtype=torch.float64)
        optimizer.step()
    problem = a_problem(training)
    assert new_variate(Scaffold(), problem, 6) == pytest.approx(np.mean(gradients), rel=1e-12)
    assert problem.parameters["x"].item() == pytest.approx(x.item(), rel=1e-12)


@pytest.mark.parametrize("training", [PLAIN, ADAM], ids=["plain", "adam"])
@pytest.mark.parametrize("option", ["II", "I"])
@pytest.mark.parametrize("trouble", ["no step", "learning rate 0"])
def test_a_client_without_a_step_keeps_its_variate(training: Training, option: Any, trouble: str) -> None:
    problem = a_problem(training, lr=0.0 if trouble == "learning rate 0" else 0.1)
    algorithm = Scaffold(option=option)
    train_locally(algorithm, problem, 0 if trouble == "no step" else 3)
    extra, memory = algorithm.finish(problem)
    assert memory["c"]["x"].item() == -0.4
    assert extra["c"]["x"].item() == 0.0


@pytest.mark.parametrize(("missed", "trust"), [(0, 1.0), (1, 0.5), (3, 0.125)])
def test_c_decay_reduces_the_variate_of_a_client_that_missed_rounds(missed: int, trust: float) -> None:
    memory = {"c": {"x": torch.tensor([-0.4], dtype=torch.float64)}, "round": {"last": torch.tensor(4)}}
    problem, gradients = a_problem(memory=memory, t=5 + missed), {"x": torch.ones(1, dtype=torch.float64)}
    algorithm = Scaffold(c_decay=0.5)
    algorithm.correct(problem, gradients)
    assert gradients["x"].item() == pytest.approx(1 + 0.4 * trust + 0.7, rel=1e-12)
    train_locally(algorithm, problem, 2)
    extra, kept = algorithm.finish(problem)
    raw = np.mean([4 * 3.5, 4 * (3.5 - 0.2 * (4 * 3.5 + 0.4 * trust + 0.7))])
    assert kept["c"]["x"].item() == pytest.approx(raw, rel=1e-12)
    assert extra["c"]["x"].item() == pytest.approx(raw + 0.4, rel=1e-12)
    assert int(kept["round"]["last"]) == 5 + missed


@pytest.mark.parametrize("training", [PLAIN, MOMENTUM], ids=["plain", "momentum"])
@pytest.mark.parametrize("c_decay", [1.0, 0.5])
def test_a_stack_of_clients_is_trained_like_each_client_alone(training: Training, c_decay: float) -> None:
    """Tensors of a stack have a leading client axis, and numbers such as steps and learning rates are tensors [clients]."""
    n, draw = 4, torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    w, c, y, c_i = normal(3, 2), normal(3, 2), normal(n, 3, 2), normal(n, 3, 2)
    g, last, steps = normal(5, n, 3, 2), torch.tensor([1, 4, 2, 0]), torch.tensor([5, 5, 5, 0])
    lr = torch.tensor([0.1, 0.2, 0.1, 0.3], dtype=torch.float64)
    algorithm = Scaffold(c_decay=c_decay)

    def train(pick: Callable[[Tensor], Tensor]) -> tuple[list[Tensor], Tensors, Tensors]:
        memory = {"c": {"x": pick(c_i)}, "round": {"last": pick(last)}}
        problem = OneNumber(
            lambda x: x,
            {"x": pick(y)},
            {"x": w},
            {"c": {"x": c}},
            memory,
            training,
            pick(lr),
            torch.zeros_like(pick(steps)),
            6,
        )
        seen = []
        for gradient in g:
            gradients = {"x": pick(gradient).clone()}
            algorithm.correct(problem, gradients)
            seen.append(gradients["x"])
        problem.steps = pick(steps)
        extra, kept = algorithm.finish(problem)
        return seen, extra["c"], kept["c"]

    together = train(lambda value: value)
    for i in range(n):
        alone = train(lambda value, i=i: value[i])  # type: ignore[misc]
        assert all(torch.equal(stacked[i], single) for stacked, single in zip(together[0], alone[0], strict=True))
        for stacked, single in zip(together[1:], alone[1:], strict=True):
            assert torch.equal(stacked["x"][i], single["x"])


# --- the server half -------------------------------------------------------------------------------------------------------


def test_weight_modes_apply_to_models_but_not_to_variates() -> None:
    def update_of(client: int, n: int, x: float, change: float) -> Update:
        x_, c_ = (torch.tensor([value], dtype=torch.float64) for value in (x, change))
        return Update(client, n, 1, {"x": x_}, {"c": {"x": c_}})

    start: ModelState = {"x": torch.zeros(1, dtype=torch.float64)}
    members = Members(num_clients=10, total_samples=100, k=4, multiplicity={0: 1, 1: 3})
    modes: dict[WeightMode, float] = {"uniform": (2.0 + 3 * 4.0) / 4, "n_selected": (30 * 2.0 + 3 * 10 * 4.0) / 60}
    for weights, expected in modes.items():
        algorithm = Scaffold(weights=weights)
        algorithm.c = {"x": torch.tensor([0.5], dtype=torch.float64)}
        merged = algorithm.aggregate(start, iter([update_of(0, 30, 2.0, 1.0), update_of(1, 10, 4.0, 3.0)]), members)
        assert merged["x"].item() == pytest.approx(expected, rel=1e-12)
        # R5: a client that was drawn three times still has a single control variate
        assert algorithm.c["x"].item() == pytest.approx(0.5 + 2 / 10 * 2.0, rel=1e-12)


def test_server_lr_damps_the_model_but_not_the_variates() -> None:
    full, half = Scaffold(), Scaffold(server_lr=0.5)
    undamped, _ = play_rounds(full, TWO, 1, steps=(5, 5))
    damped, _ = play_rounds(half, TWO, 1, steps=(5, 5))
    assert number(damped) == pytest.approx(number(undamped) / 2, rel=1e-12)
    assert torch.equal(full.c["x"], half.c["x"])


@pytest.mark.parametrize(
    ("training", "title"),
    [
        (PLAIN, "SCAFFOLD"),
        (Training(), "SCAFFOLD+momentum (ours)"),
        (ADAM, "SCAFFOLD+Adam (ours)"),
        (Training(optimizer="adamw"), "SCAFFOLD+AdamW (ours)"),
    ],
)
def test_the_title_marks_optimizers_outside_the_paper(training: Training, title: str) -> None:
    assert Scaffold().title(training) == title


def test_the_record_has_the_title(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1, algorithm="scaffold", training={"optimizer": "adam"}), runs=tmp_path)
    assert run.meta["algorithm"] == "SCAFFOLD+Adam (ours)"


def test_the_table_of_a_comparison_has_the_title_and_a_note(tmp_path: Path) -> None:
    rows = [
        {"label": "with momentum", "algorithm": "scaffold"},
        {"label": "plain", "algorithm": "scaffold", "training": {"momentum": 0.0}},
    ]
    text = " ".join(str(fedcohort.compare(small(rounds=1, variants=rows), runs=tmp_path)).split())
    assert "SCAFFOLD+momentum (ours): 'with momentum'. The algorithm's source has no such local optimizer." in text


# --- a second implementation directly from the paper -----------------------------------------------------------------------


class ScaffoldOfThePaper:
    """Algorithm 1 of the paper on a perceptron in double precision, with explicit loops; torch computes only the derivatives."""

    def __init__(self, start: ModelState, federation: Federation, seed: int, option: str, optimizer: str) -> None:
        self.x = {name: value.clone() for name, value in start.items()}
        self.c = {name: torch.zeros_like(value) for name, value in start.items()}
        self.c_i: dict[int, Tensors] = {}
        self.federation, self.seed, self.option, self.optimizer = federation, seed, option, optimizer

    def gradient(self, at: Tensors, data: Samples) -> Tensors:
        w = {name: value.detach().requires_grad_() for name, value in at.items()}
        features = ((data.features.double() - self.federation.shift) * self.federation.scale).flatten(1)
        logits = torch.relu(features @ w["1.weight"].T + w["1.bias"]) @ w["3.weight"].T + w["3.bias"]
        loss = functional.cross_entropy(logits, data.labels)
        return dict(zip(w, torch.autograd.grad(loss, list(w.values())), strict=True))

    def train_one_round(self, t: int, cohort: list[int], *, epochs: int, size: int, lr: float) -> None:
        sum_y = {name: torch.zeros_like(value) for name, value in self.x.items()}
        sum_c = copy.deepcopy(sum_y)
        for i in cohort:
            data = self.federation.client(i)
            c_i = self.c_i.get(i, {name: torch.zeros_like(value) for name, value in self.x.items()})
            y = {name: value.clone() for name, value in self.x.items()}
            adam = torch.optim.Adam(list(y.values()), lr) if self.optimizer == "adam" else None
            seen: list[Tensors] = []
            order = rng(self.seed, "batches", t, i)
            for _ in range(epochs):
                shuffled = order.permutation(len(data))
                for start in range(0, len(data), size):
                    index = torch.from_numpy(shuffled[start : start + size])
                    seen.append(self.gradient(y, Samples(data.features[index], data.labels[index])))
                    for name in y:
                        step = seen[-1][name] - c_i[name] + self.c[name]
                        if adam is None:
                            y[name] = y[name] - lr * step
                        else:
                            y[name].grad = step
                    if adam is not None:
                        adam.step()
            for name in y:
                if self.option == "I":
                    new = self.gradient(self.x, data)[name]
                elif adam is None:
                    new = c_i[name] - self.c[name] + (self.x[name] - y[name]) / (len(seen) * lr)
                else:
                    new = torch.stack([gradients[name] for gradients in seen]).mean(0)
                sum_y[name] += y[name] - self.x[name]
                sum_c[name] += new - c_i[name]
                self.c_i.setdefault(i, {})
                self.c_i[i] = {**c_i, **self.c_i[i], name: new}
        for name in self.x:
            self.x[name] = self.x[name] + sum_y[name] / len(cohort)
            self.c[name] = self.c[name] + sum_c[name] / self.federation.num_clients


@pytest.mark.parametrize(("option", "optimizer"), slow_after(1, [("II", "sgd"), ("I", "sgd"), ("II", "adam")]))
def test_rounds_on_digits_agree_with_an_implementation_of_the_paper(option: Any, optimizer: Any) -> None:
    lr = 0.05 if optimizer == "sgd" else 0.003
    training = {
        "optimizer": optimizer, "momentum": 0.0, "lr": lr, "epochs": 2, "batch_size": 10, "precision": "float64",
    }  # fmt: skip
    with a_run_state(
        selection={"k": 4}, algorithm={"name": "scaffold", "option": option}, training=training
    ) as run_state:
        federation = run_state.engine.federation  # type: ignore[attr-defined]
        paper = ScaffoldOfThePaper(run_state.model, federation, 0, option, optimizer)
        for t in range(1, 6):
            row = play_round(run_state, t, test=False)
            paper.train_one_round(t, [client.client for client in row.clients], epochs=2, size=10, lr=lr)
        algorithm, memories = run_state.algorithm, run_state.engine.state_dict()
        model = run_state.model
    assert isinstance(algorithm, Scaffold)
    assert sorted(memories) == sorted(map(str, paper.c_i))
    assert 4 < len(memories) <= 12

    def close(actual: Tensor, expected: Tensor) -> bool:
        return bool(torch.allclose(actual, expected, rtol=1e-8, atol=1e-11))

    for name in model:
        assert close(model[name], paper.x[name]), name
        assert close(algorithm.c[name], paper.c[name]), name
        assert all(close(memories[str(i)]["c"][name], c_i[name]) for i, c_i in paper.c_i.items()), name


# --- rounds with failed clients --------------------------------------------------------------------------------------------


def variates(run_state: RunState) -> dict[int, bytes]:
    return {int(client): bits(memory["c"]) for client, memory in run_state.engine.state_dict().items()}


def test_clients_that_drop_out_keep_their_variates() -> None:
    with a_run_state(selection={"name": "all"}, algorithm="scaffold", systems={"dropout": 0.4}) as run_state:
        before = variates(run_state)
        failed_in_some_round: set[int] = set()
        for t in range(1, 5):
            row = play_round(run_state, t, test=False)
            after = variates(run_state)
            admitted = {client.client for client in row.clients if client.status == "admitted"}
            failed = {client.client for client in row.clients if client.status == "failed"}
            assert admitted
            assert all(after[client] != before.get(client) for client in admitted)
            assert all(after.get(client) == before.get(client) for client in failed)
            failed_in_some_round |= failed
            before = after
        assert len(failed_in_some_round) > 4
        assert isinstance(run_state.algorithm, Scaffold)
        check_the_mean_of_variates(run_state)


def check_the_mean_of_variates(run_state: RunState) -> None:
    """c = Σ c_i/m: exactly the admitted changes entered both sides."""
    memories = run_state.engine.state_dict()
    for name, c in run_state.algorithm.c.items():  # type: ignore[attr-defined]
        mean = sum(memory["c"][name].double() for memory in memories.values()) / 12
        assert torch.allclose(c.double(), mean, rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("where", ["model", "variate"])
def test_neither_the_model_nor_the_variate_of_a_diverged_client_is_used(where: str) -> None:
    diverged = {3, 7}
    with a_run_state(selection={"name": "all"}, algorithm="scaffold") as run_state:
        play_round(run_state, 1, test=False)
        before, train = variates(run_state), run_state.engine.train

        def poisoned(model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
            for update in train(model, t, cohort, algorithm):
                if update.client in diverged:
                    target = update.state if where == "model" else update.extra["c"]
                    next(iter(target.values())).view(-1)[0] = float("nan")
                yield update

        run_state.engine.train = poisoned  # type: ignore[method-assign]
        row = play_round(run_state, 2, test=False)
        after = variates(run_state)
        assert {client.client for client in row.clients if client.status == "diverged"} == diverged
        assert {client for client in range(12) if after[client] == before[client]} == diverged
        assert all(torch.isfinite(c).all() for c in run_state.algorithm.c.values())  # type: ignore[attr-defined]
        check_the_mean_of_variates(run_state)


def test_clients_without_weight_in_the_model_keep_their_variates(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update with weight 0 enters neither c nor c_i."""
    weigh = Scaffold.weigh
    monkeypatch.setattr(Scaffold, "weigh", lambda self, u, members: 0.0 if u.client == 3 else weigh(self, u, members))
    with a_run_state(selection={"name": "all"}, algorithm="scaffold") as run_state:
        play_round(run_state, 1, test=False)
        assert sorted(variates(run_state)) == [client for client in range(12) if client != 3]
        check_the_mean_of_variates(run_state)


def test_a_round_without_an_admitted_client_changes_no_state() -> None:
    with a_run_state(selection={"name": "all"}, algorithm="scaffold", systems={"dropout": 0.999}) as run_state:
        row = play_round(run_state, 1, test=False)
        assert row.admitted == 0
        assert run_state.algorithm.state_dict() == {"c": {}}
        assert run_state.engine.state_dict() == {}


# --- whole runs ------------------------------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {"algorithm": "scaffold", "training": {"momentum": 0.0}},
    {"algorithm": "scaffold", "training": {"optimizer": "adam", "lr": 0.005}},
    {"algorithm": {"name": "scaffold", "option": "I", "c_decay": 0.9}, "model": "cnn_a"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "adam", "option I, decay, cnn"])
def test_a_resumed_run_equals_an_uninterrupted_run(options: dict[str, Any], tmp_path: Path) -> None:
    experiment = small(rounds=5, systems={"dropout": 0.2}, **options)
    uninterrupted = fedcohort.run(experiment, runs=tmp_path / "uninterrupted")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "interrupted", progress=stop_after(3))
    assert record(fedcohort.run(experiment, runs=tmp_path / "interrupted")) == record(uninterrupted)


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "adam", "option I, decay, cnn"])
def test_runs_are_identical_for_any_number_of_threads(options: dict[str, Any], tmp_path: Path) -> None:
    records = []
    for plan, workers in (("loop", 0), ("threads", 2), ("threads", 5)):
        experiment = small(rounds=3, selection={"k": 5}, engine={"plan": plan, "workers": workers}, **options)
        records.append(record(fedcohort.run(experiment, runs=tmp_path / f"{plan}{workers}")))
    assert records[0] == records[1] == records[2]


@pytest.mark.parametrize("sampling", ["shuffled", "loss", "loss_unbiased"])
def test_option_I_is_the_gradient_over_all_samples_for_every_sampling_of_batches(sampling: Any) -> None:
    """A client's first variate is ∇F_i of the received model with every sample counted once, even if batches are reweighted."""
    algorithm, settings = Scaffold(option="I"), Training(batch_size=4, momentum=0.0, precision="float64")
    with closing(LocalEngine(small_federation(), Mlp(hidden=5), settings, algorithm, 3, workers=1)) as engine:
        start = engine.initial_model()
        [update] = engine.train(start, 1, Cohort(np.array([3]), sampling=sampling), algorithm)
        data = engine.federation.client(3)
    w = {name: value.clone().requires_grad_() for name, value in start.items()}
    hidden = torch.relu(data.features.double() @ w["1.weight"].T + w["1.bias"])
    loss = functional.cross_entropy(hidden @ w["3.weight"].T + w["3.bias"], data.labels)
    for (name, value), gradient in zip(w.items(), torch.autograd.grad(loss, list(w.values())), strict=True):
        assert torch.allclose(update.extra["c"][name], gradient, rtol=1e-9, atol=1e-13), name
        assert not torch.equal(update.state[name], value)


@pytest.mark.parametrize(("option", "passes"), [("II", 6.0), ("I", 9.0)])
def test_option_I_costs_one_more_pass_over_the_data_than_option_II(option: str, passes: float) -> None:
    """A training pass over the data counts three passes."""
    with a_run_state(algorithm={"name": "scaffold", "option": option}, training={"epochs": 2}) as run_state:
        assert {row.kind: row.passes for row in play_round(run_state, 1, test=False).ledger} == {"training": 3 * passes}


def test_from_round_2_a_client_receives_and_sends_two_models() -> None:
    model = 4 * (64 * 64 + 64 + 64 * 10 + 10)
    with a_run_state(algorithm="scaffold") as run_state:
        costs = [{row.kind: row for row in play_round(run_state, t, test=False).ledger}["training"] for t in (1, 2)]
    assert [cost.bytes_up for cost in costs] == [3 * 2 * model] * 2
    assert [cost.bytes_down for cost in costs] == [3 * model, 3 * 2 * model]


def test_variates_do_not_depend_on_the_order_of_the_cohort() -> None:
    algorithm, settings = Scaffold(), Training(batch_size=4, momentum=0.0)
    with closing(LocalEngine(small_federation(), Mlp(hidden=5), settings, algorithm, seed=3)) as engine:
        model, clients = engine.initial_model(), [6, 0, 3]
        for t in (1, 2):
            model = algorithm.aggregate(
                model, engine.train(model, t, Cohort(np.array(clients)), algorithm), members_of(clients)
            )
            engine.commit(clients)
        forth = {u.client: bits(u.extra["c"]) for u in engine.train(model, 3, Cohort(np.array(clients)), algorithm)}
        back = {
            u.client: bits(u.extra["c"]) for u in engine.train(model, 3, Cohort(np.array(clients[::-1])), algorithm)
        }
    assert forth == back
