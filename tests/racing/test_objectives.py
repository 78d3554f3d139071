"""Objectives: what they read from a record, worked out by hand, and which texts are refused."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.racing.costs import cost_of
from fedcohort.racing.objectives import Objective, objectives
from fedcohort.racing.round_costs import round_cost
from fedcohort.racing.row_results import RacedRow
from fedcohort.record import LedgerRow, Run
from fedcohort.study.run_measures import Measured
from tests.experiments import small
from tests.records import played, written


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Four rounds: accuracies 0.2, 0.6, 0.5, 0.7; in each, 1000 bytes, 2 passes, and 10 time units."""
    rows = [
        played(
            t, [0, 1], test_accuracy=accuracy, validation_accuracy=accuracy + 0.1, simulated_time=10.0 * t,
            class_accuracy=[accuracy, 0.1, math.nan] if t != 3 else [],
            client_accuracy=np.linspace(accuracy, 1.0, 12) if t in (2, 4) else None,
            ledger=[
                LedgerRow("training", 4, 500, 460, 1.5, 0.1, "its update and number of samples, loss, steps"),
                LedgerRow("LocalLoss", 10, 20, 20, 0.5, 0.1, "the loss"),
            ],
        )
        for t, accuracy in enumerate((0.2, 0.6, 0.5, 0.7), 1)
    ]  # fmt: skip
    return written(tmp_path_factory.mktemp("objectives") / "run", rows, measures={"clients_every": 2})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("accuracy", 0.7),
        ("validation_accuracy", 0.8),
        ("macro_accuracy", (0.7 + 0.1) / 2),
        ("macro_accuracy@rounds=3", (0.6 + 0.1) / 2),
        ("worst_accuracy", (0.7 + 0.7 + 0.3 / 11) / 2),
        ("accuracy@bytes=3500", 0.5),
        ("accuracy@bytes=3000", 0.5),
        ("accuracy@bytes=999", 0.0),
        ("accuracy@time=20", 0.6),
        ("accuracy@passes=7.9", 0.5),
        ("accuracy@rounds=2", 0.6),
        ("accuracy@disclosure=18", 0.6),
        ("accuracy@disclosure=17.9", 0.2),
        ("worst_accuracy@rounds=3", (0.6 + 0.6 + 0.4 / 11) / 2),
        ("rounds", 4),
        ("time", 40),
        ("bytes", 4000),
        ("passes", 8),
        ("disclosure", 4 * (2 * 2 + 5)),
        ("time@accuracy=0.6", 20),
        ("bytes@accuracy=0.65", 4000),
        ("rounds@accuracy=0.2", 1),
        ("time@accuracy=0.9", 10 * 40),
    ],
)
def test_an_objective_reads_the_record(run: Run, text: str, value: float) -> None:
    (objective,) = objectives(text)
    assert objective.text == text
    assert objective.value_of(Measured(run)) == pytest.approx(value)
    one_more = text == "disclosure"  # which can be 0
    assert objective.score(run) == pytest.approx(-math.log(value + one_more) if objective.is_cost else value)
    assert objective.reached(run) == (text != "time@accuracy=0.9")


def test_costs_of_a_round_are_means_over_rounds_and_seeds(run: Run, tmp_path: Path) -> None:
    """Four rounds of 1000 bytes, 2 passes, 10 units of time, and 9 numbers; and one of the second seed, which costs 240 bytes."""
    other = written(
        tmp_path / "run",
        [played(1, [0], simulated_time=4.0, ledger=[LedgerRow("training", 2, 200, 40, 6.0, 0.1, "its update")])],
        facts={"model bytes": "100"},
        seed=1,
    )
    one, both = (round_cost(RacedRow("a", runs, (), "best")) for runs in ({1: other}, {1: other, 0: run}))
    assert dataclasses.astuple(one) == ("a", 1.0, 2.4, 240.0, 6.0, 4.0, 0.0)
    assert dataclasses.astuple(both) == ("a", 1.5, 6.2, 620.0, 4.0, 7.0, 4.5)
    uneven = written(
        tmp_path / "uneven", [played(t, range(k)) for t, k in enumerate((1, 1, 4), 1)], facts={"model bytes": "100"}
    )
    assert round_cost(RacedRow("a", {0: uneven}, (), "best")).selected == 2.0, "the mean, not the median"


