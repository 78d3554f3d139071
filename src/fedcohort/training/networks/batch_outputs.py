"""Outputs of a network, or of a part of it, for a batch."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from fedcohort.algorithms import Tensors
from fedcohort.core.errors import UsageError, nearest, shown

__all__ = ["outputs_of"]


def outputs_of(
    module: nn.Module, at: Tensors | None, part: str, run: Callable[[Callable[[Tensor], Tensor]], Tensor]
) -> Tensor:
    """The outputs of a network, or of one of its parts, for a batch; the network's buffers stay as they are.

    Args:
        module: the network.
        at: parameters to use instead of the network's own; these have no gradients then.
        part: name of the part, as in ``named_modules``; empty for the whole network.
        run: calls the network that it is given with the batch.

    Raises:
        UsageError: there is no such part, the network does not call it, or it returns something else than a tensor; or ``at`` is not
            tensors by the names of the network, in their shapes.
    """
    parts = dict(module.named_modules())
    if part not in parts:
        names = ", ".join(repr(name) for name in list(parts)[1:9])
        raise UsageError(f"problem.outputs(part = {shown(part)}): the network has no such part; it has {names}")
    _check_tensors(module, at)
    found: list[object] = []
    state = {name: buffer.clone() for name, buffer in module.named_buffers()} | (at or {})
    watching = parts[part].register_forward_hook(lambda _part, _inputs, outputs: found.append(_kept(outputs)))
    try:
        with torch.set_grad_enabled(at is None):
            run(lambda features: torch.func.functional_call(module, state, (features,)))
    finally:
        watching.remove()
    outputs = found[-1] if found else None
    if isinstance(outputs, Tensor):
        # under autocast, outputs of parts are in bfloat16
        return outputs.to(next(module.parameters()).dtype) if outputs.is_floating_point() else outputs
    what = f"returns a {type(outputs).__name__}" if found else "is not called in a forward pass"
    raise UsageError(f"problem.outputs(part = {shown(part)}): this part {what}; name one that returns a tensor")


def _check_tensors(module: nn.Module, at: object) -> None:
    """Refuse what are no parameters of the network: those of other names would be left out without a word."""
    if at is None:
        return
    if not isinstance(at, Mapping):
        raise UsageError(f"problem.outputs(at = {shown(at)}): must be tensors by name, as problem.anchor is")
    own = dict(module.named_parameters()) | dict(module.named_buffers())
    for name, value in at.items():
        if name not in own:
            raise UsageError(
                f"problem.outputs(at): the network has no parameter {shown(name)}; {nearest(str(name), own)}"
            )
        if not isinstance(value, Tensor) or value.shape != own[name].shape:
            given = list(value.shape) if isinstance(value, Tensor) else shown(value)
            raise UsageError(f"problem.outputs(at): {name!r} is {given}; must be a tensor {list(own[name].shape)}")


def _kept(outputs: object) -> object:
    """Outputs that a following layer cannot change in place."""
    return outputs.clone() if isinstance(outputs, Tensor) else outputs
