"""Rows with different seeds are not ranked by their means, in the same words everywhere; their paired differences stay."""

from pathlib import Path

import numpy as np
import pytest

from fedcohort.record import ClientRow, Run
from fedcohort.report.charts.sweeps import COLORS, studies
from fedcohort.report.data.report_data import Story, gather
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.panel_rows import LINES
from fedcohort.report.notes.comparison_notes import notes
from fedcohort.report.notes.shown_rows import about_lines
from fedcohort.report.notes.unranked_rows import unranked
from fedcohort.report.page import page
from fedcohort.report.page_sections import figures
from fedcohort.report.tables.paper_tables import to_latex
from fedcohort.report.terminal.measures_notes import about_rows
from fedcohort.study.comparison import Comparison
from tests.experiments import UCB
from tests.records import exchange, played, written
from tests.report.headline.test_headline import BETTER, FIRST, runs_of, said
from tests.report.pages import Page, caption

WORDS = "Means over different seeds can differ by their seeds alone: compare rows by differences over the seeds that both have."


def rows_of(folder: Path, seeds: dict[str, int]) -> list[Run]:
    """Rows with so many seeds; each is more accurate and costs more than the one before."""
    return [
        written(
            folder / f"{label}{seed}",
            [
                played(
                    1,
                    [0, 1],
                    test_accuracy=0.5 + 0.1 * i + 0.01 * seed,
                    class_accuracy=[0.5 + 0.1 * i, 0.5, 0.5],
                    ledger=[exchange(100 + i, 100)],
                )
            ],
            label=label,
            seed=seed,
            selection=UCB if i else "uniform",
        )
        for i, (label, number) in enumerate(seeds.items())
        for seed in range(number)
    ]


