"""The cache of decoded data sets: ``.npy`` files in the user's cache directory.

A data set is decoded once; later loads map the files into memory and need no decoding library. The environment variable
``FEDCOHORT_CACHE`` names another directory.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from platformdirs import user_cache_dir

from fedcohort.core.durable import is_disk_full
from fedcohort.core.errors import UsageError
from fedcohort.federation.datasets import Dataset

__all__ = [
    "SPLITS", "absolute", "cache_folder", "entry_of_scikit_learn", "entry_of_source", "load_or_decode", "map_array", "save",
]  # fmt: skip

SPLITS = ("train", "test")
CACHE_FORMAT = 1


def absolute(path: str | Path) -> Path:
    """The absolute path, with ``~`` expanded."""
    try:
        return Path(path).expanduser().resolve()
    except RuntimeError:  # ~name without a user of that name
        return Path(path)


def cache_folder(name: str) -> Path:
    """A folder in the user's cache (``FEDCOHORT_CACHE``); it is created if necessary.

    Raises:
        UsageError: the folder cannot be created.
    """
    root = absolute(os.environ.get("FEDCOHORT_CACHE") or user_cache_dir("fedcohort")) / name
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"FEDCOHORT_CACHE: cannot make the folder {str(root)!r} ({error.strerror})") from None
    return root


def entry_of_source(source: Path | str, image_column: str | None, label_column: str | None) -> Path:
    """The cache entry of a folder or a Hub id.

    A folder has a new entry after any of its files was added, removed or changed. A Hub id always has the same entry, so that it
    works offline.
    """
    root = cache_folder("datasets")
    files = sorted(f for f in source.rglob("*") if f.is_file()) if isinstance(source, Path) else []
    states = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    key = json.dumps([CACHE_FORMAT, str(source), image_column, label_column, states])
    return root / f"{Path(source).name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def entry_of_scikit_learn(name: str) -> Path:
    """The cache entry of a data set that is part of scikit-learn."""
    return cache_folder("datasets") / f"{name}-{CACHE_FORMAT}-scikit-learn-{version('scikit-learn')}"


def load_or_decode(entry: Path, name: str, decode: Callable[[Path, Path], None]) -> Dataset:
    """The data set in a cache entry. If the entry is missing, ``decode(scratch, out)`` writes its files into the folder ``out``."""
    if (cached := _open(entry, name)) is not None:
        return cached
    with FileLock(
        f"{entry}.lock"
    ):  # a second process waits, then reads the entry; the lock of a killed process is released
        if _open(entry, name) is None:
            _build(entry, decode)
    if (built := _open(entry, name)) is None:
        raise RuntimeError(f"the cache entry {entry} was written but cannot be read")
    return built


def _open(entry: Path, name: str) -> Dataset | None:
    """The data set in a cache entry; None if there is no entry, or if it is damaged."""
    try:
        meta = json.loads((entry / "meta.json").read_text("utf-8"))
        arrays = {k: (map_array if "features" in k else np.load)(entry / f"{k}.npy") for k in meta["arrays"]}
        dataset = Dataset(name, classes=tuple(meta["classes"]), fingerprint=meta["fingerprint"], **arrays)
        is_complete = all(len(arrays[f"{split}_features"]) == len(arrays[f"{split}_labels"]) for split in SPLITS)
        return dataset if is_complete else None
    except Exception:  # a damaged file can make numpy fail in any way
        return None


def map_array(file: Path) -> NDArray[Any]:
    """A file as a read-only array; all processes that map the file share its memory.

    The map itself has mode ``c`` (pages are copied when they are written to), and only the array is marked as read-only: torch has
    no read-only tensors and cannot use a map of mode ``r``.
    """
    array: NDArray[Any] = np.load(file, mmap_mode="c")
    array.flags.writeable = False
    return array


def _build(entry: Path, decode: Callable[[Path, Path], None]) -> None:
    """Decode into a scratch folder, then rename it: an entry is either complete or missing. The caller holds the lock."""
    scratch = entry.with_name(f".{entry.name}")
    arrays = scratch / "arrays"
    for left_over in (scratch, entry):
        shutil.rmtree(left_over, ignore_errors=True)
        with suppress(OSError):
            left_over.unlink()
    try:
        arrays.mkdir(parents=True)
        decode(scratch / "huggingface", arrays)
        arrays.rename(entry)
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise UsageError(
            f"FEDCOHORT_CACHE: no space in {str(entry.parent)!r} ({error}); free some space, or name a folder that has it"
        ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def save(dataset: Dataset, out: Path) -> None:
    """Write ``meta.json`` of a cache entry, and the arrays that are not yet in ``out``."""
    arrays = {
        f"{split}_{array}": getattr(dataset, f"{split}_{array}") for array in ("features", "labels") for split in SPLITS
    }
    if dataset.writers is not None:
        arrays["writers"] = dataset.writers
    for key, array in arrays.items():
        if not (out / f"{key}.npy").exists():
            np.save(out / f"{key}.npy", array)
    meta = {"classes": dataset.classes, "fingerprint": dataset.fingerprint, "arrays": list(arrays)}
    (out / "meta.json").write_text(json.dumps(meta), "utf-8")
