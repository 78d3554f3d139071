"""How questions about the model are billed, for notes below tables of costs."""

from fedcohort.record import Run

__all__ = ["TWO_DOWNLOADS", "asks_about_the_model"]

TWO_DOWNLOADS = (
    "Bytes: a client that answers a question about the model receives it for the answer, and again for training if it is then "
    "selected."
)


def asks_about_the_model(run: Run) -> bool:
    """Whether the strategy of a run sent the model to clients with a question, besides training."""
    ledger = run.ledger
    return bool(((ledger["kind"] != "training") & (ledger["bytes_down"] > 0)).any())
