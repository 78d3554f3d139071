"""FedBiO as federated hyper-cleaning: every client learns which of its samples to trust, from how they serve held-out data.

    min_λ Σ p_i CE(V_i; y*(λ))    subject to    y*(λ) = argmin_y Σ p_i g_i(λ, y)
    g_i(λ, y) = (1/N_i) Σ_j ω(λ_ij)·ℓ_j(y) + (ρ/2)‖y‖²,    ω(λ) = κ·σ(λ),    κ = 2 so that ω(0) = 1

λ has one number a training sample and stays with the client; u ≈ [∇²_yy g]⁻¹ ∇_y CE is shared as the model is, and
∂/∂λ_j = −κ σ'(λ_j)·(1/N_i)·⟨∇ℓ_j, u⟩. For each local step with a batch B of the training part and B' of the held-out part:

    r   = 0.01/‖u‖,  y± = y ± r·u                   (left out while u = 0)
    Hu  = (∇g(y+) − ∇g(y−))/(2r)                    on B
    d_j = (ℓ_j(y+) − ℓ_j(y−))/(2r)                  for j in B
    u   ← u + τ·(∇CE(y; B') − Hu),                  ‖u‖ ≤ 10
    λ_j ← λ_j + η_λ·κσ'(λ_j)·d_j/(mean_B |d|),      |λ| ≤ 6; not in the first rounds
    y   ← optimiser step on ∇g(y; B)

The server averages models, and adds the average of the changes of u to u. A u that is not finite starts again at 0. ℓ is the
experiment's local loss. A client without held-out samples leaves u as it is. With η_λ = 0 and ρ = 0 this is FedAvg, to the bit.

All of this is our interpretation: the paper treats bilevel problems in general, and data cleaning is the instance of it that suits
noisy labels. Li, Huang and Huang, "Communication-Efficient Federated Bilevel Optimization with Local and Global Lower Level
Problems", 2023, arXiv:2302.06701.
"""

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from fedcohort.algorithms.base import Algorithm, Members, ModelState, Problem, RunningMean, Tensors, Update
from fedcohort.algorithms.server import ServerTools
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card

__all__ = ["FedBiO", "reweighed"]

LIMIT = 6.0
"""|λ| at most."""
LONGEST = 10.0
"""‖u‖ at most."""
REACH = 0.01
"""How far from y the differences are taken."""


