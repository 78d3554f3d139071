"""Median, trimmed mean and Krum: worked values, plain numpy, Flower, and clients that send wrong models."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fedcohort
from fedcohort.algorithms import ALGORITHMS, Algorithm, Members, ModelState, Update, models_by_coordinate
from fedcohort.algorithms.methods import krum
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.krum import Krum, scores, square_distances
from fedcohort.algorithms.methods.median import Median
from fedcohort.algorithms.methods.trimmed_mean import TrimmedMean
from fedcohort.algorithms.models_by_coordinate import BLOCK
from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError
from fedcohort.experiment import Experiment
from fedcohort.rounds import play_round
from tests.experiments import small
from tests.matrix.test_edges import calm
from tests.repetitions import slow_after
from tests.rounds.test_rounds import poison
from tests.run_states import a_run_state
from tests.tensor_operations import TensorOperations

ROBUST: dict[str, Algorithm] = {"median": Median(), "trimmed_mean": TrimmedMean(beta=0.3), "krum": Krum(f=2)}


def model(*values: float) -> ModelState:
    return {"w": torch.tensor(values, dtype=torch.float64)}


def of_models(*models: Sequence[float]) -> list[Update]:
    return [Update(i, 10 * i + 1, 1, model(*values)) for i, values in enumerate(models)]


def members(n: int, **values: Any) -> Members:
    return Members(num_clients=20, total_samples=1000, k=n, **values)


def merge(
    algorithm: Algorithm, updates: Sequence[Update], start: ModelState | None = None, **values: Any
) -> list[float]:
    start = start or {name: torch.zeros_like(value) for name, value in updates[0].state.items()}
    merged: list[float] = algorithm.aggregate(start, iter(updates), members(len(updates), **values))["w"].tolist()
    return merged


# --- median ------------------------------------------------------------------------------------------------------------------

FIVE = of_models((1.0, 10.0), (5.0, -2.0), (2.0, 0.0), (100.0, 3.0), (3.0, 1.0))
"""Sorted: 1, 2, 3, 5, 100 and −2, 0, 1, 3, 10."""


def test_worked_median() -> None:
    assert merge(Median(), FIVE) == [3.0, 1.0]
    assert merge(Median(), FIVE[:4]) == [3.5, 1.5]  # (2 + 5)/2 and (0 + 3)/2
    assert merge(Median(), FIVE[:2]) == [3.0, 4.0]
    assert merge(Median(), FIVE[1:2]) == [5.0, -2.0]


def test_median_with_server_damping() -> None:
    assert merge(Median(server_lr=0.5), FIVE, model(1.0, -1.0)) == [2.0, 0.0]


def test_median_and_trimmed_mean_count_a_client_as_often_as_it_was_drawn() -> None:
    """Client 3 was drawn four times: 1, 2, 3, 5, 100, 100, 100, 100 and −2, 0, 1, 3, 3, 3, 3, 10."""
    assert merge(Median(), FIVE, multiplicity={3: 4}) == [52.5, 3.0]
    assert merge(TrimmedMean(beta=0.4), FIVE, multiplicity={3: 4}) == [52.5, 3.0]


# --- trimmed mean ------------------------------------------------------------------------------------------------------------


def test_worked_trimmed_mean() -> None:
    """β = 0.2 of five leaves out one at each end: (2 + 3 + 5)/3 and (0 + 1 + 3)/3."""
    assert merge(TrimmedMean(), FIVE) == pytest.approx([10 / 3, 4 / 3], rel=1e-15)
    assert merge(TrimmedMean(beta=0.4), FIVE) == [3.0, 1.0]
    assert merge(TrimmedMean(beta=0.0), FIVE) == pytest.approx([111 / 5, 12 / 5], rel=1e-15)


def test_with_few_clients_the_trimmed_mean_is_the_mean() -> None:
    mean = merge(FedAvg(weights="uniform"), FIVE[:4])
    assert merge(TrimmedMean(beta=0.24), FIVE[:4]) == pytest.approx(mean, rel=1e-15)
    assert merge(TrimmedMean(beta=0.25), FIVE[:4]) != pytest.approx(mean, rel=1e-3)


@pytest.mark.parametrize(
    ("beta", "n", "cut"), [(0.29, 100, 29), (0.1, 30, 3), (0.49999999999, 2, 0), (0.45, 9, 4), (0.3, 3, 0)]
)
def test_the_share_that_is_left_out_is_rounded_down(beta: float, n: int, cut: int) -> None:
    """The ``cut`` smallest and largest values are far away, so that one of them would be seen in the mean."""
    values = np.zeros(n)
    values[:cut], values[n - cut :] = -1000.0, 5000.0
    values[cut : n - cut] = np.linspace(1.0, 2.0, n - 2 * cut)
    assert merge(TrimmedMean(beta=beta), of_models(*([x] for x in values))) == pytest.approx(
        [values[cut : n - cut].mean()]
    )


# --- Krum --------------------------------------------------------------------------------------------------------------------

LINE = of_models([0.0], [1.0], [3.0], [4.0], [4.5], [100.0])
"""Six models on a line. With f = 1, scores are sums of the three smallest squared distances."""
LINE_SCORES = [1 + 9 + 16, 1 + 4 + 9, 1 + 2.25 + 4, 0.25 + 1 + 9, 0.25 + 2.25 + 12.25, 95.5**2 + 96**2 + 97**2]


def test_worked_krum() -> None:
    found = scores([update.state for update in LINE], ["w"], 1)
    assert found.tolist() == LINE_SCORES
    assert merge(Krum(f=1), LINE) == [3.0]


def test_worked_multi_krum() -> None:
    """The three smallest scores are those of 3, 4 and 1; then come 4.5, 0 and 100."""
    assert merge(Krum(f=1, m=3), LINE) == pytest.approx([8 / 3], rel=1e-15)
    assert merge(Krum(f=1, m=5), LINE) == pytest.approx([12.5 / 5], rel=1e-15)
    assert merge(Krum(f=1, m=99), LINE) == pytest.approx([112.5 / 6], rel=1e-15)
    sizes = np.array([update.num_samples for update in LINE])[[1, 2, 3]]
    weighted = np.average([1.0, 3.0, 4.0], weights=sizes)
    assert merge(Krum(f=1, m=3, weights="n_selected"), LINE) == pytest.approx([weighted], rel=1e-15)


def test_the_record_has_the_weights_of_the_chosen_models() -> None:
    krum = Krum(f=1, m=3)
    merge(krum, LINE)
    assert krum.weighed() == {0: 0.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 0.0, 5: 0.0}


def test_of_equal_scores_the_smallest_id_is_chosen_in_any_order() -> None:
    two = of_models([1.0], [5.0])
    assert merge(Krum(), two) == merge(Krum(), two[::-1]) == [1.0]
    assert merge(Krum(), two[1:]) == [5.0]


def test_krum_measures_distances_between_trainable_entries() -> None:
    """The running statistics of the second client are far from those of the others."""
    updates = [
        Update(i, 1, 1, {"w": torch.tensor([w]), "running": torch.tensor([r]), "seen": torch.tensor(i)})
        for i, (w, r) in enumerate([(0.0, 0.0), (1.0, 1e6), (1.5, 0.0), (9.0, 0.0), (9.5, 0.0)])
    ]
    start = {"w": torch.zeros(1), "running": torch.zeros(1), "seen": torch.tensor(0)}
    merged = Krum(f=1).aggregate(start, iter(updates), members(5, trainable=frozenset({"w"})))
    assert {name: value.item() for name, value in merged.items()} == {"w": 1.0, "running": 1e6, "seen": 1}


def random_models(n: int) -> list[ModelState]:
    draw = torch.Generator().manual_seed(n)
    return [{"w": torch.randn(5, 7, generator=draw), "b": torch.randn(7, generator=draw)} for _ in range(n)]


@pytest.mark.parametrize("piece", [1, 100, krum.PIECE])
def test_distances_are_those_of_each_pair(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between similar models if another model is far from them."""
    monkeypatch.setattr(krum, "PIECE", piece)
    models = random_models(12)
    models[3] = {name: value + 1e-6 for name, value in models[2].items()}
    models[7] = models[5]
    models[9] = {name: value * 1e12 for name, value in models[9].items()}
    found = square_distances(models, ["w", "b"], slice(0, len(models)))
    direct = [
        [sum(float((one[name].double() - other[name].double()).square().sum()) for name in one) for other in models]
        for one in models
    ]
    assert found == pytest.approx(np.array(direct), rel=1e-13, abs=0)
    assert np.array_equal(found, found.T)
    assert np.count_nonzero(found == 0) == 12 + 2


