"""In which rounds which clients were selected, or admitted, with memory for these only: a long run of many clients has few of them."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedcohort.core.arrays import Indices, Values

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ClientRounds"]


@dataclass(frozen=True, eq=False)
class ClientRounds:
    """Pairs of a round and a client, each once, in the order of rounds.

    Attributes:
        rounds: the round of each pair, from 0, int64.
        clients: the client of each pair, int64.
        num_rounds, num_clients: n and m.
    """

    rounds: Indices
    clients: Indices
    num_rounds: int
    num_clients: int

    @classmethod
    def of(cls, frame: "pd.DataFrame", num_rounds: int, num_clients: int) -> "ClientRounds":
        """The pairs in the columns ``round``, from 1, and ``client``."""
        pairs = frame[["round", "client"]].drop_duplicates().sort_values("round", kind="stable")
        rounds, clients = (pairs[name].to_numpy(np.int64) for name in ("round", "client"))
        return cls(rounds - 1, clients, num_rounds, num_clients)

    def __len__(self) -> int:
        return len(self.rounds)

    @cached_property
    def times(self) -> Indices:
        """The number of rounds of each client [m]."""
        return np.bincount(self.clients, minlength=self.num_clients)

    @property
    def num_ever(self) -> int:
        """Number of clients that are in a pair."""
        return int((self.times > 0).sum())

    def jain(self) -> Values:
        """Jain's index of how often each client was selected up to each round, float64 [n]; NaN before the first selection."""
        order = np.argsort(self.clients, kind="stable")
        begins = np.concatenate([[0], np.cumsum(self.times)])
        before = np.empty(len(self), np.int64)
        before[order] = np.arange(len(self)) - begins[self.clients[order]]  # how often the client was selected before
        total = np.bincount(self.rounds, minlength=self.num_rounds).cumsum().astype(np.float64)
        squares = np.bincount(self.rounds, 2.0 * before + 1, minlength=self.num_rounds).cumsum()
        index: Values = np.full(self.num_rounds, np.nan)
        np.divide(total**2, self.num_clients * squares, out=index, where=squares > 0)
        return index
