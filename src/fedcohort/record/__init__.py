"""The record of a run, a directory: what happened, and where to go on.

    experiment.toml          the resolved description
    run.sqlite               one transaction a round: metrics, decisions, cost ledger, and which checkpoint belongs to them
    checkpoint/round-*.safetensors
    model.safetensors        the final model
    plug-ins/                copies of the user's own files that the description names
    run.lock                 held by the process that writes

A round is in the database completely or not at all; a process may be killed at any moment. Nothing is pickled.
"""

from fedcohort.record.rows import KEPT, ClientRow, LedgerRow, Portrait, Reason, Reasons, RoundRow, Saved
from fedcohort.record.run import Run, open_run
from fedcohort.record.tables import FORMAT
from fedcohort.record.writer import Writer

__all__ = [
    "FORMAT", "KEPT", "ClientRow", "LedgerRow", "Portrait", "Reason", "Reasons", "RoundRow", "Run", "Saved", "Writer", "open_run",
]  # fmt: skip
