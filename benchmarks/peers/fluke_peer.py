"""Play a workload with fluke: its FedAVG in one process, with its fast data loader; clients keep no model between rounds."""

from collections.abc import Sequence

import torch
import vision  # noqa: F401, fluke imports torchvision
from fluke import FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.server import Server
from nets import build
from protocol import arguments, serve
from steps import steps


class Chosen(Server):
    """Selects the cohort of the workload."""

    cohort: Sequence[int]

    def get_eligible_clients(self, eligible_perc: float) -> list[Client]:
        return [self.clients[client] for client in self.cohort]


def main() -> None:
    """Play rounds on request; each is a run of one round."""
    _, work = arguments()
    FlukeENV().set_seed(0)
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, server=False, locals=False)
    optimizer = OptimizerConfigurator({"name": "SGD", "lr": work.lr, "momentum": work.momentum})
    clients = [
        Client(
            index,
            FastDataLoader(
                torch.from_numpy(work.standardised(rows)),
                torch.from_numpy(work.labels[rows]),
                num_labels=10,
                batch_size=work.batch,
                shuffle=True,
                skip_singleton=False,
            ),
            None,
            optimizer,
            torch.nn.CrossEntropyLoss(),
            local_epochs=work.epochs,
            persistency=False,
        )
        for index, rows in enumerate(work.clients)
    ]
    server = Chosen(build(work.net), None, clients, weighted=True)
    federation = FedAVG(len(clients), None, {}, clients=clients, server=server)
    share = len(work.cohorts[0]) / len(clients)

    def play(round: int) -> int:
        server.cohort = work.cohorts[round].tolist()
        federation.run(1, share, finalize=False)
        return steps()

    serve(play, fluke="0.8.1", torch=torch.__version__)


if __name__ == "__main__":
    main()
