"""The stacked plan: the loop's results to rounding, its picks, batches and steps exactly; the same bits with any number of threads.

That every algorithm's client half does on a stack what it does on one client is a matter of the contract suite
(``tests/contracts/test_algorithms.py``); here are models, optimisers, losses and whole runs.
"""

import gc
import math
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import fedcohort
from fedcohort.algorithms import Algorithm, Problem, RunningMean, Tensors, Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fedprox import FedProx
from fedcohort.algorithms.training_settings import Training
from fedcohort.algorithms.updates import is_finite
from fedcohort.core.files.state_files import pack
from fedcohort.engines import stacked_cohort
from fedcohort.engines.base import ClientError
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.engines.work_splitting import in_cohort_order, neighbors_of_equal_cost, stacks_by_size
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import CnnA, Logistic, Mlp, Model, ResNet18, as_model
from fedcohort.selection import Cohort
from fedcohort.testing import check_algorithm
from fedcohort.testing.algorithms import compare_updates
from fedcohort.testing.base import BROKEN, HEALTHY, NAN, small_federation
from fedcohort.training.stack import Stack
from fedcohort.training.stack.client_group import Group
from fedcohort.training.stack.linear_chain_descent import Models, Visits, few_samples
from fedcohort.training.stack.small_models import SmallModels
from fedcohort.training.stack.stacked_networks import Chain, Vectorized, network_of
from fedcohort.training.stack.stacked_tensors import stacked_memories
from tests.experiments import UCB, small
from tests.golden.test_same_bits import record


@pytest.fixture
def compare() -> Iterator[Callable[..., None]]:
    """Train uneven clients by loop and stack, and compare their updates."""
    with ExitStack() as engines:

        def check(
            training: dict[str, Any],
            model: Model | None = None,
            federation: Federation | None = None,
            algorithm: type[Algorithm] = FedAvg,
            group: int = 4,
        ) -> None:
            settings = Training(**{"batch_size": 4, "epochs": 2, "precision": "float64", **training})
            data = federation or small_federation()
            one, other = (
                LocalEngine(data, model or Mlp(hidden=5), settings, algorithm(), 3, 1, plan=plan)
                for plan in ("loop", "stacked")
            )
            engines.callback(one.close)
            engines.callback(other.close)
            assert other.plan == "stacked"
            assert other.groups is not None
            other.groups.limit, other.stacks = group, 1
            cohort = Cohort(np.array(HEALTHY), epochs=np.array([2, 1, 3, 2, 0, 2, 1]))
            start = one.initial_model()
            for t in (1, 2):
                pairs = zip(*(engine.train(start, t, cohort, algorithm()) for engine in (one, other)), strict=True)
                for looped, stacked in pairs:
                    compare_updates(looped, stacked, f"client {looped.client}")

        yield check


def images(size: int = 8) -> Federation:
    """The small federation with images in place of tables."""
    base = small_federation(trouble=False)
    draw = np.random.default_rng(0)

    def samples(of: Samples) -> Samples:
        pixels = draw.integers(0, 256, (len(of), 3, size, size), dtype=np.uint8)
        return Samples(torch.from_numpy(pixels), of.labels)

    shift, scale = torch.full((3, 1, 1), 128.0), torch.full((3, 1, 1), 1 / 64)
    server = samples(base.validation), samples(base.test)
    return Federation(samples(base.train), base.offsets, *server, base.classes, shift, scale, base.held)


@pytest.mark.parametrize("group", [1, 2, 7])
def test_the_size_of_the_stack_does_not_matter(group: int, compare: Callable[..., None]) -> None:
    compare({"momentum": 0.9}, group=group)


@pytest.mark.parametrize(
    "training",
    [
        {"momentum": 0.0},
        {"momentum": 0.9, "batch_size": 0},
        {"momentum": 0.9, "nesterov": True, "batch_size": 7},
        {"weight_decay": 0.01},
        {"clip_norm": 0.3},
        {"optimizer": "adam", "lr": 0.01},
        {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1},
        {"lr_schedule": "exponential"},
    ],
    ids=str,
)
@pytest.mark.parametrize("model", [Mlp(hidden=5), Logistic()], ids=["mlp", "logistic"])
def test_every_optimiser(training: dict[str, Any], model: Model, compare: Callable[..., None]) -> None:
    compare(training, model)


