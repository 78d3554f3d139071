"""Races over real runs: which rows take part, which runs are played and found again, how a race ends, and what it says."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fedcohort
from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.racing.raced_rows import candidates
from fedcohort.racing.row_results import BEST, DROPPED, FRONT, NOT_BETTER
from fedcohort.racing.run_race import Limits, plan
from fedcohort.report import terminal
from fedcohort.report.live.live_progress import Planned
from fedcohort.report.terminal.progress import _Course
from fedcohort.selection import STRATEGIES, UCB
from tests.experiments import small
from tests.records import played

ROWS = [{"label": "all clients", "selection": "all"}, {"label": "UCB", "selection": "ucb"}]
SHORT = {"rounds": 1, "federation": {"clients": 4, "partition": "iid"}, "selection": {"k": 2}}


def experiment(**values: Any) -> Experiment:
    return small(**{**SHORT, "variants": ROWS, **values})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("raced")


@pytest.fixture(scope="module")
def raced(folder: Path) -> fedcohort.Race:
    return fedcohort.race(experiment(), max_seeds=3, runs=folder)


# --- the rows ------------------------------------------------------------------------------------------------------------------


def test_all_strategies_race_if_the_experiment_has_one_row() -> None:
    rows, skipped = candidates(small(), Given())
    assert {row.label for row in rows} | set(skipped) == set(STRATEGIES.builtin)
    assert "federation.holdout = 0" in skipped["flash"]
    assert [row.label for row in rows][:2] == ["uniform", "all"]
    assert all(row.experiment.selection.k == 3 for row in rows)


def test_strategies_that_cannot_have_so_many_clients_do_not_race() -> None:
    """They were refused when their first run began, after those of other rows, and the race ended with this error."""
    rows, skipped = candidates(small(federation={"clients": 20_001}), Given())
    refused = {name: reason for name, reason in skipped.items() if "clients" in reason and "holdout" not in reason}
    assert set(refused) == {"clustered_similarity", "divfl", "fedcor", "haccs"}
    assert "at most 20,000 clients with it, not 20,001" in refused["fedcor"]
    for row in rows:
        row.experiment.selection.build().check_clients(1_000_000)


def test_strategies_that_do_not_fit_the_algorithm_do_not_race() -> None:
    rows, skipped = candidates(small(algorithm={"name": "fedavg", "weights": "cohort"}), Given())
    assert "rizk" in {row.label for row in rows}
    assert "gives no weights" in skipped["uniform"]


def test_settings_vary_for_the_strategies_that_have_them() -> None:
    over: dict[str, list[Any]] = {"selection.d": [4, 6], "training.lr": [0.1]}
    rows, skipped = candidates(small(), Given(), strategies=["uniform", "powd"], over=over)
    assert [row.label for row in rows] == ["uniform, lr=0.1", "powd, d=4, lr=0.1", "powd, d=6, lr=0.1"]
    assert rows[2].experiment.selection.parameters["d"] == 6
    assert not skipped


def test_the_rows_of_an_experiment_race_as_they_are() -> None:
    rows, skipped = candidates(experiment(), Given(), over={"selection.k": [1, 2]})
    assert [row.label for row in rows] == [
        f"{label}, k={k}" for label in ("uniform", "all clients", "UCB") for k in (1, 2)
    ]
    assert skipped == {}


def test_strategies_written_in_python_race() -> None:
    rows, _ = candidates(small(), Given(), selector={"my UCB": UCB()})
    assert [row.label for row in rows] == ["uniform", "my UCB"]
    assert rows[1].given.names() == "selector"


@pytest.mark.parametrize(
    ("values", "arguments", "message"),
    [
        ({}, {"strategies": ["flash", "ucb"]}, "federation.holdout = 0: 'flash' needs a held-out part"),
        (
            {},
            {"strategies": ["powd", "all"], "over": {"selection.zz": [4, 5]}},
            "over selection.zz = [4, 5]: no strategy in the race has this parameter; valid: d, k",
        ),
        (
            {},
            {"strategies": ["uniform", "uniform"]},
            "strategies = ['uniform', 'uniform']: 'uniform' is given twice; give each strategy once",
        ),
        (
            {},
            {"over": {"selection.k": [3, 3]}},
            "over selection.k = [3, 3]: the same value is given twice; give each value",
        ),
        ({}, {"strategies": ["ucbb", "ucb"]}, "strategies = 'ucbb': no such strategy; did you mean 'ucb'?"),
        (
            {},
            {"over": {"training.zz": [4]}},
            "strategies: none of 38 can race: training.zz: unknown key; valid: augment, batch_size",
        ),
        ({}, {"strategies": ["ucb"]}, "rows = 1: a race needs at least 2"),
        (
            {"variants": ROWS},
            {"strategies": ["ucb"]},
            "strategies = ['ucb']: the experiment has rows of its own; leave one of the two out, or choose rows by their labels",
        ),
        (
            {"variants": ROWS},
            {"over": {"selection.kk": [1, 2]}},
            "over selection.kk: unknown key for 'uniform'; did you mean 'k'?",
        ),
        ({}, {"labels": ["uniform", "conformal"]}, "labels = 'conformal': cannot race: federation.holdout = 0: "),
        ({}, {"strategies": 5}, "strategies = 5: give a list of names, such as ['uniform', 'ucb']"),
        ({}, {"labels": [["ucb"]]}, "labels = [['ucb']]: give a list of names"),
    ],
)
def test_rows_that_cannot_race_are_refused(values: dict[str, Any], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        candidates(small(**values), Given(), **arguments)
    assert str(error.value).startswith(message)


def test_a_race_of_very_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcohort.racing.raced_rows.MAX_ROWS", 2)
    with pytest.raises(UsageError, match=r"^rows = 3: at most 2 can race; change the variants"):
        candidates(experiment(), Given())


# --- the runs ------------------------------------------------------------------------------------------------------------------


def test_all_rows_play_the_same_seeds(raced: fedcohort.Race, folder: Path) -> None:
    assert sorted(row.label for row in raced.rows) == ["UCB", "all clients", "uniform"]
    assert [sorted(row.runs) for row in raced.rows] == [[0, 1, 2]] * 3
    assert len(list(folder.iterdir())) == 9
    assert (raced.ended, raced.decided) == ("seeds", False)
    for row in raced.rows:
        finals = [float(row.runs[seed].rounds["test_accuracy"].iloc[-1]) for seed in range(3)]
        assert row.scores == (tuple(finals),)
    assert raced.recommended == max(raced.rows, key=lambda row: row.means[0]).label


def test_runs_of_a_comparison_are_used_and_the_other_way_round(raced: fedcohort.Race, folder: Path) -> None:
    before = {path: (path / "run.sqlite").stat().st_mtime_ns for path in folder.iterdir()}
    compared = fedcohort.compare(experiment(seeds=3), runs=folder)
    assert {run.path for row in compared.rows for run in row.runs.values()} == set(before)
    again = fedcohort.race(experiment(), max_seeds=3, runs=folder)
    assert again.to_json() == raced.to_json()
    assert before == {path: (path / "run.sqlite").stat().st_mtime_ns for path in folder.iterdir()}


def test_a_race_that_a_limit_ended_resumes(raced: fedcohort.Race, tmp_path: Path) -> None:
    first = fedcohort.race(experiment(), max_seeds=3, max_runs=5, runs=tmp_path)
    assert (first.ended, first.cost.runs) == ("runs", 3)
    second = fedcohort.race(experiment(), max_seeds=3, runs=tmp_path)
    assert len(list(tmp_path.iterdir())) == 9
    played = [{row.label: [run.digest() for run in row.runs.values()] for row in each.rows} for each in (second, raced)]
    assert played[0] == played[1]
    assert second.recommended == raced.recommended


def test_a_time_limit_ends_a_race_before_a_block_that_would_take_too_long(folder: Path) -> None:
    planned = plan(experiment(), Given(), limits=Limits(seeds=3, minutes=5.0))
    times = iter(
        [0.0, 0.0, 0.0, 130.0, 130.0, 300.0]
    )  # begin, look, block, look: 130 + 130 s are left of 300, block, look
    race = planned.run(runs=folder, clock=lambda: next(times))
    assert race.ended == "minutes"
    assert race.rows[0].seeds == 2


@pytest.mark.slow
def test_processes_play_the_same_race(raced: fedcohort.Race, tmp_path: Path) -> None:
    race = fedcohort.race(experiment(), max_seeds=2, max_runs=3, runs=tmp_path, jobs=2)
    digests = {(row.label, seed): run.digest() for row in race.rows for seed, run in row.runs.items()}
    alone = {(row.label, seed): run.digest() for row in raced.rows for seed, run in row.runs.items() if seed < 1}
    assert digests == alone


def test_two_objectives_give_a_front(folder: Path) -> None:
    race = fedcohort.race(experiment(), objective=["accuracy", "bytes"], max_seeds=3, runs=folder)
    assert isinstance(race.recommended, list)
    assert set(race.recommended) == {"uniform", "UCB", "all clients"}
    assert race.recommendation.startswith("Pareto front of test accuracy and bytes of a run: ")
    table = race.table.set_index("label")
    assert table["bytes"]["all clients"] == pytest.approx(2 * table["bytes"]["uniform"])
    assert table["total_bytes"]["all clients"] == pytest.approx(3 * table["bytes"]["all clients"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_seeds": 1}, "max_seeds = 1: should be a whole number from 2 to 10,000"),
        ({"max_runs": 0}, "max_runs = 0: should be a whole number of at least 1"),
        ({"max_runs": 2}, "max_runs = 2: fewer than the 3 rows, which all start"),
        ({"minutes": 0}, "minutes = 0: should be a number above 0"),
        ({"confidence": 1.0}, "confidence = 1.0: should be at least 0.5 and below 1"),
        ({"jobs": 0}, "jobs = 0: should be a whole number of at least 1"),
        ({"jobs": 2, "selector": {"my UCB": UCB()}}, "jobs = 2: objects from Python stay in their process"),
        ({"objective": "worst_accuracy"}, "measures.clients_every = 0: the objective 'worst_accuracy'"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        fedcohort.race(experiment(), runs=tmp_path, **arguments)
    assert str(error.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("objective", "labels", "ended", "states", "sureness"),
    [
        ("bytes", ["uniform", "all clients"], "best", [BEST, DROPPED], "uniform, no other is better>"),
        ("bytes", [], "settled", [BEST, NOT_BETTER, DROPPED], "uniform, no other is better by more than the margin>"),
        (["bytes", "passes"], [], "front", [FRONT, FRONT, DROPPED], "uniform, UCB, the Pareto front>"),
        (["passes", "bytes"], ["uniform", "all clients"], "front", [FRONT, DROPPED], "uniform, the Pareto front>"),
    ],
)
def test_a_race_ends_as_soon_as_it_is_decided(
    folder: Path, objective: Any, labels: list[str], ended: str, states: list[str], sureness: str
) -> None:
    """Uniform selection and UCB select two of the four clients: half the bytes and half the passes of all clients."""
    race = fedcohort.race(experiment(), objective=objective, labels=labels, runs=folder)
    assert (race.ended, race.decided) == (ended, True)
    assert [row.label for row in race.rows] == ["uniform", *["UCB"] * (not labels), "all clients"]
    assert [row.state for row in race.rows] == states
    assert repr(race).endswith(sureness)
    dropped = race.rows[-1]
    assert (dropped.dropped_by, dropped.dropped_after) == ("uniform", dropped.seeds)
    assert race.rows[0].seeds <= 5 < Limits().seeds
    if len(race.objectives) == 1:
        assert dropped.difference == pytest.approx(-math.log(2))
        assert race.at_most_better < math.log(1.05)
    else:
        assert math.isnan(race.at_most_better)
        assert "no row is dropped although no other row is better" in race.about_confidence
        front = " and ".join(repr(label) for label in race.recommended)
        assert f"{front}. 1 row is clearly worse than one of them (95% confidence)." in race.recommendation
    assert all(row.needed == 0 for row in race.rows)


# --- the command ---------------------------------------------------------------------------------------------------------------


def test_the_command_prints_the_recommendation_or_json(folder: Path, raced: fedcohort.Race, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(experiment().to_toml())
    arguments = ["race", str(tmp_path / "small.toml"), "--max-seeds", "3", "--runs", str(folder), "--quiet"]
    shown = CliRunner().invoke(cli, arguments)
    assert shown.exit_code == 0, shown.output
    assert raced.recommendation in " ".join(shown.stdout.split())
    assert "The race ended at its largest number of seeds." in raced.recommendation
    found = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).stdout)
    assert found["recommended"] == raced.recommended
    assert found["recommendation"] == raced.recommendation
    assert found["cost"]["runs"] == 9
    assert [row["label"] for row in found["rows"]] == [row.label for row in raced.rows]


def test_the_command_shows_the_progress_unless_it_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(experiment().to_toml())
    for number, quiet in ((1, []), (2, ["--quiet"])):
        arguments = ["race", str(tmp_path / "small.toml"), "--max-seeds", "2", "--runs", str(tmp_path / str(number))]
        shown = CliRunner().invoke(cli, [*arguments, *quiet])
        assert shown.exit_code == 0, shown.output
        lines = [line for line in shown.stderr.splitlines() if "round 1 of 1" in line]
        assert [line.partition("]")[0] for line in lines] == [f"[{i} of at most 6" for i in range(1, 7)] * (not quiet)


def test_seeds_of_the_experiment_are_said_to_have_no_effect(tmp_path: Path) -> None:
    """`fedcohort race` played up to 30 seeds of an experiment with `seeds = 4`, without a word."""
    text = experiment(rounds=1).with_overrides({"seeds": 4}).to_toml()
    (tmp_path / "with.toml").write_text(text)
    (tmp_path / "without.toml").write_text(
        "\n".join(line for line in text.splitlines() if not line.startswith("seeds"))
    )
    said = "seeds = 4: has no effect on a race, which plays as many seeds as it needs, and at most 2 (--max-seeds)"
    for name in ("with", "without"):
        arguments = ["race", str(tmp_path / f"{name}.toml"), "--max-seeds", "2", "--runs", str(tmp_path / "runs")]
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 0, result.output
        assert (said in result.stderr) == (name == "with")


def test_the_progress_says_that_a_race_may_end_before_all_runs(capsys: pytest.CaptureFixture[str]) -> None:
    planned = plan(experiment(rounds=3), Given(), limits=Limits(30))
    with terminal.watching(planned.cells, quiet=False, at_most=True) as shown:
        assert shown is not None
        for t in range(1, planned.experiment.rounds + 1):
            shown(planned.cells[0], played(t))
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"[1 of at most {30 * len(planned.rows)}] ")
    assert ", at most " in line
    assert line.endswith(" left")


def test_the_progress_counts_the_runs_that_are_left_once_for_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A race of 32 rows with --max-seeds 10000 went through 320,000 runs after every round."""
    planned = plan(experiment(rounds=9), Given(), limits=Limits(30))
    sorted_: list[int] = []
    longest = _Course._longest

    def counted(rounds: np.ndarray, number: int) -> int:
        sorted_.append(number)
        return longest(rounds, number)

    monkeypatch.setattr(_Course, "_longest", staticmethod(counted))
    course, cells = _Course(planned.cells, at_most=True, most_runs=50), planned.cells
    steps = [course.step(cell, played(t)) for cell in (cells[0], cells[2]) for t in range(1, 10)]
    assert [step.done for step in steps] == list(range(1, 19))
    assert (course.runs, course.total) == (50, 50 * 9)
    assert sorted_ == [50, 49, 48]  # before the first round, and for each of the two runs


