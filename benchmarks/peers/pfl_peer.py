"""Play a workload with pfl-research: its simulated backend in one process, as it is used without Horovod."""

from typing import Any

import torch
from nets import build
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from protocol import arguments, serve
from torch import nn


class Net(nn.Module):
    """The methods that pfl requires of a module: loss and metrics."""

    steps = 0

    def __init__(self, name: str) -> None:
        super().__init__()
        self.net = build(name)

    def loss(self, features: Any, labels: Any, is_eval: bool = False) -> Any:
        Net.steps += 1
        return nn.functional.cross_entropy(self.net(torch.as_tensor(features)), torch.as_tensor(labels))

    def metrics(self, features: Any, labels: Any, eval: bool = False) -> dict[str, Any]:
        return {}


def main() -> None:
    """Play rounds on request; each is a training of one central iteration."""
    _, work = arguments()
    torch.manual_seed(0)
    data = [(torch.from_numpy(work.standardised(rows)), torch.from_numpy(work.labels[rows])) for rows in work.clients]
    net = Net(work.net)
    central = torch.optim.SGD(net.parameters(), 1.0)

    def local(parameters: Any, lr: float) -> Any:
        return torch.optim.SGD(parameters, lr, momentum=work.momentum)

    model = PyTorchModel(net, local, central)
    k = len(work.cohorts[0])
    waiting: list[int] = []
    users = FederatedDataset(lambda user: Dataset(data[user], user_id=str(user)), lambda: waiting.pop(0))
    backend = SimulatedBackend(users, users)
    settings = NNTrainHyperParams(
        local_num_epochs=work.epochs, local_learning_rate=work.lr, local_batch_size=work.batch
    )

    def play(round: int) -> int:
        Net.steps = 0
        cohort = work.cohorts[round].tolist()
        waiting[:] = [*cohort, *cohort]  # pfl may request one user in advance
        params = NNAlgorithmParams(
            central_num_iterations=1, evaluation_frequency=10**9, train_cohort_size=k, val_cohort_size=0
        )
        FederatedAveraging().run(params, backend, model, settings, send_metrics_to_platform=False)
        return Net.steps

    serve(play, pfl="0.6.0", torch=torch.__version__)


if __name__ == "__main__":
    main()
