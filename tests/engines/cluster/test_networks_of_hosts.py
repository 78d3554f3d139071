"""The network that a host builds has the weights and the arithmetic of the driver's, also if Python orders its layers differently."""

import importlib
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.engines.base import ClientError
from fedcohort.engines.cluster.flat_arrays import ModelLayout
from fedcohort.engines.cluster.host_pool import HostPool
from fedcohort.engines.cluster.own_modules import load_modules, own_modules
from fedcohort.engines.cluster.ray_engine import RayEngine
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import Mlp, Model, as_model
from fedcohort.selection import Cohort
from fedcohort.testing.base import HEALTHY, bits, small_federation

pytestmark = pytest.mark.timeout(240)

TRAINING, CLIENTS = Training(batch_size=4, epochs=2), np.array(HEALTHY)


class Branches(nn.Module):
    """Two layers of the same shape, in the order of ``names``."""

    def __init__(self, names: list[str], width: int) -> None:
        super().__init__()
        self.branches = nn.ModuleDict({name: nn.Linear(6, width) for name in names})
        self.norm, self.head = nn.BatchNorm1d(width), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.branches["open"](x)) - torch.sigmoid(self.branches["closed"](x))
        return self.head(self.norm(hidden))


@parameters
class OtherThere(Model):
    """A network that differs in other processes."""

    driver: int = 0
    """Number of the process in which it has the usual order and width."""
    width: int = 5
    """Its width elsewhere."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> nn.Module:
        here = os.getpid() == self.driver
        return Branches(["open", "closed"] if here else ["closed", "open"], 5 if here else self.width)


@pytest.mark.parametrize("plan", ["threads", "means"])
def test_layers_may_be_in_another_order_on_hosts(plan: Any, hosts: HostPool) -> None:
    """As those of a network that is built from a set of names."""
    settings = small_federation(), OtherThere(driver=os.getpid()), TRAINING, FedAvg(), 3
    with closing(LocalEngine(*settings, 2)) as local, closing(RayEngine(*settings, pool=hosts, plan=plan)) as remote:
        model = local.initial_model()
        expected, found = (
            [bits(update.state) for update in engine.train(model, 1, Cohort(CLIENTS), FedAvg())]
            for engine in (local, remote)
        )
    assert found == expected


def test_a_network_with_other_shapes_on_a_host_is_refused(hosts: HostPool) -> None:
    settings = small_federation(), OtherThere(driver=os.getpid(), width=4), TRAINING, FedAvg(), 3
    with closing(RayEngine(*settings, pool=hosts)) as remote:
        wanted = (
            r"model: the entry 'branches.closed.bias' of the network is float32 \[4\] on \S+, and float32 \[5\] on the machine of "
            "the run; install the same versions of all packages on both"
        )
        with pytest.raises(ClientError, match=wanted):
            list(remote.train(remote.initial_model(), 1, Cohort(CLIENTS), FedAvg()))


def test_a_layout_tells_what_a_network_lacks() -> None:
    layout = ModelLayout({"weight": torch.zeros(2), "bias": torch.zeros(1)})
    layout.check({"bias": torch.ones(1), "weight": torch.ones(2)})
    with pytest.raises(UsageError, match="entry 'bias' of the network is missing on"):
        layout.check({"weight": torch.zeros(2)})


def network(factor: float) -> str:
    """The text of a module with a network."""
    return f"""
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, num_classes):
        super().__init__()
        self.layer = nn.Linear(shape[0], num_classes)

    def forward(self, x):
        return self.layer(x) * {factor}
"""


def test_hosts_import_a_module_again_that_was_imported_again(
    hosts: HostPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook: hosts stay for the next run, and would go on with the old text."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "own_network_of_a_notebook.py"
    file.write_text(network(1.0))
    module = importlib.import_module(file.stem)

    def trained(text: str, *, again: bool = True) -> list[Any]:
        file.write_text(text)
        if again:
            importlib.invalidate_caches()
            importlib.reload(module)
        settings = small_federation(), as_model(module.Net), TRAINING, FedAvg(), 3
        with closing(LocalEngine(*settings, 2)) as local, closing(RayEngine(*settings, pool=hosts)) as remote:
            model = local.initial_model()
            here, there = (
                [bits(update.state) for update in engine.train(model, 1, Cohort(CLIENTS), FedAvg())]
                for engine in (local, remote)
            )
        assert there == here
        return here

    assert trained(network(1.0)) != trained(network(32.5))
    with pytest.raises(
        UsageError, match=r"own_network_of_a_notebook\.py: has changed since it was imported; use importlib\.reload"
    ):
        trained(network(2.0), again=False)


def test_another_file_of_a_module_on_a_host_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "own_network_of_two_machines.py"
    file.write_text(network(1.0))
    modules = own_modules([importlib.import_module(file.stem)], {})
    load_modules(modules)
    older = modules._replace(sources={file.stem: b"# another text"})
    with pytest.raises(
        UsageError, match=r"own_network_of_two_machines\.py on \S+ differs from .* on the machine of the run; copy"
    ):
        load_modules(older)


def test_an_installed_package_with_the_name_of_an_own_module_is_no_other_file_of_it() -> None:
    """A pickled object contains names of methods, such as 'build', that are names of packages, too."""
    modules = own_modules([], {})._replace(sources={"click": b"# a file of the user"}, files={"click": "click.py"})
    importlib.import_module("click")
    load_modules(modules)


def test_the_driver_evaluates_in_the_arithmetic_of_the_run(hosts: HostPool) -> None:
    settings = small_federation(), Mlp(hidden=64), TRAINING, FedAvg(), 3
    losses = []
    for arithmetic in ("exact", "bf16"):
        local: Any = LocalEngine(*settings, 2, arithmetic=arithmetic)
        remote: Any = RayEngine(*settings, pool=hosts, arithmetic=arithmetic)
        with closing(local), closing(remote):
            model = local.initial_model()
            here, there = (engine.evaluate(model, "test").loss for engine in (local, remote))
        assert there == here
        losses.append(here)
    assert len(set(losses)) == 2
