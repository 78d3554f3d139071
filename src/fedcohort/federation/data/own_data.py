"""Load data that users named: a function in a file of their own, or a table in a CSV, Parquet or .npz file.

A table has one row for each sample: a column with the label, columns with features, and optionally a column ``client`` with the id of
the sample's client and a column ``split`` with ``train`` or ``test``. It is read once and then mapped from the cache of data sets, by
the content of the file.
"""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.files.paths import is_file, kind_of
from fedcohort.core.files.user_cache import absolute
from fedcohort.core.plugins import from_file, is_file_name
from fedcohort.core.user_code.own_code import about_missing_file, raised_in, with_place
from fedcohort.core.user_code.unseeded_draws import warning_of_draws
from fedcohort.federation.data.array_checks import brief
from fedcohort.federation.data.cache_entries import read_entry, save
from fedcohort.federation.data.dataset_cache import entry_of_content, load_or_decode
from fedcohort.federation.data.datasets import Dataset, standardised
from fedcohort.federation.data.folder_checks import described
from fedcohort.federation.data.named_arrays import from_archive
from fedcohort.federation.data.own_data_names import content_of
from fedcohort.federation.data.samples_of_function import dataset_of_result
from fedcohort.federation.data.table_columns import CLIENT, LABEL, SPLIT, Columns
from fedcohort.federation.data.table_files import column_names, mention_equal_numbers, read_table
from fedcohort.federation.data.tables import from_table

__all__ = ["Stored", "load_own", "shared", "stored"]

LARGEST = 1e150
"""Value from which the squares of a column's values may be too large for a sum."""


def load_own(name: str, columns: Columns, standardise: bool | None) -> Dataset:
    """Load a data set from a user's own function or table.

    Args:
        name: ``path/to/file.py:function``, or the path of a table.
        columns: the columns of a table, or of a table that the function returns.
        standardise: whether features are standardized; by default as the function says, and otherwise not.

    Raises:
        UsageError: there is no such file or function, the function raised an error, or what it returned cannot be used.
    """
    if is_file_name(name):
        dataset = _called(name, columns)
        return dataset if standardise is None else standardised(dataset, standardise)
    path = absolute(name)
    where = f"data.name = '{brief(name)}'"
    if not is_file(path):
        problem = f"is {kind}" if (kind := kind_of(path)) else "there is no such file"
        raise UsageError(f"{where}: {problem}; give the path of a .csv, .parquet or .npz file")
    content = content_of(path)
    entry = entry_of_content(path.stem, [content, path.suffix.lower(), *columns.key()])

    def decode(_: Path, out: Path) -> None:
        read = _read(path, columns, where)
        if content_of(path) != content:  # the entry would have the name of other data
            raise UsageError(f"{where}: changed while it was read; try again when it is complete")
        save(read, out)

    made = load_or_decode(entry, path.name, decode)
    if standardise:
        _check_largest(made, path, columns, where)
    return standardised(made, bool(standardise))


def _check_largest(dataset: Dataset, path: Path, columns: Columns, where: str) -> None:
    """Refuse a table with values that are too large to be standardized, by the name of the column.

    Raises:
        UsageError: there is such a column. If its name is not known, :func:`shift_and_scale` refuses it by its number.
    """
    features = dataset.train_features
    if features.dtype != np.float64 or max(features.max(), -features.min()) < LARGEST or path.suffix.lower() == ".npz":
        return
    others = {columns.label or LABEL, columns.client or CLIENT, SPLIT}
    names = list(columns.features or (name for name in column_names(path) if name not in others))
    if len(names) == features.shape[1]:
        largest = np.abs(features).max(axis=0)
        raise UsageError(
            f"{where}: column {brief(names[largest.argmax()])!r} has values up to {largest.max():.3g}, too large to be standardized; "
            "divide it by a number, or leave out data.standardise"
        )


def _read(path: Path, columns: Columns, where: str) -> Dataset:
    """The data set in a table, marked as standardized, as all entries of the cache are."""
    if path.suffix.lower() == ".npz":
        try:
            return from_archive(path, where, numeric=columns.numeric)
        except UsageError:
            raise
        except MemoryError:
            raise UsageError(f"{where}: is too large for the memory of this machine") from None
        except Exception as error:
            raise UsageError(f"{where}: cannot be read ({described(error)})") from None
    frame = read_table(path, where)
    mention_equal_numbers(
        path, frame, [columns.client or CLIENT, *([] if columns.numeric else [columns.label or LABEL])], where
    )
    return from_table(frame, columns, where, path.name, standardise=True)


def _called(name: str, columns: Columns) -> Dataset:
    """What a user's function returned, as a data set."""
    where = f"data.name = {shown(name)}"
    if not Path(name.rpartition(":")[0]).is_absolute():  # only a record has a relative path here
        raise UsageError(
            f"{where}: is a file of a run directory, which is not run when the record is read; to run it, load the experiment of the "
            "run directory with trust=True"
        )
    function = from_file(name, "data.name", "function")
    if not callable(function):
        raise UsageError(f"{where}: is an object of type {type(function).__name__}; name a function that returns data")
    try:
        with warning_of_draws("data.name", function):
            result = function()
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        missing = about_missing_file(error, Path(name.rpartition(":")[0]))
        raise UsageError(f"{where}: {missing or f'raised {with_place(error)}'}") from error
    try:
        return dataset_of_result(result, columns, where, Path(name).name)
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:  # of an object that the function returned
        if not raised_in(error):
            raise
        raise UsageError(f"{where}: returned an object that raised {with_place(error)}") from error


# --- the same data in several processes ---------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """A data set in the cache: its entry, its name, and whether it is standardized."""

    entry: Path
    name: str
    standardise: bool


def stored(dataset: Dataset) -> Stored:
    """Write a data set into the cache, by its content, so that other processes can map it.

    Raises:
        UsageError: the cache cannot be written.
    """
    entry = entry_of_content(dataset.name, [standardised(dataset, True).fingerprint])
    load_or_decode(entry, dataset.name, lambda _, out: save(dataset, out))
    return Stored(entry, dataset.name, dataset.standardise)


def shared(place: Stored) -> Dataset | None:
    """The data set that :func:`stored` wrote; None if it is no longer there."""
    with suppress(Exception):  # a damaged entry: the data are loaded again
        dataset = read_entry(place.entry, place.name)
        return None if dataset is None else standardised(dataset, place.standardise)
    return None
