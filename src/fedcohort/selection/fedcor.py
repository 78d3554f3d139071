"""FedCor: clients whose losses fall together are found by a Gaussian process, and those are chosen that take most others along.

The change of all clients' losses in a round is Δl ~ N(μ, Σ), Σ = K(X) + σ_n² I, with one embedding x_i ∈ R^dim a client. Selecting
i is expected to move its own loss by −α_i·√Σ_ii, which the process carries over to all others. So, k times, with p_j = N_j/N:

    i* = arg max over those not chosen of  α_i · (Σ_j p_j Σ_ji) / √Σ_ii,       α_i = β^{τ_i}
    Σ ← Σ − Σ_{·i*} Σ_{i*·} / Σ_{i*i*}                                          (condition on i*)

τ_i counts selections since the last training of the process, so that nobody is chosen for ever.

    t ≤ W            S_t uniform; everybody's loss before and after the round gives Δl^(t)
    after round W    train the process: 1000 steps of Adam on X
    t > W            S_t by the rule above; after every Δt rounds a fresh uniform k-subset trains on a copy of the model, which
                     gives another Δl and is thrown away; then 100 steps, and τ_i ← 0.  In other rounds τ_i += 1 for i in S_t

Trained is Σ_e γ^{t−e}·(−log N(Δl^(e); μ, Σ)) over the records of the last M rounds; μ is their mean with the same weights, fixed
meanwhile. A client whose Δl is missing in a record is left out of that record. Kernels:

    linear       K_ij = x_iᵀx_j
    polynomial   K_ij = |x_i|·|x_j|·(cosine of x_i and x_j)^degree            (ours, in place of the code's normalised polynomial)
    se           K_ij = s²·exp(−|x_i − x_j|²/2), s trained as well

Only columns of Σ are ever made for selecting, so a choice costs O(k·m·(dim + k)). Training costs O(m·dim²) a step for the linear
kernel, by the Woodbury identity, and O(m³) for the others.

Native weights: uniform. Tang et al. 2022, arXiv:2103.13822; Yoruko-Tang/FedCor, ``src/GPR.py`` and ``src/federated_main.py``. Δl is
divided by its overall standard deviation before training (ours; it does not change the ranking).
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.core.threads import one_thread
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.inputs import Census, Outcome, Round
from fedcohort.selection.questions import LocalLoss, LossChange
from fedcohort.selection.ranking import top
from fedcohort.selection.selector import Selector

if TYPE_CHECKING:
    import torch

__all__ = ["Dense", "FedCor", "LowRank", "covariance", "fit", "greedy"]

Kernel = Literal["linear", "polynomial", "se"]
Objective = Literal["marginal", "leave_one_out"]

RECIPES = {
    "fmnist": {"warmup": 15, "interval": 10, "beta": 0.95, "gamma": 0.95, "memory": 100},
    "cifar10": {"warmup": 20, "interval": 50, "beta": 0.9, "gamma": 0.99, "memory": 500},
}
"""The settings of the authors' commands."""

LONG = 500
"""Rounds beyond which the recipe for CIFAR-10 is taken (ours)."""

LIMIT, LIMIT_DENSE = 20_000, 1_000
"""Clients that the linear kernel can do, and the others."""


