"""FedSGD, FedAvg, the weight modes and server damping: worked values (spec G1–G3), and FedSGD against centralized descent."""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedcohort.algorithms import Algorithm, Members, ModelState, RunningMean, Update, WeightMode, blend
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fedsgd import FedSGD
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation import Dataset, load
from fedcohort.federation.federation import gather
from fedcohort.federation.partition import DirichletClass, Iid, Rule, partition
from fedcohort.models import Logistic, Mlp, Model
from fedcohort.selection import Cohort


def model(*values: float, dtype: torch.dtype = torch.float64) -> ModelState:
    return {"w": torch.tensor(values, dtype=dtype)}


def update(client: int, num_samples: int, *values: float) -> Update:
    return Update(client, num_samples, 1, model(*values))


def merge(algorithm: FedAvg, start: ModelState, updates: Iterable[Update], members: Members) -> list[float]:
    merged: list[float] = algorithm.aggregate(start, iter(updates), members)["w"].tolist()
    return merged


# --- G2: weight modes ------------------------------------------------------------------------------------------------------

START = model(1.0, -2.0)
TWO = (update(0, 20, 2.0, 0.0), update(1, 10, 0.0, 1.0))
"""p = (.2, .1) of 100 samples; w = (1, −2), w_1 = (2, 0), w_2 = (0, 1)."""
OF_TEN = Members(num_clients=10, total_samples=100, k=2, inclusion={0: 0.4, 1: 0.5}, weights={0: 0.5, 1: 1.5})

WORKED: dict[WeightMode, list[float]] = {
    "n_selected": [4 / 3, 1 / 3],  # (20·(2, 0) + 10·(0, 1))/30
    "uniform": [1.0, 0.5],
    "n_total_delta": [1.1, -1.3],  # (1, −2) + .2·(1, 2) + .1·(−1, 3)
    "scaled": [1.5, 1.5],  # m/k = 5 times that: (1, −2) + 1·(1, 2) + .5·(−1, 3)
    "unbiased": [1.3, -0.4],  # p/π = (.5, .2): (1, −2) + .5·(1, 2) + .2·(−1, 3)
    "cohort": [0.0, 3.5],  # (1, −2) + .5·(1, 2) + 1.5·(−1, 3)
    "n_total_model": [0.4, 0.1],  # .2·(2, 0) + .1·(0, 1)
}


@pytest.mark.parametrize("weights", WORKED)
def test_worked_result_of_every_weight_mode(weights: WeightMode) -> None:
    assert merge(FedAvg(weights=weights), START, TWO, OF_TEN) == pytest.approx(WORKED[weights], rel=1e-12)


CAPPED: list[tuple[WeightMode, float, list[float]]] = [
    ("unbiased", 0.3, [1.1, -0.8]),  # (1, −2) + .3·(1, 2) + .2·(−1, 3)
    ("cohort", 0.5, [1.0, 0.5]),  # (1, −2) + .5·(1, 2) + .5·(−1, 3)
    ("scaled", 0.5, [1.0, 0.5]),  # both weights reach the cap
    ("scaled", 2.0, WORKED["scaled"]),  # neither weight reaches the cap
]


@pytest.mark.parametrize(("weights", "cap", "expected"), CAPPED)
def test_max_weight_caps_large_weights(weights: WeightMode, cap: float, expected: list[float]) -> None:
    assert merge(FedAvg(weights=weights, max_weight=cap), START, TWO, OF_TEN) == pytest.approx(expected, rel=1e-12)


def test_n_total_delta_equals_damping_by_the_share_of_samples() -> None:
    damped = merge(FedAvg(server_lr=0.3), START, TWO, OF_TEN)
    assert damped == pytest.approx([1.1, -1.3], rel=1e-12)
    assert merge(FedAvg(weights="n_total_delta"), START, TWO, OF_TEN) == pytest.approx(damped, rel=1e-12)


@pytest.mark.parametrize("weights", ["n_selected", "n_total_delta", "n_total_model"])
def test_when_all_clients_train_three_weight_modes_coincide(weights: WeightMode) -> None:
    all_clients = Members(num_clients=2, total_samples=30, k=2)
    assert merge(FedAvg(weights=weights), START, TWO, all_clients) == pytest.approx(WORKED["n_selected"], rel=1e-12)


