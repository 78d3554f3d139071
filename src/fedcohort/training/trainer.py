"""The local training of one client at a time: the innermost loop of a run.

A :class:`Trainer` owns one copy of the model and trains one client after another on it. For the same client, model and round it
computes the same bits on one intra-op thread, whatever was trained before and whatever runs at the same time.
"""

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from fedcohort.algorithms import Algorithm, ModelState, Tensors
from fedcohort.federation.federation import Federation
from fedcohort.selection import StoppingRule
from fedcohort.training.client_memories import Memory, Trained
from fedcohort.training.client_problem import ClientProblem
from fedcohort.training.client_series import ClientSeries
from fedcohort.training.client_session import Session
from fedcohort.training.local_setup import LocalSetup
from fedcohort.training.reused_memory import Buffers
from fedcohort.training.scripts.scripted_corrections import OwnCorrections
from fedcohort.training.scripts.scripted_passes import ScriptError

__all__ = ["Trainer"]

KEPT_BYTES = 2**26
"""Maximum bytes of memory for trained models that a trainer keeps while they are not in use."""


class Trainer(LocalSetup):
    """Trains clients of a federation, one at a time. Arguments and attributes are those of
    :class:`LocalSetup <fedcohort.training.local_setup.LocalSetup>`."""

    def train(
        self,
        model: ModelState,
        t: int,
        client: int,
        *,
        epochs: int | None = None,
        sampling: str = "shuffled",
        stop: StoppingRule | None = None,
        received: Mapping[str, Tensors] | None = None,
        memory: Mapping[str, Tensors] | None = None,
    ) -> Trained:
        """Train ``client`` in round ``t`` from ``model``.

        Args:
            model: the global model.
            t: round, from 1.
            client: id.
            epochs: replaces the experiment's number of epochs.
            sampling: how an epoch's samples are drawn, see :class:`fedcohort.selection.Cohort`.
            stop: may end the training after fewer epochs.
            received: what the algorithm broadcast beside the model.
            memory: what the algorithm kept for this client.

        Returns:
            the client's update and its new memory.
        """

        def session() -> Session:
            self.begin(model, t)
            problem = ClientProblem(self, model, t, client, received or {}, memory or {})
            return Session(self, problem, self.training.epochs if epochs is None else epochs, sampling)

        with self.own_threads():
            training = session()
            try:
                training.run(stop)
            except ScriptError:
                if self.scripts is None:
                    raise
                self.scripts.give_up()
                training = session()
                training.run(stop)  # raises the error in the line of code that makes the call
            return training.result()

    def beside(self, federation: Federation, algorithm: Algorithm, seed: int) -> "Trainer":
        """A trainer with the module, the optimizer and the settings of this one, for training with other data or without this
        algorithm. Each training starts module and optimizer anew; call :meth:`forget` before the next use of this trainer."""
        buffers, other = self._buffers, copy.copy(self)
        other.federation, other.algorithm, other.seed, other._buffers = federation, algorithm, seed, buffers
        other.own_corrections = OwnCorrections(algorithm, self.own_corrections.scripts)
        other.forget()
        return other

    @property
    def series(self) -> ClientSeries:
        """Trains several clients in one call; a new object each time, so that a trainer is in no cycle of references."""
        return ClientSeries(self, self._buffers)

    @cached_property
    def _buffers(self) -> Buffers:
        """Memory for the models of series."""
        return Buffers(KEPT_BYTES)

    def train_series(
        self,
        model: ModelState,
        t: int,
        clients: Sequence[int],
        epochs: Sequence[int],
        received: Mapping[str, Tensors],
        memories: Sequence[Memory],
        into: Sequence[ModelState] = (),
    ) -> list[Trained] | None:
        """Train several clients with the bits of :meth:`train`; None if that is not possible, or if there was an error.

        The training of one client after another then shows which client caused it. The arguments are those of
        :meth:`ClientSeries.train <fedcohort.training.client_series.ClientSeries.train>`.
        """
        with suppress(Exception):
            return self.series.train(model, t, clients, epochs, received, memories, into)
        return None
