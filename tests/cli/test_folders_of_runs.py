"""Commands that read runs take what `fedcohort report` takes, and what they print fits narrow terminals."""

import json
import shutil
from pathlib import Path

import pytest
from rich.cells import cell_len

from fedcohort.record import writing
from fedcohort.report.data.report_data import gather
from fedcohort.report.data.runs_on_disk import begun
from tests.cli.test_cli import call, done, refused
from tests.records import played, written

__all__ = ["done"]


def test_commands_that_read_runs_take_folders_of_them(done: Path, tmp_path: Path) -> None:
    """As `fedcohort report` does: directories, a folder of directories, or an experiment file with runs in --runs."""
    runs, file = done / "runs", done / "tiny.toml"
    each = sorted(runs.iterdir(), key=begun)
    assert call("compare", runs).stdout == call("compare", *each).stdout != ""
    assert call("diagnose", file, "--runs", runs).stdout == call("diagnose", *each).stdout != ""
    for command in ("measures", "diagnose"):
        found = json.loads(call(command, *([runs] if command == "measures" else ["--runs", runs]), "--json").stdout)[
            "runs"
        ]
        assert [one["path"] for one in found] == list(map(str, each))
        assert {(one["label"], one["seed"]) for one in found} == {
            ("uniform", 0),
            ("uniform", 1),
            ("UCB", 0),
            ("UCB", 1),
        }
    (tmp_path / "runs").mkdir()
    refused(
        call("why", runs, "--round", 1),
        f"{runs}: there are {len(each)} runs in it; give one of them, such as {each[0]}",
    )
    (tmp_path / "runs" / "one").symlink_to(each[0], target_is_directory=True)
    assert "round 1" in call("why", tmp_path / "runs", "--round", 1).stdout
    refused(call("diagnose", tmp_path), "there is no run in it")
    refused(call("compare", tmp_path), "not a run directory")


def test_a_copy_of_a_run_is_not_a_second_run(done: Path, tmp_path: Path) -> None:
    """`fedcohort measures` and `diagnose` showed it beside the run, as `fedcohort compare` and `report` never did."""
    first = min((done / "runs").iterdir(), key=begun)
    copy = tmp_path / "copy"
    shutil.copytree(first, copy)
    for command in ("measures", "diagnose", "compare"):
        for form in ([], ["--json"]):
            refused(call(command, first, copy, *form), f"{copy}: the same run as {first}, 'uniform' under seed 0;")


