"""The virtual clock: who the server waits for, how long a round lasts, what is known afterwards, and whole runs under all of it."""

import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcohort
from fedcohort.algorithms import Update
from fedcohort.core.errors import UsageError
from fedcohort.federation.availability import Bernoulli, Trace
from fedcohort.federation.latency import LogNormalBandwidth, ShiftedExponential
from fedcohort.federation.simulated_clock import Clock
from fedcohort.rounds import play_round
from tests.experiments import small
from tests.golden.test_same_bits import record
from tests.resume.test_resume import stop_after
from tests.run_states import a_run_state

EVEN = ShiftedExponential(spread=0.0)
"""T_i = N_i."""


def clock(num_samples: Sequence[int], seed: int = 0, **values: Any) -> Clock:
    return Clock(np.array(num_samples), seed, **{"latency": EVEN, **values})


def updates(clients: Sequence[int], work: float = 1.0) -> list[Update]:
    return [Update(client=i, num_samples=1, steps=1, state={"w": torch.zeros(2)}, work=work) for i in clients]


def fate(settled: list[Update]) -> dict[int, str]:
    return {
        u.client: "failed" if u.failure is not None else "late" if u.late is not None else "in time" for u in settled
    }


# --- one round ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "laws",
    [
        {"latency": ShiftedExponential(spread=1e308)},
        {"latency": ShiftedExponential(spread=1e308, redraw="round")},
        {"latency": ShiftedExponential(shift=1e308)},
        {"network": LogNormalBandwidth(bandwidth=1e-300, sigma=100.0), "model_bytes": 8},
    ],
)
def test_times_without_end_are_refused(laws: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            UsageError, match=r"systems\.latency, systems\.network: client [12] needs the time inf for a round"
        ):
            clock([0, 20, 30], **laws)
        clock([0, 0], **laws)  # clients without data are never selected


def test_work_scales_time_and_the_slowest_ends_the_round() -> None:
    c = clock([10, 20, 30])
    assert [u.duration for u in c.settle(1, updates([2, 0], work=2.0))] == [60.0, 20.0]
    assert c.now == 60.0
    assert c.durations.tolist()[::2] == [10.0, 30.0]  # for nominal work
    assert np.isnan(c.durations[1])


def test_computing_and_communication_are_known_apart_once_measured() -> None:
    c = clock([10, 20, 30])
    list(c.settle(1, updates([2, 0], work=3.0)))
    assert c.compute_times[[0, 2]] == pytest.approx([8.0, 24.0])
    assert c.upload_times[[0, 2]] == pytest.approx([2.0, 6.0])
    assert np.isnan([c.compute_times[1], c.upload_times[1]]).all()


def test_with_a_network_bytes_take_time_and_work_does_not_change_that() -> None:
    c = clock([10, 20], network=LogNormalBandwidth(bandwidth=4.0, sigma=0.0), model_bytes=8)
    assert c.nominal(1).tolist() == [14.0, 24.0]
    settled = list(c.settle(1, updates([0, 1], work=2.0), bytes_down=12))  # 12 down, 2 floats up
    assert [u.duration for u in settled] == [25.0, 45.0]
    assert c.durations.tolist() == [15.0, 25.0]
    assert c.compute_times.tolist() == [10.0, 20.0]
    assert c.upload_times.tolist() == [5.0, 5.0]


def test_what_the_algorithm_sends_besides_models_counts_for_the_known_times() -> None:
    """12 bytes down, and 8 of the model and 16 more up; with work 2, what is known afterwards is for nominal work."""
    network = LogNormalBandwidth(bandwidth=4.0, sigma=0.0)
    for cohort in (None, np.array([1, 0])):
        for work in (1.0, 2.0):
            c = clock([10, 20], network=network, model_bytes=8)
            sent = updates([1, 0], work=work)
            sent[0].extra = {"control": {"w": torch.zeros(4)}}
            settled = list(c.settle(1, sent, bytes_down=12, cohort=cohort))
            assert [u.duration for u in settled] == [20 * work + 36 / 4, 10 * work + 20 / 4]
            assert c.compute_times.tolist() == [10.0, 20.0]
            assert c.upload_times.tolist() == [5.0, 9.0]


