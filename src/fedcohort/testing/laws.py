"""The contracts of the laws of the simulated clock: latency, network and availability."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from fedcohort.core.arrays import Values
from fedcohort.federation.availability import Availability
from fedcohort.federation.latency import Communication, Latency, Network
from fedcohort.federation.law_checks import communication_of, least_of, presence_of, times_of
from fedcohort.testing.base import check_kind, during_seeded, new_from, require

__all__ = ["check_availability", "check_latency", "check_network"]

SAMPLES = np.array([9, 16, 5, 0, 30, 7])
"""Training samples of the six clients; one has none."""
ROUNDS = range(1, 9)
OUT_OF_ORDER = (5, 2, 8, 2, 1, 7, 3, 6, 4)
"""The same rounds, as a resumed run and several readers ask for them."""
SEEDS = (0, 1)
MODEL_BYTES = 1000
ROUND_OFF = 1e-9
"""Largest relative difference between results of the same computation."""

LawT = TypeVar("LawT", Latency, Availability)


def check_latency(make: Callable[[], Latency]) -> None:
    """Check the contract of :class:`fedcohort.federation.Latency`.

    For each of six clients, the law gives a finite time of at least 0 in each round; the time of a client without samples is not used.
    The times are a function of the seed and the round: rounds can be asked for in any order, and again. ``least`` is a lower bound.

    Args:
        make: returns a new law.

    Raises:
        AssertionError: the contract is broken; the message says where.
    """
    law = new_from(make)
    check_kind(law, Latency, "fedcohort.federation.Latency")

    def times(law: Latency, seed: int) -> Callable[[int], Values]:
        return times_of(law, SAMPLES, seed)

    _check_function_of_round(make, times, "systems.latency", "times")
    for seed in SEEDS:
        law, where = make(), f"{type(law).__name__}, seed {seed}: least"
        with during_seeded(where, law, "systems.latency"):
            least = least_of(law, SAMPLES, seed)
            for t in ROUNDS:
                known = times(law, seed)(t)
                above = np.flatnonzero((SAMPLES > 0) & (least > known * (1 + ROUND_OFF)))
                for client in above[:1]:
                    complaint = (
                        f"is {least[client]:g} for client {client}, whose time in round {t} is {known[client]:g}"
                    )
                    require(False, f"{where}: {complaint}; return a lower bound of the times in all rounds, or 0")


def check_availability(make: Callable[[], Availability]) -> None:
    """Check the contract of :class:`fedcohort.federation.Availability`.

    In each round, the law says True or False for each of six clients. It is a function of the seed and the round: rounds can be asked
    for in any order, and again.

    Args:
        make: returns a new law.

    Raises:
        AssertionError: the contract is broken; the message says where.
    """
    law = new_from(make)
    check_kind(law, Availability, "fedcohort.federation.Availability")

    def presence(law: Availability, seed: int) -> Callable[[int], Any]:
        return presence_of(law, len(SAMPLES), len(ROUNDS), seed)

    _check_function_of_round(make, presence, "systems.availability", "available clients")
    where = f"{type(law).__name__}: fingerprint"
    with during_seeded(where, law, "systems.availability"):
        prints = [make().fingerprint() for _ in range(2)]
    require(all(isinstance(each, str) for each in prints), f"{where}: returned {prints[0]!r}; return a text")
    require(
        prints[0] == prints[1], f"{where}: two calls gave two texts; return a hash of what the law reads from files"
    )


def check_network(make: Callable[[], Network]) -> None:
    """Check the contract of :class:`fedcohort.federation.Network`.

    From times of the latency law and bytes, the law makes finite total times, of which the time of communication is a part. The result
    of a client is the same in each call, whichever other clients are asked for, and depends on the seed only.

    Args:
        make: returns a new law.

    Raises:
        AssertionError: the contract is broken; the message says where.
    """
    law = new_from(make)
    check_kind(law, Network, "fedcohort.federation.Network")
    for seed in SEEDS:
        where = f"{type(law).__name__}, seed {seed}"
        with during_seeded(where, law, "systems.network"):
            split, again = (communication_of(make(), SAMPLES, seed, 2 * MODEL_BYTES) for _ in range(2))
            everybody = np.arange(len(SAMPLES))
            expected, repeated = (_total_and_part(split, everybody) for _ in range(2))
            of_another = _total_and_part(again, everybody)
        advice = "compute everything from the seed, the given clients and their bytes"
        _require_equal(repeated, expected, f"{where}: the same call gave other times; {advice}")
        _require_equal(of_another, expected, f"{where}: another law with this seed gave other times; {advice}")
        for chosen in (everybody[2:4], everybody[5:], everybody[:1], everybody[::-1]):
            of_some = f"{where}, clients {chosen.tolist()} only"
            with during_seeded(of_some, law, "systems.network"):
                _require_equal(
                    _total_and_part(split, chosen),
                    expected[:, chosen],
                    f"{of_some}: other times than together with all others; what the law keeps of each client is indexed by "
                    "clients, such as bandwidth[clients]",
                )
        _check_reused(make, seed, expected)


def _check_reused(make: Callable[[], Network], seed: int, expected: Values) -> None:
    """Check that a law that has served another seed gives the same times."""
    law = make()
    where = f"{type(law).__name__}, seed {seed}"
    with during_seeded(where, law, "systems.network"):
        communication_of(law, SAMPLES, seed + 1, 2 * MODEL_BYTES)
        split = communication_of(law, SAMPLES, seed, 2 * MODEL_BYTES)
        found = _total_and_part(split, np.arange(len(SAMPLES)))
    _require_equal(
        found, expected, f"{where}: other times after the law was used with seed {seed + 1}; keep nothing on self"
    )


def _total_and_part(split: Communication, clients: np.ndarray) -> Values:
    """Total times and their communication part, float64 [2, n]; each client has its own computation time and bytes."""
    times, sent = 10.0 * SAMPLES, MODEL_BYTES * (1.0 + np.arange(len(SAMPLES)) / 5)
    return np.stack(split(times[clients], clients, sent[clients]))


def _require_equal(found: Values, expected: Values, complaint: str) -> None:
    require(np.allclose(found, expected, rtol=ROUND_OFF, atol=0, equal_nan=True), complaint)


def _check_function_of_round(
    make: Callable[[], LawT], ask: Callable[[LawT, int], Callable[[int], Any]], setting: str, what: str
) -> None:
    """Check that a law is a function of the seed and the round.

    Args:
        make: returns a new law.
        ask: the function of the round that the law returns for a seed.
        setting: the setting that names the law.
        what: what the function returns, for messages.
    """
    for seed in SEEDS:
        law, used = make(), make()
        where = f"{type(law).__name__}, seed {seed}"
        with during_seeded(where, law, setting):
            expected, again = (_by_round(ask(each, seed), ROUNDS) for each in (law, make()))
            out_of_order = _by_round(ask(make(), seed), OUT_OF_ORDER)
            ask(used, seed + 1)(1)
            after_another = _by_round(ask(used, seed), OUT_OF_ORDER)
        advice = "draw from a generator of the seed and the round, such as np.random.default_rng([seed, t])"
        for found, complaint in (
            (again, f"two laws with one seed gave other {what};"),
            (out_of_order, f"other {what} if rounds are asked for out of order; keep no state, and"),
            (after_another, f"other {what} if rounds are asked for after seed {seed + 1}; keep no state, and"),
        ):
            other = _first_other(found, expected)
            require(other is None, f"{where}, round {other}: {complaint} {advice}")


def _by_round(of_round: Callable[[int], Any], rounds: Iterable[int]) -> list[tuple[int, Any]]:
    """Rounds and copies of what a function gives for them."""
    return [(t, np.array(of_round(t))) for t in rounds]


def _first_other(found: list[tuple[int, Any]], expected: list[tuple[int, Any]]) -> int | None:
    """The first round with other values than expected; None if there is none."""
    values = dict(expected)
    return next((t for t, value in found if not np.array_equal(value, values[t], equal_nan=True)), None)
