"""The numbers of a live page agree: how many runs there are, and up to which round everything is counted."""

import re
from pathlib import Path
from typing import Any

import pytest

from fedcohort.record import Run, writing
from fedcohort.report.cached_run import CachedRun
from fedcohort.report.live import Live
from fedcohort.report.live_progress import Planned
from fedcohort.report.missing_runs import SO_FAR, UNPLANNED
from fedcohort.study.references import differences_of_cells
from tests.experiments import UCB, small
from tests.records import exchange, played, written
from tests.report.pages import Page


def one_round(t: int) -> Any:
    return played(t, [0], test_accuracy=0.3, ledger=[exchange(300, 200)])


@pytest.fixture
def playing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The first of three planned runs, which records another round whenever a table of it is read."""
    run = written(tmp_path / "one", [one_round(t) for t in (1, 2)], rounds=50)
    frame = Run._frame

    def after_another_round(self: Run, query: str) -> Any:
        with writing(run) as writer:
            writer.record([one_round(Run(run.path).last_round + 1)])
        return frame(self, query)

    monkeypatch.setattr(Run, "_frame", after_another_round)
    return run


def test_a_row_counts_everything_up_to_the_same_round(playing: Run) -> None:
    """Client passes were those of more rounds than bytes, and the progress above the table was that of fewer."""
    text = Live(playing.path.parent, "small", planned=Planned(150, 3)).page("small")
    found = Page(text)
    assert "2 of 150 rounds of all 3 runs. Runs: 0 finished, 1 under way, 2 not begun." in found.prose
    assert "1 run is under way. All numbers of a run count its rounds up to the last finished one." in found.prose
    assert "uniform , seed 0: round 2 of 50" in found.prose
    (row,) = found.cells["results"]
    assert (float(row["bytes"]), float(row["client_passes"])) == (1000, 2), "each round takes 500 bytes and one pass"
    assert float(found.cells["ledger"][0]["passes"]) == 2
    assert Run(playing.path).last_round > 5, "rounds were played meanwhile"


def test_every_table_of_a_run_ends_at_the_round_at_which_it_was_opened(playing: Run) -> None:
    cached = CachedRun(playing)
    assert [cached.ledger["round"].max(), cached.clients["round"].max(), cached.wall.index.max()] == [2, 2, 2]
    assert (len(cached.rounds), cached.last_round) == (2, 2)


def test_one_row_with_one_seed_is_not_called_every_row(playing: Run) -> None:
    """The target was "a level that the mean best accuracy of every row reaches", after a last round that was not the last."""
    found = Page(Live(playing.path.parent).page("small"))
    assert "2 of 50 rounds of the run that has begun. Runs: 0 finished, 1 not finished." in found.prose
    assert "The run is not finished." in found.prose
    assert "a level that the best accuracy reaches" in found.prose
    assert not re.search("every row|each row|mean over", found.prose)
    assert "Test accuracy after the last round so far, seed 0." in found.prose
    assert "reached a test accuracy of 30.0% in round 2 of 50." in found.prose


def test_p_values_count_rows_that_have_not_begun(tmp_path: Path) -> None:
    """They were corrected for the rows that had begun, so that a verdict could be lost as soon as another row began."""
    for label, score in (("a", 0.3), ("b", 0.5)):
        for seed in range(5):
            own = played(1, [0], test_accuracy=score, ledger=[exchange(9, 9)])
            written(tmp_path / f"{label}{seed}", [own], label=label, seed=seed, rounds=5)
    known = Page(Live(tmp_path, "small", planned=Planned(100, 20, 3)).page("small"))
    assert "p corrected by Holm for 3 comparisons, 2 of them to come; better or worse" in known.prose
    assert f"a difference can be clear from 7 seeds on. {SO_FAR}" in known.prose
    assert UNPLANNED not in known.prose
    assert [row["p_holm"] for row in known.texts["results"]] == ["baseline", "not clear, 0.19"]
    unknown = Page(Live(tmp_path, "small").page("small"))
    assert "Holm" not in unknown.prose, "of one comparison"
    assert f"{SO_FAR} {UNPLANNED}" in unknown.prose
    assert [row["p_holm"] for row in unknown.texts["results"]] == ["baseline", "not clear, 0.062"]


def test_the_command_that_plays_runs_tells_the_page_how_many_differences_there_will_be() -> None:
    rows = [{"label": "UCB", "selection": UCB}, {"label": "loss", "selection": {"name": "select_by_loss"}}]
    assert differences_of_cells(small(seeds=5, variants=rows).cells()) == 2
    swept = small(seeds=2, variants=rows, sweep={"federation.clients": [6, 12]})
    assert differences_of_cells(swept.cells()) == 4, "two at each of two points"


def test_a_single_row_has_no_best_mean_to_mark(tmp_path: Path) -> None:
    for seed, rounds in ((0, 3), (1, 1)):
        written(tmp_path / str(seed), [one_round(t + 1) for t in range(rounds)], seed=seed, rounds=5)
    prose = Page(Live(tmp_path).page(None)).prose
    assert "after the last round of each run so far" in prose
    assert "No best mean is marked" not in prose
