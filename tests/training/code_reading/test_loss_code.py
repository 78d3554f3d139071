"""Own losses that only compute have scripts with the bits of autograd; those whose code does more go on running."""

from typing import Any

import numpy as np
import pytest
import torch

from fedcohort.algorithms.losses import Loss
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.user_code.own_code import last_own_file
from fedcohort.engines import work_splitting
from fedcohort.engines.base import ClientError
from fedcohort.training.client_series import ClientSeries
from fedcohort.training.code_reading.loss_code import loss_only_computes
from fedcohort.training.scripts import network_scripts
from fedcohort.training.scripts.network_scripts import Scripts
from fedcohort.training.scripts.scripted_passes import ScriptedPass
from fedcohort.training.scripts.scripted_series import ScriptedSeries
from tests.training import own_losses
from tests.training.own_losses import (
    ByModule,
    Called,
    Counting,
    Distilled,
    Fading,
    Focal,
    Noting,
    Printing,
    Scaled,
    Smoothed,
    WeighedClasses,
)
from tests.training.programs.test_plain_network import network
from tests.training.scripted_networks import Normed
from tests.training.scripts.test_scripted_passes import batch, built, counted, learned
from tests.training.test_client_series import OWN
from tests.training.test_client_series import learned as series_learned


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_scripts, "USES", 1)
    monkeypatch.setattr(network_scripts, "LONGEST", 60.0)


@pytest.mark.parametrize("kind", [Focal, WeighedClasses, ByModule, Smoothed, Distilled])
@pytest.mark.parametrize("network", ["residual", "vectors"])
def test_own_losses_learn_the_bits_of_autograd(kind: type[Loss], network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a single client at a time, and of several in one call."""
    torch.manual_seed(0)
    module = built("residual") if network == "residual" else Normed(0.0)
    training = Training(batch_size=4, lr=0.05, loss={"name": f"{own_losses.__file__}:{kind.__name__}"})
    calls = counted(monkeypatch)
    by_scripts = learned(module, FedAvg(), training)
    assert "descend" in calls
    monkeypatch.setattr(Scripts, "known", lambda *_: None)
    assert by_scripts == learned(module, FedAvg(), training, workers=1)


@pytest.mark.parametrize("kind", [Noting, Counting, Fading, Printing, Called])
def test_losses_whose_code_does_more_go_on_running(kind: type[Loss]) -> None:
    assert not loss_only_computes(kind())
    assert script_for(kind()) is None


def script_for(loss: Loss) -> ScriptedPass | None:
    torch.manual_seed(0)
    module = built("residual").train()
    scripts = Scripts(module, dict(module.named_parameters()), loss, draws=False)
    for _ in range(network_scripts.USES):
        assert scripts.of(*batch()) is None
    return scripts.of(*batch())


def test_a_script_ends_when_what_the_loss_reads_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    smoothed = script_for(Smoothed())
    assert smoothed is not None
    assert smoothed.holds()
    monkeypatch.setattr(own_losses, "SMOOTHING", 0.3)
    assert not smoothed.holds()

    weighed = WeighedClasses()
    script = script_for(weighed)
    assert script is not None
    before = script.play(*batch())
    weighed.weights.mul_(2)  # read anew in every batch
    after = script.play(*batch())
    assert script.holds()
    assert before is not None
    assert after is not None
    assert torch.equal(before[0], after[0]), "clients report the plain cross-entropy"
    weighed.weights = torch.ones(4)
    assert not script.holds()

    scaled = Scaled()
    script = script_for(scaled)
    assert script is not None
    assert script.holds()
    vars(scaled)["factor"] = 0.5  # hides that of the class
    assert not script.holds()


def test_late_errors_name_the_line_of_the_loss() -> None:
    training = Training(batch_size=4, lr=0.05, loss={"name": f"{own_losses.__file__}:Limited"})
    with pytest.raises(ClientError, match="client 3: IndexError: ") as caught:
        learned(Normed(0.0), FedAvg(), training, workers=1)
    assert caught.value.__cause__ is not None
    assert last_own_file(caught.value.__cause__).endswith("own_losses.py")


def test_labels_that_are_no_classes_are_refused_by_one_hot() -> None:
    script = script_for(Smoothed())
    assert script is not None
    images, labels = batch()
    assert script.play(images, labels + 4) is None, "autograd explains the error"


@pytest.mark.parametrize("epochs", [None, np.array([1, 2, 1, 3, 1, 1, 2])], ids=["one epoch", "different epochs"])
@pytest.mark.parametrize("name", ["wide", "perceptron", "chance"])
def test_outputs_of_several_clients_have_the_bits_of_single_clients(
    name: str, epochs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one pass if samples are aligned; those of `wide` are."""
    module, shape = OWN[name] if name in OWN else network(name)
    training = Training(batch_size=16, epochs=1, loss={"name": "robust"})
    together, whole = list[int](), ScriptedSeries.descend_series

    def noted(self: ScriptedSeries, series: Any, *given: Any) -> Any:
        together.append(len(series.edges))
        assert len(series.outputs) == len(series.features)
        return whole(self, series, *given)

    monkeypatch.setattr(work_splitting, "SERIES_PER_THREAD", 1)
    monkeypatch.setattr(work_splitting, "SERIES_WORK", 2**40)
    monkeypatch.setattr(ScriptedSeries, "descend_series", noted)
    found = series_learned(module, shape, FedAvg(), training, epochs, workers=1)
    assert max(together) > 1
    monkeypatch.setattr(ClientSeries, "possible", lambda *_: False)
    assert found == series_learned(module, shape, FedAvg(), training, epochs, workers=1)
