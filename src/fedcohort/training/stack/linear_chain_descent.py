"""Steps of plain or momentum SGD for a stack of clients on a chain of linear layers, without computing gradients separately.

A layer steps by ``W.baddbmm_(δᵀ, H, alpha=−η)``. The inputs of the first layer are the samples, which stay the same while a client
trains. Its weights are therefore at any time W + AᵀX, where all clients received W, and A has a row for each sample of the client:

    Z = X Wᵀ                                                  once, for all samples of all clients
    a step on the rows s:  outputs Z_s + (X_s Xᵀ) A;  A_s −= η δ          with momentum:  V = μV, V_s += δ;  A −= η V
    W_i = W + AᵀX                                             once for each client, when its model is read
    Σ a_i W_i = W + (a·A)ᵀX                                   once for all clients, for a mean with Σ a_i = 1

No cache can hold the weights of all clients. This way they are written at most once, while otherwise every step reads them twice and
writes them once. The large products have more rows, and epochs after the first cost next to nothing. This is faster while a client
has few samples, see :func:`few_samples`; otherwise the first layer steps like all others. The method is FedCohort's own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedcohort.algorithms import ModelState, Tensors
from fedcohort.core.arrays import Indices
from fedcohort.core.sums import for_sums
from fedcohort.training.matrix_products import linear
from fedcohort.training.stack.stacked_networks import Chain, Linear, Slope, outputs

__all__ = ["Descent", "Extent", "Models", "Samples", "Visits", "Weights", "few_samples"]

TRAFFIC = 48
"""Operations of a matrix product in the time that it takes to read a weight twice and write it once outside the cache."""
FULL = 0.8
"""Share of places with samples below which padding is left out of the product of all samples with the received weights."""
SAMPLES_BYTES = 2**26, 2**31
"""Maximum bytes of the samples of one stack that are held at once, on a CPU and on a GPU."""


@dataclass(frozen=True)
class Extent:
    """How much work the clients of a stack do.

    Attributes:
        clients: number of clients.
        steps, batch, samples: largest number of steps, of samples in a batch, and of samples of any client.
        again: whether a client visits a sample more than once.
    """

    clients: int
    steps: int
    batch: int
    samples: int
    again: bool


@dataclass(frozen=True)
class Visits:
    """The samples that the clients of a stack visit; clients with most steps first.

    Attributes:
        positions: the samples of every batch, as positions in the client's training part, int64 [g, S, B]; missing steps and short
            batches are padded with 0.
        counts: number of samples in each batch, int64 [g, S]; 0 for missing steps.
        sizes: number of samples of each client, int64 [g].
    """

    positions: Indices
    counts: Indices
    sizes: Indices

    @staticmethod
    def of(batches: Sequence[Sequence[Indices]], sizes: Indices) -> "Visits":
        """The visits for each client's batches."""
        steps = max(map(len, batches))
        width = max((len(rows) for own in batches for rows in own), default=1)
        positions = np.zeros((len(batches), steps, width), dtype=np.int64)
        counts = np.zeros((len(batches), steps), dtype=np.int64)
        for i, own in enumerate(batches):
            for step, rows in enumerate(own):
                positions[i, step, : len(rows)] = rows
                counts[i, step] = len(rows)
        return Visits(positions, counts, sizes)

    @cached_property
    def first_pass(self) -> int:
        """Number of first steps in which no client visits a sample again."""
        again = (self.counts > 0) & (np.cumsum(self.counts, axis=1) > self.sizes[:, None])
        return int(np.append(np.any(again, axis=0), True).argmax())

    @property
    def places(self) -> int:
        """Number of samples that all clients would have if each had as many as the largest one: g·n."""
        return len(self.sizes) * int(self.sizes.max())

    @property
    def extent(self) -> Extent:
        """How much the clients do."""
        clients, steps, batch = self.positions.shape
        return Extent(clients, steps, batch, int(self.sizes.max()), again=self.first_pass < steps)


