"""Idle threads take a part of the convolutions and products in scripts: the bits stay the same."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from fedcohort.algorithms import FedAvg, ModelState, Update
from fedcohort.algorithms.losses import CrossEntropy
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.script_threads import can_fork
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import as_model
from fedcohort.selection import Cohort
from fedcohort.training import matrix_products
from fedcohort.training.matrix_products import quick_products
from fedcohort.training.programs import shared_gradients
from fedcohort.training.programs.divided_calls import most_parts
from fedcohort.training.scripts import call_sharing, network_scripts
from fedcohort.training.scripts.network_scripts import Scripts
from fedcohort.training.scripts.recorded_passes import pass_by_autograd
from fedcohort.training.scripts.scripted_passes import ScriptedPass
from tests.training.scripted_networks import IMAGES, Residual
from tests.training.scripts.test_scripted_passes import federation
from tests.training.test_client_series import facts

SIZE = 6


class Reused(nn.Module):
    """Gradients of weights that are needed before the end: of a normalized weight, and of a convolution that is used twice; and
    calls that change what a convolution has read."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.normed = parametrizations.weight_norm(nn.Conv2d(4, 4, 3, padding=1))
        self.twice = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norms = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.normed(self.first(x)), inplace=True)
        x = self.twice(functional.silu(self.twice(x), inplace=True)).mul_(0.7)
        x = self.norms(x)
        return self.head(self.norm(x.amax((2, 3))))


class Line(nn.Module):
    """Convolutions in one dimension, one of them grouped."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(1, 6, 5, padding=2), nn.Conv1d(6, 6, 3, padding=1, groups=2)
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.second(torch.sigmoid(self.first(x.flatten(2)))))
        return self.head(self.norm(x.mean(2)))


class Rows(nn.Module):
    """Attention over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x.squeeze(1)).mean(1))


class Heads(nn.Module):
    """Attention in two heads over the rows of an image, with two kinds of GELU."""

    def __init__(self, causal: bool, scale: float | None) -> None:
        super().__init__()
        self.project, self.wide, self.head = nn.Linear(8, 24), nn.Linear(8, 16), nn.Linear(16, 4)
        self.causal, self.scale = causal, scale

    def forward(self, x: Tensor) -> Tensor:
        rows = self.project(x.squeeze(1))
        query, key, value = rows.unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal, scale=self.scale)
        wide = functional.gelu(self.wide(found.transpose(1, 2).flatten(2)))
        return self.head(functional.gelu(wide, approximate="tanh").mean(1))


CONVOLUTIONS = {"reused": Reused, "line": Line} | {name: IMAGES[name] for name in ("residual", "mixed", "unused")}
PRODUCTS: dict[str, Callable[[], nn.Module]] = {"rows": Rows, "rows by oneDNN": lambda: quick_products(Rows())}


