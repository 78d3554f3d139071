"""FedDF: the server distills the ensemble of the clients' models into their average, on unlabeled public samples.

    student ← Σ a_i w_i                                                    the FedAvg model
    for batches x of the public set, at most ``max_batches``:
        q       = softmax( mean_i logits(w_i; x) / T )                     teachers in evaluation mode
        student ← Adam step on KL( q ‖ softmax(logits(student; x) / T) )   gradient norm ≤ 5, learning rate on a half cosine to 0
        every ``eval_every`` batches and after the last one: validation accuracy; stop after ``patience`` batches without a gain
    w^{t+1} = the best student on the validation set; the last one without a validation set

A teacher is dropped if its outputs on public samples are not finite; if this happens on the first batch, it is also left out of the
average. A single teacher cannot improve its own copy, so its model is the result, also if ``drop_worst`` leaves only one. If it leaves
none, the average is the result. A client that was drawn several times counts that many times.

The published values are max_batches = 10,000, eval_every = 100 and patience = 1,000; the smaller defaults are ours. The teachers'
outputs on a public sample are computed at its first use and kept, because they do not change during the round.

Lin et al., "Ensemble Distillation for Robust Model Fusion in Federated Learning", 2020, arXiv:2006.07242; code
epfml/federated-learning-public-code.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms.base import Algorithm
from fedcohort.algorithms.model_ensemble import ClientModel, Ensemble, all_identical, average, check_weights
from fedcohort.algorithms.server_tools import ServerTools
from fedcohort.algorithms.updates import Members, ModelState
from fedcohort.core.network_copies import copy_of
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card, LabelKind
from fedcohort.core.threads import one_thread

__all__ = ["FedDF", "distillation_loss", "targets"]

Target = Literal["avg_logits", "avg_losses", "avg_probs"]
CLIP = 5.0
"""Largest norm of the student's gradient."""


def targets(logits: Tensor, counts: Tensor, temperature: float, target: Target) -> tuple[Tensor, Tensor]:
    """The teachers' targets for a batch: probabilities q [B, K], and Σ q·log q [B], the part of the loss that is constant.

    ``avg_losses`` is the mean of the student's losses against each teacher. Like ``avg_probs``, it needs only the mean of the
    teachers' probabilities: the two have the same gradient and differ by a constant.

    Args:
        logits: outputs of each teacher, [n, B, K].
        counts: how often each teacher counts, [n].
        temperature: T.
        target: what is averaged over teachers.
    """
    counts = counts.to(logits)
    shares = (counts / counts.sum())[:, None, None]
    if target == "avg_logits":
        probabilities = functional.softmax((shares * logits).sum(0) / temperature, dim=-1)
        return probabilities, -torch.special.entr(probabilities).sum(-1)
    per_teacher = functional.softmax(logits / temperature, dim=-1)
    probabilities = (shares * per_teacher).sum(0)
    if target == "avg_probs":
        return probabilities, -torch.special.entr(probabilities).sum(-1)
    return probabilities, -(shares * torch.special.entr(per_teacher)).sum((0, -1))


def distillation_loss(probabilities: Tensor, constant: Tensor, logits: Tensor, temperature: float) -> Tensor:
    """KL(teachers ‖ student), averaged over the batch; ``probabilities`` and ``constant`` come from :func:`targets`."""
    cross = (probabilities * functional.log_softmax(logits / temperature, dim=-1)).sum(-1)
    return (constant - cross).mean()


