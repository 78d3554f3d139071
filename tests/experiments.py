"""Small experiments on real data that tests share."""

from typing import Any

from fedcohort.experiment import Cell, Experiment

UCB = {"name": "ucb", "initial_rounds": 2}


def small(**values: Any) -> Experiment:
    """Digits, 12 clients, six rounds, one seed."""
    return Experiment(**{"name": "small", "rounds": 6, "seeds": 1, **values})


def cell(experiment: Experiment) -> Cell:
    """The base under its first seed."""
    return experiment.cells()[0]
