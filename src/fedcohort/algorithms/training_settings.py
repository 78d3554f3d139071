"""The settings of local training: the ``[training]`` section of an experiment."""

import math
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from fedcohort.algorithms.catalogue import LOSSES
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.parameters import NotInKey, make, parameters

if TYPE_CHECKING:
    from fedcohort.algorithms.losses import Loss

__all__ = ["Training"]


@parameters
class Training:
    """How a client trains in one round."""

    epochs: Annotated[int, Ge(1)] = 1
    """Passes over the client's training data (E)."""
    batch_size: Annotated[int, Ge(0)] = 16
    """Samples per step (B); 0 means all data of the client in one step. The last, shorter batch is kept."""
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """Local optimizer; it starts with fresh state in every round."""
    lr: Annotated[float, Gt(0)] = 0.05
    """Learning rate (η)."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Momentum of SGD; Adam and AdamW use their defaults (0.9, 0.999)."""
    nesterov: bool = False
    """Use Nesterov momentum (sgd)."""
    weight_decay: Annotated[float, Ge(0)] = 0.0
    """L2 penalty (sgd, adam) or decoupled decay (adamw)."""
    precision: Literal["float32", "float64"] = "float32"
    """Floating-point format of parameters and gradients."""
    lr_schedule: Literal["constant", "exponential", "step", "cosine"] = "constant"
    """How the learning rate changes with the round: never (constant), by the factor ``lr_decay`` in every round (exponential) or every
    ``lr_every`` rounds (step), or along a half cosine to 0 (cosine)."""
    lr_decay: Annotated[float, Gt(0), Le(1)] = 0.5
    """Factor of the schedules exponential and step."""
    lr_every: Annotated[int, Ge(1)] = 100
    """Rounds between two steps of the schedule step; rounds until the schedule cosine reaches 0."""
    augment: Annotated[Literal["none", "flip", "flip_shift"], NotInKey(("none",))] = "none"
    """Change training images at random in every pass: mirror them left to right (flip), or also shift them by up to 4 pixels
    (flip_shift). Evaluations and the clients' reports use the unchanged images."""
    clip_norm: Annotated[float, Ge(0)] = 0.0
    """Largest norm of a gradient; longer gradients are scaled down to it. 0 means no clipping."""
    loss: dict[str, Any] = field(default_factory=lambda: {"name": "ce"})
    """Local loss: ce, robust, sl, sce or double_softmax for classes, mse or huber for numeric labels, with its parameters."""

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov = true needs a momentum above 0")

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to change a setting, which would not be checked, and would hold for other clients and rounds, too.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"training.{name} = {shown(value)}: settings of training cannot be changed; make others with "
            f"dataclasses.replace(training, {name}=…), or experiment.with_overrides({{'training': {{{name!r}: …}}}})"
        )

    def build_loss(self) -> "Loss":
        """The loss that clients minimize.

        Raises:
            UsageError: there is no loss of that name, or a parameter of it is not valid.
        """
        values = dict(self.loss)
        loss_class = LOSSES.find(values.pop("name", "ce"), "training.loss.name")
        loss: Loss = make(loss_class, values, "training.loss")
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
