"""The first screen in words: which strategy, how sure, and at what cost; one federation at a time; one rule for the reference."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedcohort import measures
from fedcohort.cli import cli
from fedcohort.core.words import formatted_values
from fedcohort.record import ClientRow, Run
from fedcohort.report.charts.accuracy import differences
from fedcohort.report.data.report_data import find_runs, gather
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.figures.screen_words import CONTAINS_0
from fedcohort.report.headline import headline_costs
from fedcohort.report.headline.headline import answers
from fedcohort.report.page import page
from fedcohort.report.tables.table_rows import ledger_rows
from fedcohort.study.compare_existing_runs import read
from fedcohort.study.verdicts import about_more_seeds, most_advised, needed_seeds, rounded_seeds, seeds_to_be_clear
from tests.experiments import UCB
from tests.records import exchange, played, written
from tests.report.pages import Page


def runs_of(
    folder: Path, label: str, accuracies: Sequence[float], ledger: Sequence[Any] = (), **values: Any
) -> list[Run]:
    """One run of one round for each accuracy; the ledger is that of the round."""
    spent = list(ledger) or [exchange(100, 100)]
    return [
        written(
            folder / f"{label}{seed}".replace(" ", ""),
            [played(1, [0, 1], test_accuracy=accuracy, ledger=spent)],
            label=label,
            seed=seed,
            **values,
        )
        for seed, accuracy in enumerate(accuracies)
    ]


FIRST = [0.50, 0.52, 0.48, 0.51, 0.49, 0.50, 0.53, 0.47]
CLOSE = [value + (0.03 if i % 2 else -0.01) for i, value in enumerate(FIRST)]
BETTER = [value + 0.1 + 0.01 * i for i, value in enumerate(FIRST)]


def said(runs: Sequence[Run], reference: str = "") -> dict[str, str]:
    """The answers to each question, of the first point."""
    return {
        question: " ".join(sentences) for question, sentences in answers(gather(runs, reference=reference))[0].answers
    }


def test_the_table_of_costs_says_what_a_client_discloses(tmp_path: Path) -> None:
    asking = [exchange(100, 100), replace(exchange(200, 8, "LocalLoss"), discloses="its loss")]
    rows = ledger_rows(gather(runs_of(tmp_path, "mine", BETTER[:1], asking, selection=UCB)))
    assert {row["kind"]: row["discloses"] for row in rows} == {"training": "its update", "LocalLoss": "its loss"}


def test_a_clear_result_says_which_how_sure_and_at_what_cost(tmp_path: Path) -> None:
    asking = [exchange(100, 100), replace(exchange(200, 8, "LocalLoss"), discloses="its loss")]
    runs = [*runs_of(tmp_path, "uniform", FIRST), *runs_of(tmp_path, "mine", BETTER, asking, selection=UCB)]
    found = said(runs)
    assert list(found) == ["Which strategy?", "How sure?", "At what cost?"]
    assert found["Which strategy?"] == (
        "'mine' has the highest test accuracy after the last round: 63.5%. The reference, 'uniform', which the others are compared "
        "with, has 50.0%."
    )
    low, high = measures.paired_interval(BETTER, FIRST)[1:]
    assert found["How sure?"] == (
        f"'mine' leads 'uniform' by 13.5 percentage points (95% interval +{100 * low:.1f} to +{100 * high:.1f}, 8 paired seeds, "
        "p = 0.0078). The difference is clear with these seeds."
    )
    assert found["At what cost?"].startswith(
        "Beside 'uniform', 'mine' took 2 times the bytes (408 B), 2 times the client passes (2) and the same simulated time (1). "
        "'mine' sends the model to the clients that it asks about it, too, not only to those that train. "
        "Simulated time does not include answers to questions of a strategy."
    )
    assert found["At what cost?"].endswith(
        "With 'mine', a client discloses its loss and its update. With 'uniform', it discloses its update."
    )


def test_bytes_are_explained_by_questions_of_the_rows_that_ask_them(tmp_path: Path) -> None:
    asking = [exchange(100, 100), exchange(200, 8, "LocalLoss")]
    quiet = runs_of(tmp_path, "uniform", FIRST)
    loud = runs_of(tmp_path, "mine", BETTER, asking, selection=UCB)
    other = runs_of(tmp_path, "other", CLOSE, asking, selection={"name": "powd"})
    assert "'mine' sends the model to the clients that it asks about it" in said([*quiet, *loud])["At what cost?"]
    both = said([*loud, *other], reference="other")["At what cost?"]
    assert "'mine' and 'other' send the model to the clients that they ask about it" in both
    silent = said([*quiet, *runs_of(tmp_path, "silent", BETTER, selection=UCB)])["At what cost?"]
    assert "about it" not in silent
    assert "questions" not in silent


def test_an_unclear_result_says_how_many_more_seeds_would_make_it_clear(tmp_path: Path) -> None:
    found = said([*runs_of(tmp_path, "uniform", FIRST), *runs_of(tmp_path, "mine", CLOSE, selection=UCB)])["How sure?"]
    needed = seeds_to_be_clear([a - b for a, b in zip(CLOSE, FIRST, strict=True)], 1)
    assert needed is not None
    assert "The difference is not clear with these seeds." in found
    shown = rounded_seeds(needed)
    assert 0 <= shown - needed < 5
    assert (
        f"About {shown} seeds ({shown - 8} more) would probably make it clear, if differences and their spread" in found
    )


def test_rows_that_would_need_very_many_seeds_have_a_small_difference(tmp_path: Path) -> None:
    """An estimate of 926 seeds was false precision: four differences know their spread badly."""
    near = [value + gain for value, gain in zip(FIRST[:4], (0.02, -0.015, 0.01, -0.01), strict=True)]
    needed = seeds_to_be_clear([a - b for a, b in zip(near, FIRST[:4], strict=True)], 1)
    assert needed is None or needed > most_advised(4) == 40
    found = said([*runs_of(tmp_path, "uniform", FIRST[:4]), *runs_of(tmp_path, "mine", near, selection=UCB)])[
        "How sure?"
    ]
    assert found.endswith(
        "The difference is small beside its spread from seed to seed; more than 40 seeds would be needed to tell them apart."
    )


def test_how_many_seeds_are_advised() -> None:
    assert [most_advised(seeds) for seeds in (3, 5, 8, 25, 40, 500)] == [30, 50, 50, 50, 80, 1000]
    assert [rounded_seeds(needed) for needed in (6, 20, 21, 25, 43)] == [6, 20, 25, 25, 45]
    assert about_more_seeds(8, 8, "do", "").startswith("About 9 seeds (1 more)"), "these 8 do not suffice"


def test_equal_rows_are_not_compared_in_numbers(tmp_path: Path) -> None:
    found = said([*runs_of(tmp_path, "uniform", FIRST), *runs_of(tmp_path, "mine", FIRST, selection=UCB)])["How sure?"]
    assert found == (
        "'uniform' and 'mine' are equal: the same clients in every round, and the same test accuracy in every seed."
    )


def test_means_that_differ_by_rounding_only_are_equal(tmp_path: Path) -> None:
    """One of the two rows had "the highest test accuracy", and in the next sentence both had the same."""
    first = [correct / 360 for correct in (297, 352, 288, 312, 295)]
    others = [list(own) for own in permutations(first) if np.mean(own) != np.mean(first)]
    assert others, "without a difference, this test says nothing"
    for folder, own, other in (("a", first, others[0]), ("b", others[0], first)):
        found = said(
            [*runs_of(tmp_path / folder, "uniform", own), *runs_of(tmp_path / folder, "mine", other, selection=UCB)]
        )
        assert found["Which strategy?"].startswith(
            "'uniform' and 'mine' have the highest test accuracy after the last round: "
        )
        assert found["How sure?"].startswith("'uniform' and 'mine' have the same mean test accuracy (")


def test_corrections_for_rows_that_have_not_begun_are_explained_by_them(tmp_path: Path) -> None:
    """The reason was "because differences at several points are tested", although there is no sweep."""
    runs = [*runs_of(tmp_path, "uniform", FIRST), *runs_of(tmp_path, "mine", CLOSE, selection=UCB)]
    found = dict(answers(gather(runs, planned=4))[0].answers)["How sure?"]
    assert found[-1] == (
        "The intervals and p-values here are corrected, because more rows are planned than have begun. The intervals in the table of "
        "results are not, and therefore narrower."
    )


def test_equal_rows_of_several_have_no_sentence_about_corrections(tmp_path: Path) -> None:
    """The sentence spoke of "the intervals and p-values here", although equal rows have none."""
    rows = [run for label in ("uniform", "mine", "third") for run in runs_of(tmp_path, label, FIRST)]
    assert said(rows)["How sure?"] == (
        "'uniform' and 'mine' are equal: the same clients in every round, and the same test accuracy in every seed."
    )


def test_the_same_difference_under_every_seed_has_no_interval_that_includes_0(tmp_path: Path) -> None:
    """All 8 differences are 0.1: p = 2/256 is clear. The next sentence was about an interval that includes 0."""
    mine = [value + 0.1 for value in FIRST]
    found = said([*runs_of(tmp_path, "uniform", FIRST), *runs_of(tmp_path, "mine", mine, selection=UCB)])["How sure?"]
    assert found == (
        "'mine' leads 'uniform' by 10.0 percentage points (the same difference under every seed, which gives no interval, 8 paired "
        "seeds, p = 0.0078). The difference is clear with these seeds."
    )


def test_a_row_without_a_score_under_one_seed_is_not_said_to_have_none(tmp_path: Path) -> None:
    """The other row has a score under two of its three seeds, and the headline said that only the first one has any."""
    rows = [*runs_of(tmp_path, "uniform", [0.5, 0.6, 0.7]), *runs_of(tmp_path, "mine", [0.5, math.nan, 0.7])]
    assert said(rows) == {
        "Which strategy?": "Only 'uniform' has a test accuracy under every seed, so the rows cannot be ranked."
    }


@pytest.mark.slow
def test_an_interval_without_0_is_explained_if_the_difference_is_not_clear(tmp_path: Path) -> None:
    """p = 16/1024, times four for the rows that are compared."""
    gains = [0.04, 0.05, 0.06, 0.04, 0.05, 0.06, 0.05, -0.003, -0.004, -0.005]
    first = [*FIRST, 0.5, 0.5]
    mine = [value + gain for value, gain in zip(first, gains, strict=True)]
    rows = [*runs_of(tmp_path, "uniform", first), *runs_of(tmp_path, "mine", mine, selection=UCB)]
    for i in range(3):
        rows += runs_of(tmp_path, f"other {i}", first, selection={"name": "powd", "d": 4 + i})
    low = measures.paired_interval(mine, first, 1 - 0.05 / 4).low
    assert low > 0
    figure = differences(gather(rows), PAGE)
    assert figure is not None
    assert (
        "Even that can exclude 0 where the difference is not clear: intervals assume Gaussian differences"
        in figure.note
    )
    assert (
        "The difference is not clear with these seeds: the interval excludes 0, but it assumes Gaussian differences."
        in said(rows)["How sure?"]
    )


@pytest.mark.slow
def test_the_best_and_the_second_were_chosen_by_their_results(tmp_path: Path) -> None:
    """Their interval and their p-value are corrected for all pairs, those of the best and uniform for both. Each says so,
    and those of the table that they are not."""
    second = [value + 0.09 + 0.01 * (i % 3) for i, value in enumerate(FIRST)]
    runs = [
        *runs_of(tmp_path, "uniform", FIRST),
        *runs_of(tmp_path, "second", second, selection=UCB),
        *runs_of(tmp_path, "best", BETTER, selection={"name": "powd", "d": 4}),
    ]
    found = said(runs)["How sure?"]
    beside = measures.paired_interval(BETTER, FIRST, 1 - 0.05 / 2)
    ends = f"+{100 * beside.low:.1f} to +{100 * beside.high:.1f}"
    assert found.startswith(
        f"'best' leads 'uniform' by 13.5 percentage points (corrected 95% interval {ends}, 8 paired seeds"
    )
    assert found.count("(corrected 95% interval") == found.count("95% interval") == 2
    head = page(gather(runs)).partition('<table id="results"')[2].partition("</thead>")[0]
    assert "difference <small>95% interval,</small> <small>not corrected</small>" in head
    assert found.endswith(
        "The intervals and p-values here are corrected, because the best of 3 rows was chosen by its results. The intervals in the "
        "table of results are not, and therefore narrower."
    )
    compared = read([run.path for run in runs], partial=True)
    row = compared.table.set_index("label").loc["best"]
    assert (row["corrected_low"], row["corrected_high"]) == pytest.approx((beside.low, beside.high))
    assert row["corrected_low"] < row["difference_low"] < row["difference_high"] < row["corrected_high"]
    figure = differences(gather(runs), PAGE)
    assert figure is not None
    drawn = figure.data["differences"].set_index("strategy").loc["best"]
    assert drawn["corrected_low_text"] == f"{100 * beside.low:+.1f}".replace("-", "−")
    assert "Tooltips have the corrected interval, too." in figure.note
    narrow = measures.paired_interval(BETTER, second)
    wide = measures.paired_interval(BETTER, second, 1 - 0.05 / 3)
    assert wide.low < narrow.low
    p_value = 3 * measures.paired_p_value(BETTER, second)
    assert (
        f"'best' leads 'second' by {100 * wide.mean:.1f} percentage points (corrected 95% interval "
        f"{100 * wide.low:+.1f} to {100 * wide.high:+.1f}, 8 paired seeds, p = {p_value:.2g})".replace("-", "−")
        in found
    )


def test_a_reference_that_is_best_is_compared_with_the_second(tmp_path: Path) -> None:
    runs = [*runs_of(tmp_path, "mine", FIRST, selection=UCB), *runs_of(tmp_path, "uniform", BETTER)]
    found = said(runs)
    assert found["Which strategy?"].endswith("It is the row that the others are compared with.")
    assert found["How sure?"].startswith("'uniform' leads 'mine' by 13.5 percentage points (95% interval +")
    assert found["At what cost?"] == (
        "Beside 'mine', 'uniform' took the same bytes (200 B), the same client passes (1) and the same simulated time (1). "
        "With both, a client discloses its update."
    )
    assert said(runs, "mine")["Which strategy?"].endswith(
        "The reference, 'mine', which the others are compared with, has 50.0%."
    )


def test_a_reference_that_is_best_is_judged_as_the_table_judges_it(tmp_path: Path) -> None:
    """The headline called a difference not clear that the table called worse: it corrected for all pairs of rows."""
    runs = runs_of(tmp_path, "uniform", BETTER[:7])
    for label, shift in (("first", 0.0), ("second", 0.01), ("third", 0.02)):
        runs += runs_of(tmp_path, label, [value - shift for value in FIRST[:7]], selection=UCB)
    story = gather(runs)
    assert story.comparison is not None
    labels = [row.label for row in story.comparison.rows]
    row = story.comparison.verdicts[labels.index("first")]
    assert row.p_holm == pytest.approx(3 * 2 / 2**7)
    assert row.words == "worse"
    found = said(runs)["How sure?"]
    assert f"p = {formatted_values.p_value(row.p_holm)}). The difference is clear" in found


def test_the_interval_of_a_reference_that_leads_is_that_of_the_table(tmp_path: Path) -> None:
    """It ended at other values in the headline, beyond the largest difference that is possible."""
    runs = [
        *runs_of(tmp_path, "uniform", [0.9, 0.4, 0.43]),
        *runs_of(tmp_path, "mine", [0.1, 0.12, 0.15], selection=UCB),
    ]
    compared = gather(runs).comparison
    assert compared is not None
    row = next(row for row in compared.table.to_dict("records") if row["label"] == "mine")
    assert row["difference_low"] == -1
    signed = compared.score.signed
    ends = f"{signed(-row['difference_high'])} to {signed(-row['difference_low'])}"
    assert f"95% interval {ends}" in said(runs)["How sure?"]


def test_means_over_different_seeds_are_said_to_differ_by_them(tmp_path: Path) -> None:
    """The row with the highest mean lost on the only seed that it shared with the reference."""
    easy = [0.4, 0.4, 0.8]
    runs = [*runs_of(tmp_path, "uniform", easy), *runs_of(tmp_path, "mine", [0.0, 0.0, 0.7], selection=UCB)[2:]]
    found = said(runs)
    words = "Means over different seeds can differ by their seeds alone"
    assert words in found["Which strategy?"]
    assert "'mine' differs from 'uniform' by −10.0" in found["How sure?"]
    assert page(gather(runs)).count(words) == 3, "in the headline, below the table, and below the chart of costs"
    assert words not in page(gather(runs[:3]))


def test_rows_of_a_race_are_not_judged_by_their_seeds(tmp_path: Path) -> None:
    """More seeds of the dropped row would not make it clear: the race has decided which rows got more."""
    few = BETTER[:3]
    runs = [*runs_of(tmp_path, "uniform", FIRST), *runs_of(tmp_path, "mine", few, selection=UCB)]
    found = said(runs)["How sure?"]
    assert "with 3 seeds, p cannot be below 0.25" in found
    assert "more) would probably make it clear" not in found
    assert found.endswith("If a race decided which rows got more seeds, its own result holds instead.")
    assert "different seeds" not in said([*runs_of(tmp_path / "a", "uniform", FIRST[:3]), *runs[8:]])["How sure?"]


@pytest.mark.parametrize("seeds", [2, 3])
def test_more_seeds_of_a_row_that_never_trained_are_not_asked_for(seeds: int, tmp_path: Path) -> None:
    """Its model is the initial one under every seed."""
    runs = runs_of(tmp_path, "uniform", BETTER[:seeds])
    declined = [ClientRow(client, "declined") for client in range(2)]
    for seed, accuracy in enumerate(FIRST[:seeds]):
        rounds = [played(1, declined, test_accuracy=accuracy)]
        runs.append(written(tmp_path / f"still{seed}", rounds, label="still", seed=seed, selection=UCB))
    found = said(runs)["How sure?"]
    assert "would probably make it clear" not in found
    assert "seeds or more" not in found
    assert found.endswith(
        "'still' never trained: no update entered its model in any round, so that it is still the initial one. More seeds would not "
        "change that: see Health."
    )
    assert found.count("never trained") == 1
    assert "'still' : no update entered the model in any of the" in Page(page(gather(runs))).prose


def test_unfinished_runs_of_a_row_have_no_result_yet(tmp_path: Path) -> None:
    """The mean of a seed after its last round and another one after the first is no accuracy in any round."""
    runs = [
        written(tmp_path / str(seed), [played(t, [0]) for t in range(1, last + 1)], seed=seed, rounds=6)
        for seed, last in enumerate((6, 1))
    ]
    assert said(runs) == {
        "Result": "It is too early to say: the runs have played 1 to 6 rounds, and not all are finished."
    }
    assert said(runs[:1])["Result"].startswith("'uniform' reached a test accuracy of 50.0% in round 6.")


def test_numbers_of_rounds_have_commas(tmp_path: Path) -> None:
    """A seed after 1,200 of 2,000 rounds, and one after the first."""
    runs = [
        written(tmp_path / str(seed), [played(t, [0]) for t in range(1, last + 1)], seed=seed, rounds=2000)
        for seed, last in enumerate((1, 1200))
    ]
    assert "the runs have played 1 to 1,200 rounds" in said(runs)["Result"]
    assert "seed 1: round 1,200 of 2,000" in Page(page(gather(runs))).prose


def test_rows_are_not_ranked_while_others_are_played(tmp_path: Path) -> None:
    story = gather([*runs_of(tmp_path, "uniform", FIRST), *runs_of(tmp_path, "mine", BETTER, selection=UCB)])
    (early,) = answers(story, going_on=True)
    assert early.answers == (("Which strategy?", ("It is too early to say: not all runs are finished.",)),)
    live = {"version": "", "overall": {"done": 16, "total": 24, "words": ""}, "others": [], "token": "", "damaged": []}
    shown = Page(page(gather(runs_of(tmp_path / "one", "uniform", FIRST[:1])), live=live))
    assert "Health: no problem so far" in shown.prose
    assert "set seeds = 3" not in shown.prose, "more seeds are being played"


def test_rows_without_a_test_accuracy_and_single_rows(tmp_path: Path) -> None:
    unknown = [*runs_of(tmp_path, "uniform", [math.nan] * 3), *runs_of(tmp_path, "mine", [math.nan] * 3, selection=UCB)]
    assert said(unknown) == {"Which strategy?": "No row has a test accuracy, so the rows cannot be ranked."}
    alone = said(runs_of(tmp_path / "a", "uniform", FIRST))
    assert alone["Result"].startswith(
        "'uniform' reached a test accuracy of 50.0 ± 2.0% in round 1 (mean over 8 seeds)."
    )


def test_the_number_of_seeds_grows_with_the_spread_and_the_comparisons() -> None:
    small, large = [0.04, 0.05, 0.06], [-0.1, 0.05, 0.2]
    assert seeds_to_be_clear(small, 1) == needed_seeds(1) == 6
    few, many = seeds_to_be_clear(large, 1), seeds_to_be_clear(large, 10)
    assert few is not None
    assert many is not None
    # sd 0.15, mean 0.05: (t₀.₉₇₅ + t₀.₈)² · 9 for a power of 80%
    assert 71 <= few <= 75
    assert many > few
    assert seeds_to_be_clear([-0.1, 0.1, 0.0], 1) is None
    assert seeds_to_be_clear([0.0001, -0.1, 0.1], 1) is None


# --- a sweep -------------------------------------------------------------------------------------------------------------------

ACCURACY = {("uniform", 0.1): 0.3, ("mine", 0.1): 0.45, ("uniform", 1.0): 0.9, ("mine", 1.0): 0.723}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """A strategy that is better in one federation, and 17.7 points worse than uniform in the other."""
    folder = tmp_path_factory.mktemp("swept")
    return [
        run
        for (name, value), accuracy in ACCURACY.items()
        for run in runs_of(
            folder,
            f"{name}, alpha={value}",
            [accuracy + seed / 100 for seed in range(7)],
            federation={"clients": 4, "partition": {"name": "dirichlet_class", "alpha": value, "min_size": 1}},
            selection="uniform" if name == "uniform" else UCB,
        )
    ]


@pytest.fixture(scope="module")
def page_of_sweep(swept: list[Run]) -> Page:
    return Page(page(gather(swept)))


def test_the_page_speaks_of_one_federation_at_a_time(swept: list[Run], page_of_sweep: Page) -> None:
    first, second = answers(gather(swept))
    assert (first.point, second.point) == ("alpha=0.1", "alpha=1.0")
    assert dict(first.answers)["Which strategy?"][0].startswith("At alpha=0.1, 'mine' has the highest test accuracy")
    assert dict(second.answers)["Which strategy?"][0].startswith(
        "At alpha=1.0, 'uniform' has the highest test accuracy"
    )
    assert "'uniform' leads 'mine' by 17.7 percentage points" in dict(second.answers)["How sure?"][0]
    shown = page_of_sweep
    rows = {
        row["strategy"]: (cells["difference"], row)
        for row, cells in zip(shown.cells["results"], shown.texts["results"], strict=True)
    }
    assert float(rows["mine, alpha=0.1"][1]["difference"]) == pytest.approx(0.15)
    assert float(rows["mine, alpha=1.0"][1]["difference"]) == pytest.approx(-0.177)
    assert rows["mine, alpha=1.0"][0].startswith("−17.7")
    drawn = {row["strategy"]: row["mean"] for row in shown.payload["data"]["differences"]}
    assert drawn == pytest.approx({"mine, alpha=0.1": 15.0, "mine, alpha=1.0": -17.7})
    assert "in clients, data or systems" not in shown.prose
    assert [a["value"] for tag, a in shown.tags if tag == "input" and a.get("name") == "point"] == ["0", "1"]


def test_the_headline_of_a_sweep_says_what_each_interval_is_corrected_for(swept: list[Run], tmp_path: Path) -> None:
    """Two intervals with different corrections stood side by side without a word."""
    more = [
        run
        for value, lead in ((0.1, 0.02), (1.0, -0.3))
        for run in runs_of(
            tmp_path,
            f"other, alpha={value}",
            [ACCURACY["mine", value] + lead + seed**2 / 500 for seed in range(7)],
            federation={"clients": 4, "partition": {"name": "dirichlet_class", "alpha": value, "min_size": 1}},
            selection={"name": "powd", "d": 4},
        )
    ]
    first, second = (dict(one.answers)["How sure?"][-1] for one in answers(gather([*swept, *more])))
    assert first.startswith(
        "The intervals and p-values here are corrected, because the best of 3 rows was chosen by its results. Beside 'uniform', it is "
        "for all 4 differences to references at all points; beside 'mine', for the 3 pairs of rows at this point. The intervals in"
    )
    assert "Beside" not in second, "the best row is the reference"
    assert "They are for 4 comparisons: all differences to references at all points." in second


def test_equal_differences_under_all_seeds_are_not_said_to_be_sure(tmp_path: Path) -> None:
    """An interval without width looked like certainty."""
    flat = [0.6, 0.7, 0.8]
    lower = runs_of(tmp_path, "lower", [value - 0.1 for value in flat], selection=UCB)
    found = [*runs_of(tmp_path, "uniform", flat), *lower]
    assert "the same difference under every seed, which gives no interval" in said(found)["How sure?"]
    shown = page(gather(found))
    assert "−10.0" in shown
    assert "[−10.0" not in shown


def test_an_interval_with_0_is_explained_if_the_difference_is_clear(tmp_path: Path) -> None:
    """Seven gains of 1 point, and one of 40: the test counts signs, and the interval assumes Gaussian differences."""
    mine = [value + (0.4 if i == 0 else 0.01) for i, value in enumerate(FIRST)]
    found = said([*runs_of(tmp_path, "uniform", FIRST), *runs_of(tmp_path, "mine", mine, selection=UCB)])["How sure?"]
    assert measures.paired_interval(mine, FIRST).low < 0
    assert found.endswith(
        "The difference is clear with these seeds: the interval includes 0, but it assumes Gaussian differences, which the test does "
        "not."
    )


def test_an_interval_with_0_is_explained_if_only_a_correction_step_by_step_finds_a_clear_difference(
    tmp_path: Path,
) -> None:
    """ "Better" stood beside a corrected interval that contains 0, without a word."""
    low = [0.1] * 8
    gains = [0.8, 0.1, 0.1, 0.1, 0.1, 0.1, -0.01, -0.02]
    best = [a + b for a, b in zip(low, gains, strict=True)]
    runs = [
        *runs_of(tmp_path, "uniform", low),
        *runs_of(tmp_path, "best", best, selection=UCB),
        *runs_of(tmp_path, "steady", [0.15 + 0.001 * i for i in range(8)], selection={"name": "round_robin"}),
    ]
    story = gather(runs)
    assert story.comparison is not None
    _, of_best, of_steady = story.comparison.verdicts
    assert (of_best.p_value, of_best.p_holm) == (8 / 256, 8 / 256), "the second step does not multiply it"
    assert (of_best.words, of_steady.words) == ("better", "better")
    row = story.comparison.table.iloc[1]
    assert row["corrected_low"] < 0
    reason = "it is corrected for all comparisons at once, and p step by step (Holm)."
    found = said(runs)["How sure?"]
    assert f"The difference is clear with these seeds: the interval includes 0, but {reason}" in found
    figure = differences(story, PAGE)
    assert figure is not None
    assert figure.note.endswith(CONTAINS_0)


def test_a_strategy_has_one_color_at_all_points(page_of_sweep: Page) -> None:
    chart = next(chart for key, chart in page_of_sweep.payload["charts"].items() if key == "accuracy.0.0")
    text = json.dumps(chart)
    assert '"range": ["var(--s0)", "var(--s1)", "var(--s0)", "var(--s1)"]' in text


# --- one rule for the reference in all commands --------------------------------------------------------------------------------


def call(*arguments: str) -> str:
    result = CliRunner().invoke(cli, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_all_commands_have_the_same_reference(runs: Path, tmp_path: Path) -> None:
    """UCB stands first in the alphabet and on the command line; uniform is the reference nevertheless."""
    folders = sorted((str(run.path) for run in find_runs([runs])), key=lambda path: "ucb" not in path.lower())
    rows = json.loads(call("compare", *folders, "--json"))["rows"]
    assert {row["reference"] for row in rows} == {"uniform"}
    assert {row["verdict"] for row in rows if row["label"] == "uniform"} == {"baseline"}
    assert {
        row["reference"] for row in json.loads(call("compare", *folders, "--reference", "loss", "--json"))["rows"]
    } == {"loss"}
    for arguments, reference in (([], "uniform"), (["--reference", "loss"], "loss")):
        call("report", *folders, "-o", str(tmp_path / "page.html"), *arguments)
        text = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
        assert f"Difference to '{reference}' in percentage points" in text.prose
        assert next(row["strategy"] for row in text.texts["results"] if row["p_holm"] == "baseline") == reference
        csv = tmp_path / "table.csv"
        call("compare", *folders, "--csv", str(csv), "--json", *arguments)
        assert csv.read_text(encoding="utf-8").splitlines()[1].split(",")[5] == reference
    made = tmp_path / "made"
    call("figures", *folders, "--reference", "UCB", "--only", "differences", "--format", "svg", "--out", str(made))
    svg = (made / "differences.svg").read_text(encoding="utf-8")
    assert ">uniform<" in svg
    assert ">UCB<" not in svg


def test_a_reference_that_does_not_exist_is_one_line(runs: Path) -> None:
    for command in ("compare", "report", "figures"):
        paths = [str(run.path) for run in find_runs([runs])]
        result = CliRunner().invoke(cli, [command, *paths, "--reference", "unifrom"])
        assert result.exit_code == 2
        assert "--reference 'unifrom': no row has this label; did you mean 'uniform'?" in result.output


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1.0, "the same"),
        (1.01, "about the same"),
        (0.988, "about the same"),
        (1.03, "about the same"),
        (1.06, "1.1 times the"),
        (0.97, "0.97 times the"),
    ],
)
def test_a_cost_is_not_one_time_another(value: float, words: str) -> None:
    """A cost 3% higher was "1 times the simulated time", and a simulated time of 7,887 was the same as 7,981."""
    assert headline_costs._ratio(value, 1.0) == words


def test_rows_with_the_same_accuracy_are_both_named(tmp_path: Path) -> None:
    """One of two equal rows led by "−0.0" points."""
    found = said([*runs_of(tmp_path, "uniform", FIRST), *runs_of(tmp_path, "mine", FIRST[::-1], selection=UCB)])
    assert found["Which strategy?"].startswith(
        "'uniform' and 'mine' have the highest test accuracy after the last round: "
    )
    assert "have the same mean test accuracy (95% interval " in found["How sure?"]
    two = said(
        [
            *runs_of(tmp_path / "two", "uniform", FIRST[:2]),
            *runs_of(tmp_path / "two", "mine", FIRST[1::-1], selection=UCB),
        ]
    )
    assert (
        "have the same mean test accuracy. They share only 2 seeds: it is not known whether one of them is better."
        in two["How sure?"]
    )


def test_a_row_without_a_score_under_some_seeds_has_no_difference(tmp_path: Path) -> None:
    """Where the reference diverged, the best row led by "–", with an interval from "–" to "–"."""
    lost = runs_of(tmp_path, "uniform", [*FIRST[:2], math.nan])
    found = said([*lost, *runs_of(tmp_path, "mine", FIRST[:3], selection=UCB), *runs_of(tmp_path, "third", FIRST[1:4])])
    assert "–" not in "".join(found.values())
    which = "The reference, 'uniform', which the others are compared with, has no test accuracy."
    assert which in found["Which strategy?"]
    words = (
        "It is not known by how much 'third' leads 'uniform': under 1 of their 3 seeds, 'uniform' has no test accuracy."
    )
    assert found["How sure?"].startswith(words)


def test_equal_scores_under_all_seeds_have_no_interval_to_correct(tmp_path: Path) -> None:
    """Rows that always reached 100% had a difference that was "not clear", and corrected intervals that were not shown."""
    rows = [("uniform", "uniform", [0, 1]), ("mine", "ucb", [0, 2]), ("third", "size", [1, 2])]
    found = said(
        [
            written(
                tmp_path / f"{label}{seed}",
                [played(1, clients, test_accuracy=1.0)],
                label=label,
                seed=seed,
                selection={"name": name},
            )
            for label, name, clients in rows
            for seed in range(3)
        ]
    )
    assert found["How sure?"] == (
        "'uniform' and 'mine' have the same test accuracy under each of the 3 seeds that both have."
    )
