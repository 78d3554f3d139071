"""The sequential test: its formula against numerical integration, and its error when it is looked at after every seed."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from fedcohort.core.random_streams import rng
from fedcohort.racing.sequential_test import EFFECT_VARIANCE, critical_ratio, log_evidence


def test_the_evidence_is_the_bayes_factor_of_its_definition() -> None:
    x = np.array([0.8, -0.3, 1.1, 0.4])
    ratio = float(x.mean() / x.std())

    def likelihood(effect: float) -> float:
        """∫ p(x | effect·σ, σ) dσ/σ with u = 1/σ, up to a constant."""
        return float(integrate.quad(lambda u: u**3 * math.exp(-((x * u - effect) ** 2).sum() / 2), 0, np.inf)[0])

    prior = stats.halfnorm(scale=math.sqrt(EFFECT_VARIANCE))
    marginal = integrate.quad(lambda effect: likelihood(effect) * prior.pdf(effect), 0, 15)[0]
    assert log_evidence(ratio, 4) == pytest.approx(math.log(marginal / likelihood(0.0)), abs=1e-6)


@pytest.mark.parametrize("seeds", [2, 3, 7, 30])
def test_the_expected_evidence_under_equal_means_is_one(seeds: int) -> None:
    def weighted(t: float) -> float:
        return math.exp(log_evidence(t / math.sqrt(seeds - 1), seeds) + stats.t.logpdf(t, seeds - 1))

    total = sum(
        integrate.quad(weighted, low, high, limit=500)[0]
        for low, high in ((-np.inf, -10), (-10, 0), (0, 10), (10, 100), (100, np.inf))
    )
    assert total == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("seeds", [1, 2, 9, 200])
def test_the_evidence_grows_with_the_ratio(seeds: int) -> None:
    ratios = [-1e6, -10.0, -1.0, -0.1, 0.0, 0.1, 1.0, 10.0, 1e6]
    evidence = [log_evidence(ratio, seeds) for ratio in ratios]
    assert all(math.isfinite(value) for value in evidence)
    assert evidence == sorted(evidence)
    assert evidence[4] < 0 < evidence[-1]


def test_the_critical_ratio_is_where_the_evidence_reaches_the_threshold() -> None:
    threshold = math.log(36 * 37 / 0.05)
    assert critical_ratio(7, threshold) == math.inf
    ratios = [critical_ratio(n, threshold) for n in range(8, 60)]
    assert ratios == sorted(ratios, reverse=True)
    assert [log_evidence(ratio, n) for n, ratio in enumerate(ratios, 8)] == pytest.approx([threshold] * 52)


@pytest.mark.parametrize("law", ["gaussian", "t with 3 degrees of freedom"])
def test_looking_after_every_seed_gives_no_more_errors_than_promised(law: str) -> None:
    generator, shape = rng(1, law), (4000, 120)
    x = generator.normal(size=shape) if law == "gaussian" else generator.standard_t(3, size=shape)
    n = np.arange(1, shape[1] + 1)
    mean = x.cumsum(axis=1) / n
    sd = np.sqrt(np.maximum((x**2).cumsum(axis=1) / n - mean**2, 1e-12))
    bound = np.array([critical_ratio(int(each), math.log(20)) for each in n])
    errors = float((mean[:, 1:] >= bound[1:] * sd[:, 1:]).any(axis=1).mean())
    assert 0.005 < errors < 0.05  # looking at a t-test at 5% after every seed would give more than 0.3
