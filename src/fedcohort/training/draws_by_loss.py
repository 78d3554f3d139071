"""The chances with which samples are drawn by their loss."""

import numpy as np

from fedcohort.core.arrays import Indices, Values

__all__ = ["chances_by_loss"]


def chances_by_loss(outputs: Values, labels: Indices, samples: int, *, numeric: bool) -> Values:
    """Chances in proportion to the losses; uniform if these do not add up to a positive, finite number.

    Args:
        outputs: class probabilities [n, K], or predicted numbers [n, 1].
        labels: labels [n]; with a label for each position of a sample, n counts positions.
        samples: number of samples.
        numeric: whether labels are numbers.

    Returns:
        float64 [samples].
    """
    if numeric:
        losses = np.square(outputs[:, 0] - labels)
    else:
        losses = -np.log(np.maximum(outputs[np.arange(len(labels)), labels], 1e-12))
        losses = losses.reshape(samples, -1).mean(axis=1)  # of each sample, from those of its positions
    total = losses.sum()
    chances: Values = losses / total if 0 < total < np.inf else np.full(samples, 1 / samples)
    return chances
