"""Complete a description: check the parameters of every plug-in against its class and fill in its defaults."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcohort.algorithms.local import Training
from fedcohort.core.errors import UsageError, nearest
from fedcohort.core.parameters import make
from fedcohort.core.plugins import is_file_name
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
from fedcohort.experiment.values import anchored, flattened

__all__ = ["NOT_IN_ROWS", "completed"]

_PLUGS: dict[tuple[str, ...], type[Choice]] = {
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


def completed(values: Mapping[str, Any], *, recorded: bool = False) -> dict[str, Any]:
    """Check the parameters of every plug-in against its class and fill in its defaults; split rows from their overrides."""
    complete = dict(values)
    for path, choice in _PLUGS.items():
        where = ".".join(path)
        parent = complete
        if len(path) == 2:
            inner = complete.get(path[0], {})
            if not isinstance(inner, Mapping):
                continue
            parent = complete[path[0]] = dict(inner)
        given = parent.get(path[-1], {})
        if isinstance(given, str):
            given = {"name": given}
        if isinstance(given, Mapping):
            parent[path[-1]] = _plug(choice, given, where, recorded)
        elif not isinstance(given, choice):
            raise _no_plug(where, given, choice)
    if isinstance(complete.get("training"), Mapping):
        complete["training"] = make(Training, _with_loss(complete["training"], recorded), "training")
    if isinstance(complete.get("variants"), list | tuple):
        complete["variants"] = tuple(_variant(row, i) for i, row in enumerate(complete["variants"]))
    return complete


def _with_loss(training: Mapping[str, Any], recorded: bool) -> dict[str, Any]:
    """``[training]`` with the loss's name and parameters complete."""
    given = training.get("loss", "ce")
    flat = {"name": given} if isinstance(given, str) else given
    if not isinstance(flat, Mapping):
        raise _no_plug("training.loss", given, Loss)
    return {**training, "loss": flattened(_plug(Loss, flat, "training.loss", recorded))}


def _no_plug(where: str, given: Any, choice: type[Choice]) -> UsageError:
    return UsageError(
        f"{where} = {given!r}: should be a name, or a table with a name and its parameters, such as "
        f"{choice.model_fields['name'].default!r}"
    )


def _plug(choice: type[Choice], given: Mapping[str, Any], where: str, recorded: bool) -> dict[str, Any]:
    own = {key: value for key, value in given.items() if key in choice.model_fields and key != "parameters"}
    rest = {key: value for key, value in given.items() if key not in own and key != "parameters"}
    rest |= given.get("parameters", {}) if isinstance(given.get("parameters"), Mapping) else {}
    name = own.get("name", choice.model_fields["name"].default)
    if not isinstance(name, str):
        raise UsageError(f"{where}.name = {name!r}: should be a name; {nearest(str(name), choice.table)}")
    if recorded and name in choice.table.builtin:
        return {**own, "name": name, "parameters": rest}
    if is_file_name(name):
        name = anchored(name, Path.cwd())
    found = choice.table.find(name, f"{where}.name")
    if not isinstance(found, type):
        raise UsageError(f"{where}.name = {name!r}: is a {type(found).__name__}; a {choice.table.kind} is a class")
    if rest and not hasattr(found, "__pydantic_fields__"):
        raise UsageError(f"{where}.{min(rest)}: {name!r} takes no parameters; a class with @parameters has them")
    try:
        instance: Any = make(found, rest, where)
    except UsageError as error:
        fields = [*(f for f in choice.model_fields if f != "parameters"), *getattr(found, "__pydantic_fields__", {})]
        unknown = next((key for key in rest if key not in fields), None)
        if unknown is None:
            raise
        raise UsageError(f"{where}.{unknown}: unknown key for {name!r}; {nearest(unknown, fields)}") from error
    parameters = {key: getattr(instance, key) for key in getattr(found, "__pydantic_fields__", {})}
    complete: dict[str, Any] = {**own, "name": name, "parameters": parameters}
    return complete


def _variant(row: Any, position: int) -> Variant:
    if isinstance(row, Variant):
        return row
    if not isinstance(row, Mapping) or not isinstance(row.get("label"), str) or not row["label"].strip():
        raise UsageError(f'variants.{position}.label: required; every [[variants]] table needs a label = "…"')
    for key in row:
        if key in NOT_IN_ROWS:
            raise UsageError(
                f"variants.{row['label']}.{key}: cannot differ between rows; set it once for the experiment"
            )
    return Variant(label=row["label"], overrides={key: value for key, value in row.items() if key != "label"})


NOT_IN_ROWS = ("name", "seed", "seeds", "variants", "sweep", "public")
