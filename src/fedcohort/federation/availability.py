"""Which clients are available in which round.

An availability law is a ``@parameters`` class that extends :class:`Availability`. Its :meth:`~Availability.presence` returns the
available clients as a function of the round: rounds can be evaluated in any order, a resumed run needs nothing from the checkpoint,
and all strategies that are compared under one seed have the same available clients.

>>> Always().presence(num_clients=3, rounds=10, seed=0)(4).tolist()
[True, True, True]
"""

import errno
import hashlib
import io
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.core.files.paths import kind_of
from fedcohort.core.parameters import parameters
from fedcohort.core.random_streams import rng
from fedcohort.core.user_code.method_signatures import check_methods, not_defined
from fedcohort.core.words.formatted_values import counted
from fedcohort.federation.data.array_checks import brief

__all__ = ["Always", "Availability", "Bernoulli", "Diurnal", "GivenShares", "Markov", "Mask", "Presence", "Trace"]

Mask = NDArray[np.bool_]

Presence = Callable[[int], Mask]
"""Round (from 1) → True for the available clients, bool [m]."""

Probability = Annotated[float, Ge(0), Le(1)]


class Availability:
    """An availability law."""

    def __init_subclass__(cls, **settings: object) -> None:
        """Refuse methods with other arguments, where the class is defined."""
        super().__init_subclass__(**settings)
        check_methods(cls, Availability)

    def presence(self, num_clients: int, rounds: int, seed: int) -> Presence:
        """The available clients, as a function of the round.

        Raises:
            UsageError: the law does not cover ``rounds`` rounds and ``num_clients`` clients.
        """
        raise not_defined(self, Availability.presence, "an availability law")

    def fingerprint(self) -> str:
        """A hash of what the law reads from files; a run can be resumed only with the same hash. Empty for laws without files."""
        return ""


@parameters
class Always(Availability):
    """Every client is available in every round."""

    def presence(self, num_clients: int, rounds: int, seed: int) -> Presence:
        """See :class:`Availability`."""
        all_clients = np.ones(num_clients, dtype=bool)
        return lambda _: all_clients


@parameters
class Bernoulli(Availability):
    """All clients are available with the same probability. In each round, this is independent of other clients and rounds."""

    probability: Probability = 0.5
    """Probability that a client is available in a round (q)."""

    def presence(self, num_clients: int, rounds: int, seed: int) -> Presence:
        """See :class:`Availability`."""
        return lambda t: rng(seed, "availability", t).random(num_clients) < self.probability


@parameters
class GivenShares(Availability):
    """Each client is available with a given probability. It has its own one, in each round independently of other clients and
    rounds.

    ``fedcohort advise`` makes such a law of the shares in a table of clients. The law is ours.
    """

    shares: list[Probability]
    """Share of the rounds in which each client is available, such as [0.9, 0.25] for two clients."""

    def presence(self, num_clients: int, rounds: int, seed: int) -> Presence:
        """See :class:`Availability`."""
        if len(self.shares) != num_clients:
            raise UsageError(
                f"systems.availability.shares: has {counted(len(self.shares), 'share')}, one for each client, and "
                f"federation.clients = {num_clients}; give {num_clients}"
            )
        shares = np.array(self.shares)
        return lambda t: rng(seed, "availability", t).random(num_clients) < shares


@parameters
class Markov(Availability):
    """Clients go and return by a Markov chain. It starts in its stationary distribution.

    In round 1, P[available] = p_on/(p_on + p_off). From one round to the next, an unavailable client becomes available with
    probability p_on, and an available client becomes unavailable with probability p_off. Mean durations are 1/p_on rounds of absence
    and 1/p_off rounds of presence.
    """

    p_on: Probability = 0.3
    """Probability that an unavailable client is available in the next round."""
    p_off: Probability = 0.1
    """Probability that an available client is unavailable in the next round."""

    def __post_init__(self) -> None:
        if self.p_on == 0 and self.p_off == 0:
            raise UsageError(
                "systems.availability.p_on = 0: with p_off = 0 as well, no client ever changes its state; "
                "make one of them larger than 0"
            )

    def presence(self, num_clients: int, rounds: int, seed: int) -> Presence:
        """See :class:`Availability`."""
        return _Chain(self.p_on, self.p_off, num_clients, seed)