@parameters
class FedCor(Selector):
    """k clients that are expected to take the losses of most others along. Native weights: uniform."""

    card: ClassVar[Card] = Card(
        source="Tang et al. 2022, arXiv:2103.13822; Yoruko-Tang/FedCor",
        status="code",
        asks="everybody for its loss in the first rounds (m model downloads, m forward passes); later, every few rounds, for its "
        "change over a round of training that is thrown away (2m model downloads, 2m forward passes, k trainings)",
        discloses=f"{LocalLoss.reveals}; {LossChange.reveals}",
        knows="N_i",
        cost="O(k·m·(dim + k)); training O(m·dim²) a step, O(m³) for kernels that are not linear",
    )

    recipe: Literal["fmnist", "cifar10"] | None = None
    """The authors' settings for what is not given below: fmnist has 15, 10, 0.95, 0.95, 100; cifar10 has 20, 50, 0.9, 0.99, 500.
    None given means fmnist for runs of up to 500 rounds, and cifar10 for longer ones."""
    warmup: Annotated[int, Ge(1)] | None = None
    """First rounds with a uniform choice (W); none given means the recipe's."""
    interval: Annotated[int, Ge(1)] | None = None
    """Rounds from one training of the process to the next (Δt); none given means the recipe's."""
    beta: Annotated[float, Gt(0), Le(1)] | None = None
    """What a selection leaves of a client's weight (β); none given means the recipe's."""
    gamma: Annotated[float, Gt(0), Le(1)] | None = None
    """What a round leaves of the weight of older records (γ); none given means the recipe's."""
    memory: Annotated[int, Ge(1)] | None = None
    """Rounds after which a record is dropped (M); none given means the recipe's."""
    dim: Annotated[int, Ge(1)] = 15
    """Length of the embeddings."""
    kernel: Kernel = "linear"
    """How embeddings make covariances: linear, polynomial, or se (squared exponential)."""
    degree: Annotated[int, Ge(1)] = 2
    """Power of the polynomial kernel."""
    objective: Objective = "marginal"
    """What is trained: the likelihood of a record, or of each of its entries given the others, which finds the directions in which
    clients move together, but not how far they move."""
    noise: Annotated[float, Gt(0)] = 0.01
    """σ_n of standardised loss changes."""
    lr: Annotated[float, Gt(0)] = 0.01
    """Learning rate of Adam."""
    first_steps: Annotated[int, Ge(1)] = 1000
    """Steps of the first training."""
    steps: Annotated[int, Ge(1)] = 100
    """Steps of every later training."""

    def setup(self, census: Census) -> None:
        """No embedding, no records; refuses what would take too long."""
        super().setup(census)
        m, limit = census.num_clients, LIMIT if self.kernel == "linear" else LIMIT_DENSE
        if m > limit:
            other = "; kernel = 'linear' can do 20,000" if limit < m <= LIMIT else "; use another strategy"
            raise UsageError(
                f"selection.kernel = {self.kernel!r}: fedcor can do {limit:,} clients with it, not {m:,}{other}"
            )
        self.X = np.zeros((0, m))
        self.log_scale = 0.0
        self.selected = np.zeros(m, dtype=np.int64)
        """τ_i."""
        self.records: list[dict[str, Any]] = []
        self.losses: Values | None = None
        """Of the model before the last round of the warm-up."""
        self.due = False
        """Whether the process is to be trained on a round that is thrown away."""

    def select(self, round: Round) -> Cohort:
        """Learn what the schedule says, then choose."""
        self._learn(round)
        if round.t <= self._of_recipe("warmup"):
            clients, note = round.sample(round.k), "random: first rounds"
        elif not len(self.X):
            clients, note = round.sample(round.k), "random: no losses to learn from yet"
        elif not np.isfinite(self.X).all():
            clients, note = round.sample(round.k), "random: the covariance is not finite"
        else:
            return self._greedy(round)
        return Cohort(clients, why=Why(round.available, np.zeros(len(round.available)), note=note))

    def observe(self, outcome: Outcome) -> None:
        """Count selections, or see that the process is due."""
        past = outcome.t - self._of_recipe("warmup")
        if past > 0 and past % self._of_recipe("interval") == 0:
            self.due = True
        elif past > 0:
            self.selected[outcome.cohort.clients] += 1

    # what is learned

    def _learn(self, round: Round) -> None:
        """Everybody's losses up to the round after the warm-up; a round on a copy where one is due."""
        warmup = self._of_recipe("warmup")
        if round.t <= warmup or self.losses is not None:
            losses = np.full(self.census.num_clients, np.nan)
            losses[round.available] = round.ask(LocalLoss(), round.available)
            losses[~np.isfinite(losses)] = np.nan
            if self.losses is not None:
                self._remember(round.t - 1, losses - self.losses)
            self.losses = losses if round.t <= warmup else None
            if round.t > warmup:
                self._train(round, self.first_steps)
        if self.due:
            trial = LossChange(tuple(round.sample(round.k).tolist()))
            change = np.full(self.census.num_clients, np.nan)
            change[round.available] = round.ask(trial, round.available)
            self._remember(round.t - 1, change)
            self._train(round, self.steps)
            self.due = False
            self.selected[:] = 0

    def _remember(self, t: int, change: Values) -> None:
        change = np.where(np.isfinite(change), change, np.nan)
        oldest = t - self._of_recipe("memory")
        self.records = [record for record in self.records if record["round"] > oldest]
        if np.count_nonzero(np.isfinite(change)) > 1:
            self.records.append({"round": t, "change": change})

    def _train(self, round: Round, steps: int) -> None:
        if not self.records:
            return
        if not len(self.X):
            steps = self.first_steps
            self.X = round.rng.standard_normal((self.dim, self.census.num_clients)) / math.sqrt(self.dim)
        changes = np.stack([record["change"] for record in self.records])
        age = max(record["round"] for record in self.records) - np.array([record["round"] for record in self.records])
        self.X, self.log_scale = fit(
            self.X, self.log_scale, changes, float(self._of_recipe("gamma")) ** age, kernel=self.kernel, degree=self.degree,
            noise=self.noise, lr=self.lr, steps=steps, objective=self.objective,
        )  # fmt: skip

    # how it chooses

    def _greedy(self, round: Round) -> Cohort:
        i, shares = round.available, self.census.num_samples / self.census.num_samples.sum()
        alpha = self._of_recipe("beta") ** self.selected.astype(np.float64)
        found = covariance(self.X, self.log_scale, self.kernel, self.degree, self.noise)
        clients, scores, first = greedy(found, shares, alpha, round.k, i, round.rng)
        why = Why(
            i,
            scores,
            {"first": first, "annealing": alpha[i]},
            "largest expected fall of all losses, given those before",
        )
        return Cohort(clients, why=why)

    def _of_recipe(self, name: str) -> Any:
        given = getattr(self, name)
        if given is not None:
            return given
        return RECIPES[self.recipe or ("fmnist" if self.census.rounds <= LONG else "cifar10")][name]


