"""The networks of the cases in plain PyTorch, the same for the bare loop and for FedCohort."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.core.token_shape import TokenShape
from fedcohort.models import ResNet18
from fedcohort.models.sequence_models import Lstm, Transformer

from .definitions import VOCABULARY, Case

__all__ = ["build"]


class OwnMlp(nn.Module):
    """A perceptron as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(784, 200)
        self.head = nn.Linear(200, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(x.size(0), -1)
        logits: Tensor = self.head(functional.relu(self.hidden(x)))
        return logits


class OwnReading(OwnMlp):
    """A perceptron that reads another number in every forward pass, so that Python has to run it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x / max(1.0, float(x.abs().max()) / 10))


class OwnChecking(OwnMlp):
    """A perceptron that checks its inputs in every forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        assert not torch.isnan(x).any(), "missing values"
        return super().forward(x)


class Adapted(nn.Module):
    """A frozen linear layer with a trained low-rank adapter (LoRA)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(8, inputs) / inputs**0.5)
        self.up = nn.Parameter(torch.zeros(outputs, 8))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x) + x @ self.down.T @ self.up.T
        return outputs


class OwnAdapted(nn.Module):
    """A perceptron with 5.8 million frozen parameters, adapters and a trained last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Adapted(784, 2048), Adapted(2048, 2048)
        self.head = nn.Linear(2048, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(functional.relu(self.second(functional.relu(self.first(x.flatten(1))))))
        return logits


class OwnFrozen(nn.Module):
    """A frozen ResNet-18 with a trained layer on its features."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.body = ResNet18(norm="group").build(case.shape, 64).requires_grad_(False)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(functional.relu(self.body(x)))
        return logits


class OwnAttention(nn.Module):
    """Attention over the rows of an image, as people write it: it puts a token in front of them, and keeps the attention."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Linear(28, 32)
        self.token = nn.Parameter(torch.zeros(32))
        self.queries, self.keys, self.values = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)
        self.attention: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        sequence = torch.empty(len(x), 29, 32)
        sequence[:, 0] = self.token
        sequence[:, 1:] = self.rows(x.flatten(1).view(-1, 28, 28))
        scores = self.queries(sequence) @ self.keys(sequence).transpose(1, 2)
        self.attention = torch.softmax(scores / 32**0.5, dim=-1)
        logits: Tensor = self.head(self.norm(sequence + self.attention @ self.values(sequence))[:, 0])
        return logits


class OwnCnn(nn.Module):
    """A convolutional network as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 64, 3, padding=1)
        self.fc1 = nn.Linear(4096, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = torch.flatten(functional.relu(self.conv3(x)), 1)
        logits: Tensor = self.fc2(functional.relu(self.fc1(x)))
        return logits


class OwnBlock(nn.Module):
    """Two convolutions with batch norms, and the inputs added to their outputs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(x + self.norm2(self.conv2(hidden)))


class OwnResidual(nn.Module):
    """A small residual network as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(*(OwnBlock(16) for _ in range(3)))
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(functional.relu(self.first(x))).mean((2, 3)))
        return logits


class Gpt2(nn.Module):
    """A small GPT-2 of Hugging Face's ``transformers``, with its Dropout of 0.1."""

    def __init__(self, length: int) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        sizes: dict[str, Any] = {"n_embd": 64, "n_layer": 2, "n_head": 4}
        self.model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=length, use_cache=False, **sizes))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=x).logits
        return logits


def _mlp_batchnorm() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.BatchNorm1d(200), nn.ReLU(), nn.Linear(200, 10))


def _mlp(activation: Callable[[], nn.Module] = nn.ReLU, *, dropout: float = 0.0) -> nn.Module:
    dropped = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), activation(), *dropped, nn.Linear(200, 10))


def _cnn(activation: Callable[[], nn.Module] = nn.ReLU, *, norm: bool = False, dropout: float = 0.0) -> nn.Module:
    layers: list[nn.Module] = []
    for before, width, pool in ((3, 32, True), (32, 64, True), (64, 64, False)):
        layers += [nn.Conv2d(before, width, 3, padding=1), *([nn.GroupNorm(8, width)] if norm else []), activation()]
        layers += [nn.MaxPool2d(2)] if pool else []
    layers += [nn.Flatten(), nn.Linear(4096, 64), activation(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def _text(case: Case) -> TokenShape:
    return TokenShape(case.shape, vocabulary=VOCABULARY, each_position=True)


_BUILDERS: dict[str, Callable[[Case], nn.Module]] = {
    "mlp": lambda _: _mlp(),
    "own_mlp": lambda _: OwnMlp(),
    "own_reading": lambda _: OwnReading(),
    "own_checking": lambda _: OwnChecking(),
    "own_attention": lambda _: OwnAttention(),
    "own_adapted": lambda _: OwnAdapted(),
    "own_frozen": OwnFrozen,
    "mlp_gelu": lambda _: _mlp(nn.GELU),
    "mlp_dropout": lambda _: _mlp(dropout=0.5),
    "mlp_batchnorm": lambda _: _mlp_batchnorm(),
    "logistic": lambda case: nn.Sequential(nn.Flatten(), nn.Linear(int(torch.Size(case.shape).numel()), 10)),
    "cnn": lambda _: _cnn(),
    "own_cnn": lambda _: OwnCnn(),
    "gpt2": lambda case: Gpt2(case.shape[0]),
    "cnn_groupnorm": lambda _: _cnn(norm=True),
    "cnn_dropout": lambda _: _cnn(dropout=0.5),
    "cnn_tanh": lambda _: _cnn(nn.Tanh),
    "residual": lambda _: OwnResidual(),
    "resnet_group": lambda case: ResNet18(norm="group").build(case.shape, 10),
    "resnet_batch": lambda case: ResNet18(norm="batch").build(case.shape, 10),
    "lstm": lambda case: Lstm().build(_text(case), VOCABULARY),
    "transformer": lambda case: Transformer().build(_text(case), VOCABULARY),
    "transformer_wide": lambda case: Transformer(width=256).build(_text(case), VOCABULARY),
    "transformer_dropout": lambda case: Transformer(dropout=0.1).build(_text(case), VOCABULARY),
}


def build(case: Case) -> nn.Module:
    """The network of a case with random weights, the same at every call."""
    torch.manual_seed(0)
    return _BUILDERS[case.network](case)
