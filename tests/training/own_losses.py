"""Local losses as users write them."""

from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms import Loss
from fedcohort.selection import parameters

SEEN: list[float] = []
SMOOTHING = 0.1


@parameters
class Focal(Loss):
    """Counts samples less if the model is sure of their class."""

    gamma: Annotated[float, Ge(0)] = 2.0

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        losses = functional.cross_entropy(logits, labels, reduction="none")
        return (1 - (-losses).exp()) ** self.gamma * losses


class WeighedClasses(Loss):
    """Keeps the weights of the classes in a tensor."""

    def __init__(self) -> None:
        self.weights = torch.tensor([1.0, 2.0, 0.5, 1.0])

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        return functional.cross_entropy(logits, labels, weight=self.weights, reduction="none")


class ByModule(Loss):
    """Uses a loss of PyTorch with weights."""

    def __init__(self) -> None:
        self.criterion = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5, 1.0]), reduction="none", label_smoothing=0.1)

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        return self.criterion(logits, labels)


def smooth(labels: Tensor, classes: int) -> Tensor:
    """Labels as probabilities."""
    shares = functional.one_hot(labels, classes).float()
    return shares * (1 - SMOOTHING) + SMOOTHING / classes


class Smoothed(Loss):
    """Calls a function that reads a global name."""

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        return (logits.softmax(-1) - smooth(labels, logits.shape[-1])).square().sum(-1)


class Distilled(Loss):
    """Compares with the outputs of the received model."""

    needs_outputs: ClassVar[bool] = True

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        assert outputs is not None
        return functional.cross_entropy(logits, labels, reduction="none") - (outputs * logits.log_softmax(-1)).sum(-1)


class Noting(Loss):
    """Appends to a list."""

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        SEEN.append(1.0)
        return functional.cross_entropy(logits, labels, reduction="none")


class Counting(Loss):
    """Counts its calls, and computes with their number."""

    def __init__(self) -> None:
        self.calls = 0

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        self.calls += 1
        return functional.cross_entropy(logits, labels, reduction="none") / self.calls


class Fading(Loss):
    """Computes an attribute when it is read."""

    def __getattr__(self, name: str) -> Any:
        SEEN.append(1.0)
        return 1 / len(SEEN)

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        share: float = self.share
        return functional.cross_entropy(logits, labels, reduction="none") * share


class Printing(Loss):
    """Prints in a method of its own."""

    def note(self) -> None:
        print("a batch")

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        self.note()
        return functional.cross_entropy(logits, labels, reduction="none")


class Called(Loss):
    """Counts the calls of itself."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, losses: Tensor) -> Tensor:
        self.calls += 1
        return losses / self.calls

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        return self(functional.cross_entropy(logits, labels, reduction="none"))


class Scaled(Loss):
    """Reads an attribute of its class."""

    factor: ClassVar[float] = 1.0

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        return functional.cross_entropy(logits, labels, reduction="none") * self.factor


class Limited(Loss):
    """Raises an error for batches of four samples of the last class, which are rare."""

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        last = (labels == 3).long().sum().reshape(1) // 4
        return functional.cross_entropy(logits, labels, reduction="none") * torch.ones(1).index_select(0, last)


class HardHalf(Loss):
    """Only the samples of a batch with the larger losses."""

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        losses = functional.cross_entropy(logits, labels, reduction="none")
        return losses * (losses.detach() > losses.detach().median())


class Summed(Loss):
    """The sum of all losses in place of their mean."""

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        return functional.cross_entropy(logits, labels, reduction="none") * len(labels)


class MixedLabels(Loss):
    """Labels of other samples count as well, which are drawn."""

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        own, other = (functional.cross_entropy(logits, y, reduction="none") for y in (labels, shuffled(labels)))
        return 0.8 * own + 0.2 * other


class NoisyLogits(Loss):
    """Adds random numbers to the logits."""

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        return functional.cross_entropy(logits + 0.3 * torch.randn_like(logits), labels, reduction="none")


def shuffled(labels: Tensor) -> Tensor:
    """Labels in a random order."""
    return labels[torch.randperm(len(labels))]
