"""Check that the settings of ``measures``, and those of ``engine``, fit each other."""

import warnings

from fedcohort.core.errors import UsageError
from fedcohort.experiment.sections import Engine, Measures

__all__ = ["check_engine", "check_measures"]


def check_engine(engine: Engine) -> None:
    """Refuse several threads per client where a call trains several clients, or on a GPU.

    Raises:
        UsageError: there are several, with such a plan or device.
    """
    if engine.threads_per_client == 1:
        return
    given = f"engine.threads_per_client = {engine.threads_per_client}"
    if engine.plan in ("stacked", "means"):
        raise UsageError(
            f"{given}: engine.plan = {engine.plan!r} trains several clients in each call; use the plan 'threads', or leave it out"
        )
    if engine.device not in ("cpu", "auto"):
        raise UsageError(
            f"{given}: engine.device = {engine.device!r} trains clients on a GPU; use the device 'cpu', or leave it out"
        )


def check_measures(measures: Measures, validation: float, rounds: int) -> None:
    """Refuse rounds between measurements of personal models that are never measured; warn if early stopping would end every run at its
    first test.

    Args:
        measures: the settings.
        validation: share of the validation set; without one, there is no early stopping.
        rounds: number of rounds of a run.

    Raises:
        UsageError: two settings exclude each other.
    """
    if measures.personal_every and not measures.personal_epochs:
        given = f"measures.personal_every = {measures.personal_every}"
        raise UsageError(f"{given}: measures nothing without measures.personal_epochs; set it to 1 or more")
    if validation and measures.patience < measures.evaluate_every < rounds:
        warnings.warn(
            f"measures.patience = {measures.patience}: fewer rounds than measures.evaluate_every = {measures.evaluate_every}, so that "
            f"early stopping would end every run at its first test; use at least {measures.evaluate_every}",
            stacklevel=2,  # so that it is shown once, although rows and overrides make several experiments
        )