COMMANDS = [
    ["compare", "tiny.toml", "--runs", "runs", "--quiet"],
    ["run", "tiny.toml", "--runs", "runs", "--quiet"],
    ["measures", "runs"],
    ["diagnose", "runs"],
    ["diagnose", "UCB"],
    ["why", "UCB", "--round", "2"],
    ["why", "UCB", "--round", "2", "--client", "0"],
    ["strategies"],
    ["strategies", "oort"],
    ["data", "list"],
    ["data", "describe"],
    ["schema"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_line_is_wider_than_the_terminal(command: list[str], done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of runs are left out: they are printed whole, so that they can be copied."""
    monkeypatch.chdir(done)
    ucb = next(str(path.relative_to(done)) for path in (done / "runs").iterdir() if "ucb" in path.name)
    for width in (60, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        shown = call(*[ucb if word == "UCB" else word for word in command])
        assert shown.exit_code == 0, shown.output
        lines = [line for line in shown.stdout.splitlines() if "runs/" not in line]
        assert len(lines) > 4
        assert [line for line in lines if cell_len(line.rstrip()) > width] == [], width
        assert not [line for line in lines if "…" in line and command[0] in ("measures", "compare", "run")], (
            "a number is cut"
        )


def test_a_narrow_terminal_keeps_the_verdict(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interval without its verdict would say more than the test; the accuracy of clients is hidden first."""
    monkeypatch.chdir(done)
    monkeypatch.setenv("COLUMNS", "60")
    (done / "long.toml").write_text((done / "tiny.toml").read_text().replace('"UCB"', '"a much longer name"'))
    narrow = call("compare", "long.toml", "--runs", "runs", "--quiet", "--set", "seeds=3").stdout
    assert "verdict, p " in narrow.partition("───")[0], "one p-value is not corrected"
    assert "not clear" in narrow
    assert max(map(cell_len, narrow.splitlines())) <= 60
    wide = ["--set", "measures.clients_every=1", "--set", "seeds=3", "--set", "rounds=1"]
    shown = call("compare", "tiny.toml", "--runs", "measured", "--quiet", *wide).stdout
    head = shown.partition("───")[0]
    assert "verdict," in head, "below the difference if it has no column of its own"
    assert "worst" not in head
    assert "worst tenth" in shown.partition("Hidden for lack of width:")[2]


def test_two_seeds_are_named_with_and(tmp_path: Path) -> None:
    """They were "seeds 0 to 1"."""
    for seed in (0, 1):
        written(tmp_path / f"run{seed}", [played(1, [0, 1])], seed=seed)
    assert "seeds 0 and 1" in call("measures", str(tmp_path)).stdout
    written(tmp_path / "run2", [played(1, [0, 1])], seed=2)
    assert "seeds 0 to 2" in call("measures", str(tmp_path)).stdout
    written(tmp_path / "run3", [played(1, [0, 1])], seed=2**62)
    assert "4 seeds" in call("measures", str(tmp_path)).stdout


def test_measures_say_which_rows_cannot_be_compared(tmp_path: Path) -> None:
    """Rows of 6 and 2 rounds stood side by side without a word, and a row that predicts one class looked like the most stable one."""
    strategies = {"uniform": "uniform", "UCB": "ucb"}
    for label, seed, last in [("uniform", 0, 6), ("uniform", 1, 5), ("UCB", 0, 2), ("UCB", 1, 2)]:
        classes = [1.0, 0.0, 0.0] if label == "UCB" else [0.8, 0.5, 0.7]
        tested = {"class_accuracy": classes, "test_accuracy": sum(classes) / 3}
        rounds = [played(t, [0, 1], **tested) for t in range(1, last + 1)]
        written(
            tmp_path / f"{label}{seed}", rounds, label=label, seed=seed, rounds=6, selection={"name": strategies[label]}
        )

    def notes(*runs: str) -> str:
        return " ".join(call("measures", *(tmp_path / run for run in runs)).stdout.split())

    every = notes("uniform0", "uniform1", "UCB0", "UCB1")
    assert (
        "Rows have played unequal numbers of rounds, since some runs are not finished ('uniform' 5 to 6 and 'UCB' 2): what is "
        "measured after or over these rounds cannot be compared." in every
    )
    failed = "since training failed so far (one such seed is enough): 'UCB': the last model of 2 of 2 seeds predicts one class"
    assert f"No sound result, {failed}" in every
    assert "Runs have played unequal numbers of rounds" in notes("uniform0", "uniform1")
    assert "No sound result, since training failed so far" in notes("UCB0")
    alike = notes("uniform0")
    assert "unequal" not in alike
    assert "Not final" not in alike
    assert "training failed" not in alike


def test_measures_of_unfinished_and_of_longer_runs_say_so(tmp_path: Path) -> None:
    """A mean of 5.5 rounds was 6. Rows after equal numbers of rounds were final, and those of 2 and of 3 rounds could be compared."""
    strategies = {"uniform": "uniform", "UCB": "ucb"}

    def shown(*runs: tuple[str, int, int, int], finished: bool = False) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for label, seed, last, planned in runs:
            tested = {"class_accuracy": [0.8, 0.5], "test_accuracy": 0.65}
            rounds = [played(t, [0, 1], **tested) for t in range(1, last + 1)]
            chosen = {"name": strategies[label]}
            run = written(folder / f"{label}{seed}", rounds, label=label, seed=seed, rounds=planned, selection=chosen)
            if finished:
                with writing(run) as writer:
                    writer.finish({})
        return call("measures", folder).stdout

    uneven = shown(("uniform", 0, 5, 6), ("uniform", 1, 6, 6))
    assert [line.split()[1] for line in uneven.splitlines() if line.startswith("rounds ")] == ["5.5"]
    assert "Not final" not in uneven, "it says already how far they are"
    behind = " ".join(shown(("uniform", 0, 6, 6), ("UCB", 0, 5, 6)).split())
    assert "of every row reaches, without rows that fail, are not finished or are far below the best" in behind
    early = " ".join(shown(("uniform", 0, 2, 6), ("UCB", 0, 2, 6)).split())
    assert "without rows that fail or are far below the best" in early, "they are equally far, and count"
    assert "Not final: 'uniform' has played 2 of 6 rounds, 'UCB' has played 2 of 6 rounds." in early
    assert "unequal" not in early
    longer = " ".join(shown(("uniform", 0, 2, 2), ("UCB", 0, 3, 3), finished=True).split())
    planned = (
        "Rows were planned with different numbers of rounds ('uniform' 2 and 'UCB' 3): differences in what is measured"
    )
    assert planned in longer
    assert "Not final" not in longer


def test_a_comparison_of_runs_is_named_after_their_experiments(tmp_path: Path) -> None:
    """Its title was "runs", also in LaTeX and in JSON, whose key is the name of the experiment."""

    def title(*names: str) -> str:
        runs = [
            written(
                tmp_path / str(len(names)) / f"{i}",
                [played(1, [0, 1])],
                name=name,
                label=f"row {i}",
                selection={"name": "uniform", "k": 1 + i},
            )
            for i, name in enumerate(names)
        ]
        paths = [run.path for run in runs]
        shown: str = call("compare", "--partial", *paths).stdout.splitlines()[0]
        assert shown == json.loads(call("compare", "--partial", *paths, "--json").stdout)["name"] == gather(runs).name
        return shown

    assert title("wine", "wine") == "wine"
    assert title("wine", "digits", "wine") == "wine, digits"
    assert title("a", "b", "c", "d", "e") == "a, b, c and 2 more experiments"


def test_rows_with_equal_labels_are_told_apart_as_in_compare(tmp_path: Path) -> None:
    """`fedcohort measures` and `diagnose` had two columns or lines 'uniform' with different numbers, and nothing to tell which."""
    for k in (1, 2):
        for seed in (0, 1):
            written(
                tmp_path / f"{k}-{seed}",
                [played(1, [0, 1])],
                name="wine",
                seed=seed,
                label="uniform",
                selection={"name": "uniform", "k": k},
                facts={"row": f"uniform {k}"},
            )
    for command in (("measures",), ("diagnose",), ("compare", "--partial")):
        shown = " ".join(call(*command, str(tmp_path)).stdout.split())
        assert "(k=1)" in shown, command
        assert "(k=2)" in shown, command
