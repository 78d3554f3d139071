"""SCAFFOLD: worked values (spec G6), a second implementation straight from the paper, and what happens to clients that fail."""

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
from fedcohort.algorithms import Members, ModelState, Tensors, Update
from fedcohort.algorithms.fedavg import FedAvg
from fedcohort.algorithms.local import Training
from fedcohort.algorithms.scaffold import Scaffold
from fedcohort.core.streams import rng
from fedcohort.engines.local import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import Mlp
from fedcohort.rounds import Game, play_round
from fedcohort.selection import Cohort
from fedcohort.testing.base import bits, everybody, small_federation
from tests.experiments import small
from tests.games import a_game
from tests.golden.test_same_bits import record
from tests.numbers.local_problems import PLAIN, Gradient, OneNumber, learn, number, play
from tests.resume.test_resume import stop_after

TWO: list[Gradient] = [lambda x: x - 1, lambda x: 4 * (x + 3)]
"""F₁ = ½(x − 1)², F₂ = 2(x + 3)²: the optimum of their sum is −2.2."""
MOMENTUM, ADAM = Training(momentum=0.9, lr=0.02), Training(optimizer="adam", lr=0.02)

# --- the worked example ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["II", "I"])
def test_it_finds_the_optimum_where_fedavg_does_not(option: Any) -> None:
    assert number(play(Scaffold(option=option), TWO, 500, steps=(5, 5))[0]) == pytest.approx(-2.2, abs=1e-9)
    assert number(play(FedAvg(), TWO, 500, steps=(5, 5))[0]) == pytest.approx(-1.391579, abs=1e-6)


def test_it_finds_the_optimum_with_momentum_too() -> None:
    assert number(play(Scaffold(), TWO, 800, steps=(5, 5), training=MOMENTUM)[0]) == pytest.approx(-2.2, abs=1e-8)


def test_it_finds_the_optimum_from_half_of_the_clients_a_round() -> None:
    model, _ = play(Scaffold(), TWO, 1500, steps=(5, 5), cohort=lambda t: [t % 2])
    assert number(model) == pytest.approx(-2.2, abs=1e-6)


@pytest.mark.parametrize("training", [PLAIN, MOMENTUM, ADAM], ids=["plain", "momentum", "adam"])
def test_the_first_round_is_fedavg_with_equal_weights(training: Training) -> None:
    first, _ = play(Scaffold(), TWO, 1, steps=(5, 2), training=training)
    assert torch.equal(first["x"], play(FedAvg(weights="uniform"), TWO, 1, steps=(5, 2), training=training)[0]["x"])


