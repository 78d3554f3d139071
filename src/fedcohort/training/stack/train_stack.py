"""The entry to stacked training: takes clients, orders them, and trains them as one group."""

from collections.abc import Sequence

import numpy as np
import torch

from fedcohort.algorithms import ModelState
from fedcohort.core.random_streams import rngs
from fedcohort.training.client_memories import Trained
from fedcohort.training.stack.batch_plan import Plan, batches
from fedcohort.training.stack.client_group import Group
from fedcohort.training.stack.stack_setup import StackSetup
from fedcohort.training.stack.stacked_tensors import Memory, stacked_memories

__all__ = ["Stack"]


class Stack(StackSetup):
    """Trains groups of clients of a federation, for what :func:`cannot_stack` allows. Threads may share it. Arguments and attributes
    are those of :class:`StackSetup <fedcohort.training.stack.stack_setup.StackSetup>`."""

    def train(
        self,
        model: ModelState,
        t: int,
        clients: Sequence[int],
        *,
        epochs: Sequence[int] | None = None,
        received: Memory | None = None,
        memories: Sequence[Memory] | None = None,
    ) -> list[Trained]:
        """Train ``clients`` together in round ``t`` from ``model``.

        Args:
            model: the global model.
            t: round, from 1.
            clients: ids.
            epochs: number of epochs of each client; None means the experiment's number.
            received: what the algorithm broadcast beside the model.
            memories: the memory of each client.

        Returns:
            each client's update and its new memory, in the order of ``clients``.
        """
        settings = self.training
        sizes = self.sizes[list(clients)]
        passes = np.array([settings.epochs] * len(clients) if epochs is None else epochs)
        batch = settings.batch_size or int(sizes.max())
        steps = -(-sizes // batch) * passes
        # most steps first: clients that are done leave at the end of the client axis, and only last batches of epochs are padded
        order = np.argsort(-steps, kind="stable")
        shuffles = rngs(self.seed, "batches", t, [clients[i] for i in order])
        plans = [
            Plan(clients[i], int(sizes[i]), batch, batches(shuffle, int(sizes[i]), int(passes[i]), batch))
            for i, shuffle in zip(order, shuffles, strict=True)
        ]
        remembered = stacked_memories([memories[i] for i in order]) if memories is not None else {}
        with torch.no_grad():
            results = Group(self, model, t, plans, received or {}, remembered).train()
        for (update, _), i in zip(results, order, strict=True):
            update.work = float(passes[i]) / settings.epochs
        return [results[i] for i in np.argsort(order, kind="stable")]
