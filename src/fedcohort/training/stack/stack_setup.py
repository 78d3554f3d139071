"""What all stacks of a run share: the network, the data, the settings, and whether they can be stacked at all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.algorithms import Algorithm
from fedcohort.algorithms.base import takes_plain_steps
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.arrays import Flags, Indices
from fedcohort.core.errors import UsageError
from fedcohort.federation.federation import Federation
from fedcohort.training.client_hooks import settings_under
from fedcohort.training.networks.mixed_samples import why_loss_cannot_stack
from fedcohort.training.networks.model_states import DTYPES, state_of, to_device
from fedcohort.training.networks.received_outputs import CHUNK
from fedcohort.training.reused_memory import Buffers
from fedcohort.training.stack.linear_chain_descent import Extent, few_samples
from fedcohort.training.stack.stacked_networks import Chain, Network, network_of
from fedcohort.training.stack.stacked_tensors import padded, sample_mask

__all__ = ["Batch", "StackSetup", "cannot_stack", "client_half_stacks"]


def cannot_stack(module: nn.Module, federation: Federation, algorithm: Algorithm, training: Training) -> str | None:
    """Why clients cannot be trained in stacks, in words; None if they can."""
    if federation.is_numeric:
        return "labels are numbers"
    if training.augment != "none":
        return "images are changed at random"
    if federation.vocabulary:
        return "samples are sequences of tokens"
    if federation.integers:
        return "the network reads integers"
    name = type(algorithm).__name__
    if not client_half_stacks(type(algorithm)):
        return f"the client half of {name} works on one client at a time"
    loss = settings_under(algorithm, training).build_loss()
    if (reason := why_loss_cannot_stack(loss, federation, training)) is not None:
        return reason
    batch = training.batch_size or int(federation.num_samples.max(initial=1))
    network = network_of(module.train(), state_of(module), federation.sample_shape, batch)
    return network if isinstance(network, str) else None


def client_half_stacks(kind: type[Algorithm]) -> bool:
    """Whether every hook that the algorithm overrides is covered by its ``stacks = True``.

    A subclass that overrides a hook has to declare ``stacks`` itself: the declaration it inherits is about the inherited hook.
    """

    def defined_at(name: str) -> int:
        return next(i for i, base in enumerate(kind.__mro__) if name in vars(base))

    own = [hook for hook in ("backward", "correct", "finish") if kind.__mro__[defined_at(hook)] is not Algorithm]
    return all(kind.stacks and defined_at("stacks") <= defined_at(hook) for hook in own)


@dataclass(frozen=True)
class Batch:
    """One batch of each client.

    Attributes:
        inputs: standardized features, [a, B, …].
        labels: int64 [a, B].
        mask: which positions hold samples, bool [a, B]; None if no batch is padded.
        positions: positions of the samples in the clients' training parts, int64 [a, B].
    """

    inputs: Tensor
    labels: Tensor
    mask: Tensor | None
    positions: Tensor


class StackSetup:
    """The network of all stacks with its settings and data. Threads may share it.

    Args:
        federation: holds the clients' data.
        module: the model, which is not changed.
        training: the experiment's settings.
        algorithm: the run's algorithm; only its client half is used.
        seed: the experiment's seed.

    Attributes:
        is_chain: whether the network is a chain of linear layers with ReLU.
        num_parameters: number of parameters that are trained.
        fused: whether steps are taken without computing gradients separately.
        unseen: whether nothing reads a client's model before it is sent.

    Raises:
        UsageError: these clients cannot be trained in stacks.
    """

    def __init__(
        self, federation: Federation, module: nn.Module, training: Training, algorithm: Algorithm, seed: int
    ) -> None:
        self.dtype = DTYPES[training.precision]
        module = module.to(dtype=self.dtype)
        reason = cannot_stack(module, federation, algorithm, training)
        network = network_of(module, state_of(module), federation.sample_shape)
        if reason is not None or isinstance(network, str):
            raise UsageError(f"engine.plan = 'stacked': {reason}; use 'threads'")
        self.network: Network = network
        self.module = module
        self.federation = federation
        self.algorithm = algorithm
        self.training = training = settings_under(algorithm, training)
        self.loss = training.build_loss()
        self.seed = seed
        self.sizes = federation.num_samples
        self.buffers = Buffers()
        self.device = federation.device
        simple = training.optimizer == "sgd" and not (training.nesterov or training.weight_decay or training.clip_norm)
        self.is_chain = isinstance(network, Chain)
        self.num_parameters = sum(module.get_parameter(name).numel() for name in network.parameters)
        self.fused = self.is_chain and takes_plain_steps(algorithm) and simple
        self.unseen = self.fused and type(algorithm).finish is Algorithm.finish

    def step_values(self, clients: Indices) -> int:
        """Number of feature values of the largest batch of these clients."""
        largest = int(self.sizes[clients].max(initial=0))
        return min(self.training.batch_size or largest, largest) * math.prod(self.federation.sample_shape)

    def combine_samples(self, clients: Indices, epochs: Indices | None, most: int) -> Flags:
        """Whether each of these clients is trained faster with its first layer as a combination of samples, in stacks of ``most``.

        See :mod:`fedcohort.training.stack.linear_chain_descent`.
        """
        sizes = self.sizes[clients]
        passes = np.broadcast_to(self.training.epochs if epochs is None else epochs, sizes.shape)
        if not self.unseen:
            return np.zeros(len(sizes), dtype=bool)
        kinds, kind_of = np.unique(np.stack([sizes, passes]), axis=1, return_inverse=True)
        number = min(len(sizes), most)
        found = [self._combines(samples, epochs, number) for samples, epochs in kinds.T.tolist()]
        return np.array(found, dtype=bool)[kind_of.reshape(-1)]

    def _combines(self, samples: int, epochs: int, clients: int) -> bool:
        """Whether so many clients with this work are trained faster with their first layer as a combination of samples."""
        if not samples or not epochs:
            return False
        batch = min(self.training.batch_size or samples, samples)
        extent = Extent(clients, -(-samples // batch) * epochs, batch, samples, again=epochs > 1)
        return batch <= CHUNK and self.few_samples(extent)

    def few_samples(self, extent: Extent) -> bool:
        """Whether a combination of samples is faster for clients with this much work; False if the network is not a chain."""
        if not isinstance(self.network, Chain):
            return False
        width, inputs = self.module.get_parameter(self.network.layers[0].weight).shape
        return few_samples(inputs, width, extent, self.device, self.dtype)

    def load(self, clients: Sequence[int], rows: Sequence[np.ndarray]) -> Batch:
        """The samples at these positions of each client's training part, short rows padded."""
        federation = self.federation
        positions = padded(rows)
        width = positions.shape[1]
        flat = to_device((positions + federation.offsets[list(clients)][:, None]).reshape(-1), self.device)
        features = self.features(flat)
        return Batch(
            inputs=features.reshape(len(rows), width, *features.shape[1:]),
            labels=federation.train.labels.index_select(0, flat).reshape(len(rows), width),
            mask=sample_mask(np.array([len(row) for row in rows]), width, self.device),
            positions=to_device(positions, self.device),
        )

    def features(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """Standardized features of the training samples at these rows of the federation; written to ``out`` if given."""
        train = self.federation.train
        raw = self.buffers.like({"raw": train.source[0]}, len(rows))["raw"]
        return self.federation.standardised(train.pick(rows, raw), self.dtype, out)

    @cached_property
    def largest(self) -> float:
        """An upper bound of the absolute values of all standardized features."""
        features = self.federation.train.source
        if features.dtype == torch.uint8:
            ends = torch.tensor([0, 255], dtype=torch.uint8, device=self.device)
            ends = ends.reshape(2, *[1] * len(self.federation.sample_shape)).expand(2, *self.federation.sample_shape)
        else:
            ends = torch.stack([features.amin(0), features.amax(0)])
        return float(self.federation.prepare(ends, self.dtype).abs().max())
