"""What a model does on given samples, while it stays as it is: the server's evaluation, and clients' answers about it.

Every result depends only on the samples it is about: blocks have a fixed size and never mix clients, so that one process with
two threads and ten processes give the same bits.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms.losses import CrossEntropy, Loss, Robust
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.streams import rng
from fedcohort.federation.federation import Federation, Samples
from fedcohort.selection import Context, GradientNorm, LocalAccuracy, LocalLoss, Question
from fedcohort.training.buffers import ALIGNMENT

__all__ = ["BLOCK", "Evaluation", "answer", "answers", "blocks", "evaluate_block", "probabilities", "sum_up"]

BLOCK = 128
"""Samples in one forward pass of the evaluation."""
TOGETHER = 256
"""Samples of several clients that are made ready for the model together, at most: what a core's cache holds."""


@dataclass(frozen=True)
class Evaluation:
    """A model on a set of samples.

    Attributes:
        loss: mean cross-entropy; NaN on an empty set.
        right: correct arg-max predictions per class, int64 [K]; the lowest class wins a tie.
        total: samples per class, int64 [K].
        losses: cross-entropy of each sample, in order, float64 [n].
    """

    loss: float
    right: Indices
    total: Indices
    losses: Values = field(default_factory=lambda: np.zeros(0))

    @property
    def accuracy(self) -> float:
        """Fraction of correct predictions; NaN on an empty set."""
        return float(self.right.sum() / self.total.sum()) if self.total.sum() else float("nan")

    @property
    def class_accuracy(self) -> Values:
        """The same per class, float64 [K]; NaN for a class without samples."""
        return np.where(self.total > 0, self.right / np.maximum(self.total, 1), np.nan)


def blocks(samples: Samples) -> Iterator[Samples]:
    """Consecutive blocks of :data:`BLOCK` samples, as views."""
    for start in range(0, len(samples), BLOCK):
        yield samples[start : start + BLOCK]


def evaluate_block(module: nn.Module, federation: Federation, dtype: torch.dtype, block: Samples) -> Evaluation:
    """The model on one block; :func:`sum_up` puts blocks together."""
    losses, logits = _losses(module, federation, dtype, block)
    classes = federation.num_classes
    right = block.labels[logits.argmax(1) == block.labels]
    return Evaluation(
        loss=float(losses.double().sum()),
        losses=losses.double().cpu().numpy(),
        right=torch.bincount(right, minlength=classes).cpu().numpy(),
        total=torch.bincount(block.labels, minlength=classes).cpu().numpy(),
    )


def sum_up(parts: Sequence[Evaluation], num_classes: int) -> Evaluation:
    """Blocks in their order, as one evaluation; the parts' ``loss`` is a sum, the result's a mean."""
    right, total = np.zeros(num_classes, dtype=np.int64), np.zeros(num_classes, dtype=np.int64)
    loss = 0.0
    for part in parts:
        loss, right, total = loss + part.loss, right + part.right, total + part.total
    losses = np.concatenate([np.zeros(0), *(part.losses for part in parts)])
    return Evaluation(loss / int(total.sum()) if total.sum() else float("nan"), right, total, losses)


def probabilities(module: nn.Module, federation: Federation, dtype: torch.dtype, samples: Samples) -> Values:
    """Class probabilities of the model on samples, float64 [n, K]."""
    parts = [np.zeros((0, federation.num_classes))]
    for block in blocks(samples):
        with torch.no_grad():
            parts.append(module(federation.prepare(block.features, dtype)).double().softmax(1).cpu().numpy())
    return np.concatenate(parts)


def answer(
    module: nn.Module, federation: Federation, dtype: torch.dtype, question: Question, t: int, client: int, seed: int
) -> Values:
    """What one client answers about the model that is loaded in ``module``: float64 [question.numbers]."""
    values: Values = _ANSWERS[type(question)](module, federation, dtype, question, t, client, seed)
    return values


def answers(
    module: nn.Module,
    federation: Federation,
    dtype: torch.dtype,
    question: Question,
    t: int,
    clients: Sequence[int],
    seed: int,
) -> list[Values]:
    """What each of these clients answers: the bits of :func:`answer`, with less work between two forward passes."""
    if not isinstance(question, LocalLoss) or question.batch or not _starts_alike(federation, dtype):
        return [answer(module, federation, dtype, question, t, client, seed) for client in clients]
    rows: list[Values] = []
    some: list[tuple[int, int]] = []
    samples = 0
    for start, stop in map(federation.span, clients):
        if some and samples + stop - start > TOGETHER:
            rows += _losses_beside(module, federation, dtype, some)
            some, samples = [], 0
        some.append((start, stop))
        samples += stop - start
    return rows + (_losses_beside(module, federation, dtype, some) if some else [])


