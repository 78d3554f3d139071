"""The cohort that a strategy returns, with the reasons for the choice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedcohort.core.arrays import Indices, Values

__all__ = ["MORE_WORK_BY_LOSS", "Cohort", "Why", "requested_epochs"]

MORE_WORK_BY_LOSS = 4 / 3
"""Work of an epoch in which samples are drawn by their loss: each sample has one forward pass in addition to training."""


@dataclass(frozen=True)
class Why:
    """The reasons for one choice, stored in the run's record.

    Attributes:
        candidates: the clients that were compared, int64 [n]. If very many clients have no score, list only those with the lowest ids.
        scores: the score of each candidate, float64 [n].
        terms: the parts that make up each score, name → float64 [n].
        note: the kind of choice, such as ``"random: first rounds"``.
    """

    candidates: Indices
    scores: Values
    terms: Mapping[str, Values] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Cohort:
    """The clients selected for a round, and how much work each does. All arrays are aligned with ``clients``.

    Attributes:
        clients: distinct client ids, int64 [n]; best first if the strategy ranks them.
        multiplicity: how often each client was drawn by a sampler with replacement (R5), int64 [n]; None means once.
        inclusion: probability with which each client was included, float64 [n]; required by ``weights = "unbiased"``.
        weights: aggregation weights that replace the weight mode, for samplers that bring their own, float64 [n].
        epochs: local epochs of each client, int64 [n]; None means the experiment's number.
        share: probability with which each client sends each trainable tensor of its update, float64 [n]; None means that it sends all.
        unsent: how the average treats a tensor that was not sent: left_out (average over the clients that sent it), or unchanged
            (the client counts with the tensor it received).
        sampling: how clients fill their batches: shuffled (every sample once per epoch); loss (drawn with replacement, with
            probability ∝ the loss at the beginning of the epoch, which takes one more forward pass per epoch); or loss_unbiased (the
            same, with the loss of sample j weighted by 1/(n·probability), so that batch gradients have the same mean as with
            shuffling).
        stop: a rule that can end local training before ``epochs``, as plain data: ``{"rule": name, **settings}``.
        why: the reasons for the choice.
    """

    clients: Indices
    multiplicity: Indices | None = None
    inclusion: Values | None = None
    weights: Values | None = None
    epochs: Indices | None = None
    share: Values | None = None
    unsent: Literal["left_out", "unchanged"] = "left_out"
    sampling: Literal["shuffled", "loss", "loss_unbiased"] = "shuffled"
    stop: Mapping[str, object] | None = None
    why: Why | None = None

    def __len__(self) -> int:
        return len(self.clients)

    def __post_init__(self) -> None:
        for name in ("multiplicity", "inclusion", "weights", "epochs", "share"):
            values = getattr(self, name)
            if values is not None and not hasattr(values, "__len__"):
                raise ValueError(f"Cohort.{name} = {values!r}: give an array with one entry for each client")
            if values is not None and len(values) != len(self.clients):
                raise ValueError(
                    f"Cohort.{name}: {len(values)} entries for {len(self.clients)} clients; give one for each"
                )
        for name, valid in (("unsent", ("left_out", "unchanged")), ("sampling", ("shuffled", "loss", "loss_unbiased"))):
            if getattr(self, name) not in valid:
                raise ValueError(f"Cohort.{name} = {getattr(self, name)!r}: valid are {', '.join(map(repr, valid))}")


def requested_epochs(cohort: Cohort, epochs: int) -> Values:
    """The epochs that each client was asked for, float64 [n]; an epoch with samples drawn by their loss counts as 4/3.

    With ``cohort.stop``, a client may do fewer.

    Args:
        cohort: the cohort.
        epochs: epochs of nominal work.
    """
    most = np.full(len(cohort), epochs) if cohort.epochs is None else np.asarray(cohort.epochs)
    return most.astype(np.float64) * (1.0 if cohort.sampling == "shuffled" else MORE_WORK_BY_LOSS)
