"""Tables of one seed do not speak of intervals, and a row in which training failed is never marked as the best."""

import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcohort.record import Run
from fedcohort.report import terminal
from fedcohort.report.charts.accuracy_and_cost import accuracy_and_cost
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE, Look, paper
from fedcohort.report.figures.paper_figures import composed, draw
from fedcohort.report.notebook import comparison_in_notebook
from fedcohort.report.notes.failed_training import about_judged
from fedcohort.report.page import page
from fedcohort.report.page_sections import figures
from fedcohort.report.tables.detail_rows import class_rows
from fedcohort.report.tables.paper_tables import to_latex
from fedcohort.report.tables.table_rows import failed_rows
from fedcohort.report.terminal.measures_notes import about_rows
from tests.experiments import UCB
from tests.records import exchange, played, written
from tests.report.headline.test_headline import runs_of
from tests.report.pages import Page


def texts(runs: list[Run]) -> dict[str, str]:
    """The table of a comparison in each of its forms."""
    compared = gather(runs).comparison
    assert compared is not None
    screen = " ".join(terminal.as_text(terminal.comparison(compared)).split())
    return {
        "page": Page(page(gather(runs))).prose,
        "terminal": screen,
        "notebook": str(comparison_in_notebook(compared)["text/html"]),
        "latex": to_latex(compared),
    }


ACCURACIES = [0.5, 0.52, 0.54]


@pytest.mark.parametrize("seeds", [1, 3])
def test_tables_of_one_seed_have_no_intervals_in_their_words(tmp_path: Path, seeds: int) -> None:
    """They said "mean ± standard deviation over seeds" and "95% interval" where there was neither."""
    uniform, mine = [0.5, 0.52, 0.54], [0.6, 0.61, 0.65]
    runs = [*runs_of(tmp_path, "uniform", uniform[:seeds]), *runs_of(tmp_path, "mine", mine[:seeds], selection=UCB)]
    found = texts(runs)
    for name, text in found.items():
        table = text.partition("Test accuracy Mean")[0]
        assert ("95% interval" in table or r"95\% CI" in table) == (seeds > 1), name
        assert ("One seed gives no" in text or "one seed gives no" in text) == (seeds == 1), name
    assert ("mean ± standard deviation over seeds" in found["page"]) == (seeds > 1)
    assert ("Test accuracy after the last round, seed 0." in found["page"]) == (seeds == 1)


UNIFORM, MINE, ONE_CLASS = [0.8, 0.5, 0.7], [0.9, 0.4, 0.8], [1.0, 0.0, 0.0]


def of_classes(folder: Path, label: str, *seeds: list[float]) -> list[Run]:
    """Runs of two rounds with these accuracies of classes, one for each seed. The row "one class" costs least."""
    spent = [exchange(5, 5) if label == "one class" else exchange(100, 100)]
    selection: Any = "uniform" if label == "uniform" else {**UCB, "k": 3} if label == "one class" else UCB
    return [
        written(
            folder / f"{label}{seed}",
            [
                played(t, [0, 1], test_accuracy=float(np.mean(own)), class_accuracy=own, ledger=spent)
                for t in (1, 2)
            ],
            label=label,
            seed=seed,
            selection=selection,
        )
        for seed, own in enumerate(seeds)
    ]  # fmt: skip


def test_a_failed_row_is_not_marked_as_the_best_of_a_class(tmp_path: Path) -> None:
    """A model that predicts one class is always right about its samples, and was marked as the best of the class."""
    runs = of_classes(tmp_path, "uniform", UNIFORM) + of_classes(tmp_path, "mine", MINE)
    runs += of_classes(tmp_path, "one class", ONE_CLASS)
    story = gather(runs)
    assert failed_rows(story) == {"one class"}
    marked = {row["label"]: row["best"] for row in class_rows(story)["rows"]}
    assert marked == {"uniform": {"class_1"}, "mine": {"class_0", "class_2"}, "one class": set()}
    assert "except in rows in which training failed" in Page(page(story)).prose


