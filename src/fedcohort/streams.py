"""Named randomness: every draw is a function of (seed, purpose, round, client), never of what was drawn before it.

Two strategies under one seed therefore meet the same partition, latencies, initial model and batch orders; a run that was killed
after round 17 draws in round 18 what it would have drawn; the number of threads cannot matter.

>>> rng(0, "select", round=3).random() == rng(0, "select", round=3).random()
True
"""

from zlib import crc32

import numpy as np

__all__ = ["integer", "rng"]


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
