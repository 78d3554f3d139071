"""FedNova: worked values (spec G5), effective steps measured on torch's optimizers, and whole rounds by the formula in numpy."""

import itertools
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedcohort
from fedcohort.algorithms import Members, ModelState, Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fedavgm import FedAvgM
from fedcohort.algorithms.methods.fednova import FedNova, effective_steps
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import Mlp
from fedcohort.selection import Cohort
from fedcohort.testing.base import SIZES, bits, members_of, small_federation
from tests.experiments import small
from tests.golden.test_same_bits import record
from tests.numbers.local_problems import PLAIN, number, play_rounds

MOMENTUM = Training(momentum=0.9)
HALF = Members(num_clients=2, total_samples=2, k=2)

# --- ‖a_i‖₁ ----------------------------------------------------------------------------------------------------------------


def norm(training: Training, steps: int, pull: float = 0.0, **options: Any) -> float:
    """‖a_i‖₁ with η = .1 and ημ = ``pull``."""
    return float(effective_steps(training, steps, 0.1, pull / 0.1, **options))


@pytest.mark.parametrize("as_code", [False, True])
def test_worked_norms(as_code: bool) -> None:
    assert norm(PLAIN, 7, as_code=as_code) == 7
    assert norm(MOMENTUM, 3, as_code=as_code) == pytest.approx(5.61, rel=1e-12)
    assert norm(PLAIN, 3, 0.1, as_code=as_code) == pytest.approx(2.71, rel=1e-12)


@pytest.mark.parametrize("steps", [0, 1, 2, 17, 400])
def test_norms_equal_their_closed_forms(steps: int) -> None:
    assert norm(PLAIN, steps) == steps
    momentum = sum((1 - 0.9**j) / (1 - 0.9) for j in range(1, steps + 1))
    assert norm(MOMENTUM, steps) == pytest.approx(momentum, rel=1e-12)
    assert norm(PLAIN, steps, 0.02) == pytest.approx((1 - 0.98**steps) / 0.02, rel=1e-12)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_norms_of_adam_are_numbers_of_steps(optimizer: Any) -> None:
    assert norm(Training(optimizer=optimizer), 12, 0.1) == 12


def measured_norm(steps: int, momentum: float, nesterov: bool, pull: float) -> float:
    """Σ_h |final displacement by a unit gradient in step h alone|/η with torch's SGD; the gradient includes the proximal term."""
    total, lr = 0.0, 0.1
    for h in range(steps):
        x = torch.zeros(1, dtype=torch.float64)
        optimizer = torch.optim.SGD([x], lr, momentum=momentum, nesterov=nesterov)
        for step in range(steps):
            x.grad = (pull / lr) * x.clone() + float(step == h)
            optimizer.step()
        total += abs(x.item()) / lr
    return total


@pytest.mark.parametrize(
    ("momentum", "nesterov", "pull"),
    [(0.0, False, 0.3), (0.9, False, 0.0), (0.9, False, 0.05), (0.9, False, 0.6), (0.5, True, 0.0), (0.9, True, 0.2)],
)
@pytest.mark.parametrize("steps", [1, 2, 13])
def test_norms_equal_those_measured_on_torchs_optimizers(
    momentum: float, nesterov: bool, pull: float, steps: int
) -> None:
    training = Training(momentum=momentum, nesterov=nesterov)
    assert norm(training, steps, pull) == pytest.approx(measured_norm(steps, momentum, nesterov, pull), rel=1e-10)


def test_norm_code_follows_the_recursion_of_the_authors_code() -> None:
    c = v = 0.0
    for steps in range(1, 8):
        c = 0.9 * c + 1
        v = (v + c) * (1 - 0.1) + 1
        assert norm(MOMENTUM, steps, 0.1, as_code=True) == pytest.approx(v, rel=1e-12)
    assert norm(MOMENTUM, 7, 0.1) != pytest.approx(v, rel=1e-3)


