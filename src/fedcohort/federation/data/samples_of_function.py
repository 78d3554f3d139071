"""What a user's function returns, as a data set: arrays, a train and a test part, a table, named arrays, or a data set."""

from typing import Any

from fedcohort.core.errors import UsageError, shown
from fedcohort.federation.data.datasets import Dataset, from_arrays
from fedcohort.federation.data.named_arrays import from_named_arrays
from fedcohort.federation.data.table_columns import Columns
from fedcohort.federation.data.tables import from_table, with_held_out_test

__all__ = ["dataset_of_result"]

FORMS = (
    "(features, labels), (features, labels, clients), (train, test) with pairs, a DataFrame, a dictionary or a Dataset"
)


def dataset_of_result(result: Any, columns: Columns, where: str, name: str) -> Dataset:
    """The data set that a user's function returned.

    Args:
        result: one of

            * ``(features, labels)`` or ``(features, labels, clients)``: a fifth of each client, or of each class, is the test set;
            * ``((features, labels), (features, labels))``: training and test samples;
            * a pandas DataFrame, read like a table in a file;
            * a dictionary with the names of the arguments of :func:`fedcohort.from_arrays` (``train``, ``test``, ``clients``, …), or
              of the arrays of an .npz file (``features``, ``labels``, ``clients``, …);
            * a :class:`fedcohort.Dataset`.
        columns: the columns of a DataFrame.
        where: the setting that names the function, for messages.
        name: name of the data set.

    Raises:
        UsageError: the result has another form, or cannot be used.
    """
    if isinstance(result, Dataset):
        if columns.numeric and result.train_numbers is None:
            raise UsageError(f"{where}: data.numeric = true: the data set has classes; make it with numeric=True")
        return result
    if isinstance(result, dict):
        return _of_dictionary(dict(result), where, name, columns.numeric)
    if hasattr(result, "columns") and hasattr(result, "iloc"):
        return from_table(result, columns, where, name, standardise=False)
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        size = f" of {len(result)}" if isinstance(result, tuple | list) else ""
        raise UsageError(f"{where}: returned {type(result).__name__}{size}; should return {FORMS}")
    if len(result) == 2 and all(isinstance(part, tuple) and len(part) == 2 for part in result):
        return from_arrays(*result, name=name, numeric=columns.numeric)
    features, labels, *clients = result
    ids = clients[0] if clients else None
    return with_held_out_test(features, labels, ids, where, name, numeric=columns.numeric)


def _of_dictionary(result: dict[str, Any], where: str, name: str, numeric: bool) -> Dataset:
    """The data set in the arguments of ``from_arrays``, or in named arrays."""
    standardise = result.pop("standardise", False)
    if not isinstance(standardise, bool):
        raise UsageError(f"{where}: returned standardise = {shown(standardise)}; should be True or False")
    numeric = result.pop("numeric", numeric)
    if not isinstance(numeric, bool):
        raise UsageError(f"{where}: returned numeric = {shown(numeric)}; should be True or False")
    if not {"train", "test"} <= set(result):
        return from_named_arrays(result, where, name, standardise=standardise, numeric=numeric)
    arguments = {"train", "test", "classes", "clients", "test_clients", "writers"}
    if other := sorted(set(map(str, result)) - arguments):
        known = sorted(arguments | {"numeric", "standardise"})
        raise UsageError(f"{where}: returned {shown(other[0])}; known are {', '.join(known)}")
    return from_arrays(**result, name=name, standardise=standardise, numeric=numeric)