# --- the greedy choice -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dense:
    """Σ as a matrix [m, m]."""

    matrix: Values

    def diagonal(self) -> Values:
        """Σ_ii."""
        return self.matrix.diagonal().copy()

    def column(self, i: int) -> Values:
        """Σ_{·i}."""
        return self.matrix[:, i].copy()

    def times(self, p: Values) -> Values:
        """Σ p."""
        return self.matrix @ p


@dataclass(frozen=True)
class LowRank:
    """Σ = XᵀX + noise²·I, X [dim, m], which is never made."""

    X: Values
    noise: float

    def diagonal(self) -> Values:
        """Σ_ii."""
        return np.asarray(np.einsum("dm,dm->m", self.X, self.X) + self.noise**2)

    def column(self, i: int) -> Values:
        """Σ_{·i}."""
        found: Values = self.X[:, i] @ self.X
        found[i] += self.noise**2
        return found

    def times(self, p: Values) -> Values:
        """Σ p."""
        return (self.X @ p) @ self.X + self.noise**2 * p


def covariance(X: Values, log_scale: float, kernel: Kernel, degree: int, noise: float) -> Dense | LowRank:
    """Σ of embeddings X [dim, m]."""
    if kernel == "linear":
        return LowRank(X, noise)
    if kernel == "se":
        K = math.exp(2 * log_scale) * np.exp(-_distances(X) / 2)
    else:
        norms = np.maximum(np.linalg.norm(X, axis=0), 1e-12)
        K = np.outer(norms, norms) * ((X / norms).T @ (X / norms)) ** degree
    return Dense(K + noise**2 * np.eye(X.shape[1]))


def greedy(
    sigma: Dense | LowRank, shares: Values, alpha: Values, k: int, among: Indices, rng: np.random.Generator
) -> tuple[Indices, Values, Values]:
    """The rule of the module: the choice in its order, and scores aligned with ``among``.

    Only the columns of the chosen are ever needed: with u = Σ_{·i*}/√Σ_{i*i*}, conditioning takes u uᵀ off Σ, so u² off the diagonal
    and (pᵀu)·u off Σp.

    Returns:
        the clients; the score of each when it was chosen, and of the others in the last step; the scores in the first step.
    """
    diagonal, weighted = sigma.diagonal(), sigma.times(shares)
    left = np.ones(len(among), dtype=bool)
    chosen: list[int] = []
    directions: list[Values] = []
    kept, first = np.zeros(len(among)), np.zeros(len(among))
    for step in range(min(k, len(among))):
        fine = diagonal[among] > 1e-12
        scores = alpha[among] * weighted[among] / np.sqrt(np.where(fine, diagonal[among], 1.0))
        scores = np.where(fine, scores, -np.inf)
        first = scores if step == 0 else first
        kept = np.where(left, scores, kept)
        position = int(np.flatnonzero(left)[top(scores[left], 1, rng)[0]])
        left[position] = False
        chosen.append(i := int(among[position]))
        if diagonal[i] <= 1e-12:
            continue
        column = sigma.column(i)
        for earlier in directions:
            column -= earlier[i] * earlier
        u = column / math.sqrt(diagonal[i])
        directions.append(u)
        weighted, diagonal = weighted - (shares @ u) * u, diagonal - np.square(u)
        diagonal[i] = 0.0
    return np.array(chosen, dtype=np.int64), kept, first


# --- training the process --------------------------------------------------------------------------------------------------


