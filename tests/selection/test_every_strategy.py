"""Rules that hold for every strategy: the top k, edge rules, recorded reasons, and large federations."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedcohort import selection
from fedcohort.core.arrays import LONG, Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import describe, make
from fedcohort.selection import (
    STRATEGIES,
    Cohort,
    Outcome,
    Round,
    Selector,
    Why,
    choose,
    rank_losses,
    successive,
    top,
)
from fedcohort.selection.draws import successive_by_rejection
from fedcohort.selection.stored_updates import arrived_updates
from fedcohort.selection.strategies.all_available import All
from fedcohort.selection.strategies.uniform import Uniform
from tests.selection.fakes import a_census, a_round, an_outcome, the_why

NAMES = ["uniform", "all", "ucb", "powd", "cpowd", "rpowd", "select_by_loss", "utility_time", "conformal"]


def ready(name: str, m: int, k: int) -> Selector:
    """A strategy with default parameters, set up with m clients of 1, 2, 3, … samples."""
    selector: Selector = make(STRATEGIES.find(name, "strategy.name"), {}, "strategy")
    sizes = np.arange(1, m + 1)
    selector.setup(a_census(sizes, k, np.stack([sizes // 2, sizes - sizes // 2], axis=1)))
    return selector


def outcome_of(cohort: Cohort, t: int) -> Outcome:
    """An outcome with everything that these strategies read."""
    n = len(cohort)
    return an_outcome(
        cohort, t=t, accuracy=0.5 + t / 1000, class_accuracy=(0.3, 0.7), reports={"loss": np.linspace(0, 1, n)}
    )


# --- top -------------------------------------------------------------------------------------------------------------

SCORES = st.lists(
    st.one_of(st.integers(-3, 3).map(float), st.floats(allow_nan=False, allow_infinity=True)), min_size=1, max_size=40
)


@given(scores=SCORES, k=st.integers(1, 45), seed=st.integers(0, 2**32))
def test_top_sorts_by_score_and_one_random_key_per_position(scores: list[float], k: int, seed: int) -> None:
    keys = np.random.default_rng(seed).random(len(scores)).tolist()
    naive = sorted(range(len(scores)), key=lambda i: (-scores[i], keys[i]))[:k]
    assert top(np.array(scores), k, np.random.default_rng(seed)).tolist() == naive


@given(
    scores=st.lists(st.one_of(st.just(math.nan), st.floats(-5, 5)), min_size=1, max_size=40),
    k=st.integers(1, 45),
    seed=st.integers(0, 2**32),
)
def test_top_with_nan_is_distinct_and_keeps_the_order_of_other_scores(scores: list[float], k: int, seed: int) -> None:
    picked = top(np.array(scores), k, np.random.default_rng(seed)).tolist()
    assert len(picked) == len(set(picked)) == min(k, len(scores))
    ranked = [scores[i] for i in picked if not math.isnan(scores[i])]
    assert ranked == sorted(ranked, reverse=True)
    left_out = [score for i, score in enumerate(scores) if i not in picked and not math.isnan(score)]
    assert not ranked or not left_out or min(ranked) >= max(left_out)


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float32, object])
def test_top_takes_scores_of_every_type_of_number(kind: type) -> None:
    """Booleans raised a TypeError, and the score 0 was the highest unsigned integer."""
    scores: np.ndarray = np.array([0, 1, 0, 0], dtype=kind)
    picked = top(scores, 2, np.random.default_rng(0)).tolist()
    assert picked == top(scores.astype(np.float64), 2, np.random.default_rng(0)).tolist()
    assert picked[0] == 1


def test_top_breaks_ties_at_random() -> None:
    rng = np.random.default_rng(0)
    counts = np.bincount([top(np.array([1.0, 2.0, 1.0, 1.0]), 2, rng)[1] for _ in range(3000)], minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]]).pvalue > 1e-6


def test_top_includes_a_nan_as_often_as_a_uniform_choice() -> None:
    rng = np.random.default_rng(0)
    scores = np.array([5.0, 4.0, 3.0, math.nan, 2.0, 1.0])
    hits = sum(3 in top(scores, 2, rng) for _ in range(3000))
    assert stats.binomtest(hits, 3000, 2 / 6).pvalue > 1e-6


class UnknownScores(Uniform):
    """A strategy with NaN scores for clients 0 and 1."""

    def select(self, round: Round) -> Cohort:
        scores = np.where(round.available < 2, np.nan, 1.0)
        return Cohort(round.top(scores), why=Why(round.available, scores, note="a score"))


def test_scores_that_are_not_numbers_are_noted() -> None:
    """Rule R4. If all clients are selected, the note is not needed."""
    why = the_why(choose(UnknownScores(), a_round(2, 5)))
    assert why.note == "a score; 2 of 5 scores are NaN: these clients are selected with probability k/n"
    assert the_why(choose(UnknownScores(), a_round(5, 5))).note == "a score"


def test_losses_that_are_not_finite_rank_last() -> None:
    assert rank_losses(np.array([1.0, math.nan, math.inf, -math.inf])).tolist() == [
        1.0,
        -math.inf,
        -math.inf,
        -math.inf,
    ]


def test_the_top_of_a_round_contains_client_ids() -> None:
    round = a_round(2, [3, 5, 8])
    assert round.top(np.array([0.1, 0.3, 0.2])).tolist() == [5, 8]
    assert round.top(np.array([0.1, 0.3]), count=1, among=np.array([8, 3])).tolist() == [3]


@pytest.mark.parametrize(("count", "asked"), [(None, 10), (1, 3), (3, 3), (4, 4), (10, 10), (11, 10)])
def test_candidates_are_at_least_k_and_at_most_all_available_clients(count: int | None, asked: int) -> None:
    round = a_round(3, range(5, 15))
    candidates = round.candidates(count)
    assert len(set(candidates.tolist())) == asked
    assert set(candidates.tolist()) <= set(range(5, 15))
    if asked == 10:
        assert candidates is round.available  # no draw


def test_scores_and_weights_may_be_lists() -> None:
    round = a_round(2, [3, 5, 8])
    assert round.top([0.1, 0.3, 0.2]).tolist() == [5, 8]  # type: ignore[arg-type]
    assert sorted(round.draw([0.0, 1.0, 2.0]).tolist()) == [5, 8]  # type: ignore[arg-type]


def test_the_available_clients_are_read_only() -> None:
    """The rules that check a cohort, and later rounds, use the same array."""
    for round in (a_round(1, 3), a_round(1, [0, 2], m=3)):
        with pytest.raises(ValueError, match="read-only"):
            round.rng.shuffle(round.available)


def test_values_of_the_available_clients_are_read_only() -> None:
    """If all clients are available, the result is the strategy's own array, and writing to it would change the state."""
    own = np.arange(3.0)
    for round in (a_round(1, 3), a_round(1, [0, 2], m=3)):
        with pytest.raises(ValueError, match="read-only"):
            round.of(own)[0] = 9
    own[0] = 5
    assert a_round(1, 3).of(own).tolist() == [5, 1, 2]


