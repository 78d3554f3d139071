"""The experiment that a command was given, one of its rows, and the row that the others are compared with."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fedcohort.core.errors import UsageError, nearest

if TYPE_CHECKING:
    from fedcohort.experiment import Experiment

__all__ = ["experiment_of", "reference_label", "row_of"]


def experiment_of(file: str | None, settings: Sequence[str], trust: bool, *, variants: bool = False) -> "Experiment":
    """The experiment of a file, or the quickstart, with settings from ``--set``.

    ``trust`` permits the file to be the description in a run directory that names plug-in files. With ``variants``, the quickstart
    has the variants of the quickstart comparison.
    """
    from fedcohort.experiment import Experiment, load, parse_overrides, quickstart

    if file is not None:
        return load(file, settings, trust=trust)
    return (quickstart() if variants else Experiment()).with_overrides(parse_overrides(settings))


def row_of(experiment: "Experiment", variant: str | None) -> "tuple[str, Experiment]":
    """The label and the experiment of the base, or of the row called ``variant``, with all seeds."""
    plain = experiment.model_copy(update={"sweep": {}})
    rows = dict(experiment.rows()) | dict(plain.rows())
    label = plain.label if variant is None else variant
    if label not in rows:
        raise UsageError(f"--variant {label!r}: the experiment has no such row; {nearest(label, rows)}")
    return label, rows[label]


def reference_label() -> str:
    """The label that ``--reference`` of the current command names; empty without it."""
    return click.get_current_context().meta.get("fedcohort.reference") or ""
