"""Check that a user's network is the same each time that it is built: every thread and every host builds its own."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fedcohort.core.errors import UsageError
from fedcohort.core.user_code.unseeded_draws import drawn_since, unseeded_states
from fedcohort.core.words.formatted_values import in_words

if TYPE_CHECKING:
    from torch import nn

__all__ = ["built_repeatably"]

_ADVICE = "draw by functions of PyTorch, such as torch.randn, or from a generator with a seed, such as np.random.default_rng(0)"


def built_repeatably(build: Callable[[], "nn.Module"], name: Callable[["nn.Module"], str]) -> "nn.Module":
    """The network that ``build`` returns. If it begins with other weights each time, because it draws them from a generator without
    a seed, there is a warning.

    It is built a second time only if there can be a difference.

    Args:
        build: builds the network.
        name: returns the name of the network's model, for messages.

    Raises:
        UsageError: tensors that are no part of its state dictionary differ each time. Clients do not receive them, so that the network
            would be another one in each thread.
    """
    before = unseeded_states()
    module = build()
    drawn = drawn_since(before, unseeded_states())
    unsaved = dict(_unsaved(module))
    if not drawn and not unsaved:
        return module
    again = build()
    others = dict(_unsaved(again))
    for entry, value in unsaved.items():
        if _differ(value, others.get(entry)):
            raise UsageError(
                f"model = {name(module)}: {entry} is no part of the state dictionary, so that clients do not receive it, and differs "
                f"each time that the network is built; {_ADVICE}"
            )
    now = again.state_dict()
    if drawn and any(_differ(value, now.get(entry)) for entry, value in module.state_dict().items()):
        warnings.warn(
            f"model = {name(module)}: begins with weights from {in_words(drawn)}, which FedCohort does not seed, so that a run cannot "
            f"be repeated; {_ADVICE}",
            stacklevel=3,
        )
    return module


def _unsaved(module: "nn.Module") -> Iterator[tuple[str, Any]]:
    """Buffers that are not saved, and attributes that are tensors or arrays, by name."""
    for path, part in module.named_modules():
        own = {name: part._buffers.get(name) for name in sorted(part._non_persistent_buffers_set)}
        for name, value in [*own.items(), *vars(part).items()]:
            if hasattr(value, "__array__"):
                yield f"{path}.{name}".lstrip("."), value


def _differ(value: Any, other: Any) -> bool:
    """Whether both are tensors or arrays with other values. NaN equals NaN."""
    with suppress(Exception):  # such as of tensors without values, of which another check tells
        equal = (value == other) | ((value != value) & (other != other))
        return value.shape != other.shape or not bool(equal.all())
    return False
