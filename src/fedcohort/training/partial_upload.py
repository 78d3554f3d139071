"""Partial uploads: each tensor of an update is sent with a probability (``Cohort.share``).

Only trainable tensors are left out. The other entries of a model (statistics of batch norm) are small and belong together: if a mean
were sent without its variance, the averages of the two would come from different clients. What an algorithm sends beside the model is
always sent.
"""

import math
from dataclasses import replace

import torch

from fedcohort.algorithms import ModelState, Update
from fedcohort.core.random_streams import rng
from fedcohort.core.sums import for_sums

__all__ = ["partial_upload"]


def partial_upload(
    update: Update, model: ModelState, trainable: frozenset[str], share: float, seed: int, t: int
) -> Update:
    """``update`` with each trainable tensor sent with probability ``share``, drawn by client and round.

    In place of a tensor that is not sent, the server gets the tensor of ``model``, which the client received. The client reports the
    norm of the whole difference, because the server can no longer compute it.
    """
    if update.failure is not None:
        return update
    draw = rng(seed, "upload", t, update.client)
    left_out = {name for name in sorted(trainable) if draw.random() >= share}
    norms = [
        torch.linalg.vector_norm(for_sums(update.state[name]) - for_sums(model[name])) for name in sorted(trainable)
    ]
    norm = float(torch.stack(norms).norm())
    return replace(
        update,
        state={name: model[name].clone() if name in left_out else value for name, value in update.state.items()},
        sent=frozenset(update.state) - left_out,
        report={**update.report, **({"update_norm": norm} if math.isfinite(norm) else {})},
    )
