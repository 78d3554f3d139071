"""The engine over Flower's Grid fulfills the contract of engines, and a reply that cannot be used is a failed client."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Error, Message, RecordDict

from fedcohort.algorithms import Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.algorithms.updates import is_finite
from fedcohort.core.errors import UsageError
from fedcohort.core.files.state_files import pack, unpack
from fedcohort.flower.deployed.grid_engine import GridEngine
from fedcohort.flower.sites.envelope import reply_message
from fedcohort.flower.sites.memory_versions import MemoryVersions
from fedcohort.flower.sites.owner_policy import Allowed, Budget, Spent
from fedcohort.models import Logistic, Mlp
from fedcohort.selection import Cohort, LocalLoss, UpdateNorm
from fedcohort.testing import LoopGrid, check_engine
from fedcohort.testing.base import BROKEN, HEALTHY, ControlVariates, small_federation
from fedcohort.testing.frozen_parameters import PartlyFrozen
from tests.flower.deployed.sites import EVERYTHING, grid_of, is_training, making, met, sites_of, words_of

TRAINING = Training(batch_size=4, epochs=2)
FEDERATION = small_federation(trouble=False)
CLIENTS = np.array([6, 0, 3, 1])
SITES = 2
Tamper = Callable[[Message, Message], Any]


def test_the_engine_fulfills_the_contract() -> None:
    check_engine(making(), memories_elsewhere=True)


def engine_on(grid: LoopGrid, algorithm: Any = None, **settings: Any) -> GridEngine:
    link, roster = met(grid, FEDERATION)
    return GridEngine(
        FEDERATION, Mlp(hidden=8), TRAINING, algorithm or FedAvg(), 3, 1, link=link, roster=roster, **settings
    )


def grid(algorithm: Any = None, grid_settings: Mapping[str, Any] | None = None, **settings: Any) -> LoopGrid:
    sites = sites_of(FEDERATION, SITES, lambda _: (Mlp(hidden=8), TRAINING, algorithm or FedAvg()), **settings)
    return grid_of(sites, **(grid_settings or {}))


def updates(engine: GridEngine, t: int = 1, algorithm: Any = None) -> dict[int, Update]:
    cohort = Cohort(CLIENTS)
    found = list(engine.train(engine.initial_model(), t, cohort, algorithm or FedAvg()))
    assert [update.client for update in found] == CLIENTS.tolist()
    return {update.client: update for update in found}


def changed(change: Callable[[dict[str, Any]], object]) -> Tamper:
    """Changes the words of a reply about a training."""

    def tamper(_: Message, reply: Message) -> Message:
        words = words_of(reply)
        change(words)
        return reply_message(pack(words), _)

    return tamper


def first(change: Callable[[dict[str, Any]], object]) -> Tamper:
    """Changes what a reply says about its first client, which is number 1."""
    return changed(lambda words: change(next(row for row in words["clients"] if row["name"] == "1")))


def of_model(change: Callable[[dict[str, torch.Tensor]], object]) -> Tamper:
    return first(lambda row: change(row["state"]))


def rename(state: dict[str, torch.Tensor]) -> None:
    state["unknown"] = state.pop(next(iter(state)))


def set_first(value: Callable[[torch.Tensor], torch.Tensor]) -> Tamper:
    return of_model(lambda state: state.update({next(iter(state)): value(next(iter(state.values())))}))


def duplicate(message: Message, reply: Message) -> list[Message]:
    return [reply, reply]


class Trained(PartlyFrozen):
    """The network with all layers trained."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        return super().build(shape, num_classes).requires_grad_()


class Shifted(PartlyFrozen):
    """The network with other frozen values."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        network = super().build(shape, num_classes)
        network.get_parameter("first.weight").data += 1
        return network


class FrozenMore(PartlyFrozen):
    """The network with a frozen bias of the last layer."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        network = super().build(shape, num_classes)
        network.get_parameter("last.bias").requires_grad_(False)
        return network