def test_when_all_clients_train_scaled_equals_n_selected() -> None:
    all_clients = Members(num_clients=2, total_samples=30, k=2)
    assert merge(FedAvg(weights="scaled"), START, TWO, all_clients) == pytest.approx(WORKED["n_selected"], rel=1e-12)


def test_the_average_of_one_client_is_exactly_its_model() -> None:
    assert merge(FedAvg(), START, TWO[:1], OF_TEN) == [2.0, 0.0]
    assert merge(FedAvg(weights="uniform"), START, TWO[1:], OF_TEN) == [0.0, 1.0]


def test_only_n_total_model_shrinks_models_that_agree() -> None:
    constant = [update(0, 20, 7.0, 7.0), update(1, 10, 7.0, 7.0)]
    start = model(7.0, 7.0)
    assert merge(FedAvg(), start, constant, OF_TEN) == [7.0, 7.0]
    assert merge(FedAvg(weights="n_total_delta"), start, constant, OF_TEN) == [7.0, 7.0]
    assert merge(FedAvg(weights="n_total_model"), start, constant, OF_TEN) == pytest.approx([2.1, 2.1], rel=1e-12)


def test_with_equal_sizes_n_selected_equals_uniform() -> None:
    equal = [update(0, 15, 2.0, 0.0), update(1, 15, 0.0, 1.0)]
    assert merge(FedAvg(), START, equal, OF_TEN) == merge(FedAvg(weights="uniform"), START, equal, OF_TEN)


def test_clients_count_as_often_as_they_were_drawn() -> None:
    drawn = Members(num_clients=10, total_samples=100, k=4, multiplicity={0: 1, 1: 3})
    assert merge(FedAvg(weights="uniform"), START, TWO, drawn) == pytest.approx([0.5, 0.75], rel=1e-12)
    assert merge(FedAvg(), START, TWO, drawn) == pytest.approx([0.8, 0.6], rel=1e-12)  # the weights are 20 and 30


def test_without_an_update_the_model_stays_unchanged() -> None:
    assert FedAvg(server_lr=0.5).aggregate(START, iter(()), OF_TEN) is START


