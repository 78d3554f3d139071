"""Play a workload with FedCohort: rounds of the local engine with one plan, averaged by FedAvg.

python benchmarks/ours.py --work W2 --plan stacked --workers 2
"""

import argparse
import logging
from typing import Any

import numpy as np
import torch
from nets import build
from protocol import arguments, serve
from works import Work

from fedcohort.algorithms import Members
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.threads import one_thread
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.engines.plans import choose_plan
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import as_model
from fedcohort.selection import Cohort


def federation(work: Work) -> Federation:
    """The clients of the workload, as row numbers of its data."""
    order = np.concatenate(work.clients)
    sizes = [len(rows) for rows in work.clients]
    samples = Samples(torch.from_numpy(work.features), torch.from_numpy(work.labels[order]), torch.from_numpy(order))
    few = samples[:100]
    shift, scale = torch.from_numpy(work.mean), torch.from_numpy(1 / work.deviation)
    classes = tuple(str(label) for label in range(10))
    return Federation(samples, np.concatenate([[0], np.cumsum(sizes)]), few, few, classes, shift, scale)


def main() -> None:
    """Play rounds on request."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plan", default="threads", choices=["loop", "threads", "stacked", "auto"])
    parser.add_argument("--workers", type=int, default=0)
    args, work = arguments(parser)
    logging.basicConfig(level=logging.INFO)
    fed, net, algorithm = federation(work).to(args.device), as_model(lambda: build(work.net)), FedAvg()
    training = Training(batch_size=work.batch, epochs=work.epochs, lr=work.lr, momentum=work.momentum)
    plan: Any = args.plan
    if plan == "auto":
        plan = choose_plan(fed, net, training, algorithm, 0, args.workers, len(work.cohorts[0])).plan
    engine = LocalEngine(fed, net, training, algorithm, 0, args.workers, plan=plan, arithmetic=args.arithmetic)
    model = start = engine.initial_model()

    def play(round: int) -> int:
        nonlocal model
        cohort, steps = Cohort(work.cohorts[round]), 0

        def counted() -> Any:
            nonlocal steps
            for update in engine.train(model, round + 1, cohort, algorithm):
                steps += update.steps
                yield update

        members = Members(len(work.clients), sum(map(len, work.clients)), len(cohort), trainable=engine.trainable)
        model = algorithm.aggregate(model, counted(), members)
        if engine.device.type == "cuda":
            torch.cuda.synchronize()
        return steps

    def learned() -> list[float]:
        return [float((value.double() - start[name].double()).norm()) for name, value in model.items()]

    with one_thread():  # as every run of FedCohort does
        serve(
            play,
            torch.cuda.max_memory_allocated,
            learned,
            torch=torch.__version__,
            plan=engine.plan,
            workers=engine.workers,
        )


if __name__ == "__main__":
    main()
