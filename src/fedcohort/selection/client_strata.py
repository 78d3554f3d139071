"""Form groups of similar clients in five ways, for stratified sampling and for survey cluster sampling.

    given            the label that the experiment states for each client
    dominant_label   arg max_c h_{i,c}, the lowest class of a tie; the server needs to learn one class of each client
    label_cluster    k-means with H clusters on the label fractions h_i/Σ_c h_{i,c}; the server needs the histogram
    size_quantile    H quantiles of N_i; clients of equal size are in the same group
    speed_quantile   H quantiles of the last known duration, anew in each round; clients without a duration form a group of their own

These traits may be private. With ``epsilon_dp``, each client adds Laplace noise of scale 1/ε to every count of its histogram before
it is used (counts below 0 become 0), so that its histogram is ε-differentially private with respect to one sample that is added or
removed.

"Client Selection in Federated Learning on Non-IID Data using Conformal Prediction" (master's thesis, Aalborg University, 2023),
section 4.2, names these modes but does not specify them; the details are ours.
"""

from typing import Literal, Protocol

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.selection.strategy_inputs import Census, Round

__all__ = ["Grouped", "Trait", "check_given", "check_no_noise", "current_groups", "strata", "strata_by_speed"]

Trait = Literal["given", "dominant_label", "label_cluster", "size_quantile", "speed_quantile"]


class Grouped(Protocol):
    """A strategy with groups of similar clients: its parameters, and its census.

    Attributes:
        by: trait that defines the groups.
        given: group of each client, for ``by = "given"``.
        groups: number of clusters or quantiles.
        epsilon_dp: privacy parameter of the label histograms; no noise if None.
        census: what the server knows about the clients.
    """

    by: Trait
    given: list[int] | None
    groups: int
    epsilon_dp: float | None
    census: Census


_RESTARTS = 4
"""Number of k-means runs, of which the one with the smallest distortion is used; a single run above 100,000 clients."""


def check_given(by: Trait, given: list[int] | None, num_clients: int) -> None:
    """Check that mode ``given`` has one label for each client.

    Raises:
        UsageError: labels are missing, are not one per client, or are given with a mode that ignores them.
    """
    if (given is not None) != (by == "given"):
        state = "not set" if given is None else f"{len(given)} labels"
        raise UsageError(
            f"selection.given: {state} with selection.by = {by!r}; use by = 'given' together with given = [label of client 0, …]"
        )
    if given is not None and len(given) != num_clients:
        raise UsageError(f"selection.given: {len(given)} labels for {num_clients} clients; give one for each client")


def check_no_noise(epsilon_dp: float | None) -> None:
    """Refuse to form groups a second time from label counts with noise, because two noisy copies disclose more than one.

    Raises:
        UsageError: ``epsilon_dp`` is set.
    """
    if epsilon_dp is not None:
        raise UsageError(
            f"selection.epsilon_dp = {epsilon_dp:g}: clients cannot join, because all label counts would get noise a second time"
        )


def strata(
    by: Trait,
    census: Census,
    rng: np.random.Generator,
    *,
    given: list[int] | None,
    groups: int,
    epsilon_dp: float | None,
) -> Indices:
    """The group of every client, numbered from 0 without gaps, int64 [m]; for all modes except ``speed_quantile``.

    Clients without samples, which are never available, do not influence the groups.

    Raises:
        UsageError: the mode needs label histograms, and the census has none.
    """
    label, real = np.zeros(census.num_clients, dtype=np.int64), np.flatnonzero(census.num_samples)
    match by:
        case "given":
            label = np.asarray(given, dtype=np.int64)
        case "size_quantile":
            label[real] = _quantiles(census.num_samples[real].astype(np.float64), groups)
        case "dominant_label":
            label = _histogram(census, rng, epsilon_dp).argmax(axis=1)
        case _:
            counts = _histogram(census, rng, epsilon_dp)[real]
            label[real] = _clusters(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-12), groups, rng)
    return _numbered(label)


def strata_by_speed(round: Round, groups: int) -> Indices:
    """The group of every available client by its last known duration, int64 [n]; clients without a duration form the last group."""
    durations = round.durations[round.available]
    known = np.isfinite(durations)
    label = np.full(len(durations), groups)
    label[known] = _quantiles(durations[known], groups)
    return _numbered(label)


def current_groups(strategy: Grouped, fixed: Indices | None, round: Round) -> tuple[Indices | None, Indices]:
    """The groups of a round. Groups by speed are formed anew in each round, and all others in the first round only.

    Args:
        strategy: the strategy.
        fixed: the fixed group of every client, int64 [m]; None before the first round.
        round: the round.

    Returns:
        ``fixed`` for the next round, and the current group of every available client, int64 [n].

    Raises:
        UsageError: the trait needs label histograms, and the census has none.
    """
    if strategy.by == "speed_quantile":
        return fixed, strata_by_speed(round, strategy.groups)
    if fixed is None:
        fixed = strata(
            strategy.by,
            strategy.census,
            round.rng,
            given=strategy.given,
            groups=strategy.groups,
            epsilon_dp=strategy.epsilon_dp,
        )
    return fixed, fixed[round.available]


def _histogram(census: Census, rng: np.random.Generator, epsilon_dp: float | None) -> Values:
    """The label histograms, float64 [m, K], with noise if ``epsilon_dp`` is set."""
    if census.histogram is None:
        raise UsageError(
            "selection.by: the census has no label histograms; use 'size_quantile', 'speed_quantile' or 'given'"
        )
    counts = census.histogram.astype(np.float64)
    if epsilon_dp is not None:
        counts += rng.laplace(scale=1.0 / epsilon_dp, size=counts.shape)
        np.maximum(counts, 0.0, out=counts)
    return counts


def _quantiles(values: Values, groups: int) -> Indices:
    """The quantile of ``groups`` in which each value lies; equal values lie in the same quantile."""
    if len(values) == 0:
        return np.zeros(0, dtype=np.int64)
    edges = np.quantile(values, np.arange(1, groups) / groups, method="inverted_cdf")
    return np.searchsorted(edges, values, side="left")


def _clusters(points: Values, groups: int, rng: np.random.Generator) -> Indices:
    """The k-means cluster of each point [m, K]; if there are at most ``groups`` distinct points, each is a cluster."""
    from scipy.cluster.vq import kmeans2

    # A random projection finds equal rows: they have equal keys, because every row is summed in the same order, and different rows
    # have different keys with probability 1.
    _, distinct = np.unique((points * rng.random(points.shape[1])).sum(axis=1), return_inverse=True)
    if int(distinct.max()) < groups:
        return distinct
    best, label = np.inf, distinct
    for _ in range(_RESTARTS if len(points) <= 100_000 else 1):
        centers, nearest = kmeans2(points, groups, iter=25, minit="++", missing="warn", rng=rng)
        distortion = float(((points - centers[nearest]) ** 2).sum())
        if distortion < best:
            best, label = distortion, nearest.astype(np.int64)
    return label


def _numbered(label: Indices) -> Indices:
    """The same groups, numbered from 0 without gaps in the order of their labels."""
    low, high = int(label.min(initial=0)), int(label.max(initial=0))
    if high - low > 4 * len(label):  # counting every possible label would take too much memory
        return np.unique(label, return_inverse=True)[1].astype(np.int64)
    occurs = np.bincount(label - low, minlength=high - low + 1) > 0
    numbers: Indices = (np.cumsum(occurs) - 1)[label - low]
    return numbers
