"""Loss and score of each sample, as evaluations and reports measure them: for classes, for a class at each position, and for numbers.

Labels of type int64 are classes: the loss is the cross-entropy, the score is 1 for a correct prediction and 0 for a wrong one. They
belong to whole samples [B], or to every position of a sequence [B, L]. The loss and the score of such a sequence are the means over
its positions, so that a mean over sequences is a mean over tokens: all sequences of a data set have the same length.

Labels of a floating-point type are numbers [B], scaled to standard deviation 1: the loss is the squared error e², and the score is
1 − e². The mean score of samples is therefore the accuracy, or the share of the variance of all training labels that the model
explains.
"""

from torch import Tensor
from torch.nn import functional

from fedcohort.core.sums import for_sums

__all__ = ["sample_losses", "sample_scores", "total_loss", "total_score"]


def sample_losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, or squared error, of each sample [B].

    Args:
        outputs: logits [B, K], or [B, L, K] with a label for each position, or predictions [B, 1] of numbers.
        labels: int64 [B] or [B, L], or scaled numbers of a floating-point type [B].
    """
    if labels.is_floating_point():
        return (outputs.squeeze(1) - labels.to(outputs.dtype)).square()
    if labels.dim() == 1:
        return functional.cross_entropy(outputs, labels, reduction="none")
    return (
        functional.cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape).mean(1)
    )


def total_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """The sum of :func:`sample_losses` over a batch, a scalar; arguments as there."""
    if labels.dim() == 1 and not labels.is_floating_point():
        return functional.cross_entropy(outputs, labels, reduction="sum")
    return sample_losses(outputs, labels).sum()


def sample_scores(outputs: Tensor, labels: Tensor) -> Tensor:
    """Score of each sample [B]; arguments as for :func:`sample_losses`.

    Returns:
        whether the prediction is correct, bool; with a label for each position, the share of correct ones, and for numbers 1 − e²,
        in the format of sums (float64).
    """
    if labels.is_floating_point():
        return 1 - for_sums(sample_losses(outputs, labels))
    right = outputs.argmax(-1) == labels
    return right if labels.dim() == 1 else for_sums(right).mean(1)


def total_score(outputs: Tensor, labels: Tensor) -> Tensor:
    """Number of correct predictions, of samples or positions, or the sum of 1 − e² (float64), over a batch; arguments as for
    :func:`sample_losses`."""
    if labels.is_floating_point():
        return sample_scores(outputs, labels).sum()
    return (outputs.argmax(-1) == labels).sum()
