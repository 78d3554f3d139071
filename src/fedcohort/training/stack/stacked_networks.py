"""Networks for stacks of clients: outputs and gradients with parameters that have a leading client axis.

There are two kinds. A :class:`Chain` of linear layers and ReLU (softmax regression, perceptrons) has its backward pass written out,
with two batched matrix products per layer. If nothing else reads the gradients,
:mod:`fedcohort.training.stack.linear_chain_descent` takes its steps. A :class:`Vectorized` network is any other module, run by
``torch.func.vmap`` and autograd.
"""

import itertools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeGuard

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedcohort.algorithms import ModelState, Tensors
from fedcohort.core.network_copies import copy_of
from fedcohort.training.networks.random_layers import recomputes
from fedcohort.training.programs.network_rows import is_sequence, row_of
from fedcohort.training.programs.plain_network import program_of
from fedcohort.training.stack.dropout_factors import Dropouts, GivenDropout, replace_dropouts

__all__ = ["Chain", "Linear", "Network", "Slope", "Vectorized", "network_of", "outputs"]

Slope = Callable[[Tensor], Tensor]
"""Maps logits [clients, B, K] to the loss's gradient with respect to them, which is zero where a batch is padded."""

FULL = 256
"""Maximum number of samples of a batch with which a network is tested."""


class Network(Protocol):
    """Outputs and gradients of a stack of clients."""

    parameters: tuple[str, ...]
    """Names of the entries that are trained."""
    shape: tuple[int, ...]
    """Shape of one sample."""
    dropouts: Dropouts
    """The calls of Dropout in one forward pass."""

    def logits(self, parameters: Tensors, inputs: Tensor) -> Tensor:
        """Outputs [clients, B, K] for inputs [clients, B, *shape], without Dropout."""

    def gradients(self, parameters: Tensors, inputs: Tensor, slope: Slope, factors: tuple[Tensor, ...] = ()) -> Tensors:
        """Gradients by name, without parameters that no output depends on; ``slope`` is called once, with the outputs. ``factors``
        are those of :attr:`dropouts`."""


@dataclass(frozen=True)
class Linear:
    """A linear layer of a chain: the names of its parameters, and whether ReLU follows it."""

    weight: str
    bias: str | None
    relu: bool


class Chain:
    """Linear layers with ReLU between them, after an optional Flatten."""

    def __init__(self, layers: list[Linear], shape: tuple[int, ...]) -> None:
        self.layers = layers
        self.shape = shape
        self.dropouts = Dropouts()
        self.parameters = tuple(name for layer in layers for name in (layer.weight, layer.bias) if name)

    def logits(self, parameters: Tensors, inputs: Tensor) -> Tensor:
        """See :class:`Network`."""
        return self.forward(parameters, outputs(self.layers[0], parameters, inputs.flatten(2)))[-1]

    def gradients(self, parameters: Tensors, inputs: Tensor, slope: Slope, factors: tuple[Tensor, ...] = ()) -> Tensors:
        """See :class:`Network`."""
        assert not factors
        gradients: Tensors = {}

        def keep(layer: Linear, inputs: Tensor, delta: Tensor) -> None:
            gradients[layer.weight] = torch.bmm(delta.transpose(1, 2), inputs)
            if layer.bias:
                gradients[layer.bias] = delta.sum(dim=1)

        first = self.layers[0]
        hidden = self.forward(parameters, outputs(first, parameters, inputs.flatten(2)))
        keep(first, inputs.flatten(2), self.backward(parameters, hidden, slope, keep))
        return gradients

    def forward(self, parameters: Tensors, first: Tensor) -> list[Tensor]:
        """Outputs of every layer after its ReLU, logits last.

        Args:
            parameters: the stack's parameters.
            first: outputs of the first layer before its ReLU; changed in place.
        """
        hidden = [first.relu_() if self.layers[0].relu else first]
        for layer in self.layers[1:]:
            linear = outputs(layer, parameters, hidden[-1])
            hidden.append(linear.relu_() if layer.relu else linear)
        return hidden

    def backward(
        self, parameters: Tensors, hidden: list[Tensor], slope: Slope, use: Callable[[Linear, Tensor, Tensor], None]
    ) -> Tensor:
        """Call ``use(layer, its inputs, δ of its outputs)`` from the last layer to the second; ``use`` may change the layer.

        Returns:
            δ of the first layer's outputs.
        """
        delta = slope(hidden[-1])
        for i in range(len(self.layers) - 1, 0, -1):
            layer = self.layers[i]
            before = torch.bmm(delta, parameters[layer.weight])
            use(layer, hidden[i - 1], delta)
            delta = torch.ops.aten.threshold_backward(before, hidden[i - 1], 0) if self.layers[i - 1].relu else before
        return delta


