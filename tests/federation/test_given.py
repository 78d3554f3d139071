"""Laws and partitions that are given client by client, and data with fewer classes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.core.errors import UsageError
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.availability import GivenShares
from fedcohort.federation.data.class_subset import first_classes
from fedcohort.federation.data.datasets import Dataset, from_arrays
from fedcohort.federation.given_times import GivenNetwork, GivenTimes
from fedcohort.federation.partition import describe, partition
from fedcohort.federation.partitions.given_counts import GivenCounts
from fedcohort.federation.partitions.given_sizes import GivenSizes
from fedcohort.runs.run_data import load_data

LABELS = np.repeat(np.arange(3), 40)


def refusal(call: Any) -> str:
    with pytest.raises(UsageError) as error:
        call()
    return str(error.value)


# --- partitions ----------------------------------------------------------------------------------------------------------------


def test_every_client_has_its_counts() -> None:
    counts = [[20, 0, 1], [20, 7, 0], [0, 0, 0], [0, 33, 39]]
    for seed in range(3):
        split = partition(GivenCounts(counts=counts), LABELS, 4, seed)
        assert describe(LABELS, split, 3).counts.tolist() == counts
    fewer = partition(GivenCounts(counts=[[1, 2], [3, 4]]), LABELS, 2, 0)
    assert describe(LABELS, fewer, 3).counts.tolist() == [[1, 2, 0], [3, 4, 0]]


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=4).filter(np.any),
    st.integers(0, 5),
)
@settings(max_examples=40, deadline=None)
def test_any_counts_that_the_data_have_are_given(counts: list[list[int]], seed: int) -> None:
    split = partition(GivenCounts(counts=counts), LABELS, len(counts), seed)
    assert describe(LABELS, split, 3).counts.tolist() == counts
    assert len(np.unique(split.order)) == sum(map(sum, counts))


def test_every_client_has_its_size_and_mixtures_change_with_alpha_and_seed() -> None:
    for sizes in ([60, 30, 5, 1, 0, 20], [60, 30, 5, 1, 0, 24]):  # 116 samples, and all 120
        for alpha in (0.05, 0.5, 1000.0):
            assert partition(GivenSizes(sizes=sizes, alpha=alpha), LABELS, 6, 0).sizes.tolist() == sizes

    def distance(alpha: float, seed: int) -> float:
        return float(
            describe(LABELS, partition(GivenSizes(sizes=[12] * 6, alpha=alpha), LABELS, 6, seed), 3).distance.mean()
        )

    near, far = (np.array([distance(alpha, seed) for seed in range(5)]) for alpha in (100.0, 0.05))
    assert (far > near).all()
    assert len(set(far.tolist())) > 1


@pytest.mark.parametrize(
    ("rule", "num_clients", "message"),
    [
        (
            GivenCounts(counts=[[30, 0], [20, 41]]),
            2,
            "federation.partition.counts: clients have 50 samples of class 0, the data 40; multiply all counts by at most 0.8",
        ),
        (
            GivenCounts(counts=[[0, 0]] * 2),
            2,
            "federation.partition.counts: are all 0; give at least one client samples",
        ),
        (GivenSizes(sizes=[0]), 1, "federation.partition.sizes: are all 0; give at least one client samples"),
        (
            GivenSizes(sizes=[7]),
            2,
            "federation.partition.sizes: has 1 number, one for each client, and federation.clients = 2;",
        ),
        (
            GivenCounts(counts=[[0, 0, 0, 2]] * 2),
            2,
            "federation.partition.counts: clients have 4 samples of class 3, the data 0; use",
        ),
        (
            GivenCounts(counts=[[1]]),
            2,
            "federation.partition.counts: has 1 list, one for each client, and federation.clients = 2",
        ),
        (GivenCounts(), 2, "federation.partition.counts: is empty; give 2 lists, one for each client"),
        (
            GivenSizes(sizes=[100, 50]),
            2,
            "federation.partition.sizes: the clients have 150 samples, the data 120; multiply all",
        ),
        (
            GivenSizes(sizes=[1, 2, 3]),
            2,
            "federation.partition.sizes: has 3 numbers, one for each client, and federation.clients",
        ),
    ],
)
def test_numbers_that_the_data_do_not_have_are_refused(rule: Any, num_clients: int, message: str) -> None:
    assert refusal(lambda: partition(rule, LABELS, num_clients, 0)).startswith(message)


def test_lists_of_different_lengths_are_refused() -> None:
    assert "lists of 1 to 2 numbers" in refusal(lambda: GivenCounts(counts=[[1], [1, 2]]))


# --- times and availability ----------------------------------------------------------------------------------------------------


def test_every_client_needs_its_time() -> None:
    law = GivenTimes(times_of_clients=[12.5, 3.0])
    times = law.times(np.array([7, 700]), 0)
    assert times(1).tolist() == times(9).tolist() == law.least(np.array([7, 700]), 5).tolist() == [12.5, 3.0]
    assert refusal(lambda: law.times(np.ones(3, int), 0)).startswith("systems.latency.times_of_clients: has 2 times")


def test_communication_takes_the_given_time_in_proportion_to_the_bytes() -> None:
    split = GivenNetwork(times_of_clients=[4.0, 0.0, 1.0]).split(3, 0, nominal_bytes=200)
    total, sending = split(np.array([10.0, 20.0]), np.array([0, 2]), np.array([200.0, 100.0]))
    assert (total.tolist(), sending.tolist()) == ([14.0, 20.5], [4.0, 0.5])
    assert refusal(lambda: GivenNetwork(times_of_clients=[1.0]).split(2, 0, 8)).startswith(
        "systems.network.times_of_clients"
    )


def test_every_client_is_available_as_often_as_given() -> None:
    law = GivenShares(shares=[1.0, 0.0, 0.25])
    presence = law.presence(3, 4000, 1)
    share = np.mean([presence(t) for t in range(1, 4001)], axis=0)
    assert share[:2].tolist() == [1.0, 0.0]
    assert share[2] == pytest.approx(0.25, abs=0.03)
    assert presence(7).tolist() == law.presence(3, 10, 1)(7).tolist()
    assert refusal(lambda: law.presence(2, 1, 0)).startswith("systems.availability.shares: has 3 shares")


# --- fewer classes -------------------------------------------------------------------------------------------------------------


def data(**more: Any) -> Dataset:
    features = np.arange(24.0).reshape(12, 2)
    return from_arrays((features, np.arange(12) % 3), (features[:6], np.arange(6) % 3), classes=["a", "b", "c"], **more)


def test_only_the_first_classes_are_kept() -> None:
    whole = data(clients=list("xxxyyyzzzwww"), test_clients=list("xyzwxy"))
    part = first_classes(whole, 2)
    assert (part.classes, part.num_train) == (("a", "b"), 8)
    assert part.train_labels.tolist() == [0, 1] * 4
    assert part.test_labels.tolist() == [0, 1, 0, 1]
    assert part.train_features.tolist() == whole.train_features[whole.train_labels < 2].tolist()
    assert part.fingerprint != whole.fingerprint
    assert part.client_names == whole.client_names
    assert first_classes(whole, None) is whole
    assert first_classes(whole, 3) is whole


def test_more_classes_than_there_are_and_numbers_are_refused() -> None:
    assert refusal(lambda: first_classes(data(), 4)).startswith("data.classes = 4: ")
    numeric = from_arrays((np.ones((4, 1)), np.arange(4.0)), (np.ones((4, 1)), np.arange(4.0)), numeric=True)
    assert "are numbers" in refusal(lambda: first_classes(numeric, 2))


def test_the_number_of_classes_is_a_part_of_the_runs_identity() -> None:
    keys = {Experiment(**values).key() for values in ({}, {"data": {"classes": 3}}, {"data": {"classes": 4}})}
    assert len(keys) == 3
    dataset, _ = load_data(Experiment(data={"name": "digits", "classes": 3, "share": 0.5}), Given())
    assert (dataset.num_classes, dataset.num_train) == (3, 215)
    assert dataset.test_labels.max() == 2
