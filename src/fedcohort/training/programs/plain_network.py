"""The training steps of a plain network as one program, which runs without Python or autograd between its calls.

A step of a small network consists of some dozens of short calls. Normally, Python makes each of them, autograd records each of them,
and clients that are trained at the same time compete for Python's lock. For a row of convolutions, poolings, activations, Flatten and
linear layers, the gradient of the cross-entropy is known. This module writes it out with the calls that autograd would make, so that
the bits are the same.

The functions of the program (:mod:`fedcohort.training.programs.plain_functions`) are TorchScript. Clients take all steps of an epoch
in one call if the algorithm adds the same correction to every gradient, or none; other clients get a gradient in one call. Where
PyTorch has no TorchScript, Python runs the functions.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from fedcohort.algorithms.base import Correction
from fedcohort.algorithms.sample_measures import sample_losses
from fedcohort.core.network_copies import copy_of
from fedcohort.core.random_streams import torch_seeded
from fedcohort.core.script_threads import can_fork
from fedcohort.training.code_reading.network_watch import NetworkWatch
from fedcohort.training.optimizers import Optimizer
from fedcohort.training.programs import plain_functions
from fedcohort.training.programs.divided_batches import divided_layers, most_parts
from fedcohort.training.programs.forward_functions import Helpers, outputs_of_parts
from fedcohort.training.programs.joined_passes import JoinedPasses
from fedcohort.training.programs.network_rewriting import relu_after_pooling
from fedcohort.training.programs.network_rows import is_sequence, row_of
from fedcohort.training.programs.perceptron_functions import descend_series, perceptron_of, squared_norms
from fedcohort.training.programs.plain_layers import Layer, layers_of

__all__ = ["Program", "Series", "program_of"]

TRIED = ("norm", "average", "whole average", "dropout")
"""Kinds of layers for which PyTorch chooses a memory layout that depends on the neighboring layers, or draws random numbers; their
bits are compared first."""

SIZES = 8
"""Number of sizes of batches, the first that occur, that may be divided among threads; trying a size takes some milliseconds."""

Result = TypeVar("Result")


class Series(NamedTuple):
    """The training of several clients, one after another.

    Attributes:
        start: the parameters that all clients receive.
        trained: memory for each client's parameters after its training.
        features, labels: the samples of all clients, as for :meth:`Program.descend`.
        order: positions of the samples in the order of the steps: the epochs of the first client, then those of the next. Empty if
            the samples are in this order themselves.
        edges: for each client, where each of its epochs begins in this order, and where the last one ends.
        size: size of a batch.
        shifts: for each client, what is added to the gradients of every step; empty for nothing.
        proximal: μ of what is added: μ·(parameters − start).
        clip: largest norm of a gradient, before anything is added to it; 0 means no clipping.
        draws: for each client, the generators of Dropout for its steps; empty without Dropout.
        buffers: the other entries of the model that all clients receive; their values after the training follow the parameters in
            ``trained``.
        outputs: outputs of the received model for each sample, in the order of ``features``, for losses that need them; otherwise
            empty.
    """

    start: list[Tensor]
    trained: list[list[Tensor]]
    features: Tensor
    labels: Tensor
    order: Tensor
    edges: list[list[int]]
    size: int
    shifts: list[list[Tensor]]
    proximal: float
    clip: float
    draws: list[list[torch.Generator]]
    buffers: list[Tensor]
    outputs: Tensor


class Program:
    """The steps of one network, with which it shares its parameters; see :func:`program_of`.

    Attributes:
        draws: whether Dropout draws random numbers in training.
        is_perceptron: whether it has linear layers, activations and Dropout only.
        flattens_first: whether its first layer flattens the samples.
    """

    def __init__(self, module: nn.Module, layers: list[Layer], parameters: list[nn.Parameter]) -> None:
        self._watch, self._layers, self._parameters = NetworkWatch(module, parameters), layers, parameters
        self._values = [parameter.detach() for parameter in parameters]
        self.draws = any(layer.kind == "dropout" for layer in layers)
        self._perceptron = perceptron_of(layers, self._values)
        self.is_perceptron = self._perceptron is not None
        self.flattens_first = layers[0].kind == "flatten"
        one_by_one = partial(_run, outputs_of_parts)
        self._joined = JoinedPasses(one_by_one, layers, self._values) if self.is_perceptron else None
        self._idle: Tensor | None = None
        self._threads = 1
        self._divided = divided_layers(layers)
        self._most_parts: dict[int, int] = {}

    def share_work(self, idle: Tensor, threads: int) -> bool:
        """Give work to other threads while there are idle ones, with the same bits, if there is a convolution.

        Args:
            idle: the number of idle threads, int64 []; it may change at any time.
            threads: the number of threads, with the calling one.

        Returns:
            Whether it does.
        """
        shares = any(layer.kind == "convolution" for layer in self._layers)
        self._idle = idle if shares and can_fork() else None
        self._threads = threads
        return self._idle is not None

    def holds(self) -> bool:
        """Whether the program still computes what the network computes.

        It does not after code has registered hooks, replaced a forward pass, frozen parameters, switched on autocast, or put only
        some layers of a network with Dropout into training mode.
        """
        partly = self.draws and len({part.training for part in self._watch.parts}) > 1
        return self._watch.unchanged() and not partly

    def backward(
        self, inputs: Tensor, labels: Tensor, weights: Tensor | None, size: int, draws: Sequence[torch.Generator] = ()
    ) -> tuple[Tensor, Tensor]:
        """Add to every ``.grad`` the gradient of Σ weight·cross-entropy/``size``, without weights of Σ cross-entropy/``size``.

        Args:
            inputs, labels: the batch.
            weights: weights of the samples, or None.
            size: what the sum is divided by.
            draws: the generator of Dropout; none in evaluation mode.

        Returns:
            the cross-entropy of each sample, and the number of correct predictions.
        """
        losses, hits, gradients = self.gradients(inputs, labels, weights, size, draws)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad += gradient
        return losses, hits

    def gradients(
        self, inputs: Tensor, labels: Tensor, weights: Tensor | None, size: int, draws: Sequence[torch.Generator] = ()
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """As :meth:`backward`, with the gradients in the order of the parameters as the last result."""
        sample = inputs.permute(0, 2, 3, 1).shape[1:] if inputs.dim() == 4 else inputs.shape[1:]
        helpers = self._helpers(sample, [len(inputs)])
        return self._run(plain_functions.gradients, inputs, labels, weights, size, list(draws), helpers)

    def descend(
        self,
        features: Tensor,
        labels: Tensor,
        order: Tensor,
        size: int,
        optimizer: Optimizer,
        correction: Correction | None = None,
        anchors: Sequence[Tensor] = (),
        draws: Sequence[torch.Generator] = (),
        clip: float = 0.0,
        outputs: Tensor | None = None,  # noqa: ARG002 - the cross-entropy does not need them
    ) -> tuple[list[Tensor], Tensor]:
        """Take an optimizer step on the mean cross-entropy of every batch of ``size`` samples, in this ``order``.

        Afterwards, every ``.grad`` is the gradient of the last batch.

        Args:
            features: standardized; images as [N, H, W, C].
            labels: int64 [N].
            order: positions, int64; the last batch may be shorter.
            size: size of a batch.
            optimizer: optimizer of the network's parameters, from :mod:`fedcohort.training.optimizers`.
            correction: what is added to the gradients of every step; None for nothing.
            anchors: the parameters that the correction refers to, in the order of the network's.
            draws: for every step, the generator of Dropout.
            clip: largest norm of a gradient, before the correction; 0 means no clipping.
            outputs: those of the received model for all samples, for losses that need them.

        Returns:
            the cross-entropy of each sample before its step, and the total number of correct predictions.
        """
        rule = optimizer.rule()
        added = correction or Correction()
        helpers = self._helpers(features.shape[1:], [min(size, len(order)), len(order) % size])
        seen, hits, gradients = self._run(
            plain_functions.descend, features, labels, order, size, rule.kind, rule.rates, rule.nesterov, rule.states, rule.fresh,
            list(added.shift.values()), list(anchors) if added.proximal else [], added.proximal, clip,
            list(draws), helpers,
        )  # fmt: skip
        for parameter, gradient in zip(self._parameters, gradients, strict=len(order) > 0):
            parameter.grad = gradient
        return seen, hits

    def descend_series(
        self, series: Series, optimizer: Optimizer, *, keep_gradients: bool
    ) -> tuple[Tensor, Tensor, list[list[Tensor]]]:
        """Train several clients of a perceptron, each as :meth:`descend` does, with a fresh state of the optimizer.

        Returns:
            the cross-entropy of each sample before its step, in the order of the series; each client's number of correct
            predictions in its last epoch; and with ``keep_gradients``, each client's gradients of its last batch.
        """
        rule = optimizer.rule()
        return _run(
            descend_series, self._perceptron, series.start, series.trained, series.features, series.labels, series.order,
            series.edges, series.size, rule.kind, rule.rates, rule.nesterov, rule.states, rule.fresh,
            series.shifts, series.proximal, series.clip, series.draws, keep_gradients,
        )  # fmt: skip

    def outputs(self, inputs: Tensor, edges: list[int]) -> Tensor:
        """The network's outputs [n, K] on the parts of ``inputs`` between neighboring ``edges``, with the bits of evaluating the
        parts one after another, which a perceptron need not do; ``inputs`` may be changed."""
        if self._joined is not None:
            return self._joined.outputs(inputs, edges)
        return self._run(outputs_of_parts, inputs, edges)

    def squared_norms(self, inputs: Tensor, labels: Tensor, edges: list[list[int]]) -> list[float]:
        """For each client, the squared norm of the gradient of Σ cross-entropy, of a perceptron in evaluation mode.

        Args:
            inputs, labels: the samples of all clients; ``inputs`` may be changed.
            edges: for each client, where each of its blocks begins, and where the last one ends.
        """
        return _run(squared_norms, self._perceptron, self._values, inputs, labels, edges, [])

    def _helpers(self, sample: torch.Size, sizes: list[int]) -> list[Helpers]:
        """The threads that may take a part of the work for batches of these sizes, in a list, which is empty if there are none.

        A forked process has none. ``sample`` is the shape of a sample in memory.
        """
        if self._idle is None or not can_fork():
            return []
        for size in sizes:
            if size > 1 and size not in self._most_parts and len(self._most_parts) < SIZES:
                layers = self._layers[: self._divided]
                self._most_parts[size] = most_parts(layers, self._values, (size, *sample), self._threads)
        return [Helpers(self._idle, self._divided, self._most_parts)]

    def _run(self, function: Callable[..., Result], *given: object) -> Result:
        """Run a function of the network's layers and parameters."""
        return _run(function, self._layers, self._values, *given)


