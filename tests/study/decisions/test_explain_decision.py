"""Why these clients: the words and numbers of a decision are those of the record, for every strategy; and what is refused."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.words.formatted_values import number
from fedcohort.record import ClientRow, LedgerRow, Portrait, Run
from fedcohort.report.data.report_data import gather
from fedcohort.report.page import page
from fedcohort.report.terminal import as_text, explanation
from fedcohort.selection import STRATEGIES, Cohort, Round, Why
from fedcohort.selection.strategies.uniform import Uniform
from fedcohort.study.decisions.explain_decision import Candidate, explain
from tests.cli.test_cli import call, refused
from tests.experiments import small
from tests.records import played, written

AWAY = {"availability": {"name": "bernoulli", "probability": 0.7}, "dropout": 0.2}


def scored(t: int, *candidates: tuple[int, bool, float]) -> Any:
    """Round ``t`` of a record with these candidates, each with its id, whether it was selected, and its score."""
    decisions: list[tuple[int, bool, float, dict[str, float]]] = [
        (client, selected, score, {}) for client, selected, score in candidates
    ]
    return played(t, [client for client, selected, _ in candidates if selected], decisions=decisions)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """UCB with some clients away and some that fail."""
    selection = {"name": "ucb", "initial_rounds": 1, "epsilon": 0.0}
    return fedcohort.run(small(selection=selection, systems=AWAY), runs=tmp_path_factory.mktemp("why"))


def test_only_the_round_is_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run can have millions of candidates."""
    read, expected = [], explain(run, 4)
    whole = Run.read_decisions

    def noted(self: Run, **asked: Any) -> Any:
        read.append(whole(self, **asked))
        return read[-1]

    monkeypatch.setattr(Run, "read_decisions", noted)
    assert explain(run, 4) == expected
    assert [set(table["round"]) for table in read] == [{4}]


def test_the_numbers_are_those_of_the_record(run: Run) -> None:
    for t in range(1, 7):
        found = explain(run, t)
        row, decision = run.rounds.loc[t], run.decisions.query(f"round == {t}")
        assert (found.available, found.selected, found.trained, found.admitted) == tuple(
            row[["available", "selected", "trained", "admitted"]]
        )
        assert found.note == row["note"]
        assert [one.client for one in found.candidates] == decision["client"].tolist()
        assert [one.score for one in found.candidates] == decision["score"].tolist()
        assert [one.terms["bonus"] for one in found.candidates] == decision["bonus"].tolist()
        became = run.clients.query(f"round == {t}").set_index("client")
        for one in found.candidates:
            assert one.selected == (one.client in became.index)
            if one.selected:
                assert (one.status, one.detail) == tuple(became.loc[one.client, ["status", "detail"]])
                assert one.outcome["weight"] == became.loc[one.client, "weight"]
        (training,) = found.asked
        (recorded,) = run.ledger.query(f"round == {t}").to_dict("records")
        for name in ("kind", "messages", "bytes_down", "bytes_up", "passes", "discloses"):
            assert getattr(training, name) == recorded[name]


def test_the_strategy_has_the_k_of_the_round(tmp_path: Path) -> None:
    run = fedcohort.run(
        small(rounds=3, selection={"name": "uniform", "k": 2, "k_steps": [[2, 5], [3, 1]]}), runs=tmp_path
    )
    for t, k in ((1, 2), (2, 5), (3, 1)):
        assert explain(run, t).strategy == f"uniform(k = {k})"
        assert explain(run, t).selected == k