class TrainedTeacher(PartlyFrozen):
    """The network with a trained parameter that the server sends, but does not train."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        network = super().build(shape, num_classes)
        network.get_parameter("teacher").requires_grad_()
        return network


@pytest.mark.parametrize(
    ("at_site", "message"),
    [
        (Trained(), "'first.weight' has requires_grad = True here and False at the server"),
        (Shifted(), "'first.weight', which has requires_grad = False and is not sent, has other values here"),
        (FrozenMore(), "'last.bias' has requires_grad = False here and True at the server"),
        (TrainedTeacher(), "'teacher' has requires_grad = True here and False at the server"),
        (PartlyFrozen(), ""),
    ],
    ids=["trained", "shifted", "frozen", "trained and sent", "same"],
)
def test_a_site_says_what_differs_in_its_frozen_part(at_site: PartlyFrozen, message: str) -> None:
    sites = sites_of(FEDERATION, SITES, lambda _: (at_site, TRAINING, FedAvg()))
    link, roster = met(grid_of(sites), FEDERATION)
    engine = GridEngine(FEDERATION, PartlyFrozen(), TRAINING, FedAvg(), 3, 1, link=link, roster=roster)
    for update in updates(engine).values():
        assert message in (update.failure or "")
        assert bool(update.failure) == bool(message)
    engine.close()


def test_a_site_with_another_network_is_named() -> None:
    sites = sites_of(FEDERATION, SITES, lambda _: (Logistic(), TRAINING, FedAvg()))
    link, roster = met(grid_of(sites), FEDERATION)
    engine = GridEngine(FEDERATION, Mlp(hidden=8), TRAINING, FedAvg(), 3, 1, link=link, roster=roster)
    for update in updates(engine).values():
        assert "which the network here does not have; build the same network at both" in (update.failure or "")
    engine.close()


RULE_IN_A_FILE = """
from pathlib import Path

from fedcohort.selection import StoppingRule

Path(__file__).with_name("was-run").touch()


class Never(StoppingRule):
    def check(self, progress):
        return False, {}
"""


def test_a_stopping_rule_in_a_file_is_refused_by_the_server_and_by_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site does not rely on the server, which could name any Python file that the site has."""
    (tmp_path / "rule.py").write_text(RULE_IN_A_FILE)
    cohort = Cohort(CLIENTS, epochs=np.full(len(CLIENTS), 2), stop={"rule": f"{tmp_path / 'rule.py'}:Never"})
    engine = engine_on(grid())
    with pytest.raises(
        UsageError, match=r"Cohort.stop.rule = '.*rule.py:Never': is a file, and sites do not run files of"
    ):
        list(engine.train(engine.initial_model(), 1, cohort, FedAvg()))
    monkeypatch.setattr("fedcohort.flower.deployed.grid_engine.check_name_for_sites", lambda *_: None)
    for update in engine.train(engine.initial_model(), 1, cohort, FedAvg()):
        assert "rule.py:Never': a site runs no files that a server names" in (update.failure or "")
    assert not (tmp_path / "was-run").exists()
    engine.close()


