"""Which clients are there in which round.

A law is a ``@parameters`` class that extends :class:`Availability`: its :meth:`~Availability.presence` gives a function of the round
that says who is there. A function: round 20 can be asked first, a resumed run needs nothing from the checkpoint, and all
strategies under one seed find the same clients.

>>> Always().presence(num_clients=3, rounds=10, seed=0)(4).tolist()
[True, True, True]
"""

import hashlib
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.streams import rng

__all__ = ["Always", "Availability", "Bernoulli", "Diurnal", "Markov", "Trace"]

Mask = NDArray[np.bool_]

Presence = Callable[[int], Mask]
"""Round (from 1) → True for the clients that are there, bool [m]."""

Probability = Annotated[float, Ge(0), Le(1)]


class Availability:
    """A law of presence."""

    def presence(self, num_clients: int, rounds: int, seed: int) -> Presence:
        """Who is there, as a function of the round.

        Raises:
            UsageError: the law cannot say for all of ``rounds`` rounds and ``num_clients`` clients.
        """
        raise NotImplementedError

    def fingerprint(self) -> str:
        """A hash of what the law reads from files; a run goes on only where it is the same. Empty for most."""
        return ""


@parameters
class Always(Availability):
    """Every client is there in every round."""

    def presence(self, num_clients: int, rounds: int, seed: int) -> Presence:
        """See :class:`Availability`."""
        everybody = np.ones(num_clients, dtype=bool)
        return lambda t: everybody


@parameters
class Bernoulli(Availability):
    """Each client is there with the same probability in each round, independently of everything."""

    probability: Probability = 0.5
    """Probability with which a client is there in a round (q)."""

    def presence(self, num_clients: int, rounds: int, seed: int) -> Presence:
        """See :class:`Availability`."""
        return lambda t: rng(seed, "availability", t).random(num_clients) < self.probability


@parameters
class Markov(Availability):
    """Each client switches between away and there; it starts in the chain's stationary law, P[there] = p_on/(p_on + p_off).

    From one round to the next a client that is away comes with probability p_on, and one that is there leaves with probability
    p_off: mean absences of 1/p_on rounds, mean stays of 1/p_off.
    """

    p_on: Probability = 0.3
    """Probability that a client that is away is there in the next round."""
    p_off: Probability = 0.1
    """Probability that a client that is there is away in the next round."""

    def __post_init__(self) -> None:
        if self.p_on == 0 and self.p_off == 0:
            raise UsageError(
                "systems.availability.p_on = 0: with p_off = 0 as well nobody ever comes or goes; make one of them larger than 0"
            )

    def presence(self, num_clients: int, rounds: int, seed: int) -> Presence:
        """See :class:`Availability`."""
        return _Chain(self.p_on, self.p_off, num_clients, seed)


