"""Evaluate a model on samples: loss, correct predictions and probabilities.

Every result depends only on the samples that it is computed for. Blocks have a fixed size and never mix clients, so that results have
the same bits for any number of threads and processes.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedcohort.algorithms.sample_measures import sample_losses
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.sums import for_sums
from fedcohort.federation.federation import Federation, Samples
from fedcohort.training.programs.plain_network import Program

__all__ = [
    "BLOCK",
    "Evaluation",
    "block_losses",
    "blocks",
    "evaluate_block",
    "evaluate_blocks",
    "evaluate_numbers",
    "probabilities",
    "r_squared",
    "sum_up",
]

BLOCK = 128
"""Number of samples in one forward pass of an evaluation."""
TOGETHER = 2**20
"""Maximum number of feature values of several blocks that are standardized together."""


@dataclass(frozen=True)
class Evaluation:
    """The result of a model on a set of samples.

    Attributes:
        loss: mean cross-entropy of a label, or mean squared error of scaled numeric labels; NaN on an empty set.
        right: number of correct predictions per class, int64 [K]; a tie goes to the lowest class. With numeric labels, 0 [1].
        total: number of labels per class, int64 [K]: one for each sample, or one for each position of each sequence. With numeric
            labels, the number of samples [1].
        losses: loss of each sample, in order, float64 [n]; of a sequence with a label for each position, their mean.
        hits: whether the prediction for each sample is correct, in order, bool [n]; empty with numeric labels, and with a label for
            each position.
        predictions: probability of each class for each label, in order, float64 [n, K], or predicted numbers in the units of the
            labels [n]; None unless they were asked for.
        labels: class of each sample or position, int64 [n], or numbers, float64 [n]; None unless predictions were asked for.
        sums: with numeric labels, the sums of the scaled labels and of their squares, float64 [2]; otherwise None.
    """

    loss: float
    right: Indices
    total: Indices
    losses: Values = field(default_factory=lambda: np.zeros(0))
    hits: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    predictions: Values | None = None
    labels: Indices | Values | None = None
    sums: Values | None = None

    @property
    def accuracy(self) -> float:
        """Fraction of correct predictions, or R² of numeric labels; NaN on an empty set, and for R² if all labels are equal."""
        if self.sums is not None:
            return r_squared(self.loss, int(self.total.sum()), *self.sums.tolist())
        return float(self.right.sum() / self.total.sum()) if self.total.sum() else float("nan")

    @property
    def class_accuracy(self) -> Values:
        """Fraction of correct predictions per class, float64 [K]; NaN for a class without samples. Empty with numeric labels."""
        if self.sums is not None:
            return np.zeros(0)
        return np.where(self.total > 0, self.right / np.maximum(self.total, 1), np.nan)


def blocks(samples: Samples) -> Iterator[Samples]:
    """Consecutive blocks of :data:`BLOCK` samples, as views."""
    for start in range(0, len(samples), BLOCK):
        yield samples[start : start + BLOCK]


def evaluate_block(
    module: nn.Module, federation: Federation, dtype: torch.dtype, block: Samples, *, predictions: bool = False
) -> Evaluation:
    """Evaluate the model on one block; :func:`sum_up` combines blocks. The ``loss`` of the result is a sum."""
    losses, logits = block_losses(module, federation, dtype, block)
    if federation.is_numeric:
        return evaluate_numbers(federation, losses, logits, block, predictions=predictions)
    classes = federation.num_classes
    hits = logits.argmax(-1) == block.labels
    right = block.labels[hits]
    labels = block.labels.flatten()
    positions = block.labels[0].numel() if len(block) else 1  # labels of a sample
    return Evaluation(
        hits=hits.cpu().numpy() if hits.dim() == 1 else np.zeros(0, dtype=bool),
        loss=float(for_sums(losses).sum()) * positions,
        losses=losses.cpu().double().numpy(),
        right=torch.bincount(right, minlength=classes).cpu().numpy(),
        total=torch.bincount(labels, minlength=classes).cpu().numpy(),
        predictions=for_sums(logits).softmax(-1).flatten(0, -2).cpu().double().numpy() if predictions else None,
        labels=labels.cpu().numpy() if predictions else None,
    )


def evaluate_blocks(
    module: nn.Module,
    federation: Federation,
    dtype: torch.dtype,
    blocks: Sequence[Samples],
    program: Program | None = None,
    *,
    predictions: bool = False,
) -> list[Evaluation]:
    """Evaluate the model on each block, with the bits of :func:`evaluate_block`; blocks other than the last are full.

    Args:
        module, federation, dtype, predictions: as for :func:`evaluate_block`.
        blocks: the blocks.
        program: the network's program, which needs less time between blocks; None if there is none. On a GPU, blocks are evaluated
            together without one, because each result that is read waits for the GPU.
    """
    on_gpu = federation.device.type != "cpu"
    if predictions or not blocks or blocks[0].labels.dim() != 1 or federation.is_numeric or not (program or on_gpu):
        return [evaluate_block(module, federation, dtype, block, predictions=predictions) for block in blocks]
    count = max(1, TOGETHER // (BLOCK * math.prod(federation.sample_shape)))
    parts = [blocks[start : start + count] for start in range(0, len(blocks), count)]
    outputs = partial(_outputs, module) if program is None else program.outputs
    return [result for part in parts for result in _evaluated_together(outputs, federation, dtype, part)]


def _outputs(module: nn.Module, features: Tensor, edges: list[int]) -> Tensor:
    """Outputs of the module, for the samples between two edges at a time."""
    return torch.cat([module(features[a:b]) for a, b in itertools.pairwise(edges)])


def _evaluated_together(
    outputs: Callable[[Tensor, list[int]], Tensor],
    federation: Federation,
    dtype: torch.dtype,
    blocks: Sequence[Samples],
) -> list[Evaluation]:
    """Evaluate several blocks of samples; on a GPU, wait for it only once."""
    edges = [0, *itertools.accumulate(map(len, blocks))]
    labels = torch.cat([block.labels for block in blocks])
    with torch.no_grad():
        features = federation.prepare(torch.cat([block.features for block in blocks]), dtype)
        logits = outputs(features, edges)
        losses = sample_losses(logits, labels)
    hits = (logits.argmax(-1) == labels).cpu().numpy()
    losses = losses.cpu()
    sums, in_order, classes = for_sums(losses), losses.double().numpy(), labels.cpu().numpy()
    return [
        Evaluation(
            loss=float(sums[a:b].sum()),
            right=np.bincount(classes[a:b][hits[a:b]], minlength=federation.num_classes),
            total=np.bincount(classes[a:b], minlength=federation.num_classes),
            losses=in_order[a:b],
            hits=hits[a:b],
        )
        for a, b in itertools.pairwise(edges)
    ]


def evaluate_numbers(
    federation: Federation, losses: Tensor, outputs: Tensor, block: Samples, *, predictions: bool
) -> Evaluation:
    """As :func:`evaluate_block`, for numeric labels, from the squared errors [n] and the outputs [n, 1] on a block."""
    labels, numbers = block.labels.double(), federation.numbers if predictions else None
    return Evaluation(
        loss=float(losses.double().sum()),
        right=np.zeros(1, dtype=np.int64),
        total=np.array([len(block)]),
        losses=losses.double().cpu().numpy(),
        predictions=None if numbers is None else numbers.in_units(outputs.double().squeeze(1).cpu().numpy()),
        labels=None if numbers is None else numbers.in_units(labels.cpu().numpy()),
        sums=np.array([float(labels.sum()), float(labels.square().sum())]),
    )


def r_squared(mean_square: float, n: int, total: float, squares: float) -> float:
    """R² = 1 − Σ(y − ŷ)²/Σ(y − ȳ)², with ȳ the mean of these n labels; NaN if all labels are equal.

    Args:
        mean_square: mean squared error.
        n: number of samples.
        total, squares: sums of the labels and of their squares.
    """
    around_mean = squares - total * total / n if n else 0.0
    return 1 - n * mean_square / around_mean if around_mean > 1e-9 * max(squares, 1e-9) else math.nan


def sum_up(parts: Sequence[Evaluation], num_outputs: int) -> Evaluation:
    """Combine blocks, in their order, to one evaluation. The ``loss`` of a block is a sum; that of the result is a mean."""
    right, total = np.zeros(num_outputs, dtype=np.int64), np.zeros(num_outputs, dtype=np.int64)
    loss = 0.0
    for part in parts:
        loss, right, total = loss + part.loss, right + part.right, total + part.total
    losses = np.concatenate([np.zeros(0), *(part.losses for part in parts)])
    hits = np.concatenate([np.zeros(0, dtype=bool), *(part.hits for part in parts)])
    mean = loss / int(total.sum()) if total.sum() else float("nan")
    predictions = [part.predictions for part in parts if part.predictions is not None]
    labels = [part.labels for part in parts if part.labels is not None]
    sums = [part.sums for part in parts if part.sums is not None]
    all_labels: Any = np.concatenate(labels) if labels else None
    return Evaluation(
        loss=mean,
        right=right,
        total=total,
        losses=losses,
        hits=hits,
        predictions=np.concatenate(predictions) if predictions else None,
        labels=all_labels,
        sums=np.sum(sums, axis=0) if sums else None,
    )


def probabilities(module: nn.Module, federation: Federation, dtype: torch.dtype, samples: Samples) -> Values:
    """Class probabilities of the model for the labels of samples, float64 [n, K]; n counts positions if each has a label. For numeric
    labels, its scaled predictions [n, 1]."""
    parts = [np.zeros((0, federation.num_outputs))]
    for block in blocks(samples):
        with torch.no_grad():
            outputs = for_sums(module(federation.prepare(block.features, dtype)))
            shares = outputs if federation.is_numeric else outputs.softmax(-1)
            parts.append(shares.flatten(0, -2).cpu().double().numpy())
    return np.concatenate(parts)


def block_losses(
    module: nn.Module, federation: Federation, dtype: torch.dtype, block: Samples
) -> tuple[Tensor, Tensor]:
    """Cross-entropy, or squared error of numeric labels, of each sample [n], and outputs [n, K], or [n, L, K] with a label for each
    position."""
    with torch.no_grad():
        logits = module(federation.prepare(block.features, dtype))
        return sample_losses(logits, block.labels), logits