def test_a_part_of_the_update_takes_less_to_send() -> None:
    c = clock([10], network=LogNormalBandwidth(bandwidth=1.0, sigma=0.0))
    [update] = updates([0])
    update.state["b"], update.sent = torch.zeros(100), frozenset({"w"})
    [settled] = c.settle(1, [update])
    assert settled.duration == 18.0


@pytest.mark.parametrize("cohort", [None, np.array([0])], ids=["alone", "in one call"])
@pytest.mark.parametrize("work", [1.0, 2.0])
def test_after_a_part_of_an_update_the_time_for_the_whole_is_known(work: float, cohort: Any) -> None:
    """A client sends 8 of 408 bytes; strategies compare the times of complete models."""
    c = clock([10], network=LogNormalBandwidth(bandwidth=1.0, sigma=0.0), model_bytes=408)
    [update] = updates([0], work=work)
    update.state["b"], update.sent = torch.zeros(100), frozenset({"w"})
    [settled] = c.settle(1, [update], bytes_down=408, in_parts=True, cohort=cohort)
    assert settled.duration == 10.0 * work + 408 + 8
    assert (c.compute_times.tolist(), c.upload_times.tolist()) == ([10.0], [816.0])
    assert c.durations.tolist() == c.nominal(1).tolist() == [826.0]


def test_clients_without_data_are_never_available() -> None:
    assert clock([5, 0, 3]).available(1).tolist() == [0, 2]
    found = clock([5, 0] * 500, availability=Bernoulli(probability=0.5)).available(1)
    assert 200 < len(found) < 300
    assert (found % 2 == 0).all()


def test_dropout_share_and_who_drops_out_depends_on_round_and_client_only() -> None:
    c = clock([1] * 4_000, dropout=0.25)
    settled = list(c.settle(1, updates(range(4_000))))
    failed = {client for client, what in fate(settled).items() if what == "failed"}
    assert len(failed) / 4_000 == pytest.approx(0.25, abs=6 * np.sqrt(0.1875 / 4_000))
    assert all(u.failure == "dropped out before its update arrived" for u in settled if u.client in failed)
    few = clock([1] * 4_000, dropout=0.25)
    again = fate(list(few.settle(1, updates(range(3_999, 0, -7)))))
    assert {client for client, what in again.items() if what == "failed"} == failed & set(again)
    assert fate(list(c.settle(2, updates(range(4_000))))) != fate(settled)


def test_the_server_does_not_wait_for_drop_outs() -> None:
    c = clock([10, 20, 30], dropout=1.0, deadline=15.0, idle_time=7.0)
    settled = list(c.settle(1, updates([0, 1, 2])))
    assert set(fate(settled).values()) == {"failed"}
    assert c.now == 0, "the idle time is that of a round without available clients"
    assert np.isnan(c.durations).all()


def test_a_client_that_failed_elsewhere_stays_failed() -> None:
    c = clock([10, 20])
    broken = updates([1])[0]
    broken.failure = "lost its connection"
    settled = list(c.settle(1, [*updates([0]), broken]))
    assert (settled[1].failure, math.isnan(settled[1].duration)) == ("lost its connection", True)
    assert c.now == 10.0


def test_the_deadline_cuts_and_the_round_lasts_as_long() -> None:
    c = clock([10, 20, 30], deadline=20.0)
    settled = list(c.settle(1, updates([2, 1, 0])))
    assert fate(settled) == {2: "late", 1: "in time", 0: "in time"}
    assert settled[0].late == "needed 30, the deadline is 20"
    assert c.now == 20.0
    assert c.durations.tolist() == [10.0, 20.0, 20.0]  # of client 2 the server knows that it needs 20 at least
    assert np.isnan(c.compute_times[2])


