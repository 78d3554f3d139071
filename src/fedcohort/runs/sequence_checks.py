"""Refuse, before the first round, settings that have no meaning for sequences of tokens."""

from typing import TYPE_CHECKING

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.plugins import short_name
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.data.token_data import TokenDataset
from fedcohort.selection import Conformal

if TYPE_CHECKING:
    from fedcohort.experiment import Experiment
    from fedcohort.federation.data.datasets import Dataset

__all__ = ["BY_CLASS", "NEED_CLASSES", "SEQUENCE_MODELS", "check_sequences"]

SEQUENCE_MODELS = ("lstm", "transformer")
"""Built-in models for sequences of tokens."""
BY_CLASS = (
    "dirichlet_class", "dirichlet_client", "dominant_class", "given_counts", "given_sizes", "random_fractions", "shards",
)  # fmt: skip
"""Built-in partitions that divide samples by their class, which sequences with a label for each position do not have."""
NEED_CLASSES = {"feddf": "FedDF", "rhfl": "RHFL"}
"""Built-in algorithms that compare models by one prediction for each public sample: their names and their classes."""


def check_sequences(experiment: "Experiment", given: Given, dataset: "Dataset") -> None:
    """Refuse an experiment with settings that sequences of tokens do not allow; other data sets pass.

    Args:
        experiment: the experiment.
        given: the model and the algorithm that were given in Python replace those of the experiment.
        dataset: its data.

    Raises:
        UsageError: a setting is not possible; the message says which settings are.
    """
    if not isinstance(dataset, TokenDataset):
        return
    model = experiment.model
    if given.model is None and model.name in model.table.builtin and model.name not in SEQUENCE_MODELS:
        names = " or ".join(map(repr, SEQUENCE_MODELS))
        raise _refused(
            "model", model.name, "reads numbers", dataset, f"{names}, or a model of your own that embeds them"
        )
    shift = short_name(experiment.federation.feature_shift.name)
    if shift != "none":
        raise _refused("federation.feature_shift", shift, "changes numbers", dataset, "'none'")
    if dataset.each_position:
        _check_each_position(experiment, given, dataset)


def _check_each_position(experiment: "Experiment", given: Given, dataset: TokenDataset) -> None:
    """Refuse what needs one label for each sample."""
    federation = experiment.federation
    noise = short_name(federation.label_noise.name)
    if federation.partition.name in BY_CLASS:
        natural = "" if dataset.writers is None else "'natural' (one client for each role), "
        reason, works = "divides samples by their class", f"{natural}'iid' or 'quantity'"
        raise _refused("federation.partition", federation.partition.name, reason, dataset, works)
    if noise != "none":
        raise _refused("federation.label_noise", noise, "changes the class of samples", dataset, "'none'")
    name = experiment.algorithm.name if given.algorithm is None else type(given.algorithm).__name__
    if name in NEED_CLASSES or name in NEED_CLASSES.values():
        reason = "compares models by one prediction for each sample"
        raise _refused("algorithm", name, reason, dataset, "another algorithm, such as 'fedavg'")
    selector = experiment.selection.build() if given.selector is None else given.selector
    if isinstance(selector, Conformal) and selector.adaptive_alpha:
        raise UsageError(
            "selection.adaptive_alpha = true: counts the validation samples outside the prediction sets, and the data set "
            f"{shown(dataset.name)} has a label for each token of its sequences; use false"
        )


def _refused(section: str, name: str, reason: str, dataset: TokenDataset, works: str) -> UsageError:
    """The error for a plug-in that cannot be used with these sequences."""
    has = "has a label for each token of its sequences" if dataset.each_position else "has sequences of tokens"
    return UsageError(f"{section}.name = {name!r}: {reason}, and the data set {shown(dataset.name)} {has}; use {works}")