class _Chain:
    """The states of all clients' Markov chains in any round, from one uniform number U per round and client.

    In round 1, a client is available if U < p_on/(p_on + p_off). Later, a client that was unavailable is available if U < p_on, and a
    client that was available stays available if U < 1 − p_off. If U is below both bounds or above both, the previous state does not
    matter. The state in round t therefore depends only on the rounds since the last such U, and a walk back from round t can end as
    soon as every client has had such a U. For the round after the last evaluated one, a single step forward gives the same state.
    """

    def __init__(self, p_on: float, p_off: float, num_clients: int, seed: int) -> None:
        self.p_on, self.p_off, self.num_clients, self.seed = p_on, p_off, num_clients, seed
        self._last: tuple[int, Mask] | None = None

    def __call__(self, t: int) -> Mask:
        if self._last is None or self._last[0] not in (t - 1, t):
            self._last = (t, self._walk_back(t))
        elif self._last[0] == t - 1:
            draws, before = self._draws(t), self._last[1]
            self._last = (t, draws < np.where(before, 1 - self.p_off, self.p_on))
        return self._last[1]

    def _walk_back(self, t: int) -> Mask:
        """The state in round t. For s = t, t − 1, …, it is computed for both possible states in round s − 1, unavailable and
        available, until both give the same state in round t for every client."""
        if_off, if_on = np.zeros(self.num_clients, dtype=bool), np.ones(self.num_clients, dtype=bool)
        undecided = np.arange(self.num_clients)  # clients for which the two states differ
        for s in range(t, 0, -1):
            draws = self._draws(s)[undecided]
            if s == 1:
                first = draws < self.p_on / (self.p_on + self.p_off)
                if_off[undecided] = np.where(first, if_on[undecided], if_off[undecided])
                return if_off
            after = if_off[undecided], if_on[undecided]
            if_off[undecided] = np.where(draws < self.p_on, after[1], after[0])
            if_on[undecided] = np.where(draws < 1 - self.p_off, after[1], after[0])
            undecided = undecided[if_off[undecided] != if_on[undecided]]
            if len(undecided) == 0:
                break
        return if_off

    def _draws(self, t: int) -> NDArray[np.float64]:
        return rng(self.seed, "availability", t).random(self.num_clients)


@parameters
class Diurnal(Availability):
    """Day and night change the probability to be available. It is q_i·(mean + swing·sin(2πt/period)) for client i, independently in
    each round.

    The q_i are log-normal over clients, drawn once and scaled so that the largest is 1. The law follows easyFL
    (github.com/WwZzz/easyFL), with its period, mean and swing; σ is ours.
    """

    period: Annotated[float, Gt(0)] = 24.0
    """Rounds in a day."""
    mean: Probability = 0.5
    """Mean probability over a day, for the client that is available most."""
    swing: Probability = 0.4
    """Amplitude of that probability over a day; mean ± swing must stay within [0, 1]."""
    sigma: Annotated[float, Ge(0)] = 0.5
    """Standard deviation of the logarithm of q_i; with 0, all clients have the same probability."""

    def __post_init__(self) -> None:
        if self.mean + self.swing > 1 + 1e-12 or self.swing > self.mean + 1e-12:
            most = min(self.mean, 1 - self.mean)
            raise UsageError(
                f"systems.availability.swing = {self.swing:g}: probabilities would leave [0, 1]; with mean = {self.mean:g} "
                f"use at most {most:g}"
            )

    def presence(self, num_clients: int, rounds: int, seed: int) -> Presence:
        """See :class:`Availability`."""
        with np.errstate(over="ignore"):
            logs = np.clip(self.sigma * rng(seed, "availability-clients").standard_normal(num_clients), -1e300, 1e300)
        q = np.exp(logs - logs.max(initial=-np.inf))

        def available(t: int) -> Mask:
            probability = self.mean + self.swing * math.sin(2 * math.pi * t / self.period)
            return np.asarray(rng(seed, "availability", t).random(num_clients) < q * probability)

        return available


