"""Notes below tables of costs: how questions about the model are billed."""

from collections.abc import Iterable, Mapping

from fedcohort.core.words.formatted_values import in_words
from fedcohort.record import Run

__all__ = [
    "HIDDEN_BYTES",
    "MESSAGES",
    "NO_TIME",
    "PASSES",
    "TWO_DOWNLOADS",
    "about_questions",
    "asks_about_the_model",
    "costs_of_questions",
]

MESSAGES = (
    "Messages of the training: one to each selected client, and one for each update sent back. A client that the strategy "
    "declines sends no update; the numbers that it reports count as bytes only."
)
"""What counts as a message of the training, said where some clients were declined."""

PASSES = "A client pass is one forward pass of a client over its training data; an epoch of training counts as three."

TWO_DOWNLOADS = (
    "Bytes: a client that answers a question about the model receives it for the answer, and again for training if it is then "
    "selected."
)

NO_TIME = "Simulated time does not include answers to questions of a strategy."

HIDDEN_BYTES = "Bytes and client passes do: the clients that it asks about the model receive it, too."
"""After :data:`NO_TIME`, where bytes are not shown."""


def about_questions(runs: Iterable[Run], *, size: bool = True, time: bool = True) -> str:
    """What bytes and simulated time mean if strategies of these runs ask clients about the model; empty if none does.

    Args:
        runs: the runs.
        size, time: whether bytes and simulated time are shown.
    """
    asking = [run for run in runs if asks_about_the_model(run)] if size or time else []
    simulated = any(run.clock == "simulated" for run in asking)
    about_time = [NO_TIME, *([] if size else [HIDDEN_BYTES])] if simulated and time else []
    return " ".join([*([TWO_DOWNLOADS] if asking and size else []), *about_time])


def asks_about_the_model(run: Run) -> bool:
    """Whether the strategy of a run sent the model to clients with a question, besides training."""
    ledger = run.ledger
    return bool(((ledger["kind"] != "training") & (ledger["bytes_down"] > 0)).any())


def costs_of_questions(runs_of: Mapping[str, Iterable[Run]]) -> list[str]:
    """Why rows cost more bytes and passes, and no more time, if they ask clients about the model: sentences, none without such rows.

    Args:
        runs_of: the runs of each row, by what the row is called.
    """
    clocks = {name: {run.clock for run in runs if asks_about_the_model(run)} for name, runs in runs_of.items()}
    names = [name for name, found in clocks.items() if found]
    if not names:
        return []
    sends, it_asks = ("sends", "it asks") if len(names) == 1 else ("send", "they ask")
    why = f"{in_words(names)} {sends} the model to the clients that {it_asks} about it, too, not only to those that train."
    return [why, *([NO_TIME] if "simulated" in set().union(*clocks.values()) else [])]
