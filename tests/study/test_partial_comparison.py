"""Unfinished runs are compared up to the last round that all have played, and the comparison says so."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import fedcohort
from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.record import create_run
from fedcohort.report import terminal
from fedcohort.report.figures import paper_figures
from fedcohort.report.figures.figure import Figure
from fedcohort.report.tables.paper_tables import to_latex
from fedcohort.study.compare_existing_runs import FirstRounds, read
from fedcohort.study.rows.unfinished_rows import about_unfinished
from fedcohort.study.run_measures import after_last_tests
from tests.experiments import small
from tests.report.pages import Page
from tests.resume.test_resume import stop_after

MEASURED = {"measures": {"clients_every": 1}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run of six rounds, and two that stopped after rounds 4 and 3."""
    folder = tmp_path_factory.mktemp("partial")
    fedcohort.run(small(**MEASURED), runs=folder)
    for after, name in ((4, "all"), (3, "round_robin")):
        with pytest.raises(KeyboardInterrupt):
            fedcohort.run(small(selection=name, **MEASURED), runs=folder, progress=stop_after(after))
    return folder


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)], prog_name="fedcohort")


def test_all_runs_are_compared_over_their_common_rounds(folder: Path, tmp_path: Path) -> None:
    """The results are those of runs that were planned with three rounds."""
    paths = sorted(folder.iterdir())
    compared = read(paths, partial=True)
    assert compared.note == (
        "Not final: 2 of 3 runs are unfinished. All runs are compared over rounds 1 to 3 of 6, which all of them have played. "
        "'all' has played 4 of 6 rounds, 'round_robin' has played 3 of 6 rounds."
    )
    for row in compared.rows:
        short = fedcohort.run(small(rounds=3, selection=row.experiment.selection, **MEASURED), runs=tmp_path)
        (run,) = row.runs.values()
        assert run.last_round == 3
        table = read([short.path]).table
        own = compared.table[compared.table["label"] == row.label]
        names = [
            "accuracy",
            "best_accuracy",
            "early_stop_accuracy",
            "simulated_time",
            "jain",
            "bytes",
            "client_passes",
            "updates",
        ]
        assert own[names].to_numpy().tolist() == table[names].to_numpy().tolist()
    assert compared.rounds["round"].max() == 3
    assert len(compared.rounds) == 9


def test_every_table_of_a_run_ends_at_the_round(folder: Path) -> None:
    run = fedcohort.open_run(next(path for path in folder.iterdir() if fedcohort.open_run(path).finished))
    first = FirstRounds(run, 2)
    for name in ("clients", "ledger", "decisions"):
        whole, part = getattr(run, name), getattr(first, name)
        assert 0 < len(part) == (whole["round"] <= 2).sum() < len(whole), name
    for name in ("rounds", "wall", "client_accuracy"):
        assert list(getattr(first, name).index) == [1, 2]
        assert list(getattr(run, name).index) == [1, 2, 3, 4, 5, 6]
    assert (first.last_round, len(first.selections)) == (2, 2)
    assert FirstRounds(run, 99).last_round == 6


def test_the_terminal_and_json_say_that_the_comparison_is_not_final(folder: Path) -> None:
    paths = sorted(folder.iterdir())
    result = call("compare", *paths, "--partial")
    assert result.exit_code == 0, result.output
    assert "Not final: 2 of 3 runs are unfinished." in " ".join(result.stdout.split())
    assert json.loads(call("compare", *paths, "--partial", "--json").stdout)["note"].startswith("Not final: 2 of 3")
    latex = to_latex(read(paths, partial=True))
    assert "Not final: 2 of 3 runs are unfinished." in latex
    assert r"'round\_robin' has played 3 of 6 rounds." in latex


def test_one_unfinished_run_is_counted_in_the_singular(folder: Path) -> None:
    paths = [path for path in folder.iterdir() if fedcohort.open_run(path).last_round != 3]
    assert read(paths, partial=True).note.startswith(
        "Not final: 1 of 2 runs is unfinished. All runs are compared over "
    )


def test_accuracies_are_those_after_the_common_round(folder: Path) -> None:
    """Notes and captions said "after the last round" of what is compared after round 3."""
    compared = read(sorted(folder.iterdir()), partial=True)
    assert terminal.as_text(terminal.comparison(compared)).count("Test accuracy after round 3 in %, seed 0.") == 1
    assert "test accuracy after round 3, seed 0." in to_latex(compared)
    finished = [path for path in folder.iterdir() if fedcohort.open_run(path).finished]
    assert "Test accuracy after the last round in %, seed 0." in terminal.as_text(terminal.comparison(read(finished)))


