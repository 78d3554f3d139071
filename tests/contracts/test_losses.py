"""Every local loss fulfills its contract, and the check detects losses that do not."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedcohort.algorithms import LOSSES, Loss
from fedcohort.core.parameters import make, parameters
from fedcohort.testing import check_loss

SETTINGS: dict[str, dict[str, Any]] = {"robust": {"alpha": 1.0, "beta": 0.5}, "huber": {"delta": 0.3}}


@pytest.mark.parametrize("name", list(LOSSES))
@pytest.mark.parametrize("num_classes", [2, 5])
def test_every_loss_fulfills_the_contract(name: str, num_classes: int) -> None:
    for values in ({}, SETTINGS.get(name, {})):
        check_loss(partial(make, LOSSES.find(name, "training.loss"), values, "training.loss"), num_classes=num_classes)


def own(samples: Callable[..., Any], *, outputs: bool = False, numbers: bool = False) -> type[Loss]:
    """A loss that computes this of the logits, the labels and the outputs; its first argument is itself."""

    @parameters
    class Own(Loss):
        """A loss."""

        needs_outputs: ClassVar[bool] = outputs
        numeric: ClassVar[bool] = numbers

        def samples(self, logits: Any, labels: Any, outputs: Any = None) -> Any:
            return samples(self, logits, labels, outputs)

    return Own


def ce(logits: Any, labels: Any) -> Any:
    return functional.cross_entropy(logits, labels, reduction="none")


def in_place(self: Any, logits: Any, labels: Any, outputs: Any) -> Any:
    logits /= 2.0
    return ce(logits, labels)


def other_labels(self: Any, logits: Any, labels: Any, outputs: Any) -> Any:
    labels[0] = 1
    return ce(logits, labels)


def other_outputs(self: Any, logits: Any, labels: Any, outputs: Any) -> Any:
    outputs *= 0.5
    return ce(logits, labels)


def falling(self: Any, logits: Any, labels: Any, outputs: Any) -> Any:
    self._calls = getattr(self, "_calls", 0) + 1
    return ce(logits, labels) / self._calls


def log_of_softmax(self: Any, logits: Any, labels: Any, outputs: Any) -> Any:
    return -logits.softmax(-1).log()[torch.arange(len(labels)), labels]


def root(self: Any, logits: Any, labels: Any, outputs: Any) -> Any:
    """Finite, but the gradient at 0 is not."""
    return (1 - (-ce(logits, labels)).exp()).clamp_min(0).sqrt()


WRONG: list[tuple[type[Loss], str]] = [
    (own(lambda self, z, y, p: functional.cross_entropy(z, y)), r"Own\.samples returned \[\] for 7 samples; .*reduction='none'"),
    (own(lambda self, z, y, p: (z - y) ** 2, numbers=True), r"returned \[7, 7\] for 7 samples; it must return the loss of each"),
    (own(lambda self, z, y, p: ce(z, y).detach()), "returned losses that do not depend on the logits; do not detach them"),
    (own(lambda self, z, y, p: ce(z, y).tolist()), "returned list for 7 samples"),
    (own(in_place), "samples changed the logits that it was given; change a copy"),
    (own(other_labels), "samples changed the labels that it was given"),
    (own(other_outputs, outputs=True), "samples changed the outputs that it was given"),
    (own(lambda self, z, y, p: -(p * z.log_softmax(-1)).sum(-1)), r"raised TypeError: .*test_losses\.py:"),
    (own(falling), "another loss for the same samples after other samples; keep nothing on self"),
    (own(lambda self, z, y, p: ce(z, y) * np.random.uniform(1, 2)), r"draws from numpy\.random; draw by functions of PyTorch"),  # noqa: NPY002
    (own(lambda self, z, y, p: ce(z, y).mean().expand(len(y))), "the loss of a sample depends on the others of its batch; if that is"),
    (own(lambda self, z, y, p: ce(z, y) * len(y)), "the loss of a sample depends on the others of its batch"),
    (own(log_of_softmax), "large logits: the losses are not finite; use functional.log_softmax"),
    (own(root), "large logits: the gradient is not finite"),
    (own(lambda self, z, y, p: -ce(z, y)), ": the mean loss of right predictions is -.* of wrong ones; clients minimize the loss"),
    (own(lambda self, z, y, p: -((z[:, 0] - y) ** 2), numbers=True), ": the mean loss of right predictions is"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "message"), WRONG)
def test_wrong_losses_are_found(loss: type[Loss], message: str) -> None:
    with pytest.raises(AssertionError, match=rf"^Own.*{message}"):
        check_loss(loss)


def test_losses_may_mix_samples_if_that_is_intended() -> None:
    check_loss(own(lambda self, z, y, p: ce(z, y) + ce(z, y).mean()), mixes=True)


def test_losses_may_draw_by_functions_of_torch() -> None:
    before = torch.get_rng_state()
    check_loss(own(lambda self, z, y, p: ce(z, y) * (1 + torch.rand(()))))
    assert torch.equal(torch.get_rng_state(), before)
