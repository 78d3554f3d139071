"""The record of a server of one's own: what the chooser decided, and what came back; continued after a restart."""

import asyncio
import dataclasses
import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcohort
from fedcohort import Chooser, ClientResult, ServerRecord
from fedcohort.rounds.recorded_decision import decisions
from fedcohort.selection import STRATEGIES, Census, Cohort, Outcome, Round
from fedcohort.selection.strategies.all_available import All
from fedcohort.selection.strategies.power_of_choice import PowerOfChoice
from fedcohort.selection.strategies.ucb import UCB
from fedcohort.selection.strategies.uniform import Uniform
from fedcohort.study.decisions.explain_decision import explain
from tests.chooser.test_chooser import CENSUS, K, M, answer, refuses, results_of
from tests.cli.test_cli import call
from tests.selection.fakes import the_why

NAMES = [f"clinic-{letter}" for letter in "abcdefghijkl"]


def chooser(strategy: Any = None, seed: int = 0, **settings: Any) -> Chooser:
    return Chooser(PowerOfChoice(d=6) if strategy is None else strategy, CENSUS, seed, **settings)


def play(own: Chooser, record: ServerRecord, rounds: int, folder: Path | None = None) -> list[Cohort]:
    """Play rounds; save the chooser after each if there is a folder."""
    cohorts = []
    for _ in range(rounds):
        cohort = own.select(range(M), ask=answer, model_bytes=100)
        results = results_of(cohort, own.t)
        own.admits(results)
        outcome = own.outcome(results, accuracy=0.1, class_accuracy=[0.5, 0.6, 0.7], validation_losses=[0.5, 0.7])
        own.observe(outcome)
        record.add(outcome, test_accuracy=own.t / 10, test_loss=1.0)
        if folder is not None:
            own.save(folder / "chooser.safetensors")
        cohorts.append(cohort)
    return cohorts


def test_the_record_has_what_happened(tmp_path: Path) -> None:
    own = chooser()
    with ServerRecord(tmp_path / "run", own, rounds=3, client_names=NAMES) as record:
        cohorts = play(own, record, 3)
        record.finish()
    run = fedcohort.open_run(tmp_path / "run")
    run.verify()
    assert run.finished
    assert run.client_names == tuple(NAMES)
    assert [sorted(part.tolist()) for part in run.selections] == [sorted(part.clients.tolist()) for part in cohorts]
    assert run.rounds["test_accuracy"].tolist() == [0.1, 0.2, 0.3]
    assert run.rounds["validation_loss"].tolist() == pytest.approx([0.6] * 3)
    assert run.rounds["available"].tolist() == [M] * 3
    assert run.rounds["note"].tolist() == [the_why(part).note for part in cohorts]
    assert run.rounds["note"].iloc[0].startswith("highest loss of 6 candidates")
    assert run.rounds["admitted"].tolist() == [K, K, K - 1]  # the last client of the third round is lost
    lost = run.clients[run.clients["status"] == "failed"]
    assert lost["detail"].tolist() == ["lost"]
    expected = results_of(cohorts[0], 1)
    first = run.clients[run.clients["round"] == 1].set_index("client")
    for client, result in expected.items():
        assert first.loc[client, "loss"] == result.reports["loss"]
        assert first.loc[client, "duration"] == result.duration
        assert first.loc[client, "num_samples"] == CENSUS.num_samples[client]
    assert run.clock == "wall"
    assert run.rounds["round_time"].iloc[0] == max(result.duration for result in expected.values())


def test_times_of_the_parts_of_a_round_add_up(tmp_path: Path) -> None:
    own = chooser()
    with ServerRecord(tmp_path / "run", own, rounds=2) as record:
        play(own, record, 2)
    wall = fedcohort.open_run(tmp_path / "run").wall
    assert (wall["selection"] > 0).all()
    assert (wall["selection"] + wall["training"]).tolist() == pytest.approx(wall["total"].tolist(), rel=1e-12)


def test_rounds_with_fewer_clients_than_are_selected_are_noted(tmp_path: Path) -> None:
    """Unless the strategy selects as many as it likes."""
    for strategy, notes in (
        (Uniform(), [f"uniform; short round: {K - 1} of {K} available", "uniform"]),
        (All(), ["all available clients"] * 2),
    ):
        own = chooser(strategy)
        with ServerRecord(tmp_path / type(strategy).__name__, own, rounds=2) as record:
            for available in (K - 1, K):
                cohort = own.select(range(available), ask=answer, model_bytes=100)
                outcome = own.outcome(results_of(cohort, 1))
                own.observe(outcome)
                record.add(outcome)
        assert fedcohort.open_run(record.path).rounds["note"].tolist() == notes


