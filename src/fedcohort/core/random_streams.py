"""Named randomness: every draw is a function of (seed, purpose, round, client), and never depends on earlier draws.

Two strategies under the same seed therefore get the same partition, latencies, initial model and batch orders. A run that was killed
after round 17 and resumed draws the same numbers in round 18 as without the interruption. The number of threads has no effect.

>>> rng(0, "select", round=3).random() == rng(0, "select", round=3).random()
True
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

__all__ = ["integer", "integers", "numpy_state", "rng", "rngs", "torch_seeded", "torch_state"]

FEW = 5
"""For fewer clients than this, :func:`rngs` calls :func:`rng`, which is then faster."""

_GLOBAL_GENERATORS = threading.RLock()


def rng(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """The random generator for one purpose, round and client (Philox, a counter-based generator).

    Args:
        seed: the experiment's seed, ≥ 0.
        purpose: the use of the numbers, such as ``"partition"``, ``"select"`` or ``"batches"``; plug-ins may add their own.
        round: round number; 0 for draws that happen once.
        client: client id; 0 for draws that concern all clients.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(crc32(purpose.encode()), round, client))
    return np.random.Generator(np.random.Philox(sequence))


def rngs(seed: int, purpose: str, round: int, clients: Sequence[int]) -> Iterator[np.random.Generator]:
    """``rng(seed, purpose, round, client)`` for one client after another: the same numbers, for many clients in a fifth of the time.

    All items may be the same generator object, set to each client's key in turn: use each before you take the next. The keys are those
    that :class:`numpy.random.SeedSequence` derives from seed and spawn key (O'Neill's ``seed_seq_fe``, which NumPy promises to keep),
    computed for all clients at once.
    """
    largest = max(clients, default=0)
    if len(clients) < FEW or largest >= 2**32 or not 0 <= round < 2**32:
        yield from (rng(seed, purpose, round, client) for client in clients)
        return
    words = _words(seed)
    words += [0] * (4 - len(words)) + [crc32(purpose.encode()), round]
    keys = _keys(words, np.array(clients, dtype=np.uint32))
    philox = np.random.Philox(0)
    generator, zeros = np.random.Generator(philox), np.zeros(4, dtype=np.uint64)
    for key in keys:
        philox.state = {
            "bit_generator": "Philox", "state": {"counter": zeros, "key": key}, "buffer": zeros, "buffer_pos": 4,
            "has_uint32": 0, "uinteger": 0,
        }  # fmt: skip
        yield generator


def _words(number: int) -> list[int]:
    """An integer's 32-bit words, the lowest first; one word for 0."""
    return [number >> shift & 0xFFFFFFFF for shift in range(0, max(number.bit_length(), 1), 32)]


def _keys(words: list[int], last: "NDArray[np.uint32]") -> "NDArray[np.uint64]":
    """The first two 64-bit numbers of the seed sequences of ``words`` followed by each entry of ``last``, [n, 2]."""
    mask, constant = 0xFFFFFFFF, 0x43B0D7E5

    def hashed(value: Any, multiplier: int) -> Any:
        nonlocal constant
        value = value ^ constant
        constant = constant * multiplier & mask
        value = value * constant & mask
        return value ^ value >> 16

    def mixed(x: Any, y: Any) -> Any:
        value = (0xCA01F9DD * x & mask) - (0x4973F715 * y & mask) & mask
        return value ^ value >> 16

    pool = [hashed(word, 0x931E8875) for word in words[:4]]
    for source in range(4):
        for to in range(4):
            if source != to:
                pool[to] = mixed(pool[to], hashed(pool[source], 0x931E8875))
    for word in [*words[4:], last]:
        pool = [mixed(value, hashed(word, 0x931E8875)) for value in pool]
    constant = 0x8B51F9DD
    state = np.stack([hashed(value, 0x58F38DED) for value in pool], axis=1)
    return np.ascontiguousarray(state).view(np.uint64)


def integer(seed: int, purpose: str, round: int = 0, client: int = 0) -> int:
    """One 63-bit integer from the generator that :func:`rng` returns, to seed generators of other libraries."""
    return int(rng(seed, purpose, round, client).integers(2**63 - 1))


def integers(seed: int, purpose: str, round: int, clients: Sequence[int]) -> list[int]:
    """:func:`integer` for each of several clients."""
    return [int(draw.integers(2**63 - 1)) for draw in rngs(seed, purpose, round, clients)]


@contextmanager
def torch_seeded(number: int, device: "torch.device") -> "Iterator[list[torch.Generator]]":
    """Seed torch's global generators (of the CPU and of ``device``) with ``number`` for the duration of a block.

    Modules such as Dropout can draw only from the global generators, which all threads share. Only one thread at a time therefore runs
    such a block. The states of the generators are restored at the end. The block receives the generators.
    """
    import torch

    generators = [torch.default_generator]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    elif device.type == "mps":
        generators.append(torch.mps._get_default_mps_generator())
    with _GLOBAL_GENERATORS:
        before = [generator.get_state() for generator in generators]
        for generator in generators:
            generator.manual_seed(number % 2**63)
        try:
            yield generators
        finally:
            for generator, state in zip(generators, before, strict=True):
                generator.set_state(state)


def numpy_state() -> dict[str, object]:
    """The state of numpy's global generator, from which only code of others draws: it shows whether they do."""
    state: dict[str, Any] = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - draws nothing
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in state.items()}


def torch_state() -> bytes:
    """The state of torch's global generator on the CPU, outside of :func:`torch_seeded`: it shows whether code of others draws."""
    import torch

    with _GLOBAL_GENERATORS:  # no other thread is within a block that restores the state
        return bytes(torch.default_generator.get_state().numpy())
