"""Build everything that a run needs before its first round: data, clients, clock, strategy, algorithm, engine."""

import copy
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.core.errors import UsageError
from fedcohort.experiment import Experiment, Systems
from fedcohort.federation.datasets import Dataset
from fedcohort.record import Portrait

if TYPE_CHECKING:
    from fedcohort.federation.federation import Federation
    from fedcohort.federation.partition import Partition
    from fedcohort.federation.public import PublicSet
    from fedcohort.federation.survey import Survey
    from fedcohort.federation.systems import Clock
from fedcohort.runs.given import HANDED_OVER, Given

__all__ = ["fingerprint_of", "load_data", "prepare"]

log = logging.getLogger("fedcohort")
"""Tells which plan ``engine.plan = "auto"`` has chosen, and why."""


def fingerprint_of(experiment: Experiment, given: Given) -> str:
    """Fingerprint of the data that the experiment now names, as a run keeps it."""
    return load_data(experiment, given)[1].fingerprint


def load_data(experiment: Experiment, given: Given) -> "tuple[Dataset, PublicSet]":
    """All data of an experiment, and what of them is public."""
    from fedcohort.federation import datasets, loading
    from fedcohort.federation.public import choose_public

    data, public = experiment.data, experiment.public
    dataset = given.data or loading.load(
        data.name, data_dir=given.data_dir, image_column=data.image_column, label_column=data.label_column
    )

    def proxy(name: str) -> Dataset:
        if given.public_data is not None:
            return given.public_data
        if name == HANDED_OVER:
            raise UsageError(
                f"public.name = {HANDED_OVER!r}: nothing was handed over; use fedcohort.run(…, public=…), 'holdout' or a data set"
            )
        return loading.load(name, data_dir=given.data_dir)

    dataset = datasets.part(dataset, data.share)
    name = public.name if given.public is None else HANDED_OVER
    return dataset, choose_public(name, public.share, dataset, experiment.seed, load=proxy)


@dataclass(frozen=True, eq=False)
class Federated:
    """The clients of an experiment, and what they were made of.

    Attributes:
        dataset: all data.
        split: which of its training samples belongs to whom.
        federation: the clients as they train, with noise, local splits and shift.
        public: samples set apart for the server.
    """

    dataset: Dataset
    split: "Partition"
    federation: "Federation"
    public: "PublicSet"


def federate(experiment: Experiment, given: Given, device: str = "cpu") -> Federated:
    """The clients of an experiment: data, public samples set apart, partition, noise, local splits, shift; samples on ``device``."""
    from fedcohort.federation.federation import gather
    from fedcohort.federation.partition import partition

    seed, data = experiment.seed, experiment.data
    dataset, public = load_data(experiment, given)
    split = partition(
        experiment.federation.partition.build(),
        dataset.train_labels[public.rest],
        experiment.federation.clients,
        seed,
        None if dataset.writers is None else dataset.writers[public.rest],
    )
    split = replace(split, order=public.rest[split.order])
    federation = gather(
        dataset,
        split,
        validation=data.validation,
        seed=seed,
        label_noise=experiment.federation.label_noise.build(),
        holdout=experiment.federation.holdout,
        feature_shift=experiment.federation.feature_shift.build(),
        device=device,
    )
    return Federated(dataset, split, federation, public)


def look(experiment: Experiment, given: Given) -> "tuple[Dataset, Survey]":
    """The data of an experiment and its federation, client by client, without training anything."""
    from fedcohort.engines.local import build_module
    from fedcohort.federation.featureshift import Space, in_words
    from fedcohort.federation.survey import survey
    from fedcohort.federation.systems import Clock
    from fedcohort.models import as_model
    from fedcohort.rounds.ledger import num_bytes
    from fedcohort.training.shared import DTYPES, state_of

    found, systems, seed = federate(experiment, given), experiment.systems, experiment.seed
    federation = found.federation
    model = as_model(given.model) if given.model is not None else experiment.model.build()
    algorithm = given.algorithm if given.algorithm is not None else experiment.algorithm.build()
    start = state_of(build_module(model, federation, seed).to(dtype=DTYPES[experiment.training.precision]))
    clock = Clock(
        federation.num_samples,
        seed,
        systems.latency.build(),
        systems.availability.build(),
        systems.network.build(),
        rounds=experiment.rounds,
        deadline=systems.deadline,
        model_bytes=num_bytes([start]),
        epochs=algorithm.local_training(experiment.training).epochs,
    )
    space = Space(federation.sample_shape, np.ones(()), federation.num_clients)
    shift = in_words(experiment.federation.feature_shift.build(), space, seed=seed)
    seen = survey(found.dataset.train_labels, found.split, federation, clock, experiment.rounds, shift)
    return found.dataset, seen


