"""The local problem of one client during its training: what the client half of an algorithm may use."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcohort.algorithms import ModelState, Tensors
from fedcohort.algorithms.base import Correction
from fedcohort.algorithms.losses import local_losses
from fedcohort.algorithms.sample_measures import sample_losses
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.random_streams import integer, rng, torch_seeded
from fedcohort.core.sums import for_sums, sum_type
from fedcohort.federation.federation import Samples
from fedcohort.training.client_hooks import Gradients
from fedcohort.training.draws_by_loss import chances_by_loss
from fedcohort.training.evaluation import probabilities
from fedcohort.training.image_augmentation import Changes
from fedcohort.training.local_setup import LocalSetup
from fedcohort.training.networks.batch_outputs import outputs_of
from fedcohort.training.networks.memory_layouts import channels_last
from fedcohort.training.networks.random_layers import step_generator, step_seed
from fedcohort.training.networks.received_outputs import CHUNK
from fedcohort.training.programs.plain_network import Program
from fedcohort.training.scripts.recorded_passes import pass_of_mean, reported
from fedcohort.training.scripts.scripted_passes import OwnCorrection, ScriptedPass
from fedcohort.training.summed_gradients import summed_gradients

__all__ = ["AT_ONCE", "ClientProblem"]

AT_ONCE = 2**22
"""Maximum number of a client's feature values for which all of them are standardized at once; otherwise, one batch at a time."""
STRETCH = 2**20
"""Number of feature values that a program standardizes at once if a client has more than :data:`AT_ONCE`."""


