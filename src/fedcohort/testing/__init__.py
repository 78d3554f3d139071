"""Check that a strategy, algorithm, partition, model, engine or other plug-in keeps its contract.

Call these checks from the tests of your plug-in. They need no test framework, and raise an ``AssertionError`` that says what is wrong.

>>> from fedcohort.selection.strategies.uniform import Uniform
>>> check_selector(Uniform)

``make`` is called several times without arguments, and must return a new object each time: a class whose parameters have defaults, or
``lambda: MyStrategy(width=3)``. An own measure is given itself. Every check is deterministic and takes about a second.

:class:`LoopGrid` runs a Flower app in this process, for tests of apps; it needs Flower.
"""

from typing import TYPE_CHECKING

from fedcohort.core.lazy import lazy_names
from fedcohort.testing.algorithms import check_algorithm
from fedcohort.testing.client_data import check_feature_shift, check_label_noise
from fedcohort.testing.data import check_model, check_partition
from fedcohort.testing.engines import MakeEngine, check_engine
from fedcohort.testing.laws import check_availability, check_latency, check_network
from fedcohort.testing.losses import check_loss
from fedcohort.testing.own_measures import check_measure
from fedcohort.testing.selection import check_selector
from fedcohort.testing.stopping_rules import check_stopping_rule

if TYPE_CHECKING:
    from fedcohort.testing.flower_grid import LoopGrid

__all__ = [
    "LoopGrid",
    "MakeEngine",
    "check_algorithm",
    "check_availability",
    "check_engine",
    "check_feature_shift",
    "check_label_noise",
    "check_latency",
    "check_loss",
    "check_measure",
    "check_model",
    "check_network",
    "check_partition",
    "check_selector",
    "check_stopping_rule",
]

__getattr__, __dir__ = lazy_names(__name__, {"LoopGrid": "flower_grid:LoopGrid"})  # imports Flower only if it is used
