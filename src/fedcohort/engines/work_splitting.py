"""Divide work: questions into pieces for threads, and cohorts into stacks of limited size."""

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch

from fedcohort.core.arrays import Flags, Indices, Values
from fedcohort.selection import Cohort

__all__ = [
    "STACK_CLIENTS_COMBINED",
    "STACK_WORK",
    "in_cohort_order",
    "largest_stack",
    "neighbors_of_equal_cost",
    "out_of_memory",
    "question_pieces",
    "samples_to_process",
    "series_of_clients",
    "stacks_by_size",
]

T = TypeVar("T")

STACK_BYTES = 2**24, 2**31
"""Maximum bytes of the parameters of one stack: on a CPU they fit into the cache that its cores share, on a GPU they leave room."""
STACK_CLIENTS, STACK_CLIENTS_OTHER, STACK_CLIENTS_GPU = 256, 64, 1024
"""Maximum number of clients in one stack, on a CPU for a chain of linear layers with ReLU and for another network, and on a GPU."""
STACK_CLIENTS_COMBINED = 64
"""The same on a CPU if the first layer combines samples (see :mod:`fedcohort.training.stack.linear_chain_descent`)."""
STACK_VALUES = 2**24
"""Maximum number of feature values of all batches of one step of a stack on a CPU."""
STACK_WORK = 2**25
"""Samples times parameters of a stack from which on another thread is worth it. Threads with less work wait for Python's lock."""
SERIES_WORK = 2**26
"""Samples times parameters of the clients that a thread trains in one call: some milliseconds."""
SERIES_PER_THREAD = 4
"""Minimum number of such calls for each thread in a round with enough work, so that all threads are done at about the same time."""
SERIES_LEAST_WORK = 2**24
"""Samples times parameters from which on another call is worth it. With less work in each, threads wait for Python's lock."""
SERIES_CLIENTS = 64
"""Maximum number of clients in such a call."""
PIECE = 256, 4096
"""Approximate number of samples of the clients that a thread asks at a time: at least the first and at most the second. With smaller
pieces, threads wait more for Python's lock."""
PIECES_PER_THREAD = 4
"""Minimum number of such pieces for each thread if there are enough samples, so that all threads are done at about the same time."""


def samples_to_process(sizes: Indices, cohort: Cohort) -> Values:
    """Number of samples that each client of the cohort processes; ``sizes`` are the training samples of all clients, int64 [m]."""
    epochs = 1 if cohort.epochs is None else cohort.epochs
    return (sizes[cohort.clients] * epochs).astype(np.float64)


