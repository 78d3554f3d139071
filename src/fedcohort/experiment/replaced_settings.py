"""Arguments of functions that run experiments which replace a setting by a class or an object from Python."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcohort.core.errors import UsageError, shown
from fedcohort.experiment.completion import CHOICES
from fedcohort.experiment.experiment import Experiment

__all__ = ["with_objects"]

_SETTINGS = {
    "partition": ("federation", "partition"),
    "latency": ("systems", "latency"),
    "loss": ("training", "loss"),
}
"""Arguments of functions that run experiments, and the setting that each replaces."""


def with_objects(given: object, **objects: object) -> Experiment:
    """An experiment with classes and objects in place of settings.

    Args:
        given: the experiment; None for the quickstart.
        objects: ``partition``, ``latency`` or ``loss``: a class or an object, which replaces the setting of the base; or several by
            label, each of which adds a variant. None leaves the setting.

    Raises:
        UsageError: an object is no plug-in of its section, or ``given`` is no experiment.
    """
    experiment = _checked(given)
    rows: list[dict[str, Any]] = []
    for name, plugin in objects.items():
        *outer, _ = where = _SETTINGS[name]
        if plugin is None:
            continue
        if isinstance(plugin, str) or (
            not isinstance(plugin, Mapping | type) and not CHOICES[where].table.accepts(plugin)
        ):
            raise UsageError(
                f"{name} = {shown(plugin)}: give a class or an object that {CHOICES[where].table.contract}; a name is a setting: "
                f"Experiment({outer[0]}={{{where[-1]!r}: …}})"
            )
        if isinstance(plugin, Mapping):
            rows += [{"label": label, outer[0]: {where[-1]: one}} for label, one in plugin.items()]
        else:
            experiment = experiment.with_overrides({outer[0]: {where[-1]: plugin}})
    if rows:
        experiment = experiment.with_overrides({"variants": [*experiment.to_dict().get("variants", []), *rows]})
    return experiment


def _checked(experiment: object) -> Experiment:
    """The experiment, or the quickstart for None.

    Raises:
        UsageError: it is another object, such as the path of a file.
    """
    if experiment is None:
        return Experiment()
    if isinstance(experiment, Experiment):
        return experiment
    if isinstance(experiment, str | Path):
        hint = "read a file with fedcohort.load_experiment(path)"
    else:
        hint = "create one with fedcohort.Experiment(rounds=…, …)"
    raise UsageError(f"experiment = {shown(experiment)}: should be a fedcohort.Experiment; {hint}")