def _run(function: Callable[..., Result], *given: object) -> Result:
    """Run without autograd and without TorchScript's optimizations, which would change bits from the second call on."""
    compiled = _without_python().get(function)
    plainly = torch.jit.optimized_execution(False) if compiled else nullcontext()  # type: ignore[attr-defined]
    with torch.no_grad(), plainly:
        try:
            return (compiled or function)(*given)
        except RuntimeError as error:
            # Python raises its own error about wrong inputs, which is easier to read than TorchScript's
            function(*given)
            raise RuntimeError(" ".join(str(error).splitlines()[-1:]).removeprefix("RuntimeError: ")) from None


def program_of(module: nn.Module, shape: tuple[int, ...]) -> Program | None:
    """The steps of this network; None if a program cannot take them.

    The network must be a row of plain layers on a CPU, in which all parameters are trained and no layer has hooks. For a network with
    a forward pass of its own or layers of :data:`TRIED`, the program must also give the same bits as autograd on random batches.

    Args:
        module: the network.
        shape: shape of one sample.
    """
    parameters = list(module.parameters())
    if any(parameter.device.type != "cpu" for parameter in parameters):
        return None
    row = row_of(module, shape)
    if row is None:
        return None
    traced = not is_sequence(module)
    layers = layers_of(relu_after_pooling(row) if traced else row, parameters, is_flat=len(shape) == 1)
    if layers is None:
        return None
    tried = traced or any(layer.kind in TRIED for layer in layers)
    if tried and not _has_bits_of_autograd(module, layers, shape):
        return None
    program = Program(module, layers, parameters)
    if not program.holds():
        return None
    _without_python()  # now, so that no round of a run includes it
    return program


