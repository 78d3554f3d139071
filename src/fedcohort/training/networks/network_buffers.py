"""The buffers and parameters of a network when its forward passes replace them: each client begins with those that it receives."""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from fedcohort.core.errors import UsageError

__all__ = ["NetworkBuffers"]


class NetworkBuffers:
    """The buffers of a network as they are now, and the memory of its parameters.

    ``self.mean = 0.9 * self.mean + 0.1 * x.mean(0)`` puts another tensor in the place of a buffer, which an earlier state dictionary
    does not know; ``self.mean.mul_(0.9)`` changes the buffer itself. In the same way, ``self.weight.data = ...``, as in layers that
    limit the norm of their weights, gives a parameter other memory. Buffers that are not persistent, and those that models omit, are
    no part of the model that the server and the clients exchange.

    Attributes:
        all_are_sent: whether all are part of the model.

    Args:
        module: the network.
        omitted: names of the entries that its models omit.
    """

    def __init__(self, module: nn.Module, omitted: Collection[str] = ()) -> None:
        self._buffers = [
            (part._buffers, name, buffer)
            for part in module.modules()
            for name, buffer in part._buffers.items()
            if buffer is not None
        ]
        own = [part._buffers[name] for part in module.modules() for name in part._non_persistent_buffers_set]
        own += [buffer for name, buffer in module.named_buffers() if name in omitted]
        self._own = [(buffer, buffer.clone()) for buffer in own if buffer is not None]
        self.all_are_sent = not self._own
        self._parameters = [(name, parameter, parameter.data) for name, parameter in module.named_parameters()]

    def gather(self) -> None:
        """Give the entries of the state dictionary the values of the tensors that took their place.

        Raises:
            UsageError: such a tensor has another shape.
        """
        for name, parameter, value in self._moved():
            if parameter.shape != value.shape:
                raise UsageError(
                    f"model: its forward pass made the parameter {name!r} {list(parameter.shape)}; clients send it with its shape "
                    f"{list(value.shape)}"
                )
            value.copy_(parameter.data)
            parameter.data = value
        for names, name, buffer in self._buffers:
            now = names.get(name)
            if now is buffer:
                continue
            if not isinstance(now, Tensor) or now.shape != buffer.shape:
                given = list(now.shape) if isinstance(now, Tensor) else type(now).__name__
                raise UsageError(
                    f"model: its forward pass made the buffer {name!r} {given}; clients send it with its shape {list(buffer.shape)}"
                )
            with torch.no_grad():
                buffer.copy_(now)
            names[name] = buffer

    def reset(self) -> None:
        """Put the entries of the state dictionary back into their places, and give buffers that are not sent their first values."""
        for _, parameter, value in self._moved():
            parameter.data = value
        for names, name, buffer in self._buffers:
            names[name] = buffer
        for buffer, first in self._own:
            buffer.copy_(first)

    def _moved(self) -> list[tuple[str, nn.Parameter, Tensor]]:
        """The parameters that have other memory than at first: name, parameter, and the tensor with the first memory."""
        return [entry for entry in self._parameters if entry[1].data_ptr() != entry[2].data_ptr()]