def test_the_outcome_of_before_a_restore_is_refused(tmp_path: Path) -> None:
    own = chooser(Uniform())
    with ServerRecord(tmp_path / "run", own, rounds=2) as record:
        outcome = own.outcome(results_of(own.select(range(M)), 1))
        own.observe(outcome)
        own.load_state_dict(own.state_dict())
        refuses("outcome: is not the one that this chooser observed in round 1", record.add, outcome)


def test_names_of_clients_add_nothing_to_the_description(tmp_path: Path) -> None:
    """They are in a comment of the experiment file, in which a line break would begin a setting."""
    names = ["a\nrounds = 9\nlabel = '", "b\x00", *NAMES[2:]]
    own = chooser()
    with ServerRecord(tmp_path / "run", own, rounds=3, client_names=names) as record:
        play(own, record, 1)
    run = fedcohort.open_run(tmp_path / "run")
    assert run.described.rounds == 3
    assert run.client_names == tuple(names)
    text = (tmp_path / "run" / "experiment.toml").read_text()
    assert ": a rounds = 9 label = ', b\\x00, clinic-c, " in text


def test_costs_are_those_of_questions_and_training(tmp_path: Path) -> None:
    own = chooser()
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        play(own, record, 1)
    ledger = fedcohort.open_run(tmp_path / "run").ledger.set_index("kind")
    assert ledger.loc["LocalLoss", "messages"] == 12
    assert ledger.loc["LocalLoss", "bytes_down"] == 600
    assert ledger.loc["training", "messages"] == 2 * K
    assert ledger.loc["training", "bytes_down"] == 100 * K
    sent = (
        "q_hat",
        "training_loss",
        "held_out_loss",
        "done",
    )  # the other reports are sent only to strategies that read them
    assert ledger.loc["training", "bytes_up"] == K * (100 + 4 * len(sent))
    assert (
        ledger.loc["training", "discloses"]
        == "its update and number of samples, done, held_out_loss, q_hat, training_loss"
    )
    assert ledger.loc["training", "passes"] == 3 * K


class ReadsSteps(Uniform):
    """Reads the number of steps, which clients send only to strategies that read it, and declines those of one step."""

    def admit(self, updates: Any) -> Any:
        return (update for update in updates if update.report["steps"] > 1)

    def observe(self, outcome: Outcome) -> None:
        outcome.billed_report("steps")


def test_reports_cost_four_bytes_for_each_client_that_sent_them(tmp_path: Path) -> None:
    """Those of declined clients cost bytes, too; those that a client did not send, that failed, or of a diverged one do not."""
    own = Chooser(ReadsSteps(), CENSUS, 0, k=5)
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        a, b, c, d, e = own.select(range(M), model_bytes=100).clients.tolist()
        results = {
            a: ClientResult({"steps": 4.0, "loss": 0.5, "q_hat": 0.1}),
            b: ClientResult({"steps": 1.0, "loss": 0.5, "q_hat": 0.2, "done": 1.0}),
            c: ClientResult({"steps": 5.0}),
            d: ClientResult({"steps": 5.0, "q_hat": 0.1}, failure="lost"),
            e: ClientResult({"steps": 5.0, "q_hat": 0.1}, update=[math.nan]),
        }
        assert own.admits(results) == [a, c]
        outcome = own.outcome(results)
        own.observe(outcome)
        record.add(outcome)
    run = fedcohort.open_run(tmp_path / "run")
    assert run.clients["status"].tolist() == ["admitted", "declined", "admitted", "failed", "diverged"]
    (training,) = run.ledger.to_dict("records")
    assert training["messages"] == 5 + 3, "a diverged update was sent, too"
    assert (training["bytes_down"], training["bytes_up"]) == (5 * 100, 3 * 100 + 4 * (3 + 3))
    assert training["passes"] == 4 * 3
    assert training["discloses"] == "its update and number of samples, done, q_hat, steps"


class OneEpoch(Uniform):
    """Asks every client for one epoch of five."""

    def select(self, round: Round) -> Cohort:
        return dataclasses.replace(super().select(round), epochs=np.ones(3, int))


