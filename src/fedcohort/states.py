"""Nested state (dictionaries and lists of arrays, tensors, numbers, strings, None) in one safetensors file.

Arrays are the file's tensors; the shape of the nesting and everything that is not an array is JSON in its header.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CorruptState", "load_state", "pack", "save_state", "unpack"]


class CorruptState(Exception):  # noqa: N818
    """The file is not what was saved."""


def save_state(path: Path, state: Mapping[str, Any]) -> str:
    """Write ``state`` to ``path``; returns the SHA-256 of the file."""
    data = pack(state)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def load_state(path: Path, *, sha256: str | None = None) -> dict[str, Any]:
    """Read what :func:`save_state` wrote: tensors come back as tensors, arrays as arrays.

    Raises:
        CorruptState: the file has another hash, or cannot be parsed.
    """
    data = path.read_bytes()
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise CorruptState("its SHA-256 is not the recorded one")
    return unpack(data)


def pack(state: Mapping[str, Any]) -> bytes:
    """``state`` as the bytes of a safetensors file."""
    import torch
    from safetensors.torch import save

    tensors: dict[str, Any] = {}

    def shape(value: Any) -> Any:
        if isinstance(value, torch.Tensor | np.ndarray):
            name = str(len(tensors))
            kind = "tensor" if isinstance(value, torch.Tensor) else "array"
            tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(value))
            tensors[name] = tensor.detach().cpu().contiguous().clone()
            return {kind: name, "shape": list(tensor.shape)}
        if isinstance(value, np.generic):
            return {"value": value.item()}
        if isinstance(value, Mapping):
            return {"map": [[key, shape(inner)] for key, inner in value.items()]}
        if isinstance(value, list | tuple):
            return {"list": [shape(inner) for inner in value]}
        if value is None or isinstance(value, bool | int | float | str):
            return {"value": value}
        raise TypeError(
            f"a state may hold arrays, numbers, strings, None, dictionaries and lists, not {type(value).__name__}"
        )

    layout = json.dumps(shape(state))
    return bytes(save(tensors or {"": torch.zeros(0)}, metadata={"layout": layout}))


def unpack(data: bytes) -> dict[str, Any]:
    """What :func:`pack` packed.

    Raises:
        CorruptState: the bytes cannot be parsed.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(data)
        length = int.from_bytes(data[:8], "little")
        layout = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["layout"])
    except (SafetensorError, ValueError, KeyError) as error:
        raise CorruptState(f"it cannot be parsed: {error}") from None

    def rebuild(node: Any) -> Any:
        if "tensor" in node:
            return tensors[node["tensor"]].reshape(node["shape"])
        if "array" in node:
            return tensors[node["array"]].reshape(node["shape"]).numpy().copy()
        if "map" in node:
            return {key: rebuild(inner) for key, inner in node["map"]}
        if "list" in node:
            return [rebuild(inner) for inner in node["list"]]
        return node["value"]

    rebuilt: dict[str, Any] = rebuild(layout)
    return rebuilt
