"""Tools of the server half of an algorithm, beside the updates: the network, public samples, and the validation set.

Only algorithms that run models on the server need them (FedDF, RHFL, and FedProx with a changing μ). They receive them through
:meth:`fedcohort.algorithms.base.Algorithm.prepare`, in the same way on every engine.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.algorithms.sample_measures import sample_losses, sample_scores
from fedcohort.core.network_copies import copy_of
from fedcohort.core.random_streams import integer, rng, torch_seeded
from fedcohort.core.sums import for_sums

__all__ = ["ServerTools"]

BLOCK = 128
"""Samples per forward pass over the validation set."""


@dataclass(frozen=True, eq=False)
class ServerTools:
    """Runs models on the server. Features are stored as in the data set; ``prepared`` turns them into inputs of the model.

    Attributes:
        build: makes the network with its initial weights, of which only those that models omit are used, such as frozen parameters.
        prepared: (stored features, dtype) → inputs of the model.
        num_classes: K.
        public: features of the public samples, without labels; may be empty.
        validation: (features, labels) of the server's validation set; may be empty.
        seed: the experiment's seed.
    """

    build: Callable[[], nn.Module]
    prepared: Callable[[Tensor, torch.dtype], Tensor]
    num_classes: int
    public: Tensor
    validation: tuple[Tensor, Tensor]
    seed: int

    def model(self, state: dict[str, Tensor]) -> nn.Module:
        """A new network with the weights and the dtype of ``state``, in evaluation mode."""
        module = copy_of(self._skeleton).to(dtype=_dtype(state))
        module.load_state_dict(state, strict=False)  # models omit frozen parameters
        return module.eval()

    def logits(self, module: nn.Module, features: Tensor) -> Tensor:
        """Outputs of the network on stored features, [B, K], or [B, L, K] with a label for each position."""
        outputs: Tensor = module(self.prepared(features, _dtype(module.state_dict())))
        return outputs

    def accuracy(self, module: nn.Module) -> float:
        """Accuracy (1 − squared error of numeric labels) on the validation set, in evaluation mode; NaN without the set."""
        return self._mean(module, sample_scores)

    def loss(self, module: nn.Module) -> float:
        """Mean cross-entropy (squared error of numeric labels) on the validation set, in evaluation mode; NaN without the set."""
        return self._mean(module, sample_losses)

    def _mean(self, module: nn.Module, measure: Callable[[Tensor, Tensor], Tensor]) -> float:
        """The mean of ``measure(logits, labels)`` over the validation set."""
        features, labels = self.validation
        if not len(labels):
            return float("nan")
        training, total = module.training, 0.0
        module.eval()
        with torch.no_grad():
            for start in range(0, len(labels), BLOCK):
                logits = self.logits(module, features[start : start + BLOCK])
                total += float(for_sums(measure(logits, labels[start : start + BLOCK])).sum())
        module.train(training)
        return total / len(labels)

    def rng(self, purpose: str, t: int = 0) -> np.random.Generator:
        """Random numbers for the server's work in round ``t``; round 0 is for draws that happen once per run."""
        return rng(self.seed, f"server-{purpose}", t)

    def seeded(self, purpose: str, t: int, step: int = 0) -> AbstractContextManager[object]:
        """A context in which the random numbers of a network in training mode (Dropout) depend only on purpose, round and step."""
        return torch_seeded(integer(self.seed, f"server-{purpose}-module", t) + step, self.public.device)

    @cached_property
    def _skeleton(self) -> nn.Module:
        return self.build()


def _dtype(state: dict[str, Tensor]) -> torch.dtype:
    return next((value.dtype for value in state.values() if value.is_floating_point()), torch.float32)
