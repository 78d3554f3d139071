"""The rows of the page's tables: how the runs were made."""

from pathlib import Path

import fedcohort
from fedcohort.report.data.report_data import gather
from fedcohort.report.tables.table_rows import how
from tests.experiments import small


def test_a_page_has_the_beginning_of_a_list_with_an_entry_for_each_client(tmp_path: Path) -> None:
    """The times of 100,000 clients made a page of one row 2.4 MB larger."""
    federation = {"clients": 400, "partition": {"name": "iid", "min_size": 1}}
    latency = {"name": "given_times", "times_of_clients": [1 + client / 7 for client in range(400)]}
    description = small(rounds=1, model="logistic", federation=federation, systems={"latency": latency}).single(0)
    run = fedcohort.run(description, runs=tmp_path)
    (row,) = how(gather([run]))
    whole = (run.path / "experiment.toml").read_text().splitlines()
    begin = whole.index("times_of_clients = [") + 1
    told = "    # … 300 more lines in experiment.toml of the run"
    assert row["toml"].splitlines() == [*whole[: begin + 100], told, *whole[begin + 400 :]]
