"""The unit of simulated time, in words."""

from fedcohort.experiment.sections import Systems

__all__ = ["least_time"]


def least_time(systems: Systems) -> str:
    """How long the fastest possible client needs for one sample of nominal work; empty if the law of the times does not say it.

    >>> least_time(Systems())
    '1 unit per sample'
    >>> from fedcohort.experiment import Experiment
    >>> latency = {"name": "shifted_exponential", "shift": 0.3}
    >>> least_time(Experiment(systems={"latency": latency, "network": "lognormal"}).systems)
    "0.3 units per sample, and the time for the model's bytes"
    """
    if systems.latency.name != "shifted_exponential":
        return ""
    shift = float(systems.latency.parameters.get("shift", 1.0))
    sending = "" if systems.network.name == "share" else ", and the time for the model's bytes"
    return f"{shift:g} unit{'s' * (shift != 1)} per sample{sending}"
