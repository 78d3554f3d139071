"""The number format of sums over models and samples: float64, or float32 on devices without float64."""

import torch
from torch import Tensor

__all__ = ["WITHOUT_FLOAT64", "for_sums", "moved_to", "sum_type"]

WITHOUT_FLOAT64 = {"mps"}
"""Types of devices without float64: the GPU of a Mac."""


def sum_type(device: torch.device) -> torch.dtype:
    """The format of sums on a device."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def for_sums(values: Tensor) -> Tensor:
    """The values in the format of sums on their device."""
    return values.to(sum_type(values.device))


def moved_to(device: torch.device, values: Tensor) -> Tensor:
    """The values on a device; float64 becomes float32 where the device has no float64."""
    if values.dtype == torch.float64 and device.type in WITHOUT_FLOAT64:
        values = values.float()
    return values.to(device)
