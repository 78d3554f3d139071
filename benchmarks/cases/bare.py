"""The bare loop: a round of each case in plain PyTorch, with float batches prepared in advance, one model and a running sum."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from .definitions import Case
from .networks import build

__all__ = ["BareLoop"]

MU = 0.1
"""Strength of FedProx's proximal term."""
TEST_BATCH = 1000
"""Images of one forward pass of an evaluation."""


class BareLoop:
    """Plays rounds of a case.

    Args:
        case: the case.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        train, labels, test, test_labels = case.arrays()
        edges = np.cumsum(case.client_sizes())[:-1].tolist()
        scaled = self._scaled(train, test)
        self.data = list(zip(scaled[0].tensor_split(edges), torch.from_numpy(labels).tensor_split(edges), strict=True))
        self.test = scaled[1], torch.from_numpy(test_labels)
        self.module = build(case)
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        frozen = {name for name, p in self.module.named_parameters() if not p.requires_grad}
        # what clients send: all but frozen parameters
        self.entries = {name: value for name, value in self.module.state_dict().items() if name not in frozen}
        self.model = {name: value.clone() for name, value in self.entries.items()}
        # of SCAFFOLD: the server's control variate, and those of the clients
        self.shift = [torch.zeros_like(p) for p in self.parameters]
        self.shifts: dict[int, list[Tensor]] = {}

    def _scaled(self, train: Any, test: Any) -> list[Tensor]:
        """Float features with mean 0 and standard deviation 1 per channel; tokens as they are."""
        if self.case.features == "tokens":
            return [torch.from_numpy(train), torch.from_numpy(test)]
        few = torch.from_numpy(train[:2000]).float()
        mean, deviation = (value.view(-1, 1, 1) for value in (few.mean((0, 2, 3)), few.std((0, 2, 3))))
        return [torch.from_numpy(part).float().sub_(mean).div_(deviation) for part in (train, test)]

    def play(self, clients: list[int]) -> int:
        """Play a round with these clients, or with the candidates that have the largest loss; returns the number of steps."""
        if self.case.candidates:
            losses = [self._loss(client) for client in range(self.case.candidates)]
            clients = np.argsort(losses)[-self.case.k :].tolist()
        total = {name: torch.zeros_like(value) for name, value in self.model.items()}
        steps, seen = 0, 0
        for client in clients:
            features, labels = self.data[client]
            self.module.load_state_dict(self.model, strict=False)
            steps += self._train(client, features, labels)
            weight = 1 if self.case.algorithm == "scaffold" else len(labels)
            for name, value in self.entries.items():
                total[name] += value * weight
            seen += weight
        self.model = {name: (value / seen).to(value.dtype) for name, value in total.items()}
        if self.case.test:
            self._evaluate()
        return steps

    def _train(self, client: int, features: Tensor, labels: Tensor) -> int:
        """Train a client for one epoch; returns the number of steps."""
        case = self.case
        received = [p.detach().clone() for p in self.parameters]
        soft = self._softmax(features) if case.loss == "robust" else None
        correction = self._correction(client)
        optimizer: torch.optim.Optimizer
        if case.optimizer == "adam":
            optimizer = torch.optim.Adam(self.parameters, lr=case.lr)
        else:
            optimizer = torch.optim.SGD(self.parameters, lr=case.lr, momentum=case.momentum)
        self.module.train()
        steps = 0
        for index in torch.randperm(len(labels)).split(case.batch):
            optimizer.zero_grad()
            outputs = self.module(features[index] if case.augment == "none" else self._mirrored(features[index]))
            if soft is None:
                loss = functional.cross_entropy(outputs.flatten(0, -2), labels[index].flatten())
            else:
                loss = self._robust(outputs, labels[index], soft[index])
            loss.backward()
            if case.clip:
                torch.nn.utils.clip_grad_norm_(self.parameters, case.clip)
            gradients = [p.grad for p in self.parameters if p.grad is not None]
            with torch.no_grad():
                if case.algorithm == "own_prox":  # written as for FedCohort
                    for gradient, parameter, start in zip(gradients, self.parameters, received, strict=True):
                        gradient += MU * (parameter.detach() - start)
                if case.algorithm == "fedprox":
                    moved = torch._foreach_sub([p.detach() for p in self.parameters], received)
                    torch._foreach_add_(gradients, moved, alpha=MU)
                if correction:
                    torch._foreach_add_(gradients, correction)
            optimizer.step()
            steps += 1
        if case.algorithm == "scaffold":
            self._move_shifts(client, received, correction, steps)
        return steps

    def _softmax(self, features: Tensor) -> Tensor:
        """What the received model says about a client's samples."""
        self.module.eval()
        with torch.no_grad():
            outputs: Tensor = self.module(features).softmax(-1)
        return outputs

    def _robust(self, outputs: Tensor, labels: Tensor, soft: Tensor) -> Tensor:
        """The loss of FLASH, with its defaults."""
        log_p = outputs.log_softmax(-1)
        ce = functional.nll_loss(log_p, labels, reduction="none")
        wrong = 4.0 * (1 - (-ce).exp())
        return (ce - 0.1 * (soft * log_p).sum(-1) + 4.0 * wrong).mean()

    def _mirrored(self, images: Tensor) -> Tensor:
        """Each image mirrored with a chance of one half."""
        turned = torch.rand(len(images)) < 0.5
        return torch.where(turned.view(-1, 1, 1, 1), images.flip(-1), images)

    def _correction(self, client: int) -> list[Tensor]:
        """c − c_i of SCAFFOLD; empty for other algorithms."""
        if self.case.algorithm != "scaffold":
            return []
        own = self.shifts.get(client)
        return [value.clone() for value in self.shift] if own is None else list(torch._foreach_sub(self.shift, own))

    def _move_shifts(self, client: int, received: list[Tensor], correction: list[Tensor], steps: int) -> None:
        """Change the control variates of the client and of the server after a client's training."""
        with torch.no_grad():
            new = list(torch._foreach_sub(received, [p.detach() for p in self.parameters]))
            torch._foreach_div_(new, steps * self.case.lr)
            torch._foreach_sub_(new, correction)
            old = self.shifts.get(client)
            changes = new if old is None else torch._foreach_sub(new, old)
            torch._foreach_add_(self.shift, changes, alpha=1 / self.case.clients)
            self.shifts[client] = new

    def _loss(self, client: int) -> float:
        """The mean loss of the model on a client's samples."""
        features, labels = self.data[client]
        self.module.eval()
        with torch.no_grad():
            return float(functional.cross_entropy(self.module(features), labels))

    def _evaluate(self) -> float:
        """The accuracy of the model on the test samples."""
        self.module.load_state_dict(self.model, strict=False)
        self.module.eval()
        right = 0
        with torch.no_grad():
            for features, labels in zip(*(part.split(TEST_BATCH) for part in self.test), strict=True):
                outputs = self.module(features)
                functional.cross_entropy(outputs, labels)
                right += int((outputs.argmax(1) == labels).sum())
        return right / len(self.test[1])
