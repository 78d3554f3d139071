"""Networks that have scripts, and networks whose Python code must run in every step. pytest does not rewrite the code of this file."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training.example_networks import SHAPE

LENGTH, TOKENS, WIDTH = 7, 9, 8


class Residual(nn.Module):
    """Convolutions with batch norms, and additions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.convolutions = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(2))
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = functional.relu(x + norm(convolution(x)))
        return self.head(x.mean((2, 3)))


class Gated(nn.Module):
    """Layer norm, a gate, a constant, in-place calls, a parameter that is used twice, one that is frozen and one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.value, self.gate = nn.LayerNorm(64), nn.Linear(64, 16), nn.Linear(64, 16, bias=False)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.shift = nn.Parameter(torch.full((16,), 0.1), requires_grad=False)
        self.mask = (torch.arange(16) % 5 > 0).float()
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x.flatten(1))
        gate = torch.sigmoid(self.gate(x).mul_(self.scale))
        hidden = self.value(x) * (gate + gate.data.abs()) * torch.tensor([0.5, 2.0] * 8) + self.shift
        return self.head(functional.relu(hidden * self.mask, inplace=True) * self.scale)


class Unused(Residual):
    """With a parameter that has no part in the outputs, and so no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(3, 3)


class Mixed(nn.Module):
    """Grouped, dilated and transposed convolutions, instance norm, upsampling, and paths that are joined."""

    def __init__(self) -> None:
        super().__init__()
        self.grouped = nn.Conv2d(1, 6, 3, padding=2, dilation=2)
        self.single = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.norm = nn.InstanceNorm2d(6, affine=True)
        self.up = nn.ConvTranspose2d(6, 2, 2, stride=2)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.leaky_relu(self.norm(self.single(self.grouped(x))))
        both = torch.cat(
            [functional.avg_pool2d(self.up(x), 2), functional.interpolate(x[:, :2, ::2, ::2], scale_factor=2)], 1
        )
        parts = torch.stack(both.chunk(2, dim=1)).amax(0)
        return self.head(torch.cat([parts.mean(dim=(2, 3)), both.flatten(2).std(dim=2), parts.amax(dim=(2, 3))], dim=1))


class Doubled(nn.Module):
    """A weight that is used twice, and a norm of weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(nn.Linear(64, 12))
        self.square, self.head = nn.Linear(12, 12), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x.flatten(1)))
        return self.head(self.square(torch.tanh(self.square(x))))


class Normed(nn.Module):
    """A perceptron with norms, a residual addition and Dropout."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(64, 12), nn.BatchNorm1d(12)
        self.second, self.other = nn.Linear(12, 12), nn.LayerNorm(12)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.first(x.flatten(1))))
        return self.head(self.dropout(x + functional.gelu(self.other(self.second(x)))))


class Looked(nn.Module):
    """Keeps attention and activations in attributes that no forward pass reads, in places that it has and in new ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.head = nn.Linear(8, 8), _Kept(), nn.Linear(8, 4)
        self.attention: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1).view(-1, 8, 8))
        attention = torch.softmax(x @ x.transpose(1, 2), 2)
        self.attention, self.largest = attention, attention.detach().amax()
        return self.head(self.inner(attention @ x).mean(1))

    def looked_at(self) -> Tensor | None:
        """What was kept."""
        return self.attention


class Reread(Looked):
    """Reads what it has just kept."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1).view(-1, 8, 8))
        if x.shape[1] > 4:
            x = x * 1.5
        self.attention = torch.softmax(x @ x.transpose(1, 2), 2)
        return self.head(self.inner(self.attention @ x).mean(1))


class _Kept(nn.Module):
    """Keeps its inputs, in a list."""

    def forward(self, x: Tensor) -> Tensor:
        self.inputs = [x, x.shape]
        return torch.tanh(x)


