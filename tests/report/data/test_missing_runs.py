"""Commands that read the runs of an experiment file say which of them have not begun, because the comparison was stopped early."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fedcohort.cli import cli
from fedcohort.report.data.missing_runs import SO_FAR, UNPLANNED, Missing, about_missing, in_sentences
from fedcohort.report.data.report_data import gather
from fedcohort.report.data.runs_on_disk import find_runs, found_and_missing
from fedcohort.report.page import page
from fedcohort.report.page_assets import with_code
from tests.cli.test_json_formats import check
from tests.experiments import small
from tests.records import played, written
from tests.report.conftest import ROWS
from tests.report.pages import Page

ABOUT = "5 of 9 runs of three.toml have not begun: 'UCB' with seeds 1 and 2; 'loss' with all seeds."


@pytest.fixture
def stopped(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an experiment file with three rows and seeds, and of its first four runs; it is the current one."""
    experiment = small(rounds=8, seeds=3, variants=ROWS, measures={"clients_every": 2})
    (tmp_path / "three.toml").write_text(experiment.to_toml())
    for run in find_runs([runs]):
        if run.meta["label"] == "uniform" or (run.meta["label"], run.meta["seed"]) == ("UCB", "0"):
            shutil.copytree(run.path, tmp_path / "runs" / run.path.name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, arguments, prog_name="fedcohort")
    assert result.exit_code == 0, result.output
    return result


def test_the_page_says_which_runs_have_not_begun(stopped: Path) -> None:
    """Its health asked for as many seeds as the file has."""
    result = call("report", "three.toml")
    assert result.stderr == f"fedcohort: {ABOUT} `fedcohort compare three.toml` goes on where it was stopped.\n"
    text = (stopped / "report.html").read_text(encoding="utf-8")
    assert "Try: <code>fedcohort compare three.toml</code>, which goes on where it was stopped." in text
    shown = Page(text)
    health = shown.prose.partition("Health")[2].partition("Which strategy?")[0]
    assert ABOUT in health
    assert f"with 2 comparisons, a difference can be clear from 7 seeds on. {SO_FAR}" in shown.prose, (
        "one row has not begun"
    )
    assert UNPLANNED not in shown.prose
    assert "set seeds" not in health
    found = found_and_missing(["three.toml"])
    of_runs = Page(page(gather(found.runs))).prose
    assert "set seeds" in of_runs.partition("Which strategy?")[0], "of runs, not of a file"
    assert SO_FAR not in of_runs


def test_tables_and_captions_say_it(stopped: Path) -> None:
    goes_on = "`fedcohort compare three.toml --runs other` goes on where it was stopped."
    (stopped / "runs").rename(stopped / "other")
    for command in ("measures", "diagnose"):
        text = " ".join(call(command, "three.toml", "--runs", "other").stdout.split())
        assert text.count(f"{ABOUT} {goes_on}") == 1, command
        assert "have not begun" not in call(command, "other").stdout, "a folder of runs is what it is"
    call("figures", "three.toml", "--runs", "other", "--only", "bars", "--format", "svg")
    assert f"All figures\n{ABOUT}\n" in (stopped / "figures" / "captions.txt").read_text(encoding="utf-8")


def test_json_lists_them(stopped: Path) -> None:
    """The table said it, and its JSON did not."""
    lacking = {
        "file": "three.toml",
        "folder": "runs",
        "runs": 9,
        "rows": {"UCB": [1, 2], "loss": [0, 1, 2]},
        "command": "fedcohort compare three.toml",
    }
    for command in ("measures", "diagnose"):
        found = check(command, call(command, "three.toml", "--json").stdout)
        assert found["missing"] == [lacking], command
        assert [(run["finished"], run["planned_rounds"], run["rounds"]) for run in found["runs"]] == [(True, 8, 8)] * 4
        assert check(command, call(command, "runs", "--json").stdout)["missing"] == []


