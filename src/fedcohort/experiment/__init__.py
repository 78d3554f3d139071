"""The description of a run: its schema, its defaults, and the experiment file."""

from fedcohort.experiment.experiment import Cell, Experiment
from fedcohort.experiment.nested_values import parse_overrides
from fedcohort.experiment.quickstart import quickstart
from fedcohort.experiment.read_file import load
from fedcohort.experiment.sections import Algorithm, Choice, Partition, Selection, Systems, Variant

__all__ = [
    "Algorithm", "Cell", "Choice", "Experiment", "Partition", "Selection", "Systems", "Variant", "load", "parse_overrides",
    "quickstart",
]  # fmt: skip