BAD_REPLIES: dict[str, tuple[Tamper, str]] = {
    "duplicate": (duplicate, "malformed: duplicate: 2 replies to one request"),
    "oversized": (
        changed(lambda words: words.update(more=torch.zeros(2**23))),
        "malformed: oversized: 33,",
    ),
    "not bytes of a message": (lambda m, _: reply_message(b"\x80\x04pickle", m), "malformed: its bytes cannot be read"),
    "another version": (changed(lambda words: words.update(version=7)), "malformed: it has version 7"),
    "an empty tensor as version": (
        changed(lambda words: words.update(version=torch.zeros(0))),
        "malformed: it has version",
    ),
    "wrongly shaped": (set_first(lambda x: x[:1]), "malformed: tensor"),
    "another dtype": (set_first(lambda x: x.double()), "float64"),
    "another tensor": (of_model(rename), "malformed: its tensors are not those of the model"),
    "a tensor less": (of_model(lambda state: state.popitem()), "malformed: its tensors are not those of the model"),
    "another client": (
        first(lambda row: row.update(name="8")),
        "malformed: it names other clients than those that were asked",
    ),
    "a client twice": (
        changed(lambda words: words["clients"].append(words["clients"][0])),
        "malformed: duplicate: it has a client twice",
    ),
    "other samples": (
        first(lambda row: row.update(num_samples=10**6)),
        "malformed: it has 1000000 samples, and had 16",
    ),
    "negative steps": (first(lambda row: row.update(steps=-1)), "malformed: message.clients.steps is no count"),
    "NaN in the report": (
        first(lambda row: row["report"].update(loss=float("nan"))),
        "malformed: message.clients.report.report holds nan",
    ),
    "a number that is too large for a float": (
        first(lambda row: row["report"].update(loss=10**400)),
        "malformed: message.clients.report.report holds 1000",
    ),
    "True as a number": (
        first(lambda row: row["report"].update(loss=True)),
        "malformed: message.clients.report.report holds True, which is no number",
    ),
    "more passes than a float holds": (
        first(lambda row: row.update(passes=10**400)),
        "must be at least 0 and below 9,007,199,254,740,992",
    ),
    "passes whose sum is infinite": (
        first(lambda row: row.update(passes=1e308)),
        "malformed: message.clients.passes = 1e+308: must be at least 0 and below 9,007,199,254,740,992",
    ),
    "a text as a number": (
        first(lambda row: row["report"].update(loss="\x1b[2J\ud800")),
        r"malformed: message.clients.report.report holds \x1b[2J\ud800, which is no number",
    ),
    "a report whose name cannot be stored": (
        first(lambda row: row["report"].update({"\ud800": 1.0})),
        r"malformed: it reports '\ud800', a name with characters that cannot be printed",
    ),
    "too many reports": (
        first(lambda row: row.update(report={f"report {i}": 1.0 for i in range(101)})),
        "malformed: its report has 101 names; at most 100 of 60 letters are read",
    ),
    "a report with a long name": (
        first(lambda row: row.update(report={"x" * 61: 1.0})),
        "malformed: its report has 1 name",
    ),
    "passes that are no number": (
        first(lambda row: row.update(passes=True)),
        "malformed: message.clients.passes = True: must be at least 0",
    ),
    "a tensor that is none": (
        first(lambda row: row["state"].update(more=1.0)),
        "malformed: message.clients.state does not hold tensors by name",
    ),
    "an error that cannot be printed": (
        first(lambda row: row.update(error="no\x1b[2J\ud800")),
        r"error: no\x1b[2J\ud800",
    ),
    "a failure that cannot be printed": (first(lambda row: row.update(failure="no\x1b[2J\ud800")), r"no\x1b[2J\ud800"),
    "a refusal that cannot be printed": (
        changed(lambda words: words.update(refused="no\x1b[2J\ud800")),
        r"refused: no\x1b[2J\ud800",
    ),
    "a measured report": (
        first(lambda row: row["report"].update(test_accuracy=1.0)),
        "malformed: it reports 'test_accuracy'",
    ),
    "extra tensors": (
        first(lambda row: row["extra"].update(c={"w": torch.zeros(2)})),
        "malformed: what it sent beside the model is not what the algorithm sends",
    ),
    "a part that was not asked for": (
        first(lambda row: row.update(sent=[])),
        "malformed: it sent a part of its update",
    ),
    "an error of Flower": (lambda m, _: Message(Error(5, "Node Unavailable"), reply_to=m), "unreachable: its node"),
    "an error of the app": (
        lambda m, _: Message(Error(2, "ValueError: no"), reply_to=m),
        "error: its ClientApp raised",
    ),
    "no bytes": (
        lambda m, _: Message(RecordDict(), reply_to=m),
        "malformed: the reply does not come from a FedCohort site",
    ),
    "nothing": (lambda m, _: None, "timeout: no reply within 10 s"),
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_bad_reply_is_a_failed_client_and_the_others_are_not(name: str) -> None:
    tamper, failure = BAD_REPLIES[name]

    def tampered(position: int, message: Message, reply: Message) -> Any:
        return tamper(message, reply) if position == 1 and is_training(message) else reply

    engine = engine_on(grid(grid_settings={"tamper": tampered}))
    found = updates(engine)
    assert found[1].failure is not None
    assert failure in found[1].failure
    good = updates(engine_on(grid()))
    for client in (6, 0):  # of the other site
        assert found[client].failure is None
        assert pack(found[client].state) == pack(good[client].state)
    engine.close()


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        ({}, "malformed: what it sent beside the model is not what the algorithm sends"),
        ({"failure": "it ran out of memory"}, "it ran out of memory"),
    ],
)
def test_a_reply_without_what_the_algorithm_sends_is_a_failed_client(said: dict[str, str], failure: str) -> None:
    """The server took it for an update, and its run ended with a KeyError."""
    algorithm, tamper = ControlVariates(), first(lambda row: row.update(extra={}, **said))
    settings = {"tamper": lambda i, m, r: tamper(m, r) if is_training(m) and i == 1 else r}
    found = updates(engine_on(grid(algorithm, settings), algorithm), algorithm=algorithm)
    assert [found[client].failure for client in (6, 0, 3, 1)] == [None, None, None, failure]