@pytest.mark.parametrize("as_code", [False, True])
@pytest.mark.parametrize(
    "training", [PLAIN, MOMENTUM, Training(momentum=0.9, nesterov=True), Training(optimizer="adam")]
)
def test_a_stack_of_clients_has_the_norms_of_each_client_alone(training: Training, as_code: bool) -> None:
    steps, lr = torch.tensor([3, 0, 12, 1]), torch.tensor([0.1, 0.1, 0.2, 0.05], dtype=torch.float64)
    for mu in (0.0, 0.7):
        stacked = effective_steps(training, steps, lr, mu, as_code=as_code)
        alone = [
            effective_steps(training, int(h), float(eta), mu, as_code=as_code) for h, eta in zip(steps, lr, strict=True)
        ]
        assert stacked.tolist() == [float(value) for value in alone]
        assert stacked.shape == (4,)
        assert all(value.shape == () for value in alone)


# --- the server ------------------------------------------------------------------------------------------------------------


def test_worked_round() -> None:
    """With gradients +1 and −1, η = .1 and H = (2, 8), FedAvg moves by +.3 and FedNova by 0."""
    pull_both_ways = [lambda x: torch.ones_like(x), lambda x: -torch.ones_like(x)]
    training = Training(momentum=0.0, lr=0.1)
    assert number(play_rounds(FedAvg(), pull_both_ways, 1, steps=(2, 8), training=training)[0]) == pytest.approx(
        0.3, abs=1e-12
    )
    assert number(play_rounds(FedNova(), pull_both_ways, 1, steps=(2, 8), training=training)[0]) == pytest.approx(
        0, abs=1e-12
    )


def test_worked_tau() -> None:
    """With gradients −1 and −1, both normalized updates are .1, so the step is .1·τ with τ = (2 + 8)/2 = 5."""
    gradients = [lambda x: -torch.ones_like(x)] * 2
    model, _ = play_rounds(FedNova(), gradients, 1, steps=(2, 8), training=Training(momentum=0.0, lr=0.1))
    assert number(model) == pytest.approx(0.5, rel=1e-12)


def test_with_a_proximal_term_tau_of_the_code_is_the_mean_number_of_steps() -> None:
    gradients, training = [lambda x: -torch.ones_like(x)] * 2, Training(momentum=0.0, lr=0.1)
    paper, _ = play_rounds(FedNova(mu=1.0), gradients, 1, steps=(2, 8), training=training)
    code, _ = play_rounds(FedNova(mu=1.0, norm="code"), gradients, 1, steps=(2, 8), training=training)
    norms = [(1 - 0.9**h) / 0.1 for h in (2, 8)]
    assert number(paper) == pytest.approx(0.1 * sum(norms) / 2, rel=1e-12)
    assert number(code) == pytest.approx(0.1 * 5, rel=1e-12)


def test_without_a_proximal_term_norms_of_paper_and_code_agree() -> None:
    gradients = [lambda x: -torch.ones_like(x), lambda x: x - 2]
    paper, code = (
        play_rounds(FedNova(norm=norm), gradients, 3, steps=(2, 8), training=MOMENTUM)[0] for norm in ("paper", "code")
    )
    assert number(code) == pytest.approx(number(paper), rel=1e-12)


def updates(*rows: tuple[int, int, float]) -> list[Update]:
    """The updates of clients 0, 1, … from rows (N_i, ‖a_i‖₁ = H_i, w_i)."""
    return [
        Update(i, n, steps, {"x": torch.tensor([x], dtype=torch.float64)}, {"effective": {"steps": torch.tensor(float(steps))}})
        for i, (n, steps, x) in enumerate(rows)
    ]  # fmt: skip


ZERO: ModelState = {"x": torch.zeros(1, dtype=torch.float64)}


def test_clients_without_a_step_have_no_weight() -> None:
    some, idle = updates((10, 3, 1.0), (30, 5, 2.0)), Update(7, 1000, 0, {"x": torch.tensor([9.0])})
    members = Members(num_clients=9, total_samples=2000, k=3)
    assert FedNova().weigh(idle, members) == 0
    with_idle = FedNova().aggregate(ZERO, iter([idle, *some]), members)
    assert torch.equal(with_idle["x"], FedNova().aggregate(ZERO, iter(some), members)["x"])
    assert FedNova().aggregate(ZERO, iter([idle]), members) is ZERO


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        # τ uses normalized weights, and the sum uses the weights of the mode: Δ/‖a‖ = (.5, .25)
        ("n_selected", (2 * 0.25 + 8 * 0.75) * (0.5 * 0.25 + 0.25 * 0.75)),
        ("uniform", 5 * 0.375),
        ("n_total_delta", (2 * 0.25 + 8 * 0.75) * (0.5 * 0.1 + 0.25 * 0.3)),
        ("scaled", (2 * 0.25 + 8 * 0.75) * (0.5 * 0.5 + 0.25 * 1.5)),
    ],
)
def test_worked_result_of_every_weight_mode(weights: Any, expected: float) -> None:
    members = Members(num_clients=10, total_samples=100, k=2)
    model = FedNova(weights=weights).aggregate(ZERO, iter(updates((10, 2, 1.0), (30, 8, 2.0))), members)
    assert number(model) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("weights", ["n_selected", "uniform", "n_total_delta", "scaled", "n_total_model"])