@pytest.fixture(scope="module")
def different(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Two rows that share two seeds; the better one lacks the third."""
    return gather(rows_of(tmp_path_factory.mktemp("different"), {"uniform": 3, "mine": 2}))


def compared(story: Story) -> Comparison:
    assert story.comparison is not None
    return story.comparison


def marked(shown: Page) -> list[str | None]:
    """The columns with the mark of the best."""
    return [found.get("data-field") for tag, found in shown.tags if tag == "td" and found.get("class") == "best"]


def test_tables_mark_no_mean_of_rows_with_different_seeds(different: Story, tmp_path: Path) -> None:
    """A sentence said that means over different seeds can differ by them; the best ones were marked all the same."""
    shown = Page(page(different))
    assert not marked(shown)
    assert "▸" not in shown.prose
    assert shown.prose.count("No best mean is marked among rows that have different seeds.") == 2, "results and classes"
    assert shown.prose.count(WORDS) == 3, "in the headline, below the table, and below the chart of costs"
    same = Page(page(gather(rows_of(tmp_path, {"uniform": 2, "mine": 2}))))
    assert {"accuracy", "bytes", "class"} <= set(marked(same)), "rows with the same seeds are ranked"
    assert "have different seeds" not in same.prose


def test_differences_over_shared_seeds_stay(different: Story) -> None:
    shown = Page(page(different))
    (mine,) = [row for row in shown.texts["results"] if row["strategy"] == "mine"]
    assert mine["difference"].startswith("+10.0")
    assert "differences" in {figure.key for figure in figures(different, PAGE)}
    assert "'mine' leads 'uniform' by 10.0 percentage points. They share only 2 seeds" in shown.prose


def test_the_headline_calls_none_of_them_the_best(tmp_path: Path) -> None:
    """It named the row with the highest mean, which may have had the easy seeds."""
    runs = [*runs_of(tmp_path, "uniform", FIRST[:7]), *runs_of(tmp_path, "mine", BETTER, selection=UCB)]
    found = said(runs)
    assert found["Which strategy?"] == (
        f"The rows have different seeds, so that none of them is called the best. {WORDS} Over these seeds, 'mine' is clearly better "
        "than the reference, 'uniform'."
    )
    assert "'mine' leads 'uniform' by 13.0 percentage points (95% interval +" in found["How sure?"]
    assert "7 paired seeds, p = 0.016). The difference is clear with these seeds." in found["How sure?"]
    assert "At what cost?" not in found


def test_the_headline_calls_no_failed_row_clearly_better(tmp_path: Path) -> None:
    """A row in which no update entered the model was "clearly better than the reference" without a word of it."""
    failed = [
        written(
            tmp_path / f"failed{seed}",
            [played(1, [ClientRow(0, "declined"), ClientRow(1, "declined")], test_accuracy=accuracy)],
            label="failed",
            seed=seed,
            selection=UCB,
        )
        for seed, accuracy in enumerate(BETTER)
    ]
    first = runs_of(tmp_path, "uniform", FIRST[:7])
    doubt = "'failed' has a clear difference to the reference, but is no sound result: no update entered its model in any round."
    which = said([*first, *failed])["Which strategy?"]
    found = "Over these seeds, no row with a sound result is clearly better or worse than the reference, 'uniform'."
    assert which.endswith(f"{found} {doubt} See Health.")
    which = said([*first, *failed, *runs_of(tmp_path, "mine", BETTER, selection=UCB)])["Which strategy?"]
    assert which.endswith(
        f"Over these seeds, 'mine' is clearly better than the reference, 'uniform'. {doubt} See Health."
    )


def test_terminal_measures_and_papers_say_the_same(different: Story) -> None:
    table = compared(different).table.to_dict("records")
    assert WORDS in " ".join(notes(compared(different), [{str(k): v for k, v in row.items()} for row in table]))
    assert any(note.startswith(WORDS) for note in about_rows(compared(different)))
    assert WORDS in to_latex(compared(different))


def test_many_rows_are_named_by_means_over_their_own_seeds(tmp_path: Path) -> None:
    few = {f"row {i}": 1 for i in range(LINES + 1)}
    story = gather(rows_of(tmp_path, few | {"row 0": 2}))
    assert unranked(compared(story)) == frozenset(range(LINES + 1))
    assert "rows with the highest test accuracy over their own seeds stronger" in about_lines(
        compared(story), "accuracy"
    )


def test_heat_maps_take_no_differences_of_means_over_different_seeds(tmp_path: Path) -> None:
    """They are differences of means, not of paired seeds."""

    def swept(folder: Path, lacking: int) -> Story:
        return gather(
            [
                run
                for name in ("uniform", "mine")
                for rate in (0.1, 0.2)
                for k in (2, 3)
                for run in runs_of(
                    folder,
                    f"{name}, lr={rate}, k={k}",
                    FIRST[: 2 - lacking * (name == "mine" and k == 3)],
                    selection={"name": "uniform", "k": k} if name == "uniform" else {**UCB, "k": k},
                    training={"lr": rate},
                )
            ]
        )

    (figure,) = studies(swept(tmp_path / "lacking", 1), PAGE)
    assert [view.name for view in figure.views] == ["accuracy"]
    assert "orange" not in caption(figure)
    assert WORDS in caption(figure)
    (figure,) = studies(swept(tmp_path / "all", 0), PAGE)
    assert [view.name for view in figure.views] == ["accuracy", "difference"]
    assert np.isfinite(figure.data["heat_difference"]["accuracy"]).all()
    cells, difference = (view.note for view in figure.views)
    assert cells.startswith("Test accuracy in % ")
    assert difference.startswith(
        "Difference in test accuracy to 'uniform' with the same settings, in percentage points, "
    )
    assert difference.endswith(COLORS), "captions of papers had that of the accuracies"


def test_captions_of_papers_do_not_speak_of_filled_points_if_none_is(tmp_path: Path) -> None:
    """With many rows, rows that are filled were said to be colored, although all points were hollow."""
    runs = rows_of(tmp_path, {"uniform": 2, **{f"row-{i}": 1 for i in range(13)}})
    (cost,) = [figure for figure in figures(gather(runs), paper(1)) if figure.key == "tradeoff"]
    assert "All points are hollow." in cost.note
    assert "filled" not in cost.note
    assert "Colored: the reference and the 6 rows with the highest test accuracy over their own seeds." in cost.note