def test_nan_in_an_update_is_found_and_the_clients_beside_it_are_not_affected() -> None:
    tamper = set_first(lambda x: torch.full_like(x, float("nan")))
    engine = engine_on(grid(grid_settings={"tamper": lambda i, m, r: tamper(m, r) if is_training(m) and i == 1 else r}))
    found = updates(engine)
    assert [is_finite(found[client]) for client in CLIENTS.tolist()] == [True, True, True, False]


def test_a_client_whose_own_code_fails_is_a_failed_client() -> None:
    federation = small_federation()
    sites = sites_of(federation, SITES, lambda _: (Mlp(hidden=8), TRAINING, FedAvg()))
    link, roster = met(grid_of(sites), federation)
    engine = GridEngine(federation, Mlp(hidden=8), TRAINING, FedAvg(), 3, 1, link=link, roster=roster)
    cohort = Cohort(np.array([BROKEN, *HEALTHY[:2]]))
    broken, *others = engine.train(engine.initial_model(), 1, cohort, FedAvg())
    assert broken.failure is not None
    assert broken.failure.startswith("error: IndexError")
    assert [update.failure for update in others] == [None, None]
    losses = engine.answer(engine.initial_model(), 1, LocalLoss(), np.array([BROKEN, 0]))
    assert np.isnan(losses).tolist() == [True, False]
    assert engine.take_notes()[0].startswith(f"client {BROKEN} gave no LocalLoss: error: IndexError")
    assert engine.take_notes() == []


def test_a_site_answers_only_what_its_owner_allows() -> None:
    engine = engine_on(grid(allowed=Allowed(questions=frozenset({"UpdateNorm"}), reports=frozenset({"loss"}))))
    model = engine.initial_model()
    assert np.isnan(engine.answer(model, 1, LocalLoss(), CLIENTS)).all()
    assert "refused: the owner does not allow LocalLoss" in engine.take_notes()[0]
    assert np.isfinite(engine.answer(model, 1, UpdateNorm(), CLIENTS, FedAvg())).all()
    assert {frozenset(update.report) for update in updates(engine).values()} == {frozenset({"loss"})}
    refusing = engine_on(grid(allowed=Allowed(training=False)))
    assert {update.failure for update in updates(refusing).values()} == {"refused: the owner does not allow training"}


def test_a_budget_ends_what_a_site_does() -> None:
    spent = Spent(Budget(rounds=2, answers=3))
    engine = engine_on(grid(spent=spent))  # both sites share the budget
    model = engine.initial_model()
    assert np.isfinite(engine.answer(model, 1, LocalLoss(), CLIENTS[:3])).all()
    assert np.isnan(engine.answer(model, 1, LocalLoss(), CLIENTS[:1])).all()
    for t in (1, 1, 2):  # the same round again is the same round
        assert {update.failure for update in updates(engine, t).values()} == {None}
    assert spent.left() == {"rounds": 0, "answers": 0, "bytes": None, "epochs": None}
    failures = {update.failure for update in updates(engine, 3).values()}
    assert failures == {"refused: the site's budget of 2 rounds is used up"}
    few = engine_on(grid(spent=Spent(Budget(bytes=5000))))
    assert {update.failure for update in updates(few).values()} == {
        "refused: the site's budget of 5,000 bytes is used up"
    }


@pytest.mark.parametrize("kind", ["train", "ask"])
def test_epochs_are_counted_before_anything_is_computed(kind: str) -> None:
    """Those of each client: as the server asks for them, or the nominal ones; also of the same work again."""
    request = kept_request(FedAvg(), kind)
    if kind == "ask":
        request["question"] = UpdateNorm().to_json()
    nominal = TRAINING.epochs * len(request["clients"])
    spent = Spent(Budget(epochs=2 * nominal))
    [site, *_] = sites_of(FEDERATION, SITES, lambda _: (Mlp(hidden=8), TRAINING, FedAvg()), spent=spent)
    long = [client | {"epochs": 10**12} for client in request["clients"]]
    assert unpack(site.handle(pack(request | {"clients": long})))["refused"] == (
        f"the site's budget of {2 * nominal:,} epochs is used up"
    )
    assert (spent.rounds, spent.answers) == (0, 0)
    for left in (nominal, 0):
        assert "refused" not in unpack(site.handle(pack(request | {"made": f"1-{left}"})))
        assert spent.left()["epochs"] == left
    assert "epochs is used up" in unpack(site.handle(pack(request | {"made": "1-more"})))["refused"]