def test_progress_counts_the_runs_that_the_budget_allows(capsys: pytest.CaptureFixture[str]) -> None:
    """With --max-runs 5, the progress counted up to all runs of 30 seeds, and the time left was that of all of them."""
    planned = plan(experiment(rounds=2), Given(), limits=Limits(30, runs=5))
    rows = len(planned.rows)
    cells = planned.cells
    with terminal.watching(cells, quiet=False, at_most=True, most_runs=planned.most_runs) as shown:
        assert shown is not None
        for cell in (cells[0], cells[1], cells[2], cells[rows], cells[2 * rows]):  # then only the first row is left
            for t in (1, 2):
                shown(cell, played(t))
    lines = [line for line in capsys.readouterr().err.splitlines() if "round 2 of 2" in line]
    assert [line.partition("]")[0] for line in lines] == [f"[{number} of at most 5" for number in range(1, 6)]
    assert lines[-1].endswith("at most 0:00 left")


def test_the_live_page_counts_the_runs_that_the_budget_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.toml").write_text(experiment(rounds=2).to_toml())
    asked: list[Planned] = []

    @contextmanager
    def beside(folder: object, name: str, planned: Planned) -> Iterator[str]:
        asked.append(planned)
        yield "http://127.0.0.1"

    monkeypatch.setattr("fedcohort.report.live.live_server.beside", beside)
    rows = len(plan(experiment(rounds=2), Given()).rows)
    arguments = ["race", str(tmp_path / "small.toml"), "--runs", str(tmp_path / "runs"), "--live", "--quiet"]
    result = CliRunner().invoke(cli, [*arguments, "--max-runs", str(2 * rows)])
    assert result.exit_code == 0, result.output
    assert asked == [Planned(2 * rows * 2, 2 * rows, rows - 1, at_most=True)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--objective", "speed"], "error: --objective 'speed': no such objective"),
        (["--objective", "time", "--objective", "time"], "error: --objective: is given twice; give two different ones"),
        (["--strategy", "ucbb"], "error: --strategy 'ucbb': no such strategy; did you mean 'ucb'?"),
        (
            ["--strategy", "ucb", "--strategy", "ucb"],
            "error: --strategy: 'ucb' is given twice; give each strategy once",
        ),
        (["--margin", "2"], "--margin 2: give a number above 0 and below 1"),
        (["--margin", "0"], "--margin 0: give a number above 0 and below 1"),
        (["--max-seeds", "1"], "--max-seeds 1: give a whole number from 2 to 10,000"),
        (["--strategy", "ucb", "--strategy", "flash"], "federation.holdout = 0"),
    ],
)
def test_errors_of_the_command_are_one_line(options: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["race", *options])
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.strip().count("\n") == 0


