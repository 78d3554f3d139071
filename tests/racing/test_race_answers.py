"""What the result of a race says: the recommendation, how sure it is, what it cost, and how to read the table."""

import math
from dataclasses import replace
from typing import Any

import pytest

from fedcohort.racing.objectives import objectives
from fedcohort.racing.result import Race
from fedcohort.racing.row_results import BEST, DROPPED, NOT_BETTER, UNDECIDED, Cost, RacedRow
from fedcohort.report import terminal


def row(label: str, state: str, scores: list[float], **values: Any) -> RacedRow:
    """A row without runs, of which each cost 100 bytes and 2 seconds."""
    runs: Any = dict.fromkeys(range(len(scores)))
    cost = Cost(1, 100, 3, 50, 2).times(len(scores))
    return RacedRow(label, runs, (tuple(scores),), state, cost=cost, **{"reached": len(scores)} | values)


def race(*rows: RacedRow, ended: str = "best", objective: str = "accuracy") -> Race:
    return Race("made up", tuple(objectives(objective)), rows, ended, 0.95, {})


def test_the_recommendation_says_how_sure_it_is() -> None:
    first = row("A", BEST, [0.9] * 10)
    worse = row("B", DROPPED, [0.5] * 8, dropped_by="A", dropped_after=8, difference=-0.4, low=-0.5, high=-0.1)
    near = row("C", NOT_BETTER, [0.899] * 10, difference=-0.001, low=-0.006, high=0.004)
    open_ = row("D", UNDECIDED, [0.89] * 10, difference=-0.01, low=-0.04, high=0.02)
    assert race(first, worse).recommendation == (
        "Recommended: 'A', test accuracy 90.0% over 10 seeds. The other row is not better (95% confidence)."
    )
    assert race(first, near, worse, ended="settled").recommendation == (
        "Recommended: 'A', test accuracy 90.0% over 10 seeds. 1 row is dropped; 'C' is at most 0.4 points "
        "better, which does not matter (95% confidence)."
    )
    assert race(first, open_, near, worse, worse, ended="minutes").recommendation == (
        "Recommended: 'A', test accuracy 90.0% over 10 seeds. 2 rows are dropped; 'D' and 'C' are at most 2.0 points better "
        "(95% confidence). The race ended at its time limit."
    )
    assert (
        "over 10 seeds. None of the other 2 rows is better (95% confidence)."
        in race(first, worse, worse).recommendation
    )
    near_ones = [row(label, NOT_BETTER, [0.899] * 10, difference=-0.001, low=-0.006, high=0.004) for label in "CDEFGH"]
    assert "'C', 'D', 'E', 'F', 'G' and 1 more row are at most" in race(first, *near_ones).recommendation
    assert race(first, worse).at_most_better == 0
    assert race(first, open_, near).at_most_better == 0.02


@pytest.mark.parametrize(
    ("objective", "high", "words"),
    [
        ("time", math.log(1.25), "at most 20.0% better"),  # of 100 s, 80 s may be enough
        ("time", math.log(1.9), "at most 47.4% better"),
        ("time", math.log(2.1), "not told apart from it"),
        ("accuracy", 0.8, "at most 80.0 points better"),
        ("accuracy", 1.0, "not told apart from it"),
    ],
)
def test_a_row_that_may_be_twice_as_good_is_not_told_apart(objective: str, high: float, words: str) -> None:
    scores = [-math.log(100.0)] * 3 if objective == "time" else [0.1] * 3
    other = row("B", UNDECIDED, scores, difference=0.0, low=-high, high=high)
    said = race(row("A", BEST, scores), other, objective=objective).recommendation
    assert f"over 3 seeds. 'B' is {words} (95% confidence)." in said


def test_the_cost_says_what_was_saved() -> None:
    result = race(row("A", BEST, [0.9] * 10), row("B", DROPPED, [0.5] * 5, dropped_by="A", dropped_after=5))
    assert (result.cost.runs, result.grid_cost.runs) == (15, 20)
    assert (result.cost.bytes, result.grid_cost.bytes) == (1500, 2000)
    assert (
        "A run of 'A' costs 100 B, 3 client passes, a simulated time of 50 and 2.0 s of wall time." in result.about_cost
    )
    assert "The race took 15 runs" in result.about_cost
    assert "All 2 rows with 10 seeds would be 20 runs: 1.3 times as many" in result.about_cost
    assert repr(result) == "<Race made up, 2 rows, 15 runs: A, no other is better>"


