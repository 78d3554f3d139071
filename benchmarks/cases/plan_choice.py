"""What ``engine.plan = "auto"`` chooses for cases of ``benchmarks/cases``, and what the choice costs.

    python -m benchmarks.cases.plan_choice [--only w2 w3] [--times 2]

Every choice is made with an empty cache. The data are in memory already.
"""

import argparse
import os
import tempfile
import time
import warnings
from unittest import mock

import numpy as np

from fedcohort.engines.plans import Choice, choose_plan
from fedcohort.federation.federation import Federation, gather
from fedcohort.federation.partition import Partition
from fedcohort.models import as_model

from .definitions import CASES, Case
from .networks import build
from .ours import dataset, experiment_of

MODELS = ("w2", "w3", "w2-own", "lstm", "logistic", "mlp-sizes")
"""A built-in perceptron and CNN, a module of one's own, an LSTM, logistic regression, and clients of very different size."""


def federation(case: Case) -> Federation:
    """The clients of a case."""
    edges = np.concatenate([[0], np.cumsum(case.client_sizes())])
    return gather(dataset(case), Partition(np.arange(edges[-1]), edges), validation=0.0, seed=0)


def choice(case: Case, clients: Federation) -> tuple[Choice, float, float]:
    """The choice, with its seconds and its seconds of processor time."""
    settings = experiment_of(case, "auto")
    with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, FEDCOHORT_CACHE=cache):
        wall, processor = time.perf_counter(), time.process_time()
        found = choose_plan(
            clients, as_model(lambda: build(case)), settings.training, settings.algorithm.build(), 0, 0, case.k
        )
        return found, time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    """Choose, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, default=MODELS, metavar="CASE", help="cases")
    parser.add_argument("--times", type=int, default=2, help="choices for each case")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in args.only:
        clients = federation(CASES[name])
        for _ in range(args.times):
            found, wall, processor = choice(CASES[name], clients)
            print(f"{name:10s} {wall:5.2f} s, processor time {processor:5.2f} s: {found}", flush=True)


if __name__ == "__main__":
    main()
