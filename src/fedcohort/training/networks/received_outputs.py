"""Outputs of the received model on a client's training samples, in chunks of limited size."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from fedcohort.federation.federation import Samples

__all__ = ["CHUNK", "received_outputs"]

CHUNK = 256
"""Maximum number of samples in one forward pass. Larger batches are summed over chunks, so that full-batch steps fit into memory."""


def received_outputs(logits: Callable[[Tensor], Tensor], data: Samples) -> Tensor:
    """Softmax outputs [n, K] of the received model on a client's training samples.

    Losses with pseudo-labels compare with these outputs, which are fixed when the model arrives.

    Args:
        logits: maps features, as stored, to the received model's logits in evaluation mode.
        data: the training samples.
    """
    with torch.no_grad():
        chunks = (data[start : start + CHUNK] for start in range(0, max(1, len(data)), CHUNK))
        return torch.cat([functional.softmax(logits(chunk.features), dim=-1) for chunk in chunks])
