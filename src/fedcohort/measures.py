"""What a run is judged by: accuracy, fairness of selection, time to a target, regret, stability, and what seeds say together.

Plain functions of arrays. Rounds are counted from 1; the first entry of a series belongs to round 1. NaN in an accuracy series is
a round in which nothing was measured; it is passed over.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort.core import streams
from fedcohort.core.errors import UsageError

__all__ = [
    "EarlyStop", "JainReference", "PairedInterval", "Participation", "accuracy", "best_accuracy",
    "best_batch_size", "binomial", "bytes_to", "coverage", "early_stop", "entropy",
    "final_accuracy", "forgetting", "gini", "hindsight_regret", "jain", "jain_random", "largest_drop", "macro_accuracy",
    "mean_sd", "overall_accuracy", "paired_interval", "participation", "participation_random", "regret",
    "rounds_since", "rounds_to", "selection_counts", "tail_sd", "time_to", "worst_accuracy",
]  # fmt: skip

Values = NDArray[np.float64]


# --- accuracy ---------------------------------------------------------------------------------------------------------


def accuracy(correct: ArrayLike, total: ArrayLike) -> Values:
    """acc_c = correct_c / total_c, for each class (or client, or round); NaN where there is nothing to count.

    Args:
        correct: right predictions, whole numbers of any shape.
        total: predictions, same shape.
    """
    right, all_ = np.asarray(correct, np.float64), np.asarray(total, np.float64)
    if right.shape != all_.shape:
        raise UsageError(f"correct has the shape {right.shape}, total {all_.shape}; they must be the same")
    if not ((right >= 0) & (right <= all_)).all():
        raise UsageError("correct must lie between 0 and total everywhere")
    shares: Values = np.divide(right, all_, out=np.full(right.shape, np.nan), where=all_ > 0)
    return shares


def overall_accuracy(correct: ArrayLike, total: ArrayLike) -> float:
    """acc = Σ_c correct_c / Σ_c total_c; NaN without samples."""
    accuracy(correct, total)  # checks them
    return float(accuracy([np.sum(correct)], [np.sum(total)])[0])


def macro_accuracy(correct: ArrayLike, total: ArrayLike) -> float:
    """Mean of acc_c over the classes that have samples; NaN if none has."""
    shares = accuracy(correct, total)
    defined = shares[~np.isnan(shares)]
    return float(defined.mean()) if defined.size else math.nan


def best_accuracy(series: ArrayLike) -> float:
    """max_t acc_t."""
    return float(_measured(series, "series").max())


def final_accuracy(series: ArrayLike) -> float:
    """acc_t of the last round that was measured."""
    return float(_measured(series, "series")[-1])


def worst_accuracy(per_client: ArrayLike, share: float = 0.1) -> float:
    """Mean accuracy of the ⌈share·m⌉ clients that the model serves worst: a federation's fairness in one number.

    Args:
        per_client: accuracy of each client on its own data [m]; clients with NaN have none and are left out, of m too.
        share: share of clients that counts as the worst, in (0, 1].
    """
    values = _measured(per_client, "per_client")
    if not 0 < share <= 1:
        raise UsageError(f"share = {share}: above 0 and at most 1, such as 0.1")
    return float(np.sort(values)[: math.ceil(round(share * len(values), 9))].mean())  # 0.1·30 is not 4


class EarlyStop(NamedTuple):
    """The round that early stopping keeps."""

    accuracy: float
    """Test accuracy at ``round``; NaN if the test set was not measured there."""
    round: int
    """Round with the best validation accuracy up to ``stopped``; ties: the first."""
    stopped: int
    """Last round that is trained."""


def early_stop(validation: ArrayLike, test: ArrayLike, patience: int = 100, min_delta: float = 0.0) -> EarlyStop:
    """Test accuracy at the round t* = arg max_{t ≤ stopped} val_t: validation chooses, test only reports.

    Training stops ``patience`` rounds after the last improvement. An improvement is a validation accuracy more than ``min_delta``
    above that of the improvement before it; the first measured round is one. A run that ends earlier stops with its last round. Rounds
    without a test are passed over.

    Args:
        validation: validation accuracy of each round [n].
        test: test accuracy of each round [n].
        patience: rounds without improvement after which training stops, ≥ 1.
        min_delta: how much better counts as an improvement, ≥ 0.
    """
    val, tested = _series(validation, "validation"), _series(test, "test")
    _same_length(val, "validation", tested, "test")
    _measured(val, "validation")
    if patience < 1:
        raise UsageError(f"patience = {patience}: at least 1 round")
    if not min_delta >= 0:
        raise UsageError(f"min_delta = {min_delta}: at least 0")
    val = np.where(np.isfinite(tested), val, np.nan)
    reference, improved, stopped = -math.inf, 0, len(val)
    for t, value in enumerate(val.tolist(), start=1):
        if value > reference + min_delta:
            reference, improved = value, t
        elif improved and t - improved >= patience:
            stopped = t
            break
    best = int(np.nanargmax(val[:stopped]))
    return EarlyStop(accuracy=float(tested[best]), round=best + 1, stopped=stopped)


# --- who was selected (D2, D3) ---------------------------------------------------------------------------------------------


def jain(counts: ArrayLike) -> float:
    """Jain's fairness index J = (Σx)² / (m Σx²), from 1/m to 1; 1 if all x_i are 0.

    x_i is how often client i was selected (or took part). Print it next to :func:`jain_random`.
    Jain, Chiu, Hawe 1984, arXiv:cs/9809099.
    """
    x = _counts(counts)
    return float(x.sum() ** 2 / (len(x) * (x**2).sum())) if x.any() else 1.0


class JainReference(NamedTuple):
    """What uniform random selection gives."""

    mean: float
    q05: float
    q50: float
    q95: float


SIMULATED = 12_000_000
"""Up to this many draws × clients × rounds, a reference is simulated client by client: in 0.2 s or so."""


@lru_cache(maxsize=256)
def jain_random(num_clients: int, k: int, rounds: int, *, draws: int = 2_000, seed: int = 0) -> JainReference:
    """Law of J when each of ``rounds`` rounds selects min(k, m) of m clients uniformly: mean and 5, 50, 95 % quantiles.

    Small cases are simulated by ``draws`` independent runs: those with draws·m·n ≤ 12 million, with n ≤ 30 rounds, or with so few
    selections (kn ≤ 300 and ≤ 4m) that J takes few values. Others follow from the limit for many rounds, in a millisecond: with
    T = Σx = kn, J = 1/(1 + m·Q/T²), and the spread Q = Σ(x − T/m)² has exactly the mean n·k(m − k)/m and the variance
    2n(n − 1)·k²(m − k)²/(m²(m − 1)); its law, a multiple of χ² with m − 1 degrees of freedom in the limit, is taken to be the Gamma
    law with these moments. Against simulation the mean of J is off by less than 0.1 %, its quantiles by less than 0.5 % (measured for
    12 to a million clients and 31 to 600 rounds); 2,000 draws leave an error of that order, too.
    """
    if num_clients < 1 or k < 1 or rounds < 0 or draws < 1:
        raise UsageError(
            f"jain_random({num_clients}, {k}, {rounds}, draws={draws}): clients, k and draws are at least 1, rounds at least 0"
        )
    k = min(k, num_clients)
    if k == num_clients or rounds == 0:
        return JainReference(1.0, 1.0, 1.0, 1.0)
    small = draws * num_clients * rounds <= SIMULATED
    if not small and rounds > 30 and k * rounds > min(300, 4 * num_clients):
        return _jain_limit(num_clients, k, rounds)
    rng = streams.rng(seed, "jain-reference")
    simulate = _squares_by_client if small else _squares_by_count
    values = (k * rounds) ** 2 / (num_clients * simulate(num_clients, k, rounds, draws, rng))
    q05, q50, q95 = np.quantile(values, [0.05, 0.5, 0.95]).tolist()
    return JainReference(float(values.mean()), q05, q50, q95)


def _jain_limit(m: int, k: int, rounds: int) -> JainReference:
    """The law of J for many rounds, see :func:`jain_random`."""
    from scipy.special import gammaincinv  # slow to import

    mean = rounds * k * (m - k) / m
    variance = 2 * rounds * (rounds - 1) * (k * (m - k) / m) ** 2 / (m - 1)
    levels = np.concatenate([[0.95, 0.5, 0.05], (np.arange(2_000) + 0.5) / 2_000])  # a large spread is a small J
    spread = gammaincinv(mean**2 / variance, levels) * variance / mean
    values = 1 / (1 + m * spread / (k * rounds) ** 2)
    return JainReference(float(values[3:].mean()), *values[:3].tolist())


def _squares_by_client(m: int, k: int, rounds: int, draws: int, rng: np.random.Generator) -> Values:
    """Σx² of each draw: the k smallest of m random keys are selected. Work grows with m."""
    x = np.zeros((draws, m))
    rows = np.arange(draws)[:, None]
    for _ in range(rounds):
        x[rows, np.argpartition(rng.random((draws, m)), k, axis=1)[:, :k]] += 1
    squares: Values = (x * x).sum(axis=1)
    return squares


def _squares_by_count(m: int, k: int, rounds: int, draws: int, rng: np.random.Generator) -> Values:
    """Σx² of each draw, of the same law: how many of the k fall on clients selected x times so far. Memory and work free of m."""
    clients_with = np.zeros((rounds + 1, draws), np.int64)
    clients_with[0], highest = m, 0
    for _ in range(rounds):
        to_select, left = np.full(draws, k), np.full(draws, m)
        for x in range(highest, -1, -1):  # downwards: who moves up to x + 1 is not met again
            here = clients_with[x].copy()
            left -= here
            chosen = rng.hypergeometric(here, left, to_select)
            to_select -= chosen
            clients_with[x] -= chosen
            clients_with[x + 1] += chosen
        highest += bool(clients_with[highest + 1].any())
    levels = np.arange(rounds + 1.0)
    squares: Values = levels**2 @ clients_with
    return squares


def gini(counts: ArrayLike) -> float:
    """Gini coefficient Σ_i (2i − m − 1) x_(i) / (m Σx) of the sorted counts: 0 if all are equal (also all 0), at most 1 − 1/m."""
    x = np.sort(_counts(counts))
    m = len(x)
    return float((2.0 * np.arange(1, m + 1) - m - 1) @ x / (m * x.sum())) if x.any() else 0.0


def entropy(counts: ArrayLike) -> float:
    """−Σ_i p_i ln p_i with p_i = x_i / Σx, from 0 to ln m (nats); 0 if all counts are 0."""
    x = _counts(counts)
    p = x[x > 0] / max(x.sum(), 1.0)
    return float(-(p * np.log(p)).sum()) + 0.0  # + 0.0: no −0


def coverage(counts: ArrayLike) -> float:
    """|{i: x_i > 0}| / m."""
    return float((_counts(counts) > 0).mean())


class Participation(NamedTuple):
    """How evenly clients were selected, or took part."""

    jain: float
    gini: float
    entropy: float
    coverage: float


def participation(counts: ArrayLike) -> Participation:
    """All four measures of how often each client was selected; print them next to :func:`participation_random`."""
    return Participation(jain(counts), gini(counts), entropy(counts), coverage(counts))


@lru_cache(maxsize=256)
def participation_random(num_clients: int, k: int, rounds: int) -> Participation:
    """What :func:`participation` is on average when each round selects min(k, m) of m clients uniformly.

    Coverage, entropy and Gini are exact: a client's count x is Binomial(n, k/m) and Σx = kn is fixed, so that
    E coverage = 1 − (1 − k/m)^n, E entropy = −m E[(x/kn) ln(x/kn)] and E Gini = (m − 1)·E|x_1 − x_2|/(2kn), where x_1 − x_2 is a
    symmetric random walk that moves in a round with probability 2·(k/m)·(m − k)/(m − 1). Jain: see :func:`jain_random`.
    """
    fair = jain_random(num_clients, k, rounds).mean
    m, k, n = num_clients, min(k, num_clients), rounds
    if n == 0:
        return Participation(fair, 0.0, 0.0, 0.0)
    x = np.arange(n + 1)
    p = x[1:] / (k * n)
    entropy_mean = -m * float(binomial(n, k / m)[1:] @ (p * np.log(p)))
    gini_mean = 0.0
    if k < m:
        pairs = np.cumprod(np.concatenate([[1.0], 1 - 0.5 / np.arange(1, n // 2 + 2)]))  # C(2j, j)/4^j
        steps = (x + 1) // 2 * 2
        distance = steps * pairs[steps // 2]  # E|walk of x steps|, the same for 2j − 1 and 2j
        moves = 2 * (k / m) * (m - k) / (m - 1)
        gini_mean = (m - 1) * float(binomial(n, min(moves, 1.0)) @ distance) / (2 * k * n)
    return Participation(fair, gini_mean, entropy_mean + 0.0, 1 - (1 - k / m) ** n)


def binomial(trials: int, chance: float) -> Values:
    """Probabilities of 0 to n successes in n trials [n + 1]; ``scipy.stats`` has them too, but takes most of a second to import."""
    from scipy.special import gammaln, xlog1py, xlogy

    x = np.arange(trials + 1)
    ways = gammaln(trials + 1) - gammaln(x + 1) - gammaln(trials - x + 1)
    found: Values = np.exp(ways + xlogy(x, chance) + xlog1py(trials - x, -chance))
    return found


def selection_counts(selections: Sequence[ArrayLike], num_clients: int) -> NDArray[np.int64]:
    """How many rounds each client was in, int64 [m]. A client named twice in a round counts once.

    Args:
        selections: the clients of each round, n lists.
        num_clients: m.
    """
    counts = np.zeros(num_clients, np.int64)
    for clients in _rounds(selections, num_clients):
        counts[clients] += 1
    return counts


def rounds_since(selections: Sequence[ArrayLike], num_clients: int) -> Values:
    """Rounds since each client was last in one, as of the last round: 0 if it was in that; inf if it never was, float64 [m].

    Args:
        selections: the clients of each round, n lists.
        num_clients: m.
    """
    last = np.full(num_clients, -np.inf)
    for t, clients in enumerate(_rounds(selections, num_clients), start=1):
        last[clients] = t
    return len(selections) - last


# --- cost of a target -------------------------------------------------------------------------------------------------


def rounds_to(series: ArrayLike, target: float) -> float:
    """First round with acc_t ≥ target; inf if there is none."""
    reached = _series(series, "series") >= target
    return float(reached.argmax() + 1) if reached.any() else math.inf


def time_to(series: ArrayLike, clock: ArrayLike, target: float) -> float:
    """Simulated time at the end of the first round with acc_t ≥ target; inf if there is none.

    Args:
        series: accuracy of each round [n].
        clock: simulated time at the end of each round [n], never falling.
        target: the accuracy to reach.
    """
    values, times = _series(series, "series"), _series(clock, "clock")
    _same_length(values, "series", times, "clock")
    if not (np.diff(times) >= 0).all():
        raise UsageError("clock falls between two rounds; give the time at the end of each round, not its duration")
    t = rounds_to(values, target)
    return float(times[int(t) - 1]) if t < math.inf else math.inf


def bytes_to(series: ArrayLike, round_bytes: ArrayLike, target: float) -> float:
    """Bytes sent and received up to and with the first round with acc_t ≥ target; inf if there is none.

    Args:
        series: accuracy of each round [n].
        round_bytes: bytes of each round [n], not summed up.
        target: the accuracy to reach.
    """
    values, cost = _series(series, "series"), _series(round_bytes, "round_bytes")
    _same_length(values, "series", cost, "round_bytes")
    t = rounds_to(values, target)
    return float(cost[: int(t)].sum()) if t < math.inf else math.inf


# --- regret -----------------------------------------------------------------------------------------------------------


def regret(rewards: ArrayLike, selections: Sequence[ArrayLike]) -> Values:
    """Cumulative full-information regret R_t = Σ_{s≤t} ρ_s, with ρ_t = Σ (top |S_t| of r_t(1..m)) − Σ_{i∈S_t} r_t(i).

    Args:
        rewards: reward of every client in every round [n, m]; NaN for those who could not have been selected.
        selections: the clients of each round S_t, n lists; a client named twice counts once, and an empty round costs nothing.

    Returns:
        R_t [n]; it never falls.
    """
    matrix, chosen = _rewards(rewards, selections)
    per_round = np.zeros(len(matrix))
    for t, (row, clients) in enumerate(zip(matrix, chosen, strict=True)):
        got = np.sort(row[clients])
        if np.isnan(got).any():
            client = clients[np.isnan(row[clients])][0]
            raise UsageError(f"rewards: client {client} was selected in round {t + 1}, but has no reward there")
        if len(got):
            best = np.sort(row[~np.isnan(row)])[-len(got) :]
            per_round[t] = (best - got).sum()  # pairwise, each ≥ 0: no rounding error below 0
    return np.cumsum(per_round)


def hindsight_regret(rewards: ArrayLike, selections: Sequence[ArrayLike]) -> Values:
    """Cumulative regret against the fixed set of clients that looks best in hindsight; it needs observed rewards only.

    μ_i is the mean of client i's rewards over the rounds that selected it, and
    R_t = Σ_{s≤t} (Σ (top |S_s| of μ) − Σ_{i∈S_s} r_s(i)). A client without a reward in a round (NaN: it dropped out) is left out of
    S_s. R_t can fall, and be negative, when rewards change over time.

    Args:
        rewards: rewards [n, m]; only those of selected clients are read.
        selections: the clients of each round S_t, n lists; a client named twice counts once.

    Returns:
        R_t [n].
    """
    matrix, chosen = _rewards(rewards, selections)
    observed = np.zeros(matrix.shape, bool)
    for seen, clients in zip(observed, chosen, strict=True):
        seen[clients] = True
    observed &= ~np.isnan(matrix)
    got = np.where(observed, matrix, 0.0)
    times = observed.sum(axis=0)
    means = np.sort((got.sum(axis=0)[times > 0]) / times[times > 0])[::-1]
    best = np.concatenate([[0.0], np.cumsum(means)])
    return np.cumsum(best[observed.sum(axis=1)] - got.sum(axis=1))


# --- stability --------------------------------------------------------------------------------------------------------


def tail_sd(series: ArrayLike) -> float:
    """Sample standard deviation of the accuracy over the last ⌈n/5⌉ of n rounds; NaN if fewer than two were measured there."""
    values = _series(series, "series")
    tail = values[len(values) - math.ceil(len(values) / 5) :]
    return mean_sd(tail[~np.isnan(tail)])[1] if not np.isnan(tail).all() else math.nan


def largest_drop(series: ArrayLike) -> float:
    """max_t (acc_{t−1} − acc_t) between consecutive measured rounds, 0 if accuracy never falls."""
    return float(np.max(-np.diff(_measured(series, "series")), initial=0.0))


def forgetting(per_class: ArrayLike) -> Values:
    """Σ_c (max_{s≤t} acc_c(s) − acc_c(t)) / K for every round t.

    Args:
        per_class: accuracy of each class in each round [n, K]. A class with NaN in round t is left out of that round's mean.

    Returns:
        Forgetting of each round [n]; NaN in rounds without any class.
    """
    matrix = np.asarray(per_class, np.float64)
    if matrix.ndim != 2 or not matrix.size:
        raise UsageError(f"per_class has the shape {matrix.shape}; it must be [rounds, classes] and not empty")
    lost = np.fmax.accumulate(matrix, axis=0) - matrix
    defined = ~np.isnan(lost)
    number = defined.sum(axis=1)
    total = np.where(defined, lost, 0.0).sum(axis=1)
    mean: Values = np.divide(total, number, out=np.full(len(lost), np.nan), where=number > 0)
    return mean


# --- device profile ---------------------------------------------------------------------------------------------------


def best_batch_size(
    sizes: ArrayLike,
    samples_per_second: ArrayLike,
    *,
    memory: ArrayLike | None = None,
    accuracy: ArrayLike | None = None,
    rule: str = "throughput",
) -> int:
    """Which of the measured mini-batch sizes to train with; of equally good ones the smallest.

    ``throughput``: the most samples per second. ``tradeoff``: the smallest mean of time per sample, memory and 1 − accuracy, each
    scaled to [0, 1] over the sizes (0 where all are equal). ``ours``.

    Args:
        sizes: the mini-batch sizes [n].
        samples_per_second: mean throughput of each.
        memory: peak memory of each, in any unit; for ``tradeoff``.
        accuracy: accuracy after a fixed number of rounds with each; for ``tradeoff``.
        rule: ``throughput`` or ``tradeoff``.
    """
    batch, speed = _series(sizes, "sizes"), _series(samples_per_second, "samples_per_second")
    _same_length(batch, "sizes", speed, "samples_per_second")
    if not (speed > 0).all():
        raise UsageError("samples_per_second must be above 0 for every size")
    if rule == "throughput":
        cost = -speed
    elif rule == "tradeoff":
        if memory is None or accuracy is None:
            raise UsageError("rule = 'tradeoff': needs memory and accuracy; give both, or use rule = 'throughput'")
        used, reached = _series(memory, "memory"), _series(accuracy, "accuracy")
        _same_length(batch, "sizes", used, "memory")
        _same_length(batch, "sizes", reached, "accuracy")
        cost = np.mean([_scaled(1 / speed), _scaled(used), _scaled(1 - reached)], axis=0)
    else:
        raise UsageError(f"rule = {rule!r}: valid are 'throughput' and 'tradeoff'")
    return int(batch[np.lexsort((batch, cost))[0]])


def _scaled(values: Values) -> Values:
    span = values.max() - values.min()
    return (values - values.min()) / span if span > 0 else np.zeros_like(values)


# --- several seeds ---------------------------------------------------------------------------------------------------------


def mean_sd(values: ArrayLike) -> tuple[float, float]:
    """Mean and sample standard deviation sqrt(Σ(x − mean)² / (n − 1)); the latter NaN for one value."""
    x = _series(values, "values")
    return float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else math.nan


class PairedInterval(NamedTuple):
    """Mean difference and its confidence interval."""

    mean: float
    low: float
    high: float


def paired_interval(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> PairedInterval:
    """Mean of d = a − b over paired seeds, and mean ± t_{n−1, (1+confidence)/2} · sd(d)/√n; NaN limits for one pair.

    Args:
        a: results of one method [n].
        b: results of another under the same seeds, in the same order [n].
        confidence: probability with which the interval covers the true mean, if differences are normal.
    """
    from scipy.special import stdtrit  # Student's quantile; scipy.stats is slow to import

    first, second = _series(a, "a"), _series(b, "b")
    _same_length(first, "a", second, "b")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence = {confidence}: between 0 and 1, such as 0.95")
    mean, sd = mean_sd(first - second)
    if len(first) == 1:
        return PairedInterval(mean, math.nan, math.nan)
    half = float(stdtrit(len(first) - 1, (1 + confidence) / 2)) * sd / math.sqrt(len(first))
    return PairedInterval(mean, mean - half, mean + half)


# --- what callers may get wrong --------------------------------------------------------------------------------------------


def _series(values: ArrayLike, name: str) -> Values:
    x = np.asarray(values, np.float64)
    if x.ndim != 1 or not x.size:
        raise UsageError(f"{name} has the shape {x.shape}; it must be one-dimensional and not empty")
    return x


def _measured(values: ArrayLike, name: str) -> Values:
    x = _series(values, name)
    x = x[~np.isnan(x)]
    if not x.size:
        raise UsageError(f"{name} is NaN throughout: nothing was measured")
    return x


def _counts(values: ArrayLike) -> Values:
    x = _series(values, "counts")
    if not ((x >= 0) & np.isfinite(x)).all():
        raise UsageError("counts must be finite and not negative")
    return x


def _same_length(a: Values, a_name: str, b: Values, b_name: str) -> None:
    if len(a) != len(b):
        raise UsageError(f"{a_name} has {len(a)} entries, {b_name} {len(b)}; they must have the same number")


def _rewards(rewards: ArrayLike, selections: Sequence[ArrayLike]) -> tuple[Values, list[NDArray[np.int64]]]:
    """The reward matrix, and the distinct clients of each round."""
    matrix = np.asarray(rewards, np.float64)
    if matrix.ndim != 2 or not matrix.size:
        raise UsageError(f"rewards has the shape {matrix.shape}; it must be [rounds, clients] and not empty")
    if len(selections) != len(matrix):
        raise UsageError(f"selections: {len(selections)} rounds, but rewards has {len(matrix)}")
    return matrix, _rounds(selections, matrix.shape[1])


def _rounds(selections: Sequence[ArrayLike], num_clients: int) -> list[NDArray[np.int64]]:
    """The distinct clients of each round."""
    chosen = [np.unique(np.asarray(clients, np.int64)) for clients in selections]
    for t, clients in enumerate(chosen, start=1):
        if len(clients) and not (clients[0] >= 0 and clients[-1] < num_clients):
            raise UsageError(f"selections: round {t} names a client outside 0…{num_clients - 1}")
    return chosen
