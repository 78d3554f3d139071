"""Arguments of functions that run experiments which replace a setting by a class or an object from Python."""

from collections.abc import Mapping
from typing import Any

from fedcohort.core.errors import UsageError, shown
from fedcohort.experiment.completion import choices
from fedcohort.experiment.experiment import Experiment

__all__ = ["with_objects"]

_SETTINGS = {
    "partition": ("federation", "partition"),
    "latency": ("systems", "latency"),
    "loss": ("training", "loss"),
}
"""Arguments of functions that run experiments, and the setting that each replaces."""


def with_objects(experiment: Experiment, **objects: Any) -> Experiment:
    """An experiment with classes and objects in place of settings.

    Args:
        experiment: the experiment.
        objects: ``partition``, ``latency`` or ``loss``: a class or an object, which replaces the setting of the base; or several by
            label, each of which adds a variant. None leaves the setting.

    Raises:
        UsageError: an object is no plug-in of its section.
    """
    rows: list[dict[str, Any]] = []
    for name, given in objects.items():
        *outer, _ = where = _SETTINGS[name]
        if given is None:
            continue
        if isinstance(given, str) or (
            not isinstance(given, Mapping | type) and not choices()[where].table.accepts(given)
        ):
            raise UsageError(
                f"{name} = {shown(given)}: give a class or an object that {choices()[where].table.contract}; a name is a setting: "
                f"Experiment({outer[0]}={{{where[-1]!r}: …}})"
            )
        if isinstance(given, Mapping):
            rows += [{"label": label, outer[0]: {where[-1]: one}} for label, one in given.items()]
        else:
            experiment = experiment.with_overrides({outer[0]: {where[-1]: given}})
    if rows:
        experiment = experiment.with_overrides({"variants": [*experiment.to_dict().get("variants", []), *rows]})
    return experiment