@pytest.mark.parametrize("nominal", [5, 49])  # 3·49·(1/49) is not 3
def test_passes_are_whole_if_clients_train_for_a_part_of_the_epochs(nominal: int, tmp_path: Path) -> None:
    own = Chooser(OneEpoch(), dataclasses.replace(CENSUS, epochs=nominal), 0, k=3)
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        play(own, record, 1)
    assert fedcohort.open_run(tmp_path / "run").ledger["passes"].tolist() == [9.0], "not 9.000000000000002"


def test_an_update_that_the_server_left_out_was_sent(tmp_path: Path) -> None:
    """Of three updates of 100 bytes, the server leaves out the last two, as a robust average does: six messages, as in a
    simulation. It was five, and 100 bytes."""
    own = chooser(Uniform())
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        clients = own.select(range(M), model_bytes=100).clients.tolist()
        outcome = own.outcome({client: ClientResult(admitted=i == 0) for i, client in enumerate(clients)})
        own.observe(outcome)
        record.add(outcome)
    run = fedcohort.open_run(tmp_path / "run")
    assert run.clients["status"].tolist() == ["admitted", "declined", "declined"]
    (training,) = run.ledger.to_dict("records")
    assert (training["messages"], training["bytes_up"]) == (6, 300)


def test_clients_that_send_no_update_disclose_no_reports(tmp_path: Path) -> None:
    """The strategy reads the number of steps, and no client sends it, since all are late."""
    own = Chooser(ReadsSteps(), CENSUS, 0)
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        clients = own.select(range(M), model_bytes=100).clients.tolist()
        results = {client: ClientResult({"steps": 4.0}, late="too slow") for client in clients}
        own.admits(results)
        outcome = own.outcome(results)
        own.observe(outcome)
        record.add(outcome)
    (training,) = fedcohort.open_run(tmp_path / "run").ledger.to_dict("records")
    assert training["bytes_up"] == 0
    assert training["discloses"] == "its number of samples"


class StopsEarly(Uniform):
    """Selects the first four clients for at most eight epochs each, with a rule that can end them before."""

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[:4], epochs=np.full(4, 8), stop={"rule": "conformal"})


def test_passes_are_those_of_the_epochs_that_clients_used(tmp_path: Path) -> None:
    """Two, eight, and an unknown number of at most eight epochs, each of which counts as three passes; the fourth client fails."""
    own = Chooser(StopsEarly(), dataclasses.replace(CENSUS, epochs=4), 0, k=4)
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        own.select(range(M))
        results = {0: ClientResult({"epochs": 2.0}), 1: ClientResult({"epochs": 8.0}), 2: ClientResult()}
        outcome = own.outcome(results)
        own.observe(outcome)
        record.add(outcome)
    assert fedcohort.open_run(tmp_path / "run").ledger["passes"].tolist() == [3 * (2 + 8 + 8)]


def test_clients_that_trained_to_answer_do_not_train_again(tmp_path: Path) -> None:
    """Each of twelve clients says that its training took two passes. Those that are selected send the update, and train no more; it
    was one pass more for each of them, since an epoch counts as three."""
    own = chooser(STRATEGIES.find("ocs", "selection.name")(), seed=1)
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        norms = np.linspace(1, 2, M)
        cohort = own.select(
            range(M), lambda question, asked: np.stack([norms[asked], np.full(len(asked), 2.0)], axis=1)
        )
        outcome = own.outcome({client: ClientResult() for client in cohort.clients.tolist()[1:]})
        own.observe(outcome)
        record.add(outcome)
    assert len(cohort) > 1
    passes = fedcohort.open_run(tmp_path / "run").ledger.set_index("kind")["passes"]
    assert passes.to_dict() == {"UpdateNorm": 24.0, "training": 0.0}


def test_decisions_are_explained(tmp_path: Path) -> None:
    own = chooser()
    with ServerRecord(tmp_path / "run", own, rounds=1, client_names=NAMES) as record:
        (cohort,) = play(own, record, 1)
    client = int(cohort.clients[0])
    words = explain(fedcohort.open_run(tmp_path / "run"), 1, NAMES[client]).words()
    assert words[0].startswith(
        f"Client {client} (clinic-{'abcdefghijkl'[client]}) was selected in round 1: its score is"
    )
    assert "its update entered the model." in words[1]
    shown = call("why", tmp_path / "run", "--round", 1).stdout
    assert "of wall time" in shown


