"""Check what engines do with frozen parameters: clients neither receive nor send them, and train with them."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.algorithms import ModelState
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.core.files.state_files import pack
from fedcohort.core.parameters import parameters
from fedcohort.engines.base import Engine
from fedcohort.models import Model
from fedcohort.selection import Cohort, LocalLoss
from fedcohort.testing.base import HEALTHY, members_of, require
from fedcohort.testing.updates import as_plain

__all__ = ["PartlyFrozen", "check_frozen"]

SENT = {"teacher", "last.weight", "last.bias"}
"""Entries of a model of :class:`PartlyFrozen`."""


class _Network(nn.Module):
    """A frozen layer, a trained layer that has two names, frozen numbers that each forward pass of a training changes, and a constant
    buffer with an infinite number."""

    mask: Tensor

    def __init__(self, inputs: int, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, 6).requires_grad_(False)
        self.teacher = nn.Parameter(torch.zeros(6), requires_grad=False)
        self.last = nn.Linear(6, num_classes)
        self.again = self.last
        self.register_buffer("mask", torch.tensor([0.0, -math.inf]))

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of the last layer."""
        hidden = torch.relu(self.first(x.flatten(1)))
        if self.training:
            with torch.no_grad():
                self.teacher.lerp_(hidden.mean(0), 0.1)
        outputs: Tensor = self.last(hidden * self.mask.exp()[0] + self.teacher)
        return outputs


@parameters
class PartlyFrozen(Model):
    """A network of which clients receive only a part."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """See :class:`~fedcohort.models.Model`."""
        return _Network(math.prod(shape), num_classes)


def check_frozen(engine: Engine, expected: Engine) -> None:
    """Check that an engine with :class:`PartlyFrozen` gives what the expected one gives, in two rounds."""
    found, wanted = _played(engine), _played(expected)
    for what, value in wanted.items():
        same = pack({"": found[what]}) == pack({"": value})
        require(same, f"{what} of a network with frozen parameters: not as with the local engine")


def _played(engine: Engine) -> dict[str, object]:
    """Two rounds, and everything that can depend on frozen parameters."""
    model, algorithm, clients = engine.initial_model(), FedAvg(), HEALTHY[:3]
    before, played = engine.whole(model), dict[str, object]()
    for t in (1, 2):
        updates = list(engine.train(model, t, Cohort(np.array(clients)), algorithm))
        played[f"round {t}, updates"] = [as_plain(update) for update in updates]
        require(all(update.state.keys() == SENT for update in updates), f"train: updates must have {sorted(SENT)}")
        model = algorithm.aggregate(model, updates, members_of(clients))
        played[f"round {t}, losses"] = engine.answer(model, t, LocalLoss(), np.array(clients))
    played["test loss"] = engine.evaluate(model, "test").loss
    played["whole model"] = after = engine.whole(model)
    _check_whole(before, after)
    return played


def _check_whole(before: ModelState, after: ModelState) -> None:
    """The whole model has all names of all entries, and the frozen ones have not changed."""
    names = {"first.weight", "first.bias", "again.weight", "again.bias", "mask", *SENT}
    require(after.keys() == names, f"whole: has {sorted(after)}, not {sorted(names)}")
    require(torch.equal(before["first.weight"], after["first.weight"]), "whole: a frozen parameter has changed")
    require(torch.equal(after["last.weight"], after["again.weight"]), "whole: two names of a parameter differ")