def _has_bits_of_autograd(module: nn.Module, layers: list[Layer], shape: tuple[int, ...]) -> bool:
    """Whether these layers give a copy's losses and gradients for random batches, in training mode and in evaluation mode."""
    draw = torch.Generator().manual_seed(0)
    try:
        twin = copy_of(module)
        parameters = list(twin.parameters())
        program = Program(twin, layers, parameters)
        for training, size in ((True, 5), (False, 2)):
            sizes = (
                (*shape[1:], shape[0]) if len(shape) == 3 else shape
            )  # images as training has them, with channels last
            inputs = torch.randn(size, *sizes, dtype=parameters[0].dtype, generator=draw)
            inputs = inputs.permute(0, 3, 1, 2) if len(shape) == 3 else inputs
            with torch.enable_grad(), torch_seeded(size, inputs.device):
                outputs = twin.train(training)(inputs)
                labels = torch.randint(outputs.shape[1], (size,), generator=draw)
                losses = sample_losses(outputs, labels)
                # of a number, which has the bits of training: passing a gradient to this function imports sympy, which takes a second
                expected = torch.autograd.grad(torch.dot(losses, torch.full_like(losses, 1 / size)), parameters)
            draws = [torch.Generator().manual_seed(size)] if training else []
            found, _, gradients = program.gradients(inputs.clone(), labels, None, size, draws)
            shown = program.outputs(inputs.clone(), [0, size])
            with torch.no_grad():
                outputs = twin.eval()(inputs.clone())
            if not all(map(torch.equal, (losses, *expected, outputs), (found, *gradients, shown))):
                return False
    except Exception:  # the network's own errors as well: the training raises them
        return False
    return True


@cache
def _without_python() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The program's functions in TorchScript, by their Python functions; empty where PyTorch has no TorchScript.

    For Python 3.14 and later, PyTorch does not support TorchScript any more.
    """
    if sys.version_info >= (3, 14):
        return {}
    try:
        # TorchScript's deprecation warning is not suppressed: warnings.catch_warnings would show earlier warnings a second time
        functions: list[Callable[..., Any]] = [plain_functions.gradients, plain_functions.descend]
        functions += [outputs_of_parts, descend_series, squared_norms]
        return {function: torch.jit.script(function) for function in functions}
    except Exception:
        return {}
