"""The accuracy of personal models in the record of a run; see ``measures.personal_epochs``."""

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedcohort.record.run import Run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["personal_accuracy", "personal_data"]


def personal_data(runs: Iterable[Run]) -> str:
    """What personal models were measured on in runs that measured them: ``test samples``, ``held-out samples`` or ``left-out training
    samples`` of each client."""
    found = {run.meta.get("personal data", "held-out samples") for run in runs}
    return " or ".join(sorted(found, reverse=True)) or "held-out samples"


def personal_accuracy(run: Run) -> "pd.DataFrame":
    """Accuracy on each client's test or held-out samples, before and after local epochs: one row per measured round.

    The columns have two levels: ``before`` (the global model) or ``after`` (the client's personal model), and the client. Empty if
    nothing was measured; NaN for clients without such samples.
    """
    import pandas as pd

    # databases of earlier versions have no such table
    known = run.query("SELECT 1 FROM sqlite_master WHERE name = 'personal_accuracy'")
    rows = run.query("SELECT round, accuracies FROM personal_accuracy ORDER BY round") if known else []
    values = [np.frombuffer(blob, dtype="<f8") for _, blob in rows]
    m = len(values[0]) // 2 if values else 0
    index = pd.Index([t for t, _ in rows], name="round", dtype="int64")
    return pd.DataFrame(np.array(values).reshape(len(rows), 2 * m), index=index, columns=_columns(m))


@lru_cache(maxsize=16)  # making them takes most of the time of reading a run without personal models
def _columns(m: int) -> "pd.MultiIndex":
    import pandas as pd

    return pd.MultiIndex.from_product([["before", "after"], range(m)], names=["when", "client"])
