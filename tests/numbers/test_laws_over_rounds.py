"""Laws of cohorts after some rounds, against probabilities that were computed from the formulas alone, by enumeration.

The strategies see clients that are away, fail, and come late; then the cohort of one more round is drawn many times.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist, squareform

from fedcohort.core.arrays import Indices, Values
from fedcohort.selection import HACCS, ActiveFL, ClusteredSimilarity, FedCBS, Selector, TiFL
from tests.numbers.unreliable_server import LABELS, SIZES, M, P, UnreliableServer

ALL, MOST = np.arange(M), np.array([0, 1, 2, 3, 5, 6, 8])


def after(rounds: int, selector: Selector, seed: int, k: int) -> UnreliableServer:
    """A server after some rounds."""
    server = UnreliableServer(selector, seed, k, odd=False)
    for _ in range(rounds):
        server.choose()
        server.train()
    return server


def assert_law(server: UnreliableServer, available: Indices, inclusion: Values, draws: int = 500) -> None:
    """Check that clients are in the next cohort with these probabilities, up to five standard errors."""
    error = np.sqrt(np.maximum(inclusion * (1 - inclusion), 0.0) / draws)
    assert (np.abs(server.frequencies(available, draws) - inclusion) <= 5 * error + 1e-9).all()


def draws_of(weights: Mapping[int, float], count: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """All results of ``count`` successive draws, with their probabilities; at least ``count`` weights are positive."""
    for order in itertools.permutations([i for i, w in weights.items() if w > 0], count):
        probability = 1.0
        for position, i in enumerate(order):
            probability *= weights[i] / sum(w for j, w in weights.items() if j not in order[:position])
        yield order, probability


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("values", [(0.5, 0.3, 0.4), (0.2, 1.0, 0.25)])
def test_afl(seed: int, values: tuple[float, float, float]) -> None:
    k, (alpha1, alpha2, alpha3) = 4, values
    server = UnreliableServer(ActiveFL(alpha1=alpha1, alpha2=alpha2, alpha3=alpha3), seed, k, odd=False)
    v = np.full(M, np.nan)
    for _ in range(8):
        server.choose()
        for _, clients, losses in server.answers:
            v[clients] = np.sqrt(SIZES[clients]) * losses
        server.train()
        for client, loss in server.reported("loss").items():
            v[client] = math.sqrt(SIZES[client]) * loss
    A = np.flatnonzero(np.isfinite(v))
    by_value = math.floor((1 - alpha3) * k)
    kept = A[np.argsort(v[A])][min(math.floor(alpha1 * len(A)), len(A) - by_value) :]
    inclusion = np.zeros(M)
    for drawn, probability in draws_of({i: math.exp(alpha2 * v[i]) for i in kept.tolist()}, by_value):
        rest = np.setdiff1d(A, drawn)
        inclusion[list(drawn)] += probability
        inclusion[rest] += probability * (k - by_value) / len(rest)
    assert_law(server, A, inclusion)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ["adaptive", "static"])
def test_tifl(seed: int, policy: Literal["adaptive", "static"]) -> None:
    """Tiers with credit are drawn by the accuracy that their available clients reported last; the nearest tiers fill up."""
    k, tiers, interval, credit = 3, 3, 4, 2
    server = UnreliableServer(TiFL(policy=policy, tiers=tiers, interval=interval, credit=credit), seed, k, odd=False)
    accuracy, p = np.full(tiers, np.nan), np.full(tiers, 1 / tiers)
    left = credit * np.arange(tiers, 0, -1)
    for t in range(1, 11):
        server.choose()
        tier = server.chooser.selector.state_dict()["tier"]
        for question, clients, answers in server.answers:
            if question.kind == "LocalAccuracy":
                assert t % interval == 0
                for j in set(tier[clients].tolist()):
                    accuracy[j] = answers[tier[clients] == j].mean()
                ranked = sorted(np.flatnonzero(left), key=lambda j: -1.0 if math.isnan(accuracy[j]) else accuracy[j])
                p = np.zeros(tiers)
                p[ranked] = np.arange(len(ranked), 0, -1) / (len(ranked) * (len(ranked) + 1) / 2)
        assert server.cohort.why is not None
        note = server.cohort.why.note.split()
        if note[0] == "tier" and policy == "adaptive":
            left[int(note[1])] = max(left[int(note[1])] - 1, 0)
        server.train()
    A = np.flatnonzero(tier >= 0)
    q = np.where(np.isin(np.arange(tiers), tier[A]) & (left > 0), p, 0.0)
    q = q / q.sum() if q.any() else np.full(tiers, 1 / tiers)
    inclusion = np.zeros(M)
    for j in range(tiers):
        seats = k
        for distance in range(tiers):
            near = A[np.abs(tier[A].astype(int) - j) == distance]
            inclusion[near] += q[j] * min(seats, len(near)) / max(len(near), 1)
            seats -= min(seats, len(near))
    assert_law(server, A, inclusion)


def connected(eps: float) -> Indices:
    """Clients that are linked by label fractions within ``eps`` have the same number."""
    fractions, group = LABELS / LABELS.sum(axis=1, keepdims=True), np.arange(M)
    for _, i, j in itertools.product(range(M), range(M), range(M)):
        if np.linalg.norm(fractions[i] - fractions[j]) <= eps:
            group[[i, j]] = min(group[i], group[j])
    return group


def seats_of(left: Sequence[list[int]], weight: Values, seats: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """The clients of ``seats`` clusters drawn ∝ weight, with probabilities; each seat takes the first of its cluster."""
    if seats == 0:
        yield (), 1.0
        return
    open_weight = [w if queue else 0.0 for queue, w in zip(left, weight, strict=True)]
    for j in map(int, np.flatnonzero(open_weight)):
        rest = [queue[1:] if i == j else queue for i, queue in enumerate(left)]
        for clients, probability in seats_of(rest, weight, seats - 1):
            yield (left[j][0], *clients), open_weight[j] / sum(open_weight) * probability


@pytest.mark.parametrize("available", [ALL, MOST])
@pytest.mark.parametrize("values", [(0.4, 0.3, 4), (0.4, 0.0, 4), (0.2, 0.5, 5)])
def test_haccs(available: Indices, values: tuple[float, float, int]) -> None:
    rho, deterministic, k = values
    server = UnreliableServer(HACCS(rho=rho, deterministic=deterministic, eps=0.5), 0, k, odd=False)
    loss, stated = np.full(M, np.nan), np.full(M, np.nan)
    for _ in range(10):
        server.choose()
        for _, clients, answers in server.answers:
            stated[clients] = answers.sum(axis=1)
        server.train()
        for client, value in server.reported("loss").items():
            loss[client] = value
    T = np.where(np.isfinite(server.chooser.durations), server.chooser.durations, stated)
    assert len(set(T[available])) == len(available), "with equal times, several clients are the fastest"
    group = connected(0.5)
    clusters = [available[group[available] == g] for g in sorted(set(group[available]))]
    latency = np.array([T[members].mean() for members in clusters])
    known = [loss[members][np.isfinite(loss[members])] for members in clusters]
    square = np.array([np.square(values).mean() if len(values) else np.nan for values in known])
    square = np.where(np.isnan(square), np.nanmax(square), square)
    weight = rho * (1 - latency / latency.max()) + (1 - rho) * square / square.sum()
    left, first = [members[np.argsort(T[members])].tolist() for members in clusters], list[int]()
    while len(first) < math.floor(deterministic * k):
        for j in np.argsort(-weight):
            if left[j] and len(first) < math.floor(deterministic * k):
                first.append(left[j].pop(0))
    inclusion = np.zeros(M)
    for drawn, probability in seats_of(left, weight, k - len(first)):
        inclusion[[*first, *drawn]] += probability
    assert_law(server, available, inclusion)


@pytest.mark.parametrize("exploration", [10.0, 0.5])
@pytest.mark.parametrize("rounds", [3, 9])
def test_fedcbs(exploration: float, rounds: int) -> None:
    k = 3
    server = UnreliableServer(FedCBS(exploration=exploration), 1, k, odd=False)
    n = np.zeros(M)
    for _ in range(rounds):
        _, cohort, _ = server.choose()
        n[cohort.clients] += 1
        server.train()

    def qcid(clients: list[int]) -> float:
        fractions = LABELS[clients].sum(axis=0) / SIZES[clients].sum()
        return float(np.square(fractions - 0.25).sum()) + 1e-6

    inclusion = np.zeros(M)
    left: list[tuple[list[int], float]] = [([], 1.0)]
    while left:
        drawn, probability = left.pop()
        if len(drawn) == k:
            inclusion[drawn] += probability
            continue
        others = [i for i in ALL.tolist() if i not in drawn]
        weight = np.array([qcid([*drawn, i]) ** -float(k - len(drawn)) for i in others])
        if not drawn and (n == 0).any():
            weight *= n == 0
        elif not drawn:
            weight += exploration * np.sqrt(3 * math.log(rounds + 1) / (2 * n))
        left += [
            ([*drawn, i], probability * w) for i, w in zip(others, weight / weight.sum(), strict=True) if w > 1e-12
        ]
    assert_law(server, ALL, inclusion)


# --- clustered sampling by similarity ------------------------------------------------------------------------------------------------


def dissimilarity(a: Values, b: Values, kind: str) -> float:
    if kind == "L1":
        return float(np.abs(a - b).sum())
    if kind == "L2":
        return float(np.square(a - b).sum())
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return math.acos(np.clip(a @ b / lengths, -1, 1)) if lengths > 0 else 0.0


def groups_of(G: Values, rest: Indices, kind: str, rows: bool) -> list[list[int]]:
    """The largest subtrees of Ward's tree whose clients have a mass of at most N together."""
    D = np.array([[dissimilarity(a, b, kind) if a is not b else 0.0 for b in G] for a in G])
    tree = [[i] for i in range(M)]
    groups = list(tree)
    for left, right in linkage(pdist(D) if rows else squareform(D), "ward")[:, :2].astype(int):
        tree.append(tree[left] + tree[right])
        if rest[tree[-1]].sum() <= SIZES.sum():
            groups = [group for group in groups if not set(group) <= set(tree[-1])] + [tree[-1]]
    return groups


