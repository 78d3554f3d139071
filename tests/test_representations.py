"""Runs, data sets, experiments and comparisons have a short representation of one line."""

from pathlib import Path

import numpy as np
import pytest

import fedcohort
from tests.experiments import UCB, small
from tests.records import played, written
from tests.resume.test_resume import stop_after


def test_an_experiment_shows_what_is_compared() -> None:
    experiment = small(
        rounds=4, seeds=2, variants=[{"label": "UCB", "selection": UCB}], sweep={"training.lr": [0.1, 0.2, 0.3]}
    )
    assert (
        repr(experiment)
        == str(experiment)
        == (
            f"<Experiment {experiment.name}: digits, 12 clients by {experiment.federation.partition.name}, 3 by uniform, fedavg, "
            "4 rounds, 6 rows, 2 seeds>"
        )
    )
    assert repr(small(rounds=1, seeds=1)).endswith("1 round, 1 row, 1 seed>")


def test_a_data_set_shows_its_size_instead_of_its_samples() -> None:
    images, labels = np.zeros((1200, 8, 6), np.uint8), np.arange(1200) % 3
    data = fedcohort.from_arrays((images, labels), (images[:50], labels[:50]), name="mine")
    assert repr(data) == "<Dataset mine: 1,200 training and 50 test samples of shape 1×8×6, 3 classes>"
    table = fedcohort.from_arrays((np.eye(4), [0, 1, 0, 1]), (np.eye(4), [0, 1, 0, 1]))
    assert repr(table) == "<Dataset arrays: 4 training and 4 test samples of shape 4, 2 classes>"


def test_a_run_shows_how_far_it_is(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(small(), seed=3, runs=tmp_path, progress=stop_after(2))
    (path,) = tmp_path.iterdir()
    run = fedcohort.open_run(path)
    accuracy = run.rounds["test_accuracy"].iloc[-1]
    assert repr(run) == f"<Run {path}: uniform, seed 3, 2 of 6 rounds, test accuracy {100 * accuracy:.1f}%>"


def test_the_last_known_accuracy_is_shown(tmp_path: Path) -> None:
    rows = [played(1, test_accuracy=0.25), played(2, test_accuracy=float("nan"))]
    assert repr(written(tmp_path / "a", rows)).endswith("2 of 2 rounds, test accuracy 25.0%>")
    assert repr(written(tmp_path / "b", rows[1:][:0], rounds=5)).endswith("uniform, seed 0, 0 of 5 rounds>")


def test_a_run_that_cannot_be_read_shows_its_directory(tmp_path: Path) -> None:
    run = written(tmp_path / "a", [played(1)])
    (run.path / "experiment.toml").unlink()
    assert repr(run) == f"<Run {run.path}>"


def test_a_comparison_shows_its_rows_and_prints_its_table(tmp_path: Path) -> None:
    experiment = small(rounds=1, seeds=2, variants=[{"label": "UCB", "selection": UCB}])
    compared = fedcohort.compare(experiment, runs=tmp_path)
    first, second = compared.table["accuracy"]
    assert (
        repr(compared)
        == f"<Comparison {experiment.name}, 2 seeds: uniform {100 * first:.1f}%, UCB {100 * second:.1f}%>"
    )
    assert "difference" in str(compared)
    assert "Runs: " in str(compared)
    many = fedcohort.compare(
        small(rounds=1, seeds=1, sweep={"training.lr": [0.01 * i for i in range(1, 8)]}), runs=tmp_path
    )
    assert repr(many).count("%") == 5
    assert repr(many).endswith(", 2 more>")