def test_a_race_that_saved_nothing_says_so() -> None:
    """190 runs were "1.0 times as many, and 1.0 times the wall time"."""
    first = row("A", BEST, [0.9] * 10)
    equal = race(first, row("B", DROPPED, [0.5] * 10, dropped_by="A", dropped_after=10)).about_cost
    assert equal.endswith(
        "The race took 20 runs: 2.0 kB, 60 client passes, a simulated time of 1,000 and 40.0 s of wall time. "
        "All rows have played the same seeds, so that it saved no runs."
    )
    others = [row(str(i), UNDECIDED, [0.9] * 10, high=0.1) for i in range(8)]
    little = race(first, *others, row("B", DROPPED, [0.5] * 9, dropped_by="A", dropped_after=9)).about_cost
    assert little.endswith("All 10 rows with 10 seeds would be 100 runs.")


def test_only_dropped_rows_are_explained() -> None:
    first, near = row("A", UNDECIDED, [0.9] * 5), row("C", UNDECIDED, [0.85] * 5, difference=-0.05, low=-0.1, high=0.02)
    worse = row("B", DROPPED, [0.5] * 5, dropped_by="A", dropped_after=5, difference=-0.4, low=-0.5, high=-0.1)
    assert race(first, near, ended="seeds").about_confidence.startswith(
        "With 95% confidence, at any time, the best row"
    )
    explained = race(first, near, worse, ended="seeds").about_confidence
    assert explained.startswith("Dropped: another row is clearly better. With 95% confidence")
    assert explained.endswith(" Of rows that are equally good, some can be dropped."), (
        "the confidence is that of the best"
    )
    assert "equally good" not in race(first, near, ended="seeds").about_confidence


def test_a_race_with_too_few_seeds_recommends_nothing() -> None:
    """After two seeds, which cannot give an interval, a row was recommended."""
    first = row("A", UNDECIDED, [0.9] * 2)
    unknown = row("B", UNDECIDED, [0.85] * 2, difference=-0.05, low=-math.inf, high=math.inf)
    known = row("C", UNDECIDED, [0.85] * 2, difference=-0.05, low=-0.2, high=0.1)
    assert race(first, unknown, ended="seeds").recommendation == (
        "The race cannot tell yet which row is the best: too few seeds (2). So far, 'A' has the best mean, test accuracy 90.0%. The "
        "race ended at its largest number of seeds."
    )
    assert race(first, known, unknown, ended="seeds").recommendation.startswith("Recommended: 'A'")


def test_a_cost_is_shown_as_a_cost() -> None:
    scores = [-math.log(2000)] * 3
    result = race(
        row("A", UNDECIDED, scores),
        row("B", UNDECIDED, scores, difference=0.0, low=-math.log(2), high=math.log(1.25)),
        ended="seeds",
        objective="time@accuracy=0.8",
    )
    assert result.recommendation == (
        "Recommended: 'A', simulated time to 80% test accuracy: 2,000 over 3 seeds. 'B' is at most 20.0% better (95% confidence). The "
        "race ended at its largest number of seeds."
    )
    assert result.table["time@accuracy=0.8"].tolist() == pytest.approx([2000, 2000])


def test_a_target_that_was_missed_and_a_limit_with_room_are_named() -> None:
    scores = [-math.log(2000)] * 3
    missed = race(row("A", BEST, scores, reached=1), row("B", DROPPED, scores), objective="time@accuracy=0.8")
    assert missed.recommendation.endswith(
        " 'A' reached the target in 1 of 3 seeds only: use more rounds, or a lower target."
    )
    assert missed.about_limits == ""
    never = race(row("A", BEST, scores, reached=0), row("B", DROPPED, scores), objective="time@accuracy=0.8")
    assert never.recommendation == (
        "No row can be recommended. No run of 'A' reached the target: use more rounds, or a lower target."
    )
    early = race(row("A", BEST, [0.9] * 3), row("B", DROPPED, [0.5] * 3, unspent=2), objective="accuracy@time=400")
    assert early.about_limits == (
        "Most runs of 'B' end before the limit is spent, and could reach more with more rounds. To compare all rows at the limit, "
        "raise rounds."
    )
    assert race(row("A", BEST, [0.9] * 3), row("B", DROPPED, [0.5] * 3, unspent=1)).about_limits == ""


