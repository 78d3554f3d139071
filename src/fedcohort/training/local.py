"""The local training of one client: the innermost loop, which is where the user's time goes.

A :class:`Trainer` owns one copy of the model and trains one client after another on it. Given the same client, model and round it does
the same arithmetic on one intra-op thread, whatever trained before and whatever runs beside it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms import Algorithm, ModelState, Tensors, Update
from fedcohort.algorithms.base import takes_plain_steps
from fedcohort.algorithms.local import Training
from fedcohort.algorithms.losses import CrossEntropy
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.streams import integer, rng, torch_seeded
from fedcohort.federation.federation import Federation, Samples
from fedcohort.training.augment import Changes, check_images
from fedcohort.training.chance import draws_at_random
from fedcohort.training.forward import probabilities
from fedcohort.training.optimizers import SGD, PlainSGD, build_optimizer
from fedcohort.training.products import quick_products
from fedcohort.training.program import Program, program_of
from fedcohort.training.rewriting import relu_last
from fedcohort.training.stopping import Progress, StoppingRule

__all__ = ["CHUNK", "DTYPES", "NO_STEP", "Trainer", "sent", "state_of"]

DTYPES = {"float32": torch.float32, "float64": torch.float64}

CHUNK = 256
"""Samples in one forward pass at most: a larger batch is summed over chunks, so that full-batch steps fit into memory."""

AT_ONCE = 2**22
"""Numbers in the features of a client, at most, that are made ready for the model in one go; those of more are, batch by batch."""

STRETCH = 2**20
"""Numbers in the features of the batches of such a client, at most, that are made ready in one go for a program."""

NO_STEP = "it made no step: it has no batch that this model can be trained on"
"""Why a client has no result that was given no work, or nothing to work on."""


def state_of(module: nn.Module) -> ModelState:
    """A contiguous copy of the module's state dictionary."""
    return _copied(module.state_dict())


def sent(values: np.ndarray, device: torch.device) -> Tensor:
    """An array on the device, without waiting until a GPU has done what it was given before: the array is read before this returns."""
    return torch.from_numpy(values).to(device, non_blocking=True)


def _copied(state: ModelState) -> ModelState:
    return {name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in state.items()}