@pytest.mark.parametrize(("n", "rows"), [(12, 1), (12, 12), (13, 60), (13, 64), (2, 1), (1, 1)])
@pytest.mark.parametrize("piece", [1, 100, krum.PIECE])
def test_scores_have_the_same_bits_in_blocks_of_rows(
    n: int, rows: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all distances are in memory at the same time: those of 50,000 models would take 20 GB."""
    monkeypatch.setattr(krum, "PIECE", piece)
    models = random_models(n)
    at_once = scores(models, ["w", "b"], 1)
    monkeypatch.setattr(krum, "ROWS", rows)
    sizes: list[int] = []

    def noted(models: list[ModelState], names: list[str], part: slice) -> Values:
        found = square_distances(models, names, part)
        sizes.append(found.size)
        return found

    monkeypatch.setattr(krum, "square_distances", noted)
    assert np.array_equal(scores(models, ["w", "b"], 1), at_once)
    assert max(sizes) <= max(rows, n)
    assert sum(sizes) == n * n


def test_the_number_of_operations_of_krum_grows_with_the_models_and_not_with_their_pairs() -> None:
    counts = []
    for n in (24, 48):
        models = random_models(n)
        with TensorOperations() as operations:
            square_distances(models, ["w", "b"], slice(0, len(models)))
        counts.append(operations.count)
    assert counts[1] < 2.1 * counts[0]


def test_krum_computes_few_differences_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(krum, "PIECE", 3 * 35)
    models = random_models(24)
    with TensorOperations() as operations:
        square_distances(models, ["w", "b"], slice(0, len(models)))
    assert operations.largest == 24 * 35  # the values of the models themselves


# --- independent implementations -----------------------------------------------------------------------------------------------

SHAPES = {"a": (7, 3), "b": (), "c": (BLOCK + 5,)}
"""Entries of several shapes; one is longer than a block."""


def drawn(n: int, seed: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{name: rng.normal(size=shape) for name, shape in SHAPES.items()} for _ in range(n)]


def as_updates(states: Iterable[dict[str, np.ndarray]]) -> list[Update]:
    return [
        Update(i, 3 + 2 * i, 1, {name: torch.from_numpy(np.array(value)) for name, value in state.items()})
        for i, state in enumerate(states)
    ]


@pytest.mark.parametrize("algorithm", [Median(), TrimmedMean(beta=0.3)])
def test_very_many_models_are_merged_in_smaller_blocks(algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 65,536 coordinates of 10,000 models would have 5 GB."""
    updates = as_updates(drawn(7, seed=3))
    start = {name: torch.zeros_like(value) for name, value in updates[0].state.items()}
    expected = algorithm.aggregate(start, iter(updates), members(7))
    sorted_sizes: list[int] = []
    sort = torch.Tensor.sort

    def noted(values: torch.Tensor, dim: int) -> Any:
        sorted_sizes.append(values.numel())
        return sort(values, dim=dim)

    with monkeypatch.context() as patched:
        patched.setattr(models_by_coordinate, "VALUES", 7 * 1000 + 6)
        patched.setattr(torch.Tensor, "sort", noted)
        merged = algorithm.aggregate(start, iter(updates), members(7))
    assert max(sorted_sizes) == 7 * 1000
    assert all(torch.equal(merged[name], expected[name]) for name in expected)


def plain_krum(states: list[dict[str, np.ndarray]], f: int, m: int) -> dict[str, np.ndarray]:
    """Multi-Krum with uniform weights as in the paper, with one loop for each sum."""
    flat = [np.concatenate([value.ravel() for value in state.values()]) for state in states]
    n, ranked = len(flat), []
    for i in range(n):
        others = sorted(float(np.sum((flat[i] - flat[j]) ** 2)) for j in range(n) if j != i)
        ranked.append((sum(others[: n - f - 2]), i))
    chosen = [states[i] for _, i in sorted(ranked)[:m]]
    return {name: np.mean([state[name] for state in chosen], axis=0) for name in SHAPES}


def scipy_trimmed(states: list[dict[str, np.ndarray]], beta: float) -> dict[str, np.ndarray]:
    stats = pytest.importorskip("scipy.stats")
    return {name: stats.trim_mean(np.stack([state[name] for state in states]), beta, axis=0) for name in SHAPES}


@pytest.mark.parametrize("n", slow_after(1, [7, 12]))
def test_results_equal_those_of_plain_implementations(n: int) -> None:
    states = drawn(n, seed=n)
    start = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in SHAPES.items()}
    cases: list[tuple[Algorithm, dict[str, np.ndarray]]] = [
        (Median(), {name: np.median([state[name] for state in states], axis=0) for name in SHAPES}),
        (TrimmedMean(beta=0.2), scipy_trimmed(states, 0.2)),
        (TrimmedMean(beta=0.35), scipy_trimmed(states, 0.35)),
        (Krum(f=2), plain_krum(states, 2, 1)),
        (Krum(f=1, m=4), plain_krum(states, 1, 4)),
    ]
    for algorithm, expected in cases:
        merged = algorithm.aggregate(start, iter(as_updates(states)), members(n))
        for name, value in expected.items():
            assert merged[name].numpy() == pytest.approx(value, rel=1e-12, abs=1e-13), (algorithm, name)
            assert merged[name].shape == start[name].shape


