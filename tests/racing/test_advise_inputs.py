"""Scaled counts and the likeness of a twin, with numbers by hand."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.core.arrays import Indices, Values
from fedcohort.federation.client_table import ClientTable
from fedcohort.racing import scaled_counts as scaled_module
from fedcohort.racing.likeness import DIFFERS, MATCHED, NOT_GIVEN, ROUGH, likeness, range_in_words
from fedcohort.racing.scaled_counts import scaled_counts, scaled_sizes


def test_counts_that_fit_stay_as_they_are() -> None:
    counts = np.array([[3, 0], [1, 5]])
    assert scaled_counts(counts, np.array([4, 5])) is counts


def test_counts_are_scaled_by_one_factor() -> None:
    """Half of everything: sizes 8 and 4 become 4 and 2, and mixtures stay the same."""
    found = scaled_counts(np.array([[6, 2], [0, 4]]), np.array([3, 10]))
    assert found is not None
    assert found.tolist() == [[3, 1], [0, 2]]


def test_remainders_keep_the_classes_over_all_clients() -> None:
    """Eight clients with one sample of each of two classes, and half of the samples: a client has one, four of each class."""
    found = scaled_counts(np.ones((8, 2), int), np.array([4, 4]))
    assert found is not None
    assert found.sum(axis=0).tolist() == [4, 4]
    assert (found.sum(axis=1) == 1).all()


def test_every_client_keeps_a_sample_or_nothing_is_scaled() -> None:
    sizes = scaled_sizes(np.array([1000, 1, 1]), 12)
    assert sizes is not None
    assert sizes.tolist() == [10, 1, 1]
    assert scaled_sizes(np.array([5, 5, 5]), 2) is None
    assert scaled_counts(np.array([[5, 5], [5, 0]]), np.array([0, 9])) is None


def test_clients_are_gone_through_only_if_their_counts_can_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of up to 500 scales went through all clients: minutes for 50,000 of very different sizes, also if nothing can fit."""
    scales: list[int] = []
    completed = scaled_module._completed

    def counting(exact: Values, whole: Indices, wanted: Indices) -> Indices:
        scales.append(int(wanted.sum()))
        return completed(exact, whole, wanted)

    monkeypatch.setattr(scaled_module, "_completed", counting)
    sizes = np.array([1] * 900 + [30] * 90 + [10**6] * 10)
    found = scaled_sizes(sizes, 1200)
    assert found is not None
    assert (found[:990] == 1).all()
    assert scales == [found.sum()]
    assert scaled_sizes(sizes, 999) is None
    assert scaled_counts(np.stack([sizes, 2 * sizes], axis=1), np.array([100, 800])) is None
    assert len(scales) == 1


@given(
    st.lists(st.lists(st.integers(0, 400), min_size=3, max_size=3).filter(any), min_size=1, max_size=12),
    st.lists(st.integers(20, 60), min_size=3, max_size=3),
)
@settings(max_examples=40, deadline=None)
def test_scaled_counts_fit_and_invent_no_classes(counts: list[list[int]], available: list[int]) -> None:
    given_counts = np.array(counts)
    found = scaled_counts(given_counts, np.array(available))
    assert found is not None
    assert (found.sum(axis=0) <= available).all()
    assert (found.sum(axis=1) >= 1).all()
    assert (found[given_counts == 0] == 0).all()
    assert (found <= given_counts).all()


# --- likeness ------------------------------------------------------------------------------------------------------------------


def compared(table: ClientTable, order: list[int], counts: list[list[int]], **survey: Any) -> dict[str, Any]:
    held = np.array(counts)
    report = SimpleNamespace(sizes=held.sum(axis=1), counts=held)
    m = len(held)
    facts = {"time": np.ones(m), "sending": np.zeros(m), "presence": np.ones(m)} | survey
    twin = SimpleNamespace(table=table, order=np.array(order, np.int64))
    return {trait.name: trait for trait in likeness(twin, SimpleNamespace(report=report, **facts))}  # type: ignore[arg-type]


TABLE = ClientTable(
    "t",
    ("a", "b"),
    np.array([300, 100]),
    ("ill", "well"),
    np.array([[300, 0], [50, 50]]),
    np.array([10.0, 20.0]),
    np.array([2.0, 0.0]),
    np.array([0.9, 0.5]),
)


def test_differences_by_hand() -> None:
    """Classes change places: ill is class 1 of the data. Shares of samples: 3/4 and 1/4, in the twin 2/3 and 1/3."""
    found = compared(
        TABLE,
        [1, 0],
        [[0, 20], [4, 6]],
        time=np.array([12.0, 21.5]),
        sending=np.array([2.0, 0.5]),
        presence=np.array([0.8, 0.6]),
    )
    samples, skew = found["samples"], found["class skew"]
    assert samples.difference == pytest.approx((1 / 9 + 1 / 3) / 2)
    assert samples.largest == pytest.approx(1 / 3)
    assert samples.state == DIFFERS
    assert samples.yours == (100, 200, 300)
    assert samples.twin == (10, 15, 20)
    assert (skew.difference, skew.largest) == (
        pytest.approx(0.05),
        pytest.approx(0.1),
    )  # (1, 0) twice; (.5, .5) and (.6, .4)
    assert skew.state == MATCHED
    assert skew.yours == pytest.approx((1 / 8, 1 / 4, 3 / 8))  # all clients: 7/8 ill, so 1/8 and 3/8
    times = found["training time"]
    assert (times.difference, times.largest) == (pytest.approx(0.025), pytest.approx(0.05))
    sending = found["communication time"]  # 0.5 instead of 0: relative to the mean, which is 1
    assert (sending.difference, sending.largest) == (pytest.approx(0.25), pytest.approx(0.5))
    assert found["availability"].difference == pytest.approx(0.1)
    assert found["availability"].state == ROUGH


def test_what_is_not_given_is_not_compared() -> None:
    found = compared(ClientTable("t", ("a", "b"), np.array([3, 1])), [], [[2, 1], [1, 0]])
    assert [trait.state for trait in found.values()] == [MATCHED, NOT_GIVEN, NOT_GIVEN, NOT_GIVEN, NOT_GIVEN]
    skew = found["class skew"]
    assert skew.yours is None
    assert math.isnan(skew.difference)
    assert range_in_words(None) == "–"
    assert range_in_words((1.0, 2.0, 3.5)) == "1 · 2 · 3.5"
