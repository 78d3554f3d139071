"""The local problem of a client during its training: the :class:`Problem` that the client half of an algorithm receives."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from fedcohort.algorithms.training_settings import Training
from fedcohort.algorithms.updates import Tensors

__all__ = ["Problem", "per_client"]


class Problem(Protocol):
    """The local problem of one client during its training, or of a stack of clients (a leading axis on every tensor).

    Attributes:
        parameters: the trainable parameters y, which the optimizer changes in place.
        anchor: the parameters w^t that the client received; same names.
        received: what the server sent beside the model, see :meth:`Algorithm.broadcast`.
        memory: the client's own state, as :meth:`Algorithm.finish` returned it for its last admitted update; empty at first. (In a
            stack: zeros for a client without memory; empty if no client has any.)
        training: the settings of local training under the algorithm; the same for all clients of a stack.
        lr: learning rate of this round (in a stack, a number or [clients]).
        steps: optimizer steps done so far (in a stack, int64 [clients]); see :func:`per_client`.
        t: round, from 1.
        num_samples: number of training samples N_i (in a stack, int64 [clients]).
        batch: the current batch, as positions in the client's training samples, int64 [B] (in a stack [clients, B], short batches
            padded).
        notes: what the algorithm keeps for the next step of this training; empty at first. (In a stack, its tensors have the client
            axis too, and lose the rows of clients that have finished, as the parameters do.)
    """

    parameters: Tensors
    anchor: Tensors
    received: Mapping[str, Tensors]
    memory: Mapping[str, Tensors]
    training: Training
    lr: float | Tensor
    steps: int | Tensor
    t: int
    num_samples: int
    batch: Tensor
    notes: dict[str, Any]

    @property
    def held_out(self) -> tuple[Tensor, Tensor]:
        """The features and the labels of the client's held-out part, as stored; empty if there is none, or if it is too small for
        batch norm."""

    @property
    def rng(self) -> np.random.Generator:
        """The algorithm's own random numbers for this training, keyed by round and client."""

    def backward(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Put the gradient of the objective on the current batch into ``.grad`` of the parameters.

        Args:
            weights: weights of the samples [B]; the sum is still divided by B.

        Returns:
            What the step reports: the cross-entropy of each sample, and the number of correct predictions.
        """

    def gradient(self, at: Tensors | None = None) -> Tensors:
        """The gradient of the objective on the current batch, at the current parameters or at the parameters ``at``."""

    def full_gradient(self, at: Tensors) -> Tensors:
        """The gradient of the objective over all the client's training samples, at the parameters ``at``: one more pass."""

    def losses_and_gradient(self, at: Tensors, weights: Tensor | None = None) -> tuple[Tensor, Tensors]:
        """The objective of each sample of the batch [B], and the gradient of its (weighted) mean, at the parameters ``at``."""

    def cross_entropy_gradient(self, features: Tensor, labels: Tensor) -> Tensors:
        """The gradient of the mean cross-entropy on the given samples, as stored, at the current parameters."""

    @property
    def labels(self) -> Tensor:
        """The labels of the current batch [B], as stored. (Not in a stack.)"""

    def outputs(self, at: Tensors | None = None, part: str = "") -> Tensor:
        """The network's outputs for the current batch [B, …], in training mode; its buffers stay as they are. (Not in a stack.)

        Args:
            at: parameters to use instead of the current ones. Only at the current parameters, outputs have a gradient: ``backward()``
                of a loss of them adds it to ``.grad``.
            part: name of a part of the network, such as ``"layers.2"``, whose outputs are returned instead.

        Raises:
            UsageError: the network has no such part.
        """

    def received_loss(self) -> float | Tensor:
        """The mean objective of the received model over the client's training samples, in evaluation mode: one forward pass.
        (In a stack, float64 [clients].)"""


def per_client(value: float | Tensor, like: Tensor) -> float | Tensor:
    """A number, or one number per client of a stack [clients], in a shape that multiplies ``like`` [clients, …]."""
    if isinstance(value, Tensor) and value.dim():
        return value.reshape(value.shape + (1,) * (like.dim() - value.dim()))
    return value
