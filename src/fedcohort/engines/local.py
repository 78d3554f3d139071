"""All clients in this process: one client per thread, one intra-op thread each.

Plan ``stacked`` advances a group of clients in each call instead, where the model allows it.

Two intra-op threads on one small convolution collapse when another process uses a core; two clients side by side do not. Plan
``loop`` is plan ``threads`` with one worker: the same kernels, the same layout, the same bits.
"""

import os
import queue
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from fedcohort.algorithms.base import Algorithm, ModelState, Update
from fedcohort.algorithms.local import Training
from fedcohort.algorithms.server import one_thread
from fedcohort.arrays import Indices, Values
from fedcohort.engines.base import ClientError, check_split
from fedcohort.errors import UsageError
from fedcohort.federation.federation import Federation
from fedcohort.models import Model
from fedcohort.selection.base import Cohort, Question
from fedcohort.streams import integer
from fedcohort.training.forward import Evaluation, answer, blocks, evaluate_block, sum_up
from fedcohort.training.local import DTYPES, Trainer, state_of
from fedcohort.training.memories import Memories
from fedcohort.training.stacked import Stack, cannot_stack
from fedcohort.training.upload import partly

__all__ = ["LocalEngine", "build_module"]

T = TypeVar("T")

GROUP = 10
"""Clients of one stack: their parameters stay in the processor's cache."""


