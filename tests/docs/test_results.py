"""Measured results: every table of the page comes from a file, files say how they were made, and quick ones are made anew."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results import __main__ as command
from results import result_file
from results.atlas.means import Findings
from results.comparisons import ComparisonResult
from results.descriptions import DESCRIPTIONS
from results.estimates import register
from results.pages import VIEWS, blocks
from results.register_table import ours
from results.result_file import digest, names, read
from results.source_runs import SOURCE_RUNS
from results.tables import CELLS, intervals_without_zero, made_with

import fedcohort
from tests.docs.pages import ROOT
from tests.docs.pages import read as text_of

QUICK = [name for name, description in DESCRIPTIONS.items() if description.quick]


def test_every_table_of_the_results_page_is_generated() -> None:
    page = text_of(ROOT / "docs" / "results.md")
    by_hand = re.sub(r"<!-- begin ([\w -]+?) -->.*?<!-- end \1 -->", "", page, flags=re.DOTALL)
    assert re.findall(r"^\|.*\|$", by_hand, re.MULTILINE) == []
    assert len(re.findall(r"<!-- begin result ", page)) > 15


@pytest.mark.parametrize(
    "name", [name for name in names() if name not in ("campaign", "cluster", "speed-cases", "superlink")]
)
def test_a_result_says_with_what_it_was_made(name: str) -> None:
    content = read(name)
    assert re.fullmatch(r"[0-9a-f]{7,}\+?", content["commit"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", content["date"])
    assert content["command"]
    assert content.get("older") or {"versions", "processor", "seconds", "depends"} <= content.keys()
    assert made_with(content).startswith("*")
    assert f"result {name}" in blocks() or name in SOURCE_RUNS
    if not content.get("older") and name in DESCRIPTIONS:  # commands of benchmarks write the others
        assert set(DESCRIPTIONS[name].experiments) <= content["depends"].keys()


def test_a_digest_ignores_comments_and_docstrings(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    found = set()
    for body in ('"""One."""\nx = 1  # one\n', '"""Two."""\n\nx = 1\n"""What it is."""\n', "x = 2\n"):
        path.write_text(body)
        found.add(digest(path))
    assert len(found) == 2
    toml = tmp_path / "file.toml"
    toml.write_text("# a comment\nk = 1\nl = 2\n")
    before = digest(toml)
    toml.write_text("l = 2\nk = 1\n")
    assert digest(toml) == before
    toml.write_text("l = 2\nk = 2\n")
    assert digest(toml) != before


def test_results_that_are_older_than_a_change_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "used.py").write_text("x = 1\n")
    (tmp_path / "gone.py").write_text("x = 1\n")
    depends = {name: digest(tmp_path / name) for name in ("used.py", "gone.py")}
    monkeypatch.setattr(result_file, "ROOT", tmp_path)
    monkeypatch.setattr(result_file, "RESULTS", tmp_path)
    result_file.write("made", {"depends": depends})
    result_file.write("kept", {"older": "takes hours"})
    assert result_file.changes("made") == []
    assert result_file.changes("kept") == ["takes hours"]
    (tmp_path / "used.py").write_text("x = 2\n")
    (tmp_path / "gone.py").unlink()
    assert result_file.changes("made") == ["used.py", "gone.py"]
    assert command.check() == 1
    shown = capsys.readouterr().out
    assert "made: used.py, gone.py\n" in shown
    assert shown.endswith("2 results: 1 older than what they depend on, or without saying it; 1 kept\n")


def test_one_run_of_the_quickstart_has_the_published_accuracy(tmp_path: Path) -> None:
    (rows,) = read("quickstart")["result"].values()
    experiment = fedcohort.load_experiment(ROOT / "experiments" / "quickstart.toml")
    run = fedcohort.run(experiment, runs=tmp_path)
    assert f"{100 * run.rounds['test_accuracy'].iloc[-1]:.1f}" == f"{100 * rows[0]['accuracies'][0]:.1f}"


# --- the register of the sources -------------------------------------------------------------------------------------------------


def test_every_row_of_the_register_names_files_results_and_labels_that_exist() -> None:
    for row in register():
        for scale in ("paper", "small"):
            assert not row.get(scale) or (ROOT / row[scale]).exists(), row["item"]
        assert set(row.get("see", ())) <= {*names(), *DESCRIPTIONS}, row["item"]
        for name in row.get("see", ()) if row.get("labels") else ():
            description = DESCRIPTIONS[name]
            assert isinstance(description, ComparisonResult)
            experiment = fedcohort.load_experiment(ROOT / description.experiment)
            cells = experiment.with_overrides(next(iter(description.settings.values()))).cells()
            assert set(row["labels"]) <= {cell.label for cell in cells}, row["item"]
        assert row.get("cell", "accuracy") in CELLS


def test_what_a_row_of_the_register_says() -> None:
    (rows,) = read("thesis-logistic")["result"].values()
    row = {"see": ["thesis-logistic"], "labels": ["centralised"], "differs": "It differs.", "paper": "a.toml"}
    text = ours(row, {})
    assert f"centralised: {CELLS['accuracy'](rows[1])} (result `thesis-logistic`)" in text
    assert text.startswith("small scale (`breast_cancer`, `logistic`, 10 clients, 30 rounds, 10 seeds), in %")
    assert text.endswith("It differs.")
    assert ours({**row, "see": ["never-made"]}, {"a.toml": 250.0}) == "not run: needs 250 h"


def test_what_the_page_says_about_the_sources_follows_from_the_results() -> None:
    def mean(name: str, label: str, key: str = "bests") -> float:
        (rows,) = read(name)["result"].values()
        return float(np.mean(next(row for row in rows if row["label"] == label)[key]))

    for name in ("thesis-scores", "thesis-scores-15"):
        assert mean(name, "all") - 0.02 < mean(name, "a quarter")
        assert max(mean(name, score) for score in ("s1", "s2", "s3")) < mean(name, "a quarter")
    assert mean("thesis-scores", "s2") > mean("thesis-scores", "s3") > mean("thesis-scores", "s1")
    assert mean("thesis-logistic", "all", "accuracies") == mean("thesis-logistic", "centralised", "accuracies")
    rounds = [row["rounds_to_target"] for row in read("thesis-logistic")["result"][""]]
    assert rounds[1:] == sorted(rounds[1:], reverse=True)
    for name, frac in (("thesis-mnist-5", 0.735), ("thesis-cifar10-5", 0.216)):
        assert abs(mean(name, "a quarter, weights N_i/N") - frac) < 0.03
        assert mean(name, "all") - 0.02 < mean(name, "a quarter")
    for algorithm in ("fedavg", "scaffold", "rhfl"):
        uniform, flash = (
            mean("flash-table1", f"{row}, name={algorithm}", "accuracies") for row in ("uniform", "FLASH")
        )
        assert 0.05 < uniform - flash < 0.07
    for name in ("flash-figure5-femnist", "flash-changing-cohorts"):
        (rows,) = read(name)["result"].values()
        assert all(row["difference"] < 0 for row in rows if row["label"].startswith(("α", "FLASH")))
    heads = {row["label"]: row for row in read("flash-figure4-heads")["result"][""]}
    times = {label: row["time_to_target"] for label, row in heads.items() if row["reached"] == row["seeds"]}
    assert abs(times["linear Thompson sampling"] / times["uniform"] - 1) < 0.05
    assert times["neural"] < min(times["linear Thompson sampling"], times["uniform"])
    assert all(row["difference"] < 0 for label, row in heads.items() if label != "uniform")
    over = Findings(read("atlas")["result"]).over_federations
    assert (over("accuracy")["flash"].words, over("at_time")["oort"].words) == ("worse", "better")


def test_intervals_without_zero_are_named() -> None:
    base = {"label": "uniform", "verdict": "baseline", "difference": 0.0}
    rows = [base] + [
        {
            "label": name,
            "verdict": "not clear",
            "difference": mean,
            "difference_low": mean - 0.02,
            "difference_high": mean + 0.02,
        }
        for name, mean in (("a", 0.05), ("b", 0.01), ("c", -0.03))
    ]
    expected = "95% interval of the difference to uniform: above 0 for a (+5.0); below 0 for c (−3.0); not corrected for 3 rows."
    assert intervals_without_zero(rows) == expected
    assert intervals_without_zero([base]) == ""


@pytest.mark.parametrize("name", ["race", "diagnoses"])
def test_results_of_their_own_are_shown_from_their_file(name: str) -> None:
    if name in names():
        assert VIEWS[name](read(name)["result"]).count("\n|") > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_quick_results_made_anew_have_the_published_digits(name: str, tmp_path: Path) -> None:
    description, kept = DESCRIPTIONS[name], read(name)["result"]
    made = json.loads(json.dumps(description.make(tmp_path)))
    assert shown(description, made) == shown(description, kept)


def shown(description: Any, result: dict[str, Any]) -> Any:
    """A result as it is published: the cells of a table, or numbers with six digits."""
    if isinstance(description, ComparisonResult):
        return [[CELLS[kind](row) for kind in description.columns.values()] for rows in result.values() for row in rows]
    return json.loads(json.dumps(result), parse_float=lambda text: f"{float(text):.6g}")
