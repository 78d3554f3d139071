"""Sentences about rows in which training failed, from worked findings and differences."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedcohort.core.words.score_style import score_style
from fedcohort.report.notes import failed_training
from fedcohort.report.notes.failed_training import _in_seeds, about_failed, about_judged, finding_kinds
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
            "difference": [math.nan, 0.1, 0.2, math.nan, 0.3, 0.0, -0.1],
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
