"""The contracts, as checks that anybody can run: what every strategy, algorithm, partition, model and engine must hold.

A plug-in author calls them from a test; they need no test framework and raise an ``AssertionError`` that says what went wrong.

>>> from fedcohort.selection.uniform import Uniform
>>> check_selector(Uniform)

``make`` is called without arguments, several times, and gives a new object each time: a class with defaults, or
``lambda: MyStrategy(width=3)``. Every check is deterministic and takes about a second.
"""

from fedcohort.testing.algorithms import check_algorithm
from fedcohort.testing.data import check_model, check_partition
from fedcohort.testing.engines import MakeEngine, check_engine
from fedcohort.testing.selection import check_selector

__all__ = ["MakeEngine", "check_algorithm", "check_engine", "check_model", "check_partition", "check_selector"]