@pytest.mark.parametrize(
    ("text", "unspent"),
    [("accuracy@time=49", False), ("accuracy@time=50", True), ("accuracy@rounds=5", True), ("accuracy@rounds=4", False),
     ("accuracy", False), ("time@accuracy=0.9", False), ("time", False)],
)  # fmt: skip
def test_a_run_leaves_a_limit_unspent_if_another_round_would_fit(run: Run, text: str, unspent: bool) -> None:
    assert objectives(text)[0].unspent(run) is unspent


def test_a_limit_that_is_spent_before_the_first_test_counts_as_no_accuracy(tmp_path: Path) -> None:
    """The model is tested after every third round only."""
    rows = [
        played(t, [0], test_accuracy=accuracy, simulated_time=10.0 * t)
        for t, accuracy in enumerate((math.nan, math.nan, 0.6, math.nan), 1)
    ]
    late = written(tmp_path / "run", rows, measures={"evaluate_every": 3})
    measured = Measured(late)
    found = {
        text: objectives(text)[0].value_of(measured) for text in ("accuracy@time=20", "accuracy@time=35", "accuracy")
    }
    assert found == {"accuracy@time=20": 0.0, "accuracy@time=35": 0.6, "accuracy": 0.6}
    untested = [text for text in (*found, "time@accuracy=0.9") if objectives(text)[0].untested(late)]
    assert untested == ["accuracy@time=20"]


def test_a_cheap_run_that_misses_the_target_is_worse_than_one_with_dear_rounds_that_reaches_it(
    run: Run, tmp_path: Path
) -> None:
    """The whole run that misses needs 40 units of time; the other one reaches the target after 320."""
    rows = [played(t, [0], test_accuracy=t / 4, simulated_time=80.0 * t) for t in (1, 2, 3, 4)]
    (objective,) = objectives("time@accuracy=0.9")
    dear = written(tmp_path / "dear", rows)
    assert objective.score(dear) > objective.score(run)
    assert not objectives("accuracy@disclosure=5")[0].unspent(dear)  # more rounds would not spend it either


def test_a_run_that_discloses_nothing_and_misses_the_target_is_worse_than_one_that_reaches_it(
    run: Run, tmp_path: Path
) -> None:
    """Ten times nothing was nothing, so that a row that never reached the target was as good as one that always does."""
    (objective,) = objectives("disclosure@accuracy=0.6")
    reaches, misses = (
        written(tmp_path / name, [played(t, [0], test_accuracy=accuracy) for t in (1, 2)])
        for name, accuracy in (("reaches", 0.6), ("misses", 0.5))
    )
    assert (objective.score(reaches), objective.score(misses)) == (0.0, pytest.approx(-math.log(10)))
    assert "10 times 1 + the numbers of all its rounds" in objective.about_target
    missed = objectives("disclosure@accuracy=0.9")[0].score(run)  # 36 numbers in four rounds
    assert missed == pytest.approx(-math.log(10 * (1 + 36)))


def test_numbers_are_shown_in_their_unit() -> None:
    accuracy, cost = objectives(["accuracy", "bytes"])
    assert (accuracy.shown(0.912), accuracy.shown_difference(-0.013)) == ("91.2", "−1.3")
    assert accuracy.shown_bound(0.013) == "1.3 points better"
    assert cost.shown(-math.log(2e6)) == "2.0 MB"
    assert cost.shown_difference(math.log(2)) == "−50.0%"
    assert (cost.shown(0.0), cost.shown_difference(0.0)) == ("1 B", "+0.0%")
    assert cost.shown_difference(-math.inf) == "∞%"
    assert cost.shown_bound(math.log(1.25)) == "20.0% better"
    assert [one.words for one in objectives(["accuracy@time=2000", "bytes@accuracy=0.855"])] == [
        "test accuracy at a simulated time of 2,000",
        "bytes to 85.5% test accuracy",
    ]


