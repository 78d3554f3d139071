"""Scores of strategies over many rounds, against second implementations that were written from the formulas alone."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from fedcohort.core.arrays import Indices, Values
from fedcohort.selection import CSUCB, DivFL, Eiffel, FedCS, Oort, PyramidFL, Speed, UtilityTime
from tests.numbers.unreliable_server import (
    EPOCHS,
    LABELS,
    SIZES,
    K,
    M,
    UnreliableServer,
    by_size,
    is_top,
    scaled,
)

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("weights", [(0.2, 0.5, 0.9), (0.0, 1.0, 0.0)])
def test_eiffel(seed: int, weights: tuple[float, float, float]) -> None:
    a, b, c = weights
    server = UnreliableServer(Eiffel(loss=a, speed=b, age=c), seed)
    loss, selected = np.full(M, np.nan), np.zeros(M)
    for t in range(1, 20):
        durations = server.chooser.durations.copy()
        available, cohort, scores = server.choose()
        if len(available) > server.k:
            losses = np.ones(len(available))
            known = np.isfinite(loss[available])
            if known.any():
                losses[known] = scaled(loss[available][known])
            speed, age = scaled(1 / by_size(durations)[available]), scaled(t - selected[available])
            np.testing.assert_allclose(scores[available], a * losses + b * speed + c * age, rtol=1e-12, atol=1e-12)
            assert is_top(cohort, scores, available)
        selected[cohort.clients] = t
        server.train()
        for client, value in server.reported("loss").items():
            loss[client] = value


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("t_max", [None, 30.0])
def test_cs_ucb(seed: int, t_max: float | None) -> None:
    server = UnreliableServer(CSUCB(t_max=t_max), seed)
    times: list[list[float]] = [[] for _ in range(M)]
    n = np.zeros(M)
    for t in range(1, 25):
        available, cohort, scores = server.choose()
        if len(available) > server.k:
            longest = t_max or max(itertools.chain(*times), default=1.0)
            rewards = np.array([np.mean(np.maximum(0, 1 - np.array(T) / longest)) if T else 0.0 for T in times])
            with np.errstate(divide="ignore", invalid="ignore"):
                expected = np.where(n == 0, np.inf, rewards + np.sqrt((server.k + 1) * math.log(t) / n))
            np.testing.assert_allclose(scores[available], expected[available], rtol=1e-12)
            assert is_top(cohort, expected, available)
        n[cohort.clients] += 1
        outcome = server.train()
        for client, duration in zip(cohort.clients.tolist(), outcome.durations.tolist(), strict=True):
            if math.isfinite(duration):
                times[client].append(duration)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("values", [{"weakest_w": 1}, {"weakest_w": 2}, {"weakest_w": 2, "strength": "count"}])
def test_utility_time(seed: int, values: dict[str, Any]) -> None:
    """Classes with equal accuracies can be any of the weakest, so the scores are those of one of the possible choices."""
    server = UnreliableServer(UtilityTime(**values), seed)
    accuracy = np.full(K, np.nan)
    strength = LABELS if "strength" in values else LABELS / LABELS.sum(axis=1, keepdims=True)
    for _ in range(20):
        durations = server.chooser.durations.copy()
        available, cohort, scores = server.choose()
        known = np.flatnonzero(np.isfinite(accuracy))
        if len(available) > server.k and len(known):
            possible = []
            for weak in map(list, itertools.combinations(known, min(values["weakest_w"], len(known)))):
                others = np.setdiff1d(known, weak)
                if accuracy[weak].max() <= accuracy[others].min(initial=np.inf):
                    need = np.zeros(K)
                    need[weak] = 1 - accuracy[weak]
                    possible.append((strength @ need / by_size(durations))[available])
            assert any(np.allclose(scores[available], expected, rtol=1e-12, atol=0) for expected in possible)
            assert is_top(cohort, scores, available)
        measured = server.train().class_accuracy
        accuracy = np.where(np.isfinite(measured), measured, accuracy)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("values", [{"deadline": 4.0}, {"d": 9}, {"d": 9, "uploads": "sequential"}, {"deadline": 1e-3}])
def test_fedcs(seed: int, values: dict[str, Any]) -> None:
    server = UnreliableServer(FedCS(**values), seed)
    for _ in range(15):
        available, cohort, _ = server.choose()
        if len(available):
            _, asked, times = server.answers[0]
            assert len(asked) == min(values.get("d", server.k), len(available))
            left = [i for i in range(len(asked)) if np.isfinite(times[i]).all()]
            totals = times.sum(axis=1)
            deadline = values.get("deadline") or (np.median(totals[left]) if left else 0.0)
            end, chosen = 0.0, list[int]()
            while left:
                ends = np.maximum(end, totals)
                if "uploads" in values:
                    ends = end + times[:, 1] + np.maximum(0, times[:, 0] - end)
                first = min(left, key=lambda i: float(ends[i]))
                if ends[first] > deadline:
                    chosen = chosen or [min(left, key=lambda i: float(totals[i]))]
                    break
                end = float(ends[first])
                chosen.append(first)
                left.remove(first)
            if chosen:
                assert sorted(asked[chosen]) == sorted(cohort.clients)
            else:
                assert len(cohort) == min(server.k, len(available))
        server.train()


# --- Oort and PyramidFL ----------------------------------------------------------------------------------------------------------


def at_share(values: Values, share: float) -> float:
    """The value at position ⌊share·n⌋ of the ascending values."""
    return float(np.sort(values)[min(int(share * len(values) + 1e-9), len(values) - 1)])


class OortByHand:
    """Utilities, times and the pacer of Oort with the settings of ``s``."""

    def __init__(self, s: Oort) -> None:
        self.s, self.percentile, self.history = s, s.round_threshold, list[float]()
        self.U, self.last, self.count = np.full(M, np.nan), np.zeros(M), np.zeros(M)

    def scores(self, t: int, E: Indices, D: Values) -> Values:
        """util_i of the clients E, given the times of all clients."""
        s, last = self.s, self.last[E]
        u = np.minimum(self.U[E], at_share(self.U[np.isfinite(self.U)], s.clip_quantile))
        if s.utility_scale == "normalised":
            u = (u - 0.999 * u.min()) / max(u.max() - 0.999 * u.min(), 1e-4)
        util: Values = u + np.sqrt(0.1 * math.log(t) / last)
        known = D[np.isfinite(D)]
        T = at_share(known, self.percentile / 100) if len(known) and self.percentile < 100 else math.inf
        slow = D[E] > T
        util[slow] *= (T / D[E][slow]) ** s.alpha_oort
        rarely = 1 - scaled(self.count[E]) if np.ptp(self.count[E]) else 0.0
        return (1 - s.fairness) * util + s.fairness * rarely

    def learn(self, t: int, server: UnreliableServer) -> None:
        """Take in the results of a round; clients without a utility get the mean of the others."""
        self.last[server.cohort.clients] = t
        self.count[server.cohort.clients] += 1
        reported = server.reported("square_loss").items()
        utility = {i: server.results[i].reports["samples"] * math.sqrt(value) for i, value in reported}
        exploited = [value for client, value in utility.items() if np.isfinite(self.U[client])]
        self.history.append(float(np.mean(exploited)) if exploited else 0.0)
        for client in server.results if utility else ():
            self.U[client] = utility.get(client, float(np.mean(list(utility.values()))))
        W = self.s.pacer_window
        if t % W == 0 and t >= 2 * W:
            self.pace(sum(self.history[-W:]), sum(self.history[-2 * W : -W]))

    def pace(self, now: float, before: float) -> None:
        """Move the percentile of T."""
        if self.s.pacer_rule == "paper":
            raised, lowered = now < before, False
        else:
            raised, lowered = abs(now - before) <= 0.1 * before, abs(now - before) >= 5 * before
        if raised:
            self.percentile = min(100.0, self.percentile + self.s.pacer_step)
        elif lowered:
            self.percentile = max(self.s.pacer_step, self.percentile - self.s.pacer_step)


OORTS: list[dict[str, Any]] = [
    {},
    {"pacer_window": 2},
    {"pacer_window": 3, "pacer_rule": "paper", "pacer_step": 20.0},
    {"utility_scale": "raw", "clip_quantile": 0.6, "alpha_oort": 1.0},
    {"fairness": 0.4, "epsilon": 0.2, "epsilon_min": 0.0, "cut_off": 0.05},
]
PYRAMID = PyramidFL(beta=0.5, drop_low=0.0, r_max=1.5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("selector", [*(Oort(**values) for values in OORTS), PYRAMID])
def test_oort_and_pyramidfl(seed: int, selector: Oort) -> None:
    server, by_hand = UnreliableServer(selector, seed), OortByHand(selector)
    stated, g, k = np.full((M, 2), np.nan), SIZES.astype(float), server.k
    for t in range(1, 26):
        measured = server.chooser.durations.copy()
        available, cohort, scores = server.choose()
        for question, clients, answers in server.answers:
            assert isinstance(question, Speed)
            stated[clients] = np.where(np.isfinite(answers).all(axis=1, keepdims=True), answers, np.nan)
        E = available[np.isfinite(by_hand.U[available])]
        if t > 1 and len(available) > k and len(E):
            D = np.where(np.isfinite(measured), measured, stated.sum(axis=1))
            util = by_hand.scores(t, E, D)
            np.testing.assert_allclose(scores[E], util, rtol=1e-10)
            new = len(available) - len(E)
            epsilon = max(selector.epsilon * selector.epsilon_decay ** (t - 1), selector.epsilon_min)
            k_e = min(k - min(new, math.floor(epsilon * k + 0.5)), len(E))
            exploited = cohort.clients[np.isin(cohort.clients, E)]
            assert len(exploited) == k_e
            assert k_e == 0 or scores[exploited].min() >= selector.cut_off * np.sort(util)[-k_e] - 1e-12
        if isinstance(selector, PyramidFL):
            check_work(selector, server, g, measured, stated)
        server.train()
        by_hand.learn(t, server)
        for client, result in server.results.items():
            if result.trained and result.update is not None:
                g[client] = np.linalg.norm(result.update) * result.reports["samples"] / 100


def check_work(s: PyramidFL, server: UnreliableServer, g: Values, measured: Values, stated: Values) -> None:
    """The upload shares and the epochs of a cohort."""
    cohort = server.cohort
    clients = cohort.clients
    if len(clients) == 0 or cohort.share is None or cohort.epochs is None or len(set(g[clients])) < len(clients):
        return
    rank = (-g[clients]).argsort().argsort()
    drop = s.drop_low + rank * (s.drop_high - s.drop_low) / len(clients)
    np.testing.assert_allclose(cohort.share, 1 - drop, rtol=1e-12)
    computing = np.where(np.isfinite(stated[clients, 0]), stated[clients, 0], 0.8 * measured[clients])
    sending = np.where(np.isfinite(stated[clients, 1]), stated[clients, 1], 0.2 * measured[clients])
    time = computing + (1 - drop) * sending
    if not np.isfinite(time).any():
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        spare = s.beta * np.floor((np.nanmax(time) - time) / (computing / EPOCHS) + 1e-9) / EPOCHS
    epochs = np.floor(EPOCHS * (1 + np.minimum(s.r_max, spare)) + 1e-9)
    epochs = np.where(np.isfinite(epochs) & (computing > 0), np.minimum(epochs, 5 * EPOCHS), EPOCHS)
    assert cohort.epochs.tolist() == epochs.tolist()


# --- DivFL -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [3, 5])
def test_divfl(seed: int, k: int) -> None:
    """Every client that was added leaves the smallest sum of distances that one client can leave."""
    server = UnreliableServer(DivFL(), seed, k)
    G: dict[int, Values] = {}
    for _ in range(20):
        available, cohort, _ = server.choose()
        chosen = cohort.clients.tolist()
        unknown = {i for i in available.tolist() if i not in G}
        if len(available) > k:
            assert set(chosen[: len(unknown)]) <= unknown
            nearest = dict.fromkeys(G, math.inf)
            for position in range(len(unknown), k):
                left = {
                    j: sum(min(nearest[i], float(np.linalg.norm(G[i] - G[j]))) for i in G)
                    for j in set(available.tolist()) - set(chosen[:position])
                }
                assert left[chosen[position]] <= min(left.values()) * (1 + 1e-5) + 1e-5
                for i in G:
                    nearest[i] = min(nearest[i], float(np.linalg.norm(G[i] - G[chosen[position]])))
        server.train()
        for client, result in server.results.items():
            if result.trained and result.update is not None:
                G[client] = np.asarray(result.update)
