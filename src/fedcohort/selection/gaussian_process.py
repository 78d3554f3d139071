"""A Gaussian process over the changes of clients' losses, with one embedding per client; FedCor selects with it.

The change of all clients' losses in a round is Δl ~ N(μ, Σ), Σ = K(X) + σ_n² I, with the embeddings X [dim, m]. Kernels:

    linear       K_ij = x_iᵀx_j
    polynomial   K_ij = |x_i|·|x_j|·(cosine of x_i and x_j)^degree            (ours, in place of the code's normalized polynomial)
    se           K_ij = s²·exp(−|x_i − x_j|²/2), s trained as well

:func:`fit` minimizes Σ_e w_e·(−log N(Δl^(e); μ, Σ)) over records e with weights w_e; μ is the records' weighted mean and is not
trained. A client without Δl in a record is left out of that record. Δl is divided by its overall standard deviation first (ours; this
does not change the ranking of clients).

A training step costs O(m·dim²) for the linear kernel, by the Woodbury identity, and O(m³) for the others.

Tang et al. 2022, arXiv:2103.13822; Yoruko-Tang/FedCor, ``src/GPR.py``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from fedcohort.core.arrays import Values
from fedcohort.core.threads import one_thread

if TYPE_CHECKING:
    import torch

__all__ = ["Dense", "Kernel", "LowRank", "Objective", "covariance", "fit"]

Kernel = Literal["linear", "polynomial", "se"]
Objective = Literal["marginal", "leave_one_out"]

BETAS = 0.9, 0.999
EPSILON = 1e-8


# --- the covariance --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dense:
    """Σ, stored as a matrix [m, m]."""

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
    """Σ = XᵀX + noise²·I with X [dim, m], stored as X: the matrix itself is never computed."""

    X: Values
    noise: float

    def diagonal(self) -> Values:
        """Σ_ii."""
        return np.asarray(np.einsum("dm,dm->m", self.X, self.X) + self.noise**2)

    def column(self, i: int) -> Values:
        """Σ_{·i}."""
        column: Values = self.X[:, i] @ self.X
        column[i] += self.noise**2
        return column

    def times(self, p: Values) -> Values:
        """Σ p."""
        return (self.X @ p) @ self.X + self.noise**2 * p


def covariance(X: Values, log_scale: float, kernel: Kernel, degree: int, noise: float) -> Dense | LowRank:
    """Σ for the embeddings X [dim, m]."""
    if kernel == "linear":
        return LowRank(X, noise)
    if kernel == "se":
        K = math.exp(2 * log_scale) * np.exp(-_distances(X) / 2)
    else:
        norms = np.maximum(np.linalg.norm(X, axis=0), 1e-12)
        K = np.outer(norms, norms) * ((X / norms).T @ (X / norms)) ** degree
    return Dense(K + noise**2 * np.eye(X.shape[1]))


def _distances(X: Values) -> Values:
    """|x_i − x_j|² for every two columns of X, [m, m]."""
    squares = np.square(X).sum(axis=0)
    return np.asarray(np.maximum(squares[:, None] + squares[None, :] - 2 * X.T @ X, 0.0))


# --- training --------------------------------------------------------------------------------------------------------------


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
    """Train the embeddings, and the scale of the se kernel, with Adam.

    Args:
        X: initial embeddings, [dim, m].
        log_scale: initial ln s.
        changes: one record per row, [n, m]; NaN for clients without a value.
        weights: weights of the records, [n].
        kernel, degree, noise, lr, steps, objective: see :class:`fedcohort.selection.strategies.fedcor.FedCor`.

    Returns:
        X and ln s; if a step is not finite, their values before that step.
    """
    import torch

    groups = _groups(changes, weights)
    with one_thread():
        points = torch.tensor(X, dtype=torch.float64, requires_grad=True)
        scale = torch.tensor(log_scale, dtype=torch.float64, requires_grad=True)
        optimizer = _Adam([points, scale] if kernel == "se" else [points], lr)
        before = points.detach().clone(), scale.item()
        for _ in range(steps):
            points.grad = scale.grad = None
            loss = torch.zeros((), dtype=torch.float64)
            for group in groups:
                loss = loss + _loss(group, points, scale, kernel, degree, noise, objective)
            if not bool(torch.isfinite(loss)):
                break
            before = points.detach().clone(), scale.item()
            loss.backward()
            optimizer.step()
        else:
            if bool(torch.isfinite(points).all()):
                before = points.detach(), scale.item()
        return np.asarray(before[0].numpy()), before[1]


class _Adam:
    """Adam with the bits of ``torch.optim.Adam``, whose first instance loads PyTorch's compiler, which takes a second."""

    def __init__(self, parameters: "Sequence[torch.Tensor]", lr: float) -> None:
        import torch

        self._lr, self._steps = lr, 0
        self._moments = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    def step(self) -> None:
        """Move the parameters by their ``.grad``."""
        import torch

        self._steps += 1
        size, scale = self._lr / (1 - BETAS[0] ** self._steps), (1 - BETAS[1] ** self._steps) ** 0.5
        with torch.no_grad():
            for parameter, mean, square in self._moments:
                assert parameter.grad is not None
                mean.lerp_(parameter.grad, 1 - BETAS[0])
                square.mul_(BETAS[1]).addcmul_(parameter.grad, parameter.grad, value=1 - BETAS[1])
                parameter.addcdiv_(mean, (square.sqrt() / scale).add_(EPSILON), value=-size)


