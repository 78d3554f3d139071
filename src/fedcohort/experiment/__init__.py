"""The description of a run: its schema, its defaults, and the experiment file."""

from fedcohort.experiment.experiment import Cell, Experiment
from fedcohort.experiment.file import load
from fedcohort.experiment.sections import Algorithm, Choice, Partition, Selection, Systems, Variant
from fedcohort.experiment.values import parse_overrides

__all__ = [
    "Algorithm", "Cell", "Choice", "Experiment", "Partition", "Selection", "Systems", "Variant", "load", "parse_overrides",
]  # fmt: skip