def test_a_round_that_nobody_is_cut_from_ends_before_the_deadline() -> None:
    c = clock([10, 20, 30], deadline=25.0)
    list(c.settle(1, updates([0])))
    assert c.now == 10.0


def test_what_is_known_of_a_late_client_is_a_lower_bound_for_nominal_work() -> None:
    c = clock([10, 20, 30], deadline=24.0)
    list(c.settle(1, updates([2], work=2.0)))
    assert c.durations[2] == 12.0
    list(c.settle(2, updates([2], work=1.0)))
    assert c.durations[2] == 24.0
    list(c.settle(3, updates([2], work=2.0)))
    assert c.durations[2] == 24.0  # what was known is not forgotten
    other = clock([10, 30], deadline=12.0)
    list(other.settle(1, updates([1], work=0.5)))
    assert other.durations[1] == 12.0  # it needs 15 for half of the work, of which sending may be the most


def test_how_much_a_late_client_did_before_it_stopped_is_unknown() -> None:
    c, cohort = clock([10, 20, 30], deadline=24.0), np.array([1, 2])
    list(c.settle(1, updates([1, 2], work=1.0), cohort=cohort, requested=np.array([4.0, 4.0])))
    assert c.durations[1:].tolist() == [20.0, 6.0]  # client 1 was in time, and reported its work


@pytest.mark.parametrize(
    ("c", "k", "selected"),
    [
        (1.0, 3, 3), (1.3, 3, 4), (1.3, 10, 13), (1.1, 10, 11), (2.0, 5, 10), (1.01, 1, 2), (1.2, 5, 6),
        (1.1, 50, 55),  # 1.1·50 is 55.00000000000001 in floating point
    ],
)  # fmt: skip
def test_the_ceiling_of_c_times_k_is_selected(c: float, k: int, selected: int) -> None:
    one = clock([1], overcommit=c)
    assert one.number_to_select(k) == selected
    assert one.number_to_await(selected, k) == (None if c == 1.0 else k)


@given(st.floats(1.0, 10.0), st.integers(1, 1_000))
def test_of_the_invited_k_are_wanted_whatever_the_rounding(c: float, k: int) -> None:
    one = clock([1], overcommit=c)
    selected = one.number_to_select(k)
    assert math.ceil(c * k) - 1 <= selected <= math.ceil(c * k)
    assert one.number_to_await(selected, k) in (None, k)
    assert one.number_to_await(max(k - 1, 0), k) in (None, k)  # a short round cuts nobody


def test_a_strategy_that_takes_everybody_keeps_its_share() -> None:
    assert clock([1], overcommit=1.5).number_to_await(12, 3) == 8
    assert clock([1], overcommit=1.1).number_to_await(33, 3) == 30  # 33/1.1 is a little less in floating point


def test_over_commitment_keeps_the_fastest_in_cohort_order() -> None:
    c = clock([50, 10, 40, 20, 30], overcommit=1.5)
    settled = list(c.settle(1, updates([0, 1, 2, 3, 4]), awaited=3))
    assert [u.client for u in settled] == [0, 1, 2, 3, 4]
    assert fate(settled) == {0: "late", 1: "in time", 2: "late", 3: "in time", 4: "in time"}
    assert settled[0].late == "not among the 3 fastest"
    assert c.now == 30.0
    assert c.durations.tolist() == [30.0, 10.0, 30.0, 20.0, 30.0]


def test_of_two_that_are_equally_fast_the_first_in_the_cohort_counts() -> None:
    settled = list(clock([5, 5, 5, 5], overcommit=2.0).settle(1, updates([3, 1, 0, 2]), awaited=2))
    assert fate(settled) == {3: "in time", 1: "in time", 0: "late", 2: "late"}


def test_over_commitment_makes_up_for_drop_outs() -> None:
    c = clock(np.arange(1, 101), dropout=0.3, overcommit=2.0)  # type: ignore[arg-type]
    settled = list(c.settle(1, updates(range(100)), awaited=50))
    there = [u.client for u in settled if u.failure is None]
    assert len(there) > 50
    assert [client for client, what in fate(settled).items() if what == "in time"] == there[:50]


