"""How fast clients are and whether they are there: the virtual clock. Simulated time, never the wall's.

Latency (H10): T_i = a·N_i·u_i + X_i with X_i exponential of mean s·N_i·u_i; u_i is the work done over the nominal work. The unit is the
time of one pass over one sample. Shifted-exponential model of FLASH (arXiv:2402.08769), drawn before training and keyed by client
and round, so that every strategy under one seed meets the same times.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from fedcohort.arrays import Indices, Values
from fedcohort.parameters import parameters
from fedcohort.streams import rng

if TYPE_CHECKING:
    from fedcohort.algorithms.base import Update

__all__ = ["Clock", "Systems"]


@parameters
class Systems:
    """The ``[systems]`` section: latency, availability, drop-out."""

    latency_shift: Annotated[float, Gt(0)] = 1.0
    """Time per sample that every client needs at least (α_T)."""
    latency_spread: Annotated[float, Ge(0)] = 1.0
    """Mean of the exponential extra time per sample (λ_T); 0 makes all clients equally fast."""
    latency_redraw: Literal["client", "round"] = "client"
    """Draw the extra time once per client, so that slow devices stay slow, or anew in every round."""
    availability: Annotated[float, Gt(0), Le(1)] = 1.0
    """Probability with which each client is available in a round, independently."""
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Probability with which a selected client fails before it sends its update."""


@dataclass
class Clock:
    """The virtual clock of one run.

    Attributes:
        systems: its laws.
        num_samples: N_i, int64 [m].
        seed: of the experiment.
        now: simulated time so far.
        durations: last known time of each client for nominal work, float64 [m]; NaN where never measured.
    """

    systems: Systems
    num_samples: Indices
    seed: int
    now: float = 0.0
    durations: Values = field(init=False)
    _extra: Values | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.durations = np.full(len(self.num_samples), np.nan)

    def available(self, t: int) -> Indices:
        """Clients that can be chosen in round ``t``, ascending; those without data never are (R7)."""
        there = self.num_samples > 0
        if self.systems.availability < 1:
            there &= rng(self.seed, "availability", t).random(len(there)) < self.systems.availability
        return np.flatnonzero(there)

    def nominal(self, t: int) -> Values:
        """Time each client needs for nominal work in round ``t``, float64 [m]."""
        if self._extra is None or self.systems.latency_redraw == "round":
            round_ = t if self.systems.latency_redraw == "round" else 0
            self._extra = rng(self.seed, "latency", round_).exponential(size=len(self.num_samples))
        return self.num_samples * (self.systems.latency_shift + self.systems.latency_spread * self._extra)

    def settle(self, t: int, updates: Iterable["Update"]) -> Iterator["Update"]:
        """Give every update its duration, lose those that drop out, and advance the clock by the slowest that came."""
        nominal = self.nominal(t)
        slowest = 0.0
        for update in updates:
            update.duration = float(nominal[update.client] * update.work)
            if self.systems.dropout and rng(self.seed, "dropout", t, update.client).random() < self.systems.dropout:
                update.failure = "dropped out before its update arrived"
            else:
                slowest = max(slowest, update.duration)
                self.durations[update.client] = nominal[update.client]
            yield update
        self.now += slowest

    def state_dict(self) -> dict[str, Any]:
        """What the next round depends on."""
        return {"now": self.now, "durations": self.durations}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave."""
        self.now, self.durations = state["now"], state["durations"]
