"""What is said about a user's network before the first round."""

import copy
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.models import check_network
from tests.experiments import IID, blobs, small
from tests.training.example_networks import Looked

SAMPLES = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Any:
        return self.layer(x.flatten(1))


class Lazy(Base):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LazyLinear(3)


class Frozen(Base):
    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)


class Late(Base):
    def forward(self, x: Tensor) -> Any:
        if not hasattr(self, "late"):
            self.late = nn.Linear(3, 3)
        return self.late(super().forward(x))


class Auxiliary(Base):
    def forward(self, x: Tensor) -> Any:
        outputs = super().forward(x)
        return {"logits": outputs} if self.training else outputs


class Squeezed(Base):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x).squeeze()


class Detached(Base):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x).detach()


class ChangedInPlace(Base):
    """Changes what the backward pass of ReLU needs."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x).relu_().mul_(0.5)


class Averaging(Base):
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x: Tensor) -> Any:
        self.mean = 0.9 * self.mean + 0.1 * x.flatten(1).mean(0)
        return super().forward(x - self.mean.view(1, 8, 8))


class LimitingEmbedding(Base):
    """An embedding that limits the norms of its rows whenever it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(2, 64, max_norm=0.5)

    def forward(self, x: Tensor) -> Any:
        return super().forward(x + self.rows(torch.zeros(len(x), dtype=torch.int64)).view(-1, 1, 8, 8))


class Limiting(Base):
    """A limit of the norms of weights, which the first weights do not reach."""

    def forward(self, x: Tensor) -> Any:
        self.layer.weight.data = torch.renorm(self.layer.weight.data, 2, 0, 100.0)
        return super().forward(x)


class Replacing(Base):
    """Another parameter in the place of the first, which no optimizer knows."""

    def forward(self, x: Tensor) -> Any:
        if self.training:
            self.layer.weight = nn.Parameter(0.9 * self.layer.weight.detach())
        return super().forward(x)


class LimitingInPlace(Base):
    def forward(self, x: Tensor) -> Any:
        self.layer.weight.data.renorm_(2, 0, 10.0)
        return super().forward(x)


class Failing(Base):
    def forward(self, x: Tensor) -> Any:
        if self.training:
            raise KeyError("mine")
        return super().forward(x)


class NotANumber(Base):
    def __init__(self) -> None:
        super().__init__()
        nn.init.constant_(self.layer.weight, float("nan"))


class Counting(Base):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return super().forward(x)


class Keeping(Base):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Any:
        self.seen.append(1.0)
        return super().forward(x)


class Forgotten(Base):
    """A running mean that is a plain tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(64)

    def forward(self, x: Tensor) -> Any:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.flatten(1).mean(0)
        return super().forward(x - self.mean.view(1, 8, 8))


class ForgottenInPlace(Forgotten):
    def forward(self, x: Tensor) -> Any:
        if self.training:
            self.mean.mul_(0.9).add_(x.flatten(1).mean(0), alpha=0.1)
        return self.layer((x - self.mean.view(1, 8, 8)).flatten(1))


class Spectral(Base):
    """Complex weights, as in Fourier neural operators."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(33, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Any:
        return super().forward(torch.fft.irfft(torch.fft.rfft(x.flatten(1)) * self.weights, n=64))


class Rotated(Base):
    """A complex buffer, as of rotary positions."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rotation", torch.polar(torch.ones(32), torch.arange(32.0)))


class SparseGradients(Base):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3, 3, sparse=True)

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) + self.embedding(torch.zeros(len(x), dtype=torch.int64))


class Graph(Base):
    """A sparse buffer."""

    adjacency: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("adjacency", torch.eye(64).to_sparse())

    def forward(self, x: Tensor) -> Any:
        return super().forward(torch.sparse.mm(self.adjacency, x.flatten(1).t()).t())


class WithExtraState(Base):
    def get_extra_state(self) -> Any:
        return {"version": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


class FrozenBackbone(Base):
    """Keeps a part in evaluation mode, and its last outputs to look at them."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.BatchNorm2d(1)
        self.sparse = True  # of its own, unlike that of an embedding
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Any:
        self.backbone.eval()
        self.last = super().forward(self.backbone(x))
        return self.last


class InRecord(Base):
    """Returns a record with the logits, as networks of the Hugging Face Hub do."""

    def forward(self, x: Tensor) -> Any:
        return SimpleNamespace(logits=super().forward(x))


