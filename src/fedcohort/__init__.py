"""FedCohort: compare client selection strategies for federated learning.

Names are imported at their first use, so that ``import fedcohort`` is fast.
"""

from typing import TYPE_CHECKING

from fedcohort.core.lazy import lazy_names
from fedcohort.core.version import __version__

if TYPE_CHECKING:
    from fedcohort.api import Advice, Comparison, Race, Run, advise, compare, open_run, race, run, run_seeds
    from fedcohort.chooser import Chooser, ClientResult, ServerRecord
    from fedcohort.core.errors import UsageError
    from fedcohort.experiment import Experiment
    from fedcohort.experiment import load as load_experiment
    from fedcohort.federation.data.datasets import Dataset, from_arrays
    from fedcohort.federation.data.load_dataset import load as load_dataset
    from fedcohort.federation.data.texts import from_text
    from fedcohort.federation.data.token_data import from_tokens
    from fedcohort.models.base import Model

__all__ = [
    "Advice", "Chooser", "ClientResult", "Comparison", "Dataset", "Experiment", "Model", "Race", "Run", "ServerRecord", "UsageError",
    "__version__", "advise", "compare", "from_arrays", "from_text", "from_tokens", "load_dataset", "load_experiment", "open_run",
    "race", "run", "run_seeds",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Advice": "api:Advice",
        "Chooser": "chooser:Chooser",
        "ClientResult": "chooser:ClientResult",
        "Comparison": "api:Comparison",
        "Dataset": "federation.data.datasets:Dataset",
        "Experiment": "experiment:Experiment",
        "Model": "models.base:Model",
        "Race": "api:Race",
        "Run": "api:Run",
        "ServerRecord": "chooser:ServerRecord",
        "UsageError": "core.errors:UsageError",
        "advise": "api:advise",
        "compare": "api:compare",
        "from_arrays": "federation.data.datasets:from_arrays",
        "from_text": "federation.data.texts:from_text",
        "from_tokens": "federation.data.token_data:from_tokens",
        "load_dataset": "federation.data.load_dataset:load",
        "load_experiment": "experiment:load",
        "open_run": "api:open_run",
        "race": "api:race",
        "run": "api:run",
        "run_seeds": "api:run_seeds",
    },
)
