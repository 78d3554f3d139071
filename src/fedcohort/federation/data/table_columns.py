"""The columns of a table: which are the label, the client and the features, and their values as arrays."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.array_checks import brief, check_id_lengths, counts_from_one
from fedcohort.federation.data.client_ids import mention_alike
from fedcohort.federation.data.column_words import columns_of, without_numbers
from fedcohort.federation.data.label_hints import for_classes

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CLIENT", "LABEL", "SPLIT", "Columns", "check_choice", "check_column_names", "check_separator", "features_of", "ids_of",
    "labels_of", "meant_column", "names_of_columns", "numbers_of", "split_of",
]  # fmt: skip

log = logging.getLogger("fedcohort")

CLIENT, LABEL, SPLIT = "client", "label", "split"
"""Names of the columns with the client, the label and the split, unless others are chosen."""
FILL = "fill in a value, or leave the rows out, in the table or in a function (data.name = 'my.py:load')"
MISSING = "in a CSV file, texts such as NA and None are missing values, too"
MANY = 20
"""Number of rows from which different integers in all of them are reported."""


class Columns(NamedTuple):
    """The columns of a table.

    Attributes:
        label: column with the label; None for ``label``.
        client: column with the id of the client; None for ``client``, if there is such a column.
        features: columns with features; None for all others.
        numeric: whether labels are numbers, for regression, and not classes.
    """

    label: str | None = None
    client: str | None = None
    features: tuple[str, ...] | None = None
    numeric: bool = False

    def key(self) -> list[Any]:
        """Plain values that tell choices of columns apart."""
        chosen = [self.label, self.client, None if self.features is None else list(self.features)]
        return [*chosen, "numeric"] if self.numeric else chosen


def check_column_names(names: "Iterable[Any]", where: str) -> None:
    """Refuse a table in which two columns have the same name.

    Raises:
        UsageError: there are such columns.
    """
    numbers = Counter(names)
    if twice := [name for name, number in numbers.items() if number > 1]:
        raise UsageError(
            f"{where}: the column {brief(twice[0])!r} appears {numbers[twice[0]]} times; give every column a name of its own"
        )


def check_choice(columns: Columns, label: str, client: str | None, where: str) -> None:
    """Refuse a column that is chosen twice.

    Raises:
        UsageError: it is.
    """
    if label == client:
        raise UsageError(
            f"{where}: the column {brief(label)!r} is both data.label_column and data.client_column; choose another one of them"
        )
    features = Counter(columns.features or ())
    if twice := [name for name, number in features.items() if number > 1]:
        raise UsageError(f"data.feature_columns: {brief(twice[0])!r} appears {features[twice[0]]} times; name it once")
    if label in features:
        raise UsageError(
            f"data.feature_columns: {brief(label)!r} is the column of labels; leave it out, or choose another data.label_column"
        )


def labels_of(column: "pd.Series[Any]", where: str) -> tuple[NDArray[np.int64], list[str] | None]:
    """The labels in a column, and the names of the classes.

    Integers are labels as they are. Different texts are classes, in the order of their Unicode characters, and so are truth values.

    Returns:
        Labels int64 [N]; the class names, or None for labels that are numbers.

    Raises:
        UsageError: values are missing, or are neither integers nor texts.
    """
    _check_complete([column], where, f"give every sample a label, or leave it out; {MISSING}")
    values = column.to_numpy()
    if values.dtype.kind == "b":  # a CSV file has them as true and false, in any letters
        return values.astype(np.int64), ["false", "true"]
    if values.dtype.kind in "iu":
        _check_signed([column], where, "labels must be integers 0..K-1 or texts")
        labels = values.astype(np.int64)
        if (high := counts_from_one(labels)) > 1:
            name = str(column.name)
            raise UsageError(
                f"{where}: column {name!r}: labels are 1..{high}; must be 0..{high - 1}: subtract 1 in the table, or in a function "
                f"(data.name = 'my.py:load') that reads it with pandas: table[{name!r}] -= 1"
            )
        return labels, None
    texts = _texts(values)
    if texts is None:
        raise UsageError(
            f"{where}: column {str(column.name)!r}: labels must be integers 0..K-1 or texts, not {column.dtype}; "
            f"{for_classes(values)}for numbers to be predicted (regression), set data.numeric = true and training.loss = 'mse'"
        )
    different, labels = np.unique(texts, return_inverse=True)
    classes = [str(name) for name in different]
    if len(classes) == 1:
        log.warning("%s: all labels are %r, so there is nothing to predict", where, classes[0])
    mention_alike(classes, where, of_classes=True)
    return labels.astype(np.int64), classes


def check_separator(names: Sequence[str], where: str, *, in_function: bool = True) -> None:
    """Refuse a table with a single column whose name holds another separator: its columns must be separated by commas.

    Args:
        names: the columns that were found.
        where: where the table comes from, for messages.
        in_function: whether a function of the user can read the table instead.
    """
    header = names[0] if len(names) == 1 else ""
    if separator := next((one for one in (";", "\t", "|") if one in header), None):
        function = f", or read it in a function (data.name = 'my.py:load') with pandas.read_csv(…, sep={separator!r})"
        raise UsageError(
            f"{where}: columns are separated by {separator!r}; save the table with commas{function * in_function}"
        )


def numbers_of(column: "pd.Series[Any]", where: str) -> NDArray[np.float64]:
    """The numeric labels in a column."""
    column = _in_floats(column)
    _check_complete([column], where, "give every sample a label, or leave it out")
    if getattr(column.dtype, "kind", "O") not in "biuf":
        _check_commas([column], where)
        _check_for_single_texts([column], where, "leave the row out")
        raise UsageError(
            f"{where}: column {str(column.name)!r}: data.numeric = true needs labels that are numbers, not {column.dtype}; choose "
            "another data.label_column, or leave out data.numeric"
        )
    return column.to_numpy(dtype=np.float64)


def ids_of(column: "pd.Series[Any]", where: str) -> NDArray[Any]:
    """The ids of clients in a column."""
    _check_complete([column], where, f"give every sample a client, or leave it out; {MISSING}")
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


def _texts(values: NDArray[np.generic]) -> NDArray[np.generic] | None:
    """Values as an array of texts; None if they are not texts."""
    if values.dtype.kind == "U" or all(isinstance(value, str) for value in values):
        return values.astype(np.str_)
    return None


def split_of(frame: "pd.DataFrame", where: str) -> NDArray[np.bool_] | None:
    """True for the test samples; None if the table does not divide its samples."""
    values = frame[SPLIT].to_numpy() if SPLIT in frame else np.zeros(0)
    if any(isinstance(value, str) for value in values.tolist()):
        _check_complete([frame[SPLIT]], where, "write 'train' or 'test' in every row")
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


def features_of(
    frame: "pd.DataFrame", columns: Columns, label: str, client: str | None, where: str, *, divided: bool
) -> NDArray[Any]:
    """The features [N, d]: chosen columns of numbers, or one column of lists of numbers; ``divided`` by a column ``split`` or not."""
    others = {label, client, SPLIT if divided else None}
    chosen = (
        [column for column in frame if column not in others] if columns.features is None else list(columns.features)
    )
    if missing := [column for column in chosen if column not in frame]:
        raise UsageError(
            f"{where}: no column {missing[0]!r}; {meant_column(str(missing[0]), frame)}choose others with data.feature_columns "
            f"(columns: {names_of_columns(frame)})"
        )
    if not chosen:
        raise UsageError(f"{where}: has no columns of features (columns: {names_of_columns(frame)})")
    if not divided and SPLIT in frame and SPLIT not in (label, client, *(columns.features or ())):
        _mention_split(where, used=SPLIT in chosen)
    first = frame[chosen[0]].iloc[0]
    if len(chosen) == 1 and isinstance(first, list | tuple | np.ndarray):
        return _stacked(frame[chosen[0]], where)
    features = [_in_floats(frame[column]) for column in chosen]
    _check_numbers(features, where, with_clients=client is not None)
    _check_complete(features, where, FILL)
    _check_finite(features, where)
    _check_signed(
        features, where, "integers must fit into 64 bits with a sign; write decimal numbers, or leave the column out"
    )
    _mention_ids(frame[chosen], where)
    return np.stack([_numbers(column) for column in features], axis=1)


def _mention_split(where: str, *, used: bool) -> None:
    """Report a column of numbers with the name of the column that chooses the test samples."""
    log.warning(
        "%s: column %r has no texts, so it does not choose the test samples and is %s; to choose them, write 'train' or 'test' in "
        "every row", where, SPLIT, "a feature" if used else "not used",
    )  # fmt: skip


def _mention_ids(features: "pd.DataFrame", where: str) -> None:
    """Report columns of integers with another value in every row: they may be numbers of rows, which are no features."""
    ids = [column for column in features if features[column].dtype.kind in "iu" and features[column].is_unique]
    if ids and len(features) >= MANY:
        log.warning(
            "%s: column %r has another integer in every row and is used as a feature; if it numbers the rows, leave it out with "
            "data.feature_columns", where, str(ids[0]),
        )  # fmt: skip


def _stacked(column: "pd.Series[Any]", where: str) -> NDArray[np.generic]:
    """A column of lists of the same length as an array [N, …]."""
    try:
        return np.stack([np.asarray(value) for value in column])
    except ValueError:
        raise UsageError(
            f"{where}: column {str(column.name)!r}: the lists must have the same length in every row"
        ) from None


def _check_numbers(columns: "Sequence[pd.Series[Any]]", where: str, *, with_clients: bool) -> None:
    """Refuse columns of features that are not numbers, all of them in one message, which says how to name the column of clients."""
    if other := [column for column in columns if getattr(column.dtype, "kind", "O") not in "biuf"]:
        _check_commas(other, where)
        _check_for_single_texts(other, where, "leave the column out with data.feature_columns")
        raise UsageError(f"{where}: {without_numbers(other, with_clients=with_clients)}")


def _check_commas(columns: "Sequence[pd.Series[Any]]", where: str) -> None:
    """Refuse a column of numbers with decimal commas, which are texts, and say how to read them."""
    for column in columns:
        texts = column.dropna().astype(str).str
        if texts.contains(",").any() and texts.fullmatch(r"\s*[-+]?\d*(,\d+)?\s*").all():
            raise UsageError(
                f"{where}: {columns_of([column])} has decimal commas; save the table with decimal points, or read it in a function "
                "(data.name = 'my.py:load') with pandas.read_csv(…, decimal=',')"
            )


def _check_for_single_texts(columns: "Sequence[pd.Series[Any]]", where: str, otherwise: str) -> None:
    """Refuse a column in which few values are no numbers, with the first of them: the others were meant as numbers."""
    import pandas as pd

    for column in columns:
        wrong = np.flatnonzero(pd.to_numeric(column, errors="coerce").isna() & column.notna())
        if 0 < len(wrong) <= len(column) // 10:
            value = brief(str(column.iloc[wrong[0]]), 40)
            raise UsageError(
                f"{where}: {columns_of([column])} has {value!r} in row {wrong[0] + 1}, and numbers in most others; correct "
                f"the value, or {otherwise}"
            )


def _in_floats(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """A column of decimal numbers, or of truth values of which some are missing, as floats; other columns as they are."""
    import pandas as pd

    if column.dtype == object and pd.api.types.infer_dtype(column, skipna=True) in ("boolean", "decimal"):
        return column.astype(np.float64)
    return column


def _numbers(column: "pd.Series[Any]") -> NDArray[np.generic]:
    """A column of numbers; truth values become 0 and 1."""
    kind = column.dtype.kind
    dtype = {"b": np.int64, "i": np.int64, "u": np.int64}.get(
        kind, np.float32 if column.dtype == "float32" else np.float64
    )
    return column.to_numpy(dtype=dtype)


def _check_complete(columns: "Sequence[pd.Series[Any]]", where: str, remedy: str) -> None:
    """Refuse columns with missing values, all of them in one message."""
    if holes := [column for column in columns if column.isna().any()]:
        missing = " and ".join(str(int(column.isna().sum())) for column in holes[:2]) + (" and …" if holes[2:] else "")
        raise UsageError(f"{where}: {columns_of(holes)}: {missing} of {len(holes[0])} values are missing; {remedy}")


def _check_finite(columns: "Sequence[pd.Series[Any]]", where: str) -> None:
    """Refuse a column with infinite numbers, with the first of them."""
    for column in columns:
        if column.dtype.kind == "f" and len(rows := np.flatnonzero(np.isinf(column.to_numpy()))):
            raise UsageError(f"{where}: {columns_of([column])} has {column.iloc[rows[0]]} in row {rows[0] + 1}; {FILL}")


def _check_signed(columns: "Sequence[pd.Series[Any]]", where: str, remedy: str) -> None:
    """Refuse a column with integers that only fit into 64 bits without a sign, with the largest of them."""
    for column in columns:
        if column.dtype.kind == "u" and len(column) and (largest := int(column.max())) > np.iinfo(np.int64).max:
            raise UsageError(f"{where}: {columns_of([column])} has {largest}; {remedy}")


def names_of_columns(frame: "pd.DataFrame") -> str:
    """The names of all columns; those with a space at an end in quotes."""
    return brief(", ".join(name if name == name.strip() else repr(name) for name in map(str, frame.columns)), 110)


def meant_column(column: str, frame: "pd.DataFrame") -> str:
    """A hint with the column that has the name in other letters or with spaces, with a space after it; empty without one."""
    alike = [name for name in map(str, frame.columns) if name.strip().casefold() == column.strip().casefold()]
    return f"did you mean {alike[0]!r}? " if alike else ""
