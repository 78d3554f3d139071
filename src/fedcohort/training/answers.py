"""The answers of clients to questions about a model, such as its loss on their data.

Every answer depends only on the client's own samples. Blocks have a fixed size and never mix clients, so that answers have the same
bits for any number of threads and processes. A program may pass several blocks through the network together, where the bits are those
of one pass for each (:mod:`fedcohort.training.joined_passes`).
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.algorithms.losses import CrossEntropy, Loss, Robust, SquaredError, local_losses
from fedcohort.algorithms.sample_measures import sample_losses, total_loss
from fedcohort.core.arrays import Values
from fedcohort.core.random_streams import rng
from fedcohort.core.sums import for_sums, sum_type
from fedcohort.federation.federation import Federation, Samples
from fedcohort.selection import Context, GradientNorm, LocalAccuracy, LocalLoss, Question
from fedcohort.training.evaluation import BLOCK, block_losses, blocks, evaluate_block, sum_up
from fedcohort.training.plain_network import Program
from fedcohort.training.reused_memory import ALIGNMENT

__all__ = ["TOGETHER", "aligned_alike", "answer", "answers"]

TOGETHER = 2**22
"""Maximum number of feature values of several blocks that are standardized together."""


@dataclass(frozen=True)
class _Asked:
    """A client that answers a question about a model in round ``t``."""

    module: nn.Module
    federation: Federation
    dtype: torch.dtype
    t: int
    client: int
    seed: int

    def losses(self, block: Samples) -> tuple[Tensor, Tensor]:
        """See :func:`_losses`."""
        return block_losses(self.module, self.federation, self.dtype, block)


def answer(
    module: nn.Module, federation: Federation, dtype: torch.dtype, question: Question, t: int, client: int, seed: int
) -> Values:
    """The answer of one client about the model that is loaded in ``module``, float64 [question.numbers]."""
    return _ANSWERS[type(question)](question, _Asked(module, federation, dtype, t, client, seed))


def answers(
    module: nn.Module,
    federation: Federation,
    dtype: torch.dtype,
    question: Question,
    t: int,
    clients: Sequence[int],
    seed: int,
    program: Program | None = None,
) -> list[Values]:
    """The answers of these clients, with the bits of :func:`answer` and less work between two forward passes.

    With the network's ``program``, the forward passes of several clients are one call.
    """
    if not isinstance(question, LocalLoss) or question.batch or not aligned_alike(federation, dtype):
        return [answer(module, federation, dtype, question, t, client, seed) for client in clients]
    outputs = partial(_outputs_of_parts, module) if program is None else program.outputs
    spans = [federation.span(client) for client in clients]
    edges = [[*range(start, stop, BLOCK), stop] for start, stop in spans]
    parts = [part for own in edges for part in itertools.pairwise(own)]
    sums = itertools.chain.from_iterable(
        _sums_of_losses(outputs, federation, dtype, together) for together in _groups(parts, federation.sample_shape)
    )
    return [
        np.array([sum(itertools.islice(sums, len(own) - 1)) / (stop - start)])
        for own, (start, stop) in zip(edges, spans, strict=True)
    ]


def _groups(parts: Sequence[tuple[int, int]], sample_shape: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """Neighboring parts, in groups with at most :data:`TOGETHER` feature values."""
    most = TOGETHER // math.prod(sample_shape)
    group: list[tuple[int, int]] = []
    samples = 0
    for start, stop in parts:
        if group and samples + stop - start > most:
            yield group
            group, samples = [], 0
        group.append((start, stop))
        samples += stop - start
    if group:
        yield group


def aligned_alike(federation: Federation, dtype: torch.dtype) -> bool:
    """Whether every sample of a batch has the alignment of the first one: products round alike only for data aligned alike."""
    return math.prod(federation.sample_shape) * dtype.itemsize % ALIGNMENT == 0


def _outputs_of_parts(module: nn.Module, features: Tensor, edges: Sequence[int]) -> Tensor:
    """The model's outputs on the parts between neighboring edges, one part at a time."""
    return torch.cat([module(features[a:b]) for a, b in itertools.pairwise(edges)])


