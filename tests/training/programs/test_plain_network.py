"""Steps as one program: the bits of autograd and of the optimisers, with and without Python, and for nobody it is not made for."""

import copy
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms import Algorithm, Problem, Tensors
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fedbio import FedBiO
from fedcohort.algorithms.methods.fedprox import FedProx
from fedcohort.algorithms.methods.scaffold import Scaffold
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.random_streams import torch_seeded
from fedcohort.engines.base import ClientError
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import CnnA, Mlp, Model, as_model
from fedcohort.selection import Cohort
from fedcohort.testing.base import HEALTHY, bits, small_federation
from fedcohort.training import client_problem as problem
from fedcohort.training import local_setup as setup
from fedcohort.training.matrix_products import quick_products
from fedcohort.training.optimizers import build_optimizer
from fedcohort.training.programs import plain_functions
from fedcohort.training.programs import plain_network as program
from fedcohort.training.programs.network_rewriting import relu_last
from fedcohort.training.programs.plain_network import program_of
from tests.repetitions import slow_unless

IMAGES = (3, 12, 12)

NETWORKS: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module]]] = {
    "softmax": ((7,), lambda: nn.Linear(7, 4)),
    "perceptron": ((7,), lambda: nn.Sequential(nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 4, bias=False))),
    "large products": ((3000,), lambda: nn.Sequential(nn.Linear(3000, 200), nn.ReLU(), nn.Linear(200, 4))),
    "flattened images": (IMAGES, lambda: nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(432, 5), nn.Linear(5, 4))),
    "convolutions": (
        IMAGES,
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(288, 6), nn.ReLU(), nn.Linear(6, 4),
        ),
    ),
    "uncommon windows": (
        IMAGES,
        lambda: nn.Sequential(
            nn.MaxPool2d((3, 2), stride=(1, 2), padding=(1, 0), ceil_mode=True), nn.ReLU(inplace=True),
            nn.Conv2d(3, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=3, bias=False),
            nn.ReLU(), nn.Identity(), nn.Conv2d(6, 5, 1), nn.MaxPool2d(2, 1, dilation=2), nn.Flatten(),
            nn.LazyLinear(4),
        ),
    ),
    "GELU and tanh": (
        (7,),
        lambda: nn.Sequential(
            nn.Linear(7, 6), nn.GELU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 5), nn.GELU(approximate="tanh"),
            nn.ReLU(), nn.Linear(5, 4), nn.Tanh(),
        ),
    ),
    "convolutions with GELU and tanh": (
        IMAGES,
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GELU(), nn.MaxPool2d(2), nn.Tanh(), nn.Conv2d(8, 8, 3), nn.Tanh(), nn.Flatten(),
            nn.Linear(72, 4),
        ),
    ),
    "group norms": (
        IMAGES,
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.ReLU(), nn.MaxPool2d(2), nn.GroupNorm(2, 8),
            nn.Conv2d(8, 6, 3, bias=False), nn.GroupNorm(6, 6, eps=1e-3), nn.GELU(), nn.Flatten(), nn.Linear(96, 4),
        ),
    ),
    "average pooling": (
        IMAGES,
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 8, 3), nn.Tanh(),
            nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False), nn.Flatten(), nn.Linear(72, 4),
        ),
    ),
    "means of whole maps": (
        IMAGES,
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(),
            nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4),
        ),
    ),
    "means of activated maps": (
        IMAGES,
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)),
    ),
    "rows in rows": (
        IMAGES,
        lambda: nn.Sequential(
            nn.Sequential(nn.Conv2d(3, 4, 5, stride=2), nn.ReLU()), nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
        ),
    ),
}  # fmt: skip


def network(name: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, tuple[int, ...]]:
    """As a trainer has it."""
    torch.manual_seed(0)
    shape, build = NETWORKS[name]
    module = build()
    module(torch.zeros(2, *shape))  # lazy layers find out their sizes
    module = quick_products(relu_last(module)).to(dtype=dtype)
    return module.to(memory_format=torch.channels_last) if len(shape) == 3 else module, shape  # type: ignore[call-overload]


