"""Build everything that a run needs before its first round: data, clients, model, clock, strategy, algorithm, engine."""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from torch import nn

from fedcohort.algorithms import LOSSES, Algorithm
from fedcohort.algorithms.server_tools import ServerTools
from fedcohort.core.user_code.unseeded_draws import warning_of_draws
from fedcohort.engines.initial_network import build_module
from fedcohort.experiment import Cell, Experiment, Systems
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.pairings import check
from fedcohort.experiment.tasks import check_labels, check_task
from fedcohort.federation.data.datasets import Dataset
from fedcohort.federation.describe_federation import Survey, names_of_clients, portrait, survey
from fedcohort.federation.featureshift import Space, in_words
from fedcohort.federation.federation import Federation, gather
from fedcohort.federation.partition import Partition, partition
from fedcohort.federation.pooled_federation import pooled
from fedcohort.federation.position_labels import strata
from fedcohort.federation.public_samples import PublicSet
from fedcohort.federation.simulated_clock import Clock
from fedcohort.models import Model, as_model, built_repeatably, check_network, refuse_complex, refuse_lazy
from fedcohort.record import Portrait
from fedcohort.rounds import RunState
from fedcohort.runs.errors_in_own_code import naming_own_code
from fedcohort.runs.personal_model_checks import check_personal_models
from fedcohort.runs.run_clock import clock_of
from fedcohort.runs.run_data import load_data, on_data
from fedcohort.runs.run_engine import driver_device, engine_of
from fedcohort.runs.sequence_checks import check_sequences
from fedcohort.selection import Census, Selector
from fedcohort.selection.strategies.all_available import All
from fedcohort.training.client_hooks import settings_under
from fedcohort.training.code_reading.forward_code import names_kept
from fedcohort.training.image_augmentation import check_images
from fedcohort.training.networks.mixed_samples import drawn_by_loss
from fedcohort.training.networks.model_states import DTYPES, state_of
from fedcohort.training.networks.omitted_entries import omitted_entries
from fedcohort.training.personal_models import personal_data

__all__ = ["Federated", "check_model", "federate", "give_tools", "look", "model_of", "plugins_of", "prepare"]


@dataclass(frozen=True, eq=False)
class Federated:
    """The clients of an experiment and their data.

    Attributes:
        dataset: the whole data set.
        split: the client of each training sample.
        federation: the clients with the data that they train on, after label noise, local splits and feature shift.
        public: samples set apart for the server.
    """

    dataset: Dataset
    split: Partition
    federation: Federation
    public: PublicSet