class Assigned(nn.Module):
    """Assigns to parts of tensors that it makes: a mask, a sequence that is put together, and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.start, self.head = nn.Linear(8, 8), nn.Parameter(torch.linspace(-1, 1, 8)), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1).view(-1, 8, 8))
        mask = torch.zeros(8, 8)
        mask[torch.ones(8, 8).triu(1).bool()] = -1e9
        whole = torch.empty(len(x), 9, 8)
        whole[:, 0], whole[:, 1:] = self.start, torch.softmax(x @ x.transpose(1, 2) + mask, 2) @ x
        whole[:, ::2] += 0.5
        sizes = {}
        sizes["length"] = whole.shape[1]
        outputs = self.head(whole.sum(1) / sizes["length"])
        outputs[:, 1] = torch.tanh(outputs[:, 1])
        return outputs


class Covered(Normed):
    """Changes its inputs in place: a part of each image is covered."""

    def forward(self, x: Tensor) -> Tensor:
        x[:, :, 2:5, 3] = 0.25
        return super().forward(x.mul_(1.5))


class Indexed(nn.Module):
    """Selections by integers, from tensors and from a table, and a sum of a list."""

    places: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.heads = nn.Linear(8, 8), nn.ModuleList(nn.Linear(8, 4) for _ in range(3))
        self.table = nn.Parameter(torch.linspace(-1, 1, 15).view(15, 1))
        self.register_buffer("places", (torch.arange(8)[:, None] - torch.arange(8) + 7))
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1).view(-1, 8, 8) + self.table[self.places].squeeze(-1))
        largest = x.detach().sum(-1).argmax(1)
        x = self.norm(x[torch.arange(len(x)), largest] + x[:, torch.tensor([0, 3, 3])].sum(1))
        return sum(head(x) for head in self.heads)


class Wide(nn.Module):
    """A layer of which the products are left to the faster library, see :mod:`fedcohort.training.matrix_products`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(64, 4096), nn.BatchNorm1d(4096), nn.Linear(4096, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.relu(self.norm(self.first(x.flatten(1)))))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU] = nn.LSTM, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.layers = kind(WIDTH, WIDTH, 2, batch_first=True, dropout=dropout)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        outputs, _ = self.layers(self.embedding(x))
        return self.head(outputs)


class Attention(nn.Module):
    """PyTorch's own layers of transformers, with a mask."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Parameter(torch.linspace(-1, 1, LENGTH * WIDTH).view(LENGTH, WIDTH))
        self.layers = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=dropout, batch_first=True)
        self.register_buffer("mask", torch.ones(LENGTH, LENGTH).triu(1).bool())
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(x) + self.positions, src_mask=self.mask))


class Dropping(Residual):
    """Drops numbers, channels, and whole paths."""

    def forward(self, x: Tensor) -> Tensor:
        x = functional.dropout2d(self.first(x), 0.3, self.training)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            path = functional.relu(norm(convolution(x)))
            if self.training:
                path = path * torch.empty(len(x), 1, 1, 1).bernoulli_(0.8) / 0.8
            x = x + path
        return self.head(functional.alpha_dropout(x.mean((2, 3)), 0.2, self.training))


class Noisy(Residual):
    """Draws by functions that take no generator unless they are given one."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        x = x + 0.1 * torch.randn_like(x) * torch.rand(len(x), 1, 1, 1)
        x = torch.lerp(x, x[torch.randperm(len(x))], 0.2)
        return super().forward(x) * torch.empty(len(x), 1).bernoulli_(0.8) + 0.1 * torch.randint(0, 3, (len(x), 4))


