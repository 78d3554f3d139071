"""Named randomness: every draw is a function of (seed, purpose, round, client), never of what was drawn before it.

Two strategies under one seed therefore meet the same partition, latencies, initial model and batch orders; a run that was killed
after round 17 draws in round 18 what it would have drawn; the number of threads cannot matter.

>>> rng(0, "select", round=3).random() == rng(0, "select", round=3).random()
True
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    import torch

__all__ = ["integer", "rng", "torch_seeded"]

_TORCH = threading.RLock()


def rng(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """The generator for one purpose, round and client: Philox, counter based.

    Args:
        seed: the experiment's seed, ≥ 0.
        purpose: what the numbers are for, such as ``"partition"``, ``"select"`` or ``"batches"``; plug-ins may add their own.
        round: round number, 0 for what happens once.
        client: client id, 0 for what concerns everybody.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(crc32(purpose.encode()), round, client))
    return np.random.Generator(np.random.Philox(sequence))


def integer(seed: int, purpose: str, round: int = 0, client: int = 0) -> int:
    """One 63-bit integer of the same family, to seed generators of other libraries."""
    return int(rng(seed, purpose, round, client).integers(2**63 - 1))


@contextmanager
def torch_seeded(number: int, device: "torch.device") -> "Iterator[list[torch.Generator]]":
    """Inside, what torch draws from its own generators (the CPU's and that of ``device``) depends on ``number`` alone.

    Modules such as Dropout can draw from nowhere else, and all threads share these generators: one thread at a time is inside. They
    are put back at the end. Gives the generators.
    """
    import torch

    generators = [torch.default_generator]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    with _TORCH:
        before = [generator.get_state() for generator in generators]
        for generator in generators:
            generator.manual_seed(number % 2**63)
        try:
            yield generators
        finally:
            for generator, state in zip(generators, before, strict=True):
                generator.set_state(state)
