"""The contract of a local loss."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedcohort.algorithms.losses import Loss, losses_of_rows
from fedcohort.core.random_streams import torch_seeded
from fedcohort.testing.base import check_kind, during_seeded, new_from, require

__all__ = ["check_loss"]

SAMPLES = 7
LARGE = 200.0
"""Size of large logits: the softmax of their classes is 0 or 1 in both precisions."""


def check_loss(make: Callable[[], Loss], *, num_classes: int = 5, mixes: bool = False) -> None:
    """Check the contract of :class:`fedcohort.algorithms.Loss`.

    The loss is one number for each sample, finite and with a finite gradient, also for large logits and a single sample. It depends
    on the logits of this sample only, and is lower for right predictions than for wrong ones. It changes nothing that it is given, and
    draws by functions of PyTorch only. A loss of numeric labels is checked on numbers.

    Args:
        make: returns a new loss.
        num_classes: the number of classes.
        mixes: whether the loss of a sample may depend on the others of its batch.

    Raises:
        AssertionError: the contract is broken; the message says where.
    """
    loss = new_from(make)
    check_kind(loss, Loss, "fedcohort.algorithms.Loss")
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(SAMPLES) % num_classes
    outputs = 1 if loss.numeric else num_classes
    if loss.numeric:
        labels = torch.randn(SAMPLES, generator=generator, dtype=torch.float64)
    for dtype in (torch.float32, torch.float64):
        name = f"{type(loss).__name__}, {str(dtype).removeprefix('torch.')}"
        of_dtype = labels.to(dtype) if loss.numeric else labels
        logits = torch.randn(SAMPLES, outputs, generator=generator, dtype=torch.float64).to(dtype)
        of_all = _losses(make(), logits, of_dtype, name)
        used = make()
        _losses(used, logits.flip(0), of_dtype, name)
        same = torch.equal(_losses(used, logits, of_dtype, name), of_all)
        require(same, f"{name}: another loss for the same samples after other samples; keep nothing on self")
        _losses(make(), LARGE * logits, of_dtype, f"{name}, large logits")
        alone = _losses(make(), logits[:1], of_dtype[:1], f"{name}, a single sample")
        if not mixes:
            _check_alone(make, logits, of_dtype, alone, of_all[:1], name)
    _check_direction(make(), labels, num_classes)


def _received(loss: Loss, logits: Tensor) -> Tensor | None:
    """Outputs of another model, if the loss uses them."""
    return logits.flip(0).softmax(-1).detach() if loss.needs_outputs else None


def _losses(loss: Loss, logits: Tensor, labels: Tensor, where: str) -> Tensor:
    """The loss of each sample; checked, with its gradient. Draws of PyTorch are the same in each call."""
    given = logits.clone().requires_grad_(), labels.clone(), _received(loss, logits)
    with during_seeded(where, loss, "training.loss"), torch_seeded(0, logits.device):
        passed = given[0] * 1, given[1], given[2]  # in training, the logits are the result of a network
        losses = losses_of_rows(loss, *passed)
        (gradient,) = torch.autograd.grad(losses.sum(), given[0])
    for name, before, after in zip(
        ("logits", "labels", "outputs"), (logits, labels, _received(loss, logits)), passed, strict=True
    ):
        changed = before is not None and after is not None and not torch.equal(before, after)
        require(not changed, f"{where}: samples changed the {name} that it was given; change a copy")
    require(losses.dtype.is_floating_point, f"{where}: losses are {losses.dtype}; return floats")
    require(torch.isfinite(losses).all(), f"{where}: the losses are not finite; {_ADVICE}")
    require(torch.isfinite(gradient).all(), f"{where}: the gradient is not finite; {_ADVICE}")
    return losses.detach()


_ADVICE = (
    "use functional.log_softmax(logits, dim=-1) and not the logarithm of a softmax, and divide by nothing that can be 0"
)


def _check_alone(
    make: Callable[[], Loss], logits: Tensor, labels: Tensor, alone: Tensor, together: Tensor, name: str
) -> None:
    """Check that the loss of the first sample does not depend on the logits of others."""
    complaint = f"{name}: the loss of a sample depends on the others of its batch; if that is intended, use mixes=True"
    loss, given = make(), logits.clone().requires_grad_()
    with torch_seeded(0, logits.device):
        (gradient,) = torch.autograd.grad(losses_of_rows(loss, given, labels, _received(loss, logits))[0], given)
    require(not gradient[1:].any(), complaint)
    if not loss.needs_outputs:  # of which a sample alone has others here
        require(torch.allclose(alone, together, rtol=1e-4, atol=1e-5), complaint)


def _check_direction(loss: Loss, labels: Tensor, num_classes: int) -> None:
    """Check that right predictions have a lower loss than wrong ones, so that training does not go away from the labels."""
    right = labels[:, None] if loss.numeric else 4 * torch.eye(num_classes, dtype=torch.float64)[labels]
    wrong = right + 4 if loss.numeric else right.roll(1, dims=1)
    means = [float(_losses(loss, logits, labels, type(loss).__name__).mean()) for logits in (right, wrong)]
    complaint = (
        f"{type(loss).__name__}: the mean loss of right predictions is {means[0]:.4g}, and {means[1]:.4g} of wrong ones"
    )
    require(means[0] < means[1], f"{complaint}; clients minimize the loss, so that it must be lower for right ones")
