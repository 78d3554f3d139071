"""The engine that trains all clients in this process, by one of three plans.

* ``threads`` trains one client per thread, with one intra-op thread each.
* ``loop`` is the same with one thread: the same kernels, the same memory layout, the same bits.
* ``stacked`` trains stacks of clients, in which one call advances all clients, and trains several stacks at the same time. It needs a
  model and an algorithm that allow it. Its results are the same to rounding.

Clients run side by side instead of on several intra-op threads because two intra-op threads on one small convolution become very slow
as soon as another process uses a core.
"""

import queue
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from torch import nn

from fedcohort.algorithms import Algorithm, ModelState, Tensors, Update
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.freed_memory import keep_freed_memory
from fedcohort.core.processor import cores
from fedcohort.core.tensor_sizes import num_bytes
from fedcohort.core.threads import one_thread, one_thread_each
from fedcohort.engines import device
from fedcohort.engines.background_evaluation import EvaluationPiece, PendingEvaluation
from fedcohort.engines.base import Later, check_split
from fedcohort.engines.client_answers import as_answers, forward_answers, received_for, trial_answers
from fedcohort.engines.device import Arithmetic
from fedcohort.engines.idle_threads import IdleThreads
from fedcohort.engines.initial_network import build_module
from fedcohort.engines.ordered_threads import in_order
from fedcohort.engines.stacked_cohort import GroupTrainer
from fedcohort.engines.thread_numbers import ThreadNumbers, threads_for
from fedcohort.engines.threaded_cohort import CohortTrainer
from fedcohort.engines.work_splitting import in_cohort_order, question_pieces, samples_to_process
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import Model
from fedcohort.selection import Cohort, Question
from fedcohort.training.client_memories import Memories, Memory
from fedcohort.training.evaluation import Evaluation, blocks, evaluate_blocks
from fedcohort.training.networks.model_states import DTYPES, state_of
from fedcohort.training.networks.omitted_entries import omitted_entries
from fedcohort.training.networks.random_layers import recomputes
from fedcohort.training.partial_upload import partial_upload
from fedcohort.training.stack import Stack, cannot_stack
from fedcohort.training.trainer import Trainer

__all__ = ["AHEAD", "AHEAD_BYTES", "LocalEngine", "Plan"]

T = TypeVar("T")

Plan = Literal["loop", "threads", "stacked"]

AHEAD = 64
"""Maximum number of clients that are trained before their updates are taken."""
AHEAD_BYTES = 2**29
"""Maximum bytes of updates that wait to be taken, unless the threads could not be kept busy with less."""
MIXED = 4
"""Number of stacks for each core whose clients may be mixed in the cohort."""
BLOCKS = 8
"""Maximum number of blocks of an evaluation that one thread computes before it looks for more work."""


