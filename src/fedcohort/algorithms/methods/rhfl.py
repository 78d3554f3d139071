"""RHFL for one global model: clients train with a robust loss, and the server lets their models learn from each other.

    client i:  ℓ_i = mean SL of w^t on its own samples;  w_i = E epochs with SL from w^t;  sends w_i and ℓ_i
    server:    q_i = max(0, (ℓ_i^prev − ℓ_i)/ℓ_i),  ℓ_i^prev from the client's last participation (q_i = 0 without one)
               W   = softmax( 1/(n−1) + β·q_i/Σq )  over the n admitted;  uniform if Σq = 0
               for each batch of the public set, ``align_epochs`` times:
                   R_i = softmax outputs of all w_i, before any of them moves
                   w_i ← Adam step on Σ_{j≠i} W_j·KL(R_j ‖ R_i)
               w^{t+1} = Σ b_i w_i,   b_i ∝ W_i·N_i

SL is 0.1·CE + RCE (see the loss ``sl``); it replaces ``training.loss``. A single client is not aligned. If the alignment gives
numbers that are not finite, the server averages the models as the clients sent them. Models are aligned in evaluation mode:
batch-norm statistics stay those of the clients' own data. A client that was drawn several times counts that many times.

The steps come from the paper; using them for one global model is our interpretation, because in the paper every client keeps a
private model. The alignment on the server and the max(0, ·) are ours as well: with mixed signs, Σq can be near 0, and the
paper's weights become arbitrarily large.

The authors' code makes a new Adam for every batch, so that its moments never accumulate and every step is lr times the sign of the
gradient; ``fresh_adam`` does the same. By default, one Adam per client serves the whole alignment of a round.

Fang and Ye, "Robust Federated Learning with Noisy and Heterogeneous Clients", CVPR 2022; code FangXiuwen/Robust_FL.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms.base import Algorithm
from fedcohort.algorithms.local_problem import Problem
from fedcohort.algorithms.model_ensemble import ClientModel, Ensemble, average, check_weights
from fedcohort.algorithms.server_tools import ServerTools
from fedcohort.algorithms.training_settings import Training
from fedcohort.algorithms.updates import Members, ModelState, Tensors
from fedcohort.core.arrays import Values
from fedcohort.core.parameters import NotInKey, parameters
from fedcohort.core.plugins import Card, LabelKind
from fedcohort.core.sums import for_sums
from fedcohort.core.threads import one_thread

__all__ = ["RHFL", "alignment_gradient", "confidence"]

PIECE = 2**20
"""Number of differences between outputs that are computed at a time, at least those of one model."""


def confidence(
    losses: Sequence[float], previous: Sequence[float | None], beta: float, times: Sequence[int] | None = None
) -> Values:
    """Confidence W in each client of a round, float64 [n].

    A client that was drawn several times is several clients with the same W; over all of them, the sum is 1.

    Args:
        losses: ℓ of each client.
        previous: ℓ^prev of each client; None without one.
        beta: β.
        times: how often each client was drawn; None means once.

    >>> confidence([1.0, 1.5, 1.9], [2.0, 2.0, 2.0], beta=0.5).round(6)
    array([0.400522, 0.314903, 0.284575])
    """
    q = np.array(
        [
            0.0 if before is None else max(0.0, (before - loss) / max(loss, 1e-12))
            for loss, before in zip(losses, previous, strict=True)
        ]
    )
    drawn = np.ones(len(q)) if times is None else np.asarray(times, dtype=np.float64)
    total = (drawn * q).sum()
    v = beta * q / total if total > 0 else np.zeros(len(q))
    e = np.exp(v - v.max())  # adding the same 1/(n−1) to all does not change the softmax
    return np.asarray(e / (drawn * e).sum())


def alignment_gradient(outputs: Tensor, shares: Tensor) -> Tensor:
    """The gradient of Σ_{j≠i} s_j·KL(R_j ‖ R_i) with respect to each model's logits: Σ_j s_j (R_i − R_j)/B, [n, B, K].

    The loss is averaged over the batch. The gradient is exactly zero for identical models. The differences between all pairs of
    models are n²BK numbers, so they are computed for a few models i at a time.

    Args:
        outputs: softmax outputs R of every model, [n, B, K].
        shares: s, [n].
    """
    shares, models = shares.to(outputs), max(PIECE // max(outputs.numel(), 1), 1)
    pulls = [
        torch.einsum("j,ijbk->ibk", shares, some[:, None] - outputs[None]) / outputs.shape[1]
        for some in outputs.split(models)
    ]
    return torch.cat(pulls)


@parameters
class RHFL(Algorithm):
    """Robust loss, and models aligned on public samples. The average of the clients' models is weighted by confidence."""

    beta: Annotated[float, Ge(0)] = 0.5
    """How much a falling loss raises the confidence in a client (β)."""
    lr: Annotated[float, Gt(0)] = 1e-3
    """Learning rate of Adam in the alignment."""
    batch_size: Annotated[int, Ge(1)] = 256
    """Public samples per step of the alignment."""
    public_size: Annotated[int, Ge(1)] = 5000
    """Largest number of public samples to use; they are drawn once."""
    align_epochs: Annotated[int, Ge(0)] = 1
    """Passes over the public samples in each round."""
    fresh_adam: Annotated[bool, NotInKey((False,))] = False
    """Start Adam anew for every batch of the alignment, as the authors' code does."""

    card: ClassVar[Card] = Card(
        source="Fang and Ye 2022 (CVPR), FangXiuwen/Robust_FL; one global model is ours",
        status="ours",
        discloses="its loss under the model it received",
        cost="O(k·public_size) training steps",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"public"})
    keeps_models: ClassVar[bool] = True
    stacks: ClassVar[bool] = True

    def refuses(self, labels: LabelKind) -> str:
        """Numeric labels."""
        return "it aligns class probabilities" if labels == "numbers" else ""

    def __post_init__(self) -> None:
        check_weights(self.weights, "RHFL")
        self.losses: dict[int, float] = {}
        self.shares: dict[int, float] = {}

    # The client half.

    def local_training(self, training: Training) -> Training:
        """Use SL in place of the experiment's loss."""
        return dataclasses.replace(training, loss={"name": "sl"})

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """Send ℓ_i beside the model."""
        loss = problem.received_loss()
        return {"loss": {"sl": loss if isinstance(loss, Tensor) else torch.tensor(loss, dtype=torch.float64)}}, {}

    # The server half.

    def begin(self, model: ModelState, members: Members) -> Ensemble:
        """Keep the models of the round until its end."""
        return Ensemble(model, members)

    def end(self, fold: Ensemble, model: ModelState, members: Members) -> ModelState:
        """Compute the confidence, align the models, average them, and remember the losses."""
        models = fold.models
        losses = [float(member.extra["loss"]["sl"]) for member in models]
        before = [self.losses.get(member.client) for member in models]
        W = confidence(losses, before, self.beta, [member.times for member in models])
        self.losses = self.losses | {member.client: loss for member, loss in zip(models, losses, strict=True)}
        if len(models) > 1 and self.align_epochs:
            assert self.tools is not None, "prepare() comes first"
            with one_thread():
                models = self._align(self.tools, models, W, members.t)
        trust = W / W.max()  # all 1 for equal confidence, so that the average has the same bits as FedAvg's
        weights = [member.weight * t for member, t in zip(models, trust.tolist(), strict=True)]
        self.shares = {member.client: weight for member, weight in zip(models, weights, strict=True)}
        return average(models, weights)

    def weighed(self) -> Mapping[int, float]:
        """W_i·N_i, which is known only at the end of the round."""
        return self.shares

    def _align(self, tools: ServerTools, models: list[ClientModel], W: Values, t: int) -> list[ClientModel]:
        """The models after alignment, or unchanged if that gives numbers that are not finite."""
        chosen = torch.from_numpy(tools.rng("public").permutation(len(tools.public))[: self.public_size])
        shares = torch.from_numpy(W * np.array([member.times for member in models]))
        alignment = _Alignment(tools, models, shares, self.lr, self.fresh_adam)
        rng = tools.rng("alignment", t)
        for _ in range(self.align_epochs):
            order = chosen[torch.from_numpy(rng.permutation(len(chosen)))]
            for index in order.split(self.batch_size):
                if not alignment.step(tools.public[index.to(tools.public.device)]):
                    return models
        aligned = alignment.models()
        return aligned if _are_finite(aligned) else models


