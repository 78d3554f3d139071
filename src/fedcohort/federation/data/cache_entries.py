"""One entry of the cache of decoded data sets: its files, and the hashes that every use of the arrays is checked against.

An entry is a folder with one ``.npy`` file per array and ``meta.json``, which has the class names, the fingerprint of the content, and
the type, shape and hash of every array. Features are mapped, and the map itself is hashed: what is checked is what is read later.

The hash is XXH3 with 128 bits, which is about as fast as memory. It finds accidents: a program that changes an array on purpose can
also change its hash. An entry without hashes, as earlier versions wrote them, is checked by its fingerprint, which takes longer.
"""

import errno
import hashlib
import io
import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.array_checks import brief
from fedcohort.federation.data.datasets import Dataset, fingerprint_of_content, standardised

__all__ = [
    "ARRAYS", "META", "SPLITS", "ArrayOnDisk", "DamagedEntryError", "Meta", "has_hashes", "map_array", "read_entry", "read_meta",
    "save", "write_meta",
]  # fmt: skip

SPLITS = ("train", "test")
META = "meta.json"
ARRAYS = ("train_features", "train_labels", "test_features", "test_labels")
"""The arrays of every entry, in the order in which the fingerprint covers them; those of :data:`OPTIONAL` may follow."""
OPTIONAL = ("writers", "test_clients", "train_numbers", "test_numbers")
MAX_META_BYTES = 64 * 2**20
MAX_HEADER_BYTES = 2**16
HASH = "xxh3_128"


class DamagedEntryError(Exception):
    """An entry of the cache that is not as it was written; the message names the file and the problem."""


class ArrayOnDisk(NamedTuple):
    """What ``meta.json`` says about an array.

    Attributes:
        dtype: the type, as numpy writes it, such as ``|u1``.
        shape: the shape.
        hash: the hash of the content; None if the entry was written without hashes.
    """

    dtype: str
    shape: tuple[int, ...]
    hash: str | None


class Meta(NamedTuple):
    """The content of ``meta.json``.

    Attributes:
        name: the name under which the data set was loaded first; empty in entries of earlier versions.
        classes: names of the classes.
        fingerprint: fingerprint of the content.
        arrays: what is known about each array; None in place of a value for entries of earlier versions.
        clients: names of the clients; empty if they are unknown, and for entries of earlier versions.
    """

    name: str
    classes: tuple[str, ...]
    fingerprint: str
    arrays: dict[str, ArrayOnDisk | None]
    clients: tuple[str, ...] = ()


def read_entry(entry: Path, name: str) -> Dataset | None:
    """The data set in a cache entry, checked against its hashes; None if there is no entry.

    Raises:
        DamagedEntryError: a file is missing, cannot be read, or is not as it was written.
        UsageError: memory or open files are lacking.
    """
    if not entry.exists() and not entry.is_symlink():
        return None
    meta = read_meta(entry)
    arrays = {key: _read_array(entry / f"{key}.npy", known) for key, known in meta.arrays.items()}
    hashed = [_has_its_hash(f"{key}.npy", array, meta.arrays[key]) for key, array in arrays.items()]
    try:
        required = {key: arrays[key] for key in ARRAYS}
        optional = {key: arrays.get(key) for key in OPTIONAL}
        dataset = _dataset(name, meta, **required, **optional)
    except (TypeError, UsageError) as error:
        raise DamagedEntryError(f"its arrays do not fit together: {error}") from None
    if not all(hashed):
        extra = [optional[key] for key in OPTIONAL[1:] if optional[key] is not None]
        content = fingerprint_of_content(dataset.classes, *(arrays[key] for key in ARRAYS), dataset.writers, *extra)
        if content != dataset.fingerprint:
            raise DamagedEntryError("its content does not have its fingerprint")
    return dataset


def _dataset(name: str, meta: Meta, **arrays: Any) -> Dataset:
    """The data set of an entry."""
    return Dataset(name, classes=meta.classes, fingerprint=meta.fingerprint, client_names=meta.clients, **arrays)


def has_hashes(entry: Path) -> bool:
    """Whether an entry was written with the hash of every array."""
    try:
        return all(known is not None and known.hash is not None for known in read_meta(entry).arrays.values())
    except DamagedEntryError:
        return False


def read_meta(entry: Path) -> Meta:
    """What ``meta.json`` of an entry says.

    Raises:
        DamagedEntryError: the file is missing, or not as it was written.
    """
    file = entry / META
    try:
        if file.exists() and not file.is_file():  # a pipe would be waited for
            raise DamagedEntryError(f"{META} is not a file")
        if file.stat().st_size > MAX_META_BYTES:
            raise ValueError("too long")
        content = json.loads(file.read_bytes())
        digest = content.pop("hash", None)
        if isinstance(content["arrays"], dict) and digest != _hash_of_meta(content):
            raise ValueError("hash")
        return _meta(content)
    except FileNotFoundError:
        raise DamagedEntryError(f"{META} is missing") from None
    except OSError as error:
        raise DamagedEntryError(f"{META} cannot be read ({error.strerror or error})") from None
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise DamagedEntryError(f"{META} is not as it was written") from None


