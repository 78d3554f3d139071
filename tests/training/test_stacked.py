"""The stacked plan: the loop's results to rounding, its picks, batches and steps exactly; the same bits with any number of threads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

import fedcohort
from fedcohort.errors import UsageError
from tests.experiments import UCB, small
from tests.golden.test_same_bits import record


def stacked(workers: int = 0, **values: Any) -> fedcohort.Experiment:
    return small(engine={"plan": "stacked", "workers": workers}, **values)


@pytest.mark.parametrize("model", ["mlp", "logistic"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("batch", [16, 7, 0])
def test_one_round_is_the_loops_to_rounding(model: str, momentum: float, batch: int, tmp_path: Path) -> None:
    """Uneven clients (7 to 300 samples), two epochs, all of them in one group and a rest."""
    training = {"momentum": momentum, "batch_size": batch, "epochs": 2, "precision": "float64"}
    values = {"rounds": 1, "model": model, "selection": "all", "training": training}
    loop = fedcohort.run(small(**values), runs=tmp_path)
    stack = fedcohort.run(stacked(**values), runs=tmp_path)
    assert loop.path != stack.path
    one, other = (load_file(run.path / "model.safetensors") for run in (loop, stack))
    for name, value in one.items():
        np.testing.assert_allclose(other[name].numpy(), value.numpy(), rtol=1e-9, atol=1e-11)
    for column in ("client", "status", "num_samples", "steps", "duration", "weight"):
        assert loop.clients[column].equals(stack.clients[column]), column
    np.testing.assert_allclose(stack.clients["loss"], loop.clients["loss"], rtol=1e-9)
    np.testing.assert_allclose(stack.clients["accuracy"], loop.clients["accuracy"], rtol=1e-12)


@pytest.mark.parametrize("selection", [UCB, "rpowd", "select_by_loss"], ids=str)
def test_a_run_makes_the_loops_picks(selection: Any, tmp_path: Path) -> None:
    values = {"selection": selection, "training": {"precision": "float64"}}
    loop, stack = fedcohort.run(small(**values), runs=tmp_path), fedcohort.run(stacked(**values), runs=tmp_path)
    assert stack.clients["client"].equals(loop.clients["client"])
    np.testing.assert_allclose(stack.rounds["test_loss"], loop.rounds["test_loss"], rtol=1e-7)


def test_the_number_of_threads_does_not_matter(tmp_path: Path) -> None:
    runs = [fedcohort.run(stacked(workers, selection="all"), runs=tmp_path / str(workers)) for workers in (1, 2, 3)]
    records = [record(run) for run in runs]
    assert records[0] == records[1] == records[2]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"model": "cnn_a"}, "the model is not a chain of linear layers and ReLU"),
        ({"training": {"optimizer": "adam", "lr": 0.01}}, "the optimiser is not SGD"),
        ({"training": {"loss": "sl"}}, "the loss is not the cross-entropy"),
    ],
)
def test_what_cannot_be_stacked_says_so(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"engine\.plan = 'stacked': {reason}.*use 'threads' or 'auto'"):
        fedcohort.run(stacked(**values), runs=tmp_path)