def rounds_of(numbers: tuple[int, ...], folder: Path) -> list[float]:
    """Scores of runs that reach 60% in these rounds."""
    found = []
    for seed, number in enumerate(numbers):
        rows = [played(t, [0], test_accuracy=0.6 if t >= number else 0.1) for t in range(1, 8)]
        found.append(objectives("rounds@accuracy=0.6")[0].score(written(folder / f"{number} {seed}", rows)))
    return found


def test_a_difference_of_costs_is_the_ratio_of_their_geometric_means(tmp_path: Path) -> None:
    """It was that of 1 + cost, +126.8%, and 5 rounds were within 20% of 4."""
    (objective,) = objectives("rounds@accuracy=0.6")
    few, many = (float(np.mean(rounds_of(numbers, tmp_path))) for numbers in ((2, 1, 2), (5, 6, 4)))
    assert math.exp(-few) == pytest.approx((2 * 1 * 2) ** (1 / 3))
    assert objective.shown_difference(many - few) == "+210.7%"
    assert math.exp(few - many) == pytest.approx((5 * 6 * 4 / (2 * 1 * 2)) ** (1 / 3))
    assert objective.about_mean == "geometric mean over seeds"


def test_numbers_that_can_be_none_are_compared_as_one_more(tmp_path: Path) -> None:
    (objective,) = objectives("disclosure")
    none = written(tmp_path / "none", [played(1, [0])])
    assert objective.value_of(Measured(none)) == 0
    assert objective.score(none) == 0
    assert objective.shown(-math.log(1 + 36)) == "36"
    assert objective.about_mean == (
        "since there can be none, what is compared is 1 + the number; geometric mean of this over seeds, minus 1"
    )


def test_a_run_that_cost_nothing_has_a_finite_score(tmp_path: Path) -> None:
    (objective,) = objectives("bytes")
    nothing = objective.score(written(tmp_path / "nothing", [played(1, [])]))
    assert math.isfinite(nothing)
    assert nothing > -math.log(1)
    assert objective.shown(nothing) == "0 B"
    assert cost_of("bytes", nothing) == 0


def test_declined_clients_disclose_their_reports(tmp_path: Path) -> None:
    """Two rounds with 10 clients that train and report five numbers each, of which 2 and 3 upload. It was 5 · (2 + 3) = 25."""
    told = "its update and number of samples, calibration, done, epochs, q_hat, set_size"
    rows = [
        played(t, range(12), trained=10, ledger=[LedgerRow("training", 12 + uploads, 0, 0, 0.0, 0.0, told)])
        for t, uploads in ((1, 2), (2, 3))
    ]
    measured = Measured(written(tmp_path / "run", rows))
    assert objectives("disclosure")[0].value_of(measured) == 2 * 10 * 5


def test_reports_of_one_round_count_although_clients_reported_nothing_in_another(tmp_path: Path) -> None:
    """Three clients train in each of two rounds, and send one number each in the second one."""
    update = "its update and number of samples"
    rows = [
        played(t, range(3), ledger=[LedgerRow("training", 6, 0, 0, 0.0, 0.0, told)])
        for t, told in ((1, update), (2, f"{update}, loss"))
    ]
    assert objectives("disclosure")[0].value_of(Measured(written(tmp_path / "run", rows))) == 3


def test_numbers_that_clients_cannot_measure_are_not_disclosed(tmp_path: Path) -> None:
    """Clients with fewer than nine held-out samples have no conformal quantile, and send four numbers in place of five: those that
    the bytes count. They counted as five."""
    run = fedcohort.run(
        small(
            rounds=2, federation={"clients": 12, "holdout": 0.1, "partition": {"name": "dirichlet_class", "min_size": 20}},
            selection={"name": "conformal", "max_epochs": 2},
        ),
        runs=tmp_path,
    )  # fmt: skip
    small_clients = int((run.portrait.facts["held_out"] < 9).sum())
    assert 0 < small_clients < 12
    model_bytes = int(run.meta["model bytes"])
    sent = (run.ledger["bytes_up"] - model_bytes * run.rounds["admitted"].to_numpy()).sum() / 4
    assert sent == 2 * (5 * 12 - small_clients)
    assert objectives("disclosure")[0].value_of(Measured(run)) == sent


