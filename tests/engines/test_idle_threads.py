"""Programs give work to idle threads: the same bits, in threads that are ready for it, and processes that end as they should."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.script_threads import can_fork
from fedcohort.core.threads import one_thread
from fedcohort.engines.idle_threads import IdleThreads
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import CnnA
from fedcohort.selection import Cohort
from fedcohort.training.optimizers import build_optimizer
from fedcohort.training.programs import divided_batches
from fedcohort.training.programs.forward_functions import outputs_of_one
from fedcohort.training.programs.plain_layers import Layer
from fedcohort.training.programs.plain_network import Program, program_of

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="PyTorch has no TorchScript for this Python")

SHAPE = (3, 16, 16)
"""Images for which the layers of the networks have enough work to be shared."""

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "convolutions": lambda: nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 32, 3, padding=1, bias=False), nn.Tanh(), nn.Flatten(), nn.Linear(2048, 64), nn.ReLU(), nn.Linear(64, 4),
    ),
    "strides, groups and dilation": lambda: nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.GELU(), nn.Conv2d(32, 64, 5, groups=4, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(64, 64, 3, dilation=2), nn.AvgPool2d(2), nn.Flatten(), nn.LazyLinear(4),
    ),
    "activations before poolings": lambda: nn.Sequential(
        nn.Tanh(), nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.Tanh(),
        nn.MaxPool2d(2), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 4),
    ),
    "one channel, one pixel": lambda: nn.Sequential(
        nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), nn.Conv2d(64, 1, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(1, 32, 3),
        nn.AdaptiveAvgPool2d(1), nn.GroupNorm(4, 32), nn.Flatten(), nn.Linear(32, 4),
    ),
    "one convolution": lambda: nn.Sequential(
        nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 4),
    ),
    "norms and Dropout": lambda: nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.GroupNorm(8, 64),
        nn.ReLU(), nn.Dropout(0.3), nn.Conv2d(64, 32, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4),
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_intra_op_thread() -> Iterator[None]:
    """As in an engine."""
    with one_thread():
        yield


def pictures() -> Federation:
    """Clients of 30, 40, 60 and 90 images, as bytes."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (220, 3, 32, 32), dtype=torch.uint8, generator=draw)
    samples = Samples(images, torch.arange(220) % 4)
    offsets = np.array([0, 30, 70, 130, 220])
    shift, scale = torch.full((3, 1, 1), 120.0), torch.full((3, 1, 1), 0.01)
    return Federation(samples, offsets, samples[:10], samples[:10], ("a", "b", "c", "d"), shift, scale)


