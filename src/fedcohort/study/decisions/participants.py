"""Compare the clients that entered the model with those that only trained: sizes, label mixtures and reports."""

from typing import TYPE_CHECKING

import numpy as np

from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError
from fedcohort.record import CLIENT_COLUMNS, Run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["label_entropy", "participants"]


def label_entropy(counts: Values) -> Values:
    """−Σ_c p_c ln p_c of each client's label mixture, in nats [m], from counts [m, K]; 0 for one class, NaN without samples."""
    x = np.asarray(counts, np.float64)
    total = x.sum(axis=1, keepdims=True)
    p = np.divide(x, total, out=np.full(x.shape, np.nan), where=total > 0)
    entropy: Values = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1) + 0.0  # + 0.0 avoids −0
    return entropy


def participants(run: Run) -> "pd.DataFrame":
    """Compare clients that trained and were admitted with clients that trained and were not, over all rounds.

    Each pair of a client and a round in which it trained counts once.

    Returns:
        A table of means. Rows: ``participants`` (admitted), ``others``, and ``correlation``, the correlation of the number with having
        been admitted (NaN if one of the two does not vary). Columns: ``client_rounds`` (number of pairs), ``samples`` (N_i),
        ``label_entropy`` (nats), ``dominant_share`` (share of the largest class), ``wrong_labels`` (a share), and every further number
        that clients reported, such as ``q_hat``, ``set_size`` and ``epochs``.

    Raises:
        UsageError: the record has no class counts of the clients.
    """
    import pandas as pd

    facts = run.portrait.facts
    if "counts" not in facts:
        raise UsageError(
            f"{run.path}: has no class counts of its clients: the federation is too large, or the run was made by an old version; "
            "repeat it with this version and fewer clients"
        )
    counts = np.asarray(facts["counts"], np.float64)
    clients = run.clients
    trained = clients[clients["status"].isin(("admitted", "declined"))]
    ids = trained["client"].to_numpy(np.int64)
    table = pd.DataFrame(
        {
            "samples": facts["samples"][ids].astype(np.float64),
            "label_entropy": label_entropy(counts)[ids],
            "dominant_share": (counts.max(axis=1) / np.maximum(counts.sum(axis=1), 1))[ids],
            "wrong_labels": facts["wrong_labels"][ids],
            **{str(name): trained[name].to_numpy(np.float64) for name in trained.columns if name not in CLIENT_COLUMNS},
        }
    )
    admitted = (trained["status"] == "admitted").to_numpy()
    groups = [table[admitted], table[~admitted]]
    rows = [{"client_rounds": float(len(group)), **group.mean().to_dict()} for group in groups]
    correlations = {name: _correlation(table[name].to_numpy(np.float64), admitted.astype(np.float64)) for name in table}
    return pd.DataFrame(
        [*rows, {"client_rounds": np.nan, **correlations}], index=["participants", "others", "correlation"]
    )


def _correlation(x: Values, y: Values) -> float:
    """Pearson's correlation over the finite entries of ``x``; NaN if one of the two does not vary."""
    known = np.isfinite(x)
    x, y = x[known], y[known]
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])