@contextmanager
def prepare(experiment: Experiment, given: Given) -> Iterator[tuple[Any, str]]:
    """Everything of one run, ready for its first round: the game, and the fingerprint of its data. Closes the engine at the end."""
    from fedcohort.algorithms.server import ServerTools
    from fedcohort.engines.device import pick_device
    from fedcohort.engines.local import LocalEngine, build_module
    from fedcohort.engines.plans import choose_plan
    from fedcohort.experiment.pairings import check
    from fedcohort.federation.pooled import pooled
    from fedcohort.federation.systems import Clock
    from fedcohort.models import as_model
    from fedcohort.rounds import Game
    from fedcohort.rounds.ledger import num_bytes
    from fedcohort.selection import Census
    from fedcohort.selection.all_available import All

    seed, found = experiment.seed, federate(experiment, given, pick_device(experiment.engine.device))
    federation, public = found.federation, found.public
    selector = copy.deepcopy(given.selector) if given.selector is not None else experiment.selection.build()
    algorithm = copy.deepcopy(given.algorithm) if given.algorithm is not None else experiment.algorithm.build()
    for part in (selector, algorithm):
        experiment.meet(part.needs - ({"public"} if given.public is not None else set()), type(part).__name__)
    check(selector, algorithm)
    systems, k = experiment.systems, experiment.selection.k
    if algorithm.pools:
        federation, selector, systems, k = pooled(federation), All(), Systems(), 1
    model = as_model(given.model) if given.model is not None else experiment.model.build()
    algorithm.prepare(
        ServerTools(
            build=partial(build_module, as_model(model), federation, seed),
            prepared=federation.prepare,
            num_classes=federation.num_classes,
            public=(public.features() if "public" in algorithm.needs else federation.test[:0].features).to(
                federation.device
            ),
            validation=(federation.validation.features, federation.validation.labels),
            seed=seed,
        )
    )
    histogram = federation.histogram() if "histogram" in selector.needs else None
    plan, workers = experiment.engine.plan, experiment.engine.workers
    if plan == "auto":
        invited = min(math.ceil(k * systems.overcommit), federation.num_clients)
        choice = choose_plan(
            federation, as_model(model), experiment.training, algorithm, seed, workers, invited,
            experiment.engine.arithmetic,
        )  # fmt: skip
        log.info("%s", choice)
        plan = choice.plan
    engine = LocalEngine(
        federation, as_model(model), experiment.training, algorithm, seed, workers,
        plan=plan, arithmetic=experiment.engine.arithmetic,
    )  # fmt: skip
    try:
        start = engine.initial_model()
        clock = Clock(
            federation.num_samples,
            seed,
            systems.latency.build(),
            systems.availability.build(),
            systems.network.build(),
            rounds=experiment.rounds,
            dropout=systems.dropout,
            deadline=systems.deadline,
            overcommit=systems.overcommit,
            idle_time=systems.idle_time,
            model_bytes=num_bytes([start]),
            epochs=algorithm.local_training(experiment.training).epochs,
        )
        invited = min(clock.invited(k), federation.num_clients)
        width = sum(start[name].numel() for name in engine.trainable)
        local = algorithm.local_training(experiment.training)
        census = Census(
            federation.num_samples, federation.num_classes, invited, histogram, clock.epochs, width,
            batch_size=local.batch_size, rounds=experiment.rounds,
        )  # fmt: skip
        selector.setup(census)
        clients = partial(_portrait, federation, clock, experiment.rounds)
        game = Game(seed, k, clock, selector, algorithm, engine, start, clients)
        yield game, public.fingerprint
    finally:
        engine.close()


def _portrait(federation: "Federation", clock: "Clock", rounds: int) -> Portrait:
    from fedcohort.federation.survey import portrait

    return Portrait(federation.classes, portrait(federation, clock, rounds))