WRONG: list[tuple[type[nn.Module], str]] = [
    (Lazy, r"^model = own: has lazy layers, .*; use layers with sizes, such as nn\.Linear for nn\.LazyLinear$"),
    (Frozen, r"^model = own: has no parameter to train; one of them must have requires_grad = True$"),
    (Late, r"^model = own: makes late\.bias, late\.weight in its first forward pass, .*; make it in __init__$"),
    (
        Auxiliary,
        r"^model = own: returns dict for 2 samples of 3 classes in training mode; it should return logits \[2, 3\]$",
    ),
    (
        InRecord,
        r"it should return logits \[2, 3\]: write a network whose forward pass returns self\.model\(x\)\.logits$",
    ),
    (Squeezed, r"^model = own: returns \[3\] for 1 sample of 3 classes; it should return logits \[1, 3\]$"),
    (Detached, r"^model = own: its outputs do not depend on parameters that are trained; "),
    (
        ChangedInPlace,
        r"^model = own: its gradients cannot be computed: RuntimeError: .* modified by an inplace operation: .* instead\.$",
    ),
    (SparseGradients, r"^model = own: embedding has sparse gradients, which clients cannot send; use sparse=False$"),
    (
        WithExtraState,
        r"^model = own: _extra_state of its state_dict\(\) is no tensor, .*; register a buffer in place of",
    ),
    (Spectral, r"^model = own: weights is complex; .*: keep torch\.view_as_real\(\.\.\.\) of it"),
    (Rotated, r"^model = own: rotation is complex; models have real entries: "),
    (
        Averaging,
        r"^model = own: changes mean in evaluation mode too, .*; change it in training only \(if self\.training",
    ),
    (
        LimitingEmbedding,
        r"^model = own: changes rows\.weight in evaluation mode too, .*; leave out max_norm of embeddings$",
    ),
    (Limiting, r"^model = own: changes layer\.weight in evaluation mode too, "),
    (Replacing, r"^model = own: its forward pass puts another object in the place of the parameter layer\.weight, "),
    (LimitingInPlace, r"^model = own: changes layer\.weight in evaluation mode too, "),
    (
        Failing,
        r"^model = own: cannot process samples of shape \[1, 8, 8\] in training mode: KeyError: 'mine' \(\S*\.py:\d+\)$",
    ),
]


