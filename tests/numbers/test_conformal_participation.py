"""Conformal participation (S19): worked numbers, the equivalence of its scores in whole runs, and every extension by hand."""

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.engines.initial_network import build_module
from fedcohort.measures.conformal import prediction_sets, probability_at
from fedcohort.models import Mlp
from fedcohort.record import RoundRow
from fedcohort.rounds import RunState, play_round
from fedcohort.selection import STRATEGIES, Cohort, Outcome, Question, Selector, choose
from fedcohort.selection.strategies.conformal_participation import Conformal
from fedcohort.selection.strategies.power_of_choice import PowerOfChoice
from fedcohort.testing.base import bits
from fedcohort.training.evaluation import probabilities
from tests.experiments import small
from tests.run_states import a_run_state
from tests.selection.fakes import a_census, a_round, an_outcome, the_why

FEDERATION = {
    "clients": 6,
    "holdout": 0.2,
    "partition": {"name": "dirichlet_client", "alpha": 1.0},
    "label_noise": {"name": "beta"},
}
"""Some clients have many wrong labels and never get sure."""
SELECTION = {"name": "conformal", "alpha_cp": 0.3, "max_epochs": 5}


def conformal_game(**values: Any) -> Any:
    return a_run_state(federation=FEDERATION, **{"selection": SELECTION, **values})


def play(run_state: RunState, rounds: int) -> list[RoundRow]:
    return [play_round(run_state, t, test=False) for t in range(1, rounds + 1)]


def ready(m: int = 4, k: int = 2, **values: Any) -> Conformal:
    selector = make(Conformal, values, "selection")
    selector.setup(a_census(np.arange(1, m + 1), k))
    return selector


@dataclass
class Reply:
    """All that a strategy sees of an update."""

    client: int
    report: dict[str, float] = field(default_factory=dict)


def admitted(selector: Conformal, reports: Mapping[int, Mapping[str, float]]) -> list[int]:
    return [one.client for one in selector.admit(Reply(c, dict(report)) for c, report in reports.items())]


# --- whole runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["s2", "s3"])
def test_a_score_is_another_with_its_threshold_translated(score: str) -> None:
    """s2 with θ = .25 is s1 with θ = .653426, s3 is s1 with .445069: identical participants, epochs and models."""
    theta = 1 - probability_at(0.25, score)  # type: ignore[arg-type]
    assert round(theta, 6) == {"s2": 0.653426, "s3": 0.445069}[score]
    with (
        conformal_game(selection={**SELECTION, "score": score, "alpha_cp": 0.2}) as here,
        conformal_game(selection={**SELECTION, "theta": theta, "alpha_cp": 0.2}) as there,
    ):
        used = set()
        for t in (1, 2, 3):
            one, two = play_round(here, t, test=False), play_round(there, t, test=False)
            for a, b in zip(one.clients, two.clients, strict=True):
                assert (a.client, a.status, a.steps, a.reports["epochs"]) == (
                    b.client,
                    b.status,
                    b.steps,
                    b.reports["epochs"],
                )
                used.add((a.status, a.reports["epochs"]))
            assert bits(here.model) == bits(there.model)
    assert {status for status, _ in used} == {"admitted", "declined"}
    assert len({epochs for _, epochs in used}) > 2


