"""Play a workload with FedLab: its standalone pipeline with the serial trainer of FedAvg, in one process."""

from collections.abc import Iterator
from typing import Any

import torch
import vision  # noqa: F401, FedLab imports torchvision
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils import Aggregators, SerializationTool
from nets import build
from protocol import arguments, serve
from steps import steps
from works import Work


class Batches:
    """Shuffled batches as slices of one tensor, which is much faster than a DataLoader that stacks samples."""

    def __init__(self, features: torch.Tensor, labels: torch.Tensor, size: int) -> None:
        self.features, self.labels, self.size = features, labels, size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for index in torch.randperm(len(self.labels)).split(self.size):
            yield self.features[index], self.labels[index]


class Clients(FedDataset):
    """The clients of the workload."""

    def __init__(self, work: Work) -> None:
        self.num = len(work.clients)
        self.data = [
            (torch.from_numpy(work.standardised(rows)), torch.from_numpy(work.labels[rows])) for rows in work.clients
        ]

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> Batches:
        return Batches(*self.data[id], batch_size)


class Trainer(FedAvgSerialClientTrainer):
    """Also uploads the number of samples, and starts each client with zero momentum."""

    momentum = 0.0

    def train(self, model_parameters: torch.Tensor, train_loader: Batches) -> list[Any]:
        if self.momentum:
            self.optimizer = torch.optim.SGD(self.model.parameters(), self.lr, momentum=self.momentum)
        return [*super().train(model_parameters, train_loader), len(train_loader.labels)]


class Handler(FedAvgServerHandler):
    """Selects the cohort of the workload, and weights updates by samples."""

    cohort: list[int]

    def sample_clients(self) -> list[int]:
        return self.cohort

    def global_update(self, buffer: list[Any]) -> None:
        models, samples = zip(*buffer, strict=True)
        SerializationTool.deserialize_model(self._model, Aggregators.fedavg_aggregate(list(models), list(samples)))


class Pipeline(StandalonePipeline):
    """No evaluation."""

    def evaluate(self) -> None:
        pass


def main() -> None:
    """Play rounds on request; each is a run of the pipeline until its next round."""
    _, work = arguments()
    torch.manual_seed(0)
    trainer = Trainer(build(work.net), len(work.clients))
    trainer.setup_dataset(Clients(work))
    trainer.setup_optim(work.epochs, work.batch, work.lr)
    trainer.momentum = work.momentum
    handler = Handler(build(work.net), 0, (len(work.cohorts[0]) + 0.5) / len(work.clients))
    pipeline = Pipeline(handler, trainer)

    def play(round: int) -> int:
        handler.cohort = work.cohorts[round].tolist()
        handler.global_round += 1
        pipeline.main()
        return steps()

    serve(play, fedlab="1.3.0", torch=torch.__version__)


if __name__ == "__main__":
    main()
