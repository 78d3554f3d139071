"""Mild label skew: every class is divided by random fractions.

Client Selection in Federated Learning on Non-IID Data using Conformal Prediction, master's thesis, Aalborg University, 2023.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.federation.partitions.pools import cut, shuffled_by_class

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

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """One cut per class; see :meth:`Rule.assign`."""
        clients = np.empty(len(labels), np.int64)
        samples, starts = shuffled_by_class(labels, rng)
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            a = 1.0 - rng.random(num_clients) if self.law == "uniform" else rng.standard_exponential(num_clients)
            clients[samples[start:stop]] = np.repeat(np.arange(num_clients), cut(a / a.sum(), stop - start))
        return clients