def federate(experiment: Experiment, given: Given, device: str = "cpu") -> Federated:
    """Divide the data of an experiment among its clients, with samples on ``device``.

    The steps are: set public samples apart, partition, corrupt labels, split off held-out samples, shift features.
    """
    seed, data = experiment.seed, experiment.data
    dataset, public = load_data(experiment, given)
    check_sequences(experiment, given, dataset)
    split = partition(
        experiment.federation.partition.build(),
        strata(dataset.train_labels)[public.rest],
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
    if dataset.train_features.dtype == np.int64 and not dataset.standardise and not federation.vocabulary:
        federation = replace(federation, integers=model_of(experiment, given).reads_integers)
    return Federated(dataset, split, federation, public)


def model_of(experiment: Experiment, given: Given) -> Model:
    """The model that was given in Python, or else that of the experiment."""
    model: Model = as_model(given.model) if given.model is not None else experiment.model.build()
    return as_model(model)


def check_model(experiment: Experiment, given: Given, model: Model, federation: Federation) -> list[str]:
    """Refuse a model of the user that does not fit the samples or the classes. Built-in models fit.

    Returns the names of generators without a seed from which the model draws.
    """
    if given.model is None and experiment.model.name in experiment.model.table.builtin:
        return []
    dtype = DTYPES[experiment.training.precision]

    def name_of(module: nn.Module) -> str:
        return type(module).__name__ if given.model is not None else repr(experiment.model.name)

    module = built_repeatably(partial(build_module, model, federation, experiment.seed), name_of)
    name = name_of(module)
    refuse_complex(module, name)
    module = module.to(dtype=dtype)
    samples = federation.prepare(federation.test[:2].features, dtype)
    numbers, loss = federation.is_numeric, experiment.training.loss["name"]
    logits = loss in LOSSES.builtin and loss != "double_softmax"  # which is about probabilities; an own loss may be
    return check_network(
        module, samples, federation.num_outputs, name, federation.sample_shape, numbers=numbers, logits=logits,
        kept=names_kept(module),
    )  # fmt: skip


@naming_own_code()
def look(experiment: Experiment, given: Given) -> tuple[Dataset, Survey]:
    """The data of an experiment and facts about each of its clients, without training."""
    experiment = on_data(Cell("", experiment.seed, experiment), given).experiment
    federated, seed = federate(experiment, given), experiment.seed
    federation = federated.federation
    check_images(experiment.training.augment, federation.sample_shape)
    algorithm = given.algorithm if given.algorithm is not None else experiment.algorithm.build()
    build = partial(build_module, model_of(experiment, given), federation, seed, DTYPES[experiment.training.precision])
    first = build()
    refuse_lazy(first, repr(experiment.model.name) if given.model is None else type(first).__name__)
    left_out = omitted_entries(first, build, federation)
    start = {name: value for name, value in state_of(first).items() if name not in left_out}
    clock = clock_of(experiment, experiment.systems, federation.num_samples, algorithm, start, Clock)
    space = Space(federation.sample_shape, np.ones(()), federation.num_clients)
    shift = in_words(experiment.federation.feature_shift.build(), space, seed=seed)
    facts = survey(federated.dataset.train_labels, federated.split, federation, clock, experiment.rounds, shift)
    return federated.dataset, replace(facts, names=names_of_clients(federated.dataset, federated.split))


@contextmanager
def prepare(experiment: Experiment, given: Given) -> Iterator[tuple[RunState, str]]:
    """Prepare a run for its first round: the run_state, and the fingerprint of its data. The engine is closed at the end of the block.

    Raises:
        UsageError: something in the description or the data cannot be used.
    """
    seed, federated = experiment.seed, federate(experiment, given, driver_device(experiment))
    federation = federated.federation
    check_labels(experiment.training, numeric=federation.is_numeric, data=federated.dataset.name)
    selector, algorithm = plugins_of(experiment, given)
    systems, k = experiment.systems, experiment.selection.k
    if algorithm.pools:
        federation, selector, systems, k = pooled(federation), All(), Systems(), 1
    model = model_of(experiment, given)
    unseeded = check_model(experiment, given, model, federation)
    check_personal_models(experiment, given, model, federation)
    unseeded += drawn_by_loss(settings_under(algorithm, experiment.training), federation)
    with warning_of_draws("algorithm", algorithm):
        give_tools(algorithm, model, federation, federated.public, seed)
    largest = k if algorithm.pools else max([k, *(later for _, later in experiment.selection.k_steps)])
    cohort = min(math.ceil(largest * systems.overcommit), federation.num_clients)
    engine = engine_of(experiment, model, federation, algorithm, cohort)
    try:
        start = engine.initial_model()
        clock = clock_of(experiment, systems, federation.num_samples, algorithm, start, Clock)
        width = sum(start[name].numel() for name in engine.trainable)
        with warning_of_draws("selection", selector):
            selector.setup(_census(experiment, selector, algorithm, federation, clock, k, width))
        names = () if algorithm.pools else names_of_clients(federated.dataset, federated.split)
        facts = partial(_portrait, federation, clock, experiment.rounds, names)
        yield (
            RunState(
                seed,
                k,
                clock,
                selector,
                algorithm,
                engine,
                start,
                engine.plan,
                facts,
                test_clients=None if federation.is_numeric else federation.test_clients,
                k_steps=() if algorithm.pools else experiment.selection.k_steps,
                personal_data=personal_data(federation),
                every_round=experiment.engine.name == "ray",
                unseeded=frozenset(unseeded),
                facts={}
                if federation.vocabulary
                else {"standardised": "yes" if federated.dataset.standardise else "no"},
            ),
            federated.public.fingerprint,
        )
    finally:
        engine.close()


def plugins_of(experiment: Experiment, given: Given) -> tuple[Selector, Algorithm]:
    """New instances of the strategy and the algorithm.

    Raises:
        UsageError: they cannot be combined, or cannot work with these data.
    """
    selector = copy.deepcopy(given.selector) if given.selector is not None else experiment.selection.build()
    algorithm = copy.deepcopy(given.algorithm) if given.algorithm is not None else experiment.algorithm.build()
    for plugin in (selector, algorithm):
        provided = {"public"} if given.public is not None else set()
        experiment.check_needs(plugin.needs - provided, type(plugin).__name__)
    check(selector, algorithm)
    check_task(experiment.training, experiment.federation.label_noise.name, selector, algorithm)
    return selector, algorithm


def give_tools(algorithm: Algorithm, model: Model, federation: Federation, public: PublicSet, seed: int) -> None:
    """Give the server half of the algorithm the data and functions that it works with."""
    samples = public.features() if "public" in algorithm.needs else federation.test[:0].features
    algorithm.prepare(
        ServerTools(
            build=partial(build_module, model, federation, seed),
            prepared=federation.prepare,
            num_classes=federation.num_outputs,
            public=samples.to(federation.device),
            validation=(federation.validation.features, federation.validation.labels),
            seed=seed,
        )
    )


def _census(
    experiment: Experiment,
    selector: Selector,
    algorithm: Algorithm,
    federation: Federation,
    clock: Clock,
    k: int,
    width: int,
) -> Census:
    """The facts about the federation that the strategy receives before the first round."""
    histogram = federation.histogram() if "histogram" in selector.needs else None
    return Census(
        federation.num_samples,
        federation.num_classes,
        min(clock.number_to_select(k), federation.num_clients),
        histogram,
        clock.epochs,
        width,
        batch_size=algorithm.local_training(experiment.training).batch_size,
        rounds=experiment.rounds,
    )


def _portrait(federation: Federation, clock: Clock, rounds: int, names: tuple[str, ...]) -> Portrait:
    """The facts about the clients for the record."""
    return Portrait(federation.classes, portrait(federation, clock, rounds), names)
