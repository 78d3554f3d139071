"""Dropout in stacks of clients: every client's factors are drawn beforehand, and are those that the plan ``threads`` draws.

``torch.func.vmap`` could only draw for all clients from one generator. In a network that stacks run, every Dropout is therefore
replaced by a :class:`GivenDropout`, which multiplies its inputs by factors that :meth:`Dropouts.drawn` has drawn for it: with the
generator of each client and step, in the order in which the network calls its Dropout layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["Dropouts", "GivenDropout", "replace_dropouts"]


@dataclass(frozen=True)
class Dropouts:
    """The calls of Dropout in one forward pass, in order.

    Attributes:
        kept: share of the values that each call keeps.
        shapes: shape of one sample's values in each call.
    """

    kept: tuple[float, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()

    def drawn(
        self, generators: Sequence[torch.Generator], counts: Sequence[int], width: int, dtype: torch.dtype
    ) -> tuple[Tensor, ...]:
        """The factors of each call, [clients, width, …], for a batch of each client.

        Args:
            generators: the generator of each client's step.
            counts: number of samples in each client's batch; the factors of its other positions are 1.
            width: number of positions of a batch.
            dtype: number format of the network.
        """
        factors = tuple(torch.ones(len(counts), width, *shape, dtype=dtype) for shape in self.shapes)
        for client, (generator, count) in enumerate(zip(generators, counts, strict=True)):
            for kept, shape, every in zip(self.kept, self.shapes, factors, strict=True):
                layout = torch.channels_last if len(shape) == 3 else torch.contiguous_format  # as in the plan threads
                own = torch.empty(count, *shape, dtype=dtype, memory_format=layout)
                every[client, :count] = own.bernoulli_(kept, generator=generator).div_(kept)
        return factors


class GivenDropout(nn.Module):
    """Multiplies its inputs by factors that are given for each call; without factors, it returns its inputs.

    Args:
        kept: share of the values that Dropout keeps.
        calls: shared by all Dropouts of a network: the factors of the calls that follow.
        seen: shared, too: each call without factors adds ``kept`` and the shape of its inputs.
    """

    def __init__(self, kept: float, calls: list[Tensor], seen: list[tuple[float, torch.Size]]) -> None:
        super().__init__()
        self.kept, self.calls, self.seen = kept, calls, seen

    def forward(self, x: Tensor) -> Tensor:
        """The inputs, multiplied by the factors of this call."""
        if self.calls:
            return x * self.calls.pop(0)
        self.seen.append((self.kept, x.shape))
        return x


def replace_dropouts(module: nn.Module) -> GivenDropout | None:
    """Replace every Dropout with a probability above 0 in place; returns one of the new layers, or None if there is no Dropout."""
    calls: list[Tensor] = []
    seen: list[tuple[float, torch.Size]] = []
    made: dict[nn.Module, GivenDropout] = {}
    for parent in list(module.modules()):
        for name, part in parent.named_children():
            if type(part) is nn.Dropout and part.p > 0:
                made[part] = made.get(part) or GivenDropout(1 - part.p, calls, seen)
                setattr(parent, name, made[part])
    return next(iter(made.values()), None)
