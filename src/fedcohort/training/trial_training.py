"""Trial trainings: questions about the update that a client would send, which are answered by training a copy of the model.

Local training is a function of the model, the round, the client, and what it received and remembers. If the client is selected, the
training that follows therefore gives exactly the same update.
"""

import numpy as np
import torch

from fedcohort.algorithms import ModelState, Update
from fedcohort.core.arrays import Values
from fedcohort.core.sums import for_sums
from fedcohort.training.trainer import Trainer

__all__ = ["norm_and_passes", "norm_of_update"]


def norm_and_passes(update: Update, start: ModelState, trainer: Trainer) -> Values:
    """Answers :class:`fedcohort.selection.UpdateNorm` with the update of a trial training: ‖Δ_i‖₂ and the passes of the training; both
    NaN without an update. ``start`` is the model that the client received."""
    if update.failure is not None:
        return np.full(2, np.nan)
    return np.array([norm_of_update(update, start, sorted(trainer.parameters)), update.passes])


def norm_of_update(update: Update, start: ModelState, names: list[str]) -> float:
    """‖Δ‖₂ over the entries ``names`` of an update's model, in float64; ``start`` is the model that the client received."""
    squares = [(for_sums(update.state[name]) - for_sums(start[name])).square().sum() for name in names]
    return float(torch.stack(squares).sum().sqrt())
