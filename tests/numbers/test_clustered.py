"""MD and clustered sampling: worked bins, (P1) and (P2), unbiasedness by enumeration of the bins, availability."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.selection import Selector, choose
from fedcohort.selection.client_bins import Pieces
from fedcohort.selection.draws import shares
from fedcohort.selection.strategies.clustered_similarity import ClusteredSimilarity, dissimilarities
from fedcohort.selection.strategies.clustered_size import ClusteredSize
from fedcohort.selection.strategies.md import MD
from tests.selection.fakes import a_census, a_round, an_outcome, the_why
from tests.selection.laws import mean_close, ratios_of, same_law, weights_of


def by_size(num_samples: list[int], k: int) -> ClusteredSize:
    selector = ClusteredSize()
    selector.setup(a_census(num_samples, k))
    return selector


def by_similarity(num_samples: list[int], k: int, updates: Values, **values: str) -> ClusteredSimilarity:
    selector = ClusteredSimilarity(**values)  # type: ignore[arg-type]
    selector.setup(a_census(num_samples, k))
    selector.observe(an_outcome(np.arange(len(updates)), reports={"update": updates}))
    return selector


def table_of(pieces: Pieces, num_bins: int, num_clients: int) -> Indices:
    """The matrix R, int64 [bins, m]."""
    masses = np.zeros((num_bins, num_clients), dtype=np.int64)
    np.add.at(masses, (pieces.bin, pieces.client), pieces.mass)
    return masses


def rows(pieces: Pieces, num_samples: list[int], k: int) -> Values:
    return table_of(pieces, k, len(num_samples)) / sum(num_samples)


def check_invariants(pieces: Pieces, num_samples: list[int], k: int) -> None:
    """(P1), (P2), and never more variance than MD sampling."""
    table = table_of(pieces, k, len(num_samples))
    sizes = np.array(num_samples)
    assert (table.sum(axis=1) == sizes.sum()).all()
    assert (table.sum(axis=0) == k * sizes).all()
    assert (pieces.mass > 0).all()
    assert (np.diff(pieces.bin) >= 0).all()
    r, p = table / sizes.sum(), sizes / sizes.sum()
    assert ((r * (1 - r)).sum(axis=0) <= k * p * (1 - p) + 1e-12).all()
    np.testing.assert_allclose(r.mean(axis=0), p, rtol=1e-12)


# --- algorithm 1 -----------------------------------------------------------------------------------------------------------


def test_worked_bins() -> None:
    sizes = [500, 300, 100, 60, 40]
    np.testing.assert_allclose(
        rows(by_size(sizes, 2).bins(2), sizes, 2), [[1.0, 0, 0, 0, 0], [0, 0.6, 0.2, 0.12, 0.08]], atol=1e-15
    )


def test_worked_bins_with_a_client_in_two() -> None:
    sizes = [700, 200, 60, 40]
    r = rows(by_size(sizes, 2).bins(2), sizes, 2)
    np.testing.assert_allclose(r, [[1.0, 0, 0, 0], [0.4, 0.4, 0.12, 0.08]], atol=1e-15)
    np.testing.assert_allclose((r * (1 - r)).sum(axis=0), [0.24, 0.24, 0.1056, 0.0736], atol=1e-15)
    p = np.array(sizes) / 1000
    np.testing.assert_allclose(2 * p * (1 - p), [0.42, 0.32, 0.1128, 0.0768], atol=1e-15)
    law = {(0,): 0.4, (0, 1): 0.4, (0, 2): 0.12, (0, 3): 0.08}
    assert sum(chance for pair, chance in law.items() if len(pair) == 2) == pytest.approx(0.6)
    assert same_law(by_size(sizes, 2).select, law, 2, 4, 4_000)


@settings(deadline=None, max_examples=150)
@given(sizes=some.lists(some.integers(0, 40), min_size=1, max_size=25).filter(any), k=some.integers(1, 30))
def test_bins_by_size_hold_the_invariants(sizes: list[int], k: int) -> None:
    check_invariants(by_size(sizes, k).bins(k), sizes, k)


def test_ties_are_poured_by_id() -> None:
    assert by_size([5, 9, 5, 9], 2).order.tolist() == [1, 3, 0, 2]


# --- algorithm 2 -----------------------------------------------------------------------------------------------------------


def test_dissimilarities() -> None:
    one = np.array([1.0, 0.0], dtype=np.float32)
    others = np.array([[2, 0], [0, 3], [-1, 0], [1, 1], [0, 0]], dtype=np.float32)
    np.testing.assert_allclose(dissimilarities(one, others, "cosine"), [0, np.pi / 2, np.pi, np.pi / 4, 0], atol=1e-6)
    assert dissimilarities(one, others, "L1").tolist() == [1, 4, 2, 1, 1]
    assert dissimilarities(one, others, "L2").tolist() == [1, 10, 4, 1, 1]
    assert dissimilarities(0 * one, others, "cosine").tolist() == [0] * 5


@pytest.mark.parametrize("scale", [1e20, 1e30, 2e38])
def test_dissimilarities_of_large_updates(scale: float) -> None:
    """Squares of these numbers overflow in float32."""
    one = np.array([scale, 0.0], dtype=np.float32)
    others = (scale * np.array([[1, 0], [0, 1], [-1, 0], [1, 1], [0, 0]])).astype(np.float32)
    np.testing.assert_allclose(dissimilarities(one, others, "cosine"), [0, np.pi / 2, np.pi, np.pi / 4, 0], atol=1e-6)
    np.testing.assert_allclose(dissimilarities(one, others, "L1") / scale, [0, 2, 2, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(dissimilarities(one, others, "L2") / scale**2, [0, 2, 4, 1, 1], rtol=1e-6)


@pytest.mark.parametrize("linkage_input", ["rows", "condensed"])
@pytest.mark.parametrize("dissimilarity", ["cosine", "L1", "L2"])
@pytest.mark.parametrize("largest", [1e20, 1e38, 1e39])
def test_updates_of_diverging_clients_do_not_end_the_run(
    linkage_input: str, dissimilarity: str, largest: float
) -> None:
    """One that float32 cannot hold is not stored."""
    updates = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-largest, largest, 0], [0, 1.1, 0], [largest, 0, 0.95]])
    selector = by_similarity([10] * 6, 3, updates, linkage_input=linkage_input, dissimilarity=dissimilarity)
    assert np.isfinite(selector.distances).all()
    assert (selector.sent >= 0).tolist() == [True] * 3 + [largest < 1e39, True, largest < 1e39]
    assert len(selector.select(a_round(3, 6)).clients) > 0


@pytest.mark.parametrize("linkage_input", ["rows", "condensed"])
@pytest.mark.parametrize("dissimilarity", ["cosine", "L1", "L2"])
def test_similar_clients_share_a_bin(linkage_input: str, dissimilarity: str) -> None:
    """Three directions, two clients each of equal size: three bins of two."""
    updates = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.9, 0, 0], [0, 1.1, 0], [0, 0, 0.95]])
    selector = by_similarity([10] * 6, 3, updates, linkage_input=linkage_input, dissimilarity=dissimilarity)
    r = rows(selector.bins(3, np.random.default_rng(0)), [10] * 6, 3)
    assert sorted(np.flatnonzero(row).tolist() for row in r) == [[0, 3], [1, 4], [2, 5]]
    for t in range(1, 20):
        assert sorted(client % 3 for client in selector.select(a_round(3, 6, t=t)).clients.tolist()) == [0, 1, 2]


@settings(deadline=None, max_examples=80)
@given(
    sizes=some.lists(some.integers(0, 40), min_size=2, max_size=12).filter(lambda sizes: sum(sizes) > 0),
    k=some.integers(1, 14),
    seed=some.integers(0, 99),
    linkage_input=some.sampled_from(["rows", "condensed"]),
)
def test_bins_by_similarity_hold_the_invariants(sizes: list[int], k: int, seed: int, linkage_input: str) -> None:
    """Clients that fill a bin or more alone included, where the authors' code breaks (P2)."""
    rng = np.random.default_rng(seed)
    selector = by_similarity(sizes, k, rng.normal(size=(len(sizes), 3)), linkage_input=linkage_input)
    check_invariants(selector.bins(k, rng), sizes, k)