def test_in_words(run: Run) -> None:
    found = explain(run, 6)
    first, last = found.candidates[0], found.candidates[-1]
    said = explain(run, 6, first.client).words()
    assert first.untried
    begins = (
        f"Client {first.client} was selected in round 6: it was untried: clients that were never selected have no score yet, and come "
        "first."
    )
    assert said[0].startswith(begins)
    earlier = [t for t in range(1, 6) if first.client in run.selections[t - 1]]
    assert f"selected in {len(earlier)} of 5 rounds before: {', '.join(map(str, earlier))}." in said[2] or not earlier
    assert said[3] == "Highest UCB."
    assert explain(run, 6, last.client).words()[0].startswith(f"Client {last.client} was not selected in round 6")
    statuses = {}
    for t in range(1, 7):
        for one in explain(run, t).candidates:
            if one.selected:
                statuses[one.status] = explain(run, t, one.client).words()[1]
    assert "% of the weight" in statuses["admitted"]
    assert statuses["failed"] == "It failed: dropped out before its update arrived."


def test_a_small_weight_is_not_shown_as_none(run: Run) -> None:
    """In a cohort of 16,000 clients, each has 0.006% of the weight."""
    decisions = [explain(run, t) for t in range(1, 7)]
    found = next(decision for decision in decisions if any(one.status == "admitted" for one in decision.candidates))
    admitted = next(one for one in found.candidates if one.status == "admitted")
    small_weight = replace(admitted, outcome={**admitted.outcome, "weight": 1 / 16_000})
    shown = replace(found, candidates=[small_weight], client=admitted.client)
    assert "its update entered the model with <0.1% of the weight" in " ".join(shown.words())
    row = next(
        line
        for line in as_text(explanation(shown), 200).splitlines()
        if line.split()[:2] == [str(admitted.client), "yes"]
    )
    assert "<0.1" in row.split()


@pytest.mark.parametrize("name", STRATEGIES.builtin)
def test_every_strategy_can_be_explained(name: str, tmp_path: Path) -> None:
    values = {"holdout": 0.2, "label_noise": {"name": "beta"}}
    selection: dict[str, Any] = {"name": name}
    if name == "conformal":
        selection |= {"alpha_cp": 0.3, "max_epochs": 2, "rule": "rank"}
    run = fedcohort.run(small(rounds=2, selection=selection, systems=AWAY, federation=values), runs=tmp_path)
    found = explain(run, 2)
    assert found.note
    assert found.strategy.startswith(f"{name}(k = 3")
    text = as_text(explanation(found), 100)
    assert "training" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    assert {one.client for one in found.candidates if one.selected} == set(run.selections[1].tolist())
    for one in (found.candidates[0], found.candidates[-1]):
        words = " ".join(explain(run, 2, one.client).words())
        assert f"Client {one.client} was {'' if one.selected else 'not '}selected in round 2" in words
        assert "nan" not in words
    json.loads(json.dumps(found.to_json()))


def in_score_words(*scored: tuple[float, dict[str, float]]) -> str:
    """What is said about the score of the first of these candidates, each with its score and its terms."""
    from fedcohort.study.decisions.decision_candidates import score_in_words

    candidates = [Candidate(i, True, score, i + 1.0, terms) for i, (score, terms) in enumerate(scored)]
    return score_in_words(candidates[0], candidates)