def test_a_race_in_python_prints_its_table(raced: fedcohort.Race) -> None:
    assert str(raced).startswith("small\n\nThe race cannot tell yet ")
    assert "undecided" in str(raced)
    assert raced.table["state"].tolist() == ["undecided"] * 3
    assert raced.table["seeds"].tolist() == [3, 3, 3]


def test_the_progress_tells_a_limit_from_the_score(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="fedcohort"):
        fedcohort.race(experiment(), objective="accuracy@rounds=1", max_seeds=2, runs=folder)
    said = [record.getMessage() for record in caplog.records if "best so far" in record.getMessage()]
    assert re.search(r"test accuracy at 1 round: \d+\.\d%$", said[-1])


def test_the_progress_of_two_objectives_names_the_best_row_in_each(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="fedcohort"):
        race = fedcohort.race(experiment(), objective=["accuracy", "bytes"], max_seeds=2, runs=folder)
    said = [record.getMessage() for record in caplog.records if "best so far" in record.getMessage()]
    best = max(race.rows, key=lambda row: row.means[0])
    assert f"best so far {best.label}, test accuracy {100 * best.means[0]:.1f}%; " in said[-1]
    assert "; uniform, bytes of a run" in said[-1], (
        "all rows but 'all clients' send the same bytes; uniform is the first"
    )
    assert "resting" not in said[-1]