def test_notes_name_the_rows_that_are_not_marked_and_why(tmp_path: Path) -> None:
    """One failed seed of five is enough: marks stood at lower numbers than those of the row, without a word below the table."""
    runs = of_classes(tmp_path, "uniform", *[UNIFORM] * 3) + of_classes(tmp_path, "mine", *[MINE] * 3)
    runs += of_classes(tmp_path, "one class", [1.0, 0.9, 0.9], [1.0, 0.9, 0.9], ONE_CLASS)
    prose = Page(page(gather(runs))).prose
    reason = "(one such seed is enough): 'one class': the last model of 1 of 3 seeds (seed 2) predicts one class for every sample."
    about = f"Not marked, since training failed so far {reason}"
    marks = (
        "only the verdict tells whether a difference is clear.",
        "▸ marks the best mean of a class, except in rows in which training failed.",
    )
    assert all(f"{words} {about}" in prose for words in marks)
    assert about not in Page(page(gather(runs[:6]))).prose
    assert "See Health. Of the rows without such a problem, 'mine' has the highest: 70.0%." in prose


@pytest.mark.parametrize("look", [PAGE, paper(1)], ids=["page", "paper"])
def test_a_failed_row_is_never_on_the_front(tmp_path: Path, look: Look) -> None:
    """It was filled: where no row learned anything, and where it costs least. The symbols of the legend were all filled."""
    one_class = of_classes(tmp_path, "one class", ONE_CLASS)
    runs = of_classes(tmp_path, "uniform", UNIFORM) + of_classes(tmp_path, "mine", MINE) + one_class
    figure = accuracy_and_cost(gather(runs), look)
    assert figure is not None
    rows = figure.data["tradeoff_bytes"].set_index("strategy")
    assert rows["front"].to_dict() == {"uniform": False, "mine": True, "one class": False}
    assert rows["standing"]["one class"] == "training failed"
    assert "Hollow, and not on the front, since training failed so far: 'one class': the last" in figure.note
    svg = ET.fromstring(draw({**composed(figure, figure.views[0], look), "width": 300}, "svg"))
    in_legend = [own for group in svg.iter() if group.get("class") == "mark-symbol role-legend-symbol" for own in group]
    if not look.page:
        assert [own.get("fill") is None for own in in_legend] == [True, False, True], "hollow ones have no color inside"
    nothing = accuracy_and_cost(gather(of_classes(tmp_path / "none", "uniform", ONE_CLASS) + one_class), look)
    assert nothing is not None
    assert not nothing.data["tradeoff_bytes"]["front"].any()


def test_failed_rows_are_judged_alike_everywhere(tmp_path: Path) -> None:
    """They were "not comparable" in measures and "not compared" in the chart, but had verdicts in the tables."""
    runs = of_classes(tmp_path, "uniform", *[UNIFORM] * 3) + of_classes(tmp_path, "mine", *[MINE] * 3)
    runs += of_classes(tmp_path, "one class", *[ONE_CLASS] * 3)
    story = gather(runs)
    compared, shown, figure = story.comparison, Page(page(story)), accuracy_and_cost(story, PAGE)
    assert compared is not None
    assert figure is not None
    assert compared.table.set_index("label")["verdict"].to_dict()["one class"] == "not clear"
    assert shown.texts["results"][2]["p_holm"] == "not clear, 0.5"
    assert "Hollow, and not on the front, since training failed" in figure.note
    notes = about_rows(compared)
    found = {name: unescape(text).replace("''", "'") for name, text in texts(runs).items()} | {
        "measures": " ".join(notes)
    }
    rule = "Differences and verdicts include rows in which training failed, with the test accuracy that they reached: 'one class'."
    assert {name: rule in text for name, text in found.items()} == dict.fromkeys(found, True)
    assert notes[-1].endswith("They are in the table of `fedcohort compare`.")
    assert "not compar" not in " ".join([*found.values(), figure.note]).lower()
    sound = gather(runs[:6]).comparison
    assert sound is not None
    assert about_judged(sound) == ""
    two = gather([runs[0], runs[6]]).comparison
    assert about_judged(two).startswith(
        "Differences include rows in which training failed, with the test accuracy that they reached"
    )
    alone = gather(runs[6:]).comparison
    assert about_judged(alone) == "", "a single row is not compared"


