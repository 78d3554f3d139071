"""Local losses, which clients minimize. Each loss gives one number per sample.

With p the softmax of the logits and y the label:

    ce              −log p_y
    robust          CE + α·CE(z) + β·RCE, z the outputs of the received model (FLASH, arXiv:2402.08769)
    sl              0.1·CE + RCE with A = ln 1e-4 (RHFL; symmetric cross-entropy of Wang et al. 2019, arXiv:1908.06112)
    sce             α·CE + β·RCE (the general form of sl)
    double_softmax  cross-entropy with softmax outputs in place of logits; reproduces the mistake of applying the softmax twice

With numeric labels, scaled to standard deviation 1, ŷ the output of the model and e = ŷ − y:

    mse             e²
    huber           e²/2 where |e| ≤ δ, otherwise δ·(|e| − δ/2)

For one-hot labels, the reverse cross-entropy is RCE = −A·(1 − p_y), where A replaces log 0.
"""

import math
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor
from torch.nn import functional

from fedcohort.algorithms.sample_measures import sample_losses
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.user_code.method_signatures import check_methods, not_defined

__all__ = [
    "CrossEntropy",
    "DoubleSoftmax",
    "Huber",
    "Loss",
    "Robust",
    "SquaredError",
    "SymmetricCrossEntropy",
    "SymmetricLearning",
    "local_losses",
    "losses_of_rows",
]


class Loss:
    """A local loss; a subclass computes it in :meth:`samples`."""

    needs_outputs: ClassVar[bool] = False
    """True for losses that use the received model's outputs on the batch."""
    numeric: ClassVar[bool] = False
    """True for losses of numeric labels (regression); all others are for classes."""

    def __init_subclass__(cls, **settings: object) -> None:
        """Refuse methods with other arguments, where the class is defined."""
        super().__init_subclass__(**settings)
        check_methods(cls, Loss)

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        """Loss of each sample, [B].

        Args:
            logits: outputs of the model in training, [B, K].
            labels: int64 [B]; for :attr:`numeric` losses, numbers that are scaled to standard deviation 1.
            outputs: softmax outputs of the received model, without gradient, [B, K]; only if :attr:`needs_outputs`.
        """
        raise not_defined(self, Loss.samples, "a loss")


@parameters
class CrossEntropy(Loss):
    """Cross-entropy, −log p_y."""

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        """See :class:`Loss`."""
        return functional.cross_entropy(logits, labels, reduction="none")


@parameters
class Robust(Loss):
    """Noise-robust loss of FLASH. It is a sum of cross-entropy, cross-entropy to the received model's outputs, and reverse
    cross-entropy.
    """

    alpha: Annotated[float, Ge(0)] = 0.1
    """Weight of the cross-entropy to the received model's outputs (α_rob)."""
    beta: Annotated[float, Ge(0)] = 4.0
    """Weight of the reverse cross-entropy (β_rob)."""
    log_zero: Annotated[float, Lt(0)] = -4.0
    """Replacement for log 0 in the reverse cross-entropy (A_rob)."""

    needs_outputs: ClassVar[bool] = True

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        """See :class:`Loss`."""
        assert outputs is not None
        log_p = functional.log_softmax(logits, dim=-1)
        ce = functional.nll_loss(log_p, labels, reduction="none")
        return ce - self.alpha * (outputs * log_p).sum(-1) + self.beta * reverse_cross_entropy(ce, self.log_zero)


@parameters
class SymmetricCrossEntropy(Loss):
    """Symmetric cross-entropy, α·CE + β·RCE."""

    alpha: Annotated[float, Ge(0)] = 0.1
    """Weight of the cross-entropy."""
    beta: Annotated[float, Ge(0)] = 1.0
    """Weight of the reverse cross-entropy."""
    log_zero: Annotated[float, Lt(0)] = -4.0
    """Replacement for log 0 (A)."""

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        """See :class:`Loss`."""
        ce = functional.cross_entropy(logits, labels, reduction="none")
        return self.alpha * ce + self.beta * reverse_cross_entropy(ce, self.log_zero)


@parameters
class SymmetricLearning(Loss):
    """Loss of RHFL, 0.1·CE + RCE. One-hot labels are clamped at 1e-4."""

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        """See :class:`Loss`."""
        ce = functional.cross_entropy(logits, labels, reduction="none")
        return 0.1 * ce + reverse_cross_entropy(ce, math.log(1e-4))


@parameters
class DoubleSoftmax(Loss):
    """Cross-entropy of softmax outputs, as if they were logits. It is at least ln(e + K − 1) − 1."""

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        """See :class:`Loss`."""
        return functional.cross_entropy(functional.softmax(logits, dim=-1), labels, reduction="none")


@parameters
class SquaredError(Loss):
    """Squared error of numeric labels (regression). Its unit is the variance of the labels."""

    numeric: ClassVar[bool] = True

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        """See :class:`Loss`."""
        return sample_losses(logits, labels)


@parameters
class Huber(Loss):
    """Huber loss of numeric labels (regression). It gives less weight to large errors than the squared error."""

    delta: Annotated[float, Gt(0)] = 1.0
    """Error from which on the loss grows linearly, in standard deviations of the labels (δ)."""

    numeric: ClassVar[bool] = True

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        """See :class:`Loss`."""
        return functional.huber_loss(logits.squeeze(1), labels.to(logits.dtype), reduction="none", delta=self.delta)


def local_losses(loss: Loss, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
    """A local loss of each sample, [B]; of a sequence with a label for each position, the mean over its positions.

    Args:
        loss: the local loss.
        logits, labels: as for :func:`~fedcohort.algorithms.sample_measures.sample_losses`.
        outputs: softmax outputs of the received model, of the shape of ``logits``; only if ``loss`` needs them.
    """
    if labels.dim() == 1:
        return losses_of_rows(loss, logits, labels, outputs)
    flat = None if outputs is None else outputs.flatten(0, 1)
    return losses_of_rows(loss, logits.flatten(0, 1), labels.flatten(), flat).view(labels.shape).mean(1)


def losses_of_rows(loss: Loss, logits: Tensor, labels: Tensor, outputs: Tensor | None) -> Tensor:
    """What :meth:`Loss.samples` returns, [B].

    Raises:
        UsageError: the loss of a user returns something else, or numbers without a gradient.
    """
    found: object = loss.samples(logits, labels, outputs)
    if not isinstance(found, Tensor) or found.shape != labels.shape:
        given = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise UsageError(
            f"{type(loss).__name__}.samples returned {given} for {len(labels)} samples; it must return the loss of each sample, "
            f"[{len(labels)}] (in PyTorch's functions, reduction='none')"
        )
    if torch.is_grad_enabled() and logits.requires_grad and not found.requires_grad:
        raise UsageError(
            f"{type(loss).__name__}.samples returned losses that do not depend on the logits; do not detach them, and do "
            "not compute them under torch.no_grad()"
        )
    return found


def reverse_cross_entropy(ce: Tensor, log_zero: float) -> Tensor:
    """−A·(1 − p_y), from the cross-entropy −log p_y."""
    return log_zero * torch.expm1(-ce)