def test_scores_are_those_that_the_strategy_compared(tmp_path: Path) -> None:
    """Some strategies show arrays that they change when they learn from the round."""
    own = chooser(UCB(initial_rounds=1))
    expected = []
    with ServerRecord(tmp_path / "run", own, rounds=3) as record:
        for _ in range(3):
            cohort = own.select(range(M), model_bytes=100)
            expected += decisions(cohort).terms["mean_reward"].tolist()
            outcome = own.outcome(results_of(cohort, own.t), accuracy=0.5)
            own.observe(outcome)
            record.add(outcome)
    found = fedcohort.open_run(tmp_path / "run").decisions["mean_reward"].tolist()
    assert np.array_equal(found, expected, equal_nan=True)


def test_the_results_are_those_of_the_outcome_that_was_observed(tmp_path: Path) -> None:
    own = chooser(Uniform())
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        clients = own.select(range(M), model_bytes=100).clients.tolist()
        early = own.outcome({clients[0]: ClientResult(duration=1.0, weight=20)})
        own.outcome({client: ClientResult(duration=2.0, weight=20) for client in clients})  # those that came later
        own.observe(early)
        record.add(early)
    found = fedcohort.open_run(tmp_path / "run").clients.set_index("client").loc[clients]
    assert found["status"].tolist() == ["admitted", "failed", "failed"]
    assert found["detail"].tolist() == ["", "no result", "no result"]
    assert found["weight"].tolist() == [1.0, 0.0, 0.0]


def test_an_outcome_that_was_not_observed_is_refused(tmp_path: Path) -> None:
    """Neither another outcome of the round nor that of another chooser is recorded; the observed one still is."""
    own, other = chooser(Uniform()), chooser(Uniform(), seed=1)
    with ServerRecord(tmp_path / "run", own, rounds=2) as record:
        clients = own.select(range(M), model_bytes=100).clients.tolist()
        early = own.outcome({clients[0]: ClientResult(duration=1.0)})
        late = own.outcome({client: ClientResult(duration=5.0) for client in clients})
        own.observe(early)
        other.select(range(M))
        foreign = other.outcome({})
        other.observe(foreign)
        for wrong in (late, foreign):
            refuses("outcome: is not the one that this chooser observed in round 1", record.add, wrong)
        record.add(early)
    rounds = fedcohort.open_run(tmp_path / "run").rounds
    assert rounds[["round_time", "simulated_time"]].to_numpy().tolist() == [[1.0, 1.0]]


def test_every_call_can_be_made_in_another_thread(tmp_path: Path) -> None:
    """As in a server with an event loop, which lets other threads write to the disk."""

    async def serve() -> None:
        own = chooser()
        record = await asyncio.to_thread(ServerRecord, tmp_path / "run", own, rounds=3)
        for _ in range(3):
            cohort = await asyncio.to_thread(own.select, range(M), answer, model_bytes=100)
            outcome = own.outcome(results_of(cohort, own.t))
            await asyncio.to_thread(own.observe, outcome)
            await asyncio.to_thread(record.add, outcome)
        await asyncio.to_thread(record.finish)

    asyncio.run(serve())
    run = fedcohort.open_run(tmp_path / "run")
    run.verify()
    assert (run.finished, run.last_round) == (True, 3)


def test_a_round_that_several_threads_add_is_recorded_once(tmp_path: Path) -> None:
    own = chooser(Uniform())
    with ServerRecord(tmp_path / "run", own, rounds=1) as record, ThreadPoolExecutor(8) as threads:
        outcome = own.outcome(results_of(own.select(range(M), model_bytes=100), 1))
        own.observe(outcome)
        errors = [added.exception() for added in [threads.submit(record.add, outcome) for _ in range(16)]]
    assert sum(error is None for error in errors) == 1
    assert all(error is None or "add every round once" in str(error) for error in errors)
    assert fedcohort.open_run(tmp_path / "run").last_round == 1