def batch(shape: tuple[int, ...], size: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(size, *shape, dtype=dtype)
    inputs = inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs
    return inputs, torch.randint(0, 4, (size,))


def by_autograd(
    module: nn.Module, inputs: Tensor, labels: Tensor, weights: Tensor | None, size: int
) -> tuple[Tensor, int, list[Tensor]]:
    for parameter in module.parameters():
        parameter.grad = None
    logits = module(inputs)
    losses = functional.cross_entropy(logits, labels, reduction="none")
    if weights is None:
        torch.dot(losses, torch.full_like(losses, 1 / size)).backward()
    else:
        ((losses * weights).sum() / size).backward()
    gradients = [parameter.grad for parameter in module.parameters()]
    return losses.detach(), int((logits.argmax(1) == labels).sum()), gradients  # type: ignore[return-value]


TORCHSCRIPT = sys.version_info < (3, 14)
WITHOUT_TORCHSCRIPT = "PyTorch has no TorchScript for this Python"


@pytest.fixture(params=["without Python", "by Python"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A PyTorch with TorchScript, and one that has none any more."""

    def gone(*_: Any) -> Any:
        raise RuntimeError("there is no TorchScript")

    if request.param == "without Python" and not TORCHSCRIPT:
        pytest.skip(WITHOUT_TORCHSCRIPT)
    program._without_python.cache_clear()
    if request.param == "by Python":
        monkeypatch.setattr(torch.jit, "script", gone)
    yield str(request.param)
    program._without_python.cache_clear()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1, pytest.param(5, marks=pytest.mark.slow), 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_have_the_bits_of_autograd(
    name: str, dtype: torch.dtype, size: int, weighted: bool, way: str
) -> None:
    module, shape = network(name, dtype)
    steps = program_of(module, shape)
    assert steps is not None
    assert len(program._without_python()) == (5 if way == "without Python" else 0)
    inputs, labels = batch(shape, size, dtype)
    weights = torch.rand(size, dtype=torch.float64) if weighted else None
    losses, hits, gradients = by_autograd(module, inputs, labels, weights, size + 1)
    for _ in range(3):  # the first call is not another one than those that follow
        for parameter in module.parameters():
            parameter.grad = None
        found, right = steps.backward(inputs.clone(), labels, weights, size + 1)
        assert torch.equal(found, losses)
        assert right == hits
        for parameter, gradient in zip(module.parameters(), gradients, strict=True):
            assert parameter.grad is not None
            assert torch.equal(parameter.grad, gradient)
            assert parameter.grad.stride() == parameter.stride()
    steps.backward(inputs, labels, weights, size + 1)
    for parameter, gradient in zip(module.parameters(), gradients, strict=True):
        assert torch.equal(parameter.grad, 2 * gradient)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"momentum": 0.0},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"momentum": 0.0, "weight_decay": 0.1},
        {"optimizer": "adam"},
        {"optimizer": "adam", "weight_decay": 0.1},
        {"optimizer": "adamw", "weight_decay": 0.1},
    ],
)
@pytest.mark.parametrize("name", ["perceptron", "convolutions"])
def test_descent_has_the_bits_of_the_optimisers_steps(name: str, settings: dict[str, Any], way: str) -> None:
    module, shape = network(name)
    other = copy.deepcopy(module)
    inputs, labels = batch(shape, 11)
    features = inputs.permute(0, 2, 3, 1) if len(shape) == 3 else inputs
    steps = program_of(module, shape)
    assert steps is not None
    ours, theirs = (build_optimizer(Training(lr=0.1, **settings), list(m.parameters())) for m in (module, other))
    for _ in range(2):  # clients
        ours.state.clear()
        theirs.state.clear()
        for epoch in range(3):
            for optimizer in (ours, theirs):
                optimizer.param_groups[0]["lr"] = 0.1 / (1 + epoch)
            order = torch.randperm(11)
            seen, right = steps.descend(features, labels, order, 4, ours)
            expected = [by_autograd_and(theirs, other, inputs, labels, part) for part in order.split(4)]
            assert [len(losses) for losses in seen] == [4, 4, 3]
            assert all(torch.equal(found, losses) for found, (losses, _) in zip(seen, expected, strict=True))
            assert right == sum(hits for _, hits in expected)
    for one, two in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one.grad, two.grad)  # type: ignore[arg-type]


def by_autograd_and(
    optimizer: Any, module: nn.Module, inputs: Tensor, labels: Tensor, part: Tensor
) -> tuple[Tensor, int]:
    losses, hits, _ = by_autograd(module, inputs[part], labels[part], None, len(part))
    optimizer.step()
    return losses, hits


class Own(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


def shared() -> nn.Module:
    layer = nn.Linear(7, 7)
    return nn.Sequential(layer, nn.ReLU(), layer)


def tied() -> nn.Module:
    one, other = nn.Linear(7, 7), nn.Linear(7, 7)
    other.weight = one.weight
    return nn.Sequential(one, other)


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 4))
    module[0].weight.requires_grad_(False)
    return module


def watched() -> nn.Module:
    module = nn.Sequential(nn.Linear(7, 4))
    module[0].register_forward_hook(lambda *_: None)
    return module


def clipped() -> nn.Module:
    module = nn.Linear(7, 4)
    module.weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
    return module


def accumulated() -> nn.Module:
    module = nn.Linear(7, 4)
    module.weight.register_post_accumulate_grad_hook(lambda p: p.grad.clamp_(-1, 1))
    return module


def fixed(name: str) -> nn.Module:
    """A linear layer one of whose parts is a buffer."""
    layer = nn.Linear(7, 7)
    value = getattr(layer, name).detach()
    delattr(layer, name)
    layer.register_buffer(name, value)
    return nn.Sequential(layer, nn.Linear(7, 7, bias=False))


def with_more() -> nn.Module:
    layer = nn.Linear(7, 4)
    layer.temperature = nn.Parameter(torch.ones(1))
    return nn.Sequential(layer)


def scaled() -> nn.Module:
    layer = nn.Module()
    layer.weight, layer.bias = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))
    return nn.Sequential(nn.Linear(7, 4), layer)


def replaced() -> nn.Module:
    module = nn.Linear(7, 4)
    vars(module)["forward"] = lambda x: 2 * nn.Linear.forward(module, x)
    return module


OTHERS: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module]]] = {
    "another layer": ((7,), lambda: nn.Sequential(nn.Linear(7, 5), nn.Sigmoid(), nn.Linear(5, 4))),
    "ReLU that changes what tanh keeps": (
        IMAGES,
        lambda: nn.Sequential(nn.Conv2d(3, 4, 12), nn.Tanh(), nn.Flatten(), nn.ReLU(), nn.Linear(4, 4)),
    ),
    "another forward pass": ((7,), lambda: nn.Sequential(Own(7, 4))),
    "another method": ((7,), replaced),
    "a layer twice": ((7,), shared),
    "a parameter twice": ((7,), tied),
    "a parameter that does not learn": ((7,), frozen),
    "somebody who looks on": ((7,), watched),
    "somebody who changes gradients": ((7,), clipped),
    "somebody who changes gradients later": ((7,), accumulated),
    "a bias that is a buffer": ((7,), lambda: fixed("bias")),
    "a weight that is a buffer": ((7,), lambda: fixed("weight")),
    "a parameter more": ((7,), with_more),
    "products of one number": ((1,), lambda: nn.Linear(1, 4)),
    "kernels of one number": ((1, 8, 8), lambda: nn.Sequential(nn.Conv2d(1, 4, 1), nn.Flatten())),
    "a weight of one number": ((7,), scaled),
    "nothing that learns": ((7,), lambda: nn.Sequential(nn.ReLU())),
    "nothing": ((7,), nn.Sequential),
    "images all through": (IMAGES, lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())),
    "a linear layer on images": (IMAGES, lambda: nn.Sequential(nn.Linear(12, 4), nn.Flatten())),
    "a linear layer on sequences": ((5, 7), lambda: nn.Sequential(nn.Linear(7, 4), nn.Flatten())),
    "flattened in part": (IMAGES, lambda: nn.Sequential(nn.Flatten(2), nn.Linear(144, 4), nn.Flatten())),
    "mirrored borders": (IMAGES, lambda: nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1, padding_mode="reflect"), nn.Flatten())),
    "borders in words": (IMAGES, lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.Flatten())),
    "statistics of the batch": ((7,), lambda: nn.Sequential(nn.Linear(7, 4), nn.BatchNorm1d(4))),
    "a group norm without parameters": (
        IMAGES,
        lambda: nn.Sequential(nn.Conv2d(3, 4, 12), nn.GroupNorm(2, 4, affine=False), nn.Flatten(), nn.Linear(4, 4)),
    ),
    "a group norm of numbers": ((7,), lambda: nn.Sequential(nn.Linear(7, 4), nn.GroupNorm(2, 4))),
    "means of another number": (
        IMAGES,
        lambda: nn.Sequential(nn.AvgPool2d(12, divisor_override=3), nn.Flatten(), nn.Linear(3, 4)),
    ),
    "chance": ((7,), lambda: nn.Sequential(nn.Linear(7, 4), nn.AlphaDropout())),
    "nothing is kept": ((7,), lambda: nn.Sequential(nn.Linear(7, 4), nn.Dropout(1.0))),
    "chance by channel": (
        IMAGES,
        lambda: nn.Sequential(nn.Conv2d(3, 4, 12), nn.Dropout2d(), nn.Flatten(), nn.Linear(4, 4)),
    ),
    "means of four parts": (
        IMAGES,
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 4)),
    ),
    "a weight that is worked out": (
        (7,),
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(7, 4))),
    ),
}


DROPOUT: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module]]] = {
    "perceptron": (
        (7,),
        lambda: nn.Sequential(
            nn.Dropout(0.1), nn.Linear(7, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 5), nn.Tanh(), nn.Dropout(0.3),
            nn.Linear(5, 4),
        ),
    ),
    "convolutions": (
        IMAGES,
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Conv2d(8, 8, 3), nn.GELU(),
            nn.Flatten(), nn.Dropout(0.5), nn.Linear(128, 6), nn.ReLU(), nn.Linear(6, 4), nn.Dropout(0.2),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("size", [1, 5, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", DROPOUT)
def test_dropout_draws_the_numbers_of_autograd(
    name: str, dtype: torch.dtype, size: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NETWORKS, name, DROPOUT[name])
    module, shape = network(name, dtype)
    steps = program_of(module, shape)
    assert steps is not None
    assert steps.draws
    inputs, labels = batch(shape, size, dtype)
    for training in (True, False):
        module.train(training)
        with torch_seeded(9, inputs.device):
            losses, hits, gradients = by_autograd(module, inputs, labels, None, size)
        for _ in range(3):
            draws = [torch.Generator().manual_seed(9)] if training else []
            found, right, own = steps.gradients(inputs.clone(), labels, None, size, draws)
            assert torch.equal(found, losses)
            assert right == hits
            assert all(map(torch.equal, own, gradients))
        shown = steps.outputs(inputs.clone(), [0, size])
    assert torch.equal(shown, module(inputs))
    assert steps.holds()
    next(part for part in module.modules() if isinstance(part, nn.Dropout)).train()
    assert not steps.holds()


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_have_no_program(name: str) -> None:
    shape, build = OTHERS[name]
    assert program_of(quick_products(build()), shape) is None


def test_it_holds_until_somebody_looks_on() -> None:
    module, shape = network("perceptron")
    steps = program_of(module, shape)
    assert steps is not None
    assert steps.holds()
    weight = next(module.parameters())
    for register in (
        module.register_forward_hook,
        weight.register_hook,
        nn.modules.module.register_module_forward_hook,
    ):
        handle = register(lambda *_: None)
        assert not steps.holds()
        handle.remove()
        assert steps.holds()
    weight.requires_grad_(False)
    assert not steps.holds()
    weight.requires_grad_(True)
    with torch.autocast("cpu", torch.bfloat16):
        assert not steps.holds()
    assert steps.holds()


def test_any_kind_of_window() -> None:
    module = nn.Sequential(nn.MaxPool2d(np.int64(2)), nn.Flatten(), nn.Linear(16, 3))  # type: ignore[arg-type]
    assert program_of(module, (1, 8, 8)) is not None


@pytest.mark.skipif(not TORCHSCRIPT, reason=WITHOUT_TORCHSCRIPT)
def test_warnings_are_left_alone() -> None:
    """What was shown once is shown again whenever somebody has caught warnings meanwhile."""
    program._without_python.cache_clear()
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(2):
            warnings.warn("once", UserWarning, stacklevel=1)
            assert len(program._without_python()) == 5
    assert [str(warning.message) for warning in shown].count("once") == 1


@pytest.mark.parametrize("labels", [[0, 9], [0, 1]], ids=["label", "width"])
def test_an_error_is_told_in_one_line(labels: list[int], way: str) -> None:
    module, shape = network("perceptron")
    steps = program_of(module, shape)
    assert steps is not None
    words = "out of bounds" if labels[1] == 9 else "cannot be multiplied"
    with pytest.raises(IndexError if labels[1] == 9 else RuntimeError, match=words) as caught:
        steps.backward(torch.zeros(2, 7 if labels[1] == 9 else 8), torch.tensor(labels), None, 2)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not TORCHSCRIPT, reason=WITHOUT_TORCHSCRIPT)
def test_an_error_that_does_not_come_back_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory at that moment, say."""
    module, shape = network("perceptron")
    steps, real = program_of(module, shape), plain_functions.gradients
    assert steps is not None
    compiled = program._without_python()
    monkeypatch.setattr(plain_functions, "gradients", lambda *_: None)
    monkeypatch.setattr(program, "_without_python", lambda: {plain_functions.gradients: compiled[real]})
    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        steps.backward(torch.zeros(2, 8), torch.tensor([0, 1]), None, 2)
    assert "\n" not in str(caught.value)


# --- in the training of clients -------------------------------------------------------------------------------------------


class Tells(FedAvg):
    """Sends what its last step was about."""

    def finish(self, problem: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"last": {"batch": problem.batch.clone()} | {n: g.clone() for n, g in problem.gradients.items()}}, {}


class Weighs(FedAvg):
    """By numbers of another kind."""

    def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        return problem.backward(0.5)  # type: ignore[arg-type]


class Looks(FedAvg):
    """Has a hand in every step, and changes nothing."""

    def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        return super().backward(problem)


class Doubles(FedProx):
    """Corrects gradients in its own way, without saying how."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        super().correct(problem, gradients)
        for gradient in gradients.values():
            gradient.mul_(2)


def pictures() -> Federation:
    """Clients of 5, 40, 300, 1 and no small images, as bytes."""
    sizes = [5, 40, 300, 1, 0]
    draw = np.random.default_rng(0)
    features = torch.from_numpy(draw.integers(0, 256, (sum(sizes), 3, 8, 8), dtype=np.uint8))
    samples = Samples(features, torch.from_numpy(draw.integers(0, 3, sum(sizes))))
    shift, scale = torch.full((3, 1, 1), 100.0), torch.full((3, 1, 1), 0.02)
    return Federation(samples, np.cumsum([0, *sizes]), samples[:4], samples[:4], ("a", "b", "c"), shift, scale)


def trained(
    algorithm: Algorithm, settings: dict[str, Any], federation: Federation, model: Model, cohort: dict[str, Any]
) -> list[Any]:
    training = Training(**{"batch_size": 4, "epochs": 3, "lr": 0.05, **settings})
    engine = LocalEngine(federation, model, training, algorithm, 3, 2)
    clients = np.array([*HEALTHY[:4], 5] if federation.num_clients > 5 else [0, 1, 2, 3, 4])
    told = []
    start = engine.initial_model()
    for t in (1, 2):
        for update in engine.train(start, t, Cohort(clients, **cohort), algorithm):
            told.append(
                (bits(update.state), bits(update.extra), update.report, update.steps, update.passes, update.work)
            )
        engine.commit(clients.tolist())
    engine.close()
    return told


CASES: dict[str, tuple[Callable[[], Algorithm], dict[str, Any], dict[str, Any]]] = {
    "plain": (FedAvg, {"momentum": 0.0}, {}),
    "momentum": (FedAvg, {"momentum": 0.9, "weight_decay": 0.01}, {}),
    "schedule": (FedAvg, {"lr_decay": 0.5}, {}),
    "all samples at once": (FedAvg, {"batch_size": 0}, {}),
    "clipped": (FedAvg, {"clip_norm": 0.5}, {}),
    "adam": (FedAvg, {"optimizer": "adam"}, {}),
    "double precision": (FedAvg, {"precision": "float64"}, {}),
    "clipped and corrected": (Scaffold, {"momentum": 0.0, "clip_norm": 0.3}, {}),
    "other loss": (FedAvg, {"loss": {"name": "sce"}}, {}),
    "robust loss": (FedAvg, {"loss": {"name": "robust"}}, {}),
    "adam with weight decay": (FedAvg, {"optimizer": "adam", "weight_decay": 0.1}, {}),
    "adamw": (FedAvg, {"optimizer": "adamw", "weight_decay": 0.1}, {}),
    "corrected": (FedProx, {}, {}),
    "corrected by μ of the round": (lambda: FedProx(mu=0.5, dynamic=True), {"optimizer": "adam"}, {}),
    "corrected by a shift": (Scaffold, {"momentum": 0.0}, {}),
    "corrected by a shift that fades": (lambda: Scaffold(c_decay=0.5, option="I"), {}, {}),
    "corrected, with sums of gradients": (Scaffold, {}, {}),
    "corrected by own code": (Doubles, {}, {}),
    "weighted": (FedBiO, {}, {}),
    "watched": (Looks, {}, {}),
    "told at the end": (Tells, {}, {}),
    "weighted by one number": (Weighs, {}, {}),
    "uneven epochs": (FedAvg, {}, {"epochs": np.array([1, 0, 2, 5, 3])}),
    "by loss": (FedAvg, {}, {"sampling": "loss"}),
    "by loss, reweighted": (FedAvg, {}, {"sampling": "loss_unbiased"}),
}


KINDS = ("vectors", "images", "images batch by batch")


@pytest.mark.parametrize(
    ("kind", "case"),
    slow_unless(
        lambda both: (
            both[0] == "vectors"
            or both in {("images batch by batch", "plain"), ("images batch by batch", "uneven epochs")}
        ),
        [(kind, case) for kind in KINDS for case in CASES],
    ),
)
def test_clients_learn_the_same_bits(case: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, settings, cohort = CASES[case]
    if kind == "images batch by batch":
        monkeypatch.setattr(problem, "AT_ONCE", 0)
        monkeypatch.setattr(problem, "STRETCH", 3 * 8 * 8 * 4 * 3)  # three batches of four
    federation = small_federation() if kind == "vectors" else pictures()
    model: Model = Mlp(hidden=5) if kind == "vectors" else CnnA()
    with_it = trained(make(), settings, federation, model, cohort)
    monkeypatch.setattr(setup, "program_of", lambda *_: None)
    assert trained(make(), settings, federation, model, cohort) == with_it


@pytest.mark.parametrize("augment", ["flip", "flip_shift"])
@pytest.mark.parametrize("at_once", [True, False])
def test_changed_images_have_the_same_bits(at_once: bool, augment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not all images of a client are prepared at once."""
    if not at_once:
        monkeypatch.setattr(problem, "AT_ONCE", 0)
    monkeypatch.setattr(problem, "STRETCH", 3 * 8 * 8 * 4 * 3)
    settings: dict[str, Any] = {"augment": augment, "clip_norm": 0.5, "epochs": 2}
    calls, whole = list[int](), program.Program.descend
    monkeypatch.setattr(program.Program, "descend", lambda *own: calls.append(1) or whole(*own))  # type: ignore[func-returns-value]
    with_it = trained(FedAvg(), settings, pictures(), CnnA(), {})
    assert calls
    monkeypatch.setattr(setup, "program_of", lambda *_: None)
    assert trained(FedAvg(), settings, pictures(), CnnA(), {}) == with_it


@pytest.mark.parametrize(
    ("kind", "case"),
    slow_unless(
        lambda both: both[0] == "vectors" or both == ("images batch by batch", "plain"),
        list(
            itertools.product(
                KINDS, ("plain", "momentum", "clipped", "adam", "uneven epochs", "all samples at once", "corrected")
            )
        ),
    ),
)
def test_clients_learn_the_same_bits_with_dropout(case: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, settings, cohort = CASES[case]
    if kind == "images batch by batch":
        monkeypatch.setattr(problem, "AT_ONCE", 0)
        monkeypatch.setattr(problem, "STRETCH", 3 * 8 * 8 * 4 * 3)
    federation = small_federation() if kind == "vectors" else pictures()
    layers = (
        (lambda: [nn.Linear(6, 5), nn.ReLU(), nn.Dropout(0.4), nn.Linear(5, 3)])
        if kind == "vectors"
        else (
            lambda: [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Dropout(0.4), nn.Flatten(), nn.Dropout(0.1), nn.Linear(144, 3)]
        )
    )
    model = as_model(lambda: nn.Sequential(*layers()))
    shape = federation.sample_shape
    program_found = program_of(model.build(shape, 3), shape)
    assert program_found is not None
    assert program_found.draws
    with_it = trained(make(), settings, federation, model, cohort)
    monkeypatch.setattr(setup, "program_of", lambda *_: None)
    assert trained(make(), settings, federation, model, cohort) == with_it


def test_an_epoch_is_one_call_where_clients_only_descend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The three ways of the loop are all taken above."""
    calls = []
    for name in ("descend", "descend_series", "backward"):
        whole = getattr(program.Program, name)

        def counted(self: Any, *given: Any, name: str = name, whole: Any = whole, **settings: Any) -> Any:
            labels = given[0].labels if name == "descend_series" else given[1]
            if len(labels):
                calls.append(name)
            return whole(self, *given, **settings)

        monkeypatch.setattr(program.Program, name, counted)

    def called(case: str) -> set[str]:
        calls.clear()
        make, settings, cohort = CASES[case]
        trained(make(), settings, small_federation(), Mlp(hidden=5), cohort)
        return set(calls)

    for case in ("plain", "momentum", "clipped", "adam", "adamw"):
        assert called(case) == {"descend_series"}, case
    for case in ("by loss", "corrected", "corrected by a shift"):
        assert called(case) == {"descend"}, case
    own = ("corrected by own code", "corrected, with sums of gradients")
    for case in ("weighted", "watched", "by loss, reweighted", *own):
        assert called(case) == {"backward"}, case
    assert called("other loss") == called("robust loss") == set()


def test_a_client_whose_labels_do_not_fit_is_named_in_one_line() -> None:
    engine = LocalEngine(
        small_federation(), as_model(lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 1))), Training(), FedAvg(), 3, 1
    )
    model = engine.initial_model()
    with pytest.raises(ClientError, match=r"client 0: IndexError: .*out of bounds") as caught:
        list(engine.train(model, 1, Cohort(np.array([0])), FedAvg()))
    engine.close()
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="PyTorch has no TorchScript there")
def test_no_round_includes_the_time_to_compile_the_program() -> None:
    """Otherwise, the first run of a process would seem slower than the others."""
    program._without_python.cache_clear()
    assert program.program_of(nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), (6,)) is not None
    assert program._without_python.cache_info().currsize == 1
