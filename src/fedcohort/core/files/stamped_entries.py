"""Entries of a state that change one by one, with stamps that say which of them have changed since an earlier state."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Stamp", "StampedEntries", "new_version"]

T = TypeVar("T")

_VERSIONS = itertools.count()


class Stamp(NamedTuple):
    """What is known of an entry without reading it.

    Attributes:
        version: from :func:`new_version`; as long as the process lives, entries with the same version have the same content.
        size: bytes of the entry.
    """

    version: int
    size: int


def new_version() -> int:
    """A number that this process has not used before."""
    return next(_VERSIONS)


class StampedEntries(Mapping[str, T], Generic[T]):
    """Entries by key, each of which is read when it is asked for.

    Args:
        stamps: the stamp of every entry, by key, in order.
        read: returns the entry with this key.
    """

    def __init__(self, stamps: Mapping[str, Stamp], read: Callable[[str], T]) -> None:
        self.stamps, self._read = stamps, read

    def __getitem__(self, key: str) -> T:
        if key not in self.stamps:
            raise KeyError(key)
        return self._read(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.stamps)

    def __len__(self) -> int:
        return len(self.stamps)
