"""Differences of other measures than the accuracy: worked out by hand from the runs, with verdicts in the right direction."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import fedcohort
from fedcohort import measures
from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.experiment.given_objects import Given
from fedcohort.report import terminal
from fedcohort.report.notes.comparison_notes import about_intervals
from fedcohort.study.measure_differences import MEASURES, check_measures
from fedcohort.study.verdicts import difference_columns
from tests.experiments import small

SEEDS = 6
ROWS = [
    {"label": "one", "selection": {"k": 1}},
    {"label": "six", "selection": {"k": 6}},
]
MEASURED = {"clients_every": 1, "personal_epochs": 1, "target_accuracy": 0.2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("differences")


@pytest.fixture(scope="module")
def experiment() -> fedcohort.Experiment:
    return small(rounds=4, seeds=SEEDS, variants=ROWS, measures=MEASURED, data={"validation": 0.1})


@pytest.fixture(scope="module")
def compared(experiment: fedcohort.Experiment, folder: Path) -> fedcohort.Comparison:
    return fedcohort.compare(experiment, runs=folder)


def test_those_of_the_accuracy_are_the_columns_of_the_table(compared: fedcohort.Comparison) -> None:
    own, table = compared.differences("accuracy"), compared.table
    shared = [column for column in own.columns if column in table.columns]
    assert {"difference", "difference_low", "corrected_high", "p_value", "p_holm", "verdict"} < set(shared)
    pd.testing.assert_frame_equal(own[shared], table[shared])
    np.testing.assert_array_equal(own["mean"], table["accuracy"])
    np.testing.assert_array_equal(own["sd"], table["accuracy_sd"])


def test_bytes_by_hand_and_less_is_better(compared: fedcohort.Comparison) -> None:
    """One client sends and receives a third of what three do, under every seed: p = 2/2^6, times 2 for two rows."""
    exchanged = {
        row.label: [float(row.runs[seed].ledger[["bytes_down", "bytes_up"]].sum().sum()) for seed in range(SEEDS)]
        for row in compared.rows
    }
    table = compared.differences("bytes").set_index("label")
    for label, verdict in (("one", "not clear"), ("six", "not clear")):
        mean, low, high = measures.paired_interval(exchanged[label], exchanged["uniform"])
        found = table.loc[label, ["difference", "difference_low", "difference_high"]]
        assert tuple(found) == pytest.approx((mean, low, high))
        assert table.loc[label, "p_value"] == 2 / 2**SEEDS
        assert table.loc[label, "p_holm"] == 4 / 2**SEEDS
        assert table.loc[label, "verdict"] == verdict  # 4/64 > 0.05: six seeds are one too few for two rows
    pair = compared_rows(compared, "uniform", "one").differences("bytes")
    assert pair["verdict"].tolist() == ["baseline", "better"]
    assert compared_rows(compared, "uniform", "six").differences("bytes")["verdict"].tolist() == ["baseline", "worse"]


def compared_rows(compared: fedcohort.Comparison, *labels: str) -> fedcohort.Comparison:
    """The comparison of some of the rows."""
    return fedcohort.Comparison(compared.name, tuple(row for row in compared.rows if row.label in labels))


def test_more_evenness_is_higher_and_not_better(compared: fedcohort.Comparison) -> None:
    pair = compared_rows(compared, "uniform", "six").differences("jain")
    assert pair["verdict"].tolist() == ["baseline", "higher"]
    pair = compared_rows(compared, "uniform", "one").differences("jain")
    assert pair["verdict"].tolist() == ["baseline", "lower"]


@pytest.mark.parametrize("name", sorted(MEASURES))
def test_every_measure_is_the_column_of_the_table(compared: fedcohort.Comparison, name: str) -> None:
    own = compared.differences(name)
    column = compared.table[name]
    if name.endswith("_to_target") and (compared.table["reached"] < SEEDS).any():
        column = column.where(
            compared.table["reached"] == SEEDS
        )  # means of the table are over the seeds that reached it
    np.testing.assert_allclose(own["mean"].to_numpy(), column.to_numpy(), rtol=1e-12)
    first = own["mean"].iloc[0]
    np.testing.assert_allclose(own["difference"].to_numpy(), own["mean"].to_numpy() - first, atol=1e-9 * abs(first))


def test_the_mean_over_classes_by_hand(compared: fedcohort.Comparison) -> None:
    """Rare classes count as much as large ones: the mean over seeds of the mean of the last accuracies of the classes."""
    for row, found in zip(compared.rows, compared.differences("macro_accuracy")["mean"], strict=True):
        last = [row.runs[seed].rounds["class_accuracy"].iloc[-1] for seed in range(SEEDS)]
        assert found == pytest.approx(np.mean([np.nanmean(classes) for classes in last]))


def test_numbers_have_no_mean_over_classes() -> None:
    regression = small(data={"name": "diabetes"}, training={"loss": "mse"}, variants=ROWS)
    with pytest.raises(
        UsageError, match=r"^measure = 'macro_accuracy': labels are numbers, which have no classes; use"
    ):
        check_measures(["macro_accuracy"], regression, Given())


def test_a_target_that_a_seed_misses_gives_no_result(folder: Path, experiment: fedcohort.Experiment) -> None:
    best = [
        run.rounds["test_accuracy"].max() for run in fedcohort.compare(experiment, runs=folder).rows[0].runs.values()
    ]
    between = (min(best) + max(best)) / 2
    missed = fedcohort.compare(experiment.with_overrides({"measures": {"target_accuracy": between}}), runs=folder)
    table = missed.differences("rounds_to_target").iloc[1]
    assert table["verdict"] == "no result"
    assert math.isnan(table["p_holm"])
    (found,) = missed.differences_in(["rounds_to_target"])
    assert "a target was not reached" in found.about_verdicts


def test_a_target_that_nobody_reaches_is_no_error(folder: Path, experiment: fedcohort.Experiment) -> None:
    """It is known only after all runs, whose comparison must be printed. The rounds to the target ended in a ValueError."""
    missed = fedcohort.compare(experiment.with_overrides({"measures": {"target_accuracy": 1.0}}), runs=folder)
    assert missed.differences("bytes_to_target")["verdict"].tolist() == ["baseline", "no result", "no result"]
    for found in missed.differences_in(["rounds_to_target", "time_to_target", "bytes_to_target"]):
        assert terminal.as_text(terminal.measure_table(missed, found)).count("no result") == 2


def test_intervals_of_measures_are_explained_as_those_of_the_accuracy(compared: fedcohort.Comparison) -> None:
    """Intervals of two rows were not said to be uncorrected, and a heading promised intervals where no row has one."""

    def shown(measure: str) -> str:
        (found,) = compared.differences_in([measure])
        return " ".join(terminal.as_text(terminal.measure_table(compared, found)).split())

    assert "Its 95% interval (Student's t) is not corrected for multiple comparisons" in shown("personal_accuracy")
    assert "[95% interval]" not in shown("bytes"), "each row sends the same bytes under every seed"
    assert "The same difference under every seed gives no interval." in shown("bytes")


def test_what_is_said_about_intervals_of_worked_differences() -> None:
    """Differences of 1, 2 and 3: 2 ± 4.303 · 1/√3. Those of 1, 1 and 1 have no spread, and exclude 0 without an interval."""

    def columns(verdict: str, *differences: float) -> dict[str, object]:
        found = difference_columns(differences, [0.0] * len(differences), (-math.inf, math.inf), 1)
        return {**found, "paired_seeds": len(differences), "verdict": verdict}

    wide, flat = columns("not clear", 1.0, 2.0, 3.0), columns("not clear", 1.0, 1.0, 1.0)
    assert (wide["difference_low"], wide["difference_high"]) == pytest.approx((-0.4841, 4.4841), abs=1e-4)
    student, constant = (
        "Its 95% interval is that of Student's t",
        "The same difference under every seed gives no interval.",
    )
    assert about_intervals([wide]) == f"{student}."
    assert about_intervals([flat]) == constant
    assert about_intervals([columns("baseline", 0.0, 0.0), columns("not clear", 0.0, 0.0)]) == ""
    assert about_intervals([columns("too few seeds", 1.0)]) == "One seed gives no interval."
    near = columns("not clear", 1.0, 1.1, 1.2)
    assert about_intervals([near]) == f"{student}: it can exclude 0 although the verdict is not clear."
    assert about_intervals([wide, flat]) == (
        f"Its 95% interval (Student's t) is not corrected for multiple comparisons. {constant}"
    )


def test_own_measures_are_higher_or_lower(tmp_path: Path) -> None:
    def share_of_zeros(predictions: np.ndarray, labels: np.ndarray) -> float:
        return float((predictions.argmax(axis=1) == 0).mean())

    compared = fedcohort.compare(small(rounds=2, seeds=3, variants=ROWS[:1]), runs=tmp_path, measures=[share_of_zeros])
    table = compared.differences("share_of_zeros")
    values = [
        [float(run.own_measures["share_of_zeros"].iloc[-1]) for run in row.runs.values()] for row in compared.rows
    ]
    assert table["difference"].iloc[1] == pytest.approx(np.mean(values[1]) - np.mean(values[0]))
    (found,) = compared.differences_in(["share_of_zeros"])
    assert found.measure.words == ("higher", "lower")
    assert "share_of_zeros: own measure" in terminal.as_text(terminal.measure_table(compared, found))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("worst_client_acuracy", "did you mean 'worst_client_accuracy'?"),
        ("best_accuracy", "chosen by its test accuracy"),
        (3, "measure = 3: a comparison has no differences of it; give its name"),
        (["bytes"], r"measure = \['bytes'\]: a comparison has no differences of it; give its name, such as 'bytes'"),
    ],
)
def test_what_cannot_be_compared_is_refused(compared: fedcohort.Comparison, name: object, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        compared.differences(name)  # type: ignore[arg-type]


def test_what_was_not_measured_is_refused_with_the_setting(tmp_path: Path) -> None:
    compared = fedcohort.compare(small(rounds=1, variants=ROWS[:1]), runs=tmp_path)
    with pytest.raises(UsageError, match=r"no run has it; set measures\.clients_every = 1$"):
        compared.differences("worst_client_accuracy")


def test_the_command_prints_each_measure(
    experiment: fedcohort.Experiment, compared: fedcohort.Comparison, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(experiment.to_toml())
    named = ["--measure", "worst_client_accuracy", "--measure", "bytes"]
    ran = CliRunner().invoke(cli, ["compare", str(file), "--runs", str(folder), *named])
    assert ran.exit_code == 0, ran.output
    assert "worst_client_accuracy: mean accuracy of the tenth of the clients that have the lowest, %" in ran.output
    assert "bytes: bytes sent and received" in ran.output
    assert "Lower is better." in ran.output
    for found in compared.differences_in(["bytes"]):
        assert terminal.as_text(terminal.measure_table(compared, found)) in ran.output

    told = CliRunner().invoke(cli, ["compare", str(file), "--runs", str(folder), *named, "--json"])
    document = json.loads(told.output)
    assert list(document["differences"]) == ["worst_client_accuracy", "bytes"]
    assert document["differences"]["bytes"][1]["label"] == "one"
    assert document["differences"]["bytes"][1]["difference"] == compared.differences("bytes")["difference"].iloc[1]


def test_the_command_refuses_a_measure_before_it_runs_anything(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(small(rounds=1, variants=ROWS).to_toml())
    for name, message in (("worst_client_accuracy", "set measures.clients_every"), ("speed", "no differences of it")):
        ran = CliRunner().invoke(cli, ["compare", str(file), "--runs", str(tmp_path / "runs"), "--measure", name])
        assert ran.exit_code == 2
        assert message in ran.output
        assert not (tmp_path / "runs").exists()


def test_test_samples_of_every_client_measure_the_clients_without_a_setting(tmp_path: Path) -> None:
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 3)), columns=list("abc"))
    table.assign(label=(table.a > 0).astype(int), client=np.repeat(["x", "y", "z"], 40)).to_csv(tmp_path / "own.csv")
    file = tmp_path / "own.toml"
    file.write_text(
        'rounds = 2\ndata.name = "own.csv"\nmodel.name = "logistic"\nselection.k = 1\n'
        '[[variants]]\nlabel = "two"\nselection.k = 2\n'
    )
    command = ["compare", str(file), "--runs", str(tmp_path / "runs"), "--measure", "worst_client_accuracy"]
    ran = CliRunner().invoke(cli, command)
    assert ran.exit_code == 0, ran.output
    assert "worst_client_accuracy: mean accuracy of the tenth of the clients that have the lowest, %" in ran.output
    assert ran.output.count("federation.partition: not given") == 1

    mixed = CliRunner().invoke(cli, [*command, "--set", "federation.partition=iid", "--set", "federation.clients=3"])
    assert mixed.exit_code == 2
    assert "no run has it; set measures.clients_every = 1" in mixed.output
