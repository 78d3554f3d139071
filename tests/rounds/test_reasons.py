"""What is kept of a decision: the selected, then the best scored, without sorting everybody; and what a round's training is billed."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fedcohort.algorithms import Update
from fedcohort.record import KEPT, LedgerRow, RoundRow
from fedcohort.rounds import play_round
from fedcohort.rounds.ledger import num_bytes
from fedcohort.rounds.reasons import decisions
from fedcohort.selection import Cohort, Why
from tests.games import a_game


def by_sorting(cohort: Cohort) -> list[int]:
    """The ids in order, by one sort over all."""
    why = cohort.why
    assert why is not None
    chosen = np.isin(why.candidates, cohort.clients)
    scores = np.nan_to_num(why.scores, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    return [int(c) for c in why.candidates[np.lexsort((why.candidates, -scores, ~chosen))][:KEPT]]


@pytest.mark.parametrize("m", [1, 7, KEPT - 1, KEPT, KEPT + 1, 5 * KEPT])
@pytest.mark.parametrize("levels", [1, 3, 10**6])
@pytest.mark.parametrize("k", [1, 20, KEPT + 5])
def test_the_selected_and_the_best_scored(m: int, levels: int, k: int) -> None:
    """Whatever ties there are, and with scores that are no numbers."""
    draw = np.random.default_rng(m + levels + k)
    candidates = draw.permutation(3 * m)[:m]
    scores = draw.integers(0, levels, m).astype(float)
    scores[draw.random(m) < 0.1] = np.nan
    scores[draw.random(m) < 0.05] = np.inf
    scores[draw.random(m) < 0.05] = -np.inf
    clients = draw.permutation(candidates)[: min(k, m)]
    cohort = Cohort(clients, why=Why(candidates, scores, {"id": candidates * 1.0}))
    rows = list(decisions(cohort))
    assert [row[0] for row in rows] == by_sorting(cohort)
    where = {int(c): i for i, c in enumerate(candidates)}
    for client, selected, score, terms in rows:
        assert selected == (client in clients)
        assert terms == {"id": float(client)}
        assert score == scores[where[client]] or (math.isnan(score) and math.isnan(scores[where[client]]))


def test_who_was_no_candidate_stands_at_the_end() -> None:
    cohort = Cohort(np.array([9, 2]), why=Why(np.array([1, 2]), np.array([0.5, 0.1])))
    assert [(client, selected) for client, selected, _, _ in decisions(cohort)] == [(2, True), (1, False), (9, True)]
    assert [client for client, *_ in decisions(Cohort(np.array([4, 3])))] == [4, 3]
    nobody = Cohort(np.zeros(0, dtype=np.int64), why=Why(np.zeros(0, dtype=np.int64), np.zeros(0)))
    assert list(decisions(nobody)) == []


@pytest.mark.parametrize(
    "kind", ["random", "ties", "all alike", "few have a score", "nobody has a score", "one is best", "sorted"]
)
@pytest.mark.parametrize("shuffled", [False, True])
def test_the_best_of_many_are_those_of_a_sort(kind: str, shuffled: bool) -> None:
    draw = np.random.default_rng(0)
    m = 70_000
    scores = {
        "random": draw.normal(size=m),
        "ties": draw.integers(0, 7, m).astype(float),
        "all alike": np.ones(m),
        "few have a score": np.where(draw.random(m) < 0.01, draw.random(m), np.nan),
        "nobody has a score": np.full(m, np.nan),
        "one is best": (np.arange(m) == 17).astype(float),
        "sorted": np.arange(m, dtype=float),
    }[kind]
    candidates = draw.permutation(m) if shuffled else np.arange(m)
    clients = draw.choice(m, 30, replace=False)
    rows = list(decisions(Cohort(clients, why=Why(candidates, scores))))
    keys = np.where(np.isnan(scores), -np.inf, scores)
    order = candidates[np.lexsort((candidates, -keys))]
    chosen = np.isin(order, clients)
    expected = [*order[chosen], *order[~chosen][: KEPT - 30]]
    assert [client for client, *_ in rows] == expected
    assert [selected for _, selected, *_ in rows] == [True] * 30 + [False] * (KEPT - 30)


def test_candidates_that_are_named_twice_and_terms_that_are_lists() -> None:
    why = Why(np.array([2, 2, 7, 4]), np.array([1.0, 2, 3, 4]), {"id": [2, 2, 7, 4]})  # type: ignore[dict-item]
    rows = list(decisions(Cohort(np.array([7, 2]), why=why)))
    assert sorted((client, selected) for client, selected, *_ in rows) == [(2, True), (2, True), (4, False), (7, True)]
    assert all(terms == {"id": client} for client, *_, terms in rows)


def test_reasons_are_those_of_the_choice_whatever_becomes_of_the_strategys_arrays() -> None:
    """A strategy may use its arrays again, and a round is recorded while the next is played."""
    clients, ids, scores = np.array([4, 3]), np.array([3, 4, 5]), np.array([0.5, 0.25, 0.125])
    without, why = decisions(Cohort(clients)), decisions(Cohort(clients, why=Why(ids, scores, {"id": ids * 1.0})))
    before = list(without), list(why)
    clients[:], ids[:], scores[:] = 7, 8, 9.0
    assert (list(without), list(why)) == before


def test_ids_may_come_as_floats() -> None:
    rows = list(decisions(Cohort(np.array([2]), why=Why(np.array([1.0, 2.0]), np.array([0.5, 0.1])))))  # type: ignore[arg-type]
    assert [(client, type(client)) for client, *_ in rows] == [(2, int), (1, int)]


# --- what training is billed -------------------------------------------------------------------------------------------------


def having(row: RoundRow, status: str) -> list[int]:
    """The clients with this status."""
    return [client.client for client in row.clients if client.status == status]


def the_training(row: RoundRow) -> LedgerRow:
    (line,) = [line for line in row.ledger if line.kind == "training"]
    return line


def test_late_clients_are_billed_for_the_model_and_their_training_but_not_for_an_upload() -> None:
    """With k = 3 and over-commitment 1.5, five clients receive the model and train for two epochs; the three fastest send theirs."""
    with a_game(selection={"name": "uniform", "k": 3}, systems={"overcommit": 1.5}, training={"epochs": 2}) as game:
        row, model = play_round(game, 1, test=False), num_bytes([game.model])
    line = the_training(row)
    assert (len(having(row, "late")), len(having(row, "admitted"))) == (2, 3)
    assert (line.messages, line.bytes_down, line.bytes_up) == (5 + 3, 5 * model, 3 * model)
    assert line.passes == pytest.approx(5 * 2 * 3)


def test_clients_that_drop_out_are_billed_for_the_model_and_their_training() -> None:
    """Each of the 12 clients receives the model and makes three passes, also those that fail before they send."""
    with a_game(selection={"name": "all"}, systems={"dropout": 0.5}) as game:
        row, model = play_round(game, 1, test=False), num_bytes([game.model])
    line, sent = the_training(row), len(having(row, "admitted"))
    assert 0 < sent < 12
    assert len(having(row, "failed")) == 12 - sent
    assert (line.messages, line.bytes_down, line.bytes_up) == (12 + sent, 12 * model, sent * model)
    assert line.passes == pytest.approx(12 * 3)


def test_a_diverged_update_is_billed_though_it_is_dropped() -> None:
    with a_game(selection={"name": "all"}) as game:
        train = game.engine.train

        def poisoned(*args: Any) -> Iterator[Update]:
            for update in train(*args):
                if update.client in (3, 7):
                    next(iter(update.state.values())).view(-1)[0] = math.nan
                yield update

        game.engine.train = poisoned  # type: ignore[method-assign]
        row, model = play_round(game, 1, test=False), num_bytes([game.model])
    line = the_training(row)
    assert having(row, "diverged") == [3, 7]
    assert (line.messages, line.bytes_down, line.bytes_up) == (24, 12 * model, 12 * model)
    assert line.passes == pytest.approx(12 * 3)


def test_a_round_notes_the_largest_weight() -> None:
    """Mode scaled: client i weighs N_i/N times 12/4, and the largest client is not the last one."""
    with a_game(selection={"name": "all", "k": 4}, algorithm={"name": "fedavg", "weights": "scaled"}) as game:
        row, sizes = play_round(game, 1, test=False), game.clock.num_samples
    assert 0 < sizes.argmax() < 11
    assert row.note.split("; ")[-1] == f"largest weight {sizes.max() / sizes.sum() * 12 / 4:.4g}"
