"""Every law of the simulated clock fulfills its contract, and the checks detect laws that do not."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcohort.core.parameters import make, parameters
from fedcohort.experiment.sections import Availability as AvailabilitySection
from fedcohort.experiment.sections import Latency as LatencySection
from fedcohort.experiment.sections import Network as NetworkSection
from fedcohort.federation import Availability, Latency, Network
from fedcohort.federation.availability import GivenShares
from fedcohort.testing import check_availability, check_latency, check_network

SIX = [1.5, 2.0, 3.0, 0.5, 1.0, 4.0]
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "shifted_exponential": [{}, {"redraw": "round"}, {"redraw": "mixed"}, {"spread": 0.0}],
    "given_times": [{"times_of_clients": SIX}],
    "given_shares": [{"shares": [0.0, 0.1, 0.5, 0.9, 1.0, 0.3]}],
    "markov": [{}, {"p_on": 0.1, "p_off": 0.05}],
    "share": [{}, {"share": 1.0}],
    "lognormal": [{}, {"sigma": 0.0}],
}


def cases(table: Any) -> list[tuple[str, dict[str, Any]]]:
    """Every law of a table with settings; the trace needs a file."""
    return [(name, values) for name in table if name != "trace" for values in SETTINGS.get(name, [{}])]


@pytest.mark.parametrize(("name", "values"), cases(LatencySection.table))
def test_every_latency_law_fulfills_the_contract(name: str, values: dict[str, Any]) -> None:
    check_latency(partial(make, LatencySection.table.find(name, "systems.latency"), values, "systems.latency"))


@pytest.mark.parametrize(("name", "values"), cases(NetworkSection.table))
def test_every_network_law_fulfills_the_contract(name: str, values: dict[str, Any]) -> None:
    check_network(partial(make, NetworkSection.table.find(name, "systems.network"), values, "systems.network"))


@pytest.mark.parametrize(("name", "values"), cases(AvailabilitySection.table))
def test_every_availability_law_fulfills_the_contract(name: str, values: dict[str, Any]) -> None:
    found = AvailabilitySection.table.find(name, "systems.availability")
    check_availability(partial(make, found, values, "systems.availability"))


def test_a_trace_fulfills_the_contract(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("[[0, 3], [], [5]]", encoding="utf-8")
    found = AvailabilitySection.table.find("trace", "systems.availability")
    check_availability(lambda: found(file=str(tmp_path / "trace.json"), repeat=True))


class Stream:
    """The next numbers of a generator at each call, so that a round depends on the calls before."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)

    def __call__(self, t: int) -> Any:
        return self._draw.uniform(1, 2, 6)


class Growing(Stream):
    """Each call adds to the result of the one before, whichever round it is for."""

    def __call__(self, t: int) -> Any:
        self._sum = getattr(self, "_sum", np.zeros(6)) + 1.0
        return self._sum


_calls = itertools.count()


def latency(times: Callable[[Any, Any, int], Any], least: Any = 0.0) -> type[Latency]:
    """A law with this method ``times(self, num_samples, seed)``, and these lower bounds."""

    @parameters
    class Own(Latency):
        """A law."""

        def times(self, num_samples: Any, seed: int) -> Any:
            return times(self, num_samples, seed)

        def least(self, num_samples: Any, seed: int) -> Any:
            return np.broadcast_to(least, len(num_samples))

    return Own


def on_self(self: Any, num_samples: Any, seed: int) -> Any:
    """The times of the first seed for all later ones."""
    if not hasattr(self, "_kept"):
        self._kept = np.random.default_rng(seed).uniform(1, 2, 6)
    return lambda t: self._kept


def counted(self: Any, num_samples: Any, seed: int) -> Any:
    """Slower with each use of the law."""
    self._uses = getattr(self, "_uses", 0) + 1
    times = np.full(6, float(self._uses))
    return lambda t: times