def test_accuracies_are_those_after_the_last_tests(tmp_path: Path) -> None:
    """Runs that stopped after rounds 3 and 5 were tested after rounds 2 and 4; the note spoke of round 3, which has no test."""
    for after, name in ((3, "uniform"), (5, "all")):
        with pytest.raises(KeyboardInterrupt):
            fedcohort.run(
                small(selection=name, measures={"evaluate_every": 2}), runs=tmp_path, progress=stop_after(after)
            )
    compared = read(sorted(tmp_path.iterdir()), partial=True)
    assert compared.when == "after round 2"
    for row in compared.rows:
        (run,) = row.runs.values()
        tested = fedcohort.open_run(run.path).rounds["test_accuracy"]
        assert compared.table.set_index("label")["accuracy"][row.label] == tested[2]
    others = [fedcohort.open_run(path) for path in tmp_path.iterdir()]
    assert after_last_tests(others) == "after rounds 2 to 4"


def test_figures_end_at_the_common_round(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook, they showed all rounds of every run beside a table that ends at round 3."""
    partial = read(sorted(folder.iterdir()), partial=True)
    compared = fedcohort.Comparison(partial.name, partial.rows, partial.note)  # type: ignore[arg-type]
    drawn: list[Figure] = []
    monkeypatch.setattr(paper_figures, "composed", lambda figure, *_: drawn.append(figure))
    monkeypatch.setattr(paper_figures, "draw", lambda *_: b"")
    compared._repr_mimebundle_()
    (chart,) = drawn
    assert chart.data["accuracy_rounds"]["x"].max() == 3
    shown = Page(str(compared.report()))
    for name, position in {"accuracy_rounds": "x", "raster": "round"}.items():
        assert {row[position] for row in shown.payload["data"][name]} == {1, 2, 3}, name
    assert "Test accuracy after round 3" in shown.prose
    assert partial.note in shown.prose
    assert "All numbers are those after the last finished round" not in shown.prose


def test_finished_runs_are_compared_as_always(folder: Path) -> None:
    finished = [path for path in folder.iterdir() if fedcohort.open_run(path).finished]
    compared = read(finished, partial=True)
    assert compared.note == ""
    assert "note" not in compared.to_json()
    assert compared.to_json() == read(finished).to_json()
    assert "Not final" not in terminal.as_text(terminal.comparison(compared))


def test_the_rounds_of_unfinished_runs_are_counted_in_words() -> None:
    assert about_unfinished({"a": [(0, 1, False)]}) == "Not final: 'a' has played 0 of 1 round."
    two = {"a": [(0, 1, False), (2, 6, False), (6, 6, True)]}
    assert about_unfinished(two) == "Not final: 'a' has played 0 to 2 of 1 to 6 rounds in 2 of its 3 seeds."


def test_unfinished_runs_need_the_option(folder: Path) -> None:
    result = call("compare", *sorted(folder.iterdir()))
    assert result.exit_code == 2
    assert "finish it first, with `fedcohort run" in result.stderr
    assert result.stderr.rstrip().endswith("or compare unfinished runs with --partial")


def test_a_run_without_a_round_is_left_out(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run that had just begun was enough to show nothing of the others. Alone, it has nothing to show."""
    values: dict[str, Any] = {"label": "uniform", "row": "uniform", "name": "x", "seed": "0", "data": "", "given": ""}
    run = create_run(tmp_path / "empty", small().to_toml(), values)
    with pytest.raises(UsageError, match=r"stopped after round 0 of 6; finish it first.*experiment.toml --runs \S+$"):
        read([run.path], partial=True)
    paths = [run.path, *sorted(folder.iterdir())]
    with pytest.raises(UsageError, match=r"stopped after round 0 of 6.*, or compare unfinished runs with --partial$"):
        read(paths)
    compared = read(paths, partial=True)
    said = "Left out, because no round is finished yet: 'uniform' with seed 0."
    assert [row.label for row in compared.rows] == ["all", "round_robin", "uniform"]
    assert compared.note == f"{read(paths[1:], partial=True).note} {said}"
    finished = [path for path in folder.iterdir() if fedcohort.open_run(path).finished]
    assert read([run.path, *finished], partial=True).note == said
    monkeypatch.chdir(tmp_path)  # whole paths of temporary folders can be too long for an error
    for command in ("measures", "diagnose"):
        result = call(command, *paths, "--json")
        assert len(json.loads(result.stdout)["runs"]) == 3
        assert result.stderr == f"fedcohort: {run.path}: left out, because no round is finished yet\n"
        alone = call(command, "empty")
        assert alone.exit_code == 2
        assert alone.stderr.endswith("again with `fedcohort run empty/experiment.toml --runs .`\n")


def test_an_experiment_file_has_no_unfinished_runs(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(small(rounds=1).to_toml())
    result = call("compare", tmp_path / "x.toml", "--partial", "--runs", tmp_path / "runs")
    assert result.exit_code == 2
    assert "--partial: missing rounds of an experiment are run" in result.stderr
    assert not (tmp_path / "runs").exists()
