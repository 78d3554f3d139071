"""Networks whose forward passes do more than compute, or compute with what may change, are trained by autograd."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedcohort.training.programs.plain_network import program_of
from fedcohort.training.scripts import network_scripts
from tests.training import hidden_code_networks
from tests.training.hidden_code_networks import HIDDEN, Scaled
from tests.training.scripts.test_scripted_passes import batch, script_of


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(network_scripts, "USES", 1)
    monkeypatch.setattr(network_scripts, "LONGEST", 60.0)
    monkeypatch.chdir(str(tmp_path))


@pytest.mark.parametrize("size", [4, 1])
@pytest.mark.parametrize("kind", HIDDEN.values(), ids=HIDDEN)
def test_hidden_code_goes_on_running(kind: type[nn.Module], size: int) -> None:
    torch.manual_seed(0)
    assert script_of(kind(), *batch(size)) is None


CHANGES: dict[str, Callable[[Scaled, pytest.MonkeyPatch], object]] = {
    "attribute": lambda module, _: setattr(module, "factor", 2.0),
    "attribute of the class": lambda _, patch: patch.setattr(Scaled, "scale", 2.0),
    "attribute before that of the class": lambda module, _: setattr(module, "scale", 2.0),
    "global name": lambda _, patch: patch.setattr(hidden_code_networks, "TEMPERATURE", 2.0),
    "attribute of a layer": lambda module, _: setattr(module.norm, "eps", 0.1),
    "layer": lambda module, _: setattr(module, "layer", nn.Linear(64, 4)),
    "parameter": lambda module, _: setattr(module.layer, "weight", nn.Parameter(torch.ones(4, 64))),
    "memory of a parameter": lambda module, _: setattr(module.layer.weight, "data", torch.ones(4, 64)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_script_ends_when_what_it_reads_changes(
    change: Callable[[Scaled, pytest.MonkeyPatch], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Scaled()
    script = script_of(module, *batch())
    assert script is not None
    assert script.holds()
    change(module, monkeypatch)
    assert not script.holds()


def test_equal_numbers_are_no_change() -> None:
    module = Scaled()
    script = script_of(module, *batch())
    assert script is not None
    module.factor = float("1.0")
    module.eval().train()
    assert script.holds()
    module.factor = 2.0
    assert not script.holds()
    module.factor = float("1.0")
    assert script.holds()


class Row(nn.Module):
    """A row of layers with a number that may change."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.approximate = nn.Linear(64, 8), nn.Linear(8, 4), "none"

    def forward(self, x: Tensor) -> Tensor:
        return self.second(nn.functional.gelu(self.first(x.flatten(1)), approximate=self.approximate))


def test_programs_end_as_well() -> None:
    module = Row()
    program = program_of(module, (1, 8, 8))
    assert program is not None
    assert program.holds()
    module.approximate = "tanh"
    assert not program.holds()
