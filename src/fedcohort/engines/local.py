"""All clients in this process, by one of three plans.

``threads`` trains one client per thread with one intra-op thread each; ``loop`` is the same with one thread: the same kernels, the
same layout, the same bits. ``stacked`` advances a group of clients in each call, groups side by side in the threads, where model
and algorithm allow it; its results are the same to rounding.

Two intra-op threads on one small convolution collapse when another process uses a core; two clients side by side do not.
"""

import itertools
import os
import queue
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import nn

from fedcohort.algorithms import Algorithm, ModelState, Tensors, Update
from fedcohort.algorithms.local import Training
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.streams import integer, torch_seeded
from fedcohort.core.threads import one_thread, one_thread_each
from fedcohort.engines import device
from fedcohort.engines.base import ClientError, Later, check_split
from fedcohort.engines.device import Arithmetic
from fedcohort.engines.window import in_order
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import Model
from fedcohort.selection import Cohort, Question
from fedcohort.training.forward import Evaluation, answer, answers, blocks, evaluate_block, sum_up
from fedcohort.training.local import DTYPES, Trainer, state_of
from fedcohort.training.memories import Memories, Memory
from fedcohort.training.stacked import Stack, cannot_stack
from fedcohort.training.stopping import build_rule
from fedcohort.training.trial import update_norm
from fedcohort.training.upload import partly

__all__ = ["LocalEngine", "build_module", "threads_for"]

T = TypeVar("T")

Plan = Literal["loop", "threads", "stacked"]

STACK_BYTES = 2**24, 2**31
"""Parameters of one stack: on a CPU what fits into the cache that its cores share, on a GPU what leaves room in its memory."""
STACK_CLIENTS = 32, 1024
"""Clients of one stack at most, on a CPU and on a GPU."""
CARRIED = 64
"""Clients of one stack at most on a CPU, if their first layer is carried through their samples."""
GPU_THREADS = 2
"""Threads that feed a GPU, unless told otherwise: while one waits for a number, the other goes on."""
PIECE = 1024
"""Samples about which a thread asks clients before it looks for more work."""
AHEAD = 64
"""Clients that are trained before their updates are asked for, at most."""
AHEAD_BYTES = 2**29
"""Bytes of updates that wait for their turn, at most, unless the threads could not be kept busy with less."""

TOGETHER = 8
"""Blocks of an evaluation that one thread does in one go, at most."""


def threads_for(device: torch.device) -> int:
    """How many clients, or stacks of them, are worked on at a time, unless told otherwise."""
    return len(os.sched_getaffinity(0)) if device.type == "cpu" else GPU_THREADS


