"""Devices and arithmetic, as far as a machine without a GPU can tell."""

import copy
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.scaffold import Scaffold
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import torch_seeded
from fedcohort.engines import device
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.experiment.given_objects import Given
from fedcohort.models import CnnA, Mlp, as_model
from fedcohort.runs import parallel_runs
from fedcohort.runs.process_objects import packed
from fedcohort.selection import Cohort
from fedcohort.testing.base import HEALTHY, bits, small_federation
from fedcohort.training.networks.memory_layouts import faster_with_channels_first
from fedcohort.training.networks.random_layers import draws_at_random
from tests.experiments import cell, small


def see(monkeypatch: pytest.MonkeyPatch, gpu: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)


def test_which_device(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, True)
    assert [device.pick_device(name) for name in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]
    see(monkeypatch, False)
    assert [device.pick_device(name) for name in ("auto", "cpu")] == ["cpu", "cpu"]


def test_a_gpu_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, False)
    with pytest.raises(UsageError, match=r"engine\.device = 'cuda': torch sees no GPU; use 'cpu', or 'auto'"):
        fedcohort.run(small(engine={"device": "cuda"}), runs=tmp_path)


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A machine with so many GPUs."""
    see(monkeypatch, count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("count", "name", "message"),
    [
        (2, "cuda:2", r"^engine\.device = 'cuda:2': torch sees 2 GPUs; use 'cuda:0' to 'cuda:1', or 'cuda'$"),
        (1, "cuda:7", r"^engine\.device = 'cuda:7': torch sees 1 GPU; use 'cuda:0', or 'cuda'$"),
        (0, "cuda:0", r"^engine\.device = 'cuda:0': torch sees no GPU; use 'cpu', or 'auto'"),
        (1, "mps", r"^engine\.device = 'mps': torch sees no GPU of a Mac; use 'cpu', or 'auto'$"),
        (
            1,
            "gpu",
            r"^engine\.device = 'gpu': should be 'cpu', 'cuda', 'cuda:N' with the number of a GPU, 'mps' or 'auto'$",
        ),
        (1, "cuda:-1", r"^engine\.device = 'cuda:-1': should be"),
    ],
)
def test_devices_that_do_not_exist_are_one_line(
    count: int, name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(monkeypatch, count)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UsageError, match=message):
        fedcohort.run(small(engine={"device": name}), runs=tmp_path)
    assert not list(tmp_path.iterdir())


def test_devices_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    names = ["cuda", "cuda:0", "cuda:1", "mps"]
    assert [device.pick_device(name) for name in names] == names


def test_a_mac_has_no_float64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(
        UsageError, match=r"^training\.precision = 'float64': not on engine\.device = 'mps', which has none"
    ):
        fedcohort.run(small(engine={"device": "mps"}, training={"precision": "float64"}), runs=tmp_path)


def test_random_layers_on_a_mac_are_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    own = torch.Generator().manual_seed(7)
    before = own.get_state()
    monkeypatch.setattr(torch.mps, "_get_default_mps_generator", lambda: own)
    with torch_seeded(5, torch.device("mps")) as generators:
        assert [generator.initial_seed() for generator in generators] == [5, 5]
    assert torch.equal(own.get_state(), before)


def test_a_cluster_has_no_numbered_devices(tmp_path: Path) -> None:
    for name in ("cuda:1", "mps", "auto"):
        with pytest.raises(UsageError, match=rf"^engine\.device = '{name}': not with engine\.name = 'ray'"):
            fedcohort.run(small(engine={"device": name, "name": "ray"}), runs=tmp_path)


def test_runs_of_several_jobs_take_turns_among_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 3)
    assert [device.of_process("cuda", n) for n in range(5)] == ["cuda:0", "cuda:1", "cuda:2", "cuda:0", "cuda:1"]
    assert {device.of_process(name, 1) for name in ("cpu", "cuda:2", "mps")} == {"cpu", "cuda:2", "mps"}
    gpus(monkeypatch, 1)
    assert {device.of_process("cuda", n) for n in range(3)} == {"cuda"}


def test_the_processes_of_jobs_play_on_their_own_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process of the pool has a number, which is that of its GPU."""
    gpus(monkeypatch, 2)
    played = []
    monkeypatch.setattr(parallel_runs, "run_cell", lambda cell, *_, **__: played.append(cell.experiment.engine.device))
    threads = torch.get_num_threads()
    process = parallel_runs._Process(packed([Given()], [], 3), multiprocessing.get_context("spawn"), quiet=False)
    for name in ("cuda", "cuda", "auto", "cuda:0", "cpu"):
        parallel_runs._receive(process)
        parallel_runs._play(cell(small(engine={"device": name})), 0, tmp_path, 1, False)
    torch.set_num_threads(threads)
    assert played == ["cuda:0", "cuda:1", "cuda:0", "cuda:0", "cpu"]