def test_scores_in_words() -> None:
    said = in_score_words
    assert said((1.5, {"a": 1.0, "b": 0.5}), (0.75, {"a": 0.25, "b": 0.5})) == "its score is 1.5 = a 1 + b 0.5"
    assert said((0.02, {"a": 0.1, "b": 0.2}), (0.3, {"a": 0.5, "b": 0.6})) == "its score is 0.02 = a 0.1 × b 0.2"
    summed = {"a": 0.25, "b": 0.5, "exploration": 0.25, "x_a": 3.0}
    assert said((1.0, summed), (2.0, summed | {"exploration": 1.25})) == (
        "its score is 1 = a 0.25 + b 0.5 + exploration 0.25 (x_a 3)"
    )
    of_oort = {"statistical": 1.0, "temporal": 0.5, "system": 0.2, "duration": 9.0}
    assert said((0.3, of_oort), (0.6, of_oort | {"system": 0.4}), (math.nan, {})) == (
        "its score is 0.3 = (statistical 1 + temporal 0.5) × system 0.2 (duration 9)"
    )
    divided = {"utility": 0.72, "seconds": 2.0}
    assert said((0.36, divided), (0.0, divided | {"utility": 0.0})) == "its score is 0.36 = utility 0.72 / seconds 2"
    assert said((0.0, divided | {"utility": 0.0}), (0.36, divided)) == "its score is 0 = utility 0 / seconds 2"
    infinite = (math.inf, {"fit": 1.0, "bonus": math.inf})
    assert said(infinite, (1.5, {"fit": 1.0, "bonus": 0.5})) == "its score is ∞ (fit 1, bonus ∞)"
    assert said((1.5, {"fit": 1.0, "bonus": 0.5}), infinite, (2.5, {"fit": 2.0, "bonus": 0.5})) == (
        "its score is 1.5 = fit 1 + bonus 0.5"
    )
    assert said((-math.inf, divided), (0.36, divided), (0.0, divided | {"utility": 0.0})) == (
        "its score is −∞ (utility 0.72, seconds 2)"
    )
    assert said((0.5, {"p": 0.1, "norm": math.nan}), (0.7, {"p": 0.2})) == "its score is 0.5 (p 0.1)"
    assert said((2.0, {"loss": 2.0}), (1.0, {"loss": 1.0}), (math.nan, {})) == "its score is 2, its loss"
    assert said((7.0, {"loss": 2.0, "waited": 3.0}), (1.0, {})) == "its score is 7 (loss 2, waited 3)"
    assert said((7.0, {"loss": 2.0, "waited": math.nan})) == "its score is 7 (loss 2)"
    assert said((math.inf, {"loss": math.inf}), (2.0, {"loss": 2.0})) == "its score is ∞, its loss"
    assert said((math.nan, {"loss": math.nan, "waited": 3.0})) == "it has no score (waited 3)"
    assert said((209_600.4, {})) == "its score is 209,600"
    assert said((-0.02, {})) == "its score is −0.02"


def test_a_formula_gives_the_scores_of_all_candidates() -> None:
    """The terms of one score can fit a formula by chance, which would tell a rule that the strategy does not have."""
    said = in_score_words
    of_tifl = {"tier": 0.0, "probability of its tier": 0.25}
    assert said((0.0, of_tifl), (-1.0, of_tifl | {"tier": 1.0})) == (
        "its score is 0 (tier 0, probability of its tier 0.25)"
    ), "not their product"
    assert said((0.0, of_tifl), (0.0, of_tifl)) == "its score is 0 (tier 0, probability of its tier 0.25)"
    assert said((9.0, {"valuation": 9.0, "probability": 0.0}), (21.0, {"valuation": 21.0, "probability": 0.25})) == (
        "its score is 9 (valuation 9, probability 0)"
    ), "not their sum"
    assert said((1.0, {"group": 1.0}), (0.0, {"group": 3.0})) == "its score is 1 (group 1)", "not its group"
    assert said((1.0, {"p": 1.0})) == "its score is 1 (p 1)", "a single candidate tells nothing"


def test_infinite_scores_are_kept(tmp_path: Path) -> None:
    """rpowd ranks clients that it never heard of with +∞."""
    run = fedcohort.run(small(rounds=1, selection={"name": "rpowd"}), runs=tmp_path)
    assert run.decisions["score"].tolist() == [math.inf] * 6
    assert "∞" in as_text(explanation(explain(run, 1)))


def test_a_strategy_from_python_is_named(tmp_path: Path) -> None:
    from fedcohort.selection.strategies.ucb import UCB

    run = fedcohort.run(small(rounds=1), selector=UCB(c=0.5), runs=tmp_path)
    assert explain(run, 1).strategy.startswith("UCB(c=0.5")


