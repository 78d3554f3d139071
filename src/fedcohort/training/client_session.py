"""The training of one client in one round: its epochs, and the update at the end."""

import math
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from fedcohort.algorithms import Update
from fedcohort.algorithms.base import Correction
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.random_streams import rng
from fedcohort.selection import Progress, StoppingRule
from fedcohort.selection.cohort import MORE_WORK_BY_LOSS
from fedcohort.training.client_hooks import corrected, differentiated, ending, finished, stated_correction
from fedcohort.training.client_memories import Trained
from fedcohort.training.client_problem import ClientProblem
from fedcohort.training.client_report import NO_STEP, training_report
from fedcohort.training.image_augmentation import Changes
from fedcohort.training.local_setup import LocalSetup
from fedcohort.training.networks.model_states import to_device
from fedcohort.training.scripts.scripted_passes import OwnCorrection

__all__ = ["Session"]


class Session:
    """Trains one client from the model that ``setup`` has loaded.

    Args:
        setup: the model and the settings.
        problem: the client's local problem.
        epochs: maximum number of epochs.
        sampling: how an epoch's samples are drawn, see :class:`fedcohort.selection.Cohort`.
    """

    def __init__(self, setup: LocalSetup, problem: ClientProblem, epochs: int, sampling: str) -> None:
        self.setup, self.problem, self.epochs, self.sampling = setup, problem, epochs, sampling
        settings, samples = setup.training, problem.num_samples
        self.by_loss = sampling != "shuffled"
        self.size = settings.batch_size or max(1, samples)
        self.order = rng(setup.seed, "batches", problem.t, problem.client)
        augments = settings.augment != "none"
        self.changes = rng(setup.seed, "augment", problem.t, problem.client) if augments else None
        self.losses: list[Tensor] = []  # cross-entropy of every sample in every step
        self.right: Tensor | int = 0  # correct predictions in the last epoch
        self.first_steps = 0  # steps of the first epoch
        self.visited = 0  # samples of the steps of the last epoch; batch norm leaves out a last batch of one sample
        self.trained_on = np.full(samples, False)
        if self.by_loss:
            self.first_visits: Indices = np.arange(samples)  # position in the first epoch of each sample's first visit
        self.checks: list[dict[str, float]] = []  # what the stopping rule reported after each epoch
        self.used = 0  # epochs done

    def run(self, stop: StoppingRule | None) -> None:
        """Train for all epochs, or fewer if ``stop`` ends the training."""
        while self.used < self.epochs:
            losses = self._epoch()
            if stop is not None and self._ends(stop, losses):
                break

    def result(self) -> Trained:
        """The client's update and its new memory."""
        setup, problem = self.setup, self.problem
        samples, work = problem.num_samples, self.used / setup.training.epochs
        if not self.losses:
            return Update(problem.client, samples, 0, setup.trained(), work=work, failure=NO_STEP), {}
        extra, memory = finished(setup.algorithm, problem)
        update = Update(
            client=problem.client,
            num_samples=samples,
            steps=int(problem.steps),
            state=setup.trained(),
            extra=extra,
            report=self._report(),
            passes=problem.forwards / samples,
            work=work * (MORE_WORK_BY_LOSS if self.by_loss else 1),
        )
        return update, memory

    def _epoch(self) -> list[Tensor]:
        """One pass over the samples; returns the losses of its steps."""
        problem, device = self.problem, self.problem.device
        samples = self._samples()
        if self.changes is not None:
            problem.changes = Changes.draw(self.setup.training.augment, problem.num_samples, self.changes, device)
        order = to_device(samples, device)
        program = None if problem.reweighted else self.setup.plain_steps(self.size)
        correction = self._correction() if program is not None else None
        if program is None or correction is None:
            losses, self.right = self._steps(order)
        else:
            losses, self.right = problem.descend(program, order, self.size, correction)
        self.losses += losses
        self.visited = sum(step.shape[0] for step in losses)
        self.trained_on[samples[: self.visited]] = True
        self.first_steps = self.first_steps or len(self.losses)
        self.used += 1
        return losses

    def _correction(self) -> Correction | OwnCorrection | None:
        """What the algorithm adds to the gradients of every step; None if that cannot be said before the steps."""
        algorithm = self.setup.algorithm
        if self.setup.own_corrections.possible:
            return self.setup.own_corrections.of(self.problem)
        return stated_correction(algorithm, self.problem) if algorithm.corrects else Correction()

    def _samples(self) -> Indices:
        """The samples of the next epoch, in order."""
        if not self.by_loss:
            return self.order.permutation(self.problem.num_samples)
        samples = self.problem.draw_by_loss(self.order, reweighted=self.sampling == "loss_unbiased")
        if self.used == 0:
            self.first_visits = np.unique(samples, return_index=True)[1]
        return samples

    def _steps(self, order: Tensor) -> tuple[list[Tensor], Tensor]:
        """A step for every batch; the cross-entropy of each sample in each step, and the total number of correct predictions."""
        setup, problem = self.setup, self.problem
        all_losses: list[Tensor] = []
        all_right = torch.zeros((), dtype=torch.int64, device=order.device)
        whole = len(order) // self.size * self.size
        script = setup.scripted_steps(self.size) if whole and not problem.reweighted else None
        correction = self._correction() if script is not None else None
        if script is not None and correction is not None:
            all_losses, all_right = problem.descend(script, order[:whole], self.size, correction)
        left = order[len(all_losses) * self.size :]
        for batch in left.split(self.size) if len(left) else ():
            if batch.shape[0] < setup.smallest_batch:
                continue
            problem.batch = batch
            losses, right = differentiated(setup.algorithm, problem)
            if setup.training.clip_norm:
                torch.nn.utils.clip_grad_norm_(setup.parameters.values(), setup.training.clip_norm)
            if setup.algorithm.corrects:
                corrected(setup.algorithm, problem, problem.gradients)
            setup.optimizer.step()
            problem.steps += 1
            all_right = all_right + right
            all_losses.append(losses)
        return all_losses, all_right

    def _ends(self, stop: StoppingRule, losses: list[Tensor]) -> bool:
        """Whether the rule ends the training after this epoch; ``losses`` are those of its steps."""
        problem = self.problem
        progress = Progress(
            epoch=self.used,
            last=self.used == self.epochs,
            loss=_mean_of_steps(*_joined(losses)) if losses else math.nan,
            held_out=problem.held_out_probabilities,
            before=self.checks,
            trained=problem.trained_probabilities,
            tested=problem.tested_probabilities,
        )
        ends, report = ending(stop, progress)
        self.checks.append(report)
        return ends

    def _report(self) -> dict[str, float]:
        values, sizes = _joined(self.losses)
        first_pass = values[: sum(sizes[: self.first_steps])]
        if self.by_loss:
            # samples of a last batch that was left out have no loss
            first_pass = first_pass[self.first_visits[self.first_visits < len(first_pass)]]
        labels_each = self.problem.num_labels // self.problem.num_samples
        checked = self.checks[-1] | {"epochs": float(self.used)} if self.checks else {}
        measured = {
            "loss": _mean_of_steps(values, sizes),
            "square_loss": float(np.square(first_pass).sum() / len(first_pass)),
            "samples": float(self.trained_on.sum()),
            "steps": float(self.problem.steps),
            "accuracy": float(self.right) / max(labels_each * self.visited, 1),
        }
        return training_report(**(measured | checked))


def _joined(losses: list[Tensor]) -> tuple[Values, list[int]]:
    """The losses of all steps, float64, and the number of them in each step."""
    values: Values = torch.cat(losses).cpu().double().numpy()
    return values, [len(step) for step in losses]


def _mean_of_steps(values: Values, sizes: list[int]) -> float:
    """The mean over steps of the mean loss of a step; arguments as :func:`_joined` returns them."""
    starts = [0, *accumulate(sizes[:-1])]
    means = np.add.reduceat(values, starts) / sizes
    return float(means.sum() / len(means))
