"""FedCor: choose clients so that their training is expected to lower all losses most, by a Gaussian process over loss changes.

The change of all clients' losses in a round is Δl ~ N(μ, Σ), Σ = K(X) + σ_n² I, with one embedding x_i ∈ R^dim per client
(:mod:`fedcohort.selection.gaussian_process`). Selecting i is expected to change its own loss by −α_i·√Σ_ii and, by correlation, the
losses of the others. So, k times, with p_j = N_j/N:

    i* = arg max over the clients not chosen yet of  α_i · (Σ_j p_j Σ_ji) / √Σ_ii,       α_i = β^{τ_i}
    Σ ← Σ − Σ_{·i*} Σ_{i*·} / Σ_{i*i*}                                          (condition on i*)

τ_i counts the selections of client i since the last training of the process, so that no client is selected forever.

    t ≤ W            S_t is uniform; the losses of all available clients before and after the round give Δl^(t)
    after round W    train the process: 1000 steps of Adam on X
    t > W            S_t by the rule above. After every Δt rounds, a new uniform k-subset trains on a copy of the model, which
                     gives another Δl and is then discarded; then 100 steps of Adam, and τ_i ← 0.
                     In other rounds, τ_i += 1 for i in S_t

The training minimizes Σ_e γ^{t−e}·(−log N(Δl^(e); μ, Σ)) over the records of the last M rounds, e > t − M.
The authors' code (``src/GPR.py``) deletes records with e < t − M, so it keeps the oldest record for one round longer.

Selection needs only columns of Σ, so a choice costs O(k·m·(dim + k)).

Native weights: uniform. Tang et al. 2022, arXiv:2103.13822; Yoruko-Tang/FedCor, ``src/federated_main.py``.
"""

import math
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.gaussian_process import Dense, Kernel, LowRank, Objective, covariance, fit
from fedcohort.selection.questions import LocalLoss, LossChange
from fedcohort.selection.ranking import top
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["FedCor", "greedy"]

RECIPES = {
    "fmnist": {"warmup": 15, "interval": 10, "beta": 0.95, "gamma": 0.95, "memory": 100},
    "cifar10": {"warmup": 20, "interval": 50, "beta": 0.9, "gamma": 0.99, "memory": 500},
}
"""The settings in the authors' commands."""

LONG = 500
"""Number of rounds above which the CIFAR-10 recipe is the default (ours)."""

LIMIT, LIMIT_DENSE = 20_000, 1_000
"""Largest number of clients with the linear kernel, and with the other kernels."""


