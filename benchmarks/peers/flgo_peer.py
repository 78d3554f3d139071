"""Play a workload with FLGo: its FedAvg on a benchmark made from a configuration file, in one process with one thread per core."""

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import flgo
import flgo.algorithm.fedavg as fedavg
import numpy as np
import torch
from flgo.benchmark.toolkits.cv.classification import FromDatasetPipe
from flgo.benchmark.toolkits.partition import BasicPartitioner
from nets import build
from protocol import arguments, serve
from steps import steps
from torch.utils.data import TensorDataset
from works import Work

# FLGo 0.4.4 was written for an older PyTorch, in which the data loader requested one sample at a time
FromDatasetPipe.TaskDataset.__getitems__ = lambda self, indices: [self[index] for index in indices]


class Rows(BasicPartitioner):
    """The clients of the workload."""

    def __init__(self, clients: Any) -> None:
        self.clients, self.num_clients = clients, len(clients)

    def __call__(self, data: Any) -> list[list[int]]:
        return [rows.tolist() for rows in self.clients]


class Algorithm:
    """FedAvg that selects the cohort of the workload."""

    Client = fedavg.Client

    class Server(fedavg.Server):
        cohort: list[int]

        def sample(self) -> list[int]:
            return self.cohort


train_data: TensorDataset
get_model: Callable[[], torch.nn.Module]


def prepare(work: Work) -> Any:
    """FLGo's server for the workload. It needs files: a configuration, a benchmark made from it, and a task made from that."""
    global train_data, get_model  # imported by the configuration
    features = np.zeros(work.features.shape, np.float32)
    for rows in work.clients:
        features[rows] = work.standardised(rows)
    train_data = TensorDataset(torch.from_numpy(features), torch.from_numpy(work.labels))
    get_model = partial(build, work.net)
    Path("configuration.py").write_text("from __main__ import get_model, train_data\n")
    benchmark: Any = importlib.import_module(flgo.gen_benchmark_from_file("bench_data", "configuration.py"))
    benchmark.visualize = lambda *_: None
    task = flgo.gen_task_by_(benchmark, Rows(work.clients), "bench_task")
    option = {
        "learning_rate": work.lr, "momentum": work.momentum, "num_epochs": work.epochs, "batch_size": work.batch,
        "train_holdout": 0.0, "eval_interval": -1, "no_tqdm": True,
        "num_parallels": len(os.sched_getaffinity(0)), "parallel_type": "t", "torch_num_threads": 1,
    }  # fmt: skip
    return flgo.init(task, Algorithm, option)


def main() -> None:
    """Play rounds on request; each is an iteration of FLGo's server."""
    _, work = arguments()
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        os.chdir(folder)  # FLGo imports the benchmark by its path relative to the current folder
        sys.path.insert(0, folder)
        server = prepare(work)
        os.chdir(here)

    def play(round: int) -> int:
        server.cohort = work.cohorts[round].tolist()
        server.gv.clock.step()
        server.iterate()
        return steps()

    serve(play, flgo="0.4.4", torch=torch.__version__)


if __name__ == "__main__":
    main()