def test_rows_that_are_equal_are_named(tmp_path: Path) -> None:
    """A race said nothing of rows with the same selections under every seed, which no number of seeds can tell apart."""
    experiment = Experiment(
        name="equal",
        rounds=2,
        federation={"clients": 4},
        selection={"name": "uniform", "k": 2},
        variants=[
            {"label": "UCB", "selection": {"name": "ucb", "initial_rounds": 2}},
            {"label": "UCB, c = 3", "selection": {"name": "ucb", "initial_rounds": 2, "c": 3.0}},
        ],
    )
    found = fedcohort.race(experiment, runs=tmp_path, max_seeds=2)
    assert found.about_equal_rows.startswith(
        "'UCB', 'UCB, c = 3': the same clients were selected in every round, and the test accuracy is the same in every seed: "
    )
    assert "Try: play more rounds, or lower selection.initial_rounds." in " ".join(str(found).split())


def test_equal_rows_are_named_although_one_has_fewer_seeds(tmp_path: Path) -> None:
    """The second of two equal rows rests while the first one goes on: the two were no longer called equal."""
    experiment = Experiment(
        name="equal",
        rounds=2,
        federation={"clients": 4, "partition": {"name": "dirichlet_class", "alpha": 0.3, "variant": "balanced"}},
        selection={"name": "uniform", "k": 1},
        variants=[{"label": "all", "selection": "all"}, {"label": "k = 4", "selection": {"name": "uniform", "k": 4}}],
    )
    found = fedcohort.race(experiment, runs=tmp_path, max_seeds=8, margin=0.02)
    seeds = {row.label: row.seeds for row in found.rows}
    assert seeds["k = 4"] < seeds["all"]
    assert found.about_equal_rows == (
        "'all', 'k = 4': the same clients were selected in every round, and the test accuracy is the same in every common seed: in "
        "every round, all available clients were selected. Try: lower selection.k, or use more clients."
    )