def fit(
    X: Values,
    log_scale: float,
    changes: Values,
    weights: Values,
    *,
    kernel: Kernel = "linear",
    degree: int = 2,
    noise: float = 0.01,
    lr: float = 0.01,
    steps: int = 1000,
    objective: Objective = "marginal",
) -> tuple[Values, float]:
    """Adam on the embeddings, and on the scale of the se kernel.

    Args:
        X: where to begin, [dim, m].
        log_scale: ln s, where to begin.
        changes: one record a row, [n, m]; NaN where a client is missing.
        weights: of the records, [n].
        kernel, degree, noise, lr, steps, objective: see :class:`FedCor`.

    Returns:
        X and ln s; those before the first step that is not finite.
    """
    import torch

    present = np.isfinite(changes)
    filled = np.where(present, changes, 0.0)
    mean = weights @ filled / np.maximum(weights @ present, 1e-300)
    centred = np.where(present, filled - mean, 0.0) / (float(changes[present].std()) or 1.0)
    groups = []  # records in which the same clients are present share a covariance
    patterns, members = np.unique(present, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows = members.ravel() == number
        there = np.flatnonzero(pattern)
        groups.append(
            (torch.from_numpy(there), torch.from_numpy(centred[rows][:, there]), torch.from_numpy(weights[rows]))
        )
    with one_thread():
        points = torch.tensor(X, dtype=torch.float64, requires_grad=True)
        scale = torch.tensor(log_scale, dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.Adam([points, scale] if kernel == "se" else [points], lr=lr)
        for _ in range(steps):
            before = points.detach().clone(), scale.item()
            optimiser.zero_grad()
            loss = torch.zeros((), dtype=torch.float64)
            for clients, records, weight in groups:
                own = points[:, clients] if len(clients) < points.shape[1] else points
                if kernel == "linear" and len(clients) > len(points):
                    loss = loss + _low_rank(own, records, weight, noise, objective)
                else:
                    K = _kernel(own, scale, kernel, degree)
                    loss = loss + _dense(K, records, weight, noise, objective)
            if not bool(torch.isfinite(loss)):
                return np.asarray(before[0].numpy()), before[1]
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        finite = bool(torch.isfinite(points).all())
        return np.asarray(points.detach().numpy() if finite else before[0].numpy()), scale.item() if finite else before[
            1
        ]


def _kernel(X: "torch.Tensor", scale: "torch.Tensor", kernel: Kernel, degree: int) -> "torch.Tensor":
    products = X.T @ X
    if kernel == "linear":
        return products
    squares = products.diagonal()
    if kernel == "se":
        return (2 * scale).exp() * (-(squares[:, None] + squares[None, :] - 2 * products).clamp(min=0) / 2).exp()
    norms = squares.clamp(min=1e-24).sqrt()
    return norms[:, None] * norms[None, :] * (products / norms[:, None] / norms[None, :]) ** degree


def _dense(
    K: "torch.Tensor", records: "torch.Tensor", weight: "torch.Tensor", noise: float, objective: Objective
) -> "torch.Tensor":
    """Σ_e w_e·(−log likelihood), constants left out; jitter from 1e-6 to 1e-2 of the mean variance where Σ is not positive."""
    import torch

    one = torch.eye(len(K), dtype=K.dtype)
    sigma = K + noise**2 * one
    for jitter in (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
        L, info = torch.linalg.cholesky_ex(sigma + jitter * sigma.diagonal().mean().detach() * one)
        if int(info) == 0:
            break
    else:
        return torch.full((), math.nan, dtype=K.dtype)
    solved: torch.Tensor = torch.cholesky_solve(records.T, L).T
    if objective == "marginal":
        likelihood: torch.Tensor = weight @ ((records * solved).sum(1) / 2 + L.diagonal().log().sum())
        return likelihood
    return _left_out(torch.cholesky_inverse(L).diagonal(), solved, weight)


def _low_rank(
    X: "torch.Tensor", records: "torch.Tensor", weight: "torch.Tensor", noise: float, objective: Objective
) -> "torch.Tensor":
    """The same by the Woodbury identity: (XᵀX + σ²I)⁻¹ = (I − Xᵀ M⁻¹ X)/σ², M = σ²I + X Xᵀ [dim, dim]."""
    import torch

    dim, n = X.shape
    L, info = torch.linalg.cholesky_ex(noise**2 * torch.eye(dim, dtype=X.dtype) + X @ X.T)
    if int(info):
        return torch.full((), math.nan, dtype=X.dtype)
    half = torch.linalg.solve_triangular(L, X, upper=False)
    solved = (records - (records @ half.T) @ half) / noise**2
    if objective == "marginal":
        log_determinant = (n - dim) * math.log(noise**2) + 2 * L.diagonal().log().sum()
        likelihood: torch.Tensor = weight @ ((records * solved).sum(1) + log_determinant) / 2
        return likelihood
    return _left_out((1 - half.square().sum(0)) / noise**2, solved, weight)


def _left_out(precision: "torch.Tensor", solved: "torch.Tensor", weight: "torch.Tensor") -> "torch.Tensor":
    """Of each entry given the others: variance 1/[Σ⁻¹]_ii, error [Σ⁻¹y]_i/[Σ⁻¹]_ii."""
    precision = precision.clamp(min=1e-12)
    return (weight * (solved.square() / precision - precision.log()).sum(1) / 2).sum()


def _distances(X: Values) -> Values:
    squares = np.square(X).sum(axis=0)
    return np.asarray(np.maximum(squares[:, None] + squares[None, :] - 2 * X.T @ X, 0.0))
