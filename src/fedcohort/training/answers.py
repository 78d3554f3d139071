"""The answers of clients to questions about a model, such as its loss on their data.

Every answer depends only on the client's own samples. Blocks have a fixed size and never mix clients, so that answers have the same
bits for any number of threads and processes. The samples of several clients are standardized together, and a program may pass several
blocks through the network together, where the bits are those of one pass for each (:mod:`fedcohort.training.programs.joined_passes`).
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
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.random_streams import rng
from fedcohort.core.sums import for_sums, sum_type
from fedcohort.federation.federation import Federation, Samples
from fedcohort.selection import Context, GradientNorm, LocalAccuracy, LocalLoss, Question
from fedcohort.training.evaluation import BLOCK, blocks
from fedcohort.training.programs.forward_functions import aligned_part
from fedcohort.training.programs.plain_network import Program

__all__ = ["TOGETHER", "Outputs", "accuracies", "answer", "answers", "outputs_of"]

TOGETHER = 2**22
"""Maximum number of feature values of several blocks that are standardized together."""

Measure = Callable[[Tensor, Tensor], Tensor]
"""A number of each sample, [n], from the outputs of the model and the labels."""

Outputs = Callable[[Tensor, list[int]], Tensor]
"""The outputs on the parts of a batch between neighboring edges, with the bits of one forward pass for each part."""


@dataclass(frozen=True)
class _Mean:
    """A mean over samples of a client.

    Attributes:
        samples: their positions, by client.
        measure: a number of each sample.
        counted: what a sample counts as in the mean, such as its number of labels.
        by_block: whether ``measure`` gets the samples of one block at a time: the bits of some functions depend on the others.
        from_one: whether the answer is 1 − the mean.
    """

    samples: Callable[[int], Indices]
    measure: Measure
    counted: int = 1
    by_block: bool = False
    from_one: bool = False


def answer(
    module: nn.Module, federation: Federation, dtype: torch.dtype, question: Question, t: int, client: int, seed: int
) -> Values:
    """The answer of one client about the model that is loaded in ``module``, float64 [question.numbers]."""
    return answers(module, federation, dtype, question, t, [client], seed)[0]


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
    if isinstance(question, GradientNorm):
        return _gradient_norms(module, federation, dtype, clients, program)
    outputs, means = outputs_of(module, program), _MEANS[type(question)](question, federation, t, seed)
    found = [_means(outputs, federation, dtype, federation.train, mean, clients) for mean in means]
    return list(np.stack(found, axis=1))


def outputs_of(module: nn.Module, program: Program | None) -> Outputs:
    """What computes the outputs of the model that is loaded in ``module``; ``program`` is that of the network, or None."""
    return partial(_outputs_of_parts, module) if program is None else program.outputs


def accuracies(
    outputs: Outputs, federation: Federation, dtype: torch.dtype, samples: Samples, of_clients: Sequence[Indices]
) -> Values:
    """The accuracy of each client, float64 [n]; with numeric labels, 1 − the mean squared error; NaN without samples.

    Args:
        outputs: is called for the clients in this order, and gets all blocks of one client before those of the next.
        federation, dtype: as for :func:`answer`.
        samples: the samples.
        of_clients: positions of each client's samples.
    """
    return _means(
        outputs, federation, dtype, samples, _accuracy(federation, of_clients.__getitem__), range(len(of_clients))
    )


def _means(
    outputs: Outputs,
    federation: Federation,
    dtype: torch.dtype,
    samples: Samples,
    mean: _Mean,
    clients: Sequence[int],
) -> Values:
    """The mean of each client over some of these samples, float64 [n]; NaN without samples."""
    of_clients = [mean.samples(client) for client in clients]
    parts = [own[start : start + BLOCK] for own in of_clients for start in range(0, len(own), BLOCK)]
    groups = _groups(parts, federation.sample_shape)
    sums = itertools.chain.from_iterable(_sums(outputs, federation, dtype, samples, mean, group) for group in groups)
    found = np.full(len(clients), np.nan)
    for i, own in enumerate(of_clients):
        if len(own):
            found[i] = sum(itertools.islice(sums, -(-len(own) // BLOCK))) / (len(own) * mean.counted)
    return 1 - found if mean.from_one else found


def _groups(parts: Sequence[Indices], sample_shape: Sequence[int]) -> Iterator[list[Indices]]:
    """Neighboring parts, in groups with at most :data:`TOGETHER` feature values."""
    most = TOGETHER // math.prod(sample_shape)
    group: list[Indices] = []
    samples = 0
    for part in parts:
        if group and samples + len(part) > most:
            yield group
            group, samples = [], 0
        group.append(part)
        samples += len(part)
    if group:
        yield group


def _outputs_of_parts(module: nn.Module, features: Tensor, edges: Sequence[int]) -> Tensor:
    """The model's outputs on the parts between neighboring edges, one part at a time."""
    return torch.cat([module(aligned_part(features, a, b)) for a, b in itertools.pairwise(edges)])


