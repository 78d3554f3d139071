"""Devices and arithmetic, as far as a machine without a GPU can tell."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.algorithms.fedavg import FedAvg
from fedcohort.algorithms.scaffold import Scaffold
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.engines import device
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import CnnA, Mlp
from fedcohort.selection import Cohort
from fedcohort.testing.base import HEALTHY, small_federation
from fedcohort.training.random_layers import draws_at_random
from tests.experiments import small


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


def test_a_copy_of_a_module_in_bfloat16_is_a_module_of_its_own() -> None:
    """Its mode and its weights are those of the copy: whether a model draws random numbers is tried on one."""
    module = device.in_bfloat16(nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5)))
    assert draws_at_random(module, torch.ones(3, 6))
    twin = copy.deepcopy(module).eval()
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
    assert not twin(torch.ones(3, 6)).any()


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