class LocalEngine:
    """Implements :class:`fedcohort.engines.base.Engine` in one process.

    Args:
        federation: the clients' data and the server's sets.
        model: builds the network.
        training: the experiment's settings.
        algorithm: the run's algorithm.
        seed: the experiment's seed.
        workers: number of threads; 0 means one per core that this process may use, divided by ``threads_per_client``.
        memories: stores the clients' memories; by default in this process, and beyond 1 GiB in a file.
        plan: how clients are trained. Clients that cannot be stacked are trained by ``threads``, with a warning that says why.
        arithmetic: see :mod:`fedcohort.engines.device`.
        omitted: names of the entries of the network's state dictionary that models do not have; None means that they are found.
        threads_per_client: number of intra-op threads with which a client is trained; stacks have one.

    Attributes:
        plan: how clients are trained.
        omitted: see above, and :func:`~fedcohort.training.networks.omitted_entries.omitted_entries`.
        draws: whether the model draws random numbers in training.
        takes_turns: whether threads take turns in its forward passes, because it does, and can have neither a program nor scripts.
        groups: trains clients in stacks; None for the other plans.
        stacks: minimum number of stacks per round if the cohort has enough clients and work: one per core, whatever the number of
            threads.
        meanwhile: see :class:`Engine`.
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
        plan: Plan = "threads",
        arithmetic: Arithmetic = "exact",
        omitted: Collection[str] | None = None,
        threads_per_client: int = 1,
    ) -> None:
        self.federation = federation
        self._sizes = federation.num_samples
        self.seed = seed
        self._training, self._arithmetic, self._threads_per_client = training, arithmetic, threads_per_client
        self.device = federation.device
        if on_cpu := self.device.type == "cpu":
            keep_freed_memory()
        self._network = partial(build_module, model, federation, seed, DTYPES[training.precision])
        first = self._module()
        self.omitted = frozenset(omitted_entries(first, self._network, federation) if omitted is None else omitted)
        self.workers = 1 if plan == "loop" else workers or max(1, threads_for(first, self.device) // threads_per_client)
        self.memories = Memories() if memories is None else memories
        self._model_bytes = 1
        self.plan: Plan = plan
        self.meanwhile: Callable[[], bool] = lambda: False
        self._beside: deque[Callable[[], None]] = deque()
        self._idle = IdleThreads(min(self.workers, cores()))
        self._restore = device.arithmetic(arithmetic) if not on_cpu else lambda: None
        try:
            self._trainers = self._all_trainers(algorithm, first)
            self.groups = self._groups(algorithm) if plan == "stacked" else None
        except BaseException:
            self._restore()
            raise
        self.stacks = max(2, cores()) if on_cpu else 1
        self._pool, self._threads = one_thread_each(self.workers, "client"), ThreadNumbers(self.workers)

    def _all_trainers(self, algorithm: Algorithm, module: nn.Module) -> "queue.LifoQueue[Trainer]":
        """A trainer for each thread; ``module`` is the network of the first. The one that was used last is used next: the programs and
        scripts that it has made, and what is in the caches, are ready."""
        trainers: queue.LifoQueue[Trainer] = queue.LifoQueue()
        draws: bool | None = None
        for number in range(self.workers):
            module = self._module() if number else module
            beside = draws, self.omitted, self._threads_per_client
            trainer = Trainer(self.federation, module, self._training, algorithm, self.seed, *beside)
            trainer.share_work(self._idle.count)
            if self.workers > 1:
                trainer.stream = device.new_stream(self.device)
            trainers.put(trainer)
            draws = trainer.draws
            if draws and self.workers > 1 and recomputes(module):
                warnings.warn(
                    "model: draws random numbers and uses torch.utils.checkpoint; clients are trained one at a time",
                    stacklevel=5,
                )
                self.workers = 1
                break
        self.draws, self.takes_turns = bool(draws), bool(draws) and trainer.needs_python
        self.trainable = frozenset(name for name, p in module.named_parameters() if p.requires_grad)
        self._model_bytes = max(1, num_bytes([trainer.entries]))
        return trainers

    def _groups(self, algorithm: Algorithm) -> GroupTrainer | None:
        """What trains clients in stacks; None, with a warning, if they cannot be stacked."""
        module = self._module()
        reason = cannot_stack(module, self.federation, algorithm, self._training)
        if reason is None:
            stack = Stack(self.federation, module, self._training, algorithm, self.seed)
            return GroupTrainer(stack, self._model_bytes, self.memories.get)
        warnings.warn(f"engine.plan = 'stacked': {reason}; clients are trained by threads", stacklevel=3)
        self.plan = "threads"
        return None

    def _module(self) -> nn.Module:
        module = self._network()
        return device.in_bfloat16(module) if self._arithmetic == "bf16" else module

    def initial_model(self) -> ModelState:
        """See :class:`Engine`."""
        return {name: value for name, value in state_of(self._network()).items() if name not in self.omitted}

    def frozen(self) -> ModelState:
        """The parameters that models do not have, by name."""
        with self._trainer() as trainer:
            return trainer.frozen.values()

    def whole(self, model: ModelState) -> ModelState:
        """See :class:`Engine`."""
        with self._trainer() as trainer:
            return trainer.whole(model)

    def train(self, model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
        """See :class:`Engine`. At most a window of finished updates waits to be taken, so memory does not grow with the cohort."""
        received: dict[str, Tensors] = device.moved(algorithm.broadcast(), self.device)
        by_losses = cohort.stop is not None or cohort.sampling != "shuffled"  # each client's steps depend on its losses
        if self.groups is None or by_losses:
            trained = self._train_threads(model, t, cohort, received)
        else:
            trained = self._train_stacked(self.groups, model, t, cohort, received)
        if cohort.share is None:
            yield from trained
            return
        for update, share in zip(trained, cohort.share.tolist(), strict=True):
            yield partial_upload(update, model, self.trainable, share, self.seed, t)

    def _train_threads(
        self, model: ModelState, t: int, cohort: Cohort, received: dict[str, Tensors]
    ) -> Iterator[Update]:
        this_round, costs = self.memories.begin(), samples_to_process(self._sizes, cohort)
        trainer = CohortTrainer(model, t, cohort, received, self._trainer, self._memory)
        parts = trainer.parts(costs, self.workers)
        here = self._threads.one_is_enough(len(parts), in_python=trainer.in_python)

        def work(position: int) -> list[Update]:
            results = trainer.train(parts[position])
            for update, memory in results:
                device.leave_stream([update.state, update.extra, memory], self.device)
                if memory:
                    self.memories.propose(this_round, update.client, memory)
            return [update for update, _ in results]

        largest = max((part.stop - part.start for part in parts), default=1)
        window = max(self.workers + 1, self._window() // largest)
        results = self._in_order(work, np.array([costs[part].sum() for part in parts]), window, beside=True, here=here)
        for updates in self._threads.timed(results, here, in_python=trainer.in_python):
            yield from updates

    def _train_stacked(
        self, trainer: GroupTrainer, model: ModelState, t: int, cohort: Cohort, received: dict[str, Tensors]
    ) -> Iterator[Update]:
        """As :meth:`train`. Stacks depend only on the cohort and the machine, so that any number of threads gives the same bits."""
        this_round, costs = self.memories.begin(), samples_to_process(self._sizes, cohort)
        groups = trainer.groups(cohort, costs, self.stacks)
        mixed = self.mixed(groups)

        def work(position: int) -> list[Update]:
            results = trainer.train(model, t, cohort, received, groups[position])
            for update, memory in results:
                if memory:
                    self.memories.propose(this_round, update.client, memory)
                if update.group is not None:
                    update.group[0].mixed_with = mixed
            return [update for update, _ in results]

        size = max(map(len, groups), default=1)
        window = max(self.workers + 1, self._window(size) // size)
        costs_of_groups = np.array([costs[group].sum() for group in groups])
        yield from in_cohort_order(groups, self._in_order(work, costs_of_groups, window, beside=True))

    def mixed(self, groups: Sequence[Indices]) -> int:
        """How many stacks can alternate in the order of the cohort; 0 if the clients of every stack are neighbors."""
        return MIXED * self.stacks if any((np.diff(group) != 1).any() for group in groups) else 0

    def commit(self, admitted: Iterable[int]) -> None:
        """See :class:`Engine`."""
        self.memories.commit(admitted)

    def answer(
        self, model: ModelState, t: int, question: Question, clients: Indices, algorithm: Algorithm | None = None
    ) -> Values:
        """See :class:`Engine`."""
        received: dict[str, Tensors] = device.moved(received_for(question, algorithm), self.device)
        sizes = self._sizes[clients]
        pieces = question_pieces(sizes, self.workers)

        def work(position: int) -> list[Values]:
            asked: list[int] = clients[pieces[position]].tolist()
            with self._trainer() as trainer:
                if question.trains:
                    return trial_answers(trainer, model, t, asked, received, self._memory)
                return forward_answers(trainer, model, t, question, asked)

        costs = np.array([sizes[piece].sum() for piece in pieces], dtype=np.float64)
        rows = [row for piece in self._in_order(work, costs) for row in piece]
        return as_answers(rows, clients, question)

    def evaluate(self, model: ModelState, split: str) -> Evaluation:
        """See :class:`Engine`."""
        return self.evaluate_beside(model, split)()

    def evaluate_beside(self, model: ModelState, split: str, *, predictions: bool = False) -> Later:
        """See :class:`Engine`. The work begins at the same time as the next training, or when the caller waits for the result."""
        check_split(split)
        all_blocks = list(blocks(self.federation.test if split == "test" else self.federation.validation))

        def work(piece: list[Samples]) -> list[Evaluation]:
            with self._trainer() as trainer:
                module, program = trainer.show(model), trainer.outputs_program()
                return evaluate_blocks(module, self.federation, trainer.dtype, piece, program, predictions=predictions)

        size = max(1, min(BLOCKS, len(all_blocks) // self.workers))  # so that every thread gets a piece
        starts = range(0, len(all_blocks), size)
        pieces = [EvaluationPiece(partial(work, all_blocks[start : start + size])) for start in starts]
        self._beside += pieces
        return PendingEvaluation(pieces, self.begin_beside, self.federation.num_outputs)

    def begin_beside(self) -> None:
        """Begin the evaluations that wait for a training."""
        with suppress(IndexError):  # another thread may take them, too
            while True:
                self._pool.submit(self._beside.popleft())

    def state_dict(self) -> Mapping[str, Any]:
        """See :class:`Engine`."""
        return self.memories.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`Engine`."""
        self.memories.load_state_dict(state)

    def close(self) -> None:
        """See :class:`Engine`."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._restore()
        self._restore = lambda: None

    # how work is spread over threads

    def _memory(self, client: int) -> Memory:
        memory: Memory = device.moved(self.memories.get(client), self.device)
        return memory

    def _window(self, group: int = 1) -> int:
        """Number of updates that may wait to be taken: few enough to fit into memory, enough to keep the threads busy."""
        fitting = AHEAD_BYTES // self._model_bytes
        return max(self.workers + 1, min(AHEAD if group > 1 else max(16, 4 * self.workers), fitting))

    def _in_order(
        self, work: Callable[[int], T], costs: Values, window: int = AHEAD, *, beside: bool = False, here: bool = False
    ) -> Iterator[T]:
        side = (self._beside, self.meanwhile) if beside else ()
        with one_thread():
            yield from in_order(self._pool, work, costs, self.workers, window, *side, here=here)

    @contextmanager
    def _trainer(self) -> Iterator[Trainer]:
        trainer = self._trainers.get()
        try:
            with self._idle.one_busy() if trainer.shares_work else nullcontext(), device.on_stream(trainer.stream):
                yield trainer
        finally:
            self._trainers.put(trainer)
