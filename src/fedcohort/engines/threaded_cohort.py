"""Training of a cohort by threads: one client at a time, or several clients with little work in one call."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from fedcohort.algorithms import ModelState, Tensors
from fedcohort.core.arrays import Values
from fedcohort.engines.base import naming_client
from fedcohort.engines.work_splitting import series_of_clients
from fedcohort.selection import Cohort
from fedcohort.training.client_memories import Memory, Trained
from fedcohort.training.stopping_rules import rules_of
from fedcohort.training.trainer import Trainer

__all__ = ["CohortTrainer"]


class CohortTrainer:
    """Trains parts of a cohort; threads may share it.

    Args:
        model, t, cohort, received: as for :meth:`LocalEngine.train <fedcohort.engines.local_engine.LocalEngine.train>`, and what the
            algorithm broadcast.
        trainer: lends a trainer to the calling thread.
        memory_of: gives the memory of a client.

    Attributes:
        in_python: whether Python runs every step of these clients; known after :meth:`parts`.
    """

    def __init__(
        self,
        model: ModelState,
        t: int,
        cohort: Cohort,
        received: dict[str, Tensors],
        trainer: Callable[[], AbstractContextManager[Trainer]],
        memory_of: Callable[[int], Memory],
    ) -> None:
        self.model, self.t, self.cohort, self.received = model, t, cohort, received
        self._trainer, self._memory_of = trainer, memory_of
        self._new_rule = rules_of(cohort.stop)
        self._in_series = self.in_python = False

    def parts(self, costs: Values, workers: int) -> list[slice]:
        """The clients that a thread trains at a time; the results do not depend on it.

        Args:
            costs: samples that each client processes.
            workers: number of threads.
        """
        cohort = self.cohort
        self._in_series = cohort.stop is None and cohort.sampling == "shuffled" and len(cohort) > 0
        # the training of a single client finds out by itself whether a series is possible
        if len(cohort) > 1:
            with self._trainer() as trainer:
                most = trainer.training.epochs if cohort.epochs is None else int(cohort.epochs.max())
                self._in_series = self._in_series and trainer.series.possible(most)
                self.in_python = not self._in_series and trainer.steps_in_python
            if self._in_series:
                return series_of_clients(costs, trainer.num_values, workers)
        return [slice(position, position + 1) for position in range(len(cohort))]

    def train(self, part: slice, into: Sequence[ModelState] = ()) -> list[Trained]:
        """Train the clients of a part, one after another; updates and new memories, in order.

        ``into`` is memory for their models, which is not always used, see
        :meth:`ClientSeries.train <fedcohort.training.client_series.ClientSeries.train>`.
        """
        clients: list[int] = self.cohort.clients[part].tolist()
        epochs: list[int] | None = None if self.cohort.epochs is None else self.cohort.epochs[part].tolist()
        memories = [self._memory_of(client) for client in clients]
        with self._trainer() as trainer:
            if not self._in_series:
                return self._train_each(trainer, clients, epochs, memories)
            of_all = epochs or [trainer.training.epochs] * len(clients)
            results: list[Trained] = []
            for some in trainer.series.slices(clients, of_all):
                found = trainer.train_series(
                    self.model, self.t, clients[some], of_all[some], self.received, memories[some], into[some]
                )
                own_epochs = None if epochs is None else epochs[some]
                results += found or self._train_each(trainer, clients[some], own_epochs, memories[some])
            return results

    def _train_each(
        self, trainer: Trainer, clients: list[int], epochs: list[int] | None, memories: list[Memory]
    ) -> list[Trained]:
        return [
            self._train_one(trainer, client, None if epochs is None else epochs[i], memories[i])
            for i, client in enumerate(clients)
        ]

    def _train_one(self, trainer: Trainer, client: int, epochs: int | None, memory: Memory) -> Trained:
        with naming_client(client):
            stop = None if self._new_rule is None else self._new_rule()
            return trainer.train(
                self.model, self.t, client, epochs=epochs, sampling=self.cohort.sampling, stop=stop,
                received=self.received, memory=memory,
            )  # fmt: skip
