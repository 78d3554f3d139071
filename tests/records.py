"""Run records that tests write or change by hand, with valid hashes."""

import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fedcohort
from fedcohort.record import ClientRow, LedgerRow, Portrait, Reasons, RoundRow, create_run, writing
from fedcohort.record.database import SqlRow, checkpoints_hash, first_seal, seal_of, sealed_rows
from tests.experiments import small

__all__ = ["Candidate", "candidates_of", "decision_rows", "exchange", "played", "reasons_of", "seal_again", "written"]

Candidate = tuple[int, bool, float, Mapping[str, float]]
"""A candidate of a decision: its id, whether it was selected, its score, and the terms of the score."""


def seal_again(database: sqlite3.Connection) -> None:
    """Recompute the hash of every round from the current rows, and delete the hashes of rounds that no longer exist."""
    database.execute("DELETE FROM seals WHERE round NOT IN (SELECT round FROM rounds)")
    before = first_seal(database)
    for (t,) in database.execute("SELECT round FROM rounds ORDER BY round").fetchall():
        before = seal_of(sealed_rows(database, t), before)
        database.execute("UPDATE seals SET sha256 = ? WHERE round = ?", (before, t))
    database.execute("UPDATE meta SET value = ? WHERE key = 'checkpoints'", (checkpoints_hash(database),))


def exchange(bytes_down: int, bytes_up: int, kind: str = "training") -> LedgerRow:
    """A ledger row: the cost of one kind of exchange."""
    return LedgerRow(kind, 2, bytes_down, bytes_up, 1.0, 0.5, "its update")


def reasons_of(candidates: Sequence[Candidate]) -> Reasons:
    """The decision about these candidates; a term that one of them lacks is NaN."""
    names = dict.fromkeys(name for *_, terms in candidates for name in terms)
    return Reasons(
        np.array([client for client, *_ in candidates], dtype=np.int64),
        [selected for _, selected, *_ in candidates],
        np.array([score for _, _, score, _ in candidates], dtype=np.float64),
        {name: np.array([terms.get(name, math.nan) for *_, terms in candidates], dtype=np.float64) for name in names},
        np.zeros(0, dtype=np.int64),
    )


def candidates_of(reasons: Reasons) -> list[Candidate]:
    """The candidates of a decision one by one; selected clients that were no candidates come last, without a score."""
    terms = [{name: values[i].item() for name, values in reasons.terms.items()} for i in range(len(reasons.clients))]
    columns = reasons.clients.tolist(), reasons.selected, reasons.scores.tolist(), terms
    return [*zip(*columns, strict=True), *((client, True, math.nan, {}) for client in reasons.strangers.tolist())]


def decision_rows(t: int, reasons: Reasons) -> list[SqlRow]:
    """The rows of the table ``decisions`` for a decision, made one by one; FedCohort makes them column by column."""

    def known(value: float) -> float | None:
        return None if math.isnan(value) else float(value) + 0.0

    return [
        (t, i, client, int(selected), known(score), json.dumps({name: known(value) for name, value in terms.items()}))
        for i, (client, selected, score, terms) in enumerate(candidates_of(reasons))
    ]


def played(t: int, clients: Sequence[int] | Sequence[ClientRow] = (), **values: Any) -> RoundRow:
    """The record of round ``t`` with the selected ``clients``, all admitted unless their rows give another status.

    By default, a round takes one unit of simulated time, the test accuracy is 0.5, and the ledger is empty. Other ``values`` override
    the fields of the row; ``decisions`` is a list of :data:`Candidate`.
    """
    decisions = reasons_of(values.pop("decisions", ()))
    rows = [one if isinstance(one, ClientRow) else ClientRow(one, "admitted") for one in clients]
    usual: dict[str, Any] = {
        "available": 12, "selected": len(rows), "trained": len(rows), "simulated_time": float(t), "round_time": 1.0,
        "admitted": sum(row.status == "admitted" for row in rows), "steps": 0, "local_accuracy": math.nan,
        "train_loss": math.nan, "note": "", "ledger": [], "test_accuracy": 0.5, "class_accuracy": [0.5],
        "wall": dict.fromkeys(("selection", "training", "aggregation", "evaluation", "recording", "total"), 0.0),
    }  # fmt: skip
    return RoundRow(round=t, clients=rows, decisions=decisions, **(usual | values))


def written(
    path: Path,
    rows: Sequence[RoundRow],
    /,
    *,
    label: str = "uniform",
    portrait: Portrait | None = None,
    facts: Mapping[str, str] | None = None,
    **values: Any,
) -> fedcohort.Run:
    """An unfinished run of ``small(**values)`` under its first seed, with these rows as its record, and these facts beside others."""
    experiment = small(**{"rounds": len(rows), **values}).single(values.get("seed", 0))
    meta = {
        "label": label,
        "row": label,
        "name": experiment.name,
        "seed": str(experiment.seed),
        "data": "",
        "given": "",
        **(facts or {}),
    }
    run = create_run(path, experiment.to_toml(), meta)
    with writing(run) as writer:
        if portrait is not None:
            writer.describe(portrait)
        for row in rows:
            writer.record([row])
    return fedcohort.Run(run.path)