MORE_WORK_BY_LOSS = 4 / 3
"""A forward pass beside every forward and backward pass."""

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Trainer:
    """Trains clients of a federation, one at a time.

    Args:
        federation: whose data.
        module: a model of its own, changed in place.
        training: settings, as the algorithm wants them.
        algorithm: its client half.
        seed: of the experiment.
        draws: whether the model draws random numbers in training, see :mod:`fedcohort.training.chance`; by default it is tried.
    """

    def __init__(
        self,
        federation: Federation,
        module: nn.Module,
        training: Training,
        algorithm: Algorithm,
        seed: int,
        draws: bool | None = None,
    ) -> None:
        self.federation = federation
        self.algorithm = algorithm
        self.training = algorithm.local_training(training)
        check_images(training.augment, federation.sample_shape)
        self.loss = self.training.build_loss()
        self.seed = seed
        self.dtype = DTYPES[training.precision]
        self.module = quick_products(relu_last(module)).to(dtype=self.dtype)
        if len(federation.sample_shape) == 3:
            self.module = self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # batch statistics of a single sample do not exist: batches of one are left out (they would raise an error)
        self.smallest_batch = 2 if any(isinstance(part, _BATCH_NORMS) for part in self.module.modules()) else 1
        if draws is None:
            draws = draws_at_random(self.module, federation.prepare(federation.train[:2].features, self.dtype))
        self.draws = draws
        self.entries: ModelState = self.module.state_dict()
        self.parameters: Tensors = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        self.optimizer = build_optimizer(self.training, list(self.parameters.values()))
        self.program: Program | None = None
        """The steps of the network, where they are known."""
        if type(self.loss) is CrossEntropy:
            self.program = program_of(self.module, federation.sample_shape)
        self._shown: ModelState | None = None

    def show(self, model: ModelState) -> nn.Module:
        """The module with the weights of ``model``, in evaluation mode; they are copied only if another model was in it."""
        if self._shown is not model:
            self.load(model)
            self._shown = model
        return self.module.eval()

    def load(self, model: ModelState) -> None:
        """Start from ``model``."""
        self._shown = None
        with torch.no_grad():
            for name, value in self.entries.items():
                value.copy_(model[name])

    def train(
        self,
        model: ModelState,
        t: int,
        client: int,
        *,
        epochs: int | None = None,
        sampling: str = "shuffled",
        stop: StoppingRule | None = None,
        received: Mapping[str, Tensors] | None = None,
        memory: Mapping[str, Tensors] | None = None,
    ) -> tuple[Update, dict[str, Tensors]]:
        """Train ``client`` in round ``t`` from ``model``; returns its update and its new memory.

        ``epochs`` replaces the experiment's number, and ``stop`` may end the training after fewer; ``sampling`` is the cohort's;
        ``received`` and ``memory`` are the algorithm's.
        """
        settings = self.training
        data = self.federation.client(client)
        nominal = settings.epochs
        epochs = nominal if epochs is None else epochs
        self.load(model)
        self.module.train()
        self.optimizer.state.clear()
        for group in self.optimizer.param_groups:
            group["lr"] = settings.lr_at(t)
        problem = _Problem(self, model, t, client, received or {}, memory or {})
        order = rng(self.seed, "batches", t, client)
        changes = None if settings.augment == "none" else rng(self.seed, "augment", t, client)
        size = settings.batch_size or max(1, len(data))
        seen: list[Tensor] = []  # cross-entropy of every sample in every step
        right = torch.zeros((), dtype=torch.int64)  # of the last epoch
        first_visits: Indices = np.arange(len(data))
        first_steps = 0
        by_loss = sampling != "shuffled"
        trained_on = np.full(len(data), not by_loss)
        checks: list[dict[str, float]] = []
        used = 0
        for epoch in range(epochs):
            begun = len(seen)
            if by_loss:
                samples = problem.draw_by_loss(order, reweighted=sampling == "loss_unbiased")
                first_visits = np.unique(samples, return_index=True)[1] if epoch == 0 else first_visits
                trained_on[samples] = True
            else:
                samples = order.permutation(len(data))
            if changes is not None:
                problem.changes = Changes.draw(settings.augment, len(data), changes, data.labels.device)
            shuffled = sent(samples, data.labels.device)
            program = self.program
            if program is not None and program.holds() and self._descends(size) and not problem.reweighted:
                losses, right = problem.descend(program, shuffled, size)
            else:
                losses, right = self._steps(problem, shuffled, size)
            seen += losses
            first_steps = first_steps or len(seen)
            used = epoch + 1
            if stop is not None:
                loss = float(_step_means(seen[begun:]).mean()) if seen[begun:] else math.nan
                end, said = stop.check(
                    Progress(
                        used,
                        used == epochs,
                        loss,
                        problem.held_out_probabilities,
                        checks,
                        problem.trained_probabilities,
                        problem.tested_probabilities,
                    )
                )
                checks.append(said)
                if end:
                    break
        if not seen:
            return Update(client, len(data), 0, _copied(self.entries), work=used / nominal, failure=NO_STEP), {}
        extra, kept = self.algorithm.finish(problem)
        passed = torch.cat(seen[:first_steps]).double().cpu().numpy()
        first_pass = passed[first_visits[first_visits < len(passed)]]  # a last batch of one may have been left out
        report = {
            "loss": float(_step_means(seen).mean()),
            "square_loss": float(np.square(first_pass).mean()),
            "samples": float(trained_on.sum()),
            "steps": float(problem.steps),
            "accuracy": float(right) / len(data),
            **(checks[-1] | {"epochs": float(used)} if checks else {}),
        }
        update = Update(
            client=client,
            num_samples=len(data),
            steps=problem.steps,
            state=_copied(self.entries),
            extra=extra,
            report={name: value for name, value in report.items() if math.isfinite(value)},
            passes=problem.forwards / len(data),
            work=used / nominal * (MORE_WORK_BY_LOSS if by_loss else 1),
        )
        return update, kept

    def _descends(self, size: int) -> bool:
        """Whether clients do nothing but descend, by batches of ``size`` in one piece."""
        settings = self.training
        plain = isinstance(self.optimizer, PlainSGD | SGD) and not settings.clip_norm and settings.augment == "none"
        return plain and size <= CHUNK and takes_plain_steps(self.algorithm)

    def _steps(self, problem: "_Problem", order: Tensor, size: int) -> tuple[list[Tensor], Tensor]:
        """A step for every batch of ``size``; the cross-entropy of each sample in each step, and the number of right ones in all."""
        seen: list[Tensor] = []
        right = torch.zeros((), dtype=torch.int64, device=order.device)
        for start in range(0, len(order), size):
            problem.batch = order[start : start + size]
            if len(problem.batch) < self.smallest_batch:
                continue
            losses, hits = self.algorithm.backward(problem)
            if self.training.clip_norm:
                torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.training.clip_norm)
            if self.algorithm.corrects:
                self.algorithm.correct(problem, problem.gradients)
            self.optimizer.step()
            problem.steps += 1
            right += hits
            seen.append(losses)
        return seen, right


