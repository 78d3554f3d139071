"""Server optimizers: worked values (spec G8), torch's optimizers on the same differences, and Flower's strategies on the same updates.

The results of Flower are stored here, computed with flwr 1.41.0; if Flower is installed, a test recomputes them.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedcohort
from fedcohort.algorithms import ALGORITHMS, Algorithm, Members, ModelState, Update
from fedcohort.algorithms.methods.fedadagrad import FedAdagrad
from fedcohort.algorithms.methods.fedadam import FedAdam
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fedavgm import FedAvgM
from fedcohort.algorithms.methods.fedprox import FedProx
from fedcohort.algorithms.methods.fedyogi import FedYogi
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.rounds import play_round
from fedcohort.testing.base import bits
from tests.experiments import small
from tests.golden.test_same_bits import record
from tests.resume.test_resume import stop_after
from tests.run_states import a_run_state

OPTIMIZERS = ["fedavgm", "fedadagrad", "fedadam", "fedyogi"]
ALONE = Members(num_clients=1, total_samples=1, k=1)


def model(*values: float, dtype: torch.dtype = torch.float64) -> ModelState:
    return {"w": torch.tensor(values, dtype=dtype)}


def after_rounds(algorithm: Algorithm, start: ModelState, *averages: ModelState) -> ModelState:
    """The model after one round per entry of ``averages``, the average of the clients' models in that round."""
    for average in averages:
        start = algorithm.aggregate(start, iter([Update(0, 1, 1, average)]), ALONE)
    return start


def named(name: str, **values: Any) -> Algorithm:
    algorithm: Algorithm = make(ALGORITHMS.find(name, "algorithm.name"), values, "algorithm")
    return algorithm


# --- worked values ---------------------------------------------------------------------------------------------------------

START, AVERAGE = model(1, 2), model(0.8, 2.4)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (FedAdam(server_lr=0.1), [0.904874, 2.097532]),
        (FedYogi(server_lr=0.1), [0.904875, 2.097531]),
        # u = ±(.02, .04), v = 1e-6 + (.04, .16)
        (FedAdagrad(server_lr=0.1), [1 - 0.002 / (0.040001**0.5 + 1e-3), 2 + 0.004 / (0.160001**0.5 + 1e-3)]),
        (FedAvgM(), [0.8, 2.4]),
    ],
)
def test_worked_first_round(algorithm: Algorithm, expected: list[float]) -> None:
    assert after_rounds(algorithm, START, AVERAGE)["w"].tolist() == pytest.approx(expected, abs=5e-7)


def test_worked_second_round_of_fedavgm() -> None:
    assert after_rounds(FedAvgM(), START, AVERAGE, AVERAGE)["w"].tolist() == pytest.approx([0.62, 2.76], rel=1e-12)


def test_default_server_lrs_are_those_of_flower() -> None:
    assert [named(name).server_lr for name in OPTIMIZERS] == [1.0, 0.1, 0.1, 0.01]


