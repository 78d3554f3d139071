"""The comparison that runs if no experiment is named."""

from fedcohort.experiment.experiment import Experiment

__all__ = ["quickstart"]


def quickstart() -> Experiment:
    """Uniform selection, UCB, and select-by-loss on 12 clients of the embedded digits. The rows differ in the strategy only."""
    return Experiment(
        variants=[
            {"label": "UCB", "selection": {"name": "ucb"}},
            {"label": "select-by-loss", "selection": {"name": "select_by_loss"}},
        ]
    )
