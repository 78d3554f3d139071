"""Checks of a folder of data before the library ``datasets`` reads it, and the file that made the library fail.

A folder is data, whatever its source: nothing in it is run, nothing outside it is read, and no archive is unpacked that needs more
room than there is.
"""

import errno
import os
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NoReturn

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.array_checks import brief, has_control_characters

__all__ = ["MAX_SAMPLES", "broken_parquet", "check_folder", "check_room", "described", "files_in", "first_cause"]

MAX_SAMPLES = 100_000_000
"""Maximum number of rows of a Parquet file; far more than any image data set has."""
CARDS = ("README.md", ".huggingface.yaml")
"""Files that can tell the library which files are data."""
TABLES = (".csv", ".tsv")
"""Files that never have images."""


def check_folder(folder: Path, where: str) -> None:
    """Refuse a folder that cannot be read, or must not be.

    Args:
        folder: the folder.
        where: the data set, for messages.

    Raises:
        UsageError: the folder is empty, has a loading script, a truncated Parquet file, an archive that is too large, or a description
            that names files outside the folder.
    """
    files = [file for file, _ in files_in(folder, where)]
    if not files:
        raise UsageError(
            f"{where}: cannot be read: the folder has no files; it needs images in <class>/, or Parquet files"
        )
    if (folder / f"{folder.name}.py").is_file():
        raise UsageError(
            f"{where}: has the loading script '{brief(folder.name)}.py'; scripts of data sets are never run: give it Parquet files"
        )
    if tables := _only_tables(folder, files):
        raise UsageError(
            f"{where}: has no images but {tables}, and folders are for images; give the path of one table (.csv), or a function "
            "('my.py:load') that joins several, such as by pandas.concat"
        )
    for file in files:
        problem = ""
        if has_control_characters(str(file.relative_to(folder))):
            problem = "has control characters in its name, or in that of its folder; rename it with visible characters"
        elif file.suffix.lower() == ".parquet":
            problem = _problem_of_parquet(file)
        elif file.suffix.lower() == ".zip":
            problem = _problem_of_zip(file)
        elif file.name in CARDS and file.parent == folder:
            problem = _problem_of_card(file)
        if problem:
            raise UsageError(f"{where}: file '{brief(file.relative_to(folder))}' {problem}")


def files_in(folder: Path, where: str) -> list[tuple[Path, os.stat_result]]:
    """All regular files of a folder, sorted, with their states; links to files count as files.

    Raises:
        UsageError: a folder or file inside cannot be read, is a link to a folder or to nothing, or is a pipe or a device; it would be
            missing in the data without a word.
    """

    def refuse_odd(path: Path, problem: str) -> NoReturn:
        raise UsageError(f"{where}: '{brief(path.relative_to(folder))}' {problem}")

    def refuse(error: OSError) -> NoReturn:
        inner = brief(Path(error.filename or folder).relative_to(folder))
        raise UsageError(
            f"{where}: '{inner}' cannot be read ({error.strerror}); give yourself the permission, or remove it"
        )

    files = []
    for root, folders, names in os.walk(folder, onerror=refuse):
        for linked in (Path(root, name) for name in folders if Path(root, name).is_symlink()):
            refuse_odd(linked, "is a link to a folder, which is not followed; copy the folder, or remove the link")
        for file in (Path(root, name) for name in names):
            state = _state(file, refuse)
            if state is not None:
                files.append((file, state))
            elif not file.name.startswith("."):  # hidden files are no data
                refuse_odd(file, "is a link to nothing, a pipe or a device; replace it with the file, or remove it")
    return sorted(files, key=lambda found: found[0])


def _only_tables(folder: Path, files: Iterable[Path]) -> str:
    """The tables of a folder that has no other data, in words; empty if it has others."""
    data = [file for file in files if file.name not in CARDS and not file.name.startswith(".")]
    if not data or not all(file.suffix.lower() in TABLES for file in data):
        return ""
    first = brief(data[0].relative_to(folder), 40)
    return f"tables ({first}, …)" if len(data) > 1 else f"a table ({first})"


def _state(file: Path, refuse: Callable[[OSError], NoReturn]) -> os.stat_result | None:
    """The state of a regular file; None for links to nowhere, pipes and the like."""
    try:
        state = file.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        refuse(error)
    return state if stat.S_ISREG(state.st_mode) else None


def first_cause(error: BaseException) -> BaseException:
    """The error that began a chain of errors of a library."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def described(error: BaseException, most: int = 110) -> str:
    """The first cause of an error of a library, in one short line."""
    error = first_cause(error)
    text = brief(" ".join(str(error).split()), most)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def broken_parquet(folder: Path) -> str:
    """The first Parquet file of a folder with content that cannot be read, in words; empty if there is none."""
    import pyarrow.parquet as pq

    for file in sorted(folder.rglob("*.parquet")):
        try:
            with pq.ParquetFile(file) as table:
                for _ in table.iter_batches():
                    pass
        except Exception as error:
            return f"file '{brief(file.relative_to(folder))}' is damaged ({described(error, 60)}); copy it again"
    return ""


def check_room(folder: Path, num_bytes: int, where: str) -> None:
    """Refuse data that do not fit on the disk of ``folder``.

    Raises:
        UsageError: fewer than ``num_bytes`` are free.
    """
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise UsageError(
            f"{where}: {num_bytes / 1e9:,.1f} GB of decoded images, but {free / 1e9:,.1f} GB are free in the cache; "
            "use smaller images, make room, or name another folder with FEDCOHORT_CACHE"
        )


def _problem_of_parquet(file: Path) -> str:
    import pyarrow.parquet as pq

    if file.stat().st_size == 0:
        return "is empty; copy it again"
    try:
        with pq.ParquetFile(file) as table:
            rows = table.metadata.num_rows
    except Exception as error:  # pyarrow has several error types for damaged files
        return f"is not a complete Parquet file ({described(error, 60)}); copy it again"
    return f"has {rows:,} rows; at most {MAX_SAMPLES:,} can be used" if not 0 <= rows <= MAX_SAMPLES else ""


def _problem_of_zip(file: Path) -> str:
    try:
        with zipfile.ZipFile(file) as archive:
            needed = sum(member.file_size for member in archive.infolist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError) as error:
        return f"is not a complete zip archive ({described(error, 60)}); copy it again"
    free = shutil.disk_usage(file.parent).free
    if needed > free:
        return (
            f"would become {needed / 1e9:,.1f} GB, but {free / 1e9:,.1f} GB are free; unpack it elsewhere, or make room"
        )
    return ""


def _problem_of_card(file: Path) -> str:
    """The settings of a description may name data files, but only inside the folder."""
    import yaml

    try:
        text = file.read_text("utf-8")
        front = text.split("\n---", 1)[0].removeprefix("---") if text.startswith("---") else ""
        content = yaml.safe_load(front if file.suffix == ".md" else text)
    except (OSError, RecursionError, ValueError, yaml.YAMLError) as error:
        return f"has settings that are not YAML ({described(error, 60)}); correct or remove it"
    configs = content.get("configs") if isinstance(content, dict) else None
    for path in _strings(configs):
        parts = PurePosixPath(path.replace("\\", "/"))
        if "://" in path or "::" in path or parts.is_absolute() or ".." in parts.parts:
            return f"names data outside the folder, '{brief(path)}'; name only files inside it"
    return ""


def _strings(value: object) -> Iterator[str]:
    """All texts in nested lists and dictionaries."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
