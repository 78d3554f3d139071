"""Updates as plain data, so that checks can compare them to the bit."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcohort.algorithms import ModelState, Update
from fedcohort.core.files.state_files import pack
from fedcohort.engines.base import Engine
from fedcohort.selection import Cohort
from fedcohort.testing.base import (
    ControlVariates,
)

__all__ = ["PlainUpdate", "alike_updates", "as_plain", "stopping_cohort", "trained"]

PlainUpdate = dict[str, Any]
"""The fields of an update by name."""


def as_plain(update: Update) -> PlainUpdate:
    """The fields of an update by name, without sets."""
    values = {field.name: copy.deepcopy(getattr(update, field.name)) for field in dataclasses.fields(Update)}
    values["sent"] = None if update.sent is None else sorted(update.sent)
    values["report"] = dict(sorted(update.report.items()))
    return values


def trained(
    engine: Engine, model: ModelState, t: int, clients: Sequence[int], epochs: Sequence[int] | None = None
) -> list[PlainUpdate]:
    """Train a cohort, and return its updates as plain data."""
    cohort = Cohort(np.array(clients, dtype=np.int64), epochs=None if epochs is None else np.array(epochs))
    return [as_plain(update) for update in engine.train(model, t, cohort, ControlVariates())]


def stopping_cohort(clients: Sequence[int]) -> Cohort:
    """A cohort of clients that stop when a quantile of their held-out scores is low enough."""
    stop = {"rule": "conformal", "alpha": 0.7, "theta": 0.723}
    return Cohort(np.array(clients), epochs=np.full(len(clients), 6), stop=stop)


def alike_updates(first: list[PlainUpdate], second: list[PlainUpdate]) -> bool:
    """Whether two lists of updates are equal to the bit."""
    return pack({"": first}) == pack({"": second})