def test_a_large_client_fills_bins_alone() -> None:
    sizes = [700, 100, 100, 100]
    updates = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    table = table_of(by_similarity(sizes, 4, updates).bins(4, np.random.default_rng(0)), 4, 4)
    assert table[:2].tolist() == [[1000, 0, 0, 0]] * 2
    assert table[2:, 0].sum() == 800
    check_invariants(by_similarity(sizes, 4, updates).bins(4, np.random.default_rng(0)), sizes, 4)


def test_without_updates_the_bins_are_those_of_algorithm_1() -> None:
    sizes = [500, 300, 100, 60, 40]
    selector = ClusteredSimilarity()
    selector.setup(a_census(sizes, 2))
    for t in range(1, 30):
        one, two = selector.select(a_round(2, 5, t=t)), by_size(sizes, 2).select(a_round(2, 5, t=t))
        assert one.clients.tolist() == two.clients.tolist()
    assert the_why(one).note.startswith("one client from each of 2 bins by size: no updates yet")


def test_the_last_update_of_each_client_counts() -> None:
    selector = by_similarity([10] * 4, 2, np.array([[1.0, 0], [0, 1], [1, 0], [0, 1]]))
    fresh = by_similarity([10] * 4, 2, np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]]))
    selector.observe(an_outcome([2, 1], reports={"update": np.array([[0.0, 1], [1, 0]])}))
    np.testing.assert_allclose(selector.distances, fresh.distances, atol=1e-12)
    before = selector.distances.copy()
    selector.observe(an_outcome([0, 3], trained=[True, False], reports={"update": np.full((2, 2), np.nan)}))
    assert selector.distances.tolist() == before.tolist()


