"""The gradient of the local loss with respect to the logits of a stack."""

import torch
from torch import Tensor
from torch.nn import functional

from fedcohort.algorithms.losses import CrossEntropy, Loss, losses_of_rows

__all__ = ["LossSlope"]


class LossSlope:
    """Maps logits [a, B, K] to the gradient of each client's mean loss, and keeps the numbers for the clients' reports.

    Args:
        loss: the loss of a sample.
        labels: labels of the batch, int64 [a, B].
        mask: which positions hold samples, bool [a, B]; None if all do.
        divisors: number of samples of each client's batch, [a].
        outputs: softmax outputs of the received model on the batch, [a·B, K], if the loss needs them.
        weights: weights of the samples, [a, B]; None means 1.

    Attributes:
        losses: cross-entropy of every sample [a, B], 0 where padded; set by the call.
        right: correct predictions of every client [a]; set by the call.
    """

    losses: Tensor
    right: Tensor

    def __init__(
        self,
        loss: Loss,
        labels: Tensor,
        mask: Tensor | None,
        divisors: Tensor,
        outputs: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self.loss, self.labels, self.mask = loss, labels, mask
        self.divisors, self.outputs, self.weights = divisors, outputs, weights

    def __call__(self, logits: Tensor) -> Tensor:
        labels, mask = self.labels, self.mask
        log_p = functional.log_softmax(logits, dim=2)
        losses = -log_p.gather(2, labels[..., None]).squeeze(2)
        hits = log_p.argmax(2) == labels
        if mask is not None:
            losses, hits = torch.where(mask, losses, 0), hits & mask
        self.losses, self.right = losses, hits.sum(1)
        if isinstance(self.loss, CrossEntropy):
            delta = log_p.exp_()
            delta.scatter_add_(2, labels[..., None], delta.new_full((), -1).expand(*labels.shape, 1))
        else:
            delta = self._by_autograd(logits)
        delta /= self.divisors[:, None, None]
        if mask is not None:
            delta = torch.where(mask[..., None], delta, 0)  # a product with 0 would keep NaN of padded positions
        return delta if self.weights is None else delta * self.weights[..., None]

    def _by_autograd(self, logits: Tensor) -> Tensor:
        """The gradient of any local loss."""
        with torch.enable_grad():
            flat = logits.detach().flatten(0, 1).requires_grad_()
            losses = losses_of_rows(self.loss, flat, self.labels.flatten(), self.outputs)
            return torch.autograd.grad(losses.sum(), flat)[0].reshape(logits.shape).clone()
