"""The workloads W1 to W4 as plain arrays, so that every library gets the same samples, clients and cohorts.

This module needs only numpy; the networks are in nets.py. Images have the shapes of MNIST and CIFAR-10 and random pixels:
accuracy is not measured, and the arithmetic is the same as with real images.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Work:
    """Rounds of federated averaging: selected clients train from the same model, and the results are averaged, weighted by samples.

    Attributes:
        name: W1 to W4.
        features: uint8 images [N, C, H, W].
        labels: int64 [N].
        clients: row numbers of each client's samples.
        cohorts: selected clients of each round; the first turn is not measured.
        net: name of the network, see nets.py.
        batch, epochs, lr, momentum: local SGD; the last short batch is kept.
        turn: rounds that a contestant plays before the next contestant's turn, about a second of the bare loop: within a run, rounds
            follow one another, and a process that has just waited starts with cold caches and cores.
    """

    name: str
    features: np.ndarray
    labels: np.ndarray
    clients: list[np.ndarray]
    cohorts: list[np.ndarray]
    net: str
    batch: int
    epochs: int
    lr: float
    momentum: float = 0.0
    turn: int = 1

    def steps(self, round: int) -> int:
        """Number of optimizer steps in a round."""
        return sum(self.epochs * -(-len(self.clients[client]) // self.batch) for client in self.cohorts[round])

    def samples(self, round: int) -> int:
        """Number of samples with a forward and backward pass in a round."""
        return sum(self.epochs * len(self.clients[client]) for client in self.cohorts[round])

    def standardised(self, rows: np.ndarray) -> np.ndarray:
        """float32 images with zero mean and unit standard deviation per channel."""
        images: np.ndarray = (self.features[rows].astype(np.float32) - self.mean) / self.deviation
        return images

    @cached_property
    def mean(self) -> np.ndarray:
        mean: np.ndarray = self.features[:2000].astype(np.float32).mean((0, 2, 3), keepdims=True)[0]
        return mean

    @cached_property
    def deviation(self) -> np.ndarray:
        deviation: np.ndarray = self.features[:2000].astype(np.float32).std((0, 2, 3), keepdims=True)[0]
        return deviation


NAMES = ("W1", "W1b64", "W2", "W3", "W4")


def work(name: str, turns: int = 4, quick: bool = False, epochs: int | None = None) -> Work:
    """One of NAMES, with this number of turns; ``quick`` makes rounds a fifth as long. ``epochs`` replaces those of the workload."""
    rng = np.random.default_rng(1)
    if name in ("W1", "W1b64"):  # 12 clients, 3 a round, Dirichlet 0.05
        features, labels = images((3, 32, 32), 50_000)
        clients = dirichlet(labels, 12, 0.05, rng)
        made = Work(name, features, labels, clients, [], "cnn_a", 64 if name == "W1b64" else 16, 1, 0.01, 0.9)
        k = 3
    elif name == "W2":
        features, labels = images((1, 28, 28), 60_000)
        made, k = Work(name, features, labels, even(60_000, 1000, rng), [], "mlp", 20, 1, 0.1, turn=8), 100
    elif name == "W3":
        features, labels = images((3, 32, 32), 50_000)
        made, k = Work(name, features, labels, even(50_000, 1000, rng), [], "cnn_a", 10, 1, 0.01), 50
    elif name == "W4":
        features, labels = images((3, 32, 32), 50_000)
        made, k = Work(name, features, labels, even(50_000, 50, rng), [], "resnet18", 64, 5, 0.01, 0.9), 10
    else:
        raise SystemExit(f"there is no workload {name}; known: {', '.join(NAMES)}")
    if quick:
        if name == "W4":
            made, k = replace(made, clients=[rows[:64] for rows in made.clients], epochs=1), 2
        elif name in ("W1", "W1b64"):
            made = replace(made, clients=[rows[: max(100, len(rows) // 5)] for rows in made.clients])
        else:
            k //= 5
    if epochs is not None:
        made = replace(made, epochs=epochs)
    cohorts = [rng.choice(len(made.clients), k, replace=False) for _ in range(turns * made.turn)]
    if name in ("W1", "W1b64"):  # sizes differ by a factor of ten: use the same three clients in every round
        sizes = np.array([len(rows) for rows in made.clients])
        cohorts = [np.argsort(sizes)[[3, 6, 8]]] * turns
    return replace(made, cohorts=cohorts)


def even(samples: int, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Random samples for the clients, the same number for each."""
    return np.split(rng.permutation(samples), clients)


def dirichlet(labels: np.ndarray, clients: int, alpha: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Each class divided among the clients by a Dirichlet draw, repeated until every client has at least 100 samples."""
    while True:
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        for label in range(int(labels.max()) + 1):
            rows = rng.permutation(np.flatnonzero(labels == label))
            cuts = (np.cumsum(rng.dirichlet([alpha] * clients))[:-1] * len(rows)).astype(int)
            for client, some in enumerate(np.split(rows, cuts)):
                parts[client].append(some)
        together = [rng.permutation(np.concatenate(part)) for part in parts]
        if min(map(len, together)) >= 100:
            return together


def images(shape: tuple[int, int, int], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images with random pixels, and labels 0 to 9 in turn."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, *shape), dtype=np.uint8), np.arange(count) % 10