WRONG_LATENCIES: list[tuple[type[Latency], str]] = [
    (latency(lambda self, n, seed: 1.0 * n), r"raised UsageError: .*it must return a function from the round"),
    (latency(lambda self, n, seed: lambda t: np.ones(5)), r"returned float64 \[5\] for round 1; it must return numbers"),
    (latency(lambda self, n, seed: lambda t: 10.0 - 2 * t + 0 * n), "in round 6 is -2.0; times are finite and at least 0"),
    (latency(lambda self, n, seed: lambda t: np.full(len(n), 1.0 if t < 3 else np.inf)), "in round 3 is inf; times are finite"),
    (latency(lambda self, n, seed: Stream(seed)), "round 5: other times if rounds are asked for out of order; keep no state"),
    (latency(lambda self, n, seed: Growing(seed)), "round 5: other times if rounds are asked for out of order"),
    (latency(lambda self, n, seed: Stream(None)), "round 1: two laws with one seed gave other times; draw from a gen"),  # type: ignore[arg-type]
    (
        latency(lambda self, n, seed: lambda t: np.random.uniform(1, 2, 6)),  # noqa: NPY002  # the mistake
        "draws from numpy.random; draw from a generator that depends on the seed and the round",
    ),
    (latency(on_self), "round 5: other times if rounds are asked for after seed 1; keep no state"),
    (latency(counted), "round 5: other times if rounds are asked for after seed 1"),
    (latency(lambda self, n, seed: lambda t: n / t, least=4.0), "least: is 4 for client 2, whose time in round 2 is 2.5; return"),
    (latency(lambda self, n, seed: lambda t: 1.0 * n, least=-1.0), "least returned -1 for client 0; lower bounds are at least"),
    (latency(lambda self, n, seed: lambda t: n / self.missing), r"AttributeError: 'Own' object has no .*test_laws\.py:"),
]  # fmt: skip


@pytest.mark.parametrize(("law", "message"), WRONG_LATENCIES)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_wrong_latency_laws_are_found(law: type[Latency], message: str) -> None:
    with pytest.raises(AssertionError, match=rf"^Own(, seed 0.*|: )({message})"):
        check_latency(law)


class Undeclared(Latency):
    """Is no dataclass."""

    def times(self, num_samples: Any, seed: int) -> Any:
        return lambda t: 1.0 * num_samples


@parameters
class NoDocstring(Undeclared):
    """Has a parameter without a text."""

    factor: float = 1.0


def test_laws_are_classes_of_their_kind_and_described() -> None:
    with pytest.raises(AssertionError, match=r"^Undeclared: mark the class with @parameters"):
        check_latency(Undeclared)
    with pytest.raises(AssertionError, match=r"^NoDocstring\.factor: write a docstring under the field"):
        check_latency(NoDocstring)
    with pytest.raises(AssertionError, match=r"^GivenShares: does not extend fedcohort\.federation\.Latency"):
        check_latency(lambda: GivenShares(shares=[1.0]))  # type: ignore[arg-type, return-value]
    with pytest.raises(AssertionError, match=r"^GivenShares: does not extend fedcohort\.federation\.Network"):
        check_network(lambda: GivenShares(shares=[1.0]))  # type: ignore[arg-type, return-value]
    with pytest.raises(AssertionError, match=r"^NoDocstring: does not extend fedcohort\.federation\.Availability"):
        check_availability(NoDocstring)  # type: ignore[arg-type]


def test_the_time_of_a_client_without_samples_is_not_used() -> None:
    """It may be NaN, such as 0/0, in all results of a law."""
    own = np.array([9, 16, 5, np.nan, 30, 7])
    check_latency(latency(lambda self, n, seed: lambda t: own * t))
    check_network(network(lambda times, clients, sent, own: both(times, sent / own[clients]), lambda m, seed: own))


def network(split: Callable[..., Any], prepare: Callable[[int, int], Any] = lambda m, seed: None) -> type:
    """A law with this function; its fourth argument is what ``prepare(num_clients, seed)`` returns."""

    @parameters
    class Own(Network):
        """A law."""

        def split(self, num_clients: int, seed: int, nominal_bytes: int) -> Any:
            own = prepare(num_clients, seed)
            return partial(split, own=own)

    return Own


def speeds(m: int, seed: int) -> Any:
    return np.random.default_rng(seed).uniform(1, 9, m)


def generator(m: int, seed: int) -> Any:
    return np.random.default_rng(seed)


def unseeded(m: int, seed: int) -> Any:
    return np.random.default_rng().uniform(1, 9, m)


def both(times: Any, sending: Any) -> Any:
    return times + sending, sending