def test_a_client_is_compared_with_the_other_selected_only(tmp_path: Path) -> None:
    """A selected client's own score is told once, and is not among those of the others."""
    candidates = [(0, True, 0.9137), (1, True, 0.5021), (2, True, 0.3014), (3, False, 0.1213)]
    run = written(tmp_path / "run", [scored(1, *candidates)])
    told = {client: " ".join(explain(run, 1, client).words()) for client, _, _ in candidates}
    counts = {client: [told[client].count(f"{score}") for _, _, score in candidates] for client in told}
    assert counts == {0: [1, 1, 1, 0], 1: [1, 1, 1, 0], 2: [1, 1, 1, 0], 3: [1, 0, 1, 1]}


def test_the_highest_score_has_the_first_rank_and_ties_share_the_mean(tmp_path: Path) -> None:
    scores = {5: 0.5, 3: math.inf, 7: 0.1, 0: 0.5, 2: math.nan, 9: -4.0}
    candidates = [(client, client in (3, 5, 2), score) for client, score in scores.items()]
    found = explain(written(tmp_path / "run", [scored(1, *candidates)]), 1).candidates
    ranks = {one.client: one.rank for one in found}
    assert math.isnan(ranks.pop(2))
    assert ranks == {3: 1, 0: 2.5, 5: 2.5, 7: 4, 9: 5}


TIES: list[tuple[dict[int, float], set[int], str]] = [
    (
        {5: 2.0, 3: 0.5, 7: 0.5, 0: 0.1},
        {5, 3},
        "Chance decided between clients with the same score, 0.5: 3 was selected, 7 was not.",
    ),
    (
        dict.fromkeys(range(10), 1.0) | {10: 2.0},
        {10, 4, 2},
        "Chance decided between clients with the same score, 1: 2 and 4 were selected, 0, 1, 3, 5, 6, 7 and 2 others were not.",
    ),
    ({0: 0.2, 1: 0.2, 2: 0.2}, {0}, "All candidates have the same score, so that it does not decide between them."),
    ({0: 0.5, 1: 0.4, 2: 0.4, 3: 0.3}, {0}, ""),
    ({0: 0.5, 1: 0.4, 2: 0.5, 3: 0.3}, {0, 3}, ""),
    ({0: math.nan, 1: math.nan}, {0}, ""),
]
"""Scores of the candidates by client, those that were selected, and what is said about a tie."""


@pytest.mark.parametrize(("scores", "selected", "told"), TIES)
def test_a_tie_is_told(scores: dict[int, float], selected: set[int], told: str, tmp_path: Path) -> None:
    """That a client was selected and another one with the same score was not looked as if the score had decided it."""
    candidates = [(client, client in selected, score) for client, score in scores.items()]
    run = written(tmp_path / "run", [scored(1, *candidates), scored(2, *candidates)])
    found = explain(run, 1)
    assert [sentence for sentence in found.words() if "the same score" in sentence] == ([told] if told else [])
    assert told in " ".join(explain(run, 1, max(selected)).words())
    document = json.loads(call("why", run.path, "--round", 1, "--json").stdout)
    assert (document["tie"] is not None) == bool(told)
    if told.startswith("Chance"):
        (edge,) = {scores[client] for client in document["tie"]["selected"] + document["tie"]["not_selected"]}
        assert edge == document["tie"]["score"]
        assert set(document["tie"]["selected"]) <= selected


def test_a_tie_of_untried_clients_is_one_of_bonuses(tmp_path: Path) -> None:
    terms = {"mean_reward": 0.0, "bonus": 2e5}
    decisions = [(client, client < 2, 2e5 if client < 4 else 1.5, terms if client < 4 else {}) for client in range(6)]
    of_ucb = written(tmp_path / "ucb", [played(1, [0, 1], decisions=decisions)])
    assert (
        explain(of_ucb, 1).words()[-1]
        == "Chance decided between untried clients: 0 and 1 were selected, 2 and 3 were not."
    )
    at_random = written(tmp_path / "random", [played(1, [0, 1], decisions=decisions, note="random: epsilon")])
    assert explain(at_random, 1).tie is None
    of_one = explain(of_ucb, 1, 2).words()[0]
    assert of_one.endswith("3 of 5 others are untried, too."), "it had no score, and the same score as others"
    random = explain(at_random, 1, 2).words()[0]
    assert random.endswith("in this round, clients were selected at random."), "scores did not matter"


