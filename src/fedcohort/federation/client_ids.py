"""Ids of clients in arrays from Python, as numbers and names."""

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.errors import UsageError
from fedcohort.federation.array_checks import check_clients, check_known, names_of_ids, numbered

__all__ = ["numbers_of_clients"]


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
    if test_clients is None:
        return numbered(ids), None, names
    tested = check_clients(test_clients, where, "test_clients")
    if (ids.dtype.kind == "U") != (tested.dtype.kind == "U"):
        kinds = ["strings" if part.dtype.kind == "U" else "integers" for part in (ids, tested)]
        raise UsageError(f"{where}: {argument} are {kinds[0]}, test_clients are {kinds[1]}; give both as the same type")
    numbers = numbered(tested, known=ids)
    check_known(numbers, ids, tested, where)
    return numbered(ids), numbers, names
