"""The same network with less to do: rewritings that change no bit of its outputs and gradients, and no name of its parameters.

ReLU is put behind what only picks or rearranges numbers. After a 2 × 2 pooling it has a quarter of the work, forward and back, and
after Flatten it meets its gradient in the layout in which it comes. max(relu(x)) = relu(max(x)); and where the largest of a window is
not above 0, neither order hands a gradient on.
"""

from torch import nn

__all__ = ["relu_last"]

PICKING = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.Flatten, nn.Identity)


def relu_last(module: nn.Module) -> nn.Module:
    """Put every ReLU of a Sequential behind the poolings and Flatten that follow it, in place.

    The parts that change places have no parameters, so that nothing takes another name. Parts that somebody looks at by a hook or
    that give more than one output stay where they are, and so does a Sequential inside any other module, which may use a part of it.
    """
    if type(module) is not nn.Sequential:
        return module
    for i in range(len(module) - 1):
        one, other = module[i], module[i + 1]
        if type(one) is nn.ReLU and type(other) in PICKING and _free(one) and _free(other):
            module[i], module[i + 1] = other, one
    for part in module:
        relu_last(part)
    return module


def _free(part: nn.Module) -> bool:
    hooks = part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
    return not hooks and not getattr(part, "return_indices", False)