@pytest.mark.parametrize(
    ("strategy", "settings", "algorithm"),
    [
        ("FedMedian", {}, Median()),
        ("FedTrimmedAvg", {"beta": 0.2}, TrimmedMean(beta=0.2)),
        ("Krum", {"num_malicious_nodes": 2}, Krum(f=2)),
        ("MultiKrum", {"num_malicious_nodes": 1, "num_nodes_to_select": 3}, Krum(f=1, m=3, weights="n_selected")),
    ],
)
def test_results_equal_those_of_flower(strategy: str, settings: dict[str, Any], algorithm: Algorithm) -> None:
    app = pytest.importorskip("flwr.app", reason="Flower is not installed")
    strategies = pytest.importorskip("flwr.serverapp.strategy", reason="Flower is not installed")
    states = [{name: state[name] for name in "ab"} for state in drawn(8, seed=3)]
    updates = as_updates(states)
    # only the fields of a message that aggregate_train reads; real messages need a running federation
    replies = [
        SimpleNamespace(
            has_error=lambda: False,
            content=app.RecordDict(
                {
                    "arrays": app.ArrayRecord({name: app.Array(np.array(value)) for name, value in state.items()}),
                    "metrics": app.MetricRecord({"num-examples": update.num_samples}),
                }
            ),
        )
        for state, update in zip(states, updates, strict=True)
    ]
    expected, _ = getattr(strategies, strategy)(**settings).aggregate_train(1, replies)
    start = {name: torch.zeros(SHAPES[name], dtype=torch.float64) for name in "ab"}
    merged = algorithm.aggregate(start, iter(updates), members(8))
    for name, array in expected.items():
        assert merged[name].numpy() == pytest.approx(array.numpy(), rel=1e-10, abs=1e-12), name


