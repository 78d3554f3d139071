"""Complete a description: check the parameters of every plug-in and fill in its defaults."""

import inspect
from collections.abc import Collection, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.files.paths import is_folder, resolved
from fedcohort.core.given_values import plain_numbers
from fedcohort.core.parameters import make
from fedcohort.core.plugins import from_file, is_file_name, whole_name
from fedcohort.experiment.nested_values import flattened
from fedcohort.experiment.own_measures import complete_names
from fedcohort.experiment.sections import (
    Algorithm,
    Availability,
    Choice,
    FeatureShift,
    LabelNoise,
    Latency,
    Loss,
    Model,
    Network,
    Partition,
    Selection,
    Variant,
)
from fedcohort.federation.data.own_data_names import is_own, is_table, is_text

__all__ = ["CHOICES", "NOT_IN_ROWS", "completed", "plug_in_sections"]

_PLUGIN_SECTIONS: dict[tuple[str, ...], type[Choice]] = {
    ("federation", "partition"): Partition,
    ("federation", "label_noise"): LabelNoise,
    ("federation", "feature_shift"): FeatureShift,
    ("systems", "latency"): Latency,
    ("systems", "availability"): Availability,
    ("systems", "network"): Network,
    ("model",): Model,
    ("algorithm",): Algorithm,
    ("selection",): Selection,
}
"""Paths of the sections that choose a plug-in, and the schema of each."""

CHOICES: dict[tuple[str, ...], type[Choice]] = {**_PLUGIN_SECTIONS, ("training", "loss"): Loss}
"""The same, with the loss, which is a part of ``[training]``."""

NOT_IN_ROWS = ("name", "seed", "seeds", "variants", "sweep", "public")
"""Settings that are the same for all rows of a comparison."""


def plug_in_sections(experiment: object) -> dict[str, Choice]:
    """The sections of a complete experiment that choose a plug-in, by their dotted path, such as ``"federation.partition"``."""
    dotted = map(".".join, _PLUGIN_SECTIONS)
    return {path: attrgetter(path)(experiment) for path in dotted}


def completed(values: Mapping[str, Any], *, recorded: bool = False) -> dict[str, Any]:
    """A description with the parameters of every plug-in checked and complete, and every variant as a :class:`Variant`.

    Args:
        values: the description as nested plain values.
        recorded: the description is that of a run directory: no plug-in is imported, and parameters are taken as they are; see
            :meth:`Experiment.recorded`.
    """
    complete = dict(plain_numbers(values))
    for path, choice in _PLUGIN_SECTIONS.items():
        section = complete
        if len(path) == 2:
            inner = complete.get(path[0], {})
            if not isinstance(inner, Mapping):
                continue  # the schema reports it
            section = complete[path[0]] = dict(inner)
        section[path[-1]] = _choice(choice, section.get(path[-1], {}), ".".join(path), recorded)
    if not recorded:
        complete |= _own_files(complete)
    if isinstance(complete.get("training"), Mapping):
        complete["training"] = make(Training, _with_loss(complete["training"], recorded), "training")
    if isinstance(complete.get("variants"), list | tuple):
        complete["variants"] = tuple(_variant(row, i) for i, row in enumerate(complete["variants"]))
    return complete


def _own_files(values: Mapping[str, Any]) -> dict[str, Any]:
    """The sections that name data or measures in users' own files, with complete names."""
    changed: dict[str, Any] = {}
    for named in ("data", "public"):
        if isinstance(values.get(named), Mapping):
            changed[named] = _with_own_data(values[named], f"{named}.name")
    measures = values.get("measures")
    if isinstance(measures, Mapping) and isinstance(measures.get("extra"), list | tuple):
        changed["measures"] = {**measures, "extra": complete_names(measures["extra"])}
    return changed


