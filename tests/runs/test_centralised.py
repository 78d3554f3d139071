"""Centralised training: one client with everybody's data; and one client as a federation of its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedcohort
from fedcohort.algorithms.methods.centralised import Centralised
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.federation import Federation
from fedcohort.federation.pooled_federation import pooled
from tests.experiments import small
from tests.run_states import a_run_state

EVERYTHING: dict[str, Any] = {
    "partition": {"name": "dirichlet_class", "alpha": 0.3},
    "label_noise": {"name": "constant", "rate": 0.2},
    "holdout": 0.25,
}


def federations(**federation: Any) -> tuple[Federation, Federation]:
    """As the clients hold the data, and pooled."""
    found = []
    for algorithm in (None, Centralised()):
        with a_run_state(Given(algorithm=algorithm), federation=federation) as run_state:
            assert isinstance(run_state.engine, LocalEngine)
            found.append(run_state.engine.federation)
    return found[0], found[1]


def test_the_one_client_holds_what_the_clients_hold() -> None:
    apart, together = federations(**EVERYTHING)
    assert together.num_clients == 1
    assert together.num_samples.tolist() == [apart.num_samples.sum()]
    assert together.num_held_out.tolist() == [apart.num_held_out.sum()]
    for part in ("client", "held_out"):
        pieces = [getattr(apart, part)(client) for client in range(apart.num_clients)]
        whole = getattr(together, part)(0)
        assert torch.equal(whole.features, torch.cat([piece.features for piece in pieces]))
        assert torch.equal(whole.labels, torch.cat([piece.labels for piece in pieces]))
    assert together.noise is not None
    assert apart.noise is not None
    assert np.array_equal(together.noise.noisy, together.train.labels.numpy())
    assert together.noise.flipped.sum() == apart.noise.flipped.sum()
    assert together.noise.rates.tolist() == pytest.approx([0.2], abs=0.02)


def test_without_held_out_parts_nothing_is_copied() -> None:
    apart, _ = federations()
    assert pooled(apart).train.source.data_ptr() == apart.train.source.data_ptr()


@pytest.mark.parametrize("selection", ["all", {"name": "uniform", "k": 5}])
def test_selection_and_systems_have_no_say(selection: Any, tmp_path: Path) -> None:
    systems = {"dropout": 0.5, "availability": {"name": "bernoulli", "probability": 0.3}, "deadline": 400.0}
    values = {"rounds": 4, "federation": EVERYTHING, "algorithm": "centralised"}
    run = fedcohort.run(small(**values, selection=selection, systems=systems), runs=tmp_path)
    plain = fedcohort.run(small(**values), runs=tmp_path)
    assert run.rounds["test_accuracy"].tolist() == plain.rounds["test_accuracy"].tolist()
    assert run.rounds["selected"].tolist() == run.rounds["admitted"].tolist() == [1] * 4
    assert run.clients["client"].unique().tolist() == [0]


def test_it_learns_what_one_client_of_all_data_learns(tmp_path: Path) -> None:
    """Not to the bit: the order of samples differs."""
    values = {"rounds": 8, "training": {"lr": 0.02}}
    central = fedcohort.run(small(**values, algorithm="centralised"), runs=tmp_path)
    alone = fedcohort.run(
        small(**values, federation={"clients": 1, "partition": "iid"}, selection={"name": "uniform", "k": 1}), runs=tmp_path
    )  # fmt: skip
    for run in (central, alone):
        assert run.rounds["test_accuracy"].iloc[-1] > 0.93
    assert int(central.clients["num_samples"].iloc[0]) == int(alone.clients["num_samples"].iloc[0])


@pytest.mark.slow
@pytest.mark.timeout(1800)  # two epochs of 60,000 images take minutes on one core, and longer beside other tests
def test_cnn_b_learns_mnist(tmp_path: Path) -> None:
    """Two epochs are enough for 98 %; docs/results.md has what it ends with, on CIFAR-10, too."""
    import os

    if not os.environ.get("FEDCOHORT_DATA"):
        pytest.skip("FEDCOHORT_DATA is not set")
    experiment = small(
        rounds=2,
        data={"name": "mnist"},
        model="cnn_b",
        training={"optimizer": "adam", "lr": 1e-3, "batch_size": 128},
        algorithm="centralised",
    )
    run = fedcohort.run(experiment, runs=tmp_path)
    assert run.rounds["test_accuracy"].iloc[-1] > 0.98