def build_module(model: Model, federation: Federation, seed: int) -> nn.Module:
    """The model with the initial weights of ``seed``; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer(seed, "model"))
        module: nn.Module = model.build(federation.sample_shape, federation.num_classes)
    return module


class LocalEngine:
    """Implements :class:`fedcohort.engines.base.Engine` in one process.

    Args:
        federation: the clients' data and the server's sets.
        model: builds the network.
        training: the experiment's settings.
        algorithm: the run's algorithm.
        seed: of the experiment.
        workers: threads; 0 means one per core this process may use.
        memories: where the clients' memories are kept; in this process, and beyond 1 GiB in a file, by default.
        stacked: train :data:`GROUP` clients at a time with :class:`fedcohort.training.stacked.Stack`.

    Raises:
        UsageError: ``stacked``, and this model or algorithm cannot be.
    """

    def __init__(
        self,
        federation: Federation,
        model: Model,
        training: Training,
        algorithm: Algorithm,
        seed: int,
        workers: int = 0,
        memories: Memories | None = None,
        stacked: bool = False,
    ) -> None:
        self.federation = federation
        self.seed = seed
        self._model, self._training = model, training
        self.workers = workers or len(os.sched_getaffinity(0))
        self.memories = Memories() if memories is None else memories
        self._trainers: queue.SimpleQueue[Trainer] = queue.SimpleQueue()
        for _ in range(self.workers):
            module = build_module(model, federation, seed)
            self._trainers.put(Trainer(federation, module, training, algorithm, seed))
        self.trainable = frozenset(name for name, p in module.named_parameters() if p.requires_grad)
        self._stack: Stack | None = None
        if stacked:
            settings = algorithm.local_training(training)
            reason = cannot_stack(module, settings, algorithm)
            if reason is not None:
                raise UsageError(f"engine.plan = 'stacked': {reason}; use 'threads' or 'auto'")
            self._stack = Stack(federation, module, settings, seed)
        self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="client")

    def initial_model(self) -> ModelState:
        """See :class:`Engine`."""
        module = build_module(self._model, self.federation, self.seed)
        return state_of(module.to(dtype=DTYPES[self._training.precision]))

    def train(self, model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
        """See :class:`Engine`. At most a window of finished updates waits for its turn, so memory does not grow with the cohort."""
        if cohort.stop is not None:
            raise UsageError("selection: stopping rules are not carried out by the local engine yet")
        trained = (
            self._train_threads(model, t, cohort, algorithm)
            if self._stack is None
            else self._train_stacked(self._stack, model, t, cohort)
        )
        if cohort.share is None:
            yield from trained
            return
        for update, share in zip(trained, cohort.share.tolist(), strict=True):
            yield partly(update, model, self.trainable, share, self.seed, t)

    def _train_threads(self, model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
        received = algorithm.broadcast()
        this_round = self.memories.begin()

        def work(position: int) -> Update:
            client = int(cohort.clients[position])
            epochs = None if cohort.epochs is None else int(cohort.epochs[position])
            with self._trainer() as trainer, _named(client):
                update, memory = trainer.train(
                    model, t, client, epochs=epochs, received=received, memory=self.memories.get(client)
                )
            if memory:
                self.memories.propose(this_round, client, memory)
            return update

        yield from self._in_order(work, self._costs(cohort))

    def _train_stacked(self, stack: Stack, model: ModelState, t: int, cohort: Cohort) -> Iterator[Update]:
        groups = [slice(start, start + GROUP) for start in range(0, len(cohort), GROUP)]

        def work(position: int) -> list[Update]:
            part = groups[position]
            epochs = None if cohort.epochs is None else cohort.epochs[part].tolist()
            return stack.train(model, t, cohort.clients[part].tolist(), epochs)

        costs = self._costs(cohort)
        for updates in self._in_order(work, np.array([costs[part].sum() for part in groups])):
            yield from updates

    def commit(self, admitted: Iterable[int]) -> None:
        """See :class:`Engine`."""
        self.memories.commit(admitted)

    def answer(self, model: ModelState, t: int, question: Question, clients: Indices) -> Values:
        """See :class:`Engine`."""
        for trainer in self._all_trainers():
            trainer.load(model)
            trainer.module.eval()

        def work(position: int) -> Values:
            client = int(clients[position])
            with self._trainer() as trainer, _named(client):
                return answer(trainer.module, self.federation, trainer.dtype, question, t, client, self.seed)

        sizes = self.federation.num_samples[clients]
        rows = list(self._in_order(work, sizes.astype(np.float64)))
        values = np.array(rows, dtype=np.float64).reshape(len(clients), question.numbers)
        return values[:, 0] if question.numbers == 1 else values

    def evaluate(self, model: ModelState, split: str) -> Evaluation:
        """See :class:`Engine`."""
        check_split(split)
        for trainer in self._all_trainers():
            trainer.load(model)
            trainer.module.eval()
        pieces = list(blocks(self.federation.test if split == "test" else self.federation.validation))

        def work(position: int) -> Evaluation:
            with self._trainer() as trainer:
                return evaluate_block(trainer.module, self.federation, trainer.dtype, pieces[position])

        return sum_up(list(self._in_order(work, np.ones(len(pieces)))), self.federation.num_classes)

    def state_dict(self) -> Mapping[str, Any]:
        """See :class:`Engine`."""
        return self.memories.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`Engine`."""
        self.memories.load_state_dict(state)

    def close(self) -> None:
        """See :class:`Engine`."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    # how work is spread over threads

    def _costs(self, cohort: Cohort) -> Values:
        epochs = 1 if cohort.epochs is None else cohort.epochs
        return (self.federation.num_samples[cohort.clients] * epochs).astype(np.float64)

    def _in_order(self, work: Callable[[int], T], costs: Values) -> Iterator[T]:
        """Results of ``work(0), work(1), …`` in order; inside a window the most expensive starts first, so threads end together."""
        window = max(16, 4 * self.workers)
        with one_thread():
            running: dict[int, Future[T]] = {}
            try:
                for position in range(len(costs)):
                    if position % window == 0:
                        ahead = range(position, min(position + window, len(costs)))
                        for other in sorted(ahead, key=lambda p: -costs[p]):
                            running[other] = self._pool.submit(work, other)
                    yield running.pop(position).result()
            finally:
                for future in running.values():
                    future.cancel()

    @contextmanager
    def _trainer(self) -> Iterator[Trainer]:
        trainer = self._trainers.get()
        try:
            yield trainer
        finally:
            self._trainers.put(trainer)

    def _all_trainers(self) -> list[Trainer]:
        trainers = [self._trainers.get() for _ in range(self.workers)]
        for trainer in trainers:
            self._trainers.put(trainer)
        return trainers


@contextmanager
def _named(client: int) -> Iterator[None]:
    """An error in a client's work says whose it is, its own message first."""
    try:
        yield
    except Exception as error:
        raise ClientError(f"client {client}: {type(error).__name__}: {error}") from error