def few_samples(inputs: int, width: int, extent: Extent, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether steps are faster with the first layer, from ``inputs`` numbers to ``width``, as a combination of samples."""
    n, steps, batch = extent.samples, extent.steps, extent.batch
    if extent.clients * n * inputs * dtype.itemsize > SAMPLES_BYTES[device.type != "cpu"]:
        return False
    products = n * n * inputs * (2 if extent.again else 1)
    by_samples = (4 * n + TRAFFIC) * inputs * width + products + 2 * steps * batch * n * width
    return bool(by_samples < steps * (4 * batch + TRAFFIC) * inputs * width)


class Descent:
    """Advances a stack of clients, in place, one step at a time.

    Args:
        chain: the network.
        received: the model that all clients begin with.
        parameters: the stack's parameters, [g, …] by name; without the first layer's weight if that is a combination of samples.
        first: the first layer.
        lr, momentum: learning rate and momentum of SGD.
    """

    def __init__(
        self,
        chain: Chain,
        received: ModelState,
        parameters: Tensors,
        first: "Weights | Samples",
        lr: float,
        momentum: float,
    ) -> None:
        self.chain, self.parameters, self.first, self.lr, self.momentum = chain, parameters, first, lr, momentum
        for name, value in parameters.items():
            value.copy_(received[name])
        self.speeds = {name: torch.zeros_like(value) for name, value in parameters.items()} if momentum else {}

    def step(self, step: int, active: int, slope: Slope) -> None:
        """Take step number ``step`` with the first ``active`` clients; ``slope`` is called once, with their logits."""
        own = {name: value[:active] for name, value in self.parameters.items()}
        speeds = {name: value[:active] for name, value in self.speeds.items()}

        def move(layer: Linear, inputs: Tensor, delta: Tensor) -> None:
            if layer.weight not in speeds:
                own[layer.weight].baddbmm_(delta.transpose(1, 2), inputs, alpha=-self.lr)
            else:
                speed = speeds[layer.weight].baddbmm_(delta.transpose(1, 2), inputs, beta=self.momentum)
                own[layer.weight].add_(speed, alpha=-self.lr)
            move_bias(layer, delta)

        def move_bias(layer: Linear, delta: Tensor) -> None:
            if layer.bias is None:
                return
            change = delta.sum(dim=1)
            if layer.bias in speeds:
                change = speeds[layer.bias].mul_(self.momentum).add_(change)
            own[layer.bias].add_(change, alpha=-self.lr)

        first = self.chain.layers[0]
        hidden = self.chain.forward(own, self.first.outputs(own, step, active))
        delta = self.chain.backward(own, hidden, slope, move)
        if isinstance(self.first, Weights):
            move(first, self.first.inputs, delta)
        else:
            self.first.move(delta, self.lr, self.momentum)
            move_bias(first, delta)


class Weights:
    """A first layer with weights, like all other layers.

    Args:
        layer: the first layer.
        load: returns inputs [active, B, …], given a step and the number of active clients.
    """

    def __init__(self, layer: Linear, load: Callable[[int, int], Tensor]) -> None:
        self.layer, self.load = layer, load
        self.inputs = torch.empty(0)

    def outputs(self, parameters: Tensors, step: int, active: int) -> Tensor:
        """Outputs before ReLU, [active, B, out]."""
        self.inputs = self.load(step, active).flatten(2)
        return outputs(self.layer, parameters, self.inputs)


class Samples:
    """A first layer as a combination of samples: its weights are W + AᵀX.

    Args:
        layer: the first layer.
        received: the model that all clients begin with.
        visits: the samples that the clients visit; every client makes a step.
        fill: writes samples to a part of ``X`` in ``space``, given the number of the first client, the positions [clients, n] of the
            samples, and the part.
        space: memory for ``X``, the samples [g·n, in], and for ``A`` and ``Z`` [g·n, out].
        largest: upper bound of the absolute values of all samples.
    """

    def __init__(
        self,
        layer: Linear,
        received: ModelState,
        visits: Visits,
        fill: Callable[[int, Indices, Tensor], None],
        space: Tensors,
        largest: float,
    ) -> None:
        self.layer, self.visits, self.received, self.largest = layer, visits, received[layer.weight], largest
        g, steps, self.batch = visits.positions.shape
        self.n = n = int(visits.sizes.max())
        # samples are in the order of each client's first epoch, so that the batches of that epoch are contiguous
        order = np.where(np.arange(n) < visits.sizes[:, None], visits.positions.reshape(g, -1)[:, :n], 0)
        self.X, self.A = space["X"].view(g, n, -1), space["A"].view(g, n, -1).zero_()
        self.Z = space["Z"].view(g, n, -1)
        if visits.sizes.sum() < FULL * g * n:
            for i, size in enumerate(visits.sizes.tolist()):
                fill(i, order[i : i + 1, :size], self.X[i, :size])
                self.Z[i, :size] = linear(self.X[i, :size], self.received)
                self.X[i, size:] = 0
                self.Z[i, size:] = 0
        else:
            fill(0, order, space["X"])
            space["Z"].copy_(linear(space["X"], self.received))
        self.V: Tensor | None = None
        self.products: Tensor | None = None
        if visits.first_pass < steps:
            self.products = torch.bmm(self.X, self.X.transpose(1, 2))
            place = np.zeros((g, n), dtype=np.int64)
            for i, size in enumerate(visits.sizes):
                place[i, order[i, :size]] = np.arange(size)
            rows = np.take_along_axis(place, visits.positions.reshape(g, -1), axis=1) + np.arange(g)[:, None] * n
            self.rows = torch.from_numpy(rows.reshape(visits.positions.shape)).to(self.X.device)

    def outputs(self, parameters: Tensors, step: int, active: int) -> Tensor:
        """Outputs before ReLU, [active, B, out]."""
        self.active, first_pass = active, step < self.visits.first_pass
        if first_pass:
            begin = step * self.batch
            self.at: slice | Tensor = slice(begin, begin + int(self.visits.counts[:active, step].max()))
            values, seen = self.Z[:active, self.at], slice(0, begin)
        else:
            self.at = self.rows[:active, step, : int(self.visits.counts[:active, step].max())]
            values, seen = self.Z.flatten(0, 1)[self.at], slice(0, self.n)
        values = values.clone() if self.layer.bias is None else values + parameters[self.layer.bias][:, None]
        if seen.stop:
            values.baddbmm_(self._products_with(seen), self.A[:active, seen])
        return values

    def _products_with(self, seen: slice) -> Tensor:
        """Inner products of the batch's samples with the samples in ``seen``, [active, B, seen]."""
        if isinstance(self.at, Tensor):
            assert self.products is not None
            return self.products.flatten(0, 1)[self.at]
        if self.products is not None:
            return self.products[: self.active, self.at, seen]
        return torch.bmm(self.X[: self.active, self.at], self.X[: self.active, seen].transpose(1, 2))

    def move(self, delta: Tensor, lr: float, momentum: float) -> None:
        """Take a step for δ [active, B, out]."""
        if not momentum:
            self._add(self.A, delta, -lr)
            return
        if self.V is None:
            self.V = torch.zeros_like(self.A)
        self.V[: self.active].mul_(momentum)
        self._add(self.V, delta, 1.0)
        self.A[: self.active].add_(self.V[: self.active], alpha=-lr)

    def _add(self, to: Tensor, delta: Tensor, alpha: float) -> None:
        """Add ``alpha``·δ to the rows of the batch's samples."""
        if isinstance(self.at, slice):
            to[: self.active, self.at].add_(delta, alpha=alpha)
        else:
            to.view(-1, to.shape[2]).index_add_(0, self.at.flatten(), delta.flatten(0, 1), alpha=alpha)

    def weight_of(self, i: int) -> Tensor:
        """W + AᵀX of one client, [out, in]."""
        size = int(self.visits.sizes[i])
        return linear(self.A[i, :size].T, self.X[i, :size].T).add_(self.received)


class Models:
    """Models of a stack in which the first layer is a combination of samples (:class:`fedcohort.algorithms.updates.ModelGroup`).

    Args:
        received: the model that all clients began with.
        first: the first layer.
        others: all other parameters, [g, …] by name.
    """

    def __init__(self, received: ModelState, first: Samples, others: Tensors) -> None:
        self.received, self.first, self.others = received, first, others
        self.size = len(first.A)
        self.num_bytes = sum(value.nbytes for value in received.values())
        self.mixed_with = 0
        self._finite: list[bool] = []
        self._bounds: list[float] = []

    def state_of(self, position: int) -> ModelState:
        """The model of the client at this position."""
        own = {name: value[position].clone() for name, value in self.others.items()}
        own[self.first.layer.weight] = self.first.weight_of(position)
        return {name: own[name] for name in self.received}

    def is_finite(self, position: int) -> bool:
        """Whether all entries of the client's model are finite.

        The first layer is computed only if a bound on its entries does not answer the question.
        """
        if not self._finite[position]:  # an entry of another layer is not finite
            return False
        if self._bounds[position] < torch.finfo(self.first.A.dtype).max / 4:
            return True
        return bool(torch.isfinite(self.first.weight_of(position)).all())

    def settle(self) -> None:
        """Compute what :meth:`is_finite` needs, in the thread that did the last step."""
        first = self.first
        others = [value.flatten(1).abs().amax(1) for value in self.others.values()]  # NaN if an entry is NaN
        self._finite = torch.stack(others).isfinite().all(0).tolist() if others else [True] * self.size
        largest = for_sums(first.A.flatten(1).abs().amax(1)) * (first.largest * first.n)
        self._bounds = (largest + float(first.received.abs().max())).tolist()

    def mean(self, weights: Mapping[int, float]) -> ModelState:
        """Σ a_i w_i/Σ a_i, computed from differences, so that the mean of identical models is that model exactly."""
        first, total = self.first, sum(weights.values())
        device = first.A.device
        positions = torch.tensor(list(weights), device=device)
        shares = torch.tensor([a / total for a in weights.values()], dtype=first.A.dtype, device=device)
        all_in_order = list(weights) == list(range(len(first.A)))
        A, X = (first.A, first.X) if all_in_order else (first.A[positions], first.X[positions])
        A = A * shares[:, None, None]
        own = {name: _mean(value[positions], shares) for name, value in self.others.items()}
        own[first.layer.weight] = linear(A.flatten(0, 1).T, X.flatten(0, 1).T).add_(first.received)
        return {name: own[name] for name in self.received}


def _mean(values: Tensor, shares: Tensor) -> Tensor:
    mean: Tensor = values[0] + torch.tensordot(shares, values - values[0], dims=1)
    return mean
