"""How long a client needs for a round: computing, and the part of it that is sending (H12). Simulated time, never the wall's.

The unit of time is one pass over one sample. A latency law is a ``@parameters`` class that extends :class:`Latency`: a function of
the round gives the times of all clients for nominal work. A network law extends :class:`Network` and says how much of a client's
time is communication. Both are drawn from the streams of the seed, before training and whatever a strategy does, so that all
strategies under one seed meet the same times.

>>> law = ShiftedExponential(shift=1.0, spread=0.0).times(np.array([100, 250]), seed=0)
>>> law(1).tolist()
[100.0, 250.0]
"""

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.core.streams import rng

__all__ = ["Latency", "LogNormalBandwidth", "Network", "Share", "ShiftedExponential"]

Times = Callable[[int], Values]
"""Round → time of each client for nominal work, float64 [m]."""

Split = Callable[[Values, Indices, Values], tuple[Values, Values]]
"""(times, clients, bytes sent both ways) → (whole time of each, the part of it that is communication); arrays of one length."""


# --- computing -----------------------------------------------------------------------------------------------------------------


class Latency:
    """A law of computing times."""

    def times(self, num_samples: Indices, seed: int) -> Times:
        """The times of clients with ``num_samples`` N_i [m] training samples, as a function of the round."""
        raise NotImplementedError

    def least(self, num_samples: Indices, seed: int) -> Values:
        """A time that each client's cannot be below in any round, float64 [m]; 0 where nothing is known."""
        return np.zeros(len(num_samples))


@parameters
class ShiftedExponential(Latency):
    """T_i = α_T·N_i·u_i + X_i, where X_i is exponential with mean λ_T·N_i·u_i; u_i is the work done over the nominal work.

    P[T_i ≤ x] = 1 − exp(−(x − α_T·N_i)/(λ_T·N_i)) for x ≥ α_T·N_i, so the mean is (α_T + λ_T)·N_i. FLASH, arXiv:2402.08769, prints
    "Exp(1/λ_T N_i)"; we read that as the rate. ``mixed`` is ours: X_i is a device's persistent factor (log-normal, σ = 1, mean 1)
    times a fresh exponential of every round.
    """

    shift: Annotated[float, Gt(0)] = 1.0
    """Time per sample that every client needs at least (α_T)."""
    spread: Annotated[float, Ge(0)] = 1.0
    """Mean of the exponential extra time per sample (λ_T); 0 makes all clients equally fast."""
    redraw: Literal["client", "round", "mixed"] = "client"
    """Draw the extra time once per client, so that slow devices stay slow; anew in every round, so that past times of equally
    large clients say nothing about the next; or mixed: devices are slow or fast for good, and every round differs."""

    def times(self, num_samples: Indices, seed: int) -> Times:
        """See :class:`Latency`."""
        m = len(num_samples)
        if self.redraw == "client":
            kept = num_samples * (self.shift + self.spread * rng(seed, "latency").standard_exponential(m))
            return lambda t: kept
        scale = self.spread * num_samples
        if self.redraw == "mixed":
            scale = scale * rng(seed, "latency-device").lognormal(mean=-0.5, sigma=1.0, size=m)
        shift = self.shift * num_samples
        return lambda t: shift + scale * rng(seed, "latency", t).standard_exponential(m)

    def least(self, num_samples: Indices, seed: int) -> Values:
        """See :class:`Latency`."""
        return self.times(num_samples, seed)(0) if self.redraw == "client" else np.asarray(self.shift * num_samples)


# --- sending -------------------------------------------------------------------------------------------------------------------


class Network:
    """A law of communication times."""

    def split(self, num_clients: int, seed: int, nominal_bytes: int) -> Split:
        """How times of computing and bytes become whole times; ``nominal_bytes`` is a model down and a model up."""
        raise NotImplementedError


@parameters
class Share(Network):
    """No network of its own: communication is a fixed share of the time that the latency law gives.

    tc_i = share·T_i and tl_i = (1 − share)·T_i. A client that sends only a part of its update needs less, in proportion to
    bytes (ours); one that sends more than a model does not need longer.
    """

    share: Annotated[float, Ge(0), Le(1)] = 0.2
    """Share of a client's time that is communication, down and up together."""

    def split(self, num_clients: int, seed: int, nominal_bytes: int) -> Split:
        """See :class:`Network`."""

        def split(times: Values, clients: Indices, sent: Values) -> tuple[Values, Values]:
            saved = self.share * np.maximum(1 - sent / nominal_bytes, 0) if nominal_bytes else 0.0
            return times * (1 - saved), times * (self.share - saved)

        return split


@parameters
class LogNormalBandwidth(Network):
    """Every client has its own bandwidth, which is log-normal over clients; what the latency law gives is computing alone.

    T_i = tl_i + tc_i, where tc_i = (bytes down + bytes up)/bandwidth_i; bandwidths are drawn once per client.
    """

    bandwidth: Annotated[float, Gt(0)] = 1000.0
    """Median bytes per unit of simulated time; if one pass over a sample takes 1 ms, 1000 is 8 Mbit/s."""
    sigma: Annotated[float, Ge(0)] = 1.0
    """Standard deviation of the bandwidth's logarithm; 0 gives all clients the same."""

    def split(self, num_clients: int, seed: int, nominal_bytes: int) -> Split:
        """See :class:`Network`."""
        bandwidth = self.bandwidth * np.exp(self.sigma * rng(seed, "bandwidth").standard_normal(num_clients))

        def split(times: Values, clients: Indices, sent: Values) -> tuple[Values, Values]:
            sending = sent / bandwidth[clients]
            return times + sending, sending

        return split