@pytest.mark.parametrize("few", [True, False], ids=["samples", "weights"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("batch_size", [0, 4, 7])
@pytest.mark.parametrize("model", [Mlp(hidden=5), Logistic()], ids=["mlp", "logistic"])
def test_the_first_layer_through_samples_and_as_weights(
    few: bool,
    momentum: float,
    batch_size: int,
    model: Model,
    compare: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    def answer(*_: object) -> bool:
        asked.append(few)
        return few

    monkeypatch.setattr("fedcohort.training.stack.stack_setup.few_samples", answer)
    compare({"momentum": momentum, "batch_size": batch_size, "lr": 0.3}, model)
    assert asked


def test_samples_are_taken_where_they_save_work() -> None:
    def few(size: int, epochs: int, batch: int) -> bool:
        rows = [np.arange(size)[start : start + batch] for start in range(0, size, batch)] * epochs
        visits = Visits.of([rows, rows], np.array([size, size]))
        return few_samples(784, 200, visits.extent, torch.device("cpu"), torch.float32)

    assert few(60, 1, 20)
    assert few(300, 10, 32)
    assert not few(5000, 1, 64)
    assert not few(12_000, 2, 64)  # more than may be held at once


@pytest.mark.parametrize("loss", ["robust", "sl", "sce", "double_softmax"])
def test_every_loss(loss: str, compare: Callable[..., None]) -> None:
    compare({"loss": {"name": loss}})


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_batch_beyond_a_chunk_is_summed_up(momentum: float, compare: Callable[..., None]) -> None:
    many = small_federation([600, 40, 300, 5, 257, 0, 256, 90, 8, 6], trouble=False)
    compare({"batch_size": 0, "momentum": momentum, "lr": 0.5}, federation=many)


@pytest.mark.parametrize("loss", ["ce", "robust"])
@pytest.mark.parametrize("algorithm", [FedAvg, FedProx])
def test_convolutions_by_vmap(loss: str, algorithm: type[Algorithm], compare: Callable[..., None]) -> None:
    compare({"loss": {"name": loss}, "epochs": 1}, CnnA(), images(), algorithm)


def test_threads_do_not_meet_in_one_module() -> None:
    """``functional_call`` puts a stack's parameters into the module while it runs: stacks side by side need modules of their own."""
    federation, found = images(32), []
    for workers in (1, 4):
        engine = LocalEngine(federation, CnnA(), Training(batch_size=4, lr=0.1), FedAvg(), 3, workers, plan="stacked")
        updates = engine.train(engine.initial_model(), 1, Cohort(np.array(HEALTHY)), FedAvg())
        found.append([update.state for update in updates])
        engine.close()
    for one, other in zip(*found, strict=True):
        assert all(torch.equal(one[name], value) for name, value in other.items())


def test_group_norm_and_shortcuts_by_vmap() -> None:
    federation = images(4)
    module = ResNet18().build((3, 4, 4), 3)
    assert isinstance(network_of(module, module.state_dict(), federation.sample_shape), Vectorized)


@pytest.mark.parametrize("group", [1, 4])
def test_groups_and_means_of_images_by_vmap(group: int, compare: Callable[..., None]) -> None:
    """One client alone, too, whose images would keep the layout in which vmap cannot run GroupNorm; nothing runs client by client."""

    def build() -> nn.Module:
        parts = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.GroupNorm(2, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        return nn.Sequential(*parts, nn.Flatten(), nn.Linear(4, 3))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare({"epochs": 1}, as_model(build), images(), group=group)


def dropped(shape: int, *, own: bool) -> Callable[[], nn.Module]:
    class Own(nn.Module):
        """Its Dropout is called twice; no program is made for it."""

        def __init__(self) -> None:
            super().__init__()
            self.drop, self.layer, self.last = nn.Dropout(0.3), nn.Linear(shape, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.drop(self.layer(self.drop(x)).relu())
            outputs: Tensor = self.last(hidden + hidden.tanh())
            return outputs

    def row() -> nn.Module:
        return nn.Sequential(
            nn.Linear(shape, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 5), nn.Dropout(0.2), nn.Linear(5, 3)
        )

    return Own if own else row


@pytest.mark.parametrize("training", [{"momentum": 0.9}, {"batch_size": 0}], ids=str)
@pytest.mark.parametrize("algorithm", [FedAvg, FedProx], ids=["fedavg", "fedprox"])
@pytest.mark.parametrize("own", [True, False], ids=["by autograd", "by a program"])
def test_dropout_draws_what_threads_draw(
    own: bool, algorithm: type[Algorithm], training: dict[str, Any], compare: Callable[..., None]
) -> None:
    compare(training, as_model(dropped(6, own=own)), algorithm=algorithm)


def test_dropout_of_images_and_of_chunks_draws_what_threads_draw(
    compare: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 4, 3),
            nn.ReLU(),
            nn.Dropout(0.4),
            nn.Flatten(),
            nn.Linear(144, 8),
            nn.Dropout(0.5),
            nn.Linear(8, 3),
        )

    compare({"momentum": 0.9}, as_model(build), images())
    for module in ("networks.mixed_samples", "client_problem", "local_setup", "stack.stack_problem"):
        monkeypatch.setattr(f"fedcohort.training.{module}.CHUNK", 3)
    compare({"batch_size": 7}, as_model(build), images())


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x - x.mean(0))
        return outputs


class Counting(nn.Module):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        outputs: Tensor = self.layer(x)
        return outputs


class Branching(Mixing):
    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x if x.sum() > 0 else -x)
        return outputs


class Shuffling(Mixing):
    """Its Dropout does not see one sample after another."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(self.drop(x.T).T)
        return outputs


class BySize(nn.Module):
    """Outputs that depend on the size of the batch, here on whether it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x)
        return outputs * (2.0 if len(x) == 4 else 1.0)


class Recomputing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False)