@pytest.mark.parametrize("training", [PLAIN, MOMENTUM, ADAM], ids=["plain", "momentum", "adam"])
@pytest.mark.parametrize("option", ["II", "I"])
@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_with_everybody_the_servers_variate_is_the_mean_of_the_clients(
    training: Training, option: Any, rounds: int
) -> None:
    algorithm = Scaffold(option=option)
    _, memories = play(algorithm, TWO, rounds, steps=(5, 3), training=training)
    mean = sum(memory["c"]["x"] for memory in memories.values()) / 2
    assert torch.allclose(algorithm.c["x"], torch.as_tensor(mean), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("c_decay", [1.0, 0.5])
def test_it_is_so_with_some_clients_a_round_as_well(c_decay: float) -> None:
    """Those never selected have 0."""
    five: list[Gradient] = [lambda x, i=i: (1 + i) * (x - i) for i in range(5)]  # type: ignore[misc]
    algorithm = Scaffold(c_decay=c_decay)
    _, memories = play(algorithm, five, 9, steps=[3] * 5, cohort=lambda t: [t % 4, (t + 1) % 4])
    assert memories[4] == {}
    mean = sum((memories[i]["c"]["x"] for i in range(4)), torch.zeros(1)) / 5
    assert torch.allclose(algorithm.c["x"], mean, rtol=1e-12, atol=1e-14)


# --- the client half -------------------------------------------------------------------------------------------------------


def a_problem(training: Training = PLAIN, **more: Any) -> OneNumber:
    """F₂ from x = .5 with c = .7 and c_i = −.4."""
    w = torch.tensor([0.5], dtype=torch.float64)
    given = {"received": {"c": {"x": torch.full_like(w, 0.7)}}, "memory": {"c": {"x": torch.full_like(w, -0.4)}}}
    return OneNumber(TWO[1], {"x": w.clone()}, {"x": w}, **{**given, "training": training, "lr": training.lr, **more})


def renewed(algorithm: Scaffold, problem: OneNumber, steps: int) -> float:
    learn(algorithm, problem, steps)
    _, memory = algorithm.finish(problem)
    return memory["c"]["x"].item()


@pytest.mark.parametrize("lr", [0.2, 0.003])
def test_option_II_is_the_mean_of_the_raw_gradients(lr: float) -> None:
    x, gradients = 0.5, []
    for _ in range(4):
        gradients.append(4 * (x + 3))
        x -= lr * (gradients[-1] - (-0.4) + 0.7)
    problem = a_problem(Training(momentum=0.0, lr=lr))
    assert renewed(Scaffold(), problem, 4) == pytest.approx(np.mean(gradients), rel=1e-12)
    assert problem.parameters["x"].item() == pytest.approx(x, rel=1e-14)


def test_option_I_is_the_gradient_of_the_received_model() -> None:
    for training in (PLAIN, MOMENTUM, ADAM):
        assert renewed(Scaffold(option="I"), a_problem(training), 4) == 4 * 3.5


@pytest.mark.parametrize("name", ["momentum", "nesterov", "adam", "adamw"])
def test_other_optimisers_see_the_corrected_gradient_and_average_the_raw_ones(name: str) -> None:
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
    assert renewed(Scaffold(), problem, 6) == pytest.approx(np.mean(gradients), rel=1e-12)
    assert problem.parameters["x"].item() == pytest.approx(x.item(), rel=1e-12)


@pytest.mark.parametrize("training", [PLAIN, ADAM], ids=["plain", "adam"])
@pytest.mark.parametrize("option", ["II", "I"])
@pytest.mark.parametrize("trouble", ["no step", "learning rate 0"])
def test_a_client_without_a_step_keeps_its_variate(training: Training, option: Any, trouble: str) -> None:
    problem = a_problem(training, lr=0.0 if trouble == "learning rate 0" else 0.1)
    algorithm = Scaffold(option=option)
    learn(algorithm, problem, 0 if trouble == "no step" else 3)
    extra, memory = algorithm.finish(problem)
    assert memory["c"]["x"].item() == -0.4
    assert extra["c"]["x"].item() == 0.0


@pytest.mark.parametrize(("missed", "trust"), [(0, 1.0), (1, 0.5), (3, 0.125)])
def test_a_stale_variate_is_trusted_less(missed: int, trust: float) -> None:
    memory = {"c": {"x": torch.tensor([-0.4], dtype=torch.float64)}, "round": {"last": torch.tensor(4)}}
    problem, gradients = a_problem(memory=memory, t=5 + missed), {"x": torch.ones(1, dtype=torch.float64)}
    algorithm = Scaffold(c_decay=0.5)
    algorithm.correct(problem, gradients)
    assert gradients["x"].item() == pytest.approx(1 + 0.4 * trust + 0.7, rel=1e-12)
    learn(algorithm, problem, 2)
    extra, kept = algorithm.finish(problem)
    raw = np.mean([4 * 3.5, 4 * (3.5 - 0.2 * (4 * 3.5 + 0.4 * trust + 0.7))])
    assert kept["c"]["x"].item() == pytest.approx(raw, rel=1e-12)
    assert extra["c"]["x"].item() == pytest.approx(raw + 0.4, rel=1e-12)
    assert int(kept["round"]["last"]) == 5 + missed


@pytest.mark.parametrize("training", [PLAIN, MOMENTUM], ids=["plain", "momentum"])
@pytest.mark.parametrize("c_decay", [1.0, 0.5])
def test_a_stack_of_clients_is_like_each_of_them(training: Training, c_decay: float) -> None:
    """Client axis first on every tensor; numbers of clients as [clients]; nothing decided in Python per client."""
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
        assert all(torch.equal(stacked[i], one) for stacked, one in zip(together[0], alone[0], strict=True))
        for stacked, one in zip(together[1:], alone[1:], strict=True):
            assert torch.equal(stacked["x"][i], one["x"])  # type: ignore[index]


# --- the server half -------------------------------------------------------------------------------------------------------


def test_models_may_be_weighted_changes_never_are() -> None:
    def one(client: int, n: int, x: float, change: float) -> Update:
        x_, c_ = (torch.tensor([value], dtype=torch.float64) for value in (x, change))
        return Update(client, n, 1, {"x": x_}, {"c": {"x": c_}})

    start: ModelState = {"x": torch.zeros(1, dtype=torch.float64)}
    members = Members(num_clients=10, total_samples=100, k=4, multiplicity={0: 1, 1: 3})
    for weights, expected in (("uniform", (2.0 + 3 * 4.0) / 4), ("n_selected", (30 * 2.0 + 3 * 10 * 4.0) / 60)):
        algorithm = Scaffold(weights=weights)
        algorithm.c = {"x": torch.tensor([0.5], dtype=torch.float64)}
        merged = algorithm.aggregate(start, iter([one(0, 30, 2.0, 1.0), one(1, 10, 4.0, 3.0)]), members)
        assert merged["x"].item() == pytest.approx(expected, rel=1e-12)
        # R5: who was drawn three times has one control variate all the same
        assert algorithm.c["x"].item() == pytest.approx(0.5 + 2 / 10 * 2.0, rel=1e-12)


def test_server_lr_damps_the_model_and_leaves_the_variates() -> None:
    full, half = Scaffold(), Scaffold(server_lr=0.5)
    one, _ = play(full, TWO, 1, steps=(5, 5))
    other, _ = play(half, TWO, 1, steps=(5, 5))
    assert number(other) == pytest.approx(number(one) / 2, rel=1e-12)
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
def test_runs_with_other_optimisers_are_called_ours(training: Training, title: str) -> None:
    assert Scaffold().title(training) == title


def test_the_record_says_so(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1, algorithm="scaffold", training={"optimizer": "adam"}), runs=tmp_path)
    assert run.meta["algorithm"] == "SCAFFOLD+Adam (ours)"


