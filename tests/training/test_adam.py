"""Adam and AdamW have the bits of PyTorch's fused optimizers."""

import pytest
import torch
from torch import nn

from fedcohort.algorithms.training_settings import Training
from fedcohort.training.optimizers import Adam, build_optimizer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_steps_have_the_bits_of_pytorch(name: str, weight_decay: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    shapes = ((40, 30), (7, 3, 3, 3), (5,), ())
    ours, theirs = ([nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in shapes] for _ in range(2))
    ours[1].data = ours[1].data.contiguous(memory_format=torch.channels_last)
    for one, other in zip(ours, theirs, strict=True):
        other.data = one.data.clone()
    made = build_optimizer(Training(optimizer=name, lr=0.01, weight_decay=weight_decay), ours)  # type: ignore[arg-type]
    assert isinstance(made, Adam)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    expected = kind(theirs, 0.01, weight_decay=weight_decay, fused=True)
    for step in range(5):
        made.param_groups[0]["lr"] = expected.param_groups[0]["lr"] = 0.01 / (1 + step)
        for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            one.grad = torch.randn_like(one) if (step + i) % 4 else None  # some parameters have no gradient
            other.grad = None if one.grad is None else one.grad.clone()
        made.step()
        expected.step()
        assert all(map(torch.equal, ours, theirs))
