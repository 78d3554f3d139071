"""Mild label skew: every class is divided by random fractions.

Client Selection in Federated Learning on Non-IID Data using Conformal Prediction, master's thesis, Aalborg University, 2023.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.federation.partitions.pools import Draw, cut, cut_by_class, sum_of_counts

__all__ = ["RandomFractions"]


@parameters
class RandomFractions:
    """Each class is divided in proportion to independent random numbers: a mild skew in which every client has every class.

    For each class, the rule draws m numbers a_1…a_m and cuts the class at ⌊cumsum(a/Σa)·n_c⌋. A client's fraction of a class has
    mean 1/m and standard deviation .113, .058, .038 for m = 5, 10, 15 (.163, .090, .062 with ``law = "exp"``); for m = 10 the
    largest of a class's ten fractions is .187 on average, the smallest .017.

    CP thesis, Aalborg University, 2023; the thesis does not state the law of a_i; uniform is our interpretation.
    """

    law: Literal["uniform", "exp"] = "uniform"
    """Distribution of the random numbers: uniform on (0, 1), or exponential, which equals ``dirichlet_class`` with alpha = 1 and
    variant plain."""

    min_size: Annotated[int, Ge(0)] = 10
    """Smallest number of samples per client; draws that give a client fewer are repeated."""

    evens_out: ClassVar[str | None] = None
    heavy_tails: ClassVar[bool] = False

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """One cut per class; see :meth:`Rule.assign`."""
        return self.assign_on_demand(labels, num_clients, rng).assign()

    def assign_on_demand(self, labels: Indices, num_clients: int, rng: np.random.Generator) -> Draw:
        """One draw, before samples are assigned; see :class:`AssignsOnDemand`."""
        return cut_by_class(labels, num_clients, self._counts, rng)

    def sizes_of_draws(self, class_sizes: Indices, num_clients: int, repeats: int, rng: np.random.Generator) -> Indices:
        """Sizes of the clients in several draws; see :class:`DrawsSizes`."""
        return sum_of_counts(self._counts(class_sizes, num_clients, repeats, rng), (repeats, num_clients))

    def _counts(
        self, class_sizes: Indices, num_clients: int, repeats: int, rng: np.random.Generator
    ) -> Iterator[Indices]:
        """For each class, the number of its samples that each client gets, int64 [repeats, m]."""
        shape = (repeats, num_clients)
        for size in class_sizes.tolist():
            a = 1.0 - rng.random(shape) if self.law == "uniform" else rng.standard_exponential(shape)
            yield cut(a / a.sum(axis=-1, keepdims=True), size)
