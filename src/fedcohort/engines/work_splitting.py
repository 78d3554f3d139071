"""Divide work: questions into pieces for threads, and cohorts into stacks of limited size."""

import itertools

import numpy as np
import torch

from fedcohort.core.arrays import Indices, Values

__all__ = ["STACK_CLIENTS_COMBINED", "largest_stack", "neighbors_of_equal_cost", "out_of_memory", "question_pieces"]

STACK_BYTES = 2**24, 2**31
"""Maximum bytes of the parameters of one stack: on a CPU they fit into the cache that its cores share, on a GPU they leave room."""
STACK_CLIENTS = 32, 1024
"""Maximum number of clients in one stack, on a CPU and on a GPU."""
STACK_CLIENTS_COMBINED = 64
"""Maximum number of clients in one stack on a CPU if the first layer combines samples (see
:mod:`fedcohort.training.stack.linear_chain_descent`)."""
PIECE = 1024
"""Approximate number of samples of the clients that a thread asks at a time."""


def question_pieces(sizes: Indices) -> list[slice]:
    """Slices of neighboring clients with about :data:`PIECE` samples each; a thread takes one slice at a time."""
    ends = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // PIECE)) + 1
    return [slice(a, b) for a, b in itertools.pairwise([0, *ends.tolist(), len(sizes)]) if a < b]


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


def largest_stack(device: torch.device, model_bytes: int) -> int:
    """Number of clients that fit into one stack, for models of ``model_bytes``."""
    on_gpu = device.type != "cpu"
    return max(1, min(STACK_CLIENTS[on_gpu], STACK_BYTES[on_gpu] // model_bytes))


def out_of_memory(error: Exception) -> bool:
    """Whether the error means too little memory, of a GPU or of this machine; some CUDA libraries have error messages of their own."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in ("can't allocate memory", "out of memory", "STATUS_ALLOC_FAILED"))