def outputs(layer: Linear, parameters: Tensors, inputs: Tensor) -> Tensor:
    """Outputs [clients, B, out] of a linear layer for inputs [clients, B, in]."""
    weight = parameters[layer.weight].transpose(1, 2)
    return (
        torch.bmm(inputs, weight)
        if layer.bias is None
        else torch.baddbmm(parameters[layer.bias][:, None], inputs, weight)
    )


class Vectorized:
    """Any module that does not change its buffers in training; see :func:`network_of`. Threads may share it."""

    def __init__(self, module: nn.Module, shape: tuple[int, ...]) -> None:
        self._module = module
        self._copies = threading.local()
        self.shape = shape
        self.parameters = tuple(name for name, p in module.named_parameters() if p.requires_grad)
        self.dropouts = Dropouts()

    @property
    def module(self) -> nn.Module:
        """This thread's copy of the module, because ``functional_call`` puts parameters into the module while it runs."""
        if not hasattr(self._copies, "module"):
            self._copies.module = copy_of(self._module)
            self._copies.dropout = replace_dropouts(self._copies.module)
            for part in filter(_is_dropout, self._copies.module.modules()):
                part.eval()  # its probability is 0, but vmap refuses to run it in training
        module: nn.Module = self._copies.module
        return module

    def find_dropouts(self, samples: Tensor) -> bool:
        """Find out what Dropout is given in a forward pass of these samples; whether it is given values of each sample."""
        module, dropout = self.module, self._dropout
        if dropout is None:
            return True
        dropout.seen.clear()
        with torch.no_grad():
            module(samples)
        kept, shapes = zip(*dropout.seen, strict=True) if dropout.seen else ((), ())
        dropout.seen.clear()
        self.dropouts = Dropouts(kept, tuple(tuple(shape[1:]) for shape in shapes))
        return all(shape[:1] == (len(samples),) for shape in shapes)

    @property
    def _dropout(self) -> GivenDropout | None:
        """One of the Dropout layers of this thread's copy."""
        found: GivenDropout | None = self._copies.dropout
        return found

    def logits(self, parameters: Tensors, inputs: Tensor) -> Tensor:
        """See :class:`Network`."""
        return self._logits(parameters, inputs, ())

    def _logits(self, parameters: Tensors, inputs: Tensor, factors: tuple[Tensor, ...]) -> Tensor:
        """Outputs, with these factors of Dropout."""
        module, dropout = self.module, self._dropout

        def of_one_client(own: Tensors, batch: Tensor, given: tuple[Tensor, ...]) -> Tensor:
            if dropout is not None:
                dropout.calls[:] = given
                dropout.seen.clear()
            outputs: Tensor = functional_call(module, own, (batch,))
            return outputs

        outputs: Tensor = vmap(of_one_client)(parameters, inputs, factors)
        return outputs

    def gradients(self, parameters: Tensors, inputs: Tensor, slope: Slope, factors: tuple[Tensor, ...] = ()) -> Tensors:
        """See :class:`Network`."""
        own = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        with torch.enable_grad():
            logits = self._logits(own, inputs, factors)
        delta = slope(logits.detach())
        with (
            torch.enable_grad()
        ):  # a number with this gradient: passing a gradient to autograd imports sympy, which takes a second
            total = torch.dot(logits.flatten(), delta.flatten())
        gradients = torch.autograd.grad(total, list(own.values()), allow_unused=True)
        return {name: g.contiguous() for name, g in zip(own, gradients, strict=True) if g is not None}


def network_of(module: nn.Module, state: ModelState, shape: tuple[int, ...], batch: int = 3) -> Network | str:
    """The network for stacks of clients; or, in words, why the module cannot be used in stacks.

    Args:
        module: a model, in training mode.
        state: its state dictionary.
        shape: shape of one sample.
        batch: number of samples of a full batch.
    """
    layers = _chain(module, shape)
    if layers is not None:
        return Chain(layers, shape)
    for part in module.modules():
        name = type(part).__name__
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            return f"{name} takes statistics over the batch"
        if isinstance(part, nn.RReLU) or (_is_dropout(part, above=0) and not _can_be_given(part, state)):
            return f"{name} draws random numbers"
    if not {name for name, _ in module.named_parameters()} | {name for name, _ in module.named_buffers()} >= set(state):
        return "parts of the model share parameters"
    if recomputes(module):
        return "torch.utils.checkpoint runs parts of the model again, in the backward pass"
    return _checked(Vectorized(module, shape), state, batch)


