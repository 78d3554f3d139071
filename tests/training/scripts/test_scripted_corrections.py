"""Own corrections that only compute are scripts with their bits; all others go on running."""

from typing import Any

import pytest
import torch
from torch import nn

from fedcohort.algorithms import Algorithm
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.user_code.own_code import last_own_file
from fedcohort.engines.base import ClientError
from fedcohort.training.scripts import network_scripts
from fedcohort.training.scripts.network_scripts import Scripts
from fedcohort.training.scripts.scripted_corrections import OwnCorrections
from fedcohort.training.scripts.scripted_series import ScriptedSeries
from tests.training import own_corrections
from tests.training.example_networks import SHAPE
from tests.training.own_corrections import (
    Beyond,
    Branching,
    ByRound,
    ByStep,
    Called,
    Checked,
    Cleared,
    Computed,
    Counting,
    Doubled,
    Empty,
    Fading,
    InGrad,
    LimitingSome,
    Noisy,
    Noting,
    Overwriting,
    Proximal,
    Random,
    Relaid,
    Relaying,
    Remembering,
    Replaced,
    Replacing,
    Scaling,
    Turned,
    Variates,
)
from tests.training.scripted_networks import Normed
from tests.training.scripts.test_scripted_passes import built, counted, learned

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"momentum": 0.0},
    "momentum": {"momentum": 0.9, "weight_decay": 0.01, "epochs": 2},
    "Adam": {"optimizer": "adam", "lr": 0.01, "clip_norm": 0.5},
    "robust": {"loss": {"name": "robust"}, "precision": "float64"},
}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_scripts, "USES", 1)
    monkeypatch.setattr(network_scripts, "LONGEST", 60.0)


def network(name: str) -> nn.Module:
    """A network with scripts, one that draws random numbers, or one that has a program with other algorithms."""
    torch.manual_seed(0)
    if name == "perceptron":
        return nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(SHAPE).numel(), 8), nn.ReLU(), nn.Linear(8, 4))
    return Normed(0.3) if name == "Dropout" else built("residual")


def ways(
    algorithm: type[Algorithm], module: nn.Module, training: Training, monkeypatch: pytest.MonkeyPatch
) -> set[str]:
    """The calls of scripts, after a comparison with autograd and the algorithm's own code."""
    calls = counted(monkeypatch)
    by_scripts = learned(module, algorithm(), training)
    with monkeypatch.context() as patch:
        patch.setattr(Scripts, "known", lambda *_: None)
        assert by_scripts == learned(module, algorithm(), training, workers=1)
    return set(calls)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("algorithm", [Proximal, Replacing, Scaling, Variates, Doubled, InGrad])
@pytest.mark.parametrize("name", ["perceptron", "Dropout", "residual"])
def test_corrections_that_only_compute_have_their_own_bits(
    name: str, algorithm: type[Algorithm], settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(**{"batch_size": 4, "lr": 0.05, **SETTINGS[settings]})
    assert "descend" in ways(algorithm, network(name), training, monkeypatch)


@pytest.mark.parametrize("algorithm", [ByStep, ByRound, Noisy, Branching, Counting, Noting, Remembering, Overwriting])
def test_other_corrections_run_in_every_step(algorithm: type[Algorithm], monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(batch_size=4, lr=0.05)
    assert ways(algorithm, network("perceptron"), training, monkeypatch) <= {"play"}


def test_a_number_that_changes_ends_the_use_of_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two rounds, as an algorithm can do on the server."""

    class Halved(Proximal):
        def begin(self, *given: object) -> object:
            self.mu /= 2
            return super().begin(*given)  # type: ignore[arg-type]

    training = Training(batch_size=4, lr=0.05)
    ways(Halved, network("perceptron"), training, monkeypatch)
    assert OwnCorrections(Proximal(), scripts=True).possible
    assert not OwnCorrections(Proximal(), scripts=False).possible


@pytest.mark.parametrize("algorithm", [Fading, Cleared, Computed, Replaced, Empty, Relaying])
def test_what_changes_between_rounds_counts_in_the_next_step(
    algorithm: type[Algorithm], monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(batch_size=4, lr=0.05, **SETTINGS["momentum"])
    ways(algorithm, network("perceptron"), training, monkeypatch)


@pytest.mark.parametrize("algorithm", [LimitingSome, Turned, Called, Random])
def test_corrections_without_scripts_have_the_bits_of_one_thread(
    algorithm: type[Algorithm], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because TorchScript would leave out a call, or because they change something else; attempts do not."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(SHAPE).numel(), 8), nn.ReLU(), nn.Linear(8, 8))
    training = Training(batch_size=4, lr=0.05, **SETTINGS["momentum"])
    calls = counted(monkeypatch)
    found = []
    for known in (Scripts.known, lambda *_: None):
        torch.manual_seed(0)
        monkeypatch.setattr(Scripts, "known", known)
        found.append(learned(module, algorithm(), training, workers=1))
    assert found[0] == found[1]
    assert "descend" not in calls


@pytest.mark.parametrize("algorithm", [Checked, Beyond])
def test_late_errors_name_the_line_of_the_algorithm(algorithm: type[Algorithm]) -> None:
    with pytest.raises(ClientError, match=r"client 3: (_LinAlgError|IndexError): ") as caught:
        learned(network("perceptron"), algorithm(), Training(batch_size=4, lr=0.05), workers=1)
    assert caught.value.__cause__ is not None
    assert last_own_file(caught.value.__cause__) == own_corrections.__file__


@pytest.mark.parametrize("settings", ["momentum", "Adam"])
def test_gradients_may_have_another_memory_layout(settings: str) -> None:
    """Optimizers go through gradients and parameters in memory order."""
    training = Training(**{"batch_size": 4, "lr": 0.05, **SETTINGS[settings]})
    assert learned(network("residual"), Relaid(), training) == learned(network("residual"), FedAvg(), training)


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("algorithm", [Proximal, Replacing, Scaling, Doubled])
@pytest.mark.parametrize("name", ["perceptron", "Dropout"])
def test_several_clients_in_one_call_have_the_bits_of_single_clients(
    name: str, algorithm: type[Algorithm], epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(batch_size=4, lr=0.05, epochs=epochs)
    whole, trained = ScriptedSeries.descend_series, list[int]()

    def noted(self: ScriptedSeries, series: Any, *given: Any) -> Any:
        trained.append(len(series.edges))
        return whole(self, series, *given)

    monkeypatch.setattr(ScriptedSeries, "descend_series", noted)
    together = learned(network(name), algorithm(), training, workers=1)
    assert trained
    assert max(trained) > 1
    monkeypatch.setattr(Scripts, "known", lambda *_: None)
    assert together == learned(network(name), algorithm(), training, workers=1)
