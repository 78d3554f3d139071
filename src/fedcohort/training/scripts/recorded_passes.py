"""Forward and backward passes on a GPU that are recorded once and then played with one call (CUDA graphs).

A step of a small network has a hundred kernels, each of which takes the GPU less time than Python and autograd need to start it. A
recording starts all of them at once. It computes what the calls of autograd compute: after it was made, its losses and gradients are
compared with theirs, and in exact arithmetic they must have the same bits.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.algorithms import Tensors
from fedcohort.algorithms.losses import CrossEntropy, Loss, SquaredError, local_losses
from fedcohort.algorithms.sample_measures import sample_losses, total_score
from fedcohort.core.arrays import Indices

__all__ = [
    "RecordedPass",
    "common_batch_sizes",
    "pass_by_autograd",
    "pass_of_mean",
    "python_state",
    "record_pass",
    "reported",
]

ROUNDED = 0.05
"""Largest relative difference of a recording in arithmetic that is not exact, where PyTorch may choose other algorithms each time."""

_run_backward = getattr(torch.autograd.graph, "_engine_run_backward", None)
"""What ``Tensor.backward`` calls in the end; with a gradient, that method would also import sympy, which takes half a second. None if
this version of torch has another one."""


def pass_of_mean(objective: Tensor, size: int) -> None:
    """Add the gradients of Σ objective / ``size`` to ``.grad``."""
    gradient = torch.full_like(objective, 1 / size)
    if _run_backward is None:
        torch.dot(objective, gradient).backward()
    else:
        _run_backward((objective,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def reported(loss: Loss, objective: Tensor, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each sample [B], or its squared error, and the number of correct predictions."""
    scores = logits.detach()
    same = isinstance(loss, (CrossEntropy, SquaredError))
    return objective.detach() if same else sample_losses(scores, labels), total_score(scores, labels)


