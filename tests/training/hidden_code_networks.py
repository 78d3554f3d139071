"""Networks whose code does more than compute, without saying so in its own lines. pytest does not rewrite the code of this file."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training.scripted_networks import Base

NOTED: list[int] = []
TEMPERATURE = 1.0


class Meter:
    """Notes sizes of batches."""

    def __call__(self, x: Tensor) -> Tensor:
        NOTED.append(len(x))
        return functional.relu(x)

    def update(self, x: Tensor) -> Tensor:
        NOTED.append(len(x))
        return functional.gelu(x)


METER = Meter()


class ByName(Base):
    """A method by its name."""

    def note(self, x: Tensor) -> Tensor:
        NOTED.append(len(x))
        return x

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(getattr(self, "note")(x))  # noqa: B009


class ByParts(ByName):
    """A method by a name that is put together."""

    def forward(self, x: Tensor) -> Tensor:
        return Base.forward(self, getattr(self, "no" + "te")(x))


class Holding(Base):
    """An object that is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = Meter()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(getattr(self, "meter").update(x))  # noqa: B009


class Updating(Base):
    """An attribute that is changed without an assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def forward(self, x: Tensor) -> Tensor:
        self.__dict__.update(number=min(self.number + 1, 5))
        return super().forward(x) * self.number


class Layers(nn.Module):
    """Decides which layers it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def __iter__(self) -> Iterator[nn.Module]:
        NOTED.append(1)
        return iter([self.one, self.other])

    def __getitem__(self, number: int) -> nn.Module:
        NOTED.append(number)
        return self.one if len(NOTED) % 2 else self.other


class Iterating(Base):
    def __init__(self) -> None:
        super().__init__()
        self.layers = Layers()

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Indexing(Base):
    def __init__(self) -> None:
        super().__init__()
        self.layers = Layers()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[0](super().forward(x))


class Noting(nn.Module):
    """A module that no network has as a part."""

    @staticmethod
    def note(x: Tensor) -> Tensor:
        NOTED.append(len(x))
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.note(x)


class Static(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(Noting.note(x))


class Making(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(Noting()(x))


class Encoding(Base):
    """A function of the user in one of PyTorch's layers."""

    def __init__(self, activation: Callable[[Tensor], Tensor] = METER) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 8, 0.0, activation=activation, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.encoder(x[:, 0]))


class EncodingByMethod(Encoding):
    def __init__(self) -> None:
        super().__init__(METER.update)


def helper(x: Tensor) -> Tensor:
    attributes: Any = helper
    attributes.log(len(x))
    return x


helper.log = NOTED.append  # type: ignore[attr-defined]


class Helped(Base):
    """A function with attributes."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(helper(x))


class Global(Base):
    """An object that is a global name."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(METER.update(x))


class Saving(Base):
    """A file."""

    def forward(self, x: Tensor) -> Tensor:
        torch.save(len(x), "length.pt")
        return super().forward(x)


class Subclass(nn.Parameter):
    """A parameter that sees the functions that are called with it."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        NOTED.append(1)
        return super().__torch_function__(function, types, args, kwargs or {})


class Seen(Base):
    def __init__(self) -> None:
        super().__init__()
        self.layer.weight = Subclass(self.layer.weight.detach())


class TensorOfTensors(Base):
    """Values that PyTorch reads from a list of tensors."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * torch.tensor([row.max() for row in x])[:, None]


class OfBatch(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * x.new_tensor([x.min(), x.max(), 1.0, 1.0])


class Split(Base):
    """Positions that PyTorch reads from a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        count = (x.flatten(1).mean(1) > 0).sum().view(1)
        first, second = torch.tensor_split(super().forward(x), count)
        return torch.cat([first * 2, second])


class Packed(Base):
    """Lengths that PyTorch reads from a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x.flatten(1)[:, :8] > 0).sum(1) + 1
        packed = nn.utils.rnn.pack_padded_sequence(
            x.flatten(1)[:, :9, None], lengths, batch_first=True, enforce_sorted=False
        )
        return super().forward(x) * (packed.data.sum() / len(packed.data))


class Product(Base):
    """Autograd computes its gradient in another way while it is observed."""

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        return outputs + functional.relu(outputs[:, :2]).prod()


@torch.jit.script
def listed(x: Tensor) -> Tensor:
    values: list[float] = x.flatten().tolist()
    return x * (values[0] + 2.0)


class Scripted(Base):
    """A function of TorchScript that reads values."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(listed(x))


class Counted(Base):
    """An iterator that is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count(1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / next(self.numbers)


class Mapped(Base):
    """A function with effects that another one calls."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(next(map(METER.update, [x])))


class Catching(Base):
    """Catches the error by which reading is refused while calls are written down."""

    def forward(self, x: Tensor) -> Tensor:
        try:
            large = bool((x > 100).any().tolist())
        except:  # noqa: E722
            large = False
        return super().forward(x) * (2 if large else 1)


class Scaled(Base):
    """Numbers that may be changed between steps: an attribute, one of the class, and a global one."""

    scale = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale * self.factor / TEMPERATURE


HIDDEN: dict[str, type[nn.Module]] = {
    kind.__name__: kind
    for kind in (
        ByName, ByParts, Holding, Updating, Iterating, Indexing, Static, Making, Encoding, EncodingByMethod, Helped, Global, Saving,
        Seen, TensorOfTensors, OfBatch, Split, Packed, Product, Scripted, Counted, Mapped, Catching,
    )
}  # fmt: skip

__all__ = ["HIDDEN", "NOTED", "Scaled"]
