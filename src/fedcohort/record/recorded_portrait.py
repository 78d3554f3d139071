"""Read the facts about the clients of a run from its database."""

import json
import sqlite3
import zlib

import numpy as np

from fedcohort.record.round_rows import Portrait

__all__ = ["recorded_portrait"]

_LARGEST = 2**32
"""Bytes of one fact, such as the label counts of a million clients in 500 classes. A small record could fill the memory with more."""


def recorded_portrait(connection: sqlite3.Connection) -> Portrait:
    """The facts about the clients; empty if the run was recorded by a version without them.

    Args:
        connection: a connection to the database.

    Raises:
        ValueError, TypeError, KeyError, zlib.error: a fact is not what was written.
    """
    rows = connection.execute("SELECT name, type, shape, data FROM portrait").fetchall()
    arrays = {name: (kind, shape, _unpacked(data)) for name, kind, shape, data in rows}
    if "classes" not in arrays:
        return Portrait()
    texts = {name: tuple(json.loads(arrays.pop(name)[2])) for name in ("classes", "names") if name in arrays}
    facts = {name: np.frombuffer(data, kind).reshape(json.loads(shape)) for name, (kind, shape, data) in arrays.items()}
    return Portrait(facts=facts, **texts)


def _unpacked(data: bytes) -> bytes:
    """The bytes that were compressed.

    Raises:
        ValueError: there are too many of them.
    """
    unpacking = zlib.decompressobj()
    unpacked = unpacking.decompress(data, _LARGEST)
    if unpacking.unconsumed_tail:
        raise ValueError(f"a fact about the clients has more than {_LARGEST:,} bytes")
    return unpacked
