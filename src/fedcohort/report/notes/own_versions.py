"""Rows with a part that is an own design, or an own reading of its source, and not a published method: of FedCohort or of the user."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedcohort.core.plugins import short_name
from fedcohort.core.words.formatted_values import first_in_words

if TYPE_CHECKING:
    from fedcohort.experiment import Experiment
    from fedcohort.study.comparison import Comparison

__all__ = ["about_own_versions", "mark_of", "unpublished"]

SHOWN = 6
"""Largest number of rows that the sentence names."""


def unpublished(experiment: "Experiment", meta: Mapping[str, str]) -> list[str]:
    """A sentence for each part of the experiment that is an own design or reading of its source, not a published method."""
    sentences = [
        f"{short_name(name)}: an own design or reading of its source, not a published method"
        if _of_fedcohort(experiment, name)
        else f"{short_name(name)}: an own method, not part of FedCohort"
        for name in _own_parts(experiment, meta)
    ]
    if (title := meta.get("algorithm", "")).endswith("(ours)"):
        sentences.append(f"{title}: its source has no such local optimizer")
    return sentences


def mark_of(experiment: "Experiment", meta: Mapping[str, str]) -> str:
    """``own version`` for a row with such a part of FedCohort, ``own method`` for one with such parts of the user only, or empty."""
    built_in = [_of_fedcohort(experiment, name) for name in _own_parts(experiment, meta)]
    return "own version" if any(built_in) else "own method" if built_in else ""


def about_own_versions(compared: "Comparison") -> str:
    """Sentences that name the rows with a part of FedCohort that is no published method, and those with such a part of the user."""
    of_fedcohort, of_users = [], []
    for row in compared.rows:
        parts = _own_parts(row.experiment, next((run.meta for run in row.runs.values()), {}))
        built_in = [_of_fedcohort(row.experiment, name) for name in parts]
        of_fedcohort += [repr(row.label)] * any(built_in)
        of_users += [repr(row.label)] * (not all(built_in))
    sentences = []
    if of_fedcohort:
        they, say = ("It is", "says") if len(of_fedcohort) == 1 else ("They are", "say")
        sentences.append(
            f"Own version: {first_in_words(of_fedcohort, SHOWN)}. {they} in part a design of FedCohort, or its reading of a source "
            f"that leaves something important open, and {say} nothing certain about a published method."
        )
    if of_users:
        they = "It uses" if len(of_users) == 1 else "They use"
        sentences.append(
            f"Own method: {first_in_words(of_users, SHOWN)}. {they} a class that is not part of FedCohort, and that no card "
            "describes as a published method."
        )
    return " ".join(sentences)


def _of_fedcohort(experiment: "Experiment", name: str) -> bool:
    """Whether the name of a strategy or an algorithm is that of a built-in one; all others are classes of the user."""
    return name in experiment.selection.table.builtin or name in experiment.algorithm.table.builtin


def _own_parts(experiment: "Experiment", meta: Mapping[str, str]) -> list[str]:
    """The names of such parts, as the run's record has them; as the experiment has them if the record is older."""
    return meta["ours"].splitlines() if "ours" in meta else experiment.ours(built_in=True)
