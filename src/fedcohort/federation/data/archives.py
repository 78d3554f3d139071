"""Read the arrays of an .npz file: a zip archive with one .npy file for each array.

Everything that the headers say is checked before an array is read: an archive of a few megabytes can claim to have gigabytes. Arrays
of Python objects are not read, because reading them would run code.
"""

import math
import shutil
import zipfile
from collections import Counter
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.array_checks import brief
from fedcohort.federation.data.folder_checks import MAX_SAMPLES, described

__all__ = ["read_archive"]

LARGE = 2**30
"""Size in bytes from which an archive must not be compressed too well."""
MAX_RATIO = 100
"""Largest ratio of the size of a large archive's arrays to that of the file."""
HINT = "write it with numpy.savez"


class _Header(NamedTuple):
    """What a header says about an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def read_archive(path: Path, where: str) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name.

    Args:
        path: the file.
        where: the setting that names it, for messages.

    Raises:
        UsageError: it is no such file or is damaged, has Python objects, two arrays of the same name, samples and labels of different
            numbers, or more than there is room for.
    """
    if problem := _problem_of_beginning(path, where):
        raise UsageError(f"{where}: {problem}; {HINT}")
    try:
        with zipfile.ZipFile(path) as archive:
            headers = _headers(archive, where)
            _check_sizes(headers, archive, path, where)
            return {name: _array(archive, member) for name, member in _members(archive).items()}
    except MemoryError:
        raise UsageError(f"{where}: is too large for the memory of this machine") from None
    except Exception as error:  # zipfile, zlib and numpy have several error types for damaged files
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{where}: is a damaged zip archive ({described(error)}); {HINT}") from None


def _problem_of_beginning(path: Path, where: str) -> str:
    """What a file is that is no complete zip archive, by its first bytes; empty if it is one."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
        if zipfile.is_zipfile(path):
            return ""
    except OSError as error:
        raise UsageError(f"{where}: cannot be read ({error.strerror or error})") from None
    if not start:
        return "is empty"
    if start.startswith(b"PK\x03\x04"):
        return "is a zip archive that was cut off or damaged: its directory is missing"
    if start.startswith(b"\x93NUMPY"):
        return "is a single array (.npy) and not an archive of arrays"
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "is a pickle, which is not read, because reading it would run code"
    return "is no .npz file, which is a zip archive"


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The files in an archive by the names of their arrays."""
    return {member.filename.removesuffix(".npy"): member for member in archive.infolist()}


def _headers(archive: zipfile.ZipFile, where: str) -> dict[str, _Header]:
    """What the headers say about all arrays.

    Raises:
        UsageError: two arrays have the same name, one has Python objects, or is no array.
    """
    names = Counter(member.filename.removesuffix(".npy") for member in archive.infolist())
    if twice := [name for name, number in names.items() if number > 1]:
        raise UsageError(
            f"{where}: array '{brief(twice[0])}' appears {names[twice[0]]} times; give each array one name"
        )
    headers = {}
    for name, member in _members(archive).items():
        with archive.open(member) as file:
            header = _header(file)
        if header is None:
            raise UsageError(f"{where}: '{brief(member.filename)}' in it is no array of numpy; {HINT}")
        if header.dtype.hasobject:
            raise UsageError(
                f"{where}: array '{brief(name)}' has pickled Python objects, which are not read, because reading them would run code; "
                "save numbers or texts (astype(str))"
            )
        headers[name] = header
    return headers


def _header(file: IO[bytes]) -> _Header | None:
    """The header of a .npy file; None if it has none."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    except (TypeError, ValueError):
        return None
    return _Header(shape, dtype)


def _check_sizes(headers: dict[str, _Header], archive: zipfile.ZipFile, path: Path, where: str) -> None:
    """Refuse arrays that are too large or damaged, by their headers.

    Raises:
        UsageError: there are such arrays.
    """
    total = 0
    for name, member in _members(archive).items():
        shape, dtype = headers[name]
        claimed = dtype.itemsize * math.prod(shape)
        if not 0 <= member.file_size - claimed <= 2**16:
            raise UsageError(
                f"{where}: array '{brief(name)}' should have {claimed:,} bytes by its shape {brief(list(shape))}, but has "
                f"{member.file_size:,}; the file is damaged: {HINT}"
            )
        if shape and shape[0] > MAX_SAMPLES:
            raise UsageError(
                f"{where}: array '{brief(name)}' has {shape[0]:,} samples; at most {MAX_SAMPLES:,} can be used"
            )
        total += claimed
    for features, labels, clients in (
        ("features", "labels", "clients"),
        ("train_features", "train_labels", "clients"),
        ("test_features", "test_labels", "test_clients"),
    ):
        _check_numbers([headers.get(name) for name in (features, labels, clients)], (features, labels, clients), where)
    if total > max(LARGE, MAX_RATIO * path.stat().st_size):
        raise UsageError(
            f"{where}: {path.stat().st_size / 1e6:,.1f} MB that would become {total / 1e9:,.1f} GB; if these are your data, write "
            "them without compression (numpy.savez)"
        )
    if total > (free := shutil.disk_usage(path.parent).free):
        raise UsageError(f"{where}: has {total / 1e9:,.1f} GB of arrays, but {free / 1e9:,.1f} GB are free; make room")


def _check_numbers(headers: list[_Header | None], names: tuple[str, str, str], where: str) -> None:
    """Refuse arrays for the same samples that have different lengths."""
    lengths = {
        name: header.shape[0] if header.shape else 0
        for name, header in zip(names, headers, strict=True)
        if header is not None
    }
    if names[0] in lengths and names[1] in lengths and len(set(lengths.values())) > 1:
        numbers = ", ".join(f"{length:,} {name}" for name, length in lengths.items())
        raise UsageError(f"{where}: has {numbers}; give one of each for every sample")


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[np.generic]:
    """One array of an archive; the checksum of the archive is checked."""
    with archive.open(member) as file:
        array: NDArray[np.generic] = np.lib.format.read_array(file)  # no pickled objects, by default
        file.read(1)  # the checksum is compared at the end of the file
    return array
