"""Frozen parameters are neither sent nor counted nor averaged, and runs give the results of networks that keep them as buffers."""

import copy
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

import fedcohort
from fedcohort.algorithms import ALGORITHMS, Members, ModelState
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.files.state_files import pack, unpack
from fedcohort.engines.initial_network import build_module
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.flower.sites.frozen_sums import check_sums, sums_of
from fedcohort.models import as_model
from fedcohort.rounds.run_state import RunState
from fedcohort.selection import Cohort
from fedcohort.testing.base import small_federation
from fedcohort.training.networks.omitted_entries import OFTEN, FrozenParameters, omitted_entries
from tests.experiments import IID, blobs, small

HEAD = 4 * (8 * 3 + 3)
"""Bytes of the trained layer."""


class Backbone(nn.Module):
    """A frozen layer and a trained one."""

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(shape[0], 8).requires_grad_(False)
        self.last = nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)))


class Buffers(nn.Module):
    """The same with the first layer as buffers, which are sent."""

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        first = nn.Linear(shape[0], 8)
        self.register_buffer("weight", first.weight.detach())
        self.register_buffer("bias", first.bias.detach())
        self.last = nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.get_buffer("weight"), self.get_buffer("bias")
        return self.last(torch.relu(functional.linear(x, weight, bias)))


class Teacher(Backbone):
    """The frozen layer follows the data, in place."""

    every = 1

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(shape, num_classes)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls: Tensor
            self.calls += 1
            if int(self.calls) % self.every == 0:
                self.follow(x)
        return super().forward(x)

    def follow(self, x: Tensor) -> None:
        self.first.weight.data.lerp_(x.mean(0).expand(8, -1), 0.1)


class MovedTeacher(Teacher):
    """The same in other memory."""

    def follow(self, x: Tensor) -> None:
        self.first.weight.data = 0.9 * self.first.weight.data + 0.1 * x.mean(0)


class LateTeacher(Teacher):
    """The same, not in the first passes."""

    every = 5


class LateMovedTeacher(MovedTeacher):
    """The same in other memory."""

    every = 5


class CopyAsTeacher(nn.Module):
    """A mean teacher that begins as a copy of the trained layer, so that it does not change as long as they are equal."""

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(shape[0], 8)
        self.teacher = copy.deepcopy(self.first).requires_grad_(False)
        self.last = nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.follow()
        return self.last(torch.relu(self.first(x)) + self.teacher(x))

    @torch.no_grad()
    def follow(self) -> None:
        for own, trained in zip(self.teacher.parameters(), self.first.parameters(), strict=True):
            own.lerp_(trained, 0.1)


class CopyIfTrained(CopyAsTeacher):
    """The same, only where gradients are computed."""

    def follow(self) -> None:
        if torch.is_grad_enabled():
            super().follow()


class CopyAfterPasses(CopyAsTeacher):
    """The same, after a backward pass."""

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(shape, num_classes)
        self.last.register_full_backward_hook(lambda *_: CopyAsTeacher.follow(self))

    def follow(self) -> None:
        pass


class CopyAsBuffers(CopyAsTeacher):
    """The same with buffers, which are sent."""

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(shape, num_classes)
        for name, value in list(self.teacher.named_parameters()):
            delattr(self.teacher, name)
            self.teacher.register_buffer(name, value.detach())

    @torch.no_grad()
    def follow(self) -> None:
        for own, trained in zip(self.teacher.buffers(), self.first.parameters(), strict=True):
            own.lerp_(trained, 0.1)


class SharedMemory(Backbone):
    """A frozen parameter in the memory of a trained one."""

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(shape, num_classes)
        self.view = nn.Parameter(self.last.weight.data, requires_grad=False)


class OtherEachTime(Backbone):
    """The frozen layer is drawn by numpy, without a seed."""

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(shape, num_classes)
        with torch.no_grad():
            self.first.weight.copy_(torch.from_numpy(np.random.default_rng().normal(size=(8, shape[0]))))


def played(model: Any, folder: Path, **settings: Any) -> fedcohort.Run:
    return fedcohort.run(small(rounds=3, **{**IID, **settings}), data=blobs(), model=model, runs=folder)


def weights(run: fedcohort.Run) -> dict[str, Tensor]:
    return load_file(run.path / "model.safetensors")