class Scaled(nn.Module):
    """A parameter that is a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(6, 3), nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x)
        return outputs * self.scale.exp()


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    module[2].weight = module[0].weight
    return module


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), "BatchNorm1d takes statistics"),
        (nn.Sequential(nn.Linear(6, 4), nn.AlphaDropout(0.1), nn.Linear(4, 3)), "AlphaDropout draws random numbers"),
        (Shuffling(), "Dropout draws random numbers for a whole batch"),
        (Mixing(), "depends on the others of its batch"),
        (BySize(), "depends on the size of its batch"),
        (Recomputing(), r"torch\.utils\.checkpoint runs parts of the model again"),
        (Counting(), "changes its buffers|vmap cannot run the model"),
        (Branching(), "vmap cannot run the model"),
        (tied(), "share parameters"),
    ],
    ids=[
        "batch norm",
        "alpha dropout",
        "whole batch",
        "mixing",
        "by size",
        "checkpoint",
        "counting",
        "branching",
        "tied",
    ],
)
def test_models_that_cannot_be_stacked(module: nn.Module, reason: str) -> None:
    """They say so, and are trained one by one: the bits of the plan threads."""
    settings, federation = Training(batch_size=4), small_federation()
    with pytest.warns(UserWarning, match=rf"engine\.plan = 'stacked': .*({reason}).*trained by threads"):
        engine = LocalEngine(federation, as_model(module), settings, FedAvg(), 3, 1, plan="stacked")
    other = LocalEngine(federation, as_model(module), settings, FedAvg(), 3, 1)
    assert engine.plan == "threads"
    start, cohort = engine.initial_model(), Cohort(np.array(HEALTHY[:3]))
    for one, two in zip(engine.train(start, 1, cohort, FedAvg()), other.train(start, 1, cohort, FedAvg()), strict=True):
        assert pack(one.state) == pack(two.state)
    engine.close()
    other.close()


@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
def test_parameters_may_be_single_numbers(clip_norm: float, compare: Callable[..., None]) -> None:
    compare({"clip_norm": clip_norm}, as_model(Scaled()))


class PartlyUsed(nn.Module):
    """With a layer that no output depends on."""

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.other, self.used = nn.Linear(3, 3), nn.Linear(math.prod(shape), num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.used(x.flatten(1)).tanh()
        return logits


@pytest.mark.parametrize("algorithm", [FedAvg, FedProx])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_parameter_without_a_gradient_stays_as_it_is(
    optimizer: str, algorithm: type[Algorithm], compare: Callable[..., None]
) -> None:
    training = {"optimizer": optimizer, "weight_decay": 0.1, "clip_norm": 0.5}
    compare(training, as_model(PartlyUsed), algorithm=algorithm)


@pytest.mark.parametrize("plan", ["loop", "stacked"])
def test_the_gradient_of_a_parameter_that_is_not_used_is_zero(plan: Any) -> None:
    class Follows(FedAvg):
        stacks: ClassVar[bool] = True

        def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
            for gradients in (problem.gradient(), problem.full_gradient(problem.anchor)):
                assert gradients.keys() == problem.parameters.keys()
                assert not gradients["other.weight"].any()
                assert gradients["used.weight"].any()
            return problem.backward()

    settings = Training(batch_size=4)
    with closing(LocalEngine(small_federation(), as_model(PartlyUsed), settings, Follows(), 3, 1, plan=plan)) as engine:
        updates = [*engine.train(engine.initial_model(), 1, Cohort(np.array(HEALTHY)), Follows())]
    assert not any(update.failure for update in updates)


def test_shared_activations_are_a_chain() -> None:
    relu = nn.ReLU()
    module = nn.Sequential(nn.Linear(6, 4), relu, nn.Linear(4, 4), relu, nn.Linear(4, 3))
    shared = network_of(module, module.state_dict(), (6,))
    assert isinstance(shared, Chain)
    assert [layer.relu for layer in shared.layers] == [True, True, False]
    plain = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 3))
    assert isinstance(network_of(plain, plain.state_dict(), (6,)), Chain)


class Unsaid(FedProx):
    def correct(self, problem: Problem, gradients: Tensors) -> None:
        super().correct(problem, gradients)


class Global(FedAvg):
    """Normalises gradients, but over the whole stack."""

    corrects: ClassVar[bool] = True
    stacks: ClassVar[bool] = True

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            gradient.div_(gradient.norm() + 1)


def test_an_algorithm_that_changes_a_hook_has_to_say_that_it_stacks() -> None:
    with pytest.warns(UserWarning, match="client half of Unsaid works on one client at a time"):
        LocalEngine(small_federation(), Mlp(), Training(), Unsaid(), 0, 1, plan="stacked").close()


def test_the_contract_suite_notices_a_wrong_stack() -> None:
    with pytest.raises(AssertionError, match=r"Global, on a stack of clients, round ., client .*differs by"):
        check_algorithm(Global)


def test_trouble_stays_with_its_client() -> None:
    """NaN of one client, and an error that names its client."""
    engine = LocalEngine(small_federation(), Mlp(hidden=5), Training(batch_size=4), FedAvg(), 3, 2, plan="stacked")
    model = engine.initial_model()
    healthy = {u.client: u for u in engine.train(model, 1, Cohort(np.array(HEALTHY)), FedAvg())}
    updates = list(engine.train(model, 1, Cohort(np.array([NAN, *HEALTHY])), FedAvg()))
    assert [update.client for update in updates] == [NAN, *HEALTHY]
    for update in updates:
        finite = all(bool(torch.isfinite(value).all()) for value in update.state.values())
        assert finite == (update.client != NAN)
        if finite:
            for name, value in healthy[update.client].state.items():
                torch.testing.assert_close(update.state[name], value, rtol=1e-4, atol=1e-6)
    with pytest.raises(ClientError, match=rf"^client {BROKEN}: "):
        list(engine.train(model, 1, Cohort(np.array([*HEALTHY, BROKEN])), FedAvg()))
    engine.close()


def test_out_of_memory_makes_the_stack_smaller_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks of more than two clients do not fit: the same updates to rounding, one warning for each size, none in the next round."""
    train, sizes = Stack.train, []

    def scarce(self: Stack, model: Any, t: int, clients: list[int], **values: Any) -> Any:
        sizes.append(len(clients))
        if len(clients) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return train(self, model, t, clients, **values)

    federation = small_federation([12] * 32, trouble=False)
    engine = LocalEngine(federation, Mlp(hidden=5), Training(batch_size=4), FedAvg(), 3, 1, plan="stacked")
    monkeypatch.setattr(stacked_cohort, "STACK_WORK", 1)
    engine.stacks = 4
    model, cohort = engine.initial_model(), Cohort(np.arange(32))
    expected = list(engine.train(model, 1, cohort, FedAvg()))
    monkeypatch.setattr(Stack, "train", scarce)
    with pytest.warns(UserWarning, match="does not fit into memory") as said:
        found = list(engine.train(model, 1, cohort, FedAvg()))
    assert [str(one.message)[:24] for one in said] == ["a stack of 8 clients doe", "a stack of 4 clients doe"]
    for one, other in zip(expected, found, strict=True):
        assert one.client == other.client
        for name, value in one.state.items():
            torch.testing.assert_close(other.state[name], value, rtol=1e-4, atol=1e-6)
    sizes.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(engine.train(model, 2, cohort, FedAvg()))
    assert set(sizes) == {2}
    engine.close()