def _starts_alike(federation: Federation, dtype: torch.dtype) -> bool:
    """Whether every sample of many begins where the first of few may: products round alike only where data are aligned alike."""
    return math.prod(federation.sample_shape) * dtype.itemsize % ALIGNMENT == 0


def _losses_beside(
    module: nn.Module, federation: Federation, dtype: torch.dtype, ranges: Sequence[tuple[int, int]]
) -> list[Values]:
    """Samples are made ready for all, and each client's go through the model by themselves."""
    positions = torch.from_numpy(np.concatenate([np.arange(start, stop) for start, stop in ranges]))
    positions = positions.to(federation.device)
    ends = np.cumsum([stop - start for start, stop in ranges]).tolist()
    own = [[*range(start, stop, BLOCK), stop] for start, stop in itertools.pairwise([0, *ends])]
    with torch.no_grad():
        features = federation.prepare(federation.train.pick(positions), dtype)
        logits = torch.cat([module(features[a:b]) for edges in own for a, b in itertools.pairwise(edges)])
        labels = federation.train.labels.index_select(0, positions)
        losses = functional.cross_entropy(logits, labels, reduction="none").double()
    sums = [sum(float(losses[a:b].sum()) for a, b in itertools.pairwise(edges)) for edges in own]
    return [np.array([total / (stop - start)]) for total, (start, stop) in zip(sums, ranges, strict=True)]


def _local_loss(
    module: nn.Module, federation: Federation, dtype: torch.dtype, question: LocalLoss, t: int, client: int, seed: int
) -> Values:
    data = federation.client(client)
    if question.batch:
        index = rng(seed, "question", t, client).permutation(len(data))[: question.batch]
        chosen = torch.from_numpy(index).to(data.labels.device)
        data = data[chosen]
    total = sum(float(_losses(module, federation, dtype, block)[0].double().sum()) for block in blocks(data))
    return np.array([total / len(data)])


def _local_accuracy(
    module: nn.Module,
    federation: Federation,
    dtype: torch.dtype,
    question: LocalAccuracy,
    t: int,
    client: int,
    seed: int,
) -> Values:
    data = federation.held_out(client) if question.held_out else federation.client(client)
    parts = [evaluate_block(module, federation, dtype, block) for block in blocks(data)]
    return np.array([sum_up(parts, federation.num_classes).accuracy])


def _context(
    module: nn.Module, federation: Federation, dtype: torch.dtype, question: Context, t: int, client: int, seed: int
) -> Values:
    trained = federation.client(client)
    held_out = federation.held_out(client)
    robust = Robust(alpha=question.alpha, beta=question.beta, log_zero=question.log_zero)
    loss = robust if question.loss == "robust" else CrossEntropy()
    return np.array(
        [
            _mean_loss(module, federation, dtype, loss, trained),
            _mean_loss(module, federation, dtype, CrossEntropy(), held_out if len(held_out) else trained),
        ]
    )


def _mean_loss(module: nn.Module, federation: Federation, dtype: torch.dtype, loss: Loss, data: Samples) -> float:
    """Of a local loss at the model that the client received: its pseudo-labels are the outputs themselves."""
    total = 0.0
    for block in blocks(data):
        _, logits = _losses(module, federation, dtype, block)
        total += float(loss.samples(logits, block.labels, logits.softmax(dim=1)).double().sum())
    return total / len(data)


def _gradient_norm(
    module: nn.Module,
    federation: Federation,
    dtype: torch.dtype,
    question: GradientNorm,
    t: int,
    client: int,
    seed: int,
) -> Values:
    data = federation.client(client)
    points = [p for p in module.parameters() if p.requires_grad]
    total = [torch.zeros_like(p, dtype=torch.float64) for p in points]
    for block in blocks(data):
        logits = module(federation.prepare(block.features, dtype))
        loss = functional.cross_entropy(logits, block.labels, reduction="sum")
        for sum_, gradient in zip(total, torch.autograd.grad(loss, points, allow_unused=True), strict=True):
            if gradient is not None:
                sum_ += gradient
    square = sum(float(sum_.square().sum()) for sum_ in total)
    return np.array([square**0.5 / len(data)])


def _losses(module: nn.Module, federation: Federation, dtype: torch.dtype, block: Samples) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        logits = module(federation.prepare(block.features, dtype))
        return functional.cross_entropy(logits, block.labels, reduction="none"), logits


_ANSWERS: dict[type[Question], Callable[..., Any]] = {
    LocalLoss: _local_loss,
    LocalAccuracy: _local_accuracy,
    Context: _context,
    GradientNorm: _gradient_norm,
}