class _Chain:
    """The states of all clients' chains in any round, from one uniform number U a round and client.

    In round 1 a client is there if U < p_on/(p_on + p_off). Later, one that was away is there if U < p_on, one that was there if
    U < 1 − p_off. Where U is below both or above both, the state before does not matter; so the state in round t follows
    from the rounds since the last such U, and a walk back from t ends as soon as every client has met one. The round after the one
    that was asked last needs a single step. Which way the state was found makes no difference to it.
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
        """What a client would be in round t if it had been away or there in round s − 1, for s = t, t − 1, … until both agree."""
        away, there = np.zeros(self.num_clients, dtype=bool), np.ones(self.num_clients, dtype=bool)
        open_ = np.arange(self.num_clients)  # clients for whom it still matters
        for s in range(t, 0, -1):
            draws = self._draws(s)[open_]
            if s == 1:
                first = draws < self.p_on / (self.p_on + self.p_off)
                away[open_] = np.where(first, there[open_], away[open_])
                return away
            before = away[open_], there[open_]
            away[open_] = np.where(draws < self.p_on, before[1], before[0])
            there[open_] = np.where(draws < 1 - self.p_off, before[1], before[0])
            open_ = open_[away[open_] != there[open_]]
            if len(open_) == 0:
                break
        return away

    def _draws(self, t: int) -> NDArray[np.float64]:
        return rng(self.seed, "availability", t).random(self.num_clients)


@parameters
class Diurnal(Availability):
    """Day and night: client i is there with probability q_i·(mean + swing·sin(2πt/period)), independently in each round.

    The q_i are log-normal over clients, drawn once and scaled so that the largest is 1. As in easyFL (github.com/WwZzz/easyFL),
    with its period, mean and swing; σ is ours.
    """

    period: Annotated[float, Gt(0)] = 24.0
    """Rounds in a day."""
    mean: Probability = 0.5
    """Probability of the most present client on average over a day."""
    swing: Probability = 0.4
    """How much that probability rises and falls; mean ± swing must stay within [0, 1]."""
    sigma: Annotated[float, Ge(0)] = 0.5
    """Standard deviation of the logarithm of q_i; 0 makes all clients alike."""

    def __post_init__(self) -> None:
        if self.mean + self.swing > 1 + 1e-12 or self.swing > self.mean + 1e-12:
            most = min(self.mean, 1 - self.mean)
            raise UsageError(
                f"systems.availability.swing = {self.swing:g}: probabilities would leave [0, 1]; with mean = {self.mean:g} "
                f"use at most {most:g}"
            )

    def presence(self, num_clients: int, rounds: int, seed: int) -> Presence:
        """See :class:`Availability`."""
        logs = self.sigma * rng(seed, "availability-clients").standard_normal(num_clients)
        q = np.exp(logs - logs.max(initial=-np.inf))

        def there(t: int) -> Mask:
            hour = self.mean + self.swing * math.sin(2 * math.pi * t / self.period)
            return np.asarray(rng(seed, "availability", t).random(num_clients) < q * hour)

        return there


@parameters
class Trace(Availability):
    """Who was there is read from a file.

    JSON: a list with one list of client ids for each round. CSV: the header ``round,client`` and one line for each client that is
    there in a round; rounds count from 1, and the last one named is the last of the trace. Client ids count from 0.
    """

    file: str
    """The file, ``.json`` or ``.csv``; in an experiment file its path is given from where that lies."""
    repeat: bool = False
    """Begin again with its first round after its last one."""

    def presence(self, num_clients: int, rounds: int, seed: int) -> Presence:
        """See :class:`Availability`."""
        when, who, length = self._read()
        where = f"systems.availability.file = {self.file!r}"
        if rounds > length and not self.repeat:
            raise UsageError(
                f"{where}: has {length} rounds, the run has {rounds}; use repeat = true, a longer trace or fewer rounds"
            )
        wrong = np.flatnonzero((who < 0) | (who >= num_clients))
        if len(wrong):
            raise UsageError(
                f"{where}: names client {who[wrong[0]]} in round {when[wrong[0]]}; with federation.clients = {num_clients} "
                f"there are clients 0 to {num_clients - 1}"
            )

        def there(t: int) -> Mask:
            day = (t - 1) % length + 1 if self.repeat else t
            mask = np.zeros(num_clients, dtype=bool)
            mask[who[np.searchsorted(when, day) : np.searchsorted(when, day, side="right")]] = True
            return mask

        return there

    def fingerprint(self) -> str:
        """See :class:`Availability`."""
        return hashlib.sha256(self._bytes()).hexdigest()[:16]

    def _bytes(self) -> bytes:
        try:
            return Path(self.file).expanduser().read_bytes()
        except OSError as error:
            raise UsageError(
                f"systems.availability.file = {self.file!r}: cannot be read: {error.strerror or error}; give a .json or .csv file"
            ) from None

    def _read(self) -> tuple[Indices, Indices, int]:
        """Rounds, ascending, and the clients that are there in them, pairwise; and the number of rounds."""
        where = f"systems.availability.file = {self.file!r}"
        kind = Path(self.file).suffix.lower()
        if kind not in (".json", ".csv"):
            raise UsageError(f"{where}: should end in .json or .csv")
        content = self._bytes()
        try:
            when, who, length = _from_json(content) if kind == ".json" else _from_csv(content)
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from None
        if length == 0:
            raise UsageError(f"{where}: has no rounds")
        order = np.argsort(when, kind="stable")
        return when[order], who[order], length


def _from_json(content: bytes) -> tuple[Indices, Indices, int]:
    rounds: Any = json.loads(content)
    form = "it should be a list with one list of client ids for each round"
    if not isinstance(rounds, list):
        raise ValueError(form)
    for t, clients in enumerate(rounds, 1):
        if not isinstance(clients, list) or not all(type(c) is int and abs(c) < 2**62 for c in clients):
            raise ValueError(f"round {t} is {str(clients)[:40]}; {form}")
    when = np.repeat(np.arange(1, len(rounds) + 1), [len(clients) for clients in rounds])
    return when, np.array([c for clients in rounds for c in clients], dtype=np.int64), len(rounds)


def _from_csv(content: bytes) -> tuple[Indices, Indices, int]:
    import pandas as pd

    try:
        frame = pd.read_csv(io.BytesIO(content))
    except pd.errors.EmptyDataError:
        raise ValueError("is empty; its first line should be round,client") from None
    for column in ("round", "client"):
        if column not in frame:
            raise ValueError(f"there is no column {column!r}; its first line should be round,client")
        if len(frame) and frame[column].dtype.kind != "i":
            raise ValueError(f"column {column!r} should hold whole numbers")
    when, who = (frame[column].to_numpy(dtype=np.int64) for column in ("round", "client"))
    if (when < 1).any():
        raise ValueError(f"names round {when.min()}; rounds count from 1")
    return when, who, int(when.max(initial=0))
