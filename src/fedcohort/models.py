"""Models: softmax regression, a small perceptron, a small CNN; or any ``nn.Module`` of the user.

A model is a ``@parameters`` class with ``build(shape, num_classes) -> nn.Module``. ``shape`` is that of one sample: ``(d,)`` for
a table, ``(C, H, W)`` for an image. The module returns logits [batch, K].
"""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, cast

from annotated_types import Ge

from fedcohort.errors import UsageError
from fedcohort.parameters import parameters
from fedcohort.plugins import Table

__all__ = ["MODELS", "CnnA", "Logistic", "Mlp", "Model", "as_model"]


class Model:
    """Builds a network for a given sample shape; torch is imported when it is called."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> Any:
        """An ``nn.Module`` that maps samples [batch, *shape] to logits [batch, K]."""
        raise NotImplementedError


@parameters
class Logistic(Model):
    """Softmax regression: one linear layer."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> Any:
        """See :class:`Model`."""
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(_size(shape), num_classes))


@parameters
class Mlp(Model):
    """A perceptron with one hidden layer and ReLU."""

    hidden: Annotated[int, Ge(1)] = 64
    """Units of the hidden layer."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> Any:
        """See :class:`Model`."""
        from torch import nn

        return nn.Sequential(
            nn.Flatten(), nn.Linear(_size(shape), self.hidden), nn.ReLU(), nn.Linear(self.hidden, num_classes)
        )


@parameters
class CnnA(Model):
    """A small CNN for 32×32 images: three 3×3 convolutions (32, 64, 64), two 2×2 max-pools, a hidden layer of 64.

    On 3×32×32 and 10 classes it has 319,178 parameters. The hidden layer's input follows the image size.
    """

    smallest: ClassVar[int] = 4

    def build(self, shape: tuple[int, ...], num_classes: int) -> Any:
        """See :class:`Model`."""
        from torch import nn

        if len(shape) != 3 or min(shape[1:]) < self.smallest:
            raise UsageError(
                f"model.name = 'cnn_a': needs images [channels, height, width] of at least 4×4, the data has {shape}; "
                "use 'mlp' or 'logistic'"
            )
        channels, height, width = shape
        return nn.Sequential(
            nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(64 * (height // 4) * (width // 4), 64), nn.ReLU(), nn.Linear(64, num_classes),
        )  # fmt: skip


MODELS = Table(
    kind="model",
    group="fedcohort.models",
    builtin={
        "logistic": "fedcohort.models:Logistic",
        "mlp": "fedcohort.models:Mlp",
        "cnn_a": "fedcohort.models:CnnA",
    },
)


class _Given(Model):
    """A user's module or factory."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def build(self, shape: tuple[int, ...], num_classes: int) -> Any:
        import copy
        import inspect

        from torch import nn

        if isinstance(self.given, nn.Module):
            return copy.deepcopy(self.given)
        takes = len(inspect.signature(self.given).parameters)
        module = self.given(shape, num_classes) if takes >= 2 else self.given()
        if not isinstance(module, nn.Module):
            raise UsageError(f"model = {self.given!r}: returned {type(module).__name__}, not a torch.nn.Module")
        return module


def as_model(given: Any) -> Model:
    """A :class:`Model` from what users hand over: a Model, an ``nn.Module``, or a factory of one.

    A factory is called with ``(shape, num_classes)``, or without arguments if it takes none.
    """
    if isinstance(given, Model):
        return given
    if isinstance(given, type) and issubclass(given, Model):
        return cast(Callable[[], Model], given)()
    return _Given(given)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