def test_a_race_in_which_no_run_reached_the_target_begins_with_that() -> None:
    """It began with "Recommended: 'A', simulated time to 80% test accuracy: 2,000", which is ten times the cost of the runs."""
    scores = [-math.log(2000)] * 6
    other = row("B", UNDECIDED, scores, reached=0, difference=0.0, low=-0.1, high=0.1, needed=9)
    never = race(row("A", UNDECIDED, scores, reached=0), other, ended="seeds", objective="time@accuracy=0.8")
    assert never.recommendation == (
        "No row can be recommended. The race ended at its largest number of seeds. No run of 'A' reached the target: use more rounds, "
        "or a lower target."
    )
    assert repr(never) == "<Race made up, 2 rows, 12 runs: A, cannot be recommended>"
    late = race(row("A", BEST, [0.0] * 3, untested=3), row("B", NOT_BETTER, [0.0] * 3), objective="accuracy@bytes=1e5")
    assert late.recommendation.startswith("No row can be recommended. No run of 'A' was tested within the limit")


def test_the_lowest_score_of_a_model_that_diverged_is_explained() -> None:
    """The table said −1.000 ± 0.000, and nothing that this is what a useless model counts."""

    def shown(lowest: float) -> str:
        rows = [row("A", BEST, [0.4, 0.5]), row("B", UNDECIDED, [lowest] * 2, difference=-1.4, low=-1.6, high=-1.2)]
        numbers = [replace(one, labels="numbers") for one in objectives("accuracy")]
        found = Race("made up", tuple(numbers), tuple(rows), "seeds", 0.95, {})
        return " ".join(terminal.as_text(terminal.race(found)).split())

    sentence = "A lower R² than −1, and that of a model that diverged, counts as −1."
    assert sentence in shown(-1.0)
    assert sentence not in shown(-0.9)


def test_a_limit_that_is_spent_before_the_first_test_gives_no_recommendation() -> None:
    """The limit was below the cost of one round, and the answer was "Recommended: 'A', test accuracy at 100 kB: 0.0%"."""
    never = race(row("A", BEST, [0.0] * 3, untested=3), row("B", NOT_BETTER, [0.0] * 3), objective="accuracy@bytes=1e5")
    assert never.recommendation == (
        "No row can be recommended. No run of 'A' was tested within the limit: raise the limit, or measure more often."
    )
    some = race(row("A", BEST, [0.5, 0.5, 0.0], untested=1), row("B", DROPPED, [0.0] * 3, untested=3))
    assert some.recommendation.endswith(
        " Runs of 'A' that spend the limit before their first test count as 0: raise the limit, or measure more often."
    )
    other = race(row("A", BEST, [0.5] * 3), row("B", DROPPED, [0.0] * 3, untested=3))
    assert "first test" not in other.recommendation
    assert other.about_limits == (
        "Runs of 'B' that spend the limit before their first test count as 0: raise the limit, or measure more often."
    )
    assert some.about_limits == other.about_limits, "the recommendation names the other row"


def test_intervals_without_an_end_are_explained() -> None:
    """After five seeds, 37 rows had −4.7 [−∞, ∞] beside them, without a word."""
    first, near = row("A", UNDECIDED, [0.9] * 5), row("C", UNDECIDED, [0.85] * 5, difference=-0.05, low=-0.1, high=0.02)
    unknown = row("B", UNDECIDED, [0.85] * 5, difference=-0.05, low=-math.inf, high=math.inf)
    texts = [" ".join(terminal.as_text(terminal.race(race(first, other)), 80).split()) for other in (unknown, near)]
    assert "−5.0 [−∞, ∞]" in texts[0]
    assert ["[−∞, ∞]: too few seeds for an interval." in text for text in texts] == [True, False]
    timed = " ".join(terminal.as_text(terminal.race(race(first, unknown, objective="time")), 80).split())
    assert "[−100.0, ∞]" in timed
    assert "[−100.0, ∞]: too few seeds for an interval." in timed


@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_narrow_terminals_have_the_differences(width: int) -> None:
    """At 60 columns, the table hid the differences, which the race is about, and kept the numbers of seeds."""
    worse = row(
        "select by loss",
        DROPPED,
        [0.7] * 4,
        dropped_by="A",
        dropped_after=8,
        difference=-0.105,
        low=-0.161,
        high=-0.031,
    )
    text = terminal.as_text(terminal.race(race(row("uniform", BEST, [0.8] * 4), worse), width), width)
    assert "difference" in text
    assert ("−10.5 [−16.1, −3.1]" in text) == (width == 100)
    assert "[−16.1, −3.1]" in text
    assert "dropped after 8" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width


