"""Rewritten networks: the same bits, forward and back, and the same names."""

import copy

import pytest
import torch
from torch import Tensor, nn

from fedcohort.training.programs.network_rewriting import relu_last


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 3, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Identity(), nn.Flatten(),
        nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3),
    )  # fmt: skip


def kinds(module: nn.Sequential) -> list[str]:
    return [type(part).__name__ for part in module]


def outputs_and_gradients(module: nn.Module, inputs: Tensor) -> list[Tensor]:
    inputs = inputs.clone().requires_grad_()
    outputs = module(inputs)
    outputs.square().sum().backward()
    return [outputs.detach(), inputs.grad, *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("kind", ["random", "ties", "nothing above zero"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_not_a_bit_changes(kind: str, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    before = network().to(memory_format=layout)  # type: ignore[call-overload]
    inputs = torch.randn(6, 2, 8, 8).contiguous(memory_format=layout)
    if kind != "random":
        inputs = inputs.round()
        with torch.no_grad():
            for p in before.parameters():
                p.copy_(p.round() if kind == "ties" else -p.abs())
    if kind == "nothing above zero":
        inputs = inputs.abs()
    after = relu_last(copy.deepcopy(before))
    assert list(after.state_dict()) == list(before.state_dict())
    for one, other in zip(outputs_and_gradients(before, inputs), outputs_and_gradients(after, inputs), strict=True):
        assert torch.equal(one, other)


def test_relu_comes_behind_what_only_picks() -> None:
    convolution = ["Conv2d", "MaxPool2d", "ReLU", "Conv2d", "MaxPool2d", "Identity", "Flatten", "ReLU"]
    assert kinds(relu_last(network())) == [*convolution, "Linear", "ReLU", "Linear"]  # type: ignore[arg-type]


def test_what_somebody_looks_at_stays() -> None:
    watched = network()
    watched[1].register_forward_hook(lambda *_: None)
    assert kinds(relu_last(watched))[1:3] == ["ReLU", "MaxPool2d"]  # type: ignore[arg-type]
    both = nn.Sequential(nn.ReLU(), nn.MaxPool1d(2, return_indices=True))
    assert kinds(relu_last(both)) == ["ReLU", "MaxPool1d"]  # type: ignore[arg-type]

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = network()

    assert kinds(relu_last(Half()).parts)[1:3] == ["ReLU", "MaxPool2d"]  # type: ignore[arg-type]
    inner = relu_last(nn.Sequential(network(), nn.ReLU()))
    assert kinds(inner[0])[1:3] == ["MaxPool2d", "ReLU"]  # type: ignore[index]
    average = nn.Sequential(nn.ReLU(), nn.AvgPool2d(2))
    assert kinds(relu_last(average)) == ["ReLU", "AvgPool2d"]  # type: ignore[arg-type]