def test_json_says_which_runs_are_not_finished(tmp_path: Path) -> None:
    run = written(tmp_path / "run", [played(1, [0, 1])], rounds=3)
    for command in ("measures", "diagnose"):
        (one,) = check(command, call(command, str(run.path), "--json").stdout)["runs"]
        assert (one["finished"], one["planned_rounds"], one["rounds"]) == (False, 3, 1), command


def test_nothing_is_said_of_an_experiment_with_all_runs(runs: Path, stopped: Path) -> None:
    found = found_and_missing(["three.toml"], runs)
    assert (len(found.runs), found.missing) == (9, ())
    assert "have not begun" not in call("measures", "three.toml", "--runs", str(runs)).stdout


def test_rows_without_runs_of_their_own_are_named(runs: Path, stopped: Path) -> None:
    """A variant with the settings of the base was left out of reports and tables without a word, and still counted as a row that has
    not begun."""
    same = {"label": "again", "selection": {"name": "uniform"}}
    experiment = small(rounds=8, seeds=3, variants=[*ROWS, same], measures={"clients_every": 2})
    (stopped / "four.toml").write_text(experiment.to_toml())
    told = "Rows that share their runs are one row: in four.toml, 'again' has the settings of 'uniform'."
    for command in ("measures", "diagnose"):
        assert told in " ".join(call(command, "four.toml", "--runs", str(runs)).stdout.split()), command
    assert f"fedcohort: {told}\n" in call("report", "four.toml").stderr
    call("figures", "four.toml", "--only", "bars", "--format", "svg")
    assert told in (stopped / "figures" / "captions.txt").read_text(encoding="utf-8")
    assert "one row" not in call("measures", "three.toml").stdout
    ((missing,), (others,)) = (found_and_missing([name]).missing for name in ("four.toml", "three.toml"))
    assert missing.comparisons == others.comparisons == 2


def test_p_values_are_corrected_for_the_rows_of_other_files_too(stopped: Path) -> None:
    """The two comparisons of a finished file were taken for those of the other one: fewer were said to come."""
    more = {"label": "one more", "selection": {"name": "all"}}
    whole = small(name="whole", rounds=1, seeds=3, variants=[more], federation={"clients": 5})
    (stopped / "whole.toml").write_text(whole.to_toml())
    call("compare", "whole.toml", "--quiet")
    assert found_and_missing(["three.toml", "whole.toml"]).planned == 3
    assert found_and_missing(["whole.toml"]).planned == 0, "no more runs are played"
    call("report", "three.toml", "whole.toml")
    prose = Page((stopped / "report.html").read_text(encoding="utf-8")).prose
    assert "p corrected by Holm for 3 comparisons, 2 of them to come" in prose


def test_rows_with_the_same_missing_seeds_are_named_together() -> None:
    rows = {f"k={k}": [4] for k in range(1, 9)} | {"one": [0, 1, 2, 3, 4]}
    missing = Missing(Path("some folder") / "many.toml", 45, range(5), rows, settings=("rounds=3",))
    assert about_missing(missing).text == (
        "13 of 45 runs of many.toml have not begun: 'k=1', 'k=2', 'k=3', 'k=4', 'k=5', 'k=6' and 2 more rows with seed 4; 'one' with "
        "all seeds"
    )
    assert "`fedcohort compare 'some folder/many.toml' --set rounds=3` goes on" in in_sentences([missing])
    one = Missing(Path("x.toml"), 2, range(1), {"UCB": [0]})
    assert in_sentences([one], command=False) == "1 of 2 runs of x.toml has not begun: 'UCB' with seed 0."


def test_commands_in_sentences_are_code_and_everything_else_is_text() -> None:
    text = str(with_code("play `fedcohort compare <a>.toml` & wait; a single ` stays"))
    assert text == "play <code>fedcohort compare &lt;a&gt;.toml</code> &amp; wait; a single ` stays"