class Begun(nn.Module):
    """The first state of a recurrent layer on the device of the first parameter, and functions of Python that only compute."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.GRU(8, 8, batch_first=True)
        self.heads = nn.ModuleList(nn.Linear(8, 4) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        first = next(self.parameters())
        hidden = torch.zeros(1, len(x), 8, device=first.device, dtype=first.dtype)
        outputs, _ = self.layers(x.flatten(1).view(-1, 8, 8), hidden)
        parts = dict(zip("ab", map(torch.tanh, outputs[:, slice(6, 8)].unbind(1)), strict=True))
        return sum(head(part) for head, part in zip(iter(self.heads), parts.values(), strict=True))


@dataclass
class Settings:
    """What the forward passes of :class:`Configured` read."""

    widths: list[int]
    scale: float = 0.5
    norm: bool = True


LIMITS = {"lowest": -2.0, "highest": 2.0}


class Configured(nn.Module):
    """Reads lists, a dictionary, a record and a namespace of numbers, and a root by numpy."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = Settings([16, 8])
        self.also = SimpleNamespace(mode="tanh", power=2)
        self.shares: dict[str, Any] = {"first": 0.25, "second": (0.5, [1.5])}
        sizes = [64, *self.settings.widths]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer, width in zip(self.layers, self.settings.widths, strict=True):
            x = layer(x) / np.sqrt(width)
            x = torch.tanh(x) if self.also.mode == "tanh" else torch.relu(x)
        x = self.norm(x) if self.settings.norm else x
        x = x.clamp(LIMITS["lowest"], LIMITS["highest"]) * self.settings.scale + self.shares["second"][1][0]
        return self.head(x * self.shares["first"] ** self.also.power)


class Checked(Residual):
    """Checks its inputs before batch norms change their buffers."""

    def forward(self, x: Tensor) -> Tensor:
        assert not torch.isnan(x).any(), f"{tuple(x.shape)} with missing values"
        if torch.equal(x, torch.zeros_like(x)):
            raise ValueError("only zeros")
        return super().forward(x)


class Asked(nn.Module):
    """Makes other calls for some batches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(64), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        outputs = self.layer(self.norm(x))
        return outputs * torch.tensor([0.5, 1.0, 1.0, 2.0]) if x.sum() > -30 else outputs.tanh()


class AskedLater(Asked):
    """Makes other calls after a batch norm has changed its buffers, and another layer the features."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64)  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        x = x.clamp_(-4, 4).flatten(1)
        outputs = self.layer(self.norm(x))
        return outputs * 2 if x.sum() > -30 else outputs.tanh()


class CheckedLater(Residual):
    """Checks its outputs."""

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        assert not torch.isnan(outputs).any(), "missing values"
        return outputs


class Tempered(Asked):
    """Reads a frozen parameter and a buffer as numbers."""

    power: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.7), requires_grad=False)
        self.register_buffer("power", torch.tensor(2))

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.layer(self.norm(x.flatten(1))) ** int(self.power)
        return outputs / self.temperature.item()


class Padded(nn.Module):
    """Reads the length of the longest sequence of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        longest = int((x > 1).sum(1).max())
        outputs, _ = self.layers(self.embedding(x[:, :longest]))
        return functional.pad(self.head(outputs), (0, 0, 0, x.shape[1] - longest))


IMAGES: dict[str, type[nn.Module]] = {
    "checked": Checked,
    "checked later": CheckedLater,
    "tempered": Tempered,
    "configured": Configured,
    "dropping": Dropping,
    "noisy": Noisy,
    "begun": Begun,
    "normed": Normed,
    "residual": Residual,
    "gated": Gated,
    "unused": Unused,
    "mixed": Mixed,
    "doubled": Doubled,
    "wide": Wide,
    "indexed": Indexed,
    "looked at": Looked,
    "reread": Reread,
    "assigned": Assigned,
    "covered": Covered,
}
TEXTS: dict[str, Callable[[], nn.Module]] = {
    "padded": Padded,
    "LSTM": Recurrent,
    "GRU": lambda: Recurrent(nn.GRU),
    "attention": Attention,
    "LSTM with Dropout": lambda: Recurrent(dropout=0.2),
    "attention with Dropout": lambda: Attention(0.1),
}


class Teaching(nn.Module):
    """A frozen teacher that follows the student, weights that decay, and a mean that is a plain tensor, in every pass of the training.

    No script can be made of it, and the attempt must not be another pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher, self.head = nn.Linear(64, 8), nn.Linear(64, 8), nn.Linear(8, 4)
        self.teacher.requires_grad_(False)
        self.mean, self.place = torch.zeros(8), torch.zeros(8)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        if self.training:
            with torch.no_grad():
                for own, other in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                    own.mul_(0.9).add_(other, alpha=0.1)
                self.student.weight.mul_(0.99)
                self.mean = 0.9 * self.mean + 0.1 * self.student(x).mean(0)
                self.place.mul_(0.9).add_(self.mean)
        return self.head(torch.relu(self.student(x)) + self.teacher(x) - self.mean - self.place)


