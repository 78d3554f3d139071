"""Steps of a group without separate gradients: plain or momentum SGD on a chain of linear layers."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from fedcohort.algorithms import ModelState, Tensors
from fedcohort.training.networks.model_states import to_device
from fedcohort.training.networks.received_outputs import CHUNK
from fedcohort.training.stack.batch_plan import Plan
from fedcohort.training.stack.linear_chain_descent import Descent, Models, Samples, Visits, Weights
from fedcohort.training.stack.logit_gradient import LossSlope
from fedcohort.training.stack.received_model import ReceivedModel
from fedcohort.training.stack.stack_setup import StackSetup
from fedcohort.training.stack.stacked_networks import Chain
from fedcohort.training.stack.stacked_tensors import sample_mask
from fedcohort.training.stack.step_totals import Tally

__all__ = ["FusedSteps", "fused_steps"]


def fused_steps(
    setup: StackSetup, model: ModelState, t: int, plans: Sequence[Plan], tally: Tally
) -> "FusedSteps | None":
    """The fused steps of a group; None if gradients are needed, no client has a step, or a batch is larger than a chunk."""
    chain, at_work = setup.network, sum(plan.steps > 0 for plan in plans)
    if not setup.fused or not isinstance(chain, Chain) or not at_work or tally.counts.max() > CHUNK:
        return None
    return FusedSteps(setup, chain, model, t, plans[:at_work], unseen=setup.unseen and at_work == len(plans))


class FusedSteps:
    """Takes whole steps of a group.

    Args:
        setup: the stack's setup.
        chain: its network.
        model: the received model.
        t: round, from 1.
        plans: the plans of the clients that make a step, most steps first.
        unseen: whether nothing reads a client's model before it is sent; the first layer may then be kept as a combination of samples.

    Attributes:
        trained: the parameters that the group holds as tensors [g, …].
        models: all models of the group, after :meth:`begin`, if the first layer is kept as a combination of samples; otherwise None.
    """

    def __init__(
        self, setup: StackSetup, chain: Chain, model: ModelState, t: int, plans: Sequence[Plan], *, unseen: bool
    ) -> None:
        self.setup, self.chain, self.model = setup, chain, model
        self.lr = setup.training.lr_at(t)
        sizes = np.array([plan.size for plan in plans])
        data = _VisitedSamples(setup, plans, Visits.of([plan.rows for plan in plans], sizes))
        visits = data.visits
        labels = setup.federation.train.labels.index_select(0, data.rows(visits.positions))
        self.labels = labels.reshape(visits.positions.shape)
        self.positions = to_device(visits.positions, setup.device)
        layer = chain.layers[0]
        self.trained = chain.parameters
        self.models: Models | None = None
        self._descent: Descent | None = None
        self._first: Samples | Weights = Weights(layer, data.load)
        if unseen and setup.few_samples(visits.extent):
            weight = model[layer.weight]
            space = setup.buffers.like({"A": weight[:, 0], "X": weight[0], "Z": weight[:, 0]}, visits.places)
            self._first = Samples(layer, model, visits, data.fill, space, setup.largest)
            self.trained = tuple(name for name in chain.parameters if name != layer.weight)

    def begin(self, parameters: Tensors) -> None:
        """Start from the received model; ``parameters`` are those in :attr:`trained`, [g, …] by name."""
        momentum = self.setup.training.momentum
        self._descent = Descent(self.chain, self.model, parameters, self._first, self.lr, momentum)
        if isinstance(self._first, Samples):
            self.models = Models(self.model, self._first, parameters)

    def step(self, step: int, active: int, received: ReceivedModel, tally: Tally) -> tuple[Tensor, Tensor]:
        """A step of the first ``active`` clients: the cross-entropy of each sample [a, B], and the correct predictions [a]."""
        assert self._descent is not None
        counts = tally.counts[:active, step]
        width = int(counts.max())
        tally.forwards[:active] += 3 * counts
        outputs = received.outputs_at(self.positions[:active, step, :width])
        labels, mask = self.labels[:active, step, :width], sample_mask(counts, width, self.setup.device)
        slope = LossSlope(self.setup.loss, labels, mask, tally.divisors[:active, step], outputs)
        self._descent.step(step, active, slope)
        return slope.losses, slope.right


class _VisitedSamples:
    """The samples of a group's clients, by their positions in the clients' training parts."""

    def __init__(self, setup: StackSetup, plans: Sequence[Plan], visits: Visits) -> None:
        self.setup, self.visits = setup, visits
        self.starts = setup.federation.offsets[[plan.client for plan in plans]]

    def rows(self, positions: np.ndarray, first: int = 0) -> Tensor:
        """Rows of the federation's training samples, flat, of positions [clients, …]; ``first`` is the number of the first client."""
        begin = self.starts[first : first + len(positions)].reshape(-1, *[1] * (positions.ndim - 1))
        return to_device((positions + begin).reshape(-1), self.setup.device)

    def load(self, step: int, active: int) -> Tensor:
        """Standardized features [active, B, …] of a step."""
        visits = self.visits
        positions = visits.positions[:active, step, : visits.counts[:active, step].max()]
        features = self.setup.features(self.rows(positions))
        return features.reshape(*positions.shape, *features.shape[1:])

    def fill(self, first: int, positions: np.ndarray, space: Tensor) -> None:
        """Write the standardized features of samples to ``space`` [clients·n, …].

        Args:
            first: number of the first client.
            positions: positions of the samples in the clients' training parts [clients, n].
            space: memory.
        """
        self.setup.features(self.rows(positions, first), space.view(-1, *self.setup.federation.sample_shape))
