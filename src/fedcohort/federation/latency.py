"""How long a client needs for a round, and how much of this time is communication. All times are simulated.

The unit of time is one pass over one sample. A latency law is a ``@parameters`` class that extends :class:`Latency`: it gives the
times of all clients for nominal work as a function of the round. A network law extends :class:`Network` and gives the part of a
client's time that is communication. Both are drawn from the experiment's seed before training, and do not depend on the strategy,
so that all strategies that are compared under one seed have the same times.

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
from fedcohort.core.random_streams import rng
from fedcohort.core.user_code.method_signatures import check_methods, not_defined

__all__ = ["Communication", "Latency", "LogNormalBandwidth", "Network", "Share", "ShiftedExponential", "Times"]

Times = Callable[[int], Values]
"""Round → time of each client for nominal work, float64 [m]."""

Communication = Callable[[Values, Indices, Values], tuple[Values, Values]]
"""(times of the latency law, clients, bytes down and up) → (total times, communication part of them); arrays of one length."""


# --- computation ---------------------------------------------------------------------------------------------------------------


class Latency:
    """A law of computation times."""

    def __init_subclass__(cls, **settings: object) -> None:
        """Refuse methods with other arguments, where the class is defined."""
        super().__init_subclass__(**settings)
        check_methods(cls, Latency)

    def times(self, num_samples: Indices, seed: int) -> Times:
        """The times of all clients for nominal work, as a function of the round.

        Args:
            num_samples: training samples N_i of each client, int64 [m].
            seed: the experiment's seed.
        """
        raise not_defined(self, Latency.times, "a latency law")

    def least(self, num_samples: Indices, seed: int) -> Values:
        """A lower bound of each client's time in any round, float64 [m]; 0 if none is known."""
        return np.zeros(len(num_samples))


@parameters
class ShiftedExponential(Latency):
    """A time in proportion to the work, and a random delay. T_i = α_T·N_i·u_i + X_i, where X_i is exponential with mean
    λ_T·N_i·u_i; u_i is the work done, divided by the nominal work.

    P[T_i ≤ x] = 1 − exp(−(x − α_T·N_i)/(λ_T·N_i)) for x ≥ α_T·N_i, so the mean is (α_T + λ_T)·N_i. FLASH, arXiv:2402.08769, prints
    "Exp(1/λ_T N_i)", which we interpret as the rate. ``mixed`` is ours: X_i is a persistent factor of the client (log-normal, σ = 1,
    mean 1) times an exponential that is drawn in every round.
    """

    shift: Annotated[float, Gt(0)] = 1.0
    """Smallest time per sample (α_T)."""
    spread: Annotated[float, Ge(0)] = 1.0
    """Mean of the exponential extra time per sample (λ_T); 0 makes all clients equally fast."""
    redraw: Literal["client", "round", "mixed"] = "client"
    """When the extra time is drawn: once per client, so that slow clients stay slow (client); in every round, so that past times do
    not predict later ones among clients of equal size (round); or in every round, times a factor that each client keeps (mixed)."""

    def times(self, num_samples: Indices, seed: int) -> Times:
        """See :class:`Latency`."""
        m = len(num_samples)
        if self.redraw == "client":
            times = num_samples * (self.shift + self.spread * rng(seed, "latency").standard_exponential(m))
            return lambda _: times
        scale = self.spread * num_samples
        if self.redraw == "mixed":
            scale = scale * rng(seed, "latency-device").lognormal(mean=-0.5, sigma=1.0, size=m)
        shift = self.shift * num_samples
        return lambda t: shift + scale * rng(seed, "latency", t).standard_exponential(m)

    def least(self, num_samples: Indices, seed: int) -> Values:
        """See :class:`Latency`."""
        return self.times(num_samples, seed)(0) if self.redraw == "client" else np.asarray(self.shift * num_samples)


# --- communication -------------------------------------------------------------------------------------------------------------


class Network:
    """A law of communication times."""

    def __init_subclass__(cls, **settings: object) -> None:
        """Refuse methods with other arguments, where the class is defined."""
        super().__init_subclass__(**settings)
        check_methods(cls, Network)

    def split(self, num_clients: int, seed: int, nominal_bytes: int) -> Communication:
        """How the times of the latency law and the bytes combine to total times.

        Args:
            num_clients: number of clients m.
            seed: the experiment's seed.
            nominal_bytes: size of one model down and one model up.
        """
        raise not_defined(self, Network.split, "a network law")


@parameters
class Share(Network):
    """Communication is a share of the time of the latency law. This share is fixed.

    tc_i = share·T_i is communication and tl_i = (1 − share)·T_i is computation. A client that sends only a part of its update needs
    less time, in proportion to the bytes (ours); a client that sends more than a model does not need more.
    """

    share: Annotated[float, Ge(0), Le(1)] = 0.2
    """Share of a client's time that is communication, down and up."""

    def split(self, num_clients: int, seed: int, nominal_bytes: int) -> Communication:
        """See :class:`Network`."""

        def split(times: Values, _: Indices, sent: Values) -> tuple[Values, Values]:
            saved = self.share * np.maximum(1 - sent / nominal_bytes, 0) if nominal_bytes else 0.0
            return times * (1 - saved), times * (self.share - saved)

        return split


@parameters
class LogNormalBandwidth(Network):
    """Every client has its own bandwidth, drawn log-normally. The latency law gives the computation time only.

    T_i = tl_i + tc_i, where tc_i = (bytes down + bytes up)/bandwidth_i; bandwidths are drawn once per client.
    """

    bandwidth: Annotated[float, Gt(0)] = 1000.0
    """Median bytes per unit of simulated time; if one pass over a sample takes 1 ms, 1000 is 8 Mbit/s."""
    sigma: Annotated[float, Ge(0)] = 1.0
    """Standard deviation of the bandwidth's logarithm; with 0, all clients have the same bandwidth."""

    def split(self, num_clients: int, seed: int, nominal_bytes: int) -> Communication:
        """See :class:`Network`."""
        bandwidth = self.bandwidth * np.exp(self.sigma * rng(seed, "bandwidth").standard_normal(num_clients))

        def split(times: Values, clients: Indices, sent: Values) -> tuple[Values, Values]:
            sending = sent / bandwidth[clients]
            return times + sending, sending

        return split