@parameters
class FedCor(Selector):
    """k clients expected to lower the mean loss most. A Gaussian process expects how their training changes all losses. Native
    weights: uniform.
    """

    card: ClassVar[Card] = Card(
        source="Tang et al. 2022, arXiv:2103.13822; Yoruko-Tang/FedCor",
        status="code",
        asks="all available clients for their losses in the first rounds (m model downloads, m forward passes); later, every few "
        "rounds, for the change over a round of training that is thrown away (2m model downloads, 2m forward passes, k trainings)",
        discloses=f"{LocalLoss.reveals}; {LossChange.reveals}",
        knows="N_i",
        cost="O(k·m·(dim + k)); training O(m·dim²) a step, O(m³) for kernels that are not linear",
    )

    recipe: Literal["fmnist", "cifar10"] | None = None
    """The authors' values of the next five parameters: fmnist has 15, 10, 0.95, 0.95, 100; cifar10 has 20, 50, 0.9, 0.99, 500.
    If not set: fmnist for runs of up to 500 rounds, cifar10 for longer ones."""
    warmup: Annotated[int, Ge(1)] | None = None
    """Number of first rounds with a uniform choice (W); the recipe's value if not set."""
    interval: Annotated[int, Ge(1)] | None = None
    """Rounds between two trainings of the process (Δt); the recipe's value if not set."""
    beta: Annotated[float, Gt(0), Le(1)] | None = None
    """Factor of a client's weight for each time it was selected (β); the recipe's value if not set."""
    gamma: Annotated[float, Gt(0), Le(1)] | None = None
    """Factor of a record's weight for each round of age (γ); the recipe's value if not set."""
    memory: Annotated[int, Ge(1)] | None = None
    """Number of rounds for which a record is kept (M); the recipe's value if not set."""
    dim: Annotated[int, Ge(1)] = 15
    """Length of the embeddings."""
    kernel: Kernel = "linear"
    """Kernel that turns embeddings into covariances: linear, polynomial, or se (squared exponential)."""
    degree: Annotated[int, Ge(1)] = 2
    """Exponent of the polynomial kernel."""
    objective: Objective = "marginal"
    """Likelihood to maximize: marginal (of whole records), or leave_one_out (of each entry given the others), which finds the
    directions in which losses change together, but not the size of the changes."""
    noise: Annotated[float, Gt(0)] = 0.01
    """Standard deviation σ_n of the noise, after loss changes are standardized."""
    lr: Annotated[float, Gt(0)] = 0.01
    """Learning rate of Adam."""
    first_steps: Annotated[int, Ge(1)] = 1000
    """Steps of the first training."""
    steps: Annotated[int, Ge(1)] = 100
    """Steps of every later training."""

    def check_clients(self, number: int) -> None:
        """Refuse runs that would take too long."""
        limit = LIMIT if self.kernel == "linear" else LIMIT_DENSE
        if number > limit:
            advice = "kernel = 'linear' allows 20,000" if limit < number <= LIMIT else "use another strategy"
            raise UsageError(
                f"selection.kernel = {self.kernel!r}: fedcor allows at most {limit:,} clients with it, not {number:,}; {advice}"
            )

    def setup(self, census: Census) -> None:
        """Start without embeddings and records."""
        super().setup(census)
        m = census.num_clients
        self.X = np.zeros((0, m))
        self.log_scale = 0.0
        self.selected = np.zeros(m, dtype=np.int64)
        """τ_i."""
        self.records: list[dict[str, Any]] = []
        self.losses: Values | None = None
        """Losses of the model before the previous round, during the warm-up; None afterwards."""
        self.due = False
        """Whether a training of the process is due."""

    def select(self, round: Round) -> Cohort:
        """Train the process if it is due, then choose."""
        self._learn(round)
        if round.t <= self._of_recipe("warmup"):
            note = "random: first rounds"
        elif not len(self.X):
            note = "random: no losses to learn from yet"
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                sigma = covariance(self.X, self.log_scale, self.kernel, self.degree, self.noise)
                is_finite = bool(np.isfinite(sigma.diagonal()).all())
            if is_finite:
                return self._greedy(round, sigma)
            note = "random: the covariance is not finite"
        return Cohort(round.sample(round.k), why=Why(round.available, np.zeros(len(round.available)), note=note))

    def observe(self, outcome: Outcome) -> None:
        """Count selections, or note that a training of the process is due."""
        past = outcome.t - self._of_recipe("warmup")
        if past > 0 and past % self._of_recipe("interval") == 0:
            self.due = True
        elif past > 0:
            self.selected[outcome.cohort.clients] += 1

    # training the process

    def _learn(self, round: Round) -> None:
        """Ask for losses until the round after the warm-up; later, for loss changes over a trial round if one is due."""
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

    # choosing

    def _greedy(self, round: Round, sigma: Dense | LowRank) -> Cohort:
        i, shares = round.available, self.census.num_samples / self.census.num_samples.sum()
        alpha = self._of_recipe("beta") ** self.selected.astype(np.float64)
        clients, scores, first = greedy(sigma, shares, alpha, round.k, i, round.rng)
        note = "largest expected fall of all losses, given the clients chosen before"
        return Cohort(clients, why=Why(i, scores, {"first": first, "annealing": alpha[i]}, note))

    def _of_recipe(self, name: str) -> Any:
        given = getattr(self, name)
        if given is not None:
            return given
        return RECIPES[self.recipe or ("fmnist" if self.census.rounds <= LONG else "cifar10")][name]


def greedy(
    sigma: Dense | LowRank, shares: Values, alpha: Values, k: int, among: Indices, rng: np.random.Generator
) -> tuple[Indices, Values, Values]:
    """Choose k clients of ``among`` one after another by the rule in the module's docstring.

    Only the columns of the chosen clients are needed: with u = Σ_{·i*}/√Σ_{i*i*}, conditioning subtracts u uᵀ from Σ, so it subtracts
    u² from the diagonal and (pᵀu)·u from Σp.

    Returns:
        the clients in the order of the choice; the score of each when it was chosen, and of the others in the last step; the scores in
        the first step. Scores are aligned with ``among``.
    """
    diagonal, weighted = sigma.diagonal(), sigma.times(shares)
    left = np.ones(len(among), dtype=bool)
    chosen: list[int] = []
    directions: list[Values] = []
    kept, first = np.zeros(len(among)), np.zeros(len(among))
    for step in range(min(k, len(among))):
        uncertain = diagonal[among] > 1e-12
        scores = alpha[among] * weighted[among] / np.sqrt(np.where(uncertain, diagonal[among], 1.0))
        scores = np.where(uncertain, scores, -np.inf)
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
