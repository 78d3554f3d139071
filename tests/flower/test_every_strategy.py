"""Every strategy runs in a Flower app, or is refused with its reason before the first round."""

import numpy as np
import pytest
from flwr.app import Message
from flwr.clientapp import ClientApp

from fedcohort.core.errors import UsageError
from fedcohort.flower import Selecting, answers, requirements
from fedcohort.selection import GPFL, STRATEGIES, Census, Outcome, Selector
from fedcohort.testing import LoopGrid
from tests.flower.apps import K, bare_app, client_of, grid, initial, picks, selecting, two, willing_app

ROUNDS = 4
REPEATS = {"md", "clustered_size", "clustered_similarity", "size"}
"""Strategies that can draw a client more than once."""


def make(name: str) -> Selector:
    selector: Selector = STRATEGIES.find(name, "selection.name")()
    return selector


@pytest.mark.parametrize("name", STRATEGIES.builtin)
def test_a_strategy_runs_on_willing_clients(name: str) -> None:
    where = grid()
    strategy = selecting(where, make(name))
    result = strategy.start(where, initial(), num_rounds=ROUNDS)
    chosen = picks(where)
    assert len(chosen) == ROUNDS
    assert strategy.chooser is not None
    assert strategy.chooser.t == ROUNDS
    if not make(name).variable_size and not REPEATS & {name}:
        assert {len(clients) for clients in chosen} == {K}
    assert set(result.train_metrics_clientapp) == set(range(1, ROUNDS + 1))
    assert (result.arrays["w"].numpy() != 0).any()
    assert result.arrays["w"].dtype == "float32"


class KeepsUpdates(GPFL):
    """Keeps the last update of every client, in an array whose width the census tells."""

    def setup(self, census: Census) -> None:
        super().setup(census)
        self.updates = np.zeros((census.num_clients, census.num_parameters))

    def observe(self, outcome: Outcome) -> None:
        self.updates[outcome.cohort.clients] = outcome.billed_report("update")


def test_updates_have_the_length_that_the_census_tells() -> None:
    census = Census(np.arange(10, 30), 4, K, num_parameters=1000)
    assert requirements(KeepsUpdates()).needs == requirements(KeepsUpdates(), census).needs == {"update"}


def test_a_run_in_which_fedcor_would_need_a_trial_round_is_refused() -> None:
    where = grid()
    with pytest.raises(UsageError, match="FedCor asks for a trial round of training that is thrown away"):
        selecting(where, make("fedcor")).start(where, initial(), num_rounds=50)
    assert picks(where) == []


@pytest.mark.parametrize("name", STRATEGIES.builtin)
def test_a_strategy_on_clients_that_answer_nothing_runs_or_is_refused_before_the_first_round(name: str) -> None:
    where = grid(answers(bare_app(), num_samples=lambda context: 10 + client_of(context)))
    strategy = selecting(where, make(name), validate=None)
    needed = requirements(make(name), Census(np.arange(10, 30), 4, K, rounds=1))
    if not needed.keywords and "validation" not in needed.needs:
        strategy.start(where, initial(), num_rounds=1)
        assert len(picks(where)) == 1
        return
    with pytest.raises(UsageError) as error:
        strategy.start(where, initial(), num_rounds=1)
    assert picks(where) == []
    for word in [*needed.questions, *needed.reports, *needed.instructions, *needed.needs & {"validation"}]:
        assert word in str(error.value) or (word == "LossChange" and "trial round" in str(error.value))


@pytest.mark.parametrize(
    ("name", "keywords"),
    [
        ("uniform", []),
        ("powd", ["local_loss"]),
        ("oort", ["speed", "reports=['samples', 'square_loss']"]),
        ("flash", ["context"]),
        ("fedcs", ["speed"]),
        ("haccs", ["speed", "histogram", "reports=['loss']"]),
    ],
)
def test_requirements_are_what_the_strategy_asks_and_reads(name: str, keywords: list[str]) -> None:
    assert requirements(make(name)).keywords == keywords


