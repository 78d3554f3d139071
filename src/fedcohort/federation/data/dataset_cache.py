"""The cache of decoded data sets: ``.npy`` files in the user's cache directory.

A data set is decoded once; later loads map the files into memory and need no decoding library. Every load checks the content of the
files, and a damaged entry is made again. The environment variable ``FEDCOHORT_CACHE`` names another directory.

The lock file of an entry stays beside it: if it were removed, two processes could each hold a lock.
"""

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from filelock import FileLock

from fedcohort.core.errors import UsageError
from fedcohort.core.files.durable_files import is_disk_full
from fedcohort.core.files.user_cache import cache_folder
from fedcohort.federation.data.array_checks import brief
from fedcohort.federation.data.cache_entries import DamagedEntryError, has_hashes, read_entry, read_meta, write_meta
from fedcohort.federation.data.datasets import Dataset
from fedcohort.federation.data.folder_checks import files_in
from fedcohort.federation.data.image_folders import split_patterns

__all__ = [
    "clear_left_overs", "entry_of_content", "entry_of_scikit_learn", "entry_of_source",
    "load_or_decode", "remove", "scratch_folder",
]  # fmt: skip

CACHE_FORMAT = 1


def entry_of_source(source: Path | str, image_column: str | None, label_column: str | None) -> Path:
    """The cache entry of a folder or a Hub id.

    A folder has a new entry after any of its files was added, removed or changed. A Hub id always has the same entry, so that it
    works offline.

    Raises:
        UsageError: the cache folder cannot be created, or a file of the source cannot be read.
    """
    files = files_in(source, f"data.name = '{brief(source)}'") if isinstance(source, Path) else []
    states = [(str(file), state.st_size, state.st_mtime_ns) for file, state in files]
    patterns = split_patterns(source, (file for file, _ in files)) if isinstance(source, Path) else None
    content = [str(source), image_column, label_column, states, *([patterns] if patterns else [])]
    return entry_of_content(Path(source).name, content)


def entry_of_content(name: str, content: list[Any]) -> Path:
    """The cache entry of data that are known by their content, as plain values; data with the same content share it.

    Raises:
        UsageError: the cache folder cannot be created.
    """
    key = json.dumps([CACHE_FORMAT, *content])
    stem = re.sub(r"[^\w.-]", "_", name)[:40]
    return cache_folder("datasets") / f"{stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def entry_of_scikit_learn(name: str) -> Path:
    """The cache entry of a data set that is part of scikit-learn."""
    return cache_folder("datasets") / f"{name}-{CACHE_FORMAT}-scikit-learn-{version('scikit-learn')}"


def load_or_decode(entry: Path, name: str, decode: Callable[[Path, Path], None]) -> Dataset:
    """The data set in a cache entry, checked against its hashes.

    If the entry is missing or damaged, ``decode(scratch, out)`` writes its files into the folder ``out``. A damaged entry stays until
    it can be replaced, and its replacement is reported by a warning.

    Raises:
        UsageError: the data cannot be decoded, or the cache cannot be written.
    """
    unread = ""
    try:
        if (cached := read_entry(entry, name)) is not None:
            _add_hashes(entry, cached)
            return cached
    except DamagedEntryError as error:
        unread = f"data set = '{brief(name, 40)}': its cached copy '{entry.name}' cannot be used ({brief(error, 50)}) or replaced; "
    try:
        with FileLock(
            f"{entry}.lock"
        ):  # a second process waits, then reads the entry; the lock of a killed process is released
            return _load_locked(entry, name, decode)
    except NotImplementedError:
        problem, works = "is on a file system without locks", "name another folder"
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        works = "make room there, or name another folder" if is_disk_full(error) else "name another folder"
    raise UsageError(f"{unread}FEDCOHORT_CACHE: the folder {_shown(entry.parent)} {problem}; {works}")


def _load_locked(entry: Path, name: str, decode: Callable[[Path, Path], None]) -> Dataset:
    """See :func:`load_or_decode`; the caller holds the lock of the entry."""
    damage = ""
    try:
        if (cached := read_entry(entry, name)) is not None:
            return cached
    except DamagedEntryError as error:
        damage = f"data set = '{brief(name, 40)}': its cached copy '{entry.name}' was damaged ({brief(error, 50)})"
    former = _fingerprint(entry)
    clear_left_overs(entry.parent, locked=entry.name)
    try:
        _build(entry, decode)
        built = read_entry(entry, name)
    except UsageError as error:
        raise UsageError(f"{damage} and cannot be made again: {brief(error, 90)}") if damage else error from None
    except DamagedEntryError as error:
        problem = f"{_shown(entry)} was written, but reads back differently ({brief(error)})"
        raise UsageError(f"FEDCOHORT_CACHE: {problem}; name a folder on another disk") from None
    assert built is not None
    if damage:
        change = "" if former in ("", built.fingerprint) else "; the source has changed, so its fingerprint is another"
        warnings.warn(f"{damage}, and was made again from the source{change}", stacklevel=3)
    return built


def _fingerprint(entry: Path) -> str:
    """The fingerprint in ``meta.json`` of an entry; empty if it cannot be read."""
    with suppress(DamagedEntryError):
        return read_meta(entry).fingerprint
    return ""


def _add_hashes(entry: Path, dataset: Dataset) -> None:
    """Add hashes to an entry of an earlier version, which was checked by its fingerprint; nothing happens if it cannot be written."""
    if has_hashes(entry):
        return
    with suppress(OSError, NotImplementedError, DamagedEntryError), FileLock(f"{entry}.lock", timeout=0):
        if read_meta(entry).fingerprint == dataset.fingerprint:
            write_meta(dataset, entry)


def _shown(path: Path) -> str:
    return f"'{brief(path, 80)}'"


def _build(entry: Path, decode: Callable[[Path, Path], None]) -> None:
    """Decode into a scratch folder, then rename it: an entry is either complete or missing. The caller holds the lock."""
    scratch = scratch_folder(entry)
    try:
        (scratch / "arrays").mkdir()
        decode(scratch / "huggingface", scratch / "arrays")
        if entry.exists() or entry.is_symlink():
            entry.rename(scratch / "replaced")
        (scratch / "arrays").rename(entry)
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise UsageError(
            f"FEDCOHORT_CACHE: no space in {str(entry.parent)!r} ({error}); free some space, or name a folder that has it"
        ) from None
    finally:
        remove(scratch)


def scratch_folder(entry: Path) -> Path:
    """A new folder for files on the way into or out of an entry; the caller holds the lock of the entry."""
    return Path(mkdtemp(prefix=f".{entry.name}~", dir=entry.parent))


def clear_left_overs(root: Path, locked: str = "") -> list[Path]:
    """Remove what killed processes left in the cache: scratch folders that no running process is filling.

    Args:
        root: the folder of the entries.
        locked: name of an entry of which the caller holds the lock.

    Returns:
        The removed folders.
    """
    removed = []
    for scratch in sorted(root.glob(".*~*")):
        entry = scratch.name[1:].rpartition("~")[0]
        with suppress(OSError, NotImplementedError):  # filelock.Timeout is an OSError: a running process holds the lock
            with nullcontext() if entry == locked else FileLock(root / f"{entry}.lock", timeout=0):
                remove(scratch)
            removed.append(scratch)
    return removed


def remove(path: Path) -> None:
    """Remove a folder or a file, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