class _Group(NamedTuple):
    """Records that have values of the same clients, and so share one covariance matrix."""

    clients: "torch.Tensor"
    """Ids of these clients, [c]."""
    records: "torch.Tensor"
    """Standardized changes minus their mean, [n, c]."""
    weight: "torch.Tensor"
    """Weight of each record, [n]."""


def _groups(changes: Values, weights: Values) -> list[_Group]:
    """The records, standardized and grouped by the clients that they have values of."""
    import torch

    present = np.isfinite(changes)
    filled = np.where(present, changes, 0.0)
    mean = weights @ filled / np.maximum(weights @ present, 1e-300)
    standardized = np.where(present, filled - mean, 0.0) / (float(changes[present].std()) or 1.0)
    patterns, members = np.unique(present, axis=0, return_inverse=True)
    groups = []
    for number, pattern in enumerate(patterns):
        rows = members.ravel() == number
        clients = np.flatnonzero(pattern)
        groups.append(
            _Group(
                torch.from_numpy(clients),
                torch.from_numpy(standardized[rows][:, clients]),
                torch.from_numpy(weights[rows]),
            )
        )
    return groups


def _loss(
    group: _Group,
    points: "torch.Tensor",
    scale: "torch.Tensor",
    kernel: Kernel,
    degree: int,
    noise: float,
    objective: Objective,
) -> "torch.Tensor":
    """Weighted negative log likelihood of a group's records; by the Woodbury identity where that is cheaper."""
    X = points[:, group.clients] if len(group.clients) < points.shape[1] else points
    if kernel == "linear" and len(group.clients) > len(points):
        return _low_rank(X, group.records, group.weight, noise, objective)
    return _dense(_kernel(X, scale, kernel, degree), group.records, group.weight, noise, objective)


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
    """Σ_e w_e·(−log likelihood) without constants, for Σ = K + noise²·I.

    If Σ is not positive definite, a jitter of 1e-6 to 1e-2 of the mean variance is added to its diagonal; NaN if that does not help.
    """
    import torch

    identity = torch.eye(len(K), dtype=K.dtype)
    sigma = K + noise**2 * identity
    for jitter in (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
        L, info = torch.linalg.cholesky_ex(sigma + jitter * sigma.diagonal().mean().detach() * identity)
        if int(info) == 0:
            break
    else:
        return torch.full((), math.nan, dtype=K.dtype)
    solved: torch.Tensor = torch.cholesky_solve(records.T, L).T
    if objective == "marginal":
        likelihood: torch.Tensor = weight @ ((records * solved).sum(1) / 2 + L.diagonal().log().sum())
        return likelihood
    return _leave_one_out(torch.cholesky_inverse(L).diagonal(), solved, weight)


def _low_rank(
    X: "torch.Tensor", records: "torch.Tensor", weight: "torch.Tensor", noise: float, objective: Objective
) -> "torch.Tensor":
    """The same loss for K = XᵀX, by the Woodbury identity: (XᵀX + σ²I)⁻¹ = (I − Xᵀ M⁻¹ X)/σ², M = σ²I + X Xᵀ [dim, dim]."""
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
    return _leave_one_out((1 - half.square().sum(0)) / noise**2, solved, weight)


def _leave_one_out(precision: "torch.Tensor", solved: "torch.Tensor", weight: "torch.Tensor") -> "torch.Tensor":
    """The leave-one-out loss: each entry given the others has variance 1/[Σ⁻¹]_ii and error [Σ⁻¹y]_i/[Σ⁻¹]_ii."""
    precision = precision.clamp(min=1e-12)
    return (weight * (solved.square() / precision - precision.log()).sum(1) / 2).sum()
