"""Build the simulated clock of a run from its experiment."""

from typing import TypeVar

from fedcohort.algorithms import Algorithm, ModelState
from fedcohort.core.arrays import Indices
from fedcohort.core.tensor_sizes import num_bytes
from fedcohort.experiment import Experiment, Systems
from fedcohort.federation.simulated_clock import Clock

__all__ = ["clock_of"]

AClock = TypeVar("AClock", bound=Clock)


def clock_of(
    experiment: Experiment,
    systems: Systems,
    num_samples: Indices,
    algorithm: Algorithm,
    model: ModelState,
    kind: type[AClock],
) -> AClock:
    """The clock of a run.

    Args:
        experiment: the experiment.
        systems: its systems, or the default if the algorithm pools all data.
        num_samples: training samples of each client.
        algorithm: the algorithm, which determines the nominal number of epochs.
        model: the initial model, which determines transfer times.
        kind: class of the clock.
    """
    return kind(
        num_samples,
        experiment.seed,
        systems.latency.build(),
        systems.availability.build(),
        systems.network.build(),
        rounds=experiment.rounds,
        dropout=systems.dropout,
        deadline=systems.deadline,
        overcommit=systems.overcommit,
        idle_time=systems.idle_time,
        model_bytes=num_bytes([model]),
        epochs=algorithm.local_training(experiment.training).epochs,
    )
