"""Questions about gradients and updates: the numbers by another way, nothing changed by asking, and what they cost."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import Dropout, Flatten, Linear, Module, ReLU, Sequential, Tanh, functional

from fedcohort.core.errors import UsageError
from fedcohort.core.files.state_files import pack
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import CnnA, Mlp
from fedcohort.rounds import play_round
from fedcohort.selection import Cohort, GradientNorm, LocalLoss, LossChange, UpdateNorm
from fedcohort.selection.draws import proportional
from fedcohort.selection.strategies.ocs import approximate
from fedcohort.testing.base import bits
from fedcohort.training.answers import answer, answers
from fedcohort.training.programs.plain_network import program_of
from fedcohort.training.trial_training import norm_of_update
from tests.run_states import a_run_state

EVERYBODY = np.arange(12)


@pytest.mark.parametrize("model", ["logistic", "cnn_a"])
def test_the_norm_of_the_gradient_by_one_backward_pass(model: str) -> None:
    few = EVERYBODY if model == "logistic" else EVERYBODY[:2]
    with a_run_state(model=model, training={"precision": "float64"}) as run_state:
        found = run_state.engine.answer(run_state.model, 1, GradientNorm(), few)
        engine, before = run_state.engine, bits(run_state.model)
        with engine._trainer() as trainer:  # type: ignore[attr-defined]
            module = trainer.show(run_state.model)
        for client, norm in zip(few, found, strict=True):
            data = trainer.federation.client(int(client))
            loss = functional.cross_entropy(
                module(trainer.federation.prepare(data.features, torch.float64)), data.labels
            )
            gradients = torch.autograd.grad(loss, [p for p in module.parameters() if p.requires_grad])
            expected = float(torch.cat([gradient.flatten() for gradient in gradients]).norm())
            assert norm == pytest.approx(expected, rel=1e-9)
        assert bits(run_state.model) == before


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedprox"])
def test_a_client_sends_the_update_whose_norm_it_reported(algorithm: str) -> None:
    """Also with control variates, which are broadcast and remembered; and asking changes nothing of the run."""
    values: dict[str, Any] = {"algorithm": {"name": algorithm}, "training": {"optimizer": "sgd", "momentum": 0.0}}
    with a_run_state(**values) as asked, a_run_state(**values) as quiet:
        for t in range(1, 4):
            before = pack(asked.state_dict())
            norms = asked.engine.answer(asked.model, t, UpdateNorm(), EVERYBODY, asked.algorithm)
            assert pack(asked.state_dict()) == before
            updates = asked.engine.train(asked.model, t, Cohort(EVERYBODY), asked.algorithm)
            sent = [
                (norm_of_update(update, asked.model, sorted(asked.engine.trainable)), update.passes)
                for update in updates
            ]
            assert norms.tolist() == [list(pair) for pair in sent]
            play_round(asked, t, test=False)
            play_round(quiet, t, test=False)
            assert pack(asked.state_dict()) == pack(quiet.state_dict())


def test_a_trial_training_is_paid_for_once() -> None:
    """OCS: all 12 clients receive the model and train; those that are selected only send."""
    with a_run_state(selection={"name": "ocs"}, training={"epochs": 2}) as run_state:
        row = play_round(run_state, 1, test=False)
        size = sum(value.numel() * value.element_size() for value in run_state.model.values())
    ledger = {entry.kind: entry for entry in row.ledger}
    asked, training = ledger["UpdateNorm"], ledger["training"]
    assert (asked.messages, asked.bytes_down, asked.bytes_up) == (24, 12 * size, 12 * 8)
    assert asked.passes == pytest.approx(12 * 2 * 3)
    assert asked.discloses == "the norm of its update"
    assert (training.bytes_down, training.bytes_up) == (0, row.selected * size)
    assert training.passes == pytest.approx(0)


def test_a_trial_training_receives_what_the_algorithm_broadcasts() -> None:
    with a_run_state(
        selection={"name": "ocs"}, algorithm={"name": "scaffold"}, training={"momentum": 0.0}
    ) as run_state:
        play_round(run_state, 1, test=False)
        sent = sum(
            v.numel() * v.element_size()
            for group in (run_state.model, *run_state.algorithm.broadcast().values())
            for v in group.values()
        )
        ledger = {entry.kind: entry for entry in play_round(run_state, 2, test=False).ledger}
    assert ledger["UpdateNorm"].bytes_down == 12 * sent


def test_the_norm_of_a_gradient_costs_three_passes() -> None:
    with a_run_state(selection={"name": "feel"}) as run_state:
        ledger = {entry.kind: entry for entry in play_round(run_state, 1, test=False).ledger}
    assert ledger["GradientNorm"].passes == 12 * 3
    assert ledger["GradientNorm"].bytes_up == 12 * 4


@pytest.mark.parametrize("name", ["ocs", "aocs"])
def test_unbiased_weights_enter_the_model(name: str) -> None:
    """w + Σ (p_i/π_i) Δ_i, not normalised, of the clients that sent."""
    values: dict[str, Any] = {
        "selection": {"name": name},
        "algorithm": {"weights": "cohort"},
        "training": {"precision": "float64"},
    }
    with a_run_state(**values) as run_state, a_run_state(**values) as twin:
        start = {key: value.clone() for key, value in run_state.model.items()}
        row = play_round(run_state, 2, test=False)
        norms = twin.engine.answer(start, 2, UpdateNorm(), EVERYBODY, twin.algorithm)[:, 0]
        p = twin.clock.num_samples / twin.clock.num_samples.sum()
        chance = (proportional if name == "ocs" else approximate)(p * norms, twin.k)
        clients = np.array([entry.client for entry in row.clients])
        updates = list(twin.engine.train(start, 2, Cohort(clients), twin.algorithm))
    assert len(clients)
    for key, value in run_state.model.items():
        moved = sum(p[u.client] / chance[u.client] * (u.state[key] - start[key]) for u in updates)
        torch.testing.assert_close(value, start[key] + moved, rtol=1e-9, atol=1e-12)


# --- what the ledger says of reports, histograms and batches ------------------------------------------------------------------


def ledgers(selection: Any, rounds: int = 2) -> list[dict[str, Any]]:
    with a_run_state(selection=selection) as run_state:
        return [
            {entry.kind: entry for entry in play_round(run_state, t, test=False).ledger} for t in range(1, rounds + 1)
        ]


def test_reports_are_disclosed_and_billed_where_the_strategy_reads_them() -> None:
    """Oort reads the squared loss and the number of samples of everybody that trained; uniform selection reads nothing."""
    (plain, *_), (oort, *_) = ledgers("uniform"), ledgers("oort")
    assert plain["training"].discloses == "its update and number of samples"
    assert oort["training"].discloses.startswith("its update and number of samples, ")
    words = oort["training"].discloses.removeprefix("its update and number of samples, ").split(", ")
    assert "square_loss" in words
    assert oort["training"].bytes_up == plain["training"].bytes_up + 4 * 3 * len(words)


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("fedavg", ""),
        ("fednova", ", its number of local steps"),
        ("scaffold", ", the change of its mean gradient (its control variate)"),
    ],
)
def test_what_clients_send_for_the_algorithm_is_disclosed(algorithm: str, words: str) -> None:
    with a_run_state(algorithm=algorithm) as run_state:
        (training,) = play_round(run_state, 1, test=False).ledger
    assert training.discloses == f"its update and number of samples{words}"


def test_a_histogram_is_sent_once() -> None:
    first, second = ledgers({"name": "stratified"})
    assert first["Histogram"].bytes_up == 12 * 10 * 4
    assert "each class" in first["Histogram"].discloses
    assert "Histogram" not in second


def test_what_the_server_works_out_is_not_sent() -> None:
    """FEEL that asks for gradients needs no norm of an update, and that of Rizk is the server's own arithmetic."""
    for name in ("feel", "rizk"):
        assert "update_norm" not in ledgers(name, 1)[0]["training"].discloses