@parameters
class FedBiO(Algorithm):
    """FedAvg with a learned weight for every training sample, from a bilevel problem on held-out data."""

    tau_u: Annotated[float, Ge(0)] = 0.01
    """Step size of u (τ_u)."""
    eta_lambda: Annotated[float, Ge(0)] = 0.1
    """Step size of the sample weights (η_λ)."""
    rho: Annotated[float, Ge(0)] = 1e-4
    """L2 term of the local problem (ρ)."""
    kappa: Annotated[float, Gt(0)] = 2.0
    """Largest weight of a sample (κ); 2 makes it 1 at the start."""
    warmup_rounds: Annotated[int, Ge(0)] = 5
    """Rounds at the start in which sample weights stay as they are."""
    clean_val: Annotated[int, Ge(0)] = 0
    """Clean samples of the server's validation set that all clients get in place of their held-out part, which may be noisy: an
    advantage that other algorithms do not have. 0 for none."""

    card: ClassVar[Card] = Card(
        source="Li, Huang and Huang 2023, arXiv:2302.06701, as data cleaning (ours)",
        status="ours",
        discloses="its change of u",
        cost="O(kP)",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"holdout"})

    def __post_init__(self) -> None:
        self.u: Tensors = {}

    # the client half

    def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        """∇g on the batch; before, one step of u and λ at the same y."""
        u, lam = self._state(problem)
        weights = self._weights(lam[problem.batch])
        reported = problem.backward(weights)
        own = {name: p.grad for name, p in problem.parameters.items() if p.grad is not None}
        if self.rho:
            for name, gradient in own.items():
                gradient.add_(problem.parameters[name].detach(), alpha=self.rho)
        slopes, Hu = self._along(problem, u, weights)
        problem.notes["u"] = self._improved(problem, u, Hu)
        if slopes is not None and self.eta_lambda and problem.t > self.warmup_rounds:
            lam[problem.batch] = reweighed(lam[problem.batch], slopes, self.kappa, self.eta_lambda)
        return reported

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """Sends the change of u, keeps λ."""
        u, lam = self._state(problem)
        before = problem.received.get("u", {})
        change = {name: value - before[name] if before else value for name, value in u.items()}
        return {"u": change}, {"lambda": {"lambda": lam}}

    def _state(self, problem: Problem) -> tuple[Tensors, Tensor]:
        """u and λ of this training so far."""
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

    def _along(self, problem: Problem, u: Tensors, weights: Tensor) -> tuple[Tensor | None, Tensors | None]:
        """⟨∇ℓ_j, u⟩ of each sample of the batch, and the Hessian of g times u, by central differences; None while u = 0."""
        length = _length(u)
        if not length > 0:
            return None, None
        r = REACH / length
        y = {name: p.detach() for name, p in problem.parameters.items()}
        ahead, gradient_ahead = problem.losses_and_gradient({n: torch.add(y[n], u[n], alpha=r) for n in y}, weights)
        back, gradient_back = problem.losses_and_gradient({n: torch.sub(y[n], u[n], alpha=r) for n in y}, weights)
        Hu = {n: (gradient_ahead[n] - gradient_back[n]) / (2 * r) + self.rho * u[n] for n in y}
        return (ahead - back) / (2 * r), Hu

    def _improved(self, problem: Problem, u: Tensors, Hu: Tensors | None) -> Tensors:
        """u after one step; u itself where there is nothing to hold it against."""
        if "clean" in problem.received:
            features, labels = problem.received["clean"]["features"], problem.received["clean"]["labels"]
        else:
            features, labels = problem.held_out
        if not len(labels):
            return u
        chosen = torch.from_numpy(problem.rng.permutation(len(labels))[: len(problem.batch)]).to(labels.device)
        wanted = problem.cross_entropy_gradient(features[chosen], labels[chosen])
        step = {name: wanted[name] - Hu[name] if Hu else wanted[name] for name in u}
        return _bounded({name: torch.add(u[name], step[name], alpha=self.tau_u) for name in u})

    # the server half

    def prepare(self, tools: ServerTools) -> None:
        """Draws the clean samples, if there are to be any."""
        super().prepare(tools)
        if self.clean_val > len(tools.validation[1]):
            raise UsageError(
                f"algorithm.clean_val = {self.clean_val}: the server's validation set has {len(tools.validation[1])} samples; "
                "use less, or a larger data.validation"
            )

    def broadcast(self) -> dict[str, Tensors]:
        """u, once it is not 0; the clean samples."""
        sent = {"u": self.u} if self.u else {}
        if self.clean_val and self.tools is not None:
            features, labels = self.tools.validation
            chosen = torch.from_numpy(self.tools.rng("clean").permutation(len(labels))[: self.clean_val])
            sent["clean"] = {"features": features[chosen], "labels": labels[chosen]}
        return sent

    def begin(self, model: ModelState, members: Members) -> tuple[RunningMean, RunningMean]:
        """One mean of models, one of changes of u."""
        return super().begin(model, members), RunningMean()

    def add(self, fold: tuple[RunningMean, RunningMean], update: Update, weight: float) -> None:
        """Both with the same weight."""
        super().add(fold[0], update, weight)
        fold[1].add(update.extra["u"], weight)

    def end(self, fold: tuple[RunningMean, RunningMean], model: ModelState, members: Members) -> ModelState:
        """u ← u + Σ a_i Δu_i; the model as in FedAvg."""
        change = fold[1].result()
        self.u = _bounded({name: self.u[name] + value if self.u else value for name, value in change.items()})
        return super().end(fold[0], model, members)


def reweighed(lam: Tensor, slopes: Tensor, kappa: float, eta: float) -> Tensor:
    """λ after one step, [B]: up where a sample pulls the model to where the held-out loss falls.

    Args:
        lam: λ_j, [B].
        slopes: d_j = ⟨∇ℓ_j, u⟩, [B].
        kappa: κ.
        eta: η_λ.
    """
    sigma = torch.sigmoid(lam)
    step = eta * kappa * sigma * (1 - sigma) * slopes / (slopes.abs().mean() + 1e-12)
    return torch.where(torch.isfinite(step), lam + step, lam).clamp(-LIMIT, LIMIT)


def _length(u: Tensors) -> float:
    return float(torch.stack([value.double().square().sum() for value in u.values()]).sum().sqrt())


def _bounded(u: Tensors) -> Tensors:
    """u, no longer than 10; 0 if it is not finite."""
    length = _length(u)
    if not length < float("inf"):
        return {name: torch.zeros_like(value) for name, value in u.items()}
    return u if length <= LONGEST else {name: value * (LONGEST / length) for name, value in u.items()}
