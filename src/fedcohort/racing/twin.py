"""Build the twin of a federation: clients on public data with the sizes, classes, times and availability of a table of clients."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.files.paths import resolved
from fedcohort.core.words.formatted_values import count, number
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.nested_values import merge
from fedcohort.experiment.plain_values import MAX_CHARACTERS
from fedcohort.federation.client_table import ClientTable
from fedcohort.federation.data.datasets import Dataset
from fedcohort.federation.data.own_data_names import is_table
from fedcohort.racing.scaled_counts import scaled_counts, scaled_sizes
from fedcohort.runs.run_data import load_data

__all__ = ["Twin", "build_twin"]

SMALL = 0.2
"""Scale below which larger data are suggested."""
FEW = 10
"""Median number of samples of the twin's clients below which a race on it says little."""
DIGITS = 6
"""Significant digits of times and shares in the experiment of a twin."""


@dataclass(frozen=True, eq=False)
class Twin:
    """A federation on public data that is like the one of a table.

    Attributes:
        table: the clients.
        experiment: the twin, as an experiment of one row.
        data: name of the data set.
        scale: samples of the twin's clients, divided by those of the table, at most 1.
        because: why the scale is below 1; empty otherwise.
        stands_for: class of the data by class of the table; empty if the table has no classes.
        order: the class of the data for each class of the table, int64 [K]; empty if the table has no classes.
    """

    table: ClientTable
    experiment: Experiment
    data: str
    scale: float
    because: str
    stands_for: Mapping[str, str]
    order: Indices

    @property
    def notes(self) -> list[str]:
        """What was scaled or assumed, in sentences."""
        federation, systems, table = self.experiment.federation, self.experiment.systems, self.table
        found = []
        if self.because:
            more = " Larger data (--data) would keep more." if self.scale < SMALL else ""
            found.append(f"Sizes are scaled by {number(self.scale, 2)}, because {self.because}.{more}")
            if (median := float(np.median(self.table.samples)) * self.scale) < FEW:
                found.append(
                    f"Half of its clients have about {max(1, round(median))} samples or fewer, too few to learn from: with these "
                    "data, a race says little about your federation."
                )
        if table.counts is None:
            alpha = federation.partition.parameters.get("alpha")
            law = f"Dirichlet mixtures with alpha = {alpha:g}" if alpha is not None else repr(federation.partition.name)
            found.append(f"Counts of classes are not given, so classes follow {law} (federation.partition).")
        if table.seconds is None:
            found.append(
                f"Times are not given, so they follow {systems.latency.name!r} (systems.latency) in units of a pass over one sample."
            )
        elif table.communication is None:
            found.append("Communication times are not given, so communication takes no time (systems.network).")
        if table.available is None:
            law = "all clients are always available" if systems.availability.name == "always" else "it is as set"
            found.append(f"Availability is not given, so {law} (systems.availability).")
        return found


def build_twin(table: ClientTable, data: str, settings: Mapping[str, object], given: Given) -> Twin:
    """The twin of a federation.

    Args:
        table: the clients.
        data: name of the data set.
        settings: nested settings of the experiment that replace those of the twin.
        given: the folder of data sets.

    Raises:
        UsageError: the data have too few samples or classes, or a setting cannot be used.
    """
    place = str(resolved(data, Path.cwd())) if is_table(data) else data
    own: dict[str, Any] = {"name": f"{table.name}-twin", "data": {"name": place}, "federation": {"clients": len(table)}}
    dataset, rest = _samples(Experiment(**merge(own, settings, where="")), given)
    labels, order = dataset.train_labels[rest], np.zeros(0, np.int64)
    partition: dict[str, Any]
    if table.counts is None:
        sizes = scaled_sizes(table.samples, len(labels))
        partition = {"name": "given_sizes", "sizes": [] if sizes is None else sizes.tolist()}
        because = f"{dataset.name} has {count(len(labels))} training samples"
    else:
        _check_classes(table, dataset)
        num_classes = len(table.classes)
        if num_classes < dataset.num_classes:
            own["data"]["classes"] = num_classes
        pools = np.bincount(labels, minlength=num_classes)[:num_classes]
        order = _order(table.counts, pools)
        counts = scaled_counts(table.counts[:, np.argsort(order)], pools)
        sizes = None if counts is None else counts.sum(axis=1)
        partition = {"name": "given_counts", "counts": [] if counts is None else counts.tolist()}
        because = _why(table, dataset, pools, order)
    if sizes is None:
        raise UsageError(
            f"data = {shown(data)}: has too few samples for {count(len(table))} clients ({because}); use data with at least "
            f"{count(len(table))} training samples, or fewer clients"
        )
    scale = float(sizes.sum() / table.samples.sum())
    own |= {
        "federation": {"clients": len(table), "partition": partition},
        "systems": _systems(table),
        "selection": {"k": _selected(len(table))},
    }
    experiment = Experiment(**merge(own, settings, where=""))
    _check_length(experiment, table)
    stands_for = {name: str(dataset.classes[c]) for name, c in zip(table.classes, order.tolist(), strict=True)}
    return Twin(table, experiment, dataset.name, scale, because if scale < 1 else "", stands_for, order)


