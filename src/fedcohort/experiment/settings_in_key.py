"""Choose the settings that determine the results of a run, for its hash."""

from collections.abc import Mapping
from typing import Any

from fedcohort.core.parameters import in_key
from fedcohort.experiment.sections import Choice

__all__ = ["settings_in_key"]


def settings_in_key(section: object, values: Mapping[str, Any]) -> dict[str, Any]:
    """The ``values`` of a section (and of the sections in it) that enter the hash of a run."""
    plugin = section.table.find(section.name, "name") if isinstance(section, Choice) else None
    kept: dict[str, Any] = {}
    for name, value in values.items():
        if in_key(section, name, value) and in_key(plugin, name, value):
            inner = getattr(section, name, None)
            kept[name] = settings_in_key(inner, value) if hasattr(inner, "__pydantic_fields__") else value
    return kept
