"""Optimisers are PyTorch's, and cost less."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedcohort.algorithms.training_settings import Training
from fedcohort.training.optimizers import SGD, PlainSGD, build_optimizer, laid_out


def start(generator: torch.Generator) -> list[torch.Tensor]:
    """Parameters of two layouts."""
    first = torch.randn((8, 4, 3, 3), generator=generator).contiguous(memory_format=torch.channels_last)
    return [first, *(torch.randn(shape, generator=generator) for shape in ((5,), (6, 7)))]


def layout(value: torch.Tensor) -> torch.memory_format:
    return torch.channels_last if value.dim() == 4 else torch.contiguous_format


def test_plain_sgd_steps_as_torch_does_in_any_layout() -> None:
    generator = torch.Generator().manual_seed(0)
    values = start(generator)
    ours, theirs = ([value.clone().requires_grad_() for value in values] for _ in range(2))
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
    assert not torch.equal(ours[1], values[1])


@pytest.mark.parametrize(
    ("momentum", "weight_decay", "nesterov"),
    [(0.9, 0.0, False), (0.9, 0.1, False), (0.9, 0.0, True), (0.9, 0.1, True), (0.0, 0.1, False)],
)
def test_sgd_has_the_bits_of_torchs(momentum: float, weight_decay: float, nesterov: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    values = start(generator)
    ours, theirs = ([value.clone().requires_grad_() for value in values] for _ in range(2))
    settings = Training(lr=0.1, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)
    own = build_optimizer(settings, ours)
    assert isinstance(own, SGD)
    for client in range(2):  # who comes next starts afresh
        own.state.clear()
        other = torch.optim.SGD(
            theirs, lr=0.1, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov, fused=True
        )
        for step in range(3):
            for one, two in zip(ours, theirs, strict=True):
                one.grad = torch.randn(one.shape, generator=generator).contiguous(memory_format=layout(one))
                two.grad = one.grad.clone()
            own.param_groups[0]["lr"] = other.param_groups[0]["lr"] = 0.1 / (step + 1)
            own.step()
            other.step()
        assert all(torch.equal(one, two) for one, two in zip(ours, theirs, strict=True)), client
    assert not torch.equal(ours[0], values[0])


def test_a_parameter_whose_gradient_comes_late_begins_then() -> None:
    generator = torch.Generator().manual_seed(0)
    values = start(generator)
    ours, theirs = ([value.clone().requires_grad_() for value in values] for _ in range(2))
    own, other = build_optimizer(Training(lr=0.1), ours), torch.optim.SGD(theirs, lr=0.1, momentum=0.9)
    for absent in ((), (1,), (0, 1, 2), ()), ((1,), (), (0,), ()):
        own.state.clear()
        other.state.clear()
        for missing in absent:
            for place, (one, two) in enumerate(zip(ours, theirs, strict=True)):
                one.grad = None if place in missing else torch.randn(one.shape, generator=generator)
                if one.grad is not None:
                    one.grad = one.grad.contiguous(memory_format=layout(one))
                two.grad = None if one.grad is None else one.grad.clone()
            own.step()
            other.step()
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_gradient_in_another_layout_is_turned(optimizer: str) -> None:
    """Fused steps would pair other numbers with each other, and say nothing."""
    value, gradient = torch.randn(2, 8, 4, 3, 3).unbind()
    for momentum in (0.9, 0.0):
        found = []
        for layout in (torch.channels_last, torch.contiguous_format):
            parameter = value.clone(memory_format=layout).requires_grad_()
            own = build_optimizer(Training(optimizer=optimizer, momentum=momentum, weight_decay=0.1), [parameter])  # type: ignore[arg-type]
            for _ in range(2):
                parameter.grad = laid_out(gradient.clone(), parameter)
                own.step()
            found.append(parameter.detach())
        torch.testing.assert_close(*found)


def test_a_run_does_not_wait_for_torchs_compiler(tmp_path: Path) -> None:
    """It takes a second to load, and so does sympy, which autograd imports when it is given a gradient. The second run compares the
    bits of a program with those of autograd, and its stacks use autograd. FedCor trains its embeddings."""
    code = """
import sys, fedcohort
fedcohort.run(fedcohort.Experiment(rounds=1, seeds=1), runs=sys.argv[1])
from torch import nn
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 10))
run = fedcohort.run(fedcohort.Experiment(rounds=1, seeds=1, engine={"plan": "stacked"}), model=network, runs=sys.argv[1])
assert run.experiment.engine.plan == "stacked"
import numpy as np
from fedcohort.selection.gaussian_process import fit
fit(np.ones((2, 3)), 0.0, np.eye(3), np.ones(3), kernel="se", steps=3)
print("torch" in sys.modules, "torch._dynamo" in sys.modules or "sympy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["True", "False"], done.stdout
