"""Losses and hits of samples, for labels of whole samples [B] and for labels of every position of a sequence [B, L].

The loss of a sequence with a label for each position is the mean over its positions, so that a mean over sequences is a mean over
tokens: all sequences of a data set have the same length.
"""

import torch
from torch import Tensor
from torch.nn import functional

from fedcohort.algorithms.losses import Loss

__all__ = ["cross_entropies", "hits", "sample_losses", "total_cross_entropy"]


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each sample, [B].

    Args:
        logits: [B, K], or [B, L, K] with a label for each position.
        labels: int64 [B] or [B, L].
    """
    if labels.dim() == 1:
        return functional.cross_entropy(logits, labels, reduction="none")
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape).mean(1)


def total_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum of :func:`cross_entropies`, a scalar."""
    if labels.dim() == 1:
        return functional.cross_entropy(logits, labels, reduction="sum")
    return cross_entropies(logits, labels).sum()


def sample_losses(loss: Loss, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
    """A local loss of each sample, [B].

    Args:
        loss: the local loss.
        logits, labels: as for :func:`cross_entropies`.
        outputs: softmax outputs of the received model, of the shape of ``logits``; only if ``loss`` needs them.
    """
    if labels.dim() == 1:
        return loss.samples(logits, labels, outputs)
    flat = None if outputs is None else outputs.flatten(0, 1)
    return loss.samples(logits.flatten(0, 1), labels.flatten(), flat).view(labels.shape).mean(1)


def hits(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of correct predictions of each sample, [B]: bool for labels [B], float64 over the positions for labels [B, L]."""
    right = logits.argmax(-1) == labels
    return right if labels.dim() == 1 else right.to(torch.float64).mean(1)