@pytest.mark.parametrize("weights", ["unbiased", "cohort"])
def test_weight_modes_that_need_missing_values_of_the_strategy_are_rejected(weights: WeightMode) -> None:
    with pytest.raises(UsageError, match=rf"algorithm.weights = '{weights}': .*use n_selected or uniform"):
        merge(FedAvg(weights=weights), START, TWO, Members(num_clients=10, total_samples=100, k=2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_mean_of_identical_models_is_exactly_that_model(dtype: torch.dtype) -> None:
    mean, one = RunningMean(), torch.randn(1000, generator=torch.Generator().manual_seed(1), dtype=dtype)
    for weight in (0.1, 7.0, 1e-9, 3e5, 1 / 3):
        mean.add({"w": one.clone()}, weight)
    assert torch.equal(mean.result()["w"], one)


@pytest.mark.parametrize("turned", [False, True])
def test_large_entries_are_averaged_in_pieces_with_the_same_bits(turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    values = [torch.randn(70, 130, generator=draw) for _ in range(3)]

    def mean() -> Tensor:
        running = RunningMean()
        for number, value in enumerate(values):
            running.add({"w": value.T if turned else value, "b": torch.ones(3) * number}, 1.0 + number)
        return running.result()["w"]

    whole = mean()
    monkeypatch.setattr("fedcohort.algorithms.weighted_means.PIECE", 1000)
    monkeypatch.setattr("fedcohort.algorithms.weighted_means.WHOLE", 2000)
    assert torch.equal(mean(), whole)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_mean_of_one_model_is_a_copy_of_it(dtype: torch.dtype) -> None:
    """One client a round: its model may be in memory that is used again."""
    mean, one = RunningMean(), {"w": torch.tensor([1 / 3, -0.0, 65000.0], dtype=dtype), "seen": torch.tensor(7)}
    given = {name: value.clone() for name, value in one.items()}
    mean.add(given, 0.1)
    for value in given.values():
        value.zero_()
    found = mean.result()
    assert list(found) == list(one)
    assert all(torch.equal(found[name], one[name]) and found[name].dtype == one[name].dtype for name in one)
    assert str(found["w"][1]) == str(one["w"][1])  # torch.equal does not tell −0 from 0
    mean.add({"w": one["w"] + 1, "seen": torch.tensor(9)}, 0.1)  # a result is not the end
    expected = (one["w"].double() + (one["w"] + 1).double()) / 2
    assert torch.allclose(mean.result()["w"].double(), expected, rtol=1e-3)
    assert torch.equal(found["w"], one["w"])
    assert int(mean.result()["seen"]) == 9


@pytest.mark.parametrize("sizes", [(5,), (1, 1, 1), (100, 1), (1, 100), (3, 4, 5, 6, 7)])
def test_two_threads_give_the_same_mean_in_the_same_order(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(0)
    states = [
        {f"{i}": torch.randn(size, generator=draw) for i, size in enumerate(sizes)} | {"seen": torch.tensor(n)}
        for n in range(4)
    ]

    def mean() -> ModelState:
        running = RunningMean()
        for number, state in enumerate(states):
            running.add(state, 1.0 + number, frozenset(list(state)[number % 2 :]))
        return running.result()

    alone = mean()
    monkeypatch.setattr("fedcohort.core.threads.SHARED", 1)
    shared = mean()
    assert list(shared) == list(alone)
    assert all(torch.equal(shared[name], alone[name]) and shared[name].dtype == alone[name].dtype for name in alone)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_updates_with_large_models_that_are_included_together_give_the_same_bits(
    number: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(0)
    states = [
        {"w": torch.randn(70, 130, generator=draw, dtype=dtype), "seen": torch.tensor(5 - n)} for n in range(number)
    ]
    states = [{**state, "turned": torch.randn(5, 7, generator=draw).T} for state in states]

    def mean(*, one_by_one: bool) -> ModelState:
        running = RunningMean()
        for i, state in enumerate(states):
            sent = frozenset(["w", "seen"]) if i % 3 == 1 else None
            if one_by_one:
                running.add(state, 1.0 + i, sent)
            else:
                running.include(Update(i, 10, 1, state, sent=sent), 1.0 + i)
                again = running.result()  # a result is not the end
        return running.result() if one_by_one else again

    expected = mean(one_by_one=True)
    monkeypatch.setattr("fedcohort.algorithms.weighted_means.SHARED", 1)
    monkeypatch.setattr("fedcohort.algorithms.weighted_means.PIECE", 1000)
    monkeypatch.setattr("fedcohort.algorithms.weighted_means.WHOLE", 2000)
    found = mean(one_by_one=False)
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
        assert (found[name].dtype, found[name].stride()) == (value.dtype, value.stride())


def test_integer_entries_take_the_maximum_and_stay_integers() -> None:
    states = [{"w": torch.tensor([float(n)]), "seen": torch.tensor(n)} for n in (4, 11, 9)]
    updates = [Update(i, 10, 1, state) for i, state in enumerate(states)]
    start = {"w": torch.tensor([0.0]), "seen": torch.tensor(0)}
    for weights in ("n_selected", "n_total_delta", "n_total_model"):
        for server_lr in (1.0, 0.5):
            merged = FedAvg(weights=weights, server_lr=server_lr).aggregate(start, iter(updates), OF_TEN)
            assert (int(merged["seen"]), merged["seen"].dtype, merged["w"].dtype) == (11, torch.int64, torch.float32)


@pytest.mark.parametrize("weights", ["n_selected", "uniform", "n_total_delta", "scaled", "unbiased", "cohort"])
@pytest.mark.parametrize("server_lr", [1.0, 0.5])
def test_an_entry_that_no_client_sent_stays_unchanged(weights: WeightMode, server_lr: float) -> None:
    """Two clients send ``w``. Neither sends ``v``, although both have other values of it."""
    start = {**START, "v": torch.tensor([3.0, 5.0], dtype=torch.float64)}
    sent = [
        replace(one, state={**one.state, "v": torch.full((2,), 100.0, dtype=torch.float64)}, sent=frozenset({"w"}))
        for one in TWO
    ]
    merged = FedAvg(weights=weights, server_lr=server_lr).aggregate(start, iter(sent), OF_TEN)
    assert list(merged) == ["w", "v"]
    assert merged["v"].tolist() == [3.0, 5.0]
    whole = np.array(WORKED[weights])
    assert merged["w"].numpy() == pytest.approx(server_lr * whole + (1 - server_lr) * np.array([1.0, -2.0]), rel=1e-12)


# --- G3: damping -----------------------------------------------------------------------------------------------------------


def test_worked_server_damping() -> None:
    assert blend(model(1, 2), model(0.8, 2.4), 0.5)["w"].tolist() == pytest.approx([0.9, 2.2], rel=1e-12)
    assert merge(FedAvg(server_lr=0.5), model(1, 2), [update(0, 5, 0.8, 2.4)], OF_TEN) == pytest.approx([0.9, 2.2])


@pytest.mark.parametrize("s", [0.1, 0.5, 1.0])
def test_damping_approaches_a_constant_target_geometrically(s: float) -> None:
    algorithm, w = FedAvg(server_lr=s), model(10.0)
    for r in range(1, 8):
        w = algorithm.aggregate(w, iter([update(0, 5, 2.0)]), OF_TEN)
        assert w["w"].item() - 2.0 == pytest.approx(8.0 * (1 - s) ** r, abs=1e-12)


# --- G1: FedSGD equals centralized descent ---------------------------------------------------------------------------------

LR, ROUNDS = 0.1, 15


def standardized(data: Dataset) -> Tensor:
    """Training features in double precision with mean 0 and deviation 1 per column, or over all pixels of gray images."""
    features = data.train_features.astype(np.float64)
    axis = (0, 2, 3) if features.ndim == 4 else 0
    features = (features - features.mean(axis=axis, keepdims=True)) / features.std(axis=axis, keepdims=True)
    return torch.from_numpy(features.reshape(len(features), -1))


def full_batch_descent(start: ModelState, x: Tensor, y: Tensor) -> ModelState:
    """Full-batch gradient descent on all data, in plain torch: one linear layer, or two with ReLU between."""
    w = {name: value.clone().requires_grad_() for name, value in start.items()}
    for _ in range(ROUNDS):
        z = x @ w["1.weight"].T + w["1.bias"]
        if "3.weight" in w:
            z = z.clamp(min=0) @ w["3.weight"].T + w["3.bias"]
        loss = -functional.log_softmax(z, dim=1)[torch.arange(len(y)), y].mean()
        gradients = torch.autograd.grad(loss, list(w.values()))
        with torch.no_grad():
            for value, gradient in zip(w.values(), gradients, strict=True):
                value -= LR * gradient
    return {name: value.detach() for name, value in w.items()}


@pytest.mark.parametrize(("name", "network"), [("breast_cancer", Logistic()), ("digits", Mlp(hidden=16))])
@pytest.mark.parametrize(
    ("rule", "clients"),
    [
        (Iid(), 1),
        (Iid(), 7),
        (DirichletClass(alpha=0.1, min_size=1), 12),
        (DirichletClass(alpha=0.5, variant="plain", min_size=1), 30),
    ],
)
def test_fedsgd_with_all_clients_equals_full_batch_descent(name: str, network: Model, rule: Rule, clients: int) -> None:
    training = Training(lr=LR, precision="float64", epochs=4, batch_size=16)  # FedSGD sets its own epochs and batches
    check_full_batch_descent(FedSGD(), training, name, network, rule, clients)


@pytest.mark.parametrize("clients", [1, 12])
def test_fedavg_with_all_clients_and_one_full_batch_equals_full_batch_descent(clients: int) -> None:
    """S_t = A_t, E = 1, B = ∞: the mean of the clients' single steps, weighted by size, is the step on all data."""
    training = Training(lr=LR, momentum=0.0, precision="float64", epochs=1, batch_size=0)
    check_full_batch_descent(
        FedAvg(), training, "digits", Mlp(hidden=16), DirichletClass(alpha=0.1, min_size=1), clients
    )


def check_full_batch_descent(
    algorithm: Algorithm, training: Training, name: str, network: Model, rule: Rule, clients: int
) -> None:
    data = load(name)
    federation = gather(data, partition(rule, data.train_labels, clients, seed=5), validation=0.1, seed=5)
    all_clients = Cohort(np.arange(clients))
    members = Members(num_clients=clients, total_samples=data.num_train, k=clients)
    with closing(LocalEngine(federation, network, training, algorithm, seed=5, workers=2)) as engine:
        start = w = engine.initial_model()
        for t in range(1, ROUNDS + 1):
            w = algorithm.aggregate(w, engine.train(w, t, all_clients, algorithm), members)
    expected = full_batch_descent(start, standardized(data), torch.from_numpy(data.train_labels))
    for key, value in expected.items():
        assert (w[key] - value).norm() <= 1e-10 * value.norm(), key
        assert (start[key] - value).norm() > 1e-2 * value.norm(), "nothing was learned"
