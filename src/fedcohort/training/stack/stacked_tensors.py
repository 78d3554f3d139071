"""Tensors with a leading client axis: how they are put together, cut and taken apart."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcohort.algorithms import Tensors, per_client
from fedcohort.training.networks.model_states import to_device

__all__ = ["Memory", "clip", "cut", "of_client", "padded", "sample_mask", "stacked_memories"]

Memory = Mapping[str, Mapping[str, Tensor]]
"""Tensors of an algorithm, by kind and name."""


def padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of different lengths side by side, int64 [clients, B], padded with zeros."""
    positions = np.zeros((len(rows), max(1, *map(len, rows))), dtype=np.int64)
    for i, row in enumerate(rows):
        positions[i, : len(row)] = row
    return positions


def sample_mask(counts: np.ndarray, width: int, device: torch.device) -> Tensor | None:
    """Which of ``width`` positions hold a sample of each client's batch, bool [clients, width]; None if all of them do."""
    if counts.min() == width:
        return None
    return to_device(np.arange(width)[None] < counts[:, None], device)


def stacked_memories(memories: Sequence[Memory]) -> dict[str, Tensors]:
    """Memories side by side, with all tensors that some client has; zeros for clients that do not have them."""
    examples: dict[str, Tensors] = {}
    for memory in memories:
        for kind, tensors in memory.items():
            examples[kind] = examples.get(kind, {}) | dict(tensors)
    return {
        kind: {
            name: torch.stack([m[kind][name] if kind in m and name in m[kind] else torch.zeros_like(value) for m in memories])
            for name, value in tensors.items()
        }
        for kind, tensors in examples.items()
    }  # fmt: skip


def of_client(groups: Mapping[str, Tensors], position: int) -> dict[str, Tensors]:
    """Copies of the tensors of the client at this position."""
    return {kind: {name: value[position].clone() for name, value in group.items()} for kind, group in groups.items()}


def cut(value: object, clients: slice, size: int) -> Any:
    """``value``, possibly nested, with the client axis of every tensor cut to ``clients``, as views.

    A tensor has the client axis if its first dimension has ``size`` entries.
    """
    if isinstance(value, Mapping):
        return {key: cut(inner, clients, size) for key, inner in value.items()}
    if isinstance(value, Tensor) and value.dim() and len(value) == size:
        return value.detach()[clients]
    return value


def clip(gradients: Tensors, limit: float) -> None:
    """Scale each client's gradients down to norm ``limit``, as ``torch.nn.utils.clip_grad_norm_`` does for one client."""
    norms = torch.stack([torch.linalg.vector_norm(g.reshape(len(g), -1), dim=1) for g in gradients.values()])
    factor = (limit / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
    for gradient in gradients.values():
        gradient.mul_(per_client(factor, gradient))