def test_updates_of_a_trial_round_are_no_disclosed_numbers(tmp_path: Path) -> None:
    """The change of its loss, which each available client sends, is one number; the updates of clients that train are not."""
    run = fedcohort.run(
        small(rounds=3, selection={"name": "fedcor", "k": 2, "warmup": 1, "interval": 1, "first_steps": 2, "steps": 2}),
        runs=tmp_path,
    )
    trial = run.ledger.query("kind == 'LossChange'")
    assert trial["round"].tolist() == [3]
    assert trial["bytes_up"].item() == 4 * 12 + 2 * 4 * (64 * 64 + 64 + 64 * 10 + 10)
    # in rounds 1 and 2, the losses before and after round 1; in round 3, their change
    assert objectives("disclosure")[0].value_of(Measured(run)) == 3 * 12


def test_margins_have_defaults_and_become_differences_of_scores() -> None:
    accuracy, cost = objectives(["accuracy", "time"])
    assert (accuracy.margin, accuracy.score_margin) == (0.005, 0.005)
    assert (cost.margin, cost.score_margin) == (0.05, pytest.approx(math.log(1.05)))
    assert [one.margin for one in objectives(["accuracy", "time"], [0.01, 0.1])] == [0.01, 0.1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acuracy", "objective = 'acuracy': no such objective; did you mean 'accuracy'"),
        ("accuracy@byte=5", "objective = 'accuracy@byte=5': write accuracy@bytes=5e6; did you mean 'bytes'"),
        ("time@bytes=5", "objective = 'time@bytes=5': write time@accuracy=0.85"),
        (
            "accuracy@bytes",
            "objective = 'accuracy@bytes': the limit should be a number above 0, as in accuracy@bytes=5e6",
        ),
        ("time@accuracy=85", "objective = 'time@accuracy=85': the limit should be a number above 0 and at most 1"),
        ("accuracy@bytes=nan", "the limit should be a number above 0"),
        ("accuracy@bytes=inf", "the limit should be a number above 0"),
        ([], "objective = []: give one objective, or two for their Pareto front"),
        (["accuracy", "time", "bytes"], "give one objective, or two"),
        (["accuracy", "accuracy"], "is given twice"),
        ([3], "objective = 3: should be a text"),
    ],
)
def test_texts_that_cannot_be_used_are_refused(text: str | list[str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        objectives(text)
    assert message in str(error.value)


@pytest.mark.parametrize("margin", [0.0, 1.0, -0.1, math.nan, True, "0.1"])
def test_margins_that_cannot_be_used_are_refused(margin: float) -> None:
    with pytest.raises(UsageError, match=r"^margin = .*: should be above 0 and below 1, such as 0.005 for accuracy$"):
        objectives("accuracy", [margin])


def test_each_objective_needs_its_margin() -> None:
    with pytest.raises(UsageError, match=r"margin = \[0\.01, 0\.02\]: give one margin for the one objective$"):
        objectives("accuracy", [0.01, 0.02])
    with pytest.raises(UsageError, match="give one margin for each of 2 objectives"):
        objectives(["accuracy", "time"], [0.1])


def test_what_a_run_will_not_have_is_refused_before_it_is_played() -> None:
    with pytest.raises(UsageError, match=r"^measures.clients_every = 0: the objective 'worst_accuracy' .* row 'UCB'"):
        Objective("worst_accuracy").check("UCB", small())
    with pytest.raises(UsageError, match=r"^data.validation = 0: the objective 'validation_accuracy'"):
        Objective("validation_accuracy").check("UCB", small(data={"validation": 0}))
    Objective("worst_accuracy").check("UCB", small(measures={"clients_every": 1}))
    regression = small(data={"name": "diabetes"}, training={"loss": "mse"})
    with pytest.raises(UsageError, match=r"^objective = 'macro_accuracy': the labels in row 'UCB' are numbers, .* use"):
        Objective("macro_accuracy").check("UCB", regression)
    Objective("macro_accuracy").check("UCB", small())
    rare = small(rounds=9, measures={"evaluate_every": 3})
    with pytest.raises(
        UsageError, match=r"^measures.evaluate_every = 3: no model is tested within .*rounds=2' in row 'UCB'; use 1"
    ):
        objectives("accuracy@rounds=2")[0].check("UCB", rare)
    objectives("accuracy@rounds=3")[0].check("UCB", rare)
    objectives("accuracy@rounds=2")[0].check(
        "UCB", small(rounds=2, measures={"evaluate_every": 3})
    )  # after the last round


def test_a_run_without_the_number_is_refused(tmp_path: Path) -> None:
    run = written(tmp_path / "run", [played(1, [0], test_accuracy=math.nan)])
    with pytest.raises(UsageError, match=r"^objective = 'accuracy': .*run has no test accuracy; choose another"):
        objectives("accuracy")[0].score(run)


def test_a_regression_that_diverges_counts_as_a_low_score(tmp_path: Path) -> None:
    """Tested after every second round, and after the last one: 0.3, diverged, diverged."""
    rows = [
        played(t, [0], test_accuracy=score, simulated_time=10.0 * t)
        for t, score in enumerate((math.nan, 0.3, math.nan, math.nan, -math.inf), 1)
    ]
    measured = Measured(written(tmp_path / "run", rows, measures={"evaluate_every": 2}))
    found = [
        dataclasses.replace(objectives(text)[0], labels="numbers").value_of(measured)
        for text in ("accuracy", "accuracy@time=35", "accuracy@time=15")
    ]
    assert found == [-1.0, 0.3, 0.0]
    lost = [played(t, [0], test_accuracy=score) for t, score in enumerate((math.nan, 0.3, math.nan), 1)]
    last = written(tmp_path / "lost", lost, measures={"evaluate_every": 2})
    assert dataclasses.replace(objectives("accuracy")[0], labels="numbers").score(last) == -1.0, "also without a score"
    low = written(tmp_path / "low", [played(1, [0], test_accuracy=-40.0)])
    assert dataclasses.replace(objectives("accuracy")[0], labels="numbers").score(low) == -1.0


def test_objectives_of_a_regression_name_its_scores() -> None:
    texts = ["accuracy", "worst_accuracy@bytes=5e6", "time@accuracy=0.5"]
    found = [dataclasses.replace(objectives(text)[0], labels="numbers") for text in texts]
    assert [one.words for one in found] == [
        "test R²",
        "score of the worst-served 10% of clients at 5.0 MB",
        "simulated time to a test R² of 0.5",
    ]
    assert [one.heading for one in found] == ["R²", "worst score@bytes=5e+06", "time@R²=0.5"]
    assert found[0].shown(0.4321) == "0.432"
    assert found[0].shown_difference(-0.02) == "−0.020"
    assert found[0].shown_bound(0.02) == "0.020 better"


def test_a_race_of_a_regression_does_not_speak_of_accuracy(tmp_path: Path) -> None:
    from fedcohort.report import terminal

    experiment = small(
        rounds=1, data={"name": "diabetes"}, model="logistic", training={"loss": "mse", "lr": 0.02},
        federation={"clients": 4, "partition": "iid"}, variants=[{"label": "UCB", "selection": {"name": "ucb"}}],
    )  # fmt: skip
    result = fedcohort.race(experiment, runs=tmp_path, max_seeds=2)
    text = terminal.as_text(terminal.race(result))
    assert "mean R²" in text
    assert "test R² " in result.recommendation
    assert "accurac" not in text.lower()
    assert " points" not in text
    assert "%" not in result.recommendation.split("(")[0]


def test_intervals_of_accuracies_end_where_no_larger_difference_is_possible() -> None:
    """An interval of a race ended at +110.6 points."""
    accuracy, cost = (objectives([text])[0] for text in ("accuracy", "bytes"))
    assert accuracy.possible(-0.1, -1.306, 1.106) == (-0.1, -1.0, 1.0)
    assert accuracy.possible(-0.1, -0.2, 0.1) == (-0.1, -0.2, 0.1)
    assert accuracy.possible(-0.1, -math.inf, math.inf) == (-0.1, -math.inf, math.inf), "too few seeds"
    assert cost.possible(-0.1, -1.306, 1.106) == (-0.1, -1.306, 1.106)