@pytest.mark.parametrize("available", [ALL, MOST])
@pytest.mark.parametrize("values", [{}, {"dissimilarity": "L1"}, {"dissimilarity": "L2", "linkage_input": "condensed"}])
def test_clustered_similarity(available: Indices, values: dict[str, Any]) -> None:
    """With k = 3, client 5 has k·N_i ≥ N and fills a bin alone. The mean over all orders of the clients that fill up the bins."""
    k, N = 3, int(SIZES.sum())
    server = UnreliableServer(ClusteredSimilarity(**values), 2, k, odd=False)
    G = np.zeros((M, P))
    for _ in range(8):
        server.choose()
        server.train()
        for client, result in server.results.items():
            if result.trained and result.update is not None:
                G[client] = result.update
    whole, rest = np.divmod(k * SIZES, N)
    alone = [{i: N} for i in np.flatnonzero(whole).tolist()]
    kind, rows = values.get("dissimilarity", "cosine"), "linkage_input" not in values
    groups = sorted(groups_of(G, rest, kind, rows), key=lambda group: int(rest[group].sum()))
    started = len(groups) - (k - len(alone))
    orders = [list(itertools.permutations([i for i in group if rest[i]])) for group in groups[:started]]
    missed = []
    for order in itertools.product(*orders):
        bins = [{i: int(rest[i]) for i in group} for group in groups[started:]]
        for client in itertools.chain(*order):
            mass = int(rest[client])
            for content in bins:
                poured = min(mass, N - sum(content.values()))
                content[client] = content.get(client, 0) + poured
                mass -= poured
        held = np.array([[content.get(i, 0) * (i in available) for i in range(M)] for content in alone + bins], float)
        held[held.sum(axis=1) == 0] = SIZES * np.isin(ALL, available)
        missed.append(np.prod(1 - held / held.sum(axis=1, keepdims=True), axis=0))
    assert_law(server, available, 1 - np.mean(missed, axis=0))
