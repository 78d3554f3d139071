"""The network of a run before its first round."""

from typing import Protocol

from torch import device, dtype, nn

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.random_streams import integer, torch_seeded
from fedcohort.core.user_code.own_code import raised_in
from fedcohort.models import Model

__all__ = ["SampleKind", "build_module"]


class SampleKind(Protocol):
    """What a network must know of samples; a :class:`~fedcohort.federation.federation.Federation` has it."""

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the network."""

    @property
    def device(self) -> device:
        """Where samples are."""


def build_module(model: Model, federation: SampleKind, seed: int, number: dtype | None = None) -> nn.Module:
    """The model with the initial weights of ``seed``, on the device of the samples; torch's global generator does not change.

    Args:
        model: builds the network.
        federation: what the samples are like.
        seed: the experiment's seed.
        number: number format of its entries; None leaves them as they are.

    Raises:
        UsageError: a built-in model cannot be built with its parameters, for lack of memory.
    """
    try:
        with torch_seeded(integer(seed, "model"), device("cpu")):
            module: nn.Module = model.build(federation.sample_shape, federation.num_outputs)
    except (MemoryError, OverflowError, RuntimeError, TypeError) as error:
        if raised_in(error):
            raise
        raise UsageError(
            f"model = {shown(model)}: cannot be built for samples of shape {list(federation.sample_shape)}; choose a smaller one: "
            f"{error}"
        ) from error
    return module.to(federation.device, number)
