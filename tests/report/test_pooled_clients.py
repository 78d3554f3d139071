"""Reports of runs that pool the data of all clients, in which one client is measured."""

from pathlib import Path

import fedcohort
from tests.experiments import small


def test_the_report_of_a_centralised_run_with_accuracies_of_clients_is_drawn(tmp_path: Path) -> None:
    experiment = small(rounds=1, algorithm="centralised", selection="all", measures={"clients_every": 1})
    run = fedcohort.run(experiment, runs=tmp_path)
    assert run.client_accuracy.shape == (1, 1)
    assert run.report()
