"""Notes below tables of costs: how questions about the model are billed."""

from collections.abc import Iterable

from fedcohort.record import Run

__all__ = ["NO_TIME", "TWO_DOWNLOADS", "about_questions", "asks_about_the_model"]

TWO_DOWNLOADS = (
    "Bytes: a client that answers a question about the model receives it for the answer, and again for training if it is then "
    "selected."
)

NO_TIME = "Simulated time does not include answers to questions of a strategy."


def about_questions(runs: Iterable[Run], *, size: bool = True, time: bool = True) -> str:
    """What bytes and simulated time mean if strategies of these runs ask clients about the model; empty if none does.

    Args:
        runs: the runs.
        size, time: whether bytes and simulated time are shown.
    """
    asking = [run for run in runs if asks_about_the_model(run)] if size or time else []
    simulated = any(run.clock == "simulated" for run in asking)
    return " ".join([*([TWO_DOWNLOADS] if asking and size else []), *([NO_TIME] if simulated and time else [])])


def asks_about_the_model(run: Run) -> bool:
    """Whether the strategy of a run sent the model to clients with a question, besides training."""
    ledger = run.ledger
    return bool(((ledger["kind"] != "training") & (ledger["bytes_down"] > 0)).any())