def test_what_did_not_fit_is_gone_before_less_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the garbage collector, too; and a library of CUDA that finds too little memory has words of its own."""
    step = Group._step
    failed: list[weakref.ref[Group]] = []
    left: list[Group | None] = []

    def scarce(self: Any, number: int) -> None:
        left.extend(group() for group in failed)
        if len(self.plans) > 2:
            failed.append(weakref.ref(self))
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
        step(self, number)

    monkeypatch.setattr(Group, "_step", scarce)
    engine = LocalEngine(
        small_federation([12] * 8, trouble=False), Mlp(hidden=5), Training(), FedAvg(), 3, 1, plan="stacked"
    )
    engine.stacks = 1
    gc.disable()
    try:
        with pytest.warns(UserWarning, match="does not fit into memory"):
            assert len(list(engine.train(engine.initial_model(), 1, Cohort(np.arange(8)), FedAvg()))) == 8
    finally:
        gc.enable()
        engine.close()
    assert failed
    assert left
    assert all(group is None for group in left)


# --- whole runs ------------------------------------------------------------------------------------------------------------


def stacked(workers: int = 0, **values: Any) -> fedcohort.Experiment:
    return small(engine={"plan": "stacked", "workers": workers}, **values)


@pytest.mark.parametrize("selection", [UCB, "rpowd", "select_by_loss"], ids=str)
def test_a_run_makes_the_loops_picks(selection: Any, tmp_path: Path) -> None:
    values = {"selection": selection, "training": {"precision": "float64"}}
    loop, stack = fedcohort.run(small(**values), runs=tmp_path), fedcohort.run(stacked(**values), runs=tmp_path)
    assert loop.path != stack.path
    assert stack.clients["client"].equals(loop.clients["client"])
    for column in ("status", "num_samples", "steps", "duration", "weight"):
        assert stack.clients[column].equals(loop.clients[column]), column
    np.testing.assert_allclose(stack.rounds["test_loss"], loop.rounds["test_loss"], rtol=1e-7)


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_the_number_of_threads_does_not_matter(algorithm: str, tmp_path: Path) -> None:
    values = {"rounds": 3, "selection": "all", "algorithm": algorithm}
    runs = [fedcohort.run(stacked(workers, **values), runs=tmp_path / str(workers)) for workers in (1, 2, 3)]
    records = [record(run) for run in runs]
    assert records[0] == records[1] == records[2]


@given(
    costs=st.lists(st.sampled_from([0.0, 1.0, 60.0, 5000.0]), max_size=60),
    parts=st.integers(1, 5),
    most=st.integers(1, 9),
)
def test_a_cohort_is_cut_into_neighbours_of_about_equal_cost(costs: list[float], parts: int, most: int) -> None:
    groups = neighbors_of_equal_cost(np.array(costs), parts, most)
    assert [i for group in groups for i in range(group.start, group.stop)] == list(range(len(costs)))
    assert all(1 <= group.stop - group.start <= most for group in groups)
    whole = [sum(costs[group]) for group in neighbors_of_equal_cost(np.array(costs), parts, 100)]
    assert max(whole, default=0.0) <= sum(costs) / parts + max(costs, default=0.0)


@given(
    clients=st.lists(st.tuples(st.sampled_from([0.0, 1.0, 60.0, 5000.0]), st.booleans()), max_size=200),
    parts=st.integers(1, 5),
    most=st.integers(1, 9),
)
def test_a_cohort_is_cut_by_size(clients: list[tuple[float, bool]], parts: int, most: int) -> None:
    costs = np.array([cost for cost, _ in clients], dtype=np.float64)
    combined = np.array([kind for _, kind in clients], dtype=np.bool_)
    stacks = stacks_by_size(costs, combined, parts, most)
    assert sorted(np.concatenate([np.zeros(0, dtype=np.int64), *stacks]).tolist()) == list(range(len(clients)))
    for stack in stacks:
        kinds = set(combined[stack].tolist())
        assert len(kinds) == 1
        assert len(stack) <= (64 if kinds == {True} else most)
    assert list(in_cohort_order(stacks, [stack.tolist() for stack in stacks])) == list(range(len(clients)))


def test_clients_of_one_size_are_cut_into_neighbors() -> None:
    for count in (1, 5, 100, 1000):
        for combined, most in ((True, 64), (False, 9)):
            stacks = stacks_by_size(np.full(count, 60.0), np.full(count, combined), 2, 9)
            neighbors = neighbors_of_equal_cost(np.full(count, 60.0), 2, most)
            assert [(stack[0], stack[-1] + 1) for stack in stacks] == [(part.start, part.stop) for part in neighbors]


def test_a_large_client_is_apart_and_threads_have_equal_work() -> None:
    costs = np.array([60.0] * 50 + [2000.0] + [60.0] * 49)
    stacks = stacks_by_size(costs, costs < 100, 2, 26)
    assert stacks[0].tolist() == [50]
    assert [len(stack) for stack in stacks[1:]] == [33, 33, 33]


def test_results_of_a_large_cohort_wait_only_for_their_neighbors() -> None:
    costs = np.random.default_rng(0).uniform(1, 1000, 2000)
    for stack in stacks_by_size(costs, costs < 300, 2, 20):
        assert np.ptp(stack) < 2 * 64


def test_a_large_client_does_not_prevent_others_from_combining_samples() -> None:
    sizes = [12, 9, 400, 12, 7]
    federation = small_federation(sizes, trouble=False)
    settings, cohort = Training(batch_size=4, precision="float64"), Cohort(np.arange(5))
    updates = {}
    for plan in ("loop", "stacked"):
        with closing(LocalEngine(federation, Mlp(hidden=40), settings, FedAvg(), 0, 2, plan=plan)) as engine:
            updates[plan] = list(engine.train(engine.initial_model(), 1, cohort, FedAvg()))
    assert [update.client for update in updates["stacked"]] == list(range(5))
    kinds = [type(update.group[0]) for update in updates["stacked"] if update.group is not None]
    assert kinds == [Models, Models, SmallModels, Models, Models]
    means = [mean_of(updates[plan], [float(size) for size in sizes]) for plan in ("stacked", "loop")]
    for name, value in means[0].items():
        torch.testing.assert_close(value, means[1][name], atol=1e-12, rtol=1e-12)
    for one, other in zip(updates["loop"], updates["stacked"], strict=True):
        compare_updates(one, other, f"client {one.client}")


@pytest.mark.parametrize(("epochs", "sizes"), [(None, [2, 2]), ([3, 1, 1, 1], [1, 3]), ([1, 1, 1, 3], [3, 1])])
def test_a_client_with_more_epochs_has_fewer_others_in_its_stack(
    epochs: list[int] | None, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two stacks of four clients with as many samples: a client that trains three epochs costs as much as the three others."""
    monkeypatch.setattr(stacked_cohort, "STACK_WORK", 1)
    federation, settings = small_federation([8] * 4, trouble=False), Training(batch_size=4)
    with closing(LocalEngine(federation, Mlp(hidden=40), settings, FedAvg(), 0, 1, plan="stacked")) as engine:
        engine.stacks = 2
        cohort = Cohort(np.arange(4), epochs=None if epochs is None else np.array(epochs))
        updates = list(engine.train(engine.initial_model(), 1, cohort, FedAvg()))
    stacks = [update.group[0] for update in updates if update.group is not None]
    assert len(stacks) == 4
    assert [stack.size for stack in dict.fromkeys(stacks)] == sizes