def _with_own_data(section: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """A section with the path of a user's own data made absolute; a function is imported, so that a wrong name is reported at once."""
    name = section.get("name")
    if not isinstance(name, str) or not (is_own(name) or is_text(name)) or is_folder(Path(name)):
        return section
    if is_table(name) or is_text(name):
        return {**section, "name": str(resolved(name, Path.cwd()))}
    name = whole_name(name, Path.cwd())
    function = from_file(name, where, "function")
    if not callable(function):
        raise UsageError(
            f"{where} = {name!r}: is an object of type {type(function).__name__}; name a function that returns data"
        )
    return {**section, "name": name}


def _with_loss(training: Mapping[str, Any], recorded: bool) -> dict[str, Any]:
    """``[training]`` with the name and all parameters of the loss."""
    loss = _choice(Loss, training.get("loss", "ce"), "training.loss", recorded)
    return {**training, "loss": flattened(loss)}


def _choice(choice: type[Choice], given: object, where: str, recorded: bool) -> Any:
    """A plug-in's section from a name or a table; a complete section is returned unchanged."""
    if isinstance(given, str):
        given = {"name": given}
    if isinstance(given, Mapping):
        return _plugin_section(choice, given, where, recorded)
    if isinstance(given, choice):
        return given
    raise UsageError(
        f"{where} = {shown(given)}: should be a name, or a table with a name and its parameters, such as "
        f"{choice.model_fields['name'].default!r}"
    )


def _plugin_section(choice: type[Choice], given: Mapping[str, object], where: str, recorded: bool) -> dict[str, Any]:
    """A plug-in's section: the settings of the section itself, the name, and all parameters of the plug-in."""
    own, parameters = _separated(choice, given, where)
    name = own.get("name", choice.model_fields["name"].default)
    if not isinstance(name, str):
        raise UsageError(f"{where}.name = {shown(name)}: should be a name; {nearest('', choice.table)}")
    if recorded:
        return {**own, "name": name, "parameters": parameters}
    if is_file_name(name):
        name = whole_name(name, Path.cwd())
    plugin = choice.table.find(name, f"{where}.name")
    if not isinstance(plugin, type):
        raise UsageError(f"{where}.name = {name!r}: is an object of type {type(plugin).__name__}; it must be a class")
    return {**own, "name": name, "parameters": _all_parameters(choice, plugin, name, parameters, where)}


def _separated(choice: type[Choice], given: Mapping[str, object], where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the section itself, such as ``name`` and ``k``, and the parameters of the plug-in."""
    own = {key: value for key, value in given.items() if key in choice.model_fields and key != "parameters"}
    parameters = {key: value for key, value in given.items() if key not in own and key != "parameters"}
    nested = given.get("parameters", {})
    if not isinstance(nested, Mapping):
        raise UsageError(
            f"{where}.parameters = {shown(nested)}: should be a table; parameters can also stand beside the name"
        )
    return own, {**parameters, **nested}


def _all_parameters(
    choice: type[Choice], plugin: type, name: str, parameters: Mapping[str, object], where: str
) -> dict[str, Any]:
    """The parameters of a plug-in, checked, with its defaults."""
    declared = getattr(plugin, "__pydantic_fields__", None)
    if parameters and declared is None:
        raise UsageError(f"{where}.{_not_declared(choice, plugin, name, str(min(parameters, key=str)))}")
    try:
        instance: Any = make(plugin, parameters, where)
    except UsageError as error:
        fields = [*(f for f in choice.model_fields if f != "parameters"), *(declared or ())]
        unknown = next((key for key in parameters if key not in fields), None)
        if unknown is None:
            raise
        raise UsageError(f"{where}.{_unknown(plugin, name, str(unknown), fields)}") from error
    return {key: getattr(instance, key) for key in declared or ()}


def _unknown(plugin: type, name: str, key: str, fields: Collection[str]) -> str:
    """What to do about a parameter that a class does not declare, with the key before it."""
    if key in inspect.get_annotations(plugin) and "__pydantic_fields__" not in vars(plugin):
        return f"{key}: is no parameter of {name!r} yet; mark the class {plugin.__name__} with @parameters"
    value = vars(plugin).get(key)
    inherited = any(hasattr(base, key) for base in plugin.__bases__)
    if isinstance(value, bool | int | float | str) and key not in inspect.get_annotations(plugin) and not inherited:
        return f"{key}: is no parameter of {name!r}, because it has no type; write {key}: {type(value).__name__} = {value!r}"
    return f"{key}: unknown key for {name!r}; {nearest(key, fields)}"


def _not_declared(choice: type[Choice], plugin: type, name: str, key: str) -> str:
    """What to do about a parameter of a class without declared parameters, with the key before it."""
    if choice.table.kind != "model":
        return f"{key}: {name!r} takes no parameters; leave it out, or mark the class with @parameters"
    network = name.rpartition(":")[2]
    arguments: Mapping[str, inspect.Parameter] = {}
    with suppress(TypeError, ValueError):  # some callables have no signature
        arguments = inspect.signature(plugin.given).parameters  # type: ignore[attr-defined]
    if key not in arguments:
        return f"{key}: {name!r} takes no parameters; leave it out, or make it a fedcohort.Model with @parameters"
    return (
        f"{key}: {network} is called with (shape, num_classes) only; to set {key}, write a fedcohort.Model with @parameters and a "
        f"field {key}, whose build(self, shape, num_classes) returns {network}(shape, num_classes, {key}=self.{key})"
    )


def _variant(row: object, position: int) -> Variant:
    """A row of ``[[variants]]`` as its label and its overrides."""
    if isinstance(row, Variant):
        return row
    if not isinstance(row, Mapping):
        raise UsageError(
            f"variants.{position} = {shown(row)}: should be a table with a label and the settings that differ, such as "
            '{ label = "UCB", selection = "ucb" }'
        )
    if not isinstance(row.get("label", ""), str):
        label = row["label"]
        example = f", such as '{label}'" if isinstance(label, int | float) else ""
        raise UsageError(f"variants.{position}.label = {shown(label)}: should be text in quotes{example}")
    if not row.get("label", "").strip():
        raise UsageError(f'variants.{position}.label: required; every [[variants]] table needs a label = "…"')
    for key in row:
        if key in NOT_IN_ROWS:
            raise UsageError(
                f"variants.{row['label']}.{key}: cannot differ between rows; set it once for the experiment"
            )
    return Variant(label=row["label"], overrides={key: value for key, value in row.items() if key != "label"})
