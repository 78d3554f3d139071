"""Rows with a part that is an own design, or an own reading of its source, and not a published method."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedcohort.core.formatted_values import first_in_words
from fedcohort.core.plugins import short_name

if TYPE_CHECKING:
    from fedcohort.experiment import Experiment
    from fedcohort.study.comparison import Comparison

__all__ = ["about_own_versions", "unpublished"]

SHOWN = 6
"""Largest number of rows that the sentence names."""


def unpublished(experiment: "Experiment", meta: Mapping[str, str]) -> list[str]:
    """A sentence for each part of the experiment that is an own design or reading of its source, not a published method."""
    sentences = [
        f"{short_name(name)}: an own design or reading of its source, not a published method"
        for name in _own_parts(experiment, meta)
    ]
    if (title := meta.get("algorithm", "")).endswith("(ours)"):
        sentences.append(f"{title}: its source has no such local optimizer")
    return sentences


def about_own_versions(compared: "Comparison") -> str:
    """A sentence that names the rows with such a part; empty without one."""
    own = [
        repr(row.label)
        for row in compared.rows
        if _own_parts(row.experiment, next((run.meta for run in row.runs.values()), {}))
    ]
    if not own:
        return ""
    they, say = ("It is", "says") if len(own) == 1 else ("They are", "say")
    return (
        f"Own version: {first_in_words(own, SHOWN)}. {they} in part a design of FedCohort, or its reading of a source that "
        f"leaves something important open, and {say} nothing certain about a published method."
    )


def _own_parts(experiment: "Experiment", meta: Mapping[str, str]) -> list[str]:
    """The names of such parts, as the run's record has them; as the experiment has them if the record is older."""
    return meta["ours"].splitlines() if "ours" in meta else experiment.ours(built_in=True)