class LinearWithExtraState(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"version": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


@pytest.mark.parametrize(
    "given", [LinearWithExtraState(4, 3), lambda: LinearWithExtraState(4, 3)], ids=["module", "function"]
)
def test_a_state_that_is_no_tensor_is_refused_in_a_run(given: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"_extra_state of its state_dict\(\) is no tensor"):
        fedcohort.run(small(rounds=1, **IID), data=blobs(), model=given, runs=tmp_path)


def checked(module: nn.Module) -> None:
    check_network(module, SAMPLES, 3, "own", (1, 8, 8))


@pytest.mark.parametrize(("kind", "message"), WRONG, ids=[kind.__name__ for kind, _ in WRONG])
def test_networks_that_cannot_be_trained_are_refused(kind: type[nn.Module], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        checked(kind())


class Waves(Base):
    """Complex weights, of which the numbers matter in the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.waves = nn.Linear(64, 3, dtype=torch.cfloat)

    def forward(self, x: Tensor) -> Any:
        return self.waves(x.flatten(1).to(self.waves.weight.dtype)).abs()


@pytest.mark.parametrize(("kind", "name"), [(Waves, r"waves\.weight"), (Spectral, "weights"), (Rotated, "rotation")])
def test_complex_networks_are_refused_before_they_lose_their_imaginary_parts(
    kind: type[nn.Module], name: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=rf"^model = {kind.__name__}: {name} is complex; models have real entries: "):
        fedcohort.run(small(rounds=1), model=kind(), runs=tmp_path)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Counting, "calls"),
        (Keeping, "seen"),
        (Forgotten, "mean"),
        (ForgottenInPlace, "mean"),
    ],
)
def test_a_network_that_counts_is_trained_with_a_warning(kind: type[nn.Module], name: str) -> None:
    with pytest.warns(
        UserWarning, match=rf"^model = own: its forward pass changes {name}, which is no buffer: .*; register it"
    ):
        checked(kind())


def test_a_network_that_keeps_what_it_does_not_read_is_trained_without_a_warning(tmp_path: Path) -> None:
    """Even if it has run before, as a module that was tried."""
    module = Looked()
    untried = copy.deepcopy(module)
    module(torch.zeros(2, 1, 8, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = fedcohort.run(small(rounds=2), model=module, runs=tmp_path / "a")
    assert kept.digest() == fedcohort.run(small(rounds=2), model=untried, runs=tmp_path / "b").digest()


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in module.state_dict().items() if isinstance(value, Tensor)}


def test_other_networks_stay_as_they_are() -> None:
    for module in (
        Base(),
        nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Dropout(), nn.Linear(64, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 3)),
        nn.Sequential(nn.Flatten(), nn.utils.parametrizations.spectral_norm(nn.Linear(64, 3))),
        Graph(),
        FrozenBackbone(),
    ):
        before = {name: value.to_dense().clone() for name, value in tensors_of(module).items()}
        generator = torch.get_rng_state()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            checked(module)
        assert torch.equal(generator, torch.get_rng_state())
        assert module.training
        assert all(torch.equal(value, tensors_of(module)[name].to_dense()) for name, value in before.items())


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "change",
    [nn.utils.spectral_norm, nn.utils.weight_norm, partial(prune.random_unstructured, name="weight", amount=0.5)],
    ids=["spectral norm", "weight norm", "pruned"],
)
def test_weights_that_are_computed_before_each_pass_are_no_changed_attribute(change: Any) -> None:
    module = nn.Sequential(nn.Flatten(), change(nn.Linear(64, 3)))
    with torch.no_grad():
        for value in module.parameters():
            value.mul_(1.5)  # so that the weight is another one after a pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked(module)


class Noisy(Base):
    """Adds noise of numpy's global generator in training."""

    def forward(self, x: Tensor) -> Any:
        noise = torch.from_numpy(np.random.normal(size=x.shape)).to(x) if self.training else 0.0  # noqa: NPY002
        return super().forward(x + noise)


def test_a_network_that_draws_from_numpy_is_named() -> None:
    with pytest.warns(
        UserWarning, match=r"draws from numpy\.random, which FedCohort does not seed, so that a run cannot"
    ):
        checked(Noisy())


def test_a_network_that_cannot_be_copied_is_checked_as_well() -> None:
    module = Base()
    module.kept = module.layer.weight * 2  # no leaf of autograd
    with pytest.raises(RuntimeError):
        copy.deepcopy(module)
    checked(module)


def test_numbers_are_called_numbers() -> None:
    with pytest.raises(
        UsageError, match=r"returns \[2, 3\] for 2 samples of numbers; it should return numbers \[2, 1\]$"
    ):
        check_network(Base(), SAMPLES, 1, "own", (1, 8, 8), numbers=True)


class Shares(Base):
    def forward(self, x: Tensor) -> Any:
        return torch.softmax(super().forward(x), dim=1)


class Logarithms(Base):
    """The logarithms of probabilities are logits as well."""

    def forward(self, x: Tensor) -> Any:
        return torch.log_softmax(super().forward(x), dim=1)


def test_probabilities_in_place_of_logits_get_one_warning() -> None:
    with pytest.warns(
        UserWarning, match=r"^model = own: returns probabilities .*; leave out the softmax at its end$"
    ) as found:
        check_network(Shares(), SAMPLES, 3, "own", (1, 8, 8))
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_network(Shares(), SAMPLES, 3, "own", (1, 8, 8), logits=False)
        check_network(Logarithms(), SAMPLES, 3, "own", (1, 8, 8))


@pytest.mark.parametrize("loss", ["ce", "double_softmax"])
def test_only_double_softmax_expects_a_softmax(loss: str, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fedcohort.run(
            small(rounds=1, training={"loss": loss}),
            model=lambda _, classes: nn.Sequential(nn.Flatten(), nn.Linear(64, classes), nn.Softmax(dim=1)),
            runs=tmp_path,
        )
    assert any("returns probabilities" in str(one.message) for one in found) == (loss == "ce")


class Doubled(torch.autograd.Function):
    """A function whose backward pass takes only contiguous gradients, as that of a kernel of a library."""

    @staticmethod
    def forward(_: Any, values: Tensor) -> Tensor:
        return 2 * values

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        assert gradient.is_contiguous()
        return 2 * gradient


class WithKernel(Base):
    def forward(self, x: Tensor) -> Any:
        return Doubled.apply(super().forward(x))


def test_a_function_that_takes_contiguous_gradients_can_be_trained() -> None:
    checked(WithKernel())
