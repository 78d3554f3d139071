"""The recorded decisions of a round (the selected clients, then the best scored candidates), and the cost of its training."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from fedcohort.algorithms import Algorithm, ModelState, Update
from fedcohort.core.tensor_sizes import num_bytes
from fedcohort.record import KEPT, LedgerRow, RoundRow
from fedcohort.rounds import play_round
from fedcohort.rounds.recorded_decision import decisions
from fedcohort.selection import Cohort, Why
from tests.records import candidates_of
from tests.run_states import a_run_state


def ids_by_one_sort(cohort: Cohort) -> list[int]:
    """The client ids in the order of the record, by one sort of all candidates."""
    why = cohort.why
    assert why is not None
    chosen = np.isin(why.candidates, cohort.clients)
    scores = np.nan_to_num(why.scores, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    return [int(c) for c in why.candidates[np.lexsort((why.candidates, -scores, ~chosen))][:KEPT]]


@pytest.mark.parametrize("m", [1, 7, KEPT - 1, KEPT, KEPT + 1, 5 * KEPT])
@pytest.mark.parametrize("levels", [1, 3, 10**6])
@pytest.mark.parametrize("k", [1, 20, KEPT + 5])
def test_decisions_list_the_selected_and_then_the_best_scored_candidates(m: int, levels: int, k: int) -> None:
    """With ties, and with scores that are NaN or infinite."""
    draw = np.random.default_rng(m + levels + k)
    candidates = draw.permutation(3 * m)[:m]
    scores = draw.integers(0, levels, m).astype(np.float64)
    scores[draw.random(m) < 0.1] = np.nan
    scores[draw.random(m) < 0.05] = np.inf
    scores[draw.random(m) < 0.05] = -np.inf
    clients = draw.permutation(candidates)[: min(k, m)]
    cohort = Cohort(clients, why=Why(candidates, scores, {"id": candidates.astype(np.float64)}))
    rows = candidates_of(decisions(cohort))
    assert [row[0] for row in rows] == ids_by_one_sort(cohort)
    where = {int(c): i for i, c in enumerate(candidates)}
    for client, selected, score, terms in rows:
        assert selected == (client in clients)
        assert terms == {"id": float(client)}
        assert score == scores[where[client]] or (math.isnan(score) and math.isnan(scores[where[client]]))


@pytest.mark.parametrize(("candidates", "scores"), [([1, 2], [0.5, 0.1]), ([2, 1], [0.1, 0.5])])
def test_selected_clients_that_were_no_candidates_are_listed_last(candidates: list[int], scores: list[float]) -> None:
    cohort = Cohort(np.array([9, 2]), why=Why(np.array(candidates), np.array(scores)))
    assert [(client, selected) for client, selected, _, _ in candidates_of(decisions(cohort))] == [
        (2, True),
        (1, False),
        (9, True),
    ]
    assert [client for client, *_ in candidates_of(decisions(Cohort(np.array([4, 3]))))] == [4, 3]
    empty = Cohort(np.zeros(0, dtype=np.int64), why=Why(np.zeros(0, dtype=np.int64), np.zeros(0)))
    assert candidates_of(decisions(empty)) == []


@pytest.mark.parametrize("kind", ["random", "ties", "all equal", "few scores", "no scores", "one is best", "sorted"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_decisions_of_70000_candidates_equal_those_of_a_full_sort(kind: str, shuffled: bool) -> None:
    draw = np.random.default_rng(0)
    m = 70_000
    scores = {
        "random": draw.normal(size=m),
        "ties": draw.integers(0, 7, m).astype(float),
        "all equal": np.ones(m),
        "few scores": np.where(draw.random(m) < 0.01, draw.random(m), np.nan),
        "no scores": np.full(m, np.nan),
        "one is best": (np.arange(m) == 17).astype(float),
        "sorted": np.arange(m, dtype=float),
    }[kind]
    candidates = draw.permutation(m) if shuffled else np.arange(m)
    clients = draw.choice(m, 30, replace=False)
    rows = candidates_of(decisions(Cohort(clients, why=Why(candidates, scores))))
    keys = np.where(np.isnan(scores), -np.inf, scores)
    order = candidates[np.lexsort((candidates, -keys))]
    chosen = np.isin(order, clients)
    expected = [*order[chosen], *order[~chosen][: KEPT - 30]]
    assert [client for client, *_ in rows] == expected
    assert [selected for _, selected, *_ in rows] == [True] * 30 + [False] * (KEPT - 30)


def test_repeated_candidates_and_terms_given_as_lists_are_recorded() -> None:
    why = Why(np.array([2, 2, 7, 4]), np.array([1.0, 2, 3, 4]), {"id": [2, 2, 7, 4]})  # type: ignore[dict-item]
    rows = candidates_of(decisions(Cohort(np.array([7, 2]), why=why)))
    assert sorted((client, selected) for client, selected, *_ in rows) == [(2, True), (2, True), (4, False), (7, True)]
    assert all(terms == {"id": client} for client, *_, terms in rows)


def test_decisions_do_not_change_when_the_strategy_reuses_its_arrays() -> None:
    """A strategy may overwrite its arrays in the next round, and a round is recorded while the next round is played."""
    clients, ids, scores = np.array([4, 3]), np.array([3, 4, 5]), np.array([0.5, 0.25, 0.125])
    without, why = decisions(Cohort(clients)), decisions(Cohort(clients, why=Why(ids, scores, {"id": ids * 1.0})))
    before = candidates_of(without), candidates_of(why)
    clients[:], ids[:], scores[:] = 7, 8, 9.0
    assert (candidates_of(without), candidates_of(why)) == before


def test_candidate_ids_given_as_floats_are_recorded_as_integers() -> None:
    rows = candidates_of(decisions(Cohort(np.array([2]), why=Why(np.array([1.0, 2.0]), np.array([0.5, 0.1])))))
    assert [(client, type(client)) for client, *_ in rows] == [(2, int), (1, int)]


# --- cost of training --------------------------------------------------------------------------------------------------------


def clients_with(row: RoundRow, status: str) -> list[int]:
    """The ids of the clients with this status."""
    return [client.client for client in row.clients if client.status == status]


def training_row(row: RoundRow) -> LedgerRow:
    (line,) = [line for line in row.ledger if line.kind == "training"]
    return line


def test_late_clients_cost_a_download_and_training_but_no_upload() -> None:
    """With k = 3 and over-commitment 1.5, five clients receive the model and train for two epochs; three send an update."""
    with a_run_state(
        selection={"name": "uniform", "k": 3}, systems={"overcommit": 1.5}, training={"epochs": 2}
    ) as run_state:
        row, model = play_round(run_state, 1, test=False), num_bytes([run_state.model])
    line = training_row(row)
    assert (len(clients_with(row, "late")), len(clients_with(row, "admitted"))) == (2, 3)
    assert (line.messages, line.bytes_down, line.bytes_up) == (5 + 3, 5 * model, 3 * model)
    assert line.passes == pytest.approx(5 * 2 * 3)


def test_clients_that_drop_out_cost_a_download_and_training_but_no_upload() -> None:
    """Each of the 12 clients receives the model and makes three passes, including those that fail before they send an update."""
    with a_run_state(selection={"name": "all"}, systems={"dropout": 0.5}) as run_state:
        row, model = play_round(run_state, 1, test=False), num_bytes([run_state.model])
    line, sent = training_row(row), len(clients_with(row, "admitted"))
    assert 0 < sent < 12
    assert len(clients_with(row, "failed")) == 12 - sent
    assert (line.messages, line.bytes_down, line.bytes_up) == (12 + sent, 12 * model, sent * model)
    assert line.passes == pytest.approx(12 * 3)


def test_a_diverged_update_costs_an_upload_although_it_is_dropped() -> None:
    with a_run_state(selection={"name": "all"}) as run_state:
        train = run_state.engine.train

        def poisoned(model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
            for update in train(model, t, cohort, algorithm):
                if update.client in (3, 7):
                    next(iter(update.state.values())).view(-1)[0] = math.nan
                yield update

        run_state.engine.train = poisoned  # type: ignore[method-assign]
        row, model = play_round(run_state, 1, test=False), num_bytes([run_state.model])
    line = training_row(row)
    assert clients_with(row, "diverged") == [3, 7]
    assert (line.messages, line.bytes_down, line.bytes_up) == (24, 12 * model, 12 * model)
    assert line.passes == pytest.approx(12 * 3)


def test_the_note_of_a_round_names_the_largest_weight() -> None:
    """In mode scaled, client i has the weight N_i/N times 12/4; the largest client is not the last one."""
    with a_run_state(selection={"name": "all", "k": 4}, algorithm={"name": "fedavg", "weights": "scaled"}) as run_state:
        row, sizes = play_round(run_state, 1, test=False), run_state.clock.num_samples
    assert 0 < sizes.argmax() < 11
    assert row.note.split("; ")[-1] == f"largest weight {sizes.max() / sizes.sum() * 12 / 4:.4g}"