def test_stacked_updates_share_no_memory_with_the_model() -> None:
    engine = LocalEngine(small_federation(), Mlp(), Training(), FedAvg(), 0, 1, plan="stacked")
    model = engine.initial_model()
    updates: list[Update] = list(engine.train(model, 1, Cohort(np.array(HEALTHY[:2])), FedAvg()))
    for update in updates:
        assert all(value.data_ptr() != model[name].data_ptr() for name, value in update.state.items())
    engine.close()


# --- models that stay together until somebody looks at one -----------------------------------------------------------------


def together(precision: str = "float64", lr: float = 0.3, scale: float = 1.0) -> list[Update]:
    """Updates of a perceptron whose first layer is carried through the samples."""
    federation = small_federation([12, 7, 9, 4], trouble=False)
    federation.train.features.mul_(scale)
    settings = Training(batch_size=4, epochs=2, lr=lr, precision=precision)  # type: ignore[arg-type]
    torch.manual_seed(0)
    module = Mlp(hidden=40).build(federation.sample_shape, federation.num_classes)
    stack = Stack(federation, module, settings, FedAvg(), 3)
    start = {name: value.detach().clone() for name, value in module.state_dict().items()}
    return [update for update, _ in stack.train(start, 1, [0, 1, 2, 3])]


