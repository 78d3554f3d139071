"""How long the experiments of the sources take: counted steps, and the measured processor time of one step.

The processor time of a training step and of a forward pass is measured for every network and batch size, in PyTorch as it is, on one
thread. The counted work is training, answers about the model, and tests; not counted are the server halves of algorithms, such as
distillation, and the fits of strategies. So an estimate is a lower bound for some rows, and too high for networks that the engine
computes faster.
"""

import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

import fedcohort
from fedcohort import Experiment
from fedcohort.core.parameters import make
from fedcohort.models import MODELS
from results.result_file import RESULTS, ROOT

__all__ = ["Estimates", "register", "work"]

DATA: Mapping[str, tuple[int, int, tuple[int, ...], int]] = {
    "digits": (1437, 360, (1, 8, 8), 10),
    "breast_cancer": (455, 114, (30,), 2),
    "mnist": (60_000, 10_000, (1, 28, 28), 10),
    "cifar10": (50_000, 10_000, (3, 32, 32), 10),
    "emnist_47_subset": (95_495, 7_050, (1, 28, 28), 47),
    "femnist": (805_263, 80_000, (1, 28, 28), 62),
}
"""Training and test samples, shape and classes. FEMNIST is the whole data set, which a small experiment takes a part of."""

LOCAL_FEMNIST = 25_000
"""Training samples of the 105 writers, of which the small experiments use a share."""

ASK_ALL = ("flash", "flash_printed", "flash_linucb", "restless", "neural", "feel")
"""Strategies that ask every available client in every round."""


def register() -> list[dict[str, Any]]:
    """The tables and figures of the sources."""
    rows: list[dict[str, Any]] = tomllib.loads((RESULTS / "register.toml").read_text("utf-8"))["row"]
    return rows


def work(experiment: Experiment, *, small: bool) -> tuple[float, float]:
    """Samples that are trained on, and samples that are only evaluated, in one run of a row."""
    train, test, *_ = DATA[experiment.data.name]
    train = LOCAL_FEMNIST if experiment.data.name == "femnist" and small else train
    test = 2_500 if experiment.data.name == "femnist" and small else test
    m, selection = experiment.federation.clients, experiment.selection
    samples = train * experiment.data.share * (1 - experiment.federation.holdout)
    everyone = selection.name in ("all", "conformal") or experiment.algorithm.name == "centralised"
    epochs = selection.parameters.get("max_epochs") or experiment.training.epochs or 1
    trained = experiment.rounds * epochs * samples * (1 if everyone else selection.k / m)
    asked = experiment.rounds * samples if selection.name in ASK_ALL else 0.0
    tests = experiment.rounds / experiment.measures.evaluate_every * test
    return trained, asked + tests


@cache
def step_seconds(model: str, data: str, batch: int) -> tuple[float, float]:
    """Processor seconds of one training step, and of a forward pass of as many samples, on one thread."""
    *_, shape, classes = DATA[data]
    network: nn.Module = make(MODELS.find(model, "model"), {}, "model").build(shape, classes)
    optimizer = torch.optim.SGD(network.parameters(), 0.01)
    x, y = torch.randn(batch, *shape), torch.randint(classes, (batch,))
    times = []
    for _ in range(3):
        begin = time.process_time()
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
        trained = time.process_time()
        with torch.no_grad():
            network(x)
        times.append((trained - begin, time.process_time() - trained))
    return min(a for a, _ in times), min(b for _, b in times)


def hours(file: str, overrides: Mapping[str, Any]) -> float:
    """Processor hours of all runs of an experiment file, on one core."""
    experiment = fedcohort.load_experiment(ROOT / file)
    if overrides:
        experiment = experiment.with_overrides(dict(overrides))
    seconds = 0.0
    for _, row in experiment.rows():
        batch = row.training.batch_size or 256
        step, forward = step_seconds(row.model.name, row.data.name, batch)
        trained, evaluated = work(row, small=file.endswith("_small.toml"))
        seconds += experiment.seeds * (trained * step + evaluated * forward) / batch
    return seconds / 3600


@dataclass(frozen=True)
class Estimates:
    """Processor hours of every experiment file of the register, at the scale of the source and at the small scale."""

    quick: bool = False
    minutes: float = 2
    experiments: ClassVar[list[str]] = ["results/register.toml", "results/estimates.py"]

    def make(self, runs: Path) -> dict[str, Any]:  # noqa: ARG002
        """Hours of each experiment file."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        files = sorted({row[scale] for row in register() for scale in ("paper", "small") if row.get(scale)})
        found = {file: hours(file, {}) for file in files}
        torch.set_num_threads(threads)
        return found
