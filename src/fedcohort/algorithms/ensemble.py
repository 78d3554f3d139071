"""The models of a round, all at once: what FedDF and RHFL fold updates into."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from fedcohort.algorithms.base import Members, ModelState, RunningMean, Tensors, Update, WeightMode
from fedcohort.core.errors import UsageError

__all__ = ["Ensemble", "Member", "all_alike", "average", "check_weights"]


@dataclass(frozen=True)
class Member:
    """One admitted model.

    Attributes:
        client: whose it is.
        state: the whole model; tensors that the client did not send are as it received them.
        weight: in an average, before normalisation.
        times: how often the client counts.
        extra: what it sent beside the model.
    """

    client: int
    state: ModelState
    weight: float
    times: int
    extra: dict[str, Tensors]


@dataclass
class Ensemble:
    """The fold: keeps the round's models until its end."""

    model: ModelState
    members: Members
    models: list[Member] = field(default_factory=list)

    def add(self, update: Update, weight: float) -> None:
        """Keep an update's model."""
        state = update.state
        if update.sent is not None:
            state = {name: value if name in update.sent else self.model[name] for name, value in state.items()}
        times = self.members.multiplicity.get(update.client, 1)
        self.models.append(Member(update.client, state, weight, times, update.extra))


def average(models: Sequence[Member], weights: Sequence[float] | None = None) -> ModelState:
    """Σ a_i w_i; ``weights`` in place of the members' own."""
    mean = RunningMean()
    for member, weight in zip(models, weights or [member.weight for member in models], strict=True):
        mean.add(member.state, weight)
    return mean.result()


def all_alike(models: Sequence[Member]) -> bool:
    """Whether all models are the same, bit for bit; one model is."""
    first, *others = models
    return all(torch.equal(value, other.state[name]) for other in others for name, value in first.state.items())


def check_weights(weights: WeightMode, who: str) -> None:
    """An ensemble is averaged: weights that do not sum to 1 mean nothing here.

    Raises:
        UsageError: they do not.
    """
    if weights not in ("n_selected", "uniform", "cohort"):
        raise UsageError(
            f"algorithm.weights = {weights!r}: {who} averages the clients' models, so that weights must sum to 1; "
            "use n_selected, uniform or cohort"
        )
