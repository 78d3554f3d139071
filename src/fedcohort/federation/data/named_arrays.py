"""Data sets in arrays with names, such as those of an .npz file."""

from pathlib import Path
from typing import Any

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.archives import read_archive
from fedcohort.federation.data.array_checks import as_array, brief
from fedcohort.federation.data.datasets import Dataset, from_arrays
from fedcohort.federation.data.tables import with_held_out_test

__all__ = ["from_archive", "from_named_arrays"]

WHOLE = ("features", "labels")
DIVIDED = ("train_features", "train_labels", "test_features", "test_labels")
OPTIONAL = ("clients", "test_clients", "classes")


def from_archive(path: Path, where: str, *, numeric: bool) -> Dataset:
    """The data set in an .npz file; features that are tables are standardized.

    It has the arrays ``features`` and ``labels``, and optionally ``clients``; or, with a test set, ``train_features``,
    ``train_labels``, ``test_features`` and ``test_labels``, and optionally ``clients`` and ``test_clients``. An array ``classes``
    names the classes.

    Raises:
        UsageError: the file cannot be read, or arrays are missing.
    """
    return from_named_arrays(read_archive(path, where), where, path.name, standardise=True, numeric=numeric)


def from_named_arrays(arrays: dict[str, Any], where: str, name: str, *, standardise: bool, numeric: bool) -> Dataset:
    """The data set in arrays with the names of :func:`from_archive`.

    Raises:
        UsageError: arrays are missing, or there are others.
    """
    required = DIVIDED if set(DIVIDED) <= set(arrays) else WHOLE
    allowed = [*required, *(name for name in OPTIONAL if required == DIVIDED or name != "test_clients")]
    if not set(required) <= set(arrays):
        given, optional = brief(", ".join(map(str, arrays)), 80), ", ".join(OPTIONAL)
        raise UsageError(
            f"{where}: has {given or 'no arrays'}; needs {' and '.join(WHOLE)}, or {', '.join(DIVIDED)}; optional: {optional}"
        )
    if other := sorted(set(map(str, arrays)) - set(allowed)):
        raise UsageError(f"{where}: unknown array '{brief(other[0])}'; known here are {', '.join(allowed)}")
    names = None if arrays.get("classes") is None else _class_names_in(arrays["classes"], where)
    if required == WHOLE:
        samples = (arrays["features"], arrays["labels"], arrays.get("clients"))
        return with_held_out_test(*samples, where, name, classes=names, standardise=standardise, numeric=numeric)
    return from_arrays(
        (arrays["train_features"], arrays["train_labels"]),
        (arrays["test_features"], arrays["test_labels"]),
        classes=names,
        name=name,
        clients=arrays.get("clients"),
        test_clients=arrays.get("test_clients"),
        standardise=standardise,
        numeric=numeric,
    )


def _class_names_in(classes: object, where: str) -> list[str]:
    """The names of the classes in an array.

    Raises:
        UsageError: it is not an array of texts or integers [K].
    """
    names = as_array(classes, f"{where}: classes")
    if names.ndim != 1 or not (names.dtype.kind in "iuU" or all(isinstance(name, str) for name in names)):
        raise UsageError(
            f"{where}: classes must be texts [K], one name for each class, not {names.dtype} {list(names.shape)}"
        )
    return [str(name) for name in names]
