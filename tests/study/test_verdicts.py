"""Verdicts on differences: corrected p-values, none below three seeds, and what the seeds of a comparison cannot show."""

import math
from pathlib import Path

import pytest
from scipy import stats

from fedcohort.record import ClientRow, Run
from fedcohort.report.data.report_data import gather
from fedcohort.report.notes.failed_training import about_judged
from fedcohort.report.tables.compared_rows import compared_rows
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.run_measures import Measured
from fedcohort.study.summary import summary
from fedcohort.study.targets import shown_cost
from fedcohort.study.verdicts import (
    Verdict,
    about_verdicts,
    corrected_for,
    difference_columns,
    lowest_p_holm,
    needed_seeds,
    seeds_to_be_clear,
    verdicts,
)
from tests.records import played, written
from tests.report.pages import headline

FIRST = [0.50, 0.52, 0.48, 0.51, 0.49, 0.50, 0.53, 0.47]
BETTER = [value + 0.1 + 0.01 * i for i, value in enumerate(FIRST)]
WORSE = [value - 0.2 - 0.01 * i for i, value in enumerate(FIRST)]
MIXED = [value + (0.1 if i % 2 else -0.09) for i, value in enumerate(FIRST)]


def paired(*rows: list[float]) -> list[Verdict]:
    """Verdicts on rows with the same seeds; the first is the baseline."""
    return verdicts([(row, rows[0][: len(row)]) for row in rows])


def test_worked_verdicts_of_three_differences() -> None:
    """All eight differences have one sign: p = 2/256. Holm: two p-values of 2/256 times 3, and the larger one once."""
    baseline, better, worse, mixed = paired(FIRST, BETTER, WORSE, MIXED)
    assert (baseline.words, baseline.seeds) == ("baseline", 8)
    assert math.isnan(baseline.p_value)
    assert (better.p_value, better.p_holm, better.words) == (2 / 256, 6 / 256, "better")
    assert (worse.p_value, worse.p_holm, worse.words) == (2 / 256, 6 / 256, "worse")
    assert mixed.words == "not clear"
    assert mixed.p_holm == mixed.p_value > 0.5


def test_a_p_value_of_exactly_the_level_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    for p, words in ((0.05, "better"), (0.0501, "not clear")):
        monkeypatch.setattr("fedcohort.measures.paired_p_value", lambda *_, p=p: p)
        assert paired(FIRST, BETTER)[1].words == words


def test_a_difference_that_is_clear_alone_may_not_be_clear_among_many() -> None:
    rows = [FIRST[:6], BETTER[:6]]
    assert [row.words for row in paired(*rows)] == ["baseline", "better"]
    many = paired(*rows, MIXED[:6], FIRST[:6])
    assert [row.words for row in many] == ["baseline", "not clear", "not clear", "not clear"]
    assert (many[1].p_value, many[1].p_holm) == (2 / 64, 6 / 64)


def test_fewer_than_three_paired_seeds_have_no_verdict_and_do_not_count() -> None:
    _, two, eight = paired(FIRST, BETTER[:2], BETTER)
    assert (two.words, two.seeds) == ("too few seeds", 2)
    assert math.isnan(two.p_value)
    assert math.isnan(two.p_holm)
    assert (eight.p_holm, eight.words) == (2 / 256, "better")
    assert verdicts([(FIRST, FIRST), ([], [])])[1].words == "too few seeds"
    assert paired(FIRST, BETTER[:3])[1].words == "not clear"


def test_a_row_without_a_score_has_no_result_and_counts_as_a_comparison() -> None:
    """It had "too few seeds", and the other row was corrected for one comparison: p = 2/256."""
    rows = paired(FIRST, BETTER, [math.nan, *WORSE[1:]])
    assert [row.words for row in rows] == ["baseline", "better", "no result"]
    assert (rows[1].p_holm, rows[2].seeds) == (4 / 256, 8)
    assert math.isnan(rows[2].p_holm)
    assert corrected_for(rows) == 2
    told = about_verdicts(rows)
    assert "p corrected by Holm for 2 comparisons; better" in told
    assert told.endswith(
        "has no test score, because its model diverged or was not tested. It has no verdict, but counts as a comparison."
    )
    assert about_verdicts(paired([math.nan, *FIRST[1:]], BETTER)).startswith(
        "No result: under a seed, the row or its reference"
    )


