"""Tables say which rows are own versions and no published methods."""

from pathlib import Path

import pytest

import fedcohort
from fedcohort.selection import Card, Uniform


def test_tables_name_rows_that_are_own_versions(tmp_path: Path) -> None:
    variants = [{"label": "TiFL", "selection": "tifl"}, {"label": "UCB", "selection": "ucb"}]
    compared = fedcohort.compare(fedcohort.Experiment(rounds=1, seeds=1, variants=variants), runs=tmp_path)
    said = "Own version: 'TiFL'. It is in part a design of FedCohort, or its reading of a source"
    assert said in " ".join(str(compared).split())
    assert said in compared.to_latex()
    assert "Own version" not in str(fedcohort.compare(fedcohort.Experiment(rounds=1, seeds=1), runs=tmp_path))


class Mine(Uniform):
    """A strategy of the user."""

    card = Card(source="nowhere", status="ours")


@pytest.mark.parametrize("of_fedcohort", [False, True])
def test_an_own_class_is_no_design_of_fedcohort(tmp_path: Path, of_fedcohort: bool) -> None:
    variants = [
        {"label": "mine", "selection": Mine},
        *([{"label": "TiFL", "selection": "tifl"}] if of_fedcohort else []),
    ]
    compared = fedcohort.compare(fedcohort.Experiment(rounds=1, seeds=1, variants=variants), runs=tmp_path)
    said = (
        "Own method: 'mine'. It uses a class that is not part of FedCohort and, as its card says, no published method."
    )
    assert said in " ".join(str(compared).split())
    assert said in compared.to_latex()
    assert ("in part a design of FedCohort" in compared.to_latex()) == of_fedcohort
    assert ("Own version: 'TiFL'. It is" in compared.to_latex()) == of_fedcohort
