"""Local training of many clients at once: every parameter has a leading client axis, and one call advances all clients by a step.

Clients are ordered by their number of steps, so that those that are done leave the end of the stack; only a client's last short
batch is padded. Whatever the loop does to one client is done here to all of them: the algorithm's hooks, clipping, the optimiser,
which are elementwise but for clipping. How gradients come about is the matter of :mod:`fedcohort.training.networks`; where nobody
looks at them and the optimiser is plain or momentum SGD, a chain of linear layers takes its step without writing them out.

The arithmetic is that of :class:`fedcohort.training.local.Trainer` in another order: results agree to rounding, batches and steps
exactly. A client's last bits may depend on who else is in its stack; stacks are therefore cut the same way whatever the threads.
"""

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms import Algorithm, ModelState, Tensors, Update, per_client
from fedcohort.algorithms.base import takes_plain_steps
from fedcohort.algorithms.local import Training
from fedcohort.algorithms.losses import CrossEntropy, Loss
from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.core.streams import rngs
from fedcohort.federation.federation import Federation
from fedcohort.training.buffers import Buffers
from fedcohort.training.descent import Descent, Extent, Models, Samples, Visits, Weights, few_samples
from fedcohort.training.local import CHUNK, DTYPES, NO_STEP, sent, state_of
from fedcohort.training.networks import Chain, Network, network_of
from fedcohort.training.optimizers import build_optimizer, laid_out

__all__ = ["Stack", "cannot_stack"]

Memory = Mapping[str, Mapping[str, Tensor]]


def cannot_stack(module: nn.Module, federation: Federation, algorithm: Algorithm, training: Training) -> str | None:
    """Why this cannot be stacked, in words; None if it can."""
    if training.augment != "none":
        return "images are changed at random"
    name = type(algorithm).__name__
    if not _client_half_stacks(type(algorithm)):
        return f"the client half of {name} works on one client at a time"
    network = network_of(module.train(), state_of(module), federation.sample_shape)
    return network if isinstance(network, str) else None


