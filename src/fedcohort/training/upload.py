"""What of an update is sent: all of it, or whole tensors of it, each with a probability (``Cohort.share``).

Only trainable tensors are left out. What else a model has (statistics of batch norm) is small and belongs together: a mean without
its variance would be of other clients than the variance. What an algorithm sends beside the model is sent whole, too.
"""

import math
from dataclasses import replace

import torch

from fedcohort.algorithms import ModelState, Update
from fedcohort.core.streams import rng

__all__ = ["partly"]


def partly(update: Update, model: ModelState, trainable: frozenset[str], share: float, seed: int, t: int) -> Update:
    """``update`` with each trainable tensor sent with probability ``share``, drawn for the client and the round.

    What is not sent stays with the client: the server finds there what the client received, ``model``. The norm of the whole
    difference is reported, which the server could not work out any more.
    """
    if update.failure is not None:
        return update
    draw = rng(seed, "upload", t, update.client)
    left_out = {name for name in sorted(trainable) if draw.random() >= share}
    norms = [torch.linalg.vector_norm(update.state[name].double() - model[name].double()) for name in sorted(trainable)]
    norm = float(torch.stack(norms).norm())
    return replace(
        update,
        state={name: model[name].clone() if name in left_out else value for name, value in update.state.items()},
        sent=frozenset(update.state) - left_out,
        report={**update.report, **({"update_norm": norm} if math.isfinite(norm) else {})},
    )