def test_the_deadline_does_not_count_when_enough_are_there_before() -> None:
    c = clock([10, 20, 30, 40], overcommit=2.0, deadline=35.0)
    settled = list(c.settle(1, updates([3, 2, 1, 0]), awaited=2))
    assert fate(settled) == {3: "late", 2: "late", 1: "in time", 0: "in time"}
    assert c.now == 20.0
    too_few = list(c.settle(2, updates([3, 1]), awaited=2))
    assert fate(too_few) == {3: "late", 1: "in time"}
    assert c.now == 55.0


def test_an_empty_round_takes_the_idle_time() -> None:
    c = clock([10], idle_time=7.0)
    list(c.settle(1, []))
    list(c.settle(2, updates([0])))
    assert c.now == 17.0
    other = clock([10])
    list(other.settle(1, []))
    assert other.now == 0.0


TIMES = st.lists(st.integers(1, 100), min_size=1, max_size=12)


@settings(max_examples=300, deadline=None)
@given(TIMES, st.integers(1, 100), st.integers(1, 12), st.floats(0, 0.9), st.booleans(), st.integers(0, 50))
def test_a_deadline_never_lengthens_a_round(
    sizes: list[int], deadline: int, wanted: int, dropout: float, overcommit: bool, t: int
) -> None:
    """Nor does over-commitment; and who comes in time is there by then."""
    keep = wanted if overcommit else None

    def play(deadline: float | None, keep: int | None) -> tuple[float, list[Update]]:
        one = clock([1, *sizes], dropout=dropout, deadline=deadline)
        settled = list(one.settle(t, updates(range(1, len(sizes) + 1)), awaited=keep))
        return one.now, settled

    free, _ = play(None, keep)
    cut, settled = play(float(deadline), keep)
    assert cut <= min(free, deadline)
    assert free <= play(None, None)[0]
    came = sorted(u.duration for u in settled if u.failure is None and u.late is None)
    assert max(came, default=0.0) <= cut
    in_time = sorted(u.duration for u in settled if u.failure is None and u.duration <= deadline)
    assert came == in_time[:keep]


def test_at_most_the_wanted_models_are_held_at_once() -> None:
    alive = most = 0

    class Counted(Update):
        def __init__(self, client: int) -> None:
            super().__init__(client=client, num_samples=1, steps=1, state={"w": torch.zeros(1)})

    made: list[Counted] = []

    def stream() -> Iterator[Update]:
        nonlocal alive, most
        for client in np.random.default_rng(0).permutation(60):
            made.append(Counted(int(client)))
            alive = sum(bool(one.state) for one in made)
            most = max(most, alive)
            yield made[-1]

    settled = list(clock(range(1, 61), dropout=0.2, overcommit=3.0).settle(1, stream(), awaited=5))
    assert most == 6  # five held, one in the hand
    assert sum(bool(u.state) for u in settled) == 5
    assert all(bool(u.state) == (what == "in time") for u, what in zip(settled, fate(settled).values(), strict=True))


def test_without_over_commitment_nothing_is_held_back() -> None:
    taken: list[int] = []

    def stream() -> Iterator[Update]:
        for update in updates([0, 1, 2]):
            taken.append(update.client)
            yield update

    for n, _ in enumerate(clock([1, 2, 3], deadline=2.0).settle(1, stream()), 1):
        assert len(taken) == n


# --- the start ------------------------------------------------------------------------------------------------------------------


def test_a_deadline_that_nobody_meets_is_an_error() -> None:
    with pytest.raises(
        UsageError, match=r"^systems\.deadline = 9\.5: no client can ever meet it; the smallest possible time, that of client 2 "
        r"with 10 samples, is 10$"
    ):  # fmt: skip
        clock([30, 0, 10, 20], deadline=9.5)
    clock([30, 0, 10, 20], deadline=10.0)