def question_pieces(sizes: Indices, threads: int, limits: tuple[int, int] = PIECE) -> list[slice]:
    """Slices of neighboring clients with about the same number of samples; a thread takes one slice at a time.

    Args:
        sizes: number of samples of each client.
        threads: number of threads, or of processes. Each gets the same number of slices.
        limits: approximate minimum and maximum number of samples in a slice with several clients.
    """
    least, most = limits
    samples = int(sizes.sum())
    rounds = max(PIECES_PER_THREAD, math.ceil(samples / (most * threads)))
    parts = max(1, min(rounds * threads, samples // least))
    return neighbors_of_equal_cost(sizes.astype(np.float64), parts, max(1, len(sizes)))


def series_of_clients(costs: Values, parameters: int, workers: int) -> list[slice]:
    """Slices of neighboring clients that a thread trains in one call: several clients each, if they have little work.

    Args:
        costs: samples that each client processes.
        parameters: number of parameters of the model.
        workers: number of threads.
    """
    work = float(costs.sum()) * parameters
    worth = max(1, int(work / SERIES_LEAST_WORK))
    each = min(SERIES_PER_THREAD, worth // workers)
    parts = max(each * workers if each else worth, math.ceil(work / SERIES_WORK))
    return neighbors_of_equal_cost(costs, min(parts, len(costs)), SERIES_CLIENTS)


def neighbors_of_equal_cost(costs: Values, parts: int, most: int) -> list[slice]:
    """Slices of neighboring clients: about ``parts`` groups of equal cost, each with at most ``most`` members."""
    ends = np.cumsum(costs)
    middle = (ends - costs / 2) / (ends[-1] if len(costs) and ends[-1] else 1.0)
    bounds = np.searchsorted(middle, np.arange(1, parts) / parts)
    groups = []
    for start, stop in itertools.pairwise([0, *bounds.tolist(), len(costs)]):
        pieces = -(-(stop - start) // most)
        edges = [start + (stop - start) * i // pieces for i in range(pieces + 1)] if pieces else []
        groups += [slice(a, b) for a, b in itertools.pairwise(edges)]
    return groups


def stacks_by_size(costs: Values, combined: Flags, parts: int, most: int) -> list[Indices]:
    """Stacks of clients with similar costs, as positions in the cohort; each position is in one stack.

    Clients that combine samples are in stacks of their own, so that a large client does not prevent others from combining theirs. If
    clients are in the order of their cost already, for instance because all costs are equal, stacks have neighboring clients. A large
    cohort is divided into blocks of neighbors first, so that few stacks wait for their turn in the order of the cohort.

    Args:
        costs: work of each client.
        combined: whether each client is trained faster with its first layer as a combination of samples.
        parts: number of threads for which there should be equal work.
        most: maximum number of clients in a stack that does not combine samples.
    """
    limits = {False: most, True: max(most, STACK_CLIENTS_COMBINED)}
    uniform = combined.all() or not combined.any()
    if uniform and (np.diff(costs) <= 0).all():
        cut = neighbors_of_equal_cost(costs, parts, limits[bool(combined.any())])
        return [np.arange(part.start, part.stop) for part in cut]
    block = parts * limits[bool(combined.any())]
    blocks = -(-len(costs) // block)
    edges = [len(costs) * i // blocks for i in range(blocks + 1)]
    stacks: list[Indices] = []
    for start, stop in itertools.pairwise(edges):
        order = start + np.argsort(-costs[start:stop], kind="stable")
        kinds = {kind: order[combined[order] == kind] for kind in (False, True)}
        stacks += _balanced(kinds, costs, parts, limits)
    return stacks


def _balanced(kinds: dict[bool, Indices], costs: Values, parts: int, limits: dict[bool, int]) -> list[Indices]:
    """Stacks of the clients of each kind, the most expensive first, with about the same work for every thread.

    The clients that do not combine samples are divided by their share of the work; the number of stacks of the others is the one
    with which the threads are done first.
    """

    def cut(kind: bool, number: int) -> list[Indices]:
        members = kinds[kind]
        return [members[part] for part in neighbors_of_equal_cost(costs[members], number, limits[kind])]

    total = float(costs[kinds[False]].sum() + costs[kinds[True]].sum())
    share = float(costs[kinds[False]].sum()) / total if total else 0.0
    separate = cut(False, max(1, round(parts * share)))
    numbers = range(1, 2 * parts + 1) if len(separate) else [parts]
    options = [separate + cut(True, number) for number in numbers]
    return min(options, key=lambda stacks: _time_on_threads([float(costs[stack].sum()) for stack in stacks], parts))


def _time_on_threads(costs: list[float], threads: int) -> float:
    """When the last of these threads is done if the most expensive piece is always begun first."""
    busy = [0.0] * threads
    for cost in sorted(costs, reverse=True):
        heapq.heapreplace(busy, busy[0] + cost)
    return max(busy)


def in_cohort_order(groups: Sequence[Indices], results: Iterable[Sequence[T]]) -> Iterator[T]:
    """Results of groups, one after another in the order of the cohort.

    Args:
        groups: the positions of each group's clients in the cohort.
        results: of each group, one result for every client.
    """
    waiting: dict[int, T] = {}
    due = 0
    for positions, found in zip(groups, results, strict=True):
        waiting.update(zip(positions.tolist(), found, strict=True))
        while due in waiting:
            yield waiting.pop(due)
            due += 1


def largest_stack(device: torch.device, model_bytes: int, *, chain: bool, step_values: int) -> int:
    """Maximum number of clients in one stack.

    Args:
        device: where it is trained.
        model_bytes: size of the model.
        chain: whether the network is a chain of linear layers with ReLU.
        step_values: number of feature values of the largest batch of a client.
    """
    if device.type != "cpu":
        return max(1, min(STACK_CLIENTS_GPU, STACK_BYTES[1] // model_bytes))
    clients = STACK_CLIENTS if chain else STACK_CLIENTS_OTHER
    return max(1, min(clients, STACK_BYTES[0] // model_bytes, STACK_VALUES // max(1, step_values)))


def out_of_memory(error: Exception) -> bool:
    """Whether the error means too little memory, of a GPU or of this machine; some CUDA libraries have error messages of their own."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in ("can't allocate memory", "out of memory", "STATUS_ALLOC_FAILED"))