WRONG_NETWORKS: list[tuple[type, str]] = [
    (network(lambda times, clients, sent, own: times), "it must return total times, and the communication part of them"),
    (network(lambda times, clients, sent, own: (times, times + 1)), "the time 90 for client 0, and 91 of it for comm"),
    (network(lambda times, clients, sent, own: (times - 100, 0 * times)), "the time -10 for client 0"),
    (network(lambda times, clients, sent, own: both(times, sent / own), speeds), r"clients \[2, 3\] only: raised ValueError"),
    (
        network(lambda times, clients, sent, own: both(times, sent / own[: len(clients)]), speeds),
        r"clients \[2, 3\] only: other times than together with all others; .*such as bandwidth\[clients\]",
    ),
    (
        network(lambda times, clients, sent, own: both(times, sent / own[np.sort(clients)]), speeds),
        r"clients \[5, 4, 3, 2, 1, 0\] only: other times than together",
    ),
    (
        network(lambda times, clients, sent, own: both(times, sent / own[clients if len(clients) > 1 else 0]), speeds),
        r"clients \[5\] only: other times than together",
    ),
    (
        network(lambda times, clients, sent, own: both(times * (1 + 1e-6 * len(clients)), sent)),
        r"clients \[2, 3\] only: other times than together",
    ),
    (
        network(lambda times, clients, sent, own: both(times, 1e-10 * len(clients) + 0 * times)),
        r"clients \[2, 3\] only: other times than together",
    ),
    (
        network(lambda times, clients, sent, own: both(times, sent.sum() + 0 * times)),
        r"clients \[2, 3\] only: other times than together",
    ),
    (network(lambda times, clients, sent, own: both(times, own.uniform(1, 2, len(clients))), generator), "the same call gave other"),
    (network(lambda times, clients, sent, own: both(times, sent / own[clients]), unseeded), "another law with this seed gave other"),
    (
        network(lambda times, clients, sent, own: both(times, np.random.uniform(1, 2, len(clients)))),  # noqa: NPY002
        "draws from numpy.random; draw from a generator",
    ),
    (network(lambda times, clients, sent, own: both(times, 0.1)), r"returned float64 \[\]; it must return two arrays"),
]  # fmt: skip


@pytest.mark.parametrize(("law", "message"), WRONG_NETWORKS)
def test_wrong_network_laws_are_found(law: type, message: str) -> None:
    with pytest.raises(AssertionError, match=rf"^Own, seed 0.*({message})"):
        check_network(law)


@parameters
class KeepsTheFirst(Network):
    """Has the bandwidths of its first seed forever."""

    def split(self, num_clients: int, seed: int, nominal_bytes: int) -> Any:
        if not hasattr(self, "_speeds"):
            self._speeds = speeds(num_clients, seed)
        return lambda times, clients, sent: both(times, sent / self._speeds[clients])


def test_a_network_law_that_keeps_something_is_found() -> None:
    with pytest.raises(
        AssertionError, match=r"^KeepsTheFirst, seed 0: other times after the law was used with seed 1; keep nothing"
    ):
        check_network(KeepsTheFirst)


def availability(presence: Callable[[Any, int, int], Any], fingerprint: Any = lambda: "") -> type[Availability]:
    """A law with this method ``presence(self, num_clients, seed)``, and this fingerprint."""

    @parameters
    class Own(Availability):
        """A law."""

        def presence(self, num_clients: int, rounds: int, seed: int) -> Any:
            return presence(self, num_clients, seed)

        def fingerprint(self) -> Any:
            return fingerprint()

    return Own


def goes_and_returns(self: Any, m: int, seed: int) -> Any:
    """A chain that is remembered from one call to the next."""
    self._now = np.ones(m, dtype=bool)

    def present(t: int) -> Any:
        self._now = self._now ^ (np.random.default_rng([seed, t]).random(m) < 0.3)
        return self._now

    return present


def in_turn(self: Any, m: int, seed: int) -> Any:
    return lambda t: np.arange(m) % 2 == t % 2


WRONG_AVAILABILITIES: list[tuple[type[Availability], str]] = [
    (availability(lambda self, m, seed: np.ones(m, bool)), "it must return a function from the round to True or False"),
    (availability(lambda self, m, seed: lambda t: np.arange(m)), r"returned int64 \[6\] for round 1; it must return True or"),
    (availability(lambda self, m, seed: lambda t: np.array([0, 2])), r"returned int64 \[2\] for round 1"),
    (availability(lambda self, m, seed: lambda t: Stream(seed)(t)[:5] < 1.5), r"returned bool \[5\]"),
    (availability(lambda self, m, seed: (lambda s: lambda t: s(t) < 1.5)(Stream(seed))), "other available clients if rounds are"),
    (availability(goes_and_returns), "other available clients if rounds are asked for out of order"),
    (availability(lambda self, m, seed: lambda t: np.random.random(m) < 0.5), "draws from numpy.random; draw from"),  # noqa: NPY002
    (availability(lambda self, m, seed: lambda t: np.random.default_rng().random(m) < 0.5), "two laws with one seed gave other"),
    (availability(in_turn, fingerprint=lambda: 3), "fingerprint: returned 3; return a text"),
    (availability(in_turn, fingerprint=lambda: str(next(_calls))), "fingerprint: two calls gave two texts"),
]  # fmt: skip


@pytest.mark.parametrize(("law", "message"), WRONG_AVAILABILITIES)
def test_wrong_availability_laws_are_found(law: type[Availability], message: str) -> None:
    with pytest.raises(AssertionError, match=rf"^Own(, seed 0.*|: )({message})"):
        check_availability(law)