def test_a_reply_that_needs_longer_than_the_deadline_is_too_late() -> None:
    """Clients 1 and 3 are at the second site, whose replies need 5 s."""
    engine = engine_on(grid(grid_settings={"seconds": lambda position, message: 1.0 + 4.0 * position}), deadline=3.0)
    begin = engine.link.clock()
    late = {client for client, update in updates(engine).items() if update.failure == "timeout: no reply within 3 s"}
    assert late == {1, 3}
    assert engine.link.clock() == begin + 3.0


def test_a_round_is_not_free_again_with_another_model() -> None:
    """The server chooses the names of runs and rounds, and could ask for updates of many models under one of them."""
    spent = Spent(Budget(rounds=1))
    requests = []

    def keeping(position: int, message: Message, reply: Message) -> Message:
        if is_training(message):
            requests.append(words_of(message))
        return reply

    engine = engine_on(grid(grid_settings={"tamper": keeping}, spent=spent))
    updates(engine)
    [site, *_] = sites_of(FEDERATION, SITES, lambda _: (Mlp(hidden=8), TRAINING, FedAvg()), spent=spent)
    [request] = [words for words in requests if words["clients"][0]["name"] in site.clients]
    again = request | {"made": "1-again"}
    assert "refused" not in unpack(site.handle(pack(again)))
    more = {name: value + 0.1 for name, value in request["model"].items()}
    for changed in (
        {"model": more},
        {"setup": request["setup"] | {"seed": 4}},
        {"clients": [client | {"epochs": 2} for client in request["clients"]]},
    ):
        said = unpack(site.handle(pack(request | changed)))
        assert said["refused"] == "the site's budget of 1 rounds is used up"


def kept_request(algorithm: Any, kind: str) -> dict[str, Any]:
    """A request about the first site's clients."""
    kept: list[dict[str, Any]] = []

    def keeping(position: int, message: Message, reply: Message) -> Message:
        kept.extend([words_of(message)] if position == 0 else [])
        return reply

    engine = engine_on(grid(algorithm, {"tamper": keeping}), algorithm)
    updates(engine, algorithm=algorithm)
    engine.answer(engine.initial_model(), 1, LocalLoss(), CLIENTS)
    engine.close()
    return next(words for words in kept if words["kind"] == kind)


def test_a_request_about_other_clients_or_about_two_with_one_number_is_refused() -> None:
    """The data of one client would otherwise be used with the memory of the other."""
    request = kept_request(FedAvg(), "train")
    [site, *_] = sites_of(FEDERATION, SITES, lambda _: (Mlp(hidden=8), TRAINING, FedAvg()))
    assert len(site.clients) > 1
    one_number = {"setup": request["setup"] | {"numbers": dict.fromkeys(site.clients, 0)}}
    another = {"clients": [*request["clients"], request["clients"][0] | {"name": "another"}]}
    for changed, reason in (
        (one_number, "two clients have the same number"),
        (another, "this site has no client 'another'"),
    ):
        said = unpack(site.handle(pack(request | changed)))
        assert said["refused"] == f"the request cannot be used: {reason}"


