"""H14: sizes differ, labels do not."""

import numpy as np
import pytest
from scipy import stats

from fedcohort.federation.partition import describe, partition
from fedcohort.federation.partitions.quantity import Quantity

LABELS = np.repeat(np.arange(5), [5_000, 10_000, 15_000, 30_000, 40_000])


@pytest.mark.parametrize("rule", [Quantity(min_size=0), Quantity(law="lognormal", min_size=0)])
def test_labels_are_iid_within_each_client(rule):
    report = describe(LABELS, partition(rule, LABELS, 40, seed=0), 5)
    share = np.bincount(LABELS) / len(LABELS)
    error = np.sqrt(share * (1 - share) / report.sizes[:, None])
    large = report.sizes >= 50
    assert (np.abs(report.counts / report.sizes[:, None] - share) < 4.5 * error)[large].all()
    chi = ((report.counts - report.sizes[:, None] * share) ** 2 / (report.sizes[:, None] * share))[large].sum()
    assert 1e-4 < stats.chi2.sf(chi, large.sum() * 4) < 1 - 1e-4
    assert report.dropped == 0
    assert report.effective_alpha > 50  # some clients are tiny


@pytest.mark.parametrize("beta", [0.5, 5.0])
def test_dirichlet_sizes(beta):
    # share ~ Beta(beta, (m − 1)·beta), but for rounding
    m = 50
    shares = np.array([partition(Quantity(beta=beta, min_size=0), LABELS, m, s).sizes for s in range(60)]) / len(LABELS)
    assert shares.sum(axis=1) == pytest.approx(1)
    assert shares.std() == pytest.approx(np.sqrt((1 / m) * (1 - 1 / m) / (m * beta + 1)), rel=0.08)
    assert stats.kstest(shares[:, 0], stats.beta(beta, (m - 1) * beta).cdf).pvalue > 1e-4


def test_lognormal_sizes():
    sizes = partition(Quantity(law="lognormal", sigma=0.7), LABELS, 1_000, seed=0).sizes
    logs = np.log(sizes)
    assert logs.std() == pytest.approx(0.7, rel=0.1)
    assert stats.kstest((logs - logs.mean()) / logs.std(), "norm").pvalue > 1e-4