@parameters
class FedDF(Algorithm):
    """FedAvg, then distillation on public samples. The clients' ensemble is distilled into the average."""

    temperature: Annotated[float, Gt(0)] = 1.0
    """Temperature T of the teachers' and the student's softmax."""
    lr: Annotated[float, Gt(0)] = 1e-3
    """Learning rate of Adam on the server; falls to 0 on a half cosine over ``max_batches``."""
    batch_size: Annotated[int, Ge(1)] = 128
    """Public samples per step."""
    max_batches: Annotated[int, Ge(1)] = 500
    """Largest number of steps (published: 10,000)."""
    eval_every: Annotated[int, Ge(1)] = 50
    """Steps between two evaluations on the validation set (published: 100)."""
    patience: Annotated[int, Ge(1)] = 200
    """Steps without a better validation accuracy after which distillation stops (published: 1,000)."""
    target: Target = "avg_logits"
    """What is averaged over teachers: their logits, their probabilities, or the student's losses against each of them."""
    drop_worst: bool = False
    """Leave out teachers that are not better than chance on the validation set."""
    return_best: bool = False
    """Return the average before distillation if its validation accuracy is the best."""
    refresh_statistics: bool = False
    """Estimate the batch-norm statistics of the result again, on the public samples."""

    card: ClassVar[Card] = Card(
        source="Lin et al. 2020, arXiv:2006.07242; epfml/federated-learning-public-code",
        status="code",
        cost="O((k + 3)·max_batches) forward passes",
        score="compares accuracies on the validation set with each other and with chance, 1/K; classes only",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"public"})
    keeps_models: ClassVar[bool] = True

    def refuses(self, labels: LabelKind) -> str:
        """Numeric labels."""
        return "it distills class probabilities" if labels == "numbers" else ""

    def __post_init__(self) -> None:
        check_weights(self.weights, "FedDF")
        self.shares: dict[int, float] = {}

    def begin(self, model: ModelState, members: Members) -> Ensemble:
        """Keep the models of the round until its end."""
        return Ensemble(model, members)

    def end(self, fold: Ensemble, model: ModelState, members: Members) -> ModelState:
        """Average and distill; returns the received model if no teacher has finite outputs."""
        self.shares = {member.client: member.weight for member in fold.models}
        if all_identical(fold.models):
            return average(fold.models)
        assert self.tools is not None, "prepare() comes first"
        with one_thread():
            teachers = _Teachers(self, self.tools, fold.models, members.t)
            self._weigh_only(teachers.models)
            if not teachers.models:
                return model
            start = average(teachers.models)
            if self.drop_worst:
                teachers.drop_worst()
            if not teachers.models:
                return start
            if all_identical(teachers.models):
                self._weigh_only(teachers.models)
                return average(teachers.models)
            student = self._distill(self.tools, teachers, start, members.t)
            if self.refresh_statistics:
                with self.tools.seeded("refresh", members.t):
                    _refresh(self.tools, student, self.batch_size)
        found = student.state_dict()
        return {name: found[name].detach().clone().contiguous() for name in start}

    def weighed(self) -> Mapping[int, float]:
        """0 for models that are not in the average."""
        return self.shares

    def _weigh_only(self, models: list[ClientModel]) -> None:
        """Set the weights of all other models to 0."""
        kept = {member.client for member in models}
        self.shares = {client: weight * (client in kept) for client, weight in self.shares.items()}

    def _distill(self, tools: ServerTools, teachers: "_Teachers", start: ModelState, t: int) -> nn.Module:
        """The student after distillation: the best on the validation set, or the last without one."""
        student = _Student(self, tools, start, t)
        for batch, index in enumerate(teachers.batches(self.max_batches), start=1):
            if not student.learn(batch, index, *teachers.targets_of(index)) or student.is_done(batch):
                break
        return student.result()


class _Student:
    """The student of a round: its training, and the best network so far on the validation set."""

    def __init__(self, settings: FedDF, tools: ServerTools, start: ModelState, t: int) -> None:
        self._settings, self._tools, self._start, self._t = settings, tools, start, t
        self._network = tools.model(start)
        self._weights = [p for p in self._network.parameters() if p.requires_grad]
        self._optimizer = torch.optim.Adam(self._weights, settings.lr, fused=True)
        self._is_validated = len(tools.validation[1]) > 0
        self._best, self._best_accuracy, self._best_batch = copy_of(self._network), -1.0, 0
        self._start_accuracy = tools.accuracy(self._network) if settings.return_best and self._is_validated else -1.0

    def learn(self, batch: int, index: Tensor, probabilities: Tensor, constant: Tensor) -> bool:
        """One step toward the teachers' targets on the public samples ``index``; False, without a step, if the loss is not finite."""
        settings, tools, network = self._settings, self._tools, self._network
        for group in self._optimizer.param_groups:
            group["lr"] = settings.lr * 0.5 * (1 + math.cos(math.pi * (batch - 1) / settings.max_batches))
        network.train()
        with tools.seeded("distillation", self._t, batch):
            logits = tools.logits(network, tools.public[index])
        loss = distillation_loss(probabilities, constant, logits, settings.temperature)
        if not torch.isfinite(loss):
            return False
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self._weights, CLIP)
        self._optimizer.step()
        return True

    def is_done(self, batch: int) -> bool:
        """Validate the student after step ``batch`` if a validation is due; True if distillation should stop."""
        settings = self._settings
        if not self._is_validated:
            self._best = self._network
            return False
        if batch % settings.eval_every and batch != settings.max_batches:
            return False
        accuracy = self._tools.accuracy(self._network)
        if accuracy > self._best_accuracy:
            self._best, self._best_accuracy, self._best_batch = copy_of(self._network), accuracy, batch
            return False
        return batch - self._best_batch >= settings.patience

    def result(self) -> nn.Module:
        """The best network, or the last one without a validation set."""
        return self._tools.model(self._start) if self._start_accuracy > self._best_accuracy else self._best


