"""Which tensors share memory."""

from torch import Tensor

__all__ = ["memory_number"]


def memory_number(tensor: Tensor) -> int:
    """The number of a tensor's memory, on any device: tensors that share memory have the same one."""
    found: int = tensor.untyped_storage()._cdata
    return found
