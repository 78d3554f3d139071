"""The functions of a plain network's program, in TorchScript: the part of Python that PyTorch runs without Python.

:mod:`fedcohort.training.programs.plain_network` calls them. They make the calls that autograd and the optimizers would make.
"""

import torch
from torch import Tensor

from fedcohort.training.programs.forward_functions import Helpers, noted_outputs
from fedcohort.training.programs.layer_functions import before, before_norm, layer_gradients, unpooled
from fedcohort.training.programs.optimizer_steps import correct, take_step
from fedcohort.training.programs.plain_layers import Layer
from fedcohort.training.programs.shared_gradients import takes_long

__all__ = ["descend", "gradients"]


def descend(
    layers: list[Layer], values: list[Tensor], features: Tensor, labels: Tensor, order: Tensor, size: int,
    rule: str, rates: list[float], nesterov: bool, states: list[list[Tensor]], fresh: bool,
    shifts: list[Tensor], anchors: list[Tensor], mu: float, clip: float, draws: list[torch.Generator], helpers: list[Helpers],
) -> tuple[list[Tensor], Tensor, list[Tensor]]:  # fmt: skip
    """The steps of :meth:`Program.descend <fedcohort.training.programs.plain_network.Program.descend>`.

    Args:
        layers, values: the network.
        features, labels, order, size: see there.
        rule, rates, nesterov, states, fresh: what the optimizer does, see :class:`fedcohort.training.optimizers.Rule`.
        shifts: added to the gradients of every step; empty for none.
        anchors, mu: μ·(values − anchors) is added to the gradients of every step, unless μ is 0.
        clip: largest norm of a gradient, before anything is added to it; 0 means no clipping.
        draws: for every step, the generator of Dropout; empty if there is none.
        helpers: threads that may take a part of the work; empty if there are none.
    """
    seen: list[Tensor] = []
    guesses: list[Tensor] = []
    last: list[Tensor] = []
    labels = labels.index_select(0, order)
    even = torch.full([size], 1 / size, dtype=values[0].dtype)
    for start in range(0, len(labels), size):
        inputs, batch = features.index_select(0, order[start : start + size]), labels[start : start + size]
        inputs = inputs.permute(0, 3, 1, 2) if inputs.dim() == 4 else inputs
        step = start // size
        slopes = even if len(batch) == size else torch.full_like(even[: len(batch)], 1 / len(batch))
        losses, guess, last = _one_pass(
            layers, values, inputs, batch, None, len(batch), slopes, draws[step : step + 1], helpers
        )
        correct(last, values, shifts, anchors, mu, clip)
        take_step(values, last, rule, rates, nesterov, states, fresh and start == 0)
        seen.append(losses)
        guesses.append(guess)
    right = (torch.cat(guesses) == labels).sum() if len(guesses) > 0 else torch.zeros([], dtype=torch.int64)
    return seen, right, last


def gradients(
    layers: list[Layer], values: list[Tensor], inputs: Tensor, labels: Tensor, weights: Tensor | None, size: int,
    draws: list[torch.Generator], helpers: list[Helpers],
) -> tuple[Tensor, Tensor, list[Tensor]]:  # fmt: skip
    """The gradient of :meth:`Program.backward <fedcohort.training.programs.plain_network.Program.backward>`.

    ``draws`` is empty, or the generator of Dropout, which otherwise does nothing. ``helpers`` that are idle take parts of the batch in
    the forward pass, and compute the gradients of the weights of large layers beside those of their inputs, by the same calls.
    """
    losses, guess, found = _one_pass(layers, values, inputs, labels, weights, size, None, draws, helpers)
    return losses, (guess == labels).sum(), found


def _one_pass(
    layers: list[Layer], values: list[Tensor], inputs: Tensor, labels: Tensor, weights: Tensor | None, size: int,
    even: Tensor | None, draws: list[torch.Generator], helpers: list[Helpers],
) -> tuple[Tensor, Tensor, list[Tensor]]:  # fmt: skip
    """As :func:`gradients`, with the predictions of the samples instead of the number of correct ones.

    ``even`` is 1/``size`` for each sample, for passes without weights; None if it is not there yet.
    """
    given: list[Tensor] = []
    notes: list[Tensor] = []
    x = noted_outputs(layers, values, inputs, given, notes, draws, helpers)
    scores = torch.log_softmax(x, 1)
    losses, total = torch.ops.aten.nll_loss_forward(scores, labels, None, 0, -100)
    guess = x.argmax(1)

    slopes = torch.full_like(losses, 1 / size) if even is None else even
    if weights is not None:
        slopes = (torch.full_like(losses * weights, 1 / size) * weights).to(losses.dtype)
    delta = torch.ops.aten.nll_loss_backward(slopes, scores, labels, None, 0, -100, total)
    delta = torch.ops.aten._log_softmax_backward_data(delta, scores, 1, scores.dtype)
    found = list(values)  # every entry is replaced below
    begun: list[tuple[Layer, torch.jit.Future[tuple[Tensor, Tensor, Tensor]]]] = []
    for i in range(len(layers) - 1, -1, -1):
        layer, x = layers[i], given.pop()
        if layer.kind == "pooling":
            delta = unpooled(layer, x, notes.pop(), delta)
        elif layer.kind == "norm":
            deviation = notes.pop()
            delta = before_norm(layer, values, x, notes.pop(), deviation, delta, found)
        elif layer.kind == "dropout":
            delta = delta * notes.pop() if len(draws) > 0 else delta
        elif layer.weight < 0:
            delta = before(layer, x, delta)
        else:
            delta = _own_layer(layer, values, x, delta, found, begun, helpers)
        if not layer.back:
            break
    for layer, call in begun:
        _, own, shift = torch.jit.wait(call)
        _put(layer, own, shift, found)
    return losses, guess, found


def _own_layer(
    layer: Layer, values: list[Tensor], x: Tensor, delta: Tensor, found: list[Tensor],
    begun: list[tuple[Layer, torch.jit.Future[tuple[Tensor, Tensor, Tensor]]]], helpers: list[Helpers],
) -> Tensor:  # fmt: skip
    """The gradient of the inputs of a convolution or of a linear layer; puts those of its parameters into ``found``, or, if an idle
    thread computes them, into ``begun``."""
    if layer.back and len(helpers) > 0 and takes_long(delta, values[layer.weight]) and bool(helpers[0].idle > 0):
        begun.append((layer, torch.jit.fork(layer_gradients, layer, values, x, delta, False, True)))
        before, _, _ = layer_gradients(layer, values, x, delta, True, False)
        return before
    before, own, shift = layer_gradients(layer, values, x, delta, layer.back, True)
    _put(layer, own, shift, found)
    return before


def _put(layer: Layer, own: Tensor, shift: Tensor, gradients: list[Tensor]) -> None:
    """Put the gradients of a layer's weights and of its bias into ``gradients``."""
    gradients[layer.weight] = own
    if layer.bias >= 0:
        gradients[layer.bias] = shift
