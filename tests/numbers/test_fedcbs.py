"""Fed-CBS: the paper's example, the law of the sequential draw, the bonus of rare clients."""

import itertools
from typing import Any

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.selection.strategies.fedcbs import FedCBS, imbalance, imbalance_with
from tests.selection.fakes import a_census, a_round, an_outcome, the_why

FIGURE = np.array([[5, 5, 5, 5, 5, 5], [6, 6, 6, 6, 6, 0], [0, 0, 0, 10, 10, 10], [10, 10, 10, 0, 0, 0]])


def ready(histogram: Any = FIGURE, k: int = 3, **values: Any) -> FedCBS:
    selector = FedCBS(**values)
    selector.setup(a_census(np.sum(histogram, axis=1), k, histogram))
    return selector


@pytest.mark.parametrize(
    ("clients", "expected"),
    [
        ((0, 1, 2), 0.01481),
        ((0, 1, 3), 0.02963),
        ((0, 2, 3), 0.0),
        ((1, 2, 3), 0.00370),
        ((0, 1), 0.00833),
        ((0, 2), 0.04167),
    ],
)
def test_worked_imbalance(clients: tuple[int, ...], expected: float) -> None:
    """As the paper's figure has it, and as the inner products N_iN_j f_iᵀf_j give it."""
    rows = FIGURE[list(clients)]
    assert imbalance(rows) == pytest.approx(expected, abs=5e-6)
    sizes = rows.sum(axis=1)
    fractions = rows / sizes[:, None]
    products = (np.outer(sizes, sizes) * (fractions @ fractions.T)).sum() / sizes.sum() ** 2 - 1 / 6
    assert imbalance(rows) == pytest.approx(products, abs=1e-12)


def test_one_more_client() -> None:
    counts = FIGURE.astype(float)
    found = imbalance_with(counts[0], counts, (counts**2).sum(axis=1), counts.sum(axis=1))
    expected = [imbalance(np.stack([FIGURE[0], row])) for row in FIGURE]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_greedy_choice_is_trapped() -> None:
    """A large exponent takes 0, then 1, and ends at .01481, as the paper's figure says."""
    for seed in range(10):
        cohort = ready(beta=60.0).select(a_round(3, 4, seed=seed))
        assert cohort.clients.tolist()[:2] == [0, 1]
        assert the_why(cohort).note == "balanced classes: QCID 0.01481"


def law(histogram: Any, k: int) -> dict[tuple[int, ...], float]:
    """The probability of every order, by the formulas, without bonus."""
    chances: dict[tuple[int, ...], float] = {}
    for order in itertools.permutations(range(len(histogram)), k):
        probability = 1.0
        for s in range(1, k + 1):
            before = list(order[: s - 1])
            left = [i for i in range(len(histogram)) if i not in before]
            worth = {i: (imbalance(histogram[[*before, i]]) + 1e-6) ** -(k - s + 1) for i in left}
            probability *= worth[order[s - 1]] / sum(worth.values())
        chances[order] = probability
    return chances


def test_the_law_of_the_sequential_draw() -> None:
    from scipy import stats

    histogram = np.array([[6, 2, 1], [2, 6, 4], [1, 1, 7], [5, 3, 3]])
    expected = law(histogram, 2)
    assert sum(expected.values()) == pytest.approx(1)
    selector, rng = ready(histogram, k=2), np.random.default_rng(9)
    seen = dict.fromkeys(expected, 0)
    for _ in range(5_000):
        seen[tuple(selector.select(a_round(2, 4, rng=rng)).clients.tolist())] += 1
    assert stats.chisquare(list(seen.values()), [5_000 * value for value in expected.values()]).pvalue > 1e-6


def test_many_clients_do_not_overflow() -> None:
    histogram = np.random.default_rng(0).integers(0, 50, (300, 10))
    cohort = ready(histogram, k=200).select(a_round(200, 300))
    assert len(set(cohort.clients.tolist())) == 200


def test_clients_never_selected_come_first_after_round_1() -> None:
    selector = ready(k=1)
    selector.observe(an_outcome([0]))
    assert {int(selector.select(a_round(1, 4, t=2, seed=seed)).clients[0]) for seed in range(300)} <= {1, 2, 3}
    greedy = ready(k=1, exploration=0.0)
    greedy.observe(an_outcome([0]))
    assert {int(greedy.select(a_round(1, 4, t=2, seed=seed)).clients[0]) for seed in range(50)} == {0}


def test_the_bonus_of_rare_clients() -> None:
    """P(i) ∝ QCID^−1 + λ√(3 ln t/(2n_i)), k = 1, all alike but for their counts."""
    selector = ready([[4, 0], [4, 0], [0, 4]], k=1)
    selector.observe(an_outcome([0, 1, 2]))
    for _ in range(8):
        selector.observe(an_outcome([0]))
    worth = 1 / (0.5 + 1e-6) + 10 * np.sqrt(3 * np.log(9) / (2 * np.array([9, 1, 1])))
    counts = np.zeros(3)
    for seed in range(4_000):
        counts[selector.select(a_round(1, 3, t=9, seed=seed)).clients] += 1
    expected = 4_000 * worth / worth.sum()
    assert ((counts - expected) ** 2 / expected).sum() < 30


def test_without_histograms() -> None:
    with pytest.raises(UsageError, match=r"selection\.name = 'fedcbs': .*give Census\.histogram"):
        FedCBS().setup(a_census([1, 2], 1))
