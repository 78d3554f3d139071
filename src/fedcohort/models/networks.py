"""Models: softmax regression, a small perceptron, three small CNNs and a ResNet-18."""

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from annotated_types import Ge

from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Table, short_name
from fedcohort.models.base import Model
from fedcohort.models.given_models import AnyModel, as_model

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "MODELS",
    "CnnA",
    "CnnB",
    "CnnStrided",
    "Logistic",
    "Mlp",
    "ResNet18",
    "parameters",
]


class _OfNumbers(Model):
    """A model that reads integers as floats."""

    reads_integers = False


@parameters
class Logistic(_OfNumbers):
    """Softmax regression: one linear layer."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """See :class:`Model`."""
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), num_classes))


@parameters
class Mlp(_OfNumbers):
    """A perceptron with one hidden layer and ReLU."""

    hidden: Annotated[int, Ge(1)] = 64
    """Number of units of the hidden layer."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """See :class:`Model`."""
        from torch import nn

        return nn.Sequential(
            nn.Flatten(), nn.Linear(math.prod(shape), self.hidden), nn.ReLU(), nn.Linear(self.hidden, num_classes)
        )


@parameters
class CnnStrided(_OfNumbers):
    """A fast CNN for comparisons of many runs. It has two convolutions with stride 2 (5×5 of 32, 3×3 of 64), and a hidden layer of
    64.

    For 3×32×32 images and 10 classes, it has 283,786 parameters and takes a quarter of the time of ``cnn_a``. It is our own design.
    """

    smallest: ClassVar[int] = 4

    def build(self, shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """See :class:`Model`."""
        from torch import nn

        channels, height, width = _image("cnn_strided", shape, self.smallest)
        return nn.Sequential(
            nn.Conv2d(channels, 32, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(64 * -(-height // 4) * -(-width // 4), 64), nn.ReLU(), nn.Linear(64, num_classes),
        )  # fmt: skip


@parameters
class CnnA(_OfNumbers):
    """A small CNN for 32×32 images. It has three 3×3 convolutions (32, 64, 64), two 2×2 max-pools, and a hidden layer of 64.

    For 3×32×32 images and 10 classes, it has 319,178 parameters. The size of the hidden layer's input depends on the image size.
    """

    smallest: ClassVar[int] = 4

    def build(self, shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """See :class:`Model`."""
        from torch import nn

        channels, height, width = _image("cnn_a", shape, self.smallest)
        return nn.Sequential(
            nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(64 * (height // 4) * (width // 4), 64), nn.ReLU(), nn.Linear(64, num_classes),
        )  # fmt: skip


@parameters
class CnnB(_OfNumbers):
    """A wider CNN with group normalization. It has 3×3 convolutions of 32 and 64, pool, 128, pool, 256, pool, and a hidden layer of
    256.

    Every convolution is followed by group normalization (8 groups) and ReLU; a pool is a 2×2 max-pool. For 10 classes, it has
    1,440,778 parameters on 3×32×32 images and 981,450 on 1×28×28 images. It replaces the CNN of the conformal-prediction thesis,
    which the thesis does not describe completely (ours): the fourth convolution and the normalization are needed to reach the
    thesis's accuracy with all data in one place.
    """

    smallest: ClassVar[int] = 8

    def build(self, shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """See :class:`Model`."""
        from torch import nn

        before, height, width = _image("cnn_b", shape, self.smallest)
        layers: list[nn.Module] = []
        for channels, pool in ((32, False), (64, True), (128, True), (256, True)):
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.GroupNorm(8, channels), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if pool else []
            before = channels
        features = 256 * (height // 8) * (width // 8)
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 256), nn.ReLU(), nn.Linear(256, num_classes))


@parameters
class ResNet18(_OfNumbers):
    """ResNet-18 with the stem for small images. The stem is a 3×3 convolution with stride 1, without a max-pool.

    For 3×32×32 images and 10 classes, it has 11,173,962 parameters with either normalization. He et al. 2016, arXiv:1512.03385.
    """

    norm: Literal["group", "batch"] = "group"
    """Normalization: group norm with 32 groups, which needs no batch statistics, or batch norm with averaged statistics."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """See :class:`Model`."""
        from torch import nn

        channels, _, _ = _image("resnet18", shape, 1)
        layers = [nn.Conv2d(channels, 64, 3, padding=1, bias=False), self._norm(64), nn.ReLU()]
        before = 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [self._block(before, width, stride), self._block(width, width, 1)]
            before = width
        module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, num_classes))
        for part in module.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        return module

    def _norm(self, width: int) -> "nn.Module":
        from torch import nn

        return nn.GroupNorm(32, width) if self.norm == "group" else nn.BatchNorm2d(width)

    def _block(self, before: int, width: int, stride: int) -> "nn.Module":
        """A residual block: two 3×3 convolutions and a shortcut."""
        from torch import Tensor, nn

        class Block(nn.Module):
            def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
                super().__init__()
                self.body, self.shortcut = body, shortcut

            def forward(self, x: Tensor) -> Tensor:
                return nn.functional.relu(self.body(x) + self.shortcut(x))

        body = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, padding=1, bias=False), self._norm(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), self._norm(width),
        )  # fmt: skip
        if stride == 1 and before == width:
            return Block(body, nn.Identity())
        return Block(body, nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), self._norm(width)))


class _Models(Table):
    """The names of models; ``path/to/file.py:Name`` can also be a module, or a function that builds one."""

    def find(self, name: str, where: str) -> Any:
        """See :meth:`Table.find`; objects without ``build`` are converted by :func:`as_model`."""
        given = super().find(name, where)
        if hasattr(given, "build") or not callable(given):
            return given
        members = {"build": lambda _, shape, count: as_model(given).build(shape, count), "given": staticmethod(given)}
        return type(short_name(name), (Model,), members)

    def accepts(self, given: object) -> bool:
        """Whether an object from Python is a Model, a module, or a function or class that builds one."""
        return isinstance(given, Model) or callable(given)

    def is_class_of_kind(self, cls: type) -> bool:
        """Whether a class extends :class:`Model`."""
        return issubclass(cls, Model)

    @property
    def contract(self) -> str:
        """See :meth:`Table.contract`."""
        return "is a torch.nn.Module, or builds one"

    def stored(self, given: object) -> object:
        """A Model or its class as it is; of a module, or a function or class that builds one, the Model."""
        is_model = isinstance(given, Model) or (isinstance(given, type) and issubclass(given, Model))
        return given if is_model else as_model(cast(AnyModel, given))


MODELS = _Models(
    kind="model",
    group="fedcohort.models",
    builtin={
        "logistic": "fedcohort.models:Logistic",
        "mlp": "fedcohort.models:Mlp",
        "cnn_strided": "fedcohort.models:CnnStrided",
        "cnn_a": "fedcohort.models:CnnA",
        "cnn_b": "fedcohort.models:CnnB",
        "resnet18": "fedcohort.models:ResNet18",
        "lstm": "fedcohort.models.sequence_models:Lstm",
        "transformer": "fedcohort.models.sequence_models:Transformer",
    },
)


def _image(name: str, shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
    """Channels, height and width of the samples; an error unless they are images of at least the size ``smallest``."""
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise UsageError(
            f"model.name = {name!r}: needs images [channels, height, width] of at least {smallest}×{smallest}, "
            f"the data has {shape}; use 'mlp' or 'logistic'"
        )
    channels, height, width = shape
    return channels, height, width