def test_runs_on_any_gpu_are_the_same_run() -> None:
    keys = [small(engine={"device": name}).key() for name in ("cuda", "cuda:0", "cuda:1", "mps", "cpu")]
    assert keys[0] == keys[1] == keys[2]
    assert len(set(keys)) == 3
    assert keys[4] == small().key()


def test_auto_is_the_device_that_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run keeps which; it is the same run as one that names it."""
    see(monkeypatch, False)
    run = fedcohort.run(small(rounds=2, engine={"device": "auto"}), runs=tmp_path)
    assert run.experiment.engine.device == "cpu"
    assert fedcohort.run(small(rounds=2), runs=tmp_path).path == run.path


def test_the_hash_knows_device_and_arithmetic() -> None:
    settings: list[dict[str, Any]] = [{}, {"device": "cuda"}, {"arithmetic": "tf32"}, {"arithmetic": "bf16"}]
    assert len({small(engine=values).key() for values in settings}) == 4


def test_switches_are_put_back() -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn

    def now() -> tuple[bool, bool, bool]:
        return matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic

    before = now()
    for kind, wanted in (
        ("exact", (False, False, True)),
        ("tf32", (True, True, False)),
        ("bf16", (False, False, False)),
    ):
        restore = device.arithmetic(kind)  # type: ignore[arg-type]
        assert now() == wanted
        restore()
        assert now() == before


@pytest.mark.parametrize("plan", ["loop", "stacked"])
def test_bfloat16_rounds_networks_and_keeps_parameters(plan: Any) -> None:
    """Near the exact result, not equal to it; chains of linear layers in stacks stay exact."""
    federation, training = small_federation(trouble=False), Training(batch_size=4, momentum=0.0, lr=0.05)
    states = {}
    for kind in ("exact", "bf16"):
        engine = LocalEngine(federation, Mlp(hidden=8), training, FedAvg(), 3, 1, plan=plan, arithmetic=kind)
        model = engine.initial_model()
        (update,) = engine.train(model, 1, Cohort(np.array(HEALTHY[:1])), FedAvg())
        states[kind] = update.state
        engine.close()
    for name, value in states["exact"].items():
        rounded = states["bf16"][name]
        assert rounded.dtype == torch.float32
        torch.testing.assert_close(rounded, value, rtol=0.1, atol=0.02)
        assert torch.equal(rounded, value) == (plan == "stacked")


@pytest.mark.parametrize("norm", [nn.GroupNorm(4, 8), nn.BatchNorm2d(8)])
def test_bfloat16_by_threads_has_the_bits_of_the_loop(norm: nn.Module) -> None:
    from tests.training.test_stacked import images

    network = nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))
    network(torch.ones(2, 3, *images().sample_shape[1:]))
    clients, model, training = images(), as_model(network), Training(batch_size=4)
    found, plans = [], list[tuple[Any, int]]([("loop", 1), ("threads", 2), ("threads", 2)])
    for plan, workers in plans:
        engine = LocalEngine(clients, model, training, FedAvg(), 3, workers, plan=plan, arithmetic="bf16")
        updates = engine.train(engine.initial_model(), 1, Cohort(np.array(HEALTHY)), FedAvg())
        found.append([bits(update.state) for update in updates])
        engine.close()
    assert found[0] == found[1] == found[2]


def test_a_copy_of_a_module_in_bfloat16_is_a_module_of_its_own() -> None:
    """Its mode and its weights are those of the copy: whether a model draws random numbers is tried on one."""
    module = device.in_bfloat16(nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5)))
    assert draws_at_random(module, torch.ones(3, 6))
    twin = copy.deepcopy(module).eval()
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
    assert not twin(torch.ones(3, 6)).any()


def test_an_lstm_that_a_processor_cannot_compute_in_bfloat16_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the error that PyTorch raises on such a processor; on others, there is none."""

    def refuse(*_: object) -> None:
        raise RuntimeError("could not create a primitive descriptor for the LSTM forward propagation primitive")

    state = torch.get_rng_state()
    monkeypatch.setattr(nn.LSTM, "forward", refuse)
    experiment = small(
        rounds=1,
        engine={"arithmetic": "bf16"},
        data={"name": "dialogue"},
        federation={"partition": "iid"},
        model="lstm",
    )
    message = r"^engine\.arithmetic = 'bf16': PyTorch has no LSTM in bfloat16 for this processor; use 'exact', or a GRU"
    with pytest.raises(UsageError, match=message):
        fedcohort.run(experiment, runs=tmp_path)
    for other in (nn.GRU(3, 4), nn.LSTM(3, 4, proj_size=2), nn.LSTM(3, 4, device="meta")):
        device.in_bfloat16(nn.Sequential(other))
    monkeypatch.setattr(nn.LSTM, "forward", lambda _, inputs: inputs)
    torch.set_rng_state(state)
    lstm = nn.LSTM(3, 4)
    after = torch.get_rng_state()
    device.in_bfloat16(nn.Sequential(lstm))
    assert torch.equal(torch.get_rng_state(), after)