def test_a_round_is_recorded_with_its_own_costs_while_the_next_one_begins(tmp_path: Path) -> None:
    """A question that fails, as when a server begins the next round while another thread records the last one."""
    ledgers = []
    for name, begins in (("plain", False), ("begins", True)):
        own = chooser()
        with ServerRecord(tmp_path / name, own, rounds=2) as record:
            outcome = own.outcome(results_of(own.select(range(M), answer, model_bytes=100), 1))
            own.observe(outcome)
            if begins:

                def gone(_question: Any, _clients: Any) -> Any:
                    record.add(outcome)  # noqa: B023
                    raise ConnectionError

                with pytest.raises(ConnectionError):
                    own.select(range(M), gone, model_bytes=7)
            else:
                record.add(outcome)
        ledgers.append(fedcohort.open_run(tmp_path / name).ledger.drop(columns="seconds"))
    assert len(ledgers[0]) == 2
    assert ledgers[0].equals(ledgers[1])


def test_bytes_of_parts_of_updates(tmp_path: Path) -> None:
    class Parts(Uniform):
        def select(self, round: Round) -> Cohort:
            return dataclasses.replace(super().select(round), share=np.array([1.0, 0.5, 0.25]))

    own = chooser(Parts())
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        clients = own.select(range(M), model_bytes=100).clients.tolist()
        outcome = own.outcome({client: ClientResult() for client in clients[1:]})
        own.observe(outcome)
        record.add(outcome)
    [row] = fedcohort.open_run(tmp_path / "run").ledger.to_dict("records")
    assert (row["bytes_down"], row["bytes_up"]) == (300, 75)


def test_a_missing_number_of_bytes_is_mentioned_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = chooser(Uniform())
    with ServerRecord(tmp_path / "run", own, rounds=2) as record:
        for _ in range(2):
            cohort = own.select(range(M))
            outcome = own.outcome(results_of(cohort, own.t))
            own.observe(outcome)
            record.add(outcome)
    [said] = caplog.messages
    assert said.endswith(
        "counts 0 bytes for each model that clients receive or send; give chooser.select(…, model_bytes=…)"
    )


def test_unknown_numbers_of_steps_are_not_shown(tmp_path: Path) -> None:
    own = chooser(Uniform())
    with ServerRecord(tmp_path / "run", own, rounds=2) as record:
        for reports in ({}, {"steps": 7.0}):
            first, *others = own.select(range(M)).clients.tolist()
            results = {client: ClientResult(duration=1.0) for client in others} | {first: ClientResult(reports)}
            outcome = own.outcome(results)
            own.observe(outcome)
            record.add(outcome)
    without, with_steps = (call("why", tmp_path / "run", "--round", t).stdout for t in (1, 2))
    assert "steps" not in without.lower()
    assert "steps" in with_steps
    selected = {each.client: each for each in explain(fedcohort.open_run(tmp_path / "run"), 2).candidates}
    assert selected[first].outcome["steps"] == 7
    assert not any("steps" in selected[client].outcome for client in others)
    run = fedcohort.open_run(tmp_path / "run")
    assert run.clients.loc[run.clients["steps"].notna(), ["round", "client", "steps"]].to_numpy().tolist() == [
        [2, first, 7]
    ]
    assert run.rounds["steps"].isna().all()  # a sum without those of the other clients is none of the round
    assert explain(run, 1).to_json()["candidates"]


def test_weights_are_shares_of_the_admitted_updates(tmp_path: Path) -> None:
    own = chooser(Uniform())
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        cohort = own.select(range(M))
        results = {c: ClientResult(weight=2.0 + i, admitted=i < 2) for i, c in enumerate(cohort.clients.tolist())}
        outcome = own.outcome(results)
        own.observe(outcome)
        record.add(outcome)
    clients = fedcohort.open_run(tmp_path / "run").clients
    assert clients["weight"].tolist() == pytest.approx([0.4, 0.6, 0.0])
    assert clients["status"].tolist() == ["admitted", "admitted", "declined"]


def test_every_status(tmp_path: Path) -> None:
    own = chooser(Uniform(), k=5)
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        clients = own.select(range(M)).clients.tolist()
        given = [
            ClientResult(), ClientResult(admitted=False), ClientResult(late="over a minute", duration=1.0),
            ClientResult(failure="no disk"),
        ]  # fmt: skip
        outcome = own.outcome(dict(zip(clients, given, strict=False)))
        own.observe(outcome)
        record.add(outcome)
    frame = fedcohort.open_run(tmp_path / "run").clients
    assert frame["status"].tolist() == ["admitted", "declined", "late", "failed", "failed"]
    assert frame["detail"].tolist() == ["", "", "over a minute", "no disk", "no result"]


