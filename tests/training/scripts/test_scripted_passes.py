"""Passes without Python have the bits of autograd; networks whose Python code may do something else have none."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcohort.algorithms import Algorithm, Members, Problem
from fedcohort.algorithms.losses import CrossEntropy
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fedprox import FedProx
from fedcohort.algorithms.methods.scaffold import Scaffold
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.base import ClientError
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import as_model
from fedcohort.selection import Cohort
from fedcohort.testing.base import bits
from fedcohort.training import client_problem
from fedcohort.training.scripts import network_scripts, scripted_passes
from fedcohort.training.scripts.network_scripts import Scripts
from fedcohort.training.scripts.scripted_passes import ScriptedPass
from fedcohort.training.scripts.scripted_series import ScriptedSeries
from tests.repetitions import slow_after
from tests.training.scripted_networks import (
    IMAGES,
    LENGTH,
    LIMITS,
    REFUSED,
    SHAPE,
    TEXTS,
    TOKENS,
    Asked,
    AskedLater,
    Base,
    Configured,
    Normed,
    Padded,
    Residual,
    Teaching,
)
from tests.training.test_client_series import facts, nested

SIZES = [20, 41, 4, 33, 1, 24]
ROUNDS = 3


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts from the second batch on."""
    monkeypatch.setattr(network_scripts, "USES", 1)
    monkeypatch.setattr(network_scripts, "LONGEST", 60.0)  # first calls take long on a busy machine


def federation(text: bool = False) -> Federation:
    draw = np.random.default_rng(0)
    count = sum(SIZES) + 40
    if text:
        features = torch.from_numpy(draw.integers(0, TOKENS, (count, LENGTH)))
        labels, classes = features.roll(-1, 1), TOKENS
    else:
        features = torch.from_numpy(draw.standard_normal((count, *SHAPE)).astype(np.float32))
        labels, classes = torch.from_numpy(draw.integers(0, 4, count)), 4
    train, test = Samples(features[:-40], labels[:-40]), Samples(features[-40:], labels[-40:])
    names, vocabulary = tuple(map(str, range(classes))), TOKENS if text else 0
    shift, scale = (torch.zeros(()), torch.ones(())) if text else (torch.full((1, 1, 1), v) for v in (0.1, 0.7))
    return Federation(
        train, np.cumsum([0, *SIZES]), test, test, names, shift, scale, vocabulary=vocabulary, integers=text
    )


def built(name: str) -> nn.Module:
    torch.manual_seed(0)
    return (IMAGES | TEXTS)[name]()


def learned(
    module: nn.Module,
    algorithm: Algorithm,
    training: Training,
    *,
    text: bool = False,
    workers: int = 2,
    evaluates: bool = False,
) -> list[Any]:
    """Everything that clients send in some rounds, and what they keep."""
    engine = LocalEngine(federation(text), as_model(module), training, algorithm, 5, workers)
    model, found = engine.initial_model(), list[Any]()
    cohort = Cohort(np.array([3, 0, 5, 2, 4, 1]))
    for t in range(1, ROUNDS + 1):
        updates = list(engine.train(model, t, cohort, algorithm))
        found += [facts(update) for update in updates]
        updates = [
            update for update in updates if update.failure is None
        ]  # batch norms have no statistics of one sample
        engine.commit([update.client for update in updates])
        members = Members(num_clients=len(SIZES), total_samples=sum(SIZES), k=6, t=t, trainable=engine.trainable)
        model = algorithm.aggregate(model, updates, members)
        if evaluates:
            engine.evaluate(model, "test")
    found += [bits(model), {client: nested(engine.memories.get(client)) for client in range(len(SIZES))}]
    engine.close()
    return found


class Halving(FedAvg):
    """An algorithm of a user: a step of its own."""

    def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        losses, right = problem.backward()
        for parameter in problem.parameters.values():
            assert parameter.grad is not None
            parameter.grad.mul_(0.5)
        return losses, right


