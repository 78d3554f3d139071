"""Laws and rules of users: the arguments of their methods, and what they return."""

from typing import Any

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.federation.availability import Always, Availability
from fedcohort.federation.featureshift import FeatureShift
from fedcohort.federation.labelnoise import LabelNoise
from fedcohort.federation.latency import Latency, Network, ShiftedExponential
from fedcohort.federation.partition import partition
from fedcohort.federation.simulated_clock import Clock
from fedcohort.selection import LocalLoss

SIZES = np.array([5, 0, 7])


def latency(returned: Any) -> Latency:
    """A law whose method returns this."""

    @parameters
    class Own(Latency):
        def times(self, num_samples: Any, seed: int) -> Any:
            return returned

    return Own()


def availability(returned: Any) -> Availability:
    """A law whose method returns this."""

    @parameters
    class Own(Availability):
        def presence(self, num_clients: int, rounds: int, seed: int) -> Any:
            return returned

    return Own()


def rounds(**laws: Any) -> None:
    """Two rounds of a clock with these laws."""
    clock = Clock(SIZES, 0, **laws)
    for t in (1, 2):
        clock.available(t)
        clock.nominal(t)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.ones(3), "times returned array.* must return a function from the round to the times of the 3 clients"),
        (lambda t: np.ones(2), r"returned float64 \[2\] for round 1; it must return numbers \[3\]"),
        (lambda t: 1.0, r"returned float64 \[\] for round 1"),
        (lambda t: ["a", "b", "c"], r"returned <U1 \[3\]"),
        (lambda t: np.array([1.0, 1.0, 1.5 - t]), "the time of client 2 in round 2 is -0.5; times are at least 0"),
        (lambda t: np.array([np.nan, 1.0, 1.0]), "the time of client 0 in round 1 is nan"),
    ],
)
def test_times_that_cannot_be(returned: Any, message: str) -> None:
    with pytest.raises(UsageError, match=rf"systems\.latency: Own\.{'times' if callable(returned) else ''}.*{message}"):
        rounds(latency=latency(returned))


def test_only_clients_with_samples_need_a_time() -> None:
    """One sample is enough."""
    law = latency(lambda t: np.array([np.nan, 1.0]))
    assert Clock(np.array([0, 1]), 0, latency=law).nominal(1)[1] == 1.0
    with pytest.raises(UsageError, match="the time of client 0 in round 1 is nan"):
        Clock(np.array([1, 1]), 0, latency=law).nominal(1)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.ones(3, bool), "must return a function from the round to True or False for each of the 3 clients"),
        (lambda t: np.array([0, 2]), r"returned int64 \[2\] for round 1; it must return True or False \[3\]"),
        (lambda t: np.array([0, 1, 2]), r"returned int64 \[3\]"),
    ],
)
def test_availability_that_cannot_be(returned: Any, message: str) -> None:
    with pytest.raises(UsageError, match=rf"systems\.availability: Own\.presence.*{message}"):
        rounds(availability=availability(returned))


def test_other_values_are_taken() -> None:
    clock = Clock(
        SIZES, 0, latency=latency(lambda t: [2, np.nan, 3]), availability=availability(lambda t: [True, True, False])
    )
    assert clock.available(1).tolist() == [0]
    assert clock.nominal(1)[[0, 2]].tolist() == [2.0, 3.0]


def test_laws_of_fedcohort_are_called_as_they_are() -> None:
    law = ShiftedExponential(spread=0.0)
    assert Clock(SIZES, 0, latency=law, availability=Always()).nominal(1).tolist() == [5.0, 0.0, 7.0]


@pytest.mark.parametrize(
    ("base", "method"),
    [(Latency, "times"), (Network, "split"), (Availability, "presence"), (LabelNoise, "rates"), (FeatureShift, "draw")],
)
def test_methods_with_other_arguments(base: type, method: str) -> None:
    def own(self: object, one: object) -> None:
        """Takes one argument."""

    with pytest.raises(UsageError, match=rf"Own\.{method}\(self, one\): must take the arguments \(self, "):
        type("Own", (base,), {method: own})


class Halves:
    """A partition rule that takes other arguments."""

    min_size, evens_out = 1, None

    def assign(self, labels: Any, clients: int) -> Any:
        return labels % clients


def test_a_partition_with_other_arguments() -> None:
    with pytest.raises(UsageError, match=r"Halves\.assign\(self, labels, clients\): must take the arguments \(self, "):
        partition(Halves(), np.zeros(9, np.int64), 3, seed=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [-1, "x", 1.5, True])
def test_batches_of_questions_that_cannot_be(batch: Any) -> None:
    with pytest.raises(UsageError, match=r"LocalLoss\(batch = .*must be an integer of at least 0"):
        LocalLoss(batch=batch)