def _step_means(losses: list[Tensor]) -> Values:
    """The mean loss of every step, float64."""
    sizes = np.array([len(step) for step in losses])
    means: Values = np.add.reduceat(torch.cat(losses).double().cpu().numpy(), np.cumsum(sizes) - sizes) / sizes
    return means


class _Problem:
    """What the client half of an algorithm may touch (:class:`fedcohort.algorithms.Problem`), for one client."""

    def __init__(
        self,
        trainer: Trainer,
        model: ModelState,
        t: int,
        client: int,
        received: Mapping[str, Tensors],
        memory: Mapping[str, Tensors],
    ) -> None:
        self.parameters = trainer.parameters
        self.anchor = {name: model[name] for name in trainer.parameters}
        self.received = received
        self.memory = memory
        self.training = trainer.training
        self.lr: float | Tensor = trainer.training.lr_at(t)
        self.steps: int | Any = 0
        self.t = t
        self.batch: Tensor = torch.empty(0, dtype=torch.int64)
        self.notes: dict[str, Any] = {}
        self.changes: Changes | None = None
        self.forwards = 0  # samples that went through the model; with a gradient three times
        self._importance: Tensor | None = None  # of every training sample: what its loss counts in a batch
        self._trainer = trainer
        self._plain = isinstance(trainer.loss, CrossEntropy)
        self._model = model
        self._client = client
        self._data = data = trainer.federation.client(client)
        self.num_samples = len(data)
        self._ready = (
            _nhwc(trainer.federation.prepare(data.features, trainer.dtype))
            if len(data) * math.prod(trainer.federation.sample_shape) <= AT_ONCE
            else None
        )
        self._outputs = self._received_outputs() if trainer.loss.needs_outputs else None

    @cached_property
    def rng(self) -> np.random.Generator:
        """See :class:`Problem`."""
        return rng(self._trainer.seed, "algorithm", self.t, self._client)

    @cached_property
    def held_out(self) -> tuple[Tensor, Tensor]:
        """See :class:`Problem`."""
        held = self._trainer.federation.held_out(self._client)
        if len(held) < self._trainer.smallest_batch:
            held = held[:0]
        return held.features, held.labels

    def held_out_probabilities(self) -> tuple[Values, Indices]:
        """Class probabilities of the present model on the client's held-out part, and the labels; in evaluation mode."""
        return self._probabilities(self._trainer.federation.held_out(self._client))

    def trained_probabilities(self) -> tuple[Values, Indices]:
        """The same on the client's training samples."""
        return self._probabilities(self._data)

    def tested_probabilities(self) -> tuple[Values, Indices]:
        """The same on the server's test set, at nobody's cost."""
        before = self.forwards
        found = self._probabilities(self._trainer.federation.test)
        self.forwards = before
        return found

    def draw_by_loss(self, order: np.random.Generator, *, reweighted: bool) -> Indices:
        """As many of the training samples as there are, with replacement, ∝ their present loss; evenly if that has no meaning.

        ``reweighted``: in gradients of batches of them, the loss of sample j counts 1/(n·prob_j), so that their mean is the gradient.
        """
        if not self.num_samples:
            return np.arange(0)
        shares, labels = self.trained_probabilities()
        losses = -np.log(np.maximum(shares[np.arange(len(labels)), labels], 1e-12))
        total, n = losses.sum(), len(labels)
        chance = losses / total if 0 < total < np.inf else np.full(n, 1 / n)
        if reweighted:
            weights = np.divide(1 / n, chance, out=np.zeros(n), where=chance > 0)
            self._importance = torch.from_numpy(weights).to(self._data.labels.device, self._trainer.dtype)
        drawn: Indices = order.choice(n, n, p=chance)
        return drawn

    def _probabilities(self, samples: Samples) -> tuple[Values, Indices]:
        trainer = self._trainer
        self.forwards += len(samples)
        trainer.module.eval()
        found = probabilities(trainer.module, trainer.federation, trainer.dtype, samples)
        trainer.module.train()
        return found, samples.labels.cpu().numpy()

    @property
    def gradients(self) -> Tensors:
        """Gradients of the last :meth:`backward`, by parameter name."""
        return {name: p.grad for name, p in self.parameters.items() if p.grad is not None}

    def backward(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Gradients of the mean loss on the batch into ``.grad``; the cross-entropy of each sample and the number of right ones."""
        for parameter in self.parameters.values():
            parameter.grad = None
        self.forwards += 3 * len(self.batch)
        parts = [self._backward(index, share, piece) for piece, (index, share) in enumerate(self._chunks(weights))]
        if len(parts) == 1:
            return parts[0]
        return torch.cat([losses for losses, _ in parts]), torch.stack([right for _, right in parts]).sum()

    @property
    def reweighted(self) -> bool:
        """Whether samples count differently."""
        return self._importance is not None

    def descend(self, program: Program, order: Tensor, size: int) -> tuple[list[Tensor], Tensor]:
        """The plain steps of :meth:`Trainer._steps`, by the network's program."""
        trainer, labels = self._trainer, self._data.labels
        if self._ready is not None:
            seen, right = program.descend(self._ready, labels, order, size, trainer.optimizer)
        else:
            seen, right = [], torch.zeros((), dtype=torch.int64)
            some = max(1, STRETCH // (size * math.prod(trainer.federation.sample_shape))) * size
            for part in order.split(some):  # type: ignore[no-untyped-call]
                rows = _nhwc(trainer.federation.prepare(self._data.pick(part), trainer.dtype))
                at = torch.arange(len(part))
                losses, hits = program.descend(rows, labels[part], at, size, trainer.optimizer)
                seen += losses
                right += hits
        self.steps += len(seen)
        self.forwards += 3 * len(order)
        self.batch = order[len(order) - len(seen[-1]) :] if seen else order
        return seen, right

    def _backward(self, index: Tensor, weights: Tensor | None, piece: int) -> tuple[Tensor, Tensor]:
        """Add the gradients of a piece of the batch."""
        labels = self._data.labels.index_select(0, index)
        program = self._trainer.program
        numbers = weights is None or (isinstance(weights, Tensor) and weights.dim() < 2 and not weights.requires_grad)
        if program is not None and numbers and program.holds():
            return program.backward(self._features(index), labels, weights, len(self.batch))
        logits = self._outputs_of(self._trainer.module, self._features(index), piece)
        objective = self._objective(logits, labels, index)
        if weights is None:
            # the mean, in one call there and one back; a gradient that is given would load sympy
            torch.dot(objective, torch.full_like(objective, 1 / len(self.batch))).backward()  # type: ignore[no-untyped-call]
        else:
            ((objective * weights).sum() / len(self.batch)).backward()  # type: ignore[no-untyped-call]
        found = logits.detach()
        losses = objective.detach() if self._plain else _cross_entropy(found, labels)
        return losses, (found.argmax(1) == labels).sum()

    def _features(self, index: Tensor) -> Tensor:
        """These samples as the model sees them."""
        if self._ready is None:
            rows = self._trainer.federation.prepare(self._data.pick(index), self._trainer.dtype)
        else:
            rows = self._ready.index_select(0, index)
            rows = rows.permute(0, 3, 1, 2) if rows.dim() == 4 else rows
        return rows if self.changes is None else self.changes(rows, index)

    def gradient(self, at: Tensors | None = None) -> Tensors:
        """The gradient on the current batch, here or ``at`` other parameters; ``.grad`` keeps what it had."""
        return self.losses_and_gradient(self.parameters if at is None else at)[1]

    def full_gradient(self, at: Tensors) -> Tensors:
        """See :class:`Problem`; buffers of the model stay as they are."""
        before = self.batch, self._importance
        self.batch, self._importance = torch.arange(len(self._data), device=self._data.labels.device), None
        try:
            return self.losses_and_gradient(at)[1]
        finally:
            self.batch, self._importance = before

    def losses_and_gradient(self, at: Tensors, weights: Tensor | None = None) -> tuple[Tensor, Tensors]:
        """See :class:`Problem`; buffers of the model stay as they are."""
        self.forwards += 3 * len(self.batch)

        def parts(model: Callable[[Tensor], Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
            for piece, (index, share) in enumerate(self._chunks(weights)):
                logits = self._outputs_of(model, self._features(index), piece)
                objective = self._objective(logits, self._data.labels[index], index)
                weighted = objective if share is None else objective * share
                yield objective.detach(), weighted.sum() / len(self.batch)

        return self._summed(at, parts)

    def cross_entropy_gradient(self, features: Tensor, labels: Tensor) -> Tensors:
        """See :class:`Problem`; buffers of the model stay as they are."""
        self.forwards += 3 * len(labels)

        def parts(model: Callable[[Tensor], Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
            pieces = zip(features.split(CHUNK), labels.split(CHUNK), strict=True)  # type: ignore[no-untyped-call]
            for piece, (some, targets) in enumerate(pieces):
                inputs = self._trainer.federation.prepare(some, self._trainer.dtype)
                losses = _cross_entropy(self._outputs_of(model, inputs, piece), targets)
                yield losses.detach(), losses.sum() / len(labels)

        return self._summed(self.parameters, parts)[1]

    def received_loss(self) -> float:
        """See :class:`Problem`."""
        self.forwards += len(self._data)
        module, device = self._trainer.module, self._data.labels.device
        training = module.training
        module.eval()
        total = torch.zeros((), dtype=torch.float64, device=device)
        with torch.no_grad():
            for index in torch.arange(len(self._data), device=device).split(CHUNK):  # type: ignore[no-untyped-call]
                logits = torch.func.functional_call(module, self._model, (self._features(index),))
                total += self._objective(logits, self._data.labels[index], index).double().sum()
        module.train(training)
        return float(total / len(self._data))

    def _outputs_of(self, model: Callable[[Tensor], Tensor], inputs: Tensor, piece: int) -> Tensor:
        """Outputs in training mode, for a piece of a batch; what the model draws there depends on client, round and step alone."""
        if not self._trainer.draws:
            return model(inputs)
        with torch_seeded(self._first_draw + (int(self.steps) << 16) + piece, inputs.device):
            return model(inputs)

    @cached_property
    def _first_draw(self) -> int:
        return integer(self._trainer.seed, "module", self.t, self._client)

    def _chunks(self, weights: Tensor | None) -> Iterator[tuple[Tensor, Tensor | None]]:
        """The batch in pieces, with the weights of each; samples drawn by loss may have one beside those that are given."""
        if self._importance is not None:
            own = self._importance[self.batch]
            weights = own if weights is None else weights * own
        if len(self.batch) <= CHUNK:
            yield self.batch, weights
            return
        pieces = torch.split(self.batch, CHUNK)
        yield from zip(pieces, [None] * len(pieces) if weights is None else torch.split(weights, CHUNK), strict=True)

    def _summed(
        self, at: Tensors, parts: Callable[[Callable[[Tensor], Tensor]], Iterator[tuple[Tensor, Tensor]]]
    ) -> tuple[Tensor, Tensors]:
        """Values of all pieces, and the sum of their gradients ``at`` these parameters; batch statistics go into copies."""
        module = self._trainer.module
        point = {name: value.detach().requires_grad_() for name, value in at.items()}
        state = point | {name: buffer.clone() for name, buffer in module.named_buffers()}
        total = {name: torch.zeros_like(value) for name, value in point.items()}
        values = []
        for value, loss in parts(lambda features: torch.func.functional_call(module, state, (features,))):
            values.append(value)
            for name, gradient in zip(point, torch.autograd.grad(loss, list(point.values())), strict=True):
                total[name] += gradient
        return torch.cat(values) if values else torch.empty(0), total

    def _objective(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        outputs = None if self._outputs is None else self._outputs[index]
        return self._trainer.loss.samples(logits, labels, outputs)

    def _received_outputs(self) -> Tensor:
        """Softmax outputs of the received model on all training samples: pseudo-labels are fixed when the model arrives."""
        trainer, data = self._trainer, self._data
        self.forwards += len(data)
        trainer.module.eval()
        with torch.no_grad():
            parts = [
                functional.softmax(trainer.module(trainer.federation.prepare(part.features, trainer.dtype)), dim=1)
                for part in (data[start : start + CHUNK] for start in range(0, max(1, len(data)), CHUNK))
            ]
        trainer.module.train()
        return torch.cat(parts)


def _nhwc(features: Tensor) -> Tensor:
    """Images with the channels last, in memory and in shape, so that whole samples can be taken out; all else as it is."""
    return features.permute(0, 2, 3, 1) if features.dim() == 4 else features


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, reduction="none")