def test_a_memory_that_a_training_begins_with_is_not_replaced() -> None:
    """Otherwise the same work would begin with another memory each time, and send other updates, without a further round."""
    algorithm, spent = ControlVariates(), Spent(Budget(rounds=2))
    request = kept_request(algorithm, "train")
    [site, *_] = sites_of(FEDERATION, SITES, lambda _: (Mlp(hidden=8), TRAINING, algorithm), spent=spent)
    assert "refused" not in unpack(site.handle(pack(request | {"made": "a"})))
    begun = [client | {"memory": "a"} for client in request["clients"]]
    said = unpack(site.handle(pack(request | {"clients": begun, "made": "a"})))
    assert "memory 'a' would be replaced by the training that begins with it" in said["refused"]
    assert spent.rounds == 1
    first, second = (site.handle(pack(request | {"clients": begun, "made": made})) for made in ("b", "c"))
    assert spent.rounds == 2
    assert unpack(first)["clients"][0]["state"].keys() == unpack(second)["clients"][0]["state"].keys()
    states = [pack(unpack(said)["clients"][0]["state"]) for said in (first, second)]
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("module", "words"),
    [("owner_policy", "what it has spent of its budget"), ("memory_versions", "the memory of a client")],
)
def test_a_site_whose_disk_is_full_says_so_and_goes_on(
    module: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    algorithm, spent = ControlVariates(), Spent(Budget(rounds=1), tmp_path / "spent.json")
    request = pack(kept_request(algorithm, "train"))
    [site, *_] = sites_of(
        FEDERATION,
        SITES,
        lambda _: (Mlp(hidden=8), TRAINING, algorithm),
        spent=spent,
        memories=MemoryVersions(tmp_path),
    )
    caplog.clear()
    with monkeypatch.context() as patched:
        patched.setattr(f"fedcohort.flower.sites.{module}.replace_file", full)
        said = unpack(site.handle(request))
    assert said["refused"] == f"the site cannot write {words} (No space left on device)"
    [line] = caplog.records
    assert line.exc_info is None
    assert "refused" not in unpack(site.handle(request)), "the same work costs no further round"
    assert spent.rounds == Spent(Budget(), tmp_path / "spent.json").rounds == 1


OTHER_MODELS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "another number format": (
        lambda model: model.update({name: value.double() for name, value in model.items()}),
        r"is float64 \[8\] in the model of the server, and float32 \[8\] in the network here",
    ),
    "another shape": (
        lambda model: model.update({name: value[:1] for name, value in model.items()}),
        r"is float32 \[1\] in the model of the server, and float32 \[8\] in the network here",
    ),
    "an entry less": (lambda model: model.pop(min(model)), r"is missing in the model of the server, and float32 \[8\]"),
    "an entry more": (
        lambda model: model.update(another=torch.zeros(2)),
        r"'another' is float32 \[2\] in the model of the server, and missing in the network here",
    ),
}


@pytest.mark.parametrize("name", OTHER_MODELS)
@pytest.mark.parametrize("kind", ["train", "ask"])
def test_a_model_that_is_not_of_the_sites_network_is_refused(kind: str, name: str) -> None:
    """Compiled steps do not check the shapes of a model: a wrong one could end the owner's process, or be trained on."""
    change, message = OTHER_MODELS[name]
    request = kept_request(FedAvg(), kind)
    change(request["model"])
    [site, *_] = sites_of(FEDERATION, SITES, lambda _: (Mlp(hidden=8), TRAINING, FedAvg()))
    assert re.search(message, unpack(site.handle(pack(request)))["refused"])


def test_the_owners_log_has_one_line_for_each_request(caplog: pytest.LogCaptureFixture) -> None:
    """What was answered for which clients, and what is left of the budget."""
    federation = small_federation()
    budget = Spent(Budget(rounds=1, answers=5))
    sites = sites_of(federation, 1, lambda _: (Mlp(hidden=8), TRAINING, FedAvg()), spent=budget)
    with caplog.at_level("INFO", logger="fedcohort"):
        link, roster = met(grid_of(sites), federation)
        engine = GridEngine(
            federation, Mlp(hidden=8), TRAINING, FedAvg(), 3, 1, link=link, roster=roster, run="powd-seed0"
        )
        model = engine.initial_model()
        engine.answer(model, 2, LocalLoss(), np.array([6, 0]))
        for t in (2, 3):
            list(engine.train(model, t, Cohort(np.array([BROKEN, 6, 0])), FedAvg()))
        sites[0].handle(b"\x80\x04nonsense")
    lines = [re.sub(r"[\d,]+ bytes sent", "N bytes sent", line) for line in caplog.messages if "has labels" not in line]
    assert lines[0].startswith("introduced clients 0, 1, ")
    left = "N bytes sent; left of the budget: rounds {}, answers 3"
    assert lines[1:4] == [
        f"run powd-seed0, round 2: answered LocalLoss for clients 6, 0; {left.format(1)}",
        f"run powd-seed0, round 2: trained clients 6, 0, and not client {BROKEN}; {left.format(0)}",
        f"run powd-seed0, round 3: refused: the site's budget of 1 rounds is used up; {left.format(0)}",
    ]
    assert lines[4].startswith("refused: the request cannot be used: its bytes cannot be read")
    assert len(lines) == 5


