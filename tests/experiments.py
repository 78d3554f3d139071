"""Small experiments on real data that tests share."""

from typing import Any

import numpy as np

import fedcohort
from fedcohort.experiment import Cell, Experiment

IID = {"federation": {"clients": 4, "partition": "iid"}}
"""Four clients with the same class mixture."""

UCB = {"name": "ucb", "initial_rounds": 2}


def small(**values: Any) -> Experiment:
    """An experiment on digits with 12 clients, six rounds and one seed; ``values`` override the defaults.

    Every round has a checkpoint, so that a run that is stopped after any round resumes there.
    """
    measures = {"checkpoint_seconds": 0.0, **values.pop("measures", {})}
    return Experiment(**{"name": "small", "rounds": 6, "seeds": 1, "measures": measures, **values})


def cell(experiment: Experiment) -> Cell:
    """The experiment's first cell: its first row under its first seed."""
    return experiment.cells()[0]


def blobs(samples: int = 240, classes: int = 3) -> fedcohort.Dataset:
    """Three separable Gaussian blobs in four dimensions."""
    rng = np.random.default_rng(0)
    labels = np.arange(samples) % classes
    features = rng.normal(size=(samples, 4)).astype(np.float32) + 3 * np.eye(classes, 4, dtype=np.float32)[labels]
    return fedcohort.from_arrays((features[60:], labels[60:]), (features[:60], labels[:60]))
