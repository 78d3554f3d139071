"""Tables as data sets: the columns of a table, or the arrays of an .npz file, as features, labels and ids of clients."""

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.errors import UsageError
from fedcohort.federation.array_checks import brief, check_clients, check_id_lengths, check_labels, numbered
from fedcohort.federation.datasets import Dataset, from_arrays, held_out
from fedcohort.federation.folder_checks import described

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TEST_SHARE", "Columns", "from_archive", "from_table", "labels_of", "with_held_out_test"]

TEST_SHARE = 0.2
"""Share of the samples of each client, or without clients of each class, that becomes the test set if there is none."""
CLIENT, LABEL, SPLIT = "client", "label", "split"
"""Names of the columns with the client, the label and the split, unless others are chosen."""


class Columns(NamedTuple):
    """The columns of a table.

    Attributes:
        label: column with the label; None for ``label``.
        client: column with the id of the client; None for ``client``, if there is such a column.
        features: columns with features; None for all others.
    """

    label: str | None = None
    client: str | None = None
    features: tuple[str, ...] | None = None

    def key(self) -> list[Any]:
        """Plain values that tell choices of columns apart."""
        return [self.label, self.client, None if self.features is None else list(self.features)]


def from_table(frame: "pd.DataFrame", columns: Columns, where: str, name: str, *, standardise: bool) -> Dataset:
    """The data set in a table with one row for each sample.

    Args:
        frame: the table.
        columns: which columns are the label, the client and the features.
        where: where the table comes from, for messages.
        name: name of the data set.
        standardise: whether features are standardized.

    A column ``split`` with the texts ``train`` and ``test`` divides the samples. Without it, :data:`TEST_SHARE` of the samples of each
    client, or of each class, are the test set.

    Raises:
        UsageError: a column is missing, or its values cannot be used.
    """
    frame = frame.rename(columns=str)
    label, client = columns.label or LABEL, columns.client or (CLIENT if CLIENT in frame else None)
    for setting, column in (("label_column", label), ("client_column", client)):
        if column is not None and column not in frame:
            raise UsageError(
                f"{where}: no column {column!r}; choose one with data.{setting} (columns: {_names(frame)})"
            )
    labels, classes = labels_of(frame[label], where)
    ids = None if client is None else _ids(frame[client], where)
    in_test = _split(frame, where)
    features = _features(frame, columns, {label, client, SPLIT if in_test is not None else None}, where)
    if in_test is None:
        return with_held_out_test(features, labels, ids, where, name, classes=classes, standardise=standardise)
    return from_arrays(
        (features[~in_test], labels[~in_test]),
        (features[in_test], labels[in_test]),
        classes=classes,
        name=name,
        clients=None if ids is None else ids[~in_test],
        test_clients=None if ids is None else ids[in_test],
        standardise=standardise,
    )


def with_held_out_test(
    features: Any, labels: Any, clients: Any, where: str, name: str, *, classes: Any = None, standardise: bool = False
) -> Dataset:
    """A data set from samples without a test set: always the same :data:`TEST_SHARE` of each client, or of each class, is used.

    Raises:
        UsageError: an array cannot be used; see :func:`fedcohort.from_arrays`.
    """
    features = features.detach().cpu().numpy() if hasattr(features, "detach") else np.asarray(features)
    targets = check_labels(labels, where)
    ids = None if clients is None else check_clients(clients, where)
    if len(features) != len(targets) or (ids is not None and len(ids) != len(targets)):
        sizes = f"{len(features)} samples and {len(targets)} labels" + (
            "" if ids is None else f" and {len(ids)} clients"
        )
        raise UsageError(f"{where}: has {sizes}; give one of each for every sample")
    in_test = held_out(targets if ids is None else numbered(ids), TEST_SHARE)
    if not in_test.any():  # very few samples: one of them
        in_test[0] = len(in_test) > 1
    return from_arrays(
        (features[~in_test], targets[~in_test]),
        (features[in_test], targets[in_test]),
        classes=classes if classes is not None else _class_names(targets),
        name=name,
        clients=None if ids is None else ids[~in_test],
        test_clients=None if ids is None else ids[in_test],
        standardise=standardise,
    )


def _class_names(labels: NDArray[np.int64]) -> list[str] | None:
    """Names for all classes, because a part of the samples may not have the highest label; None if labels do not count from 0."""
    return None if labels.min() else [str(number) for number in range(min(int(labels.max()), len(labels)) + 1)]


def from_archive(path: Path, where: str, *, standardise: bool) -> Dataset:
    """The data set in an .npz file.

    It has the arrays ``features`` and ``labels``, and optionally ``clients``; or, with a test set, ``train_features``,
    ``train_labels``, ``test_features`` and ``test_labels``, and optionally ``clients`` and ``test_clients``. An array ``classes``
    names the classes.

    Raises:
        UsageError: the file cannot be read, or arrays are missing.
    """
    try:
        with np.load(path) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise UsageError(f"{where}: cannot be read ({described(error)}); write it with numpy.savez") from None
    return from_named_arrays(arrays, where, path.name, standardise=standardise)


WHOLE = ("features", "labels")
DIVIDED = ("train_features", "train_labels", "test_features", "test_labels")
OPTIONAL = ("clients", "test_clients", "classes")


