"""Mild label skew: every class is divided by random fractions.

Client Selection in Federated Learning on Non-IID Data using Conformal Prediction, master's thesis, Aalborg University, 2023.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.federation.partitions.class_cuts import ClassCuts
from fedcohort.federation.partitions.pools import cut

__all__ = ["RandomFractions"]


@parameters
class RandomFractions(ClassCuts):
    """A mild skew in which every client has every class. Each class is divided in proportion to independent random numbers.

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

    def cuts(self, class_sizes: Indices, num_clients: int, repeats: int, rng: np.random.Generator) -> Iterator[Indices]:
        """See :meth:`ClassCuts.cuts`."""
        shape = (repeats, num_clients)
        for size in class_sizes.tolist():
            a = 1.0 - rng.random(shape) if self.law == "uniform" else rng.standard_exponential(shape)
            yield cut(a / a.sum(axis=-1, keepdims=True), size)