def test_diverged_updates(tmp_path: Path) -> None:
    own = chooser(Uniform())
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        clients = own.select(range(M)).clients.tolist()
        outcome = own.outcome({client: ClientResult(update=[1.0, np.nan]) for client in clients})
        own.observe(outcome)
        record.add(outcome, note="a round without a new model")
    run = fedcohort.open_run(tmp_path / "run")
    assert set(run.clients["status"]) == {"diverged"}
    assert "no update admitted" in run.rounds["note"].iloc[0]
    assert run.rounds["note"].iloc[0].endswith("a round without a new model")


@pytest.mark.parametrize("strategy", sorted(STRATEGIES.builtin))
def test_a_restart_leaves_the_same_record(strategy: str, tmp_path: Path) -> None:
    """The server is killed after the record of round 4, before the chooser is saved: round 4 is played again."""
    selector = STRATEGIES.find(strategy, "selection.name")
    whole = chooser(selector())
    with ServerRecord(tmp_path / "whole", whole, rounds=6) as record:
        play(whole, record, 6)
    first = chooser(selector())
    with ServerRecord(tmp_path / "cut", first, rounds=6) as record:
        play(first, record, 3, tmp_path)
        play(first, record, 1)
    again = chooser(selector())
    again.restore(tmp_path / "chooser.safetensors")
    with ServerRecord(tmp_path / "cut", again, rounds=6) as record:
        play(again, record, 3)
    tables = [
        [
            fedcohort.open_run(tmp_path / name).query(f"SELECT * FROM {table}")
            for table in ("rounds", "clients", "decisions")
        ]
        for name in ("whole", "cut")
    ]
    assert tables[0] == tables[1]
    fedcohort.open_run(tmp_path / "cut").verify()


def test_a_record_survives_a_power_loss_like_the_chooser(tmp_path: Path) -> None:
    """The chooser is saved after the record: a record that had lost rounds that the chooser has could not be continued."""
    own, again = chooser(), chooser()
    with ServerRecord(tmp_path / "run", own, rounds=4) as record:
        play(own, record, 3, tmp_path)
        unsynced = shutil.ignore_patterns("*-wal", "*-shm", "*.lock")  # SQLite's log, if it is not merged yet
        shutil.copytree(tmp_path / "run", tmp_path / "left", ignore=unsynced)
    again.restore(tmp_path / "chooser.safetensors")
    with ServerRecord(tmp_path / "left", again, rounds=4) as record:
        play(again, record, 1)
    assert fedcohort.open_run(tmp_path / "left").last_round == 4


def test_a_server_that_ended_before_it_saved_the_chooser_begins_again(tmp_path: Path) -> None:
    """There is nothing to restore after the first round; from the second on, a new chooser is a mistake."""
    whole, first, again = chooser(), chooser(), chooser()
    with ServerRecord(tmp_path / "whole", whole, rounds=2) as record:
        play(whole, record, 2)
    with ServerRecord(tmp_path / "cut", first, rounds=2) as record:
        play(first, record, 1)
    with ServerRecord(tmp_path / "cut", again, rounds=2) as record:
        play(again, record, 2)
    clients = [fedcohort.open_run(tmp_path / name).clients for name in ("whole", "cut")]
    assert clients[0].equals(clients[1])
    fedcohort.open_run(tmp_path / "cut").verify()
    refuses("has 2 rounds already, and the chooser none", ServerRecord, tmp_path / "cut", chooser(), rounds=2)


def test_a_run_is_not_continued_with_clients_in_another_order(tmp_path: Path) -> None:
    """Clients are their numbers: with other names, the record would be about others."""
    own = chooser()
    with ServerRecord(tmp_path / "run", own, rounds=2, client_names=NAMES) as record:
        play(own, record, 1)
    words = "client_names: client 0 is 'clinic-l', but in the run in"
    refuses(words, ServerRecord, tmp_path / "run", own, rounds=2, client_names=NAMES[::-1])
    for names in (NAMES, ()):
        ServerRecord(tmp_path / "run", own, rounds=2, client_names=names).close()


