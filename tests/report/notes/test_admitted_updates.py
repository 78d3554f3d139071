"""Without an admitted update, it is not known how even the clients' shares in the model are: no seed counts as perfectly even."""

import math
from pathlib import Path

import pytest

from fedcohort import Run
from fedcohort.record import ClientRow
from fedcohort.report import terminal
from fedcohort.report.data.report_data import gather
from fedcohort.report.page import page
from fedcohort.study.summary import over_seeds, summaries
from tests.cli.test_json_formats import call, check
from tests.records import played, written
from tests.report.pages import Page

NONE = [ClientRow(0, "late"), ClientRow(1, "late")]
ONE = [ClientRow(0, "admitted"), ClientRow(1, "late")]
BOTH = [ClientRow(0, "admitted"), ClientRow(1, "admitted")]


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Three rows of three seeds: all of the first, one of the second and none of the third admitted an update, of 12 clients."""
    clients = {"all": [BOTH, BOTH, BOTH], "some": [NONE, ONE, NONE], "none": [NONE, NONE, NONE]}
    return [
        written(
            tmp_path / "runs" / f"{label}{seed}",
            [played(t, own, test_accuracy=0.5, class_accuracy=[0.4, 0.6]) for t in (1, 2)],
            label=label,
            seed=seed,
        )
        for label, seeds in clients.items()
        for seed, own in enumerate(seeds)
    ]


def test_a_run_without_an_admitted_update_has_no_evenness_of_updates(runs: list[Run]) -> None:
    some, without = runs[4].summary().admitted, runs[5].summary().admitted
    assert some == pytest.approx((1 / 12, 11 / 12, 0.0, 1 / 12))
    assert [math.isnan(value) for value in without] == [True, True, True, False]
    assert without.coverage == 0


def test_means_are_of_the_seeds_that_admitted_an_update(runs: list[Run]) -> None:
    """The mean of one seed with 1/12 and two seeds without an update was 0.694, near that of a perfectly even choice."""
    rows = [over_seeds(summaries(runs[i : i + 3], 0.4)) for i in (0, 3, 6)]
    assert [row.mean.admitted.jain for row in rows] == pytest.approx([1 / 6, 1 / 12, math.nan], nan_ok=True)
    assert [row.mean.admitted.coverage for row in rows] == pytest.approx([1 / 6, 1 / 36, 0.0])
    text = " ".join(terminal.as_text(terminal.summaries(["all", "some", "none"], rows), 120).split())
    assert "Jain's index of admitted updates 0.167 0.083 (1/3) –" in text
    assert "(1/3): 1 of 3 seeds gave a value; the means cover only those." in text
    assert "Jain's index of admitted updates: not known under a seed that admitted no update." in text
    sound = " ".join(terminal.as_text(terminal.summaries(["all"], rows[:1]), 120).split())
    assert "gave a value" not in sound
    assert "not known" not in sound


def test_marks_of_the_target_are_told_from_others(runs: list[Run]) -> None:
    """One seed reaches the target, and another one admitted an update."""
    low = summaries([runs[3]], 0.6)[0]
    rows = over_seeds([low, *summaries(runs[4:6], 0.4)])
    text = " ".join(terminal.as_text(terminal.summaries(["some"], [rows]), 120).split())
    assert "(2/3): 2 of 3 seeds reached the target accuracy; the means cover only those." in text
    assert "(1/3) beside other measures: 1 of 3 seeds gave a value; the means cover only those." in text


def test_the_table_of_fairness_says_of_how_many_seeds_its_means_are(runs: list[Run]) -> None:
    shown = Page(page(gather(runs)))
    assert [row["jain_model"] for row in shown.texts["fairness"]] == ["0.167", "0.083 (1/3)", "–"]
    raw = [row["jain_model"] for row in shown.cells["fairness"]]
    assert float(raw[1]) == pytest.approx(1 / 12)
    assert raw[2] == "", "unknown values are sorted last"
    assert (
        "how evenly the clients' updates entered the model. (1/3): 1 of 3 seeds admitted an update; the means cover only those. "
        "It is not known (–) where no update was admitted." in shown.prose
    )


def test_unknown_measures_are_null_in_json(runs: list[Run]) -> None:
    one, none = check("measures", call("measures", runs[4].path, runs[5].path, "--json"))["runs"]
    assert one["admitted"]["jain"] == pytest.approx(1 / 12)
    assert none["admitted"] == {"jain": None, "gini": None, "entropy": None, "coverage": 0.0}
