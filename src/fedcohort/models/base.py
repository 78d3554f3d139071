"""What a model is: it builds the network of a run.

A model is a ``@parameters`` class with ``build(shape, num_classes) -> nn.Module``. ``shape`` is the shape of one sample: ``(d,)``
for a table, ``(C, H, W)`` for an image, a :class:`fedcohort.core.token_shape.TokenShape` ``(L,)`` for a sequence of tokens. The
module returns logits [batch, K].
"""

from typing import TYPE_CHECKING, ClassVar

from fedcohort.core.user_code.method_signatures import not_defined

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Model"]


class Model:
    """Builds a network for a given sample shape. Torch is imported only when the network is built."""

    reads_integers: ClassVar[bool] = True
    """Whether samples that were handed over as integers enter the network as int64, such as tokens for ``nn.Embedding``. Otherwise,
    they are converted to floats."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """Return an ``nn.Module`` that maps samples ``[batch, *shape]`` to logits ``[batch, K]``."""
        raise not_defined(self, Model.build, "a model")