def test_work_time_passes_and_bytes_follow_the_epochs_used() -> None:
    """T_i scales with the epochs used; a client that does not take part sends numbers, no model."""
    with conformal_game(selection={**SELECTION, "alpha_cp": 0.2}) as run_state:
        held = run_state.engine.federation.num_held_out
        nominal = run_state.clock.nominal(1)
        row = play_round(run_state, 1, test=False)
        model = sum(value.numel() * value.element_size() for value in run_state.model.values())
    passes = 0.0
    for client in row.clients:
        epochs = client.reports["epochs"]
        assert client.duration == pytest.approx(nominal[client.client] * epochs)  # nominal work is one epoch here
        assert client.steps == epochs * -(-client.num_samples // 16)
        assert client.reports["calibration"] == held[client.client]
        passes += epochs * (3 + held[client.client] / client.num_samples)
    assert 0 < row.admitted < row.selected
    (training,) = row.ledger
    assert training.passes == pytest.approx(passes)
    numbers = sum(len(client.reports) for client in row.clients)
    assert training.bytes_up == row.admitted * model + 4 * numbers
    assert training.discloses == "its update and number of samples, calibration, done, epochs, q_hat, set_size"


def test_nobody_qualifies() -> None:
    with conformal_game(selection={**SELECTION, "theta": 1e-9, "max_epochs": 1, "on_empty": "keep"}) as run_state:
        before = bits(run_state.model)
        row = play_round(run_state, 1, test=False)
        assert (row.admitted, bits(run_state.model)) == (0, before)
        assert row.note.endswith("no update admitted: the model stays as it was")
    with conformal_game(selection={**SELECTION, "theta": 1e-9, "max_epochs": 1}) as run_state:  # "best" is the default
        row = play_round(run_state, 1, test=False)
        best = min(row.clients, key=lambda client: client.reports["q_hat"])
        assert [client.client for client in row.clients if client.status == "admitted"] == [best.client]
    failing = conformal_game(selection={**SELECTION, "theta": 1e-9, "max_epochs": 1, "on_empty": "fail"})
    with (
        failing as run_state,
        pytest.raises(UsageError, match=r"^selection\.on_empty = 'fail': no client met the rule"),
    ):
        play_round(run_state, 1, test=False)


def reports_of(outcome: Outcome) -> set[str]:
    """Names of the reports that at least one client sent."""
    return {name for name in ("q_hat", "test_set_size") if np.isfinite(outcome.billed_report(name)).any()}


def test_sets_on_the_test_set_are_measured_for_every_client_at_nobodys_cost() -> None:
    """Of the model that each client ended with, at its own quantile, whether it takes part or not; everything else stays the same."""
    told: list[Any] = []
    with conformal_game(selection={**SELECTION, "test_set": True}) as run_state, conformal_game() as plain:
        admit, observe = run_state.selector.admit, run_state.selector.observe

        def admit_and_note(updates: Iterable[Reply]) -> Iterator[Reply]:
            return admit(note(update) for update in updates)

        def note(update: Reply) -> Reply:
            told.append(update.report)
            return update

        def observe_and_note(outcome: Outcome) -> None:
            told.append(reports_of(outcome))
            observe(outcome)

        run_state.selector.admit, run_state.selector.observe = admit_and_note, observe_and_note
        start = {name: value.clone() for name, value in run_state.model.items()}
        row, other = play_round(run_state, 1, test=False), play_round(plain, 1, test=False)
        stop = {"rule": "conformal", "score": "s1", "alpha": 0.3, "theta": 0.25, "set_size": None}
        cohort = Cohort(np.arange(6), epochs=np.full(6, 5), stop=stop)
        updates = {u.client: u for u in run_state.engine.train(start, 1, cohort, run_state.algorithm)}
        federation = run_state.engine.federation
        module = build_module(Mlp(), federation, 0).double()
        sizes = []
        for client in row.clients:
            update = updates[client.client]
            module.load_state_dict({name: value.double() for name, value in update.state.items()})
            found = probabilities(module, federation, torch.float64, federation.test)
            sizes.append(prediction_sets(found, update.report["q_hat"]).sum(axis=1).mean())
            assert client.reports["test_set_size"] == pytest.approx(sizes[-1], abs=1e-3)
            assert client.reports["q_hat"] == update.report["q_hat"]
    assert len(told) == 7
    assert all(
        "q_hat" in reports and "test_set_size" not in reports for reports in told
    )  # no strategy hears of the test set
    assert {client.status for client in row.clients} == {"admitted", "declined"}
    assert len(set(sizes)) == 6
    assert [replace(entry, seconds=0) for entry in row.ledger] == [replace(entry, seconds=0) for entry in other.ledger]
    for client in row.clients:
        client.reports.pop("test_set_size")
    assert list(map(repr, row.clients)) == list(map(repr, other.clients)), "some numbers are NaN, which equals nothing"


def test_too_few_samples_never_qualify() -> None:
    """alpha < 1/(n_c + 1) for everybody: q̂ is infinite, is not sent, and best has nobody either."""
    with conformal_game(selection={**SELECTION, "alpha_cp": 0.001, "max_epochs": 1, "on_empty": "best"}) as run_state:
        row = play_round(run_state, 1, test=False)
    assert row.admitted == 0
    assert all("q_hat" not in client.reports and client.reports["set_size"] == 10 for client in row.clients)
    with conformal_game(selection={**SELECTION, "alpha_cp": 0.001, "theta": 0.95, "overflow": "max"}) as run_state:
        assert "q_hat" in play_round(run_state, 1, test=False).clients[0].reports


def test_rank_takes_the_k_smallest_quantiles_after_all_epochs() -> None:
    with conformal_game(selection={**SELECTION, "rule": "rank", "k": 2, "max_epochs": 3}) as run_state:
        (row,) = play(run_state, 1)
    assert {client.reports["epochs"] for client in row.clients} == {3}
    ranked = sorted(row.clients, key=lambda client: client.reports["q_hat"])
    assert {client.client for client in row.clients if client.status == "admitted"} == {c.client for c in ranked[:2]}


def test_set_size_as_criterion() -> None:
    with conformal_game(selection={**SELECTION, "rule": "set_size", "max_size": 1.5, "alpha_cp": 0.2}) as run_state:
        rows = play(run_state, 2)
    clients = [client for row in rows for client in row.clients]
    assert {client.status for client in clients} == {"admitted", "declined"}
    for client in clients:
        assert (client.status == "admitted") == (client.reports["set_size"] <= 1.5)


def test_the_controller_does_not_stay_empty_for_ever() -> None:
    """θ = 0.001 admits nobody; the controller lets it rise until somebody takes part, and about half do in the end."""
    steered = {**SELECTION, "theta": 0.001, "theta_min": 0.001, "max_epochs": 1, "controller": True, "gain": 0.2}
    steered |= {"on_empty": "keep"}
    with (
        conformal_game(selection=steered) as run_state,
        conformal_game(selection={**steered, "controller": False}) as alone,
    ):
        shares = [row.admitted / row.selected for row in play(run_state, 12)]
        assert [row.admitted for row in play(alone, 4)] == [0] * 4
    assert shares[0] == 0
    assert 0.25 <= np.mean(shares[6:]) <= 0.75


def test_adaptive_alpha_in_a_run() -> None:
    with conformal_game(
        selection={**SELECTION, "theta": 0.9, "adaptive_alpha": True, "alpha_target": 0.05}
    ) as run_state:
        play(run_state, 3)
        selector = run_state.selector
        assert isinstance(selector, Conformal)
        assert 0.01 <= selector.alpha_now < 0.3  # more errors than 5 % at first


# --- by hand -----------------------------------------------------------------------------------------------------------------


def test_who_is_admitted() -> None:
    done, almost, far = {"done": 1.0, "q_hat": 0.2}, {"done": 0.0, "q_hat": 0.3}, {"done": 0.0, "q_hat": 0.8}
    assert admitted(ready(), {3: almost, 1: done, 0: far, 2: done}) == [1, 2]
    assert admitted(ready(on_empty="keep"), {3: almost, 0: {}}) == []
    assert admitted(ready(), {3: almost, 0: {}, 2: far}) == [3]
    best = ready(on_empty="best", best=2)
    assert admitted(best, {2: far, 0: {"done": 0.0}, 3: almost, 1: far | {"q_hat": 0.7}}) == [3, 1]
    assert admitted(best, {2: far, 1: done, 3: almost}) == [1]
    assert admitted(ready(on_empty="fail"), {}) == []  # nobody came back: not a matter of thresholds
    rank = ready(rule="rank", k=2)
    assert admitted(rank, {2: far, 1: done, 0: {}, 3: almost}) == [1, 3]


def test_updates_that_were_held_back_are_let_go_of_once_a_client_is_done() -> None:
    """Under on_empty = best two updates are held back at most, and none as soon as one client has met the rule."""
    reports = [{"done": 0.0, "q_hat": quantile} for quantile in (0.9, 0.8, 0.7, 0.2, 0.6, 0.5, 0.4)]
    reports[3]["done"] = 1.0
    sent: list[weakref.ref[Reply]] = []
    held: list[list[int]] = []

    def reply(client: int, report: dict[str, float]) -> Reply:
        held.append([one.client for found in sent if (one := found()) is not None])
        made = Reply(client, report)
        sent.append(weakref.ref(made))
        return made

    selector = ready(on_empty="best", best=2)
    stream = (reply(client, report) for client, report in enumerate(reports))
    assert [one.client for one in selector.admit(stream)] == [3]
    assert held[:4] == [[], [0], [0, 1], [1, 2]]  # the two smallest quantiles so far
    assert held[4:] == [[3], [3, 4], [3, 5]]  # the admitted update, which the caller has, and the latest


def test_ties_of_quantiles_are_broken_at_random() -> None:
    counts = np.zeros(4)
    for seed in range(400):
        selector = ready(rule="rank", k=1)
        selector.select(a_round(1, 4, seed=seed))
        counts[admitted(selector, {c: {"q_hat": 0.5} for c in range(4)})] += 1
    assert counts.sum() == 400
    assert (abs(counts - 100) < 5 * math.sqrt(400 * 0.25 * 0.75)).all()


def test_linear_and_cosine_schedules() -> None:
    values: dict[str, Any] = {"theta": 0.5, "theta_end": 0.25, "alpha_cp": 0.5, "alpha_end": 0.3, "schedule_rounds": 5}
    linear, cosine = ready(schedule="linear", **values), ready(schedule="cosine", **values)
    assert [linear.at(t)[0] for t in (1, 2, 3, 5, 9)] == pytest.approx([0.5, 0.4375, 0.375, 0.25, 0.25])
    assert [linear.at(t)[1] for t in (1, 3, 5)] == pytest.approx([0.5, 0.4, 0.3])
    by_hand = [0.25 + 0.25 * (1 + math.cos(math.pi * u)) / 2 for u in (0, 0.25, 0.5, 1, 1)]
    assert [cosine.at(t)[0] for t in (1, 2, 3, 5, 9)] == pytest.approx(by_hand)
    cohort = linear.select(a_round(2, 4, t=3))
    assert cohort.stop is not None
    assert (cohort.stop["theta"], cohort.stop["alpha"]) == pytest.approx((0.375, 0.4))
    assert "q̂ ≤ 0.375 within 40 epochs (s1, alpha 0.4)" in the_why(cohort).note
    assert ready(schedule="linear", theta_end=0.5).at(10) == (0.5, 0.1)  # alpha stays


def test_the_controller_by_hand() -> None:
    """θ_{t+1} = clip(θ_t + κ(φ* − |R_t|/|S_t|), θ_min, θ_max)."""
    selector = ready(controller=True)
    cohort = selector.select(a_round(2, 4))
    selector.observe(an_outcome(cohort, admitted=[True, False, False, False]))
    assert selector.at(2)[0] == pytest.approx(0.25 + 0.1 * 0.25)
    for _ in range(20):
        selector.observe(an_outcome(cohort, admitted=[False] * 4))
    assert selector.at(2)[0] == 0.95
    for _ in range(50):
        selector.observe(an_outcome(cohort, admitted=[True] * 4))
    assert selector.at(2)[0] == pytest.approx(0.05)


def test_adaptive_alpha_by_hand() -> None:
    """Mean quantile (1·0.2 + 3·0.4)/4 = 0.35: of f = .9, .7, .6, .1 the last two miss f ≥ 0.65, err = 0.5."""
    selector = ready(adaptive_alpha=True, alpha_cp=0.2, alpha_gain=0.1)
    cohort = selector.select(a_round(2, 4))
    losses = -np.log([0.9, 0.7, 0.6, 0.1])

    def became(took_part: Sequence[bool], quantiles: Sequence[float]) -> Any:
        outcome = an_outcome(cohort, admitted=took_part, reports={"q_hat": quantiles})
        object.__setattr__(outcome, "validation_losses", losses)
        return outcome

    selector.observe(became([True, False, True, False], [0.2, 0.9, 0.4, math.nan]))
    assert selector.at(2)[1] == pytest.approx(0.2 + 0.1 * (0.2 - 0.5))
    selector.observe(became([False] * 4, [math.nan] * 4))
    assert selector.at(2)[1] == pytest.approx(0.17)  # no participants: alpha stays
    selector.observe(became([True, False, False, False], [math.nan] * 4))
    assert selector.at(2)[1] == pytest.approx(0.17 + 0.1 * 0.2)  # an infinite quantile covers everything


def test_the_mean_quantile_of_adaptive_alpha_is_weighted_by_samples() -> None:
    """Clients 0 and 2 have 1 and 3 samples: (1·0.2 + 3·0.4)/4 = 0.35 covers f = 0.68, which 0.3, their plain mean, would miss."""
    selector = ready(adaptive_alpha=True, alpha_cp=0.2, alpha_gain=0.1)
    cohort = selector.select(a_round(2, 4))
    admitted, reports = [True, False, True, False], {"q_hat": [0.2, 0.9, 0.4, math.nan]}
    losses = -np.log([0.9, 0.68, 0.6, 0.1])
    selector.observe(an_outcome(cohort, admitted=admitted, reports=reports, validation_losses=losses))
    assert selector.at(2)[1] == pytest.approx(0.2 + 0.1 * (0.2 - 0.5))  # two of the four samples are missed


# --- on top of other strategies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in STRATEGIES.builtin if name != "conformal"])
def test_on_top_of_another_strategy_the_same_clients_train(name: str) -> None:
    """Under the same draws and outcomes the base picks whom it picks alone, and learns who was admitted."""
    alone: Selector = make(STRATEGIES.find(name, "name"), {}, "selection")
    stacked = make(Conformal, {"base": name}, "selection")
    census = a_census(np.arange(1, 11), 3, np.stack([np.arange(1, 11), np.ones(10, int)], axis=1))
    for selector in (alone, stacked):
        selector.setup(census)
    assert stacked.needs == alone.needs | {"holdout"}
    values = np.linspace(1, 2, 10)

    def answers(question: Question, clients: Indices) -> Values:
        return np.repeat(values[clients][:, None], question.numbers, axis=1).squeeze(
            -1 if question.numbers == 1 else ()
        )

    for t in range(1, 6):
        cohorts = []
        for selector in (alone, stacked):
            met = replace(
                a_round(3, 10, t=t, durations=values, compute_times=values / 2, upload_times=values / 2), ask=answers
            )
            cohorts.append(choose(selector, met))
        one, two = cohorts
        assert one.clients.tolist() == two.clients.tolist()
        assert two.epochs is not None
        assert (two.epochs == 40).all()
        assert two.inclusion is None
        assert the_why(two).note.startswith(the_why(one).note + "; admitted if ")
        for selector, cohort in ((alone, one), (stacked, two)):
            outcome = an_outcome(
                cohort,
                t=t,
                accuracy=t / 10,
                class_accuracy=(0.4, 0.6),
                admitted=np.arange(len(cohort)) % 2 == 0,
                reports={
                    name: np.linspace(0.1, 1, len(cohort)) for name in ("loss", "square_loss", "samples", "update_norm")
                }
                | {"update": np.ones((len(cohort), 4))},
            )
            selector.observe(outcome)


def test_a_base_with_parameters() -> None:
    base = ready(base={"name": "powd", "d": 3}).base_strategy
    assert isinstance(base, PowerOfChoice)
    assert base.d == 3
    experiment = small(selection={**SELECTION, "base": {"name": "powd", "d": 7}}, federation=FEDERATION)
    selector = experiment.selection.build()
    assert isinstance(selector, Conformal)
    assert isinstance(selector.base_strategy, PowerOfChoice)
    assert selector.base_strategy.d == 7
    assert type(experiment)(**experiment.to_dict()).key() == experiment.key()


# --- what users get wrong ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"base": "conformal"}, "selection.base = 'conformal': name another strategy"),
        ({"base": {"d": 3}}, "selection.base = {'d': 3}: name another strategy"),
        ({"base": "powdd"}, "selection.base = 'powdd': no such strategy; did you mean 'powd'"),
        ({"base": {"name": "powd", "e": 3}}, "selection.base.e"),
        ({"schedule": "linear"}, "selection.schedule = 'linear': needs a final value"),
        ({"controller": True, "rule": "rank"}, "selection.controller = true"),
        ({"controller": True, "theta_end": 0.1, "schedule": "linear"}, "selection.controller = true"),
        ({"adaptive_alpha": True, "alpha_end": 0.1, "schedule": "linear"}, "selection.adaptive_alpha = true"),
        ({"theta_min": 0.9, "theta_max": 0.2}, "selection.theta_min = 0.9"),
        ({"theta": 0.0}, "selection.theta = 0.0"),
    ],
)
def test_settings_that_do_not_go_together(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        small(selection={**SELECTION, **values}, federation=FEDERATION)
    assert message in str(caught.value)


def test_a_base_that_learns_from_a_stopping_rule_of_its_own_is_refused() -> None:
    """Its rule was replaced, its clients did not report the losses that it learns from, and it selected at random."""
    base = {"name": "flash", "eval_point": "local"}
    with (
        a_run_state(selection={**SELECTION, "base": base}, federation=FEDERATION) as run_state,
        pytest.raises(
            UsageError, match=r"^selection\.base = {'name': 'flash', 'eval_point': 'local'}: its clients end"
        ),
    ):
        play_round(run_state, 1, test=False)


def test_what_it_needs() -> None:
    with pytest.raises(UsageError, match=r"^federation\.holdout = 0: 'conformal' needs a held-out part"):
        small(selection=SELECTION)
    with pytest.raises(UsageError, match=r"^data\.validation = 0: 'conformal' needs a validation set"):
        small(selection={**SELECTION, "adaptive_alpha": True}, federation=FEDERATION, data={"validation": 0})
    with pytest.raises(UsageError, match=r"^data\.validation = 0: 'conformal' needs a validation set"):
        small(selection={**SELECTION, "base": "ucb"}, federation=FEDERATION, data={"validation": 0})


# --- rounds in which no client is admitted ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantiles", "advice"),
    [
        (
            [np.nan, np.nan],
            (
                "alpha = 0.05 needs 19 held-out samples, which no client that trained this round has (2 did): raise "
                "selection.alpha_cp, or give clients more data"
            ),
        ),
        (
            [0.9, 0.62],
            (
                "the smallest quantile is 0.62 with theta = 0.25: take more steps (a smaller training.batch_size, or more "
                "selection.max_epochs, now 40), raise selection.alpha_cp (now 0.05) or selection.theta, or give clients more data "
                "(a larger federation.holdout, or fewer clients)"
            ),
        ),
    ],
)
def test_the_second_empty_round_in_a_row_says_once_what_to_change(
    caplog: pytest.LogCaptureFixture, quantiles: list[float], advice: str
) -> None:
    selector = ready(alpha_cp=0.05)

    def observe(t: int, *admitted: bool) -> list[str]:
        caplog.clear()
        selector.observe(an_outcome([0, 1], t=t, admitted=admitted, reports={"q_hat": quantiles}))
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    assert observe(1, False, False) == []
    assert observe(2, True, False) == []
    assert observe(3, False, False) == []
    (warning,) = observe(4, False, False)
    assert "no client was admitted in rounds 3 and 4, and the model did not change" in warning
    assert advice in warning
    assert observe(5, False, False) == []
    assert "empty_rounds" not in selector.state_dict()
    assert ("training.batch_size" in warning) == bool(np.isfinite(quantiles).any())


