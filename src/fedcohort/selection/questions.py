"""Questions that a strategy can ask clients, with what each one reveals and costs."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError, shown

__all__ = [
    "QUESTIONS", "Context", "GradientNorm", "LocalAccuracy", "LocalLoss", "LossChange", "Question", "Speed", "UpdateNorm",
]  # fmt: skip


@dataclass(frozen=True)
class Question:
    """A quantity that every asked client computes with the current model and reports as a few numbers.

    The class attributes below say what an answer reveals and costs.
    """

    reveals: ClassVar[str]
    """What the server learns about the client."""
    downloads_model: ClassVar[bool] = True
    """Whether the client must receive the model to answer."""
    numbers: ClassVar[int] = 1
    """Number of 4-byte values in an answer."""
    trains: ClassVar[bool] = False
    """Whether the client runs this round's local training to find the answer; a client that is then selected does not pay for that
    training again."""

    @property
    def kind(self) -> str:
        """The name of this kind of question in the cost ledger."""
        return type(self).__name__

    @property
    def passes(self) -> float:
        """Forward passes over the client's training data; a gradient counts as three."""
        return 1.0

    def cost(self, answers: Values) -> Values:
        """Forward passes that each of these answers [n] or [n, numbers] took, float64 [n]."""
        return np.full(len(answers), self.passes)

    @property
    def discloses(self) -> str:
        """What the server learns about the client, given this question's settings."""
        return self.reveals

    def to_json(self) -> dict[str, object]:
        """A JSON description for another process; :data:`QUESTIONS` maps its ``kind`` to the class."""
        return {"kind": type(self).__name__, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "Question":
        """The question that :meth:`to_json` described."""
        fields = dict(value)
        return QUESTIONS[fields.pop("kind")](**fields)


@dataclass(frozen=True)
class LocalLoss(Question):
    """Mean cross-entropy (squared error of numeric labels) of the current model on the client's training data.

    Attributes:
        batch: use one random mini-batch of this size instead of all training data; 0 means all.
    """

    reveals: ClassVar[str] = "the mean loss of the current model on its training data"
    batch: int = 0

    def __post_init__(self) -> None:
        if type(self.batch) is bool or not isinstance(self.batch, int | np.integer) or self.batch < 0:
            raise UsageError(
                f"LocalLoss(batch = {shown(self.batch)}): must be an integer of at least 0; 0 means all samples"
            )

    @property
    def passes(self) -> float:
        """One pass over all training data; the cost of a single mini-batch is counted as 0."""
        return 0.0 if self.batch else 1.0

    @property
    def discloses(self) -> str:
        """The loss on all training data, or on a mini-batch."""
        return (
            f"the mean loss of the current model on {self.batch} of its training samples"
            if self.batch
            else self.reveals
        )


@dataclass(frozen=True)
class LocalAccuracy(Question):
    """Share of the client's own samples that the current model classifies correctly, judged by the client's labels.

    With numeric labels, the score is 1 − the mean squared error on these samples, in units of the variance of all training labels.

    Attributes:
        held_out: use the samples that the client holds out instead of its training data.
    """

    reveals: ClassVar[str] = "the accuracy of the current model on its data"
    held_out: bool = False


@dataclass(frozen=True)
class Speed(Question):
    """The time that the client expects to need for this round's nominal work: computation, and communication (down and up).

    A client can answer before it has ever taken part, and without the model. In a simulation the clock answers.
    """

    reveals: ClassVar[str] = "how long it expects to compute and to send"
    downloads_model: ClassVar[bool] = False
    numbers: ClassVar[int] = 2

    @property
    def passes(self) -> float:
        """Zero: the client does not evaluate the model."""
        return 0.0


@dataclass(frozen=True)
class Context(Question):
    """Two losses for a contextual bandit: a loss of the current model on the client's training data, and the cross-entropy on its
    held-out samples (on its training data if it holds out none).

    Attributes:
        loss: ``ce`` for the cross-entropy, or ``robust`` for FLASH's loss, with the model's own outputs as pseudo-labels.
        alpha, beta, log_zero: settings of the robust loss; see :class:`fedcohort.algorithms.losses.Robust`.
    """

    reveals: ClassVar[str] = "the losses of the current model on its training and on its held-out data"
    numbers: ClassVar[int] = 2
    loss: str = "ce"
    alpha: float = 0.1
    beta: float = 4.0
    log_zero: float = -4.0

    @property
    def passes(self) -> float:
        """One pass over the training data, and 0.25 for the held-out samples, which are a quarter as many with an 80/20 split."""
        return 1.25


@dataclass(frozen=True)
class LossChange(Question):
    """The change that one round of training makes to the mean loss of the model on the client's training data.

    The round runs on a copy of the model: the participants train as in any other round, the run's algorithm merges their updates,
    and every asked client compares its losses before and after. Then the copy is discarded. The ledger lists this training under
    the kind ``LossChange`` as well.

    Attributes:
        participants: ids of the clients that train.
    """

    reveals: ClassVar[str] = "the change of its mean loss over a round of training that is thrown away"
    participants: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "participants", tuple(self.participants))

    @property
    def passes(self) -> float:
        """One pass before the round and one after it; the ledger counts the training separately."""
        return 2.0


@dataclass(frozen=True)
class GradientNorm(Question):
    """‖∇F_i(w^t)‖₂: the norm of the full gradient of the mean cross-entropy on the client's training data, in evaluation mode."""

    reveals: ClassVar[str] = "the norm of the current model's gradient on its training data"

    @property
    def passes(self) -> float:
        """One gradient over the training data, which counts as three forward passes."""
        return 3.0


@dataclass(frozen=True)
class UpdateNorm(Question):
    """‖Δ_i‖₂, the norm of the client's update after this round's local training, and the cost of that training.

    Every asked client trains a copy of the model; its memory stays as it was. A client that is then selected sends exactly the
    update for which it reported the norm. An answer is two numbers: the norm over the trainable parameters, and the forward passes of
    the training.
    """

    reveals: ClassVar[str] = "the norm of its update"
    numbers: ClassVar[int] = 2
    trains: ClassVar[bool] = True

    @property
    def passes(self) -> float:
        """NaN: the cost of the training is known only from the answers."""
        return float("nan")

    def cost(self, answers: Values) -> Values:
        """Forward passes of the training, as the clients reported them."""
        return np.nan_to_num(answers[:, 1], nan=0.0, posinf=0.0, neginf=0.0)


QUESTIONS: dict[str, type[Question]] = {
    "LocalLoss": LocalLoss,
    "LocalAccuracy": LocalAccuracy,
    "Speed": Speed,
    "Context": Context,
    "LossChange": LossChange,
    "GradientNorm": GradientNorm,
    "UpdateNorm": UpdateNorm,
}
"""Every question by name. To add one, list it here and compute its answer in ``training/answers.py``, or in
``training/trial_training.py`` if it trains."""