def program(name: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Program]:
    torch.manual_seed(0)
    module = NETWORKS[name]()
    module(torch.zeros(2, *SHAPE))  # lazy layers find out their sizes
    module = module.to(dtype=dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    found = program_of(module, SHAPE)
    assert found is not None
    return module, found


def batch(size: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 16, 16, 3, dtype=dtype), torch.randint(0, 4, (size,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", NETWORKS)
def test_shared_gradients_have_the_same_bits(name: str, dtype: torch.dtype) -> None:
    """Again and again: TorchScript would change a program at its second or third call, also in other threads."""
    module, steps = program(name, dtype)
    images, labels = batch(24, dtype)
    draws = [torch.Generator()] if steps.draws else []

    def gradients() -> list[Tensor]:
        for draw in draws:
            draw.manual_seed(3)
        losses, hits, found = steps.gradients(images.permute(0, 3, 1, 2), labels, None, 24, draws)
        return [losses, hits, *found]

    expected = gradients()
    steps.share_work(torch.tensor(1), 2)
    for _ in range(5):
        assert all(map(torch.equal, expected, gradients()))
    assert all(own.stride() == p.stride() for own, p in zip(gradients()[2:], module.parameters(), strict=True))


@pytest.mark.parametrize("threads", [2, 3, 6])
@pytest.mark.parametrize("name", NETWORKS)
def test_divided_batches_have_the_same_bits(name: str, threads: int) -> None:
    """As many parts as there are idle threads, of a number of samples that they do not divide evenly; idle threads come and go."""
    module, steps = program(name)
    images, labels = batch(25)
    draws = [torch.Generator()] if steps.draws else []
    idle = torch.tensor(0)
    steps.share_work(idle, threads)
    found = []
    for number in (0, threads - 1, 1, 0, threads - 1):
        idle.fill_(number)
        for draw in draws:
            draw.manual_seed(3)
        losses, hits, gradients = steps.gradients(images.permute(0, 3, 1, 2), labels, None, 25, draws)
        found.append([losses, hits, *gradients])
    assert steps._most_parts == {25: threads}
    assert all(torch.equal(*pair) for one in found[1:] for pair in zip(found[0], one, strict=True))
    assert all(own.stride() == p.stride() for own, p in zip(found[-1][2:], module.parameters(), strict=True))


def test_batches_are_divided_only_where_it_changes_no_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library whose results depend on the number of samples: from four parts on, of fewer than eight samples."""

    def outputs(layers: list[Layer], values: list[Tensor], x: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        end, given, notes = outputs_of_one(layers, values, x)
        return torch.nextafter(end, torch.tensor(9.0)) if len(x) < 8 else end, given, notes

    monkeypatch.setattr(divided_batches, "outputs_of_one", outputs)
    _, steps = program("convolutions")
    steps.share_work(torch.tensor(1), 16)
    for size in (24, 2):
        images, labels = batch(size)
        steps.gradients(images.permute(0, 3, 1, 2), labels, None, size)
    assert steps._most_parts == {24: 3, 2: 1}


def test_batches_with_little_work_stay_whole() -> None:
    """An image takes 2.6 million multiplications."""
    _, steps = program("convolutions")
    steps.share_work(torch.tensor(1), 16)
    for size in (1, 3, 8):
        images, labels = batch(size)
        steps.gradients(images.permute(0, 3, 1, 2), labels, None, size)
    assert steps._most_parts == {3: 1, 8: 4}


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"optimizer": "adam"}], ids=str)
def test_shared_steps_have_the_same_bits(settings: dict[str, Any]) -> None:
    """Threads become idle and busy again during the steps."""
    images, labels = batch(60)
    trained = []
    for shared in (False, True):
        module, steps = program("convolutions")
        optimizer = build_optimizer(Training(batch_size=20, lr=0.05, **settings), list(module.parameters()))
        idle = torch.tensor(int(shared))
        steps.share_work(idle, 2)
        for turn in range(4):
            idle.fill_(int(shared and turn != 2))
            steps.descend(images, labels, torch.arange(60), 20, optimizer)
        trained.append([p.detach() for p in module.parameters()])
    assert all(map(torch.equal, *trained))


def share_of_other_threads(work: Callable[[], object]) -> float:
    """The share of the processor time that the calling thread does not spend itself."""
    work()
    own, all_threads = time.thread_time(), time.process_time()
    for _ in range(30):
        work()
    return 1 - (time.thread_time() - own) / (time.process_time() - all_threads)


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_other_threads_work_only_if_there_are_idle_ones(part: str) -> None:
    """A first convolution shares nothing in the backward pass, because nothing needs the gradient of its inputs."""
    _, steps = program("one convolution" if part == "forward" else "convolutions")
    images, labels = batch(96 if part == "forward" else 24)
    idle = torch.tensor(0)
    steps.share_work(idle, 2)
    if part == "backward":
        steps._most_parts[24] = 1
    shares = []
    for number in (0, 1, 0):
        idle.fill_(number)
        shares.append(
            share_of_other_threads(lambda: steps.gradients(images.permute(0, 3, 1, 2), labels, None, len(labels)))
        )
    assert shares[0] < 0.1
    assert shares[1] > 0.2
    assert shares[2] < 0.1


def test_small_networks_keep_their_work() -> None:
    module = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
    steps = program_of(module, (784,))
    assert steps is not None
    steps.share_work(torch.tensor(1), 2)
    assert steps._idle is None


@pytest.mark.parametrize("cohort", [[2], [0, 3, 1]], ids=["one client", "three clients"])
def test_clients_learn_the_same_with_idle_threads(cohort: list[int]) -> None:
    """The plan ``loop`` has one thread, which shares nothing."""
    federation = pictures()
    training = Training(batch_size=20, lr=0.05, momentum=0.9)
    found = []
    for plan in ("loop", "threads"):
        with closing(LocalEngine(federation, CnnA(), training, FedAvg(), 7, workers=2, plan=plan)) as engine:
            updates = engine.train(engine.initial_model(), 1, Cohort(np.array(cohort)), FedAvg())
            found.append([value for update in updates for value in update.state.values()])
            assert int(engine._idle.count) == (1 if plan == "loop" else min(2, os.cpu_count() or 1))
    assert all(map(torch.equal, *found))


def test_idle_threads_are_counted() -> None:
    idle = IdleThreads(3)
    with idle.one_busy(), idle.one_busy():
        assert int(idle.count) == 1
    assert int(idle.count) == 3
    with pytest.raises(ValueError, match="lost"), idle.one_busy():
        raise ValueError("lost")
    assert int(idle.count) == 3


FORKS = """
import os, sys, torch
from tests.engines.test_idle_threads import batch, program
from fedcohort.core.script_threads import can_fork
from fedcohort.core.threads import one_thread
torch.set_num_threads(1)
_, steps = program("convolutions")
images, labels = batch(24)
def gradients():
    return steps.gradients(images.permute(0, 3, 1, 2), labels, None, 24)[2]
expected = gradients()
"""


def played(script: str) -> str:
    """What a process prints, which must end without an error; the tests' time limit ends one that hangs."""
    done = subprocess.run([sys.executable, "-c", FORKS + script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_forked_process_does_its_work_itself() -> None:
    """Its parent's threads do not exist in it; one whose parent has started none has threads of its own."""
    script = """
def child():
    process = os.fork()
    if process == 0:
        steps.share_work(torch.tensor(1), 2) if steps._idle is None else None
        print(can_fork(), all(map(torch.equal, gradients(), expected)), flush=True)
        os._exit(0)
    assert os.waitpid(process, 0)[1] == 0
child()
steps.share_work(torch.tensor(1), 2)
gradients()
child()
"""
    assert played(script).split() == ["True", "True", "False", "True"]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # on a busy machine, the end of each process takes several seconds
def test_a_process_may_end_while_threads_clean_up() -> None:
    """PyTorch aborts about one process in fifty that ends directly after forked calls, if nobody waits for their threads."""
    script = """
for _ in range(60):
    process = os.fork()
    if process == 0:
        steps.share_work(torch.tensor(1), 2)
        gradients()
        sys.exit(0)
    assert os.waitpid(process, 0)[1] == 0
"""
    played(script)


def test_settings_of_the_caller_stay() -> None:
    before = torch.get_num_threads()
    assert can_fork()
    assert torch.get_num_threads() == before
