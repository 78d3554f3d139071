"""Everything a finished run is judged by, in one call; clients' accuracies are measured for the record and nobody else."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedcohort
from fedcohort import Run, measures
from fedcohort.core.errors import UsageError
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.experiment.given_objects import Given
from fedcohort.measures.conformal import coverage_range
from fedcohort.record import ClientRow
from fedcohort.report import terminal
from fedcohort.report.charts.selection_counts import selections
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.page import page
from fedcohort.report.terminal import all_measures
from fedcohort.report.terminal.layout import as_text
from fedcohort.runs.prepare_run import prepare
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.conformal_coverage import conformal
from fedcohort.study.summary import over_seeds, summaries, summary
from tests.cli.test_cli import call, refused
from tests.experiments import UCB, cell, small
from tests.golden.test_same_bits import record
from tests.records import exchange, played, written
from tests.resume.test_resume import stop_after

SYSTEMS = {"dropout": 0.2, "availability": {"name": "bernoulli", "probability": 0.6}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    experiment = small(selection=UCB, systems=SYSTEMS, measures={"clients_every": 2})
    return fedcohort.run(experiment, runs=tmp_path_factory.mktemp("runs"))


# --- accuracies of clients -------------------------------------------------------------------------------------------------------


def test_clients_are_measured_every_so_many_rounds_and_after_the_last(tmp_path: Path, run: Run) -> None:
    assert run.client_accuracy.index.tolist() == [2, 4, 6]
    assert run.client_accuracy.shape == (3, 12)
    every_4 = fedcohort.run(small(measures={"clients_every": 4}), runs=tmp_path)
    assert every_4.client_accuracy.index.tolist() == [4, 6]


@pytest.mark.parametrize("holdout", [0.0, 0.3])
def test_they_are_the_final_models_on_each_clients_own_data(holdout: float, tmp_path: Path) -> None:
    experiment = small(
        federation={"holdout": holdout, "label_noise": {"name": "constant", "rate": 0.2}}, measures={"clients_every": 6}
    )
    run = fedcohort.run(experiment, runs=tmp_path)
    from safetensors.torch import load_file

    with prepare(cell(experiment).experiment, Given()) as (run_state, _):
        assert isinstance(run_state.engine, LocalEngine)
        federation = run_state.engine.federation
        weights = load_file(run.path / "model.safetensors")
        layers = [name.removesuffix(".weight") for name in weights if name.endswith(".weight")]
        for client in range(12):
            data = federation.held_out(client) if holdout else federation.client(client)
            x = federation.prepare(data.features, torch.float32).flatten(1)
            for i, layer in enumerate(layers):
                x = x @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]
                x = x.relu() if i < len(layers) - 1 else x
            right = float((x.argmax(1) == data.labels).double().mean())
            assert run.client_accuracy.loc[6, client] == pytest.approx(right, abs=1e-9, nan_ok=True)


def test_by_default_nothing_is_measured(tmp_path: Path) -> None:
    run = fedcohort.run(small(), runs=tmp_path)
    assert run.client_accuracy.empty
    assert math.isnan(run.summary().worst_client_accuracy)
    assert small().key() == small(measures={"clients_every": 0}).key()
    assert small().key() != small(measures={"clients_every": 1}).key()


@pytest.mark.parametrize("selection", [UCB, {"name": "powd"}], ids=str)
def test_nobody_but_the_record_notices(selection: dict[str, object], tmp_path: Path) -> None:
    plain = fedcohort.run(small(selection=selection, systems=SYSTEMS), runs=tmp_path)
    watched = fedcohort.run(small(selection=selection, systems=SYSTEMS, measures={"clients_every": 1}), runs=tmp_path)
    assert len(watched.client_accuracy) == 6
    for frame in ("rounds", "clients", "decisions"):
        assert getattr(plain, frame).equals(getattr(watched, frame))
    assert plain.ledger.drop(columns="seconds").equals(watched.ledger.drop(columns="seconds"))
    assert (plain.path / "model.safetensors").read_bytes() == (watched.path / "model.safetensors").read_bytes()
    assert plain.digest() != watched.digest()


@pytest.mark.parametrize("checkpoint_every", [1, 4])
def test_resumed_equals_straight(checkpoint_every: int, tmp_path: Path) -> None:
    experiment = small(measures={"clients_every": 2, "checkpoint_every": checkpoint_every})
    straight = fedcohort.run(experiment, runs=tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "broken", progress=stop_after(5))
    resumed = fedcohort.run(experiment, runs=tmp_path / "broken")
    assert record(resumed) == record(straight)
    assert resumed.client_accuracy.equals(straight.client_accuracy)


def test_clients_without_data_have_no_accuracy(tmp_path: Path) -> None:
    experiment = small(
        rounds=1,
        federation={"clients": 300, "partition": {"name": "quantity", "beta": 0.2, "min_size": 0}},
        measures={"clients_every": 1},
    )
    run = fedcohort.run(experiment, runs=tmp_path)
    with prepare(cell(experiment).experiment, Given()) as (run_state, _):
        empty = run_state.clock.num_samples == 0
    assert empty.any()
    assert np.array_equal(np.isnan(run.client_accuracy.loc[1]), empty)
    assert 0 <= run.summary().worst_client_accuracy <= run.summary().client_accuracy <= 1


# --- all measures ----------------------------------------------------------------------------------------------------------------


def test_every_measure_is_that_of_the_record(run: Run) -> None:
    found, rounds = run.summary(target=0.2), run.rounds
    tested = rounds["test_accuracy"].to_numpy()
    assert (found.accuracy, found.best_accuracy) == (tested[-1], tested.max())
    assert found.class_accuracy == rounds["class_accuracy"].iloc[-1]
    assert found.macro_accuracy == pytest.approx(np.mean(found.class_accuracy))
    reached = int(np.argmax(tested >= 0.2))
    assert found.rounds_to_target == reached + 1
    assert found.time_to_target == rounds["simulated_time"].iloc[reached]
    spent = run.ledger.query(f"round <= {reached + 1}")
    assert found.bytes_to_target == spent["bytes_down"].sum() + spent["bytes_up"].sum()
    counts = np.bincount(run.clients["client"], minlength=12)
    assert found.selected == measures.participation(counts)
    admitted = run.clients.query("status == 'admitted'")
    assert found.admitted == measures.participation(np.bincount(admitted["client"], minlength=12))
    presence = run.described.systems.availability.build().presence(12, 6, run.described.seed)
    assert [int(presence(t).sum()) for t in range(1, 7)] == rounds["available"].tolist(), "all clients have data"
    chance = measures.uniform_chance(12, rounds["selected"].tolist(), presence)
    assert found.selected_random == chance.participation != measures.participation_random(12, 3, 6)
    assert found.jain_random == chance.reference != measures.jain_random(12, 3, 6)
    own = run.client_accuracy.loc[6].to_numpy()
    assert found.client_accuracy == pytest.approx(own.mean())
    assert found.worst_client_accuracy == np.sort(own)[:2].mean()  # ⌈0.1·12⌉
    by_class = np.array(rounds["class_accuracy"].tolist())
    assert found.forgetting == pytest.approx((by_class.max(axis=0) - by_class[-1]).mean())
    assert found.largest_drop == max(0.0, -np.diff(tested).min())
    assert found.tail_sd == pytest.approx(tested[-2:].std(ddof=1))
    assert set(found.wall_seconds) == {"selection", "training", "aggregation", "evaluation", "recording", "total"}


def test_a_target_out_of_reach_costs_infinitely_much(run: Run) -> None:
    found = run.summary(target=1.0)
    assert found.rounds_to_target == found.time_to_target == found.bytes_to_target == math.inf
    assert (found.target_chosen, run.summary().target_chosen) == ("argument", "results")
    assert "Target accuracy: taken from these results" in terminal.as_text(
        terminal.summaries(["a"], [over_seeds([run.summary()])])
    )
    text = terminal.as_text(terminal.summaries(["a"], [over_seeds([found])]))
    assert "Target accuracy: taken from" not in text
    assert "Means over" not in text, "there is one seed"
    assert run.summary().target == math.floor(round(found.best_accuracy * 100, 6)) / 100
    assert run.summary().rounds_to_target < math.inf


def test_an_unfinished_run_may_still_reach_its_target(tmp_path: Path) -> None:
    """It had ∞ beside it, "no seed reached the target accuracy", as if it were finished; a comparison had "–"."""

    def one(label: str, planned: int, *accuracies: float) -> Run:
        rounds = [played(t, [0, 1], test_accuracy=accuracy) for t, accuracy in enumerate(accuracies, start=1)]
        return written(tmp_path / f"{label}{planned}", rounds, label=label, rounds=planned, seed=planned % 2)

    unfinished, finished, reached = one("a", 6, 0.3, 0.5), one("b", 2, 0.3, 0.5), one("c", 6, 0.3, 0.95)
    each = summaries([unfinished, finished, reached], target=0.9)
    assert [own.rounds_to_target for own in each] == pytest.approx([math.nan, math.inf, 2], nan_ok=True)
    assert math.isnan(over_seeds(each[:2]).mean.rounds_to_target), "one of the seeds may still reach it"
    assert over_seeds(each).mean.rounds_to_target == 2
    text = " ".join(call("measures", unfinished.path, "--target", 0.9).stdout.split())
    assert "–: not reached yet, since runs are not finished." in text
    assert "∞" not in text
    text = call("measures", finished.path, "--target", 0.9).stdout
    assert "not reached yet" not in text
    assert "∞" in text


def test_means_over_seeds_have_the_mean_accuracy_of_each_class(tmp_path: Path) -> None:
    """They had those of the first seed."""
    of_seeds = [[0.5, 1.0, math.nan], [0.75, 0.5, 0.25], []]
    runs = [
        written(tmp_path / str(seed), [played(1, [0], class_accuracy=own)], seed=seed)
        for seed, own in enumerate(of_seeds)
    ]
    assert over_seeds(summaries(runs)).mean.class_accuracy == [0.625, 0.75, 0.25]
    assert over_seeds(summaries(runs[2:])).mean.class_accuracy == []


def test_several_runs_have_one_target(tmp_path: Path) -> None:
    """The lowest best accuracy, except that of a run which fails; a target that one of them sets is that of all."""
    best = {"a": 0.871, "b": 0.842, "fails": 0.07}
    runs = [
        written(tmp_path / name, [played(1, [0], test_accuracy=accuracy)], label=name)
        for name, accuracy in best.items()
    ]
    assert {(one.target, one.target_chosen) for one in summaries(runs)} == {(0.84, "results")}
    assert {one.target for one in summaries(runs, 0.5)} == {0.5}
    set_to = written(tmp_path / "set", [played(1, [0])], measures={"target_accuracy": 0.6})
    assert {one.target for one in summaries([*runs, set_to])} == {0.6}
    assert summaries(runs[:1])[0].target == 0.87
    said = json.loads(call("measures", *(run.path for run in runs), "--json").stdout)["runs"]
    assert [one["target_accuracy"] for one in said] == [0.84] * 3
    assert (
        "Target accuracy: taken from these results, a level that the mean best accuracy of every row reaches, "
        "without rows that fail or are far below the best, rounded down."
        in " ".join(call("measures", *(run.path for run in runs)).stdout.split())
    )


def test_a_run_in_which_training_failed_has_no_target_of_its_own(tmp_path: Path) -> None:
    """A model that never changed reached "its" target in round 1. Notes are about what the table has."""
    rounds = [played(t, [ClientRow(0, "declined")], test_accuracy=0.73, class_accuracy=[0.9, 0.4]) for t in (1, 2)]
    run = written(tmp_path / "run", rounds, label="nobody")
    found = run.summary()
    assert math.isnan(found.target)
    assert math.isnan(found.rounds_to_target)
    assert found.target_chosen == "none, because training failed"
    text = " ".join(call("measures", run.path).stdout.split())
    assert "rounds to it" not in text
    assert "Target accuracy: none, because training failed. To choose one, use --target or" in text
    assert "admitted updates" not in text
    assert "Accuracies, drop and forgetting are in %." in text
    given = " ".join(call("measures", run.path, "--target", "0.7").stdout.split())
    assert "target accuracy 70.0 rounds to it 1 " in given
    assert "Target accuracy: none" not in given
    sound = written(tmp_path / "sound", [played(1, [0], test_accuracy=0.8)], label="sound")
    both = " ".join(call("measures", run.path, sound.path).stdout.split())
    assert "target accuracy 80.0 80.0" in both
    assert "Jain's index of admitted updates: not known" in both, "a column of the table has it"


@pytest.mark.parametrize("target", [0.0, 1.5, -1.0, math.nan, "30%", [0.3]])
def test_a_target_that_is_no_accuracy(target: Any, run: Run) -> None:
    with pytest.raises(UsageError, match=r"^target = .*: give a test accuracy above 0 and at most 1, such as 0\.8$"):
        run.summary(target)


def test_rounds_between_measurements_are_passed_over(tmp_path: Path) -> None:
    run = fedcohort.run(small(measures={"evaluate_every": 4}), runs=tmp_path)
    found = run.summary()
    assert found.class_accuracy == run.rounds["class_accuracy"].iloc[-1]
    assert math.isfinite(found.forgetting)


def test_bytes_belong_to_the_rounds_that_spent_them(tmp_path: Path) -> None:
    """Rounds without any exchange, at the beginning and in between, have a place of their own, and cost nothing."""
    ledgers = [[], [exchange(100, 10)], [], [exchange(200, 20), exchange(3000, 300, "LocalLoss")]]
    accuracies = [0.1, 0.2, 0.3, 0.4]
    run = written(
        tmp_path / "run",
        [
            played(t, ledger=ledger, test_accuracy=accuracy)
            for t, (ledger, accuracy) in enumerate(zip(ledgers, accuracies, strict=True), start=1)
        ],
    )
    assert [run.summary(target).bytes_to_target for target in accuracies] == [0, 110, 110, 3630]
    assert run.summary().bytes == 3630


def test_classes_without_test_samples_are_left_out_of_the_mean(tmp_path: Path) -> None:
    """Classes 0.8, unknown and 0.4 after the last round; the first of them was at 0.9 before."""
    rounds = [played(1, class_accuracy=[0.9, math.nan, 0.2]), played(2, class_accuracy=[0.8, math.nan, 0.4])]
    found = written(tmp_path / "some", rounds).summary()
    assert found.macro_accuracy == pytest.approx(0.6)
    assert found.forgetting == pytest.approx(0.05)
    assert found.class_accuracy == pytest.approx([0.8, math.nan, 0.4], nan_ok=True)
    none = written(tmp_path / "none", [played(1, class_accuracy=[math.nan, math.nan])]).summary()
    assert math.isnan(none.macro_accuracy)


def test_regret_from_a_record(run: Run, tmp_path: Path) -> None:
    """The reward is the user's choice; what the record knows of it comes as arrays."""
    losses, chosen = run.rewards("loss"), run.selections
    assert losses.shape == (6, 12)
    assert [len(clients) for clients in chosen] == run.rounds["selected"].tolist()
    arrived = run.clients[run.clients["status"].isin(["admitted", "declined"])]
    assert np.isfinite(losses).sum() == len(arrived)
    assert np.isfinite(measures.hindsight_regret(-losses, chosen)).all()
    full = fedcohort.run(small(measures={"clients_every": 1}), runs=tmp_path)
    regret = measures.regret(1 - full.client_accuracy.to_numpy(), full.selections)
    assert (np.diff(regret, prepend=0) >= 0).all()
    with pytest.raises(UsageError, match=r"^column = 'los': .*did you mean 'loss'\?"):
        run.rewards("los")


