"""Tell rows with the same label apart: by the settings in which they differ, or else by numbers."""

from collections.abc import Mapping, Sequence, Set
from itertools import chain

from fedcohort.core.words.formatted_values import by_dotted_key
from fedcohort.experiment.python_objects import in_label
from fedcohort.record import Run
from fedcohort.study.rows.comparison_row import Row

__all__ = ["distinct_labels", "distinct_rows"]

MOST = 3
"""Largest number of settings in a label; rows that differ in more get numbers."""

NOT_SHOWN = frozenset({"name", "seed", "seeds", "engine", "variants", "sweep"})
"""Settings and sections that a label does not show: they are no settings of the row, or change no results."""

MEASURED = frozenset({"measures"})
"""The section that changes no model; a label shows it if nothing else tells rows apart."""


def distinct_rows(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with distinct labels: equal ones get the name of the experiment, and then what tells them apart."""
    labels = [row.label for row in rows]
    named = [f"{row.experiment.name}: {row.label}" if labels.count(row.label) > 1 else row.label for row in rows]
    for label in {label for label in named if named.count(label) > 1}:
        alike = [i for i, other in enumerate(named) if other == label]
        settings = _differences([rows[i] for i in alike])
        for i, text in zip(alike, settings, strict=True):
            named[i] = f"{label} ({text})"
    return tuple(Row(label, row.experiment, row.runs) for label, row in zip(named, rows, strict=True))


def distinct_labels(runs: Sequence[Run]) -> list[str]:
    """The label of the row of each run, where rows with equal labels have those of :func:`distinct_rows`."""
    keys = [(run.meta["label"], run.meta["row"]) for run in runs]
    rows = {key: Row(key[0], run.described, {int(run.meta["seed"]): run}) for key, run in zip(keys, runs, strict=True)}
    labels = dict(zip(rows, (row.label for row in distinct_rows(list(rows.values()))), strict=True))
    return [labels[key] for key in keys]


def _differences(rows: Sequence[Row]) -> list[str]:
    """For each row, the settings in which not all have the same value; its number if these are many, or do not tell all apart."""
    for left_out in (NOT_SHOWN | MEASURED, NOT_SHOWN):
        settings = [_settings(row, left_out) for row in rows]
        names = _short_names([key for key in dict.fromkeys(chain(*settings)) if _differ(settings, key)])
        texts = [", ".join(f"{name}={in_label(own.get(key))}" for key, name in names.items()) for own in settings]
        if len(names) <= MOST and len(set(texts)) == len(texts):
            return texts
    return [str(number + 1) for number in range(len(rows))]


def _short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last part of each key, by the key; the whole key where several end alike."""
    last = [key.rpartition(".")[2] for key in keys]
    return {key: key if last.count(name) > 1 else name for key, name in zip(keys, last, strict=True)}


def _differ(settings: Sequence[Mapping[str, object]], key: str) -> bool:
    return any(own.get(key) != settings[0].get(key) for own in settings)


def _settings(row: Row, left_out: Set[str]) -> dict[str, object]:
    """The settings of a row by dotted key, without sections that are left out."""
    return by_dotted_key({key: value for key, value in row.experiment.to_dict().items() if key not in left_out})
