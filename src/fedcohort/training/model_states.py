"""Copies of model states, number formats by name, and arrays on a device."""

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.algorithms import ModelState

__all__ = ["DTYPES", "copied", "state_of", "tied_entries", "to_device"]

DTYPES = {"float32": torch.float32, "float64": torch.float64}
"""Number formats by the name that ``training.precision`` gives them."""


def state_of(module: nn.Module) -> ModelState:
    """A contiguous copy of the module's state dictionary."""
    return copied(module.state_dict())


def copied(state: ModelState) -> ModelState:
    """A contiguous copy of ``state``."""
    return {name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in state.items()}


def tied_entries(module: nn.Module) -> dict[str, str]:
    """Entries of the state dictionary that are another name of a parameter, with the first name of each.

    Such as the weight of a last layer that is the table of an embedding. Parameters go by their first name everywhere else, so that
    only the entry of that name is known to be trained.
    """
    first: dict[int, str] = {}
    names = [(name, first.setdefault(id(p), name)) for name, p in module.named_parameters(remove_duplicate=False)]
    return {name: other for name, other in names if name != other}


def to_device(values: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to the device without waiting for a GPU's earlier work; the array has been read when this returns."""
    return torch.from_numpy(values).to(device, non_blocking=True)
