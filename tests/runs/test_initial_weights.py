"""A network of the user that reads its weights from a file: runs of other weights are told apart."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.runs import initial_weights
from fedcohort.runs.prepare_run import federate
from fedcohort.runs.stop_after_round import Interrupted
from tests.experiments import IID, blobs, small

PRETRAINED = """
from pathlib import Path
from typing import Any

import torch
from torch import nn


def build(shape, num_classes):
    network = nn.Linear(shape[0], num_classes)
    network.load_state_dict(torch.load(Path(__file__).parent / "weights.pt"))
    return network
"""


@pytest.fixture
def experiment(tmp_path: Path) -> fedcohort.Experiment:
    """An experiment with a network that begins with the weights of a file."""
    (tmp_path / "nets.py").write_text(PRETRAINED)
    save(tmp_path, 1.0)
    return small(rounds=2, model=f"{tmp_path / 'nets.py'}:build", **IID)


def save(folder: Path, value: float) -> None:
    """Write weights that are all ``value``."""
    torch.save({"weight": torch.full((3, 4), value), "bias": torch.zeros(3)}, folder / "weights.pt")


def test_a_finished_run_is_not_opened_for_other_weights(experiment: fedcohort.Experiment, tmp_path: Path) -> None:
    first = fedcohort.run(experiment, data=blobs(), runs=tmp_path / "runs")
    assert fedcohort.run(experiment, data=blobs(), runs=tmp_path / "runs").path == first.path
    save(tmp_path, 2.0)
    with pytest.raises(UsageError, match=r"began with other weights than model = '.*nets.py:build' has now, .*--runs"):
        fedcohort.run(experiment, data=blobs(), runs=tmp_path / "runs")
    with pytest.raises(UsageError, match="began with other weights"):
        fedcohort.compare(experiment, data=blobs(), runs=tmp_path / "runs")
    save(tmp_path, 1.0)
    assert fedcohort.run(experiment, data=blobs(), runs=tmp_path / "runs").path == first.path


def test_a_copy_of_the_code_without_the_weights(experiment: fedcohort.Experiment, tmp_path: Path) -> None:
    """A finished run is opened; a new one is told what is missing."""
    first = fedcohort.run(experiment, data=blobs(), runs=tmp_path / "runs")
    copy = fedcohort.load_experiment(first.path / "experiment.toml", trust=True)
    assert fedcohort.run(copy, data=blobs(), runs=tmp_path / "runs").path == first.path
    with pytest.raises(
        UsageError, match=r"build raised FileNotFoundError: .* weights\.pt, and a run directory holds no files of data"
    ):
        fedcohort.run(copy, data=blobs(), runs=tmp_path / "others")


def test_a_run_is_not_resumed_with_other_weights(experiment: fedcohort.Experiment, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, Interrupted)):
        fedcohort.run(experiment, data=blobs(), runs=tmp_path / "runs", progress=stop)
    save(tmp_path, 2.0)
    with pytest.raises(UsageError, match="began with other weights"):
        fedcohort.run(experiment, data=blobs(), runs=tmp_path / "runs")
    save(tmp_path, 1.0)
    assert fedcohort.run(experiment, data=blobs(), runs=tmp_path / "runs").finished


def test_networks_that_never_begin_with_the_same_weights_are_opened_again(tmp_path: Path) -> None:
    """Such as one that draws by a generator of its own."""
    draws = torch.Generator()

    def build() -> nn.Module:
        network = nn.Linear(4, 3)
        with torch.no_grad():
            network.weight.normal_(generator=draws)
        return network

    paths = {fedcohort.run(small(rounds=1, **IID), data=blobs(), model=build, runs=tmp_path).path for _ in range(2)}
    assert len(paths) == 1


def test_the_data_are_divided_once_for_all_finished_runs(
    experiment: fedcohort.Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = experiment.model_copy(update={"seeds": 3})
    fedcohort.compare(several, data=blobs(), runs=tmp_path / "runs")
    divided, whole = list[int](), federate

    def noted(*given: Any) -> Any:
        divided.append(1)
        return whole(*given)

    monkeypatch.setattr(initial_weights, "federate", noted)
    monkeypatch.setattr(initial_weights, "_KINDS", {})
    fedcohort.compare(several, data=blobs(), runs=tmp_path / "runs")
    assert divided == [1]
