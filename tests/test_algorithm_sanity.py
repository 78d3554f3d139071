"""Algorithms do on real data what they are made for: the studies of ``benchmarks/algorithm_sanity.py`` on digits, three seeds each."""

import numpy as np
import pytest
from benchmarks.algorithm_sanity import STUDIES, laid_over, measure

from fedcohort.experiment import Experiment

SEEDS = 3


@pytest.mark.parametrize("study", STUDIES)
def test_every_row_of_a_study_is_an_experiment(study: str) -> None:
    common, rows = STUDIES[study]
    assert len({Experiment(**laid_over(common, changes)).key() for changes in rows.values()}) == len(rows)


@pytest.mark.slow
def test_under_skew_none_is_worse_than_fedavg_beyond_noise() -> None:
    """Noise is how far FedAvg itself varies over seeds."""
    found = {row: np.array(values["late"]) for row, values in measure("skew", "digits", SEEDS).items()}
    fedavg = found.pop("FedAvg")
    for row, values in found.items():
        assert (values - fedavg).mean() > -fedavg.std(ddof=1), row
    assert (found["SCAFFOLD"] > fedavg).all()


@pytest.mark.slow
def test_under_label_noise_robust_losses_beat_the_cross_entropy() -> None:
    found = {row: np.mean(values["late"]) for row, values in measure("noise", "digits", SEEDS).items()}
    plain = found.pop("ce")
    assert all(value > plain for value in found.values()), (plain, found)


@pytest.mark.slow
def test_damping_raises_stability_where_clients_know_one_class() -> None:
    found = measure("damping", "digits", SEEDS)
    for damped in ("s = 0.5", "s = 0.25"):
        for key in ("tail_sd", "largest_drop", "forgetting"):
            assert np.mean(found[damped][key]) < np.mean(found["s = 1"][key]), (damped, key)
        assert np.mean(found[damped]["late"]) > np.mean(found["s = 1"]["late"])