def _sums_of_losses(
    outputs: Callable[[Tensor, list[int]], Tensor],
    federation: Federation,
    dtype: torch.dtype,
    parts: Sequence[tuple[int, int]],
) -> list[float]:
    """The sum of the losses of each part of the training samples; a part has samples of one client.

    All samples are standardized together. ``outputs`` gives the outputs on the parts of a batch between neighboring edges, with the
    bits of one forward pass for each part.
    """
    sizes = [stop - start for start, stop in parts]
    positions = torch.from_numpy(np.concatenate([np.arange(start, stop) for start, stop in parts]))
    positions = positions.to(federation.device)
    with torch.no_grad():
        features = federation.prepare(federation.train.pick(positions), dtype)
        logits = outputs(features, [0, *itertools.accumulate(sizes)])
        labels = federation.train.labels.index_select(0, positions)
        losses = for_sums(sample_losses(logits, labels))
    return torch.stack([own.sum() for own in losses.split(sizes)]).tolist()


def _local_loss(question: LocalLoss, asked: _Asked) -> Values:
    data = asked.federation.client(asked.client)
    if question.batch:
        index = rng(asked.seed, "question", asked.t, asked.client).permutation(len(data))[: question.batch]
        data = data[torch.from_numpy(index).to(data.labels.device)]
    total = sum(float(for_sums(asked.losses(block)[0]).sum()) for block in blocks(data))
    return np.array([total / len(data)])


def _local_accuracy(question: LocalAccuracy, asked: _Asked) -> Values:
    data = asked.federation.held_out(asked.client) if question.held_out else asked.federation.client(asked.client)
    parts = [evaluate_block(asked.module, asked.federation, asked.dtype, block) for block in blocks(data)]
    whole = sum_up(parts, asked.federation.num_outputs)
    return np.array([1 - whole.loss if asked.federation.is_numeric else whole.accuracy])


def _context(question: Context, asked: _Asked) -> Values:
    trained = asked.federation.client(asked.client)
    held_out = asked.federation.held_out(asked.client)
    robust = Robust(alpha=question.alpha, beta=question.beta, log_zero=question.log_zero)
    measured = SquaredError() if asked.federation.is_numeric else CrossEntropy()
    loss = robust if question.loss == "robust" else measured
    return np.array(
        [_mean_loss(asked, loss, trained), _mean_loss(asked, measured, held_out if len(held_out) else trained)]
    )


def _mean_loss(asked: _Asked, loss: Loss, data: Samples) -> float:
    """The mean of a local loss at the model that the client received, for which the pseudo-labels are the model's own outputs."""
    total = 0.0
    for block in blocks(data):
        _, logits = asked.losses(block)
        total += float(for_sums(local_losses(loss, logits, block.labels, logits.softmax(dim=-1))).sum())
    return total / len(data)


def _gradient_norm(_: GradientNorm, asked: _Asked) -> Values:
    data = asked.federation.client(asked.client)
    points = [p for p in asked.module.parameters() if p.requires_grad]
    total = [torch.zeros_like(p, dtype=sum_type(p.device)) for p in points]
    for block in blocks(data):
        logits = asked.module(asked.federation.prepare(block.features, asked.dtype))
        loss = total_loss(logits, block.labels)
        for summed, gradient in zip(total, torch.autograd.grad(loss, points, allow_unused=True), strict=True):
            if gradient is not None:
                summed += gradient
    square = sum(float(summed.square().sum()) for summed in total)
    return np.array([square**0.5 / len(data)])


_ANSWERS: dict[type[Question], Callable[..., Values]] = {
    LocalLoss: _local_loss,
    LocalAccuracy: _local_accuracy,
    Context: _context,
    GradientNorm: _gradient_norm,
}