def mean_of(updates: list[Update], weights: list[float]) -> dict[str, Tensor]:
    mean = RunningMean()
    for update, weight in zip(updates, weights, strict=True):
        mean.include(update, weight)
    return mean.result()


def test_a_mean_of_models_that_are_together_is_the_mean_of_the_models() -> None:
    weights = [3.0, 1.0, 0.5, 2.0]
    lazy, looked_at = together(), together()
    assert all(update.pending is not None for update in lazy)
    assert all(update.state for update in looked_at)
    assert all(update.pending is None for update in looked_at)
    for some in (slice(0, 4), slice(1, 3), slice(2, 3), slice(3, None, -2)):
        expected = mean_of(looked_at[some], weights[some])
        for name, value in mean_of(lazy[some], weights[some]).items():
            torch.testing.assert_close(value, expected[name], atol=1e-12, rtol=1e-12)
    assert all(update.pending is not None for update in lazy)  # nobody has looked
    mixed = [lazy[0], looked_at[1], lazy[2], lazy[0]]
    for name, value in mean_of(mixed, weights).items():
        expected = mean_of([looked_at[i] for i in (0, 1, 2, 0)], weights)
        torch.testing.assert_close(value, expected[name], atol=1e-12, rtol=1e-12)


def small_models(**entries: Tensor) -> SmallModels:
    """Models with these trained entries [g, …], a number that is not trained, and a counter."""
    received = {name: value[0] * 0 for name, value in entries.items()}
    return SmallModels(received | {"fixed": torch.tensor([0.5]), "seen": torch.tensor(7)}, entries)


