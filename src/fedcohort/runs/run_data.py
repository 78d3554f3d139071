"""The data of a run: load them, make them a part of the run's identity, and let them decide settings that were not given."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedcohort.core.errors import UsageError
from fedcohort.core.words.formatted_values import counted
from fedcohort.experiment import Cell, Experiment
from fedcohort.experiment.given_objects import HANDED_OVER, Given
from fedcohort.experiment.handed_over import check_handed_over
from fedcohort.experiment.unnamed_settings import BUILTIN_TEXT
from fedcohort.federation.data import datasets, load_dataset
from fedcohort.federation.data.class_subset import first_classes
from fedcohort.federation.data.datasets import Dataset, standardised
from fedcohort.federation.data.load_dataset import is_found
from fedcohort.federation.data.own_data_names import is_own
from fedcohort.federation.default_partition import default_partition
from fedcohort.federation.public_samples import PublicSet, choose_public

__all__ = ["fingerprint_of", "has_own_model", "key_of", "load_data", "on_data"]

log = logging.getLogger("fedcohort")
"""Reports which partition was chosen for data without a named one, and ids of clients that are not used."""


def fingerprint_of(experiment: Experiment, given: Given) -> str:
    """Fingerprint of the data of the experiment, as the record stores it."""
    return load_data(experiment, given)[1].fingerprint


def load_data(experiment: Experiment, given: Given) -> tuple[Dataset, PublicSet]:
    """The data set of an experiment, and its public part."""
    public = experiment.public

    def proxy(name: str) -> Dataset:
        if given.public_data is not None:
            return given.public_data
        if name == HANDED_OVER:
            raise UsageError(
                f"public.name = {HANDED_OVER!r}: no samples were given; use fedcohort.run(…, public=…), 'holdout' or a data set"
            )
        return _loaded(given, name)

    dataset = first_classes(_dataset(experiment, given), experiment.data.classes)
    dataset = datasets.part(dataset, experiment.data.share)
    name = public.name if given.public is None else HANDED_OVER
    return dataset, choose_public(name, public.share, dataset, experiment.seed, load=proxy)


def _dataset(experiment: Experiment, given: Given) -> Dataset:
    """The data set that was given in Python, or else that of the experiment."""
    data = experiment.data
    if given.data is not None:
        return given.data if data.standardise is None else standardised(given.data, data.standardise)
    settings = {
        "image_column": data.image_column,
        "label_column": data.label_column,
        "client_column": data.client_column,
        "feature_columns": data.feature_columns,
        "window": data.window,
        "task": data.task,
        "numeric": data.numeric,
    }
    return _loaded(given, data.name, standardise=data.standardise, **settings)


def _loaded(given: Given, name: str, **settings: Any) -> Dataset:
    """A data set by its name. A user's own function or table is loaded once for all runs of a call."""
    if not is_own(name):
        return load_dataset.load(name, data_dir=given.data_dir, **settings)
    key = (name, repr(sorted(settings.items())))
    if key not in given.loaded:
        given.loaded[key] = load_dataset.load(name, data_dir=given.data_dir, **settings)
    return given.loaded[key]


def key_of(experiment: Experiment, given: Given) -> str:
    """The hash of a run: of its settings, of objects from Python, and of the content of a user's own data.

    Two entries keep stacked runs apart from those of earlier versions, which cut stacks in the order of the cohort, and did not
    recognize rows of layers in a user's own network: both change last digits.
    """
    parts = [given.key()] if given.key() else []
    if experiment.engine.plan == "stacked":
        parts.append("stacks by size")
    if experiment.engine.plan == "stacked" and has_own_model(experiment, given):
        parts.append("rows of layers in stacks")
    if (given.data is None and is_own(experiment.data.name)) or (
        given.data is not None and experiment.data.standardise is not None
    ):
        parts.append(f"data {_dataset(experiment, given).fingerprint}")
    if given.public is None and is_own(experiment.public.name):
        parts.append(f"public {_loaded(given, experiment.public.name).fingerprint}")
    return experiment.key("|".join(parts))


def has_own_model(experiment: Experiment, given: Given) -> bool:
    """Whether the model is not one of FedCohort's."""
    if given.model is None:
        return experiment.model.name not in experiment.model.table.builtin
    kind = given.model if isinstance(given.model, type) else type(given.model)
    return not kind.__module__.startswith("fedcohort.models")


# --- settings that the data decide --------------------------------------------------------------------------------------------


def on_data(cell: Cell, given: Given) -> Cell:
    """The cell; for data of users, with the settings that were not given as the data need them.

    Without a partition, clients of the data become the clients, or the samples are divided by a Dirichlet partition that suits their
    number. What was chosen is reported.

    Raises:
        UsageError: the experiment is a description whose objects from Python were not handed over again.
    """
    if before := cell.experiment.handed_over:
        check_handed_over(before, given.objects())
        cell = replace(cell, experiment=cell.experiment.with_handed_over({}))
    experiment = cell.experiment
    if not (given.data is not None or is_own(experiment.data.name) or _is_found(experiment)):
        return cell
    dataset, public = load_data(experiment, given)
    _say_unknown_clients(given, dataset)
    settings = _chosen(experiment, given, dataset, len(public.rest))
    return replace(cell, experiment=experiment.settled(settings)) if experiment.unnamed else cell


