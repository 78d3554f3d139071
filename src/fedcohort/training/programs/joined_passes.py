"""Forward passes of a perceptron on the samples of several clients, with the bits of a pass for each client."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from fedcohort.core.threads import one_thread
from fedcohort.training.programs.plain_layers import Layer
from fedcohort.training.reused_memory import ALIGNMENT

__all__ = ["JoinedPasses"]

Outputs = Callable[[list[Layer], list[Tensor], Tensor, list[int]], Tensor]

JOINED = 256
"""Samples of a joined pass. All joined passes have this number, so that their products have the same shapes."""
SHIFTS = 1, 7, 100
"""By how many places the samples of a joined pass are shifted to see whether their outputs depend on their places."""


class JoinedPasses:
    """Computes the outputs of several parts of a batch in passes of :data:`JOINED` samples, where the bits are the same.

    A product has a row for each sample, and most libraries compute all rows alike. Some do not: a product with a vector, or another
    library for small products, rounds differently. Each size of a part is therefore tried on random samples and weights before parts
    of that size are joined.

    Args:
        outputs: computes the outputs of a network, given its layers and parameters, on the parts of a batch between neighboring edges,
            one part at a time.
        layers, values: the network: linear layers, activations, Flatten and Dropout.
    """

    def __init__(self, outputs: Outputs, layers: list[Layer], values: list[Tensor]) -> None:
        self._outputs, self._layers, self._values = outputs, layers, values
        # a ReLU before the first linear layer changes the inputs in place, and some samples are passed twice
        own = [layer.kind for layer in layers if layer.kind not in ("flatten", "contiguous", "dropout")]
        self._suits = own[:1] == ["linear"]
        self._same: dict[int, bool] = {}
        self._sample: torch.Size | None = None
        self._tried: tuple[Tensor, list[Tensor], Tensor] | None = None

    def outputs(self, x: Tensor, edges: Sequence[int]) -> Tensor:
        """The outputs [n, K] on the parts between neighboring edges, with the bits of one pass for each part."""
        parts = list(pairwise(edges))
        if not self._suits or len(parts) < 2 or len(x) < JOINED or x[0].nbytes % ALIGNMENT or not x.is_contiguous():
            return self._alone(x, edges)
        others = [part for part in parts if not self._same_bits(part[1] - part[0], x)]
        if 2 * sum(stop - start for start, stop in others) > len(x):
            return self._alone(x, edges)
        found = self._joined(x)
        for start, stop in others:
            found[start:stop] = self._alone(x[start:stop], [0, stop - start])
        return found

    def _alone(self, x: Tensor, edges: Sequence[int]) -> Tensor:
        return self._outputs(self._layers, self._values, x, list(edges))

    def _joined(self, x: Tensor) -> Tensor:
        """Outputs in joined passes; the last one begins with samples of the pass before if samples are left."""
        rest = len(x) % JOINED
        full = self._alone(x[: len(x) - rest], range(0, len(x) - rest + 1, JOINED))
        return torch.cat([full, self._alone(x[-JOINED:], [0, JOINED])[-rest:]]) if rest else full

    def _same_bits(self, size: int, like: Tensor) -> bool:
        """Whether a part of this size has the same bits alone as in a joined pass; ``like`` has the shape and type of samples."""
        if self._sample != like.shape[1:]:
            self._sample, self._tried, self._same = like.shape[1:], self._trial(like), {}
        if size not in self._same:
            if self._tried is None or size > JOINED:
                return False
            samples, weights, expected = self._tried
            # as many parts as there are: the few outputs of one part can be the same by chance
            whole = JOINED // size * size
            with one_thread():
                found = self._outputs(self._layers, weights, samples[:whole].clone(), list(range(0, whole + 1, size)))
            self._same[size] = torch.equal(found, expected[:whole])
        return self._same[size]

    def _trial(self, like: Tensor) -> tuple[Tensor, list[Tensor], Tensor] | None:
        """Random samples, weights and the outputs of a joined pass; None if outputs depend on the places of samples."""
        draw = torch.Generator().manual_seed(0)
        samples = torch.randn((JOINED, *like.shape[1:]), generator=draw).to(like.dtype)
        weights = [
            torch.randn(value.shape, generator=draw).to(value.dtype) / max(1, value[0].numel()) ** 0.5
            for value in self._values
        ]

        def joined(x: Tensor) -> Tensor:
            return self._outputs(self._layers, weights, x, [0, JOINED])

        with one_thread():
            expected = joined(samples.clone())
            alike = all(torch.equal(joined(samples.roll(by, 0)), expected.roll(by, 0)) for by in SHIFTS)
        return (samples, weights, expected) if alike else None
