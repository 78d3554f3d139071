"""Label skew and quantity skew together: each class is cut among the clients by a Dirichlet draw.

NIID-Bench, arXiv:2102.02079; PFLlib, arXiv:2312.04992.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.federation.partitions.pools import cut, dirichlet_logs, shares_of, shuffled_by_class

__all__ = ["DirichletClass"]


@parameters
class DirichletClass:
    """Each class is cut among the clients by one Dirichlet draw: label skew and quantity skew together.

    For each class c in order 0…K−1: π ~ Dirichlet_m(alpha·1), and the shuffled n_c samples of class c are cut at
    ⌊cumsum(π)·n_c⌋. Client sizes N_i = Σ_c π_{c,i}·n_c are therefore random, and the more so the smaller alpha. In the variant
    ``balanced``, before π is normalised, π_i is set to 0 for every client that already holds N/m samples or more; nobody then
    ends with N/m + max_c n_c samples or more.

    Li, Diao, Chen, He 2021 (NIID-Bench), arXiv:2102.02079; ``balanced`` as in PFLlib, arXiv:2312.04992.
    """

    alpha: Annotated[float, Gt(0)] = 0.05
    """Concentration of the Dirichlet draw: 0.05 gives nearly single-class clients of very different sizes, 100 nearly equal shares."""

    variant: Literal["balanced", "plain"] = "balanced"
    """``balanced`` gives no more to clients that already hold N/m samples; ``plain`` lets sizes fall as they may."""

    min_size: Annotated[int, Ge(0)] = 10
    """Samples that every client must have at least; draws that leave a client with fewer are repeated."""

    evens_out: ClassVar[str | None] = "alpha"

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """One Dirichlet cut per class; see :meth:`Rule.assign`."""
        clients = np.empty(len(labels), np.int64)
        held = np.zeros(num_clients, np.int64)
        samples, starts = shuffled_by_class(labels, rng)
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            logs, scale = dirichlet_logs(self.alpha, (num_clients,), rng)
            if self.variant == "balanced":
                logs[
                    held * num_clients >= len(labels)
                ] = -np.inf  # out; the largest of the others is never 0: no redraw
            counts = cut(shares_of(logs, scale), stop - start)
            clients[samples[start:stop]] = np.repeat(np.arange(num_clients), counts)
            held += counts
        return clients
