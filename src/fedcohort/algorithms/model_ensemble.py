"""The models of a round, kept until its end, for algorithms that compare models or let them learn from each other."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from fedcohort.algorithms.base import WeightMode
from fedcohort.algorithms.updates import Members, ModelState, Tensors, Update
from fedcohort.algorithms.weighted_means import RunningMean
from fedcohort.core.errors import UsageError

__all__ = ["ClientModel", "Ensemble", "all_identical", "average", "check_weights"]


@dataclass(frozen=True)
class ClientModel:
    """The admitted model of one client.

    Attributes:
        client: id of the client.
        state: the whole model; tensors that the client did not send have the values that it received.
        weight: weight in an average, before normalization.
        times: how many times the client was drawn; its model counts that many times.
        extra: what the client sent beside the model.
    """

    client: int
    state: ModelState
    weight: float
    times: int
    extra: dict[str, Tensors]


@dataclass
class Ensemble:
    """The fold of a round; it keeps all models until the end of the round."""

    model: ModelState
    members: Members
    models: list[ClientModel] = field(default_factory=list)

    def include(self, update: Update, weight: float) -> None:
        """Keep the model of an update; :meth:`Algorithm.add` calls this."""
        state = update.state
        if update.sent is not None:
            state = {name: value if name in update.sent else self.model[name] for name, value in state.items()}
        times = self.members.multiplicity.get(update.client, 1)
        self.models.append(ClientModel(update.client, state, weight, times, update.extra))


def average(models: Sequence[ClientModel], weights: Sequence[float] | None = None) -> ModelState:
    """Σ a_i w_i; ``weights`` replace the models' own weights."""
    mean = RunningMean()
    for model, weight in zip(models, weights or [model.weight for model in models], strict=True):
        mean.add(model.state, weight)
    return mean.result()


def all_identical(models: Sequence[ClientModel]) -> bool:
    """Whether all models are identical, bit for bit; true for a single model."""
    first, *others = models
    return all(torch.equal(value, other.state[name]) for other in others for name, value in first.state.items())


def check_weights(weights: WeightMode, algorithm: str) -> None:
    """Check that the weight mode suits an ensemble: weights must sum to 1.

    Raises:
        UsageError: the weights of this mode do not sum to 1.
    """
    if weights not in ("n_selected", "uniform", "cohort"):
        raise UsageError(
            f"algorithm.weights = {weights!r}: {algorithm} averages the clients' models, so weights must sum to 1; "
            "use n_selected, uniform or cohort"
        )
