"""Sentences about rows in which training failed, from worked findings and differences."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedcohort.core.words.score_style import score_style
from fedcohort.report.notes import failed_training
from fedcohort.report.notes.failed_training import (
    _in_seeds,
    about_failed,
    about_judged,
    failed,
    finding_kinds,
    problem,
    untrained,
)
from fedcohort.study.rows.failing_rows import Finding

HEALTH = [
    Finding("few seeds", (), "1 seed cannot tell a difference from chance", "set seeds = 3"),
    Finding("chance", ("a", "b"), "test accuracy is at chance", "train longer"),
    Finding("diverged", ("c",), "1 of 2 updates had NaN entries", "lower training.lr"),
    Finding("one class", ("b", "d"), "the last model predicts one class", "select more clients"),
    Finding("large loss", ("a",), "the last test loss is 99", "lower training.lr"),
]


def compared(labels: str, seeds: int = 1, **values: Any) -> Any:
    """A comparison of rows with these labels and as many seeds, as far as the sentences read it."""
    rows = [SimpleNamespace(label=label, runs=dict.fromkeys(range(seeds))) for label in labels]
    return SimpleNamespace(rows=rows, health=HEALTH, score=score_style(["classes"]), **values)


@pytest.mark.parametrize(("seeds", "enough"), [(1, ""), (2, " (one such seed is enough)")])
@pytest.mark.parametrize(("unfinished", "so_far"), [(False, ""), (True, " so far")])
def test_each_row_is_named_once_with_the_first_reason(seeds: int, enough: str, unfinished: bool, so_far: str) -> None:
    assert about_failed(compared("abcd", seeds), "Not marked", unfinished=unfinished) == (
        f"Not marked, since training failed{so_far}{enough}: 'a', 'b': test accuracy is at chance; 'd': the last model predicts one "
        "class."
    )


def test_one_row_of_several_seeds_is_enough() -> None:
    several = compared("ab")
    several.rows[1].runs = {0: None, 1: None}
    assert "(one such seed is enough)" in about_failed(several, "Not marked", unfinished=False)


def rounds(*admitted: int) -> Any:
    """The last model of a run recognizes one of two classes, and its rounds have admitted so many updates."""
    played = pd.DataFrame({"admitted": admitted})
    experiment, run = SimpleNamespace(seed=0), SimpleNamespace(labels="classes")
    return SimpleNamespace(
        rounds=played, class_accuracy=np.array([1.0, 0.0]), experiment=experiment, run=run, accuracy=0.5
    )


def test_the_most_serious_reason_of_a_row_is_told() -> None:
    made = compared("abce", measured=lambda i: [rounds(0, 0)] if i == 3 else [rounds(0, 2)])
    assert [problem(made, i) for i in range(4)] == [
        "its test accuracy is no better than chance",
        "its last model predicts one class for every sample",
        "",
        "no update entered its model in any round",
    ]
    assert failed(made) == [True, True, False, True]


def test_large_steps_and_updates_that_are_missing_are_reasons() -> None:
    made = compared("ab", measured=lambda _: [rounds(0, 2)])
    made.health = [Finding("large loss", ("a", "b"), "", ""), Finding("no update", ("b",), "", "")]
    assert [problem(made, i) for i in range(2)] == [
        "its steps were so large that training did not settle",
        "no update entered its model in many of its rounds",
    ]


@pytest.mark.parametrize(
    ("labels", "hardly", "words"),
    [
        (["classes"], True, "its test accuracy is hardly better than chance"),
        (["numbers"], False, "its test R² is not above 0"),
    ],
)
def test_what_is_at_chance(labels: list[str], hardly: bool, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_training, "hardly_above_chance", lambda _: hardly)
    made = compared("a", measured=lambda _: [rounds(0, 2)])
    made.score = score_style(labels)
    assert problem(made, 0) == words


@pytest.mark.parametrize(
    ("seeds", "nothing"), [([(0, 0), (0, 0)], True), ([(0, 0), (0, 1)], False), ([(1, 1), (1, 2)], False)]
)
def test_rows_whose_models_no_update_entered(seeds: list[tuple[int, ...]], nothing: bool) -> None:
    assert untrained(compared("a", measured=lambda _: [rounds(*own) for own in seeds]), 0) is nothing


def test_without_a_failure_nothing_is_said() -> None:
    sound = compared("ab")
    sound.health = HEALTH[:1] + HEALTH[2:3]
    assert about_failed(sound, "Not marked", unfinished=True) == ""
    assert about_failed(None, "Not marked", unfinished=True) == about_judged(None) == ""


def test_the_kinds_of_findings_of_a_row() -> None:
    assert [finding_kinds(compared("abce"), i) for i in range(4)] == [
        {"chance", "large loss"},
        {"chance", "one class"},
        {"diverged"},
        set(),
    ]


@pytest.mark.parametrize(
    ("seeds", "words"),
    [([], ""), ([7], "under seed 7 of 3, "), ([7, 9], "under seeds 7 and 9 of 3, "), ([7, 8, 9], "")],
)
def test_the_seeds_whose_models_recognize_one_class(seeds: list[int], words: str) -> None:
    runs = [
        SimpleNamespace(
            class_accuracy=np.array([1.0, 0.0 if seed in seeds else 0.5]), experiment=SimpleNamespace(seed=seed)
        )
        for seed in (7, 8, 9)
    ]
    assert _in_seeds(compared("a", 3, measured=lambda _: runs), 0) == words


def judged(monkeypatch: pytest.MonkeyPatch, failed: str, *, p: float = math.nan) -> str:
    """The sentence about rows a to g. The reference is a; c has no accuracy, d no difference, and e has none yet."""
    monkeypatch.setattr(failed_training, "problem", lambda made, i: "it failed" if made.rows[i].label in failed else "")
    table = pd.DataFrame(
        {
            "difference": [0.0, 0.1, 0.2, math.nan, 0.3, 0.0, -0.1],
            "accuracy": [0.5, 0.5, math.nan, 0.5, 0.5, 0.5, 0.5],
        }
    )
    verdicts = [SimpleNamespace(p_holm=math.nan)] * 6 + [SimpleNamespace(p_holm=p)]
    values: dict[str, Any] = {"table": table, "references": [0] * 7, "without_difference": {4}, "verdicts": verdicts}
    return about_judged(compared("abcdefg", **values))


def test_only_rows_with_a_difference_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "include rows in which training failed, with the test accuracy that they reached"
    assert judged(monkeypatch, "cde") == ""
    assert judged(monkeypatch, "abcde") == f"Differences {words}: 'a' and 'b'."
    assert judged(monkeypatch, "abg", p=0.5) == f"Differences and verdicts {words}: 'a', 'b' and 'g'."
    assert judged(monkeypatch, "abfg") == f"Differences {words}: 'a', 'b', 'f' and 1 more row."


def test_a_reference_is_judged_with_another_row_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its difference to itself is 0."""
    monkeypatch.setattr(failed_training, "problem", lambda made, i: "it failed")
    table = pd.DataFrame({"difference": [0.0, math.nan], "accuracy": [0.5, 0.5]})
    alone = compared("ab", table=table, references=[0, 0], without_difference=set(), verdicts=[])
    assert about_judged(alone) == ""


def test_rows_are_named_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_training, "problem", lambda made, i: "it failed")
    table = pd.DataFrame({"difference": [math.nan] * 8 + [0.1], "accuracy": [0.5] * 9})
    made = compared("abcdefghi", table=table, references=[1] * 9, without_difference=set(), verdicts=[])
    assert about_judged(made).endswith("reached: 'b' and 'i'.")