def test_clients_without_an_update_are_none_of_those_that_trained(tmp_path: Path) -> None:
    """It said "1 trained (1 diverged)", as if the only one had diverged."""
    rows = [ClientRow(0, "admitted"), ClientRow(1, "diverged"), ClientRow(2, "late")]
    run = written(tmp_path / "run", [played(1, rows, trained=1, decisions=[(i, True, 0.5, {}) for i in range(3)])])
    (counts,) = [sentence for sentence in explain(run, 1).words() if "selected;" in sentence]
    assert "3 were selected; 1 trained, 1 diverged, 1 came late, and 1 was admitted." in counts


def test_earlier_rounds_are_those_before(tmp_path: Path) -> None:
    """Client 4 was selected in rounds 1, 3, 4 and 6, whatever became of its update."""
    rows = [(4, "admitted"), (0, "admitted"), (4, "failed"), (4, "late"), (1, "admitted"), (4, "admitted")]
    rounds = []
    for t, (selected, status) in enumerate(rows, start=1):
        decisions: list[Any] = [(client, client == selected, float(client), {}) for client in (0, 1, 4)]
        rounds.append(played(t, [ClientRow(selected, status)], decisions=decisions))
    run = written(tmp_path / "run", rounds)
    earlier = [list(explain(run, t, 4).earlier) for t in range(1, 7)]
    assert earlier == [[], [1], [1], [1, 3], [1, 3, 4], [1, 3, 4]]
    assert explain(run, 6, 4).to_json()["earlier"] == [1, 3, 4]
    assert list(explain(run, 6).earlier) == []


def test_clients_without_samples_are_never_available(tmp_path: Path) -> None:
    """Of twelve clients that are all there, two have no samples: neither could have been selected."""
    samples = np.array([5, 0, 7, 1, 1, 1, 1, 1, 1, 1, 1, 0])
    known = Portrait(("a", "b"), {"samples": samples})
    run = written(tmp_path / "run", [scored(1, (0, True, 1.0), (2, False, 0.5))], portrait=known)
    for client in (1, 11):
        words = "has no samples, so that it takes part in no round; 10 of 12 clients have some, among them 0, 2, 3"
        with pytest.raises(UsageError, match=rf"^--client {client}: {words}"):
            explain(run, 1, client)
    for client in (0, 2, 3):
        assert explain(run, 1, client).client == client


def test_large_numbers_have_no_exponent() -> None:
    values = {
        999.94: "999.9", 1000.4: "1,000", 12_345.6: "12,346", -12_345.6: "−12,346", 2e9: "2,000,000,000",
        0.5: "0.5", 0.012345: "0.01235", 0.0: "0", math.nan: "–", -math.inf: "−∞",
    }  # fmt: skip
    assert {value: number(value) for value in values} == values
    assert [number(value, 2) for value in (0.0314, 9.96, 99.4, 99.6, -237.4)] == ["0.031", "10", "99", "100", "−237"]


def test_a_strategy_without_reasons(tmp_path: Path) -> None:
    class Silent(Uniform):
        def select(self, round: Round) -> Cohort:
            return Cohort(round.sample(round.k))

    run = fedcohort.run(small(rounds=1), selector=Silent(), runs=tmp_path)
    found = explain(run, 1)
    assert found.words()[0] == "The strategy gave no reason."
    counts = f"Of {len(found.candidates)} clients without a score, {found.selected} were selected."
    assert f"it has no score. {counts}" in explain(run, 1, found.candidates[0].client).words()[0]
    assert as_text(explanation(found))


