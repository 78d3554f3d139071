"""Label skew and quantity skew: each class is divided among the clients by a Dirichlet draw.

NIID-Bench, arXiv:2102.02079; PFLlib, arXiv:2312.04992.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.federation.partitions.class_cuts import ClassCuts
from fedcohort.federation.partitions.pools import cut, dirichlet_logs, shares_of

__all__ = ["DirichletClass"]


@parameters
class DirichletClass(ClassCuts):
    """A Dirichlet draw divides each class among the clients. This gives label skew and quantity skew.

    For each class c in order 0…K−1: π ~ Dirichlet_m(alpha·1), and the shuffled n_c samples of class c are cut at
    ⌊cumsum(π)·n_c⌋. Client sizes N_i = Σ_c π_{c,i}·n_c are therefore random, and vary more for smaller alpha. In the
    variant ``balanced``, before π is normalized, π_i is set to 0 for every client that already holds N/m samples or more; every
    client then ends with fewer than N/m + max_c n_c samples.

    Li, Diao, Chen, He 2021 (NIID-Bench), arXiv:2102.02079; ``balanced`` as in PFLlib, arXiv:2312.04992.
    """

    alpha: Annotated[float, Gt(0)] = 0.05
    """Concentration of the Dirichlet draw; 0.05 gives nearly single-class clients of very different sizes, 100 nearly equal shares."""

    variant: Literal["balanced", "plain"] = "balanced"
    """``balanced`` gives no more samples to clients that already hold N/m; ``plain`` does not limit sizes."""

    min_size: Annotated[int, Ge(0)] = 10
    """Smallest number of samples per client; draws that give a client fewer are repeated."""

    evens_out: ClassVar[str | None] = "alpha"

    def cuts(self, class_sizes: Indices, num_clients: int, repeats: int, rng: np.random.Generator) -> Iterator[Indices]:
        """See :meth:`ClassCuts.cuts`."""
        num_samples = int(class_sizes.sum())
        held = np.zeros((repeats, num_clients), np.int64)
        for size in class_sizes.tolist():
            logs, scale = dirichlet_logs(self.alpha, held.shape, rng)
            if self.variant == "balanced":
                is_full = held * num_clients >= num_samples
                logs[is_full] = -np.inf  # share 0; the others' largest share is never 0, so no redraw is needed
            counts = cut(shares_of(logs, scale), size)
            held += counts
            yield counts
