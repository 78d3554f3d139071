"""Laws and rules of users: the arguments of their methods, and what they return."""

import warnings
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


def network(returned: Any) -> Network:
    """A law whose method returns this."""

    @parameters
    class Own(Network):
        def split(self, num_clients: int, seed: int, nominal_bytes: int) -> Any:
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
        (
            lambda t: np.array([1.0, 1.0, 1.5 - t]),
            "the time of client 2 in round 2 is -0.5; times are finite and at least 0",
        ),
        (lambda t: np.array([np.nan, 1.0, 1.0]), "the time of client 0 in round 1 is nan"),
        (
            lambda t: np.array([1.0, 1.0, np.inf if t > 1 else 1.0]),
            "the time of client 2 in round 2 is inf; times are finite",
        ),
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


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            0.2,
            "returned 0.2; it must return a function from times, clients and bytes to total times and the comm",
        ),
        (
            lambda times, clients, sent: times,
            "returned array.*; it must return total times, and the communication part",
        ),
        (
            lambda times, clients, sent: (times, 1.0),
            r"returned float64 \[\]; it must return two arrays of a number .*\[3\]",
        ),
        (lambda times, clients, sent: (times[:1], times[:1]), r"returned float64 \[1\]; it must return two arrays"),
        (lambda times, clients, sent: (times, times + 1), "the time 5 for client 0, and 6 of it for communication"),
        (lambda times, clients, sent: (times - 6, 0 * times), "the time -1 for client 0, and 0 of it"),
        (lambda times, clients, sent: (times, -times), "the time 5 for client 0, and -5 of it"),
        (lambda times, clients, sent: (times / (clients < 2), 0 * times), "the time inf for client 2"),
        (lambda times, clients, sent: (times * np.nan, 0 * times), "the time nan for client 0"),
    ],
)
def test_communication_that_cannot_be(returned: Any, message: str) -> None:
    with pytest.raises(UsageError, match=rf"^systems\.network: Own\.split.*{message}"):
        rounds(latency=ShiftedExponential(spread=0.0), network=network(returned))


def test_a_client_without_samples_needs_no_communication_time() -> None:
    law = network(lambda times, clients, sent: [times + 1, np.where(clients == 1, np.nan, 1.0)])
    assert Clock(SIZES, 0, latency=ShiftedExponential(spread=0.0), network=law).nominal(2).tolist() == [6.0, 1.0, 8.0]


def test_laws_that_change_what_they_are_given_change_nothing_else() -> None:
    """One changes the numbers of samples, the other the times, which a law of one draw returns in every round."""

    @parameters
    class Doubles(Latency):
        def times(self, num_samples: Any, seed: int) -> Any:
            num_samples *= 2
            return lambda t: num_samples

        def least(self, num_samples: Any, seed: int) -> Any:
            num_samples *= 2
            return num_samples

    def slower(times: Any, clients: Any, sent: Any) -> Any:
        times += 1
        clients[:] = 0
        sent[:] = 1.0
        return times, sent

    sizes = SIZES.copy()
    clock = Clock(sizes, 0, latency=Doubles(), deadline=99.0)
    assert sizes.tolist() == SIZES.tolist()
    assert [clock.nominal(t).tolist() for t in (1, 2)] == 2 * [[10.0, 0.0, 14.0]]
    clock = Clock(sizes, 0, latency=ShiftedExponential(spread=0.0), network=network(slower))
    assert [clock.nominal(t).tolist() for t in (1, 1, 2)] == 3 * [[6.0, 1.0, 8.0]]


def stream(*arguments: Any) -> Any:
    """A function that gives the next numbers of a generator at each call."""
    draw = np.random.default_rng(0)
    return lambda *_: draw.uniform(1, 2, 3)


@parameters
class RestlessTimes(Latency):
    """Draws from one generator for all rounds."""

    def times(self, num_samples: Any, seed: int) -> Any:
        return stream()


@parameters
class RestlessPresence(Availability):
    """Draws from one generator for all rounds."""

    def presence(self, num_clients: int, rounds: int, seed: int) -> Any:
        next_numbers = stream()
        return lambda t: next_numbers() < 1.5


@parameters
class RestlessNetwork(Network):
    """Draws from one generator for all calls."""

    def split(self, num_clients: int, seed: int, nominal_bytes: int) -> Any:
        next_numbers = stream()
        return lambda times, clients, sent: (times + 2, next_numbers()[clients])


@pytest.mark.parametrize(
    "law", [{"latency": RestlessTimes()}, {"availability": RestlessPresence()}, {"network": RestlessNetwork()}]
)
def test_a_law_that_depends_on_earlier_calls_gets_one_warning(law: dict[str, Any]) -> None:
    """The warning takes no draws from the law itself."""
    setting = next(iter(law))
    message = (
        rf"^systems\.{setting}: Restless\w+ gives other values when it is asked again, .*default_rng\(\[seed, t\]\)$"
    )
    with pytest.warns(UserWarning, match=message) as warned:
        rounds(**law)
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rounds(**law)


def test_the_trial_of_a_law_leaves_its_numbers_as_they_are() -> None:
    expected = stream()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clock = Clock(np.array([1, 2, 3]), 0, latency=RestlessTimes())
    expected()  # the clock has asked for round 1
    assert np.array_equal(clock.nominal(2), expected())


@pytest.mark.parametrize(
    ("least", "message"),
    [
        (1.0, r"least returned float64 \[\]; it must return numbers \[3\]"),
        (np.array([0.0, 0.0, -1.0]), "least returned -1 for client 2; lower bounds are at least 0"),
        (["a", "b", "c"], r"least returned <U1 \[3\]"),
    ],
)
def test_lower_bounds_that_cannot_be(least: Any, message: str) -> None:
    with pytest.raises(UsageError, match=rf"systems\.latency: Own\.{message}"):
        rounds(latency=with_least(least), deadline=9.0)


def with_least(least: Any) -> Latency:
    """A law of times in proportion to the samples, with this lower bound."""

    @parameters
    class Own(Latency):
        def times(self, num_samples: Any, seed: int) -> Any:
            return lambda t: num_samples

        def least(self, num_samples: Any, seed: int) -> Any:
            return least

    return Own()


def test_a_lower_bound_above_the_time_of_round_1_refuses_no_deadline() -> None:
    rounds(latency=with_least(np.array([500, 0, 700])), deadline=6.0)
    with pytest.raises(UsageError, match=r"no client can ever meet it; .* client 0 with 5 samples, is 5$"):
        rounds(latency=with_least(np.array([500, 0, 700])), deadline=4.0)


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