def test_on_the_command_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = call("why", run.path, "--round", 6).stdout
    for words in (
        "ucb, seed 0: round 6 of 6",
        "ucb(k = 3, epsilon = 0, initial_rounds = 1)",
        "Highest UCB.",
        "mean_reward",
    ):
        assert words in text
    client = explain(run, 6).candidates[1].client
    (row,) = json.loads(call("why", run.path, "--round", 6, "--client", client, "--json").stdout)["candidates"]
    assert row["client"] == client
    unselected = next(one.client for one in explain(run, 6).candidates if not one.selected)
    lines = call("why", run.path, "--round", 6, "--client", unselected).stdout.splitlines()
    heading = next(i for i, line in enumerate(lines) if "outcome" in line)
    assert lines[heading + 2].split()[:2] == [str(unselected), "–"]
    assert lines[heading + 2][lines[heading].index("outcome")] == "–"
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, call("why", run.path, "--round", 6).stdout.splitlines())) <= 60


def test_what_is_refused(run: Run, tmp_path: Path) -> None:
    refused(call("why", tmp_path / "none", "--round", 1), "not a run directory")
    refused(call("why", run.path, "--round", 99), "--round 99", "it has rounds 1 to 6")
    refused(call("why", run.path, "--round", 0), "--round 0")
    refused(call("why", run.path, "--round", 1, "--client", 12), "--client 12", "numbered 0 to 11")
    t = 2
    here = {one.client for one in explain(run, t).candidates}
    away = min(set(range(12)) - here)
    with pytest.raises(
        UsageError,
        match=rf"^--client {away}: was not available in round {t}; {len(here)} of 12 clients were: "
        f"{', '.join(map(str, sorted(here)))}$",
    ):
        explain(run, t, away)
    assert call("why", run.path).exit_code == 2


def test_a_client_with_a_name_is_named_if_it_was_not_available(tmp_path: Path) -> None:
    """A client is asked for by its name, and the message has its number and its name."""
    clients, samples = ("Bergen", "Cork", "Dijon"), np.array([5, 4, 0])
    known = Portrait(("a", "b"), {"samples": samples}, clients)
    rounds = [scored(1, (0, True, 1.0))]
    run = written(tmp_path / "run", rounds, portrait=known)
    with pytest.raises(UsageError, match=r"^--client 2 \(Dijon\): has no samples"):
        explain(run, 1, "Dijon")


def test_available_but_not_compared(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1, selection={"name": "select_by_loss"}), runs=tmp_path)
    compared = {one.client for one in explain(run, 1).candidates}
    other = min(set(range(12)) - compared)
    words = explain(run, 1, other).words()
    assert words[0] == f"Client {other} was available in round 1, but was not one of the 6 clients that were compared."
    asked = explain(run, 1).asked[0]
    assert (asked.kind, asked.messages, asked.passes) == ("LocalLoss", 12, 6.0)
    assert "loss of the current model" in asked.discloses


def test_a_trace_that_has_changed_says_nothing_about_a_recorded_round(tmp_path: Path) -> None:
    """Client 3 was available, but not compared. The record has 3 available clients, the new trace 2 others; then there is none."""
    trace = tmp_path / "trace.json"
    trace.write_text("[[1, 2, 3]]")
    availability = {"name": "trace", "file": str(trace)}
    experiment = small(
        rounds=1,
        federation={"clients": 4, "partition": "iid"},
        systems={"availability": availability},
        selection={"name": "select_by_loss", "k": 1, "d": 2},
    )
    run = fedcohort.run(experiment, runs=tmp_path / "runs")
    compared = {one.client for one in explain(run, 1).candidates}
    [other] = {1, 2, 3} - compared
    assert explain(run, 1, other).words()[0].startswith(f"Client {other} was available in round 1, but")
    with pytest.raises(UsageError, match=r"^--client 0: was not available in round 1; 3 of 4 clients were"):
        explain(run, 1, 0)
    trace.write_text("[[0, 1]]")
    unknown = " The record does not say whether it was available."
    assert explain(run, 1, other).words()[0].endswith(unknown)
    assert explain(run, 1, 0).words()[0].endswith(unknown)
    trace.unlink()
    assert explain(run, 1, other).words()[0].endswith(unknown)


