"""The federations of the atlas, the strategies that play them, and what the federations are like."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import fedcohort
from fedcohort import Experiment
from fedcohort.core.random_streams import rng
from fedcohort.experiment.nested_values import merge
from fedcohort.federation.data.datasets import Dataset, from_arrays
from fedcohort.federation.data.load_dataset import load
from fedcohort.selection import STRATEGIES
from results.result_file import ROOT

__all__ = ["FILE", "TRAITS", "WEIGHTS_FILE", "Federation", "federations", "measured_traits", "most_seeds", "strategies"]

FILE = "results/atlas.toml"
"""The federations."""
WEIGHTS_FILE = "experiments/all_strategies_digits.toml"
"""The file that names the weights of each strategy's source."""

OWN = ("name", "about", "samples")
"""Keys of a federation that are no settings of an experiment."""

TRAITS: Mapping[str, str] = {
    "label skew": "mean over clients of the total variation distance between their class shares and those of all samples",
    "size spread": "standard deviation of the clients' sizes, divided by their mean",
    "wrong labels": "share of wrong labels, mean over clients",
    "wrong label spread": "its standard deviation over clients",
    "speed spread": "standard deviation over clients of the natural logarithm of their time per sample",
    "absence": "share of rounds in which a client is not available, mean over clients",
    "clients": "log10 of their number",
    "samples": "log10 of the mean number of samples per client",
    "selected share": "clients per round, divided by the number of clients",
}
"""What describes a federation, and how it is measured."""


@dataclass(frozen=True)
class Federation:
    """A federation of the atlas.

    Attributes:
        name: its name.
        about: what it is, in a few words.
        experiment: an experiment with uniform selection.
        samples: numbers of training and of test samples; None for all of them.
    """

    name: str
    about: str
    experiment: Experiment
    samples: tuple[int, int] | None = None

    @property
    def digest(self) -> str:
        """A short hash of its settings; runs under other settings do not count."""
        text = json.dumps([self.experiment.to_dict(), self.samples, _parameters()], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def data(self) -> Dataset:
        """Its data set, which is loaded once."""
        return _dataset(self.experiment.data.name, self.samples)

    def row(self, strategy: str, weights: str | None) -> Experiment:
        """The experiment with a strategy, its parameters in the atlas, and the weights of its source."""
        chosen: dict[str, Any] = {"selection": {"name": strategy, **_parameters().get(strategy, {})}}
        if weights:
            chosen["algorithm"] = {"weights": weights}
        return self.experiment.with_overrides(chosen)


@cache
def _dataset(name: str, samples: tuple[int, int] | None) -> Dataset:
    """A data set, or a part of it: the first samples of a fixed random order."""
    whole = load(name)
    if samples is None:
        return whole
    order = rng(0, "atlas-samples")
    train, test = (
        np.sort(order.permutation(len(labels))[:number])
        for labels, number in zip((whole.train_labels, whole.test_labels), samples, strict=True)
    )
    return from_arrays(
        (whole.train_features[train], whole.train_labels[train]),
        (whole.test_features[test], whole.test_labels[test]),
        classes=whole.classes,
        name=name,
        clients=None if whole.writers is None else whole.writers[train],
        standardise=whole.standardise,
    )


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads((ROOT / FILE).read_text("utf-8"))


def _parameters() -> dict[str, dict[str, Any]]:
    """Strategy → its parameters that are not the default ones."""
    found: dict[str, dict[str, Any]] = _file()["strategies"]
    return found


def most_seeds() -> int:
    """The number of seeds of every federation."""
    return int(_file()["seeds"])


def federations() -> list[Federation]:
    """All federations, the cheap ones first."""
    content, found = _file(), []
    for own in content["federation"]:
        values = merge(content["common"], {key: own[key] for key in own if key not in OWN}, "")
        found.append(
            Federation(
                own["name"], own["about"], Experiment(**values), tuple(own["samples"]) if "samples" in own else None
            )
        )
    return found


def strategies() -> dict[str, str | None]:
    """All strategies with the weights of their source, None for the default; uniform selection, the reference, comes first."""
    variants = fedcohort.load_experiment(ROOT / WEIGHTS_FILE).variants
    weights = {
        variant.overrides["selection"]["name"]: variant.overrides.get("algorithm", {}).get("weights")
        for variant in variants
    }
    return {name: weights.get(name) for name in sorted(STRATEGIES.builtin, key=lambda name: name != "uniform")}


def measured_traits(facts: Mapping[str, Any], k: int) -> dict[str, float]:
    """The traits of a federation.

    Args:
        facts: what a run's record says about its clients, ``run.portrait.facts``: arrays with one row per client.
        k: clients per round.
    """
    counts, samples = np.asarray(facts["counts"], np.float64), np.asarray(facts["samples"], np.float64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    distance = 0.5 * np.abs(shares - counts.sum(axis=0) / counts.sum()).sum(axis=1)
    pace = np.asarray(facts["time"], np.float64) / np.maximum(samples, 1)
    wrong = np.asarray(facts["wrong_labels"], np.float64)
    values = (
        distance.mean(), samples.std() / samples.mean(), wrong.mean(), wrong.std(), np.log(pace).std(),
        1 - np.mean(facts["presence"]), np.log10(len(samples)), np.log10(samples.mean()), k / len(samples),
    )  # fmt: skip
    return {name: round(float(value), 4) for name, value in zip(TRAITS, values, strict=True)}
