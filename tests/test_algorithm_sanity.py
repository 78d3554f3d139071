"""Algorithms have the effects they were designed for: the studies of ``benchmarks/algorithm_sanity.py`` on digits, three seeds."""

import numpy as np
import pytest
from benchmarks.algorithm_sanity import STUDIES, laid_over, measure

from fedcohort.experiment import Experiment

SEEDS = 3


@pytest.mark.parametrize("study", STUDIES)
def test_the_rows_of_a_study_are_valid_and_distinct_experiments(study: str) -> None:
    common, rows = STUDIES[study]
    assert len({Experiment(**laid_over(common, changes)).key() for changes in rows.values()}) == len(rows)


@pytest.mark.slow
def test_under_label_skew_no_algorithm_is_worse_than_fedavg_by_more_than_its_seed_sd_and_scaffold_is_better() -> None:
    """The tolerance is the standard deviation of FedAvg over seeds."""
    results = {row: np.array(values["late"]) for row, values in measure("skew", "digits", SEEDS).items()}
    fedavg = results.pop("FedAvg")
    for row, values in results.items():
        assert (values - fedavg).mean() > -fedavg.std(ddof=1), row
    assert (results["SCAFFOLD"] > fedavg).all()


@pytest.mark.slow
def test_under_label_noise_robust_losses_are_more_accurate_than_cross_entropy() -> None:
    results = {row: np.mean(values["late"]) for row, values in measure("noise", "digits", SEEDS).items()}
    plain = results.pop("ce")
    assert all(value > plain for value in results.values()), (plain, results)


@pytest.mark.slow
def test_damping_raises_stability_and_accuracy_when_each_client_has_one_class() -> None:
    results = measure("damping", "digits", SEEDS)
    for damped in ("s = 0.5", "s = 0.25"):
        for key in ("tail_sd", "largest_drop", "forgetting"):
            assert np.mean(results[damped][key]) < np.mean(results["s = 1"][key]), (damped, key)
        assert np.mean(results[damped]["late"]) > np.mean(results["s = 1"]["late"])