def test_server_lr_above_1_is_valid_only_for_server_optimizers() -> None:
    assert after_rounds(FedAvgM(server_lr=1.5, beta=0.0), START, AVERAGE)["w"].tolist() == pytest.approx([0.7, 2.6])
    with pytest.raises(UsageError, match=r"algorithm.server_lr = 1.5"):
        named("fedavg", server_lr=1.5)
    with pytest.raises(UsageError, match=r"algorithm.server_lr = 0.0"):
        named("fedadam", server_lr=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_momentum_fedavgm_equals_fedavg_or_damped_fedavg(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(2)
    start, *averages = (model(*torch.randn(500, generator=draw, dtype=dtype).tolist(), dtype=dtype) for _ in range(4))
    average = after_rounds(FedAvg(), start, *averages)
    same = after_rounds(FedAvgM(beta=0.0), start, *averages)["w"]
    assert torch.equal(same, average["w"]) if dtype == torch.float32 else torch.allclose(same, average["w"], rtol=1e-14)
    damped, other = (
        after_rounds(FedAvg(server_lr=0.3), start, *averages),
        after_rounds(FedAvgM(beta=0.0, server_lr=0.3), start, *averages),
    )
    assert torch.allclose(other["w"], damped["w"], rtol=1e-6 if dtype == torch.float32 else 1e-14)


# --- torch's optimizers on −Δ ----------------------------------------------------------------------------------------------


def by_torch_optimizer(
    make_optimizer: Callable[[list[Tensor]], torch.optim.Optimizer], start: Tensor, averages: list[Tensor]
) -> Tensor:
    x = start.clone()
    optimizer = make_optimizer([x])
    for average in averages:
        x.grad = x - average
        optimizer.step()
    return x


WITH_TORCH_OPTIMIZERS: dict[str, tuple[Algorithm, Callable[[list[Tensor]], torch.optim.Optimizer]]] = {
    "fedavgm": (FedAvgM(beta=0.7, server_lr=0.4), lambda p: torch.optim.SGD(p, 0.4, momentum=0.7)),
    "fedadagrad": (
        FedAdagrad(beta_1=0.0, server_lr=0.2, tau=1e-2),
        lambda p: torch.optim.Adagrad(p, 0.2, initial_accumulator_value=1e-4, eps=1e-2),
    ),
    "fedadam": (
        FedAdam(bias_correction=True, server_lr=0.2, beta_1=0.8, beta_2=0.95, tau=1e-14),
        lambda p: torch.optim.Adam(p, 0.2, betas=(0.8, 0.95), eps=1e-14),
    ),
}


@pytest.mark.parametrize("name", WITH_TORCH_OPTIMIZERS)
def test_server_optimizers_agree_with_torchs_optimizers(name: str) -> None:
    draw = torch.Generator().manual_seed(3)
    start, *averages = (torch.randn(50, generator=draw, dtype=torch.float64) for _ in range(9))
    algorithm, make_optimizer = WITH_TORCH_OPTIMIZERS[name]
    expected = by_torch_optimizer(make_optimizer, start, averages)
    result = after_rounds(algorithm, {"w": start}, *({"w": average} for average in averages))["w"]
    assert torch.allclose(result, expected, rtol=1e-11, atol=1e-12)


def test_fedyogi_follows_the_published_rule() -> None:
    draw = np.random.default_rng(4)
    w, averages = draw.normal(size=20), draw.normal(size=(8, 20))
    result = after_rounds(FedYogi(), {"w": torch.tensor(w)}, *({"w": torch.tensor(average)} for average in averages))[
        "w"
    ]
    u, v = np.zeros(20), np.full(20, 1e-6)
    for average in averages:
        for i in range(20):
            delta = average[i] - w[i]
            u[i] = 0.9 * u[i] + 0.1 * delta
            v[i] -= 0.01 * delta**2 * math.copysign(1, v[i] - delta**2)
            w[i] += 0.01 * u[i] / (math.sqrt(v[i]) + 1e-3)
    assert np.allclose(result.numpy(), w, rtol=1e-12)


# --- Flower on the same updates --------------------------------------------------------------------------------------------

SIZES = (20, 35, 11)
FIRST_MODEL = {"a": np.array([[1.0, -2.0], [0.5, 0.0]]), "b": np.array([0.1, -0.3, 3.0])}
ROUNDS = 4
FLOWER: dict[str, list[list[float]]] = {
    "FedAvg": [
        [0.415496448087, 0.324745240759, 1.20169874787, 1.63745115452, 1.61792259255, 1.46822669929, 0.694779597244],
        [
            -1.42299481239,
            -0.37609570353,
            -0.531070768225,
            0.337046913991,
            0.294164786874,
            -0.0228167756009,
            -0.714525205507,
        ],
        [0.0758361187622, 0.749142336217, 0.342413658237, 1.67518600698, 1.5993871093, 1.06750161289, 0.719969586923],
        [
            -0.561523602286,
            -1.02231584281,
            -1.38985781387,
            0.326094924576,
            0.208144944428,
            -0.564454558662,
            -0.711003772162,
        ],
    ],
    "FedAvgM": [
        [
            0.707748224043,
            -0.837627379621,
            0.850849373937,
            0.818725577258,
            0.858961296276,
            0.584113349647,
            1.84738979862,
        ],
        [-0.591424714941, 0.323036554728, 0.440568802005, 1.23286670743, 1.1837320786, 0.987938966741, -0.355655864545],
        [-1.29713264928, 1.46462059295, 0.0632667725758, 1.78533926134, 1.6513762198, 1.35078078349, -1.58027966934],
        [-1.49389447325, 1.13441960565, -0.965137144193, 1.49769513609, 1.30387589508, 0.683436565815, -2.12534076459],
    ],
    "FedAdagrad": [
        [
            0.901682075737,
            -1.90042831226,
            0.598594911115,
            0.0993930017304,
            0.199345516583,
            -0.200562357994,
            2.90043192432,
        ],
        [
            0.805103552646,
            -1.84579143286,
            0.514282647577,
            0.113669876356,
            0.205539287134,
            -0.190616534487,
            2.81631265013,
        ],
        [
            0.776112755081,
            -1.77773394624,
            0.501560275006,
            0.182004714757,
            0.272778093757,
            -0.133099991062,
            2.77247888617,
        ],
        [
            0.729181825036,
            -1.75830026864,
            0.420331877323,
            0.188297815746,
            0.269661731461,
            -0.152445693208,
            2.71362210908,
        ],
    ],
    "FedAdam": [
        [
            0.901682075737,
            -1.90042831226,
            0.598594911115,
            0.0993930017304,
            0.199345516583,
            -0.200562357994,
            2.90043192432,
        ],
        [
            0.813724020994,
            -1.80384582202,
            0.570953305125,
            0.176098547897,
            0.270553111598,
            -0.126699216608,
            2.80199036829,
        ],
        [
            0.729886854306,
            -1.70579687842,
            0.539091403939,
            0.262748758051,
            0.353855709567,
            -0.0437576843002,
            2.70558620502,
        ],
        [
            0.64225699544,
            -1.61625399884,
            0.476892867628,
            0.335505212728,
            0.417888538828,
            0.00864168343948,
            2.60765919684,
        ],
    ],
    "FedYogi": [
        [
            0.950841037868,
            -1.95021415613,
            0.549297455558,
            0.0496965008652,
            0.149672758291,
            -0.250281178997,
            2.95021596216,
        ],
        [0.891773843452, -1.8851505332, 0.532011074485, 0.102344777722, 0.199330640201, -0.199554067392, 2.88408541394],
        [0.825569060534, -1.80828284891, 0.509393037995, 0.17103452817, 0.265989850119, -0.133468781999, 2.80852589611],
        [
            0.749461523581,
            -1.73052056481,
            0.456783723966,
            0.236377749168,
            0.324608885662,
            -0.0847325941379,
            2.72414777275,
        ],
    ],
}
"""The model after each round, by flwr 1.41.0 with the settings of :data:`SETTINGS`."""
FLOWER["FedProx"] = FLOWER["FedAvg"]  # its server part equals that of FedAvg
SETTINGS: dict[str, dict[str, float]] = {
    "FedAvg": {},
    "FedProx": {"proximal_mu": 0.1},
    "FedAvgM": {"server_learning_rate": 0.5, "server_momentum": 0.8},
    "FedAdagrad": {"eta": 0.1, "tau": 1e-2},
    "FedAdam": {"eta": 0.1, "tau": 1e-3},
    "FedYogi": {"eta": 0.05, "tau": 1e-3},
}


def client_results(t: int) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """(N_i, w_i) of the clients in round ``t``, independent of the current model."""
    for i, size in enumerate(SIZES):
        shift = np.sin(3.0 * t + 5.0 * i)
        yield size, {name: np.cos(value * (t + i)) + shift for name, value in FIRST_MODEL.items()}


def rounds_of_fedcohort(algorithm: Algorithm) -> list[list[float]]:
    w: ModelState = {name: torch.tensor(value) for name, value in FIRST_MODEL.items()}
    members = Members(num_clients=5, total_samples=100, k=3)
    rounds = []
    for t in range(1, ROUNDS + 1):
        updates = [
            Update(i, size, 1, {name: torch.from_numpy(value) for name, value in state.items()})
            for i, (size, state) in enumerate(client_results(t))
        ]
        w = algorithm.aggregate(w, iter(updates), members)
        rounds.append([x for value in w.values() for x in value.flatten().tolist()])
    return rounds


def rounds_of_flower(strategy: Any) -> list[list[float]]:
    app = pytest.importorskip("flwr.app", reason="Flower is not installed")
    arrays, rounds = {name: app.Array(value) for name, value in FIRST_MODEL.items()}, []
    plain = type(strategy).__name__ in ("FedAvg", "FedProx", "FedAvgM")
    for t in range(1, ROUNDS + 1):
        # normally set by configure_train, which needs a network of nodes
        strategy.current_arrays = app.ArrayRecord(arrays) if plain else {name: a.numpy() for name, a in arrays.items()}
        # only the fields of a message that aggregate_train reads; real messages need a running federation
        replies = [
            SimpleNamespace(
                has_error=lambda: False,
                content=app.RecordDict(
                    {
                        "arrays": app.ArrayRecord({name: app.Array(value) for name, value in state.items()}),
                        "metrics": app.MetricRecord({"num-examples": size}),
                    }
                ),
            )
            for size, state in client_results(t)
        ]
        # FedAdam corrects with the exponent server_round + 1
        merged, _ = strategy.aggregate_train(t - 1, replies)
        arrays = dict(merged.items())
        rounds.append([float(x) for array in arrays.values() for x in array.numpy().flatten()])
    return rounds


def starting_at_zero(algorithm: Any, *states: str) -> Algorithm:
    """Set these states to 0, because Flower starts at v = 0 instead of τ²."""
    for name in states:
        setattr(
            algorithm, name, {key: torch.zeros(value.shape, dtype=torch.float64) for key, value in FIRST_MODEL.items()}
        )
    return algorithm


def equivalent_of(name: str) -> Algorithm:
    match name:
        case "FedAvgM":
            return FedAvgM(server_lr=0.5, beta=0.8)
        case "FedAdagrad":
            return starting_at_zero(FedAdagrad(tau=1e-2, beta_1=0.0), "v")
        case "FedAdam":
            return starting_at_zero(FedAdam(bias_correction=True), "v")
        case "FedYogi":
            return starting_at_zero(FedYogi(server_lr=0.05), "v")
    return FedProx(mu=0.1) if name == "FedProx" else FedAvg()


@pytest.mark.parametrize("name", SETTINGS)
def test_rounds_agree_with_the_results_of_flower(name: str) -> None:
    assert np.allclose(rounds_of_fedcohort(equivalent_of(name)), FLOWER[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_installed_flower_gives_the_stored_results(name: str) -> None:
    strategies = pytest.importorskip("flwr.serverapp.strategy", reason="Flower is not installed")
    assert np.allclose(
        rounds_of_flower(getattr(strategies, name)(**SETTINGS[name])), FLOWER[name], rtol=1e-10, atol=1e-12
    )


# --- entries that are not optimized, and rounds without updates ------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_batch_norm_statistics_are_averaged_without_an_optimizer_step(name: str) -> None:
    def state(w: float, running: float, seen: int) -> ModelState:
        return {**model(w), "running": torch.tensor([running], dtype=torch.float64), "seen": torch.tensor(seen)}

    members = Members(num_clients=2, total_samples=4, k=2, trainable=frozenset({"w"}))
    updates = [Update(0, 1, 1, state(1.0, 4.0, 3)), Update(1, 3, 1, state(3.0, 8.0, 5))]
    algorithm, start = named(name), state(0.0, 1.0, 0)
    merged = algorithm.aggregate(start, iter(updates), members)
    assert (merged["running"].item(), int(merged["seen"]), merged["seen"].dtype) == (7.0, 5, torch.int64)
    assert merged["w"].item() not in (0.0, 2.5) or name == "fedavgm"
    tensors = [group for group in algorithm.state_dict().values() if isinstance(group, dict)]
    assert tensors
    assert all(list(group) == ["w"] for group in tensors)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_has_one_entry_for_each_trainable_parameter(name: str) -> None:
    """In a round of a real run."""
    with a_run_state(algorithm=name) as run_state:
        play_round(run_state, 1, test=False)
        assert set(run_state.algorithm.v) == run_state.engine.trainable  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_round_without_updates_changes_neither_model_nor_state(name: str) -> None:
    algorithm = named(name)
    w = after_rounds(algorithm, START, AVERAGE)
    before = bits({"": algorithm.state_dict()})
    assert algorithm.aggregate(w, iter(()), ALONE) is w
    assert bits({"": algorithm.state_dict()}) == before
    after_rounds(algorithm, w, AVERAGE)
    assert bits({"": algorithm.state_dict()}) != before


@pytest.mark.parametrize("weights", ["uniform", "n_total_delta", "scaled"])
def test_the_optimizer_steps_towards_the_average_of_the_weight_mode(weights: Any) -> None:
    """With s = 1 and β = 0, the result is exactly the average that the weight mode gives."""
    updates = [Update(0, 20, 1, model(2.0, 0.0)), Update(1, 10, 1, model(0.0, 1.0))]
    members = Members(num_clients=10, total_samples=100, k=2)
    plain = FedAvg(weights=weights).aggregate(START, iter(updates), members)["w"]
    assert torch.allclose(
        FedAvgM(weights=weights, beta=0.0).aggregate(START, iter(updates), members)["w"], plain, rtol=1e-14
    )


# --- whole runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedavgm", "fedadam", "fedyogi", "fedadagrad"])
def test_a_resumed_run_equals_an_uninterrupted_run(name: str, tmp_path: Path) -> None:
    experiment = small(rounds=5, algorithm=name, systems={"dropout": 0.2})
    uninterrupted = fedcohort.run(experiment, runs=tmp_path / "uninterrupted")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "interrupted", progress=stop_after(3))
    assert record(fedcohort.run(experiment, runs=tmp_path / "interrupted")) == record(uninterrupted)


def test_runs_are_identical_for_any_number_of_threads(tmp_path: Path) -> None:
    records = []
    for plan, workers in (("loop", 0), ("threads", 2), ("threads", 5)):
        experiment = small(rounds=3, algorithm="fedadam", selection={"k": 5}, engine={"plan": plan, "workers": workers})
        records.append(record(fedcohort.run(experiment, runs=tmp_path / f"{plan}{workers}")))
    assert records[0] == records[1] == records[2]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_of_15_rounds_exceeds_60_percent_accuracy(name: str, tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=15, algorithm=name, selection={"k": 6}), runs=tmp_path)
    assert run.rounds["test_accuracy"].iloc[-1] > 0.6
