"""Nested state (dictionaries and lists of arrays, tensors, numbers, strings, None) in one safetensors file.

Arrays become the tensors of the file. The nesting, and every value that is not an array, is JSON in the file's header. Tensors are
written one at a time, and a file is memory-mapped when it is read. A state can therefore be larger than the memory of the machine,
such as the memories of all clients.
"""

import copy
import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.files.paths import kind_of
from fedcohort.core.threads import in_background

if TYPE_CHECKING:
    import torch

__all__ = ["CorruptState", "UnsupportedStateError", "as_before", "load_state", "pack", "save_state", "unpack"]

_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
    "I8": "int8", "U8": "uint8", "BOOL": "bool", "U16": "uint16", "U32": "uint32", "U64": "uint64",
}  # fmt: skip
"""Number formats: name in safetensors → name in torch."""

_LARGE = 2**20
"""Number of bytes from which hashing takes much longer than handing the work to another thread."""

_PIECE = 2**24
"""Number of bytes that are hashed at a time."""


class CorruptState(Exception):  # noqa: N818
    """The file does not hold the state that was saved."""


class UnsupportedStateError(UsageError, TypeError):
    """A part of a state is of a type that cannot be saved."""


def save_state(path: Path, state: Mapping[str, object]) -> str:
    """Write ``state`` to ``path``; returns the SHA-256 of the file. While a large tensor is written, another thread hashes it."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in _pieces(state):
            if len(piece) < _LARGE:
                digest.update(piece)
                file.write(piece)
                continue
            hashed = in_background(partial(digest.update, piece))
            try:
                file.write(piece)
            finally:
                hashed.result()
    return digest.hexdigest()


def load_state(path: Path, *, sha256: str | None = None) -> dict[str, Any]:
    """Read what :func:`save_state` wrote: tensors come back as tensors, arrays as arrays.

    Tensors are mapped from the file. Writing to a tensor does not change the file, and the file may be deleted while tensors are in
    use.

    Raises:
        CorruptState: the file has another hash, cannot be parsed, or is no regular file but a pipe or a device.
        OSError: there is no such file, or it cannot be read.
    """
    if (kind := kind_of(path)) not in ("", "a file"):  # a pipe would be waited for, and a device may have no end
        raise CorruptState(f"it is {kind}")
    with path.open("rb") as file:
        if sha256 is not None and _digest(file) != sha256:
            raise CorruptState("its SHA-256 is not the recorded one")
    if not path.stat().st_size:
        raise CorruptState("it is empty")
    return _parsed(np.memmap(path, np.uint8, "c"))


def pack(state: Mapping[str, object]) -> bytes:
    """``state`` as the bytes of a safetensors file."""
    whole = io.BytesIO()
    for piece in _pieces(state):
        whole.write(piece)
    return whole.getvalue()


def unpack(data: bytes) -> dict[str, Any]:
    """The state in ``data``, which :func:`pack` made.

    Raises:
        CorruptState: the bytes cannot be parsed.
    """
    return _parsed(np.frombuffer(bytearray(data), np.uint8))


def as_before(value: Any, before: object) -> Any:
    """A part of a state that was read, with dictionaries of the types that they have in the object that gets it.

    Files hold plain dictionaries. ``before`` is the part that the object has now, such as a ``Counter`` or a ``defaultdict``.

    >>> from collections import Counter
    >>> as_before({"a": 2}, Counter())
    Counter({'a': 2})
    """
    if not isinstance(value, dict) or not isinstance(before, dict):
        return value
    restored = copy.copy(before)
    restored.clear()
    for key, inner in value.items():
        restored[key] = as_before(inner, before.get(key))
    return restored


def _pieces(state: Mapping[str, object]) -> Iterator[bytes | memoryview]:
    """The bytes of the file, piece by piece: the header, then each tensor straight from its memory."""
    import torch

    tensors: list[torch.Tensor] = []
    try:
        layout = json.dumps(_layout(state, tensors))
    except RecursionError:
        raise UnsupportedStateError(
            "state: a part is nested too deeply or contains itself; override state_dict and load_state_dict to leave it out"
        ) from None
    # the widest numbers first, so that every tensor is aligned
    order = sorted(range(len(tensors)), key=lambda i: -tensors[i].element_size())
    header = {"__metadata__": {"layout": layout}} | _entries(tensors, order)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for i in order:
        if tensors[i].numel():
            yield tensors[i].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _layout(value: object, tensors: list["torch.Tensor"], where: str = "") -> dict[str, object]:
    """``value`` as JSON; an array is appended to ``tensors`` and represented by its position in that list.

    Args:
        value: the state, or a part of it.
        tensors: all arrays so far.
        where: the keys that lead to this part.

    Raises:
        UnsupportedStateError: a part has another type.
    """
    import torch

    if isinstance(value, torch.Tensor | np.ndarray) and _number_format(value) in _NAMES.values():
        tensors.append(_as_tensor(value))
        array_type = "tensor" if isinstance(value, torch.Tensor) else "array"
        return {array_type: str(len(tensors) - 1), "shape": list(value.shape)}
    if isinstance(value, Mapping):
        return {"map": [[_key(key, where), _layout(inner, tensors, f"{where}.{key}")] for key, inner in value.items()]}
    if isinstance(value, list | tuple):
        inner = [_layout(part, tensors, where) for part in value]
        return {"tuple": inner} if isinstance(value, tuple) else {"list": inner}
    return _plain(value, where)


def _plain(value: object, where: str) -> dict[str, object]:
    """A number, a string or None as JSON.

    Raises:
        UnsupportedStateError: it is of another type.
    """
    if isinstance(value, np.number | np.bool_) and value.dtype.name in _NAMES.values():
        return {"scalar": value.dtype.name, "value": value.item()}  # it calculates unlike a number of Python
    if isinstance(value, bool | int | float | str | None):
        return {"value": value}
    what = f"{type(value).__name__} of {value.dtype}" if hasattr(value, "dtype") else type(value).__name__
    raise UnsupportedStateError(
        f"{where.lstrip('.') or 'state'} = {shown(value)}: a state may hold arrays, numbers, strings, None, dictionaries and lists, "
        f"not {what}; {_advice(value)}"
    )


def _advice(value: object) -> str:
    """What to do in place of keeping ``value`` in a state."""
    if type(value).__name__ in ("Generator", "RandomState", "Random"):  # of numpy, torch and Python
        return "draw from the generator that a method is given, such as round.rng"
    instead = "keep a sorted list, or " if isinstance(value, set | frozenset) else ""
    return f"{instead}override state_dict and load_state_dict to leave it out"


def _as_tensor(array: "torch.Tensor | NDArray[Any]") -> "torch.Tensor":
    import torch

    if isinstance(array, torch.Tensor):
        return array
    values = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    return torch.from_numpy(
        values if values.flags.writeable else values.copy()
    )  # torch warns of arrays that it could not write to


def _number_format(array: "torch.Tensor | NDArray[Any]") -> str:
    """The name in torch of an array's number format; empty for arrays that are not plain, such as sparse and masked ones."""
    if isinstance(array, np.ndarray):
        return "" if isinstance(array, np.ma.MaskedArray) else array.dtype.name
    return "" if array.is_sparse else str(array.dtype).removeprefix("torch.")