@pytest.mark.parametrize(
    "settings",
    [
        *({"algorithm": name} for name in sorted(ALGORITHMS.builtin)),
        {"algorithm": "fedavg", "selection": {"name": "pyramidfl", "k": 3}},
        {"selection": {"name": "powd", "k": 2}},
        {"engine": {"plan": "stacked"}},
        {"training": {"precision": "float64", "optimizer": "adam"}},
    ],
    ids=str,
)
def test_results_are_those_of_a_network_that_sends_its_frozen_part(settings: dict[str, Any], tmp_path: Path) -> None:
    federation = {**IID["federation"], "holdout": 0.2}
    given = {"federation": federation, "public": {"name": "holdout"}, "data": {"validation": 0.2}, **settings}
    frozen, sent = (played(kind, tmp_path / kind.__name__, **given) for kind in (Backbone, Buffers))
    assert frozen.rounds["test_loss"].tolist() == sent.rounds["test_loss"].tolist()
    own, other = weights(frozen), weights(sent)
    assert own.keys() == {"first.weight", "first.bias", "last.weight", "last.bias"}
    assert torch.equal(own["first.weight"], other["weight"])
    assert torch.equal(own["last.weight"], other["last.weight"])
    assert frozen.ledger["bytes_up"].sum() <= sent.ledger["bytes_up"].sum()


def test_only_the_trained_part_is_counted(tmp_path: Path) -> None:
    run = played(Backbone, tmp_path)
    trainings = run.ledger[run.ledger["kind"] == "training"]
    assert trainings["bytes_up"].tolist() == [HEAD * n for n in run.rounds["trained"]]
    assert run.meta["model bytes"] == str(HEAD)
    assert run.checkpoint()[1]["model"].keys() == {"last.weight", "last.bias"}  # type: ignore[index]


def test_an_algorithm_that_returns_frozen_parameters_is_told(tmp_path: Path) -> None:
    def aggregate(self: FedAvg, model: ModelState, updates: Any, members: Members) -> ModelState:
        return {**Backbone((4,), 3).state_dict(), **FedAvg.aggregate(self, model, updates, members)}

    algorithm = type("Whole", (FedAvg,), {"aggregate": aggregate})()
    words = r"'first\.bias' is in the returned one only; return the names that it received, of which frozen parameters are none$"
    with pytest.raises(UsageError, match=words):
        fedcohort.run(small(rounds=1, **IID), data=blobs(), model=Backbone, algorithm=algorithm, runs=tmp_path)


@pytest.mark.parametrize("kind", [Teacher, MovedTeacher])
def test_what_the_network_changes_is_sent(kind: type[nn.Module], tmp_path: Path) -> None:
    run, before = played(kind, tmp_path), kind((4,), 3)
    assert int(run.meta["model bytes"]) > HEAD + 4 * 8 * 4
    found = weights(run)["first.weight"]
    assert float((found.mean(0) - before.state_dict()["first.weight"].mean(0)).abs().max()) > 0.1


@pytest.mark.parametrize("kind", [CopyAsTeacher, CopyIfTrained])
def test_a_teacher_that_begins_as_a_copy_is_sent(kind: type[nn.Module], tmp_path: Path) -> None:
    run, buffers = played(kind, tmp_path / "parameters"), played(CopyAsBuffers, tmp_path / "buffers")
    assert run.rounds["test_loss"].tolist() == buffers.rounds["test_loss"].tolist()
    assert run.ledger["bytes_up"].tolist() == buffers.ledger["bytes_up"].tolist()
    own, other = weights(run), weights(buffers)
    assert all(torch.equal(own[name], other[name]) for name in other)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_entries_that_training_changes_are_not_omitted() -> None:
    federation = small_federation(trouble=False)
    for kind, omitted in ((CopyAfterPasses, set()), (SharedMemory, {"first.weight", "first.bias"})):
        build = partial(build_module, as_model(kind), federation, 0)
        assert omitted_entries(build(), build, federation) == omitted


def test_trained_parts_that_all_networks_share_keep_their_values() -> None:
    federation = small_federation(trouble=False)
    network = Backbone(federation.sample_shape, 3)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    omitted_entries(network, lambda: network, federation)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network.last.weight.grad is None


@pytest.mark.parametrize("kind", [LateTeacher, LateMovedTeacher])
def test_a_change_that_nobody_would_receive_is_an_error(kind: type[nn.Module], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"changed the parameter 'first\.weight'.*make it a buffer"):
        played(kind, tmp_path, training={"epochs": 5, "batch_size": 8})


def test_what_is_drawn_anew_each_time_is_sent(tmp_path: Path) -> None:
    run = played(OtherEachTime, tmp_path)
    assert run.meta["model bytes"] == str(HEAD + 4 * 8 * 4)
    straight = played(OtherEachTime, tmp_path)  # finished: read again, not played
    assert torch.equal(weights(run)["first.weight"], weights(straight)["first.weight"])


