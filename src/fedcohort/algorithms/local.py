"""How a client trains: the ``[training]`` section."""

import math
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from fedcohort.core.parameters import NotInKey, make, parameters

if TYPE_CHECKING:
    from fedcohort.algorithms.losses import Loss

__all__ = ["Training"]


@parameters
class Training:
    """Local training of one client in one round."""

    epochs: Annotated[int, Ge(1)] = 1
    """Passes over the client's training data (E)."""
    batch_size: Annotated[int, Ge(0)] = 16
    """Samples per step (B); 0 means all data of the client in one step. The last short batch is kept."""
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """Local optimiser; its state is fresh in every round."""
    lr: Annotated[float, Gt(0)] = 0.05
    """Learning rate (η)."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Momentum of SGD; Adam and AdamW use their own (0.9, 0.999)."""
    nesterov: bool = False
    """Nesterov momentum (sgd)."""
    weight_decay: Annotated[float, Ge(0)] = 0.0
    """L2 penalty (sgd, adam) or decoupled decay (adamw)."""
    precision: Literal["float32", "float64"] = "float32"
    """Number format of parameters and gradients."""
    lr_schedule: Literal["constant", "exponential", "step", "cosine"] = "constant"
    """How the learning rate depends on the round: lr·decay^(t−1), lr·decay every ``lr_every`` rounds, or a half cosine to 0."""
    lr_decay: Annotated[float, Gt(0), Le(1)] = 0.5
    """Factor of the schedules exponential and step."""
    lr_every: Annotated[int, Ge(1)] = 100
    """Rounds between two steps of schedule step; rounds until schedule cosine reaches 0."""
    augment: Annotated[Literal["none", "flip", "flip_shift"], NotInKey(("none",))] = "none"
    """Training images are changed at random in every pass: mirrored left to right, or also shifted by up to 4 pixels. What clients are
    asked, and every evaluation, is about the images as they are."""
    clip_norm: Annotated[float, Ge(0)] = 0.0
    """Gradients with a larger norm are scaled down to it; 0 means no clipping."""
    loss: dict[str, Any] = field(default_factory=lambda: {"name": "ce"})
    """What clients minimise: ce, robust, sl, sce or double_softmax, with its parameters."""

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov = true needs a momentum above 0")

    def build_loss(self) -> "Loss":
        """The local loss.

        Raises:
            UsageError: there is no such loss, or its parameters are wrong.
        """
        from fedcohort.algorithms import LOSSES

        values = dict(self.loss)
        found = LOSSES.find(values.pop("name", "ce"), "training.loss.name")
        loss: Loss = make(found, values, "training.loss")
        return loss

    def lr_at(self, t: int) -> float:
        """Learning rate of round ``t``, from 1."""
        match self.lr_schedule:
            case "exponential":
                return self.lr * self.lr_decay ** (t - 1)
            case "step":
                return self.lr * self.lr_decay ** ((t - 1) // self.lr_every)
            case "cosine":
                return self.lr * 0.5 * (1 + math.cos(math.pi * min((t - 1) / self.lr_every, 1.0)))
        return self.lr
