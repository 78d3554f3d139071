"""Facts about the plug-ins of an experiment, for the record of a run: pages show them without importing the plug-ins."""

import json
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from fedcohort.core.parameters import defaults, docstring
from fedcohort.core.plugins import card_of, short_name
from fedcohort.experiment.completion import plug_in_sections
from fedcohort.experiment.experiment import Experiment

__all__ = ["as_recorded", "plugin_facts"]


def plugin_facts(experiment: Experiment, without: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Facts about each plug-in that an experiment names, by its section, such as ``"federation.partition"``; JSON values.

    Args:
        experiment: the experiment.
        without: sections to leave out, because objects from Python replace them.

    Returns:
        For each section ``name`` (a class in a user's own file is called by its class), ``summary`` (the first paragraph of the
        docstring), ``defaults`` (of its parameters), and, if the plug-in has them, ``card`` and ``needs``.
    """
    facts = {}
    for where, section in plug_in_sections(experiment).items():
        if where in without:
            continue
        plug_in = section.table.find(section.name, f"{where}.name")
        card, needs = card_of(plug_in), getattr(plug_in, "needs", None)
        facts[where] = {
            "name": short_name(section.name),
            "summary": " ".join(docstring(plug_in).partition("\n\n")[0].split()),
            "defaults": {name: as_recorded(default) for name, default in defaults(plug_in).items()},
            **({"card": as_recorded(asdict(card))} if card is not None else {}),
            **({"needs": sorted(map(str, needs))} if isinstance(needs, (set, frozenset)) else {}),
        }
    return facts


def as_recorded(value: object) -> Any:
    """A value as it is read back from JSON: tuples become lists, and objects that JSON does not have become text."""
    return json.loads(json.dumps(value, default=str))
