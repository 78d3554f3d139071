"""The page's table of fairness: what it says about the worst clients, with a verdict."""

import re
from pathlib import Path

import pytest

import fedcohort
from fedcohort.report.data.report_data import Story, gather
from fedcohort.report.page import page
from fedcohort.report.tables.fairness_rows import fairness_rows
from tests.experiments import small

ROWS = [{"label": "one", "selection": {"k": 1}}]


def story(folder: Path, seeds: int, **measures: int) -> tuple[fedcohort.Comparison, Story]:
    """A comparison of two rows, and the story of its page."""
    compared = fedcohort.compare(small(rounds=3, seeds=seeds, variants=ROWS, measures=measures), runs=folder)
    return compared, gather([run for row in compared.rows for run in row.runs.values()], compared.name)


def test_the_difference_of_the_worst_clients_is_that_of_the_comparison(tmp_path: Path) -> None:
    compared, told = story(tmp_path, 3, clients_every=1)
    (first, second), table = fairness_rows(told), compared.differences("worst_client_accuracy")
    assert first["worst_difference"].text == "–"
    assert second["worst_difference"].value == pytest.approx(table["difference"].iloc[1])
    score, row = compared.score, table.iloc[1]
    shown = score.difference(row["difference"], row["difference_low"], row["difference_high"])
    assert second["worst_difference"].text == f"{shown}, not clear, {row['p_holm']:.2g}"
    html = page(told)
    assert second["worst_difference"].text in html
    assert "Differences of the accuracies are paired and tested like those of the test accuracy" in html


@pytest.mark.parametrize("seeds", [1, 3])
def test_without_measurements_of_clients_there_is_no_column(tmp_path: Path, seeds: int) -> None:
    _, told = story(tmp_path, seeds)
    assert {row["worst_difference"].text for row in fairness_rows(told)} == {"–"}
    html = page(told)
    assert not re.search('data-field="worst_difference"', html)
    assert not re.search('data-field="worst"|of the worst', html), "a column of dashes"
    assert "The accuracy of clients was not measured." in html


def test_one_seed_has_a_difference_without_an_interval_and_no_verdict(tmp_path: Path) -> None:
    compared, told = story(tmp_path, 1, clients_every=1)
    difference = compared.differences("worst_client_accuracy")["difference"].iloc[1]
    text = fairness_rows(told)[1]["worst_difference"].text
    assert text == f"{compared.score.signed(difference)}, too few seeds"


def test_intervals_of_the_worst_clients_of_several_rows_are_said_to_be_uncorrected(tmp_path: Path) -> None:
    """The heading of the results said so, that of fairness did not, beside the same kind of interval."""
    more = [*ROWS, {"label": "two", "selection": {"k": 2}}]
    for rows, heading in (
        (ROWS, "95% interval, verdict, p"),
        (more, "95% interval (not corrected), verdict, p (Holm)"),
    ):
        compared = fedcohort.compare(
            small(rounds=2, seeds=3, variants=rows, measures={"clients_every": 1}), runs=tmp_path
        )
        told = gather([run for row in compared.rows for run in row.runs.values()], compared.name)
        assert f"difference <small>{heading}</small>" in page(told)
