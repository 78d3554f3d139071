"""Read tables from CSV and Parquet files."""

import logging
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.folder_checks import MAX_SAMPLES, described
from fedcohort.federation.data.table_columns import check_column_names, check_separator

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["column_names", "mention_equal_numbers", "read_table"]

log = logging.getLogger("fedcohort")

WIDE = 1000
"""Number of columns from which one thread reads a Parquet file. With several threads, the memory that pyarrow needs grows with the
square of the number of columns: 10 GB for 50,000 columns, of which one thread needs 1 GB."""


def read_table(path: Path, where: str, *, as_texts: bool = False) -> "pd.DataFrame":
    """The table in a CSV or Parquet file.

    Args:
        path: the file.
        where: where the table comes from, for messages.
        as_texts: keep the cells of a CSV file as they are, and suggest no function that reads the file.

    Raises:
        UsageError: the file cannot be read as a table.
    """
    import pandas as pd

    in_function = (
        "" if as_texts else ", or read it in a function (data.name = 'my.py:load') with pandas.read_csv(…, encoding=…)"
    )
    try:
        names = column_names(path)
        check_column_names(names, where)
        if path.suffix.lower() == ".parquet":
            _check_rows(path, where)
            return pd.read_parquet(path, use_threads=len(names) < WIDE)
        kinds: dict[str, Any] = {"dtype": str, "keep_default_na": False} if as_texts else _exact_numbers()
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame: pd.DataFrame = pd.read_csv(path, index_col=False, **kinds)
            return frame
    except pd.errors.ParserWarning:
        check_separator(column_names(path), where, in_function=not as_texts)
        raise UsageError(f"{where}: rows have more values than the first line has names; name every column") from None
    except UsageError:
        raise
    except pd.errors.EmptyDataError:
        raise UsageError(f"{where}: is empty; the first line must name the columns") from None
    except MemoryError:
        raise UsageError(f"{where}: is too large for the memory of this machine") from None
    except ImportError:
        raise UsageError(
            f"{where}: Parquet files need the package pyarrow, which is not installed; pip install 'fedcohort[hub]'"
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{where}: is not UTF-8 text; save it as UTF-8{in_function}") from None
    except Exception as error:  # pandas and pyarrow have several error types for damaged files
        raise UsageError(f"{where}: cannot be read ({described(error)})") from None


def mention_equal_numbers(path: Path, frame: "pd.DataFrame", columns: Iterable[str], where: str) -> None:
    """Mention different texts of a CSV file that are the same integer, such as ``007`` and ``7``: they may be two clients, or classes.

    Args:
        path: the file.
        frame: what :func:`read_table` made of it.
        columns: columns with clients or classes; those that are not in the table are left out.
        where: where the table comes from, for messages.
    """
    import pandas as pd

    integers = [name for name in columns if name in frame and frame[name].dtype.kind in "iu"]
    if not integers or path.suffix.lower() == ".parquet":
        return
    texts = pd.read_csv(path, index_col=False, usecols=integers, dtype=str)
    for name in integers:
        different = pd.Series(texts[name].str.strip().unique())
        numbers = pd.to_numeric(different)
        if numbers.duplicated().any():
            same = different[numbers == numbers[numbers.duplicated()].iloc[0]]
            log.warning(
                "%s: column %r has integers, so that %s are the same; if they are not, read the table in a function "
                "(data.name = 'my.py:load') with pandas.read_csv(…, dtype={%r: str})",
                where, name, " and ".join(map(repr, same[:2])), name,
            )  # fmt: skip


def column_names(path: Path) -> list[str]:
    """The names of the columns of a table as they are in its file; pandas would rename a second column of the same name."""
    if path.suffix.lower() == ".parquet":
        from pyarrow import parquet

        return list(parquet.read_schema(path).names)
    import pandas as pd

    first = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
    return [name for name in first.iloc[0].tolist() if isinstance(name, str) and name]


def _exact_numbers() -> dict[str, object]:
    """The argument with which pandas reads numbers exactly; since version 3.1, it does so without it, and warns of it."""
    import pandas as pd

    version = tuple(map(int, pd.__version__.split(".")[:2]))
    return {"float_precision": "round_trip"} if version < (3, 1) else {}


def _check_rows(path: Path, where: str) -> None:
    """Refuse a Parquet file of which a few kilobytes would become a very long table.

    Raises:
        UsageError: it has more than :data:`MAX_SAMPLES` rows.
    """
    from pyarrow import parquet

    rows = parquet.read_metadata(path).num_rows
    if rows > MAX_SAMPLES:
        raise UsageError(f"{where}: has {rows:,} rows; at most {MAX_SAMPLES:,} can be used")