class Base(nn.Module):
    """A network without a program, because of its layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(64), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.norm(x.flatten(1)))


class Listed(Base):
    def forward(self, x: Tensor) -> Tensor:
        largest = max(x.flatten().tolist())
        return super().forward(x) * (2 if largest > 3 else 1)


class Arrays(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * float(x.detach().numpy().mean())


class Zero(Base):
    """Reads zero, which may be -0.0 next time."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * float(torch.copysign(torch.zeros(()), x.sum()))


class Measuring(Base):
    """Reads a number that differs from batch to batch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x / max(1.0, float(x.abs().max())))


class Asking(Base):
    """Reads more numbers than a script may."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        assert not any(some.isnan().any() for some in (*x.T, x))
        return super().forward(x)


class Chosen(Base):
    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        return outputs + outputs[outputs > 0].sum()


class Counting(Base):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        Counting.calls += 1
        return super().forward(x) * (1 + Counting.calls % 3)


class Kept(Base):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(float(x.sum()))
        return super().forward(x)


class Drawn(Base):
    """Draws from Python's generator, or numpy's."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * random.choice([1.0, 2.0]) * float(np.random.default_rng().random())


class Written(Base):
    """Changes a tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        self.steps.add_(1)
        return super().forward(x) * self.steps


class Rescaled(Base):
    """Changes its parameters while it computes."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.layer.weight.mul_(0.99)
        return super().forward(x)


class _Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> Tensor:
        return delta * 2


class OwnGradient(Base):
    def forward(self, x: Tensor) -> Tensor:
        return _Doubling.apply(super().forward(x))


class Observed(Base):
    """Keeps a norm of gradients by a hook of a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        outputs.register_hook(torch.abs)
        return outputs


class Seeding(Base):
    """Draws the same numbers in every step."""

    def forward(self, x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return super().forward(functional.dropout(x, 0.5, self.training))


CALLS: list[int] = []


class _Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)

    def encode(self, x: Tensor) -> Tensor:
        CALLS.append(len(x))
        return self.norm(x.flatten(1))


class Encoding(nn.Module):
    """Calls a method of a part that is not its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = _Encoder(), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder.encode(x))


class _Scaled(nn.Conv2d):
    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        CALLS.append(len(x))
        return super()._conv_forward(x, weight, bias)


class Overriding(Base):
    """A layer that changes a method which PyTorch's forward pass calls."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = _Scaled(1, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.convolution(x))


class _Printing(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        CALLS.append(len(x))
        return super().forward(x)


class Parametrized(Base):
    """A layer of a user, of which PyTorch has made a class of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrize.register_parametrization(_Printing(64, 4), "weight", nn.Identity())  # type: ignore[assignment]


def _counted(x: Tensor) -> Tensor:
    CALLS.append(len(x))
    return functional.relu(x)


class Activated(Base):
    """A function of a user inside a layer of PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.TransformerEncoderLayer(8, 2, 8, 0.0, activation=_counted, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.attention(x[:, 0]))


class Expanded(Base):
    """A buffer that cannot be written to."""

    ones: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ones", torch.ones(1, 64).expand(4, 64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1) * self.ones[0])


class Logging(Base):
    """Keeps the largest outputs in a list, and in a dictionary that it gets from another function."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        seen = self.seen
        seen.append(len(seen))
        return outputs


class Storing(Base):
    """Keeps the sizes of batches in a dictionary that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, int] = {}

    def forward(self, x: Tensor) -> Tensor:
        sizes = self.sizes
        sizes["last"] = len(x)
        return super().forward(x)


class Overwriting(Base):
    """Assigns to a part of a tensor that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x) + self.shift
        self.shift[0] += 1.0
        return outputs


class Recalling(Base):
    """Reads what it kept in the step before."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        outputs, self.last = outputs + self.last, outputs.detach().mean()
        return outputs