def test_a_front_names_the_rows_that_missed_the_target_once() -> None:
    costs = [-math.log(2000)] * 4
    rows = [
        row(label, UNDECIDED, costs, reached=reached) for label, reached in (("A", 3), ("B", 1), ("C", 0), ("D", 4))
    ]
    rows = [RacedRow(**{**vars(each), "scores": each.scores * 2}) for each in rows]
    front = Race(
        "made up", tuple(objectives(["time@accuracy=0.8", "bytes@accuracy=0.8"])), tuple(rows), "seeds", 0.95, {}
    )
    assert front.recommendation.endswith(
        " 'A' and 'B' reached the target in some of their seeds only: use more rounds, or a lower target."
        " No run of 'C' reached the target, so that this is no recommendation: use more rounds, or a lower target."
    )


def test_an_undecided_race_says_how_many_more_seeds_would_decide_it() -> None:
    first = row("A", UNDECIDED, [0.9] * 6)
    near = row("B", UNDECIDED, [0.85] * 6, difference=-0.05, low=-0.1, high=0.02, needed=9)
    far = row("C", UNDECIDED, [0.85] * 6, difference=-0.05, low=-0.1, high=0.02, needed=23)
    assert race(first, near, ended="seeds").recommendation.endswith(
        " The race ended at its largest number of seeds. About 9 seeds (3 more) would probably decide the race, if differences and "
        "their spread stay as they are."
    )
    assert "About 25 seeds (19 more) would" in race(first, near, far, ended="minutes").recommendation
    close = row("D", UNDECIDED, [0.9] * 6, difference=0.0, low=-0.02, high=0.02, needed=math.inf)
    assert race(first, near, close, ended="seeds").recommendation.endswith(
        "The difference is small beside the spread from seed to seed: 'D' may be worse than 'A', or at most 2.0 points better; "
        "more than 50 seeds would be needed to tell them apart. About 9 seeds (3 more) would probably decide about the other rows, if "
        "differences and their spread stay as they are."
    )
    unknown = row("E", UNDECIDED, [0.9] * 6, difference=0.0, low=-math.inf, high=math.inf, needed=math.inf)
    assert (
        "Differences are small beside the spread from seed to seed: 'D' and 'E' may be worse than 'A', or better; more than"
        in race(first, near, close, unknown, ended="seeds").recommendation
    )
    assert "more)" not in race(first, row("B", DROPPED, [0.5] * 6, needed=9)).recommendation, "it is decided"


def test_an_undecided_front_says_how_many_more_seeds_would_decide_it() -> None:
    """With two objectives, only that rows are not decided yet was said."""

    def front(*needed: float) -> Race:
        rows = [row(f"row {i}", UNDECIDED, [0.5] * 6, needed=each) for i, each in enumerate(needed)]
        both = [RacedRow(**{**vars(each), "scores": each.scores * 2}) for each in rows]
        return Race("made up", tuple(objectives(["accuracy", "bytes"])), tuple(both), "seeds", 0.95, {})

    assert front(9, 12).recommendation.endswith(
        " 2 rows are not decided yet. The race ended at its largest number of seeds. About 12 seeds (6 more) would probably decide "
        "the race, if differences and their spread stay as they are."
    )
    assert front(9, math.inf).recommendation.endswith(
        " 'row 1': differences are small beside the spread from seed to seed; more than 50 seeds would be needed to tell them apart. "
        "About 9 seeds (3 more) would probably decide about the other rows, if differences and their spread stay as they are."
    )


def test_a_recommended_row_whose_training_failed_is_named() -> None:
    failure = "test accuracy is at chance, 10% with 10 classes. Try: train longer."
    said = race(row("A", BEST, [0.1] * 6, failure=failure), row("B", DROPPED, [0.05] * 6)).recommendation
    assert said.endswith(f" 'A' is no sound result: {failure}")


def test_a_target_is_reached_only_if_there_is_one() -> None:
    """Every seed of an objective without a target counted as one that reached it."""
    scores = [-math.log(2000)] * 3
    told, of_target = (
        race(row("A", BEST, scores, reached=2), row("B", DROPPED, scores), objective=text).table["reached"][0]
        for text in ("time", "time@accuracy=0.8")
    )
    assert math.isnan(told)
    assert of_target == 2


def test_a_race_of_one_seed_does_not_say_that_the_first_seed_is_left_out() -> None:
    unknown = {"low": -math.inf, "high": math.inf, "difference": -0.1}
    rows = [row("A", UNDECIDED, [0.9]), *(row(label, UNDECIDED, [0.8], **unknown) for label in "BCD")]
    assert race(*rows, ended="seeds").about_differences.startswith(
        "Difference: to the first row, over the one seed that was played, with an interval"
    )
    more = [row("A", UNDECIDED, [0.9] * 2), *(row(label, UNDECIDED, [0.8] * 2, **unknown) for label in "BCD")]
    assert "over all common seeds but the first, which the means include, with" in race(*more).about_differences
