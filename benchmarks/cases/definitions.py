"""The cases: what is trained, on which samples, and how. This module needs only numpy."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CASES", "FILE", "Case"]

FILE = Path(__file__).with_name("cases.toml")

VOCABULARY = 32
"""Number of tokens of sequences."""


@dataclass(frozen=True)
class Case:
    """Rounds of federated training.

    Attributes:
        name: short name, for the command line.
        title: what the case is, for tables.
        network: name of a function of :mod:`networks <.networks>`.
        goal: the ratio to the better bare loop that the better plan should reach; for memory, the largest ratio to the data.
        goal_of: name of another case; this case should reach 95% of its ratio, instead of ``goal``.
        shape: shape of a sample.
        features: uint8 (images), float32 (images that users have scaled), or tokens (sequences with a label for each position).
        clients: number of clients.
        samples: mean number of samples of a client.
        sizes: even; dirichlet (by class, α = 0.05); or log_uniform (from 5 to 2,000).
        k: clients a round.
        candidates: clients that report their loss before the k with the largest are taken; 0 means uniform selection.
        batch, lr, momentum, optimizer: local training, for one epoch.
        algorithm: fedavg, scaffold, fedprox (μ = 0.1), or an algorithm of the benchmark's own (own_prox: FedProx by ``correct``).
        loss: ce, or robust (the loss of FLASH).
        clip: largest norm of a gradient; 0 means no clipping.
        augment: none, or flip (images are mirrored at random).
        arithmetic: ``engine.arithmetic`` of FedCohort's runs; the loop always computes in single precision.
        threads_per_client: ``engine.threads_per_client`` of FedCohort's runs.
        test: images that are evaluated after every round; 0 means none.
        rounds: rounds of a turn.
        plans: plans that are measured; ``threads`` is the default plan.
        measure: time or memory.
    """

    name: str
    title: str
    network: str
    goal: float = float("nan")
    goal_of: str = ""
    shape: tuple[int, ...] = (1, 28, 28)
    features: str = "uint8"
    clients: int = 1000
    samples: int = 60
    sizes: str = "even"
    k: int = 100
    candidates: int = 0
    batch: int = 20
    lr: float = 0.1
    momentum: float = 0.0
    optimizer: str = "sgd"
    algorithm: str = "fedavg"
    loss: str = "ce"
    clip: float = 0.0
    augment: str = "none"
    arithmetic: str = "exact"
    threads_per_client: int = 1
    test: int = 0
    rounds: int = 1
    plans: tuple[str, ...] = ("threads", "stacked", "auto")
    measure: str = "time"

    def client_sizes(self) -> NDArray[np.int64]:
        """Number of samples of each client."""
        rng = np.random.default_rng(1)
        if self.sizes == "even":
            return np.full(self.clients, self.samples)
        if self.sizes == "log_uniform":
            drawn: NDArray[np.int64] = np.exp(rng.uniform(np.log(5), np.log(2000), self.clients)).astype(np.int64)
            return drawn
        while True:
            shares = rng.dirichlet([0.05] * self.clients, 10).sum(0) / 10
            sizes: NDArray[np.int64] = (shares * self.clients * self.samples).astype(np.int64)
            if sizes.min() >= 20:
                return sizes

    def client_of_samples(self) -> NDArray[np.int64]:
        """The client of each training sample; clients are in order."""
        return np.repeat(np.arange(self.clients), self.client_sizes())

    def arrays(self) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
        """Random training features and labels, and test features and labels."""
        rng, count, tested = np.random.default_rng(0), int(self.client_sizes().sum()), max(self.test, 100)
        if self.features == "tokens":
            texts = rng.integers(0, VOCABULARY, (count + tested, *self.shape))
            nexts = np.roll(texts, -1, axis=1)
            return texts[:count], nexts[:count], texts[count:], nexts[count:]
        train, test = (self._images(rng, number) for number in (count, tested))
        return train, np.arange(count) % 10, test, np.arange(tested) % 10

    def _images(self, rng: np.random.Generator, count: int) -> NDArray[Any]:
        shape = (count, *self.shape)
        if self.features == "float32":
            return rng.random(shape, dtype=np.float32)
        return rng.integers(0, 256, shape, dtype=np.uint8)

    def steps(self, clients: NDArray[np.int64]) -> int:
        """Number of optimizer steps of a round with these clients."""
        return int((-(-self.client_sizes()[clients] // self.batch)).sum())

    def bound(self, cohorts: list[list[int]], cores: int) -> float:
        """How much faster rounds with these cohorts can be on this number of cores if each client trains on one of them.

        It is the mean over the rounds; clients begin in the order of their size, the largest first.
        """
        found = []
        for clients in cohorts:
            loads = np.zeros(cores)
            for size in sorted(self.client_sizes()[clients].tolist(), reverse=True):
                loads[loads.argmin()] += size
            found.append(loads.sum() / loads.max())
        return float(np.mean(found))


def _cases() -> dict[str, Case]:
    rows: list[dict[str, Any]] = tomllib.loads(FILE.read_text("utf-8"))["case"]
    cases = [_case(row) for row in rows]
    return {case.name: case for case in cases}


def _case(row: dict[str, Any]) -> Case:
    settings: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}
    return Case(**settings)


CASES: dict[str, Case] = _cases()
"""All cases by name."""
