"""Steps of plain or momentum SGD for a stack of clients on a chain of linear layers, without writing a gradient out.

A layer steps by ``W.baddbmm_(δᵀ, H, alpha=−η)``. The first layer's inputs are the samples, which stay the same while a client trains,
so its weights are at any time W + AᵀX, of the W that all received and a row of A for each sample of the client:

    Z = X Wᵀ                                                  once, for all samples of all clients
    a step on the rows s:  outputs Z_s + (X_s Xᵀ) A;  A_s −= η δ          with momentum:  V = μV, V_s += δ;  A −= η V
    W_i = W + AᵀX                                             once for each client, when somebody looks at it
    Σ a_i W_i = W + (a·A)ᵀX                                   once for all clients, for a mean with Σ a_i = 1

The weights of a client, which no cache can hold for all of them, are then written at most once, where every step would read them twice
and write them; the large products have more rows; and passes after the first cost next to nothing. It pays while a client has few
samples, see :func:`few_samples`; otherwise the first layer steps as all do. Ours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedcohort.algorithms import ModelState, Tensors
from fedcohort.core.arrays import Indices
from fedcohort.training.networks import Chain, Linear, Slope, outputs
from fedcohort.training.products import linear

__all__ = ["Descent", "Extent", "Models", "Samples", "Visits", "Weights", "few_samples"]

TRAFFIC = 48
"""Operations of a product in the time in which a weight that no cache holds is read twice and written."""
SAMPLES_BYTES = 2**26, 2**31
"""Samples of one stack that are held at once, at most, on a CPU and on a GPU."""


@dataclass(frozen=True)
class Extent:
    """How much the clients of a stack do, each at most: steps, samples of a batch, samples it has, and whether it sees one again."""

    clients: int
    steps: int
    batch: int
    samples: int
    again: bool


@dataclass(frozen=True)
class Visits:
    """Which samples the clients of a stack visit, most steps first.

    Attributes:
        positions: in the client's training part, int64 [g, S, B]; steps and batches that are not full are padded with 0.
        counts: samples of each batch, int64 [g, S]; 0 where a client makes no such step.
        sizes: samples of each client, int64 [g].
    """

    positions: Indices
    counts: Indices
    sizes: Indices

    @staticmethod
    def of(batches: Sequence[Sequence[Indices]], sizes: Indices) -> "Visits":
        """Of each client's batches."""
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
        """Steps in which nobody visits a sample again."""
        again = (self.counts > 0) & (np.cumsum(self.counts, axis=1) > self.sizes[:, None])
        return int(np.append(np.any(again, axis=0), True).argmax())

    @property
    def places(self) -> int:
        """Samples of all clients, if each had as many as the one with most: g·n."""
        return len(self.sizes) * int(self.sizes.max())

    @property
    def extent(self) -> Extent:
        """How much that is."""
        clients, steps, batch = self.positions.shape
        return Extent(clients, steps, batch, int(self.sizes.max()), again=self.first_pass < steps)