# --- robustness ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROBUST)
def test_two_of_seven_wrong_models_cannot_move_the_result_out_of_the_others(name: str) -> None:
    rng = np.random.default_rng(1)
    honest = rng.normal(size=(5, 4))
    for wrong in (1e12, -1e12):
        attack = np.full((2, 4), wrong) + rng.normal(size=(2, 4))
        everyone = of_models(*honest.tolist(), *attack.tolist())
        merged = np.array(merge(ROBUST[name], everyone))
        assert (honest.min(axis=0) <= merged).all()
        assert (merged <= honest.max(axis=0)).all()
        assert np.abs(merge(FedAvg(), everyone)).min() > 1e10


@pytest.mark.parametrize("name", ROBUST)
def test_a_round_with_wrong_models_keeps_what_was_learned(name: str) -> None:
    """Two of ten clients send −50 times their models: FedAvg loses what it learned, the others do not."""
    accuracy, federation = {}, {"clients": 10, "partition": "iid", "holdout": 0.2}
    for algorithm in (name, "fedavg"):
        with a_run_state(**calm(algorithm, federation=federation, training={"epochs": 3})) as run_state:
            for t in (1, 2, 3):
                play_round(run_state, t, test=False)
            poison_with(run_state)
            accuracy[algorithm] = play_round(run_state, 4, test=True).test_accuracy
    assert accuracy[name] > accuracy["fedavg"] + 0.3


def poison_with(run_state: Any) -> None:
    """From now on, clients 2 and 5 send −50 times their models."""
    train = run_state.engine.train

    def trained(*arguments: Any) -> Iterable[Update]:
        for update in train(*arguments):
            if update.client in (2, 5):
                wrong = {
                    key: -50 * value if value.is_floating_point() else value for key, value in update.state.items()
                }
                update = replace(update, state=wrong, group=None)
            yield update

    run_state.engine.train = trained


