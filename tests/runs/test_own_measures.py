"""Own measures: computed after each evaluated round, recorded, shown everywhere, and never run when a record is read."""

import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fedcohort
from fedcohort import load_dataset
from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.experiment import Experiment, load
from fedcohort.experiment.own_measures import RESERVED
from fedcohort.report.data.report_data import gather
from fedcohort.report.page import page
from fedcohort.runs.trackers import numbers
from tests.experiments import small
from tests.records import played

SOURCE = """
import numpy as np
from sklearn.metrics import f1_score

def f1(predictions, labels):
    return f1_score(labels, predictions.argmax(1), average="macro")

def share_right(predictions, labels):
    return np.float32((predictions.argmax(1) == labels).mean())
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    own = tmp_path / "my.py"
    own.write_text(SOURCE)
    return own


def extra(file: Path, *functions: str, **values: Any) -> Experiment:
    names = [f"{file}:{function}" for function in functions]
    return small(**{"rounds": 2, "measures": {"extra": names, **values.pop("measures", {})}, **values})


def test_a_measure_gets_probabilities_and_labels_of_the_whole_test_set(tmp_path: Path) -> None:
    seen = []

    def right(predictions: np.ndarray, labels: np.ndarray) -> float:
        seen.append((predictions, labels))
        return float((predictions.argmax(1) == labels).mean())

    run = fedcohort.run(small(rounds=3, measures={"evaluate_every": 2}), measures=[right], runs=tmp_path)
    predictions, labels = seen[-1]
    assert predictions.dtype == np.float64
    np.testing.assert_allclose(predictions.sum(axis=1), 1)
    digits = load_dataset("digits")
    assert predictions.shape == (len(labels), 10)
    assert 0.88 < len(labels) / len(digits.test_labels) < 0.92  # a tenth is the validation set
    assert run.own_measures.index.tolist() == [2, 3]
    rounds = run.rounds
    assert rounds["right"].tolist()[1:] == rounds["test_accuracy"].tolist()[1:]
    assert math.isnan(rounds["right"][1])
    assert run.summary().own_measures == {"right": rounds["right"][3]}


def test_the_record_has_the_values_of_scikit_learn_and_other_results_do_not_change(file: Path, tmp_path: Path) -> None:
    run = fedcohort.run(extra(file, "f1", "share_right"), runs=tmp_path / "a")
    plain = fedcohort.run(small(rounds=2), runs=tmp_path / "a")
    assert list(run.own_measures) == ["f1", "share_right"]
    assert run.own_measures["share_right"].to_list() == pytest.approx(run.rounds["test_accuracy"].to_list())
    assert run.rounds[plain.rounds.columns].equals(plain.rounds)
    assert (run.path / "model.safetensors").read_bytes() == (plain.path / "model.safetensors").read_bytes()
    again = fedcohort.run(extra(file, "f1", "share_right"), runs=tmp_path / "b")
    assert again.digest() == run.digest() != plain.digest()


def test_a_measure_is_part_of_a_runs_identity_by_its_content(file: Path, tmp_path: Path) -> None:
    plain, measured = small(rounds=2).key(), extra(file, "f1").key()
    assert plain == small(rounds=2, measures={"extra": []}).key() != measured
    moved = tmp_path / "other.py"
    moved.write_text(SOURCE)
    assert extra(moved, "f1").key() == measured
    moved.write_text(SOURCE + "\n")
    assert extra(moved, "f1").key() != measured


def test_reading_a_record_never_imports_the_file(file: Path, tmp_path: Path) -> None:
    file.write_text(f"{SOURCE}\nimport pathlib\npathlib.Path({str(tmp_path / 'imported')!r}).touch()\n")
    path = fedcohort.run(extra(file, "f1"), runs=tmp_path / "runs").path
    for copy in [file, *(path / "plug-ins").iterdir()]:
        assert "f1_score" in copy.read_text()
    (tmp_path / "imported").unlink()
    file.unlink()
    run = fedcohort.open_run(path)
    assert run.described.measures.extra == [f"{next(iter(run.plug_in_files))}:f1"]
    assert "f1" in page(gather([run]))
    assert CliRunner().invoke(cli, ["compare", str(path)]).exit_code == 0
    with pytest.raises(UsageError, match="trust"):
        load(path / "experiment.toml")
    assert not (tmp_path / "imported").exists()


def test_a_measure_that_changes_its_arguments_does_not_affect_others(tmp_path: Path) -> None:
    def destroys(predictions: np.ndarray, labels: np.ndarray) -> float:
        predictions[:], labels[:] = 0, 0
        return 0.0

    def right(predictions: np.ndarray, labels: np.ndarray) -> float:
        return float((predictions.argmax(1) == labels).mean())

    run = fedcohort.run(small(rounds=1), measures={"first": destroys, "second": right}, runs=tmp_path)
    assert run.rounds["second"].tolist() == run.rounds["test_accuracy"].tolist()


BROKEN = {
    "raises": (
        "    raise ValueError('two\\nlines')",
        r"measures.extra: broken raised ValueError: two lines \(.*my.py:2\)$",
    ),
    "exits": ("    raise SystemExit(3)", "broken raised SystemExit: 3"),
    "returns text": ("    return '0.5'", "broken returned '0.5'; it must return one number"),
    "returns many": ("    return predictions[:, 0]", "broken returned .*; it must return one number"),
    "returns nothing": ("    pass", "broken returned None; it must return one number"),
}


@pytest.mark.parametrize(("body", "message"), BROKEN.values(), ids=BROKEN)
def test_an_error_in_a_measure_is_one_line_before_the_first_round(
    body: str, message: str, file: Path, tmp_path: Path
) -> None:
    file.write_text(f"def broken(predictions, labels):\n{body}\n")
    with pytest.raises(UsageError, match=message) as caught:
        fedcohort.run(extra(file, "broken"), runs=tmp_path / "runs")
    assert "\n" not in str(caught.value)
    [path] = (tmp_path / "runs").iterdir()
    assert fedcohort.Run(path).last_round == 0


REFUSED = {
    "a name": (["f1"], "measures.extra = 'f1': should be a function in a file of yours, such as 'my.py:f1'"),
    "a number": ([3], "measures.extra = 3: should be a function"),
    "no file": (["none.py:f1"], "there is no file"),
    "no function": (["{file}:f2"], "defines no f2"),
    "a module": (["{file}:np"], "is an object of type module"),
    "a class": (["{file}:C"], "is a class; give a function"),
    "twice": (["{file}:f1", "{file}:f1"], "two functions are called 'f1'"),
    "a column": (["{file}:jain"], "'jain' is the name of another column"),
    "text": ("my.py:f1", "measures.extra = 'my.py:f1': should be a list"),
}


@pytest.mark.parametrize(("names", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_measure_is_refused(names: Sequence[object] | str, message: str, file: Path) -> None:
    file.write_text(f"{SOURCE}\njain = f1\n\nclass C:\n    pass\n")
    if isinstance(names, list):
        names = [name.format(file=file) if isinstance(name, str) else name for name in names]
    with pytest.raises(UsageError, match=message):
        small(measures={"extra": names})


def test_objects_that_are_no_measures_are_refused(file: Path, tmp_path: Path) -> None:
    def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
        return 0.0

    for given, message in [
        ("f1", "give a list of functions"),
        ([3], "'int' is an object of type int"),
        ({"": f1}, "should be text of 1 to 40 characters"),
        ({"f1": f1, "f1_sd": f1}, "'f1_sd' is the name of another column"),
        ([f1, f1], "two functions have the same name"),
        ({"accuracy": f1}, "'accuracy' is the name of another column"),
    ]:
        with pytest.raises(UsageError, match=message):
            fedcohort.run(small(), measures=given, runs=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"'f1' is also one of measures\.extra"):
        fedcohort.run(extra(file, "f1"), measures=[f1], runs=tmp_path)


def test_reserved_names_are_the_columns_of_the_tables(tmp_path: Path) -> None:
    compared = fedcohort.compare(small(rounds=1), runs=tmp_path)
    columns = {*compared.table.columns, *compared.rounds.columns}
    assert columns <= RESERVED
    assert "jain" in columns


def test_tables_report_and_exports_show_measures(file: Path, tmp_path: Path) -> None:
    experiment = extra(file, "f1", seeds=2, variants=[{"label": "all", "selection": "all", "measures": {"extra": []}}])
    compared = fedcohort.compare(experiment, runs=tmp_path)
    finals = [run.rounds["f1"].iloc[-1] for run in compared.rows[0].runs.values()]
    table = compared.table
    assert table["f1"][0] == pytest.approx(np.mean(finals))
    assert table["f1_sd"][0] == pytest.approx(np.std(finals, ddof=1))
    assert math.isnan(table["f1"][1])  # this row does not measure it
    assert compared.to_json()["rows"][0]["runs"][0]["own_measures"] == {"f1": finals[0]}
    header, first = compared.to_csv().splitlines()[:2]
    assert float(dict(zip(header.split(","), first.split(","), strict=True))["f1"]) == table["f1"][0]
    text = f"{table['f1'][0]:.4g}"
    assert " & f1 & " in compared.to_latex()
    assert rf"{text} $\pm$ " in compared.to_latex()
    assert f"{text} ± " in str(compared)
    story = gather([run for row in compared.rows for run in row.runs.values()])
    html = page(story)
    assert 'data-field="own_measures.f1"' in html
    assert '"own_measure_0"' in html
    assert f"{text} ±" in html
    assert compared.rounds.loc[compared.rounds["label"] == "all", "f1"].isna().all()


def test_commands_show_measures(file: Path, tmp_path: Path) -> None:
    text = extra(file, "f1").to_toml().replace(str(file), file.name)  # the path is relative to the experiment file
    (tmp_path / "experiment-of-mine.toml").write_text(text)
    runs = ["--runs", str(tmp_path / "runs"), "--quiet"]
    result = CliRunner().invoke(cli, ["run", str(tmp_path / "experiment-of-mine.toml"), *runs])
    assert result.exit_code == 0, result.output
    assert "f1" in result.output
    [path] = (tmp_path / "runs").iterdir()
    value = f"{fedcohort.open_run(path).rounds['f1'].iloc[-1]:.4g}"
    assert value in result.output
    assert value in CliRunner().invoke(cli, ["measures", str(path)]).output


def test_trackers_receive_measures() -> None:
    assert numbers(played(1, own_measures={"f1": 0.25, "unknown": math.nan}))["f1"] == 0.25
    assert "unknown" not in numbers(played(1, own_measures={"unknown": math.nan}))


def test_a_killed_run_resumes_with_its_measures(file: Path, tmp_path: Path) -> None:
    experiment = extra(file, "f1", rounds=4, seeds=1)
    whole = fedcohort.run(experiment, runs=tmp_path / "whole")

    class KilledError(Exception):
        pass

    def kill(_: object, row: Any) -> None:
        if row.round == 2:
            raise KilledError

    with pytest.raises(KilledError):
        fedcohort.run(experiment, runs=tmp_path / "cut", progress=kill)
    assert fedcohort.run(experiment, runs=tmp_path / "cut").digest() == whole.digest()


@pytest.mark.slow
def test_jobs_give_the_same_measures(file: Path, tmp_path: Path) -> None:
    experiment = extra(file, "f1", rounds=1, seeds=2)
    one = fedcohort.compare(experiment, runs=tmp_path / "one").table
    two = fedcohort.compare(experiment, runs=tmp_path / "two", jobs=2).table
    assert one["f1"].tolist() == two["f1"].tolist()


def test_a_changed_value_is_damage(file: Path, tmp_path: Path) -> None:
    run = fedcohort.run(extra(file, "f1"), runs=tmp_path)
    with sqlite3.connect(run.path / "run.sqlite") as database:
        database.execute("UPDATE own_measures SET value = value + 0.01 WHERE round = 1")
    database.close()
    with pytest.raises(UsageError, match="round 1"):
        fedcohort.open_run(run.path)


def test_a_record_of_an_earlier_version_has_no_table_of_measures(tmp_path: Path) -> None:
    from tests.records import seal_again, written

    run = written(tmp_path / "old", [played(1), played(2)])
    with sqlite3.connect(run.path / "run.sqlite") as database:
        database.execute("DROP TABLE own_measures")
        seal_again(database)
    database.close()
    opened = fedcohort.open_run(run.path)
    assert opened.own_measures.empty
    assert list(opened.rounds.index) == [1, 2]
    assert opened.digest() == run.digest()
    from fedcohort.record import writing

    with writing(opened) as writer:
        writer.rewind(1)
        writer.record([played(2)])
    assert fedcohort.open_run(run.path).last_round == 2
