"""FedBiO as federated hyper-cleaning: every client learns weights for its training samples that lower the loss on held-out data.

    min_λ Σ p_i CE(V_i; y*(λ))    subject to    y*(λ) = argmin_y Σ p_i g_i(λ, y)
    g_i(λ, y) = (1/N_i) Σ_j ω(λ_ij)·ℓ_j(y) + (ρ/2)‖y‖²,    ω(λ) = κ·σ(λ),    κ = 2 so that ω(0) = 1

λ has one number per training sample and stays on the client. The vector u ≈ [∇²_yy g]⁻¹ ∇_y CE is sent to and from the server like the
model, and ∂/∂λ_j = −κ σ'(λ_j)·(1/N_i)·⟨∇ℓ_j, u⟩. A local step uses a batch B of the training part and a batch B' of the held-out part:

    r   = 0.01/‖u‖,  y± = y ± r·u                   (skipped while u = 0)
    Hu  = (∇g(y+) − ∇g(y−))/(2r)                    on B
    d_j = (ℓ_j(y+) − ℓ_j(y−))/(2r)                  for j in B
    u   ← u + τ·(∇CE(y; B') − Hu),                  ‖u‖ ≤ 10
    λ_j ← λ_j + η_λ·κσ'(λ_j)·d_j/(mean_B |d|),      |λ| ≤ 6; not in the first rounds
    y   ← optimizer step on ∇g(y; B)

The server averages the models, and adds the average change of u to u. If u is not finite, it is reset to 0. ℓ is the experiment's
local loss. A client without held-out samples does not change u. With η_λ = 0 and ρ = 0, the model has the same bits as FedAvg's.

This is our interpretation: the paper treats bilevel problems in general, and data cleaning is the instance that suits noisy labels.
Li, Huang and Huang, "Communication-Efficient Federated Bilevel Optimization with Local and Global Lower Level Problems", 2023,
arXiv:2302.06701.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from fedcohort.algorithms.base import Algorithm
from fedcohort.algorithms.local_problem import Problem
from fedcohort.algorithms.server_tools import ServerTools
from fedcohort.algorithms.updates import Members, ModelState, Tensors, Update
from fedcohort.algorithms.weighted_means import RunningMean
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card, LabelKind
from fedcohort.core.sums import for_sums

__all__ = ["FedBiO", "reweighed"]

MAX_LAMBDA = 6.0
"""Largest |λ|."""
MAX_LENGTH = 10.0
"""Largest ‖u‖."""
DISTANCE = 0.01
"""Distance from y at which the differences are taken."""


@parameters
class FedBiO(Algorithm):
    """FedAvg with a learned weight for every training sample. Weights come from a bilevel problem on held-out data."""

    tau_u: Annotated[float, Ge(0)] = 0.01
    """Step size of u (τ_u)."""
    eta_lambda: Annotated[float, Ge(0)] = 0.1
    """Step size of the sample weights (η_λ)."""
    rho: Annotated[float, Ge(0)] = 1e-4
    """L2 term of the local problem (ρ)."""
    kappa: Annotated[float, Gt(0)] = 2.0
    """Largest weight of a sample (κ); with 2, all weights are 1 at the start."""
    warmup_rounds: Annotated[int, Ge(0)] = 5
    """Number of rounds at the start in which sample weights do not change."""
    clean_val: Annotated[int, Ge(0)] = 0
    """Number of clean samples of the server's validation set that all clients use in place of their held-out part, which may be noisy.
    Other algorithms do not have this advantage. 0 means none."""

    card: ClassVar[Card] = Card(
        source="Li, Huang and Huang 2023, arXiv:2302.06701, as data cleaning (ours)",
        status="ours",
        discloses="its change of u",
        cost="O(kP)",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"holdout"})

    def refuses(self, labels: LabelKind) -> str:
        """Numeric labels."""
        return "it weighs samples by their cross-entropy, to find wrong classes" if labels == "numbers" else ""

    def __post_init__(self) -> None:
        self.u: Tensors = {}

    # The client half.

    def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        """Compute ∇g on the batch, and take one step of u and λ at the same y."""
        u, lam = self._state(problem)
        weights = self._weights(lam[problem.batch])
        reported = problem.backward(weights)
        gradients = {name: p.grad for name, p in problem.parameters.items() if p.grad is not None}
        if self.rho:
            for name, gradient in gradients.items():
                gradient.add_(problem.parameters[name].detach(), alpha=self.rho)
        slopes, Hu = self._differences(problem, u, weights)
        problem.notes["u"] = self._stepped(problem, u, Hu)
        if slopes is not None and self.eta_lambda and problem.t > self.warmup_rounds:
            lam[problem.batch] = reweighed(lam[problem.batch], slopes, self.kappa, self.eta_lambda)
        return reported

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """Send the change of u, and keep λ."""
        u, lam = self._state(problem)
        before = problem.received.get("u", {})
        change = {name: value - before[name] if before else value for name, value in u.items()}
        return {"u": change}, {"lambda": {"lambda": lam}}

    def _state(self, problem: Problem) -> tuple[Tensors, Tensor]:
        """The current u and λ of this training."""
        notes = problem.notes
        if not notes:
            parameters = {name: p.detach() for name, p in problem.parameters.items()}
            start = problem.received.get("u") or {name: torch.zeros_like(p) for name, p in parameters.items()}
            first = next(iter(parameters.values()))
            zeros = first.new_zeros(problem.num_samples)
            notes["u"] = {name: value.clone(memory_format=torch.contiguous_format) for name, value in start.items()}
            notes["lambda"] = problem.memory["lambda"]["lambda"].clone() if "lambda" in problem.memory else zeros
        return notes["u"], notes["lambda"]

    def _weights(self, lam: Tensor) -> Tensor:
        """ω(λ)."""
        return self.kappa * torch.sigmoid(lam)

    def _differences(self, problem: Problem, u: Tensors, weights: Tensor) -> tuple[Tensor | None, Tensors | None]:
        """⟨∇ℓ_j, u⟩ of each sample of the batch, and the Hessian of g times u, by central differences; None while u = 0."""
        length = _length(u)
        if not length > 0:
            return None, None
        r = DISTANCE / length
        y = {name: p.detach() for name, p in problem.parameters.items()}
        ahead, gradient_ahead = problem.losses_and_gradient({n: torch.add(y[n], u[n], alpha=r) for n in y}, weights)
        back, gradient_back = problem.losses_and_gradient({n: torch.sub(y[n], u[n], alpha=r) for n in y}, weights)
        Hu = {n: (gradient_ahead[n] - gradient_back[n]) / (2 * r) + self.rho * u[n] for n in y}
        return (ahead - back) / (2 * r), Hu

    def _stepped(self, problem: Problem, u: Tensors, Hu: Tensors | None) -> Tensors:
        """u after one step; u itself if there are no held-out samples."""
        if "clean" in problem.received:
            features, labels = problem.received["clean"]["features"], problem.received["clean"]["labels"]
        else:
            features, labels = problem.held_out
        if not len(labels):
            return u
        chosen = torch.from_numpy(problem.rng.permutation(len(labels))[: len(problem.batch)]).to(labels.device)
        gradient = problem.cross_entropy_gradient(features[chosen], labels[chosen])
        step = {name: gradient[name] - Hu[name] if Hu else gradient[name] for name in u}
        return _bounded({name: torch.add(u[name], step[name], alpha=self.tau_u) for name in u})

    # The server half.

    def prepare(self, tools: ServerTools) -> None:
        """Check that the validation set has enough samples for ``clean_val``."""
        super().prepare(tools)
        if self.clean_val > len(tools.validation[1]):
            raise UsageError(
                f"algorithm.clean_val = {self.clean_val}: the server's validation set has {len(tools.validation[1])} samples; "
                "use fewer, or a larger data.validation"
            )

    def broadcast(self) -> dict[str, Tensors]:
        """u, unless it is 0, and the clean samples."""
        sent = {"u": self.u} if self.u else {}
        if self.clean_val and self.tools is not None:
            features, labels = self.tools.validation
            chosen = torch.from_numpy(self.tools.rng("clean").permutation(len(labels))[: self.clean_val])
            sent["clean"] = {"features": features[chosen], "labels": labels[chosen]}
        return sent

    def begin(self, model: ModelState, members: Members) -> tuple[RunningMean, RunningMean]:
        """Start a mean of models and a mean of changes of u."""
        return super().begin(model, members), RunningMean()

    def add(self, fold: tuple[RunningMean, RunningMean], update: Update, weight: float) -> None:
        """Add the model and the change of u with the same weight."""
        super().add(fold[0], update, weight)
        fold[1].add(update.extra["u"], weight)

    def coefficients(self, weights: Mapping[int, float]) -> Mapping[int, float]:
        """Those of the weighted mean, which this class merges in addition to its own state."""
        return super().coefficients(weights)

    def end(self, fold: tuple[RunningMean, RunningMean], model: ModelState, members: Members) -> ModelState:
        """u ← u + Σ a_i Δu_i, and the model as in FedAvg."""
        change = fold[1].result()
        self.u = _bounded({name: self.u[name] + value if self.u else value for name, value in change.items()})
        return super().end(fold[0], model, members)


def reweighed(lam: Tensor, slopes: Tensor, kappa: float, eta: float) -> Tensor:
    """λ after one step, [B]: it grows for samples that lower the held-out loss.

    Args:
        lam: λ_j, [B].
        slopes: d_j = ⟨∇ℓ_j, u⟩, [B].
        kappa: κ.
        eta: η_λ.
    """
    sigma = torch.sigmoid(lam)
    step = eta * kappa * sigma * (1 - sigma) * slopes / (slopes.abs().mean() + 1e-12)
    return torch.where(torch.isfinite(step), lam + step, lam).clamp(-MAX_LAMBDA, MAX_LAMBDA)


def _length(u: Tensors) -> float:
    return float(torch.stack([for_sums(value).square().sum() for value in u.values()]).sum().sqrt())


def _bounded(u: Tensors) -> Tensors:
    """u, scaled down to a length of at most :data:`MAX_LENGTH`; 0 if it is not finite."""
    length = _length(u)
    if not length < float("inf"):
        return {name: torch.zeros_like(value) for name, value in u.items()}
    return u if length <= MAX_LENGTH else {name: value * (MAX_LENGTH / length) for name, value in u.items()}
