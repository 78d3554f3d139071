"""Partial uploads: what is left out, what it saves, and what the server makes of it."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import nn

from fedcohort.algorithms import Update
from fedcohort.experiment.given_objects import Given
from fedcohort.rounds import play_round
from fedcohort.selection import Card, Cohort, Outcome, Round, Selector, Speed, Why, parameters
from fedcohort.training.partial_upload import partial_upload
from tests.run_states import a_run_state


@parameters
class Sharing(Selector):
    """The first k clients; each sends tensors with probability ``share``."""

    card: ClassVar[Card] = Card(source="a test", status="ours")
    needs: ClassVar[frozenset[str]] = frozenset({"update_norm"})
    share: float = 0.5
    """Probability."""
    unsent: Literal["left_out", "unchanged"] = "left_out"
    """What is not sent."""

    def select(self, round: Round) -> Cohort:
        clients = round.available[: round.k]
        why = Why(clients, np.zeros(len(clients)), note="first")
        return Cohort(clients, share=np.full(len(clients), self.share), unsent=self.unsent, why=why)

    def observe(self, outcome: Outcome) -> None:
        self.norms = outcome.billed_report("update_norm")


def an_update(model: dict[str, torch.Tensor], client: int = 0) -> Update:
    return Update(client, 10, 5, {name: value + 1 for name, value in model.items()}, report={"loss": 1.0})


def test_every_tensor_is_sent_with_its_probability() -> None:
    """2,000 clients with 4 tensors each; a binomial count is 6 standard deviations away once in 10⁹ times."""
    model = {name: torch.zeros(2) for name in "abcd"}
    for share in (0.3, 0.9):
        parts = [partial_upload(an_update(model, i), model, frozenset(model), share, 0, 1).sent for i in range(2000)]
        for name in model:
            count = sum(name in (part or ()) for part in parts)
            assert abs(count - 2000 * share) < 6 * (2000 * share * (1 - share)) ** 0.5


def test_what_a_client_sends_is_drawn_anew_in_every_round() -> None:
    """One client over 2,000 rounds with 4 tensors: binomial counts, as over clients."""
    model = {name: torch.zeros(2) for name in "abcd"}
    parts = [partial_upload(an_update(model), model, frozenset(model), 0.3, 0, t).sent for t in range(1, 2001)]
    for name in model:
        count = sum(name in (part or ()) for part in parts)
        assert abs(count - 2000 * 0.3) < 6 * (2000 * 0.3 * 0.7) ** 0.5


def test_what_is_left_out_is_not_there_and_batch_statistics_stay_together() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    model = {name: value.clone() for name, value in module.state_dict().items()}
    trainable = frozenset(name for name, _ in module.named_parameters())
    update = partial_upload(an_update(model), model, trainable, 0.0, 0, 1)
    assert update.sent == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert all(torch.equal(update.state[name], model[name]) for name in trainable)
    assert torch.equal(update.state["1.running_mean"], model["1.running_mean"] + 1)
    assert update.num_bytes == 2 * 4 + 2 * 4 + 8
    entries = sum(model[name].numel() for name in trainable)
    assert update.report == {"loss": 1.0, "update_norm": pytest.approx(entries**0.5)}


def test_a_failure_stays_a_failure() -> None:
    failed = Update(3, 10, 0, {}, failure="gone")
    assert partial_upload(failed, {}, frozenset({"w"}), 0.5, 0, 1) is failed


@pytest.mark.parametrize("plan", ["threads", "stacked"])
def test_less_is_sent_in_less_time(plan: str) -> None:
    engine = {"plan": plan}
    with (
        a_run_state(Given(selector=Sharing(share=1.0)), engine=engine) as whole,
        a_run_state(Given(selector=Sharing(share=0.5)), engine=engine) as half,
    ):
        rows = [play_round(run_state, 1, test=False) for run_state in (whole, half)]
        norms = [run_state.selector.norms for run_state in (whole, half)]  # type: ignore[attr-defined]
    sent, less = (next(line for line in row.ledger if line.kind == "training").bytes_up for row in rows)
    assert 0 < less < sent
    assert all(a.duration >= b.duration for a, b in zip(*(row.clients for row in rows), strict=True))
    assert any(a.duration > b.duration for a, b in zip(*(row.clients for row in rows), strict=True))
    assert norms[0] == pytest.approx(norms[1])  # of the whole difference, whatever was sent
    assert [a.loss for a in rows[0].clients] == [b.loss for b in rows[1].clients]


def models(unsent: str) -> Iterator[Any]:
    """The model before and after a round in which every client sends half its tensors; what each sent; the clients' sizes."""
    kept: list[Update] = []
    with a_run_state(Given(selector=Sharing(unsent=unsent))) as run_state:  # type: ignore[arg-type]
        before, engine = run_state.model, run_state.engine
        cohort = Cohort(np.arange(3), share=np.full(3, 0.5))
        kept = list(engine.train(before, 1, cohort, run_state.algorithm))
        play_round(run_state, 1, test=False)
        return iter([before, run_state.model, kept])


def test_the_mean_is_over_those_who_sent_a_tensor() -> None:
    before, after, updates = models("left_out")
    for name in before:
        senders = [u for u in updates if name in (u.sent or ())]
        total = sum(u.num_samples for u in senders)
        mean = (
            sum(u.num_samples / total * u.state[name].double() for u in senders) if senders else before[name].double()
        )
        torch.testing.assert_close(after[name].double(), mean, rtol=1e-6, atol=1e-8)
    assert any(len([u for u in updates if name in (u.sent or ())]) < 3 for name in before), "the test needs gaps"


def test_or_counts_what_was_not_sent_as_unchanged() -> None:
    before, after, updates = models("unchanged")
    total = sum(u.num_samples for u in updates)
    for name in before:
        step = sum(
            (u.num_samples / total * (u.state[name].double() - before[name].double()) for u in updates
             if name in (u.sent or ())), torch.zeros(())
        )  # fmt: skip
        torch.testing.assert_close(after[name].double(), before[name].double() + step, rtol=1e-6, atol=1e-7)


@parameters
class Asking(Selector):
    """Asks everybody for its speed and takes the fastest."""

    card: ClassVar[Card] = Card(source="a test", status="ours")

    def select(self, round: Round) -> Cohort:
        self.answers = round.ask(Speed(), round.available)
        scores = -self.answers.sum(axis=1)
        return Cohort(round.top(scores), why=Why(round.available, scores, note="fastest"))


def test_clients_know_how_long_they_will_need() -> None:
    """With times that are drawn once, what clients say is what the clock measures."""
    with a_run_state(Given(selector=Asking())) as run_state:
        row = play_round(run_state, 1, test=False)
        answers = run_state.selector.answers  # type: ignore[attr-defined]
        asked = next(line for line in row.ledger if line.kind == "Speed")
        assert answers.shape == (12, 2)
        assert (asked.messages, asked.bytes_down, asked.bytes_up, asked.passes) == (24, 0, 12 * 8, 0.0)
        for client in row.clients:
            assert client.duration == pytest.approx(answers[client.client].sum(), rel=1e-12)
            assert run_state.clock.upload_times[client.client] == pytest.approx(answers[client.client, 1], rel=1e-12)
