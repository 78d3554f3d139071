"""Sizes of tensors in bytes, as transfers, memories and limits of messages count them."""

from collections.abc import Iterable, Mapping

from torch import Tensor

__all__ = ["num_bytes", "tensor_bytes"]


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Size of tensors in bytes, uncompressed."""
    return sum(tensor.nbytes for tensor in tensors)


def num_bytes(groups: Iterable[Mapping[str, Tensor]]) -> int:
    """Size in bytes of named tensors in several groups, such as a model and what an algorithm sends beside it."""
    return sum(tensor_bytes(group.values()) for group in groups)