@pytest.mark.parametrize("server_lr", [1.0, 0.4])
def test_with_equal_norms_aggregation_equals_fedavg_exactly(weights: Any, server_lr: float) -> None:
    rows = updates((10, 6, 1.3), (30, 6, 2.7), (11, 6, -0.9))
    members = Members(num_clients=10, total_samples=100, k=3)
    options: dict[str, Any] = {"weights": weights, "server_lr": server_lr}
    nova = FedNova(**options).aggregate(ZERO, iter(rows), members)
    assert torch.equal(nova["x"], FedAvg(**options).aggregate(ZERO, iter(rows), members)["x"])


@pytest.mark.parametrize(
    "training", [{"momentum": 0.9}, {"momentum": 0.0, "precision": "float64"}, {"optimizer": "adam", "lr": 0.01}]
)
def test_with_equal_steps_a_run_is_bit_identical_to_fedavg(training: dict[str, Any], tmp_path: Path) -> None:
    """With full batches, every client makes one step per epoch."""

    def run(algorithm: str) -> dict[str, Any]:
        settings = {"batch_size": 0, "epochs": 3, "lr": 0.1, **training}
        tables = record(fedcohort.run(small(rounds=4, algorithm=algorithm, training=settings), runs=tmp_path))
        # the ledger of FedNova has one more scalar, and no coefficients, since it is no weighted mean
        return {part: tables[part] for part in ("model", "rounds", "decisions")} | {
            "clients": json.loads(tables["clients"]) | {"coefficient": None}
        }

    assert run("fednova") == run("fedavg")


def test_server_momentum_equals_that_of_fedavgm() -> None:
    nova, average = FedNova(gmf=0.9), FedAvgM(beta=0.9)
    with_fednova = with_fedavgm = ZERO
    members = Members(num_clients=3, total_samples=51, k=3)
    for x in (1.0, 0.2, -0.4, 0.0):
        rows = updates((10, 6, x), (30, 6, 2 * x), (11, 6, -x))
        with_fednova, with_fedavgm = (
            nova.aggregate(with_fednova, iter(rows), members),
            average.aggregate(with_fedavgm, iter(rows), members),
        )
        assert torch.equal(with_fednova["x"], with_fedavgm["x"])


def test_entries_that_are_not_trained_are_averaged_without_normalization() -> None:
    def update_of(client: int, steps: int, x: float, running: float) -> Update:
        state = {
            "x": torch.tensor([x], dtype=torch.float64),
            "running": torch.tensor([running], dtype=torch.float64),
            "seen": torch.tensor(steps),
        }
        return Update(client, 1, steps, state, {"effective": {"steps": torch.tensor(float(steps))}})

    start: ModelState = {**ZERO, "running": torch.ones(1, dtype=torch.float64), "seen": torch.tensor(0)}
    members = Members(num_clients=2, total_samples=2, k=2, trainable=frozenset({"x"}))
    merged = FedNova().aggregate(start, iter([update_of(0, 2, -0.2, 3.0), update_of(1, 8, 0.8, 7.0)]), members)
    assert number(merged) == pytest.approx(0, abs=1e-12)
    assert merged["running"].item() == 5.0
    assert int(merged["seen"]) == 8
    assert list(merged) == list(start)