@parameters
class Trace(Availability):
    """Availability that is read from a file.

    JSON: a list with one list of client ids per round. CSV: the header ``round,client``, and one line per round and available
    client. Rounds are counted from 1, and the largest round is the length of the trace. Client ids are counted from 0.
    """

    file: str
    """The file, ``.json`` or ``.csv``; a relative path in an experiment file starts at the folder of that file."""
    repeat: bool = False
    """Start the trace again after its last round."""

    def presence(self, num_clients: int, rounds: int, seed: int) -> Presence:
        """See :class:`Availability`."""
        rounds_of, clients, length = self._read()
        where = f"systems.availability.file = {self.file!r}"
        if rounds > length and not self.repeat:
            raise UsageError(
                f"{where}: has {counted(length, 'round')}, the run has {rounds}; use repeat = true, a longer trace or fewer rounds"
            )
        wrong = np.flatnonzero((clients < 0) | (clients >= num_clients))
        if len(wrong):
            raise UsageError(
                f"{where}: contains client {clients[wrong[0]]} in round {rounds_of[wrong[0]]}; with "
                f"federation.clients = {num_clients} there are clients 0 to {num_clients - 1}"
            )

        def available(t: int) -> Mask:
            traced = (t - 1) % length + 1 if self.repeat else t
            mask = np.zeros(num_clients, dtype=bool)
            mask[clients[np.searchsorted(rounds_of, traced) : np.searchsorted(rounds_of, traced, side="right")]] = True
            return mask

        return available

    def fingerprint(self) -> str:
        """See :class:`Availability`."""
        return hashlib.sha256(self._bytes()).hexdigest()[:16]

    def _bytes(self) -> bytes:
        try:
            path = Path(self.file).expanduser()
            if (kind := kind_of(path)) not in ("", "a file"):
                raise OSError(errno.EINVAL, f"is {kind}")
            return path.read_bytes()
        except (OSError, RuntimeError, ValueError) as error:  # the last two: names that no file can have
            problem = brief(getattr(error, "strerror", None) or error)
            raise UsageError(f"{self._where()}: cannot be read: {problem}; give a .json or .csv file") from None

    def _where(self) -> str:
        return f"systems.availability.file = '{brief(self.file, 80)}'"

    def _read(self) -> tuple[Indices, Indices, int]:
        """Pairs of a round (ascending) and an available client, as two arrays; and the number of rounds."""
        where = self._where()
        suffix = Path(self.file).suffix.lower()
        if suffix not in (".json", ".csv"):
            raise UsageError(f"{where}: should end in .json or .csv")
        content = self._bytes()
        try:
            rounds_of, clients, length = _from_json(content) if suffix == ".json" else _from_csv(content)
        except RecursionError:
            raise UsageError(f"{where}: too many nested brackets; it should be a list of lists of client ids") from None
        except (OverflowError, ValueError) as error:
            raise UsageError(f"{where}: {brief(error, 160)}") from None
        if length == 0:
            raise UsageError(f"{where}: has no rounds")
        order = np.argsort(rounds_of, kind="stable")
        return rounds_of[order], clients[order], length


def _from_json(content: bytes) -> tuple[Indices, Indices, int]:
    rounds: object = json.loads(content)
    form = "it should be a list with one list of client ids per round"
    if not isinstance(rounds, list):
        raise ValueError(form)
    for t, clients in enumerate(rounds, 1):
        if not isinstance(clients, list) or not all(type(c) is int and abs(c) < 2**62 for c in clients):
            raise ValueError(f"round {t} is {brief(clients, 40)}; {form}")
    rounds_of = np.repeat(np.arange(1, len(rounds) + 1), [len(clients) for clients in rounds])
    return rounds_of, np.array([c for clients in rounds for c in clients], dtype=np.int64), len(rounds)


def _from_csv(content: bytes) -> tuple[Indices, Indices, int]:
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(io.BytesIO(content), index_col=False)
    except pd.errors.EmptyDataError:
        raise ValueError("is empty; its first line should be round,client") from None
    except pd.errors.ParserWarning:
        raise ValueError("rows have more values than the first line has names; name every column") from None
    for column in ("round", "client"):
        if column not in frame:
            raise ValueError(f"there is no column {column!r}; its first line should be round,client")
        if len(frame) and frame[column].dtype.kind != "i":
            raise ValueError(f"column {column!r} should hold whole numbers")
    rounds_of, clients = (frame[column].to_numpy(dtype=np.int64) for column in ("round", "client"))
    if (rounds_of < 1).any():
        raise ValueError(f"contains round {rounds_of.min()}; rounds are counted from 1")
    return rounds_of, clients, int(rounds_of.max(initial=0))
