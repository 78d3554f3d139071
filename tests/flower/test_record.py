"""The record of a Flower run: why, report, compare, times, costs, and continuing after the server died."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    Strategy,
)

import fedcohort
from fedcohort.cli import cli
from fedcohort.experiment import Experiment
from fedcohort.flower import Selecting
from fedcohort.selection import OCS, Conformal, Selector
from fedcohort.selection.strategies.oort import Oort
from fedcohort.selection.strategies.power_of_choice import PowerOfChoice
from fedcohort.selection.strategies.uniform import Uniform
from fedcohort.study.comparison import Comparison, Row
from tests.flower.apps import grid, initial, inner, picks, selecting, validate


def evaluate(t: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"accuracy": float(validate(arrays)["accuracy"]), "loss": 1.0})


def recorded(runs: Path, selector: Selector, rounds: int = 3, **settings: Any) -> Path:
    where = grid(seconds=lambda position, message: 1.0 + position if message.metadata.message_type == "train" else 0.5)
    strategy = selecting(where, selector, runs=runs, **settings)
    strategy.start(where, initial(), num_rounds=rounds, evaluate_fn=evaluate)
    assert strategy.path is not None
    return strategy.path


def command(*arguments: object) -> str:
    done = CliRunner().invoke(cli, list(map(str, arguments)), prog_name="fedcohort", env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


def test_why_explains_a_decision(tmp_path: Path) -> None:
    path = recorded(tmp_path, PowerOfChoice(d=8))
    chosen = int(fedcohort.open_run(path).decisions.query("round == 2 and selected")["client"].iloc[0])
    words = " ".join(command("why", path, "--round", 2, "--client", chosen).split())
    assert f"Client {chosen} was selected in round 2: its score is" in words
    assert "PowerOfChoice(d=8)" in words
    assert "20 available clients" in words
    assert " s of wall time" in words
    assert "simulated" not in words


def test_costs_and_times_are_those_of_the_epochs_that_clients_used(tmp_path: Path) -> None:
    """Of at most six epochs, clients use two, which are six passes each. A reply after 6 s is 3 s for the nominal work of one."""

    def tamper(position: int, message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train":
            metrics = reply.content["metrics"]
            assert isinstance(metrics, MetricRecord)
            metrics["epochs"] = 2.0
        return reply

    where = grid(tamper=tamper, seconds=lambda position, message: 6.0 * (message.metadata.message_type == "train"))
    strategy = selecting(where, Conformal(max_epochs=6), runs=tmp_path)
    strategy.start(where, initial(), num_rounds=1)
    assert strategy.path is not None
    assert strategy.chooser is not None
    (training,) = fedcohort.open_run(strategy.path).ledger.query("kind == 'training'").to_dict("records")
    assert training["passes"] == 20 * 2 * 3
    assert strategy.chooser.durations.tolist() == pytest.approx([3.0] * 20)


def test_clients_that_trained_to_answer_do_not_train_again(tmp_path: Path) -> None:
    """Twenty clients say that the training for their answer took half a pass; it was 2.5 passes more for each that is selected."""
    path = recorded(tmp_path, OCS(), rounds=1)
    assert fedcohort.open_run(path).rounds["selected"].item() > 0
    passes = fedcohort.open_run(path).ledger.set_index("kind")["passes"]
    assert passes.to_dict() == {"UpdateNorm": 10.0, "training": 0.0}


def test_why_does_not_claim_that_a_client_was_available(tmp_path: Path) -> None:
    path = recorded(tmp_path, PowerOfChoice(d=5))
    candidates = set(fedcohort.open_run(path).decisions.query("round == 1")["client"])
    other = min(set(range(20)) - candidates)
    done = CliRunner().invoke(cli, ["why", str(path), "--round", "1", "--client", str(other)], prog_name="fedcohort")
    assert done.exit_code == 2
    assert f"--client {other}: was not one of the 5 clients that were compared in round 1" in " ".join(
        done.output.split()
    )


def test_report_and_compare_show_the_runs(tmp_path: Path) -> None:
    first = recorded(tmp_path, PowerOfChoice(d=8))
    second = recorded(tmp_path, Uniform())
    third = recorded(tmp_path, Uniform(), seed=1)
    page = tmp_path / "page.html"
    command("report", first, second, third, "-o", page)
    text = page.read_text(encoding="utf-8")
    assert "PowerOfChoice + FedAvg" in text
    table = command("compare", first, second, third)
    assert "PowerOfChoice + FedAvg" in table
    assert "Uniform + FedAvg" in table
    run = fedcohort.open_run(first)
    assert run.finished
    expected = [validate(initial())["accuracy"]]
    assert run.rounds["test_accuracy"].notna().all()
    assert run.rounds["test_accuracy"].iloc[0] != expected[0]


def test_times_of_a_run_on_real_machines_are_called_wall_time(tmp_path: Path) -> None:
    """The terminal and the page name the clock and the unit."""
    path = recorded(tmp_path, PowerOfChoice(d=8))
    run = fedcohort.open_run(path)
    assert run.clock == "wall"
    total = f"{run.rounds['simulated_time'].iloc[-1]:.1f} s"
    table = " ".join(command("compare", path).split())
    assert "Time: wall time of the rounds, in seconds" in table
    measures = " ".join(command("measures", path).split())
    assert f"wall time of rounds {total}" in measures
    page = tmp_path / "page.html"
    command("report", path, "-o", page)
    text = page.read_text(encoding="utf-8")
    assert "Time: wall time of the rounds, in seconds" in text
    assert "wall time, seconds" in text
    for shown in (table, measures, text):
        assert "simulated time" not in shown.lower()


def test_a_comparison_of_both_clocks_names_them() -> None:
    @dataclass
    class Played:
        clock: str

    def row(label: str, clock: str) -> Any:
        return Row(label, Experiment(), {0: Played(clock)})  # type: ignore[dict-item]

    both = Comparison("runs", (row("here", "simulated"), row("there", "wall"))).about_times
    assert both.startswith("Simulated time: the fastest possible client needs 1 unit per sample and round.")
    assert both.endswith("Time of 'there': wall time, in seconds.")
    assert "wall" not in Comparison("runs", (row("here", "simulated"),)).about_times


def test_runs_without_a_test_accuracy_can_be_read(tmp_path: Path) -> None:
    """An evaluate_fn that returns a loss only, as in the example of the documentation."""
    paths = []
    for seed in (0, 1):
        where = grid()
        strategy = selecting(where, Uniform(), runs=tmp_path, seed=seed)
        strategy.start(
            where, initial(), num_rounds=2, evaluate_fn=lambda t, arrays: MetricRecord({"loss": 1.0 / (t + 1)})
        )
        paths.append(strategy.path)
    table = " ".join(command("compare", *paths).split())
    assert "Target accuracy: none, because no row has a test accuracy." in table
    assert "nan" not in table
    measured = " ".join(command("measures", paths[0]).split())
    assert "local accuracy" in measured
    assert "target accuracy" not in measured  # no row knows it
    assert "nan" not in measured
    page = tmp_path / "page.html"
    command("report", paths[0], "-o", page)
    text = page.read_text(encoding="utf-8")
    assert "was not tested in any of its 2 rounds" in text
    assert "Target accuracy: none, because no row has a test accuracy." in text
    results = text[text.index('<table id="results"') :].partition("</table>")[0]
    assert "rounds to" not in results, "a column without any value"
    assert "_to_target" not in results
    head, _, body = results.partition("</thead>")
    assert head.count("<th ") == body.count("<th ") + body.count("<td "), "one row, with a cell below each heading"


def test_times_are_those_of_the_replies_and_costs_are_billed(tmp_path: Path) -> None:
    run = fedcohort.open_run(recorded(tmp_path, PowerOfChoice(d=8), k=3))
    clients = run.clients
    assert clients["duration"].tolist() == [1.0 + client for client in clients["client"]]
    longest = clients.groupby("round")["duration"].max()
    assert run.rounds["round_time"].tolist() == longest.tolist()
    assert run.rounds["simulated_time"].tolist() == longest.cumsum().tolist()
    assert run.meta["clock"] == "wall"
    loss = run.ledger.query("kind == 'LocalLoss'").iloc[0]
    assert (loss["messages"], loss["bytes_down"], loss["bytes_up"]) == (16, 8 * 16, 8 * 4)
    training = run.ledger.query("kind == 'training'").iloc[0]
    # four floats down; four floats and the reports that were sent up
    sent = len(("q_hat", "done", "epochs", "training_loss", "held_out_loss"))
    assert (training["messages"], training["bytes_down"], training["bytes_up"]) == (6, 3 * 16, 3 * (16 + 4 * sent))
    assert run.portrait.facts["samples"].tolist() == list(range(10, 30))


def test_weights_are_shares_of_all_admitted_updates(tmp_path: Path) -> None:
    clients = fedcohort.open_run(recorded(tmp_path, Uniform(), k=3)).clients
    total = clients.groupby("round")["num_samples"].transform("sum")
    assert clients["weight"].tolist() == pytest.approx((clients["num_samples"] / total).tolist())


def test_the_evaluation_of_the_clients_is_recorded_without_one_of_the_server(tmp_path: Path) -> None:
    where = grid(m=4)
    strategy = selecting(where, Uniform(), FedAvg(), k=2, runs=tmp_path)
    result = strategy.start(where, initial(), num_rounds=2)
    assert strategy.path is not None
    rounds = fedcohort.open_run(strategy.path).rounds
    assert rounds["test_accuracy"].tolist() == pytest.approx([0.5, 0.5])
    assert rounds["test_loss"].tolist() == [float(result.evaluate_metrics_clientapp[t]["loss"]) for t in (1, 2)]  # type: ignore[arg-type]


def test_the_same_settings_again_are_another_run(tmp_path: Path) -> None:
    first, second = (recorded(tmp_path, Uniform()) for _ in range(2))
    assert second.name == f"{first.name}-2"
    assert fedcohort.open_run(first).digest() == fedcohort.open_run(second).digest()


class Died(Exception):  # noqa: N818
    """The server is killed."""


def adaptive(**settings: Any) -> Strategy:
    """A clipping norm that adapts, without noise."""
    return DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(**settings), 0.0, 4, clipped_count_stddev=0.0)


@pytest.mark.parametrize(
    "strategy",
    [FedAvg, FedAdam, partial(FedAvgM, server_momentum=0.9), adaptive],
    ids=["FedAvg", "FedAdam", "FedAvgM", "adaptive"],
)
def test_a_run_continues_after_the_server_died(strategy: Callable[..., Strategy], tmp_path: Path) -> None:
    def wrapper(runs: Path, where: Any) -> Selecting:
        return selecting(where, Oort(), strategy(fraction_evaluate=0.0), runs=runs)

    straight = grid()
    model = (
        wrapper(tmp_path / "straight", straight).start(straight, initial(), num_rounds=5, evaluate_fn=evaluate).arrays
    )

    def dies(position: int, message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train" and message.metadata.group_id == "" and len(picks(killed)) == 4:
            raise Died
        return reply

    killed = grid(tamper=dies)
    with pytest.raises(Died):
        wrapper(tmp_path / "killed", killed).start(killed, initial(), num_rounds=5, evaluate_fn=evaluate)
    again = grid(nodes=[9000 - 7 * i for i in range(20)])
    resumed = wrapper(tmp_path / "killed", again)
    result = resumed.start(again, initial(), num_rounds=5, evaluate_fn=evaluate)
    assert picks(killed)[:3] + picks(again) == picks(straight)
    assert set(result.evaluate_metrics_serverapp) == {4, 5}  # the model that it begins with is not that of round 0
    for name, array in model.items():
        assert np.array_equal(result.arrays[name].numpy(), array.numpy())
    (one,), (two,) = ([*(tmp_path / name).iterdir()] for name in ("straight", "killed"))
    assert fedcohort.open_run(one).digest() == fedcohort.open_run(two).digest()
    assert inner() is not None


def test_the_same_object_starts_again_after_an_error(tmp_path: Path) -> None:
    """The round in which the evaluation failed is not recorded, and is played again."""
    failing = [3]

    def fails_once(t: int, arrays: ArrayRecord) -> MetricRecord:
        if t in failing:
            failing.clear()
            raise Died
        return evaluate(t, arrays)

    straight, where = grid(), grid()
    selecting(straight, Oort(), runs=tmp_path / "straight").start(straight, initial(), 5, evaluate_fn=evaluate)
    strategy = selecting(where, Oort(), runs=tmp_path / "again")
    with pytest.raises(Died):
        strategy.start(where, initial(), 5, evaluate_fn=fails_once)
    result = strategy.start(where, initial(), 5, evaluate_fn=fails_once)
    assert set(result.evaluate_metrics_serverapp) == {3, 4, 5}
    (one,), (two,) = ([*(tmp_path / name).iterdir()] for name in ("straight", "again"))
    assert fedcohort.open_run(one).digest() == fedcohort.open_run(two).digest()