def test_with_kept_times_the_smallest_is_exact_and_with_fresh_ones_it_is_the_shift() -> None:
    kept = clock([100] * 5, latency=ShiftedExponential())
    smallest = kept.nominal(1).min()
    clock([100] * 5, latency=ShiftedExponential(), deadline=float(smallest))
    with pytest.raises(UsageError, match=r"systems\.deadline"):
        clock([100] * 5, latency=ShiftedExponential(), deadline=float(smallest) - 1e-6)
    for redraw in ("round", "mixed"):
        law = ShiftedExponential(redraw=redraw)
        clock([100] * 5, latency=law, deadline=100.0)
        with pytest.raises(UsageError, match=r"is 100$"):
            clock([100] * 5, latency=law, deadline=99.0)


def test_the_network_counts_for_the_deadline() -> None:
    network = LogNormalBandwidth(bandwidth=1.0, sigma=0.0)
    with pytest.raises(UsageError, match=r"is 26$"):
        clock([10], network=network, model_bytes=8, deadline=25.0)


def test_a_deadline_that_needs_fewer_epochs_is_a_warning() -> None:
    with pytest.warns(
        UserWarning,
        match=r"systems\.deadline = 15: no client meets it with training\.epochs = 4, which takes at least 40",
    ):
        clock([40], epochs=4, deadline=15.0)
    with pytest.raises(UsageError, match=r"with 40 samples for one epoch, is 10$"):
        clock([40], epochs=4, deadline=9.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clock([40], epochs=4, deadline=40.0)


# --- the checkpoint -------------------------------------------------------------------------------------------------------------


def test_a_clock_goes_on_from_its_state() -> None:
    c = clock([10, 20], deadline=15.0)
    list(c.settle(1, updates([1, 0])))
    other = clock([10, 20], deadline=15.0)
    other.load_state_dict(c.state_dict())
    assert (other.now, other.durations.tolist()) == (15.0, [10.0, 15.0])
    assert other.compute_times[0] == 8.0


# --- whole runs -----------------------------------------------------------------------------------------------------------------

EVERYTHING = {
    "latency": {"name": "shifted_exponential", "redraw": "mixed"},
    "availability": {"name": "markov", "p_on": 0.5, "p_off": 0.2},
    "network": {"name": "lognormal", "bandwidth": 500.0},
    "dropout": 0.2,
    "deadline": 600.0,
    "overcommit": 1.6,
}


@pytest.mark.parametrize("stop", [1, 3])
@pytest.mark.parametrize("selection", ["uniform", "utility_time", "powd"])
def test_resumed_equals_straight_under_all_of_it(selection: str, stop: int, tmp_path: Path) -> None:
    experiment = small(selection=selection, systems=EVERYTHING)
    straight = fedcohort.run(experiment, runs=tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "broken", progress=stop_after(stop))
    assert record(fedcohort.run(experiment, runs=tmp_path / "broken")) == record(straight)
    statuses = set(straight.clients["status"])
    assert {"admitted", "late"} <= statuses


@pytest.mark.parametrize(
    "systems",
    [
        {"availability": {"name": "markov", "p_on": 0.1, "p_off": 0.1}, "dropout": 0.3},
        {"availability": "diurnal", "latency": {"redraw": "round"}},
        {"deadline": 250.0},
        {"overcommit": 2.0, "latency": {"redraw": "round"}},
    ],
    ids=["markov", "diurnal", "deadline", "overcommit"],
)
def test_resumed_equals_straight(systems: dict[str, Any], tmp_path: Path) -> None:
    experiment = small(selection={"name": "ucb", "initial_rounds": 2}, systems=systems)
    straight = fedcohort.run(experiment, runs=tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "broken", progress=stop_after(4))
    assert record(fedcohort.run(experiment, runs=tmp_path / "broken")) == record(straight)


def test_the_number_of_threads_does_not_matter(tmp_path: Path) -> None:
    runs = [fedcohort.run(small(systems=EVERYTHING, engine={"workers": n}), runs=tmp_path / str(n)) for n in (1, 2, 5)]
    assert record(runs[0]) == record(runs[1]) == record(runs[2])


def test_if_everybody_drops_out_every_round_is_r10() -> None:
    with a_run_state(systems={"dropout": 1.0}) as run_state:
        start = {name: value.clone() for name, value in run_state.model.items()}
        for t in (1, 2, 3):
            row = play_round(run_state, t, test=True)
            assert (row.selected, row.trained, row.admitted) == (3, 0, 0)
            assert {client.status for client in row.clients} == {"failed"}
            assert "the model stays as it was" in row.note
        assert all(torch.equal(run_state.model[name], value) for name, value in start.items())


def test_over_commitment_asks_for_more_and_admits_k() -> None:
    with a_run_state(selection={"name": "uniform", "k": 3}, systems={"overcommit": 1.5}) as run_state:
        assert run_state.selector.census.k == 5
        row = play_round(run_state, 1, test=False)
        assert (row.selected, row.trained, row.admitted) == (5, 3, 3)
        kept = [c.duration for c in row.clients if c.status == "admitted"]
        late = [c.duration for c in row.clients if c.status == "late"]
        assert max(kept) <= min(late)
        assert row.round_time == max(kept)
        assert sum(c.weight for c in row.clients) == pytest.approx(1.0)
        assert {c.detail for c in row.clients if c.status == "late"} == {"not among the 3 fastest"}
        [training] = row.ledger
        assert training.passes == 15.0  # the late ones worked as well
        assert training.bytes_up * 5 == training.bytes_down * 3  # but what they sent was not received


def test_strategies_are_told_what_the_server_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_run_state(selection="all", systems={"deadline": 250.0, "dropout": 0.2}) as run_state:
        told: list[Any] = []
        monkeypatch.setattr(run_state.selector, "observe", told.append)
        row = play_round(run_state, 1, test=False)
        status = np.array([client.status for client in row.clients])
        assert set(status) == {"admitted", "late", "failed"}
        outcome = told[0]
        assert (outcome.trained == (status == "admitted")).all()
        assert (outcome.durations[status == "late"] == 250.0).all()
        assert np.isnan(outcome.durations[status == "failed"]).all()
        assert np.isfinite(outcome.durations[status == "admitted"]).all()
        seen: list[Any] = []

        def select(round: Any) -> Any:
            assert not any(
                values.flags.writeable for values in (round.durations, round.compute_times, round.upload_times)
            )
            seen.extend([round.compute_times + round.upload_times, round.durations.copy()])
            return fedcohort.selection.Cohort(round.available)

        run_state.selector.select = select  # type: ignore[method-assign]
        play_round(run_state, 2, test=False)
        known, durations = seen
        clients = outcome.cohort.clients
        assert known[clients[status == "admitted"]] == pytest.approx(durations[clients[status == "admitted"]])
        assert np.isnan(known[clients[status != "admitted"]]).all()


def test_a_trace_that_changed_is_another_run(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text("[[0, 1, 2, 3, 4], [5, 6, 7]]")
    experiment = small(systems={"availability": {"name": "trace", "file": str(file), "repeat": True}})
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "runs", progress=stop_after(3))
    file.write_text("[[0, 1, 2, 3, 4], [5, 6, 8, 9]]")
    other = fedcohort.run(experiment, runs=tmp_path / "runs")
    assert other.rounds["available"].tolist() == [5, 4, 5, 4, 5, 4]
    file.write_text("[[0, 1, 2, 3, 4], [5, 6, 7]]")
    run = fedcohort.run(experiment, runs=tmp_path / "runs")
    assert run.rounds["available"].tolist() == [5, 3, 5, 3, 5, 3]
    file.unlink()  # a finished run can be read without it
    assert run.experiment.systems.availability.parameters["file"] == str(file)
    assert run.summary().rounds == 6


def test_a_run_goes_on_only_with_its_trace(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text("[[0], [1]]")
    before = clock([10, 10], availability=Trace(file=str(file))).state_dict()
    file.write_text("[[1], [0]]")
    with pytest.raises(UsageError, match=r"^systems\.availability\.file = .*: has changed since the run was started"):
        clock([10, 10], availability=Trace(file=str(file))).load_state_dict(before)


def test_a_trace_is_found_from_where_the_experiment_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "trace.csv").write_text("round,client\n1,0\n2,1\n2,2\n")
    law = 'systems.availability = { name = "trace", file = "trace.csv" }'
    (tmp_path / "there" / "run.toml").write_text(f'rounds = 2\n{law}\n[[variants]]\nlabel = "b"\n{law}\n')
    monkeypatch.chdir(tmp_path)
    for _, row in fedcohort.load_experiment("there/run.toml").rows():
        assert row.systems.availability.parameters["file"] == str(tmp_path / "there" / "trace.csv")


@pytest.mark.parametrize(
    ("systems", "message"),
    [
        ({"dropout": 1.1}, r"^systems\.dropout = 1\.1: should be at most 1"),
        ({"dropout": -0.1}, r"^systems\.dropout = -0\.1: should be at least 0"),
        ({"availability": {"name": "bernoulli", "probability": 1.5}}, r"^systems\.availability\.probability = 1\.5: should be at mos"),
        ({"availability": {"name": "markov", "p_on": -1.0}}, r"^systems\.availability\.p_on = -1\.0: should be at least 0"),
        ({"availability": {"name": "bernoulli", "p_on": 0.5}}, r"^systems\.availability\.p_on: unknown key for 'bernoulli'"),
        ({"availability": "markow"}, r"^systems\.availability\.name = 'markow': .*did you mean 'markov'\?"),
        ({"availability": "trace"}, r"^systems\.availability\.file: required"),
        ({"overcommit": 0.9}, r"^systems\.overcommit = 0\.9: should be at least 1"),
        ({"deadline": 0.0}, r"^systems\.deadline = 0\.0: should be above 0"),
        ({"deadline": -3.0}, r"^systems\.deadline = -3\.0"),
        ({"idle_time": -1.0}, r"^systems\.idle_time = -1\.0"),
        ({"latency": {"shift": 0.0}}, r"^systems\.latency\.shift = 0\.0: should be above 0"),
        ({"latency": {"redraw": "daily"}}, r"^systems\.latency\.redraw = 'daily': should be 'client', 'round' or 'mixed'"),
        ({"network": {"share": 2.0}}, r"^systems\.network\.share = 2\.0"),
        ({"latency_spread": 1.0}, r"^systems\.latency_spread: unknown key; did you mean 'latency'\?"),
        ({"deadline": 1.0}, r"^systems\.deadline = 1: no client can ever meet it"),
    ],
)  # fmt: skip
def test_bad_settings_are_one_line_errors(systems: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as error:
        fedcohort.run(small(systems=systems), runs=tmp_path)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_trace_shorter_than_the_run_is_found_before_the_first_round(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("[[0], [1]]")
    experiment = small(systems={"availability": {"name": "trace", "file": str(tmp_path / "trace.json")}})
    with pytest.raises(UsageError, match=r"^systems\.availability\.file = .*: has 2 rounds, the run has 6"):
        fedcohort.run(experiment, runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_laws_are_plug_ins(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "from fedcohort.federation import Availability, parameters\n"
        "@parameters\n"
        "class First(Availability):\n"
        "    count: int = 4\n"
        "    '''How many.'''\n"
        "    def presence(self, num_clients, rounds, seed):\n"
        "        return lambda t: np.arange(num_clients) < self.count\n"
    )
    name = f"{tmp_path}/mine.py:First"
    run = fedcohort.run(small(rounds=2, systems={"availability": {"name": name, "count": 2}}), runs=tmp_path / "runs")
    assert run.rounds["available"].tolist() == [2, 2]