def _checked(network: Vectorized, state: ModelState, batch: int) -> "Vectorized | str":
    """The network if it passes a test, otherwise why not, in words.

    In the test, a stack of two clients must give the outputs of one client, sample by sample, there must be gradients, and the model
    must not change. Short batches of a stack are padded, so that outputs must not depend on the size of the batch.
    """
    size = math.prod(network.shape)
    example = next(value for name, value in state.items() if name in network.parameters)
    samples = torch.linspace(-1, 1, 3 * size, dtype=example.dtype, device=example.device).reshape(3, *network.shape)
    stack = {name: state[name][None].expand(2, *state[name].shape) for name in network.parameters}
    try:
        fixed = {name: value.clone() for name, value in network.module.state_dict().items()}
        with torch.no_grad():
            both = network.logits(stack, torch.stack([samples, samples]))
            alone = network.module(samples[:1])
            full = network.module(samples[:1].expand(max(1, min(batch, FULL)), *network.shape))
        network.gradients(stack, torch.stack([samples, samples]), torch.ones_like)
        of_samples = network.find_dropouts(samples)
    except Exception as error:
        return f"torch.func.vmap cannot run the model: {type(error).__name__}: {str(error).splitlines()[0]}"
    if any(not torch.equal(value, fixed[name]) for name, value in network.module.state_dict().items()):
        return "the model changes its buffers in training"
    tolerance = 0.02 * float(both.abs().max()) + 1e-6  # larger than the rounding of any number format
    if both.shape[:2] != (2, 3) or float((both[:, :1] - alone).abs().max()) > tolerance:
        return "the model's output for a sample depends on the others of its batch"
    if float((full - alone).abs().max()) > tolerance:
        return "the model's output for a sample depends on the size of its batch"
    return network if of_samples else "Dropout draws random numbers for a whole batch"


def _chain(module: nn.Module, shape: tuple[int, ...]) -> list[Linear] | None:
    """The layers, if the module is Flatten, then linear layers with ReLU between them; None otherwise."""
    layers: list[Linear] = []
    for name, part in itertools.dropwhile(lambda named: _flattens(named[1]), _named_row(module, shape)):
        if _is_trained_linear(part):
            layers.append(Linear(f"{name}.weight", f"{name}.bias" if part.bias is not None else None, relu=False))
        elif type(part) is nn.ReLU and layers and not layers[-1].relu:
            layers[-1] = replace(layers[-1], relu=True)
        else:
            return None
    names = [name for layer in layers for name in (layer.weight, layer.bias) if name]
    whole = sorted(names) == sorted(module.state_dict()) and len(names) == len(list(module.parameters()))
    return layers if layers and not layers[-1].relu and whole else None


def _named_row(module: nn.Module, shape: tuple[int, ...]) -> list[tuple[str, nn.Module]]:
    """The layers in order with their names; empty if the network is no row of layers.

    For a network with a forward pass of its own, the layers must also give the bits of autograd, see :func:`program_of`.
    """
    if not is_sequence(module):
        module = copy_of(module).cpu()
        if program_of(module, shape) is None:
            return []
    names = {part: name for name, part in module.named_modules()}
    return [(names.get(layer, ""), layer) for layer in row_of(module, shape) or []]


def _is_trained_linear(part: nn.Module) -> TypeGuard[nn.Linear]:
    return type(part) is nn.Linear and all(p.requires_grad for p in part.parameters())


def _is_dropout(part: nn.Module, *, above: float = -1.0) -> bool:
    """Whether the part is a kind of Dropout with a probability above this one."""
    return isinstance(part, nn.modules.dropout._DropoutNd) and part.p > above


def _can_be_given(part: nn.Module, state: ModelState) -> bool:
    """Whether the factors of this Dropout can be drawn beforehand; GPUs draw others than a CPU."""
    return type(part) is nn.Dropout and part.p < 1 and all(value.device.type == "cpu" for value in state.values())


def _flattens(part: nn.Module) -> bool:
    return type(part) is nn.Flatten and part.start_dim == 1 and part.end_dim == -1