class Sometimes(Base):
    """Keeps something in every second call, and reads it in all."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        if x.shape[0] > 100:
            self.last = outputs.detach().mean()
        return outputs + self.last


class Late(Base):
    """Reads an attribute before it sets it."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x) + self.last
        self.last = outputs.detach().mean()
        return outputs + self.last


class Inside(Base):
    """Reads an attribute of a part that has the name of one that it has set."""

    def __init__(self) -> None:
        super().__init__()
        self.part = _Kept()
        self.part.inputs = torch.zeros(())  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        self.inputs = outputs.detach().mean()
        outputs = outputs + self.part.inputs.mean()  # type: ignore[attr-defined]
        self.part(outputs)
        return outputs


class Trying(Base):
    """Reads an attribute that an error may have left unset."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        try:
            self.last = outputs.view(3, 5, 7).mean()
        except RuntimeError:
            outputs = outputs * 2
        return outputs + self.last


class Naming(Base):
    """Reads what it kept by a name that it puts together."""

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x) + getattr(self, "la" + "st", 0.0)
        self.last = outputs.detach().mean()
        return outputs


class Exchanging(Base):
    """Replaces a layer by another."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [self.layer, nn.Linear(64, 4)]

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        self.layer = self.layers[len(x) % 2]
        return outputs


class _Inner(nn.Linear):
    """Sets an attribute that PyTorch's class reads."""

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        self.in_features = 1
        return outputs


class Narrowing(Base):
    """Has such a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = _Inner(64, 4)


class Marking(Base):
    """Sets an attribute of its outputs."""

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        outputs.kept = 1  # type: ignore[attr-defined]
        return outputs


class Elsewhere(Base):
    """Sets an attribute of something that is not a part of it."""

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        CALLED.last = float(len(x))
        return outputs


CALLED = SimpleNamespace(last=0.0)


class _Counted(SimpleNamespace):
    """Counts how often it is read."""

    def __getattribute__(self, name: str) -> Any:
        CALLS.append(1)
        return super().__getattribute__(name)


class Watched(Base):
    def __init__(self) -> None:
        super().__init__()
        self.settings = _Counted(scale=2.0)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.settings.scale


@dataclass
class _Growing:
    """A record whose field is computed."""

    reads: int = 0

    @property
    def scale(self) -> float:
        self.reads += 1
        return 1.0 + self.reads


class Growing(Base):
    def __init__(self) -> None:
        super().__init__()
        self.settings = _Growing()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.settings.scale


class Rooted(Base):
    """Reads the values of a parameter by numpy."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * float(np.sqrt(np.abs(self.layer.bias.detach())).sum())


class Shuffled(Base):
    """Draws by numpy."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * np.random.rand()  # noqa: NPY002


def _forward_with(numbers: Any) -> Callable[[Base, Tensor], Tensor]:
    def forward(self: Base, x: Tensor) -> Tensor:
        return Base.forward(self, x) * float(numbers.random.rand())

    return forward


class Enclosed(Base):
    """Draws by numpy, which is a variable of an enclosing function."""

    forward = _forward_with(np)  # type: ignore[assignment]


REFUSED: dict[str, type[nn.Module]] = {
    kind.__name__: kind
    for kind in (
        Listed, Arrays, Zero, Measuring, Asking, Chosen, Counting, Kept, Drawn, Written, Rescaled, OwnGradient, Observed,
        Seeding, Encoding, Overriding, Parametrized, Activated, Expanded, Logging, Watched, Growing, Rooted, Shuffled, Enclosed,
        Storing, Overwriting, Recalling, Sometimes, Late, Inside, Trying, Naming, Exchanging, Narrowing, Marking, Elsewhere,
    )
}  # fmt: skip

__all__ = [
    "IMAGES",
    "LENGTH",
    "LIMITS",
    "REFUSED",
    "SHAPE",
    "TEXTS",
    "TOKENS",
    "Asked",
    "AskedLater",
    "Base",
    "Configured",
    "Normed",
    "Padded",
    "Residual",
]