def test_a_regression_that_diverged_did_not_reach_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rounds to the target were unknown, and the note spoke of the test R² that it reached."""
    monkeypatch.setattr(Run, "labels", "numbers")
    late = [[played(1, [0], test_accuracy=0.3, test_loss=1.0), played(2, [0], test_accuracy=0.4, test_loss=0.9)]] * 3
    nothing = {"test_accuracy": math.nan, "test_loss": math.nan}
    lost = [played(t, [ClientRow(0, "diverged")], **nothing) for t in (1, 2)]
    rows = []
    for label, of_seeds in (("a", late), ("b", late), ("lost", [lost] * 3)):
        runs = {
            seed: written(tmp_path / f"{label}{seed}", own, label=label, seed=seed, rounds=2)
            for seed, own in enumerate(of_seeds)
        }
        rows.append(Row(label, runs[0].described, runs))
    compared = Comparison("x", tuple(rows))
    third = compared_rows(compared)[2]
    assert third["verdict"] == "no result"
    assert (third["target_accuracy"], shown_cost(third, "rounds_to_target")) == (0.4, math.inf)
    assert summary(compared.rows[2].runs[0], 0.4).rounds_to_target == math.inf
    assert "that they reached" not in about_judged(compared)


def test_the_score_of_a_regression_is_not_that_of_a_round_before_it_diverged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model of the last of two rounds diverged; the score after the last round was that of the first."""
    monkeypatch.setattr(Run, "labels", "numbers")
    rounds = [
        played(1, [0], test_accuracy=0.3, test_loss=1.0),
        played(2, [0], test_accuracy=math.nan, test_loss=math.nan),
    ]
    measured = Measured(written(tmp_path / "run", rounds, rounds=2))
    assert math.isnan(measured.accuracy)
    assert measured.best_accuracy == 0.3
    sparse = written(tmp_path / "sparse", rounds, rounds=3, measures={"evaluate_every": 3})
    assert Measured(sparse).accuracy == 0.3, "round 2 was not tested"


def test_differences_that_are_still_to_come_count_as_if_their_p_values_were_1() -> None:
    rows = [(row, FIRST) for row in (FIRST, BETTER, MIXED)]
    alone, planned = verdicts(rows), verdicts(rows, planned=6)
    assert [row.p_value for row in alone[1:]] == [row.p_value for row in planned[1:]]
    assert (alone[1].p_holm, planned[1].p_holm) == (4 / 256, 12 / 256)
    assert planned[2].p_holm == min(1.0, 5 * planned[2].p_value)
    assert lowest_p_holm(planned, 1, 6) == 12 / 256
    assert verdicts(rows, planned=2)[1:] == alone[1:], "no more than there are"
    assert (corrected_for(alone), corrected_for(planned, 6), corrected_for(alone[:1], 6)) == (2, 6, 0)
    assert "p corrected by Holm for 6 comparisons, 4 of them to come; better" in about_verdicts(planned, 6)
    uneven = verdicts([*rows, ([], [])], uneven=[3])
    assert (uneven[1].p_holm, uneven[3].words, corrected_for(uneven)) == (6 / 256, "unequal rounds", 3)
    points = verdicts([*rows[:2], ([], []), ([], [])], references=[0, 0, 2, 2], uneven=[2, 3])
    assert [row.words for row in points] == ["baseline", "better", "baseline", "unequal rounds"]
    assert (points[1].p_holm, corrected_for(points)) == (4 / 256, 2), "a reference that waits is no comparison"


def test_the_lowest_p_value_of_a_row_depends_on_its_own_seeds_and_on_other_rows() -> None:
    """Four seeds: 2/16 alone, and twice that if the only other row has a larger p-value. The bound does not depend on the result."""
    few = [(row[:4], FIRST[:4]) for row in (FIRST, BETTER, MIXED)]
    for position in (1, 2):
        found = verdicts([few[0], (BETTER, FIRST), few[position]])
        assert lowest_p_holm(found, 2) == 2 / 16, "the other row has the smaller one"
        note = about_verdicts(found)
        assert note.endswith("Rows with at most 4 seeds cannot be clear, however large their differences are.")
    assert lowest_p_holm(verdicts(few), 1) == 4 / 16
    assert "Rows with at most" not in about_verdicts(verdicts(few)), "no row can be clear, as the note says"


def test_corrected_intervals_are_wider_and_end_where_no_larger_difference_is_possible() -> None:
    """Differences 0.7, 0.9 and 0.8: 0.8 ± 4.303·0.1/√3, and ± 7.649·0.1/√3 for the level 0.05/3."""
    own, first = [0.8, 0.9, 0.8], [0.1, 0.0, 0.0]
    found = difference_columns(own, first, (-1.0, 1.0), 3)
    alone, corrected = (stats.t.isf(level / 2, 2) * 0.1 / math.sqrt(3) for level in (0.05, 0.05 / 3))
    assert found["difference"] == pytest.approx(0.8)
    assert (found["difference_low"], found["difference_high"]) == (pytest.approx(0.8 - alone), 1.0)
    assert (found["corrected_low"], found["corrected_high"]) == (pytest.approx(0.8 - corrected), 1.0)
    untested = difference_columns(own, first, (-1.0, 1.0), 0)
    assert math.isnan(untested["corrected_low"])
    assert untested["difference_low"] == found["difference_low"]


@pytest.mark.parametrize(("comparisons", "needed"), [(1, 6), (2, 7), (3, 7), (4, 8), (10, 9)])
def test_the_number_of_seeds_that_are_needed(comparisons: int, needed: int) -> None:
    """With this number of seeds, the smallest p-value times the number of comparisons is at most 0.05."""
    assert needed_seeds(comparisons) == needed
    assert comparisons * 2 / 2**needed <= 0.05 < comparisons * 2 / 2 ** (needed - 1)