def test_threads_and_questions_have_the_frozen_values() -> None:
    federation = small_federation(trouble=False)
    updates = []
    for workers in (1, 3):
        engine = LocalEngine(federation, as_model(Backbone), Training(batch_size=4), FedAvg(), 0, workers)
        updates.append(list(engine.train(engine.initial_model(), 1, Cohort(np.array([0, 1, 3, 6])), FedAvg())))
        engine.close()
    for one, other in zip(*updates, strict=True):
        assert one.state.keys() == {"last.weight", "last.bias"}
        assert all(torch.equal(one.state[name], other.state[name]) for name in one.state)


def test_a_checkpoint_of_an_earlier_version_goes_on() -> None:
    def state(model: dict[str, Tensor]) -> Any:
        part = type("Part", (), {"state_dict": lambda self: {}, "load_state_dict": lambda self, state: None})()
        return RunState(0, 1, part, part, part, part, model)

    now, whole = {"last": torch.zeros(2)}, {"first": torch.ones(2), "last": torch.ones(2)}
    resumed = state(now)
    resumed.load_state_dict(unpack(pack(state(whole).state_dict())))
    assert resumed.model.keys() == now.keys()
    assert torch.equal(resumed.model["last"], torch.ones(2))


def test_every_bit_of_a_frozen_parameter_counts() -> None:
    for shape, dtype in itertools.product([(7,), (3, 5), (2, 3, 3, 3), ()], [torch.float32, torch.bfloat16]):
        module = nn.Module()
        layout = torch.channels_last if len(shape) == 4 else torch.contiguous_format
        value = torch.randn(shape, dtype=dtype).to(memory_format=layout)
        module.register_parameter("w", nn.Parameter(value, requires_grad=False))
        frozen = FrozenParameters(module, {"w"})
        for flat in (value.permute(0, 2, 3, 1) if len(shape) == 4 else value).view(-1).split(1):
            frozen.check()
            flat *= -1
            with pytest.raises(UsageError, match="changed the parameter 'w'"):
                frozen.check()
            flat *= -1
        frozen.check()


def test_a_frozen_parameter_that_begins_in_the_middle_of_eight_bytes_is_read() -> None:
    """It shares its memory with other values, which are not frozen."""
    memory = torch.arange(9.0)
    module = nn.Module()
    module.register_parameter("w", nn.Parameter(memory[1:], requires_grad=False))
    frozen = FrozenParameters(module, {"w"})
    memory[0] = 7.0
    frozen.check()
    memory[8] += 1.0
    with pytest.raises(UsageError, match="changed the parameter 'w'"):
        frozen.check()


def test_a_frozen_parameter_of_repeated_numbers_is_read() -> None:
    module = nn.Module()
    value = torch.ones(1)
    module.register_parameter("w", nn.Parameter(value.expand(5), requires_grad=False))
    frozen = FrozenParameters(module, {"w"})
    frozen.check()
    value *= 2
    with pytest.raises(UsageError, match="changed the parameter 'w'"):
        frozen.check()


def test_large_frozen_parameters_are_read_after_some_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcohort.training.networks.omitted_entries.SMALL", 0)
    module = nn.Linear(3, 2).requires_grad_(False)
    frozen = FrozenParameters(module, {"weight", "bias"})
    frozen.check()
    module.weight.data.mul_(2)  # torch does not know of it
    for _ in range(OFTEN - 1):
        frozen.check()
    with pytest.raises(UsageError, match="changed the parameter 'weight'"):
        frozen.check()
    module.weight.data.mul_(0.5)
    for change in (lambda: module.bias.mul_(2), lambda: setattr(module.bias, "data", 2 * module.bias.data)):
        frozen.set({name: value.clone() for name, value in frozen.values().items()})
        frozen.check()
        change()
        with pytest.raises(UsageError, match="changed the parameter 'bias'"):
            frozen.check()


def test_a_site_with_other_frozen_values_is_told() -> None:
    torch.manual_seed(0)
    value = torch.randn(100)
    sums = sums_of({"w": value})
    check_sums(sums, {"w": value * (1 + 1e-7)})
    for other in (torch.randn(100), value + 1e-2, torch.full((100,), torch.nan), value.flip(0), -value):
        with pytest.raises(UsageError, match=r"'w'.*build the network with the same weights at both"):
            check_sums(sums, {"w": other})
    with pytest.raises(UsageError, match="'w'"):
        check_sums(sums, {})


@pytest.mark.parametrize("shape", [(), (0,), (2**20,)])
def test_sums_of_frozen_values_allow_for_rounding(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    value = torch.rand(shape) + 1
    rounded = value * (1 + 1e-7 * torch.randn(shape))
    check_sums(sums_of({"w": value}), {"w": rounded})
    check_sums(sums_of({"w": value.bool()}), {"w": rounded.bool()})
    if value.numel():
        with pytest.raises(UsageError, match="'w'"):
            check_sums(sums_of({"w": value}), {"w": torch.rand(shape) + 1})