def test_so_does_the_table_of_a_comparison(tmp_path: Path) -> None:
    rows = [
        {"label": "with momentum", "algorithm": "scaffold"},
        {"label": "plain", "algorithm": "scaffold", "training": {"momentum": 0.0}},
    ]
    found = " ".join(str(fedcohort.compare(small(rounds=1, variants=rows), runs=tmp_path)).split())
    assert "SCAFFOLD+momentum (ours): 'with momentum'. The algorithm's source has no such local optimiser." in found


# --- straight from the paper, a second time --------------------------------------------------------------------------------


class Paper:
    """Algorithm 1 of the paper on a perceptron, in double precision: dictionaries, explicit loops, torch for derivatives only."""

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

    def communicate(self, t: int, cohort: list[int], *, epochs: int, size: int, lr: float) -> None:
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


@pytest.mark.parametrize(("option", "optimizer"), [("II", "sgd"), ("I", "sgd"), ("II", "adam")])
def test_agrees_with_the_paper_over_rounds_on_digits(option: Any, optimizer: Any) -> None:
    lr = 0.05 if optimizer == "sgd" else 0.003
    training = {
        "optimizer": optimizer, "momentum": 0.0, "lr": lr, "epochs": 2, "batch_size": 10, "precision": "float64",
    }  # fmt: skip
    with a_game(selection={"k": 4}, algorithm={"name": "scaffold", "option": option}, training=training) as game:
        federation = game.engine.federation  # type: ignore[attr-defined]
        paper = Paper(game.model, federation, 0, option, optimizer)
        for t in range(1, 6):
            row = play_round(game, t, test=False)
            paper.communicate(t, [client.client for client in row.clients], epochs=2, size=10, lr=lr)
        algorithm, memories = game.algorithm, game.engine.state_dict()
        model = game.model
    assert isinstance(algorithm, Scaffold)
    assert sorted(memories) == sorted(map(str, paper.c_i))
    assert 4 < len(memories) <= 12

    def near(found: Tensor, expected: Tensor) -> bool:
        return bool(torch.allclose(found, expected, rtol=1e-8, atol=1e-11))

    for name in model:
        assert near(model[name], paper.x[name]), name
        assert near(algorithm.c[name], paper.c[name]), name
        assert all(near(memories[str(i)]["c"][name], c_i[name]) for i, c_i in paper.c_i.items()), name