def test_every_entry_is_averaged_over_the_clients_that_sent_it() -> None:
    """FedNova is applied to each entry separately; an entry that no client sent stays unchanged."""

    def update_of(client: int, n: int, steps: int, sent: frozenset[str] | None) -> Update:
        state = {
            name: torch.tensor([value + client], dtype=torch.float64)
            for name, value in (("x", 1.0), ("y", 4.0), ("z", 9.0))
        }
        return Update(client, n, steps, state, {"effective": {"steps": torch.tensor(float(steps))}}, sent=sent)

    start: ModelState = {name: torch.tensor([0.5], dtype=torch.float64) for name in "xyz"}
    rows = [
        update_of(0, 10, 2, frozenset({"x", "y"})),
        update_of(1, 30, 8, frozenset({"x"})),
        update_of(2, 20, 4, frozenset({"y"})),
    ]
    members = Members(num_clients=3, total_samples=60, k=3)
    merged = FedNova().aggregate(start, iter(rows), members)
    x = 0.5 + (2 * 0.25 + 8 * 0.75) * (0.5 / 2 * 0.25 + 1.5 / 8 * 0.75)
    y = 0.5 + (2 + 4 * 2) / 3 * (3.5 / 2 + 2 * 5.5 / 4) / 3
    assert [merged[name].item() for name in "xyz"] == pytest.approx([x, y, 0.5], rel=1e-12)
    equal = [
        update_of(0, 10, 3, frozenset({"x", "y"})),
        update_of(1, 30, 3, frozenset({"x"})),
        update_of(2, 20, 3, None),
    ]
    average = FedAvg().aggregate(start, iter(equal), members)
    assert bits(FedNova().aggregate(start, iter(equal), members)) == bits(average)


def fednova_in_numpy(start: ModelState, rows: list[Update], norms: list[float]) -> dict[str, np.ndarray]:
    """w + (Σ a_i‖a_i‖)·Σ a_i Δ_i/‖a_i‖."""
    n = np.array([row.num_samples for row in rows], dtype=float)
    a = n / n.sum()
    tau = float(a @ np.array(norms))
    new = {}
    for name, value in start.items():
        w = value.double().numpy()
        new[name] = w + tau * sum(
            a_i * (row.state[name].double().numpy() - w) / size for a_i, row, size in zip(a, rows, norms, strict=True)
        )
    return new


@pytest.mark.parametrize(
    ("settings", "mu"),
    [({"momentum": 0.9}, 0.0), ({"momentum": 0.0}, 0.0), ({"momentum": 0.0}, 0.4), ({"optimizer": "adam"}, 0.0)],
)
def test_rounds_of_real_training_agree_with_the_formula(settings: dict[str, Any], mu: float) -> None:
    training = Training(batch_size=4, epochs=2, lr=0.02, precision="float64", **settings)
    algorithm, clients, eta_mu = FedNova(mu=mu), [6, 0, 3, 4], 0.02 * mu
    with closing(LocalEngine(small_federation(), Mlp(hidden=5), training, algorithm, seed=3)) as engine:
        model = engine.initial_model()
        for t in (1, 2):
            rows = list(engine.train(model, t, Cohort(np.array(clients), epochs=np.array([1, 2, 3, 1])), algorithm))
            steps = [-(-SIZES[c] // 4) * e for c, e in zip(clients, (1, 2, 3, 1), strict=True)]
            assert [row.steps for row in rows] == steps
            norms = [float(h) for h in steps]
            if settings.get("momentum"):
                norms = [sum((1 - 0.9**j) / 0.1 for j in range(1, h + 1)) for h in steps]
            elif mu:
                norms = [(1 - (1 - eta_mu) ** h) / eta_mu for h in steps]
            expected = fednova_in_numpy(model, rows, norms)
            model = algorithm.aggregate(model, iter(rows), members_of(clients))
            for name, value in expected.items():
                assert np.allclose(model[name].numpy(), value, rtol=1e-10, atol=1e-13), name


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_of_updates_changes_only_rounding(order: tuple[int, ...]) -> None:
    rows = updates((10, 2, 1.3), (30, 5, 2.7), (11, 9, -0.9))
    members = Members(num_clients=3, total_samples=51, k=3)
    in_order = FedNova().aggregate(ZERO, iter(rows), members)
    assert number(FedNova().aggregate(ZERO, iter([rows[i] for i in order]), members)) == pytest.approx(
        number(in_order), rel=1e-12
    )


def test_the_title_names_an_optimizer_outside_the_paper() -> None:
    assert FedNova().title(MOMENTUM) == "FedNova"
    assert FedNova().title(Training(optimizer="adam")) == "FedNova+Adam (ours)"
