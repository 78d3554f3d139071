"""Tables say which rows are own versions and no published methods."""

from pathlib import Path

import fedcohort


def test_tables_name_rows_that_are_own_versions(tmp_path: Path) -> None:
    variants = [{"label": "TiFL", "selection": "tifl"}, {"label": "UCB", "selection": "ucb"}]
    compared = fedcohort.compare(fedcohort.Experiment(rounds=1, seeds=1, variants=variants), runs=tmp_path)
    said = "Own version: 'TiFL'. It is in part a design of FedCohort, or its reading of a source"
    assert said in " ".join(str(compared).split())
    assert said in compared.to_latex()
    assert "Own version" not in str(fedcohort.compare(fedcohort.Experiment(rounds=1, seeds=1), runs=tmp_path))