def test_a_question_that_only_some_clients_answer_is_no_reason_to_refuse() -> None:
    from fedcohort.flower.rehearsal import refusals
    from fedcohort.flower.wire import Introduction

    needed = requirements(make("powd"))
    willing = Introduction("0", 5, answers=frozenset({"LocalLoss"}))
    assert refusals("PowerOfChoice", needed, [willing, Introduction("1", 5)], validates=False) == []
    (reason,) = refusals("PowerOfChoice", needed, [Introduction("1", 5)], validates=False)
    assert reason == (
        "PowerOfChoice asks clients for LocalLoss, which no client answers; give answers(…, local_loss=…)"
    )


def test_instructions_must_be_followed_by_all_clients() -> None:
    from fedcohort.flower.rehearsal import refusals
    from fedcohort.flower.wire import Introduction

    needed = requirements(make("conformal"))
    assert "stop" in needed.instructions
    willing = Introduction(
        "0", 5, reports=frozenset({"q_hat", "done", "epochs"}), follows=frozenset(needed.instructions)
    )
    other = Introduction("1", 5)
    reasons = refusals("Conformal", needed, [willing, other], validates=True)
    assert any("which client '1' does not follow" in reason for reason in reasons)
    assert refusals("Conformal", needed, [willing], validates=True) == []


def test_a_willing_app_without_one_answer_is_refused_by_name() -> None:
    where = grid(willing_app(context=None))
    with pytest.raises(
        UsageError, match=r"Flash asks clients for Context, which no client answers; give answers\(…, context=…\)"
    ):
        selecting(where, make("flash")).start(where, initial(), num_rounds=1)


FAST = ("oort", "haccs", "conformal")
"""Strategies whose joining every run of the tests tries."""


def run_that_clients_join(name: str, app: ClientApp | None = None) -> tuple[LoopGrid, Selecting]:
    """A run in which the clients 14 to 19 connect after the second round."""
    where = grid(app, offline=range(14, 20))

    def tamper(position: int, message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train" and len(picks(where)) == 2:
            where.offline = set()
        return reply

    where.tamper = tamper
    strategy = selecting(where, make(name), min_nodes=14, max_nodes=19)
    strategy.start(where, initial(), num_rounds=6)
    return where, strategy


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in STRATEGIES.builtin]
)
def test_clients_join_between_rounds(name: str) -> None:
    where, strategy = run_that_clients_join(name)
    roster, chooser = strategy.clients.roster, strategy.chooser
    assert roster.names == [str(i) for i in range(19)]
    assert list(roster.ignored.values()) == [
        "its client '19' was not there when the run began, and max_nodes = 19 are there"
    ]
    assert chooser is not None
    assert chooser.census.num_samples.tolist() == list(range(10, 29))
    assert len(picks(where)) == 6
    asked = {where.nodes.index(message.metadata.dst_node_id) for message in where.messages[-60:]}
    assert asked & set(range(14, 19)) or name in ("uniform", "all", "tifl", "fedcor")


def test_a_client_that_does_not_follow_instructions_cannot_join() -> None:
    app = answers(
        bare_app(),
        num_samples=lambda context: 10 + client_of(context),
        speed=two,
        reports=("samples", "square_loss"),
        follows=("epochs", "share", "unsent"),
    )
    lazy = answers(bare_app(), num_samples=lambda context: 10 + client_of(context), speed=two)
    mixed = ClientApp()
    mixed.__class__ = type(
        "Mixed", (ClientApp,), {"__call__": lambda self, m, c: (lazy if client_of(c) > 13 else app)(m, c)}
    )
    _, strategy = run_that_clients_join("pyramidfl", mixed)
    assert strategy.clients.roster.names == [str(i) for i in range(14)]
    reasons = set(strategy.clients.roster.ignored.values())
    assert any(
        "PyramidFL sets the clients' training, which client '14' does not follow" in reason for reason in reasons
    )