def test_some_rows_of_an_experiment_race() -> None:
    """`--strategy` is refused for an experiment with rows of its own, and there was nothing else."""
    planned = plan(experiment(), Given(), labels=["UCB", "all clients"])
    assert [row.label for row in planned.rows] == ["all clients", "UCB"]
    assert len(plan(experiment(), Given()).rows) == 3
    with pytest.raises(UsageError, match=r"^labels = 'UCBB': no row has this label; did you mean 'UCB'\?"):
        plan(experiment(), Given(), labels=["UCB", "UCBB"])
    with pytest.raises(UsageError, match=r"^labels = 'UCB': a race needs at least 2 rows; name more of them$"):
        plan(experiment(), Given(), labels="UCB")


@pytest.mark.parametrize(
    "given", [("UCB", "all clients"), {"UCB": 1, "all clients": 2}, np.array(["UCB", "all clients"])]
)
def test_labels_may_be_any_list(given: Any) -> None:
    assert [row.label for row in plan(experiment(), Given(), labels=given).rows] == ["all clients", "UCB"]
    assert len(plan(experiment(), Given(), labels=(label for label in given)).rows) == 2  # type: ignore[arg-type]


def test_rows_that_are_not_named_need_not_be_able_to_race(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"label": "wrong", "selection": {"name": "ucb"}, "algorithm": {"weights": "unbiased"}}
    planned = small(variants=[*ROWS, wrong])
    with pytest.raises(UsageError, match=r"^row 'wrong': algorithm.weights = 'unbiased'"):
        plan(planned, Given())
    monkeypatch.setattr("fedcohort.racing.raced_rows.MAX_ROWS", 2)
    assert len(plan(planned, Given(), labels=[ROWS[0]["label"], "uniform"]).rows) == 2


def test_strategies_that_were_not_named_are_not_said_to_be_left_out() -> None:
    assert plan(small(), Given(), labels=["uniform", "ucb"]).skipped == {}


def test_a_race_has_no_bar(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"^progress = True: a race shows no bar; give a function of a cell and a row, or None$"
    ):
        fedcohort.race(experiment(), runs=tmp_path, progress=True)  # type: ignore[arg-type]
    assert fedcohort.race(experiment(), runs=tmp_path, progress=False, max_seeds=2, labels=["UCB", "all clients"]).rows