def test_the_loss_of_a_batch_is_said_to_be_that() -> None:
    ledger = ledgers({"name": "cpowd", "batch_size": 5}, 1)[0]
    assert ledger["LocalLoss"].discloses == "the mean loss of the current model on 5 of its training samples"


def test_clients_that_are_away_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    away = {"availability": {"name": "bernoulli", "probability": 0.5}}
    with a_run_state(selection="powd", systems=away) as run_state:
        monkeypatch.setattr(type(run_state.selector), "select", lambda self, round: round.ask(LocalLoss(), EVERYBODY))
        with pytest.raises(
            UsageError, match=r"PowerOfChoice.select in round 1 asks clients \[.*they are not available"
        ):
            play_round(run_state, 1, test=False)


@pytest.mark.parametrize(
    ("participants", "fault"),
    [((), r"\(participants = \(\)\), which trains no client"), ((0, 99), r"but clients \[99\] are not available")],
)
def test_a_trial_round_needs_clients_that_are_there(
    participants: tuple[int, ...], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = LossChange(participants)
    with a_run_state(selection="powd") as run_state:
        monkeypatch.setattr(type(run_state.selector), "select", lambda self, round: round.ask(question, EVERYBODY))
        with pytest.raises(UsageError, match=r"PowerOfChoice.select in round 1 asks for LossChange.*" + fault):
            play_round(run_state, 1, test=False)


@pytest.mark.parametrize("model", [Mlp(hidden=9), CnnA()], ids=["mlp", "cnn"])
@pytest.mark.parametrize("few", [True, False], ids=["together", "each"])
def test_losses_that_are_asked_for_together_are_those_of_each(
    model: Any, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit; clients of one sample, of a block and of more than one, in any order."""
    rng = np.random.default_rng(0)
    sizes = [1, 128, 3, 200, 5]
    pixels = torch.from_numpy(rng.integers(0, 256, (sum(sizes), 3, 32, 32), dtype=np.uint8))
    train = Samples(pixels, torch.from_numpy(rng.integers(0, 10, sum(sizes))))
    unit = torch.ones(3, 1, 1)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    federation = Federation(train, offsets, train[:4], train[:4], tuple("0123456789"), 100 * unit, unit / 50)
    module = model.build(federation.sample_shape, 10).to(memory_format=torch.channels_last).eval()
    if not few:
        monkeypatch.setattr("fedcohort.training.answers.TOGETHER", 0)
    for clients in ([0, 1, 2, 3, 4], [3, 0, 3], [2]):
        found = answers(module, federation, torch.float32, LocalLoss(), 1, clients, 0)
        alone = [answer(module, federation, torch.float32, LocalLoss(), 1, client, 0) for client in clients]
        assert np.array_equal(found, alone)


@pytest.mark.parametrize(
    ("layers", "dtype"),
    [
        ([Linear(3072, 10)], torch.float32),
        ([Linear(3072, 40), ReLU(), Dropout(0.3), Linear(40, 10)], torch.float32),
        ([Linear(3072, 9), Tanh(), Linear(9, 10, bias=False)], torch.float64),
    ],
    ids=["linear", "dropout", "float64"],
)
def test_norms_that_are_asked_for_together_are_those_of_each(
    layers: list[Module], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, and autograd takes no part; clients of one sample, of a block and of more than one, in any order."""
    rng = np.random.default_rng(0)
    sizes = [1, 128, 3, 300, 5]
    pixels = torch.from_numpy(rng.integers(0, 256, (sum(sizes), 3, 32, 32), dtype=np.uint8))
    train = Samples(pixels, torch.from_numpy(rng.integers(0, 10, sum(sizes))))
    unit = torch.ones(3, 1, 1)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    federation = Federation(train, offsets, train[:4], train[:4], tuple("0123456789"), 100 * unit, unit / 50)
    module = Sequential(Flatten(), *layers).to(dtype).eval()
    program = program_of(module, federation.sample_shape)
    alone = [answer(module, federation, dtype, GradientNorm(), 1, client, 0) for client in range(5)]
    monkeypatch.delattr(torch.autograd, "grad")
    for clients in ([0, 1, 2, 3, 4], [3, 0, 3], [2]):
        found = answers(module, federation, dtype, GradientNorm(), 1, clients, 0, program)
        assert np.array_equal(found, [alone[client] for client in clients])


def test_few_samples_are_standardized_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of one client with many samples, whose floats can take four times the memory of its data."""
    most, lengths = 300, []
    prepare = Federation.prepare

    def counting(self: Federation, features: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        lengths.append(len(features))
        return prepare(self, features, dtype)

    with a_run_state() as run_state:
        assert isinstance(run_state.engine, LocalEngine)
        federation = run_state.engine.federation
        size = federation.train.source[0].numel()
        monkeypatch.setattr("fedcohort.training.answers.TOGETHER", most * size + size // 2)
        monkeypatch.setattr(Federation, "prepare", counting)
        asked = np.arange(federation.num_clients)
        run_state.engine.answer(run_state.model, 1, LocalLoss(), asked)
    assert sum(lengths) == federation.num_samples.sum()
    assert max(lengths) <= most
