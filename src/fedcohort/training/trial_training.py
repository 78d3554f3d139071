"""Trial trainings: questions about the update that a client would send, which are answered by training a copy of the model.

Local training is a function of the model, the round, the client, and what it received and remembers. If the client is selected, the
training that follows therefore gives exactly the same update.
"""

from collections.abc import Mapping

import numpy as np
import torch

from fedcohort.algorithms import ModelState, Tensors, Update
from fedcohort.core.arrays import Values
from fedcohort.core.sums import for_sums
from fedcohort.training.trainer import Trainer

__all__ = ["norm_of_update", "update_norm"]


def update_norm(
    trainer: Trainer,
    model: ModelState,
    t: int,
    client: int,
    *,
    received: Mapping[str, Tensors],
    memory: Mapping[str, Tensors],
) -> Values:
    """Answers :class:`fedcohort.selection.UpdateNorm`: ‖Δ_i‖₂ and the passes of the training; both NaN without an update."""
    update, _ = trainer.train(model, t, client, received=received, memory=memory)
    if update.failure is not None:
        return np.full(2, np.nan)
    return np.array([norm_of_update(update, model, sorted(trainer.parameters)), update.passes])


def norm_of_update(update: Update, start: ModelState, names: list[str]) -> float:
    """‖Δ‖₂ over the entries ``names`` of an update's model, in float64; ``start`` is the model that the client received."""
    squares = [(for_sums(update.state[name]) - for_sums(start[name])).square().sum() for name in names]
    return float(torch.stack(squares).sum().sqrt())
