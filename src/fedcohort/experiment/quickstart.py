"""The comparison that runs if no experiment is named."""

from fedcohort.experiment.experiment import Experiment

__all__ = ["quickstart"]


def quickstart() -> Experiment:
    """Uniform selection, UCB, and select-by-loss with damping on 12 clients of the embedded digits."""
    return Experiment(
        variants=[
            {"label": "UCB", "selection": {"name": "ucb"}},
            {
                "label": "select-by-loss, damped",
                "selection": {"name": "select_by_loss"},
                "algorithm": {"server_lr": 0.5},
            },
        ]
    )
