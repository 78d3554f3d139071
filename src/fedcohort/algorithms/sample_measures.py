"""Loss and score of each sample, as evaluations and reports measure them, for classes and for numeric labels.

Labels of type int64 are classes: the loss is the cross-entropy, the score is 1 for a correct prediction and 0 for a wrong one. Labels
of a floating-point type are numbers, scaled to standard deviation 1: the loss is the squared error e², and the score is 1 − e².
The mean score of samples is therefore the accuracy, or the share of the variance of all training labels that the model explains.
"""

from torch import Tensor
from torch.nn import functional

__all__ = ["sample_losses", "total_score"]


def sample_losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, or squared error, of each sample [B].

    Args:
        outputs: logits [B, K], or predictions [B, 1].
        labels: int64, or scaled numbers of a floating-point type [B].
    """
    if labels.is_floating_point():
        return (outputs.squeeze(1) - labels.to(outputs.dtype)).square()
    return functional.cross_entropy(outputs, labels, reduction="none")


def total_score(outputs: Tensor, labels: Tensor) -> Tensor:
    """Number of correct predictions, or the sum of 1 − e² (float64), over a batch; arguments as for :func:`sample_losses`."""
    if labels.is_floating_point():
        return (1 - sample_losses(outputs, labels).double()).sum()
    return (outputs.argmax(1) == labels).sum()
