"""The record of a run: a directory with everything that happened, and the state to resume from.

    experiment.toml          the resolved description
    run.sqlite               one transaction per round: metrics, decisions, cost ledger, and the checkpoint that belongs to them
    checkpoint/round-*.safetensors
    checkpoint/memories-*.safetensors    what large memories of clients, such as SCAFFOLD's control variates, were in some rounds
    model.safetensors        the final model
    plug-ins/                copies of the user's own files that the description refers to, and of modules that they import
    run.lock                 held by the process that is writing

A round is in the database completely or not at all, so that a process can be killed at any moment. After a power loss, a run resumes
after its last durable checkpoint (see :class:`Writer`). Nothing is pickled.
"""

from fedcohort.record.checkpoints import check_own_checkpoints
from fedcohort.record.database import FORMAT
from fedcohort.record.round_rows import CLIENT_COLUMNS, KEPT, ClientRow, LedgerRow, Portrait, Reasons, RoundRow, Saved
from fedcohort.record.run import Run, open_run
from fedcohort.record.run_lock import BeingWrittenError, is_being_written, locked
from fedcohort.record.untouched_copy import check_database_exists
from fedcohort.record.writer import Writer, create_run, writing

__all__ = [
    "CLIENT_COLUMNS", "FORMAT", "KEPT", "BeingWrittenError", "ClientRow", "LedgerRow", "Portrait", "Reasons", "RoundRow", "Run",
    "Saved", "Writer", "check_database_exists", "check_own_checkpoints", "create_run", "is_being_written", "locked", "open_run",
    "writing",
]  # fmt: skip
