"""FedDF: the server distils the ensemble of the clients' models into their average, on unlabelled public samples.

    student ← Σ a_i w_i                                                    the FedAvg model
    for batches x of the public set, at most ``max_batches``:
        q       = softmax( mean_i logits(w_i; x) / T )                     teachers in evaluation mode
        student ← Adam step on KL( q ‖ softmax(logits(student; x) / T) )   gradient norm ≤ 5, learning rate on a half cosine to 0
        every ``eval_every`` batches: validation accuracy; stop when it has not improved for ``patience`` batches
    w^{t+1} = the best student on the validation set; the last one without a validation set

A teacher whose outputs on public samples are not finite is dropped, from the average too where the first batch shows it. A single
teacher has nothing to teach its own copy: its model is the result. A client that was drawn several times counts as often.

Published are max_batches = 10,000, eval_every = 100 and patience = 1,000; the smaller defaults are ours. Outputs of the teachers on a
public sample are computed when it is first used, and kept: they do not change during the round.

Lin et al., "Ensemble Distillation for Robust Model Fusion in Federated Learning", 2020, arXiv:2006.07242; code
epfml/federated-learning-public-code.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms.base import Algorithm, Members, ModelState, Update
from fedcohort.algorithms.ensemble import Ensemble, Member, all_alike, average, check_weights
from fedcohort.algorithms.server import ServerTools
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.core.threads import one_thread

__all__ = ["FedDF", "distillation_loss", "targets"]

Target = Literal["avg_logits", "avg_losses", "avg_probs"]
CLIP = 5.0
"""Gradient norm at most."""


def targets(logits: Tensor, counts: Tensor, temperature: float, target: Target) -> tuple[Tensor, Tensor]:
    """What the teachers say of a batch: probabilities q [B, K], and Σ q·log q [B], the part of the loss that no student changes.

    ``avg_losses`` is the mean of the teachers' own losses. It needs the mean of their probabilities only, as ``avg_probs`` does: the
    two have the same gradient and differ by a constant.

    Args:
        logits: of each teacher, [n, B, K].
        counts: how often each teacher counts, [n].
        temperature: T.
        target: what is averaged over teachers.
    """
    shares = (counts / counts.sum()).to(logits)[:, None, None]
    if target == "avg_logits":
        probabilities = functional.softmax((shares * logits).sum(0) / temperature, dim=-1)
        return probabilities, -torch.special.entr(probabilities).sum(-1)
    each = functional.softmax(logits / temperature, dim=-1)
    probabilities = (shares * each).sum(0)
    if target == "avg_probs":
        return probabilities, -torch.special.entr(probabilities).sum(-1)
    return probabilities, -(shares * torch.special.entr(each)).sum((0, -1))


def distillation_loss(probabilities: Tensor, constant: Tensor, logits: Tensor, temperature: float) -> Tensor:
    """KL(teachers ‖ student), the mean over the batch; the first two as :func:`targets` gives them."""
    cross = (probabilities * functional.log_softmax(logits / temperature, dim=-1)).sum(-1)
    return (constant - cross).mean()


@parameters
class FedDF(Algorithm):
    """FedAvg, then distillation of the clients' ensemble into the average on public samples."""

    temperature: Annotated[float, Gt(0)] = 1.0
    """Temperature T of teachers' and student's softmax."""
    lr: Annotated[float, Gt(0)] = 1e-3
    """Learning rate of Adam on the server; falls to 0 on a half cosine over ``max_batches``."""
    batch_size: Annotated[int, Ge(1)] = 128
    """Public samples per step."""
    max_batches: Annotated[int, Ge(1)] = 500
    """Steps at most (published: 10,000)."""
    eval_every: Annotated[int, Ge(1)] = 50
    """Steps between two looks at the validation accuracy (published: 100)."""
    patience: Annotated[int, Ge(1)] = 200
    """Steps without a better validation accuracy after which distillation stops (published: 1,000)."""
    target: Target = "avg_logits"
    """What is averaged over teachers: their logits, their probabilities, or the student's losses against each of them."""
    drop_worst: bool = False
    """Leave out teachers that are no better than chance on the validation set."""
    return_best: bool = False
    """Let the average before distillation compete for the best validation accuracy, too."""
    refresh_statistics: bool = False
    """Estimate batch-norm statistics of the result anew on the public samples."""

    card: ClassVar[Card] = Card(
        source="Lin et al. 2020, arXiv:2006.07242; epfml/federated-learning-public-code",
        status="code",
        cost="O((k + 3)·max_batches) forward passes",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"public"})
    keeps_models: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_weights(self.weights, "FedDF")
        self.shares: dict[int, float] = {}

    def begin(self, model: ModelState, members: Members) -> Ensemble:
        """The round's models are kept until its end."""
        return Ensemble(model, members)

    def add(self, fold: Ensemble, update: Update, weight: float) -> None:
        """Keep the model."""
        fold.add(update, weight)

    def end(self, fold: Ensemble, model: ModelState, members: Members) -> ModelState:
        """Average and distil; the received model if no teacher has finite outputs."""
        self.shares = {member.client: member.weight for member in fold.models}
        if all_alike(fold.models):
            return average(fold.models)
        assert self.tools is not None, "prepare() comes first"
        with one_thread():
            teachers = _Teachers(self, self.tools, fold.models, members.t)
            kept = {member.client for member in teachers.models}
            self.shares = {client: weight * (client in kept) for client, weight in self.shares.items()}
            if not teachers.models:
                return model
            start = average(teachers.models)
            if self.drop_worst:
                teachers.drop_worst()
            if not teachers.models or all_alike(teachers.models):
                return start
            student = self._distil(self.tools, teachers, start, members.t)
            if self.refresh_statistics:
                with self.tools.seeded("refresh", members.t):
                    _refresh(self.tools, student, self.batch_size)
        return {name: value.detach().clone().contiguous() for name, value in student.state_dict().items()}

    def weighed(self) -> Mapping[int, float]:
        """Nothing for teachers that were dropped."""
        return self.shares

    def _distil(self, tools: ServerTools, teachers: "_Teachers", start: ModelState, t: int) -> nn.Module:
        """The student after distillation: the best that was seen, or the last."""
        student = tools.model(start)
        weights = [p for p in student.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(weights, self.lr, fused=True)
        validated = len(tools.validation[1]) > 0
        best, best_accuracy, best_batch = copy.deepcopy(student), -1.0, 0
        first_accuracy = tools.accuracy(student) if self.return_best and validated else -1.0
        for batch, index in enumerate(teachers.batches(self.max_batches), start=1):
            for group in optimizer.param_groups:
                group["lr"] = self.lr * 0.5 * (1 + math.cos(math.pi * (batch - 1) / self.max_batches))
            probabilities, constant = teachers.say(index)
            student.train()
            with tools.seeded("distillation", t, batch):
                logits = tools.logits(student, tools.public[index])
            loss = distillation_loss(probabilities, constant, logits, self.temperature)
            if not torch.isfinite(loss):
                break
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(weights, CLIP)
            optimizer.step()
            if not validated:
                best = student
            elif batch % self.eval_every == 0 or batch == self.max_batches:
                accuracy = tools.accuracy(student)
                if accuracy > best_accuracy:
                    best, best_accuracy, best_batch = copy.deepcopy(student), accuracy, batch
                elif batch - best_batch >= self.patience:
                    break
        return tools.model(start) if first_accuracy > best_accuracy else best


class _Teachers:
    """The teachers of a round, and what they said of public samples so far."""

    def __init__(self, rule: FedDF, tools: ServerTools, models: list[Member], t: int) -> None:
        self.models = models
        self._rule, self._tools, self._t = rule, tools, t
        self._modules = [tools.model(member.state) for member in models]
        n = len(tools.public)
        like = next(value for value in models[0].state.values() if value.is_floating_point())
        self._known = torch.zeros(n, dtype=torch.bool, device=like.device)
        self._probabilities, self._constant = like.new_zeros((n, tools.num_classes)), like.new_zeros(n)
        self._logits(next(self.batches(1)))  # drops those that are not finite from the start

    def batches(self, number: int) -> Iterator[Tensor]:
        """Positions of public samples, shuffled anew whenever all were used; a last batch of one is left out."""
        rng, n, size = self._tools.rng("distillation", self._t), len(self._known), self._rule.batch_size
        while True:
            for index in torch.from_numpy(rng.permutation(n)).split(size):  # type: ignore[no-untyped-call]
                if len(index) < min(2, n, size):
                    continue
                if number == 0:
                    return
                number -= 1
                yield index.to(self._known.device)

    def drop_worst(self) -> None:
        """Leave out teachers that guess."""
        if len(self._tools.validation[1]):
            self._keep([self._tools.accuracy(module) > 1 / self._tools.num_classes for module in self._modules])

    def say(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """See :func:`targets`, of public samples; NaN once no teacher is left."""
        new = index[~self._known[index]]
        if len(new):
            logits = self._logits(new)
            counts = torch.tensor([float(member.times) for member in self.models])
            if self.models:
                found = targets(logits, counts, self._rule.temperature, self._rule.target)
                self._probabilities[new], self._constant[new] = found
            else:
                self._constant[new] = torch.nan
            self._known[new] = True
        return self._probabilities[index], self._constant[index]

    def _logits(self, index: Tensor) -> Tensor:
        """Outputs of all teachers, [n, B, K]; those with other than finite numbers are dropped."""
        with torch.no_grad():
            each = [self._tools.logits(module, self._tools.public[index]) for module in self._modules]
        fine = [bool(torch.isfinite(logits).all()) for logits in each]
        self._keep(fine)
        return torch.stack([logits for logits, kept in zip(each, fine, strict=True) if kept] or [torch.empty(0)])

    def _keep(self, fine: list[bool]) -> None:
        self.models = [member for member, good in zip(self.models, fine, strict=True) if good]
        self._modules = [module for module, good in zip(self._modules, fine, strict=True) if good]


def _refresh(tools: ServerTools, student: nn.Module, batch_size: int) -> None:
    """Running statistics of batch norm as plain means over the public samples' batches."""
    norms = [part for part in student.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    if norms:
        student.train()
        with torch.no_grad():
            for features in tools.public.split(batch_size):  # type: ignore[no-untyped-call]
                if len(features) > 1:
                    tools.logits(student, features)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
