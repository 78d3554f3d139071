"""The backward pass of a batch's mean loss, which begins with the gradient of that mean."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from fedcohort.training.scripts import recorded_passes
from fedcohort.training.scripts.recorded_passes import pass_of_mean


class Calls(TorchDispatchMode):
    """Notes the names of PyTorch's operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def losses_of(weight: Tensor) -> Tensor:
    rows = torch.linspace(-1, 1, 21, dtype=weight.dtype).view(7, 3)
    return functional.cross_entropy(rows @ weight, torch.arange(7) % 4, reduction="none")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [7, 20])
@pytest.mark.parametrize("direct", [True, False])
def test_it_has_the_bits_of_the_product_with_equal_weights(
    dtype: torch.dtype, size: int, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk of a larger batch has the weights of the whole batch; other versions of torch may lack the direct way."""
    assert recorded_passes._run_backward is not None
    if not direct:
        monkeypatch.setattr(recorded_passes, "_run_backward", None)
    weight, same = (torch.linspace(-2, 1, 12, dtype=dtype).view(3, 4).requires_grad_() for _ in range(2))
    pass_of_mean(losses_of(weight), size)
    losses = losses_of(same)
    torch.dot(losses, torch.full_like(losses, 1 / size)).backward()
    assert weight.grad is not None
    assert same.grad is not None
    assert torch.equal(weight.grad, same.grad)


def test_neither_the_mean_nor_its_gradient_is_computed() -> None:
    """Every call takes time, and a step of a small network has few others."""
    losses = losses_of(torch.zeros(3, 4, requires_grad=True))
    with Calls() as calls:
        pass_of_mean(losses, 7)
    assert calls.names[0] == "full_like"
    assert calls.names[1] == "nll_loss_backward"


def test_losses_without_a_gradient_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="does not require grad"):
        pass_of_mean(torch.ones(3), 3)
