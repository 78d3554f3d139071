"""Personal models: how well the global model does on a client's own data after local epochs on them.

Each client fine-tunes a copy of the global model with the run's settings of local training (optimizer, learning rate, batch size,
loss) and without what the algorithm adds to them, such as control variates. The copy is measured on samples that it was not
fine-tuned on, and is then discarded: on the client's own test samples if the data say which they are, otherwise on samples that the
client holds out.
"""

import copy
import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from fedcohort.algorithms import ModelState
from fedcohort.algorithms.fedavg import FedAvg
from fedcohort.algorithms.updates import is_finite
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.random_streams import integer
from fedcohort.federation.federation import Federation, Samples, split_locally
from fedcohort.selection import Question
from fedcohort.training.evaluation import blocks, evaluate_block, sum_up
from fedcohort.training.trainer import Trainer

__all__ = [
    "HELD_SHARE",
    "PersonalAccuracy",
    "measured_samples",
    "personal_accuracies",
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


def personal_accuracies(trainer: Trainer, model: ModelState, t: int, client: int, epochs: int) -> Values:
    """The answer to :class:`PersonalAccuracy` of one client about the model after round ``t``, float64 [2].

    The fine-tuned model of a client whose training diverges has accuracy 0, or the score −∞. All draws have names of their own, so
    that nothing else changes.
    """
    tuner = _tuner(trainer)
    samples = _measured_on(tuner.federation, client)
    if not len(samples):
        return np.full(2, np.nan)
    before = _accuracy(trainer, trainer.show(model), samples)
    update, _ = tuner.train(model, t, client, epochs=epochs)
    trainer.forget()  # the module has the weights of the personal model
    if update.failure is not None:
        return np.array([before, before])
    worst = -math.inf if trainer.federation.is_numeric else 0.0
    after = _accuracy(tuner, tuner.module.eval(), samples) if is_finite(update) else worst
    return np.array([before, after])


def _measured_on(federation: Federation, client: int) -> Samples:
    """The samples of a client on which its personal model is measured; may be empty."""
    if federation.test_clients is None:
        return federation.held_out(client)
    own = torch.from_numpy(np.flatnonzero(federation.test_clients == client))
    return federation.test[own.to(federation.device)]


def _tuner(trainer: Trainer) -> Trainer:
    """A trainer for personal models; it shares module and optimizer with ``trainer``, and each training starts them anew."""
    tuner = copy.copy(trainer)
    tuner.federation, tuner.algorithm = with_held_out(trainer.federation), FedAvg()
    tuner.seed = integer(trainer.seed, "personal")
    return tuner


def _accuracy(trainer: Trainer, module: nn.Module, samples: Samples) -> float:
    """Share of correct predictions on samples, or the score of a client with numeric labels."""
    federation = trainer.federation
    parts = [evaluate_block(module, federation, trainer.dtype, block) for block in blocks(samples)]
    result = sum_up(parts, federation.num_outputs)
    return 1 - result.loss if federation.is_numeric else result.accuracy
