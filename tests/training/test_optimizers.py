"""Plain SGD is PyTorch's."""

import pytest
import torch

from fedcohort.algorithms.local import Training
from fedcohort.training.optimizers import PlainSGD, build_optimizer


def test_plain_sgd_steps_as_torch_does_in_any_layout() -> None:
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for shape in ((8, 4, 3, 3), (5,), (6, 7))]
    start[0] = start[0].contiguous(memory_format=torch.channels_last)
    ours, theirs = ([value.clone().requires_grad_() for value in start] for _ in range(2))
    own = build_optimizer(Training(lr=0.1, momentum=0.0), ours)
    assert isinstance(own, PlainSGD)
    other = torch.optim.SGD(theirs, lr=0.1)
    for step in range(3):
        for one, two in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            two.grad = one.grad.clone()
        ours[1].grad = theirs[1].grad = None if step == 1 else ours[1].grad  # a parameter that was not needed
        own.param_groups[0]["lr"] = other.param_groups[0]["lr"] = 0.1 / (step + 1)
        own.step()
        other.step()
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two)
    assert not torch.equal(ours[1], start[1])


@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {"momentum": 0.0, "weight_decay": 0.1}, {"optimizer": "adam"}])
def test_everything_else_is_torchs(settings: dict[str, object]) -> None:
    found = build_optimizer(Training(**settings), [torch.zeros(2, requires_grad=True)])  # type: ignore[arg-type]
    assert isinstance(found, torch.optim.Optimizer)