def _say_unknown_clients(given: Given, dataset: Dataset) -> None:
    """Report test samples of clients that have no training samples."""
    unknown = 0 if dataset.test_clients is None else int((dataset.test_clients < 0).sum())
    if unknown:
        _say(
            given,
            f"data: {unknown} of {len(dataset.test_labels)} test samples are of clients without training samples; they count in "
            "the test accuracy, and in that of no client",
        )


def _is_found(experiment: Experiment) -> bool:
    """Whether the data are a folder or a text, and settings are left to them."""
    if experiment.data.name == BUILTIN_TEXT:
        return "federation.partition" in experiment.unnamed
    return bool(experiment.unnamed) and is_found(experiment.data.name)


def _chosen(experiment: Experiment, given: Given, dataset: Dataset, num_samples: int) -> Mapping[str, object]:
    """The settings that the data decide, by their dotted keys."""
    if "federation.partition" not in experiment.unnamed:
        return _for_named_partition(experiment, given, dataset)
    if dataset.writers is not None:
        return _natural(experiment, given, dataset)
    return _divided(experiment, given, dataset, num_samples)


def _for_named_partition(experiment: Experiment, given: Given, dataset: Dataset) -> Mapping[str, object]:
    """The number of clients of a named partition: for natural clients, as many as the data have."""
    partition, clients = experiment.federation.partition, experiment.federation.clients
    if dataset.writers is not None and partition.is_natural and "federation.clients" in experiment.unnamed:
        eligible = _num_eligible(dataset, int(partition.parameters["min_size"]))
        if eligible:  # without any, the partition says so
            clients = eligible
            _say(given, f"federation.clients: not given, so {clients}, all clients of the data with enough samples")
    elif dataset.writers is not None and not partition.is_natural and partition.name in partition.table.builtin:
        _say(
            given,
            f"federation.partition = {partition.name!r}: does not use the ids of the {dataset.num_writers} clients in the data; "
            "to keep these clients, use 'natural'",
        )
    return _with_clients(experiment, clients)


def _natural(experiment: Experiment, given: Given, dataset: Dataset) -> Mapping[str, object]:
    """The clients of the data as clients: all of them, unless a number is given."""
    known = dataset.num_writers
    number = known if "federation.clients" in experiment.unnamed else experiment.federation.clients
    kept = f"the {counted(number, 'client')}" if number == known else f"{number} of {known} clients"
    if number <= known:  # the partition reports a larger number
        _say(given, f"federation.partition: not given, so 'natural': {kept} of the data")
    return {**_with_clients(experiment, number), "federation.partition": {"name": "natural", "min_size": 1}}


def _divided(experiment: Experiment, given: Given, dataset: Dataset, num_samples: int) -> Mapping[str, object]:
    """A partition that suits the number of samples; with fewer samples than the default number of clients, fewer clients."""
    clients = experiment.federation.clients
    if "federation.clients" in experiment.unnamed:
        clients = min(clients, num_samples)
    if clients > num_samples:
        return {}  # the partition reports it
    if dataset.train_labels.ndim == 2:
        _say(given, "federation.partition: not given, so 'iid': every position of a sequence has a label of its own")
        return {**_with_clients(experiment, clients), "federation.partition": {"name": "iid"}}
    rule = default_partition(dataset.train_labels, clients)
    _say(
        given,
        f"federation.partition: not given, so 'dirichlet_class' with alpha = {rule.alpha:g} and min_size = {rule.min_size}, which "
        f"suit {num_samples} samples of {counted(dataset.num_classes, 'class', 'classes')} for {counted(clients, 'client')}",
    )
    chosen = {"name": "dirichlet_class", "alpha": rule.alpha, "min_size": rule.min_size}
    return {**_with_clients(experiment, clients), "federation.partition": chosen}


def _with_clients(experiment: Experiment, clients: int) -> dict[str, object]:
    """The number of clients, and fewer to select if there are not as many."""
    settings: dict[str, object] = {"federation.clients": clients}
    if "selection.k" in experiment.unnamed:
        settings["selection.k"] = min(experiment.selection.k, clients)
    return settings


def _num_eligible(dataset: Dataset, min_size: int) -> int:
    """Number of clients in the data that have at least ``min_size`` training samples."""
    assert dataset.writers is not None
    return int(np.count_nonzero(np.bincount(dataset.writers) >= max(min_size, 1)))


def _say(given: Given, message: str) -> None:
    """Report a choice about the clients' data once for all runs of a call."""
    if given.divides_data and message not in given.said:
        given.said.add(message)
        log.warning("%s", message)