class _Alignment:
    """The networks of a round's clients during the alignment."""

    def __init__(
        self, tools: ServerTools, models: list[ClientModel], shares: Tensor, lr: float, fresh_adam: bool
    ) -> None:
        self._tools, self._models, self._shares, self._fresh_adam = tools, models, shares, fresh_adam
        self._networks = [tools.model(member.state) for member in models]
        self._optimizers = [torch.optim.Adam(_trainable(network), lr, fused=True) for network in self._networks]

    def step(self, features: Tensor) -> bool:
        """One step of every network on a batch of public samples; False, without a step, if an output is not finite."""
        logits_of = self._tools.logits
        with torch.no_grad():
            outputs = torch.stack(
                [functional.softmax(logits_of(network, features), dim=-1) for network in self._networks]
            )
        if not torch.isfinite(outputs).all():
            return False
        gradients = alignment_gradient(outputs, self._shares)
        for network, optimizer, gradient in zip(self._networks, self._optimizers, gradients, strict=True):
            optimizer.zero_grad(set_to_none=True)
            logits_of(network, features).backward(gradient)
            optimizer.step()
            if self._fresh_adam:
                optimizer.state.clear()
        return True

    def models(self) -> list[ClientModel]:
        """The models as they are now."""
        states = [network.state_dict() for network in self._networks]
        return [
            dataclasses.replace(member, state={name: state[name].detach() for name in member.state})
            for member, state in zip(self._models, states, strict=True)
        ]


def _are_finite(models: list[ClientModel]) -> bool:
    values = (value for member in models for value in member.state.values() if value.is_floating_point())
    return all(math.isfinite(float(for_sums(value).sum())) for value in values)


def _trainable(module: nn.Module) -> list[Tensor]:
    return [p for p in module.parameters() if p.requires_grad]
