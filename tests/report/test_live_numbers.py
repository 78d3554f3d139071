"""The numbers of a live page agree: how many runs there are, and up to which round everything is counted."""

import gc
import os
import re
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest

from fedcohort.record import Run, writing
from fedcohort.report.data.cached_run import CachedRun
from fedcohort.report.data.missing_runs import SO_FAR, UNPLANNED
from fedcohort.report.live.live_progress import Pace, Planned
from fedcohort.report.live.live_server import Live
from fedcohort.report.live.quiet_runs import about_quiet
from fedcohort.study.rows.references import differences_of_cells
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


def test_runs_whose_rows_are_all_behind_have_no_target_yet(tmp_path: Path) -> None:
    """It was "none, because training failed", while the second seed of the first row was played."""
    for seed, rounds in ((0, 5), (1, 2)):
        written(tmp_path / str(seed), [one_round(t + 1) for t in range(rounds)], seed=seed, rounds=5)
    prose = Page(Live(tmp_path).page(None)).prose
    assert "Target accuracy: none yet, because runs are not finished." in prose
    assert "training failed" not in prose


def test_no_time_is_left_if_it_is_not_known_which_runs_are_to_come(tmp_path: Path) -> None:
    """It was that of the runs that had begun: two seconds, with two of 20 runs begun."""
    run = written(tmp_path / "one", [one_round(1)], rounds=50)
    paces = [Pace("small", planned, iter((0.0, 9.0)).__next__) for planned in (None, Planned(150, 3))]
    for pace in paces:
        pace.overall("small", [run])
    with writing(run) as writer:
        writer.record([one_round(2)])
    unknown, known = (pace.overall("small", [run])["words"] for pace in paces)
    assert unknown == "2 of 50 rounds of the run that has begun. Runs: 0 finished, 1 not finished."
    assert known.startswith("2 of 150 rounds of all 3 runs, 22:12 left at this pace.")


def test_runs_without_a_new_round_are_named(tmp_path: Path) -> None:
    """A page of a command that was killed said for ever that it follows the runs."""
    seconds = dict.fromkeys(("selection", "training", "aggregation", "evaluation", "recording", "total"), 40.0)
    quick = written(tmp_path / "quick", [one_round(1)], rounds=5)
    slow = written(tmp_path / "slow", [played(1, wall=seconds)], label="b", rounds=5)
    none = written(tmp_path / "none", [], label="c", rounds=5)
    ended = written(tmp_path / "ended", [one_round(1)], label="d", rounds=1)
    with writing(ended) as writer:
        writer.finish({})
    for run in (quick, slow, none, ended):
        os.utime(run.path / "run.sqlite", (1000, 1000))

    def after(seconds: int) -> str:
        return about_quiet([quick, slow, none, ended], clock=lambda: 1000.0 + seconds)

    assert after(29) == ""
    assert after(31).startswith(
        "No new round of 'uniform' (seed 0) for half a minute. If the command that plays it was"
    )
    assert after(119).startswith("No new round of 'uniform' (seed 0) for a minute.")
    assert after(199).startswith("No new round of 'uniform' (seed 0) and 'c' (seed 0) for 3 minutes or longer. If")
    assert after(201).startswith("No new round of 'uniform' (seed 0), 'b' (seed 0) and 'c' (seed 0) for 3 minutes or")
    assert about_quiet([quick], played=True) == re.sub(" If .*", "", about_quiet([quick])), "its command goes on"
    assert Live(tmp_path).state(None)["quiet"].startswith("No new round of ")
    assert "2 more runs for" in about_quiet([quick, slow, none, quick, slow])


def test_experiments_keep_their_order_and_tell_how_many_runs_they_have(tmp_path: Path) -> None:
    """The one with the latest round came first, so that links changed places while readers wanted to use them."""
    names = ("first", "second")
    runs = [written(tmp_path / name, [one_round(1)], name=name, rounds=3) for name in names]
    for i, run in enumerate(runs):
        os.utime(run.path / "experiment.toml", (1000 + i, 1000 + i))
    live, seen = Live(tmp_path), []
    for latest in (0, 1, 0):
        for i, run in enumerate(runs):
            os.utime(run.path / "run.sqlite", (2000 + (i == latest), 2000 + (i == latest)))
        assert next(iter(live.groups())) == names[latest]
        seen.append((live.state("first")["version"], re.findall(r'href="/[?]name=(\w+)', live.page("first"))))
    assert seen == [seen[0]] * 3
    assert seen[0][1] == ["first", "second"]
    with writing(runs[1]) as writer:
        writer.finish({})
    assert live.state("first")["version"] != seen[0][0]
    assert re.search("second 1 run(?!, 1 not)", Page(live.page("first")).prose)


def test_tables_of_runs_that_are_no_longer_there_are_not_kept(tmp_path: Path) -> None:
    """A page that is followed for days kept the tables of every finished run that it had ever shown."""
    for name in ("one", "two"):
        with writing(written(tmp_path / name, [one_round(1)], label=name, rounds=1)) as writer:
            writer.finish({})
    live = Live(tmp_path)

    def read() -> list[str]:
        gc.collect()
        return [run.path.name for run in gc.get_objects() if isinstance(run, CachedRun) and run.path.parent == tmp_path]

    live.page("small")
    assert sorted(read()) == ["one", "two"]
    kept = [weakref.ref(run) for run in gc.get_objects() if isinstance(run, CachedRun) and run.path.name == "one"]
    shutil.rmtree(tmp_path / "two")
    live.page("small")
    assert read() == ["one"]
    assert [ref() is None for ref in kept] == [False], "the other one was not read again"