def test_clients_without_samples_are_not_counted_among_the_available(tmp_path: Path) -> None:
    known = Portrait(("a", "b"), {"samples": np.array([5, 4, 0])})
    rounds = [replace(scored(1, (0, True, 1.0)), available=2), scored(2, (0, True, 1.0))]
    run = written(tmp_path / "run", rounds, portrait=known, federation={"clients": 3})
    assert (
        explain(run, 1, 1).words()[0].startswith("Client 1 was available in round 1, but was not one of the 1 clients")
    )
    assert (
        explain(run, 2, 1).words()[0].endswith("The record does not say whether it was available.")
    )  # it says 12 were


def test_a_selected_client_that_the_record_of_the_decision_leaves_out(tmp_path: Path) -> None:
    """The record keeps 1,000 candidates; the others that were selected were compared, and what happened to them is known."""
    selected = [ClientRow(client, "failed" if client >= 1_100 else "admitted") for client in range(1_200)]
    best: list[tuple[int, bool, float, dict[str, float]]] = [
        (client, True, -float(client), {}) for client in range(1_000)
    ]
    known = Portrait(("a", "b"), {"samples": np.full(1_300, 5)})
    rounds = [played(t, selected, decisions=best, available=1_300, trained=1_100) for t in (1, 2)]
    run = written(tmp_path / "run", rounds, portrait=known, federation={"clients": 1_300, "partition": "iid"})
    words = explain(run, 2, 1_150).words()
    assert words[0] == (
        "Client 1150 was selected in round 2: the record keeps the scores of 1,000 candidates, and not this one."
    )
    assert words[2] == "It was selected in the earlier round."
    assert "1,200 were selected; 1,100 trained, 100 failed, and 1,100 were admitted." in " ".join(words)
    [row] = explain(run, 2, 1_150).to_json()["candidates"]
    assert (row["client"], row["selected"], row["status"]) == (1_150, True, "failed")
    assert len(explain(run, 2).to_json()["candidates"]) == 1_000
    assert "It is number 5 of the 1,000 recorded candidates by score" in explain(run, 2, 4).words()[0], (
        "there were more"
    )
    other = explain(run, 2, 1_250).words()[0]
    assert other == (
        "Client 1250 was available in round 2, but was not selected, and is not one of the 1,000 candidates that the record keeps."
    )


def test_one_client_that_holds_everything(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1, algorithm="centralised"), runs=tmp_path)
    assert explain(run, 1, 0).words()[0] == "Client 0 was selected in round 1: its score is 1."
    with pytest.raises(UsageError, match="the federation has no such client; its only client is 0"):
        explain(run, 1, 5)


def test_nobody_available(tmp_path: Path) -> None:
    nobody = {"availability": {"name": "bernoulli", "probability": 0.0}}
    run = fedcohort.run(small(rounds=1, systems=nobody), runs=tmp_path)
    found = explain(run, 1)
    assert found.words()[0] == "Empty round: no client available."
    assert as_text(explanation(found))
    with pytest.raises(UsageError, match="was not available in round 1; no client was"):
        explain(run, 1, 0)


def test_control_characters_in_names_are_not_printed() -> None:
    from rich.text import Text

    from fedcohort.report.terminal.layout import Column, as_text, fitting_table

    steering = "\x1b[31mred\x1b[0m \x07\u202eexe"
    table, _ = fitting_table([Column(steering, [steering]), Column("b", [Text(steering)])], 80)
    printed = as_text(table)
    assert not set("\x1b\x07\u202e") & set(printed)
    assert printed.count("[31mred[0m exe") == 3


def test_a_notebook_shows_one_line(run: Run) -> None:
    shown = repr(explain(run, 3))
    assert shown.startswith("<Explanation ")
    assert "round 3 of 6" in shown
    assert "\n" not in shown
    assert len(shown) < 200


