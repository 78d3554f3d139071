"""The samples of clients on which the accuracy of each client is measured, in words for captions and notes."""

from collections.abc import Iterable

from fedcohort.record import Run

__all__ = ["samples_of_clients"]


def samples_of_clients(runs: Iterable[Run]) -> str:
    """What stands after "on each client's own" in texts about the accuracy over clients in these runs."""
    kinds = {_samples(run) for run in runs}
    return kinds.pop() if len(kinds) == 1 else "data"


def _samples(run: Run) -> str:
    """The same for one run; a server outside simulations does not say which data it used."""
    if run.meta.get("client data") == "test samples":
        return "test samples"
    if run.meta.get("plan") == "server":
        return "data"
    return "held-out samples" if run.described.federation.holdout else "training samples"
