"""Sums over the training of a group, for the clients' reports."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedcohort.core.sums import for_sums, sum_type
from fedcohort.training.client_report import training_report
from fedcohort.training.networks.model_states import to_device
from fedcohort.training.stack.batch_plan import Plan, sample_counts
from fedcohort.training.stack.stack_setup import StackSetup

__all__ = ["Tally"]


class Tally:
    """Sums over the steps of every client. They stay on the device, so that no step waits for a GPU.

    Args:
        setup: the stack's setup.
        plans: the plans of the group's clients, most steps first.

    Attributes:
        counts: samples of every step of every client, int64 [g, S].
        divisors: the same on the device, at least 1, in the model's number format.
        forwards: samples that went through each client's model, [g]; a sample counts three times if its gradient was taken.
    """

    def __init__(self, setup: StackSetup, plans: Sequence[Plan]) -> None:
        self.device, self.plans = setup.device, plans
        self.counts = sample_counts(plans)
        self.divisors = to_device(np.maximum(self.counts, 1), setup.device).to(setup.dtype)
        steps, per_pass = np.arange(self.counts.shape[1]), np.array([[plan.per_pass] for plan in plans])
        self._first_pass = steps < per_pass
        self._last_pass = steps >= np.array([[plan.steps] for plan in plans]) - per_pass
        self._loss = torch.zeros(len(plans), dtype=sum_type(setup.device), device=setup.device)
        self._squares, self._right = torch.zeros_like(self._loss), torch.zeros_like(self._loss)
        self.forwards = np.zeros(len(plans))
        if setup.loss.needs_outputs:
            self.forwards += np.array([plan.size for plan in plans])

    def add(self, step: int, losses: Tensor, right: Tensor) -> None:
        """Add a step of the first a clients: the cross-entropy of each sample [a, B], and the correct predictions [a]."""
        a = len(losses)
        self._loss[:a] += losses.sum(1) / self.divisors[:a, step]
        if self._first_pass[:a, step].any():
            self._squares[:a] += for_sums(losses).square().sum(1) * to_device(self._first_pass[:a, step], self.device)
        if self._last_pass[:a, step].any():
            self._right[:a] += right * to_device(self._last_pass[:a, step], self.device)

    def reports(self, clients: slice) -> list[dict[str, float]]:
        """The reports of these clients, which have done all their steps."""
        sums = [values[clients].tolist() for values in (self._loss, self._squares, self._right)]
        return [
            training_report(
                loss=loss / plan.steps,
                square_loss=squares / plan.size,
                samples=float(plan.size),
                steps=float(plan.steps),
                accuracy=right / plan.size,
            )
            for plan, loss, squares, right in zip(self.plans[clients], *sums, strict=True)
        ]