def build_module(model: Model, federation: Federation, seed: int) -> nn.Module:
    """The model with the initial weights of ``seed``; torch's global generator is left as it was. It lives where the samples do."""
    with torch_seeded(integer(seed, "model"), torch.device("cpu")):
        module: nn.Module = model.build(federation.sample_shape, federation.num_classes)
    return module.to(federation.device)


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
        plan: how clients are trained. What cannot be stacked says so in a warning, and is trained by ``threads``.
        arithmetic: of a GPU, see :mod:`fedcohort.engines.device`.

    Attributes:
        plan: how clients are trained.
        draws: whether the model draws random numbers in training; threads then take turns in its forward passes.
        group: clients of one stack at most; None means as many as fit.
        stacks: stacks of a round at least, where the cohort has enough clients: one a core, whatever the number of threads.
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
    ) -> None:
        self.federation = federation
        self._sizes = federation.num_samples
        self.seed = seed
        self._model, self._training, self._arithmetic = model, training, arithmetic
        self.device = federation.device
        on_cpu = self.device.type == "cpu"
        self.workers = 1 if plan == "loop" else workers or threads_for(self.device)
        self.memories = Memories() if memories is None else memories
        self._trainers: queue.SimpleQueue[Trainer] = queue.SimpleQueue()
        draws: bool | None = None
        for _ in range(self.workers):
            module = self._module()
            trainer = Trainer(federation, module, training, algorithm, seed, draws)
            self._trainers.put(trainer)
            draws = trainer.draws
        self.draws = bool(draws)
        self.trainable = frozenset(name for name, p in module.named_parameters() if p.requires_grad)
        self._model_bytes: int = max(1, sum(value.nbytes for value in module.state_dict().values()))
        self.plan: Plan = plan
        self.meanwhile: Callable[[], bool] = lambda: False
        self._beside: deque[Callable[[], None]] = deque()
        self._stack: Stack | None = None
        if plan == "stacked":
            module = self._module().to(dtype=DTYPES[training.precision])
            reason = cannot_stack(module, federation, algorithm, training)
            if reason is None:
                self._stack = Stack(federation, module, training, algorithm, seed)
            else:
                warnings.warn(f"engine.plan = 'stacked': {reason}; clients are trained by threads", stacklevel=2)
                self.plan = "threads"
        self.group: int | None = None
        self.stacks = max(2, len(os.sched_getaffinity(0))) if on_cpu else 1
        self._restore = device.arithmetic(arithmetic) if not on_cpu else lambda: None
        self._pool = one_thread_each(self.workers, "client")

    def _module(self) -> nn.Module:
        module = build_module(self._model, self.federation, self.seed)
        return device.in_bfloat16(module) if self._arithmetic == "bf16" else module

    def initial_model(self) -> ModelState:
        """See :class:`Engine`."""
        module = build_module(self._model, self.federation, self.seed)
        return state_of(module.to(dtype=DTYPES[self._training.precision]))

    def train(self, model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
        """See :class:`Engine`. At most a window of finished updates waits for its turn, so memory does not grow with the cohort."""
        received: dict[str, Tensors] = device.moved(algorithm.broadcast(), self.device)
        alone = cohort.stop is not None or cohort.sampling != "shuffled"  # what each client does depends on its losses
        if self._stack is None or alone:
            trained = self._train_threads(model, t, cohort, received)
        else:
            trained = self._train_stacked(self._stack, model, t, cohort, received)
        if cohort.share is None:
            yield from trained
            return
        for update, share in zip(trained, cohort.share.tolist(), strict=True):
            yield partly(update, model, self.trainable, share, self.seed, t)

    def _train_threads(
        self, model: ModelState, t: int, cohort: Cohort, received: dict[str, Tensors]
    ) -> Iterator[Update]:
        this_round = self.memories.begin()
        stop = build_rule(cohort.stop)

        def work(position: int) -> Update:
            client = int(cohort.clients[position])
            epochs = None if cohort.epochs is None else int(cohort.epochs[position])
            with self._trainer() as trainer, _named(client):
                update, memory = trainer.train(
                    model, t, client, epochs=epochs, sampling=cohort.sampling, stop=stop, received=received,
                    memory=self._memory(client),
                )  # fmt: skip
            if memory:
                self.memories.propose(this_round, client, memory)
            return update

        yield from self._in_order(work, self._costs(cohort), self._window(), beside=True)

    def _train_stacked(
        self, stack: Stack, model: ModelState, t: int, cohort: Cohort, received: dict[str, Tensors]
    ) -> Iterator[Update]:
        """Groups depend on the cohort and the machine alone, so that any number of threads gives the same bits."""
        this_round = self.memories.begin()
        costs = self._costs(cohort)
        groups = _cut(costs, self.stacks, self._most(stack, cohort))

        def work(position: int) -> list[Update]:
            results = self._together(stack, model, t, cohort, received, groups[position])
            for update, memory in results:
                if memory:
                    self.memories.propose(this_round, update.client, memory)
            return [update for update, _ in results]

        size = max((part.stop - part.start for part in groups), default=1)
        windows = max(self.workers + 1, self._window(size) // size)
        for updates in self._in_order(work, np.array([costs[part].sum() for part in groups]), windows, beside=True):
            yield from updates

    def _together(
        self, stack: Stack, model: ModelState, t: int, cohort: Cohort, received: dict[str, Tensors], part: slice
    ) -> list[tuple[Update, dict[str, Tensors]]]:
        """One part of the cohort in one stack, or in smaller ones where that does not fit. No closure: one that calls itself would
        keep the model until the garbage collector comes."""
        clients = cohort.clients[part].tolist()
        epochs = None if cohort.epochs is None else cohort.epochs[part].tolist()
        memories = [self._memory(client) for client in clients]
        try:
            with _named(clients[0]) if len(clients) == 1 else nullcontext():
                return stack.train(model, t, clients, epochs=epochs, received=received, memories=memories)
        except Exception as error:  # a smaller stack may fit into memory; one client alone says whose error it was
            if len(clients) == 1:
                raise
            smaller = self._shrunk(len(clients)) if _out_of_memory(error) else 1
        starts = range(part.start, part.stop, smaller)
        parts = [slice(start, min(start + smaller, part.stop)) for start in starts]
        return [pair for one in parts for pair in self._together(stack, model, t, cohort, received, one)]

    def _most(self, stack: Stack, cohort: Cohort) -> int:
        """Clients of one stack at most."""
        if self.group is not None:
            return self.group
        on_gpu = self.device.type != "cpu"
        if not on_gpu and stack.carries(cohort.clients, cohort.epochs, CARRIED):
            return CARRIED
        return max(1, min(STACK_CLIENTS[on_gpu], STACK_BYTES[on_gpu] // self._model_bytes))

    def _shrunk(self, clients: int) -> int:
        """Half as many clients in a stack from now on; says so once for each size."""
        smaller = max(1, clients // 2)
        if self.group is None or smaller < self.group:
            self.group = smaller
            warnings.warn(
                f"a stack of {clients} clients does not fit into memory; from now on it has {smaller}", stacklevel=2
            )
        return smaller

    def commit(self, admitted: Iterable[int]) -> None:
        """See :class:`Engine`."""
        self.memories.commit(admitted)

    def answer(
        self, model: ModelState, t: int, question: Question, clients: Indices, algorithm: Algorithm | None = None
    ) -> Values:
        """See :class:`Engine`."""
        sent = algorithm.broadcast() if question.trains and algorithm is not None else {}
        received: dict[str, Tensors] = device.moved(sent, self.device)

        sizes = self._sizes[clients]
        pieces = _pieces(sizes)

        def work(position: int) -> list[Values]:
            asked: list[int] = clients[pieces[position]].tolist()
            with self._trainer() as trainer:
                if not question.trains:
                    common = trainer.show(model), self.federation, trainer.dtype, question, t
                    with suppress(Exception):  # whose error it was is found below
                        return answers(*common, asked, self.seed)
                rows = []
                for client in asked:
                    with _named(client):
                        if question.trains:
                            memory = self._memory(client)
                            rows.append(update_norm(trainer, model, t, client, received=received, memory=memory))
                        else:
                            rows.append(answer(*common, client, self.seed))
            return rows

        costs = np.array([sizes[piece].sum() for piece in pieces], dtype=np.float64)
        rows = [row for piece in self._in_order(work, costs) for row in piece]
        values = np.array(rows, dtype=np.float64).reshape(len(clients), question.numbers)
        return values[:, 0] if question.numbers == 1 else values

    def evaluate(self, model: ModelState, split: str) -> Evaluation:
        """See :class:`Engine`."""
        return self.evaluate_beside(model, split)()

    def evaluate_beside(self, model: ModelState, split: str) -> Later:
        """See :class:`Engine`. The work is begun beside the next training, unless somebody waits for it first."""
        check_split(split)
        every = list(blocks(self.federation.test if split == "test" else self.federation.validation))

        def work(some: list[Samples]) -> list[Evaluation]:
            with self._trainer() as trainer:
                module = trainer.show(model)
                return [evaluate_block(module, self.federation, trainer.dtype, block) for block in some]

        size = max(1, min(TOGETHER, len(every) // self.workers))  # something for every thread, if somebody waits for it
        pieces = [_Piece(partial(work, every[i : i + size])) for i in range(0, len(every), size)]
        self._beside += pieces
        return _Beside(pieces, self._now, self.federation.num_classes)

    def _now(self) -> None:
        """Begin whatever waits to be done beside a training."""
        while self._beside:
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

    def _costs(self, cohort: Cohort) -> Values:
        epochs = 1 if cohort.epochs is None else cohort.epochs
        return (self._sizes[cohort.clients] * epochs).astype(np.float64)

    def _memory(self, client: int) -> Memory:
        memory: Memory = device.moved(self.memories.get(client), self.device)
        return memory

    def _window(self, group: int = 1) -> int:
        """Updates that may wait for their turn: few enough to stay small, enough to keep the threads busy."""
        fitting = AHEAD_BYTES // self._model_bytes
        return max(self.workers + 1, min(AHEAD if group > 1 else max(16, 4 * self.workers), fitting))

    def _in_order(
        self, work: Callable[[int], T], costs: Values, window: int = AHEAD, *, beside: bool = False
    ) -> Iterator[T]:
        with one_thread():
            if beside:
                yield from in_order(self._pool, work, costs, self.workers, window, self._beside, self.meanwhile)
            else:
                yield from in_order(self._pool, work, costs, self.workers, window)

    @contextmanager
    def _trainer(self) -> Iterator[Trainer]:
        trainer = self._trainers.get()
        try:
            yield trainer
        finally:
            self._trainers.put(trainer)


@dataclass(eq=False)
class _Piece:
    """A piece of an evaluation, done when it is called."""

    work: Callable[[], list[Evaluation]]
    result: Future[list[Evaluation]] = field(default_factory=Future)

    def __call__(self) -> None:
        try:
            self.result.set_result(self.work())
        except BaseException as error:
            self.result.set_exception(error)


@dataclass(frozen=True)
class _Beside:
    """An evaluation in pieces (:class:`fedcohort.engines.base.Later`)."""

    pieces: list[_Piece]
    begin: Callable[[], None]
    num_classes: int

    def __call__(self) -> Evaluation:
        self.begin()
        return sum_up([part for piece in self.pieces for part in piece.result.result()], self.num_classes)

    def done(self) -> bool:
        return all(piece.result.done() for piece in self.pieces)


@contextmanager
def _named(client: int) -> Iterator[None]:
    """An error in a client's work says whose it is, its own message first."""
    try:
        yield
    except Exception as error:
        raise ClientError(f"client {client}: {type(error).__name__}: {error}") from error


def _pieces(sizes: Indices) -> list[slice]:
    """Neighbours together, so that a thread is handed about :data:`PIECE` samples at a time."""
    ends = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // PIECE)) + 1
    return [slice(a, b) for a, b in itertools.pairwise([0, *ends.tolist(), len(sizes)]) if a < b]


def _cut(costs: Values, parts: int, most: int) -> list[slice]:
    """Neighbours together: about so many parts of equal cost, none of more than ``most`` members."""
    ends = np.cumsum(costs)
    middle = (ends - costs / 2) / (ends[-1] if len(costs) and ends[-1] else 1.0)
    bounds = np.searchsorted(middle, np.arange(1, parts) / parts)
    groups = []
    for start, stop in itertools.pairwise([0, *bounds.tolist(), len(costs)]):
        pieces = -(-(stop - start) // most)
        edges = [start + (stop - start) * i // pieces for i in range(pieces + 1)] if pieces else []
        groups += [slice(a, b) for a, b in itertools.pairwise(edges)]
    return groups


def _out_of_memory(error: Exception) -> bool:
    """Whether there was not enough memory, on a GPU or here; CUDA's libraries that find too little have words of their own."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in ("can't allocate memory", "out of memory", "STATUS_ALLOC_FAILED"))
