"""Networks of libraries have scripts, with the bits of autograd."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms.losses import CrossEntropy
from fedcohort.training.code_reading.forward_code import only_computes
from fedcohort.training.networks.random_layers import recomputes
from fedcohort.training.scripts.network_scripts import Scripts
from tests.training.example_networks import SHAPE
from tests.training.scripted_networks import LENGTH, TOKENS
from tests.training.scripts.test_scripted_passes import at_once, same_bits

__all__ = ["at_once"]  # a fixture of all tests here


class Patches(nn.Module):
    """Attention to patches of an image, by functions and layers of einops."""

    def __init__(self) -> None:
        super().__init__()
        layers = pytest.importorskip("einops.layers.torch", reason="einops is not installed")
        self.rearrange: Any = pytest.importorskip("einops").rearrange
        self.patches = layers.Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2)
        self.embed, self.three, self.head = nn.Linear(4, 8), nn.Linear(8, 24), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(self.patches(x))
        queries, keys, values = self.rearrange(self.three(x), "b n (k h d) -> k b h n d", k=3, h=2)
        x = functional.scaled_dot_product_attention(queries, keys, values)
        logits: Tensor = self.head(self.rearrange(x, "b h n d -> b n (h d)").mean(1))
        return logits


class Bert(nn.Module):
    """BERT of the Hugging Face Hub's library, with Dropout; tokens in, a class for each position out."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        transformers = pytest.importorskip("transformers", reason="transformers is not installed")
        sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
        config = transformers.BertConfig(
            vocab_size=TOKENS, max_position_embeddings=LENGTH, num_labels=TOKENS, **sizes, **settings
        )
        self.model = transformers.BertForTokenClassification(config)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=x).logits
        return logits


def test_networks_with_einops_learn_the_bits_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "descend" in same_bits(Patches(), "plain", monkeypatch)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_networks_of_the_hub_learn_the_bits_of_autograd(dropout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Bert(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    assert "descend" in same_bits(module, "plain", monkeypatch, text=True)


def test_networks_of_libraries_checkpoint_only_when_they_are_told_to() -> None:
    """With Dropout, scripts would draw other numbers in the backward pass."""
    module = Bert()
    assert not recomputes(module)
    assert Scripts(module, {}, CrossEntropy(), draws=True).possible
    module.model.activation_checkpointing_enable()
    assert recomputes(module)
    assert not Scripts(module, {}, CrossEntropy(), draws=True).possible


class Switched(nn.Module):
    """A network whose code has what users' code must not have."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.grad_checkpointing = nn.Linear(64, 4), False

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.layer(torch.utils.checkpoint.checkpoint(torch.flatten, x, 1) if self.grad_checkpointing else x)
        except RuntimeError:
            return self.layer(x.flatten(1))


@pytest.mark.parametrize(
    "library", ["timm.models.resnet", "torchvision.models.densenet", "timm_of_mine", "torch_of_mine"]
)
def test_code_of_libraries_is_not_judged(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package whose name only begins like one of them counts as code of a user."""
    known = "mine" not in library
    monkeypatch.setattr(Switched, "__module__", library)
    monkeypatch.setattr(Switched.forward, "__module__", library)
    module = Switched()
    assert only_computes(module) == known
    assert recomputes(module) == (not known)
    module.grad_checkpointing = True
    assert recomputes(module)


class Subclass(Switched):
    """A network of a library, with a forward pass of a user's own."""

    def forward(self, x: Tensor) -> Tensor:
        print("forward")
        return super().forward(x)


def test_code_of_users_in_networks_of_libraries_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Switched, "__module__", "timm.models.resnet")
    monkeypatch.setattr(Switched.forward, "__module__", "timm.models.resnet")
    assert only_computes(Switched())
    assert not only_computes(Subclass())


class Asking(nn.Module):
    """Asks how its code is run, as networks of torchvision do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SHAPE[-1] ** 2, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        if not torch.jit.is_scripting() and not torch.jit.is_tracing():  # type: ignore[attr-defined]
            x = 2 * x
        return self.layer(x)


class Compiling(Asking):
    """Compiles a function in its forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.jit.script(functional.relu)(x))


def test_asking_how_the_code_is_run_is_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "descend" in same_bits(Asking(), "plain", monkeypatch)
    assert not only_computes(Compiling())


class Activated(Asking):
    """Has a function with settings."""

    def __init__(self, activation: Any) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.activation(x))


def noted(x: Tensor, places: list[int]) -> Tensor:
    """Rolls, as often as the places say."""
    return x.roll(places[0])


def counted(x: Tensor) -> Tensor:
    """Counts its calls."""
    global CALLS
    CALLS += 1
    return x


CALLS = 0


def test_functions_with_settings_are_judged_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "play" in same_bits(Activated(partial(functional.leaky_relu, negative_slope=0.2)), "plain", monkeypatch)
    assert not only_computes(Activated(partial(noted, places=[1])))  # the list may change
    assert not only_computes(Activated(partial(counted)))
