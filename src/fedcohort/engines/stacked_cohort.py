"""Training of a cohort in stacks, which become smaller if they do not fit into memory."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

from fedcohort.algorithms import ModelState, Tensors
from fedcohort.core.arrays import Indices, Values
from fedcohort.engines.base import naming_client
from fedcohort.engines.device import moved
from fedcohort.engines.work_splitting import (
    STACK_CLIENTS_COMBINED,
    STACK_WORK,
    largest_stack,
    neighbors_of_equal_cost,
    out_of_memory,
    stacks_by_size,
)
from fedcohort.selection import Cohort
from fedcohort.training.client_memories import Memory, Trained
from fedcohort.training.stack import Stack

__all__ = ["GroupTrainer"]


class GroupTrainer:
    """Trains groups of a cohort, each in one stack. Threads may share it.

    Args:
        stack: trains the clients of a group together.
        model_bytes: size of the model.
        memory_of: gives the memory of a client.

    Attributes:
        limit: maximum number of clients in one stack; None means as many as should fit.
    """

    def __init__(self, stack: Stack, model_bytes: int, memory_of: Callable[[int], Memory]) -> None:
        self.stack, self.model_bytes, self.memory_of = stack, model_bytes, memory_of
        self.limit: int | None = None

    def groups(self, cohort: Cohort, costs: Values, parts: int) -> list[Indices]:
        """The stacks of this cohort, as positions in it.

        Args:
            cohort: the clients.
            costs: samples that each client processes.
            parts: minimum number of stacks, if the cohort has enough clients and work.
        """
        stack = self.stack
        largest = largest_stack(
            stack.device, self.model_bytes, chain=stack.is_chain, step_values=stack.step_values(cohort.clients)
        )
        if self.limit is not None or stack.device.type != "cpu":
            found = neighbors_of_equal_cost(costs, parts, self.limit or largest)
            return [np.arange(part.start, part.stop) for part in found]
        combined = stack.combine_samples(cohort.clients, cohort.epochs, STACK_CLIENTS_COMBINED)
        worth = int(costs.sum() * stack.num_parameters) // STACK_WORK
        return stacks_by_size(costs, combined, max(1, min(parts, worth)), largest)

    def train(
        self, model: ModelState, t: int, cohort: Cohort, received: dict[str, Tensors], group: Indices
    ) -> list[Trained]:
        """Train a group of the cohort in one stack, or in smaller ones if that fails; updates and new memories, in order.

        Args:
            model, t, cohort, received: as for :meth:`Stack.train`.
            group: positions in the cohort.
        """
        clients = cohort.clients[group].tolist()
        epochs = None if cohort.epochs is None else cohort.epochs[group].tolist()
        memories = [moved(self.memory_of(client), self.stack.device) for client in clients]
        try:
            with naming_client(clients[0]) if len(clients) == 1 else nullcontext():
                return self.stack.train(model, t, clients, epochs=epochs, received=received, memories=memories)
        except Exception as error:
            if len(clients) == 1:
                raise
            # a smaller stack may fit into memory; after any other error, stacks of one client show which client caused it
            smaller = self._shrunk(len(clients)) if out_of_memory(error) else 1
        parts = [group[start : start + smaller] for start in range(0, len(group), smaller)]
        return [pair for part in parts for pair in self.train(model, t, cohort, received, part)]

    def _shrunk(self, clients: int) -> int:
        """From now on, train half as many clients in a stack; warns once for each size."""
        smaller = max(1, clients // 2)
        if self.limit is None or smaller < self.limit:
            self.limit = smaller
            warnings.warn(
                f"a stack of {clients} clients does not fit into memory; from now on, stacks have {smaller}",
                stacklevel=2,
            )
        return smaller