def _key(key: object, where: str) -> object:
    """The key of a dictionary as JSON; tuples are keys as well."""
    if isinstance(key, np.generic):
        key = key.item()
    return _layout(key, [], f"{where}, a key") if not isinstance(key, str | int | float | None) else key


def _entries(tensors: list["torch.Tensor"], order: list[int]) -> dict[str, dict[str, object]]:
    """The header's entry of every tensor, for tensors that are stored in this ``order``."""
    import torch

    formats = {getattr(torch, name): key for key, name in _NAMES.items()}
    entries: dict[str, dict[str, object]] = {}
    end = 0
    for i in order:
        start, end = end, end + tensors[i].numel() * tensors[i].element_size()
        entries[str(i)] = {
            "dtype": formats[tensors[i].dtype],
            "shape": list(tensors[i].shape),
            "data_offsets": [start, end],
        }
    return entries


def _parsed(data: NDArray[np.uint8]) -> dict[str, Any]:
    """The state in the bytes of a file; its tensors are views of these bytes."""
    try:
        length = int.from_bytes(data[:8].tobytes(), "little")
        header = json.loads(data[8 : 8 + length].tobytes())
        layout = json.loads(header.pop("__metadata__")["layout"])
        tensors = {name: _tensor(data[8 + length :], entry) for name, entry in header.items()}
        state: dict[str, Any] = _value(layout, tensors)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise CorruptState(f"it cannot be parsed: {error}") from None
    return state


def _value(node: Mapping[str, Any], tensors: Mapping[str, "torch.Tensor"]) -> Any:
    """The value that :func:`_layout` described as ``node``."""
    if "tensor" in node:
        return tensors[node["tensor"]].reshape(node["shape"])
    if "array" in node:
        return tensors[node["array"]].reshape(node["shape"]).numpy().copy()
    if "map" in node:
        return {_key_of(key): _value(inner, tensors) for key, inner in node["map"]}
    if "list" in node:
        return [_value(inner, tensors) for inner in node["list"]]
    if "tuple" in node:
        return tuple(_value(inner, tensors) for inner in node["tuple"])
    return np.dtype(node["scalar"]).type(node["value"]) if "scalar" in node else node["value"]


def _key_of(key: object) -> object:
    """The key that :func:`_key` described."""
    return _value(key, {}) if isinstance(key, dict) else key


def _tensor(data: NDArray[np.uint8], entry: Mapping[str, Any]) -> "torch.Tensor":
    """The tensor that a header's entry describes: a view of ``data`` where its bytes are aligned, otherwise a copy."""
    import torch

    dtype, (start, end) = getattr(torch, _NAMES[entry["dtype"]]), entry["data_offsets"]
    if end > len(data) or end - start != math.prod(entry["shape"]) * dtype.itemsize:
        raise ValueError(f"a tensor of the shape {entry['shape']} has {end - start} bytes of the file's {len(data)}")
    if start == end:
        return torch.empty(entry["shape"], dtype=dtype)
    values = np.asarray(data[start:end])
    if start % dtype.itemsize or values.ctypes.data % dtype.itemsize:
        values = values.copy()
    return torch.from_numpy(values).view(dtype).reshape(entry["shape"])


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()
