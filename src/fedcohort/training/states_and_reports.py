"""Functions that both ways of local training use: one client at a time (``local``), and stacks of clients (``stack``)."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms import ModelState
from fedcohort.federation.federation import Samples

__all__ = ["CHUNK", "DTYPES", "NO_STEP", "copied", "received_outputs", "state_of", "to_device", "training_report"]

DTYPES = {"float32": torch.float32, "float64": torch.float64}
"""Number formats by the name that ``training.precision`` gives them."""

CHUNK = 256
"""Maximum number of samples in one forward pass. Larger batches are summed over chunks, so that full-batch steps fit into memory."""

NO_STEP = "it made no step: it has no batch that this model can be trained on"
"""Reason why a client that got no work, or has no samples, has no result."""


def state_of(module: nn.Module) -> ModelState:
    """A contiguous copy of the module's state dictionary."""
    return copied(module.state_dict())


def copied(state: ModelState) -> ModelState:
    """A contiguous copy of ``state``."""
    return {name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in state.items()}


def to_device(values: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to the device without waiting for a GPU's earlier work; the array has been read when this returns."""
    return torch.from_numpy(values).to(device, non_blocking=True)


def received_outputs(logits: Callable[[Tensor], Tensor], data: Samples) -> Tensor:
    """Softmax outputs [n, K] of the received model on a client's training samples.

    Losses with pseudo-labels compare with these outputs, which are fixed when the model arrives.

    Args:
        logits: maps features, as stored, to the received model's logits in evaluation mode.
        data: the training samples.
    """
    with torch.no_grad():
        chunks = (data[start : start + CHUNK] for start in range(0, max(1, len(data)), CHUNK))
        return torch.cat([functional.softmax(logits(chunk.features), dim=1) for chunk in chunks])


def training_report(
    *, loss: float, square_loss: float, samples: float, steps: float, accuracy: float, **others: float
) -> dict[str, float]:
    """What a client reports of its training; numbers that are not finite are left out.

    Args:
        loss: mean over all steps of the mean cross-entropy of the step's batch.
        square_loss: mean squared cross-entropy of the samples, each at its first visit.
        samples: number of different samples that the client trained on.
        steps: number of steps.
        accuracy: share of correct predictions in the last epoch, each before the step on its batch.
        others: what a stopping rule reports.
    """
    report = {"loss": loss, "square_loss": square_loss, "samples": samples, "steps": steps, "accuracy": accuracy}
    return {name: value for name, value in (report | others).items() if math.isfinite(value)}