def test_empty_rounds_have_empty_selections(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text("[[0, 1, 2], [], [3]]")
    experiment = small(rounds=3, systems={"availability": {"name": "trace", "file": str(file)}})
    run = fedcohort.run(experiment, runs=tmp_path / "runs")
    assert [sorted(clients) for clients in run.selections] == [[0, 1, 2], [], [3]]


# --- prediction sets ---------------------------------------------------------------------------------------------------------------


def test_prediction_sets_of_a_finished_run(tmp_path: Path) -> None:
    experiment = small(rounds=20, data={"validation": 0.4}, federation={"partition": "iid"})
    run = fedcohort.run(experiment, runs=tmp_path)
    covered = []
    for alpha in (0.05, 0.1, 0.3):
        found = conformal(run, alpha)
        assert found.expected == coverage_range(alpha, found.num_calibration)
        # a Beta law around 1 − alpha, of calibration and of test samples
        spread = math.sqrt(alpha * (1 - alpha) * (1 / found.num_calibration + 1 / (359 - found.num_calibration)))
        assert abs(found.sets.coverage - (1 - alpha)) < 4.5 * spread
        covered.append((found.sets.coverage, found.sets.size, -found.sets.empty))
    assert covered == sorted(covered, reverse=True)  # the more errors are allowed, the smaller the sets


def test_prediction_sets_need_a_finished_run_with_a_validation_set(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^data\.validation = 0: there are no samples to calibrate on"):
        conformal(fedcohort.run(small(rounds=1, data={"validation": 0}), runs=tmp_path / "none"))
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(small(), runs=tmp_path / "broken", progress=stop_after(2))
    (path,) = (tmp_path / "broken").iterdir()
    with pytest.raises(UsageError, match="is not finished and has no final model yet"):
        conformal(Run(path))
    with pytest.raises(UsageError, match=r"^alpha = 2: must be between 0 and 1"):
        conformal(fedcohort.run(small(rounds=1), runs=tmp_path / "one"), 2)


# --- on the command line -----------------------------------------------------------------------------------------------------------


def test_measures_as_a_table(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = call("measures", run.path, "--conformal", "0.1").stdout
    for words in (
        "rounds to it",
        "Jain's index of selections (chance)",
        "of the worst-served tenth",
        "forgetting",
        "mean size",
    ):
        assert words in text
    assert "not measured" not in text
    assert all_measures.ABOUT_RANGES in " ".join(text.split())
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, call("measures", run.path, run.path).stdout.splitlines())) <= 60


def test_runs_of_one_row_side_by_side_are_not_said_to_be_rows_with_different_seeds(tmp_path: Path) -> None:
    """Prediction sets are those of single runs. Beside them, it was said to compare rows by differences over common seeds."""
    for seed in range(2):
        fedcohort.run(small(rounds=1, data={"validation": 0.2}), runs=tmp_path, seed=seed)
    text = call("measures", tmp_path, "--conformal", "0.2").stdout
    assert "seed 0" in text
    assert "different seeds" not in text


def test_rows_that_do_not_fit_side_by_side_are_in_a_few_tables(run: Run) -> None:
    """With all measures each, in the order of the rows; many more rows have a line each, in a table for each topic."""
    row = over_seeds(summaries([run], 0.5))

    def drawn(number: int) -> list[str]:
        return as_text(
            all_measures.summaries([f"row{i}" for i in range(number)], [row] * number, width=60), 60
        ).splitlines()

    few = drawn(5)
    assert [line.split()[1:] for line in few if line.startswith("measure")] == [
        ["row0", "row1"],
        ["row2", "row3"],
        ["row4"],
    ]
    assert sum(line.startswith("rounds ") for line in few) == 3
    assert max(map(len, few)) <= 60
    assert not any(line.startswith("measure") for line in drawn(18))


def test_measures_as_json(run: Run) -> None:
    (said,) = json.loads(call("measures", run.path, "--target", "1.0", "--conformal", "0.2", "--json").stdout)["runs"]
    found = run.summary(1.0)
    assert said["worst_client_accuracy"] == found.worst_client_accuracy
    assert said["selected"]["gini"] == found.selected.gini
    assert said["rounds_to_target"] is None  # never
    assert said["conformal"]["alpha"] == 0.2


def test_bad_arguments_are_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(call("measures", tmp_path), "there is no run in it")
    refused(call("measures", run.path, "--target", "80"), "--target 80", "at most 1")
    refused(call("measures", run.path, "--conformal", "1"), "--conformal 1", "between 0 and 1")
    assert call("measures").exit_code == 2


def test_early_stop_chooses_among_tested_rounds(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=6, measures={"evaluate_every": 3}), runs=tmp_path)
    found = run.summary()
    tested = run.rounds["test_accuracy"].dropna()
    assert found.early_stop_round in tested.index
    assert found.early_stop_accuracy == tested[found.early_stop_round]