def _sums(
    outputs: Outputs,
    federation: Federation,
    dtype: torch.dtype,
    samples: Samples,
    mean: _Mean,
    parts: Sequence[Indices],
) -> list[float]:
    """The sum of the measure over each part, whose samples are those of one client. All samples are standardized together."""
    sizes = [len(part) for part in parts]
    positions = torch.from_numpy(np.concatenate(parts)).to(federation.device)
    with torch.no_grad():
        features = federation.prepare(samples.pick(positions), dtype)
        logits = outputs(features, [0, *itertools.accumulate(sizes)])
        labels = samples.labels.index_select(0, positions)
        if mean.by_block:
            own = list(map(mean.measure, logits.split(sizes), labels.split(sizes)))
        else:
            own = list(mean.measure(logits, labels).split(sizes))
        return torch.stack([for_sums(values).sum() for values in own]).tolist()


def _trained(federation: Federation, client: int) -> Indices:
    """Positions of the client's training samples."""
    return np.arange(*federation.span(client))


def _held_out(federation: Federation, client: int) -> Indices:
    """Positions of the samples that the client holds out; they follow its training samples."""
    return np.arange(federation.span(client)[1], federation.offsets[client + 1])


def _local_loss(question: LocalLoss, federation: Federation, t: int, seed: int) -> list[_Mean]:
    def samples(client: int) -> Indices:
        own = _trained(federation, client)
        if not question.batch:
            return own
        return own[rng(seed, "question", t, client).permutation(len(own))[: question.batch]]

    return [_Mean(samples, sample_losses)]


def _local_accuracy(question: LocalAccuracy, federation: Federation, _t: int, _seed: int) -> list[_Mean]:
    return [_accuracy(federation, partial(_held_out if question.held_out else _trained, federation))]


def _accuracy(federation: Federation, samples: Callable[[int], Indices]) -> _Mean:
    """The accuracy on samples of a client, or its score with numeric labels."""
    if federation.is_numeric:
        return _Mean(samples, sample_losses, from_one=True)
    return _Mean(samples, _right, counted=math.prod(federation.train.labels.shape[1:]))


def _right(logits: Tensor, labels: Tensor) -> Tensor:
    """Number of correct predictions of each sample."""
    return (logits.argmax(-1) == labels).reshape(len(labels), -1).sum(1)


def _context(question: Context, federation: Federation, _t: int, _seed: int) -> list[_Mean]:
    def held_out(client: int) -> Indices:
        own = _held_out(federation, client)
        return own if len(own) else _trained(federation, client)

    robust = Robust(alpha=question.alpha, beta=question.beta, log_zero=question.log_zero)
    measured = SquaredError() if federation.is_numeric else CrossEntropy()
    loss = robust if question.loss == "robust" else measured
    trained = _Mean(partial(_trained, federation), partial(_losses, loss), by_block=loss is robust)
    return [trained, _Mean(held_out, partial(_losses, measured))]


def _losses(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """A local loss at the model that the client received, for which the pseudo-labels are the model's own outputs."""
    return local_losses(loss, logits, labels, logits.softmax(dim=-1) if loss.needs_outputs else None)


def _gradient_norms(
    module: nn.Module, federation: Federation, dtype: torch.dtype, clients: Sequence[int], program: Program | None
) -> list[Values]:
    """The gradient norm of each client. Those of a perceptron are computed several in one call, with the same bits."""
    of_clients = [_trained(federation, client) for client in clients]
    most = TOGETHER // math.prod(federation.sample_shape) if program is not None and program.is_perceptron else 0
    together = [0 < len(own) <= most for own in of_clients]
    groups = _groups(list(itertools.compress(of_clients, together)), federation.sample_shape)
    squares = (square for group in groups if program for square in _squared_norms(program, federation, dtype, group))
    return [
        np.array([next(squares) ** 0.5 / len(own)]) if joined else _gradient_norm(module, federation, dtype, client)
        for client, own, joined in zip(clients, of_clients, together, strict=True)
    ]


def _squared_norms(
    program: Program, federation: Federation, dtype: torch.dtype, of_clients: Sequence[Indices]
) -> list[float]:
    """The squared norm of the gradient of each client's summed loss. All samples are standardized together."""
    positions = torch.from_numpy(np.concatenate(of_clients)).to(federation.device)
    features = federation.prepare(federation.train.pick(positions), dtype)
    labels = federation.train.labels.index_select(0, positions)
    ends = itertools.accumulate(map(len, of_clients))
    edges = [[*range(end - len(own), end, BLOCK), end] for own, end in zip(of_clients, ends, strict=True)]
    return program.squared_norms(features, labels, edges)


def _gradient_norm(module: nn.Module, federation: Federation, dtype: torch.dtype, client: int) -> Values:
    data = federation.client(client)
    points = [p for p in module.parameters() if p.requires_grad]
    total = [torch.zeros_like(p, dtype=sum_type(p.device)) for p in points]
    for block in blocks(data):
        logits = module(federation.prepare(block.features, dtype))
        loss = total_loss(logits, block.labels)
        for summed, gradient in zip(total, torch.autograd.grad(loss, points, allow_unused=True), strict=True):
            if gradient is not None:
                summed += gradient
    square = sum(float(summed.square().sum()) for summed in total)
    return np.array([square**0.5 / len(data)])


_MEANS: dict[type[Question], Callable[..., list[_Mean]]] = {
    LocalLoss: _local_loss,
    LocalAccuracy: _local_accuracy,
    Context: _context,
}
