"""What clients send to the server (updates), and what the server knows about the clients of a round (members)."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn, Protocol, overload

import torch
from torch import Tensor

from fedcohort.core.tensor_sizes import tensor_bytes
from fedcohort.core.threads import in_two_threads

__all__ = ["Members", "ModelGroup", "ModelState", "Tensors", "Update", "is_finite"]

Tensors = dict[str, Tensor]
"""Tensors by name, such as the trainable parameters of a model."""
ModelState = dict[str, Tensor]
"""What clients receive and send of a network's state dictionary, contiguous: parameters, float buffers, integer buffers. Frozen
parameters are not part of it, unless the network itself changes them."""


class ModelGroup(Protocol):
    """The models of several clients that were trained in one computation; each model is computed only when it is read."""

    size: int
    """Number of models."""
    num_bytes: int
    """Size of one model in bytes."""
    mixed_with: int
    """Number of groups among whose updates those of this group are; 0 if no updates of other groups come in between."""

    def state_of(self, position: int) -> ModelState:
        """The model of the client at this position."""

    def is_finite(self, position: int) -> bool:
        """Whether all entries of the model at this position are finite."""

    def mean(self, weights: Mapping[int, float]) -> ModelState:
        """Σ a_i w_i/Σ a_i over the clients at these positions, without computing each model."""


class _ModelOfUpdate:
    """The attribute :attr:`Update.state`.

    It stores None for a model that is still in a group, and computes that model at the first read. Dataclasses call
    :meth:`__get__` without an update to look for a default value; the AttributeError says that there is none.
    """

    @overload
    def __get__(self, update: None, owner: type["Update"]) -> NoReturn: ...
    @overload
    def __get__(self, update: "Update", owner: type["Update"]) -> ModelState: ...
    def __get__(self, update: "Update | None", owner: type["Update"]) -> ModelState:
        if update is None:
            raise AttributeError("state")
        if update._state is None:
            assert update.group is not None
            models, position = update.group
            update._state = models.state_of(position)
        return update._state

    def __set__(self, update: "Update", state: ModelState | None) -> None:
        update._state = state


@dataclass
class Update:
    """What one client sends back.

    Attributes:
        client: id of the client.
        num_samples: number of training samples N_i.
        steps: number of optimizer steps H_i.
        state: trained model w_i; empty after a failure. A model in a :attr:`group` is computed at the first read.
        extra: what the algorithm sends beside the model, name → tensors.
        report: numbers for the server, see :class:`fedcohort.selection.Outcome`.
        passes: cost of the training in forward passes over the client's training data; a gradient counts as three.
        work: work done, divided by the nominal work (the experiment's epochs); 1 unless a strategy changed it.
        sent: names of the tensors that were sent; None means all.
        failure: the reason why there is no result, in words; None if there is a result.
        late: the reason why the server did not wait for the result, in words; None if it waited. The clock sets it.
        duration: simulated time that the client needed. The clock sets it.
        group: the group of models in which this model was trained, and its position in the group; None if it was trained alone.
    """

    client: int
    num_samples: int
    steps: int
    state: _ModelOfUpdate = _ModelOfUpdate()
    extra: dict[str, Tensors] = field(default_factory=dict)
    report: dict[str, float] = field(default_factory=dict)
    passes: float = 3.0
    work: float = 1.0
    sent: frozenset[str] | None = None
    failure: str | None = None
    late: str | None = None
    duration: float = float("nan")
    group: tuple[ModelGroup, int] | None = None
    _state: ModelState | None = field(init=False, repr=False, compare=False)

    @staticmethod
    def among(group: ModelGroup, position: int, client: int, num_samples: int, steps: int) -> "Update":
        """An update with the model at ``position`` of a group."""
        return Update(client, num_samples, steps, None, group=(group, position))

    @property
    def pending(self) -> tuple[ModelGroup, int] | None:
        """The group and the position of a model that has not been computed yet; None once ``state`` holds it."""
        return self.group if self._state is None else None

    @property
    def num_bytes(self) -> int:
        """Uncompressed bytes that the client sends: the model, or the tensors named in ``sent``, and ``extra``."""
        tensors = itertools.chain(*(group.values() for group in self.extra.values()))
        if self.pending is not None and self.sent is None:
            model = self.pending[0].num_bytes
        else:
            model = tensor_bytes(t for name, t in self.state.items() if self.sent is None or name in self.sent)
        return model + tensor_bytes(tensors)


def is_finite(update: Update) -> bool:
    """Whether all numbers of the update are finite, so that it can enter a model."""
    if update.pending is not None:
        models, position = update.pending
        groups = [*update.extra.values()] if models.is_finite(position) else [update.state]
    else:
        groups = [update.state, *update.extra.values()]
    tensors = [t for group in groups for t in group.values() if t.is_floating_point()]
    return all(in_two_threads(_all_finite, tensors, [t.numel() if t.device.type == "cpu" else 0 for t in tensors]))


def _all_finite(values: Tensor) -> bool:
    """Whether no entry is NaN or infinite. The sum is ten times cheaper, but finite numbers may also sum to infinity."""
    return math.isfinite(float(values.sum())) or bool(torch.isfinite(values).all())


@dataclass(frozen=True)
class Members:
    """What the server half knows about the clients of a round.

    Attributes:
        num_clients: number of clients m.
        total_samples: training samples N of all clients.
        k: number of clients to select in the round.
        multiplicity, inclusion, weights: numbers of the :class:`~fedcohort.selection.Cohort`, by client id; empty if it has none.
        t: round, from 1.
        trainable: names of the trainable parameters, which server optimizers move; None means all floating-point entries.
    """

    num_clients: int
    total_samples: int
    k: int
    multiplicity: Mapping[int, int] = field(default_factory=dict)
    inclusion: Mapping[int, float] = field(default_factory=dict)
    weights: Mapping[int, float] = field(default_factory=dict)
    t: int = 1
    trainable: frozenset[str] | None = None

    def trains(self, name: str, value: Tensor) -> bool:
        """Whether an entry of the model is trained; batch-norm statistics and counters are not."""
        return value.is_floating_point() if self.trainable is None else name in self.trainable