def test_many_clients_are_refused() -> None:
    with pytest.raises(UsageError, match=r"2,001 clients; .* at most 2,000 clients; use clustered_size, or fewer"):
        ClusteredSimilarity().setup(a_census([1] * 2001, 10))
    large = dataclasses.replace(a_census([1] * 1000, 10), num_parameters=2_000_000)
    with pytest.raises(
        UsageError, match=r"memory_limit = 4: the updates of 1,000 clients with 2,000,000 parameters, .* 7\.46 GiB"
    ):
        ClusteredSimilarity().setup(large)
    ClusteredSimilarity(memory_limit=8.0).setup(large)


# --- draws -----------------------------------------------------------------------------------------------------------------

SIZES = [500, 300, 100, 60, 40]
STRATEGIES = [MD, ClusteredSize, ClusteredSimilarity]


def ready(kind: type[Selector], k: int) -> Selector:
    selector = kind()
    selector.setup(a_census(SIZES, k))
    if kind is ClusteredSimilarity:
        updates = np.array([[1.0, 0], [0, 1], [1, 0.1], [0.1, 1], [1, 1]])
        selector.observe(an_outcome(np.arange(5), reports={"update": updates}))
    return selector


def test_every_client_counts_k_p_on_average_by_enumeration() -> None:
    """One client of each bin, all combinations."""
    r, p = rows(by_size(SIZES, 3).bins(3), SIZES, 3), shares(np.array(SIZES))
    mean, reached = np.zeros(5), np.zeros(5)
    for drawn in itertools.product(range(5), repeat=3):
        probability = np.prod([r[c, i] for c, i in enumerate(drawn)])
        counts = np.bincount(drawn, minlength=5)
        mean += probability * counts / 3
        reached += probability * (counts > 0)
    np.testing.assert_allclose(mean, p, rtol=1e-12)
    why = the_why(by_size(SIZES, 3).select(a_round(3, 5)))
    np.testing.assert_allclose(why.scores, reached, rtol=1e-12)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_draws_are_unbiased(kind: type[Selector]) -> None:
    selector, p = ready(kind, 3), shares(np.array(SIZES))
    own, ratios = np.zeros((2_000, 5)), np.zeros((2_000, 5))
    for t in range(2_000):
        cohort = selector.select(a_round(3, 5, t=t + 1))
        assert cohort.multiplicity is not None
        assert cohort.multiplicity.sum() == 3
        own[t], ratios[t] = weights_of(cohort, 5), ratios_of(cohort, p)
        np.testing.assert_allclose(own[t, cohort.clients], cohort.multiplicity / 3)
    assert mean_close(own, p)
    assert mean_close(ratios, p)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_only_available_clients_are_drawn(kind: type[Selector]) -> None:
    """Client 0 fills bins of its own; when it is away, they draw by size among those that are there."""
    selector, p = ready(kind, 2), shares(np.array(SIZES)[1:])
    ratios = np.zeros((2_000, 4))
    for t in range(2_000):
        cohort = selector.select(a_round(2, [1, 2, 3, 4], t=t + 1))
        assert 0 not in cohort.clients
        ratios[t] = ratios_of(cohort, np.array([0.0, *p]))[1:]
    assert mean_close(ratios, p)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_few_available_all_take_part_once(kind: type[Selector]) -> None:
    cohort = choose(ready(kind, 3), a_round(3, [1, 4], m=5))
    assert cohort.clients.tolist() == [1, 4]
    assert cohort.multiplicity is None
    assert cohort.inclusion is not None
    assert cohort.weights is not None
    assert cohort.inclusion.tolist() == [1, 1]
    np.testing.assert_allclose(cohort.weights, [300 / 340, 40 / 340])
