"""The network of a run before its first round."""

from torch import device, nn

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.own_code import raised_in
from fedcohort.core.random_streams import integer, torch_seeded
from fedcohort.federation.federation import Federation
from fedcohort.models import Model

__all__ = ["build_module"]


def build_module(model: Model, federation: Federation, seed: int) -> nn.Module:
    """The model with the initial weights of ``seed``, on the device of the samples; torch's global generator does not change.

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
    return module.to(federation.device)