class Stack:
    """Trains groups of clients of a federation, for what :func:`cannot_stack` allows. Threads may share it.

    Args:
        federation: whose data.
        module: the model, which is left as it is.
        training: the experiment's settings.
        algorithm: its client half.
        seed: of the experiment.

    Raises:
        UsageError: this cannot be stacked.
    """

    def __init__(
        self, federation: Federation, module: nn.Module, training: Training, algorithm: Algorithm, seed: int
    ) -> None:
        self.dtype = DTYPES[training.precision]
        module = module.to(dtype=self.dtype)
        reason = cannot_stack(module, federation, algorithm, training)
        network = network_of(module, state_of(module), federation.sample_shape)
        if reason is not None or isinstance(network, str):
            raise UsageError(f"engine.plan = 'stacked': {reason}; use 'threads'")
        self.network: Network = network
        self.module = module
        self.federation = federation
        self.algorithm = algorithm
        self.training = training = algorithm.local_training(training)
        self.loss = training.build_loss()
        self.seed = seed
        self.sizes = federation.num_samples
        self.buffers = Buffers()
        self.device = federation.device
        simple = training.optimizer == "sgd" and not (training.nesterov or training.weight_decay or training.clip_norm)
        self.fused = isinstance(network, Chain) and takes_plain_steps(algorithm) and simple
        """Whether steps are taken without writing gradients out."""
        self.unseen = self.fused and type(algorithm).finish is Algorithm.finish
        """Whether nobody looks at a client's model before it is sent."""

    def carries(self, clients: Indices, epochs: Indices | None, most: int) -> bool:
        """Whether stacks of at most ``most`` of these clients carry their first layer through the samples, see
        :mod:`fedcohort.training.descent`."""
        sizes = self.sizes[clients]
        passes = np.broadcast_to(self.training.epochs if epochs is None else epochs, sizes.shape)
        if not self.unseen or not isinstance(self.network, Chain) or not (sizes * passes).all():
            return False
        width, inputs = self.module.get_parameter(self.network.layers[0].weight).shape
        samples = int(sizes.max())
        batch = min(self.training.batch_size or samples, samples)
        steps = int((-(-sizes // batch) * passes).max())
        extent = Extent(min(len(clients), most), steps, batch, samples, again=bool((passes > 1).any()))
        return batch <= CHUNK and few_samples(inputs, width, extent, self.device, self.dtype)

    def train(
        self,
        model: ModelState,
        t: int,
        clients: Sequence[int],
        *,
        epochs: Sequence[int] | None = None,
        received: Memory | None = None,
        memories: Sequence[Memory] | None = None,
    ) -> list[tuple[Update, dict[str, Tensors]]]:
        """Train ``clients`` together in round ``t`` from ``model``; their updates and new memories in the order given.

        ``epochs``, ``received`` and ``memories`` as in :meth:`fedcohort.training.local.Trainer.train`, one entry a client.
        """
        settings = self.training
        sizes = self.sizes[list(clients)]
        passes = np.array([settings.epochs] * len(clients) if epochs is None else epochs)
        batch = settings.batch_size or int(sizes.max())
        steps = -(-sizes // batch) * passes
        order = np.argsort(-steps, kind="stable")
        orders = rngs(self.seed, "batches", t, [clients[i] for i in order])
        plans = [
            _Plan(clients[i], int(sizes[i]), batch, _batches(own, int(sizes[i]), int(passes[i]), batch))
            for i, own in zip(order, orders, strict=True)
        ]
        remembered = _stacked_memories([memories[i] for i in order]) if memories is not None else {}
        with torch.no_grad():
            results = _Group(self, model, t, plans, received or {}, remembered).train()
        for (update, _), i in zip(results, order, strict=True):
            update.work = float(passes[i]) / settings.epochs
        return [results[i] for i in np.argsort(order, kind="stable")]

    def load(self, clients: Sequence[int], rows: Sequence[np.ndarray]) -> "_Batch":
        """The samples at these positions of each client's training part, short rows padded."""
        federation = self.federation
        positions = _padded(rows)
        width = positions.shape[1]
        flat = sent((positions + federation.offsets[list(clients)][:, None]).reshape(-1), self.device)
        features = self.features(flat)
        return _Batch(
            inputs=features.reshape(len(rows), width, *features.shape[1:]),
            labels=federation.train.labels.index_select(0, flat).reshape(len(rows), width),
            mask=_mask(np.array([len(row) for row in rows]), width, self.device),
            positions=sent(positions, self.device),
        )

    def features(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """Training samples at these rows of the federation, as the model sees them; written to ``out`` if given."""
        train = self.federation.train
        raw = self.buffers.like({"raw": train.source[0]}, len(rows))["raw"]
        return self.federation.standardised(train.pick(rows, raw), self.dtype, out)

    @cached_property
    def largest(self) -> float:
        """No number of a training sample is larger, as the model sees it."""
        features = self.federation.train.source
        if features.dtype == torch.uint8:
            ends = torch.tensor([0, 255], dtype=torch.uint8, device=self.device)
            ends = ends.reshape(2, *[1] * len(self.federation.sample_shape)).expand(2, *self.federation.sample_shape)
        else:
            ends = torch.stack([features.amin(0), features.amax(0)])
        return float(self.federation.prepare(ends, self.dtype).abs().max())


@dataclass(frozen=True)
class _Plan:
    """What one client is going to do."""

    client: int
    size: int
    batch: int
    rows: list[np.ndarray]

    @property
    def steps(self) -> int:
        return len(self.rows)

    @property
    def per_pass(self) -> int:
        return -(-self.size // self.batch)


@dataclass(frozen=True)
class _Batch:
    """One batch of each client: inputs [a, B, …], labels [a, B], a mask where short ones were padded, and the positions in the
    clients' samples [a, B]."""

    inputs: Tensor
    labels: Tensor
    mask: Tensor | None
    positions: Tensor


class _Group:
    """The clients of one stack during their training, most steps first."""

    def __init__(
        self, stack: Stack, model: ModelState, t: int, plans: list[_Plan], received: Memory, memory: dict[str, Tensors]
    ) -> None:
        self.stack, self.model, self.t, self.plans = stack, model, t, plans
        g = len(plans)
        self.counts = _counts(plans)
        first = self._first_layer()
        carried = {first.layer.weight} if isinstance(first, Samples) else set()
        trained = [name for name in stack.network.parameters if name not in carried]
        parameters = stack.buffers.like({name: model[name] for name in trained}, g)
        self.problem = _Problem(self, parameters, received, memory)
        self.divisors = self._device(np.maximum(self.counts, 1)).to(stack.dtype)
        steps, per_pass = np.arange(self.counts.shape[1]), np.array([[plan.per_pass] for plan in plans])
        self.first_pass = steps < per_pass
        self.last_pass = steps >= np.array([[plan.steps] for plan in plans]) - per_pass
        self.models = Models(model, first, parameters) if isinstance(first, Samples) else None
        self.descent, self.optimizer = None, None
        if first is not None and isinstance(stack.network, Chain):
            settings = stack.training
            self.descent = Descent(stack.network, model, parameters, first, settings.lr_at(t), settings.momentum)
        else:
            for name, value in parameters.items():
                value.copy_(model[name])
            self.optimizer = build_optimizer(stack.training, list(parameters.values()))
            self.optimizer.param_groups[0]["lr"] = stack.training.lr_at(t)
        self.outputs = self._received_outputs() if stack.loss.needs_outputs else None
        self.loss = torch.zeros(g, dtype=torch.float64, device=stack.device)
        self.squares, self.right, self.forwards = torch.zeros_like(self.loss), torch.zeros_like(self.loss), np.zeros(g)
        if stack.loss.needs_outputs:
            self.forwards += self.sizes

    @property
    def sizes(self) -> np.ndarray:
        """N_i of everybody."""
        return np.array([plan.size for plan in self.plans])

    def _first_layer(self) -> Samples | Weights | None:
        """How it steps without gradients, where nobody looks at them and no batch has to be worked on in pieces."""
        stack, at_work = self.stack, int((self.counts[:, :1] > 0).sum())
        if not stack.fused or not at_work or self.counts.max() > CHUNK:
            return None
        chain = stack.network
        assert isinstance(chain, Chain)
        plans = self.plans[:at_work]
        visits = Visits.of([plan.rows for plan in plans], self.sizes[:at_work])
        starts = stack.federation.offsets[[plan.client for plan in plans]]

        def rows(positions: np.ndarray) -> Tensor:
            begin = starts[: len(positions)].reshape(-1, *[1] * (positions.ndim - 1))
            return sent((positions + begin).reshape(-1), stack.device)

        def load(step: int, active: int) -> Tensor:
            positions = visits.positions[:active, step, : visits.counts[:active, step].max()]
            features = stack.features(rows(positions))
            return features.reshape(*positions.shape, *features.shape[1:])

        labels = stack.federation.train.labels.index_select(0, rows(visits.positions))
        self.labels = labels.reshape(visits.positions.shape)
        self.positions = sent(visits.positions, stack.device)
        layer = chain.layers[0]
        width, inputs = self.model[layer.weight].shape
        unseen = stack.unseen and at_work == len(self.plans)
        if unseen and few_samples(inputs, width, visits.extent, stack.device, stack.dtype):
            weight = self.model[layer.weight]
            space = stack.buffers.like({"A": weight[:, 0], "X": weight[0], "Z": weight[:, 0]}, visits.places)

            def fill(positions: np.ndarray) -> None:
                stack.features(rows(positions), space["X"].view(-1, *stack.federation.sample_shape))

            return Samples(layer, self.model, visits, fill, space, stack.largest)
        return Weights(layer, load)

    def train(self) -> list[tuple[Update, dict[str, Tensors]]]:
        """All steps of all clients; results in stack order."""
        results: list[tuple[Update, dict[str, Tensors]]] = []
        for step in range(self.plans[0].steps + 1):
            active = sum(plan.steps > step for plan in self.plans)
            if not active and self.models is not None:
                self.models.settle()
            if active < self.problem.active:
                results = self._leave(active, step) + results
            if active:
                self._step(step)
        return results

    def _step(self, step: int) -> None:
        problem, stack = self.problem, self.stack
        if self.descent is not None:
            losses, right = self._descend(self.descent, step)
        else:
            problem.begin([plan.rows[step] for plan in self.plans[: problem.active]])
            losses, right = stack.algorithm.backward(problem)
            gradients = problem.gradients
            if stack.training.clip_norm:
                _clip(gradients, stack.training.clip_norm)
            if stack.algorithm.corrects:
                stack.algorithm.correct(problem, gradients)
            self._move(gradients)
        problem.steps += 1
        self._report(step, losses, right)

    def _descend(self, descent: Descent, step: int) -> tuple[Tensor, Tensor]:
        """A whole step in one go."""
        a, stack = self.problem.active, self.stack
        counts = self.counts[:a, step]
        width = int(counts.max())
        self.forwards[:a] += 3 * counts
        outputs = self.outputs_of(self.positions[:a, step, :width]) if self.outputs is not None else None
        labels, mask = self.labels[:a, step, :width], _mask(counts, width, stack.device)
        slope = _Slope(stack.loss, labels, mask, self.divisors[:a, step], outputs)
        descent.step(step, a, slope)
        return slope.losses, slope.right

    def _move(self, gradients: Tensors) -> None:
        """One step of the optimiser."""
        assert self.optimizer is not None
        for name, p in self.problem.parameters.items():
            p.grad = laid_out(gradients[name], p)
        self.optimizer.step()

    def _report(self, step: int, losses: Tensor, right: Tensor) -> None:
        a = self.problem.active
        self.loss[:a] += losses.sum(1) / self.divisors[:a, step]
        if self.first_pass[:a, step].any():
            self.squares[:a] += losses.double().square().sum(1) * self._device(self.first_pass[:a, step])
        if self.last_pass[:a, step].any():
            self.right[:a] += right * self._device(self.last_pass[:a, step])

    def _device(self, values: np.ndarray) -> Tensor:
        return sent(values, self.stack.device)

    def _leave(self, active: int, step: int) -> list[tuple[Update, dict[str, Tensors]]]:
        """The clients from ``active`` on have done their ``step`` steps: their results; the others stay."""
        leaving = self.problem.part(slice(active, self.problem.active))
        extra, kept = self.stack.algorithm.finish(leaving) if step else ({}, {})
        sums = [values[active : self.problem.active].tolist() for values in (self.loss, self.squares, self.right)]
        results: list[tuple[Update, dict[str, Tensors]]] = []
        for i, plan in enumerate(self.plans[active : self.problem.active]):
            if self.models is not None:
                update = Update.among(self.models, active + i, plan.client, plan.size, step)
            else:
                own = {name: value[i].detach() for name, value in leaving.parameters.items()}
                state = {name: own[name] if name in own else value.clone() for name, value in self.model.items()}
                update = Update(plan.client, plan.size, step, state)
            if not step:
                update.failure = NO_STEP
                results.append((update, {}))
                continue
            loss, squares, right = (values[i] for values in sums)
            report = {
                "loss": loss / step,
                "square_loss": squares / plan.size,
                "samples": float(plan.size),
                "steps": float(step),
                "accuracy": right / plan.size,
            }
            update.report = {name: value for name, value in report.items() if math.isfinite(value)}
            update.passes = float(self.forwards[active + i]) / plan.size
            update.extra = _one(extra, i)
            results.append((update, _one(kept, i)))
        self._narrow(active)
        return results

    def _narrow(self, active: int) -> None:
        """Only the first ``active`` clients go on."""
        before = list(self.problem.parameters.values())
        self.problem = self.problem.part(slice(0, active))
        if self.optimizer is None:
            return
        now = list(self.problem.parameters.values())
        self.optimizer.param_groups[0]["params"] = now
        for old, new in zip(before, now, strict=True):
            state = self.optimizer.state.pop(old, {})
            self.optimizer.state[new] = {key: _cut(value, slice(0, active), len(old)) for key, value in state.items()}

    def _received_outputs(self) -> Tensor:
        """Softmax outputs of the received model on all training samples of these clients, one client after another."""
        parts = []
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        for plan in self.plans:
            data = self.stack.federation.client(plan.client)
            for start in range(0, max(1, plan.size), CHUNK):
                logits = self.received_logits(data[start : start + CHUNK].features)
                parts.append(functional.softmax(logits, dim=-1))
        return torch.cat(parts)

    def outputs_of(self, positions: Tensor, first: int = 0) -> Tensor:
        """What the received model said of the samples at these positions [a, B] of the clients from ``first`` on, [a·B, K]."""
        assert self.outputs is not None
        starts = self._device(self.starts[first : first + len(positions)])
        return self.outputs[(positions + starts[:, None]).flatten()]

    def received_logits(self, features: Tensor) -> Tensor:
        """Outputs of the received model, [n, K]."""
        stack = self.stack
        one = {name: self.model[name][None] for name in stack.network.parameters}
        with torch.no_grad():
            return stack.network.logits(one, stack.federation.standardised(features, stack.dtype)[None])[0]


class _Problem:
    """What the client half of an algorithm may touch (:class:`fedcohort.algorithms.Problem`), for a stack of clients."""

    def __init__(self, group: _Group, parameters: Tensors, received: Memory, memory: dict[str, Tensors]) -> None:
        g = len(group.plans)
        # not a cycle: the memory of a group that failed is needed at once, not when the garbage collector comes
        self.group: _Group = weakref.proxy(group)
        self.active = g
        self.first = 0
        self.parameters = parameters
        self.anchor = {name: group.model[name][None].expand(g, *group.model[name].shape) for name in parameters}
        self.received: Mapping[str, Tensors] = {
            kind: {name: value[None].expand(g, *value.shape) for name, value in tensors.items()}
            for kind, tensors in received.items()
        }
        self.memory: Mapping[str, Tensors] = memory
        self.training = group.stack.training
        self.lr: float | Tensor = self.training.lr_at(group.t)
        self.steps: Any = torch.zeros(g, dtype=torch.int64, device=group.stack.device)
        self.t = group.t
        self.notes: dict[str, Any] = {}
        self.num_samples: Any = torch.tensor([plan.size for plan in group.plans], device=group.stack.device)
        self.gradients: Tensors = {}
        self.batch = torch.empty(0, dtype=torch.int64)
        self.rows: list[np.ndarray] = []
        self.loaded: _Batch | None = None

    def begin(self, rows: list[np.ndarray]) -> None:
        """The next batches, one a client; loaded, if they are not so large that they are worked on in pieces."""
        stack, self.rows, self.loaded = self.group.stack, rows, None
        if max(map(len, rows)) <= CHUNK:
            self.loaded = stack.load(self.clients, rows)
            self.batch = self.loaded.positions
        else:
            self.batch = sent(_padded(rows), stack.device)

    def part(self, who: slice) -> "_Problem":
        """The same for some of the clients; the tensors are views."""
        other = object.__new__(_Problem)
        vars(other).update(vars(self))
        g, start, stop = self.active, who.start, who.stop
        for name in ("parameters", "anchor", "received", "memory", "notes"):
            setattr(other, name, _cut(getattr(self, name), who, g))
        other.steps, other.num_samples, other.gradients = self.steps[who].clone(), self.num_samples[who], {}
        other.first, other.active = self.first + start, stop - start
        return other

    @property
    def plans(self) -> list[_Plan]:
        """What these clients do."""
        return self.group.plans[self.first : self.first + self.active]

    @property
    def clients(self) -> list[int]:
        """Their ids."""
        return [plan.client for plan in self.plans]

    @property
    def rng(self) -> np.random.Generator:
        """One generator a client cannot be had for a stack."""
        raise NotImplementedError("an algorithm that draws random numbers on the client says stacks = False")

    @property
    def held_out(self) -> tuple[Tensor, Tensor]:
        """Parts of different sizes do not stack."""
        raise NotImplementedError("an algorithm that looks at held-out samples says stacks = False")

    def backward(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See :class:`Problem`: the cross-entropy of each sample [clients, B], 0 where padded, and the right ones [clients]."""
        self.gradients, losses, right = self._gradients(self.parameters, self.rows, weights)
        return losses, right

    def gradient(self, at: Tensors | None = None) -> Tensors:
        """See :class:`Problem`."""
        return self._gradients(self.parameters if at is None else at, self.rows)[0]

    def full_gradient(self, at: Tensors) -> Tensors:
        """See :class:`Problem`."""
        return self._gradients(at, [np.arange(plan.size) for plan in self.plans])[0]

    def losses_and_gradient(self, at: Tensors, weights: Tensor | None = None) -> tuple[Tensor, Tensors]:
        """Not for stacks: nobody needs it there."""
        raise NotImplementedError("an algorithm that looks at losses elsewhere says stacks = False")

    def cross_entropy_gradient(self, features: Tensor, labels: Tensor) -> Tensors:
        """Not for stacks: nobody needs it there."""
        raise NotImplementedError("an algorithm that looks at other samples says stacks = False")

    def received_loss(self) -> Tensor:
        """See :class:`Problem`; float64 [clients]."""
        group, losses = self.group, []
        for position, plan in enumerate(self.plans, start=self.first):
            group.forwards[position] += plan.size
            data, total = group.stack.federation.client(plan.client), 0.0
            for start in range(0, plan.size, CHUNK):
                some = data[start : start + CHUNK]
                logits = group.received_logits(some.features)
                outputs = functional.softmax(logits, dim=-1) if group.outputs is not None else None
                total += float(group.stack.loss.samples(logits, some.labels, outputs).double().sum())
            losses.append(total / plan.size)
        return torch.tensor(losses, dtype=torch.float64, device=group.stack.device)

    def _gradients(
        self, at: Tensors, rows: list[np.ndarray], weights: Tensor | None = None
    ) -> tuple[Tensors, Tensor, Tensor]:
        """Gradients over these rows, in chunks that fit into memory; cross-entropies and right ones."""
        stack = self.group.stack
        self._count(rows)
        total: Tensors = {}
        losses, right = [], torch.zeros((), device=stack.device)
        divisors = sent(np.array([max(len(row), 1) for row in rows]), stack.device).to(stack.dtype)
        for start in range(0, max(map(len, rows)), CHUNK):
            if rows is self.rows and self.loaded is not None:
                batch = self.loaded
            else:
                batch = stack.load(self.clients, [row[start : start + CHUNK] for row in rows])
            slope = _Slope(
                stack.loss,
                batch.labels,
                batch.mask,
                divisors,
                None if self.group.outputs is None else self.group.outputs_of(batch.positions, self.first),
                None if weights is None else weights[:, start : start + CHUNK],
            )
            found = stack.network.gradients(at, batch.inputs, slope)
            total = {name: total[name] + g for name, g in found.items()} if total else found
            losses.append(slope.losses)
            right = right + slope.right
        return total, torch.cat(losses, dim=1), right

    def _count(self, rows: list[np.ndarray]) -> None:
        """These rows went forward and back."""
        self.group.forwards[self.first : self.first + self.active] += [3 * len(row) for row in rows]


class _Slope:
    """The objective's gradient with respect to the logits of a batch; keeps what is reported of it.

    Args:
        loss: of a sample.
        labels, mask: of the batch, as in :class:`_Batch`.
        divisors: samples of each client's batch, [a].
        outputs: what the received model said of the batch, [a·B, K], if the loss needs it.
        weights: of the samples, if they count differently.
    """

    losses: Tensor
    right: Tensor

    def __init__(
        self,
        loss: Loss,
        labels: Tensor,
        mask: Tensor | None,
        divisors: Tensor,
        outputs: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self.loss, self.labels, self.mask = loss, labels, mask
        self.divisors, self.outputs, self.weights = divisors, outputs, weights

    def __call__(self, logits: Tensor) -> Tensor:
        labels, mask = self.labels, self.mask
        log_p = functional.log_softmax(logits, dim=2)
        losses = -log_p.gather(2, labels[..., None]).squeeze(2)
        hits = log_p.argmax(2) == labels
        if mask is not None:
            losses, hits = torch.where(mask, losses, 0), hits & mask
        self.losses, self.right = losses, hits.sum(1)
        if isinstance(self.loss, CrossEntropy):
            delta = log_p.exp_()
            delta.scatter_add_(2, labels[..., None], delta.new_full((), -1).expand(*labels.shape, 1))
        else:
            delta = self._autograd(logits)
        delta /= self.divisors[:, None, None]
        if mask is not None:
            delta = torch.where(mask[..., None], delta, 0)  # not even 0·∞ of a padded sample
        return delta if self.weights is None else delta * self.weights[..., None]

    def _autograd(self, logits: Tensor) -> Tensor:
        """The slope of any local loss."""
        with torch.enable_grad():
            flat = logits.detach().flatten(0, 1).requires_grad_()
            losses = self.loss.samples(flat, self.labels.flatten(), self.outputs)
            return torch.autograd.grad(losses.sum(), flat)[0].reshape(logits.shape).clone()


def _client_half_stacks(kind: type[Algorithm]) -> bool:
    """Whether the class that says so is not older than the hooks: one that overrides a hook has to say it again."""

    def home(name: str) -> int:
        return next(i for i, base in enumerate(kind.__mro__) if name in vars(base))

    own = [hook for hook in ("backward", "correct", "finish") if kind.__mro__[home(hook)] is not Algorithm]
    return all(kind.stacks and home("stacks") <= home(hook) for hook in own)


def _batches(order: np.random.Generator, size: int, epochs: int, batch: int) -> list[np.ndarray]:
    """A client's batches in order, as in the loop."""
    rows: list[np.ndarray] = []
    for _ in range(epochs):
        shuffled = order.permutation(size)
        rows.extend(shuffled[start : start + batch] for start in range(0, size, batch))
    return rows


def _padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of different lengths side by side, int64 [clients, B], padded with zeros."""
    padded = np.zeros((len(rows), max(1, *map(len, rows))), dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded


def _mask(counts: np.ndarray, width: int, device: torch.device) -> Tensor | None:
    """Which of ``width`` places hold a sample of each client's batch; None if all do."""
    if counts.min() == width:
        return None
    return sent(np.arange(width)[None] < counts[:, None], device)


def _counts(plans: Sequence[_Plan]) -> np.ndarray:
    """Samples of every step of every client, int64 [g, S]; 0 where it makes no such step; at least one column."""
    counts = np.zeros((len(plans), max(1, plans[0].steps)), dtype=np.int64)
    for i, plan in enumerate(plans):
        counts[i, : plan.steps] = [len(row) for row in plan.rows]
    return counts


def _stacked_memories(memories: Sequence[Memory]) -> dict[str, Tensors]:
    """Memories side by side, zeros for clients that have none yet; empty if nobody has one."""
    example = next((memory for memory in memories if memory), {})
    return {
        kind: {
            name: torch.stack([m[kind][name] if kind in m and name in m[kind] else torch.zeros_like(value) for m in memories])
            for name, value in tensors.items()
        }
        for kind, tensors in example.items()
    }  # fmt: skip


def _one(groups: Mapping[str, Tensors], i: int) -> dict[str, Tensors]:
    """The tensors of one client."""
    return {kind: {name: value[i].clone() for name, value in tensors.items()} for kind, tensors in groups.items()}


def _cut(value: Any, who: slice, clients: int) -> Any:
    """``value`` with every tensor that has the client axis cut to ``who``."""
    if isinstance(value, Mapping):
        return {key: _cut(inner, who, clients) for key, inner in value.items()}
    if isinstance(value, Tensor) and value.dim() and len(value) == clients:
        return value.detach()[who]
    return value


def _clip(gradients: Tensors, limit: float) -> None:
    """Scale each client's gradients down to norm ``limit``, as ``torch.nn.utils.clip_grad_norm_`` does for one."""
    norms = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients.values()])
    factor = (limit / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
    for gradient in gradients.values():
        gradient.mul_(per_client(factor, gradient))