def test_marks_are_explained_only_where_there_are_some(tmp_path: Path) -> None:
    rounds = [played(t, [0, 1], test_accuracy=0.6, class_accuracy=[0.7, 0.5]) for t in (1, 2)]
    prose = Page(page(gather([written(tmp_path / "alone", rounds)]))).prose
    assert "Accuracy in % at the last test" in prose
    assert "▸" not in prose


def test_the_seeds_of_each_row_are_named_where_they_differ(tmp_path: Path) -> None:
    """Tables said "over seeds" or "over 3 seeds" of rows that have 1 to 3."""
    rows = [("uniform", 3, "uniform"), ("mine", 1, UCB), ("other", 2, "round_robin")]
    runs = [run for label, seeds, name in rows for run in runs_of(tmp_path, label, ACCURACIES[:seeds], selection=name)]
    found = texts(runs)
    shown = Page(page(gather(runs)))
    cells = [row["accuracy"] + row.get("accuracy_sd", "") for row in shown.texts["results"]]
    assert [cell.partition("seed")[1:] for cell in cells] == [("seed", "s 0 to 2"), ("seed", " 0"), ("seed", "s 0, 1")]
    of_rows = "over the seeds of each row, 1 to 3"
    assert f"mean ± standard deviation {of_rows}." in found["page"]
    assert f"Whole runs, mean {of_rows}." in found["page"]
    assert f"mean ± standard deviation {of_rows} (0 to 2)." in found["terminal"]
    assert f"mean and standard deviation {of_rows}." in found["latex"]
    assert f"mean ± standard deviation {of_rows}." in found["notebook"]
    alike = Page(page(gather(runs[:3])))
    assert "seed" not in "".join(alike.texts["results"][0].values())


@pytest.mark.parametrize("seeds", [1, 3])
def test_captions_of_one_seed_name_it(tmp_path: Path, seeds: int) -> None:
    """Captions of single runs said "mean over seeds", and that of the distribution over clients named no seed."""
    runs = [
        run for label, name in (("uniform", "uniform"), ("mine", UCB)) for run in measured(tmp_path, label, seeds, name)
    ]
    notes = {figure.key: figure.note for figure in figures(gather(runs), paper(1))}
    found = {key for key in ("tradeoff", "cost", "wall", "bars") if "mean over seeds" in notes[key].lower()}
    assert found == (set() if seeds == 1 else {"tradeoff", "cost", "wall", "bars"})
    if seeds == 1:
        assert notes["tradeoff"].startswith("Seed 0, after the last round.")
        assert notes["cost"] == "Whole runs, seed 0."
        assert notes["bars"] == "Test accuracy after the last round: seed 0."
        assert notes["client-distribution"].endswith("Short lines below: single clients. Seed 0.")
    else:
        assert notes["client-distribution"].endswith("The clients of 3 seeds (0 to 2) are taken together.")


def measured(folder: Path, label: str, seeds: int, name: object) -> list[Run]:
    """Runs of one round after which the accuracy of two clients was measured."""
    return [
        written(
            folder / f"{label}{seed}",
            [played(1, [0, 1], ledger=[exchange(9, 9)], client_accuracy=np.array([0.2, 0.4 + seed / 10]))],
            label=label,
            seed=seed,
            selection=name,
            federation={"clients": 2},
        )
        for seed in range(seeds)
    ]