def test_small_models_of_a_stack_are_checked_and_averaged_together() -> None:
    draw = torch.Generator().manual_seed(0)
    entries = {"w": torch.randn(5, 3, 4, generator=draw), "b": torch.randn(5, 3, generator=draw)}
    models = small_models(**entries)
    for positions in ([0, 1, 2, 3, 4], [3, 1], [2]):
        weights = {position: 0.3 + position for position in positions}
        one_by_one = RunningMean()
        for position, weight in weights.items():
            one_by_one.add(models.state_of(position), weight)
        expected = one_by_one.result()
        found = models.mean(weights)
        assert list(found) == list(expected)
        for name, value in found.items():
            torch.testing.assert_close(value, expected[name], atol=1e-6, rtol=1e-6)
            assert value.dtype == expected[name].dtype
    same = small_models(w=entries["w"][:1].expand(4, 3, 4))
    assert torch.equal(same.mean({0: 0.1, 1: 0.7, 2: 0.3, 3: 0.9})["w"], entries["w"][0])


def test_small_models_with_a_number_that_is_not_finite_are_found() -> None:
    largest = torch.finfo(torch.float32).max
    weights = torch.tensor([[1.0, 2.0], [largest, largest], [math.nan, 0.0], [0.0, -math.inf], [math.inf, -math.inf]])
    models = small_models(w=weights, b=torch.ones(5, 1))
    models.settle()
    assert [models.is_finite(i) for i in range(5)] == [True, True, False, False, False]
    models.received["fixed"].fill_(math.nan)
    models.settle()
    assert not any(models.is_finite(i) for i in range(5))