def pass_by_autograd(
    module: nn.Module,
    loss: Loss,
    features: Tensor,
    labels: Tensor,
    forward: AbstractContextManager[object] | None = None,
    outputs: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Add the gradients of the mean loss of a batch to ``.grad``; the network and the loss run within ``forward``, if it is given.

    ``outputs`` are those of the received model for the batch, for losses that need them.

    Returns:
        as :func:`reported`.
    """
    with forward or nullcontext():
        logits = module(features)
        objective = local_losses(loss, logits, labels, outputs)
    pass_of_mean(objective, len(labels))
    return reported(loss, objective, logits, labels)


@dataclass
class RecordedPass:
    """The pass of a network for batches of one size, with its memory.

    Attributes:
        graph: the recording.
        parameters: the trainable entries.
        features, labels: a batch, before the recording is played.
        results: the cross-entropy of each sample and the number of correct predictions, after it was played.
        gradients: a gradient for each parameter, or None for one that has no part in the loss.
        fresh: whether each call gives copies of the gradients, for algorithms that may keep them.
        draws: False: networks that draw random numbers are not recorded.
    """

    graph: Any
    parameters: list[Tensor]
    features: Tensor
    labels: Tensor
    results: tuple[Tensor, Tensor]
    gradients: list[Tensor | None]
    fresh: bool = False
    draws: ClassVar[bool] = False

    def play(
        self,
        features: Tensor,
        labels: Tensor,
        draws: Sequence[torch.Generator] = (),  # noqa: ARG002 - there are none
        outputs: Tensor | None = None,  # noqa: ARG002 - the loss does not need them
    ) -> tuple[Tensor, Tensor] | None:
        """Set ``.grad`` to the gradients of the mean loss of this batch; None if the batch has another size.

        Unless they are :attr:`fresh`, the next call overwrites the gradients.

        Returns:
            the cross-entropy of each sample and the number of correct predictions.
        """
        if features.shape != self.features.shape or labels.shape != self.labels.shape:
            return None
        self.features.copy_(features)
        self.labels.copy_(labels)
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient.clone() if self.fresh and gradient is not None else gradient
        losses, right = self.results
        return losses.clone(), right.clone()


def common_batch_sizes(samples: Indices, batch_size: int) -> list[int]:
    """Sizes of the batches that most training consists of: that of a full batch, if a client has one, and that of the last batch of an
    epoch, if at least half of the clients with a shorter last batch share it.

    Args:
        samples: number of training samples of each client.
        batch_size: size of a full batch; 0 means all samples of the client.
    """
    most = int(samples.max(initial=0))
    rests = samples % batch_size if batch_size else samples
    rests = rests[rests > 0]
    sizes = [batch_size] if 0 < batch_size <= most else []
    if len(rests):
        counts = np.bincount(rests)
        if 2 * counts.max() >= len(rests):
            sizes.append(int(counts.argmax()))
    return sizes


def record_pass(
    module: nn.Module,
    parameters: Tensors,
    loss: Loss,
    features: Tensor,
    labels: Tensor,
    beside: RecordedPass | None = None,
) -> RecordedPass | None:
    """Record the pass of a network in training; the module stays as it is.

    No other thread may use the GPU meanwhile.

    Args:
        module: the network.
        parameters: its trainable entries.
        loss: the local loss.
        features, labels: a batch of the size that is recorded, in the memory layout that training uses.
        beside: another recording of the same network; the two are never played at the same time, so they share memory.

    Returns:
        the recording; None if the pass cannot be recorded, if a recording gives other results, and if passes may differ from step to
        step: because the network changes attributes of its modules, because modules have hooks, or because the loss needs the outputs
        of the received model.
    """
    if loss.needs_outputs or any(_has_hooks(part) for part in module.modules()):
        return None
    before, buffers = python_state(module), [buffer.clone() for buffer in module.buffers()]

    def reset() -> None:
        for buffer, value in zip(module.buffers(), buffers, strict=True):
            buffer.copy_(value)
        for parameter in parameters.values():
            parameter.grad = None

    def one_pass(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return pass_by_autograd(module, loss, features, labels)

    found = None
    with suppress(Exception):  # the network's own errors as well: the training raises them
        found = _recorded(one_pass, reset, list(parameters.values()), features, labels, beside)
    reset()
    return found if python_state(module) == before else None


def _recorded(
    one_pass: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    reset: Callable[[], None],
    parameters: list[Tensor],
    features: Tensor,
    labels: Tensor,
    beside: RecordedPass | None,
) -> RecordedPass | None:
    """The recording; None if it gives other results than ``one_pass``. ``reset`` undoes what a pass changes in the module."""
    current = torch.cuda.current_stream(features.device)
    stream = torch.cuda.Stream(features.device)  # of its own, because products of one stream share memory
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        for _ in range(2):  # the first pass may choose algorithms
            reset()
            expected = [*one_pass(features, labels), *_gradients(parameters)]
        inputs, targets = torch.empty_like(features).copy_(features), labels.clone()
        reset()
        graph: Any = torch.cuda.CUDAGraph()
        pool = {} if beside is None else {"pool": beside.graph.pool()}
        graph.capture_begin(**pool, capture_error_mode="thread_local")
        try:
            results = one_pass(inputs, targets)
        finally:
            with suppress(RuntimeError):
                graph.capture_end()
        recording = RecordedPass(graph, parameters, inputs, targets, results, [p.grad for p in parameters])
        found = [*results, *_gradients(parameters)]
        reset()
        graph.replay()
    current.wait_stream(stream)
    return recording if _same(found, expected) else None


def _gradients(parameters: list[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _same(found: list[Tensor], expected: list[Tensor]) -> bool:
    """Whether the results are equal; in arithmetic that is not exact, whether they are close."""
    if torch.backends.cudnn.deterministic:
        return all(map(torch.equal, found, expected))
    return all(
        float((a - b).double().norm()) <= ROUNDED * float(b.double().norm())
        for a, b in zip(found, expected, strict=True)
    )


def _has_hooks(part: nn.Module) -> bool:
    """Whether something else runs when the module runs."""
    return bool(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks)


def python_state(module: nn.Module) -> list[dict[str, Any]]:
    """The attributes of all modules that are neither tensors nor modules, as text."""
    inner = ("_parameters", "_buffers", "_modules")
    return [{name: repr(value) for name, value in vars(part).items() if name not in inner} for part in module.modules()]
