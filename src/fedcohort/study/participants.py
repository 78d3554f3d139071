"""Who took part: sizes, label mixtures and reports of clients whose updates entered the model, beside those that only trained."""

from typing import TYPE_CHECKING

import numpy as np

from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError
from fedcohort.record import Run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["label_entropy", "participants"]


def label_entropy(counts: Values) -> Values:
    """−Σ_c p_c ln p_c of each client's label mixture, in nats [m], from counts [m, K]; 0 for one class, NaN without samples."""
    x = np.asarray(counts, np.float64)
    total = x.sum(axis=1, keepdims=True)
    p = np.divide(x, total, out=np.full(x.shape, np.nan), where=total > 0)
    found: Values = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1) + 0.0  # + 0.0: no −0
    return found


def participants(run: Run) -> "pd.DataFrame":
    """Clients that trained, over all rounds: those that entered the model beside those that did not.

    Each pair of a client and a round in which it trained counts once. Rows: ``participants``, ``others``, and ``correlation``, the
    correlation of the number with having taken part (NaN where one of the two does not vary). Columns: ``client_rounds``,
    ``samples`` (mean N_i), ``label_entropy`` (nats), ``dominant_share`` (of the largest class), ``wrong_labels`` (a share), and the
    mean of every number that clients reported beside the usual ones, such as ``q_hat``, ``set_size`` and ``epochs``.

    Raises:
        UsageError: the run does not keep who its clients are.
    """
    import pandas as pd

    facts = run.portrait.facts
    if "counts" not in facts:
        raise UsageError(
            f"{run.path}: does not keep the classes of its clients: it is too large for that, or of an early version"
        )
    counts = np.asarray(facts["counts"], np.float64)
    clients = run.clients
    trained = clients[clients["status"].isin(("admitted", "declined"))]
    ids = trained["client"].to_numpy(np.int64)
    usual = {"round", "client", "status", "detail", "num_samples", "steps", "duration", "weight", "loss", "accuracy"}
    table = pd.DataFrame(
        {
            "samples": facts["samples"][ids].astype(np.float64),
            "label_entropy": label_entropy(counts)[ids],
            "dominant_share": (counts.max(axis=1) / np.maximum(counts.sum(axis=1), 1))[ids],
            "wrong_labels": facts["wrong_labels"][ids],
            **{str(name): trained[name].to_numpy(np.float64) for name in trained.columns if name not in usual},
        }
    )
    took_part = (trained["status"] == "admitted").to_numpy()
    groups = [table[took_part], table[~took_part]]
    rows = [{"client_rounds": float(len(group)), **group.mean().to_dict()} for group in groups]
    correlations = {
        name: _correlation(table[name].to_numpy(np.float64), took_part.astype(np.float64)) for name in table
    }
    return pd.DataFrame(
        [*rows, {"client_rounds": np.nan, **correlations}], index=["participants", "others", "correlation"]
    )


def _correlation(x: Values, y: Values) -> float:
    known = np.isfinite(x)
    x, y = x[known], y[known]
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])
