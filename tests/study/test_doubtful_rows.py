"""Rows that must not be read as results: useless learning rates, rows that are equal, and comparisons in which nothing learned."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedcohort.record import ClientRow
from fedcohort.report import terminal
from fedcohort.report.data.report_data import gather
from fedcohort.report.headline.headline import answers
from fedcohort.report.notebook import comparison_in_notebook
from fedcohort.report.page import page
from fedcohort.report.tables.paper_tables import to_latex
from fedcohort.report.tables.table_rows import result_rows
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.health import Finding
from fedcohort.study.summary import over_seeds, summaries
from fedcohort.study.targets import TO_TARGET
from tests.records import played, written
from tests.report.pages import Page

CLASSES = {"class_accuracy": [0.7, 0.8, 0.8, 0.9]}
GUESSED = {"class_accuracy": [0.3, 0.1, 0.5, 0.1], "test_accuracy": 0.25}


def row(folder: Path, label: str, *rounds: Any, accuracy: float = 0.8, seeds: int = 3, **values: Any) -> Row:
    """A row whose runs have the same rounds, with an accuracy that grows a little with the seed."""
    runs = {
        seed: written(
            folder / f"{label}{seed}",
            [played(t, **CLASSES | {"test_accuracy": accuracy + seed / 100} | one) for t, one in enumerate(rounds, 1)],
            label=label,
            seed=seed,
            **values,
        )
        for seed in range(seeds)
    }
    return Row(label, runs[0].described, runs)


def found(*rows: Row) -> dict[str, Finding]:
    return {finding.kind: finding for finding in Comparison("x", rows).health}


def said(*rows: Row) -> dict[str, str]:
    story = gather([run for row in rows for run in row.runs.values()])
    return {question: " ".join(sentences) for question, sentences in answers(story)[0].answers}


def test_a_loss_far_above_that_of_guessing_is_a_finding_although_the_accuracy_is_high(tmp_path: Path) -> None:
    """A linear model with a learning rate of 1e6 was named best, without a word."""
    sound = row(tmp_path, "sound", {"clients": [0], "test_loss": 1.0}, {"clients": [1], "test_loss": 0.9})
    rounds = [{"clients": [0], "test_loss": 3e7}, {"clients": [1], "test_loss": 1.49e7}]
    huge = row(tmp_path, "huge", *rounds, accuracy=0.85, training={"lr": 1e6})
    finding = found(sound, huge)["large loss"]
    assert finding.rows == ("huge",)
    assert finding.text == (
        "the last test loss is 1.49e+07, where equal probabilities for 4 classes have 1.39: steps were so large that training did not "
        "settle, even if the accuracy is above chance"
    )
    assert finding.advice == "lower training.lr (now 1e6), or limit gradients with training.clip_norm"
    assert said(sound, huge)["Which strategy?"].endswith(
        "'huge' is no sound result: its steps were so large that training did not settle. See Health. Of the rows without such a "
        "problem, 'sound' has the highest: 81.0%."
    )
    mixed = Row("mixed", sound.experiment, {0: sound.runs[0], 1: huge.runs[1]})
    assert found(mixed)["large loss"].text.startswith("the last test loss of 1 of 2 seeds is 1.49e+07, where equal")
    alone = said(huge)["Result"]
    assert alone.endswith("This is no sound result: its steps were so large that training did not settle. See Health.")


def test_accuracies_clearly_above_chance_are_not_said_to_be_at_it(tmp_path: Path) -> None:
    """55%, 56% and 55% of two classes are close to chance, and above it: the page said "None of the 2 rows learned anything"."""

    def of_two_classes(label: str, means: tuple[float, ...]) -> Row:
        runs = {
            seed: written(
                tmp_path / f"{label}{seed}",
                [played(1, [0], test_accuracy=mean, class_accuracy=[mean + 0.1, mean - 0.1])],
                label=label,
                seed=seed,
            )
            for seed, mean in enumerate(means)
        }
        return Row(label, runs[0].described, runs)

    rows = of_two_classes("low", (0.48, 0.56, 0.52)), of_two_classes("high", (0.55, 0.56, 0.55))
    texts = {one.rows: one.text for one in Comparison("x", rows).health if one.kind == "chance"}
    assert texts[("low",)] == "test accuracy is at chance, 50% with 2 classes"
    assert texts[("high",)] == "test accuracy is hardly above chance, 50% with 2 classes"
    answer = said(*rows)["Which strategy?"]
    assert "'high' is no sound result: its test accuracy is hardly better than chance." in answer
    assert "'low', is no sound result either: its test accuracy is no better than chance." in answer


@pytest.mark.parametrize(("loss", "is_found"), [(13.8, False), (14.0, True), (float("inf"), True)])
def test_a_loss_that_is_a_little_too_high_is_no_finding(tmp_path: Path, loss: float, is_found: bool) -> None:
    """Ten times ln 4 = 1.386."""
    rounds = [{"clients": [0], "test_loss": 2.0}, {"clients": [0], "test_loss": loss}]
    assert ("large loss" in found(row(tmp_path, "x", *rounds))) == is_found


def test_a_learning_rate_that_is_too_small_is_to_be_raised(tmp_path: Path) -> None:
    still = [{"clients": [0], "test_loss": 2.0, **GUESSED}, {"clients": [1], "test_loss": 1.9999, **GUESSED}]
    moved = [still[0], still[1] | {"test_loss": 1.9}]
    stuck, slow = row(tmp_path, "stuck", *still, training={"lr": 1e-9}), row(tmp_path, "slow", *moved)
    findings = [finding for finding in Comparison("x", (stuck, slow)).health if finding.kind == "chance"]
    assert [finding.rows for finding in findings] == [("stuck",), ("slow",)]
    assert findings[0].advice == (
        "raise training.lr (now 1e-09: the test loss hardly changed, so steps seem too small), or train longer (rounds)"
    )
    assert findings[1].advice.startswith("train longer")


def test_if_no_row_learned_the_headline_says_that_first(tmp_path: Path) -> None:
    guessing = row(tmp_path, "a", {"clients": [0], **GUESSED})
    single = {"class_accuracy": [0.0, 1.0, 0.0, 0.0], "test_accuracy": 0.24}
    one = row(tmp_path, "b", {"clients": [1], **single})
    nothing = row(tmp_path, "c", {"clients": [ClientRow(0, "declined")]}, accuracy=0.2)
    assert said(guessing, one, nothing) == {
        "Which strategy?": "None of the 3 rows learned anything: see Health for what to try. The highest test accuracy, 25.0% of 'a', "
        "says nothing about the strategies."
    }
    assert "How sure?" in said(guessing, row(tmp_path, "sound", {"clients": [2]}))


def test_a_reference_that_failed_is_named(tmp_path: Path) -> None:
    guessing = row(tmp_path, "uniform", {"clients": [0], **GUESSED})
    sound = row(tmp_path, "mine", {"clients": [1]}, selection={"name": "ucb"})
    assert said(guessing, sound)["Which strategy?"].endswith(
        "The reference, 'uniform', is no sound result: its test accuracy is no better than chance. Choose another one with "
        "--reference."
    )


def test_a_failed_row_with_the_second_highest_accuracy_is_named(tmp_path: Path) -> None:
    """The best row was compared with it, in accuracy and in cost, without a word about that."""
    sound = row(tmp_path, "uniform", {"clients": [0]})
    one = {"class_accuracy": [0.0, 1.0, 0.0, 0.0]}
    failed = row(tmp_path, "mine", {"clients": [1], **one}, accuracy=0.6, selection={"name": "ucb"})
    reason = "is no sound result: its last model predicts one class for every"
    assert f"'mine', the other row, {reason}" in said(sound, failed)["How sure?"]
    third = row(tmp_path, "third", {"clients": [2]}, accuracy=0.5, selection={"name": "size"})
    assert f"'mine', which has the second highest accuracy, {reason}" in said(sound, failed, third)["How sure?"]
    assert "no sound result" not in said(sound, row(tmp_path, "other", {"clients": [2]}, accuracy=0.6))["How sure?"]


EARLY = {"note": "random: first rounds"}


def test_equal_rows_are_named_with_the_reason(tmp_path: Path) -> None:
    """The first rounds of fedcor are those of uniform selection; two rows beside the reference can be equal, too."""
    chosen = [{"clients": [0, 1]}, {"clients": [1, 2]}]
    uniform = row(tmp_path, "uniform", *chosen)
    fedcor = row(tmp_path, "fedcor", *(one | EARLY for one in chosen), selection={"name": "fedcor"})
    others = [{"clients": [2, 0]}, {"clients": [0, 1]}]
    ocs, aocs = (row(tmp_path, name, *others, accuracy=0.82, selection={"name": name}) for name in ("ocs", "aocs"))
    same = [one for one in Comparison("x", (uniform, fedcor, ocs, aocs)).health if one.kind == "equal rows"]
    text = "the same clients were selected in every round, and the test accuracy is the same in every seed"
    assert same == [
        Finding(
            "equal rows",
            ("uniform", "fedcor"),
            f"{text}: 'fedcor' is still in its first rounds, in which it selects clients at random",
            "play more rounds, or lower selection.warmup",
        ),
        Finding(
            "equal rows",
            ("ocs", "aocs"),
            text,
            "read them as one row; with more rounds, or with other settings, they may differ",
        ),
    ]


def test_the_caption_of_a_paper_names_equal_rows(tmp_path: Path) -> None:
    """A strategy in its random first rounds stood in the table with a difference of 0 and the verdict "not clear", without a word."""
    chosen = [{"clients": [0, 1]}, {"clients": [1, 2]}]
    uniform = row(tmp_path, "uniform", *chosen)
    fedcor = row(tmp_path, "fedcor", *(one | EARLY for one in chosen), selection={"name": "fedcor"})
    named = "'uniform', 'fedcor': the same clients were selected in every round, .*: 'fedcor' is still in its first rounds, "
    assert re.search(named, to_latex(Comparison("x", (uniform, fedcor))))
    other = row(tmp_path, "size", {"clients": [2, 0]}, {"clients": [0, 1]}, selection={"name": "size"}, accuracy=0.6)
    assert "the same clients" not in to_latex(Comparison("x", (uniform, other)))


def test_rows_that_share_their_runs_cannot_differ(tmp_path: Path) -> None:
    """A variant with a setting that is the default has the runs of the base row: more rounds were said to tell them apart."""
    uniform = row(tmp_path, "uniform", {"clients": [0, 1]}, {"clients": [1, 2]})
    same = found(uniform, replace(uniform, label="lr=0.05"))["equal rows"]
    assert same.rows == ("uniform", "lr=0.05")
    assert same.text.endswith("in every seed: they have the same settings, and share their runs")
    assert same.advice == "read them as one row, or leave all but one out"


@pytest.mark.slow
def test_many_equal_rows_are_not_all_named(tmp_path: Path) -> None:
    """Rows that are all in their random first rounds are named once, before the sentence; of many others, the first are."""
    chosen = [{"clients": [0, 1]} | EARLY, {"clients": [1, 2]} | EARLY]
    early = [row(tmp_path, f"c={c}", *chosen, selection={"name": "ucb", "c": float(c)}) for c in range(1, 7)]
    text = found(*early)["equal rows"].text
    assert text.endswith("in every seed: all of them are still in their first rounds, and select clients at random")
    uniform = row(tmp_path, "uniform", *({"clients": one["clients"]} for one in chosen))
    text = found(uniform, *early)["equal rows"].text
    assert "'c=4' and 2 more rows are still in their first rounds" in text
    assert "'c=5'" not in text


def test_sets_of_equal_rows_share_one_sentence(tmp_path: Path) -> None:
    """Five sets of two rows had five times the same sentence. Sets with another reason have a sentence of their own."""
    pairs = [row(tmp_path, f"{name}{i}", {"clients": [i, i + 1]}) for i in range(5) for name in "ab"]
    alone = [row(tmp_path, name, {"clients": [7, 8], "available": 2}) for name in "cd"]
    every = [one for one in Comparison("x", (*pairs, *alone)).health if one.kind == "equal rows"]
    text = "the same clients were selected in every round, and the test accuracy is the same in every seed"
    assert [(one.rows, one.text) for one in every] == [
        (
            ("a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4"),
            f"in each of 5 sets ('a0' and 'b0'; 'a1' and 'b1'; 'a2' and 'b2'; 'a3' and 'b3'; and 1 more), {text}",
        ),
        (("c", "d"), f"{text}: in every round, all available clients were selected"),
    ]


def test_equal_rows_with_an_own_class_may_be_equal_because_it_has_no_effect(tmp_path: Path) -> None:
    chosen = [{"clients": [0, 1]}, {"clients": [1, 2]}]
    uniform = row(tmp_path, "uniform", *chosen)
    (tmp_path / "mine.py").write_text("from fedcohort.algorithms import FedAvg\n\nclass Mine(FedAvg):\n    pass\n")
    own = row(tmp_path, "mine", *chosen, algorithm={"name": f"{tmp_path}/mine.py:Mine"})
    given = row(tmp_path, "given", *chosen, facts={"given algorithm": "Other"})
    built_in = row(tmp_path, "given too", *chosen, facts={"given algorithm": "FedAvg"})
    same = found(uniform, own, given, built_in)["equal rows"]
    assert same.rows == ("uniform", "mine", "given", "given too")
    assert same.advice.endswith("they may differ; if not, see whether Mine and Other have an effect at all")


def test_rows_that_differ_in_a_client_an_accuracy_or_a_seed_are_not_equal(tmp_path: Path) -> None:
    first = row(tmp_path, "a", {"clients": [0, 1]}, {"clients": [1, 2]})
    client = row(tmp_path, "b", {"clients": [0, 1]}, {"clients": [1, 3]})
    accuracy = row(tmp_path, "c", {"clients": [0, 1], "test_accuracy": 0.3}, {"clients": [1, 2]})
    seed = row(tmp_path, "d", {"clients": [0, 1]}, {"clients": [1, 2]}, seeds=4)
    assert "equal rows" not in found(first, client, accuracy, seed)
    order = row(tmp_path, "e", {"clients": [1, 0]}, {"clients": [2, 1]})
    assert found(first, order)["equal rows"].rows == ("a", "e")


def test_rows_that_select_all_clients_are_equal_for_that_reason(tmp_path: Path) -> None:
    rows = [row(tmp_path, name, {"clients": [0, 1], "available": 2}) for name in ("a", "b")]
    assert found(*rows)["equal rows"].text.endswith(": in every round, all available clients were selected")


def test_rows_that_failed_are_not_called_equal(tmp_path: Path) -> None:
    rows = [row(tmp_path, name, {"clients": [0], **GUESSED}) for name in ("a", "b")]
    assert "equal rows" not in found(*rows)


def test_every_cost_of_a_target_that_some_seeds_missed_is_marked(tmp_path: Path) -> None:
    """The mark stood beside the rounds only. One seed of "mine" misses 80%."""
    rows = [
        row(tmp_path, "uniform", {"clients": [0]}, measures={"target_accuracy": 0.81}),
        row(tmp_path, "mine", {"clients": [1]}, accuracy=0.9, measures={"target_accuracy": 0.81}),
    ]
    compared = Comparison("x", tuple(rows))
    runs = [run for one in rows for run in one.runs.values()]
    first, second = result_rows(gather(runs))
    costs = ("rounds_to_target", "time_to_target", "bytes_to_target")
    assert [first[name].text for name in costs] == ["1 (2/3)", "1 (2/3)", "0 B (2/3)"]
    assert not any("/" in second[name].text for name in costs)
    meaning = "(2/3): 2 of 3 seeds reached it; the means cover only those."
    text = terminal.as_text(terminal.comparison(compared, 160), 160)
    assert text.count("1 (2/3)") == 2
    assert meaning in text
    assert meaning in Page(page(gather(runs))).prose
    assert meaning in to_latex(compared)


def test_a_target_that_no_seed_reached_has_one_sign_and_an_untested_row_another(tmp_path: Path) -> None:
    """The sign of what is unknown, "–", stood in comparisons, and "∞" in measures. The page did not explain its sign."""
    setting: dict[str, Any] = {"measures": {"target_accuracy": 0.95}}
    rows = [
        row(tmp_path, "uniform", {"clients": [0]}, **setting),
        row(tmp_path, "mine", {"clients": [1]}, accuracy=0.96, **setting),
        row(tmp_path, "untested", {"clients": [2], "test_accuracy": math.nan, "class_accuracy": []}, **setting),
    ]
    compared = Comparison("x", tuple(rows))
    runs = [run for one in rows for run in one.runs.values()]
    shown = Page(page(gather(runs)))
    own = [[one[name] for name in TO_TARGET] for one in shown.texts["results"]]
    assert own == [["∞"] * 3, ["1", "1", "0 B"], ["–"] * 3]
    assert [one["rounds_to_target"] for one in shown.cells["results"]] == ["", "1.0", ""]
    means = [over_seeds(summaries(list(one.runs.values()))) for one in rows]
    texts = {
        "compare": terminal.as_text(terminal.comparison(compared, 160), 160),
        "page": shown.prose,
        "paper": to_latex(compared).replace("$\\infty$", "∞"),
        "notebook": str(comparison_in_notebook(compared)["text/html"]),
        "measures": terminal.as_text(terminal.summaries([one.label for one in rows], means), 160),
    }
    words = {name: " ".join(text.split()) for name, text in texts.items()}
    assert {name: "∞: no seed reached " in text for name, text in words.items()} == dict.fromkeys(texts, True)
    assert "rounds to it ∞ 1 –" in words["measures"]
    assert "not reached yet" not in words["measures"], "an untested run cannot reach it"
    lines = {line.split()[0]: line.count("∞") for line in texts["compare"].splitlines() if line}
    assert [lines[one.label] for one in rows] == [2, 0, 0], "rounds and time"
    for without in (rows[1:2], rows[1:]):
        sound = Comparison("x", tuple(without))
        assert "∞" not in terminal.as_text(terminal.comparison(sound, 160), 160) + to_latex(sound)


def test_measures_explain_marks_only_where_there_are_any(tmp_path: Path) -> None:
    some = list(row(tmp_path, "a", {"clients": [0]}).runs.values())
    texts = []
    for target in (0.79, 0.81, 0.9):
        mean = over_seeds(summaries(some, target))
        texts.append(" ".join(terminal.as_text(terminal.summaries(["a"], [mean]), 160).split()))
    assert ["/3)" in text for text in texts] == [False, True, False]
    assert "bytes to it 0 B (2/3)" in texts[1]
    assert "(2/3): 2 of 3 seeds reached the target accuracy; the means cover only those." in texts[1]
    assert "∞: no seed reached the target accuracy." in texts[2]


def test_a_row_that_failed_has_no_mark_of_the_best(tmp_path: Path) -> None:
    sound = row(tmp_path, "sound", {"clients": [0], "test_loss": 1.0})
    huge = row(tmp_path, "huge", {"clients": [1], "test_loss": 99.0}, accuracy=0.9)
    less = row(tmp_path, "less", {"clients": [2], "test_loss": 1.0}, accuracy=0.7)
    rows = result_rows(gather([run for one in (sound, huge, less) for run in one.runs.values()]))
    assert {one["name"]: "accuracy" in one["best"] for one in rows} == {"sound": True, "huge": False, "less": False}
