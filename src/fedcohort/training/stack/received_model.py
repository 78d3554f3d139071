"""The model that the clients of a group received, and its outputs."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedcohort.algorithms import ModelState
from fedcohort.algorithms.losses import losses_of_rows
from fedcohort.core.sums import for_sums
from fedcohort.training.networks.model_states import to_device
from fedcohort.training.networks.received_outputs import CHUNK, received_outputs
from fedcohort.training.stack.batch_plan import Plan
from fedcohort.training.stack.stack_setup import StackSetup

__all__ = ["ReceivedModel"]


class ReceivedModel:
    """The received model of a group.

    Args:
        setup: the stack's setup.
        model: the received model.
        plans: the plans of the group's clients.

    Attributes:
        outputs: its softmax outputs on all training samples, one client after another, [ΣN_i, K]; None if the loss does not need them.
    """

    def __init__(self, setup: StackSetup, model: ModelState, plans: Sequence[Plan]) -> None:
        self.setup = setup
        self.parameters = {name: model[name][None] for name in setup.network.parameters}
        self.outputs: Tensor | None = None
        if setup.loss.needs_outputs:
            sizes = np.array([plan.size for plan in plans])
            self.starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
            clients = [setup.federation.client(plan.client) for plan in plans]
            self.outputs = torch.cat([received_outputs(self.logits, data) for data in clients])

    def logits(self, features: Tensor) -> Tensor:
        """Logits [n, K] for features as they are stored."""
        setup = self.setup
        with torch.no_grad():
            inputs = setup.federation.standardised(features, setup.dtype)[None]
            return setup.network.logits(self.parameters, inputs)[0]

    def outputs_at(self, positions: Tensor, first: int = 0) -> Tensor | None:
        """Softmax outputs [a·B, K] on the samples at positions [a, B] of the clients that begin with number ``first``; None if the
        loss needs none."""
        if self.outputs is None:
            return None
        starts = to_device(self.starts[first : first + len(positions)], self.setup.device)
        return self.outputs[(positions + starts[:, None]).flatten()]

    def mean_loss(self, plan: Plan) -> float:
        """The mean loss of the received model over a client's training samples."""
        setup = self.setup
        data, total = setup.federation.client(plan.client), 0.0
        for start in range(0, plan.size, CHUNK):
            chunk = data[start : start + CHUNK]
            logits = self.logits(chunk.features)
            outputs = functional.softmax(logits, dim=-1) if self.outputs is not None else None
            total += float(for_sums(losses_of_rows(setup.loss, logits, chunk.labels, outputs)).sum())
        return total / plan.size