@parameters
class FewSamples(Uniform):
    """Scores with the terms samples, time and loss, which the outcome has as well."""

    def select(self, round: Round) -> Cohort:
        """Fewest samples."""
        clients, numbers = round.available, -self.census.num_samples[round.available].astype(float)
        terms = {"samples": numbers, "time": numbers + 1, "accuracy": numbers + 2}
        return Cohort(round.top(numbers), why=Why(clients, numbers, terms, note="fewest samples"))


def test_columns_about_the_training_have_other_names_than_terms(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1), selector=FewSamples(), runs=tmp_path)
    lines = as_text(explanation(explain(run, 1), 300), 300).splitlines()
    heads = next(line for line in lines if line.lstrip().startswith("client "))
    assert [heads.count(name) for name in ("samples", "time", "accuracy", "in training")] == [2, 2, 2, 3]
    assert "Samples in training: training samples of the client." in " ".join(lines)


def test_an_experiment_file_names_its_only_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.toml").write_text('rounds = 1\nseeds = 1\nname = "one"\n')
    refused(call("why", "one.toml", "--round", 1), "one.toml: none of its runs is in runs")
    assert call("run", "one.toml", "-q").exit_code == 0
    assert "round 1 of 1" in call("why", "one.toml", "--round", 1).stdout
    assert call("run", "one.toml", "-q", "--set", "rounds=2", "--runs", "others").exit_code == 0
    assert "round 1 of 2" in call("why", "one.toml", "--round", 1, "--runs", "others", "--set", "rounds=2").stdout
    Path("one.toml").write_text('rounds = 1\nseeds = 2\nname = "one"\n')
    assert call("run", "one.toml", "-q").exit_code == 0
    refused(call("why", "one.toml", "--round", 1), "it has 2 runs in runs; give one of them: runs/one-uniform-seed0-")


def test_without_a_message_no_client_discloses_anything(tmp_path: Path) -> None:
    """A round without available clients said that a client discloses its number of samples, in 0 messages."""
    told = ("its update and number of samples, loss", "its number of samples")
    exchanges = [LedgerRow("training", 4 * i, 0, 0, 0.0, 0.0, told[1 - i]) for i in (1, 0)]
    rounds = [played(1, [0, 1], ledger=exchanges[:1]), played(2, [], available=0, ledger=exchanges[1:])]
    run = written(tmp_path / "run", rounds)
    assert [explain(run, t).asked[0].discloses for t in (1, 2)] == [told[0], ""]
    assert "its number of samples" not in as_text(explanation(explain(run, 2)))
    assert "its update and number of samples, its mean training loss" in page(gather([run])), (
        "not that of the last round"
    )
    alone = written(tmp_path / "alone", [played(1, [], available=0, ledger=exchanges[1:])])
    assert "its number of samples" not in page(gather([alone]))


@pytest.mark.parametrize("given", ["1", 1.0, None, True])
def test_a_round_is_a_whole_number(given: object, tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1), runs=tmp_path)
    with pytest.raises(UsageError, match=rf"^round = {given!r}: should be a whole number, such as 1$"):
        run.why(given)  # type: ignore[arg-type]


def test_only_the_clients_of_the_round_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all rounds took 1 GB for 10,000 rounds of 100 clients."""
    rounds = [
        played(t, [ClientRow(t % 3, "admitted", reports={"a" if t % 2 else "b": t}), ClientRow(4, "late")])
        for t in range(1, 8)
    ]
    run = written(tmp_path / "run", rounds)
    whole = run.clients
    for t in range(1, 8):
        own = whole[whole["round"] == t].dropna(axis="columns", how="all").reset_index(drop=True)
        pd.testing.assert_frame_equal(run.read_clients(t).dropna(axis="columns", how="all"), own)
    monkeypatch.setattr("fedcohort.record.Run.clients", property(lambda _: pytest.fail("all rounds are read")))
    found = explain(run, 7, 1)
    assert found.earlier == [1, 4]
    assert {each.client: each.outcome.get("a") for each in found.unlisted} == {1: 7.0, 4: None}