@pytest.fixture(autouse=True)
def _all_convolutions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Scripts from the second batch on, in which even small convolutions are shared, and one intra-op thread."""
    monkeypatch.setattr(network_scripts, "USES", 1)
    monkeypatch.setattr(network_scripts, "LONGEST", 60.0)  # first calls take long on a busy machine
    monkeypatch.setattr(call_sharing, "takes_long", lambda *_: True)
    monkeypatch.setattr(call_sharing, "WORTH_OF_CONVOLUTION", 1)
    monkeypatch.setattr(call_sharing, "WORTH_OF_PRODUCT", 1)
    monkeypatch.setattr(call_sharing, "WORTH_OF_ATTENTION", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def batch(seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    images = torch.randn(SIZE, 8, 8, 1, generator=draw).permute(0, 3, 1, 2)
    return images, torch.randint(0, 4, (SIZE,), generator=draw)


def scripts_of(module: nn.Module, idle: Tensor) -> Scripts:
    trained: dict[str, Tensor] = dict(module.named_parameters())
    scripts = Scripts(module.train(), trained, CrossEntropy(), draws=False)
    scripts.share_work(idle)
    for seed in (1, 2):
        scripts.of(*batch(seed))
    return scripts


def outcome(module: nn.Module, results: tuple[Tensor, Tensor] | None) -> list[Tensor]:
    assert results is not None
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return [tensor.clone() for tensor in (*results, *gradients, *module.buffers())]


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_idle_threads_change_no_bits_of_convolutions(name: str) -> None:
    torch.manual_seed(0)
    source = same_with_idle_threads(CONVOLUTIONS[name]())
    assert "convolution_gradients(" in source
    assert "convolution_outputs(" in source


@pytest.mark.parametrize("name", PRODUCTS)
def test_idle_threads_change_no_bits_of_products(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_scripts, "LARGE", 1)
    if name.endswith("oneDNN"):
        monkeypatch.setattr(matrix_products, "_float32_product", lambda: by_onednn)
        monkeypatch.setattr(matrix_products, "_large", lambda: 0)
        monkeypatch.setattr(matrix_products, "_quick_for_sequences", lambda: True)
    torch.manual_seed(0)
    source = same_with_idle_threads(PRODUCTS[name]())
    assert ("linear_outputs(" in source) == name.endswith("oneDNN")
    assert "= product(" in source


@pytest.mark.parametrize(("causal", "scale"), [(False, None), (True, 1e-5)])
def test_idle_threads_change_no_bits_of_attention_and_activations(
    causal: bool, scale: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_scripts, "LARGE", 1)
    torch.manual_seed(0)
    source = same_with_idle_threads(Heads(causal, scale))
    counts = {name: source.count(f"= {name}(") for name in ("attention_outputs", "attention_gradients")}
    counts |= {name: source.count(f"= {name}(") for name in ("gelu_outputs", "gelu_gradients")}
    assert counts == {"attention_outputs": 1, "attention_gradients": 1, "gelu_outputs": 2, "gelu_gradients": 2}
    factor = 'float("1e-05")' if scale else "None"
    assert f", {causal}, {factor}, " in source


def test_attention_with_a_mask_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask may have another shape than the samples."""
    monkeypatch.setattr(network_scripts, "LARGE", 1)
    whole = functional.scaled_dot_product_attention

    def masked(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float | None) -> Tensor:
        return whole(query, key, value, attn_mask=torch.ones(8, 8).tril(), scale=scale)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", masked)
    torch.manual_seed(0)
    source = same_with_idle_threads(Heads(causal=True, scale=None))
    assert "_flash_attention_for_cpu" in source
    assert "attention_outputs(" not in source


def by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    outputs: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return outputs


def same_with_idle_threads(module: nn.Module) -> str:
    """The script of a network, whose bits must not depend on the number of idle threads."""
    idle = torch.tensor(0)
    script = scripts_of(module, idle).known(SIZE)
    assert script is not None
    buffers = [buffer.clone() for buffer in module.buffers()]
    for seed in range(10):
        images, labels = batch(seed)
        found = []
        for number in (None, 0, 1, 2, 3):
            for buffer, value in zip(module.buffers(), buffers, strict=True):
                buffer.copy_(value)
            for parameter in module.parameters():
                parameter.grad = None
            if number is None:
                found.append(outcome(module, pass_by_autograd(module, CrossEntropy(), images, labels)))
            else:
                idle.fill_(number)
                found.append(outcome(module, script.play(images, labels)))
        assert all(torch.equal(one, found[0][i]) for others in found[1:] for i, one in enumerate(others))
        assert {len(one) for one in found} == {len(found[0])}
    return script.source


def test_parts_have_at_least_some_work_and_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_interop_threads", lambda: 4)
    whole = torch.arange(5.0)
    tried: list[int] = []

    def of_part(begin: int, end: int) -> list[Tensor]:
        tried.append(end - begin)
        return [whole[begin:end] + (end - begin == 1)]  # another algorithm for a single sample

    assert most_parts(of_part, [whole], 19, 10) == 1
    assert tried == [], "two parts are not worth it"
    assert most_parts(of_part, [whole], 29, 10) == 2
    assert sorted(tried) == [2, 3], "each number of samples is tried once"
    assert most_parts(of_part, [whole], 1000, 10) == 2, "of three parts, one has a single sample"
    assert most_parts(lambda begin, end: [whole[begin:end]], [whole], 1000, 10) == 4, "one part for each thread"


def test_parts_of_other_bits_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_sharing, "most_parts", lambda *_: 1)
    script = scripts_of(Residual(), torch.tensor(1)).known(SIZE)
    assert script is not None
    assert "convolution_outputs(" not in script.source
    assert "convolution_gradients(" in script.source


