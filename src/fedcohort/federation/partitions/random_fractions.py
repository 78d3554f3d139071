"""Mild label skew: every class is cut by random fractions.

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
    """Each class is cut among the clients in proportion to independent random numbers: a mild skew, every client sees every class.

    For each class m numbers a_1…a_m, and the class is cut at ⌊cumsum(a/Σa)·n_c⌋. A client's fraction of a class has mean 1/m and
    standard deviation .113, .058, .038 for m = 5, 10, 15 (.163, .090, .062 with ``law = "exp"``); for m = 10 the largest of a class's
    ten fractions is .187 on average, the smallest .017.

    CP thesis, Aalborg University, 2023; the law of a_i is not stated there: uniform is our reading.
    """

    law: Literal["uniform", "exp"] = "uniform"
    """Law of the random numbers: uniform on (0, 1), or exponential, which is ``dirichlet_class`` with alpha = 1, plain."""

    min_size: Annotated[int, Ge(0)] = 10
    """Samples that every client must have at least; draws that leave a client with fewer are repeated."""

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