# --- parts of models, counters, settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [Median(), TrimmedMean(beta=0.4)], ids=["median", "trimmed_mean"])
def test_coordinates_are_merged_over_the_clients_that_sent_them(algorithm: Algorithm) -> None:
    def state(w: float, v: float, u: float, seen: int) -> ModelState:
        floats = {name: torch.tensor([x], dtype=torch.float64) for name, x in (("w", w), ("v", v), ("u", u))}
        return {**floats, "seen": torch.tensor(seen)}

    updates = [Update(i, 5, 1, state(float(i), 10.0 * i, 7.0, i)) for i in range(5)]
    parts = [
        replace(update, sent=frozenset({"w", "v", "seen"} if i < 3 else {"w", "seen"}))
        for i, update in enumerate(updates)
    ]
    merged = algorithm.aggregate(state(-1.0, -2.0, -3.0, 0), iter(parts), members(5))
    assert {name: value.item() for name, value in merged.items()} == {"w": 2.0, "v": 10.0, "u": -3.0, "seen": 4}
    assert merged["seen"].dtype == torch.int64


@pytest.mark.parametrize("name", ["median", "trimmed_mean"])
def test_weights_that_differ_between_clients_are_refused(name: str) -> None:
    for weights in ("n_selected", "cohort", "n_total_delta"):
        with pytest.raises(
            UsageError, match=rf"algorithm.weights = '{weights}': the .* counts every client once; use uniform"
        ):
            Experiment(algorithm={"name": name, "weights": weights})


def test_multi_krum_refuses_weights_that_do_not_sum_to_1() -> None:
    with pytest.raises(
        UsageError, match=r"algorithm.weights = 'scaled': multi-Krum averages .* use n_selected, uniform or cohort"
    ):
        Experiment(algorithm={"name": "krum", "weights": "scaled"})


def test_a_row_with_another_base_keeps_its_own_weights() -> None:
    rows = Experiment(
        algorithm={"weights": "n_selected"}, variants=[{"label": name, "algorithm": name} for name in ROBUST]
    ).rows()
    assert [row.algorithm.build().weights for _, row in rows] == ["n_selected", "uniform", "uniform", "uniform"]


def test_bounds_of_parameters_are_checked() -> None:
    with pytest.raises(UsageError, match=r"algorithm.beta = 0.5: should be below 0.5"):
        Experiment(algorithm={"name": "trimmed_mean", "beta": 0.5})
    with pytest.raises(UsageError, match=r"algorithm.m = 0: should be at least 1"):
        Experiment(algorithm={"name": "krum", "m": 0})
    assert set(ROBUST) <= set(ALGORITHMS.builtin)


@pytest.mark.parametrize("name", ROBUST)
def test_clients_with_infinite_models_are_not_compared(name: str) -> None:
    with a_run_state(**calm(name)) as run_state:
        poison(run_state, {1, 4})
        row = play_round(run_state, 1, test=False)
        assert (row.trained, row.admitted) == (8, 1 if name == "krum" else 8)
        assert all(bool(torch.isfinite(value).all()) for value in run_state.model.values() if value.is_floating_point())


def test_clients_that_krum_leaves_out_are_declined(tmp_path: Path) -> None:
    """One of five models enters the model, so that one client is admitted; all five trained and sent their updates."""
    run = fedcohort.run(
        small(algorithm={"name": "krum", "f": 1}, selection={"name": "uniform", "k": 5}, rounds=3), runs=tmp_path
    )
    assert run.rounds["trained"].tolist() == [5] * 3
    assert run.rounds["admitted"].tolist() == [1] * 3
    clients = run.clients
    assert sorted(clients["status"].unique()) == ["admitted", "declined"]
    assert set(clients.loc[clients["status"] == "admitted", "weight"]) == {1.0}
    declined = clients[clients["status"] == "declined"]
    assert set(declined["weight"]) == set(declined["coefficient"]) == {0.0}
    assert set(declined["detail"]) == {"the algorithm left its update out of the model"}
    training = run.ledger.set_index("kind").loc["training"]
    assert set(training["messages"]) == {10}
    assert run.summary().admitted.coverage == len(set(clients.loc[clients["status"] == "admitted", "client"])) / 12
    client = int(declined["client"].iloc[0])
    assert "did not enter the model: the algorithm left its update out of the model." in " ".join(
        run.why(1, client).words()
    )
