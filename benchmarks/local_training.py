"""Compare the speed of local training: a hand-written PyTorch loop and FedCohort's plans, on the same clients and steps.

    python benchmarks/local_training.py [--batch 16] [--rounds 5] [--samples 1000] [--busy]

The workload is a round of 4 clients with the same number of samples in the size of CIFAR-10 (random pixels; the arithmetic is the
same), ``cnn_a``, SGD with momentum, one epoch. The plans take turns. Each is also measured without the network's program
(``fedcohort.training.programs.plain_network``), so that autograd computes the gradients. The results are medians over rounds.
``--busy`` keeps one core busy with another process.
"""

import argparse
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from unittest import mock

import numpy as np
import torch
from torch import nn

from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.initial_network import build_module
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.data.datasets import from_arrays
from fedcohort.federation.federation import Federation, gather
from fedcohort.federation.partition import Iid, partition
from fedcohort.models import CnnA
from fedcohort.selection import Cohort

CLIENTS = 4


def federation(samples: int) -> Federation:
    """A federation of clients of equal size."""
    rng = np.random.default_rng(0)
    features = rng.integers(0, 256, (samples * CLIENTS, 3, 32, 32), dtype=np.uint8)
    labels = np.arange(len(features)) % 10
    data = from_arrays((features, labels), (features[:100], labels[:100]), standardise=True)
    return gather(data, partition(Iid(), data.train_labels, CLIENTS, 0), validation=0.1, seed=0)


def bare_loop(fed: Federation, batch: int, threads: int) -> Callable[[], int]:
    """A hand-written loop: float batches, one model, PyTorch's SGD, and this number of intra-op threads."""
    module = build_module(CnnA(), fed, 0)
    start = {name: value.clone() for name, value in module.state_dict().items()}
    loss_of = nn.CrossEntropyLoss()

    def play() -> int:
        torch.set_num_threads(threads)
        steps = 0
        for client in range(CLIENTS):
            module.load_state_dict(start)
            optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
            data = fed.client(client)
            pixels, labels = data.features, data.labels
            order = torch.randperm(len(data))
            for index in order.split(batch):
                features = (pixels[index].float() - fed.shift.float()) * fed.scale.float()
                optimizer.zero_grad()
                loss = loss_of(module(features), labels[index])
                loss.backward()
                optimizer.step()
                steps += 1
        return steps

    return play


def engine(fed: Federation, batch: int, workers: int, program: bool = True) -> Callable[[], int]:
    """A round of the local engine. Unless ``program`` is set, autograd computes the gradients."""
    training = Training(batch_size=batch, lr=0.01)
    algorithm = FedAvg()
    with nullcontext() if program else mock.patch("fedcohort.training.local_setup.program_of", return_value=None):
        local = LocalEngine(fed, CnnA(), training, algorithm, 0, workers)
    model = local.initial_model()
    cohort = Cohort(np.arange(CLIENTS))
    return lambda: sum(update.steps for update in local.train(model, 1, cohort, algorithm))


def main() -> None:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=1000, help="number of samples of each client")
    parser.add_argument("--busy", action="store_true", help="keep one core busy during the measurement")
    args = parser.parse_args()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if args.busy else None
    fed = federation(args.samples)
    plans = {
        "bare loop, 1 intra-op thread": bare_loop(fed, args.batch, 1),
        "bare loop, 2 intra-op threads": bare_loop(fed, args.batch, 2),
        "loop, by autograd": engine(fed, args.batch, 1, program=False),
        "loop": engine(fed, args.batch, 1),
        "threads (2), by autograd": engine(fed, args.batch, 2, program=False),
        "threads (2)": engine(fed, args.batch, 2),
    }
    seconds: dict[str, list[float]] = {name: [] for name in plans}
    steps = {name: play() for name, play in plans.items()}  # warm
    assert len(set(steps.values())) == 1, steps
    for _ in range(args.rounds):
        for name, play in plans.items():
            begin = time.perf_counter()
            play()
            seconds[name].append(time.perf_counter() - begin)
    if busy is not None:
        busy.kill()
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    floor = medians["bare loop, 1 intra-op thread"]
    print(
        f"{platform.machine()}, torch {torch.__version__}, {next(iter(steps.values()))} steps of batch size {args.batch} per round"
    )
    for name, median in medians.items():
        print(f"{name:32s} {median:7.2f} s   {floor / median:5.2f} × the bare loop with one thread")


if __name__ == "__main__":
    main()
