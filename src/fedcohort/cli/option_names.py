"""Errors of commands name options where functions of Python name their arguments: ``--strategy``, and not ``strategies``."""

import re

__all__ = ["with_option_names"]

_OPTIONS = {
    "folder": "--out",
    "labels": "--row",
    "margin": "--margin",
    "max_runs": "--max-runs",
    "measure": "--measure",
    "objective": "--objective",
    "reference": "--reference",
    "round": "--round",
    "runs": "--runs",
    "strategies": "--strategy",
}
"""The options by the arguments that errors name; no setting of an experiment has the name of one of these arguments."""


def with_option_names(error: str) -> str:
    """The text of an error, which may begin with an argument and its value, for a command.

    A single value stays beside the name. A Python list does not, since no user of the command has written it.
    """
    if error.startswith("over "):  # and the setting that varies
        return f"--{error}"
    found = re.match(r"(\w+) = (\[.*?\]: )?", error)
    if found is None or found[1] not in _OPTIONS:
        return error
    between = ": " if found[2] else " "
    return f"{_OPTIONS[found[1]]}{between}{error[found.end() :]}"