CASES: dict[str, tuple[Callable[[], Algorithm], dict[str, Any]]] = {
    "plain": (FedAvg, {"momentum": 0.0}),
    "momentum": (FedAvg, {"momentum": 0.9, "weight_decay": 0.01}),
    "Adam": (FedAvg, {"optimizer": "adam", "lr": 0.01, "precision": "float64"}),
    "AdamW": (FedAvg, {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1}),
    "clipped": (FedAvg, {"clip_norm": 0.5}),
    "FedProx": (lambda: FedProx(mu=0.3), {}),
    "SCAFFOLD": (Scaffold, {"momentum": 0.0}),
    "SCAFFOLD, option I": (lambda: Scaffold(option="I"), {"momentum": 0.0}),
    "own steps": (Halving, {}),
    "two epochs": (FedAvg, {"epochs": 2}),
    "other loss": (FedAvg, {"loss": {"name": "sce"}}),
    "robust loss": (FedAvg, {"loss": {"name": "robust"}, "clip_norm": 0.5}),
    "robust loss, own steps": (Halving, {"loss": {"name": "robust"}}),
    "robust loss, SCAFFOLD": (Scaffold, {"loss": {"name": "robust"}, "momentum": 0.0, "epochs": 2}),
}


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of scripts that training makes."""
    calls: list[str] = []
    for name in ("play", "descend"):
        whole = getattr(ScriptedPass, name)

        def noted(self: ScriptedPass, *given: Any, name: str = name, whole: Any = whole, **settings: Any) -> Any:
            calls.append(name)
            return whole(self, *given, **settings)

        monkeypatch.setattr(ScriptedPass, name, noted)
    return calls


def same_bits(module: nn.Module, case: str, monkeypatch: pytest.MonkeyPatch, *, text: bool = False) -> list[str]:
    """The calls of scripts, after a comparison with autograd."""
    make, settings = CASES[case]
    training = Training(**{"batch_size": 4, "epochs": 1, "lr": 0.05, **settings})
    calls = counted(monkeypatch)
    by_scripts = learned(module, make(), training, text=text)
    monkeypatch.setattr(Scripts, "known", lambda *_: None)
    assert by_scripts == learned(module, make(), training, text=text, workers=1)
    return calls


@pytest.mark.parametrize("name", [*IMAGES, *TEXTS])
def test_networks_learn_the_bits_of_autograd(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = same_bits(built(name), "plain", monkeypatch, text=name in TEXTS)
    assert calls.count("play") > 8
    assert ("descend" in calls) == (name != "unused")


def test_an_attempt_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of one thread, since each thread has plain tensors of its own."""
    torch.manual_seed(0)
    module, training = Teaching(), Training(batch_size=4, lr=0.05)
    tried = []
    whole = network_scripts._script_pass

    def noted(*given: Any) -> tuple[ScriptedPass | None, float]:
        found = whole(*given)
        tried.append(found[0])
        return found

    monkeypatch.setattr(network_scripts, "_script_pass", noted)
    monkeypatch.setattr(Scripts, "possible", True)
    found = learned(module, FedAvg(), training, workers=1)
    assert tried
    assert not any(tried)
    monkeypatch.setattr(Scripts, "of", lambda *_: None)
    assert found == learned(module, FedAvg(), training, workers=1)


