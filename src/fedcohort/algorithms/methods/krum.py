"""Krum and multi-Krum: the server uses only the models that lie closest to their neighbors.

    s(i)    = Σ_{j → i} ‖w_i − w_j‖²      over the n − f − 2 admitted models j ≠ i that are closest to w_i
    C       = the m clients with the smallest s(i)
    w^{t+1} = Σ_{i ∈ C} a_i w_i           m = 1 is Krum, m > 1 is multi-Krum

With n ≥ 2f + 3 admitted clients, at most f of them with any models cannot pull the result far from the models of the others. With
fewer clients there is no such guarantee, and the sum covers at least one neighbor. Of clients with equal scores, the one with the
smallest id comes first, as in the paper. A client that was drawn several times is compared once, and its weight in the average is
multiplied. The distances cover the trainable parameters; a tensor that a client did not send has the value that it received.

The server keeps the models of the round until its end, k·P numbers, and compares one tensor of the models at a time. The k² distances
are not in memory together: beyond 8,192 models, blocks of rows are computed, and most distances twice.

Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", 2017,
arXiv:1703.02757 (models instead of gradients, which have the same distances); code ``adap/flower``,
``flwr/serverapp/strategy/multikrum.py``, whose weights are ``n_selected``.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor

from fedcohort.algorithms.base import Algorithm, WeightMode
from fedcohort.algorithms.model_ensemble import ClientModel, Ensemble, average, check_weights
from fedcohort.algorithms.updates import Members, ModelState
from fedcohort.core.arrays import Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.core.sums import sum_type
from fedcohort.core.threads import one_thread

__all__ = ["Krum", "scores", "square_distances"]

PIECE = 2**16
"""Number of differences between entries that are computed at a time, at least one tensor of two models: in float64, they fit into a
core's cache."""
ROWS = 2**26
"""Number of distances that are in memory at a time, at least those of one model to all others: 512 MiB in float64."""


def scores(models: Sequence[ModelState], names: Sequence[str], f: int) -> Values:
    """The score of each model, float64 [n]: the sum of its n − f − 2 smallest squared distances to others (of at least one).

    Args:
        models: the models.
        names: the entries that the distances cover.
        f: number of clients that may send any model.
    """
    n = len(models)
    neighbors, rows = min(max(1, n - f - 2), n - 1), max(ROWS // n, 1)
    found = []
    for start in range(0, n, rows):
        to_others = square_distances(models, names, slice(start, min(start + rows, n)))
        own = np.arange(len(to_others))
        to_others[own, start + own] = np.inf
        to_others.sort(axis=1)
        found.append(to_others[:, :neighbors].sum(axis=1))
    return np.concatenate(found)


def square_distances(models: Sequence[ModelState], names: Sequence[str], rows: slice) -> Values:
    """‖w_i − w_j‖² over the entries ``names``, for the models i in ``rows`` and all models j, float64 [rows, n].

    A distance between two of the rows is computed once.
    """
    n, begin, end = len(models), rows.start, rows.stop
    distances = np.zeros((end - begin, n))
    with one_thread():
        for name in names:
            first = models[0][name]
            values = torch.empty(n, first.numel(), dtype=sum_type(first.device), device=first.device)
            for row, model in zip(values, models, strict=True):
                row.copy_(model[name].reshape(-1))
            distances += _square_distances_once(values, begin, end).cpu().numpy()
    among_rows = distances[:, begin:end]
    among_rows += np.tril(among_rows, -1).T
    return distances


def _square_distances_once(values: Tensor, begin: int, end: int) -> Tensor:
    """The squared distance of each row i of ``values`` [n, P] from ``begin`` to ``end`` to all rows but those from i to ``end``,
    [end − begin, n]; the other entries are 0.

    The differences themselves are squared and summed: the shorter ‖a‖² + ‖b‖² − 2⟨a, b⟩ loses the distances of similar models.
    """
    n, length = values.shape
    rows = max(PIECE // max(length, 1), 1)
    squares = values.new_zeros(end - begin, n)
    for i in range(begin, end):
        for low, high in ((0, i), (end, n)):
            for start in range(low, high, rows):
                stop = min(start + rows, high)
                squares[i - begin, start:stop] = (values[start:stop] - values[i]).square_().sum(dim=1)
    return squares


@parameters
class Krum(Algorithm):
    """The model that is closest to most of the others. Instead, the mean of the m closest models can be taken."""

    weights: WeightMode = "uniform"
    """Weights in the average of multi-Krum: uniform (as in the paper), n_selected, or cohort; they have no effect with m = 1."""
    f: Annotated[int, Ge(0)] = 1
    """Number of clients in a round that may send any model (f); n ≥ 2f + 3 admitted clients are needed for the guarantee."""
    m: Annotated[int, Ge(1)] = 1
    """Number of models that are averaged (m): 1 is Krum, more is multi-Krum; all models, if there are fewer."""

    card: ClassVar[Card] = Card(
        source="Blanchard et al. 2017, arXiv:1703.02757; adap/flower",
        status="code",
        cost="O(k²P), and k models in memory",
    )
    keeps_models: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_weights(self.weights, "multi-Krum")
        self.chosen: dict[int, float] = {}

    def begin(self, model: ModelState, members: Members) -> Ensemble:
        """Keep the models of the round until its end."""
        return Ensemble(model, members)

    def coefficients(self, weights: Mapping[int, float]) -> Mapping[int, float]:
        """Those of the average, in which weights are normalized in every mode."""
        total = sum(weights.values())
        return {client: self.server_lr * weight / total if total > 0 else 0.0 for client, weight in weights.items()}

    def end(self, fold: Ensemble, model: ModelState, members: Members) -> ModelState:
        """The average of the m models with the smallest scores."""
        models = sorted(fold.models, key=lambda member: member.client)
        names = [name for name, value in model.items() if members.trains(name, value)]
        score = scores([member.state for member in models], names, self.f)
        best = [models[i] for i in np.argsort(score, kind="stable")[: self.m].tolist()]
        self.chosen = dict.fromkeys((member.client for member in models), 0.0)
        self.chosen |= {member.client: member.weight for member in best}
        return average(_in_order(fold.models, best))

    def weighed(self) -> Mapping[int, float]:
        """The weights in the average; 0 for the models that were not chosen."""
        return self.chosen


def _in_order(models: Sequence[ClientModel], chosen: Sequence[ClientModel]) -> list[ClientModel]:
    """The chosen models in the order of the cohort, in which all algorithms average."""
    clients = {member.client for member in chosen}
    return [member for member in models if member.client in clients]