def from_named_arrays(arrays: dict[str, Any], where: str, name: str, *, standardise: bool) -> Dataset:
    """The data set in arrays with the names of :func:`from_archive`.

    Raises:
        UsageError: arrays are missing, or there are others.
    """
    for required in (WHOLE, DIVIDED):
        allowed = {*required, *OPTIONAL} - ({"test_clients"} if required == WHOLE else set())
        if set(required) <= set(arrays) <= allowed:
            break
    else:
        given, optional = brief(", ".join(map(str, arrays)), 80), ", ".join(OPTIONAL)
        raise UsageError(
            f"{where}: has {given or 'no arrays'}; needs {' and '.join(WHOLE)}, or {', '.join(DIVIDED)}; optional: {optional}"
        )
    classes = arrays.get("classes")
    names = None if classes is None else [str(one) for one in classes]
    if required == WHOLE:
        samples = (arrays["features"], arrays["labels"], arrays.get("clients"))
        return with_held_out_test(*samples, where, name, classes=names, standardise=standardise)
    return from_arrays(
        (arrays["train_features"], arrays["train_labels"]),
        (arrays["test_features"], arrays["test_labels"]),
        classes=names,
        name=name,
        clients=arrays.get("clients"),
        test_clients=arrays.get("test_clients"),
        standardise=standardise,
    )


# --- columns ------------------------------------------------------------------------------------------------------------------


def labels_of(column: "pd.Series[Any]", where: str) -> tuple[NDArray[np.int64], list[str] | None]:
    """The labels in a column, and the names of the classes.

    Integers are labels as they are. Different texts are classes, in alphabetical order.

    Returns:
        Labels int64 [N]; the class names, or None for labels that are numbers.

    Raises:
        UsageError: values are missing, or are neither integers nor texts.
    """
    _check_complete(column, where, "give every sample a label, or leave it out")
    values = column.to_numpy()
    if values.dtype.kind in "iub":
        return values.astype(np.int64), None
    texts = _texts(values)
    if texts is None:
        raise UsageError(
            f"{where}: column {str(column.name)!r}: labels must be integers 0..K-1 or texts, not {column.dtype}"
        )
    classes, labels = np.unique(texts, return_inverse=True)
    return labels.astype(np.int64), [str(name) for name in classes]


def _ids(column: "pd.Series[Any]", where: str) -> NDArray[Any]:
    """The ids of clients in a column."""
    _check_complete(column, where, "give every sample a client, or leave it out")
    values = column.to_numpy()
    if values.dtype.kind in "iu":
        return values
    check_id_lengths(values, f"{where}: column {str(column.name)!r}")
    texts = _texts(values)
    if texts is None:
        raise UsageError(
            f"{where}: column {str(column.name)!r}: ids of clients must be integers or texts, not {column.dtype}"
        )
    return texts


def _texts(values: NDArray[Any]) -> NDArray[Any] | None:
    """Values as an array of texts; None if they are not texts."""
    if values.dtype.kind == "U" or all(isinstance(value, str) for value in values):
        return values.astype(np.str_)
    return None


def _split(frame: "pd.DataFrame", where: str) -> NDArray[np.bool_] | None:
    """True for the test samples; None if the table does not divide its samples."""
    values = frame[SPLIT].to_numpy() if SPLIT in frame else np.zeros(0)
    texts = _texts(values) if len(values) else None
    if texts is None:
        return None
    if other := sorted(set(texts.tolist()) - {"train", "test"}):
        raise UsageError(f"{where}: column {SPLIT!r} has {brief(other[0])!r}; must be 'train' or 'test' in every row")
    in_test: NDArray[np.bool_] = texts == "test"
    if in_test.all() or not in_test.any():
        raise UsageError(
            f"{where}: column {SPLIT!r} has only {str(texts[0])!r}; use both 'train' and 'test', or no such column"
        )
    return in_test


def _features(frame: "pd.DataFrame", columns: Columns, others: set[str | None], where: str) -> NDArray[Any]:
    """The features [N, d]: chosen columns of numbers, or one column of lists of numbers."""
    chosen = (
        [column for column in frame if column not in others] if columns.features is None else list(columns.features)
    )
    if missing := [column for column in chosen if column not in frame]:
        raise UsageError(
            f"{where}: no column {missing[0]!r}; choose others with data.feature_columns (columns: {_names(frame)})"
        )
    if not chosen:
        raise UsageError(f"{where}: has no columns of features (columns: {_names(frame)})")
    if not len(frame):
        raise UsageError(f"{where}: has no rows; at least two are needed")
    for column in chosen:
        _check_complete(frame[column], where, "fill in a value, or leave the rows out")
    first = frame[chosen[0]].iloc[0]
    if len(chosen) == 1 and isinstance(first, list | tuple | np.ndarray):
        return _stacked(frame[chosen[0]], where)
    return np.stack([_numbers(frame[column], where) for column in chosen], axis=1)


def _stacked(column: "pd.Series[Any]", where: str) -> NDArray[Any]:
    """A column of lists of the same length as an array [N, …]."""
    try:
        return np.stack([np.asarray(value) for value in column])
    except ValueError:
        raise UsageError(
            f"{where}: column {str(column.name)!r}: the lists must have the same length in every row"
        ) from None


def _numbers(column: "pd.Series[Any]", where: str) -> NDArray[Any]:
    """A column of numbers; truth values become 0 and 1."""
    kind = getattr(column.dtype, "kind", "O")
    if kind not in "biuf":
        raise UsageError(
            f"{where}: column {str(column.name)!r} has no numbers but {column.dtype}; encode it as numbers, or leave it out with "
            "data.feature_columns = [the columns of features]"
        )
    dtype = {"b": np.int64, "i": np.int64, "u": np.int64}.get(
        kind, np.float32 if column.dtype == "float32" else np.float64
    )
    return column.to_numpy(dtype=dtype)


def _check_complete(column: "pd.Series[Any]", where: str, remedy: str) -> None:
    if missing := int(column.isna().sum()):
        raise UsageError(
            f"{where}: column {str(column.name)!r}: {missing} of {len(column)} values are missing; {remedy}"
        )


def _names(frame: "pd.DataFrame") -> str:
    return brief(", ".join(map(str, frame.columns)), 110)