def test_early_stopping_names_the_round_that_it_chooses_not_the_one_in_which_it_stops(tmp_path: Path) -> None:
    """With a patience of 2, round 4 is the last one; the best validation accuracy until then is that of round 2."""
    validated, tested = [0.2, 0.9, 0.5, 0.5, 0.95], [0.3, 0.6, 0.7, 0.8, 0.9]
    rounds = [
        played(t, [0], validation_accuracy=own, test_accuracy=accuracy)
        for t, (own, accuracy) in enumerate(zip(validated, tested, strict=True), start=1)
    ]
    found = written(tmp_path / "run", rounds, measures={"patience": 2}).summary()
    assert (found.early_stop_round, found.early_stop_accuracy) == (2, 0.6)


def test_seeds_of_a_row_have_one_target_and_a_deviation_of_their_last_accuracy(tmp_path: Path) -> None:
    """Best accuracies 0.8 and 0.9 have the mean 0.85, a target that one of the two reaches; the last ones are 0.5 and 0.7."""
    runs = [
        written(
            tmp_path / str(seed),
            [played(t, [0], test_accuracy=accuracy) for t, accuracy in enumerate(own, 1)],
            seed=seed,
        )
        for seed, own in enumerate(([0.8, 0.5], [0.9, 0.7]))
    ]
    each = summaries(runs)
    assert [(one.target, one.rounds_to_target) for one in each] == [(0.85, math.inf), (0.85, 1)]
    row = over_seeds(each)
    assert (row.seeds, row.reached) == (2, 1)
    assert row.accuracy_sd == pytest.approx(0.2 / math.sqrt(2))


def test_where_no_client_was_selected_it_is_not_known_how_evenly(tmp_path: Path) -> None:
    """It was perfectly even: Jain's index 1.000, with 1.000 under chance, beside an entropy and a coverage of 0."""
    run = written(tmp_path / "run", [played(t, [], available=0) for t in (1, 2)])
    found = summary(run)
    assert math.isnan(found.selected.jain)
    assert math.isnan(found.selected.gini)
    assert math.isnan(found.selected.entropy)
    assert found.selected.coverage == found.selected_random.coverage == 0
    assert math.isnan(found.selected_random.jain)
    assert math.isnan(found.jain_random.q05)
    text = terminal.as_text(terminal.summaries(["a"], [over_seeds([found])]))
    assert "1.000" not in text
    assert "Jain" not in text
    assert "coverage of selections (chance) 0.000 (0.000)" in " ".join(text.split())
    compared = Comparison("x", (Row("a", run.described, {0: run}),))
    assert math.isnan(compared.table["jain"][0])
    assert "1.000" not in str(compared)
    figure = selections(gather([run]), PAGE)
    assert figure is not None
    assert "No client was selected in any round." in figure.note
    assert "1.000" not in page(gather([run]))