def test_among_very_many_differences_no_number_of_seeds_makes_one_clear() -> None:
    """With 20 seeds, signs are drawn, and p is at least 1/10,000: 500 times that is 0.05, and 501 times that is more. It was said that
    a difference can be clear from 15 seeds on."""
    first = [0.1] * 20
    clearly_better = [0.9 + 0.001 * i for i in range(20)]
    some, too_many = (verdicts([(first, first), *[(clearly_better, first)] * number]) for number in (500, 501))
    assert (some[1].p_value, some[1].words, too_many[1].words) == (0.0001, "better", "not clear")
    assert (needed_seeds(500), needed_seeds(501)) == (15, 0)
    assert lowest_p_holm(too_many, 1) == pytest.approx(0.0501)
    assert about_verdicts(some).endswith("better or worse if p is at most 0.05.")
    said = "With 20 seeds, p cannot be below 0.0501; no number of seeds makes a difference clear."
    assert about_verdicts(too_many).endswith(said)
    assert seeds_to_be_clear([0.5, 0.6, 0.7], 501) is None
    few = verdicts([(first[:2], first[:2]), *[(clearly_better[:2], first[:2])] * 501])
    assert about_verdicts(few).endswith("with 501 comparisons, no number of seeds makes a difference clear.")


def test_the_note_says_what_too_few_seeds_cannot_show() -> None:
    assert about_verdicts(paired(FIRST)) == ""
    assert about_verdicts(paired(FIRST[:2], BETTER[:2])) == (
        "No verdict: fewer than 3 seeds in common with the reference cannot tell a difference from chance. "
        "Use 3 or more; with 1 comparison, a difference can be clear from 6 seeds on."
    )
    assert about_verdicts(paired(FIRST[:3], BETTER[:3], WORSE[:3])) == (
        "Verdict: permutation test of the paired differences, two-sided, p corrected by Holm for 2 comparisons; better or worse if "
        "p is at most 0.05. With 3 seeds, p cannot be below 0.5; a difference can be clear from 7 seeds on."
    )
    assert about_verdicts(paired(FIRST, BETTER)).endswith(
        "differences, two-sided; better or worse if p is at most 0.05."
    )


def runs_of(folder: Path, label: str, accuracies: list[float]) -> Row:
    """A row with one run of one round for each accuracy."""
    runs = {
        seed: written(folder / f"{label}{seed}", [played(1, [0], test_accuracy=value)], label=label, seed=seed)
        for seed, value in enumerate(accuracies)
    }
    return Row(label, runs[0].described, runs)


def test_the_table_has_p_values_and_verdicts(tmp_path: Path) -> None:
    rows = (runs_of(tmp_path, "a", FIRST), runs_of(tmp_path, "b", BETTER), runs_of(tmp_path, "c", MIXED[:2]))
    compared = Comparison("x", rows)
    table = compared.table.set_index("label")
    assert table["verdict"].tolist() == ["baseline", "better", "too few seeds"]
    assert table["paired_seeds"].tolist() == [8, 8, 2]
    assert table["p_value"].tolist()[1] == table["p_holm"].tolist()[1] == 2 / 256
    assert table.loc[["a", "c"], ["p_value", "p_holm"]].isna().all(axis=None)
    assert [row["verdict"] for row in compared.to_json()["rows"]] == table["verdict"].tolist()
    assert compared.to_json()["rows"][2]["p_holm"] is None


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ({"a": FIRST, "b": BETTER}, "The difference is clear with these seeds."),
        (
            {"a": FIRST[:5], "b": BETTER[:5]},
            (
                "The difference is not clear: with 5 seeds, p cannot be below 0.062, however large it is; the interval excludes 0, "
                "but it assumes Gaussian differences."
            ),
        ),
        (
            {"a": FIRST[:2], "b": BETTER[:2]},
            "They share only 2 seeds: it is not known whether the difference is due to chance.",
        ),
        # the best two are not the first row: p = 2/64 is multiplied by 2
        ({"a": WORSE[:6], "b": FIRST[:6], "c": BETTER[:6]}, "with 6 seeds, p cannot be below 0.062, however"),
        ({"a": WORSE, "b": FIRST, "c": BETTER}, "The difference is clear with these seeds."),
        # as in the table: p = 2/64, corrected for two comparisons
        ({"a": FIRST[:6], "b": BETTER[:6], "c": WORSE[:6]}, "with 6 seeds, p cannot be below 0.062, however"),
        # Holm multiplies the larger p of fewer seeds by less: 2/8 once, beside 2/128 twice
        (
            {"a": FIRST[:7], "b": WORSE[:7], "c": BETTER[:3]},
            "p = 0.25). The difference is not clear: with 3 seeds, p cannot be below 0.25,",
        ),
    ],
)
def test_the_headline_of_the_page_agrees_with_the_verdicts(
    tmp_path: Path, rows: dict[str, list[float]], sentence: str
) -> None:
    runs = [run for label, values in rows.items() for run in runs_of(tmp_path, label, values).runs.values()]
    assert sentence in " ".join(headline(gather(runs)))
