"""Personal models: how well the global model does on a client's own data after local epochs on them.

Each client fine-tunes a copy of the global model with the run's settings of local training (optimizer, learning rate, batch size,
loss) and without what the algorithm adds to them, such as control variates. The copy is measured on samples that it was not
fine-tuned on, and is then discarded: on the client's own test samples if the data say which they are, otherwise on samples that the
client holds out.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.algorithms import ModelState, Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.updates import is_finite
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.random_streams import integer
from fedcohort.federation.federation import Federation, Samples, split_locally
from fedcohort.selection import Question
from fedcohort.training.answers import Outputs, accuracies, outputs_of
from fedcohort.training.evaluation import BLOCK
from fedcohort.training.programs.forward_functions import aligned_part
from fedcohort.training.trainer import Trainer

__all__ = [
    "HELD_SHARE",
    "PersonalAccuracy",
    "PersonalMeasure",
    "measured_samples",
    "personal_data",
    "with_held_out",
]

HELD_SHARE = 0.2
"""Share of a client's samples on which its personal model is measured, in federations whose clients have no test samples and hold out
none."""


@dataclass(frozen=True)
class PersonalAccuracy(Question):
    """Accuracy of the received model on the client's test or held-out samples, and that of this model after ``epochs`` local epochs.

    A question for the record only: strategies cannot ask it. An answer is two numbers, NaN for a client without such samples.
    With numeric labels, the score is 1 − the mean squared error, in units of the variance of all training labels.

    Attributes:
        epochs: number of local epochs.
    """

    reveals: ClassVar[str] = "the accuracy of the model on its held-out data, before and after local epochs"
    numbers: ClassVar[int] = 2
    epochs: int = 1


def with_held_out(federation: Federation) -> Federation:
    """The federation itself if its clients have test samples or hold out samples; otherwise one in which each holds out
    :data:`HELD_SHARE` of its samples.

    The held-out samples are always the same ones: the last of the client's samples, which the partition has shuffled.
    """
    if federation.held is not None or federation.test_clients is not None:
        return federation
    return dataclasses.replace(federation, held=split_locally(federation.num_samples, HELD_SHARE))


def personal_data(federation: Federation) -> str:
    """What personal models are measured on in this federation, before :func:`with_held_out`, in words."""
    if federation.test_clients is not None:
        return "test samples"
    return "left-out training samples" if federation.held is None else "held-out samples"


def measured_samples(federation: Federation) -> Indices:
    """Number of samples on which the personal model of each client is measured, int64 [m]."""
    if federation.test_clients is None:
        return with_held_out(federation).num_held_out
    known = federation.test_clients[federation.test_clients >= 0]
    return np.bincount(known, minlength=federation.num_clients)


class PersonalMeasure:
    """Answers :class:`PersonalAccuracy` about clients, each float64 [2].

    The fine-tuned model of a client whose training diverges has accuracy 0, or the score −∞. All draws have names of their own, so
    that nothing else changes.

    Args:
        trainer: trains the personal models with its module, and without its algorithm.
        clients: the clients that are asked.

    Attributes:
        measured: those of them that have samples to be measured on, in order.
    """

    def __init__(self, trainer: Trainer, clients: Sequence[int]) -> None:
        self.trainer = trainer
        self.tuner = trainer.beside(with_held_out(trainer.federation), FedAvg(), integer(trainer.seed, "personal"))
        self._samples, self._positions = _measured_on(self.tuner.federation, clients)
        self.measured = [client for client in clients if len(self._positions[client])]

    def of_client(self, model: ModelState, t: int, client: int, epochs: int) -> Values:
        """The answer of one client, which has samples to be measured on, about the model after round ``t``."""
        (before,) = self._before(model, [client])
        update, _ = self.tuner.train(model, t, client, epochs=epochs)
        self.trainer.forget()  # the module has the weights of the personal model
        if update.failure is not None:
            return np.array([before, before])
        module = self.tuner.module.eval()  # as its training left it, with buffers that are not part of a model
        return np.array([before, *self._after([update], [module])])

    def of_series(self, model: ModelState, t: int, clients: Sequence[int], epochs: int) -> dict[int, Values]:
        """The answers of several such clients, which are trained in one call, with the bits of :meth:`of_client`; none if that is
        not possible, see :meth:`Trainer.train_series`."""
        before = self._before(model, clients)
        trained = self.tuner.train_series(model, t, clients, [epochs] * len(clients), {}, [{}] * len(clients))
        self.trainer.forget()
        if trained is None:
            return {}
        updates = [update for update, _ in trained]
        after = self._after(updates, (self.tuner.show(update.state) for update in updates))
        self.tuner.forget()
        return dict(zip(clients, np.stack([before, after], axis=1), strict=True))

    def _before(self, model: ModelState, clients: Sequence[int]) -> Values:
        """Accuracy of the received model for each client, float64 [n]."""
        module = self.trainer.show(model)
        return self._accuracies(outputs_of(module, self.trainer.outputs_program()), clients)

    def _after(self, updates: Sequence[Update], modules: Iterable[nn.Module]) -> Values:
        """Accuracy of each personal model, float64 [n].

        Args:
            updates: what the training gave.
            modules: the module with the weights of each update; it has them until the next one is taken.
        """
        clients = [update.client for update in updates]
        blocks = [-(-len(self._positions[client]) // BLOCK) for client in clients]
        of_blocks = (module for module, number in zip(modules, blocks, strict=True) for _ in range(number))

        def outputs(features: Tensor, edges: list[int]) -> Tensor:
            parts = itertools.pairwise(edges)
            return torch.cat(
                [module(aligned_part(features, *part)) for part, module in zip(parts, of_blocks, strict=False)]
            )

        found = self._accuracies(outputs, clients)
        worst = -math.inf if self.trainer.federation.is_numeric else 0.0
        return np.where([is_finite(update) for update in updates], found, worst)

    def _accuracies(self, outputs: Outputs, clients: Sequence[int]) -> Values:
        """Share of correct predictions of each client, or its score with numeric labels; NaN without samples."""
        own = [self._positions[client] for client in clients]
        return accuracies(outputs, self.trainer.federation, self.trainer.dtype, self._samples, own)


def _measured_on(federation: Federation, clients: Sequence[int]) -> tuple[Samples, dict[int, Indices]]:
    """The samples on which personal models are measured, and the positions of those of each client, which may be none."""
    if federation.test_clients is None:
        ends = ((federation.span(client)[1], federation.offsets[client + 1]) for client in clients)
        return federation.train, {client: np.arange(*own) for client, own in zip(clients, ends, strict=True)}
    own = np.flatnonzero(np.isin(federation.test_clients, clients))
    own = own[np.argsort(federation.test_clients[own], kind="stable")]
    numbers, starts = np.unique(federation.test_clients[own], return_index=True)
    found = dict(zip(numbers.tolist(), np.split(own, starts[1:]), strict=len(numbers) > 0))
    return federation.test, {client: found.get(client, own[:0]) for client in clients}
