"""Which rows of a comparison are compared with each other: rows at the same point of a sweep, each with one reference row."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.words import formatted_values
from fedcohort.experiment import Cell, Experiment

__all__ = [
    "SETTING",
    "Entry",
    "Group",
    "check_reference",
    "clients_data_and_systems",
    "differences_of_cells",
    "grouped",
    "names_at_points",
    "swept_settings",
    "without_settings",
]

SETTING = re.compile(r", ([\w.]+)=(\{[^{}]*\}|\[[^\[\]]*\]|[^,]+)")
"""A setting in the label of a row: ``, k=3``."""

NUMBERED = re.compile(r" \(\d+\)$")
"""The number that equal labels get."""

FEDERATION = (
    "data",
    "federation",
    "public",
    "systems.availability",
    "systems.latency",
    "systems.network",
    "systems.dropout",
)
"""Settings that describe clients and their data: rows in which they differ are rows about different federations."""


@dataclass(frozen=True)
class Entry:
    """A row as this module needs it: its label, the name of its strategy, and its experiment."""

    label: str
    strategy: str
    experiment: Experiment

    @cached_property
    def settings(self) -> dict[str, object]:
        """The settings of the experiment by their whole keys."""
        return formatted_values.by_dotted_key(self.experiment.to_dict())


@dataclass(frozen=True)
class Group:
    """Rows that are compared with each other.

    Attributes:
        point: the settings of the sweep that these rows share, in words; empty if all rows of the comparison are one group.
        rows: positions of the rows.
        reference: position of the row that the others are compared with.
        federation: the settings that groups with the same clients and data share, in words, which are different for other clients or
            data; empty if all groups have the same.
        other_points: if they share no such settings, so that ``federation`` is the first of these groups and the number of the others,
            this number; otherwise 0.
    """

    point: str
    rows: tuple[int, ...]
    reference: int
    federation: str = ""
    other_points: int = 0


def grouped(entries: Sequence[Entry], reference: str = "") -> list[Group]:
    """Divide rows into groups, in the order of their first rows.

    The rows of a sweep form one group for each point of the grid. If a sweep has only one row at every point, such as a sweep of a
    strategy's parameter, its points are compared with each other, as long as they share clients and data. Experiments that differ in
    clients, data or systems are different groups. All other rows are one group.

    Args:
        entries: the rows.
        reference: label of the reference row, with or without the settings of a sweep. By default, and at points without such a row,
            the reference is the row with uniform selection that is called ``uniform``, or else the first with uniform selection, or
            else the first row.

    Raises:
        UsageError: no row has the label ``reference``.
    """
    settings = swept_settings(entries)
    names = [without_settings(entry.label, own) for entry, own in zip(entries, settings, strict=True)]
    check_reference([*names, *(entry.label for entry in entries)], reference)
    families = _families(entries)
    points: dict[tuple[str, ...], list[int]] = {}
    for i, own in enumerate(_distinguishing(entries, settings, names)):
        points.setdefault((families[i], *(f"{name}={value}" for name, value in own.items())), []).append(i)
    federations = _federations(points, entries)
    return [
        Group(
            _in_words(point, entries[rows[0]].label) if len(points) > 1 else "",
            tuple(rows),
            _reference(entries, names, rows, reference),
            *federations[point],
        )
        for point, rows in points.items()
    ]


def differences_of_cells(cells: Iterable[Cell]) -> int:
    """The number of rows of an experiment that are compared with a reference, which is another row, once all its cells are run."""
    rows = {cell.label: Entry(cell.label, cell.experiment.selection.name, cell.experiment) for cell in cells}
    return sum(len(group.rows) - 1 for group in grouped(list(rows.values())))


Point = tuple[str, ...]
"""The family of a point and its settings, such as ``k=3``."""


def _federations(points: Mapping[Point, Sequence[int]], entries: Sequence[Entry]) -> dict[Point, tuple[str, int]]:
    """For each point, its clients and data in words: the settings that all points with the same ones share, and no others.

    Without such settings, it is the first of these points, and the number of the others, which is also returned by itself.
    """
    alike: dict[frozenset[str], list[Point]] = {}
    for point, rows in points.items():
        alike.setdefault(frozenset(_clients_and_data(entries[i]) for i in rows), []).append(point)
    if len(alike) < 2:
        return dict.fromkeys(points, ("", 0))
    names: dict[Point, tuple[str, int]] = {}
    for own in alike.values():
        others = [point for point in points if point not in own]
        names |= dict.fromkeys(own, _name_of_federation(own, others, entries[points[own[0]][0]].label))
    return names


def _name_of_federation(own: Sequence[Point], others: Sequence[Point], label: str) -> tuple[str, int]:
    """The settings that some points share and no others have, in words, and 0; or else the first point and the number of the others,
    in words, and that number."""
    shared = tuple(part for part in own[0] if all(part in point for point in own))
    if any(shared) and not any(set(shared) <= set(point) for point in others):
        return _in_words(shared, label), 0
    more = f" and {len(own) - 1} other point{'s' * (len(own) > 2)}" if len(own) > 1 else ""
    return f"{_in_words(own[0], label)}{more}", len(own) - 1


def _clients_and_data(entry: Entry) -> str:
    """The settings of clients and data of a row as text."""
    own = {key: value for key, value in entry.settings.items() if key.startswith(FEDERATION)}
    return json.dumps(own, sort_keys=True, default=str)


def clients_data_and_systems(experiment: Experiment) -> str:
    """All settings of the clients, of their data and of the systems as text: different texts are no fair comparison of strategies.

    Public samples count if they are taken from the clients.
    """
    values = experiment.to_dict()
    taken = values["public"] if experiment.public.name == "holdout" else None
    own = [*(values[name] for name in ("federation", "data", "systems")), taken]
    return json.dumps(own, sort_keys=True, default=str)


def check_reference(labels: Iterable[str], reference: str) -> None:
    """Refuse a reference that is neither the label of a row nor a label without the settings of a sweep.

    Raises:
        UsageError: no row has the label ``reference``.
    """
    valid = {name for label in labels for name in (label, SETTING.sub("", label))}
    if not isinstance(reference, str | None):
        raise UsageError(f"reference = {shown(reference)}: should be the label of a row; {nearest('', valid)}")
    if reference and reference not in valid:
        raise UsageError(f"reference = {reference!r}: no row has this label; {nearest(reference, valid)}")


def swept_settings(entries: Sequence[Entry]) -> list[dict[str, str]]:
    """The settings that a sweep wrote into the label of each row, by their short name, such as ``k``.

    A setting counts if the labels of all rows of its experiment name it, and its values differ. A setting of clients or data also
    counts if only some labels name it; the others then have the value of their experiment.
    """
    settings: list[dict[str, str]] = [{} for _ in entries]
    for rows in _by_experiment(entries).values():
        for i, own in zip(rows, _of_experiment([entries[i] for i in rows]), strict=True):
            settings[i] = own
    return settings


def _of_experiment(entries: Sequence[Entry]) -> list[dict[str, str]]:
    """As :func:`swept_settings`, for the rows of one experiment."""
    found = [_settings(entry) for entry in entries]
    named = dict.fromkeys(name for own in found for name in own)
    keys = _about_federation(entries, named)
    columns: dict[str, list[str]] = {}
    for name in named:
        values = [own.get(name) or _value(entry, keys.get(name, "")) for own, entry in zip(found, entries, strict=True)]
        if (name in keys or all(name in own for own in found)) and len(set(values)) > 1:
            columns[name] = values
    return [{name: values[i] for name, values in columns.items()} for i in range(len(entries))]


def _by_experiment(entries: Sequence[Entry]) -> dict[str, list[int]]:
    """Positions of rows by the name of their experiment."""
    by_name: dict[str, list[int]] = {}
    for i, entry in enumerate(entries):
        by_name.setdefault(entry.experiment.name, []).append(i)
    return by_name


def _value(entry: Entry, key: str) -> str:
    """The value of a setting of a row as labels have it."""
    return _plain(str(entry.settings.get(key, "")))


def _plain(value: str) -> str:
    """The text of a value: the same for 1 and 1.0."""
    try:
        return f"{float(value):g}"
    except ValueError:
        return value


def without_settings(label: str, settings: Collection[str]) -> str:
    """A label without the settings of a sweep: the name of the strategy."""
    return SETTING.sub(
        lambda match: "" if match[1] in settings else match[0], NUMBERED.sub("", label) if settings else label
    )


def names_at_points(entries: Sequence[Entry], groups: Sequence[Group]) -> list[str]:
    """The labels without the settings of a sweep.

    Rows of a group that would have the same name keep the number of their label, or else the whole label.
    """
    settings = swept_settings(entries)
    names = [without_settings(entry.label, own) for entry, own in zip(entries, settings, strict=True)]
    for group in groups:
        taken = [names[i] for i in group.rows]
        for i in group.rows:
            number = NUMBERED.search(entries[i].label)
            if taken.count(names[i]) > 1:
                names[i] = entries[i].label if number is None else names[i] + number[0]
    return names


def _settings(entry: Entry) -> dict[str, str]:
    """What the label says about settings that the experiment has."""
    parts = {part for key in entry.settings for part in key.split(".")}
    found = SETTING.findall(NUMBERED.sub("", entry.label))
    return {name: _plain(value) for name, value in found if name in parts}


def _distinguishing(
    entries: Sequence[Entry], settings: Sequence[Mapping[str, str]], names: Sequence[str]
) -> list[dict[str, str]]:
    """The settings of each row that separate its group from the others."""
    kept: list[dict[str, str]] = [{} for _ in entries]
    for rows in _by_experiment(entries).values():
        of_federation = _about_federation([entries[i] for i in rows], settings[rows[0]])
        several = len({names[i] for i in rows}) > 1
        for i in rows:
            kept[i] = {
                name: value
                for name, value in settings[i].items()
                if name in of_federation or (several and name != "name")
            }
    return kept


def _about_federation(entries: Sequence[Entry], names: Iterable[str]) -> dict[str, str]:
    """The names of swept settings that change clients or data, each with its whole key."""
    values: dict[str, set[str]] = {}
    for entry in entries:
        for key, value in entry.settings.items():
            if key.startswith(FEDERATION):
                values.setdefault(key, set()).add(repr(value))
    varied = [key for key, different in values.items() if len(different) > 1]
    keys = {name: next((key for key in varied if _is_named(key, name, entries)), "") for name in names}
    return {name: key for name, key in keys.items() if key}


def _is_named(key: str, name: str, entries: Sequence[Entry]) -> bool:
    """Whether labels mean this setting by a short name: other settings can have the same, such as the ``name`` of a strategy."""
    *outer, last = key.split(".")
    if last != name:
        return name in outer
    return all(own[name] == _value(entry, key) for entry in entries if name in (own := _settings(entry)))


def _families(entries: Sequence[Entry]) -> list[str]:
    """For each row, a name that experiments with the same clients, data and systems share; empty if there is only one."""
    federations: dict[str, str] = {}
    for entry in entries:
        if entry.experiment.name not in federations:
            federations[entry.experiment.name] = clients_data_and_systems(entry.experiment)
    names: dict[str, list[str]] = {}
    for name, description in federations.items():
        names.setdefault(description, []).append(name)
    if len(names) < 2:
        return [""] * len(entries)
    return [" and ".join(names[federations[entry.experiment.name]]) for entry in entries]


def _in_words(point: Sequence[str], label: str) -> str:
    """A point of a sweep, with values as the label of one of its rows writes them: 1.0 and not 1."""
    written = {f"{name}={_plain(value)}": f"{name}={value}" for name, value in SETTING.findall(NUMBERED.sub("", label))}
    return ", ".join(written.get(part, part) for part in point if part)


def _reference(entries: Sequence[Entry], names: Sequence[str], rows: Sequence[int], asked: str) -> int:
    """The row that was asked for, or else the one called uniform, the first row with uniform selection, or the first row."""
    by_label = [i for i in rows if asked and asked in (entries[i].label, names[i])]
    uniform = [i for i in rows if entries[i].strategy == "uniform"]
    called_so = [i for i in uniform if names[i] == "uniform"]  # whatever the order in which runs were named
    return next(iter([*by_label, *called_so, *uniform, *rows]))
