"""Ids of clients in arrays from Python, as numbers and names."""

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.array_checks import check_clients, check_known, names_of_ids, numbered

__all__ = ["mention_alike", "numbers_of_clients"]

log = logging.getLogger("fedcohort")
"""Mentions names of clients, or of classes, that may be one."""

SHOWN = 3
"""Largest number of sets of alike names that a warning names."""


def numbers_of_clients(
    clients: object, test_clients: object, writers: object, where: str
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None, tuple[str, ...]]:
    """The numbers of the clients of the training samples and of the test samples, None if they are unknown; and the clients' names."""
    if clients is not None and writers is not None:
        raise UsageError(f"{where}: clients and writers are two names of one argument; give only one of them")
    argument = "clients" if writers is None else "writers"
    given = clients if writers is None else writers
    if given is None:
        if test_clients is not None:
            raise UsageError(f"{where}: test_clients without clients; give the client of each training sample, too")
        return None, None, ()
    ids = check_clients(given, where, argument)
    names = names_of_ids(ids)
    if ids.dtype.kind == "U":
        mention_alike(names, where)
    if test_clients is None:
        return numbered(ids), None, names
    tested = check_clients(test_clients, where, "test_clients")
    if (ids.dtype.kind == "U") != (tested.dtype.kind == "U"):
        kinds = ["strings" if part.dtype.kind == "U" else "integers" for part in (ids, tested)]
        raise UsageError(f"{where}: {argument} are {kinds[0]}, test_clients are {kinds[1]}; give both as the same type")
    numbers = numbered(tested, known=ids)
    check_known(numbers, ids, tested, where)
    return numbered(ids), numbers, names


def mention_alike(names: Sequence[str], where: str, *, of_classes: bool = False) -> None:
    """Mention names that differ only in capital letters or spaces: they are different clients, which few data mean.

    Names ``of_classes`` are mentioned only if they differ in spaces, because classes may be letters.
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(" ".join((name if of_classes else name.casefold()).split()), []).append(name)
    same = [own for own in alike.values() if len(own) > 1]
    if same:
        words = "; ".join(" and ".join(map(repr, own[:SHOWN])) for own in same[:SHOWN])
        more = f" (and {len(same) - SHOWN} more)" if len(same) > SHOWN else ""
        kind, what = ("classes", "spaces") if of_classes else ("clients", "capital letters or spaces")
        log.warning("%s: different %s have names that differ only in %s: %s%s", where, kind, what, words, more)
