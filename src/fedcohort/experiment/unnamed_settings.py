"""Settings that were not given, and that data of users decide: the partition, the number of clients, and the number to select."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcohort.core.files.paths import is_folder
from fedcohort.experiment.sections import Partition
from fedcohort.federation.data.own_data_names import is_own, is_text

__all__ = ["BUILTIN_TEXT", "SETTINGS", "settings_of_data", "unnamed_settings", "without_unnamed"]

SETTINGS = ("federation.partition", "federation.clients", "selection.k")
"""The settings whose defaults fit the built-in data, and that other data may need to differ."""

BUILTIN_TEXT = "dialogue"
"""The built-in data set that decides these settings, too: the default partition divides by class, and here every token has a label."""


def unnamed_settings(values: Mapping[str, object]) -> frozenset[str]:
    """The settings of :data:`SETTINGS` that a description does not give.

    >>> sorted(unnamed_settings({"federation": {"clients": 7}, "selection": "ucb"}))
    ['federation.partition', 'selection.k']
    """
    return frozenset(setting for setting in SETTINGS if not _is_given(values, *setting.split(".")))


def _is_given(values: Mapping[str, object], section: str, key: str) -> bool:
    """Whether a description gives a setting; a section that is an object gives all its settings."""
    inner = values.get(section, {})
    if isinstance(inner, Mapping):
        return key in inner
    return not isinstance(inner, str)


def without_unnamed(values: Mapping[str, Any], unnamed: frozenset[str]) -> dict[str, Any]:
    """A complete description without the settings that were not given, so that they stay open in descriptions made from it."""
    result = dict(values)
    for setting in unnamed:
        section, key = setting.split(".")
        result[section] = {name: copy.copy(value) for name, value in result[section].items() if name != key}
    return result


def settings_of_data(unnamed: frozenset[str], data: str, partition: Partition) -> frozenset[str]:
    """The settings in ``unnamed`` that a user's own files decide, or :data:`BUILTIN_TEXT`; none for other data.

    The files decide the number of clients unless it is given, or a partition that divides the samples anew. If it is given, they still
    decide the partition.

    Args:
        unnamed: the settings that were not given.
        data: the name of the data set.
        partition: the partition.
    """
    text = data == BUILTIN_TEXT and "federation.partition" in unnamed
    if not (text or is_own(data) or is_text(data) or (Path(data).is_absolute() and is_folder(Path(data)))):
        return frozenset()
    if "federation.clients" not in unnamed:
        return unnamed & {"federation.partition"}
    return unnamed if "federation.partition" in unnamed or partition.is_natural else frozenset()