def test_reports_and_comparisons_take_it(tmp_path: Path) -> None:
    for name, strategy in (("powd", PowerOfChoice(d=6)), ("uniform", Uniform())):
        own = chooser(strategy)
        with ServerRecord(tmp_path / name, own, rounds=3, label=name, name="clinics", client_names=NAMES) as record:
            play(own, record, 3)
            record.finish()
    table = call("compare", tmp_path / "powd", tmp_path / "uniform").stdout
    assert "repeat the runs with 6 or more seeds" in table
    assert call("report", tmp_path / "powd", tmp_path / "uniform", "-o", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Wall time is that of the server." in page
    assert "of the simulator" not in page
    assert "<h1>clinics</h1>" in page


def test_what_cannot_be_used_is_refused(tmp_path: Path) -> None:
    own = chooser()
    refuses("chooser = 3: give a fedcohort.Chooser", ServerRecord, tmp_path / "a", 3, rounds=1)
    for rounds in (0, 1.5, True):
        refuses("should be a whole number of at least 1", ServerRecord, tmp_path / "a", own, rounds=rounds)
    refuses(
        "has 2 names, but the census has 12 clients",
        ServerRecord,
        tmp_path / "a",
        own,
        rounds=1,
        client_names=["a", "b"],
    )
    refuses("has 'a' twice", ServerRecord, tmp_path / "a", own, rounds=1, client_names=["a"] * M)
    refuses("classes: has 1 names", ServerRecord, tmp_path / "a", own, rounds=1, classes=["a"])
    for names in ("abcdefghijkl", None, 12):
        words = f"client_names = {names!r}: give a list of names, one for each of the 12 clients"
        refuses(words, ServerRecord, tmp_path / "a", own, rounds=1, client_names=names)
    refuses("classes = 'abc': give a list of names", ServerRecord, tmp_path / "a", own, rounds=1, classes="abc")
    for label in (None, 3, ["a"]):
        refuses(f"label = {label!r}: must be text", ServerRecord, tmp_path / "a", own, rounds=1, label=label)
    assert not (tmp_path / "a").exists()


def test_rounds_are_added_in_order(tmp_path: Path) -> None:
    own = chooser(Uniform())
    record = ServerRecord(tmp_path / "run", own, rounds=3)
    own.select(range(M))
    outcome = own.outcome({})
    refuses("call chooser.observe(outcome) before add(outcome)", record.add, outcome)
    own.observe(outcome)
    refuses("client_accuracy: has the shape [3]", record.add, outcome, client_accuracy=[0.1] * 3)
    refuses("must be numbers of at most 1; 90% is 0.9", record.add, outcome, client_accuracy=[50.0] * M)
    refuses("outcome = None: give what chooser.outcome(…) returned", record.add, None)
    record.add(outcome, client_accuracy=[0.5] * M)
    refuses("is that of round 1; the record has 1 round and the chooser 1", record.add, outcome)
    own.select(range(M))
    later = own.outcome({})
    own.observe(later)
    own.select(range(M))
    last = own.outcome({})
    own.observe(last)
    refuses("the record has 1 round and the chooser 3", record.add, last)
    record.close()
    refuses("is closed", record.add, last)
    assert fedcohort.open_run(tmp_path / "run").client_accuracy.to_numpy().tolist() == [[0.5] * M]


def test_a_round_that_was_refused_is_added_again_without_billing_it_twice(tmp_path: Path) -> None:
    own, plain = chooser(Uniform()), chooser(Uniform())
    wrong: list[dict[str, Any]] = [
        {"test_accuracy": 90.0},
        {"test_accuracy": None},
        {"test_loss": "a"},
        {"class_accuracy": [0.5]},
        {"client_accuracy": "abc"},
        {"client_accuracy": [0.1] * 3},
        {"note": 5},
    ]
    with (
        ServerRecord(tmp_path / "own", own, rounds=1) as record,
        ServerRecord(tmp_path / "plain", plain, rounds=1) as other,
    ):
        outcomes = []
        for each in (own, plain):
            cohort = each.select(range(M), model_bytes=100)
            outcomes.append(each.outcome({client: ClientResult(duration=1.0) for client in cohort.clients.tolist()}))
            each.observe(outcomes[-1])
        for settings in wrong:
            refuses(next(iter(settings)), record.add, outcomes[0], **settings)
        record.add(outcomes[0])
        other.add(outcomes[1])
    ledgers = [fedcohort.open_run(tmp_path / name).ledger.drop(columns="seconds") for name in ("own", "plain")]
    assert ledgers[0].equals(ledgers[1])


def test_words_and_numbers_of_clients_that_cannot_be_stored(tmp_path: Path) -> None:
    """A client of the server can send any text and any number: the record has escapes in place of lone surrogates."""
    own = chooser(Uniform())
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        first, second, _ = own.select(range(M)).clients.tolist()
        results = {
            first: ClientResult(failure="no\ud800"),
            second: ClientResult({"steps": 1e300, "own\ud800": 2.0}, duration=1.0),
        }
        outcome = own.outcome(results)
        own.observe(outcome)
        record.add(outcome, note="\ud800")
    run = fedcohort.open_run(tmp_path / "run")
    run.verify()
    rows = run.clients.set_index("client")
    assert rows.loc[first, "detail"] == r"no\ud800"
    assert rows["steps"].isna().all()
    assert r"\ud800" in run.rounds["note"].iloc[0]
    for argument in ({"label": "\ud800"}, {"client_names": ["\ud800", *NAMES[1:]]}, {"classes": ["a", "b", "\ud800"]}):
        refuses(
            r"has '\ud800', which is not valid Unicode",
            ServerRecord,
            tmp_path / "other",
            chooser(),
            rounds=1,
            **argument,
        )


def test_other_runs_are_left_alone(tmp_path: Path) -> None:
    own = chooser()
    with ServerRecord(tmp_path / "run", own, rounds=3) as record:
        play(own, record, 2, tmp_path)
        refuses("another process is writing this run", ServerRecord, tmp_path / "run", own, rounds=3)
    refuses("has 2 rounds already, and the chooser none", ServerRecord, tmp_path / "run", chooser(), rounds=3)
    settings = "has a run with other settings (PowerOfChoice, seed 0, k 3, rounds 3); give those"
    refuses(settings, ServerRecord, tmp_path / "run", own, rounds=5)
    others: Sequence[Chooser] = [chooser(seed=1), chooser(Uniform()), chooser(PowerOfChoice(d=5)), chooser(k=2)]
    for other in others:
        refuses("has a run with other settings", ServerRecord, tmp_path / "run", other, rounds=3)
    refuses("is new, but the chooser has 2 rounds", ServerRecord, tmp_path / "new", own, rounds=3)
    ahead = chooser()
    ahead.restore(tmp_path / "chooser.safetensors")
    ahead.t = 3
    refuses("has 2 rounds, but the chooser has 3", ServerRecord, tmp_path / "run", ahead, rounds=3)
    ahead.t = 2
    with ServerRecord(tmp_path / "run", ahead, rounds=3) as record:
        play(ahead, record, 1)
        record.finish()
    refuses("has a finished run", ServerRecord, tmp_path / "run", ahead, rounds=3)


def test_a_census_with_label_counts_gives_the_classes(tmp_path: Path) -> None:
    own = chooser(Uniform())
    with ServerRecord(tmp_path / "run", own, rounds=1, classes=["a", "b", "c"]) as record:
        play(own, record, 1)
    portrait = fedcohort.open_run(tmp_path / "run").portrait
    assert portrait.classes == ("a", "b", "c")
    assert portrait.facts["counts"].tolist() == np.asarray(CENSUS.histogram).tolist()


def test_without_any_client(tmp_path: Path) -> None:
    own = Chooser(Uniform(), Census(np.full(M, 5), 1, K))
    with ServerRecord(tmp_path / "run", own, rounds=1) as record:
        own.select([])
        outcome = own.outcome({})
        own.observe(outcome)
        record.add(outcome)
    run = fedcohort.open_run(tmp_path / "run")
    assert run.rounds["note"].tolist() == ["empty round: no client available"]


@pytest.mark.slow
def test_a_program_that_ends_without_closing_its_record_says_nothing(tmp_path: Path) -> None:
    program = (
        "import sys, numpy, fedcohort\n"
        "from fedcohort.selection import Census\n"
        "from fedcohort.selection.strategies.uniform import Uniform\n"
        "chooser = fedcohort.Chooser(Uniform(), Census(numpy.array([10] * 5), 3, 2))\n"
        "record = fedcohort.ServerRecord(sys.argv[1], chooser, rounds=4)\n"
        "record.itself = record\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "run")], capture_output=True, text=True, check=True
    )
    assert ended.stderr == ""
    assert fedcohort.open_run(tmp_path / "run").meta["status"] == "running"
