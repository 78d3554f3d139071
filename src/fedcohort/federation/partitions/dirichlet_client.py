"""Label skew with controlled sizes: each client draws its own mixture of classes.

Hsu, Qi, Brown 2019, arXiv:1909.06335; FedCor, ``Yoruko-Tang/FedCor`` ``src/sampling.py``.
"""

from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.federation.partitions.mixtures import deal_mixtures
from fedcohort.federation.partitions.pools import random_sizes, shuffled_by_class

__all__ = ["DirichletClient"]


@parameters
class DirichletClient:
    """Each client draws its mixture of classes (Dirichlet law). Sizes are equal, or random with ``sizes``.

    In random order, each client i draws q_i ~ Dirichlet_K and takes N_i samples one by one, without replacement: the class is drawn
    from q_i, renormalized over the classes that still have samples, and the sample at random. All samples are used, so the last
    clients receive the remaining samples, whatever their q_i. Two conventions of alpha differ by a factor K for balanced classes:
    ``alpha_total`` = 0.1 is ``alpha_each`` = 0.01 with 10 classes. With ``alpha_each`` and K = 10, one class has more than 80% in
    88% of the mixtures for 0.01, in 53% for 0.05, and in 28% for 0.1.

    Hsu, Qi, Brown 2019, arXiv:1909.06335. FedCor instead fits the sizes to the class sizes with a quadratic program.
    """

    alpha: Annotated[float, Gt(0)] = 0.5
    """Concentration of the mixtures, in the convention below; small values give nearly one class per client."""

    convention: Literal["alpha_total", "alpha_each"] = "alpha_total"
    """Meaning of alpha: ``alpha_total`` for Dirichlet(alpha·p) with p the class shares in all data, ``alpha_each`` for
    Dirichlet(alpha, …, alpha) over the classes that occur."""

    sizes: Literal["equal", "dirichlet", "lognormal"] = "equal"
    """Sizes of the clients: N/m (equal), or random as in the partition ``quantity``."""

    size_beta: Annotated[float, Gt(0)] = 0.5
    """Concentration for ``sizes = "dirichlet"``."""

    size_sigma: Annotated[float, Gt(0)] = 1.0
    """Standard deviation of the logarithm of the sizes for ``sizes = "lognormal"``."""

    min_size: Annotated[int, Ge(0)] = 10
    """Smallest number of samples per client; draws that give a client fewer are repeated."""

    @property
    def evens_out(self) -> str | None:
        """See :attr:`Rule.evens_out`."""
        return {"equal": None, "dirichlet": "size_beta", "lognormal": "-size_sigma"}[self.sizes]

    @property
    def heavy_tails(self) -> bool:
        """See :class:`DrawsSizes`."""
        return self.sizes == "lognormal"

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """Draw mixtures, then samples of each class; see :meth:`Rule.assign`."""
        samples, starts = shuffled_by_class(labels, rng)
        sizes = random_sizes(self.sizes, self.size_beta, self.size_sigma, len(labels), (num_clients,), rng)
        clients = np.empty(len(labels), np.int64)
        deal_mixtures(clients, samples, starts, sizes, self.alpha, self.convention == "alpha_each", rng)
        return clients

    def sizes_of_draws(self, class_sizes: Indices, num_clients: int, repeats: int, rng: np.random.Generator) -> Indices:
        """Sizes of the clients in several draws; see :class:`DrawsSizes`."""
        shape = (repeats, num_clients)
        return random_sizes(self.sizes, self.size_beta, self.size_sigma, int(class_sizes.sum()), shape, rng)