@pytest.mark.usefixtures("by_onednn")
def test_products_by_onednn_are_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "descend" in same_bits(built("wide"), "plain", monkeypatch)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", slow_after(1, ["residual", "attention with Dropout"]))
def test_algorithms_learn_the_bits_of_autograd(name: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = same_bits(built(name), case, monkeypatch, text=name in TEXTS)
    assert ("descend" in calls) == ("own steps" not in case)


@pytest.mark.parametrize(("augment", "at_once"), [("flip", True), ("flip_shift", True), ("flip_shift", False)])
def test_changed_images_learn_the_bits_of_autograd(
    augment: str, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not all images of a client are prepared at once."""
    if not at_once:
        monkeypatch.setattr(client_problem, "AT_ONCE", 0)
    monkeypatch.setattr(client_problem, "STRETCH", 8 * math.prod(SHAPE))  # of two batches
    monkeypatch.setitem(CASES, augment, (FedAvg, {"augment": augment, "epochs": 2, "loss": {"name": "robust"}}))
    assert "descend" in same_bits(built("residual"), augment, monkeypatch)


@pytest.mark.parametrize("kind", [Asked, AskedLater])
@pytest.mark.parametrize("case", ["momentum", "Adam", "FedProx", "SCAFFOLD", "two epochs"])
def test_batches_with_other_numbers_are_trained_by_autograd(
    case: str, kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of an epoch, in its first step, and in a series of clients."""
    stopped, failed = stops(case, kind, monkeypatch)
    assert 0 in stopped
    assert max(stopped) > 0
    assert bool(failed) == (case != "SCAFFOLD")


def test_clients_with_many_samples_stop_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their samples are prepared in stretches, here of two batches."""
    monkeypatch.setattr(client_problem, "AT_ONCE", 0)
    monkeypatch.setattr(client_problem, "STRETCH", 8 * LENGTH)
    stopped, _ = stops("momentum", Padded, monkeypatch, text=True)
    assert {0, 1} <= set(stopped)


def stops(
    case: str, kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch, *, text: bool = False
) -> tuple[list[int], list[int]]:
    """After how many steps scripts stopped, and numbers of clients of the series that did, after a comparison with autograd."""
    monkeypatch.setattr(scripted_passes, "FEW", 1000)  # do not give up
    monkeypatch.setattr(scripted_passes, "RARE", 1.0)
    stopped, failed = list[int](), list[int]()
    alone, together = ScriptedPass.descend, ScriptedSeries.descend_series

    def noted(self: ScriptedPass, features: Tensor, labels: Tensor, order: Tensor, size: int, *given: Any) -> Any:
        losses, right = alone(self, features, labels, order, size, *given)
        if len(losses) * size < len(order):
            stopped.append(len(losses))
        return losses, right

    def tried(self: ScriptedSeries, series: Any, *given: Any) -> Any:
        try:
            return together(self, series, *given)
        except torch.jit.Error:
            failed.append(len(series.edges))
            raise

    monkeypatch.setattr(ScriptedPass, "descend", noted)
    monkeypatch.setattr(ScriptedSeries, "descend_series", tried)
    make, settings = CASES[case]
    training = Training(**{"batch_size": 4, "epochs": 1, "lr": 0.05, **settings})

    def found() -> list[Any]:
        torch.manual_seed(0)
        return learned(kind(), make(), training, text=text, workers=1)

    by_scripts = found()
    monkeypatch.setattr(Scripts, "known", lambda *_: None)
    assert by_scripts == found()
    return stopped, failed


def test_a_script_that_often_does_without_is_given_up() -> None:
    torch.manual_seed(0)
    module = Asked().train()
    scripts = Scripts(module, dict(module.named_parameters()), CrossEntropy(), draws=False)
    images, labels = batch()
    scripts.of(images, labels)
    script = scripts.of(images, labels)
    assert script is not None
    assert script.reads_numbers
    for _ in range(100):
        assert script.play(images, labels) is not None
    assert scripts.all_known() == {4: script}
    for missed in range(1, 102):
        assert scripts.known(4) is script, missed
        assert bool(scripts.all_known()) == (missed < 3), missed
        assert script.play(images - 1.0, labels) is None
        assert script.misses == missed
    assert scripts.known(4) is None
    assert scripts.impossible(4)
    assert scripts.of(images, labels) is None


SERIES: dict[str, tuple[Callable[[], Algorithm], dict[str, Any]]] = {
    "plain": CASES["plain"],
    "momentum": CASES["momentum"],
    "Adam": CASES["Adam"],
    "FedProx": CASES["FedProx"],
    "two epochs": CASES["two epochs"],
    "other loss": CASES["other loss"],
    "clipped": CASES["clipped"],
    "robust loss": CASES["robust loss"],
    "robust loss, FedProx": (lambda: FedProx(mu=0.3), {"loss": {"name": "robust"}, "optimizer": "adam"}),
    "robust loss, two epochs": (FedAvg, {"loss": {"name": "robust"}, "epochs": 2}),
}


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("case", SERIES)
def test_series_learn_the_bits_of_single_clients(case: str, dropout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of networks of vectors are trained several in one call, except for those with batches of other sizes."""
    make, settings = SERIES[case]
    torch.manual_seed(0)
    module, training = Normed(dropout), Training(**{"batch_size": 4, "epochs": 1, "lr": 0.05, **settings})
    whole, trained = ScriptedSeries.descend_series, list[int]()

    def noted(self: ScriptedSeries, series: Any, *given: Any) -> Any:
        trained.append(len(series.edges))
        return whole(self, series, *given)

    monkeypatch.setattr(ScriptedSeries, "descend_series", noted)
    together = learned(module, make(), training, evaluates=True)
    assert len(trained) > 1
    assert max(trained) > 1
    monkeypatch.setattr(Scripts, "known", lambda *_: None)
    trained.clear()
    assert together == learned(module, make(), training, workers=1)
    assert not trained


def batch(size: int = 4) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(size, 8, 8, 1, generator=draw).permute(0, 3, 1, 2)
    return images, torch.randint(0, 4, (size,), generator=draw)


def script_of(module: nn.Module, *given: Tensor) -> ScriptedPass | None:
    trained: dict[str, Tensor] = {
        name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad
    }
    scripts = Scripts(module.train(), trained, CrossEntropy(), draws=False)
    for _ in range(network_scripts.USES):
        assert scripts.of(*given) is None
    return scripts.of(*given)


@pytest.mark.parametrize("kind", REFUSED.values(), ids=REFUSED)
def test_networks_whose_code_must_run_have_no_script(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = kind()
    assert script_of(Base(), *batch()) is not None
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert script_of(module, *batch()) is None
    if kind.__name__ != "Rescaled":
        assert bits(before) == bits(module.state_dict())


def test_a_script_ends_when_the_network_changes() -> None:
    changes: dict[str, Callable[[Residual], object]] = {
        "hook": lambda module: module.head.register_forward_hook(lambda *_: None),
        "hook of gradients": lambda module: module.head.weight.register_hook(torch.abs),
        "frozen": lambda module: module.first.weight.requires_grad_(False),
        "evaluation": lambda module: module.norms[0].eval(),
        "other forward": lambda module: setattr(module.head, "forward", torch.abs),
    }
    for name, change in changes.items():
        module = Residual()
        script = script_of(module, *batch())
        assert script is not None, name
        assert script.holds(), name
        change(module)
        assert not script.holds(), name
    module = Residual()
    script = script_of(module, *batch())
    assert script is not None
    with torch.autocast("cpu"):
        assert not script.holds()


def test_a_script_ends_when_lists_and_records_have_other_contents() -> None:
    changes: dict[str, Callable[[Configured], object]] = {
        "list in a record": lambda module: module.settings.widths.append(4),
        "record": lambda module: setattr(module.settings, "scale", 0.25),
        "namespace": lambda module: setattr(module.also, "power", 3),
        "dictionary": lambda module: module.shares.update(first=1.0),
        "deep list": lambda module: module.shares["second"][1].insert(0, 2.0),
        "number of another type": lambda module: setattr(module.settings, "norm", 1),
        "global name": lambda _: LIMITS.update(highest=1.0),
    }
    for name, change in changes.items():
        module = Configured()
        script = script_of(module, *batch())
        assert script is not None, name
        assert script.holds(), name
        limits = dict(LIMITS)
        change(module)
        assert not script.holds(), name
        LIMITS.update(limits)


def test_making_a_script_leaves_the_module_as_it_is() -> None:
    module = Residual()
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    generator = torch.get_rng_state()
    assert script_of(module, *batch()) is not None
    assert bits(before) == bits(module.state_dict())
    assert torch.equal(generator, torch.get_rng_state())
    assert all(p.grad is not None and bool((p.grad == 1).all()) for p in module.parameters())


def test_other_batches_go_through_autograd() -> None:
    script = script_of(Residual(), *batch())
    assert script is not None
    images, labels = batch()
    assert script.play(images, labels) is not None
    assert (
        script.play(images.contiguous(memory_format=torch.contiguous_format).expand(4, 1, 8, 8)[:3], labels[:3]) is None
    )
    assert script.play(images.double(), labels) is None
    assert script.play(torch.randn(4, 1, 8, 16)[..., ::2], labels) is None


def test_long_passes_and_rare_sizes_have_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_scripts, "SIZES", 2)
    module = Residual().train()
    scripts = Scripts(module, dict[str, Tensor](module.named_parameters()), CrossEntropy(), draws=False)
    assert [scripts.of(*batch(size)) is not None for size in (4, 4, 5, 5, 6, 6, 4)] == [0, 1, 0, 1, 0, 0, 1]
    monkeypatch.setattr(network_scripts, "LONGEST", 0.0)
    assert script_of(Residual(), *batch()) is None


def test_a_client_whose_labels_do_not_fit_is_named_in_one_line() -> None:
    data = federation()
    data.train.labels[int(data.offsets[5])] = 7  # there are four classes
    engine = LocalEngine(data, as_model(built("residual")), Training(batch_size=4), FedAvg(), 3, 1)
    with pytest.raises(ClientError, match=r"^client 5: IndexError: .*out of bounds") as caught:
        list(engine.train(engine.initial_model(), 1, Cohort(np.array([0, 1, 5])), FedAvg()))
    assert "\n" not in str(caught.value)
    engine.close()