# --- the sample of a round -------------------------------------------------------------------------------------------


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-200, 1e200)), min_size=1, max_size=20),
    st.integers(0, 25),
    st.integers(0, 99),
)
def test_a_draw_contains_distinct_clients_and_those_with_weight_first(
    weights: list[float], count: int, seed: int
) -> None:
    pool = 10 * np.arange(len(weights))
    drawn = a_round(3, pool, seed=seed).draw(np.array(weights), count, among=pool)
    assert len(set(drawn.tolist())) == len(drawn) == min(count, len(pool))
    weighted = [weights[client // 10] > 0 for client in drawn]
    assert weighted == sorted(weighted, reverse=True)
    assert sum(weighted) == min(count, sum(weight > 0 for weight in weights))


def test_a_draw_follows_the_law_of_successive_draws() -> None:
    """Two of four clients with weights 1, 2, 3 and 0: ordered pairs follow the product of conditional probabilities."""
    weights, pairs = np.array([1.0, 2.0, 3.0, 0.0]), dict[tuple[int, int], int]()
    for seed in range(6000):
        first, second = a_round(2, 4, seed=seed).draw(weights).tolist()
        pairs[first, second] = pairs.get((first, second), 0) + 1
    law = {(i, j): weights[i] / 6 * weights[j] / (6 - weights[i]) for i in range(3) for j in range(3) if i != j}
    assert set(pairs) == set(law)
    assert stats.chisquare([pairs[pair] for pair in law], [6000 * p for p in law.values()]).pvalue > 1e-6


def test_a_draw_by_rejection_follows_the_same_law() -> None:
    weights, pairs = np.linspace(1, 2, 40), 40_000
    rng = np.random.default_rng(0)
    drawn = np.array([successive_by_rejection(weights, 2, rng) for _ in range(pairs)])
    p = weights / weights.sum()
    expected = p[:, None] * p[None] / (1 - p[:, None])  # first i, then j
    np.fill_diagonal(expected, 0)
    counts = np.zeros((40, 40))
    np.add.at(counts, (drawn[:, 0], drawn[:, 1]), 1)
    off = ~np.eye(40, dtype=bool)
    assert counts.trace() == 0
    assert stats.chisquare(counts[off], pairs * expected[off]).pvalue > 1e-6


def test_draws_from_many_clients_contain_only_clients_with_weight() -> None:
    m, rng = LONG + 5, np.random.default_rng(0)
    weights = np.where(np.arange(m) % 7 == 3, 1.0 + np.arange(m) % 2, 0.0)
    weights[3::70] = -1.0
    weights[5] = np.nan
    for count in (1, 100, len(np.flatnonzero(weights > 0))):  # by rejection, by rejection, by an exponential race
        for values in (weights, np.nan_to_num(weights)):
            drawn = successive(values, count, rng)
            assert len(set(drawn.tolist())) == len(drawn) == count
            assert (values[drawn] > 0).all()
    for scale in (1e305, 1e-320):  # the sums are too large, or the weights too small, for rejection sampling
        assert len(set(successive(np.full(m, scale), 5, rng).tolist())) == 5
    light = np.where(np.arange(m) % 2, 3, 1) * 5e-324
    assert abs(np.mean(successive(light, 5000, rng) % 2) - 0.75) < 0.04
    heavy = np.ones(m)
    heavy[17] = 1e9  # a dominant client is drawn first, and the other draws stay fast
    assert successive(heavy, 3, rng)[0] == 17


def test_top_of_many_clients_has_random_ties_and_includes_nan_uniformly() -> None:
    m, rng = LONG + 5, np.random.default_rng(0)
    tied = np.zeros(m)
    tied[[9, 11]] = 2.0, 1.0
    chosen = np.concatenate([top(tied, 200, rng) for _ in range(300)]).reshape(300, 200)
    assert (chosen[:, :2] == [9, 11]).all()
    assert all(len(set(row)) == 200 for row in chosen.tolist())
    counts = np.histogram(chosen[:, 2:], bins=50, range=(0, m))[0]
    assert stats.chisquare(counts).pvalue > 1e-6
    middle = np.histogram(chosen[:, 60], bins=5, range=(0, m))[0]  # the order of ties is random
    assert stats.chisquare(middle).pvalue > 1e-6
    few = np.where(np.arange(m) < 300, 1.0, np.arange(m) / (2 * m))
    assert set(top(few, 200, rng).tolist()) <= set(range(300))
    values = rng.normal(size=m)
    assert top(values, 500, rng).tolist() == np.argsort(-values)[:500].tolist()
    assert sorted(top(values, m, rng).tolist()) == list(range(m))
    unknown = np.where(np.arange(m) < m // 2, np.nan, values)
    assert 400 < (top(unknown, 1000, rng) < m // 2).sum() < 600


def test_a_draw_without_any_weight_is_uniform() -> None:
    counts = np.zeros(5)
    for seed in range(3000):
        counts[a_round(2, 5, seed=seed).draw(np.zeros(5))] += 1
    assert stats.chisquare(counts).pvalue > 1e-6


def test_uniform_includes_every_available_client_equally_often() -> None:
    available, k, rounds = [0, 2, 3, 5, 7, 8, 9, 11], 3, 5_000
    selector = Uniform()
    selector.setup(a_census([1] * 12, k))
    rng, counts = np.random.default_rng(0), np.zeros(12)
    for t in range(1, rounds + 1):
        cohort = selector.select(a_round(k, available, t=t, rng=rng))
        counts[cohort.clients] += 1
    assert cohort.inclusion is not None
    assert cohort.inclusion.tolist() == [k / len(available)] * k
    n, chance = len(available), k / len(available)
    assert counts.sum() == counts[available].sum() == k * rounds
    # counts of draws without replacement: covariance rounds · chance (1 − chance) n/(n − 1) (I − 11ᵀ/n)
    statistic = ((counts[available] - rounds * chance) ** 2).sum() * (n - 1) / (n * rounds * chance * (1 - chance))
    assert stats.chi2.sf(statistic, n - 1) > 1e-6


def test_all_selects_all_available_clients() -> None:
    selector = All()
    selector.setup(a_census([1] * 5, 2))
    assert choose(selector, a_round(2, [0, 3, 4])).clients.tolist() == [0, 3, 4]


# --- choose ----------------------------------------------------------------------------------------------------------


class Fixed(Selector):
    """A strategy that always selects the same clients."""

    def __init__(self, clients: list[int]) -> None:
        self.clients = np.array(clients, dtype=np.int64)

    def select(self, round: Round) -> Cohort:
        return Cohort(self.clients)


class FixedSize(Fixed):
    variable_size = True


def test_choose_selects_all_clients_if_k_or_fewer_are_available() -> None:
    assert choose(Fixed([4]), a_round(3, [1, 4])).clients.tolist() == [1, 4]
    assert choose(FixedSize([4]), a_round(3, [1, 4])).clients.tolist() == [4]
    assert choose(Fixed([4]), a_round(1, [1, 4])).clients.tolist() == [4]


def test_clients_that_choose_adds_have_inclusion_probability_1() -> None:
    """All of k or fewer available clients train, so each is included with probability 1, whatever the strategy returned."""

    class Chance(Selector):
        def select(self, round: Round) -> Cohort:
            return Cohort(np.array([4]), inclusion=np.array([0.25]), sampling="loss")

    filled = choose(Chance(), a_round(3, [1, 4]))
    assert filled.clients.tolist() == [1, 4]
    assert filled.inclusion is not None
    assert filled.inclusion.tolist() == [1.0, 1.0]
    assert filled.sampling == "loss"
    enough = choose(Chance(), a_round(1, [1, 4]))
    assert enough.inclusion is not None
    assert (enough.clients.tolist(), enough.inclusion.tolist()) == ([4], [0.25])
    assert choose(Fixed([4]), a_round(3, [1, 4])).inclusion is None


@pytest.mark.parametrize(("clients", "k"), [([1], 2), ([0, 1, 2], 2), ([], 1), ([0, 1, 2, 3], 3)])
def test_choose_refuses_a_cohort_of_the_wrong_size(clients: list[int], k: int) -> None:
    message = rf"Fixed\.select returned {len(clients)} client{'s' * (len(clients) != 1)} instead of {k} in round 1"
    with pytest.raises(UsageError, match=message):
        choose(Fixed(clients), a_round(k, 4))
    assert choose(FixedSize(clients), a_round(k, 4)).clients.tolist() == clients
    assert choose(Fixed(list(range(k))), a_round(k, 4)).clients.tolist() == list(range(k))


def test_choose_refuses_repeated_and_unavailable_clients() -> None:
    with pytest.raises(UsageError, match=r"Fixed.select returned a client twice in round 1"):
        choose(Fixed([1, 1]), a_round(2, [0, 1, 2]))
    with pytest.raises(UsageError, match=r"Fixed.select returned clients that are not available in round 1"):
        choose(Fixed([1, 3]), a_round(2, [0, 1, 2]))


@pytest.mark.parametrize("name", NAMES)
def test_edge_rules_hold_for_few_available_clients(name: str) -> None:
    selector = ready(name, m=12, k=3)
    losses = np.linspace(0, 1, 12)
    empty = choose(selector, a_round(3, [], losses=losses))
    assert len(empty) == 0
    selector.observe(outcome_of(empty, 1))
    for t, available in enumerate([[5], [2, 7], [0, 4, 11], [1, 2, 3, 4, 10], list(range(12))] * 4, start=1):
        cohort = choose(selector, a_round(3, available, m=12, t=t, losses=losses))
        assert set(cohort.clients.tolist()) <= set(available)
        assert len(cohort) == (len(available) if name in ("all", "conformal") else min(3, len(available)))
        why = the_why(cohort)
        assert set(cohort.clients.tolist()) <= set(why.candidates.tolist()) <= set(available)
        assert not np.isnan(why.scores).any()
        selector.observe(outcome_of(cohort, t))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_cohorts(name: str) -> None:
    def run() -> list[list[int]]:
        selector, cohorts = ready(name, m=12, k=3), []
        for t in range(1, 21):
            cohort = choose(selector, a_round(3, 12, t=t, losses=np.linspace(0, 1, 12)))
            selector.observe(outcome_of(cohort, t))
            cohorts.append(cohort.clients.tolist())
        return cohorts

    assert run() == run()


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy_documents_its_source_and_parameters(name: str) -> None:
    strategy = STRATEGIES.find(name, "strategy.name")
    assert strategy.card.source
    assert all(row.doc for row in describe(strategy))


@pytest.mark.parametrize("name", NAMES)
def test_strategies_select_from_a_million_clients(name: str) -> None:
    m, k = 1_000_000, 100
    selector: Selector = make(STRATEGIES.find(name, "strategy.name"), {}, "strategy")
    sizes: Indices = np.random.default_rng(0).integers(1, 100, m)
    losses: Values = np.random.default_rng(1).random(m)
    histogram = np.stack([sizes // 2, sizes - sizes // 2], axis=1)
    selector.setup(a_census(sizes, k, histogram))
    for t in (1, 6, 7):
        cohort = choose(selector, a_round(k, m, t=t, losses=losses))
        assert len(cohort) == (m if name in ("all", "conformal") else k)
        selector.observe(outcome_of(cohort, t))


@pytest.mark.parametrize(
    ("cohort", "complaint"),
    [
        (
            Cohort(np.array([0.0, 1.7])),
            r"Fixed\.select in round 1: Cohort\.clients is \[0\.0, 1\.7\], float64; must be integers",
        ),
        (
            Cohort(np.arange(2), epochs=np.array([1.5, 2.0])),
            r"Cohort\.epochs is \[1\.5, 2\.0\], float64; must be integers",
        ),
        (
            Cohort(np.arange(2), epochs=np.array([2, 0])),
            r"Cohort\.epochs of client 1 is 0; must be finite and at least 1",
        ),
        (Cohort(np.arange(2), epochs=np.array([-3, 1])), r"Cohort\.epochs of client 0 is -3"),
        (Cohort(np.arange(2), multiplicity=np.array([1, 0])), r"Cohort\.multiplicity of client 1 is 0"),
        (Cohort(np.arange(2), share=np.array([0.5, 1.5])), r"Cohort\.share of client 1 is 1\.5; .* between 0 and 1"),
        (Cohort(np.arange(2), share=np.array([0.5, np.nan])), r"Cohort\.share of client 1 is nan"),
        (Cohort(np.arange(2), inclusion=np.array([0.0, 1.0])), r"Cohort\.inclusion of client 0 is 0"),
        (Cohort(np.arange(2), weights=np.array([0.5, -1.0])), r"Cohort\.weights of client 1 is -1"),
    ],
)
def test_choose_refuses_invalid_numbers(cohort: Cohort, complaint: str) -> None:
    class Fixed(Uniform):
        def select(self, round: Round) -> Cohort:
            return cohort

    with pytest.raises(UsageError, match=complaint):
        choose(Fixed(), a_round(2, 4))


def test_a_cohort_refuses_invalid_words() -> None:
    with pytest.raises(ValueError, match=r"Cohort\.sampling = 'lost': valid are 'shuffled', 'loss', 'loss_unbiased'"):
        Cohort(np.arange(2), sampling="lost")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Cohort\.unsent = 'zero': valid are 'left_out', 'unchanged'"):
        Cohort(np.arange(2), unsent="zero")  # type: ignore[arg-type]


def test_reading_a_report_bills_the_clients() -> None:
    """Reading a report adds it to ``billed``, and there is no other way to read reports."""
    outcome = an_outcome([3, 5], reports={"loss": [0.5, 0.7], "steps": [1.0, 2.0]})
    assert outcome.billed == set()
    assert outcome.billed_report("loss").tolist() == [0.5, 0.7]
    assert np.isnan(outcome.billed_report("unheard")).all()
    assert outcome.billed == {"loss", "unheard"}
    assert not hasattr(outcome, "reports")


def test_arrived_updates_are_the_finite_ones_of_clients_that_trained() -> None:
    rows = np.array([[1.0, 2.0], [np.nan, 0.0], [3.0, 4.0], [5.0, 6.0]])
    cohort, trained = Cohort(np.array([7, 3, 5, 1])), np.array([True, True, False, True])

    def outcome(trained: np.ndarray, **reports: np.ndarray) -> Outcome:
        return Outcome(1, cohort, trained, trained, reports, np.ones(4), 1.0)

    arrived = arrived_updates(outcome(trained, update=rows))
    assert arrived is not None
    clients, updates = arrived
    assert clients.tolist() == [7, 1]
    assert updates.tolist() == [[1.0, 2.0], [5.0, 6.0]]
    assert arrived_updates(outcome(np.array([False, True, False, False]), update=rows)) is None
    assert arrived_updates(outcome(trained)) is None  # no client sent an update


def test_the_package_offers_every_name_that_it_lists() -> None:
    assert {name for name in selection.__all__ if getattr(selection, name, None) is None} == set()
    assert set(selection.__all__) <= set(dir(selection))


def test_importing_the_package_stays_light() -> None:
    code = "import sys, fedcohort.selection as s; s.STRATEGIES; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
