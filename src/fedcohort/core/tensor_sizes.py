"""The memory of tensors: sizes in bytes, as transfers and limits of messages count them, and which tensors share it."""

from collections.abc import Iterable, Mapping

from torch import Tensor

__all__ = ["memory_number", "num_bytes", "tensor_bytes"]


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Size of tensors in bytes, uncompressed."""
    return sum(tensor.nbytes for tensor in tensors)


def num_bytes(groups: Iterable[Mapping[str, Tensor]]) -> int:
    """Size in bytes of named tensors in several groups, such as a model and what an algorithm sends beside it."""
    return sum(tensor_bytes(group.values()) for group in groups)


def memory_number(tensor: Tensor) -> int:
    """A number that tensors have in common if they share memory, whatever their device."""
    found: int = tensor.untyped_storage()._cdata
    return found
