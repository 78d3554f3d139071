"""Errors name arguments in Python, and options on the command line."""

from pathlib import Path

import pytest

import fedcohort
from fedcohort.cli.option_names import with_option_names
from fedcohort.experiment import Experiment
from tests.cli.test_cli import call, refused


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("max_runs = 1: fewer than the rows", "--max-runs 1: fewer than the rows"),
        ("strategies = ['ucb', 'ucb']: given twice", "--strategy: given twice"),
        ("round = 99: no such round", "--round 99: no such round"),
        ("over selection.kk: unknown key", "--over selection.kk: unknown key"),
        ("rounds = 0: should be at least 1", "rounds = 0: should be at least 1"),
        ("selection.k = 9: too many", "selection.k = 9: too many"),
    ],
)
def test_arguments_become_options(error: str, words: str) -> None:
    assert with_option_names(error) == words


def test_python_and_the_command_line_name_what_their_users_wrote(tmp_path: Path) -> None:
    """Python named `--runs` and `--reference`, and commands named `max_runs` and `measure`."""
    file, no_folder = tmp_path / "two.toml", tmp_path / "file"
    experiment = Experiment(
        name="two", rounds=1, federation={"clients": 4}, variants=[{"label": "UCB", "selection": "ucb"}]
    )
    file.write_text(experiment.to_toml(), encoding="utf-8")
    no_folder.touch()
    with pytest.raises(fedcohort.UsageError, match=r"^runs = .*file: is not a directory; give a directory"):
        fedcohort.compare(experiment, runs=no_folder)
    with pytest.raises(
        fedcohort.UsageError, match=r"^reference = 'other': no row has this label; valid: UCB, uniform$"
    ):
        fedcohort.compare(experiment, runs=tmp_path / "runs", reference="other")
    with pytest.raises(fedcohort.UsageError, match=r"^max_runs = 1: fewer than the 2 rows"):
        fedcohort.race(experiment, runs=tmp_path / "runs", max_runs=1)
    refused(call("compare", file, "--runs", no_folder), f"error: --runs {no_folder}: is not a directory")
    refused(call("compare", file, "--reference", "other"), "error: --reference 'other': no row has this label")
    refused(
        call("compare", file, "--measure", "other"), "error: --measure 'other': a comparison has no differences of it"
    )
    refused(call("race", file, "--max-runs", "1"), "error: --max-runs 1: fewer than the 2 rows")


def test_hints_of_functions_say_that_options_are_of_commands() -> None:
    """Errors in Python said what to do with `--runs` and `--data-dir`, which only commands have."""
    sources = Path(fedcohort.__file__).parent
    for option in ("--runs", "--data-dir", "--trust-plugins", "--jobs"):
        texts = [
            (file.name, line.strip())
            for folder in ("federation", "record", "runs", "experiment", "racing", "api", "chooser")
            for file in (sources / folder).glob("*.py")
            for line in file.read_text(encoding="utf-8").splitlines()
            if option in line and '"' in line and "``" not in line
        ]
        assert all(f"in commands: {option}" in line or "in Python: " in line for _, line in texts), texts
