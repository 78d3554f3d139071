"""The local problems of a stack of clients during their training: what the client half of an algorithm may use."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcohort.algorithms import ModelState, Tensors
from fedcohort.core.random_streams import integer
from fedcohort.core.sums import sum_type
from fedcohort.training.networks.model_states import to_device
from fedcohort.training.networks.random_layers import step_generator
from fedcohort.training.networks.received_outputs import CHUNK
from fedcohort.training.stack.batch_plan import Plan
from fedcohort.training.stack.logit_gradient import LossSlope
from fedcohort.training.stack.received_model import ReceivedModel
from fedcohort.training.stack.stack_setup import Batch, StackSetup
from fedcohort.training.stack.stacked_tensors import Memory, cut, padded

__all__ = ["StackProblem"]


class StackProblem:
    """Implements :class:`fedcohort.algorithms.Problem` for a stack of clients.

    Args:
        setup: the stack's setup.
        model: the received model.
        t: round, from 1.
        plans: the clients' plans.
        parameters: the trainable parameters, [g, …] by name.
        received: what the algorithm broadcast beside the model.
        memory: the clients' memories, [g, …].
        received_model: the received model and its outputs.
        forwards: counts the samples that go through each client's model, [g]; changed in place.

    Attributes:
        active: number of clients.
        gradients: gradients of the last :meth:`backward`, [active, …] by name, without parameters that no output depends on.
    """

    def __init__(
        self,
        setup: StackSetup,
        model: ModelState,
        t: int,
        plans: Sequence[Plan],
        *,
        parameters: Tensors,
        received: Memory,
        memory: dict[str, Tensors],
        received_model: ReceivedModel,
        forwards: np.ndarray,
    ) -> None:
        g = len(plans)
        self.active = g
        self.parameters = parameters
        self.anchor = {name: model[name][None].expand(g, *model[name].shape) for name in parameters}
        self.received: Mapping[str, Tensors] = {
            kind: {name: value[None].expand(g, *value.shape) for name, value in tensors.items()}
            for kind, tensors in received.items()
        }
        self.memory: Mapping[str, Tensors] = memory
        self.training = setup.training
        self.lr: float | Tensor = self.training.lr_at(t)
        self.steps: int | Tensor = torch.zeros(g, dtype=torch.int64, device=setup.device)
        self.t = t
        self.notes: dict[str, Any] = {}
        # Problem declares an int; hooks that stack also work with [g] numbers
        self.num_samples: Any = torch.tensor([plan.size for plan in plans], device=setup.device)
        self.gradients: Tensors = {}
        self.batch = torch.empty(0, dtype=torch.int64)
        self._setup, self._received_model = setup, received_model
        self._all_plans, self._all_forwards, self._first = plans, forwards, 0
        self._rows: list[np.ndarray] = []
        self._loaded: Batch | None = None
        # of every client of the stack
        drawn = setup.network.dropouts.kept
        self._first_draws = [integer(setup.seed, "module", t, plan.client) for plan in plans] if drawn else []

    def begin(self, rows: list[np.ndarray]) -> None:
        """Set the next batches, one per client. They are loaded now unless they are so large that they are processed in chunks."""
        self._rows, self._loaded = rows, None
        if max(map(len, rows)) <= CHUNK:
            self._loaded = self._setup.load(self.clients, rows)
            self.batch = self._loaded.positions
        else:
            self.batch = to_device(padded(rows), self._setup.device)

    def part(self, clients: slice) -> "StackProblem":
        """The same problem for some of the clients.

        It is a shallow copy with views of the tensors: parameters are never copied, and what the algorithm noted stays with it.
        """
        part = copy.copy(self)
        for name in ("parameters", "anchor", "received", "memory", "notes"):
            setattr(part, name, cut(getattr(self, name), clients, self.active))
        part.steps = torch.as_tensor(self.steps)[clients].clone()
        part.num_samples = self.num_samples[clients]
        part.gradients = {}
        part._first, part.active = self._first + clients.start, clients.stop - clients.start
        return part

    @property
    def plans(self) -> Sequence[Plan]:
        """The plans of these clients."""
        return self._all_plans[self._first : self._first + self.active]

    @property
    def clients(self) -> list[int]:
        """The ids of these clients."""
        return [plan.client for plan in self.plans]

    @property
    def rng(self) -> np.random.Generator:
        """Not available: every client has a generator of its own."""
        raise NotImplementedError("an algorithm that draws random numbers on the client must set stacks = False")

    @property
    def held_out(self) -> tuple[Tensor, Tensor]:
        """Not available: held-out parts have different sizes."""
        raise NotImplementedError("an algorithm that uses held-out samples must set stacks = False")

    def backward(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See :class:`Problem`; cross-entropies are [clients, B], 0 where padded, and correct predictions [clients]."""
        self.gradients, losses, right = self._gradients(self.parameters, self._rows, weights)
        return losses, right

    def gradient(self, at: Tensors | None = None) -> Tensors:
        """See :class:`Problem`."""
        return self._of_all(self.parameters if at is None else at, self._rows)

    def full_gradient(self, at: Tensors) -> Tensors:
        """See :class:`Problem`."""
        return self._of_all(at, [np.arange(plan.size) for plan in self.plans])

    def losses_and_gradient(self, at: Tensors, weights: Tensor | None = None) -> tuple[Tensor, Tensors]:
        """Not implemented for stacks: no algorithm that stacks needs it."""
        raise NotImplementedError("an algorithm that computes losses at other parameters must set stacks = False")

    def cross_entropy_gradient(self, features: Tensor, labels: Tensor) -> Tensors:
        """Not implemented for stacks: no algorithm that stacks needs it."""
        raise NotImplementedError("an algorithm that computes gradients on other samples must set stacks = False")

    @property
    def labels(self) -> Tensor:
        """Not implemented for stacks: no algorithm that stacks needs it."""
        raise NotImplementedError("an algorithm that reads labels must set stacks = False")

    def outputs(self, at: Tensors | None = None, part: str = "") -> Tensor:
        """Not implemented for stacks: no algorithm that stacks needs it."""
        raise NotImplementedError("an algorithm that computes outputs must set stacks = False")

    def received_loss(self) -> Tensor:
        """See :class:`Problem`; float64 [clients]."""
        plans = self.plans
        self._count([plan.size for plan in plans])
        losses = [self._received_model.mean_loss(plan) for plan in plans]
        return torch.tensor(losses, dtype=sum_type(self._setup.device), device=self._setup.device)

    def _count(self, samples: list[int]) -> None:
        """Count the ``samples`` of each client that went through its model."""
        self._all_forwards[self._first : self._first + self.active] += samples

    def _of_all(self, at: Tensors, rows: list[np.ndarray]) -> Tensors:
        """Gradients over these rows; zeros for parameters that no output depends on."""
        gradients = self._gradients(at, rows)[0]
        return {name: gradients[name] if name in gradients else torch.zeros_like(value) for name, value in at.items()}

    def _gradients(
        self, at: Tensors, rows: list[np.ndarray], weights: Tensor | None = None
    ) -> tuple[Tensors, Tensor, Tensor]:
        """Gradients over these rows, in chunks that fit into memory; cross-entropies and correct predictions."""
        setup = self._setup
        self._count([3 * len(row) for row in rows])  # a gradient costs about three forward passes
        gradients: Tensors = {}
        losses, right = [], torch.zeros((), device=setup.device)
        divisors = to_device(np.array([max(len(row), 1) for row in rows]), setup.device).to(setup.dtype)
        for start in range(0, max(map(len, rows)), CHUNK):
            batch = self._chunk(rows, start)
            outputs = self._received_model.outputs_at(batch.positions, self._first)
            chunk_weights = None if weights is None else weights[:, start : start + CHUNK]
            slope = LossSlope(setup.loss, batch.labels, batch.mask, divisors, outputs, chunk_weights)
            own = setup.network.gradients(at, batch.inputs, slope, self._factors(rows, start, batch))
            gradients = {name: gradients[name] + value for name, value in own.items()} if gradients else own
            losses.append(slope.losses)
            right = right + slope.right
        return gradients, torch.cat(losses, dim=1), right

    def _factors(self, rows: list[np.ndarray], start: int, batch: Batch) -> tuple[Tensor, ...]:
        """The factors of Dropout for the chunk that begins at ``start``: those of the plan ``threads``."""
        network = self._setup.network
        if not network.dropouts.kept:
            return ()
        firsts = self._first_draws[self._first : self._first + self.active]
        steps = torch.as_tensor(self.steps).expand(self.active).tolist()
        number = start // CHUNK
        generators = [step_generator(first, step, number) for first, step in zip(firsts, steps, strict=True)]
        counts = [len(row[start : start + CHUNK]) for row in rows]
        return network.dropouts.drawn(generators, counts, batch.labels.shape[1], self._setup.dtype)

    def _chunk(self, rows: list[np.ndarray], start: int) -> Batch:
        """The samples of the chunk that begins at ``start`` of these rows."""
        if rows is self._rows and self._loaded is not None:
            return self._loaded
        return self._setup.load(self.clients, [row[start : start + CHUNK] for row in rows])
