"""Tables as data sets: their columns as features, labels and ids of clients."""

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.errors import UsageError
from fedcohort.core.words.formatted_values import first_in_words
from fedcohort.federation.data.array_checks import (
    as_array,
    check_clients,
    check_finite,
    check_labels,
    mention_missing_classes,
    numbered,
)
from fedcohort.federation.data.datasets import Dataset, from_arrays, held_out
from fedcohort.federation.data.numeric_labels import bin_edges, binned, check_numbers
from fedcohort.federation.data.table_columns import (
    CLIENT,
    LABEL,
    SPLIT,
    Columns,
    check_choice,
    check_column_names,
    check_separator,
    features_of,
    ids_of,
    labels_of,
    meant_column,
    names_of_columns,
    numbers_of,
    split_of,
)  # fmt: skip

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TEST_SHARE", "from_table", "with_held_out_test"]

log = logging.getLogger("fedcohort")

TEST_SHARE = 0.2
"""Share of the samples of each client, or without clients of each class, that becomes the test set if there is none."""

SHOWN = 3
"""Largest number of clients that a line names."""

FEW = 0.05
"""Share of the samples below which a line mentions that few of them are test samples."""


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
    frame = _with_columns_of_index(frame.rename(columns=str), columns)
    check_column_names(frame.columns, where)
    label, client = columns.label or LABEL, columns.client or (CLIENT if CLIENT in frame else None)
    check_choice(columns, label, client, where)
    for setting, column in (("label_column", label), ("client_column", client)):
        if column is not None and column not in frame:
            check_separator(list(frame.columns), where)
            raise UsageError(
                f"{where}: no column {column!r}; {meant_column(column, frame)}choose one with data.{setting} "
                f"(columns: {names_of_columns(frame)})"
            )
    if len(frame) < 2:
        raise UsageError(f"{where}: has {'one row' if len(frame) else 'no rows'}; at least two are needed")
    labels, classes = (numbers_of(frame[label], where), None) if columns.numeric else labels_of(frame[label], where)
    ids = None if client is None else ids_of(frame[client], where)
    in_test = split_of(frame, where)
    features = features_of(frame, columns, label, client, where, divided=in_test is not None)
    if in_test is None:
        return with_held_out_test(
            features, labels, ids, where, name, classes=classes, standardise=standardise, numeric=columns.numeric
        )
    return from_arrays(
        (features[~in_test], labels[~in_test]),
        (features[in_test], labels[in_test]),
        classes=classes,
        name=name,
        clients=None if ids is None else ids[~in_test],
        test_clients=None if ids is None else _clients_of_test(ids, in_test, where),
        standardise=standardise,
        numeric=columns.numeric,
    )


def _clients_of_test(ids: NDArray[Any], in_test: NDArray[np.bool_], where: str) -> NDArray[Any] | None:
    """The clients of the test samples; None, with a message, if none of them trains, as if one hospital is left out."""
    if not in_test.any() or np.isin(ids[in_test], ids[~in_test]).any():
        return ids[in_test]
    names = first_in_words([repr(name) for name in np.unique(ids[in_test]).tolist()], SHOWN, "more client")
    log.info(
        "%s: all test samples are of clients that do not train: %s; the accuracy of each client that trains is measured on its "
        "held-out or training samples", where, names,
    )  # fmt: skip
    return None


def _with_columns_of_index(frame: "pd.DataFrame", columns: Columns) -> "pd.DataFrame":
    """The table with the parts of its index that are used as columns, such as the client after ``set_index("client")``."""
    used = {columns.label or LABEL, columns.client or CLIENT, SPLIT, *(columns.features or ())}
    return frame.reset_index([name for name in frame.index.names if name in used - set(frame.columns)])


def with_held_out_test(
    features: Any,
    labels: Any,
    clients: Any,
    where: str,
    name: str,
    *,
    classes: Any = None,
    standardise: bool = False,
    numeric: bool = False,
) -> Dataset:
    """A data set from samples without a test set: always the same :data:`TEST_SHARE` of each client, or of each class, is used.

    Without clients, numeric labels are divided by quantile bins in place of classes.

    Raises:
        UsageError: an array cannot be used; see :func:`fedcohort.from_arrays`.
    """
    features = as_array(features, f"{where} features")
    if not features.ndim:
        raise UsageError(
            f"{where} features: are no array but {features.dtype}; must be an array with one entry for each sample"
        )
    check_finite(features, f"{where} features")  # before some are held out, so that the sample has its number
    targets: NDArray[Any]
    if numeric:
        targets = check_numbers(labels, where)
        groups = binned(targets, bin_edges(targets))
    else:
        targets = groups = check_labels(labels, where)
        if classes is None and targets.ndim == 1 and len(targets):
            mention_missing_classes(np.unique(targets), where)
    ids = None if clients is None else check_clients(clients, where)
    if len(features) != len(targets) or (ids is not None and len(ids) != len(targets)):
        sizes = f"{len(features)} samples and {len(targets)} labels" + (
            "" if ids is None else f" and {len(ids)} clients"
        )
        raise UsageError(f"{where}: has {sizes}; give one of each for every sample")
    in_test = held_out(groups if ids is None else numbered(ids), TEST_SHARE)
    if not in_test.any() and len(in_test) > 1:  # very few samples: one of them
        in_test[_only_test_sample(ids, where)] = True
    if ids is not None and in_test.sum() < FEW * len(in_test):
        log.warning(
            "%s: only %d of %d samples are test samples, because clients with fewer than 3 samples have none; choose the test samples "
            "in a column 'split', or return them in a pair of their own", where, in_test.sum(), len(in_test),
        )  # fmt: skip
    return from_arrays(
        (features[~in_test], targets[~in_test]),
        (features[in_test], targets[in_test]),
        classes=None if numeric else classes if classes is not None else _class_names(groups),
        name=name,
        clients=None if ids is None else ids[~in_test],
        test_clients=None if ids is None else ids[in_test],
        standardise=standardise,
        numeric=numeric,
    )


def _only_test_sample(ids: NDArray[Any] | None, where: str) -> int:
    """The position of the first sample of a client that has two or more; 0 if there are no clients.

    Raises:
        UsageError: every client has one sample.
    """
    if ids is None:
        return 0
    _, clients, sizes = np.unique(ids, return_inverse=True, return_counts=True)
    if sizes.max() == 1:
        raise UsageError(
            f"{where}: every client has only one sample, so no client can train on one and be tested on another; choose another "
            "column with data.client_column, or leave out the clients"
        )
    return int(np.flatnonzero(sizes[clients] > 1)[0])


def _class_names(labels: NDArray[np.int64]) -> list[str] | None:
    """Names for all classes, because a part of the samples may not have the highest label; None if labels do not count from 0, or are
    too high."""
    last = int(labels.max())
    return None if labels.min() or last > len(labels) else [str(number) for number in range(last + 1)]