class _Teachers:
    """The teachers of a round, and their targets for the public samples that were used so far."""

    def __init__(self, settings: FedDF, tools: ServerTools, models: list[ClientModel], t: int) -> None:
        self.models = models
        self._settings, self._tools, self._t = settings, tools, t
        self._networks = [tools.model(member.state) for member in models]
        n = len(tools.public)
        like = next(value for value in models[0].state.values() if value.is_floating_point())
        self._has_targets = torch.zeros(n, dtype=torch.bool, device=like.device)
        self._probabilities, self._constant = like.new_zeros((n, tools.num_classes)), like.new_zeros(n)
        self._logits(next(self.batches(1)))  # drops teachers that are not finite on the first batch

    def batches(self, number: int) -> Iterator[Tensor]:
        """Positions of public samples, shuffled again after each pass; a last batch of a single sample is left out."""
        rng, n, size = self._tools.rng("distillation", self._t), len(self._has_targets), self._settings.batch_size
        while True:
            for index in torch.from_numpy(rng.permutation(n)).split(size):
                if len(index) < min(2, n, size):
                    continue
                if number == 0:
                    return
                number -= 1
                yield index.to(self._has_targets.device)

    def drop_worst(self) -> None:
        """Leave out teachers that are not better than chance on the validation set."""
        if len(self._tools.validation[1]):
            self._keep([self._tools.accuracy(network) > 1 / self._tools.num_classes for network in self._networks])

    def targets_of(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The :func:`targets` for public samples; NaN if no teacher is left."""
        new = index[~self._has_targets[index]]
        if len(new):
            logits = self._logits(new)
            counts = torch.tensor([float(member.times) for member in self.models])
            if self.models:
                probabilities, constant = targets(logits, counts, self._settings.temperature, self._settings.target)
                self._probabilities[new], self._constant[new] = probabilities, constant
            else:
                self._constant[new] = torch.nan
            self._has_targets[new] = True
        return self._probabilities[index], self._constant[index]

    def _logits(self, index: Tensor) -> Tensor:
        """Outputs of all teachers, [n, B, K]; teachers with outputs that are not finite are dropped."""
        with torch.no_grad():
            each = [self._tools.logits(network, self._tools.public[index]) for network in self._networks]
        finite = [bool(torch.isfinite(logits).all()) for logits in each]
        self._keep(finite)
        return torch.stack(
            [logits for logits, is_finite in zip(each, finite, strict=True) if is_finite] or [torch.empty(0)]
        )

    def _keep(self, mask: list[bool]) -> None:
        """Keep only the teachers for which ``mask`` is True."""
        self.models = [member for member, keep in zip(self.models, mask, strict=True) if keep]
        self._networks = [network for network, keep in zip(self._networks, mask, strict=True) if keep]


def _refresh(tools: ServerTools, student: nn.Module, batch_size: int) -> None:
    """Set the running statistics of batch norm to plain means over the batches of public samples."""
    norms = [part for part in student.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    if norms:
        student.train()
        with torch.no_grad():
            for features in tools.public.split(batch_size):
                if len(features) > 1:
                    tools.logits(student, features)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