def test_group_norm_between_convolutions_is_computed_in_bfloat16() -> None:
    torch.manual_seed(0)
    exact = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.ReLU(), nn.Conv2d(8, 2, 3))
    rounded, images, seen = copy.deepcopy(exact), torch.randn(5, 3, 8, 8), []
    device.in_bfloat16(rounded)
    rounded[1].register_forward_hook(lambda _, inputs, output: seen.append((inputs[0].dtype, output.dtype)))
    outputs = rounded(images)
    outputs.sum().backward()
    assert seen == [(torch.bfloat16, torch.bfloat16)]
    assert outputs.dtype == rounded[1].weight.dtype == torch.float32
    torch.testing.assert_close(outputs, exact(images), rtol=0.05, atol=0.02)
    alone = device.in_bfloat16(nn.Sequential(nn.GroupNorm(4, 8)))
    assert torch.equal(alone(torch.ones(1, 8)), nn.GroupNorm(4, 8)(torch.ones(1, 8)))


@pytest.mark.parametrize(("kind", "wanted"), [("exact", False), ("tf32", True), ("bf16", True)])
def test_networks_with_group_norm_get_channels_first_on_a_gpu(kind: Any, wanted: bool) -> None:
    restore = device.arithmetic(kind)
    try:
        assert faster_with_channels_first(nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8))) is wanted
        assert not faster_with_channels_first(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
    finally:
        restore()


def test_convolutions_by_vmap_run_in_bfloat16() -> None:
    from tests.training.test_stacked import images

    engine = LocalEngine(images(), CnnA(), Training(batch_size=4), FedAvg(), 3, 1, plan="stacked", arithmetic="bf16")
    assert engine.plan == "stacked"
    for update in engine.train(engine.initial_model(), 1, Cohort(np.array(HEALTHY[:2])), FedAvg()):
        assert all(value.dtype == torch.float32 for value in update.state.values())
    engine.close()


def test_state_moves_as_a_whole() -> None:
    state = {"model": {"w": torch.ones(2)}, "list": [torch.zeros(1), 3, "x", None], "n": 1.5}
    there = device.moved(state, torch.device("meta"))
    assert there["model"]["w"].device.type == there["list"][0].device.type == "meta"
    assert (there["list"][1:], there["n"]) == ([3, "x", None], 1.5)
    here = device.moved(state, torch.device("cpu"))
    assert here["model"]["w"] is state["model"]["w"]  # type: ignore[index]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("plan", ["loop", "threads", "stacked"])
def test_a_gpu_agrees_with_the_cpu(plan: Any) -> None:
    """Every plan, with client memory, answers and evaluation: to rounding, and twice to the bit."""
    found = []
    for where in ("cpu", "cuda", "cuda"):
        federation = small_federation(trouble=False).to(where)
        algorithm = Scaffold()
        engine = LocalEngine(
            federation, Mlp(hidden=8), Training(batch_size=4, momentum=0.0), algorithm, 3, 2, plan=plan
        )
        model = engine.initial_model()
        for t in (1, 2):
            updates = list(engine.train(model, t, Cohort(np.array(HEALTHY)), algorithm))
            from fedcohort.testing.base import members_of

            model = algorithm.aggregate(model, iter(updates), members_of(HEALTHY))
            engine.commit(HEALTHY)
        found.append(({name: value.cpu() for name, value in model.items()}, engine.evaluate(model, "test").loss))
        engine.close()
    (cpu, loss), (one, other_loss), (two, _) = found
    assert loss == pytest.approx(other_loss, rel=1e-4)
    for name, value in cpu.items():
        torch.testing.assert_close(one[name], value, rtol=1e-4, atol=1e-5)
        assert torch.equal(one[name], two[name])
