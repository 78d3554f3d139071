"""Networks with forward passes of their own: rows of layers, and others. pytest does not rewrite the code of this file."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import relu

SHAPE = (1, 8, 8)
HIDDEN = 20


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, HIDDEN), nn.Linear(HIDDEN, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.relu(self.first(x.flatten(1))))


class Looked(Perceptron):
    """Keeps activations in an attribute that no forward pass reads."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.relu(self.first(x.flatten(1)))
        self.hidden = hidden
        return self.last(hidden)


class BySize(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x.view(x.size(0), -1))))


class ByShape(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        batch, *sizes = x.shape
        return self.last(self.first(x.reshape((batch, math.prod(sizes)))).relu())


class ByNumbers(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        assert x.dim() == 4
        assert x.shape[1:] == SHAPE, "images"
        return self.last(relu(self.first(x.view(-1, 64)), inplace=True))


class ByHelpers(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.activation = functional.relu

    def hidden(self, x: Tensor) -> Tensor:
        return self.activation(self.first(flat(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.hidden(x))


def flat(x: Tensor) -> Tensor:
    return torch.flatten(x, start_dim=1)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1)
        self.pool, self.last = nn.MaxPool2d(2), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(functional.relu(self.one(x)))
        x = functional.relu(functional.max_pool2d(self.two(x), kernel_size=2))
        return self.last(torch.flatten(x, 1))


class Viewing(Convolutions):
    """Needs channels first."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(functional.relu(self.one(x)))
        x = self.pool(functional.relu(self.two(x)))
        return self.last(x.view(-1, 32))


class WithoutPooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.last = nn.Conv2d(1, 4, 3, stride=2), nn.Linear(36, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.relu(self.one(x)).flatten(1))


class Laid(WithoutPooling):
    """Says which layout it needs."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.relu(self.one(x)).contiguous().view(x.size(0), -1))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Sequential(nn.MaxPool2d(2), nn.Identity())
        )
        self.head = WithHead()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class WithHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(36, 12), nn.Linear(12, 12)])
        self.last, self.drop = nn.Linear(12, 10), nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in self.layers:
            x = self.drop(functional.relu(layer(x)))
        return self.last(functional.dropout(x, 0.0, self.training))


class Smooth(Convolutions):
    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(functional.gelu(self.one(x)))
        x = functional.gelu(self.pool(torch.tanh(self.two(x))), approximate="tanh")
        return self.last(x.flatten(1)).tanh()


class HeadFirst(nn.Module):
    """Its parameters are not in the order of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.hidden = nn.Linear(9, 10), nn.Linear(64, 9)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(functional.relu(self.hidden(x.contiguous().view(x.size(0), -1))))
        return outputs


class Own(nn.Sequential):
    """A class of one's own."""


ROWS: dict[str, Callable[[], nn.Module]] = {
    "perceptron": Perceptron,
    "looked at": Looked,
    "view by size": BySize,
    "head first": HeadFirst,
    "reshape by shape": ByShape,
    "view by numbers": ByNumbers,
    "helpers": ByHelpers,
    "convolutions": Convolutions,
    "view of channels": Viewing,
    "without pooling": WithoutPooling,
    "contiguous": Laid,
    "nested": Nested,
    "GELU and tanh": Smooth,
    "own class of Sequential": lambda: Own(nn.Flatten(), nn.Linear(64, 10)),
    "module in Sequential": lambda: nn.Sequential(Perceptron(), nn.ReLU(), nn.Linear(10, 10)),
}


class Residual(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        x = self.last(self.first(x.flatten(1)))
        return x + functional.relu(x)


class Branching(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return super().forward(-x if x.sum() > 0 else x)


class BranchingByBatch(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.flatten(1))
        return self.last(hidden if x.shape[0] > 10 else functional.relu(hidden))


class BranchingByLength(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.flatten(1))
        return self.last(hidden if len(x) > 10 else functional.relu(hidden))


class ForTwo(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(2, -1))


class BranchingByTraining(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.flatten(1))
        return self.last(functional.relu(hidden) if self.training else hidden)


class Chance(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.dropout(functional.relu(self.first(x.flatten(1))), 0.5, self.training))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer(functional.relu(self.layer(x.flatten(1)))))


class OneMore(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(1))


class Unused(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(3, 3)


class Constant(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))


class Counting(Constant):
    def forward(self, x: Tensor) -> Tensor:
        self.get_buffer("mean").add_(1)
        return super().forward(x)


class CountingInPython(Perceptron):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


KEPT: list[int] = []


class Keeping(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        KEPT.append(1)
        return self.last(functional.relu(self.first(x.flatten(1))))


class Inherits(Keeping):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class Printing(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        print("forward")
        return self.last(functional.relu(self.first(x.flatten(1))))


class Drawing(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        depth = int(np.random.randint(1, 2))  # noqa: NPY002
        return self.last(functional.relu(self.first(x.flatten(depth))))


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.relu(x)

    @staticmethod
    def backward(ctx: Any, *delta: Tensor) -> Tensor:
        return delta[0]


class OwnGradient(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.activation = StraightThrough.apply

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.activation(self.first(x.flatten(1))))


class OwnGradientOfClass(Perceptron):
    activation: Any = staticmethod(StraightThrough.apply)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.activation(self.first(x.flatten(1))))


class Frozen(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.first(x.flatten(1))
        return self.last(functional.relu(x))


class Detached(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.relu(self.first(x.flatten(1)).detach()))


class Doubling(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1))
        x.register_hook(lambda gradient: 2 * gradient)
        return self.last(functional.relu(x))


class Clipping(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        self.first.weight.data.clamp_(-1, 1)
        return self.last(functional.relu(self.first(x.flatten(1))))


class Another(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.relu(self.first(x.flatten(1)))
        self.last(hidden)
        return hidden


class Catching(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        try:
            x = 2 * x
        except Exception:
            x = x.flatten(1)
        return self.last(functional.relu(self.first(x.flatten(1))))


class ByInstance(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.forward = lambda x: self.last(self.first(x.flatten(1)))  # type: ignore[method-assign]


def watched() -> nn.Module:
    module = Nested()
    module.head.layers[0].register_forward_hook(lambda *_: None)
    return module


def tied() -> nn.Module:
    module = WithHead()
    module.layers[0], module.last = nn.Linear(64, 12), nn.Linear(12, 12)
    module.last.weight = module.layers[1].get_parameter("weight")
    return module


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "residual": Residual,
    "branch by values": Branching,
    "branch by batch": BranchingByBatch,
    "branch by length": BranchingByLength,
    "two samples": ForTwo,
    "branch by training": BranchingByTraining,
    "a layer twice": Twice,
    "a weight twice": tied,
    "a parameter more": OneMore,
    "a layer that is not used": Unused,
    "a buffer": Constant,
    "a buffer that changes": Counting,
    "counts in Python": CountingInPython,
    "keeps something": Keeping,
    "inherits what keeps something": Inherits,
    "prints": Printing,
    "draws": Drawing,
    "own gradient": OwnGradient,
    "own gradient, class attribute": OwnGradientOfClass,
    "without gradient": Frozen,
    "detached": Detached,
    "hook on activations": Doubling,
    "changes parameters": Clipping,
    "returns another result": Another,
    "catches errors": Catching,
    "forward of the instance": ByInstance,
    "hook on a layer": watched,
}