def test_clients_at_nodes_that_are_not_connected_are_unreachable() -> None:
    where = grid()
    engine = engine_on(where)
    where.offline.add(1)
    assert updates(engine)[1].failure == "unreachable: its node is unreachable: Node Unavailable"
    engine.roster.meet(engine.link)
    assert engine.roster.present().tolist() == [0, 2, 4, 6, 8]
    assert updates(engine)[1].failure == "unreachable: its node is not connected"
    where.offline.clear()
    assert engine.roster.meet(engine.link) == []
    assert updates(engine)[1].failure is None


def test_a_message_that_cannot_be_sent_is_an_unreachable_client(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_on(grid())
    push = LoopGrid.push_messages
    monkeypatch.setattr(LoopGrid, "push_messages", lambda self, messages: [*push(self, list(messages)[:1]), None])
    failures = [update.failure for update in updates(engine).values()]
    assert failures == [None, None, *["unreachable: the message could not be sent"] * 2]


def test_requests_are_sent_in_batches_and_a_batch_that_is_too_large_costs_only_its_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server whose messages have a large model would otherwise hold one for each client in memory."""
    engine, sizes, push = engine_on(grid()), list[int](), LoopGrid.push_messages

    def pushed(self: LoopGrid, messages: Iterable[Message]) -> Iterable[str]:
        sizes.append(len(list(messages)))
        return [] if len(sizes) == 2 else push(self, messages)

    monkeypatch.setattr(LoopGrid, "push_messages", pushed)
    monkeypatch.setattr("fedcohort.flower.deployed.grid_link.BATCH_BYTES", 1)
    failures = [update.failure for update in updates(engine).values()]
    assert sizes == [1] * SITES
    assert failures == [None, None, *["unreachable: the message could not be sent"] * 2]
    answers = engine.answer(engine.initial_model(), 1, LocalLoss(), CLIENTS)
    assert sizes == [1] * (2 * SITES)
    assert np.isfinite(answers).all()


def test_a_reply_without_the_seconds_of_its_site_has_no_time_of_an_earlier_round() -> None:
    silent = changed(lambda words: words.pop("seconds"))

    def tampered(_: int, message: Message, reply: Message) -> Any:
        return silent(message, reply) if is_training(message) and words_of(message)["round"] == 2 else reply

    pace = 1.0
    engine = engine_on(grid(grid_settings={"tamper": tampered, "seconds": lambda *_: pace}))
    updates(engine)
    assert {round(sum(engine.times[client]), 9) for client in CLIENTS.tolist()} == {1.0}
    pace = 7.0
    updates(engine, 2)
    assert {engine.times[client] for client in CLIENTS.tolist()} == {(7.0, 0.0)}


def test_memories_stay_at_the_sites_and_a_lost_one_is_said_to_be_lost() -> None:
    algorithm, memories = ControlVariates(), MemoryVersions()
    where = grid(algorithm, memories=memories)
    engine = engine_on(where, algorithm)
    before = updates(engine, algorithm=algorithm)
    engine.commit(CLIENTS.tolist())
    assert all(set(kept) == {"version"} for kept in engine.state_dict().values())
    after = updates(engine, algorithm=algorithm)
    assert pack(after[1].state) != pack(before[1].state)
    again = engine_on(where, algorithm)  # a new process of the server, with the state of its checkpoint
    again.load_state_dict(unpack(pack(engine.state_dict())))
    assert pack(updates(again, algorithm=algorithm)[1].state) == pack(after[1].state)
    memories._kept.clear()
    lost = updates(again, algorithm=algorithm)[1].failure
    assert lost == "refused: its site has lost its memory; it begins without one in its next round"
    assert pack(updates(again, algorithm=algorithm)[1].state) == pack(before[1].state)


def test_the_owner_decides_about_everything_that_is_disclosed() -> None:
    assert EVERYTHING.reported({"loss": 1.0}) == {"loss": 1.0}
    assert Allowed().reported({"loss": 1.0}) == {}