def _samples(experiment: Experiment, given: Given) -> tuple[Dataset, Indices]:
    """The data set of an experiment, and the training samples that clients can have."""
    if experiment.variants or experiment.sweep:
        raise UsageError(
            "variants, sweep: a twin has one row; name the strategies that race, or vary settings with over"
        )
    dataset, public = load_data(experiment, given)
    if dataset.train_numbers is not None or dataset.train_labels.ndim > 1:
        raise UsageError(
            f"data = {shown(dataset.name)}: has no classes, which a twin needs; use others, such as 'digits'"
        )
    return dataset, public.rest


def _check_classes(table: ClientTable, dataset: Dataset) -> None:
    """Refuse data with fewer classes than the table."""
    if len(table.classes) > dataset.num_classes:
        raise UsageError(
            f"data = {shown(dataset.name)}: has {dataset.num_classes} classes, and the table {len(table.classes)}; use data "
            "with as many, such as 'emnist_letters' (26), 'emnist_balanced' (47) or 'femnist' (62), or merge rare classes"
        )


def _order(counts: Indices, pools: Indices) -> Indices:
    """The class of the data for each class of the table, int64 [K]: the more samples a class has, the more has its counterpart."""
    order = np.empty(len(pools), np.int64)
    order[np.argsort(-counts.sum(axis=0), kind="stable")] = np.argsort(-pools, kind="stable")
    return order


def _why(table: ClientTable, dataset: Dataset, pools: Indices, order: Indices) -> str:
    """Which class of the data limits the sizes, in words."""
    assert table.counts is not None
    limiting = int(np.argmax(table.counts.sum(axis=0) / np.maximum(pools[order], 1)))
    of_class = int(order[limiting])
    return (
        f"{dataset.name} has {count(pools.sum())} training samples, {count(pools[of_class])} of class {dataset.classes[of_class]!r}, "
        f"which stands for {table.classes[limiting]!r}"
    )


def _selected(clients: int) -> int:
    """Clients in a round: a tenth, at least 3, but at most half of them, since there is nothing to select among otherwise."""
    return max(1, min(clients // 2, max(3, round(clients / 10))))


def _systems(table: ClientTable) -> dict[str, Any]:
    """The speed and availability of the clients, as far as they are known."""
    systems: dict[str, Any] = {}
    if table.seconds is not None:
        systems["latency"] = {"name": "given_times", "times_of_clients": _rounded(table.seconds)}
        systems["network"] = {"name": "share", "share": 0.0}
    if table.communication is not None:
        systems["network"] = {"name": "given_times", "times_of_clients": _rounded(table.communication)}
    if table.available is not None:
        systems["availability"] = {"name": "given_shares", "shares": _rounded(table.available)}
    return systems


def _rounded(values: Values) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values.tolist()]


def _check_length(experiment: Experiment, table: ClientTable) -> None:
    """Refuse a table that makes experiment files too long to be read.

    Raises:
        UsageError: it does.
    """
    length = len(experiment.to_toml())
    if length > MAX_CHARACTERS:
        fewer = int(0.9 * len(table) * MAX_CHARACTERS / length)
        raise UsageError(
            f"{table.name}: {count(len(table))} clients are too many for an experiment of {MAX_CHARACTERS:,} characters; draw "
            f"at most {count(fewer)} of them at random"
        )
