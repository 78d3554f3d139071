"""RHFL as an aggregator of one global model: clients train with a robust loss, the server lets their models learn from each other.

    client i:  ℓ_i = mean SL of w^t on its own samples;  w_i = E epochs with SL from w^t;  sends w_i and ℓ_i
    server:    q_i = max(0, (ℓ_i^prev − ℓ_i)/ℓ_i),  ℓ_i^prev of the client's previous participation (none: q_i = 0)
               W   = softmax( 1/(n−1) + β·q_i/Σq )  over the n admitted;  Σq = 0: uniform
               for each batch of the public set, ``align_epochs`` times:
                   R_i = softmax outputs of all w_i, before any of them moves
                   w_i ← Adam step on Σ_{j≠i} W_j·KL(R_j ‖ R_i)
               w^{t+1} = Σ b_i w_i,   b_i ∝ W_i·N_i

SL is 0.1·CE + RCE (see the loss ``sl``); it replaces ``training.loss``. One client has nobody to align with. If alignment gives
numbers that are not finite, the models enter the average as they came. Models are aligned in evaluation mode: statistics of batch
norm stay those of the clients' own data. A client that was drawn several times counts as often.

The pieces are the paper's; one global model is our reading, the original keeps a private model at every client and has none. So are
the alignment on the server and the max(0, ·): with mixed signs Σq can be near 0, and the original's weights explode.

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

from fedcohort.algorithms.base import Algorithm, Members, ModelState, Problem, Tensors, Update
from fedcohort.algorithms.ensemble import Ensemble, Member, average, check_weights
from fedcohort.algorithms.local import Training
from fedcohort.algorithms.server import ServerTools
from fedcohort.core.arrays import Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.core.threads import one_thread

__all__ = ["RHFL", "confidence", "pull"]


def confidence(losses: Sequence[float], previous: Sequence[float | None], beta: float) -> Values:
    """W of the clients of a round, float64 [n], summing to 1.

    >>> confidence([1.0, 1.5, 1.9], [2.0, 2.0, 2.0], beta=0.5).round(6)
    array([0.400522, 0.314903, 0.284575])
    """
    q = np.array(
        [
            0.0 if before is None else max(0.0, (before - loss) / max(loss, 1e-12))
            for loss, before in zip(losses, previous, strict=True)
        ]
    )
    v = beta * q / q.sum() if q.sum() > 0 else np.zeros(len(q))
    e = np.exp(v - v.max())  # softmax does not see the 1/(n−1) that all have in common
    return np.asarray(e / e.sum())


def pull(outputs: Tensor, shares: Tensor) -> Tensor:
    """The gradient of Σ_{j≠i} s_j·KL(R_j ‖ R_i), the mean over the batch, with respect to each model's logits: Σ_j s_j (R_i − R_j)/B.

    Exactly zero for identical models.

    Args:
        outputs: softmax outputs R of every model, [n, B, K].
        shares: s, [n].
    """
    differences = outputs[:, None] - outputs[None]
    return torch.einsum("j,ijbk->ibk", shares.to(outputs), differences) / outputs.shape[1]


@parameters
class RHFL(Algorithm):
    """Robust local loss, alignment of the clients' models on public samples, average by confidence."""

    beta: Annotated[float, Ge(0)] = 0.5
    """How much a falling loss raises a client's confidence (β)."""
    lr: Annotated[float, Gt(0)] = 1e-3
    """Learning rate of Adam in the alignment."""
    batch_size: Annotated[int, Ge(1)] = 256
    """Public samples per step of the alignment."""
    public_size: Annotated[int, Ge(1)] = 5000
    """Public samples that are used at most, drawn once."""
    align_epochs: Annotated[int, Ge(0)] = 1
    """Passes over the public samples in each round."""

    card: ClassVar[Card] = Card(
        source="Fang and Ye 2022 (CVPR), FangXiuwen/Robust_FL; one global model is ours",
        status="ours",
        discloses="its loss under the model it received",
        cost="O(k·public_size) training steps",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"public"})
    keeps_models: ClassVar[bool] = True
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_weights(self.weights, "RHFL")
        self.losses: dict[int, float] = {}
        self.shares: dict[int, float] = {}

    # the client half

    def local_training(self, training: Training) -> Training:
        """SL in place of the experiment's loss."""
        return dataclasses.replace(training, loss={"name": "sl"})

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """Sends ℓ_i beside the model."""
        return {"loss": {"sl": torch.as_tensor(problem.received_loss(), dtype=torch.float64)}}, {}

    # the server half

    def begin(self, model: ModelState, members: Members) -> Ensemble:
        """The round's models are kept until its end."""
        return Ensemble(model, members)

    def add(self, fold: Ensemble, update: Update, weight: float) -> None:
        """Keep the model."""
        fold.add(update, weight)

    def end(self, fold: Ensemble, model: ModelState, members: Members) -> ModelState:
        """Confidence, alignment, average; remembers the losses."""
        models = fold.models
        losses = [float(member.extra["loss"]["sl"]) for member in models]
        W = confidence(losses, [self.losses.get(member.client) for member in models], self.beta)
        self.losses = self.losses | {member.client: loss for member, loss in zip(models, losses, strict=True)}
        if len(models) > 1 and self.align_epochs:
            assert self.tools is not None, "prepare() comes first"
            with one_thread():
                models = self._align(self.tools, models, W, members.t)
        trust = W / W.max()  # 1 for everybody when all are alike: the average is FedAvg's then, to the bit
        weights = [member.weight * t for member, t in zip(models, trust.tolist(), strict=True)]
        self.shares = {member.client: weight for member, weight in zip(models, weights, strict=True)}
        return average(models, weights)

    def weighed(self) -> Mapping[int, float]:
        """W_i·N_i, which is known at the end of the round only."""
        return self.shares

    def _align(self, tools: ServerTools, models: list[Member], W: Values, t: int) -> list[Member]:
        """The models after alignment, or as they came if that gives numbers that are not finite."""
        chosen = torch.from_numpy(tools.rng("public").permutation(len(tools.public))[: self.public_size])
        shares = torch.from_numpy(W * np.array([member.times for member in models]))
        modules = [tools.model(member.state) for member in models]
        optimizers = [torch.optim.Adam(_trainable(module), self.lr, fused=True) for module in modules]
        rng = tools.rng("alignment", t)
        for _ in range(self.align_epochs):
            order = chosen[torch.from_numpy(rng.permutation(len(chosen)))]
            for index in order.split(self.batch_size):  # type: ignore[no-untyped-call]
                features = tools.public[index.to(tools.public.device)]
                with torch.no_grad():
                    outputs = torch.stack([functional.softmax(tools.logits(m, features), dim=-1) for m in modules])
                if not torch.isfinite(outputs).all():
                    return models
                for module, optimizer, gradient in zip(modules, optimizers, pull(outputs, shares), strict=True):
                    optimizer.zero_grad(set_to_none=True)
                    tools.logits(module, features).backward(gradient)  # type: ignore[no-untyped-call]
                    optimizer.step()
        aligned = [
            dataclasses.replace(member, state={name: value.detach() for name, value in module.state_dict().items()})
            for member, module in zip(models, modules, strict=True)
        ]
        values = (value for member in aligned for value in member.state.values() if value.is_floating_point())
        return aligned if all(math.isfinite(float(value.double().sum())) for value in values) else models


def _trainable(module: nn.Module) -> list[Tensor]:
    return [p for p in module.parameters() if p.requires_grad]