class ClientProblem:
    """Implements :class:`fedcohort.algorithms.Problem` for one client.

    Attributes:
        forwards: samples that went through the model so far; a sample counts three times if its gradient was taken.
        num_labels: number of labels of the training samples: one for each sample, or one for each position of each sequence.
        changes: the random changes of images in this epoch; None without augmentation.
        received_outputs: softmax outputs [n, K] of the received model on the training samples; None if the loss does not need them.
    """

    def __init__(
        self,
        setup: LocalSetup,
        model: ModelState,
        t: int,
        client: int,
        received: Mapping[str, Tensors],
        memory: Mapping[str, Tensors],
    ) -> None:
        self.parameters = setup.parameters
        self.anchor = {name: model[name] for name in setup.parameters}
        self.received = received
        self.memory = memory
        self.training = setup.training
        self.lr: float | Tensor = setup.training.lr_at(t)
        self.steps: int | Tensor = 0
        self.t = t
        self.batch: Tensor = torch.empty(0, dtype=torch.int64)
        self.notes: dict[str, Any] = {}
        self.changes: Changes | None = None
        self.forwards = 0
        self._importance: Tensor | None = None  # the weight of every training sample's loss in a batch
        self._setup = setup
        self._model = model
        self.client = client
        self._data = data = setup.federation.client(client)
        self.num_samples = len(data)
        self.num_labels = data.labels.numel()
        self.device = data.labels.device
        self.received_outputs = setup.received_outputs(data) if setup.loss.needs_outputs else None
        self.forwards += self.num_samples if setup.loss.needs_outputs else 0

    @cached_property
    def _prepared(self) -> Tensor | None:
        """The standardized samples, if they are not too many."""
        setup, data = self._setup, self._data
        if len(data) * math.prod(setup.federation.sample_shape) > AT_ONCE:
            return None
        return channels_last(setup.federation.prepare(data.features, setup.dtype))

    @cached_property
    def rng(self) -> np.random.Generator:
        """See :class:`Problem`."""
        return rng(self._setup.seed, "algorithm", self.t, self.client)

    @cached_property
    def held_out(self) -> tuple[Tensor, Tensor]:
        """See :class:`Problem`."""
        held = self._setup.federation.held_out(self.client)
        if len(held) < self._setup.smallest_batch:
            held = held[:0]
        return held.features, held.labels

    def held_out_probabilities(self) -> tuple[Values, Indices]:
        """Class probabilities [n, K] of the current model, in evaluation mode, on the held-out samples, and their labels [n].

        With a label for each position, every position of every sequence counts as one of the n.
        """
        return self._probabilities(self._setup.federation.held_out(self.client))

    def trained_probabilities(self) -> tuple[Values, Indices]:
        """As :meth:`held_out_probabilities`, on the client's training samples."""
        return self._probabilities(self._data)

    def tested_probabilities(self) -> tuple[Values, Indices]:
        """As :meth:`held_out_probabilities`, on the server's test set; not counted as the client's work."""
        before, result = self.forwards, self._probabilities(self._setup.federation.test)
        self.forwards = before
        return result

    def draw_by_loss(self, order: np.random.Generator, *, reweighted: bool) -> Indices:
        """Draw n of the n training samples with replacement, in proportion to their current loss.

        The draw is uniform if the losses do not add up to a positive, finite number.

        Args:
            order: draws the samples.
            reweighted: whether gradients weigh the loss of sample j by 1/(n·p_j), where p_j is its probability, so that the expected
                gradient of a batch is the gradient over all samples.

        Returns:
            positions in the training samples, int64 [n].
        """
        if not self.num_samples:
            return np.arange(0)
        n, numeric = self.num_samples, self._setup.federation.is_numeric
        chance = chances_by_loss(*self.trained_probabilities(), n, numeric=numeric)
        if reweighted:
            weights = np.divide(1 / n, chance, out=np.zeros(n), where=chance > 0)
            self._importance = torch.from_numpy(weights).to(self._data.labels.device, self._setup.dtype)
        drawn: Indices = order.choice(n, n, p=chance)
        return drawn

    def _probabilities(self, samples: Samples) -> tuple[Values, Indices]:
        setup = self._setup
        self.forwards += len(samples)
        setup.module.eval()
        shares = probabilities(setup.module, setup.federation, setup.dtype, samples)
        setup.module.train()
        return shares, samples.labels.cpu().numpy().flatten()  # a copy, for rules of users

    @property
    def gradients(self) -> Tensors:
        """Gradients of the last :meth:`backward`, by parameter name."""
        return Gradients(self.parameters)

    def backward(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See :class:`Problem`: sets ``.grad``; returns the cross-entropy of each sample [B] and the number of correct predictions."""
        for parameter in self.parameters.values():
            parameter.grad = None
        self.forwards += 3 * (size := self.batch.shape[0])  # len would call Python
        if size <= CHUNK and self._importance is None:
            return self._backward(self.batch, weights, 0)
        parts = [self._backward(index, share, number) for number, (index, share) in enumerate(self._chunks(weights))]
        return torch.cat([losses for losses, _ in parts]), torch.stack([right for _, right in parts]).sum()

    @property
    def reweighted(self) -> bool:
        """Whether samples have weights of their own, see :meth:`draw_by_loss`."""
        return self._importance is not None

    def descend(
        self, program: Program | ScriptedPass, order: Tensor, size: int, correction: Correction | OwnCorrection
    ) -> tuple[list[Tensor], Tensor]:
        """Take steps with the network's program, or a script, which may stop before a batch that it cannot process.

        Args:
            program: the network's program, or a script.
            order: the samples of the steps, as positions, int64 [n].
            size: size of a batch.
            correction: what is added to the gradients of every step; an own one only for scripts.

        Returns:
            the cross-entropy of each sample in each step, and the total number of correct predictions.
        """
        setup = self._setup
        added = setup.optimizer, correction, list(self.anchor.values())
        draws = self._generators(program.draws, -(-len(order) // size))
        losses: list[Tensor] = []
        right = torch.zeros((), dtype=torch.int64)
        for rows, labels, outputs, part in self._in_parts(order, size):
            beside: Any = *added, draws[len(losses) :], setup.training.clip_norm, outputs
            part_losses, part_right = program.descend(rows, labels, part, size, *beside)
            losses += part_losses
            right = right + part_right  # a number with a fraction in a regression
            if len(part_losses) * size < len(part):
                break
        self.steps, done = self.steps + len(losses), order[: len(losses) * size]
        self.forwards += 3 * len(done)
        self.batch = done[len(done) - len(losses[-1]) :] if losses else order
        return losses, right

    def _in_parts(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None, Tensor]]:
        """Features, labels and received outputs for the steps of an epoch, and the order of the steps in them; in parts if they are
        not all prepared."""
        labels, outputs = self._data.labels, self.received_outputs
        if self._prepared is not None and self.changes is None:
            yield self._prepared, labels, outputs, order
            return
        stretch = max(1, STRETCH // (size * math.prod(self._setup.federation.sample_shape))) * size
        for part in order.split(stretch):
            own = None if outputs is None else outputs[part]
            yield channels_last(self._features(part)), labels[part], own, torch.arange(len(part))

    def _backward(self, index: Tensor, weights: Tensor | None, number: int) -> tuple[Tensor, Tensor]:
        """Add the gradients of one chunk of the batch."""
        labels, size = self._data.labels.index_select(0, index), self.batch.shape[0]
        program = self._setup.program
        constant = weights is None or (isinstance(weights, Tensor) and weights.dim() < 2 and not weights.requires_grad)
        if program is not None and constant and program.holds():
            draws = self._generators(program.draws, 1, number)
            return program.backward(self._features(index), labels, weights, size, draws)
        features = self._features(index)
        if weights is None and index.shape[0] == size:
            played = self._recorded(features, labels, index, number)
            if played is not None:
                return played
        with self._drawing(number):
            logits = self._setup.module(features)
            objective = self._objective(logits, labels, index)
        if weights is None:
            pass_of_mean(objective, size)
        else:
            ((objective * weights).sum() / size).backward()
        return reported(self._setup.loss, objective, logits, labels)

    def _recorded(self, features: Tensor, labels: Tensor, index: Tensor, number: int) -> tuple[Tensor, Tensor] | None:
        """The pass of a batch without Python; None if there is none."""
        outputs = None if self.received_outputs is None else self.received_outputs[index]
        found = self._setup.recorded(features, labels, outputs)
        if found is None:
            return None
        return found.play(features, labels, self._generators(found.draws, 1, number), outputs)

    def _features(self, index: Tensor) -> Tensor:
        """The training samples at these positions, standardized and augmented."""
        if self._prepared is None:
            rows = self._setup.federation.prepare(self._data.pick(index), self._setup.dtype)
        else:
            rows = self._prepared.index_select(0, index)
            rows = rows.permute(0, 3, 1, 2) if rows.dim() == 4 else rows
        return rows if self.changes is None else self.changes(rows, index)

    def gradient(self, at: Tensors | None = None) -> Tensors:
        """See :class:`Problem`; ``.grad`` stays as it is."""
        return self.losses_and_gradient(self.parameters if at is None else at)[1]

    def full_gradient(self, at: Tensors) -> Tensors:
        """See :class:`Problem`; the model's buffers stay as they are."""
        before = self.batch, self._importance
        self.batch, self._importance = torch.arange(len(self._data), device=self._data.labels.device), None
        try:
            return self.losses_and_gradient(at)[1]
        finally:
            self.batch, self._importance = before

    def losses_and_gradient(self, at: Tensors, weights: Tensor | None = None) -> tuple[Tensor, Tensors]:
        """See :class:`Problem`; the model's buffers stay as they are."""
        self.forwards += 3 * len(self.batch)

        def parts(model: Callable[[Tensor], Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
            for number, (index, share) in enumerate(self._chunks(weights)):
                features = self._features(index)
                with self._drawing(number):
                    objective = self._objective(model(features), self._data.labels[index], index)
                weighted = objective if share is None else objective * share
                yield objective.detach(), weighted.sum() / len(self.batch)

        return summed_gradients(self._setup.module, at, parts)

    def cross_entropy_gradient(self, features: Tensor, labels: Tensor) -> Tensors:
        """See :class:`Problem`; the model's buffers stay as they are."""
        self.forwards += 3 * len(labels)

        def parts(model: Callable[[Tensor], Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
            for number, part in enumerate(self._setup.passes(len(labels))):
                inputs = self._setup.federation.prepare(features[part], self._setup.dtype)
                with self._drawing(number):
                    losses = sample_losses(model(inputs), labels[part])
                yield losses.detach(), losses.sum() / len(labels)

        return summed_gradients(self._setup.module, self.parameters, parts)[1]

    @property
    def labels(self) -> Tensor:
        """See :class:`Problem`."""
        return self._data.labels[self.batch]

    def outputs(self, at: Tensors | None = None, part: str = "") -> Tensor:
        """See :class:`Problem`."""
        self.forwards += len(self.batch) * (3 if at is None and torch.is_grad_enabled() else 1)
        features = self._features(self.batch)
        with self._setup.given_order.restored(), self._drawing(0):
            return outputs_of(self._setup.module, at, part, lambda model: model(features))

    def received_loss(self) -> float:
        """See :class:`Problem`."""
        self.forwards += len(self._data)
        module, device = self._setup.module, self._data.labels.device
        training, changes = module.training, self.changes
        module.eval()
        self.changes = None  # what clients report is about the unchanged images
        total = torch.zeros((), dtype=sum_type(device), device=device)
        with torch.no_grad():
            for index in torch.arange(len(self._data), device=device).split(CHUNK):
                logits = torch.func.functional_call(module, self._model, (self._features(index),))
                with self._drawing(0):
                    total += for_sums(self._objective(logits, self._data.labels[index], index)).sum()
        module.train(training)
        self.changes = changes
        return float(total / len(self._data))

    def _drawing(self, number: int) -> AbstractContextManager[object]:
        """Random numbers that the model and the loss draw depend only on seed, client, round, step and chunk."""
        if not self._setup.draws:
            return nullcontext()
        return torch_seeded(step_seed(self._first_draw, int(self.steps), number), self.device)

    def _generators(self, draws: bool, steps: int, number: int = 0) -> list[torch.Generator]:
        """Generators for chunk ``number`` of the next steps of a network that draws random numbers; none for another one."""
        return [step_generator(self._first_draw, int(self.steps) + i, number) for i in range(steps if draws else 0)]

    @cached_property
    def _first_draw(self) -> int:
        return integer(self._setup.seed, "module", self.t, self.client)

    def _chunks(self, weights: Tensor | None) -> Iterator[tuple[Tensor, Tensor | None]]:
        """The batch in parts of one forward pass, each with its weights, including those of samples that were drawn by loss."""
        if self._importance is not None:
            own = self._importance[self.batch]
            weights = own if weights is None else weights * own
        for part in self._setup.passes(len(self.batch)):
            yield self.batch[part], None if weights is None else weights[part]

    def _objective(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        outputs = None if self.received_outputs is None else self.received_outputs[index]
        return local_losses(self._setup.loss, logits, labels, outputs)