def test_long_passes_have_scripts_if_threads_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are used for one step at a time."""
    monkeypatch.setattr(network_scripts, "LONGEST", 0.0)
    idle, module = torch.tensor(0), Residual()
    scripts = scripts_of(module, idle)
    for seed in range(5):
        assert scripts.of(*batch(seed)) is None, "no thread is idle"
    idle.fill_(1)
    assert scripts.of(*batch(1)) is None
    script = scripts.of(*batch(2))
    assert script is not None
    assert script.takes_long
    idle.fill_(0)
    assert scripts.of(*batch(3)) is script, "it has the bits of autograd, whether threads are idle or not"
    assert scripts_of(module, torch.tensor(1)).known(SIZE), "threads are idle at the first attempt"
    without = nn.Sequential(nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 4))
    idle.fill_(1)
    assert scripts_of(without, idle).impossible(SIZE), "it has nothing to share"
    monkeypatch.setattr(call_sharing, "WORTH_OF_CONVOLUTION", 2**40)
    monkeypatch.setattr(call_sharing, "WORTH_OF_PRODUCT", 2**40)
    monkeypatch.setattr(call_sharing, "takes_long", lambda *_: False)
    assert scripts_of(module, idle).impossible(SIZE), "sharing is not worth it"


def test_clients_of_long_passes_learn_the_same_with_idle_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_scripts, "LONGEST", 0.0)
    calls: list[str] = []
    for name in ("play", "descend"):
        original = getattr(ScriptedPass, name)

        def noted(self: ScriptedPass, *given: Any, name: str = name, original: Any = original, **settings: Any) -> Any:
            calls.append(name)
            return original(self, *given, **settings)

        monkeypatch.setattr(ScriptedPass, name, noted)
    learned = []
    for workers in (1, 2):
        torch.manual_seed(0)
        training = Training(batch_size=4, epochs=2, lr=0.05, momentum=0.9)
        with closing(LocalEngine(federation(), as_model(Residual()), training, FedAvg(), 5, workers)) as engine:
            model = engine.initial_model()
            learned.append([facts(update) for client in (0, 1, 4) for update in one_client(engine, model, client)])
        assert set(calls) == ({"play"} if workers > 1 else set())
    assert learned[0] == learned[1]


def test_results_of_others_are_waited_for_before_they_are_used() -> None:
    script = scripts_of(Reused(), torch.tensor(1)).known(SIZE)
    assert script is not None
    lines = script.source.splitlines()
    assert (
        lines.count("    finish(begun)") >= 2
    )  # of the normalized weight or the one that is used twice, and at the end


def test_a_script_whose_shared_bits_differ_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that computes the gradients of the weights alone in another way than with those of the inputs."""
    module = Residual()
    assert scripts_of(module, torch.tensor(1)).known(SIZE) is not None
    kept = ScriptedPass.play

    def other(self: ScriptedPass, *given: Any, **settings: Any) -> Any:
        found = kept(self, *given, **settings)
        if self.idle:
            gradient = self._parameters[0].grad
            assert gradient is not None
            self._parameters[0].grad = torch.nextafter(gradient, torch.ones_like(gradient))
        return found

    monkeypatch.setattr(ScriptedPass, "play", other)
    assert scripts_of(module, torch.tensor(1)).known(SIZE) is None
    assert scripts_of(nn.Sequential(nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 4)), torch.tensor(1)).known(SIZE)


def test_a_client_that_is_alone_uses_both_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an engine: a script is given the number of idle threads, and clients learn the same with and without them."""
    given: list[int] = []
    helpers = ScriptedPass._helpers

    def noted(self: ScriptedPass) -> list[Tensor]:
        found = helpers(self)
        given.append(int(found[0]) if found else -1)
        return found

    monkeypatch.setattr(ScriptedPass, "_helpers", noted)
    learned = []
    training = Training(batch_size=4, epochs=2, lr=0.05, momentum=0.9)
    for workers in (1, 2):
        torch.manual_seed(0)
        with closing(LocalEngine(federation(), as_model(Residual()), training, FedAvg(), 5, workers)) as engine:
            model = engine.initial_model()
            learned.append([facts(update) for client in (0, 1, 4) for update in one_client(engine, model, client)])
        assert -1 in given  # when the script was compared with autograd
        assert (1 in given) == (workers > 1)
        given.clear()
    assert learned[0] == learned[1]


def one_client(engine: LocalEngine, model: ModelState, client: int) -> list[Update]:
    """What a client sends if nobody else is trained."""
    return list(engine.train(model, 1, Cohort(np.array([client])), FedAvg()))


def test_threads_can_be_asked() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert can_fork()
    assert shared_gradients.nothing_begun() == []
