"""Own measures of an experiment: functions of users that turn predictions on the test set into one number per evaluated round."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.plugins import from_file, is_file_name, short_name, whole_name

__all__ = ["RESERVED", "OwnMeasure", "by_name", "check_names", "complete_names"]

OwnMeasure: TypeAlias = Callable[["np.ndarray", "np.ndarray"], float]
"""A function of the predictions on the test set and its labels; it returns one number. See ``measures.extra``."""

LONGEST = 40
"""Largest number of characters in the name of a measure, which is the heading of a column."""

RESERVED = frozenset({
    "accuracy", "accuracy_sd", "admitted", "algorithm", "available", "best_accuracy", "bytes", "bytes_to_target",
    "class_accuracy", "client_accuracy", "client_accuracy_sd", "client_passes",
    "corrected_high", "corrected_low", "difference", "difference_high", "difference_low",
    "diverged", "early_stop_accuracy", "jain", "jain_random", "label", "local_accuracy", "macro_accuracy", "note", "p_holm", "p_value",
    "paired_seeds", "path", "personal_accuracy", "personal_gain",
    "point", "reached", "reference", "round", "round_time", "rounds", "rounds_to_target", "seed", "seeds",
    "selected", "selection", "simulated_time", "steps", "target_accuracy", "test_accuracy", "test_loss", "time_to_target",
    "train_loss", "trained", "unfinished", "updates", "validation_accuracy", "validation_loss", "verdict", "wall_seconds",
    "worst_client_accuracy", "worst_personal_accuracy",
})  # fmt: skip
"""Names of columns that the tables of a run and of a comparison have already."""


def complete_names(names: Sequence[object]) -> list[str]:
    """The names of own measures with absolute paths, each imported and checked.

    Args:
        names: functions in files, ``path/to/file.py:function``.

    Raises:
        UsageError: a name is not of this form, there is no such function, or two have the same name.
    """
    complete = []
    for name in names:
        if not isinstance(name, str) or not is_file_name(name):
            raise UsageError(
                f"measures.extra = {shown(name)}: should be a function in a file of yours, such as 'my.py:f1'"
            )
        complete.append(whole_name(name, Path.cwd()))
    by_name(complete)
    return complete


def by_name(names: Iterable[str]) -> dict[str, OwnMeasure]:
    """The functions of an experiment by their names in tables; their files are run.

    Raises:
        UsageError: a function is missing, is not a function, or two have the same name.
    """
    functions: dict[str, OwnMeasure] = {}
    for name in names:
        function = from_file(name, "measures.extra", "function")
        if isinstance(function, type) or not callable(function):
            kind = "a class" if isinstance(function, type) else f"an object of type {type(function).__name__}"
            raise UsageError(
                f"measures.extra = {name!r}: is {kind}; give a function of (predictions, labels) that returns one number"
            )
        short = short_name(name)
        if short in functions:
            raise UsageError(
                f"measures.extra: two functions are called {short!r}; rename one, because tables show this name"
            )
        functions[short] = function
    check_names(functions, "measures.extra")
    return functions


def check_names(measures: Mapping[Any, Any], where: str) -> None:
    """Refuse names that cannot be headings of columns of their own.

    Raises:
        UsageError: a name is empty or too long, or a column has it already.
    """
    for name in measures:
        if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > LONGEST:
            raise UsageError(f"{where}: the name {shown(name)} should be text of 1 to {LONGEST} characters")
        if name in RESERVED or any(name == f"{other}_sd" for other in measures):
            raise UsageError(f"{where}: {name!r} is the name of another column of the tables; rename the function")