def few_samples(inputs: int, width: int, extent: Extent, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the first layer, from ``inputs`` numbers to ``width``, is better carried through the samples than as weights."""
    n, steps, batch = extent.samples, extent.steps, extent.batch
    if extent.clients * n * inputs * dtype.itemsize > SAMPLES_BYTES[device.type != "cpu"]:
        return False
    products = n * n * inputs * (2 if extent.again else 1)
    by_samples = (4 * n + TRAFFIC) * inputs * width + products + 2 * steps * batch * n * width
    return bool(by_samples < steps * (4 * batch + TRAFFIC) * inputs * width)


class Descent:
    """Advances a stack of clients, in place, a step at a time.

    Args:
        chain: the network.
        received: the model that all begin with.
        parameters: of the stack, [g, …] by name; without the first layer's weight, if that is carried through the samples.
        first: how the first layer does it.
        lr, momentum: of SGD.
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
        """Step number ``step`` of the ``active`` first clients; ``slope`` is called once, with their logits."""
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
    """The first layer's weights, as all layers have them.

    Args:
        layer: the first.
        load: inputs [active, B, …] of a step.
    """

    def __init__(self, layer: Linear, load: Callable[[int, int], Tensor]) -> None:
        self.layer, self.load = layer, load
        self.inputs = torch.empty(0)

    def outputs(self, parameters: Tensors, step: int, active: int) -> Tensor:
        """Before ReLU, [active, B, out]."""
        self.inputs = self.load(step, active).flatten(2)
        return outputs(self.layer, parameters, self.inputs)


class Samples:
    """The first layer's weights through the samples: W + AᵀX.

    Args:
        layer: the first.
        received: the model that all begin with.
        visits: what the clients do; everybody makes a step.
        fill: writes the samples of the clients at these positions [g, n] to ``space``.
        space: ``X``, samples [g·n, in], and ``A`` and ``Z`` [g·n, out].
        largest: no entry of a sample is larger.
    """

    def __init__(
        self,
        layer: Linear,
        received: ModelState,
        visits: Visits,
        fill: Callable[[Indices], None],
        space: Tensors,
        largest: float,
    ) -> None:
        self.layer, self.visits, self.received, self.largest = layer, visits, received[layer.weight], largest
        g, steps, self.batch = visits.positions.shape
        self.n = n = int(visits.sizes.max())
        # samples stand in the order of each client's first pass, so that the batches of that pass are neighbours
        order = np.where(np.arange(n) < visits.sizes[:, None], visits.positions.reshape(g, -1)[:, :n], 0)
        fill(order)
        self.X, self.A = space["X"].view(g, n, -1), space["A"].view(g, n, -1).zero_()
        self.Z = space["Z"].copy_(linear(space["X"], self.received)).view(g, n, -1)
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
        """Before ReLU, [active, B, out]."""
        self.active, first_pass = active, step < self.visits.first_pass
        if first_pass:
            begin = step * self.batch
            self.at: slice | Tensor = slice(begin, begin + int(self.visits.counts[:active, step].max()))
            found, seen = self.Z[:active, self.at], slice(0, begin)
        else:
            self.at = self.rows[:active, step, : int(self.visits.counts[:active, step].max())]
            found, seen = self.Z.flatten(0, 1)[self.at], slice(0, self.n)
        found = found.clone() if self.layer.bias is None else found + parameters[self.layer.bias][:, None]
        if seen.stop:
            found.baddbmm_(self._with(seen), self.A[:active, seen])
        return found

    def _with(self, seen: slice) -> Tensor:
        """Inner products of the batch's samples with those in ``seen``, [active, B, seen]."""
        if isinstance(self.at, Tensor):
            assert self.products is not None
            return self.products.flatten(0, 1)[self.at]
        if self.products is not None:
            return self.products[: self.active, self.at, seen]
        return torch.bmm(self.X[: self.active, self.at], self.X[: self.active, seen].transpose(1, 2))

    def move(self, delta: Tensor, lr: float, momentum: float) -> None:
        """A step against δ [active, B, out]."""
        if not momentum:
            self._add(self.A, delta, -lr)
            return
        if self.V is None:
            self.V = torch.zeros_like(self.A)
        self.V[: self.active].mul_(momentum)
        self._add(self.V, delta, 1.0)
        self.A[: self.active].add_(self.V[: self.active], alpha=-lr)

    def _add(self, to: Tensor, delta: Tensor, alpha: float) -> None:
        if isinstance(self.at, slice):
            to[: self.active, self.at].add_(delta, alpha=alpha)
        else:
            to.view(-1, to.shape[2]).index_add_(0, self.at.flatten(), delta.flatten(0, 1), alpha=alpha)

    def weight_of(self, i: int) -> Tensor:
        """W + AᵀX of one client, [out, in]."""
        size = int(self.visits.sizes[i])
        return linear(self.A[i, :size].T, self.X[i, :size].T).add_(self.received)


class Models:
    """Models of a stack whose first layer is carried through the samples (:class:`fedcohort.algorithms.updates.ModelGroup`).

    Args:
        received: the model that all began with.
        first: the first layer.
        others: all other parameters, [g, …] by name.
    """

    def __init__(self, received: ModelState, first: Samples, others: Tensors) -> None:
        self.received, self.first, self.others = received, first, others
        self.size = len(first.A)
        self.num_bytes = sum(value.nbytes for value in received.values())
        self._finite: list[bool] = []
        self._bounds: list[float] = []

    def state_of(self, position: int) -> ModelState:
        """The model of the client at this position."""
        own = {name: value[position].clone() for name, value in self.others.items()}
        own[self.first.layer.weight] = self.first.weight_of(position)
        return {name: own[name] for name in self.received}

    def is_finite(self, position: int) -> bool:
        """Whether all its entries are; they are written out only if the first layer's are beyond any doubt too large to tell."""
        if not self._finite[position]:  # of the other layers
            return False
        if self._bounds[position] < torch.finfo(self.first.A.dtype).max / 4:
            return True
        return bool(torch.isfinite(self.first.weight_of(position)).all())

    def settle(self) -> None:
        """The steps are done: what :meth:`is_finite` has to know is worked out by the thread that did them."""
        first = self.first
        others = [value.flatten(1).abs().amax(1) for value in self.others.values()]  # NaN where a number is
        self._finite = torch.stack(others).isfinite().all(0).tolist() if others else [True] * self.size
        largest = first.A.flatten(1).abs().amax(1).double() * (first.largest * first.n)
        self._bounds = (largest + float(first.received.abs().max())).tolist()

    def mean(self, weights: Mapping[int, float]) -> ModelState:
        """Σ a_i w_i/Σ a_i, from differences, so that the mean of identical models is that model exactly."""
        first, total = self.first, sum(weights.values())
        device = first.A.device
        who = torch.tensor(list(weights), device=device)
        shares = torch.tensor([a / total for a in weights.values()], dtype=first.A.dtype, device=device)
        everybody = len(weights) == len(first.A) and list(weights) == list(range(len(first.A)))
        A, X = (first.A, first.X) if everybody else (first.A[who], first.X[who])
        A = A * shares[:, None, None]
        own = {name: _mean(value[who], shares) for name, value in self.others.items()}
        own[first.layer.weight] = linear(A.flatten(0, 1).T, X.flatten(0, 1).T).add_(first.received)
        return {name: own[name] for name in self.received}


def _mean(values: Tensor, shares: Tensor) -> Tensor:
    mean: Tensor = values[0] + torch.tensordot(shares, values - values[0], dims=1)
    return mean
