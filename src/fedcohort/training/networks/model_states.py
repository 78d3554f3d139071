"""Copies of model states, number formats by name, and arrays on a device."""

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.algorithms import ModelState

__all__ = ["DTYPES", "copied", "state_of", "to_device"]

DTYPES = {"float32": torch.float32, "float64": torch.float64}
"""Number formats by the name that ``training.precision`` gives them."""


def state_of(module: nn.Module) -> ModelState:
    """A contiguous copy of the module's state dictionary."""
    return copied(module.state_dict())


def copied(state: ModelState) -> ModelState:
    """A contiguous copy of ``state``."""
    return {name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in state.items()}


def to_device(values: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to the device without waiting for a GPU's earlier work; the array has been read when this returns."""
    return torch.from_numpy(values).to(device, non_blocking=True)
