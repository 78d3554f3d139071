"""Small experiments on real data that tests share."""

from typing import Any

from fedcohort.experiment import Cell, Experiment

UCB = {"name": "ucb", "initial_rounds": 2}


def small(**values: Any) -> Experiment:
    """An experiment on digits with 12 clients, six rounds and one seed; ``values`` override the defaults."""
    return Experiment(**{"name": "small", "rounds": 6, "seeds": 1, **values})


def cell(experiment: Experiment) -> Cell:
    """The experiment's first cell: its first row under its first seed."""
    return experiment.cells()[0]