def _meta(content: dict[str, Any]) -> Meta:
    arrays = content["arrays"]
    known: dict[str, ArrayOnDisk | None]
    if isinstance(arrays, dict):
        known = {key: ArrayOnDisk(a["dtype"], tuple(a["shape"]), a.get(HASH)) for key, a in arrays.items()}
    else:
        known = dict.fromkeys(arrays)
    if not set(ARRAYS) <= set(known) <= {*ARRAYS, *OPTIONAL}:
        raise ValueError("arrays")
    classes, clients = tuple(content["classes"]), tuple(content.get("clients", ()))
    if not all(isinstance(text, str) for text in (*classes, *clients, content["fingerprint"])):
        raise ValueError("classes")
    return Meta(str(content.get("name", "")), classes, content["fingerprint"], known, clients)


def _read_array(file: Path, known: ArrayOnDisk | None) -> NDArray[np.generic]:
    """An array of an entry; features are mapped, other arrays are read, so that later changes of the file have no effect on them."""
    try:
        size = file.stat().st_size
        if known is not None and not 0 < size - _num_bytes(known) <= MAX_HEADER_BYTES:
            raise ValueError("another length")
        array = map_array(file) if "features" in file.name else np.lib.format.read_array(io.BytesIO(file.read_bytes()))
    except FileNotFoundError:
        raise DamagedEntryError(f"{file.name} is missing") from None
    except Exception as error:  # a damaged file can make numpy fail in any way
        _check_means(file, error)
        raise DamagedEntryError(f"{file.name} cannot be read ({brief(error)})") from None
    if known is not None and (array.dtype.str, array.shape) != (known.dtype, known.shape):
        raise DamagedEntryError(f"{file.name} has another type or shape")
    return array


def _check_means(file: Path, error: Exception) -> None:
    """Refuse to read an array for which the means are lacking; nothing is wrong with its file.

    Raises:
        UsageError: the error is about memory or about open files.
    """
    number: int = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None) or 0
    if cure := _CURES.get(number):
        raise UsageError(
            f"FEDCOHORT_CACHE: '{brief(file, 80)}' cannot be read ({os.strerror(number)}); {cure}"
        ) from None


_CURES = {
    errno.ENOMEM: "free some memory, or raise the limit (ulimit -v)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close other programs",
}
"""What helps, by the number of an error that says nothing about the file."""


def _num_bytes(known: ArrayOnDisk) -> int:
    return np.dtype(known.dtype).itemsize * math.prod(known.shape)


def _has_its_hash(file: str, array: NDArray[np.generic], known: ArrayOnDisk | None) -> bool:
    """Whether an array has a known hash, and the library that can check it is there.

    Raises:
        DamagedEntryError: the array has another hash.
    """
    if known is None or known.hash is None or (found := _hash_of(array)) is None:
        return False
    if found != known.hash:
        raise DamagedEntryError(f"{file} is not as it was written")
    return True


def map_array(file: Path) -> NDArray[Any]:
    """A file as a read-only array; all processes that map the file share its memory.

    The map itself has mode ``c`` (pages are copied when they are written to), and only the array is marked as read-only: torch has
    no read-only tensors and cannot use a map of mode ``r``.
    """
    array: NDArray[Any] = np.lib.format.open_memmap(file, mode="c")
    array.flags.writeable = False
    return array


def save(dataset: Dataset, out: Path) -> None:
    """Write ``meta.json`` of a cache entry, and the arrays that are not yet in ``out``.

    An entry does not say whether features are standardized: it has the fingerprint of the standardized data set, and is read as one.
    """
    dataset = standardised(dataset, True)
    for key, array in _arrays_of(dataset).items():
        if not (out / f"{key}.npy").exists():
            np.save(out / f"{key}.npy", array)
    write_meta(dataset, out)


def write_meta(dataset: Dataset, entry: Path) -> None:
    """Write ``meta.json`` of an entry with these arrays, under a temporary name that is renamed in the end."""
    described = {
        key: {"dtype": array.dtype.str, "shape": list(array.shape), HASH: _hash_of(array)}
        for key, array in _arrays_of(dataset).items()
    }
    content = {
        "name": dataset.name,
        "classes": list(dataset.classes),
        "fingerprint": dataset.fingerprint,
        "arrays": described,
    }
    if dataset.client_names:
        content["clients"] = list(dataset.client_names)
    temporary = entry / f".{META}"
    temporary.write_text(json.dumps(content | {"hash": _hash_of_meta(content)}), "utf-8")
    temporary.replace(entry / META)


def _arrays_of(dataset: Dataset) -> dict[str, NDArray[np.generic]]:
    return {
        key: getattr(dataset, key) for key in (*ARRAYS, *OPTIONAL) if key in ARRAYS or getattr(dataset, key) is not None
    }


def _hash_of(array: NDArray[np.generic]) -> str | None:
    """The hash of an array's content; None if the library is missing, and arrays are checked by the fingerprint instead."""
    try:
        import xxhash
    except ModuleNotFoundError:
        return None
    return str(xxhash.xxh3_128_hexdigest(np.ascontiguousarray(array).data.cast("B")))


def _hash_of_meta(content: dict[str, Any]) -> str:
    """The hash of ``meta.json`` without its own hash."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