# --- rounds in which something goes wrong ----------------------------------------------------------------------------------


def variates(game: Game) -> dict[int, bytes]:
    return {int(client): bits(memory["c"]) for client, memory in game.engine.state_dict().items()}


def test_who_drops_out_keeps_the_old_variate() -> None:
    with a_game(selection={"name": "all"}, algorithm="scaffold", systems={"dropout": 0.4}) as game:
        before = variates(game)
        everybody_failed_once: set[int] = set()
        for t in range(1, 5):
            row = play_round(game, t, test=False)
            after = variates(game)
            admitted = {client.client for client in row.clients if client.status == "admitted"}
            failed = {client.client for client in row.clients if client.status == "failed"}
            assert admitted
            assert all(after[client] != before.get(client) for client in admitted)
            assert all(after.get(client) == before.get(client) for client in failed)
            everybody_failed_once |= failed
            before = after
        assert len(everybody_failed_once) > 4
        assert isinstance(game.algorithm, Scaffold)
        _check_the_mean(game)


def _check_the_mean(game: Game) -> None:
    """c = Σ c_i/m: whatever was admitted entered both, and nothing else."""
    memories = game.engine.state_dict()
    for name, c in game.algorithm.c.items():  # type: ignore[attr-defined]
        mean = sum(memory["c"][name].double() for memory in memories.values()) / 12
        assert torch.allclose(c.double(), mean, rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("where", ["model", "variate"])
def test_of_a_diverged_client_neither_model_nor_variate_is_used(where: str) -> None:
    ill = {3, 7}
    with a_game(selection={"name": "all"}, algorithm="scaffold") as game:
        play_round(game, 1, test=False)
        before, train = variates(game), game.engine.train

        def poisoned(*args: Any) -> Iterator[Update]:
            for update in train(*args):
                if update.client in ill:
                    target = update.state if where == "model" else update.extra["c"]
                    next(iter(target.values())).view(-1)[0] = float("nan")
                yield update

        game.engine.train = poisoned  # type: ignore[method-assign]
        row = play_round(game, 2, test=False)
        after = variates(game)
        assert {client.client for client in row.clients if client.status == "diverged"} == ill
        assert {client for client in range(12) if after[client] == before[client]} == ill
        assert all(torch.isfinite(c).all() for c in game.algorithm.c.values())  # type: ignore[attr-defined]
        _check_the_mean(game)


def test_who_has_no_weight_in_the_model_keeps_the_old_variate(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out of the merge is left out of both, c and c_i."""
    weigh = Scaffold.weigh
    monkeypatch.setattr(Scaffold, "weigh", lambda self, u, members: 0.0 if u.client == 3 else weigh(self, u, members))
    with a_game(selection={"name": "all"}, algorithm="scaffold") as game:
        play_round(game, 1, test=False)
        assert sorted(variates(game)) == [client for client in range(12) if client != 3]
        _check_the_mean(game)


def test_a_round_with_nobody_admitted_changes_nothing() -> None:
    with a_game(selection={"name": "all"}, algorithm="scaffold", systems={"dropout": 0.999}) as game:
        row = play_round(game, 1, test=False)
        assert row.admitted == 0
        assert game.algorithm.state_dict() == {"c": {}}
        assert game.engine.state_dict() == {}


# --- whole runs ------------------------------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {"algorithm": "scaffold", "training": {"momentum": 0.0}},
    {"algorithm": "scaffold", "training": {"optimizer": "adam", "lr": 0.005}},
    {"algorithm": {"name": "scaffold", "option": "I", "c_decay": 0.9}, "model": "cnn_a"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "adam", "option I, decay, cnn"])
def test_resumed_equals_straight(options: dict[str, Any], tmp_path: Path) -> None:
    experiment = small(rounds=5, systems={"dropout": 0.2}, **options)
    straight = fedcohort.run(experiment, runs=tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "broken", progress=stop_after(3))
    assert record(fedcohort.run(experiment, runs=tmp_path / "broken")) == record(straight)


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "adam", "option I, decay, cnn"])
def test_the_number_of_threads_does_not_matter(options: dict[str, Any], tmp_path: Path) -> None:
    records = []
    for plan, workers in (("loop", 0), ("threads", 2), ("threads", 5)):
        experiment = small(rounds=3, selection={"k": 5}, engine={"plan": plan, "workers": workers}, **options)
        records.append(record(fedcohort.run(experiment, runs=tmp_path / f"{plan}{workers}")))
    assert records[0] == records[1] == records[2]


@pytest.mark.parametrize("sampling", ["shuffled", "loss", "loss_unbiased"])
def test_option_I_is_the_gradient_over_all_samples_however_batches_are_drawn(sampling: Any) -> None:
    """A client's first variate is ∇F_i of the received model with every sample counted once, also where batches are reweighted."""
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
def test_option_I_is_one_more_pass_over_the_data(option: str, passes: float) -> None:
    """Of both directions, which counts three."""
    with a_game(algorithm={"name": "scaffold", "option": option}, training={"epochs": 2}) as game:
        assert {row.kind: row.passes for row in play_round(game, 1, test=False).ledger} == {"training": 3 * passes}


def test_both_ways_cost_two_models_once_there_are_variates() -> None:
    model = 4 * (64 * 64 + 64 + 64 * 10 + 10)
    with a_game(algorithm="scaffold") as game:
        costs = [{row.kind: row for row in play_round(game, t, test=False).ledger}["training"] for t in (1, 2)]
    assert [cost.bytes_up for cost in costs] == [3 * 2 * model] * 2
    assert [cost.bytes_down for cost in costs] == [3 * model, 3 * 2 * model]


def test_one_round_on_real_steps_does_not_depend_on_where_a_client_stands() -> None:
    algorithm, settings = Scaffold(), Training(batch_size=4, momentum=0.0)
    with closing(LocalEngine(small_federation(), Mlp(hidden=5), settings, algorithm, seed=3)) as engine:
        model, clients = engine.initial_model(), [6, 0, 3]
        for t in (1, 2):
            model = algorithm.aggregate(
                model, engine.train(model, t, Cohort(np.array(clients)), algorithm), everybody(clients)
            )
            engine.commit(clients)
        forth = {u.client: bits(u.extra["c"]) for u in engine.train(model, 3, Cohort(np.array(clients)), algorithm)}
        back = {
            u.client: bits(u.extra["c"]) for u in engine.train(model, 3, Cohort(np.array(clients[::-1])), algorithm)
        }
    assert forth == back