def test_means_that_are_worked_out_aside_enter_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits as one after the other, however many stacks there are and whatever comes between."""
    for lengths in ((4,), (4, 4), (4, 4, 4), (4, 4, 3, 4, 4)):
        stacks = [together("float32", lr=0.1 * (i + 1))[:length] for i, length in enumerate(lengths)]
        updates = [update for stack in stacks for update in stack]
        updates.insert(5, together("float32", lr=0.7)[2])
        _ = updates[min(5, len(updates) - 1)].state  # somebody has looked at this one
        weights = [1.0 + i % 3 for i in range(len(updates))]
        beside = mean_of(updates, weights)
        with monkeypatch.context() as patch:
            patch.setattr("fedcohort.algorithms.weighted_means.in_background", at_once)
            inline = mean_of(updates, weights)
        assert all(torch.equal(value, inline[name]) for name, value in beside.items())


def test_groups_whose_clients_are_mixed_are_included_as_wholes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    mean = Models.mean
    monkeypatch.setattr(
        Models,
        "mean",
        lambda self, weights: asked.append(list(weights)) or mean(self, weights),  # type: ignore[func-returns-value]
    )
    stacks = [together(lr=0.1 * (i + 1)) for i in range(4)]
    for stack in stacks:
        stack[0].group[0].mixed_with = 2  # type: ignore[index]
    updates = [stacks[i][position] for position in range(4) for i in (0, 1)]
    del updates[2]  # a lost client of the first stack
    updates += stacks[2] + stacks[3]
    weights = [1.0 + i % 3 for i in range(len(updates))]
    found = mean_of(updates, weights)
    assert sorted(map(len, asked)) == [3, 4, 4, 4]
    assert all(update.pending is not None for update in updates)
    assert all(update.state for update in updates)
    for name, value in mean_of(updates, weights).items():
        torch.testing.assert_close(found[name], value, atol=1e-12, rtol=1e-12)


def at_once(work: Callable[[], Any]) -> Future[Any]:
    """The same without a thread."""
    done: Future[Any] = Future()
    done.set_result(work())
    return done


def test_the_mean_of_identical_models_is_that_model_exactly() -> None:
    updates = together("float32", lr=1e-30)  # nothing that a float32 can show
    for name, value in mean_of(updates, [0.1, 0.7, 0.3, 0.9]).items():
        assert torch.equal(value, updates[0].state[name])


def test_a_layer_without_a_bias_is_all_there_is(compare: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcohort.training.stack.stack_setup.few_samples", lambda *_: True)
    lone = as_model(lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3, bias=False)))
    compare({"momentum": 0.9}, lone)
    module = lone.build((6,), 3)
    federation = small_federation([12, 7], trouble=False)
    stack = Stack(federation, module, Training(batch_size=4), FedAvg(), 3)
    start = {name: value.detach().clone() for name, value in module.state_dict().items()}
    updates = [update for update, _ in stack.train(start, 1, [0, 1])]
    assert all(is_finite(update) and update.pending is not None for update in updates)
    assert list(mean_of(updates, [1.0, 2.0])) == ["1.weight"]


def test_what_is_said_of_a_model_without_looking_at_it() -> None:
    lazy, looked_at = together(), together()
    assert [update.num_bytes for update in lazy] == [
        sum(value.nbytes for value in update.state.values()) for update in looked_at
    ]
    assert all(is_finite(update) for update in lazy)
    assert all(update.pending is not None for update in lazy)
    for update in together("float32", lr=1e10, scale=1e30):
        known = is_finite(update)
        assert known == all(bool(torch.isfinite(value).all()) for value in update.state.values())
        assert not known


def test_a_run_never_writes_out_models_that_nobody_looks_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Checked, counted, admitted and averaged."""
    written: list[int] = []
    monkeypatch.setattr(Models, "state_of", lambda self, position: written.append(position))
    run = fedcohort.run(
        stacked(model={"name": "mlp", "hidden": 64}, rounds=2, training={"batch_size": 16, "lr": 0.1}), runs=tmp_path
    )
    assert len(run.rounds) == 2
    assert written == []


def test_clients_of_a_stack_can_remember_different_things() -> None:
    """An algorithm may begin to remember something in a later round, in which not all clients train."""
    early, one, two = {"c": {"w": torch.ones(2)}}, torch.full((2,), 3.0), torch.full((3,), 4.0)
    late = {"c": {"w": one, "b": two}, "speed": {"w": one}}
    found = stacked_memories([early, {}, late])
    assert {kind: list(tensors) for kind, tensors in found.items()} == {"c": ["w", "b"], "speed": ["w"]}
    assert found["c"]["w"].tolist() == [[1.0, 1.0], [0.0, 0.0], [3.0, 3.0]]
    assert found["c"]["b"].tolist() == [[0.0] * 3, [0.0] * 3, [4.0] * 3]
    assert found["speed"]["w"].tolist() == [[0.0, 0.0], [0.0, 0.0], [3.0, 3.0]]
    assert stacked_memories([{}, {}]) == {}
