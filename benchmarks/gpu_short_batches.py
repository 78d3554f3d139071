"""Rounds of W3's network on a GPU with short last batches: with and without a recording for them.

    PYTHONPATH=src:benchmarks python benchmarks/gpu_short_batches.py

Clients have 50 images. With batches of 16, the last one has 2 images; with batches of 64, the only one has 50.
"""

import statistics
import time
from typing import Any
from unittest.mock import patch

import torch
from nets import build
from ours import federation
from works import Work, work

import fedcohort.training.local_setup as setup
from fedcohort.algorithms import Members
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.arrays import Indices
from fedcohort.core.threads import one_thread
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation
from fedcohort.models import as_model
from fedcohort.selection import Cohort

ROUNDS = 4


def seconds(plan: Work, clients: Federation, batch: int, workers: int) -> float:
    """The median time of a round after the first."""
    algorithm, training = FedAvg(), Training(batch_size=batch, epochs=1, lr=plan.lr, momentum=plan.momentum)
    kind: Any = "threads" if workers > 1 else "loop"
    engine = LocalEngine(clients, as_model(lambda: build(plan.net)), training, algorithm, 0, workers, plan=kind)
    model, times = engine.initial_model(), []
    for t in range(ROUNDS):
        cohort = Cohort(plan.cohorts[t])
        members = Members(
            len(plan.clients), sum(map(len, plan.clients)), len(cohort), t=t + 1, trainable=engine.trainable
        )
        begin = time.perf_counter()
        model = algorithm.aggregate(model, engine.train(model, t + 1, cohort, algorithm), members)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    engine.close()
    return statistics.median(times[1:])


def only_full(samples: Indices, batch_size: int) -> list[int]:
    """The size of full batches, if a client has one."""
    return [batch_size] if samples.max() >= batch_size else []


def main() -> None:
    """Print the times."""
    plan = work("W3", ROUNDS + 1)
    clients = federation(plan).to("cuda")
    with one_thread():
        for batch in (16, 64):
            for workers in (1, 2):
                with patch.object(setup, "common_batch_sizes", only_full):
                    without = seconds(plan, clients, batch, workers)
                times = f"{without:.3f} s, with a recording {seconds(plan, clients, batch, workers):.3f} s"
                print(f"batches of {batch}, {workers} thread{'s' * (workers > 1)}: {times}", flush=True)


if __name__ == "__main__":
    main()
