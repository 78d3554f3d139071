"""What a client reports of its training, or why it has no result."""

import math

__all__ = ["NO_STEP", "training_report"]

NO_STEP = "it made no step: it has no batch that this model can be trained on"
"""Reason why a client that got no work, or has no samples, has no result."""


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
