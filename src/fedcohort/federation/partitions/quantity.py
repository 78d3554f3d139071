"""Quantity skew without label skew: clients have different sizes and the same label distribution."""

from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.federation.partitions.pools import random_sizes

__all__ = ["Quantity"]


@parameters
class Quantity:
    """Very different sizes with the same mixture of classes.

    Sizes are proportional to a Dirichlet_m(beta·1) draw or to log-normal(0, sigma) draws, and add up to N. Samples are assigned by a
    random permutation, so that labels are IID within each client.

    NIID-Bench, arXiv:2102.02079, for the Dirichlet law; the log-normal law is ours.
    """

    law: Literal["dirichlet", "lognormal"] = "dirichlet"
    """Distribution of the sizes."""

    beta: Annotated[float, Gt(0)] = 0.5
    """Concentration for ``law = "dirichlet"``: with many clients, the relative standard deviation of sizes is 1/√beta."""

    sigma: Annotated[float, Gt(0)] = 1.0
    """Standard deviation of the logarithm of the sizes for ``law = "lognormal"``."""

    min_size: Annotated[int, Ge(0)] = 10
    """Smallest number of samples per client; draws that give a client fewer are repeated."""

    @property
    def evens_out(self) -> str:
        """See :attr:`Rule.evens_out`."""
        return "beta" if self.law == "dirichlet" else "-sigma"

    @property
    def heavy_tails(self) -> bool:
        """See :class:`DrawsSizes`."""
        return self.law == "lognormal"

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """Random sizes, then random samples; see :meth:`Rule.assign`."""
        sizes = random_sizes(self.law, self.beta, self.sigma, len(labels), (num_clients,), rng)
        return rng.permutation(np.repeat(np.arange(num_clients), sizes))

    def sizes_of_draws(self, class_sizes: Indices, num_clients: int, repeats: int, rng: np.random.Generator) -> Indices:
        """Sizes of the clients in several draws; see :class:`DrawsSizes`."""
        return random_sizes(self.law, self.beta, self.sigma, int(class_sizes.sum()), (repeats, num_clients), rng)
