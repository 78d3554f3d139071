"""The health of a comparison: what is said about failing runs, and what to try."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedcohort
from fedcohort.core.words.score_style import ACCURACY
from fedcohort.record import ClientRow, Run, writing
from fedcohort.report import terminal
from fedcohort.report.data.report_data import gather
from fedcohort.report.notes.failed_training import problem
from fedcohort.report.page import page
from fedcohort.report.tables.compared_rows import compared_rows
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.health import Finding, findings
from fedcohort.study.rows.failing_rows import Checked
from fedcohort.study.run_measures import Measured
from fedcohort.study.targets import Target, common_target, failure, shown_cost
from fedcohort.study.verdicts import Verdict
from tests.experiments import small
from tests.records import played, written
from tests.report.pages import Page

GOOD = {"test_accuracy": 0.8, "class_accuracy": [0.7, 0.8, 0.8, 0.9]}

OTHER = GOOD | {"test_accuracy": 0.81}
"""Another result, so that rows are not equal."""


def row(folder: Path, label: str, *rounds: Any, seeds: int = 3, **values: Any) -> Row:
    """A row whose runs under all seeds have the same rounds."""
    runs = {
        seed: written(folder / f"{label}{seed}", list(rounds), label=label, seed=seed, **values)
        for seed in range(seeds)
    }
    return Row(label, runs[0].described, runs)


def declined(q_hat: float) -> ClientRow:
    reports = {"q_hat": q_hat} if math.isfinite(q_hat) else {}
    return ClientRow(0, "declined", reports={**reports, "set_size": 2.0})


CONFORMAL: dict[str, Any] = {
    "federation": {"clients": 4, "holdout": 0.2, "partition": "iid"},
    "selection": {"name": "conformal", "alpha_cp": 0.01, "max_epochs": 7},
}


@pytest.fixture
def good(tmp_path: Path) -> Row:
    return row(tmp_path, "good", played(1, [0, 1], **GOOD))


def kinds(*rows: Row) -> list[tuple[str, tuple[str, ...]]]:
    return [(finding.kind, finding.rows) for finding in Comparison("x", rows).health]


def test_sound_runs_have_no_finding(good: Row) -> None:
    compared = Comparison("x", (good,))
    assert compared.health == []
    assert "Try:" not in terminal.as_text(terminal.comparison(compared))


@pytest.mark.parametrize(
    ("quantile", "advice"),
    [
        (math.inf, "raise selection.alpha_cp (at 0.01, a client needs 99 held-out samples), or give clients more data"),
        (
            0.62,
            (
                "the smallest quantile was 0.62, and selection.theta = 0.25; take more steps (a smaller training.batch_size, now 16, "
                "or more selection.max_epochs, now 7), raise selection.alpha_cp (now 0.01)"
            ),
        ),
    ],
)
def test_a_conformal_run_that_admits_no_client(tmp_path: Path, good: Row, quantile: float, advice: str) -> None:
    rounds = [played(t, [declined(quantile)], test_accuracy=0.1, class_accuracy=[0.0, 0.1, 0.2, 0.1]) for t in (1, 2)]
    bad = row(tmp_path, "cp", *rounds, **CONFORMAL)
    compared = Comparison("x", (good, bad))
    finding, missed, _ = compared.health
    assert (finding.kind, finding.rows) == ("no update", ("cp",))
    assert missed == Finding(
        "target", ("cp",), "no seed reached the target accuracy, 80%", "first follow the advice about this row above"
    )
    assert (
        finding.text
        == "no update entered the model in any of the 6 rounds of its 3 seeds: the model is the initial one"
    )
    assert advice in finding.advice
    text = " ".join(terminal.as_text(terminal.comparison(compared)).split())
    assert f"! 'cp': {finding.text}. Try: {finding.advice}." in text
    assert compared.to_json()["health"][0]["advice"] == finding.advice
    shown = Page(page(gather([run for one in (good, bad) for run in one.runs.values()])))
    assert f"cp' : {finding.text}. Try: {finding.advice}." in shown.prose
    assert shown.prose.index("Health") < shown.prose.index("Which strategy?") < shown.prose.index("1 Result")


def test_the_smallest_quantile_is_that_of_all_rounds_and_seeds(tmp_path: Path) -> None:
    quantiles = {0: (0.3, 0.117), 1: (0.0144, 0.2), 2: (math.inf, math.inf), 3: (0.0165, math.inf)}
    runs = {
        seed: written(
            tmp_path / str(seed),
            [played(t, [declined(own)], test_accuracy=0.1) for t, own in enumerate(of_rounds, start=1)],
            label="cp",
            seed=seed,
            **CONFORMAL,
        )
        for seed, of_rounds in quantiles.items()
    }
    finding = Comparison("x", (Row("cp", runs[0].described, runs),)).health[0]
    assert (
        finding.text
        == "no update entered the model in any of the 8 rounds of its 4 seeds: the model is the initial one"
    )
    assert finding.advice.startswith(
        "the smallest quantile was 0.0144 to 0.117, depending on the seed, and selection.theta = 0.25; take more steps"
    )


def test_the_rule_of_set_sizes_is_not_said_to_have_a_threshold_of_quantiles(tmp_path: Path) -> None:
    selection = CONFORMAL["selection"] | {"rule": "set_size", "max_size": 1.2}
    own = {"q_hat": 0.62, "set_size": 2.5}
    rounds = [played(1, [dataclasses.replace(declined(0.62), reports=own)], test_accuracy=0.1)]
    bad = row(tmp_path, "cp", *rounds, **{**CONFORMAL, "selection": selection, "training": {"batch_size": 0}})
    advice = Comparison("x", (bad,)).health[0].advice
    assert advice == (
        "the smallest mean size of prediction sets was 2.5, and selection.max_size = 1.2; take more steps (a smaller "
        "training.batch_size, now all samples, or more selection.max_epochs, now 7), raise selection.alpha_cp (now 0.01) or max_size, "
        "or give clients more data"
    )


def test_some_rounds_without_an_update(tmp_path: Path, good: Row) -> None:
    late = [ClientRow(0, "late"), ClientRow(1, "late")]
    rounds = [played(1, late, **GOOD), played(2, late, **GOOD), played(3, [0], **GOOD)]
    finding = Comparison("x", (good, row(tmp_path, "slow", *rounds))).health[0]
    assert (
        finding.text == "no update entered the model in 6 of the 9 rounds of its 3 seeds, which repeat the round before"
    )
    one = row(tmp_path / "one", "slow", *rounds, seeds=1)
    assert Comparison("x", (one,)).health[0].text.startswith("no update entered the model in 2 of its 3 rounds, which")
    nobody = row(tmp_path / "nobody", "slow", *rounds, played(4, [], available=0, **GOOD))
    assert "in 6 of the 9 rounds with selected clients of its 3 seeds" in Comparison("x", (nobody,)).health[0].text
    assert "systems.deadline" in finding.advice
    assert kinds(row(tmp_path / "b", "b", *(played(t, late if t == 1 else [0], **GOOD) for t in (1, 2, 3)))) == []


def test_rows_in_which_no_client_was_available_or_selected(tmp_path: Path, good: Row) -> None:
    """The advice was to raise the learning rate, because the test loss hardly changed."""
    initial = {"test_accuracy": 0.1, "class_accuracy": [0.0, 0.1, 0.2, 0.1], "test_loss": 1.4}
    away, none = ([played(t, [], available=there, **initial) for t in (1, 2)] for there in (0, 12))
    found = Comparison("x", (good, row(tmp_path / "a", "away", *away), row(tmp_path / "n", "none", *none))).health
    assert [one for one in found if one.kind not in ("target", "few seeds")] == [
        Finding(
            "no update", ("away",), "no client was available in any round of its 3 seeds: the model is the initial one",
            "let more clients be available (systems.availability), or play more rounds",
        ),
        Finding(
            "no update", ("none",), "no client was selected in any round of its 3 seeds: the model is the initial one",
            "let the strategy select some clients",
        ),
    ]  # fmt: skip
    one = row(tmp_path / "one", "one", *away, seeds=1)
    assert Comparison("x", (one,)).health[0].text == (
        "no client was available in any of its 2 rounds: the model is the initial one"
    )
    some = Row("some", good.experiment, {**good.runs, 0: one.runs[0]})
    assert Comparison("x", (some,)).health[0].text == (
        "no client was available in any round of 1 of its 3 seeds: the model is the initial one"
    )


def test_models_that_know_one_class_guess_or_diverged(tmp_path: Path, good: Row) -> None:
    one = row(tmp_path, "one", played(1, [0], test_accuracy=0.25, class_accuracy=[0.0, 1.0, 0.0, 0.0]))
    guess = row(tmp_path, "guess", played(1, [0], test_accuracy=0.28, class_accuracy=[0.3, 0.1, 0.5, 0.22]))
    hot = row(tmp_path, "hot", played(1, [ClientRow(0, "admitted"), ClientRow(1, "diverged")], **OTHER))
    assert kinds(good, one, guess, hot) == [
        ("diverged", ("hot",)),
        ("one class", ("one",)),
        ("chance", ("guess",)),
        ("target", ("one", "guess")),
        ("few seeds", ()),
    ]
    by_kind = {finding.kind: finding for finding in Comparison("x", (good, one, guess, hot)).health}
    assert by_kind["diverged"].text == (
        "3 of 6 updates had NaN or infinite entries and were dropped, the first in round 1 of seeds 0, 1 and 2"
    )
    late = [ClientRow(0, "diverged"), ClientRow(1, "late"), ClientRow(2, "failed"), ClientRow(3, "declined")]
    (of_two,) = (
        one
        for one in Comparison("x", (good, row(tmp_path, "late", played(1, late, **OTHER)))).health
        if one.kind == "diverged"
    )
    assert of_two.text.startswith("3 of 6 updates had NaN"), "updates of late and failed clients did not arrive"
    every = row(tmp_path, "every", played(1, [ClientRow(0, "diverged"), ClientRow(1, "diverged")], **OTHER))
    (none_left,) = (finding for finding in Comparison("x", (good, every)).health if finding.kind == "diverged")
    assert none_left.text.startswith("all 6 updates had NaN or infinite entries and were dropped, "), "not 6 of 6"
    assert by_kind["one class"].text == "the last model of 3 of 3 seeds predicts one class for every sample"
    assert by_kind["chance"].text == "test accuracy is at chance, 25% with 4 classes"


@pytest.mark.parametrize(
    "data", [{"name": "flats.csv"}, {"name": "flats.csv", "standardise": False}, {"name": "digits"}]
)
def test_own_tables_as_they_stand_may_need_standardization(
    data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = row(tmp_path, "one", played(1, [0], test_accuracy=0.25, class_accuracy=[0.0, 1.0, 0.0, 0.0]), data=data)
    guess = row(tmp_path, "guess", played(1, [0], test_accuracy=0.28, class_accuracy=[0.3, 0.1, 0.5, 0.22]), data=data)
    hot = row(tmp_path, "hot", played(1, [ClientRow(0, "admitted"), ClientRow(1, "diverged")], **GOOD), data=data)
    mend = ("diverged", "one class", "chance")
    advice = [finding.advice for finding in Comparison("x", (one, guess, hot)).health if finding.kind in mend]
    monkeypatch.setattr(Run, "labels", "numbers")
    numbers = row(tmp_path, "numbers", played(1, [0], test_accuracy=-3.0), data=data, training={"loss": "mse"})
    (finding,) = Comparison("x", (numbers,)).health
    assert finding.text.startswith("test R² is at most 0")
    advice.append(finding.advice)
    assert len(advice) == 4
    hint = "standardise the features (data.standardise = true), "
    assert all(text.startswith(hint) == (data == {"name": "flats.csv"}) for text in advice), advice


@pytest.mark.parametrize("recorded", ["yes", "no", ""])
def test_data_that_are_standardised_by_their_function_need_no_advice(recorded: str, tmp_path: Path) -> None:
    """A function can return "standardise": True; the record knows it. Older records do not."""
    own = {"name": "patients.csv"}
    facts = {"standardised": recorded} if recorded else {}
    lost = row(tmp_path, "lost", played(1, [ClientRow(0, "diverged")], **GOOD), data=own, facts=facts)
    advice = {finding.kind: finding.advice for finding in Comparison("x", (lost,)).health}
    hint = "standardise the features (data.standardise = true), " * (recorded != "yes")
    assert advice["no update"] == f"{hint}lower training.lr"
    assert advice["diverged"].startswith(f"{hint}lower training.lr")


@pytest.mark.parametrize("standardise", [True, False])
def test_the_record_says_whether_features_are_standardised(standardise: bool, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(80, 3)).astype(np.float32) * 1e30, np.arange(80) % 2
    data = fedcohort.from_arrays((x[:60], y[:60]), (x[60:], y[60:]), standardise=standardise)
    run = fedcohort.run(small(rounds=1), data=data, runs=tmp_path)
    assert run.meta["standardised"] == ("yes" if standardise else "no")
    text = str([finding.advice for finding in Comparison("x", (Row("a", run.described, {0: run}),)).health])
    assert ("standardise the features" in text) == (not standardise)


def test_imbalanced_test_sets_do_not_hide_a_model_at_chance(tmp_path: Path) -> None:
    """Nine tenths of the samples are of the second class, so the accuracy is high, but the mean over classes is 1/2."""
    guess = row(tmp_path, "guess", played(1, [0], test_accuracy=0.85, class_accuracy=[0.12, 0.93]))
    assert kinds(guess) == [("chance", ("guess",))]


def test_health_and_target_call_the_same_rows_at_chance(tmp_path: Path, good: Row) -> None:
    """The caption of the target went by the best accuracy over samples, and health by the last one over classes: a model that guesses
    the larger class lowered the target to 70%, and one that is at chance only after its best round was not named there."""
    guess = row(tmp_path, "guess", played(1, [0], test_accuracy=0.7, class_accuracy=[0.2, 0.25, 0.25, 0.3]))
    back = Row(
        "back",
        guess.experiment,
        {
            seed: written(
                tmp_path / f"back{seed}",
                [
                    played(1, [0], test_accuracy=0.75, class_accuracy=[0.7] * 4),
                    played(2, [0], test_accuracy=0.25, class_accuracy=[0.2, 0.3, 0.3, 0.2]),
                ],
                label="back",
                seed=seed,
            )
            for seed in range(3)
        },
    )
    compared = Comparison("x", (good, guess, back))
    (chance,) = [finding for finding in compared.health if finding.kind == "chance"]
    assert chance.rows == ("guess", "back")
    assert compared.target == Target(0.8, f"{FROM_RESULTS} (without rows at chance: 'guess', 'back')")


def test_a_small_excess_over_chance_within_the_spread_of_seeds_is_no_success(tmp_path: Path) -> None:
    """13.2 ± 3.1% with 10 classes: the 95% interval of the mean is 5.5% to 20.9%; 13.2 ± 0.3% is better than chance."""
    for name, spread, found in (("wide", 0.031, ["chance"]), ("narrow", 0.003, [])):
        accuracies = (0.132 - spread, 0.132, 0.132 + spread)
        runs = {
            seed: written(
                tmp_path / f"{name}{seed}",
                [played(1, [0], test_accuracy=value, class_accuracy=[value] * 10)],
                label=name,
                seed=seed,
            )
            for seed, value in enumerate(accuracies)
        }
        findings = Comparison("x", (Row(name, runs[0].described, runs),)).health
        assert [finding.kind for finding in findings] == found
        assert all(
            finding.text.startswith("test accuracy cannot be told from chance, 10% with") for finding in findings
        )


def test_one_seed_a_little_above_chance_is_no_success(tmp_path: Path) -> None:
    """A row with a learning rate of 1e-9 had 12.2% under its only seed, and was named best without a word."""
    run = written(tmp_path / "run", [played(1, [0], test_accuracy=0.132, class_accuracy=[0.132] * 10)], label="tiny")
    findings = Comparison("x", (Row("tiny", run.described, {0: run}),)).health
    assert [finding.kind for finding in findings] == ["chance", "few seeds"]
    assert findings[0].text == "test accuracy cannot be told from chance, 10% with 10 classes, with one seed"


@pytest.mark.parametrize(
    ("losses", "shown"),
    [((1.2, 1.6), "a test loss of 1.6"), ((900.0, 650.0), "a test loss of 650"),
     ((1.2, math.inf), "an infinite test loss"), ((1.2, math.nan), "an infinite test loss"),
     ((1.6, 1.39), ""), ((math.nan, math.nan), "")],
)  # fmt: skip
def test_rows_at_chance_with_a_high_loss_need_smaller_steps(
    tmp_path: Path, losses: tuple[float, float], shown: str
) -> None:
    """Equal probabilities for 4 classes have a loss of ln 4 = 1.39."""
    guesses = [[0.3, 0.1, 0.5, 0.22], [0.0, 1.0, 0.0, 0.0]]
    for i, classes in enumerate(guesses):
        rounds = [
            played(t, [0], test_accuracy=0.28, class_accuracy=classes, test_loss=loss)
            for t, loss in enumerate(losses, 1)
        ]
        (finding,) = Comparison("x", (row(tmp_path / str(i), "far", *rounds, training={"lr": 100.0}),)).health[:1]
        hint = f"lower training.lr (now 100.0: with {shown}, steps seem too large), "
        assert finding.advice.startswith(hint) == bool(shown), finding.advice
        others = ("change training.lr", "another training.lr")
        assert any(other in finding.advice for other in others) == (not shown), (
            "one advice about the learning rate is enough"
        )


@pytest.mark.parametrize(
    ("losses", "grew"), [((2.1, 2.6), False), ((2.45, 2.35), False), ((1.9, 2.6), False), ((2.2, 2.9), True)]
)
def test_short_skewed_runs_with_a_loss_near_that_of_guessing_have_no_too_large_steps(
    tmp_path: Path, losses: tuple[float, float], grew: bool
) -> None:
    """Equal probabilities for 10 classes have a loss of ln 10 = 2.30; after a few rounds with skewed classes it is a little more."""
    rounds = [
        played(t, [0], test_accuracy=0.1, class_accuracy=[0.0, 1.0, *[0.0] * 8], test_loss=loss)
        for t, loss in enumerate(losses, 1)
    ]
    (finding,) = Comparison("x", (row(tmp_path, "short", *rounds),)).health[:1]
    assert finding.kind == "one class"
    assert ("steps seem too large" in finding.advice) == grew


def test_rows_that_fail_in_the_same_way_are_one_finding(tmp_path: Path, good: Row) -> None:
    """A list of a hundred rows, each with a sentence of its own, hid the answers."""
    bad = [
        row(
            tmp_path,
            f"lr {rate}",
            played(1, [0], test_accuracy=0.25, class_accuracy=[0.0, 1.0, 0.0, 0.0], test_loss=1.4),
            played(2, [0], test_accuracy=0.25, class_accuracy=[0.0, 1.0, 0.0, 0.0], test_loss=loss),
            training={"lr": rate},
        )
        for rate, loss in ((0.5, 81.2), (2.0, 2.37e19), (1.0, 6692.0))
    ]
    late = [ClientRow(0, "late")]
    slow = [
        row(tmp_path, f"slow {n}", *(played(t, late if t > 3 - n else [0], **GOOD) for t in (1, 2, 3))) for n in (2, 3)
    ]
    slow.append(row(tmp_path, "slower", *(played(t, late if t > 1 else [0], **GOOD) for t in (1, 2, 3, 4))))
    found = Comparison("x", (good, *bad, *slow)).health
    assert [(one.kind, one.rows) for one in found if one.kind in ("one class", "no update")] == [
        ("no update", ("slow 2", "slower")),
        ("no update", ("slow 3",)),
        ("one class", ("lr 0.5", "lr 2.0", "lr 1.0")),
    ]
    assert found[0].text == (
        "no update entered the model in 6 to 9 of the 9 to 12 rounds of its 3 seeds, which repeat the round before"
    )
    steps = "lower training.lr (now 0.5 to 2.0: with test losses of 81.2 to 2.37e+19, steps seem too large), "
    assert next(one for one in found if one.kind == "one class").advice.startswith(steps)


def test_the_losses_of_all_seeds_of_a_row_are_named(tmp_path: Path) -> None:
    """The loss of one seed was said to be that of the row."""
    one = {"test_accuracy": 0.25, "class_accuracy": [0.0, 1.0, 0.0, 0.0]}
    runs = {
        seed: written(
            tmp_path / str(seed),
            [played(t, [0], test_loss=loss, **one) for t, loss in ((1, 1.4), (2, last))],
            seed=seed,
            training={"lr": 2.0},
        )
        for seed, last in enumerate((6692.0, 81.2, math.inf))
    }
    advice = Comparison("x", (Row("x", runs[0].described, runs),)).health[0].advice
    assert advice.startswith(
        "lower training.lr (now 2.0: with test losses of 81.2 to 6,692 or infinite ones, steps seem too large), "
    )


def test_a_moderate_loss_gets_no_advice_for_an_enormous_one(tmp_path: Path, good: Row) -> None:
    """One sentence called learning rates of 0.05 to 1000 too large, with losses of 3 to 402,829."""
    one = {"test_accuracy": 0.25, "class_accuracy": [0.0, 1.0, 0.0, 0.0]}
    bad = [
        row(
            tmp_path,
            label,
            *(played(t, [0], test_loss=loss, **one) for t, loss in ((1, 1.4), (2, last))),
            training={"lr": lr},
        )
        for label, lr, last in (("moderate", 0.05, 2.0), ("enormous", 1000.0, 4e5))
    ]
    found = [one for one in Comparison("x", (good, *bad)).health if one.kind == "one class"]
    assert [one.rows for one in found] == [("moderate",), ("enormous",)]
    assert "0.05" not in found[1].advice


def test_unfinished_runs_do_not_lower_the_target(tmp_path: Path) -> None:
    """A run that was stopped after a few rounds made every other row reach the target at once."""
    best = [played(t, [0], **(GOOD | {"test_accuracy": 0.2 * t})) for t in (1, 2, 3, 4)]
    rows = (row(tmp_path, "whole", *best), row(tmp_path, "stopped", *best[:2], rounds=4))
    target = Comparison("x", rows).target
    assert target.accuracy == 0.8
    assert "(without rows with unfinished runs: 'stopped')" in target.chosen


def test_the_seeds_are_named_in_which_a_model_knows_one_class(tmp_path: Path, good: Row) -> None:
    """One seed of a row had an accuracy of 80%, and a finding said of the row that it predicts one class."""
    bad = played(1, [0], test_accuracy=0.25, class_accuracy=[0.0, 1.0, 0.0, 0.0])
    rows = []
    for label, failed in (("a", (1,)), ("b", (0, 2))):
        runs = {
            seed: written(
                tmp_path / f"{label}{seed}", [bad if seed in failed else played(1, [0], **GOOD)], label=label, seed=seed
            )
            for seed in range(3)
        }
        rows.append(Row(label, runs[0].described, runs))

    def said(*compared: Row) -> list[str]:
        return [one.text for one in Comparison("x", compared).health if one.kind == "one class"]

    assert said(good, rows[0]) == ["the last model of 1 of 3 seeds (seed 1) predicts one class for every sample"]
    assert said(*rows) == [
        "the last model of 1 to 2 of 3 seeds ('a': seed 1; 'b': seeds 0 and 2) predicts one class for every sample"
    ]
    about = problem(Comparison("x", (good, rows[1])), 1)
    assert about == "under seeds 0 and 2 of 3, its last model predicts one class for every sample"


def test_health_and_notes_ask_for_the_same_number_of_seeds(tmp_path: Path) -> None:
    """The note counted the rows with a verdict only, so that it asked for 6 seeds and health for 7."""
    rows = [
        row(tmp_path, name, played(1, [0, 1], **GOOD | {"test_accuracy": accuracy}), seeds=seeds)
        for name, accuracy, seeds in (("a", 0.80, 3), ("b", 0.81, 3), ("c", 0.82, 2))
    ]
    compared = Comparison("x", tuple(rows))
    assert [one.advice for one in compared.health if one.kind == "few seeds"] == ["set seeds = 7 or more"]
    assert compared.about_verdicts.endswith(
        "With 3 seeds, p cannot be below 0.25; a difference can be clear from 7 seeds on if all rows have them, which makes 2 "
        "comparisons."
    )


def test_too_few_seeds_for_any_clear_difference_are_a_finding(tmp_path: Path) -> None:
    rows = [
        row(tmp_path, name, played(1, [0, 1], **GOOD | {"test_accuracy": accuracy}), seeds=6)
        for name, accuracy in (("a", 0.80), ("b", 0.81), ("c", 0.82))
    ]
    five = [Row(one.label, one.experiment, {seed: one.runs[seed] for seed in range(5)}) for one in rows]
    (finding,) = Comparison("x", tuple(five)).health
    assert finding == Finding(
        "few seeds",
        (),
        "5 seeds cannot show any difference, however large it is: with 2 comparisons, p is at least 0.12; 7 seeds can",
        "set seeds = 7 or more",
    )
    assert Comparison("x", tuple(rows[:2])).health == []
    assert Comparison("x", tuple(five[:1])).health == []


def test_the_advice_on_seeds_counts_rows_that_have_not_begun(tmp_path: Path, good: Row) -> None:
    """Of five rows, two had begun: Health advised 6 seeds for 1 comparison, and the note on verdicts 8 for 4, on the same page."""
    other = row(tmp_path, "other", played(1, [0], **OTHER))
    compared = Comparison("x", (good, other), planned=4)
    (finding,) = compared.health
    assert finding.text == (
        "3 seeds cannot show any difference, however large it is: with 4 comparisons, p is always 1; 8 seeds can"
    )
    assert finding.advice == "set seeds = 8 or more"
    assert "p is always 1; a difference can be clear from 8 seeds on" in compared.about_verdicts
    two = [Row(one.label, one.experiment, {seed: one.runs[seed] for seed in range(2)}) for one in (good, other)]
    assert [finding.advice for finding in Comparison("x", tuple(two), planned=4).health] == ["set seeds = 8 or more"]


def test_a_model_is_only_said_to_predict_one_class_if_it_is_right_about_all_samples_of_it(tmp_path: Path) -> None:
    """A class of which one in ten samples is not recognized is not predicted for every sample."""
    ill = row(tmp_path, "ill", played(1, [0], test_accuracy=0.4, class_accuracy=[0.9, 0.0, 0.0]))
    (finding, *_) = Comparison("x", (ill,)).health
    assert (finding.kind, finding.text) == (
        "one class",
        "the last model of 3 of 3 seeds is right about samples of one class only",
    )
    assert problem(Comparison("x", (ill,)), 0) == "its last model is right about samples of one class only"
    assert failure([Measured(run) for run in ill.runs.values()]) == "that recognize one class"


def test_a_test_set_with_samples_of_one_class_does_not_show_a_failure(tmp_path: Path) -> None:
    """Models that were right about 95% of such a test set were said to predict one class, and to have learned nothing."""
    ours = row(tmp_path, "ours", played(1, [0], test_accuracy=0.95, class_accuracy=[0.95, math.nan, math.nan]))
    assert Comparison("x", (ours,)).health == []


def test_what_is_at_chance_is_the_mean_over_classes_if_the_test_accuracy_is_not(tmp_path: Path) -> None:
    """Beside a test accuracy of 88% stood that the test accuracy is hardly above chance, 50%."""
    ours = row(tmp_path, "ours", played(1, [0], test_accuracy=0.88, class_accuracy=[0.98, 0.05]))
    (finding,) = Comparison("x", (ours,)).health
    assert finding.text == "mean test accuracy over classes is at chance, 50% with 2 classes"
    assert problem(Comparison("x", (ours,)), 0) == "its mean test accuracy over classes is no better than chance"


def test_rows_that_are_too_many_for_any_clear_difference_are_a_finding(good: Row) -> None:
    """p is at least 1/10,000 with many seeds, and 501 times that is above 0.05: more seeds are no advice."""
    checked = Checked("good", [Measured(run) for run in good.runs.values()], 3, Target(math.nan, ""))
    found = [Verdict(20, math.nan, math.nan, "baseline"), *[Verdict(20, 0.0001, 0.0501, "not clear")] * 501]
    (finding,) = findings([checked], ACCURACY, found)
    assert finding.text == (
        "20 seeds cannot show any difference, however large it is: with 501 comparisons, p is at least 0.0501; no number of seeds can"
    )
    assert finding.advice == "compare fewer rows at a time"


def test_few_seeds_and_targets_that_are_never_reached(tmp_path: Path, good: Row) -> None:
    two = row(tmp_path, "two", played(1, [0], **GOOD), seeds=2)
    assert kinds(good, two) == [("few seeds", ("two",)), ("other seeds", ())]
    assert Comparison("x", (two,)).health == [
        Finding("few seeds", (), "2 seeds cannot tell how much the result varies", "set seeds = 3 or more")
    ]
    one = row(tmp_path, "one", played(1, [0], **OTHER), seeds=1)
    cannot = "cannot tell a difference from chance"
    assert [finding for finding in Comparison("x", (good, one, two)).health if finding.kind == "few seeds"] == [
        Finding("few seeds", ("one",), f"1 seed {cannot}", "set seeds = 7 or more"),
        Finding("few seeds", ("two",), f"2 seeds {cannot}", "set seeds = 7 or more"),
    ]
    high = row(tmp_path / "h", "high", played(1, [0], **GOOD), measures={"target_accuracy": 0.95})
    (finding,) = Comparison("x", (high,)).health
    assert (finding.kind, finding.rows, finding.text) == (
        "target",
        ("high",),
        "no seed reached the target accuracy, 95%",
    )
    assert "lower measures.target_accuracy" in finding.advice
    going_on = row(tmp_path / "g", "high", played(1, [0], **GOOD), rounds=5, measures={"target_accuracy": 0.95})
    assert "target" not in [found.kind for found in Comparison("x", (going_on,)).health], "more rounds can reach it"


def test_rows_with_other_seeds_are_not_compared_without_a_word(tmp_path: Path, good: Row) -> None:
    """As after a race, in which the better rows get more seeds: the mean of a row with more seeds is about other runs."""
    more = row(tmp_path, "more", played(1, [0, 1], **GOOD), seeds=5)
    shifted = row(tmp_path, "shifted", played(1, [0, 1], **GOOD), seeds=4)
    shifted = Row("shifted", shifted.experiment, {seed: shifted.runs[seed] for seed in (1, 2, 3)})
    (finding,) = Comparison("x", (good, more)).health
    assert finding.text.startswith("The rows have 3 to 5 seeds: a mean is over the seeds of its row")
    (finding,) = Comparison("x", (good, shifted)).health
    assert finding.text.startswith("The rows have different seeds: ")
    assert "The rows have 3 to 5 seeds" in " ".join(
        terminal.as_text(terminal.comparison(Comparison("x", (good, more)))).split()
    )


def test_runs_that_are_not_equally_far_are_a_finding(tmp_path: Path) -> None:
    """Accuracies after 2 and after 6 rounds are beside each other; one of the runs goes on."""
    ended = row(tmp_path, "ended", *(played(t, [0], **GOOD) for t in range(1, 7)))
    going = row(tmp_path, "going", *(played(t, [0], **GOOD) for t in (1, 2)), rounds=6)
    finding = Comparison("x", (ended, going)).health[0]
    assert (finding.kind, finding.rows) == ("unfinished", ())
    assert finding.text == (
        "3 of 6 runs are not finished, and the runs have played 2 to 6 rounds: accuracies after different numbers of rounds cannot be "
        "compared"
    )
    assert finding.advice == (
        "wait for the other runs, or compare the rounds that all have, with `fedcohort compare RUN… --partial`"
    )
    said = f"{finding.text}. Try: {finding.advice}."
    assert f"! {said}" in " ".join(terminal.as_text(terminal.comparison(Comparison("x", (ended, going)))).split())
    shown = Page(page(gather([run for one in (ended, going) for run in one.runs.values()])))
    assert shown.prose.index("Health") < shown.prose.index(finding.text) < shown.prose.index("Which strategy?")


def test_runs_that_are_equally_far_and_those_that_ended_early_are_no_finding(tmp_path: Path) -> None:
    """All have played 2 of 6 rounds; or one has finished after 2 rounds, as a stopping rule may decide."""
    two = [played(t, [0], **GOOD) for t in (1, 2)]
    few = ("few seeds", ())
    other = [played(t, [0], **OTHER) for t in (1, 2)]
    rows = [row(tmp_path, name, *rounds, rounds=6, seeds=1) for name, rounds in (("a", two), ("b", other))]
    assert kinds(*rows) == [few]
    ended = row(tmp_path / "six", "six", *(played(t, [0], **GOOD) for t in range(1, 7)), seeds=1)
    stopped = row(tmp_path / "stopped", "stopped", *two, rounds=6, seeds=1)
    assert kinds(ended, stopped) == [("unfinished", ()), few]
    with writing(stopped.runs[0]) as writer:
        writer.finish({"w": torch.zeros(1)})
    assert kinds(ended, stopped) == [few]


def test_many_rows_are_not_all_named() -> None:
    assert Finding("chance", ("a", "b"), "", "").about == "'a', 'b': "
    assert Finding("chance", tuple("abcdef"), "", "").about == "'a', 'b', 'c', 'd' and 2 more rows: "
    assert Finding("chance", tuple("abcde"), "", "").about == "'a', 'b', 'c', 'd' and 1 more row: "
    assert Finding("few seeds", (), "", "").about == ""


# --- the target of a comparison -----------------------------------------------------------------------------------------------

FROM_RESULTS = "taken from these results, a level that the mean best accuracy of every row reaches"


def test_a_failing_row_does_not_lower_the_target() -> None:
    names, sound = ["a", "b", "c"], [""] * 3
    assert common_target([0.871, 0.842, 0.07], names, sound) == Target(
        0.84, f"{FROM_RESULTS} (without rows far below the best: 'c')"
    )
    assert common_target([0.871, 0.842, 0.7], names, sound) == Target(0.7, FROM_RESULTS)
    assert Target(0.7, FROM_RESULTS).from_results
    assert not Target(0.7, "measures.target_accuracy").from_results


def test_unknown_accuracies_give_no_target() -> None:
    assert math.isnan(common_target([math.nan], ["a"], [""]).accuracy)
    assert common_target([math.nan, 0.5], ["a", "b"], ["", ""]) == Target(0.5, FROM_RESULTS)


def test_rows_that_all_fail_give_no_target(tmp_path: Path) -> None:
    """The best accuracy of a model that no update entered is that of the initial one, which was "reached" in the first round."""
    failing = ["in which no update was admitted under a seed", "that predict one class"]
    none = common_target([0.4, 0.5], ["a", "b"], failing)
    assert math.isnan(none.accuracy)
    assert none.chosen == "none, because training failed in every row"
    assert common_target([0.5], ["a"], ["at chance"]).chosen == "none, because training failed"
    diverged = common_target([0.4, 0.5], ["a", "b"], ["at chance", "with diverged updates"])
    assert diverged == Target(0.5, f"{FROM_RESULTS} (without rows at chance: 'a')"), "b has learned something"

    rounds = [played(t, [ClientRow(0, "declined")], test_accuracy=0.73, class_accuracy=[0.9, 0.4]) for t in (1, 2)]
    failed = row(tmp_path, "failed", *rounds, seeds=1)
    compared = Comparison("x", (failed,))
    assert compared.goal == "target"
    assert compared.table[["rounds_to_target", "bytes_to_target"]].isna().all(axis=None)
    text = " ".join(terminal.as_text(terminal.comparison(compared)).split())
    assert "Target accuracy: none, because training failed. Simulated" in text
    assert "no seed reached the target" not in text
    shown = Page(page(gather([failed.runs[0]])))
    assert "Target accuracy: none, because training failed." in shown.prose
    chosen = row(tmp_path, "chosen", *rounds, seeds=1, measures={"target_accuracy": 0.7})
    assert Comparison("x", (chosen,)).table["rounds_to_target"].tolist() == [1], "a target that the user has set counts"


def test_failing_rows_without_a_score_are_named_beside_the_target() -> None:
    """The models of a regression that diverge can have no finite R², under a seed or all: the words left these rows out."""
    failing = ["", "with diverged updates", "in which no update was admitted under a seed"]
    target = common_target([0.27, math.nan, math.nan], ["a", "hot", "hotter"], failing, "R²")
    without = "rows with diverged updates: 'hot'; rows in which no update was admitted under a seed: 'hotter'"
    assert target == Target(0.27, f"{FROM_RESULTS.replace('accuracy', 'R²')} (without {without})")


def test_rows_that_fail_do_not_set_the_target_and_are_named(tmp_path: Path, good: Row) -> None:
    """No update under one seed, one class, an interval over seeds that contains chance, and a diverged update."""
    still = row(tmp_path, "still", played(1, [0], test_accuracy=0.5, class_accuracy=[0.5, 0.5, 0.5, 0.5]))
    empty = [played(1, [ClientRow(0, "declined")], test_accuracy=0.5, class_accuracy=[0.5, 0.5, 0.5, 0.5])]
    still = Row("still", still.experiment, {**still.runs, 2: written(tmp_path / "new", empty, label="still", seed=2)})
    one = row(tmp_path, "one", played(1, [0], test_accuracy=0.4, class_accuracy=[0.0, 1.0, 0.0, 0.0]))
    runs = {
        seed: written(
            tmp_path / f"near{seed}", [played(1, [0], test_accuracy=value, class_accuracy=[value] * 4)], seed=seed
        )
        for seed, value in enumerate((0.25, 0.34, 0.37))
    }
    near = Row("near", runs[0].described, runs)
    hot = row(tmp_path, "hot", played(1, [ClientRow(0, "admitted"), ClientRow(1, "diverged")], **GOOD))
    assert Comparison("x", (good, still, one, near, hot)).target == Target(
        0.8,
        f"{FROM_RESULTS} (without rows in which no update was admitted under a seed: 'still'; rows that predict one class: 'one'; "
        "rows at chance: 'near'; rows with diverged updates: 'hot')",
    )


def test_the_last_model_of_a_regression_diverged(tmp_path: Path) -> None:
    """Its updates are finite, but its predictions are too large for a loss: Health advised more rounds, and tables had "–" for ∞."""
    numbers: dict[str, Any] = {
        "data": {"name": "diabetes"}, "training": {"loss": "mse"}, "facts": {"labels": "numbers"},
    }  # fmt: skip

    def tested(t: int, score: float) -> Any:
        return played(t, [0], test_accuracy=score, test_loss=1 - score, class_accuracy=[])

    good = row(tmp_path, "good", tested(1, 0.4), tested(2, 0.45), **numbers)
    lost = (tested(1, 0.4), tested(2, math.nan))
    hot = row(tmp_path, "hot", *lost, measures={"target_accuracy": 0.43}, **numbers)
    last = written(tmp_path / "sound", [tested(1, 0.4), tested(2, 0.42)], label="hot", seed=2, **numbers)
    some = Row("hot", hot.experiment, {**hot.runs, 2: last})
    for failing, seeds in ((hot, "3 of 3 seeds"), (some, "2 of 3 seeds")):
        compared = Comparison("x", (good, failing))
        first, missed = compared.health[:2]
        assert (first.kind, first.rows) == ("chance", ("hot",))
        assert first.text == f"the last model of {seeds} diverged: it has no finite test loss, and no R²"
        assert first.advice == "lower training.lr (now 0.05), or limit gradients with training.clip_norm"
        assert (missed.kind, missed.advice) == ("target", "first follow the advice about this row above")
        assert problem(compared, 1)
        assert math.isinf(shown_cost(compared_rows(compared)[1], "rounds_to_target"))
    never = row(tmp_path, "never", tested(1, math.nan), tested(2, math.nan), **numbers)
    compared = Comparison("x", (hot, never))
    costs = [shown_cost(each, "rounds_to_target") for each in compared_rows(compared)]
    assert costs == [math.inf, math.inf], "no score is known in any round, and no update diverged"
    chosen = Comparison("x", (good, Row("hot", good.experiment, hot.runs))).target.chosen
    assert chosen == f"{FROM_RESULTS.replace('accuracy', 'R²')} (without rows whose last model diverged: 'hot')"
    far = row(tmp_path, "far", tested(1, -3.0), tested(2, -2.5), **numbers)
    chosen = Comparison("x", (good, far)).target.chosen  # "rows at chance" were said to have this R²
    assert chosen.endswith(" (without rows no better than the mean of the labels: 'far')")


@pytest.mark.parametrize(
    ("statuses", "advice"),
    [
        (["failed", "failed", "late"], "raise systems.deadline, or train fewer epochs: most clients that did not fail were late"),
        (["failed", "failed", "failed"], "lower systems.dropout, or select more clients"),
        (["late", "late", "failed"], "raise systems.deadline, or train fewer epochs"),
    ],
)  # fmt: skip
def test_a_deadline_that_no_client_meets_is_named_although_more_clients_fail(
    statuses: list[Any], advice: str, tmp_path: Path
) -> None:
    """With a deadline that no client met, and a dropout of 0.5, the advice was to lower the dropout."""
    clients = [ClientRow(client, status) for client, status in enumerate(statuses)]
    (finding,) = (
        one
        for one in Comparison("x", (row(tmp_path, "late", played(1, clients, **GOOD)),)).health
        if one.kind == "no update"
    )
    assert finding.advice == advice