def test_the_rule_of_set_sizes_has_its_own_advice(caplog: pytest.LogCaptureFixture) -> None:
    selector = ready(rule="set_size", max_size=1.2)
    for t in (1, 2):
        selector.observe(an_outcome([0, 1], t=t, admitted=[False, False], reports={"q_hat": [0.9, np.nan]}))
    (record,) = caplog.records
    assert "with rule = 'set_size': take more steps (a smaller training.batch_size" in record.getMessage()
    assert "or selection.max_size (now 1.2), or give" in record.getMessage()


def test_only_clients_that_trained_are_said_to_have_too_few_samples(caplog: pytest.LogCaptureFixture) -> None:
    """Ten of twelve clients had enough held-out samples, and were late: no client had enough, it said."""
    selector = ready(alpha_cp=0.1)
    for t in (1, 2):
        trained, admitted = [True, False, False], [False] * 3
        selector.observe(
            an_outcome([0, 1, 2], t=t, trained=trained, admitted=admitted, reports={"q_hat": [np.nan] * 3})
        )
    (record,) = caplog.records
    assert (
        "alpha = 0.1 needs 9 held-out samples, which no client that trained this round has (1 did)"
        in record.getMessage()
    )


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ({}, "; if none is, the client with the smallest q̂"),
        ({"best": 3}, "; if none is, the 3 clients with the smallest q̂"),
        ({"on_empty": "keep"}, "; if none is, no client is admitted"),
        ({"on_empty": "fail"}, "; if none is, the run ends"),
        ({"rule": "rank"}, "(s1, alpha 0.1)"),
    ],
)
def test_the_note_says_who_is_admitted_if_no_client_is_done(values: dict[str, Any], end: str) -> None:
    """A client with a quantile above θ was admitted, beside a note that said only "admitted if q̂ ≤ θ"."""
    note = the_why(choose(ready(**values), a_round(3, 10))).note
    assert note.endswith(end)


def test_a_round_without_arrivals_is_not_the_rules_fault(caplog: pytest.LogCaptureFixture) -> None:
    selector = ready()
    for t in (1, 2, 3):
        selector.observe(an_outcome([0, 1], t=t, trained=[False, False]))
    assert not caplog.records
