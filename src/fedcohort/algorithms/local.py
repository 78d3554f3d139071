"""How a client trains: the ``[training]`` section."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt

from fedcohort.parameters import parameters

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
    weight_decay: Annotated[float, Ge(0)] = 0.0
    """L2 penalty (sgd, adam) or decoupled decay (adamw)."""
    precision: Literal["float32", "float64"] = "float32"
    """Number format of parameters and gradients."""
