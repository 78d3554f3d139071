"""An experiment as a short list of names and values, as notebooks display it."""

from collections.abc import Mapping
from typing import Any

from fedcohort.core.plugins import short_name
from fedcohort.core.words.formatted_values import by_dotted_key, counted, setting
from fedcohort.experiment.sections import Choice

__all__ = ["overview"]


def overview(experiment: Any) -> list[list[str]]:
    """The settings that tables name, then one line for each variant and each entry of the sweep.

    Args:
        experiment: an :class:`~fedcohort.experiment.Experiment`, whose module imports this one.
    """
    federation, training = experiment.federation, experiment.training
    open_to_data = "; not named, so own data may decide" if "federation.partition" in experiment.unnamed else ""
    rows = [
        ["data", experiment.data.name],
        ["clients", f"{federation.clients:,} by {_choice(federation.partition)}{open_to_data}"],
        ["selection", f"{experiment.selection.k:,} by {_choice(experiment.selection)}"],
        ["algorithm", _choice(experiment.algorithm)],
        ["model", _choice(experiment.model)],
        [
            "training",
            f"{counted(training.epochs, 'epoch')}, {training.optimizer}, lr = {training.lr:g}, batches of {training.batch_size}",
        ],
        ["rounds", f"{experiment.rounds:,}"],
        ["seeds", f"{experiment.seeds:,}, from {experiment.seed}"],
    ]
    rows += [[f"variant {row.label}", _settings(row.overrides)] for row in experiment.variants]
    return rows + [[f"sweep of {key}", ", ".join(map(_value, points))] for key, points in experiment.sweep.items()]


def _choice(section: Choice) -> str:
    """A plug-in with its parameters."""
    parameters = ", ".join(f"{name} = {_parameter(value)}" for name, value in section.parameters.items())
    return f"{short_name(section.name)}({parameters})" if parameters else short_name(section.name)


def _parameter(value: object) -> str:
    """A parameter of a plug-in; a long list as its number of values."""
    return setting(value) if isinstance(value, list) else str(value)


def _settings(overrides: Mapping[str, object]) -> str:
    """Settings by dotted key, in one line."""
    return ", ".join(f"{key} = {_value(value)}" for key, value in by_dotted_key(overrides).items())


def _value(value: object) -> str:
    """A value of a setting; a plug-in without its path."""
    return short_name(value) if isinstance(value, str) else str(value)
