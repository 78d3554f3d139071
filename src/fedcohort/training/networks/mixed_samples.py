"""Networks and losses in which the samples of a batch have a part in one another, as in batch norm, and losses that draw random
numbers."""

import copy
import math
from contextlib import suppress

import torch
from torch import Tensor, nn

from fedcohort.algorithms.losses import Loss
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.network_copies import copy_of
from fedcohort.core.random_streams import torch_seeded
from fedcohort.core.user_code.unseeded_draws import is_own, warning_of_draws
from fedcohort.federation.federation import Federation
from fedcohort.training.networks.model_states import DTYPES
from fedcohort.training.networks.random_layers import advances_generators
from fedcohort.training.networks.received_outputs import CHUNK

__all__ = ["drawn_by_loss", "largest_pass", "loss_draws", "passes", "why_loss_cannot_stack"]

_ROWS = 6
"""Number of samples with which a network or a loss is tried; the first half of them stays when the others change."""
_DIFFERENT = 1e-4
"""Smallest difference that shows that samples depend on others, as a share of the largest value."""


def largest_pass(federation: Federation, module: nn.Module, loss: Loss, batch_size: int) -> int:
    """Maximum number of samples in one forward pass of a training: :data:`~fedcohort.training.networks.received_outputs.CHUNK`, or a
    whole batch if what it gives for a sample depends on the others.

    Args:
        federation: holds the clients' data.
        module: the network, of which a copy is tried if there are larger batches.
        loss: the local loss.
        batch_size: size of a batch; 0 means all samples of a client.
    """
    most = int(federation.num_samples.max(initial=0))
    batch = min(batch_size or most, most)
    dtype = next(module.parameters()).dtype
    if batch <= CHUNK or not (_loss_mixes(loss, federation, dtype) or _network_mixes(module, federation, dtype)):
        return CHUNK
    return batch


def passes(samples: int, most: int, least: int) -> list[slice]:
    """The samples of each forward pass: at most ``most``; a last pass of fewer than ``least`` is a part of the one before."""
    starts = list(range(0, max(samples, 1), most))
    if len(starts) > 1 and samples - starts[-1] < least:
        starts.pop()
    return [slice(start, stop) for start, stop in zip(starts, [*starts[1:], samples], strict=True)]


def loss_draws(loss: Loss, federation: Federation, dtype: torch.dtype) -> bool:
    """Whether a loss draws, or may draw, from torch's generators. Its own errors are ignored; the training raises them."""
    if not is_own(loss):
        return False
    with suppress(Exception), torch.no_grad():
        trial, rows = copy.deepcopy(loss), _rows(loss, federation, dtype)
        return advances_generators(lambda: trial.samples(*rows), rows[0].device) is not False
    return False


def drawn_by_loss(training: Training, federation: Federation) -> list[str]:
    """The names of generators without a seed from which a loss draws, after a warning. Its own errors are ignored; the training raises
    them."""
    loss = training.build_loss()
    if not is_own(loss):
        return []
    with warning_of_draws("training.loss", loss) as drawn, suppress(Exception), torch.no_grad():
        rows = _rows(loss, federation, DTYPES[training.precision])
        with torch_seeded(0, rows[0].device):
            copy.deepcopy(loss).samples(*rows)
    return drawn


def _loss_mixes(loss: Loss, federation: Federation, dtype: torch.dtype) -> bool:
    """Whether what a loss gives for a sample depends on the others of the batch, or on their number."""
    if not is_own(loss):
        return False
    with suppress(Exception):
        trial, (logits, labels, outputs) = copy.deepcopy(loss), _rows(loss, federation, dtype)
        alone = _slopes(trial, logits, labels, outputs)
        others = torch.arange(_ROWS, device=logits.device)[:, None] >= _ROWS // 2
        changed = [
            _slopes(trial, torch.where(others, rest, logits), labels, outputs)
            for rest in _right_and_wrong(logits, labels)
        ]
        twice = None if outputs is None else torch.cat([outputs, outputs])
        changed.append(_slopes(trial, torch.cat([logits, logits]), torch.cat([labels, labels]), twice))
        return any(_differ(alone, found) for found in changed)
    return False


def why_loss_cannot_stack(loss: Loss, federation: Federation, training: Training) -> str | None:
    """Why a loss cannot be computed for several clients at once, in words; None if it can."""
    dtype, name = DTYPES[training.precision], type(loss).__name__
    if loss_draws(loss, federation, dtype):
        return f"the loss {name} draws random numbers"
    if _loss_mixes(loss, federation, dtype):
        return f"the loss {name} of a sample depends on the others of its batch"
    return None


def _rows(loss: Loss, federation: Federation, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
    """Some logits, with labels of the federation, and outputs of a received model if the loss needs them."""
    labels = federation.train.labels.flatten()
    labels = labels[torch.arange(_ROWS, device=labels.device) % len(labels)]
    count = _ROWS * federation.num_outputs
    logits = torch.arange(1, count + 1, device=labels.device).to(dtype).sin().reshape(_ROWS, -1)
    return logits, labels, logits.flip(0).softmax(-1) if loss.needs_outputs else None


def _right_and_wrong(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits with a loss of nearly 0 for every sample, and such with a large one; shape and type of ``logits``."""
    if labels.is_floating_point():
        exact = labels[:, None].to(logits.dtype).expand_as(logits)
        return exact, exact + 20
    sure = 20 * torch.zeros_like(logits).scatter_(1, labels[:, None], 1)
    return sure, -sure


def _slopes(loss: Loss, logits: Tensor, labels: Tensor, outputs: Tensor | None) -> Tensor:
    """The losses of the first half of :data:`_ROWS` samples, and the gradients of all losses with respect to their logits."""
    at = logits.detach().requires_grad_()
    with torch.enable_grad(), torch_seeded(0, at.device):
        losses = loss.samples(at, labels, outputs)
        slopes = torch.autograd.grad(losses.sum(), at)[0]
    return torch.cat([losses.detach()[: _ROWS // 2, None], slopes[: _ROWS // 2]], dim=1)


def _network_mixes(module: nn.Module, federation: Federation, dtype: torch.dtype) -> bool:
    """Whether the outputs of a network for a sample depend on the others of the batch, in training."""
    try:
        trial = copy_of(module).train()
        samples = federation.prepare(federation.train[:_ROWS].features, dtype)
        half = len(samples) // 2
        first = samples[:half]
        outputs = []
        for rest in (samples[half:], first * 2 if first.is_floating_point() else first):
            with torch.no_grad(), torch_seeded(0, samples.device):
                outputs.append(trial(torch.cat([first, rest]))[:half])
        return _differ(*outputs)
    except Exception:  # what cannot be tried
        return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules())


def _differ(values: Tensor, others: Tensor) -> bool:
    """Whether finite values are not those of another batch, up to rounding."""
    largest = float(values.abs().max())
    return math.isfinite(largest) and not float((values - others).abs().max()) <= _DIFFERENT * largest
