"""Check that a strategy, algorithm, partition, model or engine keeps its contract.

Call these checks from the tests of your plug-in. They need no test framework, and raise an ``AssertionError`` that says what is wrong.

>>> from fedcohort.selection.strategies.uniform import Uniform
>>> check_selector(Uniform)

``make`` is called several times without arguments, and must return a new object each time: a class whose parameters have defaults, or
``lambda: MyStrategy(width=3)``. Every check is deterministic and takes about a second.

:class:`LoopGrid` runs a Flower app in this process, for tests of apps; it needs Flower.
"""

from typing import TYPE_CHECKING

from fedcohort.core.lazy import lazy_names
from fedcohort.testing.algorithms import check_algorithm
from fedcohort.testing.data import check_model, check_partition
from fedcohort.testing.engines import MakeEngine, check_engine
from fedcohort.testing.selection import check_selector

if TYPE_CHECKING:
    from fedcohort.testing.flower_grid import LoopGrid

__all__ = [
    "LoopGrid",
    "MakeEngine",
    "check_algorithm",
    "check_engine",
    "check_model",
    "check_partition",
    "check_selector",
]

__getattr__, __dir__ = lazy_names(__name__, {"LoopGrid": "flower_grid:LoopGrid"})  # imports Flower only if it is used
