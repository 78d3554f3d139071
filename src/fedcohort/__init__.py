"""FedCohort: which clients should take part in the next federated round, and what did that choice cost and buy?

Names are imported when they are used, so that ``import fedcohort`` stays light.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcohort.core.errors import UsageError
    from fedcohort.experiment import Experiment
    from fedcohort.experiment import load as load_experiment
    from fedcohort.federation.datasets import Dataset, from_arrays
    from fedcohort.federation.datasets import load as load_dataset
    from fedcohort.record import Run, open_run
    from fedcohort.runs.play import run
    from fedcohort.study.comparison import Comparison, compare

__all__ = [
    "Comparison", "Dataset", "Experiment", "Run", "UsageError", "compare", "from_arrays", "load_dataset", "load_experiment",
    "open_run", "run",
]  # fmt: skip

_HOMES = {
    "Comparison": "study.comparison:Comparison",
    "Dataset": "federation.datasets:Dataset",
    "Experiment": "experiment:Experiment",
    "Run": "record:Run",
    "UsageError": "core.errors:UsageError",
    "compare": "study.comparison:compare",
    "from_arrays": "federation.datasets:from_arrays",
    "load_dataset": "federation.datasets:load",
    "load_experiment": "experiment:load",
    "open_run": "record:open_run",
    "run": "runs.play:run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedcohort' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(f"fedcohort.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
